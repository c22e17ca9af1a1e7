"""Stages of a Laplacian: the part of a program whose Jacobian takes few directions, or none, and what follows.

Two kinds of parts are cut off at the beginning. The Jacobian of a product of a vector with a matrix is that matrix. And
while each element depends on few inputs (those of one particle), inputs that no element shares move together. In what
follows each direction is by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine.analyses.coloring import color_columns
from fxgrad.engine.analyses.index_sets import Dependence, identity
from fxgrad.engine.analyses.sparsity import dependences
from fxgrad.engine.analyses.sparsity_moves import sparsity_rules
from fxgrad.engine.analyses.sparsity_values import Walk
from fxgrad.engine.api.batching import vmap
from fxgrad.engine.api.dense_products import find_products, is_product, push_identity
from fxgrad.engine.core.avals import Literal, without_literals
from fxgrad.engine.core.program import Equation, Program, Variable
from fxgrad.engine.core.program_properties import calls_user_code, is_effectful, memoize, used_axes
from fxgrad.engine.higher_order.series import series_program
from fxgrad.engine.ops.arithmetic import div_p, mul_p, neg_p, sub_p
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.pointwise import add, add_p
from fxgrad.engine.ops.products import dot_general_p
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.ops.structural import broadcast_to, move_axis, reduce_sum, reshape, reshape_p, zeros
from fxgrad.engine.parallel.collective import psum
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.transforms.linearize import Linearized, linearize_program

DIRECTIONS = "directions"
"""The name of the mapped axis of the directions."""
_SHARE = 3
"""Directions are shared where one in so many suffices."""
_TERMS, _ENTRIES = 4, 20_000_000
"""Values whose elements depend on so many times more inputs, or that depend on so many in all, share none."""


class Product(NamedTuple):
    """A product of two values of a cut, at `places` among its values that vary.

    Each factor moves elements of the result, with the other at rest, so that inputs of one color move different ones:
    those in `masks`. `meeting` marks, for each color, the elements that one input moves through both factors.
    """

    equation: Equation
    places: tuple[int, int]
    masks: tuple[Any, Any]
    meeting: Any


class Stages(NamedTuple):
    """A program in two: `first` maps its inputs to the values of the cut, `rest` maps inputs and these to outputs.

    `moving` marks the values of the cut that vary, `used` the inputs that `rest` reads. Where `colors` is None, the
    Jacobian of `first` stands in it. Else inputs of one of the `number` colors move together, and `masks` has, for each
    value that varies, the elements that each input moves; `rest` takes the results of `products` as well.
    """

    first: Program
    rest: Program
    moving: tuple[bool, ...]
    used: tuple[bool, ...]
    colors: Any = None
    number: int = 0
    masks: tuple[Any, ...] = ()
    products: tuple[Product, ...] = ()

    def seeds(self, basis: Sequence[Any]) -> list[Any]:
        """Return the directions of the first stage, like `basis`: one stack for each input that varies."""
        avals = [aval_of(stack) for stack in basis]
        rows = self.colors[None, :] == np.arange(self.number)[:, None]
        stacks = np.split(rows, np.cumsum([math.prod(aval.shape[1:]) for aval in avals])[:-1], axis=1)
        return [stack.reshape(-1, *aval.shape[1:]).astype(aval.dtype)
                for stack, aval in zip(stacks, avals, strict=True)]

    def spread(self, found: Any, mask: Any) -> Any:
        """Return derivatives in each direction, of derivatives in those that share a color."""
        count, aval = self.colors.size, aval_of(found)
        if count % self.number == 0 and (self.colors == np.arange(count) % self.number).all():
            repeated = reshape(broadcast_to(found, (count // self.number, *aval.shape)), (count, *aval.shape[1:]))
        else:
            repeated = concatenate([slice_in_dim(found, color, color + 1, 0) for color in self.colors.tolist()], 0)
        return where(mask, repeated, zeros(aval_of(repeated)))


@dataclass(frozen=True)
class _SumOfDirections:
    """The sum over the entries of the mapped axis, which are so many."""

    count: int

    def __call__(self, value: Any) -> Any:
        return psum(value, DIRECTIONS, self.count)


def second_sums(program: Program, moving: Sequence[bool], inputs: Sequence[Any], basis: Sequence[Any],
                wanted: Sequence[bool], stages: Stages | None) -> tuple[list[Any], list[Any]]:
    """Return the outputs, and the sums of the second derivatives of those that `wanted` marks along `basis`.

    `moving` marks the inputs that vary; `basis` has a stack of directions for each. Raises `UnsupportedError` for an
    operation with programs that has no rule for sums.
    """
    count = aval_of(basis[0]).shape[0]
    bends: list[Any] = []
    if stages is None:
        values, _, seconds = _along(program, [*map(int, moving)], inputs, basis, [], count, wanted, is_last=True)
        return values, seconds
    if stages.colors is None:
        found = linearize_program(stages.first, (*moving,))
        results = without_literals(found(inputs))
        half: Linearized = found.extra
        values, residuals = results[:len(stages.first.outputs)], results[len(stages.first.outputs):]
        slopes = [move_axis(matrix, aval_of(matrix).ndim - 1, 0) for matrix in push_identity(half.linear, residuals)]
        order = 1
    else:
        values, slopes, bends = _along(stages.first, [*map(int, moving)], inputs, stages.seeds(basis), [],
                                       stages.number, stages.moving)
        results, slopes, bends = _products(stages, [value for value, marked in zip(
            values, stages.moving, strict=True) if marked], slopes, bends)
        values += results
        order = 2
    orders = [*(int(marked and used) for marked, used in zip(moving, stages.used, strict=True)),
              *(order * marked for marked in stages.moving), *[order] * len(stages.products)]
    directions = iter(basis)
    own = [direction for used, marked in zip(stages.used, moving, strict=True) if marked
           for direction in [next(directions)] if used]
    values, _, seconds = _along(stages.rest, orders, [*inputs, *values], [*own, *slopes], bends, count, wanted,
                                is_last=True)
    return values, seconds


def _products(stages: Stages, values: Sequence[Any], slopes: Sequence[Any], bends: Sequence[Any],
              ) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the results of the products, and the slopes and bends of the values that vary and of these results.

    The slopes that are given are those along directions that inputs share, and those that are returned along each.
    """
    results = []
    every = [stages.spread(slope, mask) for slope, mask in zip(slopes, stages.masks, strict=True)]
    curved = [*bends]
    for product in stages.products:
        def multiply(one: Any, other: Any, equation: Equation = product.equation) -> Any:
            return bind(equation.primitive, one, other, **equation.params)[0]

        (one, other), (slope, second), (bend, bent) = ([of[place] for place in product.places]
                                                       for of in (values, slopes, bends))
        results.append(multiply(one, other))
        every.append(add(*(stages.spread(vmap(part)(along), mask) for part, along, mask in zip(
            (lambda along: multiply(along, other), lambda along: multiply(one, along)),  # noqa: B023
            (slope, second), product.masks, strict=True))))
        total = add(multiply(bend, other), multiply(one, bent))
        if product.meeting.any():
            both = vmap(multiply)(slope, second)
            total = add(total, reduce_sum(where(product.meeting, both, zeros(aval_of(both))), (0,)))
        curved.append(total)
    return results, every, curved


