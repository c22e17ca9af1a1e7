"""What converted code calls in the place of Python's control flow: Python's own where it is known, else a program's."""

from __future__ import annotations

import builtins
import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import dtypes
from fxgrad.engine.api.checking import check
from fxgrad.engine.control_flow.blocks import (
    Text,
    block,
    check_method,
    fresh,
    held,
    is_unknown,
    printed,
    refuse,
    refuse_in_try,
    template,
)
from fxgrad.engine.control_flow.blocks import augmented as augmented  # noqa: PLC0414  (an operator of converted code)
from fxgrad.engine.control_flow.blocks import depth as depth  # noqa: PLC0414
from fxgrad.engine.control_flow.blocks import in_try as in_try  # noqa: PLC0414
from fxgrad.engine.control_flow.blocks import item as item  # noqa: PLC0414
from fxgrad.engine.control_flow.blocks import known as known  # noqa: PLC0414
from fxgrad.engine.control_flow.blocks import mutable as mutable  # noqa: PLC0414
from fxgrad.engine.control_flow.blocks import raising as raising  # noqa: PLC0414
from fxgrad.engine.control_flow.blocks import rebinding as rebinding  # noqa: PLC0414
from fxgrad.engine.control_flow.blocks import text as text  # noqa: PLC0414
from fxgrad.engine.control_flow.conversion import ConvertedFunction, converted_callee
from fxgrad.engine.control_flow.staging import Counter, Mark, cells_of, choose, loop, truth
from fxgrad.engine.control_flow.staging import branch as stage_branch
from fxgrad.engine.ops.comparison import not_ as logical_not
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import current
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import function_name, is_library_file
from fxgrad.lax.bodies import trace_body

Thunk = Callable[[], Any]


# --- conditions -----------------------------------------------------------------------------------------------------


def if_(condition: Any, then: FunctionType, other: FunctionType | None, live: Sequence[str], what: str = "if",
        ) -> None:
    """Run `then` or `other`; `what` is "rest" for code that a `break`, `continue` or `return` skips."""
    if is_unknown(condition):
        refuse_in_try("if")
        stage_branch(condition, then, other, live, what)
    elif condition:
        then()
    elif other is not None:
        other()


def if_expression(condition: Any, then: Thunk, other: Thunk) -> Any:
    """Return `then() if condition else other()`."""
    if is_unknown(condition):
        refuse_in_try("if")
        return choose("if", condition, then, other)
    return then() if condition else other()


def boolean(word: str, value: Any, *rest: Thunk) -> Any:
    """Return `value and rest[0]() and ...`, or the same with `or`: an operand; later ones are computed if needed."""
    for number, thunk in enumerate(rest):
        if is_unknown(value):
            refuse_in_try(word)
            return _boolean_of_traced(word, value, rest[number:])
        if bool(value) is (word == "or"):
            return value
        value = thunk()
    return value


def _boolean_of_traced(word: str, value: Any, rest: Sequence[Thunk]) -> Any:
    def others() -> Any:
        return boolean(word, rest[0](), *rest[1:])

    decided = (word == "or") if value.dtype == dtypes.bool_ and not value.shape else value
    if word == "and":
        return choose(word, value, others, lambda: decided)
    return choose(word, value, lambda: decided, others)


def not_(value: Any) -> Any:
    """Return `not value`."""
    return logical_not(truth(value, "not")) if is_unknown(value) else not value


def unset(*flags: Any) -> Any:
    """Return whether no flag is set."""
    if any(flag is True for flag in flags):
        return False
    unknown = None
    for flag in flags:
        if is_unknown(flag):
            unknown = flag if unknown is None else unknown | flag
        elif flag:
            return False
    return True if unknown is None else logical_not(unknown)


def assertion(test: Any, message: Thunk | None) -> Any:
    """Return what an `assert` statement tests: `test` if Python knows it, and else True, with a check in the program.

    A failed `assert` in a traced block is a check too, for the block may not run.
    """
    unknown = is_unknown(test)
    if not unknown and (block.get() is None or test):
        return test
    refuse_in_try("assert")
    given = "assertion failed" if message is None else message()
    form, values = template(given if isinstance(given, Text | np.ndarray) or type(given) is Tracer else str(given))
    check(truth(test, "assert") if unknown else False, form, *values)
    return True


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


def while_(test: FunctionType, body: FunctionType, live: Sequence[str], turn: Sequence[str]) -> None:
    """Run `while test(): body()`."""
    if current.get() is None:  # all values are known
        while test():
            body()
        return
    mark = Mark(cells_of(test, body))
    condition = test()
    if is_unknown(condition):
        _stage_while(mark, test, body, live, turn, guaranteed=False)
        return
    if not condition:
        return
    with _Turns() as prints, mark:
        body()
        condition = test()
        if is_unknown(condition):  # the turn was a guess: the loop is traced from its beginning
            prints.clear()
            _stage_while(mark, test, body, live, turn, guaranteed=True)
            return
    while condition:
        body()
        mark = Mark(cells_of(test, body))
        condition = test()
        if is_unknown(condition):
            _stage_while(mark, test, body, live, turn, guaranteed=False)
            return


