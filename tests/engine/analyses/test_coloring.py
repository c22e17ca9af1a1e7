"""Compressions of random matrices: the products hold every entry where they say, for bands, hubs, blocks and grids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from fxgrad.engine.analyses.coloring import compress, compress_symmetric

Random = np.random.Generator


def band(random: Random, height: int, width: int) -> Any:
    reach = random.integers(0, 4)
    return np.abs(np.arange(height)[:, None] - np.arange(width)) <= reach


def hubs(random: Random, height: int, width: int) -> Any:
    found = np.eye(height, width, dtype=bool)
    found[random.integers(0, height, 2)] = True
    found[:, random.integers(0, width, 2)] = True
    return found


def scattered(random: Random, height: int, width: int) -> Any:
    return random.uniform(size=(height, width)) < random.choice([0.02, 0.1, 0.4])


def blocks(random: Random, height: int, width: int) -> Any:
    size = random.integers(1, 6)
    return np.arange(height)[:, None] // size == np.arange(width) // size


def grid(_: Random, height: int, width: int) -> Any:
    apart = np.abs(np.arange(height)[:, None] - np.arange(width))
    return (apart == 0) | (apart == 1) | (apart == 7)


KINDS: dict[str, Callable[[Random, int, int], Any]] = {
    each.__name__: each for each in (band, hubs, scattered, blocks, grid)}


def entries(matrix: Any, compression: Any) -> Any:
    """What the products hold at the places of the entries."""
    def seeds(coloring: Any) -> Any:
        return (coloring.colors == np.arange(coloring.number)[:, None]).astype(float)

    columns, rows, places = compression
    products = [(seeds(columns) @ matrix.T if columns.number else np.zeros(0)).reshape(-1),
                (seeds(rows) @ matrix if rows.number else np.zeros(0)).reshape(-1)]
    return np.concatenate(products)[places]


@pytest.mark.parametrize("kind", KINDS)
def test_products_hold_all_entries(kind: str) -> None:
    random = np.random.default_rng(3)
    for _ in range(30):
        height, width = random.integers(1, 60, 2)
        csr = sparse.csr_array(KINDS[kind](random, height, width))
        csr.sort_indices()
        matrix = csr.toarray() * random.normal(size=(height, width))
        for mode in ("forward", "reverse", "auto"):
            found = compress(csr.indptr, csr.indices, width, mode)
            np.testing.assert_array_equal(entries(matrix, found), matrix[csr.nonzero()])


@pytest.mark.parametrize("kind", KINDS)
def test_products_hold_all_entries_of_symmetric_matrices(kind: str) -> None:
    random = np.random.default_rng(4)
    for _ in range(30):
        size = int(random.integers(1, 90))
        places = KINDS[kind](random, size, size)
        csr = sparse.csr_array(places | places.T)
        csr.sort_indices()
        values = random.normal(size=(size, size))
        matrix = csr.toarray() * (values + values.T)
        np.testing.assert_array_equal(entries(matrix, compress_symmetric(csr.indptr, csr.indices)),
                                      matrix[csr.nonzero()])


def test_hubs_cost_few_products_wherever_they_stand() -> None:
    for place in (0, 5, 99):
        arrow = np.eye(100, dtype=bool)
        arrow[place] = arrow[:, place] = True
        csr = sparse.csr_array(arrow)
        found = compress(csr.indptr, csr.indices, 100, "auto")
        assert (found.columns.number, found.rows.number) == (2, 1)
        assert compress_symmetric(csr.indptr, csr.indices).columns.number == 2
