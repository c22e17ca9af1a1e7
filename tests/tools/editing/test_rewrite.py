"""Rewriting by patterns: what matches, what does not, what comes of it, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import errors, lax
from fxgrad.engine.core.program import Program

X = np.array([0.5, -1.0, 2.0])
RNG = np.random.default_rng(0)


def log_sum(a: Any, b: Any) -> Any:
    return np.log(np.exp(a) + np.exp(b))


def names(program: Program) -> list[str]:
    return [equation.primitive.name for equation in program.equations]


def rewritten(function: Callable[..., Any], pattern: Any, replacement: Any, *args: Any, **options: Any) -> Program:
    """The rewritten program, which computes the same; the program itself where nothing matches."""
    program = fxgrad.make_program(function)(*args)
    result = fxgrad.replace_pattern(program, pattern, replacement, **options)
    np.testing.assert_allclose(result(*args), program(*args), rtol=1e-14)
    assert result.check() is result
    return result


def test_a_pattern_becomes_its_replacement() -> None:
    def model(x: Any, y: Any) -> Any:
        total = np.log(np.exp(x) + np.exp(y * 2.0))
        return total + np.log(np.exp(x) + np.exp(total))  # exp(x) is computed once, for both

    result = rewritten(model, log_sum, np.logaddexp, X, X + 1.0)
    assert fxgrad.text.program_text(result, source=False) == """\
