"""The traced blocks around running code, and what may not happen inside of them."""

from __future__ import annotations

import builtins
import random
import sys
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
)
from contextlib import contextmanager
from contextvars import ContextVar
from types import BuiltinFunctionType, CellType, FunctionType, GeneratorType
from typing import Any, NamedTuple, Protocol, Self
from weakref import WeakSet

import numpy as np

from fxgrad import debug
from fxgrad import numpy as fnp
from fxgrad.engine import tree
from fxgrad.engine.control_flow.structures import (
    ChosenMember,
    UnknownLength,
    containers_in,
    copy_of,
    flatten,
    is_container,
    is_record,
    joint_type,
    parts_of,
    replace_items,
    required,
    stacked,
    unflatten,
    with_article,
)
from fxgrad.engine.core.avals import array_aval
from fxgrad.engine.frontend.callback import repeats_a_run
from fxgrad.engine.frontend.flat import TracedCall
from fxgrad.engine.frontend.views import is_view
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import current
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import (
    at_user_line,
    is_library_file,
    is_user_file,
    line_at,
    running_place,
    user_line,
)
from fxgrad.errors import ConcretizationError, ControlFlowError, MutationError
from fxgrad.numpy.indexing import getitem

Thunk = Callable[[], Any]


class Block:
    """A block whose condition is traced: it is traced once, whether it runs or not, and however often."""

    def __init__(self, what: str, *, repeats: bool) -> None:
        self.what, self._place = what, running_place()
        self.parent = block.get()
        self.repeats: bool = repeats or (self.parent is not None and self.parent.repeats)
        self.depth: int = 1 if self.parent is None else self.parent.depth + 1
        self.made: dict[int, Any] = {}
        self.of_turn: dict[int, Any] = {}
        self.alone: dict[int, int] = {}  # how many references there are to arrays that only one name has
        self.changed: Changes = {}
        self.cells: Mapping[str, CellType] = {}  # the variables of a statement's block
        self.before: Mapping[str, Any] = {}  # their values before it
        self.live: Sequence[str] = ()  # those that the block gives new values
        self.is_side = False  # of a branch between statements, which a check can take the place of
        self.raised: BaseException | None = None  # by a `raise` in it

    def __enter__(self) -> Self:
        self._token = block.set(self)
        self._tries = tries.set(0)
        return self

    def __exit__(self, *_: object) -> None:
        block.reset(self._token)
        tries.reset(self._tries)

    @property
    def line(self) -> str:
        """The user's line, as messages name it."""
        return line_at(self._place)

    @property
    def text(self) -> str:
        """The block as messages name it."""
        return f"the traced `{self.what}` at {self.line}"


block: ContextVar[Block | None] = ContextVar("traced_block", default=None)
tries: ContextVar[int] = ContextVar("blocks_of_try", default=0)


class ProbeEnds(BaseException):
    """A probed turn of a loop ends: a traced condition decides whether it is the last one."""


_probe: ContextVar[tuple[Sequence[CellType], Block | None]] = ContextVar("probed_turn", default=((), None))


@contextmanager
def probed_turn(flags: Sequence[CellType]) -> Iterator[None]:
    """Within the block Python runs a turn of a loop that these flags end, to see whether they are traced."""
    token = _probe.set((flags, block.get()))
    try:
        yield
    finally:
        _probe.reset(token)


def end_probe(flag: CellType) -> None:
    """Raise `ProbeEnds` if code of a probed turn itself, in no traced block, sets a flag to a traced value."""
    flags, around = _probe.get()
    if around is block.get() and any(flag is each for each in flags):
        raise ProbeEnds


class SideRaisesError(Exception):
    """A side of a branch raises `error` whenever it runs; it is `traced` up to there."""

    def __init__(self, error: BaseException, traced: TracedCall) -> None:
        super().__init__()
        self.error, self.traced = error, traced


