"""What converted code calls in the place of Python's control flow: Python's own where it is known, else a program's."""

from __future__ import annotations

import bisect
import builtins
import copy
import dataclasses
import functools
import heapq
import operator
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    WrapperDescriptorType,
)
from typing import Any, cast

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import tree
from fxgrad.engine.api.checking import check
from fxgrad.engine.api.programs import eval_shape
from fxgrad.engine.control_flow.arrays import (
    ArrayItems,
    attribute,
    augmented,
    place,
    returned,
    slots,
    store_row,
    stored,
    value_of,
    value_set,
    with_values,
)
from fxgrad.engine.control_flow.blocks import (
    UNSET,
    Place,
    ProbeEnds,
    Thunk,
    attributed,
    block,
    check_effect,
    check_method,
    check_next,
    depth,
    fresh,
    has_choices,
    held,
    in_try,
    is_unknown,
    known,
    known_filter,
    may_be,
    mutable,
    printed,
    probed_turn,
    raising,
    rebinding,
    refusals,
    refuse,
    refuse_in_try,
    text,
)
from fxgrad.engine.control_flow.branches import branch as stage_branch
from fxgrad.engine.control_flow.branches import choose, choose_at_hand
from fxgrad.engine.control_flow.conditions import (
    as_number,
    assertion,
    boolean,
    boolean_of,
    counted,
    ended,
    if_,
    if_expression,
    is_none,
    is_same,
    is_true,
    not_,
    not_raising,
    raised_flag,
    unset,
    without_traced_bools,
)
from fxgrad.engine.control_flow.conversion import ConvertedFunction, converted_callee
from fxgrad.engine.control_flow.lending import Argument, entered, given_back, lending, passed, shifted
from fxgrad.engine.control_flow.loops import Counter, Mark, loop
from fxgrad.engine.control_flow.names import OPERATORS
from fxgrad.engine.control_flow.numbers import (
    FUNCTIONS,
    TYPES,
    as_int,
    function_of_math,
    is_instance,
    make_full,
    numpy_number,
)
from fxgrad.engine.control_flow.sequences import (
    ENDLESS,
    SEQUENCES,
    Sequences,
    as_sequence,
    index,
    numbered,
    plain_enumerate,
)
from fxgrad.engine.control_flow.slices import TracedSlice, has_traced_slice, item, places_of_true
from fxgrad.engine.control_flow.slices import call as call_on_slices
from fxgrad.engine.control_flow.structures import ChosenMember, OptionalValue, containers_in, is_record, stacked
from fxgrad.engine.control_flow.variables import Names, Passed, cells_of, names_of_block, write
from fxgrad.engine.frontend.protocol import written
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import current
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.transparency.sources import nested_codes
from fxgrad.engine.user_lines import function_name, is_library_file, is_user_file
from fxgrad.lax.bodies import trace_body

__all__ = [
    "acted", "argument", "as_number", "assertion", "attribute",
    "attributed", "augmented", "boolean", "called", "changing", "contains", "counted",
    "depth", "ended", "entered", "for_", "forget", "given_back", "if_", "if_expression", "in_try", "index", "is_none",
    "is_same", "is_true", "item", "known", "known_filter", "mutable", "not_", "not_raising", "numbered", "passed",
    "place",
    "raised_flag", "raising", "rebinding", "reduced", "refusals", "returned", "sequence", "shown", "slots", "store_row",
    "stored",
    "text", "unset", "value_of", "value_set", "while_", "with_values", "without_traced_bools",
]
"""What converted code calls, by its own names: some are defined in other modules of this package."""


