"""Collectives on arrays whose axes all differ in size, against NumPy: where axes are merged, cut and moved."""

from __future__ import annotations

import numpy as np
import pytest

import fxgrad
from fxgrad import lax

X = np.arange(4 * 2 * 3 * 5.0).reshape(4, 2, 3, 5)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gathered_in_one_axis(axis: int) -> None:
    found = fxgrad.vmap(lambda x: lax.all_gather(x, "i", axis=axis, tiled=True), axis_name="i")(X)
    np.testing.assert_array_equal(found, np.stack([np.concatenate([*X], axis)] * 4))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scattered_along_one_axis(axis: int) -> None:
    x = np.repeat(X, 4, axis + 1)
    found = fxgrad.vmap(lambda x: lax.psum_scatter(x, "i", scatter_dimension=axis, tiled=True), axis_name="i")(x)
    np.testing.assert_array_equal(found, np.stack(np.split(x.sum(0), 4, axis)))


@pytest.mark.parametrize("order", [[3, 2, 1, 0], [2, 3, 0, 1], [1, 2, 3, 0], [0, 2, 1, 3]])
def test_permuted(order: list[int]) -> None:
    found = fxgrad.vmap(lambda x: lax.ppermute(x, "i", [*zip(order, range(4), strict=True)]), axis_name="i")(X)
    np.testing.assert_array_equal(found, X[order])


def test_neighbours_move_as_one_piece() -> None:
    shift = [(entry, (entry + 1) % 8) for entry in range(8)]
    program = fxgrad.make_program(fxgrad.vmap(lambda x: lax.ppermute(x, "i", shift), axis_name="i"))(np.arange(8.0))
    assert [equation.primitive.name for equation in program.equations] == ["slice", "slice", "concatenate"]
