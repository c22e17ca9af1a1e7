"""Lists of which a traced condition decides how long they are: their items may be absent, and they are read as arrays.

After `if v > 0: out.append(v)` the list has an item that is there if the condition was true. So it has as many places
on both sides of the condition, in their order; what reads it, such as `len(out)` or `np.mean(out)`, gets the items that
are there.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

from fxgrad import numpy as fnp
from fxgrad.engine import tree
from fxgrad.engine.api.checking import check
from fxgrad.engine.control_flow.aliases import Shared
from fxgrad.engine.control_flow.blocks import refuse
from fxgrad.engine.control_flow.slices import TracedSlice, chosen_rows
from fxgrad.engine.control_flow.structures import (
    ChosenMember,
    Flat,
    PossibleItem,
    containers_in,
    flatten,
    is_growing,
    stacked,
    unflatten,
)
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.ops.comparison import and_, or_
from fxgrad.engine.tree import TreeDef

NATIVE_METHODS = ("append", "extend", "clear", "copy", "reverse", "__iadd__")
"""Methods of lists that do to the places of items what they do to the items."""

Places = list[Flat | None]
"""For each place of a list the item that may be there, without its value; None for an item that is there."""


def place_of(item: Any) -> tuple[Any, Any]:
    """Return whether an item of a list is there, and the item."""
    return (item.is_there, item.value) if type(item) is PossibleItem else (True, item)


# --- the sides of a condition -----------------------------------------------------------------------------------------


def places_of(one: Flat | None, other: Flat | None, in_loop: bool = False) -> Places | None:
    """Return the places that a list needs which two sides leave with others; None if it is none, or has no arrays.

    Those before and after a turn `in_loop` stay as many, or fewer, and each item may go in a later turn.
    """
    if one is None or other is None or one.structure == other.structure:
        return None
    lists = [unflatten(flat.structure, flat.leaves) for flat in (one, other)]
    if any(type(each) is not list for each in lists) or (in_loop and len(lists[0]) < len(lists[1])):
        return None
    found: Places = []
    for number in range(max(map(len, lists))):
        items = [each[number] for each in lists if number < len(each)]
        if len(items) == 2 and not in_loop and not any(type(each) is PossibleItem for each in items):
            found.append(None)
            continue
        inside = [flatten(place_of(each)[1]) for each in items]
        if any(flat.structure != inside[0].structure or None in flat.avals or any(
                type(leaf) is ChosenMember for leaf in flat.leaves) for flat in inside) or containers_in((*items,)):
            return None
        found.append(inside[0])
    return found if any(found) else None


def with_places(items: Sequence[Any], places: Places, placeholder: Callable[[Aval], Any]) -> list[Any]:
    """Return the items of a list in these places; at the end are those that it does not have."""
    found: list[Any] = []
    for number, inside in enumerate([*places, *[None] * (len(items) - len(places))]):
        if number >= len(items):
            assert inside is not None
            value = unflatten(inside.structure, [placeholder(aval) for aval in inside.avals if aval is not None])
            found.append(PossibleItem(False, value))
        else:
            item = items[number]
            found.append(item if inside is None or type(item) is PossibleItem else PossibleItem(True, item))
    return found


# --- what reads and changes lists -------------------------------------------------------------------------------------


def present(value: Any) -> Any:
    """Return the items of a list that are there, as an array whose length is traced; other values unchanged."""
    if not is_growing(value):
        return value
    found, structure = columns(value)
    if structure.num_nodes > 1:
        raise refuse("a list of tuples, of which a traced condition decides how long it is, is read as an array. Go "
                     "over it in a `for` statement, or keep a list for each part of the tuples")
    return found[0]


def rows_of(value: Any) -> Any:
    """Return the items of a list for a function of arrays: as `present` does, with tuples of numbers as rows."""
    if not is_growing(value) or not any(type(place_of(each)[1]) is tuple for each in value):
        return present(value)
    parts, structure = columns(value)
    if structure.num_nodes != len(parts) + 1 or any(part.ndim > 1 for part in parts):
        return present(value)
    return parts[0].with_rows(fnp.moveaxis(stacked([part.values for part in parts]), 0, 1))


def columns(items: list[Any]) -> tuple[list[Any], TreeDef]:
    """Return the parts of the items that are there, each as an array whose length is traced, and their structure."""
    flat: list[tuple[list[Any], Any]] = [tree.flatten(place_of(each)[1]) for each in items]
    mask = fnp.stack(_flags(items))
    if all(structure == flat[0][1] for _, structure in flat):
        with contextlib.suppress(TypeError, ValueError):
            return [_marked(chosen_rows(stacked(parts), mask), parts) for parts in zip(*(
                leaves for leaves, _ in flat), strict=True)], flat[0][1]
    raise refuse("the items differ of a list of which a traced condition decides how long it is. They must be numbers, "
                 "arrays of one shape, or tuples of these")


def _marked(rows: TracedSlice, arrays: Sequence[Any]) -> TracedSlice:
    """Return the rows that stand for arrays in a list, marked as these: a change of one would be a change of both."""
    if rows.ndim > 1:
        rows.values.viewed = Shared(arrays)
    return rows


def _flags(items: Sequence[Any]) -> list[Any]:
    return [place_of(each)[0] for each in items]


def has_items(value: Any) -> Any:
    """Return the truth of a list, whether it has items, if a traced condition decides that; other values unchanged."""
    if not is_growing(value):
        return value
    flags = _flags(value)
    return True if any(each is True for each in flags) else fnp.any(fnp.stack(flags))


def popped(items: list[Any]) -> Any:
    """Remove the last item that is there from a list, and return it; a check of the program fails if there is none."""
    last = items.pop()
    if type(last) is not PossibleItem:
        return last
    value, is_found = last.value, last.is_there
    for number in reversed(range(len(items))):
        flag, inside = place_of(items[number])
        value = tree.map(functools.partial(fnp.where, is_found), value, inside)
        items[number] = PossibleItem(is_found if flag is True else and_(flag, is_found), inside)
        if flag is True:
            return value
        is_found = or_(is_found, flag)
    check(is_found, "pop from empty list")
    return value
