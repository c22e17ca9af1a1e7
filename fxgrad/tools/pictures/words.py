"""Texts in pictures: short names of values and operations, types, numbers, and hover texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.extend import Aval, Equation, Source, source_line
from fxgrad.text.scope import type_text
from fxgrad.text.short import expression, operation_name
from fxgrad.text.sources import Sources
from fxgrad.tools.graphs.nodes import Node, Operation

MAX_LABEL = 18
"""Characters of a label; longer ones are shortened."""
MAX_NAME = 22
"""Most characters of the name of an operation."""
HOLE = "·"
"""The placeholder of an operand in an operation written without its operands."""


def value_label(node: Node) -> str:
    """Return the user's name of a value; else the expression that computes it, if it is short, or its letter.

    >>> import fxgrad
    >>> graph = fxgrad.graph(lambda x, y, w: (x + y) * w)(2.0, 3.0, 4.0)
    >>> [value_label(node) for node in graph.nodes]
    ['x', 'y', 'w', 'x+y', 'b']
    """
    if node.is_number:
        return _short_numbers(node.name)
    if node.is_named or node.producer is None:
        return shorten(node.name)
    return _strip_spaces(_short_numbers(node.text)) if is_expression(node) else node.name


def is_expression(node: Node) -> bool:
    """Return whether a value is labelled by its expression: short, and of names that the user gave."""
    if node.is_named or node.is_number or node.producer is None or node.producer.equation.programs:
        return False
    operands = [each for each in node.inputs if not each.is_number]
    is_short = len(_strip_spaces(_short_numbers(node.text))) <= MAX_LABEL
    return is_short and all(each.is_named or each.producer is None for each in operands)


def operation_label(operation: Operation) -> str:
    """Return an operation without its operands except numbers: `+`, `** 2`, `maximum(·, 0.0)`, `sum`."""
    return equation_label(operation.equation)


def equation_label(equation: Equation) -> str:
    """Return the label of an equation, like `operation_label`."""
    if equation.programs:
        return shorten(operation_name(equation), MAX_NAME)
    text = _short_numbers(expression(equation, lambda _: HOLE))
    if text.startswith('"'):
        return shorten(operation_name(equation), MAX_NAME)
    bare = " ".join(text.replace(HOLE, "").split())
    if not re.search(r"\w\(", text):  # an operator
        return shorten(bare or operation_name(equation))
    name, _, rest = text.partition("(")
    if re.fullmatch(rf"{HOLE}(, {HOLE})*\)", rest):
        return shorten(name)
    plain = re.sub(rf"^{HOLE}, (?=\w+=)", "", rest)
    return f"{name}({plain}" if len(name) + len(plain) < MAX_LABEL else shorten(name)


def _short_numbers(text: str) -> str:
    """Return an expression with its numbers to four digits, and without their types."""
    text = re.sub(r"(?<=\d):[a-z]+\d*\*?", "", text)
    return re.sub(r"\d+\.\d{4,}(e[-+]?\d+)?", lambda number: f"{float(number[0]):.4g}", text)


def shorten(text: str, longest: int = MAX_LABEL) -> str:
    """Return the text, or its beginning and its end.

    >>> shorten("params.encoder.layers[3].attention.W")
    'params.en…tention.W'
    """
    if len(text) <= longest + 1:
        return text
    half = longest // 2
    return f"{text[:half]}…{text[-half:]}"


def _strip_spaces(text: str) -> str:
    """Return an expression without the spaces around its operators."""
    return re.sub(r" ([-+*/@]|\*\*) ", r"\1", text)


def type_label(aval: Aval) -> str:
    """Return the type, `f64[5,3]`; "" for a Python number."""
    return "" if aval.weak and not aval.shape else type_text(aval).removesuffix("[]")


def number_label(value: Any) -> str:
    """Return a value in few characters: a number, up to three of them, or the first and the last.

    >>> number_label(20.0), number_label(np.array([1.0, 2.5])), number_label(np.arange(6.0).reshape(2, 3))
    ('20', '[1, 2.5]', '[0 … 5]')
    """
    try:
        array = np.asarray(value)
        if dtypes.is_key(array.dtype) or array.dtype == dtypes.float0:
            return ""
    except TypeError:
        return ""
    if not array.shape:
        return _short_number(array[()])
    flat = array.ravel()
    if flat.size <= 3 and array.ndim == 1:
        return f"[{', '.join(map(_short_number, flat))}]"
    return f"[{_short_number(flat[0])} … {_short_number(flat[-1])}]" if flat.size else "[]"


def _short_number(number: Any) -> str:
    return f"{number:.4g}" if np.asarray(number).dtype.kind in "fc" or "float" in str(number.dtype) else str(number)


def hover_text(title: str, aval: Aval | None, source: Source | None, sources: Sources) -> str:
    """Return the text for hovering: name and type, the file and the line, the text of the line."""
    lines = [title if aval is None else f"{title}: {type_text(aval)}"]
    if source is not None:
        lines.append(sources.comment(source))
        number = sources.span(source)[0]
        text = "" if number is None else _line(source.filename, number)
        lines += [text] if text else []
    return "\n".join(lines)


def _line(filename: str, number: int) -> str:
    try:
        return source_line(filename, number).strip()
    except Exception:  # noqa: BLE001  (others put functions of their own in its place)
        return ""


def count_noun(number: int, word: str) -> str:
    """Return `1 layer`, `3 layers`."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def list_choices(words: Sequence[str], known: Callable[[str], str] = repr) -> str:
    """Return `'a', 'b' or 'c'`."""
    *first, last = map(known, words)
    return f"{', '.join(first)} or {last}" if first else last
