"""`fxgrad.debug.breakpoint`: stops forward and backward, with the values by name, the program and the gradient."""

from __future__ import annotations

import io
import sys
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import ArgumentError
from fxgrad.tools.inside.stopping import Stop

W, X = np.array([0.5, -1.0]), np.array([[1.0, 2.0], [3.0, -1.0]])


def function(stops: list[Stop]) -> Any:
    def loss(w: Any, x: Any) -> Any:
        h = np.tanh(x @ w)
        h = fxgrad.debug.breakpoint(h, on=stops.append)
        return np.sum(h ** 2)
    return loss


@pytest.mark.parametrize("jitted", [False, True])
def test_it_stops_forward_and_backward_and_results_stay(jitted: bool) -> None:
    stops: list[Stop] = []
    gradient = fxgrad.grad(function(stops))
    found = (fxgrad.jit(gradient) if jitted else gradient)(W, X)
    jax.effects_barrier()
    h = np.tanh(X @ W)
    np.testing.assert_allclose(found, X.T @ (2.0 * h * (1.0 - h ** 2)), rtol=1e-12)
    forward, backward = sorted(stops, key=lambda stop: stop.backward)
    assert not forward.backward
    for stop in (forward, backward):
        np.testing.assert_allclose(stop.values["h"], h, rtol=1e-12)
        np.testing.assert_array_equal(stop.values["w"], W)
        assert {*stop.values} == {"w", "x", "h"}
        assert "tanh" in stop.program
        assert stop.line.startswith("test_breakpoint.py:")
        assert stop.line.endswith("(in loss)")
    np.testing.assert_allclose(backward.gradient, 2.0 * h, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_backward_has_all_values_of_whatever_dtype(dtype: str) -> None:
    stops: list[Stop] = []

    def loss(x: Any) -> Any:
        positive = x > 0
        places = np.argsort(x)
        h = x * x
        h = fxgrad.debug.breakpoint(h, on=stops.append)
        return fnp.sum(fnp.where(positive, h, 0.0) + h[places])

    x = np.asarray(fnp.asarray([0.1, -0.2, 0.3]).astype(dtype))
    for function in (fxgrad.grad(loss), fxgrad.jit(fxgrad.grad(loss))):
        stops.clear()
        function(x)
        jax.effects_barrier()
        forward, backward = sorted(stops, key=lambda stop: stop.backward)
        for name in ("x", "positive", "places", "h"):
            np.testing.assert_array_equal(np.asarray(forward.values[name]), np.asarray(backward.values[name]))
            assert forward.values[name].dtype == backward.values[name].dtype
        np.testing.assert_array_equal(backward.gradient.astype("float32"), [2.0, 1.0, 2.0])


def test_without_a_transformation_it_stops_once() -> None:
    stops: list[Stop] = []
    assert float(function(stops)(W, X)) == np.sum(np.tanh(X @ W) ** 2)
    assert len(stops) == 1
    assert stops[0].program == ""


def test_second_derivatives_pass() -> None:
    stops: list[Stop] = []
    hessian = fxgrad.hessian(function(stops))(W, X)
    expected = fxgrad.hessian(lambda w: np.sum(np.tanh(X @ w) ** 2))(W)
    np.testing.assert_allclose(hessian, expected, rtol=1e-12)


def test_each_turn_of_a_loop_and_each_entry_of_a_batch_stops() -> None:
    stops: list[Stop] = []

    def step(carry: Any, x: Any) -> Any:
        carry = carry * x
        fxgrad.debug.breakpoint(on=stops.append)
        return carry, None

    fxgrad.lax.scan(step, 1.0, np.array([2.0, 3.0]))
    assert [float(stop.values["carry"]) for stop in stops] == [2.0, 6.0]
    stops.clear()
    fxgrad.vmap(function(stops), in_axes=(None, 0))(W, X)
    np.testing.assert_allclose(sorted(float(stop.values["h"]) for stop in stops), sorted(np.tanh(X @ W)), rtol=1e-12)


def test_the_prompt_evaluates_expressions(monkeypatch: Any, capsys: Any) -> None:
    def loss(w: Any) -> Any:
        h = w * 2.0
        return fxgrad.debug.breakpoint(h)

    monkeypatch.setattr(sys, "stdin", io.StringIO("h + 1\nprogram\nnothing\n\nnames\nc\n3.0 * gradient\nc\n"))
    assert float(fxgrad.grad(loss)(3.0)) == 2.0
    text = capsys.readouterr().out.replace("(fxgrad) ", "")
    assert "stopped at test_breakpoint.py:" in text
    assert "7.0" in text
    assert "program(" in text
    assert "NameError: name 'nothing' is not defined" in text
    assert "3.0" in text.partition("backward")[2]
    monkeypatch.setattr(sys, "stdin", io.StringIO("q\n"))
    with pytest.raises(KeyboardInterrupt):
        loss(3.0)


def test_what_is_no_array_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"debug.breakpoint: got a str, where an array or a container of them is "
                                            "needed"):
        fxgrad.debug.breakpoint("h")
