"""The scalar forms of array operations: one rule for each family, in an open table."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.extend import Analysis, Aval, Equation, Literal, MissingRule, Primitive, primitives
from fxgrad.extend.analyses import acts_on_each
from fxgrad.extend.parameters import Sliding, Windows, default_fill, elements_of_windows, gather_numpy, identity_of
from fxgrad.tools.granularity.scalars import (
    Elements,
    Rule,
    Scalars,
    as_elements,
    known_numbers,
    literal_elements,
    number_elements,
    take_elements,
)

NEEDS_UNROLLING = MissingRule("NEEDS_UNROLLING", (
    "is a loop or a branch. Unroll loops that run a known number of times first: "
    "scalarize(unfold(program, loops=True)); others have no form in scalars"))
NOT_IN_SCALARS = MissingRule("NOT_IN_SCALARS", (
    "has no form in scalars. Differentiate and compute it as an array operation, or enter a rule: "
    "fxgrad.tools.granularity.rules.scalar_rules.enter(rule, primitive)"))


def _default_rule(primitive: Primitive) -> Rule | MissingRule:
    if acts_on_each.of(primitive):
        return _apply_to_each
    return NOT_IN_SCALARS if primitive.regions is None else NEEDS_UNROLLING


def _apply_to_each(scalars: Scalars, equation: Equation, operands: list[Elements]) -> list[Elements]:
    """Apply the operation to the elements at each position, broadcast."""
    aligned = np.broadcast_arrays(*operands) if len(operands) > 1 else operands
    scalars.reserve(aligned[0].size)
    primitive, params = equation.primitive, equation.params
    made = [scalars.apply(primitive, *atoms, **params) for atoms in zip(*(operand.flat for operand in aligned),
                                                                        strict=True)]
    return [as_elements(made, equation.outputs[0].aval.shape)]


scalar_rules: Analysis[Rule | MissingRule] = Analysis(
    "scalar rules", "How `scalarize` computes an operation on arrays with operations on scalars.",
    missing="derive", derive=_default_rule)
"""`rule(scalars, equation, operands)` is given arrays of atoms."""

scalar_rules.enter(_apply_to_each, primitives.convert_element_type, primitives.copy, primitives.reduce_precision)


# --- moves ----------------------------------------------------------------------------------------------------------


@scalar_rules.register(
    primitives.broadcast_to, primitives.reshape, primitives.transpose, primitives.broadcast_in_dim, primitives.rev,
    primitives.slice, primitives.pad, primitives.tile, primitives.concatenate, primitives.stack, primitives.split,
    primitives.unstack, primitives.optimization_barrier, primitives.sharding_constraint, primitives.device_put)
def _move_elements(_: Scalars, equation: Equation, operands: list[Elements]) -> list[Elements]:
    """Move the elements as the kernel moves numbers; no equation is recorded."""
    places, flat = number_elements(operands)
    return [take_elements(flat, place) for place in equation.primitive.numpy(*places, **equation.params)]


def _known_numbers(scalars: Scalars, equation: Equation, operands: list[Elements], place: int) -> Any:
    """Return the numbers of an operand that must be known to scalarize, such as indices."""
    found = known_numbers(operands[place], equation.inputs[place].aval)
    if found is None:
        raise scalars.refusal("takes its place from a traced value, and in scalars there is no place to look up. "
                              "Index with numbers, or choose with where")
    return found


@scalar_rules.register(primitives.dynamic_slice)
def _slice_window(scalars: Scalars, equation: Equation, operands: list[Elements]) -> list[Elements]:
    starts = [_known_numbers(scalars, equation, operands, place) for place in range(1, len(operands))]
    (places,), flat = number_elements(operands[:1])
    return [take_elements(flat, equation.primitive.numpy(places, *starts, **equation.params)[0])]


@scalar_rules.register(primitives.dynamic_update_slice)
def _update_window(scalars: Scalars, equation: Equation, operands: list[Elements]) -> list[Elements]:
    starts = [_known_numbers(scalars, equation, operands, place) for place in range(2, len(operands))]
    places, flat = number_elements(operands[:2])
    return [take_elements(flat, equation.primitive.numpy(*places, *starts, **equation.params)[0])]


@scalar_rules.register(primitives.gather)
def _gather_elements(scalars: Scalars, equation: Equation, operands: list[Elements]) -> list[Elements]:
    indices = _known_numbers(scalars, equation, operands, 1)
    (places,), flat = number_elements(operands[:1])
    params, aval = equation.params, equation.outputs[0].aval
    fill = params["fill_value"]
    outside = literal_elements(default_fill(aval.dtype) if fill is None else fill, Aval((), aval.dtype, aval.weak))
    found = gather_numpy(places, indices, **{**params, "fill_value": -1})  # the last element: outside
    return [take_elements(np.append(flat, outside), found)]


@scalar_rules.register(primitives.scatter)
def _scatter_elements(scalars: Scalars, equation: Equation, operands: list[Elements]) -> list[Elements]:
    indices = _known_numbers(scalars, equation, operands, 1)
    (old, new), flat = number_elements([operands[0], operands[2]])
    return [take_elements(flat, equation.primitive.numpy(old, indices, new, **equation.params)[0])]


def _combining_rule(combine: Primitive) -> Rule:
    """Return the rule of updates that are combined with the elements at their positions, in their order."""
    def rule(scalars: Scalars, equation: Equation, operands: list[Elements]) -> list[Elements]:
        indices, params = _known_numbers(scalars, equation, operands, 1), equation.params
        old, updates = operands[0], operands[2]
        scalars.reserve(updates.size)
        windows = Windows(params["update_window_dims"], params["inserted_window_dims"],
                          params["scatter_dims_to_operand_dims"], params["operand_batching_dims"],
                          params["scatter_indices_batching_dims"])
        places = gather_numpy(np.arange(old.size).reshape(old.shape), indices, **windows._asdict(), fill_value=-1,
                              slice_sizes=windows.slice_sizes(old.ndim, updates.shape), mode=params["mode"],
                              promises=params["promises"])
        result = old.flatten()
        for place, update in zip(places.flat, updates.flat, strict=True):
            if place >= 0:
                result[place] = scalars.apply(combine, result[place], update)
        return [result.reshape(old.shape)]
    return rule


for _scatter, _binary in ((primitives.scatter_add, primitives.add), (primitives.scatter_sub, primitives.sub),
                          (primitives.scatter_mul, primitives.mul), (primitives.scatter_min, primitives.min),
                          (primitives.scatter_max, primitives.max)):
    scalar_rules.enter(_combining_rule(_binary), _scatter)


@scalar_rules.register(primitives.select_n)
def _select_elements(scalars: Scalars, equation: Equation, operands: list[Elements]) -> list[Elements]:
    """Select elements; no equation is recorded if the selection is known, as with the mask of a triangle."""
    which, *cases = np.broadcast_arrays(*operands)
    scalars.reserve(which.size)
    made = []
    for index, *atoms in zip(which.flat, *(case.flat for case in cases), strict=True):
        if type(index) is Literal:
            made.append(atoms[min(max(int(index.value), 0), len(atoms) - 1)])
        else:
            made.append(scalars.apply(equation.primitive, index, *atoms))
    return [as_elements(made, equation.outputs[0].aval.shape)]


# --- sums and their like --------------------------------------------------------------------------------------------


def _reduction_rule(combine: Primitive) -> Rule:
    """Return the rule of a reduction that combines elements from first to last, in memory order."""
    def rule(scalars: Scalars, equation: Equation, operands: list[Elements]) -> list[Elements]:
        operand, axes = operands[0], equation.params["axes"]
        aval = equation.inputs[0].aval
        out = equation.outputs[0].aval
        if not operand.size:
            return [literal_elements(equation.primitive.numpy(np.empty(aval.shape, aval.dtype), axes=axes)[0], out)]
        scalars.reserve(operand.size - out.size)
        rows = np.moveaxis(operand, axes, range(-len(axes), 0)).reshape(out.size, -1)
        return [as_elements([scalars.folded(combine, row) for row in rows], out.shape)]
    return rule


def _running_rule(combine: Primitive) -> Rule:
    """Return the rule of a cumulative reduction, which keeps every partial result."""
    def rule(scalars: Scalars, equation: Equation, operands: list[Elements]) -> list[Elements]:
        axis, step = equation.params["axis"], -1 if equation.params["reverse"] else 1
        result = np.moveaxis(operands[0].copy(), axis, 0)
        scalars.reserve(result.size)
        order = [*range(len(result))][::step]
        for before, place in pairwise(order):
            for at in np.ndindex(result.shape[1:]):
                result[(place, *at)] = scalars.apply(combine, result[(before, *at)], result[(place, *at)])
        return [np.moveaxis(result, 0, axis)]
    return rule


for _whole, _on_the_way, _binary in (
        (primitives.reduce_prod, primitives.cumprod, primitives.mul),
        (primitives.reduce_max, primitives.cummax, primitives.max),
        (primitives.reduce_min, primitives.cummin, primitives.min),
        (primitives.reduce_sum, primitives.cumsum, primitives.add)):
    scalar_rules.enter(_reduction_rule(_binary), _whole)
    scalar_rules.enter(_running_rule(_binary), _on_the_way)
scalar_rules.enter(_running_rule(primitives.logaddexp), primitives.cumlogsumexp)
scalar_rules.enter(_reduction_rule(primitives["and"]), primitives.reduce_and)
scalar_rules.enter(_reduction_rule(primitives["or"]), primitives.reduce_or)
scalar_rules.enter(_reduction_rule(primitives.xor), primitives.reduce_xor)


@scalar_rules.register(primitives.attains)
def _attains(scalars: Scalars, _: Equation, operands: list[Elements]) -> list[Elements]:
    x, out = np.broadcast_arrays(*operands)
    return [as_elements([scalars.apply(primitives.eq, *pair) for pair in zip(x.flat, out.flat, strict=True)], x.shape)]


def _window_rule(name: str, combine: Primitive) -> Rule:
    """Return elements of each window combined, without the padding."""
    def rule(scalars: Scalars, equation: Equation, operands: list[Elements]) -> list[Elements]:
        operand, out = operands[0], equation.outputs[0].aval
        parts = elements_of_windows(operand.shape, Sliding(**equation.params))
        scalars.reserve(out.size * max(len(parts) - 1, 0))
        of_none = Literal(identity_of(name, out.dtype), Aval((), out.dtype, out.weak))
        narrow = name == "sum" and out.dtype.itemsize < 4 and dtypes.is_floating(out.dtype)
        dtype = dtypes.float32 if narrow else out.dtype
        flat = _convert_elements(scalars, operand, equation.inputs[0].aval, dtype).ravel()
        made = [scalars.folded(combine, [flat[place] for place in places if place >= 0] or [of_none])
                for places in zip(*(part.flat for part in parts), strict=True)]
        return [_convert_elements(scalars, as_elements(made, out.shape), Aval(out.shape, dtype), out.dtype)]
    return rule


scalar_rules.enter(_window_rule("sum", primitives.add), primitives.reduce_window_sum)
scalar_rules.enter(_window_rule("max", primitives.max), primitives.reduce_window_max)
scalar_rules.enter(_window_rule("min", primitives.min), primitives.reduce_window_min)


# --- products -------------------------------------------------------------------------------------------------------


def _convert_elements(scalars: Scalars, operand: Elements, aval: Aval, dtype: Any) -> Elements:
    """Return the elements converted to another dtype, if they have a different one."""
    if aval.dtype == dtype:
        return operand
    return as_elements([scalars.apply(primitives.convert_element_type, atom, dtype=dtype, weak=False)
                        for atom in operand.flat], operand.shape)


def _in_sums_dtype(rule: Callable[..., Elements]) -> Rule:
    """Return a product's rule that accumulates in the dtype of its sums: float32 for narrower floats."""
    def summed(scalars: Scalars, equation: Equation, operands: list[Elements]) -> list[Elements]:
        out = equation.outputs[0].aval
        narrow = out.dtype.itemsize < 4 and dtypes.is_floating(out.dtype)
        dtype = dtypes.float32 if narrow else out.dtype
        given = [_convert_elements(scalars, operand, atom.aval, dtype)
                 for operand, atom in zip(operands, equation.inputs, strict=True)]
        made = rule(scalars, equation, given, Literal(0, Aval((), dtype)))
        return [_convert_elements(scalars, made, Aval(out.shape, dtype), out.dtype)]
    return summed


