"""Derivatives compared with complex steps: to the digits of float64, and only where a function is analytic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad.errors import ArgumentError
from fxgrad.testing import LawError, check_grads

A = np.random.default_rng(0).normal(size=(3, 3))
ANALYTIC: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "elementwise": (lambda x: np.sin(x) * np.exp(x) / (1.0 + x * x), (np.array([0.1, 0.2]),)),
    "matrices": (lambda a: np.linalg.inv(a + 3.0 * np.eye(3)) @ a.T, (A,)),
    "an integer beside": (lambda x, n: x ** n, (1.3, 3)),
    "containers": (lambda p: np.tanh(p["w"] @ p["b"]), ({"w": A, "b": A[0]},)),
    "float32": (np.cos, (np.float32(0.3),)),
    "a loop": (lambda x: fxgrad.scan(lambda c, _: (np.sin(c) * x, None), x, None, length=3)[0], (0.3,)),
    "Python's control flow": (lambda x: x ** 3 if x > 1.0 else x, (1.5,)),
    "a choice": (lambda x: np.where(x.real > 0.15, np.sin(x), x), (np.array([0.1, 0.2]),))}


@pytest.mark.parametrize("name", ANALYTIC)
def test_row_a5_analytic_functions_agree_to_rounding(name: str) -> None:
    function, arguments = ANALYTIC[name]
    check_grads(function, arguments, order=3, complex_step=True)


@pytest.mark.parametrize(("modes", "path"), [(("fwd",), "the jvp of f"), (("rev",), "the vjp of f")])
def test_row_a5_errors_below_the_digits_of_differences_are_found(modes: Any, path: str) -> None:
    @fxgrad.custom_jvp
    def sine(x: Any) -> Any:
        return np.sin(x)
    sine.defjvp(lambda primals, tangents: (sine(*primals), np.cos(primals[0]) * tangents[0] * (1.0 + 1e-9)))
    check_grads(sine, (0.3,), order=1, modes=modes)
    with pytest.raises(LawError) as caught:
        check_grads(sine, (0.3,), order=1, modes=modes, complex_step=True)
    assert str(caught.value).startswith(f"check_grads(sine) at f64[]: {path}")
    assert "is not the complex step" in str(caught.value)


REFUSED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "abs": (np.abs, (1.3,), ("check_grads(absolute, complex_step=True): f is not analytic there: a complex step and a "
                             "central difference differ: got 0.0 where")),
    "norm": (lambda x: np.linalg.norm(x), (A[0],), "f is not analytic there: a complex step and a central difference"),
    "conj": (lambda x: x * np.conj(x), (1.3,), "f is not analytic there: a complex step and a central difference"),
    "floor": (lambda x: np.floor(x) * x, (1.5,), "f is not analytic there: ufunc 'floor' not supported"),
    "complex": (np.sin, (1.0 + 1.0j,), ("check_grads: complex_step=True takes real arguments, got c128[]; leave "
                                        "complex_step out"))}


@pytest.mark.parametrize("name", REFUSED)
def test_other_functions_are_refused(name: str) -> None:
    function, arguments, expected = REFUSED[name]
    with pytest.raises(ArgumentError) as caught:
        check_grads(function, arguments, complex_step=True)
    assert expected in str(caught.value)
    assert "eave complex_step out" in str(caught.value)
    assert "test_complex_steps.py" in str(caught.value)
