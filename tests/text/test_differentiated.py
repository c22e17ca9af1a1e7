"""What a derivative is of is said where the program does not compute it, and what is said computes that value."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jvp, lax, nn, vmap
from fxgrad.text import parse, program_text

X = np.array([0.3, 2.0])
MATRIX = np.array([[2.0, 0.5], [0.5, 1.0]])
SCALE = np.array([0.7, 1.3])
MARK = "# derivative of "


def text_of(function: Callable[..., Any], *args: Any) -> str:
    return program_text(fxgrad.make_program(function)(*args))


def said(text: str) -> list[str]:
    """The remarks of a text without the lines of the code."""
    lines = [line.strip() for line in text.splitlines()]
    return [line.rpartition("  #")[0].strip() for line in lines if line.startswith((MARK, "#   with "))]


def log_cosh(x: Any) -> Any:
    return np.log(np.cosh(x))


def robust(w: Any, x: Any) -> Any:
    error = x @ w - 1.0
    return np.mean(log_cosh(error))


def in_steps(w: Any) -> Any:
    scores = w * SCALE
    bounded = np.log(np.cosh(scores))
    total = np.sum(bounded)
    return total * 0.25


def again(w: Any) -> Any:
    w = w * 2.0
    w = np.sin(w)
    return np.sum(w) * w[0]


def branch(x: Any) -> Any:
    y = lax.cond(x[0] > 0, lambda x: np.sin(x), lambda x: x ** 2, x)
    return np.sum(y * y) / 3


def looped(w: Any) -> Any:
    final, states = lax.scan(lambda h, x: (np.tanh(w * h + x),) * 2, 0.5, SCALE)
    return final + np.sum(states ** 2)


def solved(m: Any, b: Any) -> Any:
    return np.linalg.slogdet(m)[1] + b @ np.linalg.solve(m, b)


def twice_used(x: Any) -> Any:
    return np.sum(np.log(np.cosh(x)) * (1.0 + np.log(np.cosh(x))))


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "of a number": (log_cosh, (1.5,)), "a loss": (robust, (X, MATRIX)), "in steps": (in_steps, (X,)),
    "names used again": (again, (X,)), "a branch": (branch, (X,)), "a loop": (looped, (0.3,)),
    "factorizations": (solved, (MATRIX, X)), "a value used twice": (twice_used, (X,)),
    "a lambda": (lambda x: np.sum(x ** 3), (X,)), "a sum of squares": (lambda x: x @ x, (X,)),
    "a function of the library": (lambda x: np.sum(nn.log_softmax(x) * SCALE), (X,)),
    "numbers of Python's": (lambda x: 0.1 * np.sum(np.exp(-0.5 * x) / 3), (X,)),
    "entropy": (lambda p: -np.sum(p * np.log(p + 1e-8)), (X,)),
    "logaddexp": (lambda s: np.sum(np.logaddexp(0.0, s) - SCALE * s), (X,)),
    "an exponent": (lambda x: np.sum(x ** 2.5 - np.sqrt(x)), (X,)),
}


def test_what_is_said_is_the_value_that_is_differentiated() -> None:
    """The expression, in the place of the results of the program that says it, gives the value of the function."""
    wrong = []
    for name, (function, args) in FUNCTIONS.items():
        text = text_of(grad(function), *args)
        remarks = said(text)
        head = text.partition("\n\nwhere ")[0].rpartition("\n  return ")[0]
        if any("SCALE" in remark for remark in remarks) and "SCALE" not in head.partition(MARK)[0]:
            head = head.replace("\n", "\n  captured SCALE: f64[2] = [0.7, 1.3]\n", 1)  # which the slopes do not need
        value, *more = [remark.removeprefix(MARK).removeprefix("#   with ") for remark in remarks] or [""]
        written = "\n  ".join([head, *more, f"return {value}"])
        below = text_of(function, *args).partition("\n\nwhere ")  # functions of the library
        if not value or not np.allclose(parse(written + "".join(below[1:]))(*args), function(*args), rtol=1e-14):
            wrong.append((name, text))
    assert not wrong, "\n\n".join(f"{name}:\n{text}" for name, text in wrong)


def test_what_is_said() -> None:
    assert said(text_of(grad(log_cosh), 1.0)) == ["# derivative of log(cosh(x))"]
    assert said(text_of(grad(robust), X, MATRIX)) == ["# derivative of mean(c)", "#   with c = log(cosh(error))"]
    assert said(text_of(grad(in_steps), X)) == [
        "# derivative of total * 0.25", "#   with bounded: f64[2] = log(cosh(scores))",
        "#   with total: f64 = sum(bounded)"]
    assert said(text_of(vmap(grad(robust), in_axes=(0, None)), MATRIX, MATRIX)) == [
        "# derivative of mean(c)", "#   with c = log(cosh(error))"]
    assert said(text_of(fxgrad.hessian(log_cosh), 1.0)) == ["# derivative of log(cosh(x))"]
    assert said(text_of(lambda x: jvp(log_cosh, (x,), (1.0,))[1], 1.0)) == ["# derivative of log(cosh(x))"]


def test_it_stands_below_the_head_of_the_backward_part_with_its_line() -> None:
    lines = [line.strip() for line in text_of(grad(robust), X, MATRIX).splitlines()]
    place = lines.index("# backward")
    number = robust.__code__.co_firstlineno + 2
    assert lines[place + 1].split("  #")[0].strip() == "# derivative of mean(c)"
    assert lines[place + 1].endswith(f"# {number}")


@pytest.mark.parametrize("function", [
    fxgrad.value_and_grad(log_cosh), log_cosh,
    grad(lambda x: (log_cosh(x),) * 2, has_aux=True)])
def test_nothing_is_said_of_what_is_computed(function: Callable[..., Any]) -> None:
    assert said(text_of(function, 1.0)) == []


def test_nothing_is_said_without_lines_nor_of_long_expressions() -> None:
    assert MARK not in program_text(fxgrad.make_program(grad(log_cosh))(1.0), source=False)

    name = "long" * 25
    functions: dict[str, Any] = {"np": np}
    exec(f"def long({name}): return np.log(np.cosh({name}))", functions)
    assert said(text_of(grad(functions["long"]), 1.0)) == []


def test_programs_that_were_pickled_say_it_too() -> None:
    for function, args in ((grad(robust), (X, MATRIX)), (grad(looped), (0.3,)), (log_cosh, (1.0,))):
        program = fxgrad.make_program(function)(*args)
        assert program_text(pickle.loads(pickle.dumps(program))) == program_text(program)
