"""Forms: how one operation is written in the compact style, as an operator, an index or a call, and their text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fxgrad.text.names import RESERVED, is_identifier


class Span(NamedTuple):
    """`start:stop:step` in an index, as written: None for parts left out."""

    start: int | None = None
    stop: int | None = None
    step: int | None = None


class Entry(NamedTuple):
    """An operand among the items of an index."""


Item = Span | Entry | int | None
"""In an index: a range, an array, a place on an axis that is dropped, or a new axis."""


class Form(NamedTuple):
    """The notation of one operation without its operands; it has `arity` of them.

    | `kind` | is | `statics` are |
    |---|---|---|
    | `infix` | `a + b`; `x ** 2` of one operand | the exponent; of `@`, whether each side is transposed |
    | `prefix` | `-a` | |
    | `turned` | `x.T` | |
    | `index` | `x[1:3, None]`, `x[i]` | the items |
    | `call` | `name(operands, statics, name=value)` | tuples, types and strings among the arguments |
    | `quoted` | the same of an operation that is called by its own name between quotes | |
    """

    kind: str
    name: str
    arity: int
    statics: tuple[Any, ...] = ()
    params: tuple[tuple[str, Any], ...] = ()


class OperandText(NamedTuple):
    """The text of an expression, and how tightly its outermost operator binds."""

    text: str
    level: int


ATOM = 20
PREFIX = 8
POWER = 9
LEVELS = {"==": 1, "!=": 1, "<": 1, "<=": 1, ">": 1, ">=": 1, "|": 2, "^": 3, "&": 4, "<<": 5, ">>": 5, "+": 6, "-": 6,
          "*": 7, "/": 7, "@": 7, "**": POWER}
"""The precedence of operators, as in Python; higher ones bind first."""
COMPARISON = 1


def is_word(name: str) -> bool:
    """Return whether an operation's name is written without quotes."""
    return is_identifier(name) and name not in RESERVED


def enclose(shown: OperandText, level: int) -> str:
    """Return the text, in parentheses if it binds less tightly than `level`."""
    return shown.text if shown.level >= level else f"({shown.text})"


def parenthesize(shown: OperandText) -> OperandText:
    """Return the expression in parentheses."""
    return OperandText(f"({shown.text})", ATOM)


Write = Callable[[Any], str]
"""A function that returns the text of a static or of a parameter."""


def render_form(form: Form, operands: Sequence[OperandText], write: Write) -> OperandText:
    """Return the text of `form` with the texts of its operands."""
    return _RENDER[form.kind](form, operands, write)


def _infix(form: Form, operands: Sequence[OperandText], _: Write) -> OperandText:
    level = LEVELS[form.name]
    left = operands[0]
    if form.name == "**":
        right = OperandText(str(form.statics[0]), PREFIX if form.statics[0] < 0
                            else ATOM) if form.statics else operands[1]
        return OperandText(f"{enclose(left, ATOM)} ** {enclose(right, PREFIX)}", level)
    right = operands[1]
    if form.name == "@":
        left, right = (OperandText(f"{enclose(side, ATOM)}.T", ATOM) if turned
                       else (parenthesize(side) if side.text.endswith(".T") else side)
                       for side, turned in zip((left, right), form.statics, strict=True))
    above = level + 1
    return OperandText(f"{enclose(left, above if level == COMPARISON else level)} {form.name} {enclose(right, above)}",
                       level)


def _prefix(form: Form, operands: Sequence[OperandText], _: Write) -> OperandText:
    operand, = operands
    text = enclose(operand, PREFIX)
    if text[0].isdigit() or text[0] == "." or text.startswith(("inf", "nan", form.name)):
        text = f"({operand.text})"  # -2.0 is a number
    return OperandText(form.name + text, PREFIX)


def _transpose_text(_: Form, operands: Sequence[OperandText], __: Write) -> OperandText:
    return OperandText(f"{enclose(operands[0], ATOM)}.T", ATOM)


def _index(form: Form, operands: Sequence[OperandText], _: Write) -> OperandText:
    arrays = iter(operands[1:])
    items = [next(arrays).text if isinstance(item, Entry) else span_text(item) if isinstance(item, Span) else str(item)
             for item in form.statics]
    return OperandText(f"{enclose(operands[0], ATOM)}[{', '.join(items)}]", ATOM)


def span_text(span: Span) -> str:
    """Return `1:3`, `:`, `::2`."""
    start, stop, step = ("" if part is None else str(part) for part in span)
    return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"


def _call(form: Form, operands: Sequence[OperandText], write: Write) -> OperandText:
    name = f'"{form.name}"' if form.kind == "quoted" else form.name
    return OperandText(f"{name}({', '.join(argument_texts(form, operands, write))})", ATOM)


def argument_texts(form: Form, operands: Sequence[OperandText], write: Write) -> list[str]:
    """Return the arguments of a call: types and strings, operands, tuples, parameters by name."""
    first = [write(static) for static in form.statics if type(static) is not tuple]
    return [*first, *(operand.text for operand in operands),
            *(write(static) for static in form.statics if type(static) is tuple),
            *(f"{name}={write(value)}" for name, value in form.params)]


_RENDER = {"infix": _infix, "prefix": _prefix, "turned": _transpose_text, "index": _index, "call": _call,
           "quoted": _call}