def _stage_while(mark: Mark, test: FunctionType, body: FunctionType, live: Sequence[str], turn: Sequence[str], *,
                 guaranteed: bool) -> None:
    refuse_in_try("while")
    mark.rewind()
    loop("while", test, body, live, turn, None, guaranteed=guaranteed)


class Sequences:
    """What a `for` loop goes over, with items that a traced number selects."""

    def __init__(self, length: Any, item: Callable[[Any], Any], plain: Callable[[], Iterator[Any]]) -> None:
        self.length, self.item, self.plain = length, item, plain

    def __iter__(self) -> Iterator[Any]:
        if is_unknown(self.length):
            raise refuse("the length of this sequence is traced. Go over it in a `for` statement")
        return self.plain()


def for_(iterable: Any, body: FunctionType, stopped: FunctionType | None, live: Sequence[str], turn: Sequence[str],
         ) -> None:
    """Run `for item in iterable: body(item)` until `stopped()`."""
    items = iterable
    if isinstance(iterable, Sequences):
        if is_unknown(iterable.length):
            refuse_in_try("for")
            _stage_for(iterable, body, stopped, live, turn, guaranteed=False)
            return
        items = iterable.plain()
    if stopped is None:
        for item in items:
            body(item)
        return
    cells = cells_of(stopped, body)
    mark = None if current.get() is None else Mark(cells)
    rest = iter(items)
    for number, item in enumerate(rest):
        with _Turns() as prints, mark or nullcontext():
            body(item)
            stop = not_(stopped())
            counted = _as_sequence(iterable) if is_unknown(stop) and mark is not None and not number else None
            if counted is not None and mark is not None:
                prints.clear()
                refuse_in_try("for")
                mark.rewind()
                _stage_for(counted, body, stopped, live, turn, guaranteed=True)
                return
        if is_unknown(stop):
            for each in rest:
                _guarded_turn(each, body, stopped, live)
            return
        if stop:
            return


def _guarded_turn(item: Any, body: FunctionType, stopped: FunctionType, live: Sequence[str]) -> None:
    """Run a turn unless the loop has stopped, which may be traced."""
    going = stopped()
    if is_unknown(going):
        refuse_in_try("for")
        turn = FunctionType(body.__code__, body.__globals__, body.__name__, (item,), body.__closure__)
        stage_branch(going, turn, None, live, "rest")
    elif going:
        body(item)


def _stage_for(sequence: Sequences, body: FunctionType, stopped: FunctionType | None, live: Sequence[str],
               turn: Sequence[str], *, guaranteed: bool) -> None:
    length = sequence.length
    counter = Counter(convert(length, np.dtype("int64")), sequence.item)
    loop("for", stopped, body, live, turn, counter, guaranteed=guaranteed)


def _as_sequence(iterable: Any) -> Sequences | None:
    """Return what a traced number can select from; None if Python must go over it."""
    if isinstance(iterable, Sequences):
        return iterable
    if isinstance(iterable, builtins.range):
        first, step = iterable.start, iterable.step
        return Sequences(len(iterable), lambda number: first + number * step, lambda: iter(iterable))
    if isinstance(iterable, np.ndarray) or (type(iterable) is Tracer and iterable.shape):
        rows: Any = iterable
        array = fnp.asarray(rows)
        return Sequences(rows.shape[0], lambda number: array[number], lambda: iter(rows))
    if isinstance(iterable, list | tuple) and iterable and all(
            isinstance(each, int | float | complex | np.generic) for each in iterable):
        stacked = fnp.asarray(iterable)
        return Sequences(len(iterable), lambda number: stacked[number], lambda: iter(iterable))
    return None


def sequence(function: Any) -> Any:
    """Return the function for `range` and its kin in a `for` statement, whose arguments may be traced."""
    return _SEQUENCES.get(function) or called(function)


def _range(*args: Any) -> Any:
    if not any(map(is_unknown, args)):
        return builtins.range(*args)
    start, stop, step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
    for bound in (start, stop, step):
        if dtypes.kind_of(fnp.asarray(bound).dtype) not in "iu" or np.shape(bound):
            raise refuse(f"range() takes integer scalars, got {bound!r}. Convert it with .astype('int32')")
    if not is_unknown(step) and step == 0:
        raise ValueError("range() arg 3 must not be zero")
    return Sequences(_range_length(start, stop, step), lambda number: start + number * step,
                     lambda: iter(builtins.range(*args)))