program model(x, y: f64[3]) -> f64[3]:
  total: f64[3] = logaddexp(x, y * 2.0)
  return total + logaddexp(x, total)"""
    space: dict[str, Any] = {"__name__": "rewritten"}
    exec(result.to_python(), space)
    np.testing.assert_array_equal(space["model"](X, X + 1.0), result(X, X + 1.0))


@pytest.mark.parametrize(("function", "found"), [
    (lambda x, y: np.sin(x) * 2.0 + y, True),
    (lambda x, y: y + np.sin(x) * 2.0, True),  # operands that may be exchanged
    (lambda x, y: y + 2.0 * np.sin(x), True),
    (lambda x, y: y + 3.0 * np.sin(x), False),  # another number
    (lambda x, y: y - 2.0 * np.sin(x), False),  # another operation
    (lambda x, y: y + 2.0 * np.cos(x), False),
    (lambda x, y: y[:, None] + 2.0 * np.sin(x), True)])
def test_what_matches(function: Any, found: bool) -> None:
    program = fxgrad.make_program(function)(X, X)
    result = fxgrad.replace_pattern(program, lambda a, b: np.sin(a) * 2.0 + b, lambda a, b: np.sin(a) + b + np.sin(a))
    assert (result is not program) == found
    np.testing.assert_allclose(result(X, X), program(X, X), rtol=1e-14)


def test_parameters_and_operands_that_must_be_the_same() -> None:
    total = lambda x: np.sum(np.square(x), axis=0)
    norm = lambda x: np.einsum("i...,i...->...", x, x)
    assert "reduce_sum" not in names(rewritten(lambda x: np.sum(np.square(x), axis=0), total, norm, np.ones((2, 3))))
    assert "reduce_sum" in names(rewritten(lambda x: np.sum(np.square(x), axis=1), total, norm, np.ones((2, 3))))
    square = (lambda x: x * x, lambda x: np.square(x))
    assert names(rewritten(lambda x, y: (x * y) * (y * y), *square, X, X + 1.0)) == ["mul", "square", "mul"]


def test_inner_values_that_are_used_elsewhere() -> None:
    def shared(x: Any) -> Any:
        h = np.exp(x)
        return np.log(h + 1.0) + h

    pattern, replacement = (lambda x: np.log(np.exp(x) + 1.0)), fxgrad.nn.softplus
    program = fxgrad.make_program(shared)(X)
    assert fxgrad.replace_pattern(program, pattern, replacement) is program
    result = rewritten(shared, pattern, replacement, X, shared=True)
    assert names(result) == ["exp", "named_call", "add"]  # exp is still computed
    both = fxgrad.make_program(lambda x: (np.exp(x), np.log(np.exp(x) + 1.0)))(X)
    assert fxgrad.replace_pattern(both, pattern, replacement) is both


def test_matches_do_not_overlap() -> None:
    twice = (lambda x: np.sin(np.sin(x)), lambda x: np.cos(x))
    program = fxgrad.make_program(lambda x: np.sin(np.sin(np.sin(np.sin(np.sin(x))))))(X)
    assert names(fxgrad.replace_pattern(program, *twice)) == ["cos", "cos", "sin"]


def test_an_argument_as_the_replacement() -> None:
    def chain(x: Any) -> Any:
        a = np.log(np.exp(x))
        b = np.log(np.exp(a + 1.0))
        return np.log(np.exp(b))

    result = rewritten(chain, lambda x: np.log(np.exp(x)), lambda x: x, X)
    assert fxgrad.text.program_text(result, source=False) == "program chain(x: f64[3]) -> f64[3]:\n  return x + 1.0"
    nothing = fxgrad.make_program(lambda x: np.log(np.exp(x)))(X)
    assert names(fxgrad.replace_pattern(nothing, lambda x: np.log(np.exp(x)), lambda x: x)) == []


def test_several_results() -> None:
    def moments(x: Any) -> Any:
        return np.sum(x), np.sum(x * x)

    pattern = lambda x: (np.sum(x), np.sum(x * x))
    result = fxgrad.replace_pattern(fxgrad.make_program(moments)(X), pattern, lambda x: (np.sum(x), np.dot(x, x)))
    assert names(result) == ["reduce_sum", "dot_general"]
    assert result(X) == (X.sum(), X @ X)

    def one_needs_the_other(x: Any) -> Any:
        first = np.sin(x)
        return np.cos(first * 2.0)

    program = fxgrad.make_program(one_needs_the_other)(X)
    assert fxgrad.replace_pattern(program, lambda x, y: (np.sin(x), np.cos(y)), lambda x, y: (x, y)) is program


def test_calls_and_constants() -> None:
    weights = RNG.normal(size=(3, 3))
    program = fxgrad.make_program(lambda x: fxgrad.nn.softmax(weights @ x))(X)
    result = fxgrad.replace_pattern(program, fxgrad.nn.softmax, lambda x: np.exp(x) * weights[0])
    np.testing.assert_allclose(result(X), np.exp(weights @ X) * weights[0], rtol=1e-12)
    assert len(result.constants) == 2


def test_derived_programs() -> None:
    gradient = fxgrad.make_program(fxgrad.grad(lambda x: np.sum(np.tanh(x) ** 2)))(X)
    result = fxgrad.replace_pattern(gradient, lambda h: 1.0 - h * h, lambda h: (1.0 - h) * (1.0 + h))
    assert result is not gradient
    np.testing.assert_allclose(result(X), gradient(X), rtol=1e-14)
    of_result = fxgrad.grad(lambda x: np.sum(result(x)))(X)
    np.testing.assert_allclose(of_result, fxgrad.grad(lambda x: np.sum(gradient(x)))(X), rtol=1e-13)


def test_inside_of_loops_branches_and_calls() -> None:
    def nested(x: Any) -> Any:
        y, _ = lax.scan(lambda c, e: (log_sum(c, e), None), x[0], x)
        z = lax.cond(y > 0.0, lambda: log_sum(y, y * 2.0), lambda: y)
        return fxgrad.named_call(lambda z: log_sum(z, z + 1.0), name="block")(z)

    program = fxgrad.make_program(nested)(X)
    assert fxgrad.replace_pattern(program, log_sum, np.logaddexp) is program
    result = rewritten(nested, log_sum, np.logaddexp, X, inside=True)
    assert str(result).count("logaddexp") == 3
    assert "log(" not in str(result)


def test_which_matches() -> None:
    def layers(x: Any) -> Any:
        with fxgrad.named_scope("first"):
            y = np.maximum(x, 0.0)
        with fxgrad.named_scope("second"):
            return np.maximum(y - 1.0, 0.0)

    program = fxgrad.make_program(layers)(X)
    result = fxgrad.replace_pattern(program, lambda x: np.maximum(x, 0.0), np.tanh,
                            where=lambda match: match.equations[0].scope == "second")
    assert names(result) == ["max", "sub", "tanh"]


def test_types() -> None:
    program = fxgrad.make_program(lambda x, y: (np.sin(x) * 2.0, np.sin(y) * 2.0))(X, X.astype(np.float32))
    pattern, replacement = (lambda x: np.sin(x) * 2.0), (lambda x: np.sin(x) + np.sin(x))
    assert names(fxgrad.replace_pattern(program, pattern, replacement)) == ["sin", "add", "sin", "add"]
    assert names(fxgrad.replace_pattern(program, pattern, replacement, types=[X])) == ["sin", "add", "sin", "mul"]
    assert fxgrad.replace_pattern(program, pattern, replacement, types=[fxgrad.ShapeDtypeStruct((4,), "f")]) is program


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pattern", "replacement", "message"), [
    (lambda x: x, np.sin,
     ("replace_pattern: the pattern function returns what it does not compute; results of operations on "
                           "its arguments are needed")),
    (lambda x, y: np.sin(x), lambda x, y: x,
     "replace_pattern: the pattern function does not use its argument 1, which could then be anything. Leave it out"),
    (lambda x: np.sin(x) + X, np.sin,
     "replace_pattern: the pattern function closes over an array. Make it an argument"),
    (lambda x: np.sin(x), lambda x: np.sum(x),
     ("replace_pattern: the function returns f64[] in the place of the pattern, where f64[3] is needed. Give it "
      "results of the same shape and dtype")),
    (lambda x: np.linalg.inv(x), np.sin,
     ("replace_pattern: the pattern function fails for all types of the program; last: inv: an array of shape (); a "
      "matrix, or a stack of matrices (two axes or more), is needed. Write x[:, None] for a column"))])
def test_what_is_refused(pattern: Any, replacement: Any, message: str) -> None:
    program = fxgrad.make_program(lambda x: np.sin(x) * 2.0)(X)
    with pytest.raises(errors.ArgumentError) as caught:
        fxgrad.replace_pattern(program, pattern, replacement)
    assert str(caught.value).splitlines()[0] == message


def test_too_many_types() -> None:
    program = fxgrad.make_program(lambda *xs: [np.sin(x) for x in xs])(*(np.ones(n) for n in range(1, 50)))
    with pytest.raises(errors.ArgumentError) as caught:
        fxgrad.replace_pattern(program, log_sum, np.logaddexp)
    assert str(caught.value).splitlines()[0] == (
        "replace_pattern: the program has values of 49 types, and the pattern 2 arguments: too many combinations to "
        "try. Say which types are meant: rewrite(..., types=[x, y]), of arrays or ShapeDtypeStructs")
    assert fxgrad.replace_pattern(program, np.sin, np.cos) is not program


def test_a_dozen_types_are_not_too_many() -> None:
    program = fxgrad.make_program(lambda *xs: [np.log(np.exp(x) + np.exp(x)) for x in xs])(
        *(np.ones(n) for n in range(1, 13)))
    done = fxgrad.replace_pattern(program, log_sum, np.logaddexp)
    assert [equation.primitive.name for equation in done.equations] == ["logaddexp"] * 12


def test_results_that_give_way_stay_those_that_do_not() -> None:
    """Of a number in the place of an array, of shape ()."""
    for given, weak in ((np.ones(()), False), (1.0, True)):
        program = fxgrad.make_program(lambda x: np.sin(x) * 2.0)(given)
        done = fxgrad.replace_pattern(program, np.sin, lambda x: 3.0)
        assert [aval.weak for aval in done.out_avals] == [weak] == [aval.weak for aval in program.out_avals]
        assert done(given) == 6.0
