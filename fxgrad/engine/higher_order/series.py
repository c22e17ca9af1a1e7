"""Taylor series through calls, branches and loops: their programs take and return coefficients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.engine.core.program import Program
from fxgrad.engine.core.program_properties import memoize
from fxgrad.engine.core.regions import close_marks
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.derive import Derived
from fxgrad.engine.higher_order.branch import bind_cond, cond_p
from fxgrad.engine.higher_order.call import jit_call_p, named_call_p
from fxgrad.engine.higher_order.checkpoint import checkpoint_p
from fxgrad.engine.higher_order.groups import Marks, split_by_sizes
from fxgrad.engine.higher_order.loop import bind_for, for_p
from fxgrad.engine.higher_order.scan import Loop, scan_p
from fxgrad.engine.higher_order.while_loop import bind_while, ignore_carries, while_p
from fxgrad.engine.higher_order.wiring import nonzero_outputs_of
from fxgrad.engine.ops.structural import instantiate_zeros
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.transforms.forward import has_tangent
from fxgrad.engine.transforms.series import Expansion, Operation, Series, not_summed, series_rules
from fxgrad.engine.transforms.series import series_program as series_program  # noqa: PLC0414  (with these rules)
from fxgrad.engine.transforms.series import solution_program as solution_program  # noqa: PLC0414


@series_rules.register(named_call_p, jit_call_p, checkpoint_p)
def _call(expansion: Expansion, operation: Operation) -> list[Series]:
    return expansion.run(operation.params["program"], operation.operands, operation.order)


def _varying(operands: Sequence[Series]) -> Marks:
    """Return a mask of the series that vary."""
    return tuple(has_tangent(each.aval) and not each.is_constant for each in operands)


def _coefficients(series: Sequence[Series], marks: Sequence[bool], order: int) -> list[Any]:
    """Return the coefficients of orders 1 to `order` of the series that `marks` marks, one series after the other."""
    return [instantiate_zeros(each[level]) for each, mark in zip(series, marks, strict=True) if mark
            for level in range(1, order + 1)]


def _of_programs(expansion: Expansion, operation: Operation, run: Callable[[int], tuple[Sequence[Any], Marks]],
                 ) -> list[Series]:
    """Return the series of an operation's results; `run(order)` computes them, and coefficients of those that it marks.

    Where the operands are known up to the highest order, it runs once; else it runs anew for each order.
    """
    def columns(order: int) -> list[list[Any]]:
        results, marks = run(order)
        count = len(operation.avals)
        remaining = iter(results[count:])
        return [[result, *(next(remaining) if mark else Zero(aval) for _ in range(order))]
                for result, mark, aval in zip(results[:count], marks, operation.avals, strict=True)]

    if operation.order:
        return [Series(aval, column) for aval, column in zip(operation.avals, columns(operation.order), strict=True)]

    if expansion.sum_directions is not None:
        raise not_summed(operation.primitive)

    def further(place: int) -> Callable[[int], Any]:
        return lambda order: columns(order)[place][order]
    return [Series(aval, [value], further(place))
            for place, (aval, value) in enumerate(zip(operation.avals, operation.values(), strict=True))]


def _grouped(expansion: Expansion, program: Program, takes: Sequence[int], makes: Sequence[int], marks: Marks,
             wanted: Marks, order: int) -> Derived:
    """Derive as `series_program`, with each group of inputs and of outputs followed by its own coefficients.

    `takes` and `makes` are the sizes of the groups, `marks` marks the inputs that vary.
    """
    counts = tuple(order if mark else 0 for mark in marks)
    derived = series_program(program, counts, order, wanted, sum_directions=expansion.sum_directions)

    def places(sizes: Sequence[int], lengths: Sequence[int]) -> list[int]:
        """Return the places, in the derived program, of each group's values and coefficients."""
        found, behind = [], len(lengths)
        for group in split_by_sizes(range(len(lengths)), sizes):
            found += group
            more = sum(lengths[place] for place in group)
            found += range(behind, behind + more)
            behind += more
        return found

    def make() -> Program:
        captured, inputs = split_by_sizes(derived.program.inputs, (
            len(derived.captured), len(derived.program.inputs) - len(derived.captured)))
        lengths = [order if mark else 0 for mark in wanted]
        return Program([*captured, *(inputs[place] for place in places(takes, counts))], derived.program.equations,
                       [derived.program.outputs[place] for place in places(makes, lengths)])
    return derived._replace(program=memoize(derived.program, ("grouped", tuple(takes), tuple(makes)), make))


# --- branches ---------------------------------------------------------------------------------------------------------