def _sum_of_products(scalars: Scalars, firsts: Any, seconds: Any) -> Any:
    """Return the sum of products of pairs; for bools, whether both are True in any pair."""
    plus, times = (primitives["or"], primitives["and"]) if firsts[0].aval.dtype == dtypes.bool_ else (
        primitives.add, primitives.mul)
    return scalars.folded(plus, [scalars.apply(times, *pair) for pair in zip(firsts, seconds, strict=True)])


@scalar_rules.register(primitives.dot_general)
@_in_sums_dtype
def _matrix_product(scalars: Scalars, equation: Equation, operands: list[Elements], zero: Literal) -> Elements:
    (x, y), shape = operands, equation.outputs[0].aval.shape
    (x_contract, y_contract), (x_batch, y_batch) = equation.params["dimension_numbers"]
    if not math.prod(x.shape[axis] for axis in x_contract):
        return as_elements([zero] * math.prod(shape), shape)
    scalars.reserve(math.prod(shape) * (2 * math.prod(x.shape[axis] for axis in x_contract) - 1))

    def stacks_of_rows(operand: Elements, batch: Any, contract: Any) -> Elements:
        free = [axis for axis in range(operand.ndim) if axis not in batch and axis not in contract]
        sizes = [math.prod(operand.shape[axis] for axis in axes) for axes in (batch, free, contract)]
        return operand.transpose(*batch, *free, *contract).reshape(sizes)

    stacks = zip(stacks_of_rows(x, x_batch, x_contract), stacks_of_rows(y, y_batch, y_contract), strict=True)
    return as_elements([_sum_of_products(scalars, row, column) for rows, columns in stacks for row in rows
                        for column in columns], shape)


