"""Sparsity of linear operations that combine elements: sums, products, convolutions, windows, solves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine.analyses.index_sets import Dependence, joined, union
from fxgrad.engine.analyses.sparsity_moves import sparsity_rules
from fxgrad.engine.analyses.sparsity_values import Value, Walk, conservative, linear_values
from fxgrad.engine.analyses.sparsity_zeros import has_known_zeros, mask_of
from fxgrad.engine.core.program import Equation
from fxgrad.engine.ops import (
    convolution,
    cumulative,
    fft,
    matrix_functions,
    pool,
    products,
    structural,
    triangular,
)
from fxgrad.engine.ops.strong import strong_dot_general_p


@sparsity_rules.register(structural.reduce_sum_p)
def _sum(_: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    return [values[0].merged(equation.params["axes"])]


@sparsity_rules.register(cumulative.cumsum_p, cumulative.linear_recurrence_p)
def _running(_: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    params = equation.params
    return [values[-1].accumulated(params["axis"], params["reverse"])]


@sparsity_rules.register(products.dot_general_p, strong_dot_general_p)
def _dot(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    contracted, batch = equation.params["dimension_numbers"]
    side = 0 if type(values[0]) is Dependence else 1
    found, factor = values[side], values[1 - side]
    if type(factor) is Dependence:  # no product of linear values; a user's own
        return conservative(walk, equation, values)
    own = [*batch[side]], [*contracted[side]]
    other = [*batch[1 - side]], [*contracted[1 - side]]
    shape = equation.inputs[1 - side].aval.shape
    free = [axis for axis in range(len(found.shape)) if axis not in (*own[0], *own[1])]
    free_of_factor = [axis for axis in range(len(shape)) if axis not in (*other[0], *other[1])]
    order = (*own[0], *free, *own[1])
    moved = found.viewed(lambda index: index.transpose(*order, len(order)))  # (batch, free, contracted)
    first, middle = len(own[0]), len(own[0]) + len(free)
    table = mask_of(factor).transpose(*other[0], *free_of_factor, *other[1]) if has_known_zeros(factor) else None
    rows = math.prod(shape[axis] for axis in free_of_factor)
    inner = moved.shape[middle:]
    if table is not None and table.size:
        table = table.reshape(*[-1 if first else 1] * 1, rows, math.prod(inner)).any(0)
        result = _weighted(moved, table, middle)  # (batch, free, rows)
    else:
        merged = moved.merged(range(middle, len(moved.shape)))
        result = merged.viewed(lambda index: np.broadcast_to(
            index[..., None, :], (*index.shape[:-1], rows, index.shape[-1])))
    sizes = [shape[axis] for axis in free_of_factor]
    result = result.reshaped((*result.shape[:-1], *sizes))
    if side == 1:  # the factor's axes come before those of the linear operand
        back = (*range(first), *range(middle, middle + len(sizes)), *range(first, middle))
        result = result.viewed(lambda index: index.transpose(*back, len(back)))
    return [result]


def _weighted(found: Dependence, table: Any, middle: int) -> Dependence:
    """Return (..., rows) of (..., contracted), where row r combines the elements that `table[r]` marks."""
    counts = table.sum(1)
    most = int(counts.max()) if counts.size else 0
    flat = found.reshaped((*found.shape[:middle], table.shape[1]))
    chosen = np.full((table.shape[0], most), -1, np.int64)
    chosen[np.arange(most)[None, :] < counts[:, None]] = np.nonzero(table)[1]
    outer = _numbers(flat.shape[:-1])[..., None, None] * table.shape[1]
    ids = np.where(chosen >= 0, outer + chosen, -1)  # (..., rows, most)
    taken = flat.take(ids)
    return taken.merged([len(taken.shape) - 1])


def _numbers(shape: Any) -> Any:
    return np.arange(math.prod(shape)).reshape(shape)


@sparsity_rules.register(convolution.conv_general_dilated_p)
def _convolution(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    if type(values[0]) is not Dependence or type(values[1]) is Dependence:
        return _of_kernel(walk, equation, values)
    geometry = convolution.geometry_of(equation.params)
    if geometry.batch_group_count > 1:
        return conservative(walk, equation, values)
    image, kernel = values
    lhs_spec, rhs_spec, out_spec = geometry.dimension_numbers
    window = equation.inputs[1].aval.shape
    weights = mask_of(kernel).transpose(*rhs_spec) if has_known_zeros(kernel) else None
    moved = image.viewed(lambda index: index.transpose(*lhs_spec, len(lhs_spec)))  # (batch, channels, space)
    groups, made = geometry.feature_group_count, window[rhs_spec[0]]
    batch, channels, *extents = moved.shape
    space, size, per = math.prod(extents), channels // groups, made // groups
    out = equation.outputs[0].aval.shape
    counts = [out[axis] for axis in out_spec[2:]]
    results = []
    for offset in np.ndindex(*[window[axis] for axis in rhs_spec[2:]]):
        part = None if weights is None else weights[(slice(None), slice(None), *offset)]
        if part is not None and not part.any():
            continue
        ids, inside = _seen(geometry, offset, counts, extents)
        outer = np.arange(batch * channels).reshape(batch, channels, *[1] * len(counts)) * space
        seen = moved.take(np.where(inside, outer + ids, -1))  # (batch, channels, counts)
        grouped = seen.viewed(lambda index: np.moveaxis(index.reshape(
            batch, groups, size, *counts, index.shape[-1]), 2, -2))  # (batch, groups, counts, channels)
        if part is None or part.all():
            merged = grouped.merged([len(grouped.shape) - 1])
            found = merged.viewed(lambda index: np.moveaxis(np.broadcast_to(
                index[..., None, :], (*index.shape[:-1], per, index.shape[-1])), -2, 2))
            results.append(found.reshaped((batch, made, *counts)))
        else:
            pieces = [_weighted(grouped.viewed(lambda index, group=group: index[:, group]),
                                part[group * per:(group + 1) * per], 1 + len(counts)) for group in range(groups)]
            pieces = [piece.viewed(lambda index: np.moveaxis(index, -2, 1)) for piece in pieces]
            results.append(joined(pieces, [piece.shape for piece in pieces], 1, walk.width))
    total = union(results, (batch, made, *counts), walk.width)
    return [_in_order(total, out_spec)]


def _seen(geometry: Any, offset: Sequence[int], counts: Sequence[int], extents: Sequence[int]) -> tuple[Any, Any]:
    """Return, by window, the place in the flat image under one place of the kernel, and whether it is inside."""
    ids = np.zeros([1] * len(counts), np.int64)
    inside = np.ones([1] * len(counts), bool)
    for axis, (at, count, extent) in enumerate(zip(offset, counts, extents, strict=True)):
        place = (np.arange(count) * geometry.window_strides[axis] + at * geometry.rhs_dilation[axis]
                 - geometry.padding[axis][0])
        own, rest = np.divmod(place, geometry.lhs_dilation[axis])
        fits = (rest == 0) & (own >= 0) & (own < extent)
        shape = [count if each == axis else 1 for each in range(len(counts))]
        ids = ids * extent + np.where(fits, own, 0).reshape(shape)
        inside = inside & fits.reshape(shape)
    return ids, inside


def _of_kernel(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    """A convolution that is linear in its kernel: each feature from the kernel of the feature, at all places inside."""
    if type(values[0]) is Dependence:
        return conservative(walk, equation, values)
    geometry, kernel = convolution.geometry_of(equation.params), values[1]
    lhs_spec, rhs_spec, out_spec = geometry.dimension_numbers
    out, image = equation.outputs[0].aval.shape, equation.inputs[0].aval.shape
    counts = [out[axis] for axis in out_spec[2:]]
    features = kernel.viewed(lambda index: index.transpose(*rhs_spec, len(rhs_spec))).merged([1])
    results = []
    for offset in np.ndindex(*features.shape[1:]):
        _, inside = _seen(geometry, offset, counts, [image[axis] for axis in lhs_spec[2:]])
        one = features.viewed(lambda index, at=offset: index[(slice(None), *at)])
        spread = one.viewed(lambda index: np.broadcast_to(
            index.reshape(1, -1, *[1] * len(counts), index.shape[-1]),
            (out[out_spec[0]], index.shape[0], *counts, index.shape[-1])))
        results.append(spread.masked(inside))
    total = union(results, (out[out_spec[0]], out[out_spec[1]], *counts), walk.width)
    return [_in_order(total, out_spec)]


def _in_order(found: Dependence, spec: Sequence[int]) -> Dependence:
    """Return the dependence of an array whose axis `spec[i]` is axis i of this one."""
    order = np.argsort(spec)
    return found.viewed(lambda index: index.transpose(*order, len(order)))


def _window_parts(equation: Equation, shape: Sequence[int], operand: Value) -> list[Any]:
    """Return, by window of an array of this shape, the elements that may count: one, if the operand is known."""
    windows = pool.Sliding(*(equation.params[name] for name in pool.Sliding._fields))
    if not isinstance(operand, np.ndarray):
        return pool.elements_of_windows(tuple(shape), windows)
    numbers = np.arange(1, operand.size + 1, dtype=np.float64).reshape(shape)  # 0 is none
    chosen, = pool.select_and_gather_add_p.numpy(numbers, operand, greatest=equation.params["greatest"],
                                                 **windows._asdict())
    return [chosen.astype(np.int64) - 1]


@sparsity_rules.register(pool.reduce_window_sum_p, pool.select_and_gather_add_p)
def _windows(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    found, shape = values[0], equation.outputs[0].aval.shape
    parts = _window_parts(equation, found.shape, values[1] if len(values) > 1 else None)
    return [union([found.take(part) for part in parts], shape, walk.width)]


@sparsity_rules.register(pool.select_and_scatter_add_p)
def _out_of_windows(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    found, shape = values[0], equation.outputs[0].aval.shape
    parts = _window_parts(equation, shape, values[1])
    return [union([found.spread(part, shape) for part in parts], shape, walk.width)]


# --- linear algebra ---------------------------------------------------------------------------------------------------


@sparsity_rules.register(fft.fft_p)
def _fourier(_: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    found, shape = values[0], equation.outputs[0].aval.shape
    axes = range(len(shape) - len(equation.params["fft_lengths"]), len(shape))
    return [found.merged(axes, keep=True).broadcast(shape)]


@sparsity_rules.register(triangular.triangular_solve_p)
def _triangular(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    """Substitution: unknowns depend on the right-hand sides before them, or behind them."""
    if type(values[0]) is Dependence:
        return conservative(walk, equation, values)
    params = equation.params
    is_forward = params["lower"] != params["transpose_a"]
    if not params["left_side"]:
        is_forward = not is_forward
    return [values[1].accumulated(-2 if params["left_side"] else -1, reverse=not is_forward)]


@sparsity_rules.register(triangular.lu_solve_p, triangular.tridiagonal_solve_p)
def _columns(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    """Each unknown depends on the right-hand sides of its own column."""
    *matrices, right = values
    if any(type(matrix) is Dependence for matrix in matrices):
        return conservative(walk, equation, values)
    return [right.merged([len(right.shape) - 2], keep=True).broadcast(equation.outputs[0].aval.shape)]


@sparsity_rules.register(matrix_functions.expm_frechet_p, matrix_functions.sylvester_p)
def _matrices(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    """Each matrix depends on all of the matrices in its place."""
    shape = equation.outputs[0].aval.shape
    found = [each.merged((-2, -1), keep=True).broadcast(shape) for each in linear_values(values)]
    return [union(found, shape, walk.width)]
