"""Slices of different sizes sent from entry to entry, against a loop that sends them one by one."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

import fxgrad
from fxgrad import errors, lax
from fxgrad.testing import check_grads

COUNT, EACH, ROWS, SLOTS = 4, 2, 9, 20
RANDOM = np.random.default_rng(0)
SIZES = RANDOM.integers(0, 3, (COUNT, COUNT * EACH)).astype(np.int32)  # of the slices that each entry sends
STARTS = RANDOM.integers(0, ROWS - 2, SIZES.shape).astype(np.int32)  # they overlap
ARRIVING = SIZES.reshape(COUNT, COUNT, EACH).swapaxes(0, 1).reshape(SIZES.shape)
PLACES = (np.cumsum(ARRIVING, 1) - ARRIVING + 1).astype(np.int32)  # where each writes what arrives, one after the other
PLACES = PLACES.reshape(COUNT, COUNT, EACH).swapaxes(0, 1).reshape(SIZES.shape)
X, Y = RANDOM.normal(size=(COUNT, ROWS, 3)), RANDOM.normal(size=(COUNT, SLOTS, 3))


def exchanged(x: Any, y: Any, *places: Any) -> Any:
    return lax.ragged_all_to_all(x, y, *places, axis_name="i")


def one_by_one(x: Any, y: Any) -> Any:
    result = y.copy()
    for source in range(COUNT):
        for index, size in enumerate(SIZES[source]):
            start, place = STARTS[source, index], PLACES[source, index]
            result[index // EACH, place:place + size] = x[source, start:start + size]
    return result


def test_values_and_derivatives() -> None:
    mapped = fxgrad.vmap(exchanged, axis_name="i")
    np.testing.assert_array_equal(mapped(X, Y, STARTS, SIZES, PLACES, ARRIVING), one_by_one(X, Y))
    weights = RANDOM.normal(size=Y.shape)
    slopes = fxgrad.grad(lambda x, y: np.sum(weights * mapped(x, y, STARTS, SIZES, PLACES, ARRIVING)), (0, 1))(X, Y)
    # It is linear: the transposed matrix has the rows that the loop makes of unit vectors.
    for slope, function in zip(slopes, (lambda x: one_by_one(x, 0 * Y), lambda y: one_by_one(0 * X, y)), strict=True):
        units = np.eye(slope.size).reshape(-1, *slope.shape)
        np.testing.assert_allclose(slope.reshape(-1), [np.sum(weights * function(unit)) for unit in units], 1e-12)


def test_beside_another_axis_and_in_groups() -> None:
    both = fxgrad.vmap(fxgrad.vmap(exchanged, axis_name="i"), in_axes=(0, 0, None, None, None, None))
    np.testing.assert_array_equal(both(np.stack([X, 2 * X]), np.stack([Y, Y]), STARTS, SIZES, PLACES, ARRIVING),
                                  np.stack([one_by_one(X, Y), one_by_one(2 * X, Y)]))
    one = np.ones((4, 2), np.int32)
    numbers = 0 * one, one, np.array([[0, 0], [0, 0], [1, 1], [1, 1]]), one
    swapped = fxgrad.vmap(lambda x, *places: lax.ragged_all_to_all(
        x, np.zeros(2), *places, axis_name="i", axis_index_groups=[[0, 2], [1, 3]]), axis_name="i")
    np.testing.assert_array_equal(swapped(np.arange(4.0)[:, None], *numbers), [[0, 2], [1, 3], [0, 2], [1, 3]])
    check_grads(lambda x: swapped(x, *numbers), (np.arange(4.0)[:, None],), order=2)


@pytest.mark.slow
def test_on_devices() -> None:
    """As jax's own, which XLA has for GPUs and TPUs alone, would be."""
    mesh, rows = jax.make_mesh((4,), ("i",), axis_types=(AxisType.Auto,)), PartitionSpec("i")
    inside = fxgrad.to_jax(exchanged)
    mapped = jax.jit(jax.shard_map(lambda *values: inside(*(value[0] for value in values))[None], mesh=mesh,
                                   in_specs=(rows,) * 6, out_specs=rows, check_vma=False))
    with jax.enable_x64(True):
        np.testing.assert_array_equal(mapped(X, Y, STARTS, SIZES, PLACES, ARRIVING), one_by_one(X, Y))


@pytest.mark.parametrize(("args", "error", "message"), [
    ((np.ones(3), np.ones((2, 1))), errors.ShapeError,
     ("ragged_all_to_all: an operand of shape (3,) and an output of shape (2, 1), where arrays are needed that differ "
      "in the size of their first axis alone")),
    ((np.ones(3), np.ones(2, np.float32)), errors.DTypeError,
     ("ragged_all_to_all: an operand of float64 and an output of float32; convert one with x.astype(...)")),
    ((np.ones(3), np.ones(2), np.zeros(4)), errors.DTypeError,
     "ragged_all_to_all: input_offsets is of float64, where integers are needed"),
    ((np.ones(3), np.ones(2), np.zeros(4, np.int32), np.zeros(2, np.int32)), errors.ShapeError,
     ("ragged_all_to_all: send_sizes is of shape (2,), where one axis is needed, as long as that of input_offsets, "
      "(4,), and a multiple of 4, the entries that speak with each other")),
])
def test_messages(args: tuple[Any, ...], error: type[Exception], message: str) -> None:
    rest = (np.zeros(4, np.int32),) * (6 - len(args))

    def call(x: Any) -> Any:
        return lax.ragged_all_to_all(*args, *rest, axis_name="i")
    with pytest.raises(error, match=f"^{re.escape(message)}(\n  at .*)?$"):
        fxgrad.vmap(call, axis_name="i")(np.ones(4))
