"""Fusion groups of the compiler model: reductions in its library, other instructions in elementwise loops."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from fxgrad.tools.profiling.instructions import (
    BROADCAST,
    CONCATENATE,
    ELEMENT,
    IOTA,
    LEAST,
    OPAQUE,
    PAD,
    PRODUCT,
    REDUCE,
    TAKE,
    TRANSPOSE,
    UPDATE,
    Instructions,
)

ROOT = -1
"""Whoever takes the results."""
_FUSED = frozenset(range(ELEMENT, REDUCE + 1))
"""Kinds that may be computed in a loop over elements, with others."""
_REUSING = frozenset({BROADCAST, TAKE})
"""Kinds that read an element of their operand several times."""
_MOST_PARTS = 8
"""Concatenations of more parts are groups of their own."""
_WIDEST = 128
"""So do those along rows that are as long as this."""
_MOST_COPIES = 15
"""Most times that an instruction is emitted in a group."""
_MOST_REDUCTIONS = 5
"""A group with more reductions fuses no other."""
_ONCE = frozenset({PAD, CONCATENATE, UPDATE, REDUCE})
"""Kinds that are emitted once in a group, and in no other."""


class Grouping:
    """The fusion groups of instructions.

    `order` has the instructions that head a group, in topological order; `reads` has the instructions that the group of
    each reads from memory, `members` those that it computes, itself included. `library` are those that the library
    computes. `users` has the groups that read an instruction.
    """

    def __init__(self, made: Instructions, results: Iterable[int]) -> None:
        self.made = made
        self.results = [*results]
        self.library: set[int] = set()
        self.members: dict[int, list[int]] = {}
        self.reads: dict[int, list[int]] = {}
        self.users: dict[int, dict[int, None]] = {}
        for node in _after_operands(self.results, made.reads):  # each needed instruction begins by itself
            self.reads[node] = [*dict.fromkeys(made.reads[node])]
            self.users[node] = {}
        for node, reads in self.reads.items():
            for each in reads:
                self.users[each][node] = None
        for node in self.results:
            self.users[node][ROOT] = None
        self.order = [*self.reads]
        self._offload()
        if self.members:
            self.order = self._after_operands()
        self._fuse()
        self.order = self._after_operands()

    def _after_operands(self) -> list[int]:
        return _after_operands(self.results, self.reads)

    # --- instructions computed by the library -------------------------------------------------------------

    def _offload(self) -> None:
        """Group reductions with instructions that only they use or that only use them, as far as the library allows."""
        made = self.made
        owner: dict[int, int] = {}
        starts = [node for node in reversed(self.order) if made.offers[node] and made.kinds[node] in (REDUCE, OPAQUE)]
        for start in starts:
            if start in owner:
                continue
            head = self._grown(start, owner)
            self.library.add(head)
        for node in self.order:
            if node not in owner and made.kinds[node] == PRODUCT and made.offers[node]:
                self.library.add(node)
        groups: dict[int, list[int]] = {}
        for node in self.order:
            if node in owner:
                groups.setdefault(owner[node], []).append(node)
        for found in groups.values():
            inside = {*found}
            head = next(node for node in found if node in self.library)
            outside = dict.fromkeys([each for node in reversed(found) for each in self.reads[node]
                                     if each not in inside])
            for each in outside:
                for node in found:
                    self.users[each].pop(node, None)
            for node in found:
                if node != head:
                    del self.reads[node], self.users[node]
            self.reads[head] = [*outside]
            self.members[head] = found
            for each in outside:
                self.users[each][head] = None

    def _grown(self, start: int, owner: dict[int, int]) -> int:
        """Grow a group from a reduction, and return its head."""
        reads, users = self.reads, self.users
        owner[start] = start
        head = start
        waiting: deque[int] = deque()

        def reach(node: int) -> None:
            for operand in reads[node]:
                if operand not in owner and all(
                        user == node or owner.get(user) == start for user in users[operand]):
                    waiting.append(operand)
            using = users[node]
            if len(using) == 1:
                user, = using
                if user != ROOT and user not in owner:
                    waiting.append(user)
        reach(start)
        while waiting:
            node = waiting.popleft()
            if node in owner or not self._is_fusible(node):
                continue
            owner[node] = start
            reach(node)
            if head in reads[node]:
                head = node
        return head

    def _is_fusible(self, node: int) -> bool:
        """Return whether the library takes an instruction into a group."""
        made = self.made
        if not made.offers[node]:
            return False
        return made.kinds[node] != ELEMENT or made.elements[node] >= LEAST or any(
            made.elements[each] >= LEAST for each in self.reads[node])

    # --- instructions computed in loops -------------------------------------------------------------------

    def _fuse(self) -> None:
        """Fuse operands into their users, starting from the results, if the rules allow it."""
        made, reads = self.made, self.reads
        place = {node: number for number, node in enumerate(self.order)}
        kept = self._stored_instructions()
        for head in reversed(self.order):
            if head not in reads or head in self.library or made.kinds[head] not in _FUSED:
                continue
            loop = None
            rest = True
            while rest:
                rest = False
                for operand in sorted(reads[head], key=place.__getitem__, reverse=True):
                    if operand in kept or not self._fits(head, operand, loop):
                        continue
                    loop = loop or _Loop(made, head)
                    self._take_in(head, operand, loop)
                    rest = True
                    break
            if loop is not None:
                self.members[head] = loop.members

    def _take_in(self, head: int, operand: int, loop: _Loop) -> None:
        reads, users = self.reads, self.users
        loop.take(operand, reads[operand])
        mine = reads[head]
        mine.remove(operand)
        del users[operand][head]
        for each in reads[operand]:
            if each not in mine:
                mine.append(each)
            users[each][head] = None
        if not users[operand]:
            for each in reads[operand]:
                users[each].pop(operand, None)
            del reads[operand], users[operand]

    def _fits(self, head: int, operand: int, loop: _Loop | None) -> bool:
        """Return whether `operand` is computed in the group of `head`, which reads it."""
        made = self.made
        kind = made.kinds[operand]
        if kind not in _FUSED or operand in self.members or operand in self.library:
            return False
        if kind == CONCATENATE and not self._is_fused_concatenation(operand):
            return False
        costly = made.costly[operand]
        if loop is None:
            if made.kinds[head] == CONCATENATE and not self._is_fused_concatenation(head):
                return False
            if costly and made.kinds[head] in _REUSING:
                return False
        elif costly and operand in loop.reused:
            return False
        if costly and len(self.users[operand]) > 1:
            return False
        return loop is None or loop.has_room(operand, kind, len(self.users[operand]))

    def _is_fused_concatenation(self, node: int) -> bool:
        """Return whether a concatenation is fused with others."""
        made = self.made
        return len(made.reads[node]) <= _MOST_PARTS and (
            made.names[node] != "in rows" or made.shapes[node][-1] < _WIDEST)

    def _stored_instructions(self) -> set[int]:
        """Return instructions that read more than they compute and do not fit into all users: these are stored."""
        made, users = self.made, self.users
        found: set[int] = set()
        known: dict[tuple[int, int], bool] = {}
        reach: dict[int, int] = {}
        for node in reversed(self.order):
            kind = made.kinds[node]
            if kind not in _FUSED or len(users[node]) < 2 or len(made.reads[node]) < 2 or node in self.library:
                continue
            rank = len([1 for size in made.shapes[node] if size != 1])
            large = [each for each in made.reads[node] if made.kinds[each] not in (BROADCAST, IOTA)
                     and len([1 for size in made.shapes[each] if size != 1]) >= rank]
            if len(large) <= 1 or sum([made.elements[each] for each in self.reads[node]]) <= made.elements[node]:
                continue
            if not reach:
                self._find_reach(reach)
            if not all(user != ROOT and self._fits_on_all_paths(node, user, found, known, reach)
                        for user in users[node]):
                found.add(node)
        return found

    def _find_reach(self, reach: dict[int, int]) -> None:
        """Set for each instruction a bit set of those that it depends on."""
        for number, node in enumerate(self.order):
            bits = 1 << number
            for each in self.reads[node]:
                bits |= reach[each]
            reach[node] = bits
        self._bit = {node: 1 << number for number, node in enumerate(self.order)}

    def _fits_on_all_paths(self, producer: int, user: int, kept: set[int], known: dict[tuple[int, int], bool],
                           reach: dict[int, int]) -> bool:
        if producer == user:
            return True
        key = producer, user
        found = known.get(key)
        if found is not None:
            return found
        bit = self._bit[producer]
        result = user not in self.library and self.made.kinds[user] in _FUSED
        if result:
            for operand in self.reads[user]:
                if reach[operand] & bit and (operand in kept or not self._fits(user, operand, None)
                                             or not self._fits_on_all_paths(producer, operand, kept, known, reach)):
                    result = False
                    break
        known[key] = result
        return result


class _Loop:
    """A group computed in a loop over the elements of its head."""

    def __init__(self, made: Instructions, head: int) -> None:
        self.made = made
        self.members = [head]
        reads = made.reads[head]
        self.reused = {*reads} if made.kinds[head] in _REUSING else {*reads[1:]} if made.kinds[head] == PAD else set()
        self._reductions = int(made.kinds[head] == REDUCE)
        self._count = {ROOT: 1, head: 1}  # how often each is emitted
        self._indexed: dict[int, set[int]] = {head: {ROOT}}
        self._index(head)

    def _index(self, node: int) -> None:
        """Note for which users the operands are emitted: those of an instruction of the same shape, or itself."""
        made, indexed = self.made, self._indexed
        for each in made.reads[node]:
            found = indexed.setdefault(each, set())
            if made.shapes[each] == made.shapes[node] and made.kinds[node] != TRANSPOSE:
                found |= indexed[node]
            else:
                found.add(node)

    def has_room(self, node: int, kind: int, users: int) -> bool:
        """Return whether the group stays small enough with an instruction."""
        if kind == REDUCE and self._reductions > _MOST_REDUCTIONS:
            return False
        if kind == BROADCAST:
            return True
        count = self._count
        copies = sum([count[each] for each in self._indexed[node]])
        return copies <= _MOST_COPIES if kind not in _ONCE else copies <= 1 and users == 1

    def take(self, node: int, reads: list[int]) -> None:
        """Compute an instruction in this group."""
        made = self.made
        self.members.append(node)
        kind = made.kinds[node]
        if node in self.reused:
            self.reused.discard(node)
            self.reused.update(reads)
        elif kind in _REUSING:
            self.reused.update(reads)
        elif kind == PAD:
            self.reused.update(made.reads[node][1:])
        self._reductions += kind == REDUCE
        users = self._indexed.pop(node)
        self._count[node] = sum([self._count[each] for each in users])
        self._indexed[node] = users
        self._index(node)


def _after_operands(results: Iterable[int], reads: dict[int, list[int]] | list[list[int]]) -> list[int]:
    """Return the needed instructions, each after those that it reads, the first operand first."""
    found: dict[int, None] = {}
    for first in results:
        stack = [first]
        while stack:
            top = stack[-1]
            if top in found:
                stack.pop()
                continue
            missing = [each for each in reads[top] if each not in found]
            if missing:
                missing.reverse()
                stack += missing
            else:
                found[top] = None
                stack.pop()
    return [*found]
