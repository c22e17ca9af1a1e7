"""Memory of a program as it is written: each operation makes its result, which is dropped after its last use."""

from __future__ import annotations

from collections.abc import Collection

from fxgrad.analyses.flow import Flow, flow_of
from fxgrad.analyses.fusing import CHEAP, DOT, EXCHANGE, EXPENSIVE
from fxgrad.analyses.lifetimes import Lifetimes, Moment
from fxgrad.core.facts import fact
from fxgrad.core.program import Program
from fxgrad.core.regions import Region

_OVER = (CHEAP, EXPENSIVE, EXCHANGE)
"""Kinds whose results are written into an array that is there."""


@fact
def written(program: Program) -> Lifetimes:
    """The lifetimes of the values of a program that runs step by step, as NumPy runs it."""
    return of_flow(flow_of(program))


def of_flow(flow: Flow, writable: Collection[int] = ()) -> Lifetimes:
    """The same of its steps, where inputs that are `writable` may be lost."""
    base, avals = flow.base, flow.avals
    end: dict[int, int] = {}
    kept: dict[int, list[list[int]]] = {}
    for step, values in flow.kept:
        kept.setdefault(step, []).append(values)
    laid_out: set[int] = set()  # what is known to be in the order of rows, which alone is written over
    moments = []
    for step, (kind, reads, makes) in enumerate(zip(flow.kinds, flow.reads, flow.makes, strict=True)):
        read = {base[value]: step for value in reads}
        for values in kept.get(step, ()):
            read.update(dict.fromkeys([base[value] for value in values], step))
        end.update(read)
        own = [value for value in makes if base[value] == value]
        equation = flow.equations[step]
        inside = 0 if equation.primitive.regions is None else max(map(of_region, equation.regions), default=0)
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
    return Lifetimes(moments, end, flow.sizes.__getitem__, writable)


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
