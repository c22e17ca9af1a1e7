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
from fxgrad.engine.api.checking import check, check_raise
from fxgrad.engine.api.programs import eval_shape
from fxgrad.engine.control_flow.aliases import may_be
from fxgrad.engine.control_flow.blocks import is_unknown, refuse, refuse_in_try
from fxgrad.engine.control_flow.branches import choose, choose_at_hand
from fxgrad.engine.control_flow.calls import called, replacements
from fxgrad.engine.control_flow.conditions import boolean, boolean_of, if_expression, known_filter, not_
from fxgrad.engine.control_flow.containers import fresh
from fxgrad.engine.control_flow.growing import place_of, popped
from fxgrad.engine.control_flow.items import from_front
from fxgrad.engine.control_flow.iteration import require_end
from fxgrad.engine.control_flow.loops import Counter, loop
from fxgrad.engine.control_flow.numbers import as_int
from fxgrad.engine.control_flow.positions import (
    as_items,
    compacted,
    delete,
    insert,
    item,
    items_of_slice,
    numbered,
    with_numbers,
    zipped,
)
from fxgrad.engine.control_flow.sequences import Sequences, as_sequence, plain_enumerate
from fxgrad.engine.control_flow.slices import TracedSlice
from fxgrad.engine.control_flow.structures import (
    ChosenMember,
    PossibleItem,
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
from fxgrad.errors import ArgumentError


def contains(container: Any, value: Any) -> Any:
    """Return `value in container`: whether an item is the value, or equal to it."""
    if is_growing(container):
        return boolean("or", False, *[functools.partial(boolean, "and", flag, functools.partial(_is_equal, each, value))
                                      for flag, each in map(place_of, container)])
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
        return _compared_lists(name, one, other)
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


def _compared_lists(name: str, one: Any, other: Any) -> Any:
    """Return how two lists compare, of which at least one has a traced length."""
    if not type(one) is type(other) is list:
        return getattr(operator, name)([], other) if type(one) is list else getattr(operator, name)(one, [])
    (items, length), (others, length_of_other) = compacted(one), compacted(other)
    found = getattr(fnp, _NAMES[name])(length, length_of_other)
    if name in ("eq", "ne"):
        pairs = zip(range(len(items)), items, others, strict=False)
        equal = boolean("and", fnp.equal(length, length_of_other), *[functools.partial(
            boolean, "or", fnp.greater_equal(number, length), functools.partial(_is_equal, *pair))
            for number, *pair in pairs])
        return not_(equal) if name == "ne" else equal
    for number, *pair in reversed([*zip(range(len(items)), items, others, strict=False)]):
        both = fnp.less(number, length) & fnp.less(number, length_of_other)
        found = fnp.where(both & not_(_is_equal(*pair)), compared(name, *pair), found)
    return found


_NAMES = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}


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


def kept_elements(items: Any, element: Callable[[Any], Any], keep: Callable[[Any], Any] | None = None) -> list[Any]:
    """Return the list of `element(item)` of the items to keep; those that a traced condition keeps may be there.

    Neither function is computed for items that are not there.
    """
    found: list[Any] = []
    for each in items:
        is_there, item = place_of(each)
        is_kept = is_there if keep is None else boolean("and", is_there, functools.partial(keep, item))
        if not is_unknown(is_kept):
            if is_kept:
                found.append(element(item))
            continue
        refuse_in_try("if")
        try:
            zeros = zeros_of(lambda item=item: element(item))
        except ArgumentError:  # it is no array
            known_filter(is_kept)
            raise
        value = if_expression(is_kept, lambda item=item: element(item), lambda zeros=zeros: zeros)  # type: ignore[misc]
        found.append(PossibleItem(boolean_of(is_kept), value))
    fresh(found)
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
    items = items_of_slice(iterable) if type(iterable) is TracedSlice else _items_of(iterable)
    flags: list[Any] = []
    of_key = None if key is None else called(key)
    keys = items if of_key is None else kept_elements(items, of_key)
    if is_growing(items):
        flags = [place_of(each)[0] for each in items]
        items, keys = ([place_of(each)[1] for each in column] for column in (items, keys))
    elif len(items) < 2 or not _is_traced(keys):
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
    if flags:  # items that are not there come last
        ranks.insert(0, fnp.stack(flags) if reverse else fnp.logical_not(fnp.stack(flags)))
    step = -1 if reverse else 1  # as Python's sort, equal items stay in their order then too
    place = fnp.lexsort([rank[::step] for rank in ranks][::-1])[::step]
    place = len(items) - 1 - place if reverse else place
    rows = [[may_be(each, [one for flat_item, _ in flat for one in flat_item]) for each in fnp.unstack(column[place])]
            for column in columns]
    found = [tree.unflatten(flat[0][1], [row[number] for row in rows]) for number in range(len(items))]
    return as_items(found, fnp.sum(fnp.stack(flags))) if flags else fresh(found)


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
    if is_growing(owner):
        if not args or (not is_unknown(args[0]) and args[0] == -1):
            return popped(owner)
        found = item(owner, args[0])
        delete(owner, args[0])
        return found
    if not args or not is_unknown(args[0]):
        return owner.pop(*args)
    number = from_front(args[0], len(owner))
    found = item(owner, number)
    owner[:] = [choose("if", number <= place, lambda place=place: owner[place + 1],  # type: ignore[misc]
                       lambda place=place: owner[place]) for place in range(len(owner) - 1)]  # type: ignore[misc]
    return found


