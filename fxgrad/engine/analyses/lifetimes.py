"""How long values are alive over steps in an order, what is alive at each step, and at which step that is most."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple


class Moment(NamedTuple):
    """A position in the order: the step, what it reads and makes anew (values that have memory), and work space.

    `over` are the operands whose memory its result may take if they are needed no more.
    """

    step: int
    reads: Collection[int]
    makes: Sequence[int]
    inside: int = 0
    over: Collection[int] = ()


class Lifetimes:
    """When values are alive: from the position `begin` to the position `end`, both included.

    `live` has the bytes at each position, `peak` the most of them, `peak_at` the first position that has so many.
    `held` are the bytes of each value, 0 where it lies in memory that is not counted. Inputs that are `writable` are
    there and may be written over, and those that are `copied` take memory from the beginning.
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
        """The values that have memory of their own at a position, the largest first."""
        overwritten = {under: self.begin[value] for value, under in self.taken.items()}
        found = [value for value, start in self.begin.items()
                 if start <= position <= self.end.get(value, -1) and self.held[value]
                 and overwritten.get(value, position + 1) > position]
        return sorted(found, key=lambda value: -self.held[value])