class _Unset:
    """The value of a variable without one."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "no value"


UNSET = _Unset()


def is_unknown(value: Any) -> bool:
    """Return whether a value is traced and has no value that Python could look at."""
    if type(value) is not Tracer or value.tape.concrete_value(value) is not None:
        return False
    if not value.tape.closed:
        value.tape.note_question()
    return True


def refuse(message: str) -> ControlFlowError:
    """Return the error for code that cannot be compiled, with the user's line."""
    return ControlFlowError(at_user_line(message))


class InTry:
    """Marks code inside of `try`, with exceptions that are caught."""

    def __enter__(self) -> None:
        tries.set(tries.get() + 1)

    def __exit__(self, *_: object) -> None:
        tries.set(tries.get() - 1)


in_try = InTry()
refusals = (ControlFlowError, ConcretizationError, MutationError)
"""Exceptions of traced code alone, which no `except` of converted code catches."""


def refuse_in_try(what: str) -> None:
    """Raise if the running code stands in a `try`: a traced condition has no exceptions of its own."""
    if tries.get():
        raise refuse(f"the condition of this `{what}` is traced and stands inside of `try`: both sides are traced "
                     "once, so no exception can depend on traced values. Move the traced code out of the `try`")


# --- lists and dicts that change ------------------------------------------------------------------------------------


class Change(NamedTuple):
    """A list or dict that changes, a copy of it from before, and the user's line."""

    container: Any
    before: Any
    line: str

    def undo(self) -> None:
        """Give the container its items from before."""
        replace_items(self.container, self.before)


Changes = dict[int, Change]
"""Changes by the identity of the container."""


def undo(changes: Changes) -> None:
    """Give containers and arrays their items from before, and forget the changes: their copies refer to arrays."""
    while changes:
        changes.popitem()[1].undo()


_local: ContextVar[dict[int, Any] | None] = ContextVar("containers_of_call", default=None)
"""Lists and dicts that converted functions made outside of traced blocks, while one is traced."""
probes: ContextVar[tuple[Changes, ...]] = ContextVar("probes", default=())
"""The changes of turns that are recorded, and undone if the next one turns out to be traced."""


class _Choice(NamedTuple):
    """Lists and dicts that a traced block gave, those from before the block that they may be, and the user's line."""

    given: list[Any]
    sources: list[Any]
    line: str


_choices: ContextVar[list[_Choice] | None] = ContextVar("choices_of_containers", default=None)
_marks: ContextVar[WeakSet[Any] | None] = ContextVar("marks_of_call", default=None)
"""Objects with the `values` of variables at an earlier place, and the `changes` of lists since."""


shared_arrays: ContextVar[WeakSet[Any] | None] = ContextVar("shared_arrays", default=None)
"""The marks that exist: a change of one of their `sources` would not reach the traced array."""


class Shared:
    """What a traced array may be, or may be a view of: `sources`; of arrays that came out of a traced block, any."""

    def __init__(self, sources: Sequence[Any]) -> None:
        self.sources = [*sources]
        marks = shared_arrays.get()
        if marks is not None:
            marks.add(self)


def may_be(value: Any, sources: Sequence[Any]) -> Any:
    """Return a value; if it is an array, it is marked as one that may be, or be a view of, one of `sources`."""
    if type(value) is Tracer and value.shape:
        value.viewed = Shared(sources)
    return value


def note_mark(mark: Any) -> None:
    """Note an object whose `values` and `changes` do not count as names for lists."""
    marks = _marks.get()
    if marks is not None:
        marks.add(mark)


def note_choice(given: Sequence[Any], sources: Sequence[Any]) -> None:
    """Note that each list or dict in `given` may be one of `sources`, which depends on a traced condition."""
    choices = _choices.get()
    if choices is not None and given and sources:
        earlier = [each for choice in choices if _among(choice.given, sources) for each in choice.sources]
        unique = {id(each): each for each in (*sources, *earlier)}
        choices.append(_Choice([*given], [*unique.values()], user_line()))


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


def _references(containers: list[Any], place: int) -> int:
    return sys.getrefcount(containers[place])


_ALONE = _references([object()], 0)


def _is_held(containers: list[Any], place: int, choices: Sequence[_Choice]) -> bool:
    """Return whether more than the notes in this file refer to a container: then a name or another container does."""
    key = id(containers[place])
    noted = sum(id(each) == key for choice in choices for each in (*choice.given, *choice.sources))
    noted += count_marks(containers[place])
    return _references(containers, place) > _ALONE + noted - 1 + (key in (_local.get() or {}))  # `containers` is a note


