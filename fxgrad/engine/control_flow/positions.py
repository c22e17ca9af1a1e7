"""Positions in lists of which a traced condition decides how long they are, and traced positions in other lists.

The items that are there have numbers, which are traced: items are read, assigned, deleted and inserted by these.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import dtypes, tree
from fxgrad.engine.api.checking import check_raise
from fxgrad.engine.control_flow.aliases import may_be
from fxgrad.engine.control_flow.blocks import is_unknown, refuse
from fxgrad.engine.control_flow.containers import fresh, note_choice
from fxgrad.engine.control_flow.growing import columns, place_of, present
from fxgrad.engine.control_flow.items import as_number, from_front, has_unknown_bound
from fxgrad.engine.control_flow.slices import TracedSlice, in_slice
from fxgrad.engine.control_flow.slices import item as item_of_array
from fxgrad.engine.control_flow.structures import PossibleItem, containers_in, is_growing, joint_type
from fxgrad.engine.ops.comparison import and_, not_, or_
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.user_lines import at_user_line


def item(container: Any, index: Any) -> Any:
    """Return `container[index]`, of a list among the items that are there; a slice of a list is a list."""
    if type(container) is list and type(index) is slice and (is_growing(container) or has_unknown_bound(index)):
        return _sliced(container, index)
    if not is_growing(container):
        return chosen_list(container, index) if is_choice(container, index) else item_of_array(
            container, present(index))
    _require_number(index)
    parts, structure = columns(container)
    return tree.unflatten(structure, [item_of_array(part, index) for part in parts])


def row(container: Any, index: Any) -> Any:
    """Return `container[index]`, of which an item is read next: a row of numbers may be an array."""
    if is_choice(container, index) and len({*map(len, container)}) == 1 and not any(
            is_growing(each) or any(type(part) in (list, tuple) for part in each) for each in container):
        return item_of_array(container, index)
    return item(container, index)


def is_choice(container: Any, index: Any) -> bool:
    """Return whether a traced index selects a list among several."""
    return type(container) is list and is_unknown(index) and bool(container) and all(
        type(each) is list for each in container)


def chosen_list(lists: list[list[Any]], index: Any) -> list[Any]:
    """Return the list at a traced index, which must not change while the others are read."""
    number = number_in_range(index, len(lists), "list index out of range")
    if len({*map(len, lists)}) == 1 and not any(map(is_growing, lists)):
        found = [item([*column], index) for column in zip(*lists, strict=True)]
    else:
        found = [_at_place(lists, place, number) for place in range(max(map(len, lists)))]
    note_choice([found], lists)
    return found


def _at_place(lists: list[list[Any]], place: int, number: Any) -> PossibleItem:
    """Return the item at a place in the list of a number; it is not there if that is shorter."""
    is_there: Any = False
    value: Any = None
    for each, items in enumerate(lists):
        if place < len(items):
            is_chosen = fnp.equal(number, each)
            flag, inside = place_of(items[place])
            is_there = or_(is_there, is_chosen if flag is True else and_(is_chosen, flag))
            value = inside if value is None else chosen_item(is_chosen, inside, value)
    return PossibleItem(is_there, value)


def number_in_range(index: Any, length: Any, message: str) -> Any:
    """Return the number of an item from the front; a check fails if there is none."""
    _require_number(index)
    number = from_front(as_number(index), length)
    check_raise(fnp.greater_equal(number, 0) & fnp.less(number, length), IndexError, message)
    return number


def numbered(items: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Return which places of a list have items that are there, the numbers of these, and how many there are."""
    flags = [place_of(each)[0] for each in items]
    there = fnp.stack(flags) if any(map(is_unknown, flags)) else np.ones(len(items), bool)
    counts = fnp.cumsum(there.astype(np.int64)) if len(items) else np.zeros(0, np.int64)
    length = len(items) if isinstance(there, np.ndarray) else convert(counts[-1], np.dtype("int64"), weak=True)
    return there, counts - 1, length


def as_items(values: Sequence[Any], length: Any) -> list[Any]:
    """Return the list of the first values, of which there are `length`, a traced number."""
    return fresh([PossibleItem(fnp.less(number, length), value) for number, value in enumerate(values)])


def items_of_slice(rows: TracedSlice) -> list[Any]:
    """Return the list of the rows of a slice with a traced bound."""
    return as_items(fnp.unstack(rows.values), rows.length)


def compacted(items: list[Any]) -> tuple[list[Any], Any]:
    """Return the items of a list, those that are there before the others, and their number."""
    if not is_growing(items):
        return [*items], len(items)
    parts, structure = columns(items)
    rows = zip(*(fnp.unstack(part.values) for part in parts), strict=True)
    return [tree.unflatten(structure, row) for row in rows], parts[0].length


def _sliced(items: list[Any], part: slice) -> list[Any]:
    there, numbers, length = numbered(items)
    if is_unknown(part.step):
        raise refuse("the step of this slice of a list is traced. Write 1 or -1, and choose between the two slices")
    kept = flags_of(there & in_slice(numbers, part, length), len(items))
    found = [PossibleItem(is_kept, place_of(each)[1]) for is_kept, each in zip(kept, items, strict=True)]
    return fresh(found if part.step is None or part.step > 0 else found[::-1])


