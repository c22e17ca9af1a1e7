"""Lists, dicts and objects that change in converted code: which may, in the blocks around, and what must note it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np

from fxgrad.engine.control_flow.aliases import ALONE, count_marks, current_marks, references, shared_arrays
from fxgrad.engine.control_flow.blocks import Change, ChangeLog, block, probe_logs, refuse
from fxgrad.engine.control_flow.structures import UnknownLength, copy_of, is_container, parts_of
from fxgrad.engine.tracing.tape import current
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import user_line

_made: ContextVar[dict[int, Any] | None] = ContextVar("containers_of_call", default=None)
"""Containers that converted functions made outside of traced blocks, while one is traced."""


class ConvertedCall:
    """A call of a converted function; the outermost one, while a tape records, begins the notes of all in it."""

    def __enter__(self) -> None:
        self._tokens: list[tuple[ContextVar[Any], Any]] = []
        if _made.get() is None and current.get() is not None:
            notes: dict[ContextVar[Any], Any] = {
                _made: {}, _choices: [], current_marks: WeakSet(), shared_arrays: WeakSet()}
            self._tokens = [(variable, variable.set(empty)) for variable, empty in notes.items()]

    def __exit__(self, *_: object) -> None:
        for variable, token in self._tokens:
            variable.reset(token)


def fresh(container: Any) -> Any:
    """Return an object that was just made, if it is a container: it may change in the block that made it."""
    around = block.get()
    made = _made.get() if around is None else around.made
    if made is not None and not isinstance(container, np.ndarray | Tracer | UnknownLength) and (
            around is not None or is_container(container)):
        made[id(container)] = container
    return container


def fresh_list(value: Any) -> Any:
    """Return the value of an addition, which may be a list that was just made."""
    return fresh(value) if type(value) is list else value


def is_made_here(container: Any) -> bool:
    """Return whether converted code made a container, by itself or as an item."""
    return _holds({id(each): each for each in made_containers()}, container)


def made_containers() -> list[Any]:
    """Return the containers that converted code made, outside of traced blocks and in those around."""
    found, around = [*(_made.get() or {}).values()], block.get()
    while around is not None:
        found += around.made.values()
        around = around.parent
    return found


def _holds(made: dict[int, Any], container: Any, depth: int = 3) -> bool:
    """Return whether a container is among those that were made, or an item of theirs."""
    if id(container) in made:
        return True
    items = {id(item): item for each in made.values() if is_container(each) for item in _values(each)
             if is_container(item)}
    return depth > 0 and bool(items) and _holds(items, container, depth - 1)


def _values(container: Any) -> Iterable[Any]:
    items = parts_of(container)
    return items.values() if type(items) is dict else items


def note_change(container: Any, *, is_known: bool = False) -> bool:
    """Note that a list or dict is about to change in the blocks around; return whether it may.

    It may in blocks around which the converted code made it, by itself or as an item: then the blocks give back its
    items, as they do with variables. A change `is_known` if a block that ends notes it for the blocks around.
    """
    around = outer = block.get()
    logs: list[ChangeLog] = [*probe_logs.get()]
    if not is_known:
        _refuse_choice(container)
        for choice in _choices.get() or ():
            if choice.made is not None and _among(choice.given, [container]):
                choice.made[id(container)] = container
    if around is not None and id(container) in around.made:
        if is_container(container):  # a turn that is recorded as a guess may change what the block has made before
            _log(container, logs)
        return True
    if not is_container(container):
        return around is None
    while outer is not None and not _holds(outer.made, container):
        if id(container) in outer.of_turn:  # one of several, in each turn another one
            return False
        logs.append(outer.changed)
        outer = outer.parent
    if around is not None and outer is None and not _holds(_made.get() or {}, container):
        return False
    _log(container, logs)
    return True


def _log(container: Any, logs: Sequence[ChangeLog]) -> None:
    """Add the items of a container that is about to change to the notes of changes."""
    for log in logs:
        if id(container) not in log:
            log[id(container)] = Change(container, copy_of(container), user_line())


# --- containers that a traced condition chose -------------------------------------------------------------------------


class _Choice(NamedTuple):
    """Lists and dicts that a traced block gave, those from before the block that they may be, and the user's line.

    They are made in the block around, whose `made` get them when they change: no code reads the others any more then.
    """

    given: list[Any]
    sources: list[Any]
    line: str
    made: dict[int, Any] | None


_choices: ContextVar[list[_Choice] | None] = ContextVar("choices_of_containers", default=None)


def note_choice(given: Sequence[Any], sources: Sequence[Any]) -> None:
    """Note that each list or dict in `given` may be one of `sources`, which depends on a traced condition."""
    choices = _choices.get()
    if choices is not None and given and sources:
        earlier = [each for choice in choices if _among(choice.given, sources) for each in choice.sources]
        unique = {id(each): each for each in (*sources, *earlier)}
        around = block.get()
        made = _made.get() if around is None else around.made
        choices.append(_Choice([*given], [*unique.values()], user_line(), made))


def has_choices() -> bool:
    """Return whether a list or dict may be one of two."""
    return bool(_choices.get())


def _among(containers: Sequence[Any], others: Sequence[Any]) -> bool:
    return any(one is other for one in containers for other in others)


def _refuse_choice(container: Any) -> None:
    """Raise if a list or dict is about to change that may be another one, which code of the user can still read."""
    choices = _choices.get() or []
    for choice in choices:
        alike = [choice.sources] if _among(choice.given, [container]) else []
        alike += [choice.given] if _among(choice.sources, [container]) else []
        if alike and alike[0] is choice.sources:  # others that may be one of the same
            alike += [other.given for other in choices if _among(other.sources, choice.sources)]
        if any(others[place] is not container and _is_held(others, place, choices)
               for others in alike for place in range(len(others))):  # a name for each would count as one that holds it
            name = type(container).__name__
            copied = name if type(container) in (list, dict) else "copy.copy"
            raise refuse(f"a {name} changes that is one of two, chosen by the traced condition at {choice.line}: "
                         f"whether the other one changes with it depends on the condition. Choose between copies, "
                         f"{copied}(x), or change the {name} in the block")


def _is_held(containers: list[Any], place: int, choices: Sequence[_Choice]) -> bool:
    """Return whether more than the notes in this file refer to a container: then a name or another container does."""
    key = id(containers[place])
    noted = sum(id(each) == key for choice in choices for each in (*choice.given, *choice.sources))
    noted += count_marks(containers[place]) + (key in (_made.get() or {}))
    around = block.get()
    while around is not None:
        noted, around = noted + (key in around.made), around.parent
    return references(containers, place) > ALONE + noted - 1  # `containers` is a note