def count_marks(value: Any) -> int:
    """Return how many references the notes of earlier places are to a value."""
    key, noted = id(value), 0
    for mark in _marks.get() or ():
        noted += sum(id(each) == key for each in mark.values.values()) + (key in mark.changes)
        noted += _count_in(value, mark.changes)
    return noted


def count_copies(value: Any) -> int:
    """Return how many references to a value the copies of containers are that change in the blocks around."""
    around, noted = block.get(), 0
    while around is not None:
        noted += _count_in(value, around.changed)
        around = around.parent
    return noted


class Lends(Protocol):
    """The call of a function that changes arrays of its caller: `borrowers` are the variables that take them.

    Those `outside` do not, since a block around, such as an expression, would not give them back.
    """

    borrowers: list[CellType]
    outside: list[CellType]

    def count_references(self, value: Any) -> int:
        """Return how many references to a value the arguments of the call are, and notes of it."""


loans: ContextVar[tuple[Lends, ...]] = ContextVar("loans", default=())


def count_arguments(value: Any) -> int:
    """Return how many references to a value the calls around have that change arrays of their caller."""
    return sum(loan.count_references(value) for loan in loans.get())


def _count_in(value: Any, changes: Changes) -> int:
    """Return how often copies from before the changes hold a value."""
    return sum(each is value for change in changes.values() if type(change.before) in (list, dict)
               for each in (change.before.values() if type(change.before) is dict else change.before))


def note_array_change(array: Any, name: str) -> None:
    """Note an array of NumPy's that is about to change, for turns that may be undone.

    Raises if an array that came out of a traced block may be the same one.
    """
    owner = _owner(array)
    if any(_owner(source) is owner for mark in shared_arrays.get() or () for source in mark.sources):
        raise refuse(f"`{name}` changes in place, and a traced array may be the same or a view of it: one that a "
                     f"traced condition chose, or a row at a traced index. Write {name} = {name}.copy() before")
    for log in probes.get():
        if id(array) not in log:
            log[id(array)] = Change(array, array.copy(), "")


def _owner(array: Any) -> Any:
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


class LocalContainers:
    """Notes the lists and dicts that a converted function, and those that it calls, make."""

    def __enter__(self) -> None:
        self._tokens: list[tuple[ContextVar[Any], Any]] = []
        if _local.get() is None and current.get() is not None:
            self._tokens = [(_local, _local.set({})), (_choices, _choices.set([])), (_marks, _marks.set(WeakSet())),
                            (shared_arrays, shared_arrays.set(WeakSet()))]

    def __exit__(self, *_: object) -> None:
        for variable, token in self._tokens:
            variable.reset(token)


def fresh(container: Any) -> Any:
    """Return an object that was just made, if it is a container: it may change in the block that made it."""
    around = block.get()
    made = _local.get() if around is None else around.made
    if made is not None and not isinstance(container, np.ndarray | Tracer | UnknownLength) and (
            around is not None or is_container(container)):
        made[id(container)] = container
    return container


def note_change(container: Any, *, is_known: bool = False) -> bool:
    """Note that a list or dict is about to change in the blocks around; return whether it may.

    It may in blocks around which the converted code made it, by itself or as an item: then the blocks give back its
    items, as they do with variables. A change `is_known` if a block that ends notes it for the blocks around.
    """
    around = outer = block.get()
    logs: list[Changes] = [*probes.get()]
    if around is not None and id(container) in around.made:
        if is_container(container):  # a turn that is recorded as a guess may change what the block has made before
            _log(container, logs)
        return True
    if not is_known:
        _refuse_choice(container)
    if not is_container(container):
        return around is None
    while outer is not None and not _holds(outer.made, container):
        if id(container) in outer.of_turn:  # one of several, in each turn another one
            return False
        logs.append(outer.changed)
        outer = outer.parent
    if around is not None and outer is None and not _holds(_local.get() or {}, container):
        return False
    _log(container, logs)
    return True


