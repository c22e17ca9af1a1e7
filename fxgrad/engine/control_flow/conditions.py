"""What converted code calls in the place of conditions: `if`, `and`, `or`, `not`, `is`, `assert` and `raise`."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from types import FunctionType
from typing import Any

import numpy as np

from fxgrad.engine import dtypes, tree
from fxgrad.engine.api.checking import check_raise
from fxgrad.engine.control_flow.blocks import Thunk, block, end_probe, is_unknown, refuse, refuse_in_try
from fxgrad.engine.control_flow.branches import branch as stage_branch
from fxgrad.engine.control_flow.branches import choose, choose_at_hand
from fxgrad.engine.control_flow.growing import has_items
from fxgrad.engine.control_flow.printing import Text, template
from fxgrad.engine.control_flow.structures import (
    ChosenMember,
    OptionalValue,
    PossibleItem,
    UnknownLength,
    is_growing,
)
from fxgrad.engine.control_flow.variables import Passed, cells_of, names_of_block, truth
from fxgrad.engine.core.avals import array_aval
from fxgrad.engine.ops.comparison import not_ as logical_not
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.errors import FxgradError


def if_(condition: Any, then: FunctionType, other: FunctionType | None, live: Sequence[str], stored: Sequence[str],
        passed: Passed, what: str = "if", returned: bool | None = None, optional: Sequence[str] = (),
        stops: str = "") -> None:
    """Run `then` or `other`; `what` is "rest" for code that a `break`, `continue` or `return` skips.

    `returned` is the condition for which the function has returned, so that it uses no variable afterwards. Variables
    that are `optional` may be None on one side. `stops` is the flag of the loop around that one side alone ends.
    """
    condition = has_items(condition)
    if is_unknown(condition):
        refuse_in_try("if")
        if stops:
            end_probe(cells_of(then, other)[stops])
        stage_branch(condition, then, other, names_of_block(live, (), stored, passed, optional), what, returned)
    elif condition:
        then()
    elif other is not None:
        other()


def ended(condition: Any, flag: FunctionType, name: str) -> Any:
    """Return the flag of a loop, which has this name, after `if condition: break`."""
    if not is_unknown(condition):
        return True if condition else flag()
    refuse_in_try("if")
    end_probe(cells_of(flag)[name])
    return choose_at_hand("if", condition, True, flag())


def if_expression(condition: Any, then: Thunk, other: Thunk, optional: bool = False) -> Any:
    """Return `then() if condition else other()`; one may be None if it is `optional`."""
    condition = has_items(condition)
    if is_unknown(condition):
        refuse_in_try("if")
        return choose("if", condition, then, other, optional=optional)
    return then() if condition else other()


def boolean(word: str, value: Any, *rest: Thunk) -> Any:
    """Return `value and rest[0]() and ...`, or the same with `or`: an operand; later ones are computed if needed."""
    for number, thunk in enumerate(rest):
        if is_growing(value):
            refuse_in_try(word)
            return _boolean_of_list(word, value, rest[number:])
        if is_unknown(value):
            refuse_in_try(word)
            return _boolean_of_traced(word, value, rest[number:])
        if bool(value) is (word == "or"):
            return value
        value = thunk()
    return value


def _boolean_of_list(word: str, value: list[Any], rest: Sequence[Thunk]) -> Any:
    """Return `value and rest[0]() and ...`, or the same with `or`, of a list whose length is traced."""
    def itself() -> Any:
        return value

    def others() -> Any:
        return boolean(word, rest[0](), *rest[1:])

    return if_expression(value, *((itself, others) if word == "or" else (others, itself)))


def _boolean_of_traced(word: str, value: Any, rest: Sequence[Thunk]) -> Any:
    def others() -> Any:
        return boolean(word, rest[0](), *rest[1:])

    decided = (word == "or") if value.dtype == dtypes.bool_ and not value.shape else value
    if word == "and":
        return choose(word, value, others, lambda: decided)
    return choose(word, value, lambda: decided, others)


def is_none(value: Any) -> Any:
    """Return whether a value is None, which may be traced."""
    return not_(value.is_set) if type(value) is OptionalValue else value is None


def is_same(one: Any, other: Any) -> Any:
    """Return `one is other`; a member of an `IntEnum` that a traced condition chose is its number, a weak integer."""
    for each, another in ((one, other), (other, one)):
        if type(each) is ChosenMember:
            return each.is_member(another)
    if any(type(each) is Tracer and each.aval.weak and dtypes.kind_of(each.dtype) == "i" for each in (one, other)) and (
            any(isinstance(each, enum.IntEnum | enum.IntFlag) for each in (one, other))):
        return one == other
    return one is other


def is_true(value: Any, is_operand: bool = False) -> Any:
    """Return a condition that is a variable or an operand: of None, a text, a container or an object its truth.

    A traced condition can choose between truths, and not between a number and one of these. So it is for a traced
    number that is an operand: `x and None` is False, whatever x is.
    """
    if type(value) is list:
        return has_items(value) if is_growing(value) else bool(value)
    if type(value) is OptionalValue:
        return boolean("and", value.is_set, lambda: boolean_of(value.value))
    if is_operand and is_unknown(value) and value.size == 1:
        return truth(value, "if")
    of_program = isinstance(value, Tracer | UnknownLength | PossibleItem | ChosenMember)
    return value if of_program or array_aval(value) is not None else bool(value)


def not_(value: Any) -> Any:
    """Return `not value`."""
    value = has_items(value)
    return logical_not(truth(value, "not")) if is_unknown(value) else not value


def without_traced_bools(value: Any) -> Any:
    """Return a value that is compared with the objects True and False; raise if it is traced, and neither of them."""
    if any(type(each) is Tracer and each.dtype == dtypes.bool_ for each in tree.leaves(value)):
        raise refuse("`is True`, `is False`, and `case True` or `case False` of a `match`, ask for an object of "
                     "Python's, which no traced condition is. Write `if x:` or `if not x:`")
    return value


def counted(condition: Any) -> Any:
    """Return a condition that is added to another one; raise for traced scalars, which Python and NumPy add unlike."""
    if type(condition) is Tracer and condition.dtype == dtypes.bool_ and not condition.shape:
        raise refuse("the sum of two conditions is their number in Python, and True in NumPy, where one of them holds. "
                     "Write int(a) + int(b), or `a or b`")
    return condition


def as_number(condition: Any) -> Any:
    """Return a condition of a difference, `(x > 0) - (x < 0)`, as Python's number; NumPy has no difference of bools."""
    if type(condition) is Tracer and condition.dtype == dtypes.bool_ and not condition.shape:
        return convert(condition, dtypes.int64, weak=True)
    return condition


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


