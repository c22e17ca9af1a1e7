"""Live ranges of values and the peak of live bytes, where each operation runs by itself, as in NumPy.

`LiveRanges` computes ranges, live bytes and their peak over any order of moments. `liveness` is that of a program whose
operations are not fused: each makes its result, elementwise operations write over an operand that is dead, and
values are dropped after their last use. `fxgrad/tools/profiling/compiler_model.py` has the order and the buffers after
fusion.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from fxgrad.engine.analyses.flow import Flow, flow_of, flow_with_calls
from fxgrad.engine.analyses.fusing import CHEAP, CONVOLUTION, DOT, EXCHANGE, EXPENSIVE
from fxgrad.engine.analyses.work_space import work_space
from fxgrad.engine.core.program import Program, Variable
from fxgrad.engine.core.program_properties import memoize, program_property
from fxgrad.engine.core.regions import Region

_IN_PLACE = (CHEAP, EXPENSIVE, EXCHANGE)
"""Kinds whose results may be written over an operand."""
_WITH_SPACE = (CONVOLUTION, DOT)
"""Kinds whose kernels allocate work space."""


class Moment(NamedTuple):
    """A position in an order of steps: the step, the values that it reads and makes, and its work space in bytes.

    `over` are the operands whose memory the result may take if they are dead. Values are those that have memory, not
    views of them.
    """

    step: int
    reads: Collection[int]
    makes: Sequence[int]
    inside: int = 0
    over: Collection[int] = ()


class LiveRanges:
    """The live range of each value: from the position `begin` to the position `end`, both included.

    `live` has the bytes at each position, `peak` their maximum, `peak_at` the first position that reaches it. `held`
    has the bytes of each value, 0 where it lies in memory that is not counted. Inputs that are `writable` exist from
    the start and may be written over; those that are `copied` take memory from the start.
    """

    def __init__(self, moments: Sequence[Moment], end: dict[int, int], bytes_of: Callable[[int], int],
                 writable: Collection[int] = (), copied: Collection[int] = ()) -> None:
        self.moments, self.end = moments, end
        held = self.held = dict.fromkeys(writable, 0)
        begin = self.begin = dict.fromkeys(writable, 0)
        self.taken: dict[int, int] = {}
        """The value whose memory a value takes over."""
        live = self.live = [0] * len(moments)
        alive = 0
        for value in copied:
            held[value] = bytes_of(value)
            alive += held[value]
        for position, (_, reads, makes, inside, over) in enumerate(moments):
            dying = [value for value in reads if end.get(value) == position and value in held]
            for value in makes:
                size = bytes_of(value)
                begin[value] = position
                under = None if not over else next(
                    (each for each in dying if each in over and bytes_of(each) == size), None)
                if under is None:
                    held[value] = size
                    alive += size
                else:
                    dying.remove(under)
                    held[value] = held[under]
                    self.taken[value] = under
            live[position] = alive + inside
            for value in dying:
                alive -= held[value]
            for value in makes:
                if value not in end:
                    end[value] = position
                    alive -= held[value]
        self.peak = max(live, default=0)
        self.peak_at = live.index(self.peak) if live else -1

    def alive_at(self, position: int) -> list[int]:
        """Return the values that have memory of their own at a position, the largest first."""
        overwritten = {under: self.begin[value] for value, under in self.taken.items()}
        found = [value for value, start in self.begin.items()
                 if start <= position <= self.end.get(value, -1) and self.held[value]
                 and overwritten.get(value, position + 1) > position]
        return sorted(found, key=lambda value: -self.held[value])


@program_property
def liveness(program: Program) -> LiveRanges:
    """Return the live ranges of the computed values of a program, operation by operation.

    Arguments are not counted, results are. An elementwise operation writes over an operand of the same type that is
    dead, and a loop over what it carries; views take no memory.

    >>> import fxgrad, numpy as np
    >>> program = fxgrad.make_program(lambda x: np.sum(np.exp(x) * x))(np.ones(100))
    >>> liveness(program).peak
    808
    """
    return _account(flow_of(program)).ranges


def peak_beside_results(program: Program) -> int:
    """Return the peak of live bytes beside results; equal calls within the program are analysed once."""
    flow = flow_with_calls(program)
    return _peak_without(flow, flow.bases(flow.results), ())[0]


class _Account(NamedTuple):
    """Live ranges, the values known to be row-major, and for each step that is a call which operands are.

    Only row-major values are written over.
    """

    ranges: LiveRanges
    row_major: set[int]
    calls: dict[int, tuple[bool, ...]]


def _account(flow: Flow, writable: Collection[int] = (), row_major_inputs: Collection[int] = ()) -> _Account:
    """Walk the steps in the order of the program; inputs that are `writable` may be overwritten."""
    base, avals = flow.base, flow.avals
    end: dict[int, int] = {}
    kept: dict[int, list[list[int]]] = {}
    for step, values in flow.kept:
        kept.setdefault(step, []).append(values)
    row_major = {*row_major_inputs}
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
                type(atom) is Variable and _is_row_major(flow, row_major, next(operands)) for atom in equation.inputs])
            inside, results = _call_needs(equation.regions[0].program, given, ())
            row_major.update(itertools.compress(makes, results))
        elif equation.primitive.regions is not None:
            inside = max(map(_region_peak, equation.regions), default=0)
        elif kind in _WITH_SPACE and (space := work_space.of(equation.primitive)) is not None:
            inside = space(equation)
        over: Collection[int] = ()
        if own and kind in _IN_PLACE and (kind == EXCHANGE or flow.on_each[step]):
            aval = avals[own[0]]
            alike = [base[value] for value in reads if avals[base[value]].shape == aval.shape]
            is_flat = len(aval.shape) < 2
            if is_flat or not row_major.isdisjoint(alike):
                row_major.add(own[0])
            over = [value for value in alike if avals[value].dtype is aval.dtype or avals[value].dtype == aval.dtype]
            if not is_flat and kind != EXCHANGE:
                over = row_major.intersection(over)
        elif own and kind == DOT:
            row_major.add(own[0])
        moments.append(Moment(step, read, own, inside, over))
    end.update(dict.fromkeys([base[value] for value in flow.results], len(moments)))
    return _Account(LiveRanges(moments, end, flow.sizes.__getitem__, writable), row_major, calls)


def _is_row_major(flow: Flow, row_major: Collection[int], value: int) -> bool:
    base = flow.base[value]
    return base in row_major and flow.avals[base].shape == flow.avals[value].shape


def _call_needs(program: Program, row_major: tuple[bool, ...], beside: tuple[int, ...]) -> tuple[int, list[bool]]:
    """Return the bytes that a call needs beside operands and results, and which results are row-major.

    `row_major` marks the operands that are. With `beside`, places of results, the bytes of these results are left out
    where they are not computed yet.
    """
    def make() -> tuple[int, list[bool]]:
        flow = flow_with_calls(program)
        without = {flow.base[flow.outputs[place]] for place in beside}
        peak, found = _peak_without(flow, without, [*itertools.compress(flow.inputs, row_major)])
        own = sum(flow.sizes[value] for value in flow.bases(flow.results) - without if flow.made_by[value] >= 0)
        return max(peak - own, 0), [value >= 0 and _is_row_major(flow, found, value) for value in flow.outputs]

    return memoize(program, ("liveness of a call", row_major, beside), make)


def _peak_without(flow: Flow, values: Collection[int], row_major_inputs: Collection[int]) -> tuple[int, set[int]]:
    """Return the peak of live bytes without the memory that `values` end up in, and the row-major values."""
    ranges, row_major, calls = _account(flow, row_major_inputs=row_major_inputs)
    live, without = [*ranges.live], [0] * (len(ranges.live) + 1)
    first = {}
    for value in values:
        under = value
        while under in ranges.taken:  # it is written over another value, in the same memory
            under = ranges.taken[under]
        if under in ranges.begin:
            first[under] = ranges.held[value]
            without[ranges.begin[under]] += ranges.held[value]
    for step, given in calls.items():  # every step is a position
        beside = tuple([place for place, value in enumerate(flow.makes[step]) if value in first])
        if beside:
            program = flow.equations[step].regions[0].program
            live[step] += _call_needs(program, given, beside)[0] - ranges.moments[step].inside
    return max((here - gone for here, gone in zip(live, itertools.accumulate(without), strict=False)), default=0
               ), row_major


def _region_peak(region: Region) -> int:
    """Return the bytes that a region needs beside its inputs, what it carries, and the results of its operation."""
    program = region.program
    flow = flow_of(program)
    carried = [value for value, link in zip(flow.inputs, region.inputs, strict=True) if link.how == "carry"]
    if carried:
        return _account(flow, writable=carried).ranges.peak
    made = {flow.base[value] for value, link in zip(flow.outputs, region.outputs, strict=True)
            if value >= 0 and link.how in ("same", "piece")}
    own = sum(flow.sizes[value] for value in made if flow.made_by[value] >= 0)
    return max(liveness(program).peak - own, 0)