def _log(container: Any, logs: Sequence[Changes]) -> None:
    """Add the items of a container that is about to change to the notes of changes."""
    for log in logs:
        if id(container) not in log:
            log[id(container)] = Change(container, copy_of(container), user_line())


def is_made_here(container: Any) -> bool:
    """Return whether converted code made a container, by itself or as an item."""
    return _holds({id(each): each for each in made_containers()}, container)


def made_containers() -> list[Any]:
    """Return the containers that converted code made, outside of traced blocks and in those around."""
    found, around = [*(_local.get() or {}).values()], block.get()
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


class ListItems:
    """A list whose items are assigned: a traced index selects among them."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __getitem__(self, index: Any) -> Any:
        return item(self.items, index)

    def __delitem__(self, index: Any) -> None:
        del self.items[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        if has_unknown_bound(index):
            raise refuse_bound()
        if not is_unknown(index):
            self.items[index] = value
            return
        try:  # with the value among the items, all get the type that fits
            whole = stacked([*self.items, value])
        except (TypeError, ValueError):
            raise refuse("a traced index selects an item of a list to assign, and the items and the value are not "
                         "arrays of one shape. Keep them in one array, and write x[i] = v") from None
        sources = [*self.items, value]
        self.items[:] = [may_be(each, sources) for each in fnp.unstack(whole[:-1].at[_as_number(index)].set(whole[-1]))]


class Place:
    """What stands in the place of an object whose items are assigned."""

    def place(self, index: Any) -> Any:
        """Return the place `self[index]`, whose items change."""
        return self[index]  # type: ignore[index]


class _Rows(Place):
    """The containers of a list of lists, of which a traced index selects one: its items are read and assigned."""

    def __init__(self, rows: Sequence[Any], index: Any) -> None:
        self._rows = rows
        number = _as_number(index)
        self._number = fnp.where(number < 0, number + len(rows), number)

    def __getitem__(self, index: Any) -> Any:
        inner = [place(row, index) for row in self._rows]
        if all(type(each) in (list, _Rows) for each in inner):
            return _Rows(inner, self._number)
        return item(inner, self._number)

    def __setitem__(self, index: Any, value: Any) -> None:
        for place, row in enumerate(self._rows):
            old = row[index] if type(row) is _Rows else item(row, index)
            try:
                dtype, weak = joint_type([value, old])
                new = convert(fnp.where(self._number == place, fnp.asarray(value, dtype), old), dtype, weak)
                same = np.shape(new) == np.shape(old)
            except (TypeError, ValueError):
                same = False
            if not same:
                raise refuse("a traced index selects a list to assign an item, and the items and the value are not "
                             "arrays of one shape. Keep them in one array, and write x[i, j] = v")
            mutable(row)[index] = new


def place(container: Any, index: Any) -> Any:
    """Return `container[index]` to change its items: of lists that a traced index selects among, the one."""
    if isinstance(container, Place):
        return container.place(index)
    if type(container) is list and type(index) is Tracer and is_unknown(index) and container and all(
            type(each) is list for each in container):
        return _Rows(container, index)
    return item(container, index)


def _as_number(index: Any) -> Any:
    """Return a traced index of a list; there True is 1, and no mask."""
    return index.astype("int32") if getattr(index, "dtype", None) == np.bool_ else index


def has_unknown_bound(index: Any) -> bool:
    """Return whether a bound of a slice in an index is traced."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, slice) and any(map(is_unknown, (part.start, part.stop, part.step))) for part in parts)


def refuse_bound() -> ControlFlowError:
    """Return the error for a slice whose length must be known."""
    return refuse("a bound of this slice is traced, and its length must be known. Write "
                  "fxgrad.lax.dynamic_slice(x, (start,), (length,)), or go over the items in a loop with an `if`")


