"""Memory of a program as it is written: each operation makes its result, which is dropped after its last use."""

from __future__ import annotations

import itertools
from collections.abc import Collection

from fxgrad.engine.analyses.flow import Flow, flow_of, flow_with_calls
from fxgrad.engine.analyses.fusing import CHEAP, CONVOLUTION, DOT, EXCHANGE, EXPENSIVE
from fxgrad.engine.analyses.lifetimes import Lifetimes, Moment
from fxgrad.engine.analyses.work_space import work_space
from fxgrad.engine.core.facts import fact, made_once
from fxgrad.engine.core.program import Program, Var
from fxgrad.engine.core.regions import Region

_OVER = (CHEAP, EXPENSIVE, EXCHANGE)
"""Kinds whose results are written into an array that is there."""
_WITH_SPACE = (CONVOLUTION, DOT)
"""Kinds whose kernels make something for themselves."""


@fact
def written(program: Program) -> Lifetimes:
    """The lifetimes of the values of a program that runs step by step, as NumPy runs it."""
    return of_flow(flow_of(program))


def peak_beside_results(program: Program) -> int:
    """The most bytes alive at once beside results, for a program of many equal calls: these are looked into once."""
    flow = flow_with_calls(program)
    return _peak_beside(flow, flow.bases(flow.results), ())[0]


def of_flow(flow: Flow, writable: Collection[int] = ()) -> Lifetimes:
    """The same of its steps, where inputs that are `writable` may be lost."""
    return _with_rows(flow, writable)[0]


def _with_rows(flow: Flow, writable: Collection[int] = (), in_rows: Collection[int] = (),
               ) -> tuple[Lifetimes, set[int], dict[int, tuple[bool, ...]]]:
    """And the values that are known to lie in the order of rows, which alone are written over; inputs `in_rows` do.

    And of steps that are calls, which operands do.
    """
    base, avals = flow.base, flow.avals
    end: dict[int, int] = {}
    kept: dict[int, list[list[int]]] = {}
    for step, values in flow.kept:
        kept.setdefault(step, []).append(values)
    laid_out = {*in_rows}
    calls: dict[int, tuple[bool, ...]] = {}
    moments = []
    for step, (kind, reads, makes) in enumerate(zip(flow.kinds, flow.reads, flow.makes, strict=True)):
        read = {base[value]: step for value in reads}
        for values in kept.get(step, ()):
            read.update(dict.fromkeys([base[value] for value in values], step))
        end.update(read)
        own = [value for value in makes if base[value] == value]
        equation = flow.equations[step]
        inside = 0
        if equation.primitive.regions is not None and flow.closes(equation):
            operands = iter(reads)
            given = calls[step] = tuple([
                type(atom) is Var and _lies_in_rows(flow, laid_out, next(operands)) for atom in equation.inputs])
            inside, rows = _of_call(equation.regions[0].program, given, ())
            laid_out.update(itertools.compress(makes, rows))
        elif equation.primitive.regions is not None:
            inside = max(map(of_region, equation.regions), default=0)
        elif kind in _WITH_SPACE and (space := work_space.of(equation.primitive)) is not None:
            inside = space(equation)
        over: Collection[int] = ()
        if own and kind in _OVER and (kind == EXCHANGE or flow.on_each[step]):
            aval = avals[own[0]]
            alike = [base[value] for value in reads if avals[base[value]].shape == aval.shape]
            is_flat = len(aval.shape) < 2
            if is_flat or not laid_out.isdisjoint(alike):
                laid_out.add(own[0])
            over = [value for value in alike if avals[value].dtype is aval.dtype or avals[value].dtype == aval.dtype]
            if not is_flat and kind != EXCHANGE:
                over = laid_out.intersection(over)
        elif own and kind == DOT:
            laid_out.add(own[0])
        moments.append(Moment(step, read, own, inside, over))
    end.update(dict.fromkeys([base[value] for value in flow.results], len(moments)))
    return Lifetimes(moments, end, flow.sizes.__getitem__, writable), laid_out, calls


def _lies_in_rows(flow: Flow, laid_out: Collection[int], value: int) -> bool:
    base = flow.base[value]
    return base in laid_out and flow.avals[base].shape == flow.avals[value].shape


def _of_call(program: Program, in_rows: tuple[bool, ...], beside: tuple[int, ...]) -> tuple[int, list[bool]]:
    """What a call needs beside its operands and results, and which of these lie in rows if such operands do.

    What is needed while the results at the places `beside` are not there yet is less by their bytes.
    """
    def make() -> tuple[int, list[bool]]:
        flow = flow_with_calls(program)
        without = {flow.base[flow.outputs[place]] for place in beside}
        peak, laid_out = _peak_beside(flow, without, [*itertools.compress(flow.inputs, in_rows)])
        own = sum(flow.sizes[value] for value in flow.bases(flow.results) - without if flow.made_by[value] >= 0)
        return max(peak - own, 0), [value >= 0 and _lies_in_rows(flow, laid_out, value) for value in flow.outputs]

    return made_once(program, ("written as a call", in_rows, beside), make)


def _peak_beside(flow: Flow, values: Collection[int], in_rows: Collection[int]) -> tuple[int, set[int]]:
    """The most bytes alive at once without those of memory in which `values` will be; and what lies in rows."""
    found, laid_out, calls = _with_rows(flow, in_rows=in_rows)
    live, without = [*found.live], [0] * (len(found.live) + 1)
    first = {}
    for value in values:
        under = value
        while under in found.taken:  # it is written over another value, in the same memory
            under = found.taken[under]
        if under in found.begin:
            first[under] = found.held[value]
            without[found.begin[under]] += found.held[value]
    for step, given in calls.items():  # every step is a position
        beside = tuple([place for place, value in enumerate(flow.makes[step]) if value in first])
        if beside:
            program = flow.equations[step].regions[0].program
            live[step] += _of_call(program, given, beside)[0] - found.moments[step].inside
    return max((here - gone for here, gone in zip(live, itertools.accumulate(without), strict=False)), default=0
               ), laid_out


def of_region(region: Region) -> int:
    """What a program that an operation holds needs beside what comes in, is carried, and what the operation makes."""
    program = region.program
    flow = flow_of(program)
    carried = [value for value, link in zip(flow.inputs, region.inputs, strict=True) if link.how == "carry"]
    if carried:
        return of_flow(flow, writable=carried).peak
    made = {flow.base[value] for value, link in zip(flow.outputs, region.outputs, strict=True)
            if value >= 0 and link.how in ("same", "piece")}
    own = sum(flow.sizes[value] for value in made if flow.made_by[value] >= 0)
    return max(written(program).peak - own, 0)