@series_rules.register(cond_p)
def _cond(expansion: Expansion, operation: Operation) -> list[Series]:
    index, *operands = operation.operands
    branches: Sequence[Program] = operation.params["branches"]
    marks = _varying(operands)
    part = functools.partial(series_program, sum_directions=expansion.sum_directions)

    def run(order: int) -> tuple[Sequence[Any], Marks]:
        counts = tuple(order if mark else 0 for mark in marks)
        reached = tuple(any(each) for each in zip(
            *(part(branch, counts, order).extra for branch in branches), strict=True))
        parts = [part(branch, counts, order, reached) for branch in branches]
        return bind_cond(index.value, parts, [*(each.value for each in operands),
                                              *_coefficients(operands, marks, order)]), reached
    return _of_programs(expansion, operation, run)


# --- loops ------------------------------------------------------------------------------------------------------------


def _regrouped(results: Sequence[Any], sizes: Sequence[int], wanted: Marks, order: int) -> list[Any]:
    """Return values, then coefficients, of groups of which each is followed by its own."""
    values, behind, remaining = [], [], [*results]
    for size, marks in zip(sizes, split_by_sizes(wanted, sizes), strict=True):
        more = order * sum(marks)
        values += remaining[:size]
        behind += remaining[size:size + more]
        remaining = remaining[size + more:]
    return [*values, *behind]


@series_rules.register(scan_p)
def _scan(expansion: Expansion, operation: Operation) -> list[Series]:
    params = {name: value for name, value in operation.params.items() if name != "program"}
    program, loop = operation.params["program"], Loop(**params)
    sizes = (loop.num_consts, loop.num_carry, len(program.inputs) - loop.num_consts - loop.num_carry)
    consts, carry, xs = split_by_sizes(operation.operands, sizes)
    ys = len(program.outputs) - loop.num_carry
    fixed, entries = _varying(consts), _varying(xs)
    carried = close_marks(lambda marks: nonzero_outputs_of(program, (*fixed, *marks, *entries))[:loop.num_carry],
                          _varying(carry))
    marks = (*fixed, *carried, *entries)
    wanted = (*carried, *nonzero_outputs_of(program, marks)[loop.num_carry:])

    def run(order: int) -> tuple[Sequence[Any], Marks]:
        body = _grouped(expansion, program, sizes, (loop.num_carry, ys), marks, wanted, order)
        groups = [[*(each.value for each in group), *_coefficients(group, of_group, order)] for group, of_group in (
            (consts, fixed), (carry, carried), (xs, entries))]
        results = loop.again(body.program, [*body.captured, *groups[0]], *groups[1:])
        return _regrouped(results, (loop.num_carry, ys), wanted, order), wanted
    return _of_programs(expansion, operation, run)


def _of_loop(expansion: Expansion, operation: Operation, body: Program, given: Sequence[Series],
             carry: Sequence[Series],
             bind_loop: Callable[[Program, list[Any], list[Any], list[Any]], list[Any]]) -> list[Series]:
    """Return the series that a loop carries, where `bind_loop(body, constants, carry, further carry)` applies it."""
    fixed = _varying(given)
    carried = close_marks(lambda marks: nonzero_outputs_of(body, (*fixed, *marks)), _varying(carry))

    def run(order: int) -> tuple[Sequence[Any], Marks]:
        step = _grouped(expansion, body, (len(given), len(carry)), (len(carry),), (*fixed, *carried), carried, order)
        constants = [*step.captured, *(each.value for each in given), *_coefficients(given, fixed, order)]
        return bind_loop(step.program, constants, [each.value for each in carry],
                         _coefficients(carry, carried, order)), carried
    return _of_programs(expansion, operation, run)


@series_rules.register(for_p)
def _for(expansion: Expansion, operation: Operation) -> list[Series]:
    count, *operands = operation.operands
    body, consts = operation.params["program"], operation.params["num_consts"]
    return _of_loop(expansion, operation, body, operands[:consts], operands[consts:],
                    lambda step, fixed, carry, more: bind_for(count.value, step, fixed, [*carry, *more]))


@series_rules.register(while_p)
def _while(expansion: Expansion, operation: Operation) -> list[Series]:
    params = operation.params
    asked, given, carry = split_by_sizes(operation.operands, (
        params["num_condition_consts"], params["num_body_consts"], len(params["body"].outputs)))

    def bind_loop(step: Program, fixed: list[Any], carry: list[Any], more: list[Any]) -> list[Any]:
        going = ignore_carries(params["condition"], len(asked), behind=tuple(map(aval_of, more)))
        return bind_while(going, [each.value for each in asked], step, fixed, [*carry, *more])
    return _of_loop(expansion, operation, params["body"], given, carry, bind_loop)
