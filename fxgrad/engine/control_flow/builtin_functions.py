"""What Python's operators, builtin functions and methods of lists do with traced values: `in`, `<`, `min`, `x.pop`."""

from __future__ import annotations

import bisect
import builtins
import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, cast

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import tree
from fxgrad.engine.api.checking import check
from fxgrad.engine.api.programs import eval_shape
from fxgrad.engine.control_flow.aliases import may_be
from fxgrad.engine.control_flow.blocks import is_unknown, refuse, refuse_in_try
from fxgrad.engine.control_flow.branches import choose, choose_at_hand
from fxgrad.engine.control_flow.calls import called, replacements
from fxgrad.engine.control_flow.conditions import boolean, boolean_of, if_expression, not_
from fxgrad.engine.control_flow.containers import fresh
from fxgrad.engine.control_flow.growing import popped, present
from fxgrad.engine.control_flow.items import from_front, refuse_position
from fxgrad.engine.control_flow.iteration import require_end
from fxgrad.engine.control_flow.loops import Counter, loop
from fxgrad.engine.control_flow.numbers import as_int
from fxgrad.engine.control_flow.sequences import Sequences, as_sequence
from fxgrad.engine.control_flow.slices import TracedSlice, item
from fxgrad.engine.control_flow.structures import (
    ChosenMember,
    UnknownLength,
    containers_in,
    is_growing,
    required,
    stacked,
)
from fxgrad.engine.control_flow.variables import Names
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import current
from fxgrad.engine.tracing.tracer import Tracer


def contains(container: Any, value: Any) -> Any:
    """Return `value in container`: whether an item is the value, or equal to it."""
    container = present(container)
    if type(value) is TracedSlice:
        raise refuse("`x[a:b] in y` has a traced bound, and compares element by element. Write np.any(y == x[a:b]), or "
                     "go over the places of y in a loop")
    if type(container) is TracedSlice:
        return (container == value).any()
    is_array = type(container) is Tracer or (isinstance(container, np.ndarray) and type(value) is Tracer)
    if is_array and (is_unknown(container) or is_unknown(value)):
        return fnp.any(fnp.equal(container, value))
    if type(value) is ChosenMember and isinstance(container, dict | set | frozenset):
        return value.among(lambda member: member in container, "`in`")
    if type(container) in (list, tuple) and (_is_traced((value, *container)) or any(
            type(each) is ChosenMember for each in (value, *container))):
        return boolean("or", False, *[functools.partial(_is_equal, each, value) for each in container])
    if is_unknown(value) and type(container) is builtins.range and not np.shape(value):
        first, last = sorted((container[0], container[-1])) if container else (0, -1)
        return (value >= first) & (value <= last) & ((value - first) % abs(container.step) == 0)
    if is_unknown(value) and isinstance(container, dict | set | frozenset):
        raise refuse(f"a traced value is looked up in a {type(container).__name__}, which needs its hash. Keep the "
                     "values in a list or an array")
    return value in container


def compared(name: str, one: Any, other: Any) -> Any:
    """Return `one < other`, or what the operator of this name gives.

    Tuples, lists and dataclasses with traced items are compared item by item, as Python does.
    """
    if is_growing(one) or is_growing(other):
        raise refuse_position("a comparison")
    kind = type(one)
    if kind is type(other) and current.get() is not None and (
            isinstance(one, list | tuple) or dataclasses.is_dataclass(kind)):
        items, others = _items_to_compare(one), _items_to_compare(other)
        if items is not None and others is not None and _is_traced((items, others)):
            return _compared_items(name, items, others)
    return getattr(operator, name)(one, other)


def _items_to_compare(value: Any) -> tuple[Any, ...] | None:
    """Return the items that decide how a container compares; None for one that has a method for it."""
    kind = type(value)
    method: Any = kind.__eq__
    if method in (list.__eq__, tuple.__eq__):
        return tuple(value)
    made = getattr(method, "__code__", None)
    if made is not None and made.co_filename == "<string>":  # by `dataclass`
        return tuple(getattr(value, field.name) for field in dataclasses.fields(kind) if field.compare)
    return None


def _compared_items(name: str, one: Sequence[Any], other: Sequence[Any]) -> Any:
    if name == "ne":
        return not_(_compared_items("eq", one, other))
    if name == "eq":
        return len(one) == len(other) and boolean("and", True, *map(functools.partial, [_is_equal] * len(one), one,
                                                                    other))
    if not (one and other):
        return getattr(operator, name)(len(one), len(other))
    return boolean("or", compared({"le": "lt", "ge": "gt"}.get(name, name), one[0], other[0]), lambda: boolean(
        "and", _is_equal(one[0], other[0]), lambda: _compared_items(name, one[1:], other[1:])))


