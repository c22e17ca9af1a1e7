"""A model of what XLA makes of memory on a CPU: operations fused, steps ordered, buffers written over and shared."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from fxgrad.analyses.flow import Flow, flow_of
from fxgrad.analyses.fusing import (
    ALIAS,
    BARRIER,
    CHEAP,
    CONVOLUTION,
    DOT,
    EXPENSIVE,
    FACTOR,
    LOOP,
    MOVE,
    REDUCE,
    UPDATE,
    VIEW,
)
from fxgrad.analyses.lifetimes import Copy, Lifetimes, Moment
from fxgrad.core.facts import fact
from fxgrad.core.program import Program
from fxgrad.core.regions import Region

_FUSED = frozenset({CHEAP, EXPENSIVE, ALIAS, VIEW, MOVE})
"""Kinds that may be computed within what uses them."""
_FUSING = _FUSED | {REDUCE}
"""Kinds that may compute what they use."""
_MOVING = frozenset({VIEW, MOVE})
"""Kinds that take parts of a value, or repeat it; a result is not written over what is read so."""
_WRITING = _FUSED | {UPDATE, LOOP}
"""Kinds that may write their result over an operand."""
_WORKING = frozenset({FACTOR, LOOP})
"""Kinds with work space."""
_PASSING = frozenset({ALIAS, BARRIER})
MOST_GROUPS = 8
"""So many groups may compute a cheap value again."""


class Groups:
    """Which steps are computed together: `of[step]` has the steps in whose groups it is, itself if it heads one."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.of: list[tuple[int, ...]] = [()] * len(flow.equations)
        users, kinds, makes = flow.users(), flow.kinds, flow.makes
        results = {*flow.results}
        of = self.of
        for step in range(len(kinds) - 1, -1, -1):
            kind = kinds[step]
            if kind == REDUCE:
                of[step] = self._of_reduction(step, users, results)
                continue
            if kind not in _FUSED or len(makes[step]) != 1:
                of[step] = (step,)
                continue
            value = makes[step][0]
            using = users[value]
            if len(using) == 1 and value not in results:  # most often
                user = using[0]
                fits = kinds[user] in _FUSING and (kind != EXPENSIVE or _elements(flow, user) <= flow.elements(value))
                of[step] = of[user] if fits and (kind != EXPENSIVE or len(of[user]) == 1) else (step,)
                continue
            of[step] = self._shared(step, kind, value, using, value in results)

    def _of_reduction(self, step: int, users: list[list[int]], results: set[int]) -> tuple[int, ...]:
        """A reduction is computed with what uses it, if that alone uses its operand too: the maximum in softmax."""
        flow, of = self.flow, self.of
        read, made = flow.reads[step], flow.makes[step]
        if len(read) != 1 or len(made) != 1 or made[0] in results or flow.made_by[read[0]] < 0:
            return (step,)
        using = [*users[made[0]], *(user for user in users[read[0]] if user != step)]
        if len(using) < 2 or any(flow.kinds[user] not in _FUSED for user in using):
            return (step,)
        groups = {group for user in using for group in of[user]}
        return tuple(groups) if len(groups) == 1 else (step,)

    def _shared(self, step: int, kind: int, value: int, using: list[int], is_result: bool) -> tuple[int, ...]:
        """The groups of a step that several use, or none does: what is cheap is computed in each that can."""
        flow, kinds = self.flow, self.flow.kinds
        groups: dict[int, None] = {}
        is_stored = is_result or not using
        for user in using:
            if kinds[user] not in _FUSING or (kind == EXPENSIVE and _elements(flow, user) > flow.elements(value)):
                is_stored = True
            else:
                groups.update(dict.fromkeys(self.of[user]))
        if len(groups) + is_stored > (1 if kind == EXPENSIVE else MOST_GROUPS):
            return (step,)
        if len(groups) + is_stored > 1:  # reductions take in what only they use
            alone = [group for group in groups if kinds[group] != REDUCE]
            is_stored = is_stored or len(alone) < len(groups)
            return (*alone, step) if is_stored else tuple(alone)
        return tuple(groups) or (step,)


