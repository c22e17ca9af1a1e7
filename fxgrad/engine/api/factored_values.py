"""Derivatives as sums of products of small arrays, and the walk that pushes the identity through a linear program.

The derivative of `A @ X @ B` in X has the entries `A[i, j] * B[k, l]`. A dense pass for each column would compute it by
two products of matrices for each element of X; it is a product of two arrays, with axes of its own for the value and
for the input. Such a `Factored` value is a sum of terms, each a product of arrays whose axes have *labels*, as the
letters of `einsum` name them. A label that an axis of the value shares with an axis of the input stands for a Kronecker
delta: the identity has such labels alone, and no array. Sums over labels multiply the arrays that have them.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.interpreter import Interpreter
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.frontend.operands import ones_on_diagonal
from fxgrad.engine.higher_order.call import jit_call_p, named_call_p
from fxgrad.engine.higher_order.checkpoint import checkpoint_p, recompute_p
from fxgrad.engine.ops import arithmetic, products
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.shaping import pad, slice_in_dim
from fxgrad.engine.ops.strong import strong_div_p, strong_mul_p
from fxgrad.engine.ops.structural import broadcast_to, full, reduce_sum, reshape, transpose, zeros
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.trace import WITH_LITERALS, trace_at
from fxgrad.engine.transforms.batch import Batch, Batched, put_axis

Labels = tuple[int, ...]

CALLS = (named_call_p, jit_call_p, checkpoint_p, recompute_p)
"""Calls of programs, through which the identity is pushed."""
DIVISIONS = (arithmetic.div_p, strong_div_p)
STRENGTH = {arithmetic.div_p: arithmetic.mul_p, strong_div_p: strong_mul_p}
"""The primitive by which a quotient multiplies."""
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
        return self.by in DIVISIONS


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

    __slots__ = ("aval", "columns", "terms")

    def __init__(self, aval: Aval, terms: Sequence[Term]) -> None:
        self.aval, self.terms = aval, tuple(terms)
        self.columns: Batched | None = None
        """All columns, stacked along the last axis, if an operation took them."""


Rule = Callable[["Push", Equation, list[Any]], "Sequence[Any] | None"]
"""(walk, equation, operands) -> results, factored or known; None where there is none."""


class Push(Batch):
    """Pushes the identity over all elements of `sources` through a linear program, by the rules of its operations.

    Operations without a rule make the value dense, and go on with all columns as a batch.
    """

    def __init__(self, sources: Sequence[Aval], rules: Mapping[Primitive, Rule]) -> None:
        super().__init__(sum(aval.size for aval in sources))
        self._sources, self._rules = sources, rules
        self._sizes: list[int] = []

    def blocks(self, linear: Program, residuals: Sequence[Any], is_first: bool) -> list[list[Any]]:
        self._program, self._notes = linear, False
        inputs = [*(Batched(value, None) for value in residuals), *map(self._identity, range(len(self._sources)))]
        return [self._blocks_of(result, atom.aval, is_first)
                for result, atom in zip(Interpreter.run(self, linear, inputs), linear.outputs, strict=True)]

    def equation(self, equation: Equation, inputs: list[Any]) -> list[Any]:
        """Apply the rule of an operation with a factored operand; that of batches where there is none."""
        if any(type(value) is Factored for value in inputs):
            if equation.primitive in CALLS:
                return self._called(equation, inputs)
            rule = self._rules.get(equation.primitive)
            results = None if rule is None or any(type(value) is Batched and value.axis is not None for value in inputs
                                                  ) else rule(self, equation, inputs)
            if results is not None:
                results = [result if not self._has_many_terms(result) else self.gathered(
                    result.aval, result.terms, at_any_size=True) for result in results]
                if not any(map(self._has_many_terms, results)):
                    return results
            inputs = [self.dense(value) if type(value) is Factored else value for value in inputs]
        return super().equation(equation, inputs)

    def _called(self, equation: Equation, inputs: list[Any]) -> list[Any]:
        """Push through the program of a call, and return what the same call of arrays and of factors returns."""
        arrays = [array for value in inputs for array in arrays_of(value)]
        results: list[Any] = []

        def apply(*values: Any) -> list[Any]:
            given = iter(values)
            results.extend(Interpreter.run(self, equation.params["program"], [
                with_arrays(value, given) for value in inputs]))
            return [array for result in results for array in arrays_of(result)]

        program, captured = trace_at(apply, [*map(aval_of, arrays)], mode=WITH_LITERALS)
        found = iter(bind(equation.primitive, *captured, *arrays, **{**equation.params, "program": program}))
        return [with_arrays(result, found) for result in results]

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
        return Factored(aval, [Term(source, (), axes, flat_labels(axes))])

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
            one, other = min(pairs, key=lambda pair: self.size_of(union_of_labels(pair[0].labels, pair[1].labels)))
            above = [self._applied(one, other, order),
                     *(factor for factor in above if factor is not one and factor is not other)]
        found, = above
        for factor in factors:
            if factor.divides:
                found = self._applied(found, factor, order)
        kept = [label for label in order if label in found.labels]
        return found if [*found.labels] == kept else Factor(
            transpose(found.array, [found.labels.index(label) for label in kept]), tuple(kept), found.by)

    def product(self, term: Term, aval: Aval) -> Factor:
        """Return all factors of a term of a value as one."""
        return self.multiplied(term.factors, union_of_labels(flat_labels(term.axes), term.basis), aval)

    def _applied(self, one: Factor, other: Factor, order: Sequence[int]) -> Factor:
        labels = tuple(label for label in order if label in one.labels or label in other.labels)
        by = other.by if other.by is not arithmetic.mul_p else one.by
        found = bind(by, self.aligned(one, labels), self.aligned(other, labels))[0]
        return Factor(found, labels, STRENGTH.get(by, by))

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
            order = union_of_labels(*(factor.labels for factor in group))
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
        return min(parts, key=lambda part: self.size_of(union_of_labels(*(factor.labels for factor in part[1]))))

    # Blocks.

    def dense(self, value: Factored) -> Batched:
        """Return all columns of a value, along a last axis."""
        if value.columns is None:
            blocks = [reshape(block, (*value.aval.shape, source.size))
                      for block, source in zip(self._blocks_of(value, value.aval, False), self._sources, strict=True)]
            whole = blocks[0] if len(blocks) == 1 else concatenate(blocks, value.aval.ndim)
            value.columns = Batched(whole, value.aval.ndim)
        return value.columns

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
        axes = flat_labels(term.axes)
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

    def _has_many_terms(self, value: Any) -> bool:
        """Return whether a value has more terms in one of the inputs than are kept apart."""
        return type(value) is Factored and max(
            Counter(term.source for term in value.terms).values(), default=0) > _TERMS

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
        renamed = dict(zip((*other.basis, *flat_labels(other.axes)), (*one.basis, *flat_labels(one.axes)), strict=True))
        theirs = [factor._replace(labels=tuple(renamed[label] for label in factor.labels)) for factor in other.factors]
        labels = union_of_labels(*(factor.labels for factor in (*one.factors, *theirs)))
        largest = max((self.size_of(factor.labels) for factor in (*one.factors, *theirs)), default=1)
        if not at_any_size and self.size_of(labels) > largest:
            return None
        order = [label for label in union_of_labels(flat_labels(one.axes), one.basis) if label in labels]
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
        left = [*flat_labels(term.axes)]
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
        marked = {*flat_labels(own)}
        near += [factor for factor in far if not marked.isdisjoint(factor.labels)]
        far = [factor for factor in far if marked.isdisjoint(factor.labels)]
        constant = tuple(label for label in flat_labels(own) if not any(label in factor.labels for factor in near))
        if constant or not near:
            near.append(Factor(full(self.shape_of(constant), 1, aval.dtype), constant))
        return self.multiplied(near, union_of_labels(*(factor.labels for factor in near)), aval), far, own

    def _diagonal(self, scales: Sequence[Factor], labels: Labels, aval: Aval) -> Factor:
        """Return the matrix with the product of `scales`, which have the second label, on its diagonal."""
        size = self._sizes[labels[1]]
        if not scales:
            return Factor(ones_on_diagonal((size, size), 0, aval.dtype), labels)
        whole = self.multiplied(scales, labels[1:], aval)
        return Factor(reshape(between_zeros((0, 0, size), whole.array, 0), (size, size)), labels, whole.by)

    def _split(self, term: Term, label: int, pair: tuple[int, int]) -> Term:
        """Return a term with two labels in place of one."""
        def split(labels: Labels) -> Labels:
            return tuple(part for each in labels for part in (pair if each == label else (each,)))
        factors = tuple(factor if label not in factor.labels else Factor(
            reshape(factor.array, self.shape_of(split(factor.labels))), split(factor.labels), factor.by)
            for factor in term.factors)
        return Term(term.source, factors, term.axes, split(term.basis))


def arrays_of(value: Any) -> list[Any]:
    """Return the arrays of a value, batched or factored, that are no literals."""
    arrays = [factor.array for term in value.terms for factor in term.factors] if type(value) is Factored else [
        value.value]
    return [array for array in arrays if type(array) is not Literal]


def with_arrays(value: Any, arrays: Iterator[Any]) -> Any:
    """Return a value with others in place of the arrays that `arrays_of` returns."""
    def other(array: Any) -> Any:
        return array if type(array) is Literal else next(arrays)

    if type(value) is not Factored:
        return Batched(other(value.value), value.axis)
    return Factored(value.aval, [term._replace(factors=tuple(
        factor._replace(array=other(factor.array)) for factor in term.factors)) for term in value.terms])


def flat_labels(axes: Sequence[Labels]) -> Labels:
    """Return the labels of all axes, in their order."""
    return tuple(label for axis in axes for label in axis)


def union_of_labels(*labels: Labels) -> Labels:
    """Return each label once, in the order in which they come first."""
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


def between_zeros(config: tuple[int, int, int], array: Any, axis: int) -> Any:
    """Return an array with zeros before, after and between its entries along an axis, as `pad` takes them."""
    aval = aval_of(array)
    return pad(array, Literal(0, Aval((), aval.dtype)), [
        config if at == axis else (0, 0, 0) for at in range(aval.ndim)])