def _is_equal(one: Any, other: Any) -> Any:
    """Return whether an item of a container counts as equal to another: one object does, such as a NaN."""
    return one is other or compared("eq", one, other)


def _len(value: Any) -> Any:
    return value.length if isinstance(value, UnknownLength) else len(value)


def _sum(items: Any, *start: Any, **kwargs: Any) -> Any:
    if type(items) is TracedSlice:
        return items.sum(axis=0) + sum((), *start, **kwargs)
    return sum(items, *start, **kwargs)


def _any(items: Any) -> Any:
    if type(items) is TracedSlice:
        return items.any()
    found: Any = False
    for each in items:
        found = boolean("or", found, functools.partial(boolean_of, each))
        if found is True:
            break
    return found


def _all(items: Any) -> Any:
    if type(items) is TracedSlice:
        return items.all()
    return not_(_any(not_(each) for each in items))


# --- least, greatest, sorted ------------------------------------------------------------------------------------------


def _minimum(*args: Any, **kwargs: Any) -> Any:
    return _extreme(min, args, **kwargs)


def _maximum(*args: Any, **kwargs: Any) -> Any:
    return _extreme(max, args, **kwargs)


def _extreme(function: Any, args: Sequence[Any], key: Any = None, **kwargs: Any) -> Any:
    if not (args and (len(args) > 1 or hasattr(args[0], "__iter__"))):
        return function(*args, key=key, **kwargs)
    if len(args) == 1 and type(args[0]) is TracedSlice:
        if key is not None or kwargs:
            return extreme_of_turns(function, as_sequence(args[0]), lambda each: each, lambda _: True, key, **kwargs)
        return args[0].min() if function is min else args[0].max()
    items = _items_of(args[0]) if len(args) == 1 else [*args]
    if key is None:
        items = [*map(required, items)]
    of_key = None if key is None else called(key)
    keys = items if of_key is None else [of_key(each) for each in items]
    if len(items) < 2 or not _is_traced(keys):
        order = iter(keys)
        return function(items, key=None if key is None else lambda _: next(order), **kwargs)
    best, best_key = items[0], keys[0]
    for each, its_key in zip(items[1:], keys[1:], strict=True):
        better = is_better(function, its_key, best_key)
        best_key = chosen(better, its_key, best_key)
        best = best_key if key is None else chosen(better, each, best)
    return best


def extreme_of_turns(function: Any, items: Any, element: Callable[[Any], Any], keep: Callable[[Any], Any],
                      key: Any = None, **default: Any) -> Any:
    """Return the least, greatest or `next` element of the items to keep; their number or the filter may be traced."""
    of_key = called(key)
    is_seen: Any = False
    best: Any = None  # with a key, it and the element

    def ranked(each: Any) -> Any:
        value = element(each)
        return value if key is None else (of_key(value), value)

    def improved(each: Any) -> Any:
        new = ranked(each)
        better = boolean("or", not_(is_seen), lambda: is_better(function, *(
            one if key is None else one[0] for one in (new, best))))
        return True, chosen(better, new, best)

    def turn(each: Any) -> None:
        nonlocal is_seen, best
        is_seen, best = if_expression(keep(each), lambda: improved(each), lambda: (is_seen, best))

    if not isinstance(items, Sequences) or not is_unknown(items.length):
        for each in items:
            if best is None and is_unknown(keep(each)):
                require_end(items, f"the filter of a comprehension without an end is traced, in {function.__name__}()")
                best = zeros_of(lambda each=each: ranked(each))
            turn(each)
            if function is next and is_seen is True:
                break
    else:
        refuse_in_try(function.__name__)
        best = zeros_of(lambda number: ranked(items.item(number)), np.int64(0))
        names = ["is_seen", "best"]
        loop("for", None, cast(FunctionType, turn), Names(names, [], names), Counter(items.length, items.item),
             guaranteed=False)
    if is_seen is False:
        return next(iter(()), *default.values()) if function is next else function((), **default)
    found = best if key is None else best[1]
    if is_seen is True:
        return found
    if default:
        return if_expression(is_seen, lambda: found, lambda: default["default"], optional=True)
    check(is_seen, f"{function.__name__}() iterable argument is empty")
    return found


def zeros_of(function: Callable[..., Any], *args: Any) -> Any:
    """Return zeros of the types of a result."""
    return tree.map(lambda each: convert(fnp.zeros(each.shape, each.dtype), each.dtype, each.weak_type),
                    eval_shape(function, *args))


def is_better(function: Any, new: Any, old: Any) -> Any:
    """Return whether `min` or `max` takes a new item in the place of an old one; `next` does not."""
    if function is next:
        return False
    return compared("lt", new, old) if function is min else compared("lt", old, new)


