"""A model of the memory that XLA plans on a CPU: it fuses operations, orders steps, and reuses and shares buffers."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator

from fxgrad.extend import Program, Region, Variable, program_property
from fxgrad.extend.analyses import Flow, LiveRanges, Moment, flow_of
from fxgrad.tools.profiling.grouping import Grouping
from fxgrad.tools.profiling.instructions import ELEMENT, INPUT, OPAQUE, PART, REDUCE, RESHAPE, UPDATE
from fxgrad.tools.profiling.lowering import lower_flow

MOST_TRIED = 16
"""For each temporary at most this many results are tried as its place."""


class CompilerModel:
    """The model of a program: `live_ranges` of its buffers, and the bytes that it needs beside the arguments.

    `made` has its instructions and `groups` the fusion groups. `order` has the instructions that head a group, in
    execution order. `results` is the bytes of the results, each of which has memory of its own; `temporary` is the peak
    bytes of everything else. A value may be placed in the memory of a result, and takes no memory of its own then.
    `total` is the sum. With a `region`, the body of a loop, `live_ranges` leave out the carried and stacked values.
    """

    def __init__(self, flow: Flow, region: Region | None = None) -> None:
        self.flow = flow
        self.made = lower_flow(flow, region)
        ends = [self.made.of[value] for value in flow.outputs if value >= 0] if region is None else \
            self.made.ends(region)
        self.groups = Grouping(self.made, ends)
        # The instruction whose memory holds the value of each; a reshape that is not fused shares memory.
        self._base: dict[int, int] = {}
        for node in self.groups.order:
            alone = self.made.kinds[node] == RESHAPE and node not in self.groups.members
            self._base[node] = self._base[self.groups.reads[node][0]] if alone else node
        self.order = self._order_groups()
        self._places = {node: place for place, node in enumerate(self.order)}
        self._alike: dict[int, list[int]] = {}  # memory that a result may share: one begins where the other ends
        self.live_ranges = self._live_ranges(region, ends)
        self._results = {base for node in ends if (base := self._base[node]) in self.live_ranges.begin}
        self.results = sum(self.made.sizes[self.made.of[value]] for value in flow.results)
        self.temporary = 0 if region is not None else self._temporary()

    @property
    def total(self) -> int:
        """Return the bytes of temporaries and results."""
        return self.temporary + self.results

    def regions_of(self, head: int) -> tuple[Region, ...]:
        """Return the regions of an instruction."""
        made = self.made
        return self.flow.equations[made.steps[head]].regions if made.kinds[head] == OPAQUE else ()

    def values(self) -> dict[int, int]:
        """Map instructions to values of the flow; instructions that only the compiler adds are left out."""
        found: dict[int, int] = {}
        for value, node in self.made.of.items():
            found.setdefault(self._base.get(node, node), value)
        return found

    def moved(self, head: int) -> int:
        """Return the bytes that the group of an instruction reads and writes, each value once."""
        sizes, base = self.made.sizes, self._base
        if self.made.kinds[head] == PART and self.regions_of(self.made.reads[head][0]):
            return 0
        own = {head} if base[head] == head else set()
        return sum(sizes[node] for node in own.union([base[each] for each in self.groups.reads[head]])) if own else 0

    # --- the order ----------------------------------------------------------------------------------------

    def _order_groups(self) -> list[int]:
        """Order groups breadth first, as they become ready; arguments are ready before constants."""
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
            before = {*groups.reads[node], *self._awaited_groups(node)}
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
        """Return whether a constant is an operand: of arrays filled with it, and of reductions outside of loops."""
        made, groups = self.made, self.groups
        members = groups.members.get(node)
        if members is None:
            return made.kinds[node] == REDUCE or not made.reads[node]
        return node in groups.library and any(made.kinds[each] == REDUCE for each in members)

    def _awaited_groups(self, node: int) -> Iterator[int]:
        """Yield the groups that a recomputed instruction waits for, though it does not read them."""
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

    # --- live ranges ----------------------------------------------------------------------------------------

    def _live_ranges(self, region: Region | None, ends: list[int]) -> LiveRanges:
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
            return LiveRanges(moments, end, made.sizes.__getitem__)
        return self._loop_live_ranges(region, moments, end)

    def _loop_live_ranges(self, region: Region, moments: list[Moment], end: dict[int, int]) -> LiveRanges:
        """Return the live ranges in the body of a loop, where each carried value lives until the next replaces it."""
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
            # The groups that must have run before this one.
            before: set[int] = set()
            stack = [node]
            while stack:
                for each in self.groups.reads[stack.pop()]:
                    if each not in before:
                        before.add(each)
                        stack.append(each)
            if not readers - {node} <= before:  # a reader may run after the value is overwritten
                copied.append(old)
                there.add(node)
            elif node not in readers or old in moments[self._places[node]].over:
                there.add(node)
        return LiveRanges(moments, end, lambda node: 0 if node in there or node in made.in_place else made.sizes[node],
                         carried, copied)

    def _inside(self, node: int) -> int:
        """Return the work space of a loop or a branch."""
        made, flow = self.made, self.flow
        step = made.steps[node]
        equation = flow.equations[step]
        if equation.primitive.regions is None:
            return 0
        return max(map(_region_bytes, equation.regions), default=0)

    def _over(self, node: int, own: list[int]) -> list[int]:
        """Return the operands that the result of a group may be written over."""
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
        found = [each for each in groups.reads[node] if made.shapes[each] == shape and made.sizes[each] == size]
        members = groups.members.get(node)
        if found and members is not None:
            bad = self._read_in_parts(members)
            found = [each for each in found if each not in bad]
        if found:
            self._alike[node] = [base[each] for each in found]
        return [each for each in found if base[each] == each and made.kinds[each] != PART]

    def _read_in_parts(self, members: list[int]) -> set[int]:
        """Return the instructions that a group reads at other indices than it writes."""
        made = self.made
        within = {*members}
        bad: set[int] = set()  # instructions that are read so
        for each in members:  # users precede their operands
            if made.kinds[each] != ELEMENT or each in bad:
                bad.update(made.reads[each])
        pending = [each for each in bad if each in within]
        while pending:
            each = pending.pop()
            for read in made.reads[each]:
                if read not in bad:
                    bad.add(read)
                    if read in within:
                        pending.append(read)
        return bad

    def _temporary(self) -> int:
        """Return the peak of live bytes of temporaries, without those placed in the memory of a result.

        If a result overwrites a value, the value is placed in the result's memory, and so is a value that it
        overwrites.
        """
        ranges, sizes = self.live_ranges, self.made.sizes
        begin, end, taken = ranges.begin, ranges.end, ranges.taken
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
        temporaries = [node for node in begin if node not in used and node not in under and ranges.held[node]]
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
        for place, moment in enumerate(ranges.moments):
            alive += change[place]
            most = max(most, alive + moment.inside)
        return most


@program_property
def compiler_model(program: Program) -> CompilerModel:
    """Return the model of a program."""
    return CompilerModel(flow_of(program))


def temporary_bytes(program: Program, bytes_of: Callable[[Variable], int]) -> int:
    """Return the bytes that a compiled program needs beside arguments and results, for sizes given by `bytes_of`."""
    flow = Flow(program)
    flow.sizes = [bytes_of(var) for var in flow.variables]
    return CompilerModel(flow).temporary


def _region_bytes(region: Region) -> int:
    """Return the bytes that a region needs beside its inputs, its carry, and the results of its operation."""
    program = region.program
    if any(link.how in ("carry", "entry") for link in region.inputs):
        return CompilerModel(flow_of(program), region).live_ranges.peak
    return compiler_model(program).temporary
