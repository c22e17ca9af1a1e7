"""A model of what XLA makes of memory on a CPU: operations fused, steps ordered, buffers written over and shared."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator

from fxgrad.engine.analyses.flow import Flow, flow_of
from fxgrad.engine.analyses.groups import Groups
from fxgrad.engine.analyses.instructions import ELEMENT, INPUT, OPAQUE, PART, REDUCE, RESHAPE, UPDATE
from fxgrad.engine.analyses.lifetimes import Lifetimes, Moment
from fxgrad.engine.analyses.lowering import lowered
from fxgrad.engine.core.facts import fact
from fxgrad.engine.core.program import Program
from fxgrad.engine.core.regions import Region

MOST_TRIED = 16
"""So many results are tried for a place."""


class Compiled:
    """What the model says of a program: `lifetimes` of its buffers, and bytes beside the arguments.

    `made` are its instructions and `groups` which are computed together; `order` are those that head a group, in the
    order in which they run. `results` are the bytes of the results, each of which has memory of its own, `temporary`
    those of all else at its peak; a value may lie where a result will be, and takes no memory of its own then. `total`
    is the sum. Of the body of a loop, which a `region` is, `lifetimes` are beside what is carried and stacked.
    """

    def __init__(self, flow: Flow, region: Region | None = None) -> None:
        self.flow = flow
        self.made = lowered(flow, region)
        ends = [self.made.of[value] for value in flow.outputs if value >= 0] if region is None else \
            self.made.ends(region)
        self.groups = Groups(self.made, ends)
        self._base = self._bases()
        self.order = self._ordered()
        self._places = {node: place for place, node in enumerate(self.order)}
        self._alike: dict[int, list[int]] = {}  # what a result may lie where it begins and the other ends
        self.lifetimes = self._lifetimes(region, ends)
        self._results = {base for node in ends if (base := self._base[node]) in self.lifetimes.begin}
        self.results = sum(self.made.sizes[self.made.of[value]] for value in flow.results)
        self.temporary = 0 if region is not None else self._temporary()

    @property
    def total(self) -> int:
        """The bytes of temporaries and results."""
        return self.temporary + self.results

    def regions_of(self, head: int) -> tuple[Region, ...]:
        """The programs that an instruction holds."""
        made = self.made
        return self.flow.equations[made.steps[head]].regions if made.kinds[head] == OPAQUE else ()

    def values(self) -> dict[int, int]:
        """The values of the flow that instructions are; what only the compiler makes is none."""
        found: dict[int, int] = {}
        for value, node in self.made.of.items():
            found.setdefault(self._base.get(node, node), value)
        return found

    def moved(self, head: int) -> int:
        """The bytes that the group of an instruction reads and writes, each value once."""
        sizes, base = self.made.sizes, self._base
        if self.made.kinds[head] == PART and self.regions_of(self.made.reads[head][0]):
            return 0
        own = {head} if base[head] == head else set()
        return sum(sizes[node] for node in own.union([base[each] for each in self.groups.reads[head]])) if own else 0

    def _bases(self) -> dict[int, int]:
        """Whose memory each instruction's value lies in: another shape of a value, alone, in that of it."""
        kinds, groups = self.made.kinds, self.groups
        base: dict[int, int] = {}
        for node in groups.order:
            alone = kinds[node] == RESHAPE and node not in groups.members
            base[node] = base[groups.reads[node][0]] if alone else node
        return base

    # --- the order ----------------------------------------------------------------------------------------

    def _ordered(self) -> list[int]:
        """Breadth first: what is ready first runs first, what only needs arguments before what needs constants."""
        made, groups = self.made, self.groups
        kinds = made.kinds
        waiting: dict[int, int] = {}
        following: dict[int, list[int]] = {}
        ready = deque(sorted([node for node in groups.order if kinds[node] == INPUT]))
        constants = -1
        ready.append(constants)
        for node in groups.order:
            if kinds[node] == INPUT:
                continue
            before = {*groups.reads[node], *self._awaited(node)}
            if self._has_constant(node):
                before.add(constants)
            if not before:
                ready.appendleft(node)
            waiting[node] = len(before)
            for each in before:
                following.setdefault(each, []).append(node)
        order = []
        while ready:
            node = ready.popleft()
            if node in waiting:
                order.append(node)
            for user in following.get(node, ()):
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
        return order

    def _has_constant(self, node: int) -> bool:
        """Whether a constant is an operand: of arrays of it, and of reductions that are no part of a loop."""
        made, groups = self.made, self.groups
        members = groups.members.get(node)
        if members is None:
            return made.kinds[node] == REDUCE or not made.reads[node]
        return node in groups.library and any(made.kinds[each] == REDUCE for each in members)

    def _awaited(self, node: int) -> Iterator[int]:
        """What is computed again waits for the value that its caller says."""
        value = self.flow.waits.get(self.made.steps[node])
        if value is None or not self.groups.reads[node]:
            return
        stack = [self.made.of[value]]
        while stack:
            each = stack.pop()
            if each in self.groups.reads:
                if each != node:
                    yield each
            else:
                stack += self.made.reads[each]

    # --- lifetimes ----------------------------------------------------------------------------------------

    def _lifetimes(self, region: Region | None, ends: list[int]) -> Lifetimes:
        made, groups, base = self.made, self.groups, self._base
        kinds = made.kinds
        parts: dict[int, list[int]] = {}
        for node in self.order:
            if kinds[node] == PART:
                parts.setdefault(made.reads[node][0], []).append(node)
        end: dict[int, int] = {}
        moments = []
        for node, carried in made.carried.items():
            if node in groups.reads:
                parts[node] = [*dict.fromkeys([*parts.get(node, ()), *carried])]
        for place, node in enumerate(self.order):
            if kinds[node] == PART:
                moments.append(Moment(made.steps[node], (), ()))
                continue
            read = {base[each]: place for each in groups.reads[node]}
            end.update(read)
            own = parts.get(node) or ([node] if base[node] == node else [])
            inside = self._inside(node) if kinds[node] == OPAQUE else 0
            moments.append(Moment(made.steps[node], read, own, inside, self._over(node, own)))
        end.update(dict.fromkeys([base[node] for node in ends], len(moments)))
        if region is None:
            return Lifetimes(moments, end, made.sizes.__getitem__)
        return self._in_loop(region, moments, end)

    def _in_loop(self, region: Region, moments: list[Moment], end: dict[int, int]) -> Lifetimes:
        """Of the body of a loop: what is carried is there, and what takes its place when it is read no more."""
        made, flow, base = self.made, self.flow, self._base
        carried = [made.of[value] for value, link in zip(flow.inputs, region.inputs, strict=True)
                   if link.how == "carry"]
        after = [made.of[value] if value >= 0 else -1 for value, link in zip(flow.outputs, region.outputs, strict=True)
                 if link.how == "carry"]
        there, copied = set(), []
        for old, new in zip(carried, after, strict=False):
            node = base.get(new, -1)
            if node < 0 or node == old or node not in self._places:
                continue
            readers = {each for each in self.order if old in moments[self._places[each]].reads}
            before = self._needed_by(node)
            if not readers - {node} <= before:  # nobody knows that they read it before it is written over
                copied.append(old)
                there.add(node)
            elif node not in readers or old in moments[self._places[node]].over:
                there.add(node)
        return Lifetimes(moments, end, lambda node: 0 if node in there or node in made.in_place else made.sizes[node],
                         carried, copied)

    def _needed_by(self, node: int) -> set[int]:
        """The groups that must have run before one."""
        found: set[int] = set()
        stack = [node]
        while stack:
            for each in self.groups.reads[stack.pop()]:
                if each not in found:
                    found.add(each)
                    stack.append(each)
        return found

    def _inside(self, node: int) -> int:
        """The work space of a kernel or a loop."""
        made, flow = self.made, self.flow
        step = made.steps[node]
        equation = flow.equations[step]
        if equation.primitive.regions is None:
            return 0
        return max(map(_of_region, equation.regions), default=0)

    def _over(self, node: int, own: list[int]) -> list[int]:
        """The operands that the result of a group may be written over."""
        made, groups, base = self.made, self.groups, self._base
        if made.over:
            found = [base[each] for part in own for each in made.over.get(part, ()) if each in base]
            if found:
                return found
        if not own or node in groups.library:
            return []
        if made.kinds[node] == UPDATE:
            return [base[made.reads[node][0]]] if made.reads[node][0] in base else []
        if made.kinds[node] != ELEMENT:
            return []
        shape, size = made.shapes[node], made.sizes[node]
        found = [each for each in groups.reads[node] if made.shapes[each] == shape and made.sizes[each] == size
]
        members = groups.members.get(node)
        if found and members is not None:
            bad = self._read_in_parts(members)
            found = [each for each in found if each not in bad]
        if found:
            self._alike[node] = [base[each] for each in found]
        return [each for each in found if base[each] == each and made.kinds[each] != PART]

    def _read_in_parts(self, members: list[int]) -> set[int]:
        """What a group reads at other places than it writes."""
        made = self.made
        within = {*members}
        bad: set[int] = set()  # instructions that are read so
        for each in members:  # users come before what they read
            if made.kinds[each] != ELEMENT or each in bad:
                bad.update(made.reads[each])
        spread = [each for each in bad if each in within]
        while spread:
            each = spread.pop()
            for read in made.reads[each]:
                if read not in bad:
                    bad.add(read)
                    if read in within:
                        spread.append(read)
        return bad

    def _temporary(self) -> int:
        """The most bytes of temporaries that are alive at once, but for those that lie where a result will be.

        What a result is written over lies there, and what that is written over.
        """
        lifetimes, sizes = self.lifetimes, self.made.sizes
        begin, end, taken = lifetimes.begin, lifetimes.end, lifetimes.taken
        last = len(self.order)
        until = {below: begin[node] - 1 for node, below in taken.items()}
        room = sorted((sizes[node], node) for node in self._results)
        used: dict[int, list[tuple[int, int, int, int]]] = {}
        alike = self._alike
        under: set[int] = set()
        for _, node in room:
            below = node
            while below in taken:
                below = taken[below]
                under.add(below)
            used[node] = [(begin[below], last, below, node)]
        change = [0] * (last + 2)
        temporaries = [node for node in begin if node not in used and node not in under and lifetimes.held[node]]
        for node in sorted(temporaries, key=sizes.__getitem__, reverse=True):
            span = begin[node], until.get(node, min(end.get(node, begin[node]), last))
            large = bisect_left(room, (sizes[node], -1))
            for _, result in room[large:large + MOST_TRIED]:
                for first, final, start, stop in used[result]:
                    if (first < span[1] or (first == span[1] and node not in alike.get(start, ()))) and (
                            span[0] < final or (span[0] == final and stop not in alike.get(node, ()))):
                        break
                else:
                    used[result].append((*span, node, node))
                    break
            else:
                change[span[0]] += sizes[node]
                change[span[1] + 1] -= sizes[node]
        alive = most = 0
        for place, moment in enumerate(lifetimes.moments):
            alive += change[place]
            most = max(most, alive + moment.inside)
        return most


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