def flags_of(mask: Any, count: int) -> list[Any]:
    """Return the elements of a mask of so many places."""
    return [*fnp.unstack(mask)] if count else []


def _require_number(index: Any) -> None:
    if not np.shape(index) and dtypes.kind_of(fnp.asarray(index).dtype) in "iub":
        return
    raise TypeError(at_user_line(f"list indices must be integers or slices, not {type(index).__name__}"))


def _selected(items: Sequence[Any], index: Any, message: str) -> tuple[Any, list[Any]]:
    """Return the number of the item at an index, and for each place whether it has it; a check fails without one."""
    there, numbers, length = numbered(items)
    number = number_in_range(index, length, message)
    return number, flags_of(there & fnp.equal(numbers, number), len(items))


def assign(items: list[Any], index: Any, value: Any) -> None:
    """Do `items[index] = value`, by the number of an item that is there."""
    if type(index) is slice:
        raise refuse("a slice is assigned of a list of which a traced condition decides how long it is. Join the "
                     "parts, xs = xs[:a] + [v] + xs[b:]; or assign the items in a loop, xs[i] = v")
    _, selected = _selected(items, index, "list assignment index out of range")
    for place, (is_selected, each) in enumerate(zip(selected, items, strict=True)):
        is_there, inside = place_of(each)
        new = chosen_item(is_selected, value, inside)
        items[place] = new if is_there is True else PossibleItem(is_there, new)


def delete(items: list[Any], index: Any) -> None:
    """Do `del items[index]`: of an item, or of those of a slice, by their numbers."""
    if type(index) is slice:
        there, numbers, length = numbered(items)
        drop(items, flags_of(there & in_slice(numbers, index, length), len(items)))
        return
    number, selected = _selected(items, index, "list assignment index out of range")
    if is_growing(items):
        drop(items, selected)
        return
    items[:] = [chosen_item(fnp.less_equal(number, place), items[place + 1], items[place])
                for place in range(len(items) - 1)]


def drop(items: list[Any], dropped: Sequence[Any]) -> None:
    """Remove the items for whose places a condition is true."""
    items[:] = [PossibleItem(not_(is_dropped) if is_there is True else and_(is_there, not_(is_dropped)), inside)
                for is_dropped, (is_there, inside) in zip(dropped, map(place_of, items), strict=True)]


def insert(items: list[Any], index: Any, value: Any) -> None:
    """Do `items.insert(index, value)`, by the number of an item that is there; as Python's, it has no bounds."""
    _require_number(index)
    values, length = compacted(items)
    number = fnp.clip(from_front(as_number(index), length), 0, length)
    found = []
    for place in range(len(values) + 1):
        new = value if place == len(values) else chosen_item(fnp.equal(number, place), value, values[place])
        found.append(chosen_item(fnp.less(number, place), values[place - 1], new) if place else new)
    items[:] = as_items(found, length + 1) if is_growing(items) else found


def chosen_item(condition: Any, one: Any, other: Any) -> Any:
    """Return one of two items by a traced condition, in the types that a list of both has."""
    leaves, others = tree.leaves(one), tree.leaves(other)
    structure: Any = tree.structure(one)
    if structure == tree.structure(other) and not containers_in((one, other)):
        with contextlib.suppress(TypeError, ValueError):
            if all(np.shape(leaf) == np.shape(old) for leaf, old in zip(leaves, others, strict=True)):
                return tree.unflatten(structure, [_chosen(condition, leaf, old) for leaf, old in zip(
                    leaves, others, strict=True)])
    raise refuse("a traced index selects an item of a list to change, and the items and the value are not arrays of "
                 "one shape, or tuples of these. Keep them in one array, and write x[i] = v")


def _chosen(condition: Any, leaf: Any, old: Any) -> Any:
    if leaf is old:
        return old
    dtype, weak = joint_type([leaf, old])
    return may_be(convert(fnp.where(condition, fnp.asarray(leaf, dtype), fnp.asarray(old, dtype)), dtype, weak), [
        leaf, old])


def zipped(*lists: Any, strict: bool = False) -> list[Any]:
    """Return `list(zip(*lists))` of lists, some of traced length."""
    found = [compacted(each if type(each) is list else [*each]) for each in lists]
    lengths = [count for _, count in found]
    length = functools.reduce(fnp.minimum, lengths)
    if strict:
        for count in lengths[1:]:
            check_raise(fnp.equal(count, lengths[0]), ValueError, "zip() arguments differ in length")
    return as_items([*zip(*(values for values, _ in found), strict=False)], length)


def with_numbers(items: list[Any], start: Any = 0) -> list[Any]:
    """Return `list(enumerate(items, start))` of a list of traced length."""
    _, numbers, _ = numbered(items)
    counted = fnp.unstack(convert(numbers, np.dtype("int64"), weak=True))
    return fresh([PossibleItem(is_there, (number + start, inside)) for number, (is_there, inside) in zip(
        counted, map(place_of, items), strict=True)])