def _range_length(start: Any, stop: Any, step: Any) -> Any:
    """Return the length of a range with traced bounds, as int64: differences of narrower integers may overflow."""
    start, stop, step = (convert(each, np.dtype("int64")) if is_unknown(each) else int(each)
                         for each in (start, stop, step))
    if is_unknown(step):
        first, last, size = fnp.where(step > 0, start, stop), fnp.where(step > 0, stop, start), fnp.abs(step)
    else:
        first, last, size = (start, stop, step) if step > 0 else (stop, start, -step)
    span = fnp.where(first < last, last - first, 0)
    return span if not is_unknown(size) and size == 1 else (span + (size - 1)) // size


def _zip(*parts: Any, strict: bool = False) -> Any:
    found = [sequence for sequence in map(_as_sequence, parts) if sequence is not None]
    lengths = [sequence.length for sequence in found]
    unknown = any(map(is_unknown, lengths))
    if len(found) < len(parts) or not parts or (strict and not unknown and len({*lengths}) > 1):
        if not unknown:
            return zip(*parts, strict=strict)
        raise refuse("zip() of a range with traced bounds takes arrays and ranges. Make arrays of the others")
    if strict and unknown:
        raise refuse("zip(strict=True) compares lengths, and one of a range with traced bounds is traced. Leave out "
                     "strict=True")
    length = functools.reduce(fnp.minimum, lengths) if unknown else min(lengths)
    return Sequences(length, lambda number: tuple(sequence.item(number) for sequence in found),
                     lambda: zip(*(sequence.plain() for sequence in found), strict=strict))


def _enumerate(iterable: Any, start: Any = 0) -> Any:
    found = _as_sequence(iterable)
    if found is None:
        return enumerate(iterable, start)
    return Sequences(found.length, lambda number: (number + start, found.item(number)),
                     lambda: zip(itertools.count(start), found.plain(), strict=False))


def _reversed(iterable: Any) -> Any:
    found = _as_sequence(iterable)
    if found is None:
        return reversed(iterable)
    return Sequences(found.length, lambda number: found.item(found.length - 1 - number),
                     lambda: iter([*found.plain()][::-1]))


_SEQUENCES: dict[Any, Any] = {builtins.range: _range, zip: _zip, enumerate: _enumerate, reversed: _reversed}


# --- calls and items ------------------------------------------------------------------------------------------------


def called(function: Any) -> Any:
    """Return what to call in the place of `function`: its converted form, if it is the user's."""
    kind = type(function)
    if kind is FunctionType:
        if is_library_file(function.__code__.co_filename):
            return functools.partial(_with_converted_functions, function)
        found = converted_callee(function)
        if block.get() is not None:
            _refuse_recursion(function, found)
        return found
    if kind is MethodType and type(function.__func__) is FunctionType:
        return MethodType(called(function.__func__), function.__self__)
    if kind is BuiltinFunctionType:
        replaced = _BUILTINS.get(function)
        if replaced is not None:
            return replaced
        check_method(function)
    elif isinstance(function, type):
        if function is int:
            return _int
        if block.get() is not None and function.__module__ != "builtins":
            return lambda *args, **kwargs: fresh(function(*args, **kwargs))
        if function in (list, dict, set):
            return lambda *args, **kwargs: fresh(function(*args, **kwargs))
    elif kind is ConvertedFunction:
        return called(function.__wrapped__)
    else:
        check_method(function)
    return function


def _with_converted_functions(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function of fxgrad's; functions of the user's among its arguments are converted."""
    return function(*[converted_callee(arg) if type(arg) is FunctionType else arg for arg in args], **kwargs)


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


def _smaller(*args: Any, **kwargs: Any) -> Any:
    return _extreme(min, lambda new, old: new < old, args, kwargs)


def _greater(*args: Any, **kwargs: Any) -> Any:
    return _extreme(max, lambda new, old: new > old, args, kwargs)


def _extreme(function: Any, is_better: Callable[[Any, Any], Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    items = [*args[0]] if len(args) == 1 and isinstance(args[0], list | tuple) else [*args]
    if kwargs or len(items) < 2 or not any(map(is_unknown, items)):
        return function(*args, **kwargs)
    best = items[0]
    for each in items[1:]:
        best = fnp.where(is_better(each, best), each, best)
    return best


def _any(items: Any) -> Any:
    return boolean("or", False, *[lambda each=each: each for each in items])


def _all(items: Any) -> Any:
    return boolean("and", True, *[lambda each=each: each for each in items])


def _int(*args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and not kwargs and is_unknown(args[0]) and dtypes.kind_of(args[0].dtype) in "biuf":
        return fnp.trunc(args[0]).astype("int64") if dtypes.kind_of(args[0].dtype) == "f" else args[0].astype("int64")
    return int(*args, **kwargs)


_BUILTINS: dict[Any, Any] = {print: printed, min: _smaller, max: _greater, any: _any, all: _all}
