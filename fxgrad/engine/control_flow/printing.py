"""Texts in converted code: `print`, at once or when the program runs, and f-strings and `str` of traced values."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from fxgrad import debug
from fxgrad.engine import dtypes, tree
from fxgrad.engine.control_flow.blocks import block, is_unknown, refuse
from fxgrad.engine.control_flow.structures import PossibleItem, UnknownLength, required
from fxgrad.engine.frontend.callback import repeats_a_run
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.errors import ControlFlowError

held: ContextVar[list[Callable[[], None]] | None] = ContextVar("held_prints", default=None)
"""Prints of a turn that may yet be traced instead."""


class Text:
    """An f-string whose values may be printed when the program runs."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = parts

    def __str__(self) -> str:
        return "".join(part if isinstance(part, str) else _format(*part) for part in self.parts)


def _format(value: Any, spec: str, conversion: str) -> str:
    function: Any = {"r": repr, "s": str, "a": ascii, "i": int}.get(conversion)
    return format(value if function is None else function(value), spec)


def text(*parts: Any) -> Text:
    """Return the f-string of parts: texts, and values with format and conversion."""
    return Text(parts)


def printed(*args: Any, **kwargs: Any) -> None:
    """Print as `print` does: at once, or in every run of the program if values are traced or the block is."""
    if repeats_a_run.get():
        return
    values = [leaf for arg in args for leaf in (
        [part[0] for part in arg.parts if not isinstance(part, str)] if isinstance(arg, Text) else tree.leaves(arg))]
    _refuse_unknown_length(values)
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
            if conversion == "i":
                value, conversion = convert(value, dtypes.int64) if type(value) is Tracer else int(value), ""
            elif type(value) is Tracer and conversion == "r" and value.weak_type and not value.shape:
                conversion = "s"  # as of Python's numbers
            pieces.append("{" + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "") + "}")
            given.append(required(value))
    return "".join(pieces), given


def _refuse_unknown_length(values: Sequence[Any]) -> None:
    """Raise if there is an array or a list of unknown length among values that are to be text."""
    if any(isinstance(each, UnknownLength) for each in values):
        raise refuse("a slice with a traced bound, whose length is not known, is made text. Print the array and the "
                     "bounds, or go over the items in a loop")
    if any(type(each) is PossibleItem for each in values):
        raise refuse("a list of which a traced condition decides how long it is is made text. Go over its items in a "
                     "loop")


def shown(value: Any) -> Any:
    """Return a value of an f-string; raise if it is traced, and the text would be that of a tracer."""
    _refuse_unknown_length(value if type(value) in (list, tuple) else [value])
    if is_unknown(value):
        raise _without_digits("an f-string has a traced value")
    return value


def text_of(function: Callable[..., str], /, *args: Any, **kwargs: Any) -> str:
    """Return the text that `str`, `repr`, `format` or the method `format` makes; raise as for an f-string."""
    values = tree.leaves((args, kwargs))
    _refuse_unknown_length(values)
    if not _is_printed.get() and any(map(is_unknown, values)):
        raise _without_digits(f"{function.__name__}() makes text of a traced value")
    return function(*args, **kwargs)


_is_printed: ContextVar[bool] = ContextVar("is_printed", default=False)
"""Whether a text is only printed, where that of a tracer says how to print the value."""


def as_they_are(argument: Callable[[], Any]) -> Any:
    """Return an argument of `print`, in which texts of tracers may stand; of an iterator the items."""
    token = _is_printed.set(True)
    try:
        value = argument()
        return [*value] if isinstance(value, Iterator) else value
    finally:
        _is_printed.reset(token)


def _without_digits(what: str) -> ControlFlowError:
    return refuse(f"{what}, whose digits are not known while the program is recorded. In print() and assert it may "
                  "stand; otherwise make the text outside of the compiled function")
