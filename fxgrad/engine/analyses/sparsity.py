"""Sparsity of linear programs: which elements of the inputs each element of an output depends on, a superset always.

Derivatives of any function are linear programs (`engine/transforms/linearize.py`), so that the rules are those of the
linear operations, and of operations that hold programs. A value of such a program depends on its linear inputs
(`Dependence`), is known (a NumPy array), or is neither (None): a number that depends on values at run time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine.analyses.index_sets import Dependence, composed, identity, joined, of_matrix, scipy_sparse, union
from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.primitive import MissingRule, Primitive
from fxgrad.engine.core.program import Equation, Program, Source
from fxgrad.engine.core.program_properties import calls_user_code, has_effects
from fxgrad.engine.core.regions import Region
from fxgrad.engine.core.walk import eval_program
from fxgrad.engine.ops import (
    arithmetic,
    barrier,
    convolution,
    creation,
    cumulative,
    dynamic,
    fft,
    indexing,
    joining,
    matrix_functions,
    moving,
    parts,
    pool,
    products,
    select,
    shaping,
    structural,
    triangular,
    varying,
)
from fxgrad.engine.ops.pointwise import acts_on_each
from fxgrad.engine.ops.strong import strong_div_p, strong_dot_general_p, strong_mul_p

Value = Any
"""A `Dependence`, a NumPy array, or None."""

_KNOWN = 20_000_000
"""The most elements of a value that is computed."""
_TURNS = 20_000
"""The most operations in the turns of a loop that are looked at one by one."""
_DENSE = 0.5
"""The share of all inputs from which on an element counts as one that depends on everything."""


class Blame(NamedTuple):
    """An operation whose results depend on many more inputs than its operands do; `source` is its line, if known."""

    primitive: Primitive
    source: Source | None


class Walk:
    """One analysis: `width` input elements, and the operations that made values dense."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.blames: list[Blame] = []
        self.reverse_only = False
        """Whether an operation was met whose tangents cannot be computed, but its cotangents."""

    def run(self, program: Program, inputs: Sequence[Value]) -> list[Value]:
        """Return the values of the outputs of a program, given those of its inputs."""
        return eval_program(program, inputs, self.equation, lambda literal: np.asarray(literal.value))

    def equation(self, equation: Equation, values: list[Value]) -> list[Value]:
        """Return the values of the results of an operation."""
        found = [value for value in values if type(value) is Dependence]
        if not found:
            return known_outputs(equation, values)
        if all(each.is_empty for each in found):
            return [Dependence(var.aval.shape, self.width, []) for var in equation.outputs]
        results = sparsity_rules.of(equation.primitive)(self, equation, values)
        if self.width > 8 and not equation.regions:
            bound = _DENSE * self.width
            if max(each.most for each in found) < bound <= max(
                    (each.most for each in results if type(each) is Dependence), default=0):
                self.blames.append(Blame(equation.primitive, equation.source))
        return results


def known_outputs(equation: Equation, values: Sequence[Value]) -> list[Value]:
    """Return the results of an operation on known operands; None for each if it cannot be computed here."""
    primitive = equation.primitive
    if (any(value is None for value in values) or primitive.effectful or primitive.collective
            or primitive.calls_user_code or any(var.aval.size > _KNOWN for var in equation.outputs)
            or any(has_effects(program) or calls_user_code(program) for program in equation.programs)
            or not all(isinstance(var.aval.dtype, np.dtype) for var in equation.outputs)):
        return [None] * len(equation.outputs)
    with np.errstate(all="ignore"):
        return [np.asarray(each) for each in primitive.numpy(*values, **equation.params)]


def known_values(program: Program, inputs: Sequence[Value]) -> list[Value]:
    """Return the outputs of a program that follow from known inputs alone; None for the others."""
    return eval_program(program, inputs, lambda equation, values: known_outputs(equation, values),
                        lambda literal: np.asarray(literal.value))


SparsityRule = Callable[[Walk, Equation, "list[Value]"], "list[Value]"]


def _derived(primitive: Primitive) -> SparsityRule:
    if acts_on_each.of(primitive):
        return _on_each
    if primitive.regions is not None:
        return _through_regions
    return _nonlinear if isinstance(primitive.transpose, MissingRule) else conservative


sparsity_rules: Analysis[SparsityRule] = Analysis(
    "sparsity", "Which elements of the linear operands each element of the results depends on; operations that are "
    "not linear are looked at through their derivatives.", missing="derive", derive=_derived)