def item(container: Any, index: Any) -> Any:
    """Return `container[index]`; a traced index selects from NumPy arrays and lists of numbers too."""
    if type(index) in (slice, tuple) and has_unknown_bound(index):
        raise refuse_bound()
    parts = index if isinstance(index, tuple) else (index,)
    if container is np.r_ or container is np.c_:
        return _joined(container, parts)
    if type(index) is ChosenMember and isinstance(container, dict):
        return index.among(lambda member: container[member], "the item of the dict")
    is_array = isinstance(container, np.ndarray)
    if any(type(part) is Tracer and (is_unknown(part) or (is_array and part.shape)) for part in parts) or (
            is_array and any(type(part) is list and any(type(each) is Tracer for each in part) for part in parts)):
        if is_array:
            found = getitem(container, index)
            return may_be(found, [container]) if type(found) is Tracer and is_view(index, found) else found
        if isinstance(container, list | tuple):
            flat = [flatten(each) for each in container]
            if container and isinstance(container[0], tuple) and all(
                    one.structure == flat[0].structure and None not in one.avals for one in flat) and not containers_in(
                    tuple(container)):
                rows = zip(*(one.leaves for one in flat), strict=True)
                return unflatten(flat[0].structure, [item([*row], index) for row in rows])
            try:
                return may_be(stacked(container)[_as_number(index)], container)
            except (TypeError, ValueError):
                raise refuse(f"a traced index selects from a {type(container).__name__} whose items are not arrays of "
                             "one shape. Keep them in one array, or choose with fxgrad.lax.switch") from None
        if isinstance(container, dict):
            raise refuse("a traced value is no key of a dict. Keep the values in an array, and select by position")
    return container[index]


def _joined(container: Any, parts: tuple[Any, ...]) -> Any:
    """Return `numpy.r_[parts]` or `numpy.c_[parts]`, of traced values too, in the dtype of NumPy's."""
    if not any(type(leaf) is Tracer for leaf in tree.leaves(parts)):
        return container[parts]
    zeros = tree.map(_zeros_like, parts)
    arrays = [np.r_[part] if type(part) is slice else
              fnp.asarray(part, np.asarray(zero).dtype) if type(part) in (list, tuple) else part
              for part, zero in zip(parts, zeros, strict=True)]
    return convert((fnp.r_ if container is np.r_ else fnp.c_)[tuple(arrays)], container[zeros].dtype)


def _zeros_like(value: Any) -> Any:
    """Return zeros of the type of a traced value for NumPy: a Python number for a traced one."""
    if type(value) is not Tracer:
        return value
    zeros = np.zeros(value.shape, value.dtype)
    return zeros.item() if value.weak_type and not value.shape else zeros


# --- changes of what is outside -----------------------------------------------------------------------------------


def mutable(target: Any) -> Any:
    """Return the object whose items are about to change; raise if a traced block did not make it."""
    if isinstance(target, Place):
        return target
    if type(target) in (list, dict) and note_change(target):
        return ListItems(target) if type(target) is list else target
    return _only_of_block(target)


def attributed(target: Any) -> Any:
    """Return the object whose attributes are about to change; raise if a traced block did not make it."""
    return target if is_record(target) and note_change(target) else _only_of_block(target)


def _only_of_block(target: Any) -> Any:
    around = block.get()
    if around is None or id(target) in around.made or type(target) is Tracer or isinstance(
            target, UnknownLength | int | float | complex | str | bytes | tuple | frozenset | np.generic | type(None)):
        return target
    kind = "array" if array_aval(target) is not None else type(target).__name__
    way = ("Change a copy that has a name of its own: x = x.copy(), then x[i] = v" if kind == "array" else
           f"Change a copy of it: x = {kind}(x)" if type(target) in (list, dict, set) else
           "Assign the new value to a name, and change the object after the block")
    raise refuse(f"{with_article(kind)} is changed inside {around.text}, which is traced once and may run never or "
                 f"often. {way}")


def depth() -> int:
    """Return the number of traced blocks around the running code."""
    around = block.get()
    return 0 if around is None else around.depth


