"""Sparsity of linear operations: the table of rules, with those of elements, moves and indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine.analyses.index_sets import Dependence, composed, joined, union
from fxgrad.engine.analyses.sparsity_loops import through_regions
from fxgrad.engine.analyses.sparsity_values import SparsityRule, Value, Walk, conservative, linear_values
from fxgrad.engine.analyses.sparsity_zeros import has_known_zeros, mask_of
from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.primitive import MissingRule, Primitive
from fxgrad.engine.core.program import Equation
from fxgrad.engine.ops import (
    arithmetic,
    barrier,
    creation,
    dynamic,
    indexing,
    joining,
    moving,
    parts,
    select,
    shaping,
    structural,
    varying,
)
from fxgrad.engine.ops.pointwise import acts_on_each
from fxgrad.engine.ops.strong import strong_div_p, strong_mul_p
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError


def _derived(primitive: Primitive) -> SparsityRule:
    if acts_on_each.of(primitive):
        return in_place
    if primitive.regions is not None:
        return through_regions
    return _nonlinear if isinstance(primitive.transpose, MissingRule) else conservative


sparsity_rules: Analysis[SparsityRule] = Analysis(
    "sparsity", "Which elements of the linear operands each element of the results depends on; operations that are "
    "not linear are looked at through their derivatives.", missing="derive", derive=_derived)


# --- elements and moves -----------------------------------------------------------------------------------------------


def _nonlinear(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    """The derivative of the operation stands in linear programs in its place; here it would be a user's own."""
    return conservative(walk, equation, values)


@sparsity_rules.register(creation.copy_p, structural.convert_element_type_p, parts.reduce_precision_p, varying.pvary_p,
                         varying.psum_invariant_p, varying.take_equal_p, moving.move_p, select.select_n_p)