def _along(program: Program, orders: Sequence[int], inputs: Sequence[Any], slopes: Sequence[Any], bends: Sequence[Any],
           count: int, wanted: Sequence[bool], is_last: bool = False) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the outputs and, of those that `wanted` marks, the coefficients of order 1 and sums of those of order 2.

    Of each input, `orders` coefficients are given: of order 1 in `slopes`, stacked over `count` directions, and of
    order 2 in `bends`. With `is_last` those of order 1 are left out, and those of order 2 are second derivatives.
    """
    def along(slopes: Sequence[Any], bends: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        given = iter(slopes), iter(bends)
        coefficients = [next(given[level]) for order in orders for level in range(order)]
        derived = series_program(program, (*orders,), 2, (*wanted,), scaled=is_last,
                                 sum_directions=_SumOfDirections(count))
        results = without_literals(derived([*inputs, *coefficients]))
        number = len(program.outputs)
        return results[:number], [] if is_last else results[number::2], results[number + 1::2]
    values, found, sums = vmap(along, in_axes=(0, None), out_axes=(None, 0, None), axis_name=DIRECTIONS,
                               axis_size=count)([*slopes], [*bends])
    return values, found, sums


def product_stages(program: Program, moving: Sequence[bool]) -> Stages | None:
    """Return the stages of a program that multiplies its one vector that varies with matrices, and does no more to it.

    None if there is no such product.
    """
    def make() -> Stages | None:
        if sum(moving) != 1 or used_axes(program):
            return None
        vector = program.inputs[[*moving].index(True)]
        diagonal: set[Any] = {vector}
        through: set[Any] = {vector}
        chosen = set()
        for equation in program.equations:
            varies = [type(atom) is not Literal and atom in through for atom in equation.inputs]
            if not any(varies):
                chosen.add(id(equation))
                continue
            through.update(equation.outputs)
            marks = [type(atom) is not Literal and atom in diagonal for atom in equation.inputs]
            if marks == varies and _is_affine(equation, vector.aval.size, marks):
                chosen.add(id(equation))
                diagonal.update(equation.outputs)
            elif marks == varies and is_product(equation, marks):
                chosen.add(id(equation))
        found = _cut(program, lambda equation: id(equation) in chosen, through)
        if found is None or not any(found.moving) or any(
                used for used, marked in zip(found.used, moving, strict=True) if marked):
            return None
        half: Linearized = linearize_program(found.first, (*moving,)).extra
        return found if find_products(half.linear) else None
    return memoize(program, ("stages of products", *moving), make)


def shared_stages(program: Program, moving: Sequence[bool]) -> Stages | None:
    """Return the stages of a program in whose first one inputs share directions; None if that saves little."""
    def make() -> Stages | None:
        if used_axes(program):
            return None
        variables = [var for equation in program.equations for var in equation.outputs if _is_plain(equation)]
        every = Program(program.inputs, program.equations, variables)
        half: Linearized = linearize_program(every, (*moving,)).extra
        avals = half.linear.in_avals[half.linear.captured:]
        width = sum(aval.size for aval in avals)
        starts = np.cumsum([0, *(aval.size for aval in avals)])
        values, _ = dependences(half.linear, [*[None] * half.linear.captured, *(
            identity(aval.shape, int(start), width) for aval, start in zip(avals, starts, strict=False))], width)
        results = iter(values)
        found = {var: next(results) for var, marked in zip(variables, half.nonzero_outputs, strict=True) if marked}
        # The bound on what elements depend on counts inputs again that several terms have.
        rows = {var: each.csr() for var, each in found.items() if type(each) is Dependence
                and each.most * _SHARE <= _TERMS * width and each.most * each.size <= _ENTRIES}
        most = {var: int(np.diff(row[0]).max(initial=0)) for var, row in rows.items()}
        varying = {*(var for var, marked in zip(program.inputs, moving, strict=True) if marked), *found}
        for bound in sorted({count for count in most.values() if count * _SHARE <= width}, reverse=True):
            chosen: list[Variable] = []

            def belongs(equation: Equation, chosen: list[Variable] = chosen, bound: int = bound) -> bool:
                varied = [var for var in equation.outputs if var in varying]
                if any(most.get(var, width) > bound for var in varied):
                    return False
                chosen.extend(varied)
                return True
            stages = _cut(program, belongs, varying)
            if stages is None or not chosen:
                continue
            ends = np.cumsum([0, *(rows[var][1].size for var in chosen)])
            colors = color_columns(np.concatenate([[0], *(rows[var][0][1:] + end for var, end in zip(
                chosen, ends, strict=False))]), np.concatenate([rows[var][1] for var in chosen]), width)
            if colors.number * _SHARE > width:
                continue
            return _with_products(stages._replace(colors=np.maximum(colors.colors, 0), number=colors.number), found)
        return None
    return memoize(program, ("stages of shared directions", *moving), make)


def _with_products(stages: Stages, found: dict[Any, Any]) -> Stages:
    """Return the stages with masks, and with products of two values of the cut taken out of the rest."""
    cut = [var for var, marked in zip(stages.first.outputs, stages.moving, strict=True) if marked]
    width = stages.colors.size
    walk = Walk(width, sparsity_rules.of)
    products, results, rest = [], [], []
    for equation in stages.rest.equations:
        places = [cut.index(atom) if atom in cut else -1 for atom in equation.inputs]
        parts = []
        if equation.primitive in _BILINEAR and min(places) >= 0:
            factors = [found[atom] for atom in equation.inputs]
            parts = [walk.equation(equation, operands)[0] for operands in ([factors[0], None], [None, factors[1]])]
        if parts and all(type(part) is Dependence and _is_separate(part, stages.colors) for part in parts):
            masks = [_mask(part.csr(), part.shape, width, whole=True) for part in parts]
            both = masks[0] & masks[1]
            meeting = np.stack([both[stages.colors == color].any(0) for color in range(stages.number)])
            products.append(Product(equation, (places[0], places[1]), (_narrow(masks[0]), _narrow(masks[1])), meeting))
            results += equation.outputs
        else:
            rest.append(equation)
    return stages._replace(
        masks=tuple(_mask(found[var].csr(), var.aval.shape, width) for var in cut), products=tuple(products),
        rest=Program([*stages.rest.inputs, *results], rest, stages.rest.outputs))


_BILINEAR = (mul_p, dot_general_p)


def _is_separate(found: Dependence, colors: Any) -> bool:
    """Return whether no element depends on two inputs of one color."""
    rows, columns = found.pairs()
    return bool(np.unique(rows.astype(np.int64) * colors.size + colors[columns]).size == rows.size)


def _is_affine(equation: Equation, size: int, through: Sequence[bool]) -> bool:
    """Return whether each element of the result is one of the operand in `through`, times and plus other numbers."""
    primitive = equation.primitive
    return sum(through) == 1 and equation.outputs[0].aval.size == size and (
        primitive in _AFFINE or (primitive is div_p and through[0]))


_AFFINE = (mul_p, neg_p, reshape_p, add_p, sub_p)


def _is_plain(equation: Equation) -> bool:
    """Return whether an equation may be moved before others, and always means the same."""
    return not (is_effectful(equation.primitive, equation.params) or equation.primitive.calls_user_code
                or any(map(calls_user_code, equation.programs)))


def _cut(program: Program, belongs: Callable[[Equation], bool], varying: set[Any]) -> Stages | None:
    """Return the stages of which the first has all equations that `belongs` admits, on values of the first alone."""
    before: set[Any] = {*program.inputs}
    first, rest = [], []
    for equation in program.equations:
        is_ready = all(type(atom) is Literal or atom in before for atom in equation.inputs)
        if is_ready and _is_plain(equation) and belongs(equation):
            first.append(equation)
            before.update(equation.outputs)
        else:
            rest.append(equation)
    read = {atom for equation in rest for atom in equation.inputs if type(atom) is not Literal}
    read |= {atom for atom in program.outputs if type(atom) is not Literal}
    cut = [var for equation in first for var in equation.outputs if var in read]
    if not cut:
        return None
    return Stages(Program(program.inputs, first, cut), Program([*program.inputs, *cut], rest, program.outputs),
                  tuple(var in varying for var in cut), tuple(var in read for var in program.inputs))


def _mask(row: tuple[Any, Any], shape: tuple[int, ...], width: int, whole: bool = False) -> Any:
    """Return which elements each input moves, in full if `whole`; else narrow."""
    starts, columns = row
    mask = np.zeros((width, starts.size - 1), bool)
    mask[columns, np.repeat(np.arange(starts.size - 1), np.diff(starts))] = True
    return mask.reshape(width, *shape) if whole else _narrow(mask.reshape(width, *shape))


def _narrow(mask: Any) -> Any:
    """Return a mask with size 1 along the axes, other than the first, along which it is the same."""
    for axis in range(1, mask.ndim):
        one = mask.take([0], axis)
        mask = one if (mask == one).all() else mask
    return mask
