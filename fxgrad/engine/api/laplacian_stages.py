"""Stages of a Laplacian: the part of a program whose Jacobian takes few directions, or none, and what follows.

Two kinds of parts are cut off at the beginning. The Jacobian of a product of a vector with a matrix is that matrix. And
while each element depends on few inputs (those of one particle), inputs that no element shares move together. In what
follows each direction is by itself.
"""

from __future__ import annotations

import functools
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
from fxgrad.engine.api.factored_jacobians import find_products, is_product, push_identity
from fxgrad.engine.core.avals import Aval, Literal, without_literals
from fxgrad.engine.core.program import Equation, Program, Variable
from fxgrad.engine.core.program_properties import calls_user_code, is_effectful, memoize, used_axes
from fxgrad.engine.higher_order.series import series_program
from fxgrad.engine.ops.arithmetic import div_p, mul_p, neg_p, sub_p
from fxgrad.engine.ops.indexing import gather
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.pointwise import add, add_p
from fxgrad.engine.ops.products import dot_general_p
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.ops.structural import broadcast_to, move_axis, reduce_sum, reshape, reshape_p, zeros
from fxgrad.engine.ops.windows import Windows
from fxgrad.engine.parallel.collective import psum
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.transforms.forward import has_tangent
from fxgrad.engine.transforms.linearize import Linearized, linearize_program

DIRECTIONS = "directions"
"""The name of the mapped axis of the directions."""
_SHARE = 3
"""Directions are shared where one in so many suffices."""
_TERMS, _ENTRIES = 4, 20_000_000
"""Values whose elements depend on so many times more inputs, or that depend on so many in all, share none."""


class Product(NamedTuple):
    """A product of two values of a cut.

    Each factor moves elements of the result, with the other at rest, so that inputs of one color move different ones:
    those in `masks`. `meeting` marks, for each color, the elements that one input moves through both factors.
    """

    equation: Equation
    masks: tuple[Any, Any]
    meeting: Any


class Sum(NamedTuple):
    """A `dot_general` in the rest of a program that sums over `axis` of a value of the cut, its operand at `place`.

    Each input moves that value at one index along the axis alone, that in `indices`, or nowhere if `moves` is False.
    """

    equation: Equation
    place: int
    axis: int
    indices: Any
    moves: Any