def in_place(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    """Each element depends on the elements in its place, but for operands of a product with a known 0."""
    shape = equation.outputs[0].aval.shape
    if equation.primitive is select.select_n_p:
        which, *cases = values
        if isinstance(which, np.ndarray):
            which = np.clip(which.astype(np.int64), 0, len(cases) - 1)
            chosen = [case.broadcast(shape).masked(which == number)
                      for number, case in enumerate(cases) if type(case) is Dependence]
            return [union(chosen, shape, walk.width)]
    return [union(linear_values(values), shape, walk.width)]


@sparsity_rules.register(arithmetic.mul_p, strong_mul_p, arithmetic.div_p, strong_div_p)
def _product(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    shape = equation.outputs[0].aval.shape
    factors = [mask_of(value) for value in values if has_known_zeros(value)]
    found = union(linear_values(values), shape, walk.width)
    if factors and equation.primitive in (arithmetic.mul_p, strong_mul_p):
        found = found.masked(factors[0])
    return [found]


@sparsity_rules.register(barrier.optimization_barrier_p)
def _each_alone(_: Walk, __: Equation, values: list[Value]) -> list[Value]:
    return values


ReadElements = Callable[..., "Sequence[Sequence[Any]]"]
"""(*avals, **params) -> for each result, for each operand, the elements of the operand that are read, or None."""


def reads_elements(elements: ReadElements) -> SparsityRule:
    """Return the rule of an operation whose results depend on known elements of its linear operands.

    `elements(*avals, **params)`, given the types of the operands and the parameters, returns a list for each result,
    with an entry for each operand: an array of integers of the result's shape and one axis more, of the elements of
    the operand, counted in row-major order, that each element of the result depends on (-1 for none); or None if the
    result depends on none of them. Entries of operands in which the operation is not linear are not read.

    Raises `ShapeError` where the pattern is found, if an array has another shape, and `ArgumentError` for elements that
    the operand does not have.

    >>> import numpy as np
    >>> from fxgrad.extend.analyses import reads_elements, sparsity_rules
    >>> def swaps_halves(x, *, axis):  # an operation of one operand and result
    ...     own = np.arange(x.size).reshape(x.shape)
    ...     return [[np.roll(own, x.shape[axis] // 2, axis)[..., None]]]
    >>> rule = reads_elements(swaps_halves)  # then sparsity_rules.enter(rule, swap_halves_p)
    """
    def rule(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
        found = elements(*(atom.aval for atom in equation.inputs), **equation.params)
        results: list[Value] = []
        for var, by_operand in zip(equation.outputs, found, strict=True):
            shape = var.aval.shape
            parts = [composed(Dependence(shape, value.size, [_checked(equation, places, shape, value.size)]),
                              value.reshaped((-1,)))
                     for value, places in zip(values, by_operand, strict=True)
                     if type(value) is Dependence and places is not None]
            results.append(union(parts, shape, walk.width))
        return results
    return rule


def _checked(equation: Equation, places: Any, shape: tuple[int, ...], size: int) -> Any:
    """Return the elements of an operand of `size` that a result of `shape` depends on, if they are such."""
    places = np.asarray(places)
    if places.ndim != len(shape) + 1 or places.shape[:-1] != shape or not np.issubdtype(places.dtype, np.integer):
        raise ShapeError(at_user_line(
            f"the sparsity of {equation.primitive}: an array of integers of shape {(*shape, 'k')} is needed for a "
            f"result of shape {shape}, got {places.dtype.name} of shape {places.shape}".replace("'k'", "k")))
    if places.size and not -1 <= int(places.min()) <= int(places.max()) < size:
        raise ArgumentError(at_user_line(
            f"the sparsity of {equation.primitive}: elements from {int(places.min())} to {int(places.max())} of an "
            f"operand with {size} elements; they count from 0, and -1 is none"))
    return places.astype(np.int32)


def _view(function: Callable[..., Any], primitive: Primitive) -> None:
    """Enter the rule of an operation that `function(array, count, **params)` does with `count` more axes behind."""
    def rule(_: Walk, equation: Equation, values: list[Value]) -> list[Value]:
        found, = linear_values(values)
        return [found.viewed(lambda index: function(index, **equation.params))]
    sparsity_rules.enter(rule, primitive)


_view(lambda index, shape: index.reshape(*shape, index.shape[-1]), structural.reshape_p)
_view(lambda index, permutation: index.transpose(*permutation, len(permutation)), structural.transpose_p)
_view(lambda index, dimensions: np.flip(index, dimensions), shaping.rev_p)
_view(lambda index, start_indices, limit_indices, strides: index[tuple(map(
    slice, start_indices, limit_indices, strides))], shaping.slice_p)
_view(lambda index, shape: np.broadcast_to(index.reshape(
    (1,) * (len(shape) - index.ndim + 1) + index.shape), (*shape, index.shape[-1])), structural.broadcast_to_p)


def _broadcast_in_dim(index: Any, shape: Any, broadcast_dimensions: Any) -> Any:
    own = dict(zip(broadcast_dimensions, index.shape[:-1], strict=True))
    return np.broadcast_to(index.reshape(*(own.get(axis, 1) for axis in range(len(shape))), index.shape[-1]),
                           (*shape, index.shape[-1]))


_view(_broadcast_in_dim, shaping.broadcast_in_dim_p)


def _places(aval: Any) -> Any:
    """Return the flat index of each element of an array of this type."""
    return np.arange(aval.size).reshape(aval.shape)


@sparsity_rules.register(shaping.tile_p)
def _tile(_: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    found, = values
    return [found.take(equation.primitive.numpy(_places(equation.inputs[0].aval), **equation.params)[0])]


@sparsity_rules.register(shaping.pad_p)
def _pad(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    operand, value = values
    if type(operand) is Dependence and type(value) is not Dependence and operand.is_narrow:
        config = (*equation.params["padding_config"], (0, 0, 0))
        return [operand.viewed(lambda index: shaping.pad_p.numpy(index, np.int32(-1), padding_config=config)[0])]
    ids, = shaping.pad_p.numpy(_places(equation.inputs[0].aval), np.int64(-1), **equation.params)
    found = [operand.take(ids)] if type(operand) is Dependence else []
    if type(value) is Dependence:
        found.append(value.broadcast(ids.shape).masked(ids < 0))
    return [union(found, ids.shape, walk.width)]


@sparsity_rules.register(joining.split_p, joining.unstack_p)
def _cut(_: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    found, = values
    axis = equation.params["axis"] % len(found.shape)
    results, start = [], 0
    for var in equation.outputs:
        if equation.primitive is joining.unstack_p:
            results.append(found.viewed(lambda index, at=start: index[(*[slice(None)] * axis, at)]))
            start += 1
        else:
            stop = start + var.aval.shape[axis]
            results.append(found.viewed(
                lambda index, at=start, to=stop: index[(*[slice(None)] * axis, slice(at, to))]))
            start = stop
    return results


@sparsity_rules.register(joining.concatenate_p, joining.stack_p)
def _join(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    pieces = [value if type(value) is Dependence else None for value in values]
    shapes = [atom.aval.shape for atom in equation.inputs]
    if equation.primitive is joining.concatenate_p:
        return [joined(pieces, shapes, equation.params["dimension"], walk.width)]
    axis = equation.params["axis"] % len(equation.outputs[0].aval.shape)
    longer = [(*shape[:axis], 1, *shape[axis:]) for shape in shapes]
    pieces = [None if piece is None else piece.reshaped(shape) for piece, shape in zip(pieces, longer, strict=True)]
    return [joined(pieces, longer, axis, walk.width)]


# --- indices ----------------------------------------------------------------------------------------------------------


def _gather_ids(aval: Any, indices: Any, windows: Any, slice_sizes: Any, mode: str) -> Any:
    """Return, for each gathered element, the place in the array that it comes from; -1 if that is out of range."""
    if mode == "checked":  # negative ones count from the end
        sizes = np.array([aval.shape[axis] for axis in windows.start_index_map], np.int64)
        indices = np.where(indices < 0, indices.astype(np.int64) + sizes, indices)
    return indexing.gather_p.numpy(_places(aval), indices, slice_sizes=slice_sizes, mode="clip" if mode == "clip"
                                   else "fill", fill_value=-1, promises=(), **windows._asdict())[0]


def _anywhere(found: Dependence, windows: Any, slice_sizes: Any) -> Dependence:
    """Return the dependence of windows at any place: along the axes that are indexed, everything is combined."""
    axes = [axis for axis in windows.start_index_map if slice_sizes[axis] < found.shape[axis]]
    return found.merged(axes, keep=True).broadcast(found.shape)


@sparsity_rules.register(indexing.gather_p)
def _gather(_: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    found, indices = values
    params = equation.params
    windows, sizes = indexing.Windows(*(params[name] for name in indexing.Windows._fields)), params["slice_sizes"]
    if not isinstance(indices, np.ndarray):
        found = _anywhere(found, windows, sizes)
        indices = np.zeros(equation.inputs[1].aval.shape, np.int64)
    return [found.take(_gather_ids(equation.inputs[0].aval, indices, windows, sizes, params["mode"]))]


def _update_windows(params: dict[str, Any]) -> Any:
    return indexing.Windows(
        params["update_window_dims"], params["inserted_window_dims"], params["scatter_dims_to_operand_dims"],
        params["operand_batching_dims"], params["scatter_indices_batching_dims"])


@sparsity_rules.register(indexing.scatter_add_p, indexing.scatter_sub_p, indexing.scatter_p, indexing.scatter_mul_p)
def _scatter(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    operand, indices, updates = values
    aval, shape, params = equation.inputs[0].aval, equation.outputs[0].aval.shape, equation.params
    found = [operand] if type(operand) is Dependence else []
    windows = _update_windows(params)
    sizes = windows.slice_sizes(len(shape), equation.inputs[2].aval.shape)
    is_known = isinstance(indices, np.ndarray)
    if not is_known and type(updates) is Dependence:  # an update may be added to any element along indexed axes
        batched = {*windows.start_indices_batching_dims}
        batch = [axis for axis in range(len(updates.shape)) if axis not in windows.offset_dims]
        free = [axis for number, axis in enumerate(batch) if number not in batched]
        moved = [windows.offset_dims[number] for number, axis in enumerate(windows.window_axes(len(shape)))
                 if axis in windows.start_index_map and sizes[axis] < shape[axis]]
        merged = updates.merged([*free, *moved], keep=True).broadcast(updates.shape)
        first = _gather_ids(aval, np.zeros(equation.inputs[1].aval.shape, np.int64), windows, sizes, "clip")
        return [union([*found, _anywhere(merged.spread(first, shape), windows, sizes)], shape, walk.width)]
    if is_known:
        targets = _gather_ids(aval, indices, windows, sizes, params["mode"])
        if found and equation.primitive is indexing.scatter_p:
            replaced = np.zeros(aval.size + 1, bool)
            replaced[targets] = True
            found = [found[0].masked(~replaced[:-1].reshape(shape))]
        if type(updates) is Dependence:
            found.append(updates.spread(targets, shape))
    return [union(found, shape, walk.width)]


def _unknown(starts: Sequence[Value]) -> list[int]:
    return [axis for axis, start in enumerate(starts) if not isinstance(start, np.ndarray)]


@sparsity_rules.register(dynamic.dynamic_slice_p)
def _dynamic_slice(_: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    found, *starts = values
    sizes = equation.params["slice_sizes"]
    unknown = [axis for axis in _unknown(starts) if sizes[axis] < found.shape[axis]]
    found = found.merged(unknown, keep=True).broadcast(found.shape)
    known = [start if isinstance(start, np.ndarray) else np.int64(0) for start in starts]
    return [found.take(dynamic.dynamic_slice_p.numpy(_places(equation.inputs[0].aval), *known, slice_sizes=sizes)[0])]


@sparsity_rules.register(dynamic.dynamic_update_slice_p)
def _dynamic_update(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    operand, update, *starts = values
    before, piece = equation.inputs[0].aval, equation.inputs[1].aval
    unknown = [axis for axis in _unknown(starts) if piece.shape[axis] < before.shape[axis]]
    known = [start if isinstance(start, np.ndarray) else np.int64(0) for start in starts]
    ids, = dynamic.dynamic_update_slice_p.numpy(np.full(before.shape, -1), _places(piece), *known)
    found = []
    if type(update) is Dependence:
        put = update.merged(unknown, keep=True).broadcast(update.shape).take(ids)
        found.append(put.merged(unknown, keep=True).broadcast(before.shape))
    if type(operand) is Dependence:
        found.append(operand if unknown else operand.masked(ids < 0))
    return [union(found, before.shape, walk.width)]
