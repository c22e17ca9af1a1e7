"""What converted code calls in the place of `while` and `for`: turns that Python runs, or a loop of the program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import FunctionType
from typing import Any

from fxgrad.engine.control_flow.blocks import (
    ProbeEnds,
    Thunk,
    is_unknown,
    probed_turn,
    refusals,
    refuse,
    refuse_in_try,
)
from fxgrad.engine.control_flow.branches import branch as stage_branch
from fxgrad.engine.control_flow.conditions import boolean, not_
from fxgrad.engine.control_flow.growing import has_items
from fxgrad.engine.control_flow.loops import Counter, Mark, loop
from fxgrad.engine.control_flow.printing import held
from fxgrad.engine.control_flow.sequences import ENDLESS, Sequences, as_sequence
from fxgrad.engine.control_flow.structures import UnknownLength, is_growing
from fxgrad.engine.control_flow.variables import Names, Passed, cells_of, names_of_block
from fxgrad.engine.tracing.tape import current
from fxgrad.numpy import less


class _Turns:
    """A probed first turn: its prints wait until it is certain that Python runs it."""

    def __enter__(self) -> list[Thunk]:
        self._prints: list[Thunk] = []
        self._outer = held.get()
        self._token = held.set(self._prints)
        return self._prints

    def __exit__(self, *_: object) -> None:
        held.reset(self._token)
        for shown in self._prints:
            if self._outer is None:
                shown()
            else:
                self._outer.append(shown)


def while_(test: FunctionType, body: FunctionType, live: Sequence[str], turn: Sequence[str], stored: Sequence[str],
           passed: Passed, optional: Sequence[str] = (), endless: bool = False) -> None:
    """Run `while test(): body()`; an `endless` one has a test that is always true, and no statement that leaves it.

    An endless loop whose turns have checks, such as those of a function that raises, is one loop of the program, which
    a check ends.
    """
    if current.get() is None:  # all values are known
        while test():
            body()
        return
    names = functools.partial(names_of_block, live, turn, stored, passed, optional)
    mark = Mark(cells_of(test, body))
    condition = has_items(test())
    if is_unknown(condition):
        _stage_while(mark, test, body, names, guaranteed=False)
        return
    if not condition:
        return
    with _Turns() as prints, mark:
        body()
        condition = has_items(test())
        if is_unknown(condition) or (endless and mark.has_checks()):  # a guess: it is traced from its beginning
            prints.clear()
            _stage_while(mark, test, body, names, guaranteed=True)
            return
    while condition:
        body()
        mark = Mark(cells_of(test, body))
        condition = has_items(test())
        if is_unknown(condition):
            _stage_while(mark, test, body, names, guaranteed=False)
            return


def _stage_while(mark: Mark, test: FunctionType, body: FunctionType, names: Callable[[], Names], *,
                 guaranteed: bool) -> None:
    refuse_in_try("while")
    mark.rewind()
    loop("while", test, body, names(), None, guaranteed=guaranteed)


def for_(iterable: Any, body: FunctionType, stopped: FunctionType | None, live: Sequence[str], turn: Sequence[str],
         stored: Sequence[str], passed: Passed, optional: Sequence[str] = ()) -> None:
    """Run `for item in iterable: body(item)` until `stopped()`."""
    iterable = as_sequence(iterable) if isinstance(iterable, UnknownLength) or is_growing(iterable) else iterable
    items, names = iterable, functools.partial(names_of_block, live, turn, stored, passed, optional)
    if isinstance(iterable, Sequences):
        if is_unknown(iterable.length):
            refuse_in_try("for")
            begin = Mark(cells_of(stopped, body))
            try:
                _stage_for(iterable, body, stopped, names, guaranteed=False)
            except refusals as error:
                if iterable.most is None or not getattr(error, "is_of_items", False):
                    raise
                begin.rewind()
                _unroll_to_most(iterable, body, stopped, names)
            return
        items = iterable.plain()
    if stopped is None:
        for item in items:
            body(item)
        return
    counted = None if current.get() is None else as_sequence(iterable)
    mark = None if counted is None else Mark(cells_of(stopped, body))
    rest = iter(items)
    for number, item in enumerate(rest):
        with _Turns() as prints, mark or nullcontext():
            is_probed = counted is not None and not number
            try:
                with probed_turn([*cells_of(stopped).values()] if is_probed else ()):
                    body(item)
                stop = not_(stopped())
                is_staged = is_probed and is_unknown(stop)
            except ProbeEnds:
                is_staged = True
            if is_staged:
                assert counted is not None
                assert mark is not None
                prints.clear()
                mark.rewind()
                if not _stage_turns(counted, 0, body, stopped, names):
                    for each in items:
                        _guarded_turn(each, body, stopped, names)
                return
        if is_unknown(stop):
            if counted is None or not _stage_turns(counted, number + 1, body, stopped, names):
                for each in rest:
                    _guarded_turn(each, body, stopped, names)
            return
        if stop:
            return


def _stage_turns(sequence: Sequences, begin: int, body: FunctionType, stopped: FunctionType, names: Callable[[], Names],
                 ) -> bool:
    """Run the turns from the number `begin` as a loop, and return True; False if each is to be recorded for itself.

    That is so of a loop that is refused because a list gets longer in each turn, and after the first turns of any that
    is, if few are left.
    """
    refuse_in_try("for")
    rest = sequence if begin == 0 else Sequences(
        sequence.length - begin, lambda number: sequence.item(number + begin), sequence.plain)
    mark = Mark(cells_of(stopped, body))
    try:
        _stage_for(rest, body, stopped, names, guaranteed=begin == 0)
    except refusals as error:
        grows = getattr(error, "is_of_items", False) and not is_unknown(rest.length) and not _is_endless(sequence)
        if not grows and (begin == 0 or rest.length > _FEW_TURNS):
            raise
        mark.rewind()
        return False
    return True


_FEW_TURNS = 32
"""As many turns of which a traced condition ends one may each be recorded, if a loop of them is refused."""


def _unroll_to_most(sequence: Sequences, body: FunctionType, stopped: FunctionType | None, names: Callable[[], Names],
                    ) -> None:
    """Record each turn that there may be for itself, in a loop that is refused because a list gets longer in each."""
    assert sequence.most is not None
    for number in range(sequence.most):
        def going(number: int = number) -> Any:
            return boolean("and", less(number, sequence.length), *([] if stopped is None else [stopped]))

        _guarded_turn(sequence.item(number), body, going, names)


def _guarded_turn(item: Any, body: FunctionType, stopped: Thunk, names: Callable[[], Names]) -> None:
    """Run a turn unless the loop has stopped, which may be traced."""
    going = stopped()
    if is_unknown(going):
        refuse_in_try("for")
        turn = FunctionType(body.__code__, body.__globals__, body.__name__, (item,), body.__closure__)
        stage_branch(going, turn, None, names(), "rest")
    elif going:
        body(item)


def _stage_for(sequence: Sequences, body: FunctionType, stopped: FunctionType | None, names: Callable[[], Names],
               *, guaranteed: bool) -> None:
    loop("for", stopped, body, names(), Counter(sequence.length, sequence.item), guaranteed=guaranteed)


def require_end(items: Any, what: str) -> None:
    """Raise if a loop over items, which would be unrolled, has no end."""
    if isinstance(items, Sequences) and _is_endless(items):
        raise refuse(f"{what}. Write `while True`, and count the turns: k += 1")


def _is_endless(sequence: Sequences) -> bool:
    return type(sequence.length) is int and sequence.length == ENDLESS
