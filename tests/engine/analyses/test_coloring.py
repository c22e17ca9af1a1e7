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


def torus(random: Random, height: int, width: int) -> Any:
    apart = (np.arange(width) - np.arange(height)[:, None]) % width
    return np.isin(apart, [0, 1, width - 1, *random.integers(0, width, 2)])


def fields(random: Random, height: int, width: int) -> Any:
    met = random.uniform(size=(4, 4)) < 0.4
    reach = random.integers(0, 2)
    return np.kron(met, np.abs(np.subtract.outer(np.arange(height), np.arange(width))) <= reach)[:height, :width]


def band_with_hubs(random: Random, height: int, width: int) -> Any:
    return band(random, height, width) | hubs(random, height, width)


KINDS: dict[str, Callable[[Random, int, int], Any]] = {
    each.__name__: each for each in (
        band, hubs, scattered, blocks, grid, torus, fields, band_with_hubs)}


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


def numbers(places: Any, symmetric: bool = False) -> int:
    csr = sparse.csr_array(places)
    csr.sort_indices()
    found = (compress_symmetric(csr.indptr, csr.indices) if symmetric
             else compress(csr.indptr, csr.indices, places.shape[1], "forward"))
    np.testing.assert_array_equal(entries(csr.toarray().astype(float), found), 1.0)
    return found.columns.number


def circle(size: int, reach: int = 1) -> Any:
    apart = np.subtract.outer(np.arange(size), np.arange(size)) % size
    return (apart <= reach) | (apart >= size - reach)


def path(size: int) -> Any:
    return np.abs(np.subtract.outer(np.arange(size), np.arange(size))) <= 1


def five_points(line: Any) -> Any:
    return np.kron(line, np.eye(len(line), dtype=bool)) | np.kron(np.eye(len(line), dtype=bool), line)


def test_grids_take_as_many_products_as_a_row_has_entries() -> None:
    assert numbers(five_points(path(12))) == 5
    assert numbers(five_points(circle(15))) == 5  # along the edges too, where five divides the sides
    assert numbers(np.kron(path(12), path(12))) == 9
    assert numbers(np.kron(circle(9), circle(9))) == 9
    own = np.eye(6, dtype=bool)
    axes = [np.kron(np.kron(*pair), last) for *pair, last in (
        (path(6), own, own), (own, path(6), own), (own, own, path(6)))]
    assert numbers(axes[0] | axes[1] | axes[2]) == 7


def test_fields_that_meet_element_by_element_are_colored_as_fields() -> None:
    star = np.eye(5, dtype=bool)
    star[2] = star[:, 2] = True
    assert numbers(np.kron(star, np.eye(40, dtype=bool)), symmetric=True) == 2
    assert numbers(np.kron(np.eye(40, dtype=bool), star), symmetric=True) == 2
    ring = circle(4)
    assert numbers(np.kron(np.eye(40, dtype=bool), ring), symmetric=True) == 3


@pytest.mark.parametrize("place", [0, 57, 99])
def test_hubs_beside_a_band_get_colors_of_their_own(place: int) -> None:
    found = path(100)
    found[place] = found[:, place] = True
    assert numbers(found, symmetric=True) <= 4


def test_indices_of_32_bits_do_not_overflow() -> None:
    size = 200_000
    hub = np.full(size - 1, size - 1)
    rows = np.concatenate([np.arange(size), np.arange(size - 1), hub]).astype(np.int32)
    columns = np.concatenate([np.arange(size), hub, np.arange(size - 1)]).astype(np.int32)
    arrow = sparse.csr_array((np.ones(rows.size), (rows, columns)), (size, size))
    arrow.sort_indices()
    assert arrow.indices.dtype == np.int32
    found = compress_symmetric(arrow.indptr, arrow.indices)
    assert found.columns.number == 2
    assert found.places.min() >= 0
    assert found.places.max() < 2 * size
