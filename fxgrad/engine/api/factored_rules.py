"""Rules by which operations take factored derivatives: their results are products of small arrays, too.

Each takes the walk, an equation and its operands, one of which or two are factored and no other is a batch; it returns
the factored results, or None if it has none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.api.factored_indexing import (
    gathered,
    recurred,
    scattered,
    sliced_at,
    solved,
    transformed,
    updated_at,
    windowed,
)
from fxgrad.engine.api.factored_loops import counted, scanned, switched, visited
from fxgrad.engine.api.factored_values import (
    DIVISIONS,
    Factor,
    Factored,
    Labels,
    Push,
    Rule,
    Term,
    between_zeros,
    flat_labels,
    union_of_labels,
)
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Equation
from fxgrad.engine.higher_order.branch import cond_p
from fxgrad.engine.higher_order.loop import for_p
from fxgrad.engine.higher_order.scan import scan_p
from fxgrad.engine.higher_order.sweep import sweep_p
from fxgrad.engine.ops import arithmetic, parts, products, structural
from fxgrad.engine.ops.convolution import conv_general_dilated_p, convolve, geometry_of
from fxgrad.engine.ops.cumulative import cumsum, cumsum_p, linear_recurrence_p
from fxgrad.engine.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p
from fxgrad.engine.ops.fft import fft_p
from fxgrad.engine.ops.indexing import gather_p, scatter_add_p, scatter_p, scatter_sub_p
from fxgrad.engine.ops.joining import concatenate, concatenate_p, split_p, stack, stack_p, unstack_p
from fxgrad.engine.ops.pointwise import add_p, scalar_like
from fxgrad.engine.ops.pool import reduce_window_sum_p, select_and_gather_add_p, select_and_scatter_add_p
from fxgrad.engine.ops.select import select_n_p
from fxgrad.engine.ops.shaping import broadcast_in_dim_p, pad_p, rev, rev_p, slice_in_dim, slice_p, tile_p
from fxgrad.engine.ops.strong import strong_div_p, strong_dot_general_p, strong_mul_p
from fxgrad.engine.ops.structural import broadcast_to, convert, reshape, transpose, zeros
from fxgrad.engine.ops.triangular import lu_solve_p, triangular_solve_p, tridiagonal_solve_p
from fxgrad.engine.tracing.tape import aval_of, bind


def _one(inputs: Sequence[Any]) -> tuple[int, Factored] | None:
    """Return the place of the one factored operand, and it; None if there are more."""
    places = [place for place, value in enumerate(inputs) if type(value) is Factored]
    return (places[0], inputs[places[0]]) if len(places) == 1 else None


def _scaled(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    found, primitive, aval = _one(inputs), equation.primitive, equation.outputs[0].aval
    if found is None or (primitive in DIVISIONS and found[0] == 1):
        return None
    place, value = found
    array = inputs[1 - place].value
    if aval_of(array).dtype != aval.dtype or value.aval.dtype != aval.dtype:
        return None
    terms = []
    for before in value.terms:
        term = push.broadcast(before, value.aval.shape, aval.shape)
        terms.append(term._replace(factors=(*term.factors, push.factor_on(array, term.axes, primitive))))
    return [Factored(aval, terms)]


def _negative(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored]:
    value = inputs[0]
    return [Factored(value.aval, [_negated(term, value.aval) for term in value.terms])]


def _negated(term: Term, aval: Aval) -> Term:
    """Return a term times -1: of the first factor, which is often the smallest."""
    if not term.factors:
        return term._replace(factors=(Factor(Literal(-1, Aval((), aval.dtype)), ()),))
    first, *others = term.factors
    return term._replace(factors=(first._replace(array=arithmetic.neg(first.array)), *others))


def _sum(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    aval, terms = equation.outputs[0].aval, []
    for place, value in enumerate(inputs):
        if type(value) is not Factored or value.aval.dtype != aval.dtype:
            return None
        own = [push.broadcast(term, value.aval.shape, aval.shape) for term in value.terms]
        terms += [_negated(term, aval) for term in own] if equation.primitive is arithmetic.sub_p and place else own
    return [push.gathered(aval, terms)]


def _reshaped(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    aval = equation.outputs[0].aval
    terms = [push.regrouped(term, aval.shape) for term in inputs[0].terms]
    return None if any(term is None for term in terms) else [
        Factored(aval, [term for term in terms if term is not None])]


def _transposed(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored]:
    order = equation.params["permutation"]
    return [Factored(equation.outputs[0].aval, [
        term._replace(axes=tuple(term.axes[axis] for axis in order)) for term in inputs[0].terms])]


def _repeated(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored]:
    aval, value = equation.outputs[0].aval, inputs[0]
    return [Factored(aval, [push.broadcast(term, value.aval.shape, aval.shape) for term in value.terms])]


def _converted(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    aval, value = equation.outputs[0].aval, inputs[0]
    before, dtype = value.aval.dtype, aval.dtype
    if not dtypes.is_inexact(dtype):
        return None
    if dtypes.is_complex(before) and not dtypes.is_complex(dtype):
        return _part(push, equation, inputs)
    return [_each_factor(aval, value, lambda array: convert(array, dtype))]


def _each_factor(aval: Aval, value: Factored, change: Callable[[Any], Any]) -> Factored:
    """Return the result of an operation on each element that changes the factors of a product one by one."""
    return Factored(aval, [term._replace(factors=tuple(
        factor._replace(array=change(factor.array)) for factor in term.factors)) for term in value.terms])


def _conjugate(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored]:
    return [_each_factor(equation.outputs[0].aval, inputs[0], parts.conj)]


def _part(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored]:
    """Apply an operation on each element to the product of the factors of each term."""
    value, terms = inputs[0], []
    for term in value.terms:
        whole = push.product(term, value.aval)
        part = bind(equation.primitive, whole.array, **equation.params)[0]
        terms.append(term._replace(factors=(whole._replace(array=part),)))
    return [push.gathered(equation.outputs[0].aval, terms)]


def _of_parts(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored]:
    """Make complex numbers of real parts and imaginary ones; those that are not factored are 0."""
    aval, terms = equation.outputs[0].aval, []
    for place, value in enumerate(inputs):
        for before in value.terms if type(value) is Factored else ():
            term = push.broadcast(before, value.aval.shape, aval.shape)
            whole = push.product(term, value.aval)
            pair = [whole.array, scalar_like(0, whole.array)]
            terms.append(term._replace(factors=(whole._replace(array=parts.complex(*pair[::-1 if place else 1])),)))
    return [push.gathered(aval, terms)]


def _reduced(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored]:
    aval, value, summed = equation.outputs[0].aval, inputs[0], equation.params["axes"]
    terms = []
    for term in value.terms:
        gone = [label for axis in summed for label in term.axes[axis] if label not in term.basis]
        axes = tuple(labels for axis, labels in enumerate(term.axes) if axis not in summed)
        terms.append(Term(term.source, push.without(term.factors, gone, aval), axes, term.basis))
    return [push.gathered(aval, terms)]


def _product(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    found, aval = _one(inputs), equation.outputs[0].aval
    if found is None:
        return None
    place, value = found
    array, precision = inputs[1 - place].value, equation.params["precision"]
    if isinstance(precision, tuple) or not aval.dtype == aval_of(array).dtype == value.aval.dtype:
        return None
    (contracted, batch), theirs = ([each[side] for each in equation.params["dimension_numbers"]]
                                   for side in (place, 1 - place))
    pairs = dict(zip((*theirs[0], *theirs[1]), (*contracted, *batch), strict=True))
    is_strong = equation.primitive is strong_dot_general_p

    def dot(one: Any, other: Any, numbers: Any) -> Any:
        return bind(equation.primitive, one, other, **{**equation.params, "dimension_numbers": numbers})[0]

    terms = []
    shape = aval_of(array).shape
    for term in value.terms:
        axes = tuple(term.axes[pairs[axis]] if axis in pairs else (push.label(size),) if size > 1 else ()
                     for axis, size in enumerate(shape))
        free = [[term.axes[axis] for axis in range(len(term.axes)) if axis not in (*contracted, *batch)],
                [labels for axis, labels in enumerate(axes) if axis not in pairs]]
        gone = [label for axis in contracted for label in term.axes[axis] if label not in term.basis]
        factors = (*term.factors, push.factor_on(array, axes, strong_mul_p if is_strong else arithmetic.mul_p))
        terms.append(Term(term.source, push.without(factors, gone, aval, dot), (
            *(term.axes[axis] for axis in batch), *free[place], *free[1 - place]), term.basis))
    return [push.gathered(aval, terms)]


def _selected(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    found, aval = _one(inputs), equation.outputs[0].aval
    if found is None or not all(type(case) is Factored or (
            type(case.value) is Literal and case.value.value == 0) for case in inputs[1:]):
        return None
    place, value = found
    which = inputs[0].value
    terms = []
    for before in value.terms:
        term = push.broadcast(before, value.aval.shape, aval.shape)
        mask = push.factor_on(which, term.axes)
        near = [factor for factor in term.factors if not factor.labels or {*factor.labels} & {*mask.labels}]
        far = [factor for factor in term.factors if factor.labels and not {*factor.labels} & {*mask.labels}]
        order = union_of_labels(mask.labels, *(factor.labels for factor in near))
        whole = push.multiplied(near, order, aval)
        cases = [case.value for case in inputs[1:] if type(case) is not Factored]
        cases.insert(place - 1, push.aligned(whole, order))
        chosen = bind(select_n_p, push.aligned(mask, order), *cases)[0]
        terms.append(term._replace(factors=(Factor(chosen, order, whole.by), *far)))
    return [Factored(aval, terms)]


Change = Callable[[Any, int], Any] | None
"""What an operation does along an axis of an array; None if nothing."""


def _along_axes(push: Push, aval: Aval, value: Factored, changes: Sequence[Change]) -> Factored:
    """Return the result of an operation that changes each axis by itself."""
    terms = [*value.terms]
    for axis, (size, change) in enumerate(zip(value.aval.shape, changes, strict=True)):
        if change is not None:
            terms = [push.along(term, axis, size, value.aval, change) for term in terms]
    return push.gathered(aval, terms)


def _alone(axis: int, change: Change, rank: int) -> list[Change]:
    return [change if place == axis else None for place in range(rank)]


def _explicit(push: Push, value: Factored, axis: int) -> Factored:
    """Return a value without deltas and with one label on an axis."""
    return _along_axes(push, value.aval, value, _alone(axis, lambda array, _: array, value.aval.ndim))


def _cut(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    params = equation.params
    return [_along_axes(push, equation.outputs[0].aval, inputs[0], [
        None if (start, stop, stride) == (0, size, 1) else functools.partial(_sliced, start, stop, stride)
        for size, start, stop, stride in zip(inputs[0].aval.shape, params["start_indices"], params["limit_indices"],
                                             params["strides"], strict=True)])]


def _sliced(start: int, stop: int, stride: int, array: Any, axis: int) -> Any:
    return slice_in_dim(array, start, stop, axis, stride)


def _reversed(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    return [_along_axes(push, equation.outputs[0].aval, inputs[0], [
        (lambda array, at: rev(array, (at,))) if axis in equation.params["dimensions"] and size > 1 else None
        for axis, size in enumerate(inputs[0].aval.shape)])]


def _accumulated(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    axis, reverse = equation.params["axis"], equation.params["reverse"]
    return [_along_axes(push, equation.outputs[0].aval, inputs[0], _alone(
        axis, lambda array, at: cumsum(array, at, reverse), inputs[0].aval.ndim))]


def _padded(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    value, padding = inputs
    if type(value) is not Factored or type(padding) is Factored or type(padding.value) is not Literal or (
            padding.value.value != 0):
        return None
    return [_along_axes(push, equation.outputs[0].aval, value, [
        None if config == (0, 0, 0) else functools.partial(between_zeros, config)
        for config in equation.params["padding_config"]])]


def _parts(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    value, axis = inputs[0], equation.params["axis"]
    whole = _explicit(push, value, axis)  # every piece is a slice of the same matrix
    pieces: list[Factored] = []
    start = 0
    for out in equation.outputs:
        size = equation.params["sizes"][len(pieces)] if equation.primitive is split_p else 1
        piece = _along_axes(push, value.aval.resized(axis, size), whole, _alone(
            axis, functools.partial(_sliced, start, start + size, 1), value.aval.ndim))
        pieces.append(piece if equation.primitive is split_p else Factored(out.aval, [
            term._replace(axes=term.axes[:axis] + term.axes[axis + 1:]) for term in piece.terms]))
        start += size
    return pieces


def _tiled(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    return [Factored(equation.outputs[0].aval, [term._replace(axes=tuple(
        new + labels for new, labels in zip(push.labels_of(equation.params["reps"]), term.axes, strict=True)))
        for term in inputs[0].terms])]


def _in_dim(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    shape, places = equation.params["shape"], equation.params["broadcast_dimensions"]
    terms = []
    for term in inputs[0].terms:
        axes = [*push.labels_of(shape)]
        for place, labels, size in zip(places, term.axes, inputs[0].aval.shape, strict=True):
            axes[place] = labels if size == shape[place] else axes[place]
        terms.append(term._replace(axes=tuple(axes)))
    return [Factored(equation.outputs[0].aval, terms)]


def _joined(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    """Join, for terms of the parts with the same deltas, their arrays; parts of one size have a label for their number.

    Parts that are not factored are zeros, since the program is linear.
    """
    aval, is_stack = equation.outputs[0].aval, equation.primitive is stack_p
    axis = equation.params["axis" if is_stack else "dimension"]
    shapes = [value.aval.shape if type(value) is Factored else aval_of(value.value).shape for value in inputs]
    is_even = is_stack or len({shape[axis] for shape in shapes}) == 1
    groups: dict[Any, dict[int, Term]] = {}
    for place, value in enumerate(inputs):
        if type(value) is not Factored:
            continue
        part = value if is_even else _explicit(push, value, axis)
        for term in push.gathered(part.aval, part.terms, at_any_size=True).terms:
            groups.setdefault(push.deltas_of(term, None if is_even else axis), {})[place] = term
    return [Factored(aval, [_joined_terms(push, group, shapes, axis, aval, is_even, is_stack)
                            for group in groups.values()])]


def _joined_terms(push: Push, group: dict[int, Term], shapes: Sequence[tuple[int, ...]], axis: int, aval: Aval,
                  is_even: bool, is_stack: bool) -> Term:
    """Return terms with the same deltas, by the number of their part, as one; other parts are 0."""
    def shared(term: Term) -> Labels:
        axes = term.axes if is_even else term.axes[:axis] + term.axes[axis + 1:]
        return (*term.basis, *flat_labels(axes))

    first = next(iter(group.values()))
    factors: dict[int, list[Factor]] = {}
    used: set[int] = set()
    for place, term in group.items():
        renamed = dict(zip(shared(term), shared(first), strict=True))
        factors[place] = [factor._replace(labels=tuple(renamed.get(label, label) for label in factor.labels))
                          for factor in term.factors]
        used.update(label for factor in factors[place] for label in factor.labels)
    order = [label for label in union_of_labels(shared(first)) if label in used]
    arrays, by = [], first.factors[0].by if first.factors else arithmetic.mul_p
    for place, shape in enumerate(shapes):
        sizes = (*(() if is_even else (shape[axis],)), *push.shape_of(order))
        if place not in group:
            arrays.append(zeros(Aval(sizes, aval.dtype)))
            continue
        own = [] if is_even else [*group[place].axes[axis]]
        whole = push.multiplied(factors[place], [*own, *order], aval)
        arrays.append(broadcast_to(reshape(push.aligned(whole, [*own, *order]), (
            *(() if is_even else (shape[axis],)), *(
                push.shape_of([label])[0] if label in whole.labels else 1 for label in order))), sizes))
        by = whole.by
    joined = stack(arrays, 0) if is_even else concatenate(arrays, 0)
    label = push.label(aval_of(joined).shape[0])
    axes = (*first.axes[:axis], (label,), *first.axes[axis:]) if is_stack else (
        *first.axes[:axis], (label, *(first.axes[axis] if is_even else ())), *first.axes[axis + 1:])
    return Term(first.source, (Factor(joined, (label, *order), by),), axes, first.basis)


def _convolved(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    """Convolve the arrays along space and features; the batch of images, or of kernels, keeps its deltas.

    Where the features of the value are those of the input, nothing is summed over them: they are a batch, too.
    """
    found, aval, geometry = _one(inputs), equation.outputs[0].aval, geometry_of(equation.params)
    if found is None or geometry.feature_group_count * geometry.batch_group_count > 1 or aval.ndim == 2:
        return None
    place, value = found
    array = inputs[1 - place].value
    if not aval.dtype == aval_of(array).dtype == value.aval.dtype:
        return None
    specs = geometry.dimension_numbers
    batch, features, *space = specs[place]
    standard = tuple(range(aval.ndim))
    other = transpose(array, specs[1 - place])
    many, *sizes = aval_of(other).shape
    terms = []
    for term in value.terms:
        tied = [label for label in term.axes[features] if label in term.basis]
        whole, far, own = push.explicit(term, space, value.aval)
        is_tied = [*term.axes[features]] == tied and {*tied}.isdisjoint(whole.labels)
        if not is_tied:
            whole, far, own = push.explicit(term, (features, *space), value.aval)
        rest = tuple(label for label in whole.labels if label not in flat_labels(own))
        image = reshape(push.aligned(whole, [*rest, *flat_labels(own)]), (
            push.size_of(rest), 1 if is_tied else sizes[0], *(value.aval.shape[axis] for axis in space)))
        kernel = reshape(other, (many * sizes[0], 1, *sizes[1:])) if is_tied else other
        result = convolve(*((kernel, image) if place else (image, kernel)), geometry._replace(
            dimension_numbers=(standard, standard, standard)), equation.params["precision"])
        new, = push.labels_of((many,))
        windows = push.labels_of(aval_of(result).shape[2:])
        sides = (rest, (*new, *(tied if is_tied else ())))
        labels = (*sides[place], *sides[1 - place], *flat_labels(windows))
        axes: list[Labels] = [()] * aval.ndim
        for axis, found_labels in zip(specs[2], (*((new, term.axes[batch]) if place else (term.axes[batch], new)),
                                                 *windows), strict=True):
            axes[axis] = found_labels
        terms.append(Term(term.source, (Factor(reshape(result, push.shape_of(labels)), labels, whole.by), *far),
                          tuple(axes), term.basis))
    return [push.gathered(aval, terms)]


RULES: dict[Primitive, Rule] = {
    **dict.fromkeys((arithmetic.mul_p, strong_mul_p, arithmetic.div_p, strong_div_p), _scaled),
    **dict.fromkeys((add_p, arithmetic.sub_p), _sum),
    **dict.fromkeys((products.dot_general_p, strong_dot_general_p), _product),
    arithmetic.neg_p: _negative, structural.reshape_p: _reshaped, structural.transpose_p: _transposed,
    structural.broadcast_to_p: _repeated, structural.convert_element_type_p: _converted,
    structural.reduce_sum_p: _reduced, select_n_p: _selected,
    slice_p: _cut, rev_p: _reversed, pad_p: _padded, cumsum_p: _accumulated,
    **dict.fromkeys((split_p, unstack_p), _parts), **dict.fromkeys((concatenate_p, stack_p), _joined),
    tile_p: _tiled, broadcast_in_dim_p: _in_dim, conv_general_dilated_p: _convolved,
    scan_p: scanned, for_p: counted, gather_p: gathered, dynamic_slice_p: sliced_at, dynamic_update_slice_p: updated_at,
    **dict.fromkeys((scatter_p, scatter_add_p, scatter_sub_p), scattered),
    **dict.fromkeys((lu_solve_p, triangular_solve_p, tridiagonal_solve_p), solved),
    **dict.fromkeys((reduce_window_sum_p, select_and_gather_add_p, select_and_scatter_add_p), windowed),
    linear_recurrence_p: recurred, fft_p: transformed, parts.conj_p: _conjugate, parts.complex_p: _of_parts,
    **dict.fromkeys((parts.real_p, parts.imag_p, parts.reduce_precision_p), _part), cond_p: switched, sweep_p: visited}
