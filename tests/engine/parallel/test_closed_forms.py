"""Collectives against closed forms, of entries whose axes all differ in size."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jax.sharding import AbstractMesh, PartitionSpec

import fxgrad

ENTRIES = np.arange(3 * 4 * 6 * 5.0).reshape(3, 4, 6, 5)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("place", [0, 2])
def test_gathered_and_scattered_along_each_axis(axis: int, place: int) -> None:
    given = np.moveaxis(ENTRIES, 0, place)
    gathered = fxgrad.vmap(lambda x: fxgrad.lax.all_gather(x, "i", axis=axis, tiled=True), in_axes=place,
                           axis_name="i")(given)
    for row in gathered:
        np.testing.assert_array_equal(row, np.concatenate(ENTRIES, axis))
    scattered = fxgrad.vmap(lambda x: fxgrad.lax.psum_scatter(
        x, "i", scatter_dimension=axis, tiled=True), in_axes=place, axis_name="i")(
            np.moveaxis(np.concatenate([ENTRIES] * 3, axis + 1), 0, place))
    pieces = np.split(np.concatenate([ENTRIES] * 3, axis + 1).sum(0), 3, axis)
    np.testing.assert_array_equal(scattered, pieces)


@pytest.mark.parametrize("perm", [[(0, 2), (1, 0)], [(1, 2), (2, 3), (4, 0)], [(3, 1), (4, 2)], [(2, 2)], [],
                                  [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)], [(0, 4), (1, 3), (2, 2)]])
def test_permuted_entries(perm: list[tuple[int, int]]) -> None:
    x = np.arange(1.0, 11.0).reshape(5, 2)
    moved = fxgrad.vmap(lambda x: fxgrad.lax.ppermute(x, "i", perm), axis_name="i")(x)
    expected = np.zeros_like(x)
    for source, target in perm:
        expected[target] = x[source]
    np.testing.assert_array_equal(moved, expected)
    weights = np.arange(5.0)[:, None] + 1.0
    slope = fxgrad.grad(lambda x: np.sum(weights * fxgrad.vmap(
        lambda x: fxgrad.lax.ppermute(x, "i", perm), axis_name="i")(x)))(x)
    back = np.zeros_like(x)
    for source, target in perm:
        back[source] = weights[target]
    np.testing.assert_array_equal(slope, back)


@pytest.mark.parametrize("names", [*itertools.permutations("ijk")])
def test_moves_over_three_axes_are_those_over_one(names: tuple[str, ...]) -> None:
    """The first name changes slowest."""
    x = np.arange(2 * 3 * 2 * 12 * 2.0).reshape(2, 3, 2, 12, 2)

    def over(move: Callable[[Any], Any]) -> Any:
        for name in "kji":
            move = fxgrad.vmap(move, axis_name=name)
        return move(x)

    def in_one(array: Any) -> Any:
        return array.transpose(*("ijk".index(name) for name in names), 3, 4).reshape(12, *array.shape[3:])

    entries = in_one(x)
    perm = [(0, 7), (7, 3), (11, 0), (5, 5), (2, 10)]
    expected = np.zeros_like(entries)
    for source, target in perm:
        expected[target] = entries[source]
    np.testing.assert_array_equal(in_one(over(lambda x: fxgrad.lax.ppermute(x, names, perm))), expected)
    for split, concat in ((0, 1), (0, 0)):
        found = in_one(over(lambda x, at=(split, concat): fxgrad.lax.all_to_all(x, names, *at, tiled=True)))
        for number, row in enumerate(found):
            np.testing.assert_array_equal(row, np.concatenate([np.split(each, 12, split)[number] for each in entries],
                                                              concat))


def test_a_gather_and_a_scatter_of_sums_are_each_others_transposes() -> None:
    def turned(function: Callable[..., Any], spec: PartitionSpec) -> list[str]:
        mapped = fxgrad.shard_map(function, mesh=AbstractMesh((3,), ("i",)), in_specs=spec, out_specs=spec)
        program = fxgrad.make_program(lambda ct: fxgrad.linear_transpose(mapped, np.ones((9, 2)))(ct))(
            fxgrad.eval_shape(mapped, np.ones((9, 2))))
        return sorted(each.kind for each in fxgrad.traffic(program))

    def gathered(x: Any) -> Any:
        return fxgrad.lax.all_gather(x, "i", tiled=True)

    def scattered(x: Any) -> Any:
        return fxgrad.lax.psum_scatter(x, "i", tiled=True)
    assert turned(gathered, PartitionSpec("i")) == ["reduce-scatter"]
    assert turned(lambda x: scattered(gathered(x)), PartitionSpec("i")) == ["all-gather", "reduce-scatter"]
