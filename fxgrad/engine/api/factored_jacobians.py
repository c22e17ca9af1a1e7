"""Jacobians of linear programs as products of small arrays: the identity is pushed through, and multiplied out last.

The derivative of `A @ X @ B` in X has the entries `A[i, j] * B[k, l]`. A dense pass for each column would compute it by
two products of matrices for each element of X; it is a product of two arrays, with axes of its own for the value and
for the input. Such a `Factored` value is a sum of terms, each a product of arrays whose axes have *labels*, as the
letters of `einsum` name them. A label that an axis of the value shares with an axis of the input stands for a Kronecker
delta: the identity has such labels alone, and no array. Sums over labels multiply the arrays that have them. Operations
without a rule here make the value dense, and go on with all columns as a batch.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.interpreter import Interpreter
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.core.program_properties import used_axes
from fxgrad.engine.frontend.operands import ones_on_diagonal
from fxgrad.engine.higher_order.call import jit_call_p, named_call_p
from fxgrad.engine.higher_order.checkpoint import checkpoint_p, recompute_p
from fxgrad.engine.ops import arithmetic, products, structural
from fxgrad.engine.ops.convolution import conv_general_dilated_p, convolve, geometry_of
from fxgrad.engine.ops.cumulative import cumsum, cumsum_p
from fxgrad.engine.ops.joining import concatenate, concatenate_p, split_p, stack, stack_p, unstack_p
from fxgrad.engine.ops.pointwise import add, add_p
from fxgrad.engine.ops.select import select_n_p
from fxgrad.engine.ops.shaping import (
    broadcast_in_dim_p,
    pad,
    pad_p,
    rev,
    rev_p,
    slice_in_dim,
    slice_p,
    tile_p,
)
from fxgrad.engine.ops.strong import strong_div_p, strong_dot_general_p, strong_mul_p
from fxgrad.engine.ops.structural import broadcast_to, convert, full, reduce_sum, reshape, transpose, zeros
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.trace import WITH_LITERALS, trace_at
from fxgrad.engine.transforms.batch import Batch, Batched, put_axis

Labels = tuple[int, ...]

_TERMS = 8
"""The most terms of a value: more are added up, as dense values if they differ in their deltas."""


class Factor(NamedTuple):
    """An array with a label for each axis, by which a term is multiplied, or divided, with the primitive `by`."""

    array: Any
    labels: Labels
    by: Any = arithmetic.mul_p

    @property
    def divides(self) -> bool:
        """Whether the term is divided by the array."""
        return self.by in _DIVISIONS


class Term(NamedTuple):
    """A product of factors: the derivative of a value in the input of number `source`.

    `axes` has the labels of each axis of the value, slowest first, none for size 1; `basis` those of the input's
    elements, in row-major order.
    """

    source: int
    factors: tuple[Factor, ...]
    axes: tuple[Labels, ...]
    basis: Labels


class Factored:
    """The derivative of a value of type `aval`: a sum of terms."""

    __slots__ = ("aval", "dense", "terms")

    def __init__(self, aval: Aval, terms: Sequence[Term]) -> None:
        self.aval, self.terms = aval, tuple(terms)
        self.dense: Batched | None = None
        """All columns, stacked along the last axis, if an operation took them."""


# --- which Jacobians stand in a program -------------------------------------------------------------------------------


def find_products(linear: Program) -> bool:
    """Return whether the input of a linear program goes into products with matrices, and nowhere else."""
    diagonal = {linear.inputs[-1]}
    for equation in linear.equations:
        through = [atom in diagonal for atom in equation.inputs if type(atom) is not Literal]
        if not any(through):
            continue
        if equation.primitive in (arithmetic.mul_p, arithmetic.neg_p, structural.reshape_p):
            if sum(through) != 1 or equation.outputs[0].aval.size != linear.inputs[-1].aval.size:
                return False
            diagonal.update(equation.outputs)
        elif not is_product(equation, [atom in diagonal for atom in equation.inputs]):
            return False
    return diagonal.isdisjoint(linear.outputs)


def is_product(equation: Equation, through: Sequence[bool]) -> bool:
    """Return whether the equation contracts all axes of the operand in `through` with those of a matrix."""
    if equation.primitive not in (products.dot_general_p, strong_dot_general_p) or sum(through) != 1:
        return False
    contracted, batch = equation.params["dimension_numbers"]
    side = [*through].index(True)
    return not batch[0] and len(contracted[side]) == equation.inputs[side].aval.ndim == 1


def can_factor(linear: Program) -> bool:
    """Return whether `push_identity` takes a linear program: its sizes are known, positive, and on no mapped axis."""
    atoms = [*linear.inputs, *(out for equation in linear.equations for out in equation.outputs)]
    return not used_axes(linear) and not any(atom.aval.vma for atom in atoms) and all(
        type(size) is int and size > 0 for atom in atoms for size in atom.aval.shape) and all(
        can_factor(equation.params["program"]) for equation in linear.equations if equation.primitive in _CALLS)


def push_identity(linear: Program, residuals: Sequence[Any], is_first: bool = False) -> list[list[Any]]:
    """Return the derivative of each output of a linear program in each of its inputs after the residuals.

    Blocks have the axes of the output and then those of the input; with `is_first` those of the input come first.
    `can_factor` must hold.
    """
    return _Push(linear.in_avals[len(residuals):]).blocks(linear, residuals, is_first)


# --- the walk ---------------------------------------------------------------------------------------------------------


class _Push(Batch):
    """Pushes the identity over all elements of `sources` through a linear program."""

    def __init__(self, sources: Sequence[Aval]) -> None:
        super().__init__(sum(aval.size for aval in sources))
        self._sources = sources
        self._sizes: list[int] = []

    def blocks(self, linear: Program, residuals: Sequence[Any], is_first: bool) -> list[list[Any]]:
        self._program, self._notes = linear, False
        inputs = [*(Batched(value, None) for value in residuals), *map(self._identity, range(len(self._sources)))]
        return [self._blocks_of(result, atom.aval, is_first)
                for result, atom in zip(Interpreter.run(self, linear, inputs), linear.outputs, strict=True)]

    def equation(self, equation: Equation, inputs: list[Any]) -> list[Any]:
        """Apply the rule of an operation with a factored operand; that of batches where there is none."""
        if any(type(value) is Factored for value in inputs):
            if equation.primitive in _CALLS:
                return self._called(equation, inputs)
            rule = _RULES.get(equation.primitive)
            results = None if rule is None or any(type(value) is Batched and value.axis is not None for value in inputs
                                                  ) else rule(self, equation, inputs)
            if results is not None:
                results = [result if self._most(result) <= _TERMS else self.gathered(
                    result.aval, result.terms, at_any_size=True) for result in results]
                if all(self._most(result) <= _TERMS for result in results):
                    return results
            inputs = [self._dense(value) if type(value) is Factored else value for value in inputs]
        return super().equation(equation, inputs)

    def _called(self, equation: Equation, inputs: list[Any]) -> list[Any]:
        """Push through the program of a call, and return what the same call of arrays and of factors returns."""
        arrays = [array for value in inputs for array in _arrays_of(value)]
        results: list[Any] = []

        def apply(*values: Any) -> list[Any]:
            given = iter(values)
            results.extend(Interpreter.run(self, equation.params["program"], [
                _with_arrays(value, given) for value in inputs]))
            return [array for result in results for array in _arrays_of(result)]

        program, captured = trace_at(apply, [*map(aval_of, arrays)], mode=WITH_LITERALS)
        found = iter(bind(equation.primitive, *captured, *arrays, **{**equation.params, "program": program}))
        return [_with_arrays(result, found) for result in results]

    def label(self, size: int) -> int:
        self._sizes.append(size)
        return len(self._sizes) - 1

    def labels_of(self, shape: Sequence[int]) -> tuple[Labels, ...]:
        return tuple((self.label(size),) if size > 1 else () for size in shape)

    def size_of(self, labels: Labels) -> int:
        """Return the number of elements of an array with these labels."""
        return math.prod(self._sizes[label] for label in labels)

    def _identity(self, source: int) -> Factored:
        aval = self._sources[source]
        axes = self.labels_of(aval.shape)
        return Factored(aval, [Term(source, (), axes, _flat(axes))])

    # Arrays.

    def aligned(self, factor: Factor, order: Sequence[int]) -> Any:
        """Return the array of a factor with an axis for each label in `order`, of size 1 where it lacks the label."""
        place = {label: axis for axis, label in enumerate(factor.labels)}
        turned = transpose(factor.array, [place[label] for label in order if label in place])
        return reshape(turned, tuple(self._sizes[label] if label in place else 1 for label in order))

    def multiplied(self, factors: Sequence[Factor], order: Sequence[int], aval: Aval) -> Factor:
        """Return the product of factors as one, its labels in `order`."""
        if not factors:
            return Factor(Literal(1, Aval((), aval.dtype)), ())
        above = [factor for factor in factors if not factor.divides] or [Factor(Literal(1, Aval((), aval.dtype)), ())]
        while len(above) > 1:  # the pair whose product is smallest first
            pairs = ((one, other) for place, other in enumerate(above) for one in above[:place])
            one, other = min(pairs, key=lambda pair: self.size_of(_union(pair[0].labels, pair[1].labels)))
            above = [self._applied(one, other, order),
                     *(factor for factor in above if factor is not one and factor is not other)]
        found, = above
        for factor in factors:
            if factor.divides:
                found = self._applied(found, factor, order)
        kept = [label for label in order if label in found.labels]
        return found if [*found.labels] == kept else Factor(
            transpose(found.array, [found.labels.index(label) for label in kept]), tuple(kept), found.by)

    def _applied(self, one: Factor, other: Factor, order: Sequence[int]) -> Factor:
        labels = tuple(label for label in order if label in one.labels or label in other.labels)
        by = other.by if other.by is not arithmetic.mul_p else one.by
        found = bind(by, self.aligned(one, labels), self.aligned(other, labels))[0]
        return Factor(found, labels, _STRENGTH.get(by, by))

    def without(self, factors: Sequence[Factor], labels: Sequence[int], aval: Aval,
                dot: Callable[..., Any] | None = None) -> tuple[Factor, ...]:
        """Return factors whose product is that of `factors`, summed over `labels`; `dot` contracts two arrays."""
        factors, left = [*factors], [*labels]
        while left:
            group = [factor for factor in factors if left[0] in factor.labels]
            others = [factor for factor in factors if left[0] not in factor.labels]
            rest = {label for factor in others for label in factor.labels}
            if not group:
                factors.append(Factor(Literal(self._sizes[left.pop(0)], Aval((), aval.dtype)), ()))
                continue
            order = _union(*(factor.labels for factor in group))
            last, beside = self._parted(group)
            if last is None:
                whole = self.multiplied(group, order, aval)
                gone = [label for label in left if label in whole.labels and label not in rest]
                summed = reduce_sum(whole.array, [whole.labels.index(label) for label in gone])
                found = Factor(summed, tuple(label for label in whole.labels if label not in gone), whole.by)
            else:
                whole = self.multiplied(beside, order, aval)
                gone = [label for label in left if label in whole.labels and label in last.labels and label not in rest]
                found = _contracted(whole, last, gone, dot)
            left = [label for label in left if label not in gone]
            factors = [*others, found]
        return tuple(factors)

    def _parted(self, group: Sequence[Factor]) -> tuple[Factor | None, list[Factor]]:
        """Return the factor that leaves the smallest product of the others, and these; None if it is alone."""
        parts = [(last, [factor for factor in group if factor is not last]) for last in group if not last.divides]
        if len(group) == 1 or not parts:
            return None, [*group]
        return min(parts, key=lambda part: self.size_of(_union(*(factor.labels for factor in part[1]))))

    # Blocks.

    def _dense(self, value: Factored) -> Batched:
        """Return all columns of a value, along a last axis."""
        if value.dense is None:
            blocks = [reshape(block, (*value.aval.shape, source.size))
                      for block, source in zip(self._blocks_of(value, value.aval, False), self._sources, strict=True)]
            whole = blocks[0] if len(blocks) == 1 else concatenate(blocks, value.aval.ndim)
            value.dense = Batched(whole, value.aval.ndim)
        return value.dense

    def _blocks_of(self, value: Any, aval: Aval, is_first: bool) -> list[Any]:
        """Return the derivative of a value in each input."""
        if type(value) is Factored:
            return [self._block(value, number, is_first) for number in range(len(self._sources))]
        stacked = put_axis(value, self.size, 0 if is_first else aval.ndim)
        start, blocks = 0, []
        for source in self._sources:
            block = slice_in_dim(stacked, start, start + source.size, 0 if is_first else aval.ndim)
            blocks.append(reshape(block, (*source.shape, *aval.shape) if is_first else (*aval.shape, *source.shape)))
            start += source.size
        return blocks

    def _block(self, value: Factored, number: int, is_first: bool) -> Any:
        source = self._sources[number]
        shape = (*source.shape, *value.aval.shape) if is_first else (*value.aval.shape, *source.shape)
        merged = self.gathered(value.aval, value.terms, at_any_size=True)
        blocks = [self._filled(term, value.aval, shape, is_first) for term in merged.terms if term.source == number]
        return functools.reduce(add, blocks) if blocks else zeros(Aval(shape, value.aval.dtype))

    def _filled(self, term: Term, aval: Aval, shape: tuple[int, ...], is_first: bool) -> Any:
        """Return a term as an array: the product of its factors, put on the diagonals of its deltas."""
        axes = _flat(term.axes)
        tied = {label for label in term.basis if label in axes}
        if not term.factors and len(tied) == len(axes) == len(term.basis) > 0:
            order = [axes.index(label) for label in term.basis]
            ones = reshape(ones_on_diagonal((self.size_of(axes),) * 2, 0, aval.dtype), self.shape_of(axes) * 2)
            rows = [*range(len(axes))]
            columns = [len(axes) + place for place in order]
            return reshape(transpose(ones, [*columns, *rows] if is_first else [*rows, *columns]), shape)
        left, right = (term.basis, axes) if is_first else (axes, term.basis)
        order = [*left, *(label for label in right if label not in tied)]
        whole = self.aligned(self.multiplied(term.factors, order, aval), order)
        whole = broadcast_to(whole, tuple(self._sizes[label] for label in order))
        if tied:
            # Of n elements with n zeros between two of them, and cut into rows of n: a diagonal.
            padded = pad(whole, Literal(0, Aval((), aval_of(whole).dtype)), [
                (0, 0, self._sizes[label]) if label in tied else (0, 0, 0) for label in order])
            pieces: list[int] = []
            place: dict[tuple[int, bool], int] = {}
            for label in order:
                if label in tied:
                    place[label, False], place[label, True] = len(pieces), len(pieces) + 1
                    pieces += [self._sizes[label]] * 2
                else:
                    place[label, False] = place[label, True] = len(pieces)
                    pieces.append(self._sizes[label])
            whole = transpose(reshape(padded, tuple(pieces)), [
                *(place[label, False] for label in left), *(place[label, True] for label in right)])
        return reshape(whole, shape)

    # Terms.

    def _most(self, value: Factored) -> int:
        """Return how many terms an input has, at most."""
        return max(Counter(term.source for term in value.terms).values(), default=0)

    def gathered(self, aval: Aval, terms: Sequence[Term], at_any_size: bool = False) -> Factored:
        """Return the sum of terms; those with the same deltas are added, if their sum is no larger than a factor."""
        kept: dict[Any, list[Term]] = {}
        for term in terms:
            group = kept.setdefault(self.deltas_of(term), [])
            for place, other in enumerate(group):
                total = self._total(aval, other, term, at_any_size)
                if total is not None:
                    group[place] = total
                    break
            else:
                group.append(term)
        return Factored(aval, [term for group in kept.values() for term in group])

    def deltas_of(self, term: Term, beside: int | None = None) -> Any:
        """Return a key that is equal for terms with the same deltas and sizes, on the axes other than `beside`."""
        places = {label: place for place, label in enumerate(term.basis)}
        return (term.source, self.shape_of(term.basis), tuple(
            tuple((self._sizes[label], places.get(label, -1)) for label in labels)
            for axis, labels in enumerate(term.axes) if axis != beside))

    def shape_of(self, labels: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._sizes[label] for label in labels)

    def _total(self, aval: Aval, one: Term, other: Term, at_any_size: bool) -> Term | None:
        """Return the sum of two terms with the same deltas; None if it is larger than each of their factors."""
        renamed = dict(zip((*other.basis, *_flat(other.axes)), (*one.basis, *_flat(one.axes)), strict=True))
        theirs = [factor._replace(labels=tuple(renamed[label] for label in factor.labels)) for factor in other.factors]
        labels = _union(*(factor.labels for factor in (*one.factors, *theirs)))
        largest = max((self.size_of(factor.labels) for factor in (*one.factors, *theirs)), default=1)
        if not at_any_size and self.size_of(labels) > largest:
            return None
        order = [label for label in _union(_flat(one.axes), one.basis) if label in labels]
        parts = [self.multiplied(factors, order, aval) for factors in (one.factors, theirs)]
        total = add(*(self.aligned(part, order) for part in parts))
        return one._replace(factors=(Factor(total, tuple(order)),))

    def broadcast(self, term: Term, before: tuple[int, ...], shape: tuple[int, ...]) -> Term:
        """Return a term of a value of shape `before`, repeated to `shape`."""
        new = len(shape) - len(before)
        axes = ((),) * new + term.axes
        return term._replace(axes=tuple(
            (self.label(size),) if size > 1 and (place < new or before[place - new] == 1) else axis
            for place, (size, axis) in enumerate(zip(shape, axes, strict=True))))

    def factor_on(self, array: Any, axes: Sequence[Labels], by: Any = arithmetic.mul_p) -> Factor:
        """Return a factor of an array whose axes are these of a term, the last of them; size 1 has no label."""
        shape = aval_of(array).shape
        labels = [label for size, axis in zip(shape, axes[len(axes) - len(shape):], strict=True) if size > 1
                  for label in axis]
        return Factor(reshape(array, self.shape_of(tuple(labels))) if shape else array, tuple(labels), by)

    def regrouped(self, term: Term, shape: tuple[int, ...]) -> Term | None:
        """Return a term of a value in another shape; None if it cuts an axis where its size has no such divisor."""
        left = [*_flat(term.axes)]
        axes: list[Labels] = []
        for size in shape:
            axis: list[int] = []
            rest = size
            while rest > 1:
                label = left.pop(0)
                extent = self._sizes[label]
                if extent > rest and extent % rest == 0:
                    outer, inner = self.label(rest), self.label(extent // rest)
                    term = self._split(term, label, (outer, inner))
                    left.insert(0, inner)
                    label, extent = outer, rest
                if rest % extent:
                    return None
                axis.append(label)
                rest //= extent
            axes.append(tuple(axis))
        return term._replace(axes=tuple(axes))

    def along(self, term: Term, axis: int, size: int, aval: Aval, change: Callable[[Any, int], Any]) -> Term:
        """Return a term with `change(array, at)` along an axis of its value, of `size`."""
        whole, far, (own,) = self.explicit(term, (axis,), aval)
        if not own:
            far, whole = [*term.factors], Factor(full((1,), 1, aval.dtype), (self.label(1),))
        elif len(own) > 1:
            rest = [label for label in whole.labels if label not in own]
            merged = reshape(self.aligned(whole, [*own, *rest]), (size, *self.shape_of(tuple(rest))))
            whole = Factor(merged, (self.label(size), *rest), whole.by)
        place = whole.labels.index(own[0]) if len(own) == 1 else 0
        array = change(whole.array, place)
        labels = (*whole.labels[:place], *self.labels_of(aval_of(array).shape[place:place + 1])[0],
                  *whole.labels[place + 1:])
        factor = Factor(reshape(array, self.shape_of(labels)), labels, whole.by)
        return term._replace(factors=(factor, *far), axes=(
            *term.axes[:axis], tuple(label for label in labels if label not in whole.labels), *term.axes[axis + 1:]))

    def explicit(self, term: Term, axes: Sequence[int], aval: Aval) -> tuple[Factor, list[Factor], list[Labels]]:
        """Return the factors along `axes` of a value as one, the others, and the labels of each of the axes.

        A delta becomes an array with a label for either side: the identity, or a diagonal of the factors along it.
        """
        near, far, own = [], [*term.factors], []
        for axis in axes:
            labels = []
            for label in term.axes[axis]:
                side = label
                if label in term.basis:
                    side = self.label(self._sizes[label])
                    scales = [factor for factor in far if factor.labels == (label,)]
                    far = [factor for factor in far if factor.labels != (label,)]
                    near.append(self._diagonal(scales, (side, label), aval))
                labels.append(side)
            own.append(tuple(labels))
        marked = {*_flat(own)}
        near += [factor for factor in far if not marked.isdisjoint(factor.labels)]
        far = [factor for factor in far if marked.isdisjoint(factor.labels)]
        constant = tuple(label for label in _flat(own) if not any(label in factor.labels for factor in near))
        if constant or not near:
            near.append(Factor(full(self.shape_of(constant), 1, aval.dtype), constant))
        return self.multiplied(near, _union(*(factor.labels for factor in near)), aval), far, own

    def _diagonal(self, scales: Sequence[Factor], labels: Labels, aval: Aval) -> Factor:
        """Return the matrix with the product of `scales`, which have the second label, on its diagonal."""
        size = self._sizes[labels[1]]
        if not scales:
            return Factor(ones_on_diagonal((size, size), 0, aval.dtype), labels)
        whole = self.multiplied(scales, labels[1:], aval)
        return Factor(reshape(_between_zeros((0, 0, size), whole.array, 0), (size, size)), labels, whole.by)

    def _split(self, term: Term, label: int, pair: tuple[int, int]) -> Term:
        """Return a term with two labels in place of one."""
        def split(labels: Labels) -> Labels:
            return tuple(part for each in labels for part in (pair if each == label else (each,)))
        factors = tuple(factor if label not in factor.labels else Factor(
            reshape(factor.array, self.shape_of(split(factor.labels))), split(factor.labels), factor.by)
            for factor in term.factors)
        return Term(term.source, factors, term.axes, split(term.basis))


def _arrays_of(value: Any) -> list[Any]:
    """Return the arrays of a value, batched or factored, that are no literals."""
    arrays = [factor.array for term in value.terms for factor in term.factors] if type(value) is Factored else [
        value.value]
    return [array for array in arrays if type(array) is not Literal]


def _with_arrays(value: Any, arrays: Iterator[Any]) -> Any:
    """Return a value with others in place of the arrays that `_arrays_of` returns."""
    def other(array: Any) -> Any:
        return array if type(array) is Literal else next(arrays)

    if type(value) is not Factored:
        return Batched(other(value.value), value.axis)
    return Factored(value.aval, [term._replace(factors=tuple(
        factor._replace(array=other(factor.array)) for factor in term.factors)) for term in value.terms])


def _flat(axes: Sequence[Labels]) -> Labels:
    return tuple(label for axis in axes for label in axis)


def _union(*labels: Labels) -> Labels:
    return tuple(dict.fromkeys(label for each in labels for label in each))


def _contracted(one: Factor, other: Factor, gone: Sequence[int], dot: Callable[..., Any] | None) -> Factor:
    """Return the product of two factors, summed over the labels `gone`, which both have."""
    both = [label for label in one.labels if label in other.labels and label not in gone]
    places = [tuple(factor.labels.index(label) for label in labels) for labels in (gone, both)
              for factor in (one, other)]
    numbers = (places[0], places[1]), (places[2], places[3])
    free = [label for factor in (one, other) for label in factor.labels if label not in both and label not in gone]
    found = dot(one.array, other.array, numbers) if dot is not None else products.dot_general(
        one.array, other.array, numbers, "highest")
    return Factor(found, (*both, *free), one.by if one.by is not arithmetic.mul_p else other.by)


# --- rules ------------------------------------------------------------------------------------------------------------
# Each takes the walk, an equation and its operands, one of which or two are factored and no other is a batch; it
# returns the factored results, or None if it has none.

_DIVISIONS = (arithmetic.div_p, strong_div_p)
_STRENGTH = {arithmetic.div_p: arithmetic.mul_p, strong_div_p: strong_mul_p}
"""The primitive by which a quotient multiplies."""


def _one(inputs: Sequence[Any]) -> tuple[int, Factored] | None:
    """Return the place of the one factored operand, and it; None if there are more."""
    places = [place for place, value in enumerate(inputs) if type(value) is Factored]
    return (places[0], inputs[places[0]]) if len(places) == 1 else None


def _scaled(push: _Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    found, primitive, aval = _one(inputs), equation.primitive, equation.outputs[0].aval
    if found is None or (primitive in _DIVISIONS and found[0] == 1):
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


def _negative(push: _Push, equation: Equation, inputs: list[Any]) -> list[Factored]:
    value = inputs[0]
    return [Factored(value.aval, [_negated(term, value.aval) for term in value.terms])]


def _negated(term: Term, aval: Aval) -> Term:
    """Return a term times -1: of the first factor, which is often the smallest."""
    if not term.factors:
        return term._replace(factors=(Factor(Literal(-1, Aval((), aval.dtype)), ()),))
    first, *others = term.factors
    return term._replace(factors=(first._replace(array=arithmetic.neg(first.array)), *others))


def _sum(push: _Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    aval, terms = equation.outputs[0].aval, []
    for place, value in enumerate(inputs):
        if type(value) is not Factored or value.aval.dtype != aval.dtype:
            return None
        own = [push.broadcast(term, value.aval.shape, aval.shape) for term in value.terms]
        terms += [_negated(term, aval) for term in own] if equation.primitive is arithmetic.sub_p and place else own
    return [push.gathered(aval, terms)]


def _reshaped(push: _Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    aval = equation.outputs[0].aval
    terms = [push.regrouped(term, aval.shape) for term in inputs[0].terms]
    return None if any(term is None for term in terms) else [
        Factored(aval, [term for term in terms if term is not None])]


def _transposed(push: _Push, equation: Equation, inputs: list[Any]) -> list[Factored]:
    order = equation.params["permutation"]
    return [Factored(equation.outputs[0].aval, [
        term._replace(axes=tuple(term.axes[axis] for axis in order)) for term in inputs[0].terms])]


def _repeated(push: _Push, equation: Equation, inputs: list[Any]) -> list[Factored]:
    aval, value = equation.outputs[0].aval, inputs[0]
    return [Factored(aval, [push.broadcast(term, value.aval.shape, aval.shape) for term in value.terms])]


def _converted(push: _Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    aval, value = equation.outputs[0].aval, inputs[0]
    before, dtype = value.aval.dtype, aval.dtype
    if not (dtypes.is_inexact(dtype) and (dtypes.is_complex(dtype) or not dtypes.is_complex(before))):
        return None
    return [Factored(aval, [term._replace(factors=tuple(
        factor._replace(array=convert(factor.array, dtype)) for factor in term.factors)) for term in value.terms])]


def _reduced(push: _Push, equation: Equation, inputs: list[Any]) -> list[Factored]:
    aval, value, summed = equation.outputs[0].aval, inputs[0], equation.params["axes"]
    terms = []
    for term in value.terms:
        gone = [label for axis in summed for label in term.axes[axis] if label not in term.basis]
        axes = tuple(labels for axis, labels in enumerate(term.axes) if axis not in summed)
        terms.append(Term(term.source, push.without(term.factors, gone, aval), axes, term.basis))
    return [push.gathered(aval, terms)]


def _product(push: _Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
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


def _selected(push: _Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
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
        order = _union(mask.labels, *(factor.labels for factor in near))
        whole = push.multiplied(near, order, aval)
        cases = [case.value for case in inputs[1:] if type(case) is not Factored]
        cases.insert(place - 1, push.aligned(whole, order))
        chosen = bind(select_n_p, push.aligned(mask, order), *cases)[0]
        terms.append(term._replace(factors=(Factor(chosen, order, whole.by), *far)))
    return [Factored(aval, terms)]


Change = Callable[[Any, int], Any] | None
"""What an operation does along an axis of an array; None if nothing."""


def _along_axes(push: _Push, aval: Aval, value: Factored, changes: Sequence[Change]) -> Factored:
    """Return the result of an operation that changes each axis by itself."""
    terms = [*value.terms]
    for axis, (size, change) in enumerate(zip(value.aval.shape, changes, strict=True)):
        if change is not None:
            terms = [push.along(term, axis, size, value.aval, change) for term in terms]
    return push.gathered(aval, terms)


def _alone(axis: int, change: Change, rank: int) -> list[Change]:
    return [change if place == axis else None for place in range(rank)]


def _explicit(push: _Push, value: Factored, axis: int) -> Factored:
    """Return a value without deltas and with one label on an axis."""
    return _along_axes(push, value.aval, value, _alone(axis, lambda array, _: array, value.aval.ndim))


def _cut(push: _Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    params = equation.params
    return [_along_axes(push, equation.outputs[0].aval, inputs[0], [
        None if (start, stop, stride) == (0, size, 1) else functools.partial(_sliced, start, stop, stride)
        for size, start, stop, stride in zip(inputs[0].aval.shape, params["start_indices"], params["limit_indices"],
                                             params["strides"], strict=True)])]


def _sliced(start: int, stop: int, stride: int, array: Any, axis: int) -> Any:
    return slice_in_dim(array, start, stop, axis, stride)


def _reversed(push: _Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    return [_along_axes(push, equation.outputs[0].aval, inputs[0], [
        (lambda array, at: rev(array, (at,))) if axis in equation.params["dimensions"] and size > 1 else None
        for axis, size in enumerate(inputs[0].aval.shape)])]


def _accumulated(push: _Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    axis, reverse = equation.params["axis"], equation.params["reverse"]
    return [_along_axes(push, equation.outputs[0].aval, inputs[0], _alone(
        axis, lambda array, at: cumsum(array, at, reverse), inputs[0].aval.ndim))]


def _padded(push: _Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    value, padding = inputs
    if type(value) is not Factored or type(padding) is Factored or type(padding.value) is not Literal or (
            padding.value.value != 0):
        return None
    return [_along_axes(push, equation.outputs[0].aval, value, [
        None if config == (0, 0, 0) else functools.partial(_between_zeros, config)
        for config in equation.params["padding_config"]])]


def _between_zeros(config: tuple[int, int, int], array: Any, axis: int) -> Any:
    aval = aval_of(array)
    return pad(array, Literal(0, Aval((), aval.dtype)), [
        config if at == axis else (0, 0, 0) for at in range(aval.ndim)])


def _parts(push: _Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
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


def _tiled(push: _Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    return [Factored(equation.outputs[0].aval, [term._replace(axes=tuple(
        new + labels for new, labels in zip(push.labels_of(equation.params["reps"]), term.axes, strict=True)))
        for term in inputs[0].terms])]


def _in_dim(push: _Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    shape, places = equation.params["shape"], equation.params["broadcast_dimensions"]
    terms = []
    for term in inputs[0].terms:
        axes = [*push.labels_of(shape)]
        for place, labels, size in zip(places, term.axes, inputs[0].aval.shape, strict=True):
            axes[place] = labels if size == shape[place] else axes[place]
        terms.append(term._replace(axes=tuple(axes)))
    return [Factored(equation.outputs[0].aval, terms)]


def _joined(push: _Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
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


def _joined_terms(push: _Push, group: dict[int, Term], shapes: Sequence[tuple[int, ...]], axis: int, aval: Aval,
                  is_even: bool, is_stack: bool) -> Term:
    """Return terms with the same deltas, by the number of their part, as one; other parts are 0."""
    def shared(term: Term) -> Labels:
        axes = term.axes if is_even else term.axes[:axis] + term.axes[axis + 1:]
        return (*term.basis, *_flat(axes))

    first = next(iter(group.values()))
    factors: dict[int, list[Factor]] = {}
    used: set[int] = set()
    for place, term in group.items():
        renamed = dict(zip(shared(term), shared(first), strict=True))
        factors[place] = [factor._replace(labels=tuple(renamed.get(label, label) for label in factor.labels))
                          for factor in term.factors]
        used.update(label for factor in factors[place] for label in factor.labels)
    order = [label for label in _union(shared(first)) if label in used]
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


def _convolved(push: _Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
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
        rest = tuple(label for label in whole.labels if label not in _flat(own))
        image = reshape(push.aligned(whole, [*rest, *_flat(own)]), (
            push.size_of(rest), 1 if is_tied else sizes[0], *(value.aval.shape[axis] for axis in space)))
        kernel = reshape(other, (many * sizes[0], 1, *sizes[1:])) if is_tied else other
        result = convolve(*((kernel, image) if place else (image, kernel)), geometry._replace(
            dimension_numbers=(standard, standard, standard)), equation.params["precision"])
        new, = push.labels_of((many,))
        windows = push.labels_of(aval_of(result).shape[2:])
        sides = (rest, (*new, *(tied if is_tied else ())))
        labels = (*sides[place], *sides[1 - place], *_flat(windows))
        axes: list[Labels] = [()] * aval.ndim
        for axis, found_labels in zip(specs[2], (*((new, term.axes[batch]) if place else (term.axes[batch], new)),
                                                 *windows), strict=True):
            axes[axis] = found_labels
        terms.append(Term(term.source, (Factor(reshape(result, push.shape_of(labels)), labels, whole.by), *far),
                          tuple(axes), term.basis))
    return [push.gathered(aval, terms)]


_CALLS = (named_call_p, jit_call_p, checkpoint_p, recompute_p)
Rule = Callable[[_Push, Equation, list[Any]], list[Factored] | None]
_RULES: dict[Any, Rule] = {
    **dict.fromkeys((arithmetic.mul_p, strong_mul_p, arithmetic.div_p, strong_div_p), _scaled),
    **dict.fromkeys((add_p, arithmetic.sub_p), _sum),
    **dict.fromkeys((products.dot_general_p, strong_dot_general_p), _product),
    arithmetic.neg_p: _negative, structural.reshape_p: _reshaped, structural.transpose_p: _transposed,
    structural.broadcast_to_p: _repeated, structural.convert_element_type_p: _converted,
    structural.reduce_sum_p: _reduced, select_n_p: _selected,
    slice_p: _cut, rev_p: _reversed, pad_p: _padded, cumsum_p: _accumulated,
    **dict.fromkeys((split_p, unstack_p), _parts), **dict.fromkeys((concatenate_p, stack_p), _joined),
    tile_p: _tiled, broadcast_in_dim_p: _in_dim, conv_general_dilated_p: _convolved}