# --- loops ----------------------------------------------------------------------------------------------------------


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
    condition = test()
    if is_unknown(condition):
        _stage_while(mark, test, body, names, guaranteed=False)
        return
    if not condition:
        return
    with _Turns() as prints, mark:
        body()
        condition = test()
        if is_unknown(condition) or (endless and mark.has_checks()):  # a guess: it is traced from its beginning
            prints.clear()
            _stage_while(mark, test, body, names, guaranteed=True)
            return
    while condition:
        body()
        mark = Mark(cells_of(test, body))
        condition = test()
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
    iterable = as_sequence(iterable) if type(iterable) is TracedSlice else iterable
    items, names = iterable, functools.partial(names_of_block, live, turn, stored, passed, optional)
    if isinstance(iterable, Sequences):
        if is_unknown(iterable.length):
            refuse_in_try("for")
            _stage_for(iterable, body, stopped, names, guaranteed=False)
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
                refuse_in_try("for")
                mark.rewind()
                _stage_for(counted, body, stopped, names, guaranteed=True)
                return
        if is_unknown(stop):
            _require_end(iterable, "a traced condition ends this loop without an end, and not in its first turn")
            for each in rest:
                _guarded_turn(each, body, stopped, names)
            return
        if stop:
            return


def _require_end(items: Any, what: str) -> None:
    """Raise if a loop over items, which would be unrolled, has no end."""
    if isinstance(items, Sequences) and type(items.length) is int and items.length == ENDLESS:
        raise refuse(f"{what}. Write `while True`, and count the turns: k += 1")


def _guarded_turn(item: Any, body: FunctionType, stopped: FunctionType, names: Callable[[], Names]) -> None:
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


def sequence(function: Any) -> Any:
    """Return the function for `range` and its kin in a `for` statement, whose arguments may be traced."""
    return SEQUENCES.get(function) or called(function)


def forget(names: FunctionType) -> None:
    """Unset variables that are not read again: what they held has a name less, where it matters for changes."""
    if has_choices() or current.get() is not None:
        write(cells_of(names), dict.fromkeys(cells_of(names), UNSET))


# --- calls and items ------------------------------------------------------------------------------------------------


def called(function: Any, depth: int = 0, *arguments: Argument) -> Any:
    """Return what to call in the place of `function`: its converted form, if it is the user's.

    The function may change `arguments`, which are places of the caller's (`lending`).
    """
    kind = type(function)
    if kind is FunctionType:
        if function is np.full:
            return make_full
        if is_library_file(function.__code__.co_filename) or function in _COPIES:
            with_functions = functools.partial(_with_converted_functions, function)
            return (lambda *args, **kwargs: fresh(with_functions(*args, **kwargs))) if function in _COPIES else (
                with_functions)
        found = converted_callee(function)
        if block.get() is not None:
            _refuse_recursion(function, found)
        return lending(found, depth, arguments) if arguments and current.get() is not None else found
    if kind is MethodType and type(function.__func__) is FunctionType and type(function.__self__) is not TracedSlice:
        if not is_user_file(function.__func__.__code__.co_filename):
            check_method(function)
        return MethodType(called(function.__func__, depth, *shifted(arguments, 1)), function.__self__)
    if kind is BuiltinFunctionType:
        replaced = _BUILTINS.get(function)
        if replaced is not None:
            return replaced
        if function.__module__ in ("math", "cmath"):
            return function_of_math(function)
        if function in _CHANGE_FIRST or (type(function.__self__) is np.ufunc and function.__name__ == "at"):
            return functools.partial(_changing_first, function)
        check_method(function)
        if type(function.__self__) is list and hasattr(_ListMethods, function.__name__):
            return getattr(_ListMethods(function.__self__), function.__name__)
        if type(function.__self__) in (list, dict) and function.__name__ == "copy":
            return lambda: fresh(function())
        if function is functools.reduce:
            return functools.partial(_with_converted_functions, function)
    elif isinstance(function, type):
        if function in TYPES:
            return TYPES[function]
        if issubclass(function, np.number | np.bool_):
            return functools.partial(numpy_number, function)
        if function in (map, filter):
            return functools.partial(_with_converted_functions, function)
        begin = getattr(function, "__init__", None)
        if type(function) is type and type(begin) is FunctionType and (
                function.__new__ is object.__new__):
            return functools.partial(_instance, function, called(begin, depth, *shifted(arguments, 1)))
        if function is enumerate:
            return lambda *args, **kwargs: fresh(plain_enumerate(*args, **kwargs))
        if function in (list, dict, set, zip, reversed) or function.__module__ != "builtins":
            return lambda *args, **kwargs: fresh(function(*args, **kwargs))
    elif kind is functools.partial:
        return functools.partial(called(function.func), *function.args, **function.keywords)
    elif kind is ConvertedFunction:
        return called(function.__wrapped__, depth, *arguments)
    elif is_record(function) and type(type(function).__call__) is FunctionType:
        return MethodType(called(type(function).__call__, depth, *shifted(arguments, 1)), function)
    elif kind in (MethodDescriptorType, WrapperDescriptorType) and block.get() is not None:
        return lambda owner, *args, **kwargs: called(function.__get__(owner))(*args, **kwargs)
    elif kind in _FUNCTIONS_OF_NUMPY and current.get() is not None:
        return functools.partial(_call_numpy, function)
    else:
        check_method(function)
    return function


