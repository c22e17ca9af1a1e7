"""The rules by which loops and branches take factored derivatives: they carry the arrays of factors, and deltas stay.

The arrays that a step returns must have the labels of those that it takes. These are found by tracing the step for what
the loop begins with, and again for what it returned, until it returns no others. All branches return the arrays of the
terms that any of them has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from fxgrad.engine.api.factored_values import (
    Factor,
    Factored,
    Labels,
    Push,
    Term,
    arrays_of,
    flat_labels,
    union_of_labels,
    with_arrays,
)
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.interpreter import Interpreter
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.core.regions import close_marks, dependent_outputs
from fxgrad.engine.derivation.derive import Derived
from fxgrad.engine.higher_order.branch import bind_cond
from fxgrad.engine.higher_order.loop import bind_for
from fxgrad.engine.higher_order.scan import bind_scan
from fxgrad.engine.higher_order.sweep import bind_sweep, sweep_groups
from fxgrad.engine.higher_order.wiring import select_inputs
from fxgrad.engine.ops.structural import broadcast_to, convert, reshape, zeros
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.trace import WITH_LITERALS, trace_at
from fxgrad.engine.transforms.batch import Batched, put_axis

_TRIES = 4
"""How often a step is traced, at most, to find what it carries."""
_TERMS = 2
"""The most terms of a carried value."""

Forms = dict[Any, tuple[bool, ...]]
"""For the deltas of each term of a value, as `Push.deltas_of` returns them, which of its labels its array has."""


class _Whole(NamedTuple):
    """A term whose factors are one array, with the labels of the array."""

    term: Term
    array: Any
    labels: Labels

    @property
    def places(self) -> Labels:
        """All labels of the term, in an order that terms with the same deltas share."""
        return union_of_labels(flat_labels(self.term.axes), self.term.basis)


def _wholes(push: Push, value: Any, aval: Aval) -> list[_Whole]:
    """Return the terms of a value, each as one array; none if it is not factored."""
    if type(value) is not Factored:
        return []
    found = []
    for term in push.gathered(aval, value.terms, at_any_size=True).terms:
        factor = push.product(term, aval)
        found.append(_Whole(term._replace(factors=()), convert(factor.array, aval.dtype), factor.labels))
    return found


def _forms_of(push: Push, wholes: Sequence[_Whole]) -> Forms:
    return {push.deltas_of(each.term): tuple(label in each.labels for label in each.places) for each in wholes}


def _joined(one: Forms, other: Forms) -> Forms:
    """Return the terms of both, each with the labels of both."""
    return {key: tuple(map(max, one.get(key, other.get(key, ())), other.get(key, one.get(key, ()))))
            for key in {**one, **other}}


def _term_of(push: Push, key: Any, has: Sequence[bool]) -> _Whole:
    """Return a term of a form with labels of its own, without its array."""
    source, sizes, axes = key
    basis = tuple(map(push.label, sizes))
    term = Term(source, (), tuple(tuple(push.label(size) if place < 0 else basis[place] for size, place in labels)
                                  for labels in axes), basis)
    found = _Whole(term, None, ())
    return found._replace(labels=tuple(label for label, is_there in zip(found.places, has, strict=True) if is_there))


def _fill(push: Push, forms: Forms, wholes: Sequence[_Whole], aval: Aval) -> list[Any]:
    """Return the arrays of a value in the order of `forms`, with the labels of these: zeros for terms that it lacks."""
    given = {push.deltas_of(each.term): each for each in wholes}
    arrays = []
    for key, has in forms.items():
        each = given.get(key) or _term_of(push, key, has)
        labels = [label for label, is_there in zip(each.places, has, strict=True) if is_there]
        shape = push.shape_of(labels)
        arrays.append(zeros(Aval(shape, aval.dtype)) if each.array is None else broadcast_to(
            push.aligned(Factor(each.array, each.labels), labels), shape))
    return arrays


def _factored(aval: Aval, wholes: Sequence[_Whole], arrays: Sequence[Any]) -> Factored:
    return Factored(aval, [each.term._replace(factors=(Factor(array, each.labels),))
                           for each, array in zip(wholes, arrays, strict=True)])


class _Rows(NamedTuple):
    """The entries of a stacked operand: the arrays of their terms, stacked, and these terms without the arrays."""

    arrays: list[Any]
    terms: list[tuple[Term, Labels, Any]]


def _rows(push: Push, value: Factored, length: int) -> _Rows:
    found = _Rows([], [])
    for term in value.terms:
        whole, far, (own,) = push.explicit(term, (0,), value.aval)
        rest = tuple(label for label in whole.labels if label not in own)
        found.arrays.append(reshape(push.aligned(whole, [*own, *rest]), (length, *push.shape_of(rest))))
        found.terms.append((term._replace(factors=tuple(far), axes=term.axes[1:]), rest, whole.by))
    return found


def _moving(body: Program, consts: Sequence[bool], carry: Sequence[bool], stacked: Sequence[bool]) -> tuple[bool, ...]:
    """Return which outputs of a loop depend on the marked operands, at any step."""
    def outputs(carry: Sequence[bool]) -> tuple[bool, ...]:
        return dependent_outputs(body, [*consts, *carry, *stacked])
    closed = close_marks(lambda carry: outputs(carry)[:len(carry)], carry)
    return (*closed, *outputs(closed)[len(closed):])


def scanned(push: Push, equation: Equation, inputs: list[Any]) -> list[Any] | None:
    """Scan over the arrays of factors; None where a step makes values dense, or saves too little."""
    params = equation.params
    first, last = params["num_consts"], params["num_consts"] + params["num_carry"]
    length, stacked = params["length"], inputs[last:]
    rows = {place: _rows(push, value, length) for place, value in enumerate(stacked) if type(value) is Factored}
    over = [array for place, value in enumerate(stacked) for array in (
        rows[place].arrays if place in rows else [value.value])]

    def run(step: Program, captured: list[Any], start: list[Any]) -> list[Any]:
        return bind_scan(step, captured, start, over, length, params["reverse"], params["unroll"], params.get("turns"))
    return _looped(push, equation, params["program"], inputs[:first], inputs[first:last],
                   [rows.get(place) for place in range(len(stacked))],
                   [aval_of(array).without_axis(0).strong() for array in over], run)


def counted(push: Push, equation: Equation, inputs: list[Any]) -> list[Any] | None:
    """Loop, as many steps as are known when it runs, over the arrays of factors; None as for scans."""
    count, *others = inputs
    first = equation.params["num_consts"]

    def run(step: Program, captured: list[Any], start: list[Any]) -> list[Any]:
        return bind_for(count.value, step, captured, start)
    return _looped(push, equation, equation.params["program"], others[:first], others[first:], [], [], run)


def visited(push: Push, equation: Equation, inputs: list[Any]) -> list[Any] | None:
    """Visit the states of a loop in reverse, over the arrays of factors; None as for scans."""
    step, back = equation.params["step"], equation.params["back"]
    (count,), step_consts, back_consts, state, carry = sweep_groups(**equation.params).split(inputs)
    if any(type(value) is Factored for value in (*step_consts, *state)):
        return None

    def run(program: Program, captured: list[Any], start: list[Any]) -> list[Any]:
        return bind_sweep(count.value, step, [value.value for value in step_consts],
                          _exchanged(program, len(captured), len(start)), captured,
                          [value.value for value in state], start)
    return _looped(push, equation, _exchanged(back, len(back_consts), len(state)), back_consts, carry,
                   [None] * len(state), step.out_avals, run)


def _exchanged(program: Program, first: int, second: int) -> Program:
    """Return a program that takes its second group of inputs, after `first` others, behind the third."""
    places = range(len(program.inputs))
    return select_inputs(program, (*places[:first], *places[first + second:], *places[first:first + second]))


def _looped(push: Push, equation: Equation, body: Program, consts: Sequence[Any],
            carry: Sequence[Any], stacked: Sequence[_Rows | None], entries: Sequence[Aval],
            run: Callable[[Program, list[Any], list[Any]], list[Any]]) -> list[Any] | None:
    """Return the outputs of a loop, given its operands and what runs it: (step, captured values, carry).

    A step takes constants, the carry and entries: those of factored arrays, and others, which are None in `stacked`.
    `entries` are the types of the arrays for these.
    """
    first, last = len(consts), len(consts) + len(carry)
    avals = body.in_avals[first:last]
    begin = [_wholes(push, value, aval) for value, aval in zip(carry, avals, strict=True)]
    moves = _moving(body, [type(value) is Factored for value in consts], [type(value) is Factored for value in carry],
                    [rows is not None for rows in stacked])
    # None for known values, such as a count. What depends on the input and is not factored is 0.
    forms = [_forms_of(push, wholes) if moving else None for wholes, moving in zip(begin, moves, strict=False)]
    ys: list[list[_Whole] | None] = []

    def step(*tracers: Any) -> list[Any]:
        given = iter(tracers)
        values = [Batched(next(given), None) if terms is None else _factored(aval, terms, [next(given) for _ in terms])
                  for aval, terms in zip(avals, carried, strict=True)]
        now = [Batched(next(given), None) if rows is None else Factored(aval, [
            term._replace(factors=(Factor(next(given), labels, by), *term.factors)) for term, labels, by in rows.terms])
            for rows, aval in zip(stacked, body.in_avals[last:], strict=True)]
        # Copies of constants: what a step makes of them is known in its trace alone.
        known = [Factored(value.aval, value.terms) if type(value) is Factored else value for value in consts]
        results = Interpreter.run(push, body, [*known, *values, *now])
        if any(type(result) is Batched and result.axis is not None for result in results):
            returned.append(None)
            return []
        wholes = [_wholes(push, result, aval) for result, aval in zip(results, body.out_avals, strict=True)]
        count = len(avals)
        returned.append([None if own is None else _joined(own, _forms_of(push, each))
                         for own, each in zip(forms, wholes, strict=False)])
        if returned[-1] != forms:
            return []
        ys[:] = [each if moving else None for each, moving in zip(wholes[count:], moves[count:], strict=True)]
        return [*(array for own, each, aval, result in zip(forms, wholes, avals, results, strict=False)
                  for array in ([result.value] if own is None else _fill(push, own, each, aval))),
                *(array for each, result in zip(ys, results[count:], strict=True)
                  for array in ([result.value] if each is None else [whole.array for whole in each]))]

    for _ in range(_TRIES):
        carried = [None if own is None else [_term_of(push, *form) for form in own.items()] for own in forms]
        returned: list[list[Forms | None] | None] = []
        types = [each for aval, own in zip(avals, carried, strict=True) for each in (
            [aval] if own is None else [Aval(push.shape_of(term.labels), aval.dtype) for term in own])]
        program, captured = trace_at(step, [*types, *entries], mode=WITH_LITERALS)
        found, = returned
        if found is None or any(len(own or ()) > _TERMS for own in found):
            return None
        if found == forms:
            break
        forms = found
    else:
        return None
    dense = push.size * sum(aval.size for aval, own in zip(avals, forms, strict=True) if own is not None)
    if 2 * sum(aval.size for aval in types) > dense:
        return None
    start = [array for own, value, wholes, aval in zip(forms, carry, begin, avals, strict=True)
             for array in ([value.value] if own is None else _fill(push, own, wholes, aval))]
    results = iter(run(program, captured, start))
    outputs: list[Any] = [Batched(next(results), None) if terms is None else
                          _factored(var.aval, terms, [next(results) for _ in terms])
                          for var, terms in zip(equation.outputs, carried, strict=False)]
    for var, terms in zip(equation.outputs[len(avals):], ys, strict=True):
        if terms is None:
            outputs.append(Batched(next(results), None))
            continue
        time, = push.labels_of(var.aval.shape[:1])
        outputs.append(Factored(var.aval, [each.term._replace(axes=(time, *each.term.axes), factors=(
            Factor(reshape(array, push.shape_of((*time, *each.labels))), (*time, *each.labels)),))
            for each, array in zip(terms, results, strict=False)]))
    return outputs


def switched(push: Push, equation: Equation, inputs: list[Any]) -> list[Any]:
    """Choose among branches of the arrays of factors; outputs that a branch makes dense are dense.

    What one branch returns factored, and another one not, is 0 there, since the program is linear.
    """
    index, *operands = inputs
    branches, avals = equation.params["branches"], [var.aval for var in equation.outputs]
    arrays = [array for value in operands for array in arrays_of(value)]
    marks = [type(value) is Factored for value in operands]
    moves = [*map(any, zip(*(dependent_outputs(branch, marks) for branch in branches), strict=True))]

    def traced(branch: Program) -> tuple[Program, list[Any], list[Any]]:
        """Return a branch of arrays, its captured values, and its results, whose arrays it returns in their order."""
        results: list[Any] = []

        def run(*values: Any) -> list[Any]:
            given = iter(values)
            found = Interpreter.run(push, branch, [with_arrays(value, given) for value in operands])
            results.extend(_wholes(push, result, aval) if type(result) is Factored else result
                           for result, aval in zip(found, avals, strict=True))
            return [array for result in results for array in (
                [whole.array for whole in result] if type(result) is list else [result.value])]
        return *trace_at(run, [*map(aval_of, arrays)], mode=WITH_LITERALS), results

    parts = [traced(branch) for branch in branches]
    terms: list[list[_Whole] | None] = []  # None for dense outputs
    forms: list[Forms] = []
    for place, aval in enumerate(avals):
        given = [results[place] for _, _, results in parts]
        own = [_forms_of(push, each) for each in given if type(each) is list]
        forms.append(functools.reduce(_joined, own, Forms()))
        shared = [_term_of(push, *form) for form in forms[-1].items()]
        is_dense = any(type(each) is Batched and each.axis is not None for each in given) or (
            2 * sum(push.size_of(term.labels) for term in shared) > push.size * aval.size)
        terms.append(None if is_dense else shared)

    def alike(program: Program, captured: list[Any], results: list[Any]) -> Derived:
        """Return a branch that returns the arrays of the terms of all."""
        def taken(result: Any, place: int, values: Iterator[Any]) -> list[Any]:
            own, aval = terms[place], avals[place]
            if type(result) is list:
                wholes = [whole._replace(array=next(values)) for whole in result]
                if own is not None:
                    return _fill(push, forms[place], wholes, aval)
                result = push.dense(_factored(aval, wholes, [whole.array for whole in wholes]))
            else:
                result = Batched(next(values), result.axis)
            if not moves[place]:
                return [result.value]
            return [put_axis(result, push.size, aval.ndim)] if own is None else _fill(push, forms[place], [], aval)

        def run(*values: Any) -> list[Any]:
            given = iter(apply_equations(program, values))
            return [array for place, result in enumerate(results) for array in taken(result, place, given)]
        whole, more = trace_at(run, program.in_avals, mode=WITH_LITERALS)
        return Derived(whole, [*more, *captured], None)

    found = iter(bind_cond(index.value, [alike(*part) for part in parts], arrays))
    return [Batched(next(found), None if not moving else aval.ndim) if not moving or own is None else
            _factored(aval, own, [next(found) for _ in own])
            for own, moving, aval in zip(terms, moves, avals, strict=True)]
