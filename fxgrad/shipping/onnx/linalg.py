"""Factorizations of matrices and triangular systems, as loops over columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad import lax
from fxgrad.extend import primitives
from fxgrad.shipping.onnx.definitions import definition_rule
from fxgrad.shipping.onnx.rules import onnx_rules


def _numbers(size: int) -> Any:
    return np.arange(size, dtype=np.int32)


def _swap_axes(a: Any) -> Any:
    return np.swapaxes(a, -1, -2)


def _column(a: Any, place: Any) -> Any:
    return lax.dynamic_index_in_dim(a, place, a.ndim - 1, keepdims=False)


def _row(a: Any, place: Any) -> Any:
    return lax.dynamic_index_in_dim(a, place, a.ndim - 2, keepdims=False)


def _cholesky(a: Any) -> Any:
    """Factor column by column: subtract the columns before, and divide by the root of the diagonal element."""
    size = a.shape[-1]

    def step(place: Any, found: Any) -> Any:
        rest = _column(a, place) - (found @ _row(found, place)[..., None])[..., 0]
        root = np.sqrt(lax.dynamic_index_in_dim(rest, place, rest.ndim - 1, keepdims=True))
        column = np.where(_numbers(size) >= place, rest / root, 0)
        return lax.dynamic_update_index_in_dim(found, column, place, found.ndim - 1)

    found = lax.fori_loop(0, size, step, np.zeros_like(a))
    failed = np.any(np.isnan(found), axis=(-1, -2), keepdims=True)
    return np.where(failed & (_numbers(size)[:, None] >= _numbers(size)), np.nan, found)


def _triangular_solve(a: Any, b: Any, *, left_side: bool, lower: bool, transpose_a: bool, unit_diagonal: bool,
                      **_: Any) -> Any:
    """Solve after transposing and reversing so that the matrix is lower triangular and on the left."""
    if transpose_a != (not left_side):
        a, lower = _swap_axes(a), not lower
    if not left_side:
        b = _swap_axes(b)
    if not lower:
        a, b = a[..., ::-1, ::-1], b[..., ::-1, :]
    def step(place: Any, x: Any) -> Any:
        row = _row(a, place)
        rest = _row(b, place) - (np.where(_numbers(a.shape[-1]) < place, row, 0)[..., None, :] @ x)[..., 0, :]
        if not unit_diagonal:
            rest = rest / lax.dynamic_index_in_dim(row, place, row.ndim - 1, keepdims=True)
        return lax.dynamic_update_index_in_dim(x, rest, place, x.ndim - 2)

    x = lax.fori_loop(0, a.shape[-1], step, np.zeros_like(b))
    if not lower:
        x = x[..., ::-1, :]
    return x if left_side else _swap_axes(x)


def _swap_entries(x: Any, one: Any, other: Any, axis: int) -> Any:
    """Return `x` with two entries along an axis exchanged; in stacks the positions may differ."""
    numbers = _numbers(x.shape[axis])
    one, other = one[..., None], other[..., None]
    order = np.where(numbers == one, other, np.where(numbers == other, one, numbers))
    return np.take_along_axis(x, order[..., None] if axis == -2 else order, axis)


def _lu(a: Any) -> Any:
    """Factor by Gaussian elimination with the largest pivot of each column; return also the pivots and row order."""
    rows, columns = a.shape[-2:]
    steps, numbers = min(rows, columns), _numbers(rows)

    def step(place: Any, state: Any) -> Any:
        a, pivots, order = state
        sizes = np.where(numbers >= place, np.abs(_column(a, place)), -1)
        pivot = np.argmax(sizes, axis=-1)
        here = np.zeros_like(pivot) + place
        a, order = _swap_entries(a, here, pivot, -2), _swap_entries(order, here, pivot, -1)
        pivots = lax.dynamic_update_index_in_dim(pivots, pivot, place, pivots.ndim - 1)
        column = _column(a, place)
        head = lax.dynamic_index_in_dim(column, place, column.ndim - 1, keepdims=True)
        factors = np.where(numbers > place, column / np.where(head == 0, 1, head), 0)
        row = np.where(_numbers(columns) > place, _row(a, place), 0)
        a = a - factors[..., :, None] * row[..., None, :]
        column = np.where(numbers > place, factors, column)
        return lax.dynamic_update_index_in_dim(a, column, place, a.ndim - 1), pivots, order

    stack = a.shape[:-2]
    if not a.size:
        return a, np.zeros((*stack, steps), np.int32), np.broadcast_to(numbers, (*stack, rows))
    begin = (a, np.zeros((*stack, steps), np.int32), np.broadcast_to(numbers, (*stack, rows)))
    return lax.fori_loop(0, steps, step, begin)


def _lu_pivots_to_permutation(pivots: Any, *, permutation_size: int) -> Any:
    """Return the order of rows after all exchanges in turn."""
    def step(place: Any, order: Any) -> Any:
        pivot = _column(pivots, place)
        return _swap_entries(order, np.zeros_like(pivot) + place, pivot, -1)

    numbers = np.arange(permutation_size, dtype=pivots.dtype)
    return lax.fori_loop(0, pivots.shape[-1], step, np.broadcast_to(numbers, (*pivots.shape[:-1], permutation_size)))


def _tridiagonal_solve(below: Any, diagonal: Any, above: Any, b: Any) -> Any:
    """Elimination forwards, then backwards (L. Thomas, 1949), without pivots."""
    def forward(state: Any, each: Any) -> Any:
        over, solved = state
        low, middle, high, right = each
        pivot = middle - low * over
        over, solved = high / pivot, (right - low[..., None] * solved) / pivot[..., None]
        return (over, solved), (over, solved)

    def back(x: Any, each: Any) -> Any:
        over, solved = each
        x = solved - over[..., None] * x
        return x, x

    low, middle, high = (np.moveaxis(line, -1, 0) for line in (below, diagonal, above))
    right = np.moveaxis(b, -2, 0)
    begin = np.zeros_like(right[0])
    _, factors = lax.scan(forward, (np.zeros_like(low[0]), begin), (low, middle, high, right))
    return np.moveaxis(lax.scan(back, begin, factors, reverse=True)[1], 0, -2)


for _name, _function in (
        ("cholesky", _cholesky), ("triangular_solve", _triangular_solve), ("lu", _lu),
        ("lu_pivots_to_permutation", _lu_pivots_to_permutation), ("tridiagonal_solve", _tridiagonal_solve)):
    onnx_rules.enter(definition_rule(_function), primitives[_name])
