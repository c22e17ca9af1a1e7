"""What a printed program says of itself: what it is of, and where its parts begin."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, vmap
from fxgrad.engine.frontend.flat import title_of
from fxgrad.text import parse, program_text
from fxgrad.text.names import own_names
from fxgrad.text.sections import HEADINGS
from fxgrad.text.sources import Sources


def loss(weights: Any, bias: Any, x: Any) -> Any:
    scale = np.exp(x)
    error = np.tanh(weights * scale + bias) - 1.0
    return error * error


@functools.wraps(grad(loss))
def wrapper(*args: Any) -> Any:
    return loss(*args)


TITLES = {
    "loss": loss, "grad(loss)": grad(loss), "grad(loss, bias)": grad(loss, argnums=1),
    "grad(loss, [weights, bias])": grad(loss, argnums=(0, 1)), "grad(loss, -2)": grad(loss, argnums=-2),
    "vmap(grad(loss, [bias]))": vmap(grad(loss, argnums=(1,))),
    "value_and_grad(loss, x)": fxgrad.value_and_grad(loss, argnums=2),
    "hessian(loss)": fxgrad.hessian(loss), "jit(loss)": jit(loss), "checkpoint(loss)": fxgrad.checkpoint(loss),
    "grad(function)": grad(lambda w, b, x: loss(w, b, x)), "partial": functools.partial(loss),
}


@pytest.mark.parametrize(("title", "function"), TITLES.items(), ids=TITLES.keys())
def test_titles(title: str, function: Callable[..., Any]) -> None:
    assert title_of(function) == title
    program = fxgrad.make_program(function)(*(np.ones((3, 2)) if title.startswith("vmap") else (1.0, 2.0, 3.0)))
    text = program_text(program)
    assert text.startswith(f"program {title}(")
    parsed = parse(text)
    assert parsed.signature is not None
    assert program.signature is not None
    assert parsed.signature.name == program.signature.name
    assert program_text(parsed, source=False) == program_text(program, source=False)


def test_a_wrapper_of_ones_own_is_what_it_is_called() -> None:
    assert title_of(wrapper) == "loss"


def headings(function: Callable[..., Any], *args: Any) -> list[str]:
    text = program_text(fxgrad.make_program(function)(*args))
    return [line.strip() for line in text.splitlines() if line.strip() in map("# {}".format, HEADINGS.values())]


def test_sections() -> None:
    parts = ["# independent of what is differentiated", "# forward", "# backward"]
    assert headings(grad(loss), 1.0, 2.0, 3.0) == parts
    assert headings(vmap(fxgrad.value_and_grad(loss)), *np.ones((3, 2))) == parts
    assert headings(grad(loss, argnums=(0, 1, 2)), 1.0, 2.0, 3.0) == parts[1:]
    assert headings(loss, 1.0, 2.0, 3.0) == []
    assert headings(grad(lambda x: x * x), 1.0) == []  # short enough to be seen at once


def test_loops_and_branches_are_of_the_part_that_they_are_in() -> None:
    def looped(w: Any, xs: Any) -> Any:
        start = np.exp(xs[0])
        last, _ = fxgrad.lax.scan(lambda state, x: (np.tanh(state * w + x), None), w * start, xs)
        chosen = fxgrad.lax.cond(xs[0] > 0, lambda v: v * w, lambda v: np.sin(v) * w, last)
        return chosen * chosen

    program = fxgrad.make_program(grad(looped))(1.0, np.ones(3))
    parts = [(equation.primitive.name, equation.source.part) for equation in program.equations
             if equation.primitive.name in ("scan", "cond")]
    assert parts == [("scan", "forward"), ("cond", "forward"), ("cond", "backward"), ("scan", "backward")]


def test_one_function_of_two_containers() -> None:
    """Its program is the same for both, and what they call the same leaf is not known."""
    def inner(values: dict[str, Any]) -> Any:
        leaf, = values.values()
        wave = np.sin(leaf)
        return wave * wave

    def outer(x: Any) -> Any:
        return grad(inner)({"a": x})["a"] + grad(inner)({"b": x * 2.0})["b"]

    program = fxgrad.make_program(outer)(1.0)
    names = {*own_names(program, Sources()).values()}
    assert {"wave", "d_wave", "wave_1", "d_wave_1"} <= names
    assert not [name for name in names if "values" in name]