def acted(function: Any, depth: int = 0, *arguments: Argument) -> Any:
    """Return what to call in a statement that is this call alone: a function of others is called for an effect."""
    if not (type(function) is BuiltinFunctionType and (
            function in _BUILTINS or function in _CHANGE_FIRST or type(function.__self__) is np.ufunc)):
        check_effect(function)
    return called(function, depth, *arguments)


def _changing_first(function: Callable[..., Any], container: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a builtin function that changes the container given first, which the blocks around note or refuse."""
    (attributed if function in (setattr, delattr) else mutable)(container)
    return function(container, *args, **kwargs)


def _next(iterator: Any, *default: Any) -> Any:
    check_next(iterator)
    return next(iterator, *default)


def argument(function: Any, value: Any, name: str) -> Any:
    """Return the variable `name`, which may be None, as an argument of `function`, which `called` returned.

    Converted code that asks whether something is None gets a number that may be, and other code the value. It gets
    that of an array, whose items it may change.
    """
    if type(value) is OptionalValue and not any(map(np.shape, tree.leaves(value.value))):
        code = getattr(getattr(function, "lends_to", getattr(function, "__func__", function)), "__code__", None)
        if code is not None and OPERATORS in code.co_freevars and any(
                is_none.__name__ in each.co_names for each in nested_codes(code)):
            return value
    return value_set(value, name, is_certain=False)


def _call_numpy(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Return `function(*args)` of NumPy; it does not see by itself that a list holds traced numbers."""
    for changed in (*(args[:1] if function in _CHANGE_FIRST else ()), kwargs.get("out")):
        if isinstance(changed, np.ndarray):
            mutable(changed)
    if has_traced_slice(args):
        return call_on_slices(function, *args, **kwargs)
    if len(args) == 1 and not kwargs and is_unknown(args[0]) and args[0].shape and any(
            function is each for each in (np.nonzero, np.where, np.flatnonzero, np.argwhere)):
        return places_of_true(function.__name__, args[0])
    lists = [each for each in args if type(each) is list]
    number: Any = next((leaf for leaf in tree.leaves(lists) if type(leaf) is Tracer), None)
    if number is None or any(type(each) is Tracer for each in args):
        return function(*args, **kwargs)
    if isinstance(function, np.ufunc):
        return number.__array_ufunc__(function, "__call__", *args, **kwargs)
    return number.__array_function__(function, (Tracer,), args, kwargs)


def _instance(kind: type, begin: Callable[..., None], /, *args: Any, **kwargs: Any) -> Any:
    """Return a new object of a class, whose `__init__` is `begin`."""
    made = fresh(object.__new__(kind))
    begin(made, *args, **kwargs)
    return made


def changing(owner: Any, name: str) -> Any:
    """Return what to call for `owner.name(...)`, which changes an array: itself, or one among the arguments."""
    if isinstance(owner, Place):
        return getattr(owner, name)
    function = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out")
        if type(out) is ArrayItems:
            del kwargs["out"]
            if isinstance(function, np.ufunc) and "where" in kwargs:
                result = written(function, out.value, *args, **kwargs)
            else:
                result = called(function)(*args, **kwargs)
            del args, kwargs  # they may hold the array
            out[...] = result
            return out.value
        if not args or type(args[0]) is not ArrayItems:
            return called(function)(*args, **kwargs)
        items, *others = args
        if type(owner) is np.ufunc and name == "at":
            items.apply_at(owner, *others)
        elif function is np.copyto and len(args) == 2 and not kwargs:
            items[...] = others[0]
        elif function is np.fill_diagonal and len(args) == 2 and not kwargs:
            items[...] = fnp.fill_diagonal(items.value, others[0], inplace=False)
        else:
            return called(function)(items.value, *others, **kwargs)
        return None
    return call


def _with_converted_functions(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function of fxgrad's; functions of the user's among its arguments are converted."""
    if has_traced_slice(args):
        return call_on_slices(function, *args, **kwargs)
    return function(*[converted_callee(arg) if type(arg) is FunctionType else
                      called(arg) if type(arg) in (functools.partial, BuiltinFunctionType) else arg for arg in args],
                    **kwargs)


_MAX_RECURSION = 5


def _refuse_recursion(function: FunctionType, found: FunctionType) -> None:
    """Raise if a function calls itself again and again within traced blocks: tracing would never end."""
    crossing, times = False, 0
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _CROSSED:
            crossing = True
        elif crossing and frame.f_code is found.__code__:
            times, crossing = times + 1, False
        frame = frame.f_back  # type: ignore[assignment]
    if times >= _MAX_RECURSION:
        around = block.get()
        assert around is not None
        raise refuse(f"{function_name(function)} calls itself inside {around.text}: both sides of a traced condition "
                     "are traced, so the recursion would not end. Write a `while` loop, with a stack in an array if "
                     "needed")


_CROSSED = trace_body.__code__


# --- builtins on traced values --------------------------------------------------------------------------------------


def contains(container: Any, value: Any) -> Any:
    """Return `value in container`: whether an item is the value, or equal to it."""
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
    if type(container) in (list, tuple) and any(is_unknown(each) or type(each) is ChosenMember
                                                for each in (value, *container)):
        return boolean("or", False, *[lambda each=each: each is value or each == value for each in container])
    if is_unknown(value) and type(container) is builtins.range and not np.shape(value):
        first, last = sorted((container[0], container[-1])) if container else (0, -1)
        return (value >= first) & (value <= last) & ((value - first) % abs(container.step) == 0)
    if is_unknown(value) and isinstance(container, dict | set | frozenset):
        raise refuse(f"a traced value is looked up in a {type(container).__name__}, which needs its hash. Keep the "
                     "values in a list or an array")
    return value in container


def _is_traced(values: Any) -> bool:
    """Return whether values, or numbers among them, are traced."""
    return any(map(is_unknown, tree.leaves(values)))


def _items_of(iterable: Any) -> list[Any]:
    """Return the items that Python goes over."""
    return [*(iterable.plain() if isinstance(iterable, Sequences) else iterable)]


def _precedes(one: Any, other: Any) -> Any:
    """Return `one < other`; tuples and lists are compared item by item."""
    if type(one) not in (list, tuple) or type(one) is not type(other) or not (one and other):
        return one < other if type(one) not in (list, tuple) else len(one) < len(other)
    return boolean("or", _precedes(one[0], other[0]), lambda: boolean(
        "and", one[0] == other[0], lambda: _precedes(one[1:], other[1:])))


def _is_better(function: Any, new: Any, old: Any) -> Any:
    """Return whether `min` or `max` takes a new item in the place of an old one; `next` does not."""
    if function is next:
        return False
    return _precedes(new, old) if function is min else _precedes(old, new)


def _minimum(*args: Any, **kwargs: Any) -> Any:
    return _extreme(min, args, **kwargs)


def _maximum(*args: Any, **kwargs: Any) -> Any:
    return _extreme(max, args, **kwargs)


def _extreme(function: Any, args: Sequence[Any], key: Any = None, **kwargs: Any) -> Any:
    if not (args and (len(args) > 1 or hasattr(args[0], "__iter__"))):
        return function(*args, key=key, **kwargs)
    if len(args) == 1 and type(args[0]) is TracedSlice and key is None and not kwargs:
        return args[0].min() if function is min else args[0].max()
    items = _items_of(args[0]) if len(args) == 1 else [*args]
    of_key = None if key is None else called(key)
    keys = items if of_key is None else [of_key(each) for each in items]
    if len(items) < 2 or not _is_traced(keys):
        order = iter(keys)
        return function(items, key=None if key is None else lambda _: next(order), **kwargs)
    best, best_key = items[0], keys[0]
    for each, its_key in zip(items[1:], keys[1:], strict=True):
        better = _is_better(function, its_key, best_key)
        best_key = _chosen(better, its_key, best_key)
        best = best_key if key is None else _chosen(better, each, best)
    return best


def _chosen(condition: Any, one: Any, other: Any) -> Any:
    if is_unknown(condition):
        refuse_in_try("if")
        return choose_at_hand("if", condition, one, other)
    return one if condition else other


def _sorted(iterable: Any, *, key: Any = None, reverse: Any = False) -> list[Any]:
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


class _ListMethods:
    """Methods of a list that compare its items, or take a position, which may be traced."""

    def __init__(self, owner: list[Any]) -> None:
        self._owner = owner

    def sort(self, **kwargs: Any) -> None:
        self._owner[:] = _sorted(self._owner, **kwargs)

    def pop(self, *args: Any) -> Any:
        owner = self._owner
        if not args or not is_unknown(args[0]):
            return owner.pop(*args)
        number = fnp.where(args[0] < 0, args[0] + len(owner), args[0])
        found = item(owner, number)
        owner[:] = [choose("if", number <= place, lambda place=place: owner[place + 1],  # type: ignore[misc]
                           lambda place=place: owner[place]) for place in range(len(owner) - 1)]  # type: ignore[misc]
        return found

    def index(self, value: Any, *bounds: Any) -> Any:
        owner = self._owner
        if bounds or not (is_unknown(value) or any(map(is_unknown, owner))):
            return owner.index(value, *bounds)
        refuse_in_try("index")
        equal = fnp.stack([fnp.equal(each, value) for each in owner])
        check(fnp.any(equal), "{} is not in list", value)
        return as_int(fnp.argmax(equal))

    def count(self, value: Any) -> Any:
        if not (is_unknown(value) or any(map(is_unknown, self._owner))):
            return self._owner.count(value)
        return sum(as_int(fnp.equal(each, value)) for each in self._owner)

    def remove(self, value: Any) -> None:
        self.pop(self.index(value))


def _len(value: Any) -> Any:
    return value.length if type(value) is TracedSlice else len(value)


def _sum(items: Any, *start: Any, **kwargs: Any) -> Any:
    if type(items) is TracedSlice:
        return items.sum(axis=0) + sum((), *start, **kwargs)
    return sum(items, *start, **kwargs)


def _any(items: Any) -> Any:
    found: Any = False
    for each in items:
        found = boolean("or", found, functools.partial(boolean_of, each))
        if found is True:
            break
    return found


def _all(items: Any) -> Any:
    return not_(_any(not_(each) for each in items))


def reduced(function: Any, listed: bool, width: int, items: Any, element: Callable[..., Any],
            keep: Callable[..., Any] | None, *start: Any, **options: Any) -> Any:
    """Return what `sum`, `any`, `all`, `min`, `max`, `len` or `next` makes of a comprehension.

    Its length and filter may be traced. `element` and `keep`, the filter, take an item, or its `width` parts if that is
    not 0.
    """
    def parts(each: Any) -> tuple[Any, ...]:
        return tuple(each) if width else (each,)

    is_staged = isinstance(items, Sequences) and is_unknown(items.length)
    is_known = not is_staged and keep is None
    if is_known or not any(function is each for each in _REDUCTIONS):  # a name may be another function's
        values = (element(*parts(each)) for each in items if keep is None or known_filter(keep(*parts(each))))
        return called(function)([*values] if listed else values, *start, **options)
    if function is len:
        return reduced(sum, listed, width, items, lambda *_: 1, keep)
    if function is next and start:
        options = {"default": start[0]}
    if function is min or function is max or function is next:
        return _extreme_of_turns(function, items, lambda each: element(*parts(each)), (
            lambda each: True) if keep is None else lambda each: keep(*parts(each)), **options)
    if function is all:  # unless any is false
        return not_(reduced(any, listed, width, items, lambda *given: not_(element(*given)), keep))
    step = _added if function is sum else _found
    total = start[0] if start else 0 if function is sum else False

    def turn(each: Any) -> None:
        nonlocal total
        given = parts(each)
        total = step(total, lambda: True if keep is None else keep(*given), lambda: element(*given))

    if not is_staged:
        for each in items:
            turn(each)
            if function is any and total is True:
                break
        return total
    refuse_in_try(function.__name__)
    if function is sum:
        def one(number: Any) -> Any:
            return total + element(*parts(items.item(number)))

        of_turn = eval_shape(one, np.int64(0))
        if of_turn.shape:
            total = fnp.zeros(of_turn.shape, of_turn.dtype) + total
    unfinished = None if function is sum else cast(FunctionType, lambda: not_(total))
    loop("for", unfinished, cast(FunctionType, turn), Names(["total"], [], ["total"]),
         Counter(items.length, items.item), guaranteed=False)
    return total


_REDUCTIONS = (sum, any, all, min, max, len, next)


def _extreme_of_turns(function: Any, items: Any, element: Callable[[Any], Any], keep: Callable[[Any], Any],
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
        better = boolean("or", not_(is_seen), lambda: _is_better(function, *(
            one if key is None else one[0] for one in (new, best))))
        return True, _chosen(better, new, best)

    def turn(each: Any) -> None:
        nonlocal is_seen, best
        is_seen, best = if_expression(keep(each), lambda: improved(each), lambda: (is_seen, best))

    if not isinstance(items, Sequences) or not is_unknown(items.length):
        for each in items:
            if best is None and is_unknown(keep(each)):
                _require_end(items, f"the filter of a comprehension without an end is traced, in {function.__name__}()")
                best = _zeros_of(lambda each=each: ranked(each))
            turn(each)
            if function is next and is_seen is True:
                break
    else:
        refuse_in_try(function.__name__)
        best = _zeros_of(lambda number: ranked(items.item(number)), np.int64(0))
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


def _zeros_of(function: Callable[..., Any], *args: Any) -> Any:
    """Return zeros of the types of a result."""
    return tree.map(lambda each: convert(fnp.zeros(each.shape, each.dtype), each.dtype, each.weak_type),
                    eval_shape(function, *args))


def _added(total: Any, is_kept: Thunk, value: Thunk) -> Any:
    return if_expression(is_kept(), lambda: total + value(), lambda: total)


def _found(found: Any, is_kept: Thunk, value: Thunk) -> Any:
    return boolean("or", found, lambda: boolean_of(boolean("and", is_kept(), value)))


def shown(value: Any) -> Any:
    """Return a value of an f-string; raise if it is traced, and the text would be that of a tracer."""
    if is_unknown(value):
        raise refuse("an f-string has a traced value, whose digits are not known while the program is recorded. In "
                     "print() and assert it may stand; otherwise make the text outside of the compiled function")
    return value


_BUILTINS: dict[Any, Any] = {print: printed, len: _len, sum: _sum, min: _minimum, max: _maximum, any: _any, all: _all,
                             sorted: _sorted, isinstance: is_instance, next: _next,
                             iter: lambda *args: fresh(iter(*args)), **FUNCTIONS}
_CHANGE_FIRST = {heapq.heappush, heapq.heappop, heapq.heapify, heapq.heapreplace, heapq.heappushpop, bisect.insort_left,
                 bisect.insort_right, operator.setitem, operator.delitem, setattr, delattr, np.copyto, np.fill_diagonal,
                 np.put, np.place, np.putmask, np.put_along_axis}
"""Functions of Python's and NumPy's that change their first argument."""
_FUNCTIONS_OF_NUMPY = (np.ufunc, type(np.concatenate))
_COPIES = {copy.copy, copy.deepcopy, dataclasses.replace}
"""Functions of libraries whose results are new."""
