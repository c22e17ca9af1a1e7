"""Over which axes values vary, and collectives that some devices would never come to."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import errors, lax
from fxgrad.engine.analyses.variation import NONE, check_collectives
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.program import Program
from fxgrad.engine.tracing.tape import Tape
from fxgrad.engine.tracing.trace import TraceRoot

SIZES = {"i": 4, "j": 2}


def body(function: Callable[..., Any], *avals: Any) -> Program:
    """The program of a function that speaks over the axes of a mesh."""
    tape: Tape = TraceRoot().tape([Aval((2,), np.dtype("float64"))] * 2, "body", function, SIZES)
    return tape.finish([*tape.run(lambda *xs: [*function(*xs)])])


def varies(function: Callable[..., Any]) -> list[str]:
    """Over what the outputs of a function of (a[2], b[2]) vary, which vary over "i" and "j"."""
    program = body(function)
    found = check_collectives(program, [NONE] * program.captured + [frozenset("i"), frozenset("j")], [*SIZES])
    return ["".join(sorted(axes)) for axes in found]


def test_operations_and_collectives() -> None:
    assert varies(lambda a, b: (a + b, a * 2, lax.psum(a, "i"), lax.psum(a + b, "i"), lax.pmax(a + b, ("i", "j")))) == [
        "ij", "i", "", "j", ""]
    assert varies(lambda a, b: (lax.ppermute(b, "i", [(0, 1)]), lax.all_gather(a, "i"), lax.axis_index("j") + b,
                                lax.psum_scatter(lax.all_gather(a, "i"), "i"), 1.0 + 0 * lax.psum(a, "i"))) == [
        "ij", "", "j", "i", ""]


def test_programs_inside() -> None:
    assert varies(lambda a, b: (
        lax.scan(lambda c, x: (c + x, c), a[0], b)[0],
        lax.scan(lambda c, x: ((c[1], b[0]), 1.0), (0.0, a[0]), None, 3)[0][0],
        lax.cond(b[0] > 0, lambda: 1.0, lambda: 2.0),
        lax.cond(lax.psum(b[0], "j") > 0, lambda: a, lambda: a + 1),
        lax.while_loop(lambda c: c < lax.psum(b[0], "j"), lambda c: c + 1.0, 0.0),
        lax.while_loop(lambda c: c < b[0], lambda c: c + 1.0, 0.0),
        fxgrad.jit(lambda x: lax.psum(x, "i") + b)(a),
        fxgrad.checkpoint(lambda x: np.sin(x))(a),
        lax.fori_loop(0, lax.axis_index("i"), lambda k, c: c + 1.0, 0.0),
        lax.while_loop(lambda c: lax.psum(c.sum(), "j") < 0, lambda c: lax.psum(c, "j"), b),  # perhaps of no steps
        lax.scan(lambda c, x: (lax.psum(c, "j"), None), b, None, 2)[0],
    )) == ["ij", "ij", "j", "i", "", "j", "j", "i", "i", "j", ""]


def branch(a: Any, b: Any) -> Any:
    return [lax.cond(a[0] > 0, lambda: lax.psum(b, "i"), lambda: b)]


def turned(a: Any, b: Any) -> Any:
    return [lax.cond(b[0] > 0, lambda: lax.ppermute(a, "i", [(0, 1)]), lambda: a)]


def loop(a: Any, b: Any) -> Any:
    return [lax.while_loop(lambda c: c[0] < 3.0, lambda c: (c[1], lax.pmean(c[1], "j")), (0.0, b[0]))[0]]


def asked(a: Any, b: Any) -> Any:
    return [lax.while_loop(lambda c: (lax.psum(1.0 + c, "i") < 3.0) & (c < a[0]), lambda c: c + 1, 0.0)]


def deep(a: Any, b: Any) -> Any:
    inner = fxgrad.jit(lambda x: lax.scan(lambda c, _: (lax.all_gather(c, "i").sum(0), None), x, None, 3)[0])
    return [lax.switch(lax.axis_index("i") % 2, [lambda x: x, lambda x: inner(x)], b)]


@pytest.mark.parametrize(("function", "message"), [
    (branch, ("psum over 'i' is in a branch of a cond whose predicate varies over 'i': it would wait forever for "
              "devices over the same axis that do not reach it. Speak before the cond, and choose in it, or with "
              "fxgrad.numpy.where, what is used")),
    (turned, ("ppermute over 'i' is in a branch of a cond whose predicate varies over 'j': it would wait forever for "
              "devices of the mesh (XLA's collective-permute waits for all of them) that do not reach it. Speak "
              "before the cond, and choose in it, or with fxgrad.numpy.where, what is used")),
])
def test_refused(function: Callable[..., Any], message: str) -> None:
    line = function.__code__.co_firstlineno + 1
    with pytest.raises(errors.UnsupportedError, match=f"^{re.escape(message)}\n  at test_variation.py:{line} .*$"):
        varies(function)


@pytest.mark.parametrize("function", [loop, asked, deep])
def test_refused_in_loops_and_deep_inside(function: Callable[..., Any]) -> None:
    with pytest.raises(errors.UnsupportedError, match="it would wait forever"):
        varies(function)


def test_allowed() -> None:
    """Where all that speak with each other come: another axis, an equal predicate, a loop of a known length."""
    assert varies(lambda a, b: (
        lax.cond(b[0] > 0, lambda: lax.psum(a, "i"), lambda: a),
        lax.cond(lax.pmax(a[0], "i") > 0, lambda: lax.ppermute(a, "i", [(0, 1)]), lambda: a),
        lax.scan(lambda c, x: (lax.psum(c * x, "i"), None), a[0], a)[0],
        lax.cond(a[0] > 0, lambda: lax.axis_index("i"), lambda: 0))) == ["ij", "i", "", "i"]