@scalar_rules.register(primitives.conv_general_dilated)
@_in_sums_dtype
def _convolution(scalars: Scalars, equation: Equation, operands: list[Elements], zero: Literal) -> Elements:
    """Compute a convolution; the kernel itself gives the image element at each window position."""
    image, kernel = operands
    shape = equation.outputs[0].aval.shape
    _, (out_features, *window), (_, features, *_) = equation.params["dimension_numbers"]
    window_size = math.prod(kernel.shape[axis] for axis in window)
    scalars.reserve(math.prod(shape) * max(2 * window_size - 1, 0))
    counted = np.arange(1.0, image.size + 1).reshape(image.shape)
    params = {**equation.params, "preferred_element_type": None}
    pairs: list[list[Any]] = [[] for _ in range(math.prod(shape))]
    of_feature = np.indices(shape)[features].ravel()
    turned = np.moveaxis(kernel, out_features, 0)
    for place in np.ndindex(turned.shape[1:]):
        alone = np.zeros(turned.shape)
        alone[(slice(None), *place)] = 1.0
        seen = equation.primitive.numpy(counted, np.moveaxis(alone, 0, out_features), **params)[0]
        for pair, number, feature in zip(pairs, seen.ravel().round().astype(int), of_feature, strict=True):
            if number:  # none in the padding
                pair.append((image.flat[number - 1], turned[(feature, *place)]))
    return as_elements([_sum_of_products(scalars, *zip(*pair, strict=True)) if pair else zero for pair in pairs], shape)