def rebinding(name: str, variable: FunctionType | None = None, depth: int = 0) -> None:
    """Raise if a `global` or `nonlocal` name is assigned in a traced block that does not give it the new value.

    A block does that with a `variable` of a function around. `depth` is the number of traced blocks around that
    function, if it is converted too.
    """
    around = inner = block.get()
    cell = None if variable is None or variable.__closure__ is None else variable.__closure__[0]
    while inner is not None and inner.depth > depth:
        if cell is None or name not in inner.live or inner.cells.get(name) is not cell:
            assert around is not None
            raise refuse(f"`{name}` belongs to a scope outside and is assigned inside {around.text}, which is traced "
                         f"once and may run never or often. Return the value, and assign `{name}` after the block")
        inner = inner.parent


def raising(error: Any = None) -> Any:
    """Return an exception that is about to be raised; raise a refusal if no check can take its place."""
    around = block.get()
    if around is None:
        return error
    if error is None or not around.is_side:
        raise refuse(f"`raise` stands inside {around.text}: the block is traced whether it runs or not, so the "
                     "exception cannot depend on the condition. Give the `raise` an `if` of its own with a traced "
                     "condition, which becomes a check; or return a NaN or a flag, and raise outside of the compiled "
                     "function")
    around.raised = error() if isinstance(error, type) else error
    return around.raised


def known(value: Any, what: str) -> Any:
    """Return a condition that Python must know."""
    if is_unknown(value):
        raise refuse(f"{what} is traced, and Python must know it. Write an `if` statement, or fxgrad.numpy.where")
    return value


def known_filter(value: Any) -> Any:
    """Return whether a comprehension keeps an item, which Python must know."""
    if is_unknown(value):
        raise refuse("the filter of a comprehension is traced, and so would be the length of its list. Select from an "
                     "array, x[x > 0]; or write a loop into an array of the greatest length: if v > 0: out[n] = v, and "
                     "n += 1, and read out[:n]")
    return value


_CHANGES: dict[type, set[str]] = {
    MutableSequence: {"append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "appendleft",
                      "extendleft", "popleft", "rotate", "fromlist", "frombytes", "byteswap"},
    MutableMapping: {"update", "setdefault", "pop", "popitem", "clear", "move_to_end", "subtract"},
    MutableSet: {"add", "update", "discard", "remove", "pop", "clear", "difference_update", "intersection_update",
                 "symmetric_difference_update"}}
"""Methods that change containers of Python and of its libraries, such as a `deque` or a `Counter`."""
_CHANGES_ITEMS = {"__setitem__", "__delitem__", "__iadd__", "__ior__", "__iand__", "__isub__", "__ixor__", "__imul__"}
_HOST_RANDOM = (random.Random, np.random.RandomState, np.random.Generator)


def changes_container(owner: Any, name: str) -> bool:
    """Return whether a method of Python's or of its libraries changes the container that it belongs to."""
    return any(isinstance(owner, kind) and (name in names or name in _CHANGES_ITEMS)
               for kind, names in _CHANGES.items())


def check_method(function: Any) -> None:
    """Raise if a builtin method changes a container, or draws numbers, in a traced block that it must not."""
    owner = getattr(function, "__self__", None)
    around = block.get()
    if getattr(function, "__name__", "") in ("__setattr__", "__delattr__"):
        attributed(owner)
        return
    if around is None:
        if (probes.get() or _choices.get()) and changes_container(owner, getattr(function, "__name__", "")):
            note_change(owner)
        return
    if isinstance(owner, np.ndarray) and function.__name__ in _CHANGES_ARRAY:
        mutable(owner)
    if isinstance(owner, _HOST_RANDOM) and around.repeats:
        raise refuse(f"{function.__name__}() draws numbers on the host inside {around.text}: it would run once, and "
                     "every turn would get the same numbers. Use fxgrad.random with a key, split in each turn")
    if changes_container(owner, getattr(function, "__name__", "")) and not note_change(owner):
        hint = ("Give the loop a static length, or write into an array of that length with x[i] = v"
                if around.repeats else "Choose the value in the branch, and change the "
                f"{type(owner).__name__} after it")
        raise refuse(f".{function.__name__}() changes {with_article(type(owner).__name__)} from outside inside "
                     f"{around.text}, which is traced once. {hint}")


_CHANGES_ARRAY = {"fill", "sort", "partition", "put", "itemset", "resize", "setfield", "setflags"}
"""Methods that change an array of NumPy's."""


