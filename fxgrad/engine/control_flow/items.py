"""Items of lists, dicts and arrays in converted code: read and assigned, also where a traced index selects them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import dtypes, tree
from fxgrad.engine.control_flow.aliases import may_be
from fxgrad.engine.control_flow.blocks import block, is_unknown, refuse
from fxgrad.engine.control_flow.containers import note_change
from fxgrad.engine.control_flow.structures import (
    ChosenMember,
    UnknownLength,
    containers_in,
    flatten,
    is_growing,
    is_record,
    joint_type,
    stacked,
    unflatten,
    with_article,
)
from fxgrad.engine.core.avals import array_aval
from fxgrad.engine.frontend.views import is_view
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ControlFlowError
from fxgrad.numpy.indexing import getitem

# --- items that are read ----------------------------------------------------------------------------------------------


def number_name(value: Any) -> str:
    """Return the name of the type of Python's that a traced value stands for a number of; "" for arrays and others."""
    if type(value) is not Tracer or value.shape or not value.weak_type:
        return ""
    return {"b": "bool", "f": "float", "c": "complex"}.get(dtypes.kind_of(value.dtype), "int")


def select(container: Any, index: Any) -> Any:
    """Return `container[index]`; a traced index selects from NumPy arrays and lists of numbers too."""
    if type(index) in (slice, tuple) and has_unknown_bound(index):
        raise refuse_bound(container)
    parts = entries_of(index)
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
                return unflatten(flat[0].structure, [select([*row], index) for row in rows])
            try:
                return may_be(stacked(container)[as_number(index)], container)
            except (TypeError, ValueError):
                raise refuse(f"a traced index selects from a {type(container).__name__} whose items are not arrays of "
                             "one shape. Keep them in one array, or choose with fxgrad.lax.switch") from None
        if isinstance(container, str | bytes):
            raise _without_text(container)
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


def has_unknown_bound(index: Any) -> bool:
    """Return whether a bound of a slice in an index is traced."""
    return any(isinstance(each, slice) and any(map(is_unknown, (each.start, each.stop, each.step)))
               for each in entries_of(index))


def refuse_bound(container: Any = None) -> ControlFlowError:
    """Return the error for a slice, of a container or else of an array, whose length must be known."""
    if isinstance(container, str | bytes):
        return _without_text(container)
    if isinstance(container, list | tuple):
        return refuse(f"a bound of this slice of a {type(container).__name__} is traced, and so would be its length. "
                      "Make an array of the items before, x = np.array(xs), and write x[a:b]; or go over the items in "
                      "a loop with an `if`")
    return refuse("a bound of this slice is traced, and its length must be known. Write "
                  "fxgrad.lax.dynamic_slice(x, (start,), (length,)), or go over the items in a loop with an `if`")


def _without_text(text: str | bytes) -> ControlFlowError:
    return refuse(f"a traced index selects from a {type(text).__name__}, and compiled functions compute with numbers "
                  "alone. Select from the numbers of the characters, [*map(ord, text)][i], or return the index and "
                  "look the text up outside")


def entries_of(index: Any) -> tuple[Any, ...]:
    """Return the entries of an index, one or several."""
    return index if isinstance(index, tuple) else (index,)


def as_number(index: Any) -> Any:
    """Return a traced index of a list; there True is 1, and no mask."""
    return index.astype("int32") if getattr(index, "dtype", None) == np.bool_ else index


def from_front(number: Any, size: Any) -> Any:
    """Return a traced index of an axis or a list as the number of the element; negative ones count from the end."""
    return fnp.where(fnp.less(number, 0), number + size, number)


# --- objects that change ----------------------------------------------------------------------------------------------


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


def refuse_position(name: str) -> ControlFlowError:
    """Return the error for a change by position of a list of which a traced condition decides how long it is."""
    return refuse(f"{name} of a list of which a traced condition decides how long it is: the place of an item is "
                  "traced. Write into an array of the greatest length, x[n] = v, and count n; .append(v) and .pop() "
                  "change such a list")


class Place:
    """What stands in the place of an object whose items are assigned."""

    def place(self, index: Any) -> Any:
        """Return the place `self[index]`, whose items change."""
        return self[index]  # type: ignore[index]


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
        self._require_places()
        return select(self.items, index)

    def _require_places(self) -> None:
        if is_growing(self.items):
            raise refuse_position("an assignment to an item")

    def __delitem__(self, index: Any) -> None:
        self._require_places()
        del self.items[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._require_places()
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

    def __getitem__(self, index: Any) -> Any:
        inner = [select_place(row, index) for row in self._rows]
        if all(type(each) in (list, _Rows) for each in inner):
            return _Rows(inner, self._number)
        return select(inner, self._number)

    def __setitem__(self, index: Any, value: Any) -> None:
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
