"""Diagonals as NumPy writes them: `diag(v)`, a matrix with `v` on its diagonal, and `diagonal(m)` of a square matrix.

Each is short for two equations. `diag` pads `v` with zeros between its elements and reshapes it; `diagonal` takes every
(n + 1)-th element of the flattened n x n matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from fxgrad.extend import Atom, Literal
from fxgrad.text.forms import Form, Span
from fxgrad.text.gathers import Make, Ready
from fxgrad.text.literals import implying_types, literal_expression

NAMES = ("diag", "diagonal")


def diagonal_form(form: Form, ready: Ready) -> Form | None:
    """Return the short form of an equation and the one `ready` inside it; None if there is none."""
    aval = ready.avals[0] if ready.avals else None
    if aval is None or aval.weak or aval.ndim not in (1, 2):
        return None
    size = aval.shape[0]
    if type(size) is not int or size < 2 or aval.shape != (size,) * aval.ndim:
        return None
    if aval.ndim == 1:
        padded = _pad_form(size)
        if form != _reshape_form(size, size) or ready.form != padded:
            return None
        zero = literal_expression(Literal(0, aval.update(shape=())), padded, implying_types(padded, [aval]))
        if ready.operands[1] == zero:
            return Form("call", "diag", 1)
    elif form == _slice_form(size) and ready.form == _reshape_form(size * size):
        return Form("call", "diagonal", 1)
    return None


def desugar_diagonal(name: str, operand: Atom, make: Make, fail: Callable[[str], NoReturn]) -> Any:
    """Make the two equations of `name(operand)`; return the result."""
    aval = operand.aval
    size = aval.shape[0] if aval.ndim else 0
    if name == "diag":
        if aval.ndim != 1 or size < 2:
            fail(f"diag takes a vector of at least two elements, got {aval}")
        padded = make(_pad_form(size), [operand, Literal(0, aval.update(shape=()))])
        return make(_reshape_form(size, size), [padded])
    if aval.ndim != 2 or aval.shape != (size, size) or size < 2:
        fail(f"diagonal takes a square matrix of at least two rows, got {aval}")
    return make(_slice_form(size), [make(_reshape_form(size * size), [operand])])


def _pad_form(size: int) -> Form:
    return Form("call", "pad", 2, (((0, 0, size),),))


def _reshape_form(*shape: int) -> Form:
    return Form("call", "reshape", 1, (shape,))


def _slice_form(size: int) -> Form:
    return Form("index", "[]", 1, (Span(None, None, size + 1),))
