"""Items of lists, dicts and arrays that converted code assigns, also where a traced index selects them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine.control_flow import positions
from fxgrad.engine.control_flow.aliases import may_be
from fxgrad.engine.control_flow.blocks import block, is_unknown, refuse
from fxgrad.engine.control_flow.containers import note_change
from fxgrad.engine.control_flow.items import (
    as_number,
    from_front,
    has_unknown_bound,
    number_name,
    refuse_bound,
    select,
)
from fxgrad.engine.control_flow.structures import (
    PossibleItem,
    UnknownLength,
    is_growing,
    is_record,
    joint_type,
    stacked,
    with_article,
)
from fxgrad.engine.core.avals import array_aval
from fxgrad.engine.ops.comparison import or_
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line


def mutable(target: Any) -> Any:
    """Return the object whose items are about to change; raise if a traced block did not make it."""
    if isinstance(target, Place):
        return target
    if type(target) in (list, dict) and note_change(target):
        return ListItems(target) if type(target) is list else target
    return _only_of_block(target)


def assigned(target: Any) -> Any:
    """Return the same for an object of which an item is assigned, which numbers do not have."""
    if (name := number_name(target)):
        raise TypeError(at_user_line(f"{name!r} object does not support item assignment"))
    return mutable(target)


def attributed(target: Any) -> Any:
    """Return the object whose attributes are about to change; raise if a traced block did not make it."""
    return target if is_record(target) and note_change(target) else _only_of_block(target)


def _only_of_block(target: Any) -> Any:
    around = block.get()
    if around is None or id(target) in around.made or type(target) is Tracer or isinstance(
            target, UnknownLength | int | float | complex | str | bytes | tuple | frozenset | np.generic | type(None)):
        return target
    is_array = array_aval(target) is not None
    kind = "array" if is_array else type(target).__name__
    way = ("Change a copy that has a name of its own: x = x.copy(), then x[i] = v" if is_array else
           f"Change a copy of it: x = {kind}(x)" if type(target) in (list, dict, set) else
           "Make it an array of NumPy's before: x = np.array(x)" if kind == "array" else
           "Assign the new value to a name, and change the object after the block")
    raise refuse(f"{with_article(kind)} is changed inside {around.text}, which is traced once and may run never or "
                 f"often. {way}")


class Place:
    """What stands in the place of an object whose items are assigned."""

    def place(self, index: Any) -> Any:
        """Return the place `self[index]`, whose items change."""
        return self[index]  # type: ignore[index]


class ItemInPlace(Place):
    """An array in a list whose length is traced, which would change in place: it is computed, and not in the list."""

    def refused(self, *_: Any) -> NoReturn:
        """Raise, since no change would reach the list."""
        raise refuse("an array changes in place in a list of which a traced condition decides how long it is. Assign "
                     "the item: row = xs[i].copy(), then row[k] = v and xs[i] = row")

    def place(self, index: Any) -> Any:  # noqa: ARG002
        """Return the place of a part."""
        return self

    __getitem__ = __setitem__ = __delitem__ = refused

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.refused()


def select_place(container: Any, index: Any) -> Any:
    """Return `container[index]` to change its items: of lists that a traced index selects among, the one."""
    if isinstance(container, Place):
        return container.place(index)
    if type(container) is list and type(index) is Tracer and is_unknown(index) and container and all(
            type(each) is list for each in container):
        return _Rows(container, index)
    return select(container, index)


class ListItems:
    """A list whose items are assigned: a traced index selects among them."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __getitem__(self, index: Any) -> Any:
        return positions.item(self.items, index)

    def __delitem__(self, index: Any) -> None:
        if is_growing(self.items) or is_unknown(index) or has_unknown_bound(index):
            positions.delete(self.items, index)
        else:
            del self.items[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        if is_growing(self.items) or (is_unknown(index) and any(type(each) is tuple for each in self.items)):
            positions.assign(self.items, index, value)
            return
        if has_unknown_bound(index):
            raise refuse_bound(self.items)
        if not is_unknown(index):
            self.items[index] = value
            return
        try:  # with the value among the items, all get the type that fits
            whole = stacked([*self.items, value])
        except (TypeError, ValueError):
            raise refuse("a traced index selects an item of a list to assign, and the items and the value are not "
                         "arrays of one shape. Keep them in one array, and write x[i] = v") from None
        sources = [*self.items, value]
        self.items[:] = [may_be(each, sources) for each in fnp.unstack(whole[:-1].at[as_number(index)].set(whole[-1]))]


class _Rows(Place):
    """The containers of a list of lists, of which a traced index selects one: its items are read and assigned."""

    def __init__(self, rows: Sequence[Any], index: Any) -> None:
        self._rows, self._number = rows, from_front(as_number(index), len(rows))

    def _differ(self) -> bool:
        """Return whether the lists have lengths of their own."""
        return not any(type(each) is _Rows for each in self._rows) and (
            any(map(is_growing, self._rows)) or len({*map(len, self._rows)}) > 1)

    def __getitem__(self, index: Any) -> Any:
        if self._differ():
            return positions.item(positions.chosen_list([*self._rows], self._number), index)
        inner = [select_place(row, index) for row in self._rows]
        if all(type(each) in (list, _Rows) for each in inner):
            return _Rows(inner, self._number)
        return select(inner, self._number)

    def append(self, value: Any) -> None:
        """Append a value to the list that the index selects: it may be there in each."""
        for row, is_chosen in self._lists():
            row.append(PossibleItem(is_chosen, value))

    def extend(self, values: Any) -> None:
        """Append values to the list that the index selects."""
        for value in [*values]:
            self.append(value)

    def pop(self, index: Any = -1) -> Any:
        """Remove an item from the list that the index selects, and return it."""
        found = positions.item(positions.chosen_list([*self._rows], self._number), index)
        for row, is_chosen in self._lists():
            there, numbers, length = positions.numbered(row)
            positions.drop(row, fnp.unstack(there & fnp.equal(numbers, from_front(index, length)) & is_chosen)
                           if row else [])
        return found

    def _lists(self) -> list[tuple[list[Any], Any]]:
        """Return the lists, which are about to change, and for each whether it is the one."""
        if any(type(each) is not list for each in self._rows):
            self._refuse("this method")
        positions.number_in_range(self._number, len(self._rows), "list index out of range")
        found = {id(row): row for row in self._rows}.values()
        for row in found:
            mutable(row)
        return [(row, functools.reduce(or_, [
            fnp.equal(self._number, place) for place, each in enumerate(self._rows) if each is row])) for row in found]

    def _refuse(self, what: str) -> NoReturn:
        raise refuse(f"{what} changes one of several lists, which a traced index selects. Go over the lists, `for k, "
                     "xs in enumerate(lists):`, and write `if k == i:` and the change of xs in the loop")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse(f".{name}()")

    def __setitem__(self, index: Any, value: Any) -> None:
        if self._differ():
            self._refuse("an assignment to an item")
        for place, row in enumerate(self._rows):
            old = row[index] if type(row) is _Rows else select(row, index)
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