def check_effect(function: Any) -> None:
    """Raise if a traced block calls a function of Python or of a library without a use for its result: for an effect.

    Functions of the user's are converted, and those of fxgrad's are recorded.
    """
    around = block.get()
    name, owner = getattr(function, "__name__", ""), getattr(function, "__self__", None)
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    is_random = isinstance(owner, _HOST_RANDOM) or str(getattr(function, "__module__", "")).startswith("numpy.random")
    is_of_library = is_random or type(function) is BuiltinFunctionType or (
        code is not None and not is_user_file(code.co_filename) and not is_library_file(code.co_filename))
    is_harmless = name in _WITHOUT_EFFECT or name.startswith("assert")  # such as assert_shape, of what is known
    if around is None or not is_of_library or id(owner) in around.made or is_harmless or (
            changes_container(owner, name) or isinstance(owner, np.ndarray)):
        return
    raise refuse(f"{name}() is called for an effect inside {around.text}, which is traced once and may run never or "
                 "often. Print with print(), which runs with the program, hand a function of your own to "
                 "fxgrad.debug.callback, or do it after the block, by a value that the block gives")


_WITHOUT_EFFECT = {"flush", "collect", "breakpoint", "set_trace"}
"""Functions that are harmless, or wanted while a function is traced."""


def check_next(iterator: Any) -> None:
    """Raise if a traced block takes an item from an iterator that it did not make."""
    around = block.get()
    begun = type(iterator) is not GeneratorType or iterator.gi_frame is None or iterator.gi_frame.f_lasti > 0
    if around is not None and id(iterator) not in around.made and begun:
        raise refuse(f"next() takes an item from an iterator inside {around.text}, which is traced once and may run "
                     "never or often. Make a list or an array of the items, and count: x = items[k], then k += 1")


# --- print ----------------------------------------------------------------------------------------------------------

held: ContextVar[list[Callable[[], None]] | None] = ContextVar("held_prints", default=None)
"""Prints of a turn that may yet be traced instead."""


class Text:
    """An f-string whose values may be printed when the program runs."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = parts

    def __str__(self) -> str:
        return "".join(part if isinstance(part, str) else _format(*part) for part in self.parts)


def _format(value: Any, spec: str, conversion: str) -> str:
    convert: Any = {"r": repr, "s": str, "a": ascii}.get(conversion)
    return format(value if convert is None else convert(value), spec)


def text(*parts: Any) -> Text:
    """Return the f-string of parts: texts, and values with format and conversion."""
    return Text(parts)


def printed(*args: Any, **kwargs: Any) -> None:
    """Print as `print` does: at once, or in every run of the program if values are traced or the block is."""
    if repeats_a_run.get():
        return
    values = [leaf for arg in args for leaf in (
        [part[0] for part in arg.parts if not isinstance(part, str)] if isinstance(arg, Text) else tree.leaves(arg))]
    if kwargs.keys() - {"sep", "end"} or not (block.get() is not None or any(map(is_unknown, values))):
        waiting = held.get()
        if waiting is None:
            builtins.print(*args, **kwargs)  # noqa: T201
        else:
            shown = [str(arg) for arg in args]
            waiting.append(lambda: builtins.print(*shown, **kwargs))  # noqa: T201
        return
    form, given = [], []
    for arg in args:
        pieces, found = template(arg)
        form.append(pieces)
        given += found
    separator = kwargs.get("sep")
    debug.print((" " if separator is None else separator).join(form), *given, ordered=True)


def template(arg: Any) -> tuple[str, list[Any]]:
    """Return a format string for an object or f-string, and the values of its fields."""
    pieces: list[str] = []
    given: list[Any] = []
    for part in arg.parts if isinstance(arg, Text) else [(arg, "", "")]:
        if isinstance(part, str) or isinstance(part[0], str):
            pieces.append((part if isinstance(part, str) else _format(*part)).replace("{", "{{").replace("}", "}}"))
        else:
            value, spec, conversion = part
            pieces.append("{" + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "") + "}")
            given.append(required(value))
    return "".join(pieces), given