def _elements(flow: Flow, step: int) -> int:
    """How many elements a step makes; a reduction goes through those that it reads, once."""
    return 0 if flow.kinds[step] == REDUCE else flow.elements(flow.makes[step][0])


class Compiled:
    """What the model says of a program: `lifetimes` of its buffers, and bytes beside the arguments.

    `order` are the steps that head a group, in the order in which they run. `results` are the bytes of the results,
    each of which has memory of its own, `temporary` those of all else at its peak; a value may lie where a result will
    be, and takes no memory of its own then. `total` is the sum.
    """

    def __init__(self, flow: Flow, region: Region | None = None) -> None:
        self.flow, self.groups = flow, Groups(flow)
        self._base = _bases(flow, self.groups)
        self._reads = self._reads_of_groups()
        self.order = self._ordered()
        self.lifetimes = self._lifetimes(region)
        results = {self._base[value] for value in flow.results}
        self._results = {value for value in results if value in self.lifetimes.begin}
        self.results = sum(flow.sizes[flow.base[value]] for value in flow.results)
        self.temporary = 0 if region is not None else self._temporary()

    @property
    def total(self) -> int:
        """The bytes of temporaries and results."""
        return self.temporary + self.results

    def moved(self, step: int) -> int:
        """The bytes that the group of a step reads and writes, each value once."""
        sizes, base = self.flow.sizes, self._base
        made = [value for value in self.flow.makes[step] if base[value] == value]
        return sum(sizes[value] for value in {*made, *(base[value] for value in self._reads[step])}) if made else 0

    def _reads_of_groups(self) -> dict[int, list[int]]:
        """What each group reads from memory; what it reads in several places stands several times."""
        flow, of = self.flow, self.groups.of
        found: dict[int, list[int]] = {}
        self._parts: set[tuple[int, int]] = set()  # groups with what they read at other places than they write
        for step, reads in enumerate(flow.reads):
            groups = of[step]
            if step in groups:
                found.setdefault(step, [])
            if flow.kinds[step] in _MOVING and reads and flow.elements(flow.makes[step][0]) != flow.elements(reads[0]):
                self._parts.update((group, value) for group in groups for value in self._from_memory(group, reads[0]))
            for value in reads:
                maker = flow.made_by[value]
                within = of[maker] if maker >= 0 else ()
                for group in groups:
                    if group not in within:
                        found.setdefault(group, []).append(value)
        return found

    def _from_memory(self, group: int, value: int) -> list[int]:
        """What a group reads from memory in order to have a value."""
        flow, found, stack = self.flow, [], [value]
        while stack:
            value = stack.pop()
            maker = flow.made_by[value]
            if maker >= 0 and group in self.groups.of[maker]:
                stack += flow.reads[maker]
            else:
                found.append(value)
        return found

    def _ordered(self) -> list[int]:
        """Breadth first: what is ready first runs first; of what becomes ready at once, what the results ask first."""
        flow = self.flow
        makers = {group: [flow.made_by[value] for value in reads if flow.made_by[value] >= 0]
                  for group, reads in self._reads.items()}
        for group, needed in makers.items():
            if group in flow.waits:
                needed += [maker for maker in self._heads(flow.waits[group]) if maker in makers and maker != group]
        waiting: dict[int, int] = {}
        following: dict[int, list[int]] = {}
        ready: deque[int] = deque()
        for group in _depth_first([flow.made_by[value] for value in flow.results], makers):
            before = {*makers[group]}
            waiting[group] = len(before)
            for maker in before:
                following.setdefault(maker, []).append(group)
            if not before:
                ready.append(group)
        order = []
        while ready:
            group = ready.popleft()
            order.append(group)
            for user in following.get(group, ()):
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
        return order

    def _heads(self, value: int) -> list[int]:
        """The groups that must have run before a value is there, which may be computed where it is used."""
        flow, found, stack = self.flow, [], [value]
        while stack:
            maker = flow.made_by[stack.pop()]
            if maker >= 0 and maker in self.groups.of[maker]:
                found.append(maker)
            elif maker >= 0:
                stack += flow.reads[maker]
        return found

    def _lifetimes(self, region: Region | None) -> Lifetimes:
        flow, base = self.flow, self._base
        end: dict[int, int] = {}
        moments = []
        for position, step in enumerate(self.order):
            read = {base[value]: position for value in self._reads[step]}
            end.update(read)
            own = [value for value in flow.makes[step] if base[value] == value]
            kind = flow.kinds[step]
            inside = self._inside(step) if kind in _WORKING else 0
            over = self._over(step, own, read) if kind in _WRITING and own else ()
            moments.append(Moment(step, read, own, inside, over))
        end.update(dict.fromkeys([base[value] for value in flow.results], len(moments)))
        copies = self._copies()
        if region is None:
            return Lifetimes(moments, end, flow.sizes.__getitem__, copies=copies)
        return self._in_loop(region, moments, end, copies)

    def _copies(self) -> list[Copy]:
        """Operands of convolutions in other orders of axes than XLA's kernels take, copied when they are made."""
        flow = self.flow
        found = []
        if CONVOLUTION in flow.kinds:
            places = {step: position for position, step in enumerate(self.order)}
            for position, step in enumerate(self.order):
                if flow.kinds[step] == CONVOLUTION:
                    found += [Copy(places.get(flow.made_by[value], 0), position, flow.sizes[value])
                              for value in _turned(flow, step)]
        return found

    def _in_loop(self, region: Region, moments: list[Moment], end: dict[int, int],
                 copies: list[Copy]) -> Lifetimes:
        """Of the body of a loop: what is carried is there, entries are read and written in their place."""
        flow, base = self.flow, self._base
        carried = [value for value, link in zip(flow.inputs, region.inputs, strict=True) if link.how == "carry"]
        users = flow.users()
        entering = [value for value, link in zip(flow.inputs, region.inputs, strict=True) if link.how == "entry"
                    and any(flow.kinds[user] not in _FUSING for user in users[value])]
        written = {base[value] for value, link in zip(flow.outputs, region.outputs, strict=True)
                   if value >= 0 and link.how == "entry" and not users[value] and flow.made_by[value] >= 0
                   and flow.kinds[flow.made_by[value]] in _FUSED}
        return Lifetimes(moments, end, lambda value: 0 if value in written else flow.sizes[value], carried, entering,
                         copies)

    def _inside(self, step: int) -> int:
        """The work space of a step."""
        flow = self.flow
        equation = flow.equations[step]
        if flow.kinds[step] == FACTOR:  # works in columns, in a copy of its operand, and its result is looked through
            operand = flow.reads[step][0] if flow.reads[step] else -1
            copied = operand >= 0 and flow.made_by[self._base[operand]] < 0
            return flow.sizes[flow.makes[step][0]] if copied else 0
        if equation.primitive.regions is None:
            return 0
        return max(map(_of_region, equation.regions), default=0)

    def _over(self, step: int, own: list[int], reads: dict[int, int]) -> list[int]:
        """The operands that the result may be written over."""
        flow = self.flow
        kind = flow.kinds[step]
        if kind == LOOP:
            return self._carried(step)
        sizes, avals = flow.sizes, flow.avals
        size, width = sizes[own[0]], avals[own[0]].dtype.itemsize
        return [value for value in reads if sizes[value] == size and avals[value].dtype.itemsize == width
                and (step, value) not in self._parts and not self._is_column(value)]

    def _is_column(self, value: int) -> bool:
        """Whether a value is the product of a matrix and a vector, which is computed as a matrix of one column."""
        maker = self.flow.made_by[value]
        return maker >= 0 and self.flow.kinds[maker] == DOT and min(
            [len(atom.aval.shape) for atom in self.flow.equations[maker].inputs]) < 2

    def _carried(self, step: int) -> list[int]:
        """The operands that a loop carries, which it may write over."""
        flow = self.flow
        equation = flow.equations[step]
        places = {link.place for region in equation.regions for link in region.inputs if link.how == "carry"}
        if not places:
            return []
        carried = {equation.inputs[place] for place in places}
        return [self._base[value] for value in flow.reads[step] if flow.variables[value] in carried
                and flow.made_by[self._base[value]] >= 0]

    def _temporary(self) -> int:
        """The most bytes of temporaries that are alive at once, but for those that lie where a result will be.

        What a result is written over lies there, and what that is written over.
        """
        lifetimes, sizes = self.lifetimes, self.flow.sizes
        begin, end, taken = lifetimes.begin, lifetimes.end, lifetimes.taken
        last = len(self.order)
        until = {below: begin[value] - 1 for value, below in taken.items()}
        room = sorted((sizes[value], value) for value in self._results)
        used: dict[int, list[tuple[int, int]]] = {}
        under: set[int] = set()
        for _, value in room:
            below = value
            while below in taken:
                below = taken[below]
                under.add(below)
            used[value] = [(begin[below], last)]
        change = [0] * (last + 2)
        for first, final, size in lifetimes.copies:
            change[first] += size
            change[final + 1] -= size
        temporaries = [value for value in begin if value not in used and value not in under and lifetimes.held[value]]
        for value in sorted(temporaries, key=sizes.__getitem__, reverse=True):
            span = begin[value], until.get(value, min(end.get(value, begin[value]), last))
            large = bisect_left(room, (sizes[value], -1))
            for _, result in room[large:large + MOST_TRIED]:
                for first, final in used[result]:
                    if first <= span[1] and span[0] <= final:
                        break
                else:
                    used[result].append(span)
                    break
            else:
                change[span[0]] += sizes[value]
                change[span[1] + 1] -= sizes[value]
        alive = most = 0
        for position, moment in enumerate(lifetimes.moments):
            alive += change[position]
            most = max(most, alive + moment.inside)
        return most


