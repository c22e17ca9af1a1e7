"""Taking calls and loops apart: what comes of them, which are chosen, and that the result is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import errors, lax
from fxgrad.engine.core.program import Program

X = np.array([0.5, -1.0, 2.0])


def operations(program: Program) -> list[str]:
    return [equation.primitive.name for equation in program.equations]


@fxgrad.custom_jvp
def cube(x: Any) -> Any:
    return x * x * x


cube.defjvp(lambda primals, tangents: (cube(*primals), 3.0 * primals[0] ** 2 * tangents[0]))


def calls(x: Any) -> Any:
    with fxgrad.named_scope("encoder"):
        x = fxgrad.named_call(lambda x: fxgrad.named_call(np.sin, name="inner")(x) * 2.0, name="block")(x)
    x = fxgrad.jit(np.tanh)(x)
    x = fxgrad.checkpoint(np.exp)(x)
    return cube(x)


CALLS = fxgrad.make_program(calls)(X)


@pytest.mark.parametrize(("chosen", "expected"), [
    (True, ["sin", "mul", "jit_call", "checkpoint", "custom_jvp"]),
    (False, ["named_call", "jit_call", "checkpoint", "custom_jvp"]),
    ("*", ["sin", "mul", "tanh", "exp", "mul", "mul"]),
    ("block", ["named_call", "mul", "jit_call", "checkpoint", "custom_jvp"]),
    ("encoder", ["named_call", "mul", "jit_call", "checkpoint", "custom_jvp"]),
    ("encoder/*", ["named_call", "mul", "jit_call", "checkpoint", "custom_jvp"]),
    (["cube", "ta*"], ["named_call", "tanh", "checkpoint", "mul", "mul"])])
def test_calls_that_are_chosen(chosen: Any, expected: list[str]) -> None:
    unfolded = fxgrad.inline(CALLS, calls=chosen).check()
    assert operations(unfolded) == expected
    if "jit_call" in expected:
        assert np.array_equal(unfolded(X), CALLS(X))
    else:  # NumPy computes what XLA did, whose tanh may round otherwise
        np.testing.assert_allclose(unfolded(X), CALLS(X), rtol=1e-14)
    assert (unfolded is CALLS) == (chosen is False)


def test_what_was_a_call_is_in_its_scope() -> None:
    assert [equation.scope for equation in fxgrad.inline(CALLS, calls="*").equations] == [
        "encoder/block/inner", "encoder/block", "tanh", "exp", "cube", "cube"]


def recurrence(x: Any, w: Any) -> Any:
    def step(carry: Any, entry: Any) -> Any:
        carry = np.tanh(carry * w + entry)
        return carry, (carry * 2.0, entry)
    return lax.scan(step, x[0], x, reverse=True)


@pytest.mark.parametrize("function", [
    recurrence,
    lambda x, w: lax.scan(lambda c, e: (c + e * w, c), 0.0, x[:0]),  # no step
    lambda x, w: lax.scan(lambda c, _: (c * w, None), x, None, 3),
    lambda x, w: lax.fori_loop(0, 4, lambda i, y: y * w + i, x),
    lambda x, w: lax.scan(lambda c, row: (lax.scan(lambda d, e: (d * e, d), c, row)), w, np.outer(x, x)),
    fxgrad.grad(lambda x, w: np.sum(recurrence(x, w)[1][0])),
    fxgrad.grad(lambda x, w: lax.fori_loop(0, 4, lambda i, y: np.sin(y) * w + i, x).sum(), argnums=1)])
def test_loops_are_unrolled(function: Any) -> None:
    program = fxgrad.make_program(function)(X, 0.7)
    unfolded = fxgrad.inline(program, loops=True).check()
    assert not any(region.role == "body" for equation in unfolded.equations for region in equation.regions)
    for one, other in zip(fxgrad.tree.leaves(unfolded(X, 0.7)), fxgrad.tree.leaves(program(X, 0.7)), strict=True):
        np.testing.assert_array_equal(one, other)
        assert np.asarray(one).dtype == np.asarray(other).dtype


def test_loops_that_are_chosen() -> None:
    def loops(x: Any) -> Any:
        with fxgrad.named_scope("first"):
            y, _ = lax.scan(lambda c, _: (np.sin(c), None), x, None, 2)
        with fxgrad.named_scope("second"):
            z, _ = lax.scan(lambda c, _: (np.cos(c), None), y, None, 2)
        return lax.while_loop(lambda t: t.sum() < 3.0, lambda t: t + 1.0, z)

    program = fxgrad.make_program(loops)(X)
    assert operations(fxgrad.inline(program, loops="second")) == ["scan", "cos", "cos", "while"]
    assert operations(fxgrad.inline(program, loops=True)) == ["sin", "sin", "cos", "cos", "while"]
    assert fxgrad.inline(program) is program


def test_weak_numbers_that_become_strong_on_the_way() -> None:
    program = fxgrad.make_program(lambda x: lax.scan(lambda c, e: (c * e, c), 1.0, x))(X.astype(np.float32))
    found, expected = fxgrad.inline(program, loops=True).check()(X.astype(np.float32)), program(X.astype(np.float32))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


def test_too_many_equations_are_refused() -> None:
    program = fxgrad.make_program(recurrence)(X, 0.7)
    with pytest.raises(errors.ArgumentError) as caught:
        fxgrad.inline(program, loops=True, limit=8)
    line = recurrence.__code__.co_firstlineno + 4
    assert str(caught.value).splitlines()[0] == (
        f"inline: the program would have more than 8 equations; it has as many at scan at test_unfold.py:{line}, 3 "
        "steps of 4 equations each. Choose fewer calls and loops by name or scope, or allow more: "
        "inline(program, limit=...)")