# --- elements and moves -----------------------------------------------------------------------------------------------


def _linear(values: Sequence[Value]) -> list[Dependence]:
    return [value for value in values if type(value) is Dependence]


def conservative(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    """Each element of each result may depend on all that the operands depend on."""
    whole = [each.everywhere(()) for each in _linear(values)]
    return [union(whole, (), walk.width).everywhere(var.aval.shape) for var in equation.outputs]


def reverse_only(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    """Each element may depend on everything, and the program is to be looked at backwards."""
    walk.reverse_only = True
    return conservative(walk, equation, values)


def _nonlinear(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    """The derivative of the operation stands in linear programs in its place; here it would be a user's own."""
    return conservative(walk, equation, values)


sparsity_rules.enter(conservative, *[indexing.scatter_mul_p])


@sparsity_rules.register(creation.copy_p, structural.convert_element_type_p, parts.reduce_precision_p, varying.pvary_p,
                         varying.psum_invariant_p, varying.take_equal_p, moving.move_p, select.select_n_p)
def _on_each(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    """Each element depends on the elements in its place, but for operands of a product with a known 0."""
    shape = equation.outputs[0].aval.shape
    if equation.primitive is select.select_n_p:
        which, *cases = values
        if isinstance(which, np.ndarray):
            which = np.clip(which.astype(np.int64), 0, len(cases) - 1)
            chosen = [case.broadcast(shape).masked(which == number)
                      for number, case in enumerate(cases) if type(case) is Dependence]
            return [union(chosen, shape, walk.width)]
    return [union(_linear(values), shape, walk.width)]


@sparsity_rules.register(arithmetic.mul_p, strong_mul_p, arithmetic.div_p, strong_div_p)
def _product(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    shape = equation.outputs[0].aval.shape
    factors = [value for value in values if isinstance(value, np.ndarray)]
    found = union(_linear(values), shape, walk.width)
    if factors and equation.primitive in (arithmetic.mul_p, strong_mul_p):
        found = found.masked(factors[0] != 0)
    return [found]


@sparsity_rules.register(barrier.optimization_barrier_p)
def _each_alone(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    return values


def _view(function: Callable[..., Any], primitive: Primitive) -> None:
    """Enter the rule of an operation that `function(array, count, **params)` does with `count` more axes behind."""
    def rule(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
        found, = _linear(values)
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
def _tile(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    found, = values
    return [found.take(equation.primitive.numpy(_places(equation.inputs[0].aval), **equation.params)[0])]


@sparsity_rules.register(shaping.pad_p)
def _pad(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    ids, = shaping.pad_p.numpy(_places(equation.inputs[0].aval), np.int64(-1), **equation.params)
    operand, value = values
    found = [operand.take(ids)] if type(operand) is Dependence else []
    if type(value) is Dependence:
        found.append(value.broadcast(ids.shape).masked(ids < 0))
    return [union(found, ids.shape, walk.width)]


@sparsity_rules.register(joining.split_p, joining.unstack_p)
def _cut(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
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
    pieces = [None if piece is None else piece.viewed(lambda index, shape=shape: index.reshape(
        *shape, index.shape[-1])) for piece, shape in zip(pieces, longer, strict=True)]
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
def _gather(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
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


@sparsity_rules.register(indexing.scatter_add_p, indexing.scatter_sub_p, indexing.scatter_p)
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


@sparsity_rules.register(dynamic.dynamic_slice_p)
def _dynamic_slice(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    found, *starts = values
    sizes = equation.params["slice_sizes"]
    unknown = [axis for axis, start in enumerate(starts) if start is None and sizes[axis] < found.shape[axis]]
    found = found.merged(unknown, keep=True).broadcast(found.shape)
    known = [np.int64(0) if start is None else start for start in starts]
    return [found.take(dynamic.dynamic_slice_p.numpy(_places(equation.inputs[0].aval), *known, slice_sizes=sizes)[0])]


@sparsity_rules.register(dynamic.dynamic_update_slice_p)
def _dynamic_update(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    operand, update, *starts = values
    before, piece = equation.inputs[0].aval, equation.inputs[1].aval
    unknown = [axis for axis, start in enumerate(starts) if start is None and piece.shape[axis] < before.shape[axis]]
    known = [np.int64(0) if start is None else start for start in starts]
    ids, = dynamic.dynamic_update_slice_p.numpy(np.full(before.shape, -1), _places(piece), *known)
    found = []
    if type(update) is Dependence:
        put = update.merged(unknown, keep=True).broadcast(update.shape).take(ids)
        found.append(put.merged(unknown, keep=True).broadcast(before.shape))
    if type(operand) is Dependence:
        found.append(operand if unknown else operand.masked(ids < 0))
    return [union(found, before.shape, walk.width)]


# --- sums -------------------------------------------------------------------------------------------------------------


@sparsity_rules.register(structural.reduce_sum_p)
def _sum(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    return [values[0].merged(equation.params["axes"])]


@sparsity_rules.register(cumulative.cumsum_p, cumulative.linear_recurrence_p)
def _running(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
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
    table = None if not isinstance(factor, np.ndarray) else factor.transpose(*other[0], *free_of_factor, *other[1])
    rows = math.prod(shape[axis] for axis in free_of_factor)
    inner = moved.shape[middle:]
    if table is not None and table.size and not table.all():
        table = (table != 0).reshape(*[-1 if first else 1] * 1, rows, math.prod(inner)).any(0)
        result = _weighted(moved, table, first, middle)  # (batch, free, rows)
    else:
        merged = moved.merged(range(middle, len(moved.shape)))
        result = merged.viewed(lambda index: np.broadcast_to(
            index[..., None, :], (*index.shape[:-1], rows, index.shape[-1])))
    sizes = [shape[axis] for axis in free_of_factor]
    result = result.viewed(lambda index: index.reshape(*index.shape[:-2], *sizes, index.shape[-1]))
    if side == 1:  # the factor's axes come before those of the linear operand
        back = (*range(first), *range(middle, middle + len(sizes)), *range(first, middle))
        result = result.viewed(lambda index: index.transpose(*back, len(back)))
    return [result]


def _weighted(found: Dependence, table: Any, first: int, middle: int) -> Dependence:
    """Return (..., rows) of (..., contracted), where row r combines the elements that `table[r]` marks."""
    counts = table.sum(1)
    most = int(counts.max()) if counts.size else 0
    flat = found.viewed(lambda index: index.reshape(*index.shape[:middle], table.shape[1], index.shape[-1]))
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
    weights = None if kernel is None else kernel.transpose(*rhs_spec) != 0
    moved = image.viewed(lambda index: index.transpose(*lhs_spec, len(lhs_spec)))  # (batch, channels, space)
    groups, made = geometry.feature_group_count, window[rhs_spec[0]]
    out = equation.outputs[0].aval.shape
    counts = [out[axis] for axis in out_spec[2:]]
    results = []
    for offset in np.ndindex(*[window[axis] for axis in rhs_spec[2:]]):
        part = None if weights is None else weights[(slice(None), slice(None), *offset)]
        if part is not None and not part.any():
            continue
        ids, inside = _seen(geometry, offset, counts, moved.shape[2:])
        batch, channels = moved.shape[:2]
        space = math.prod(moved.shape[2:])
        outer = np.arange(batch * channels).reshape(batch, channels, *[1] * len(counts)) * space
        seen = moved.take(np.where(inside, outer + ids, -1))  # (batch, channels, counts)
        size = channels // groups
        grouped = seen.viewed(lambda index: np.moveaxis(index.reshape(
            batch, groups, size, *counts, index.shape[-1]), 2, -2))  # (batch, groups, counts, channels)
        per = made // groups
        if part is None or part.all():
            merged = grouped.merged([len(grouped.shape) - 1])
            found = merged.viewed(lambda index: np.moveaxis(np.broadcast_to(
                index[..., None, :], (*index.shape[:-1], per, index.shape[-1])), -2, 2))
            results.append(found.viewed(lambda index: index.reshape(batch, made, *counts, index.shape[-1])))
        else:
            pieces = [_weighted(grouped.viewed(lambda index, group=group: index[:, group]),
                                part[group * per:(group + 1) * per], 0, 1 + len(counts)) for group in range(groups)]
            pieces = [piece.viewed(lambda index: np.moveaxis(index, -2, 1)) for piece in pieces]
            results.append(joined(pieces, [piece.shape for piece in pieces], 1, walk.width))
    total = union(results, (moved.shape[0], made, *counts), walk.width)
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


@sparsity_rules.register(pool.reduce_window_sum_p, pool.select_and_gather_add_p)
def _windows(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    shape = equation.outputs[0].aval.shape
    windows = pool.Sliding(*(equation.params[name] for name in pool.Sliding._fields))
    found = values[0]
    return [union([found.take(part) for part in pool.elements_of_windows(found.shape, windows)], shape, walk.width)]


@sparsity_rules.register(pool.select_and_scatter_add_p)
def _out_of_windows(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    shape = equation.outputs[0].aval.shape
    windows = pool.Sliding(*(equation.params[name] for name in pool.Sliding._fields))
    found = values[0]
    return [union([found.spread(part, shape) for part in pool.elements_of_windows(shape, windows)], shape,
                  walk.width)]


# --- linear algebra ---------------------------------------------------------------------------------------------------


@sparsity_rules.register(fft.fft_p)
def _fourier(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
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
    return [union([each.merged((-2, -1), keep=True).broadcast(shape) for each in _linear(values)], shape, walk.width)]


# --- operations that hold programs ------------------------------------------------------------------------------------

_CALLS = frozenset({"inline", "call", "recomputed"})


def _through_regions(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    """Follow the links of the programs: calls, branches and loops; others may combine everything."""
    regions = equation.regions
    roles = [region.role for region in regions]
    if len(regions) == 1 and roles[0] in _CALLS:
        return _placed(equation, regions[0], _run_region(walk, regions[0], values))
    if roles and all(role == "branch" for role in roles):
        return _branches(walk, equation, regions, values)
    bodies = [region for region in regions if region.role == "body"]
    if len(bodies) == 1 and set(roles) <= {"body", "condition"}:
        return _loop(walk, equation, bodies[0], values)
    if "matvec" in roles:
        return _solve(walk, equation, regions[roles.index("matvec")], values)
    return conservative(walk, equation, values)


def _run_region(walk: Walk, region: Region, values: Sequence[Value]) -> list[Value]:
    return walk.run(region.program, [values[link.place] for link in region.inputs])


def _placed(equation: Equation, region: Region, results: Sequence[Value]) -> list[Value]:
    found: list[Value] = [None] * len(equation.outputs)
    for link, result in zip(region.outputs, results, strict=True):
        if link.place >= 0:
            found[link.place] = result
    return found


def _branches(walk: Walk, equation: Equation, regions: Sequence[Region], values: list[Value]) -> list[Value]:
    if isinstance(values[0], np.ndarray):
        regions = [regions[int(np.clip(values[0], 0, len(regions) - 1))]]
    results = [_placed(equation, region, _run_region(walk, region, values)) for region in regions]
    return [_either(walk, found, var.aval.shape) for var, found in zip(equation.outputs, zip(*results, strict=True),
                                                                      strict=True)]


def _either(walk: Walk, found: Sequence[Value], shape: Any) -> Value:
    """Return the value of a result that is one of these."""
    linear = _linear(found)
    if linear:
        return union(linear, shape, walk.width)
    return found[0] if len(found) == 1 else None


def _operations(program: Program) -> int:
    return sum(1 + sum((region.times or 1) * _operations(region.program) for region in equation.regions)
               for equation in program.equations)


def _loop(walk: Walk, equation: Equation, body: Region, values: list[Value]) -> list[Value]:
    first = {link.place for link in body.inputs}
    times = body.times
    if times is None and 0 not in first and isinstance(values[0], np.ndarray):
        times = max(int(values[0]), 0)  # the count of a loop with a counter
    if times is not None and times * _operations(body.program) <= _TURNS:
        return _unrolled(walk, equation, body, values, times)
    return _closed(walk, equation, body, values)


def _entry(value: Value, turn: int) -> Value:
    if type(value) is Dependence:
        return value.viewed(lambda index: index[turn])
    return None if value is None else value[turn]


def _unrolled(walk: Walk, equation: Equation, body: Region, values: list[Value], times: int) -> list[Value]:
    """Go through the turns of a loop one by one."""
    inputs, outputs = body.inputs, body.outputs
    carry = [values[link.place] for link in inputs if link.how == "carry"]
    entries: dict[int, list[Value]] = {place: [None] * times for place, link in enumerate(outputs)
                                       if link.how == "entry"}
    for turn in reversed(range(times)) if body.reverse else range(times):
        carried = iter(carry)
        results = walk.run(body.program, [
            next(carried) if link.how == "carry" else _entry(values[link.place], turn) if link.how == "entry"
            else values[link.place] for link in inputs])
        carry = [result for result, link in zip(results, outputs, strict=True) if link.how == "carry"]
        for place, found in entries.items():
            found[turn] = results[place]
    carried = iter(carry)
    return _placed(equation, body, [
        next(carried) if link.how == "carry" else _stacked(walk, entries[place], atom.aval.shape)
        for place, (link, atom) in enumerate(zip(outputs, body.program.outputs, strict=True))])


def _stacked(walk: Walk, found: Sequence[Value], shape: Any) -> Value:
    if any(type(each) is Dependence for each in found):
        pieces = [each.viewed(lambda index: index[None]) if type(each) is Dependence else None for each in found]
        return joined(pieces, [(1, *shape)] * len(pieces), 0, walk.width)
    if not found or any(each is None for each in found):
        return None
    return np.stack(found)


def _closed(walk: Walk, equation: Equation, body: Region, values: list[Value]) -> list[Value]:
    """Close what one turn of a loop connects under any number of turns."""
    inputs, outputs, program = body.inputs, body.outputs, body.program
    carries = [place for place, link in enumerate(inputs) if link.how == "carry"]
    made = [place for place, link in enumerate(outputs) if link.how == "carry"]
    marked = {place for place in range(len(inputs)) if type(values[inputs[place].place]) is Dependence}
    while True:  # until no further carry depends on an input
        local = _LocalTurn(inputs, program, values, marked, {*carries})
        results = local.run(walk)
        more = {carry for carry, place in zip(carries, made, strict=True)
                if type(results[place]) is Dependence and carry not in marked}
        if not more:
            break
        marked |= more
    carried = [place for place in carries if place in marked]
    total = sum(local.sizes[place] for place in carried)
    steps = [results[made[carries.index(place)]] for place in carried]
    if carried:
        one = scipy_sparse().vstack([each.matrix() if type(each) is Dependence else scipy_sparse().csr_array(
            (local.sizes[place], local.width), dtype=bool) for place, each in zip(carried, steps, strict=True)]).tocsr()
    else:
        one = scipy_sparse().csr_array((0, local.width), dtype=bool)
    closure = _closure(one[:, :total])
    if closure is None:
        return conservative(walk, equation, values)
    others = [place for place in sorted(marked) if place not in carried and inputs[place].how != "entry"]
    entries = [place for place in sorted(marked) if inputs[place].how == "entry"]
    start = [_flat(walk, values[inputs[place].place], local.sizes[place]) for place in carried]
    fixed = [_flat(walk, values[inputs[place].place], local.sizes[place]) for place in others]
    single = [_flat(walk, values[inputs[place].place].merged([0]), local.sizes[place]) for place in entries]
    lengths = [each.shape for each in (*fixed, *single)]
    state = composed(of_matrix(closure, (total,)), joined(start, [each.shape for each in start], 0, walk.width)) if (
        carried) else Dependence((0,), walk.width, [])
    if carried and lengths:
        reached = scipy_sparse().csr_array(closure.astype(np.int32) @ one[:, total:].astype(np.int32)).astype(bool)
        state = union([state, composed(of_matrix(reached, (total,)), joined(
            [*fixed, *single], lengths, 0, walk.width))], (total,), walk.width)
    anytime = joined([*([state] if carried else []), *fixed], [*([(total,)] if carried else []), *(
        each.shape for each in fixed)], 0, walk.width) if carried or fixed else Dependence((0,), walk.width, [])
    found: list[Value] = []
    ends = np.cumsum([local.sizes[place] for place in carried])
    for place, link in enumerate(outputs):
        result, shape = results[place], program.outputs[place].aval.shape
        if link.how == "carry":
            carry = carries[made.index(place)]
            if carry not in marked:
                found.append(None)
                continue
            stop = int(ends[carried.index(carry)])
            found.append(state.viewed(lambda index, to=stop, size=local.sizes[carry], shape=shape: index[
                to - size:to].reshape(*shape, index.shape[-1])))
        elif type(result) is Dependence:
            found.append(_every_turn(walk, result, anytime, [values[inputs[each].place] for each in entries],
                                     0 if body.times is None else body.times))
        else:
            found.append(None)
    return _placed(equation, body, found)


class _LocalTurn:
    """One turn of a loop, whose marked inputs have indices of their own: carries first, then constants, then entries."""

    def __init__(self, inputs: Sequence[Any], program: Program, values: Sequence[Value], marked: set[int],
                 carries: set[int]) -> None:
        self.program = program
        self.sizes = {place: program.inputs[place].aval.size for place in marked}
        order = sorted(marked, key=lambda place: (place not in carries, inputs[place].how == "entry", place))
        self.width = sum(self.sizes.values())
        self.values: list[Value] = []
        starts, start = {}, 0
        for place in order:
            starts[place] = start
            start += self.sizes[place]
        for place, link in enumerate(inputs):
            if place in marked:
                self.values.append(identity(program.inputs[place].aval.shape, starts[place], self.width))
            else:
                self.values.append(values[link.place] if link.how == "same" else None)

    def run(self, walk: Walk) -> list[Value]:
        own = Walk(self.width)
        results = own.run(self.program, self.values)
        walk.reverse_only |= own.reverse_only
        return results


def _flat(walk: Walk, value: Value, size: int) -> Dependence:
    if type(value) is not Dependence:
        return Dependence((size,), walk.width, [])
    return value.viewed(lambda index: index.reshape(-1, index.shape[-1]))


def _closure(matrix: Any) -> Any:
    """Return the reflexive and transitive closure of a square matrix of bools; None if it has too many entries."""
    found = scipy_sparse().csr_array(matrix.astype(np.int32) + scipy_sparse().eye_array(matrix.shape[0], dtype=np.int32, format="csr"))
    while True:
        if found.nnz * (found.nnz / max(found.shape[0], 1)) > 300_000_000:
            return None
        found.data[:] = 1
        squared = scipy_sparse().csr_array(found @ found)
        if squared.nnz == found.nnz:
            return squared.astype(bool)
        found = squared


def _every_turn(walk: Walk, result: Dependence, anytime: Dependence, entries: Sequence[Dependence], times: int,
                ) -> Dependence:
    """Return the dependence of the stack of a result of each turn, on values at any turn and on the turn's entries."""
    matrix, border = result.matrix(), anytime.size
    shape = (times, *result.shape)
    found = []
    if border:
        always = composed(of_matrix(matrix[:, :border], result.shape), anytime)
        found.append(always.viewed(lambda index: np.broadcast_to(index[None], (times, *index.shape))))
    if entries:
        flat = [each.viewed(lambda index: index.reshape(times, -1, index.shape[-1])) for each in entries]
        stacked = joined(flat, [each.shape for each in flat], 1, walk.width)
        one = of_matrix(matrix[:, border:], result.shape)
        width = stacked.shape[1]
        rows, columns = one.pairs()
        turns = np.arange(times)[:, None]
        size = result.size
        every = scipy_sparse().coo_array(
            (np.ones(times * rows.size, bool), ((turns * size + rows).reshape(-1), (turns * width + columns).reshape(-1))),
            shape=(times * size, times * width))
        found.append(composed(of_matrix(every, shape), stacked.viewed(
            lambda index: index.reshape(-1, index.shape[-1]))))
    return union(found, shape, walk.width)


def _solve(walk: Walk, equation: Equation, matvec: Region, values: list[Value]) -> list[Value]:
    """Unknowns depend on the right-hand sides that the matrix connects them with, directly or by others."""
    program = matvec.program
    inside = [place for place, link in enumerate(matvec.inputs) if link.how == "inside"]
    right = values[len(values) - len(inside):]
    shapes = [program.inputs[place].aval.shape for place in inside]
    if (len(equation.outputs) != len(inside) or [var.aval.shape for var in equation.outputs] != shapes
            or any(type(value) is Dependence for value in values[:len(values) - len(inside)])):
        return conservative(walk, equation, values)
    sizes = [math.prod(shape) for shape in shapes]
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    local = Walk(sum(sizes))
    unknowns = iter(identity(shape, start, local.width) for shape, start in zip(shapes, starts, strict=True))
    made = local.run(program, [next(unknowns) if link.how == "inside" else values[link.place]
                               for link in matvec.inputs])
    if any(type(each) is not Dependence for each in made):
        return conservative(walk, equation, values)
    matrix = scipy_sparse().vstack([each.matrix() for each in made]).tocsr()
    if matrix.shape[0] != matrix.shape[1]:
        return conservative(walk, equation, values)
    count, labels = scipy_sparse().csgraph.connected_components(matrix, directed=False)
    flat = joined([_flat(walk, each, size) for each, size in zip(right, sizes, strict=True)],
                  [(size,) for size in sizes], 0, walk.width)
    groups = flat.spread(labels, (count,))
    return [groups.take(labels[start:start + size].reshape(shape).astype(np.int64))
            for start, size, shape in zip(starts, sizes, shapes, strict=True)]