def raised_flag(flag: Any, condition: Any) -> Any:
    """Return whether a check failed in the place of a `raise`: `flag`, or a condition of one more.

    With a condition that Python knows it is the `raise` itself that runs.
    """
    return boolean("or", flag, lambda: condition) if is_unknown(condition) else flag


def assertion(test: Any, message: Thunk | None, source: str) -> Any:
    """Return what an `assert` statement tests: `test` if Python knows it, and else True, with a check in the program.

    A failed `assert` in a traced block is a check too, for the block may not run.
    """
    test = has_items(test)
    unknown = is_unknown(test)
    if not unknown and (block.get() is None or test):
        return test
    refuse_in_try("assert")
    _check(truth(test, "assert") if unknown else False, message, source)
    return True


def not_raising(test: Any, raises: bool, message: Thunk, source: str, error: Thunk) -> Any:
    """Return the condition of an `if` of which the side for `raises` raises an exception.

    It is `test` if Python knows that, and else the condition of the other side, with a check in the program. `error`
    gives the exception or its class, if it is no function that does.
    """
    if not is_unknown(test):
        return test
    kind = _class_of(error)
    refuse_in_try("raise", kind or BaseException)
    condition = truth(test, "if")
    _check(logical_not(condition) if raises else condition, message, source, kind)
    return not raises


def _class_of(error: Thunk) -> type[BaseException] | None:
    try:
        found = error()
    except Exception:  # noqa: BLE001  (of the user's code: without the check's failing it does not run)
        return None
    kind = found if isinstance(found, type) else type(found)
    return kind if issubclass(kind, BaseException) else None


def _check(condition: Any, message: Thunk | None, source: str, kind: type[BaseException] | None = None) -> None:
    """Add a check; `source` is its text if the message has traced values in other ways than f-strings have."""
    try:
        given = "assertion failed" if message is None else message()
        text = given if isinstance(given, Text | np.ndarray) or type(given) is Tracer else str(given)
    except Exception:  # noqa: BLE001  (Python makes the text only if the check fails)
        text = source
    form, values = template(text)
    check_raise(condition, kind, form, *values)


def raising(error: Thunk | None = None, kind: Thunk | None = None, source: str = "") -> Any:
    """Return an exception that is about to be raised; raise a refusal if no check can take its place.

    `kind` gives it without its text, whose place `source` takes if it has traced values.
    """
    around = block.get()
    made = None
    if error is not None and kind is not None:
        try:
            made = error()
        except FxgradError:
            found = _class_of(kind)
            if around is None or found is None:
                raise
            made = found.__new__(found)
            made.args = (source,)
    if around is None:
        return made
    if error is None or not around.is_side:
        raise refuse(f"`raise` stands inside {around.text}: the block is traced whether it runs or not, so the "
                     "exception cannot depend on the condition. Give the `raise` an `if` of its own with a traced "
                     "condition, which becomes a check; or return a NaN or a flag, and raise outside of the compiled "
                     "function")
    around.raised = made() if isinstance(made, type) else made
    return around.raised


def known(value: Any, what: str) -> Any:
    """Return a condition that Python must know."""
    if is_unknown(value):
        raise refuse(f"{what} is traced, and Python must know it. Write an `if` statement, or fxgrad.numpy.where")
    return value


def known_filter(value: Any, what: str = "the filter of a comprehension") -> Any:
    """Return whether a comprehension keeps an item, which Python must know."""
    if is_unknown(value):
        raise refuse(f"{what} is traced, and so would be the length of what it makes. Only lists "
                     "of numbers, of arrays of one shape, or of tuples of these may have one: [v for v in x if v > 0]")
    return value


def boolean_of(value: Any) -> Any:
    """Return `bool(value)`, which may be traced."""
    value = has_items(value)
    return truth(value, "any") if is_unknown(value) else bool(value)