def chosen(condition: Any, one: Any, other: Any) -> Any:
    """Return one of two values by a condition, which may be traced."""
    if is_unknown(condition):
        refuse_in_try("if")
        return choose_at_hand("if", condition, one, other)
    return one if condition else other


def _sorted(iterable: Any, *, key: Any = None, reverse: Any = False) -> Any:
    if type(iterable) is TracedSlice and key is None:
        in_order = iterable.sorted(0)
        return in_order[::-1] if reverse else in_order
    items = _items_of(iterable)
    of_key = None if key is None else called(key)
    keys = items if of_key is None else [of_key(each) for each in items]
    if len(items) < 2 or not _is_traced(keys):
        order = iter(keys)
        found = sorted(items, key=None if key is None else lambda _: next(order), reverse=reverse)
        fresh(found)
        return found
    refuse_in_try("sorted")
    flat: list[tuple[list[Any], Any]] = [tree.flatten(each) for each in items]
    try:
        columns = [stacked([row[place] for row, _ in flat]) for place in range(len(flat[0][0]))]
        ranks = [stacked(column) for column in zip(*(
            one if type(one) in (list, tuple) else [one] for one in keys), strict=True)]
    except (TypeError, ValueError):
        ranks = columns = []
    if not ranks or containers_in((*items,)) or any(rank.ndim != 1 for rank in ranks) or any(
            structure != flat[0][1] for _, structure in flat):
        raise refuse("sorted() of traced values takes numbers, or tuples of numbers of one length. Keep the others "
                     "apart, and sort with fxgrad.numpy.argsort")
    step = -1 if reverse else 1  # as Python's sort, equal items stay in their order then too
    place = fnp.lexsort([rank[::step] for rank in ranks][::-1])[::step]
    place = len(items) - 1 - place if reverse else place
    rows = [[may_be(each, [one for flat_item, _ in flat for one in flat_item]) for each in fnp.unstack(column[place])]
            for column in columns]
    found = [tree.unflatten(flat[0][1], [row[number] for row in rows]) for number in range(len(items))]
    fresh(found)
    return found


def _is_traced(values: Any) -> bool:
    """Return whether values, or numbers among them, are traced."""
    return any(map(is_unknown, tree.leaves(values)))


def _items_of(iterable: Any) -> list[Any]:
    """Return the items that Python goes over."""
    return [*(iterable.plain() if isinstance(iterable, Sequences) else iterable)]


def _bisected(function: Any, items: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
    """Return `bisect.bisect(items, value)` of traced numbers too."""
    if args or kwargs or not isinstance(items, list | tuple | np.ndarray | Tracer) or not _is_traced((value, items)):
        return function(items, value, *args, **kwargs)
    side = "left" if function is bisect.bisect_left else "right"
    return as_int(fnp.searchsorted(stacked(items) if isinstance(items, list | tuple) else items, value, side=side))


# --- methods of lists -------------------------------------------------------------------------------------------------


def _sort(owner: list[Any], /, **kwargs: Any) -> None:
    owner[:] = _sorted(owner, **kwargs)


def _pop(owner: list[Any], /, *args: Any) -> Any:
    if is_growing(owner) and not args:
        return popped(owner)
    if not args or not is_unknown(args[0]):
        return owner.pop(*args)
    number = from_front(args[0], len(owner))
    found = item(owner, number)
    owner[:] = [choose("if", number <= place, lambda place=place: owner[place + 1],  # type: ignore[misc]
                       lambda place=place: owner[place]) for place in range(len(owner) - 1)]  # type: ignore[misc]
    return found


def _index(owner: list[Any], value: Any, /, *bounds: Any) -> Any:
    if bounds or not _is_traced((value, *owner)):
        return owner.index(value, *bounds)
    refuse_in_try("index")
    equal = fnp.stack([fnp.asarray(_is_equal(each, value)) for each in owner])
    check(fnp.any(equal), "{} is not in list", value)
    return as_int(fnp.argmax(equal))


def _count(owner: list[Any], value: Any, /) -> Any:
    if not _is_traced((value, *owner)):
        return owner.count(value)
    equal = [_is_equal(each, value) for each in owner]
    return sum(as_int(each) if is_unknown(each) else int(each) for each in equal)


def _remove(owner: list[Any], value: Any, /) -> None:
    _pop(owner, _index(owner, value))


replacements.update({
    bisect.bisect_left: functools.partial(_bisected, bisect.bisect_left),
    bisect.bisect_right: functools.partial(_bisected, bisect.bisect_right),
    len: _len, sum: _sum, min: _minimum, max: _maximum, any: _any, all: _all, sorted: _sorted,
    list.sort: _sort, list.pop: _pop, list.index: _index, list.count: _count, list.remove: _remove})