class Stages(NamedTuple):
    """A program in parts: `first` maps inputs to the values of the cut; those of `rest` map these and others to more.

    `moving` marks the values of the cut that vary. Where `colors` is None, the Jacobian of `first` stands in it. Else
    inputs of one of the `number` colors move together, and `masks` has, for each value that varies, the elements that
    each input moves; `products` are computed from the cut, and `sums` each after the part of its number.
    """

    first: Program
    rest: tuple[Program, ...]
    moving: tuple[bool, ...]
    colors: Any = None
    number: int = 0
    masks: tuple[Any, ...] = ()
    products: tuple[Product, ...] = ()
    sums: tuple[Sum, ...] = ()

    def seeds(self, basis: Sequence[Any]) -> list[Any]:
        """Return the directions of the first stage, like `basis`: one stack for each input that varies."""
        avals = [aval_of(stack) for stack in basis]
        rows = self.colors[None, :] == np.arange(self.number)[:, None]
        stacks = np.split(rows, np.cumsum([math.prod(aval.shape[1:]) for aval in avals])[:-1], axis=1)
        return [stack.reshape(self.number, *aval.shape[1:]).astype(aval.dtype)
                for stack, aval in zip(stacks, avals, strict=True)]

    def spread(self, found: Any, mask: Any) -> Any:
        """Return derivatives in each direction, of derivatives in those that share a color."""
        count, aval = self.colors.size, aval_of(found)
        if count % self.number == 0 and (self.colors == np.arange(count) % self.number).all():
            repeated = reshape(broadcast_to(found, (count // self.number, *aval.shape)), (count, *aval.shape[1:]))
        else:
            repeated = concatenate([slice_in_dim(found, color, color + 1, 0) for color in self.colors.tolist()], 0)
        return where(mask, repeated, zeros(aval_of(repeated)))


class Moving(NamedTuple):
    """A value and its second derivatives: slopes along each direction, and the sum of coefficients of order 2.

    None stands for zeros. `shared` are slopes along directions that inputs share.
    """

    value: Any
    slope: Any = None
    bend: Any = None
    shared: Any = None

    @property
    def order(self) -> int:
        """The number of coefficients beside the value."""
        return 0 if self.slope is None else 1 if self.bend is None else 2


Known = dict[Any, Moving]


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
    if stages is None:
        values, _, seconds = _along(program, [*map(int, moving)], inputs, basis, [], count, wanted, is_last=True)
        return values, seconds
    directions = iter(basis)
    known: Known = {var: Moving(value, next(directions) if marked else None)
                    for var, value, marked in zip(program.inputs, inputs, moving, strict=True)}
    if stages.colors is None:
        found = linearize_program(stages.first, (*moving,))
        results = without_literals(found(inputs))
        half: Linearized = found.extra
        values, residuals = results[:len(stages.first.outputs)], results[len(stages.first.outputs):]
        matrices = iter(push_identity(half.linear, residuals, is_first=True))
        for var, value, marked in zip(stages.first.outputs, values, stages.moving, strict=True):
            known[var] = Moving(value, _rows_of(next(matrices)[0], aval_of(value)) if marked else None)
    else:
        values, slopes, bends = _along(stages.first, [*map(int, moving)], inputs, stages.seeds(basis), [],
                                       stages.number, stages.moving)
        shared, curved, masks = iter(slopes), iter(bends), iter(stages.masks)
        for var, value, marked in zip(stages.first.outputs, values, stages.moving, strict=True):
            slope = next(shared) if marked else None
            known[var] = Moving(value) if slope is None else Moving(
                value, stages.spread(slope, next(masks)), next(curved), slope)
        known.update((product.equation.outputs[0], _product(stages, product, known)) for product in stages.products)
    *parts, last = stages.rest
    for part, total in zip(parts, stages.sums, strict=True):
        if part.equations:
            varies = [_varies(var, part, known) for var in part.outputs]
            values, slopes, bends = _along(part, *_coefficients(part, known), count, varies)
            given = iter(slopes), iter(bends)
            known.update((var, Moving(value, *(next(each) if marked else None for each in given)))
                         for var, value, marked in zip(part.outputs, values, varies, strict=True))
        known[total.equation.outputs[0]] = _sum(stages.number, stages.colors, total, known)
    values, _, seconds = _along(last, *_coefficients(last, known), count, wanted, is_last=True)
    return values, seconds


def _rows_of(matrix: Any, aval: Aval) -> Any:
    """Return a derivative whose first axes are those of the input with these as one."""
    shape = aval_of(matrix).shape
    return reshape(matrix, (math.prod(shape[:len(shape) - aval.ndim]), *aval.shape))


def _coefficients(part: Program, known: Known) -> tuple[list[int], list[Any], list[Any], list[Any]]:
    """Return the orders, values and coefficients of the inputs of a part of a program, as `_along` takes them."""
    given = [known[var] for var in part.inputs]
    return ([each.order for each in given], [each.value for each in given],
            [each.slope for each in given if each.order], [each.bend for each in given if each.order == 2])


def _varies(var: Any, part: Program, known: Known) -> bool:
    """Return whether a result of a part of a program may vary."""
    through = {each for each in part.inputs if known[each].order}
    for equation in part.equations:
        if any(type(atom) is not Literal and atom in through for atom in equation.inputs):
            through.update(equation.outputs)
    return has_tangent(var.aval) and var in through


def _multiply(equation: Equation, place: int, one: Any, other: Any) -> Any:
    """Return a product, of which `one` is the operand at `place`."""
    return bind(equation.primitive, *((other, one) if place else (one, other)), **equation.params)[0]


def _product(stages: Stages, product: Product, known: Known) -> Moving:
    """Return a product of two values of the cut."""
    one, other = (known[atom] for atom in product.equation.inputs)

    def multiply(one: Any, other: Any) -> Any:
        return _multiply(product.equation, 0, one, other)
    slope = add(*(stages.spread(vmap(part)(along), mask) for part, along, mask in zip(
        (lambda along: multiply(along, other.value), lambda along: multiply(one.value, along)),
        (one.shared, other.shared), product.masks, strict=True)))
    bend = add(multiply(one.bend, other.value), multiply(one.value, other.bend))
    if product.meeting.any():
        both = vmap(multiply)(one.shared, other.shared)
        bend = add(bend, reduce_sum(where(product.meeting, both, zeros(aval_of(both))), (0,)))
    return Moving(multiply(one.value, other.value), slope, bend)


def _sum(number: int, colors: Any, total: Sum, known: Known) -> Moving:
    """Return a sum of products with a value that each input moves in one of the terms."""
    equation, place, axis, indices, moves = total
    one, other = known[equation.inputs[place]], known[equation.inputs[1 - place]]
    contracted, _ = equation.params["dimension_numbers"]
    other_axis = contracted[1 - place][contracted[place].index(axis)]
    multiply = functools.partial(_multiply, equation, place)
    directions, size = np.arange(indices.size), equation.inputs[place].aval.shape[axis]

    def terms(value: Any, axis: int, rows: Any) -> Any:
        """Return for each input the term of `value`, of the rows of these numbers, with size 1 along `axis`."""
        shape = aval_of(value).shape
        taken = _rows(value, rows)
        return reshape(taken, (rows.size, *shape[1:1 + axis], 1, *shape[1 + axis:]))

    slopes = terms(_merged(move_axis(one.shared, axis + 1, 0)), axis, indices * number + colors)
    if not moves.all():
        slopes = where(moves.reshape(-1, *[1] * (aval_of(slopes).ndim - 1)), slopes, zeros(aval_of(slopes)))
    value = multiply(one.value, other.value)
    slope = vmap(multiply)(slopes, terms(move_axis(other.value, other_axis, 0), other_axis, indices))
    bend = multiply(one.bend, other.value)
    if other.order:
        slope = add(slope, vmap(functools.partial(multiply, one.value))(other.slope))
        at_rest = _merged(move_axis(other.slope, other_axis + 1, 1))
        both = vmap(multiply)(slopes, terms(at_rest, other_axis, directions * size + indices))
        bend = add(bend, reduce_sum(both, (0,)))
    if other.order == 2:
        bend = add(bend, multiply(one.value, other.bend))
    return Moving(value, slope, bend)


def _merged(value: Any) -> Any:
    """Return a value with its first two axes as one."""
    first, second, *others = aval_of(value).shape
    return reshape(value, (first * second, *others))


def _rows(value: Any, rows: Any) -> Any:
    """Return rows of a value, by known numbers."""
    size, *shape = aval_of(value).shape
    if rows.size == size and (rows == np.arange(size)).all():
        return value
    times = rows.size // size
    if rows.size == size * times and (rows == np.repeat(np.arange(size), times)).all():
        return reshape(broadcast_to(reshape(value, (size, 1, *shape)), (size, times, *shape)), (rows.size, *shape))
    windows = Windows(tuple(range(1, 1 + len(shape))), (0,), (0,), (), ())
    return gather(value, rows[:, None], windows, (1, *shape), "promise_in_bounds")


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
        if found is None or not any(found.moving) or vector in found.rest[0].inputs:
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
        if not width:
            return None  # there is no direction
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
            if not colors.number or colors.number * _SHARE > width:  # none where the values are empty
                continue
            return _with_products(stages._replace(colors=np.maximum(colors.colors, 0), number=colors.number), found)
        return None
    return memoize(program, ("stages of shared directions", *moving), make)


def _with_products(stages: Stages, found: dict[Any, Any]) -> Stages:
    """Return the stages with masks, and with products of values of the cut taken out of the rest."""
    masks = {var: _mask(found[var].csr(), var.aval.shape, stages.colors.size)
             for var, marked in zip(stages.first.outputs, stages.moving, strict=True) if marked}
    rest, = stages.rest
    walk = Walk(stages.colors.size, sparsity_rules.of)
    products, sums = [], []
    parts: list[list[Equation]] = [[]]
    for equation in rest.equations:
        product = _product_of_two(equation, masks, stages, found, walk)
        total = _sum_of_terms(equation, masks) if product is None else None
        if product is not None:
            products.append(product)
        elif total is not None:
            sums.append(total)
            parts.append([])
        else:
            parts[-1].append(equation)
    later: dict[Any, None] = dict.fromkeys(atom for atom in rest.outputs if type(atom) is not Literal)
    programs: list[Program] = []
    outputs: list[Any]
    for number in reversed(range(len(parts))):
        is_last = number == len(sums)
        own = dict.fromkeys(var for equation in parts[number] for var in equation.outputs)
        if not is_last:
            later.pop(sums[number].equation.outputs[0], None)
            later.update(dict.fromkeys(atom for atom in sums[number].equation.inputs if type(atom) is not Literal))
        used: dict[Any, None] = dict.fromkeys(atom for equation in parts[number] for atom in equation.inputs
                             if type(atom) is not Literal)
        inputs = {**used, **later} if is_last else used
        outputs = rest.outputs if is_last else [var for var in own if var in later]
        programs.insert(0, Program([var for var in inputs if var not in own], parts[number], outputs))
        later = {var: None for var in {**later, **used} if var not in own}
    return stages._replace(masks=tuple(masks.values()), products=tuple(products), sums=tuple(sums),
                           rest=tuple(programs))


def _product_of_two(equation: Equation, masks: dict[Any, Any], stages: Stages, found: dict[Any, Any], walk: Walk,
                    ) -> Product | None:
    """Return an equation as a product of two values of the cut whose elements each depend on one input of a color."""
    if equation.primitive not in _BILINEAR or not all(atom in masks for atom in equation.inputs):
        return None
    factors = [found[atom] for atom in equation.inputs]
    parts = [walk.equation(equation, operands)[0] for operands in ([factors[0], None], [None, factors[1]])]
    if not all(type(part) is Dependence and _is_separate(part, stages.colors) for part in parts):
        return None
    own = [_mask(part.csr(), part.shape, stages.colors.size, whole=True) for part in parts]
    both = own[0] & own[1]
    meeting = np.stack([both[stages.colors == color].any(0) for color in range(stages.number)])
    return Product(equation, (_narrow(own[0]), _narrow(own[1])), meeting)


def _sum_of_terms(equation: Equation, masks: dict[Any, Any]) -> Sum | None:
    """Return a `dot_general` of which each input moves one term, by a factor that is in the cut."""
    if equation.primitive is not dot_general_p or equation.inputs[0] is equation.inputs[1]:
        return None
    contracted, _ = equation.params["dimension_numbers"]
    for place, atom in enumerate(equation.inputs):
        mask = masks.get(atom)
        if mask is None:
            continue
        axes = [axis for axis, size in enumerate(mask.shape[1:]) if size > 1]
        if len(axes) == 1 and axes[0] in contracted[place]:
            moved = mask.reshape(mask.shape[0], -1)
            if moved.sum(1).max() <= 1:
                return Sum(equation, place, axes[0], moved.argmax(1), moved.any(1))
    return None


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
    return Stages(Program(program.inputs, first, cut), (Program(
        [*(var for var in program.inputs if var in read), *cut], rest, program.outputs),),
        tuple(var in varying for var in cut))


def _mask(row: tuple[Any, Any], shape: tuple[int, ...], width: int, whole: bool = False) -> Any:
    """Return which elements each input moves, in full if `whole`; else narrow."""
    starts, columns = row
    mask = np.zeros((width, starts.size - 1), bool)
    mask[columns, np.repeat(np.arange(starts.size - 1), np.diff(starts))] = True
    return mask.reshape(width, *shape) if whole else _narrow(mask.reshape(width, *shape))


def _narrow(mask: Any) -> Any:
    """Return a mask with size 1 along the axes, other than the first, along which it is the same."""
    for axis in range(1, mask.ndim):
        one = mask[(*[slice(None)] * axis, slice(0, 1))]
        mask = one if (mask == one).all() else mask
    return mask