def _turned(flow: Flow, step: int) -> list[int]:
    """The operands of a convolution whose axes stand in another order than batch, space, feature; space, in, out."""
    images, kernel, _ = flow.equations[step].params["dimension_numbers"]
    last = len(images) - 1
    space = tuple(range(1, last))
    orders = (images == (0, last, *space), kernel == (last, last - 1, *range(last - 1)))
    return [value for value, is_usual in zip(flow.reads[step], orders, strict=False) if not is_usual]


def _depth_first(wanted: list[int], makers: dict[int, list[int]]) -> list[int]:
    """The groups that are needed, each after those that it reads; and at last those that nothing needs."""
    found: dict[int, None] = {}
    for first in (*[each for each in wanted if each >= 0], *makers):
        stack = [first]
        while stack:
            top = stack[-1]
            if top in found:
                stack.pop()
                continue
            missing = [each for each in makers[top] if each not in found]
            if missing:
                stack.extend(reversed(missing))
            else:
                found[top] = None
                stack.pop()
    return [*found]


MOST_TRIED = 16
"""So many results are tried for a place."""


def _bases(flow: Flow, groups: Groups) -> list[int]:
    """Whose memory each value lies in: another shape of a value in that of it, and a transpose for products too."""
    base = [*range(len(flow.avals))]
    users = None
    for step, kind in enumerate(flow.kinds):
        if kind not in _PASSING and kind != VIEW:
            continue
        reads, makes = flow.reads[step], flow.makes[step]
        if kind == VIEW:
            if step not in groups.of[step] or not reads or flow.sizes[makes[0]] != flow.sizes[reads[0]]:
                continue
            users = users or flow.users()
            if not users[makes[0]] or any(flow.kinds[user] != DOT for user in users[makes[0]]):
                continue
        for place, made in enumerate(makes):
            if reads:
                base[made] = base[reads[place if len(reads) == len(makes) else 0]]
    return base


@fact
def compiled(program: Program) -> Compiled:
    """What the model of XLA says of a program."""
    return Compiled(flow_of(program))


def _of_region(region: Region) -> int:
    """What a program that an operation holds needs beside what comes in, is carried, and what the operation makes."""
    program = region.program
    if any(link.how in ("carry", "entry") for link in region.inputs):
        return Compiled(flow_of(program), region).lifetimes.peak
    found = compiled(program)
    return found.temporary