def _index(owner: list[Any], value: Any, /, *bounds: Any) -> Any:
    if is_growing(owner) and not bounds:
        numbers = numbered(owner)[1]
        first = fnp.argmax(_matches(owner, value))
        check_raise(fnp.any(_matches(owner, value)), ValueError, "{} is not in list", value)
        return as_int(numbers[first])
    if bounds or not _is_traced((value, *owner)):
        return owner.index(value, *bounds)
    refuse_in_try("index")
    equal = fnp.stack([fnp.asarray(_is_equal(each, value)) for each in owner])
    check(fnp.any(equal), "{} is not in list", value)
    return as_int(fnp.argmax(equal))


def _matches(owner: list[Any], value: Any) -> Any:
    """Return for each place of a list of traced length whether it has an item that is equal to a value."""
    return fnp.stack([boolean_of(boolean("and", flag, functools.partial(_is_equal, each, value)))
                      for flag, each in map(place_of, owner)])


def _count(owner: list[Any], value: Any, /) -> Any:
    if is_growing(owner):
        return as_int(fnp.sum(_matches(owner, value)))
    if not _is_traced((value, *owner)):
        return owner.count(value)
    equal = [_is_equal(each, value) for each in owner]
    return sum(as_int(each) if is_unknown(each) else int(each) for each in equal)


def _remove(owner: list[Any], value: Any, /) -> None:
    _pop(owner, _index(owner, value))


def _insert(owner: list[Any], index: Any, value: Any, /) -> None:
    if is_unknown(index) or (is_growing(owner) and index != 0):
        insert(owner, index, value)
    else:
        owner.insert(index, value)


# --- lists of traced length that others go over -----------------------------------------------------------------------


def _list(*args: Any) -> list[Any]:
    return items_of_slice(args[0]) if args and type(args[0]) is TracedSlice else fresh(list(*args))


def _reversed(items: Any) -> Any:
    return items[::-1] if is_growing(items) else fresh(reversed(items))


def _zip(*lists: Any, strict: bool = False) -> Any:
    return zipped(*lists, strict=strict) if any(map(is_growing, lists)) else fresh(zip(*lists, strict=strict))


def _enumerate(items: Any, start: Any = 0) -> Any:
    return with_numbers(items, start) if is_growing(items) else fresh(plain_enumerate(items, start))


_map, _filter = replacements[map], replacements[filter]


def _mapped(function: Any, *lists: Any) -> Any:
    if not any(map(is_growing, lists)):
        return _map(function, *lists)
    of_item = called(function)
    if len(lists) == 1:
        return kept_elements(lists[0], of_item)
    return kept_elements(zipped(*lists), lambda each: of_item(*each))


def _filtered(function: Any, items: Any) -> Any:
    if current.get() is None or not isinstance(items, list | tuple | np.ndarray | Tracer):
        return _filter(function, items)
    found = kept_elements(items, lambda each: each, (lambda each: each) if function is None else called(function))
    return found if is_growing(found) else iter(found)


replacements.update({
    bisect.bisect_left: functools.partial(_bisected, bisect.bisect_left),
    bisect.bisect_right: functools.partial(_bisected, bisect.bisect_right),
    len: _len, sum: _sum, min: _minimum, max: _maximum, any: _any, all: _all, sorted: _sorted,
    list: _list, reversed: _reversed, zip: _zip, enumerate: _enumerate, map: _mapped, filter: _filtered,
    list.sort: _sort, list.pop: _pop, list.index: _index, list.count: _count, list.remove: _remove,
    list.insert: _insert})
