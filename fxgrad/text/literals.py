"""Numbers in the compact style: without a dtype wherever the operand beside them implies it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.extend import Aval, Equation, FoldedConstant, Literal, primitives
from fxgrad.text.forms import ATOM, PREFIX, Form, OperandText
from fxgrad.text.notations import sign_of
from fxgrad.text.numbers import NanBits, Number
from fxgrad.text.sources import Sources
from fxgrad.text.values import PLAIN_LITERALS, literal_kind, number_text


def number_kind(number: Number) -> str:
    """Return `b`, `i`, `f` or `c`."""
    if isinstance(number, bool):
        return "b"
    return "i" if isinstance(number, int) else "c" if isinstance(number, tuple) else "f"


def implied_aval(kind: str, beside: Sequence[Aval]) -> Aval:
    """Return the type of a number without one, implied by the operands beside it.

    It has the dtype of the first operand with numbers of that kind. If that is the dtype of Python's own numbers, it is
    one of these, which are weak. Without such an operand it is a Python number, too.
    """
    plain = PLAIN_LITERALS[kind]
    for aval in beside:
        own = literal_kind(aval.dtype)
        if own == kind or (kind, own) in _WIDENED:
            if aval.dtype == plain.dtype and not aval.weak:
                return plain
            return Aval((), aval.dtype, aval.weak and kind == own)
    return plain


_WIDENED = {("i", "f"), ("f", "c"), ("i", "c")}
"""Whole numbers beside floats, and real ones beside complex."""


def implying_types(form: Form | None, avals: Sequence[Aval | None]) -> list[Aval]:
    """Return the types that imply those of numbers in a form."""
    types = [static for static in form.statics if isinstance(static, Aval)] if form is not None else []
    return [*types, *(aval for aval in avals if aval is not None)]


def literal_expression(literal: Literal, form: Form | None, beside: Sequence[Aval]) -> OperandText:
    """Return the shortest text that parses to the number."""
    kind = literal_kind(literal.dtype)
    text = number_text(literal.value)
    texts = {text: kind}
    if kind == "f":
        texts[_whole_text(literal.value)] = "i"
    elif kind == "c" and literal.value.imag == 0 and not np.signbit(literal.value.imag):
        texts = {number_text(literal.value.real): "f", **texts}
    power = form is not None and form.name == "**"  # whole numbers there are exponents
    for short, given in texts.items():
        if short and not (power and given == "i") and implied_aval(given, beside) == literal.aval:
            return _expression_of(short)
    return _expression_of(f"{text}:{dtypes.short_name(literal.dtype)}{'*' if literal.aval.weak else ''}")


def _whole_text(value: Any) -> str:
    number = float(np.asarray(value))
    whole = number.is_integer() and abs(number) < 1e6 and not (number == 0 and np.signbit(number))
    return str(int(number)) if whole else ""


def _expression_of(text: str) -> OperandText:
    return OperandText(text, PREFIX if text.startswith("-") else ATOM - 1)


def kind_as_read(number: Number) -> str:
    """Return the kind of a number as read; the bits of a NaN are those of a float."""
    return "f" if isinstance(number, NanBits) else number_kind(number)


_LONGEST = 32
WRITTEN = "written"
"""Marks a number that the user wrote: `source` is then the user's text, not the source of an operation."""


def origin_text(literal: Literal, called: Callable[[Any], str]) -> str:
    """Return the computation of a folded number: `0.01 = 1/100 of mean`; "" if trivial.

    `called` maps a source to the function that the user called there.
    """
    made_of = getattr(literal, "made_of", None)
    if made_of is not None and made_of.operation == WRITTEN:
        return f"{_number_label(literal)} = {made_of.source}"
    if made_of is None or not sign_of(primitives[made_of.operation]):
        return ""
    formula = _formula(literal)
    name = next(filter(None, map(called, _sources(literal))), "")
    if formula == _number_label(literal) or len(formula) > _LONGEST:
        return ""
    return f"{_number_label(literal)} = {formula}{name and f' of {name}'}"


def literal_with_source(equation: Equation, place: int, sources: Sources) -> Literal | None:
    """Return a number among the inputs of `equation` with the user's expression for it, if known.

    It is known for operands of operators that the user's code itself recorded.
    """
    atom, source = equation.inputs[place], equation.source
    if not isinstance(atom, Literal) or hasattr(atom, "made_of") or source is None or source.part is not None:
        return None
    text = sources.operand(source, equation.primitive.name, place)
    if not text or len(text) > _LONGEST:
        return None
    result = Literal(atom.value, atom.aval)
    result.made_of = FoldedConstant(WRITTEN, (), text)
    return result


def _sources(literal: Literal) -> Iterator[Any]:
    """Yield the sources of the operations folded into a number, last one first."""
    made_of = getattr(literal, "made_of", None)
    if made_of is not None:
        yield made_of.source
        for operand in made_of.operands:
            yield from _sources(operand)


def _formula(literal: Literal) -> str:
    made_of = getattr(literal, "made_of", None)
    if made_of is None or made_of.operation == WRITTEN:
        return _number_label(literal)
    primitive = primitives[made_of.operation]
    if primitive is primitives.mul:
        kept = [operand for operand in made_of.operands if operand.value != 1]
        if len(kept) < len(made_of.operands):
            return "1" if not kept else _formula(kept[0])
    if primitive is primitives.neg:
        return f"-{_operand_text(made_of.operands[0])}"
    left, right = map(_operand_text, made_of.operands)
    return f"{left}{sign_of(primitive)}{right}"


def _operand_text(literal: Literal) -> str:
    formula = _formula(literal)
    return formula if formula == _number_label(literal) and not formula.startswith("-") else f"({formula})"


def _number_label(literal: Literal) -> str:
    return (literal_kind(literal.dtype) == "f" and _whole_text(literal.value)) or number_text(literal.value)
