"""The playground: generated JavaScript computes what the program does, and the page trains as Python would."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import ArgumentError, UnsupportedError
from fxgrad.tools.explorer import javascript, playground
from fxgrad.tools.explorer.javascript import expressions
from fxgrad.tools.explorer.playground import network
from tests.support.browser import screenshot

NODE = shutil.which("node")

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda x, y: (x + y) * (x - y) / (-x * 3.0),
    "functions": lambda x, y: fnp.exp(x) + fnp.log(y) + fnp.tanh(x) + fnp.sqrt(y) + fnp.sin(x) * fnp.cos(y),
    "powers": lambda x, y: x ** 2 + y ** 3 + x ** -1 + x ** 5,
    "choices": lambda x, y: fnp.where(x < y, fnp.maximum(x, 0.5), fnp.minimum(y, abs(x))),
    "equal": lambda x, y: fnp.where(x == y, 1.0, -2.0) * x,
    "small": lambda x, y: fnp.log1p(x) + fnp.expm1(y) + fnp.where((x >= y), x, y) + fnp.where(x != y, x, y),
    "more": lambda x, y: fnp.where(x > y, x, 0.0) + fnp.where(x <= y, y, 1e-300),
}


def _run(text: str, calls: list[list[float]]) -> Any:
    source = f"{text}\nconsole.log(JSON.stringify({json.dumps(calls)}.map(each => f(...each))));"
    found = subprocess.run([str(NODE), "-e", source], capture_output=True, text=True, check=True, timeout=60)
    return json.loads(found.stdout)


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
def test_operations_are_those_of_numpy() -> None:
    calls = [[0.3, 0.7], [1.5, 0.7], [0.7, 0.7], [2.0, 3.0]]
    used = set()
    for function in FUNCTIONS.values():
        program = fxgrad.make_program(fxgrad.value_and_grad(function, argnums=(0, 1)))(0.3, 0.7)
        used |= {equation.primitive for equation in program.equations}
        results = _run(javascript(program, "f"), calls)
        for call, found in zip(calls, results, strict=True):
            np.testing.assert_allclose(found, fxgrad.tree.leaves(program(*call)), rtol=1e-14)
    assert set(expressions.entered()) <= used


def test_numbers_are_written_so_that_they_stay() -> None:
    text = javascript(fxgrad.make_program(lambda x: (x * -2.5, x + float("inf"), x * 1e-300))(1.0))
    assert "x0 * (-2.5)" in text
    assert "Infinity" in text
    assert "1e-300" in text


@pytest.mark.parametrize(("function", "args", "text"), [
    (lambda x: fnp.sort(x), [np.ones(3)],
     ("javascript: an input is f64[3], where scalars of float64 or bool are needed. "
      "Write javascript(fxgrad.scalarize(program)) for a program of float64")),
    (fxgrad.scipy.special.gammaln, [1.0],
     ("javascript: lgamma has no form in JavaScript; there are abs, add, cos, div, eq, exp, expm1, ge, gt, "
      "integer_pow, le, log, log1p, lt, max, min, mul, ne, neg, select_n, sign, sin, sqrt, sub, tanh")),
])
def test_what_has_no_javascript(function: Callable[..., Any], args: list[Any], text: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        javascript(fxgrad.make_program(function)(*args))
    assert str(caught.value).split("\n")[0] == text


def test_mistakes() -> None:
    with pytest.raises(ArgumentError) as caught:
        playground((4, 9))
    assert str(caught.value).split("\n")[0] == (
        "playground: hidden=(4, 9), where at most 8 layers of 1 to 8 nodes are needed, such as hidden=(4, 3)")


def test_the_loss_of_a_network_and_its_slopes() -> None:
    params = [{"weights": np.array([[0.5], [-1.0]]), "bias": np.array([0.25])},
              {"weights": np.array([[2.0]]), "bias": np.array([-0.5])}]
    x, y, taps = np.array([1.0, 3.0]), 1.0, [np.zeros(1), np.zeros(1)]
    (loss, values), slopes = fxgrad.value_and_grad(network, argnums=1, has_aux=True)(params, taps, x, y)
    inner = np.tanh(0.5 * 1.0 - 1.0 * 3.0 + 0.25)
    outer = np.tanh(2.0 * inner - 0.5)
    np.testing.assert_allclose(loss, (outer - y) ** 2, rtol=1e-15)
    np.testing.assert_allclose(np.concatenate(values), [inner, outer], rtol=1e-15)
    last = 2.0 * (outer - y)
    np.testing.assert_allclose(np.concatenate(slopes), [last * (1.0 - outer ** 2) * 2.0, last], rtol=1e-14)


def _trained(params: list[Any], points: Any, rate: float, times: int) -> list[float]:
    """The losses of gradient descent on all points."""
    taps = [np.zeros_like(layer["bias"]) for layer in params]

    def loss(params: Any) -> Any:
        each = fxgrad.vmap(lambda x, y: network(params, taps, x, y)[0])
        return np.mean(each(points[:, :2], points[:, 2]))

    found = []
    for _ in range(times):
        value, slopes = fxgrad.value_and_grad(loss)(params)
        params = fxgrad.tree.map(lambda param, slope: param - rate * slope, params, slopes)
        found.append(float(value))
    return found


@pytest.mark.slow
def test_the_page_trains_as_python_would(browser: Any, tmp_path: Path) -> None:
    page = playground((4, 3))
    data = json.loads(re.findall(r'id="data">(.*?)</script>', page.html, re.DOTALL)[0])
    opened = browser.new_page()
    errors: list[str] = []
    requests: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(page.save(tmp_path / "playground.html").as_uri())
    points, rate = np.array(opened.evaluate("playground.points()")), opened.evaluate("playground.rate()")
    losses = opened.evaluate("playground.descend(50)")
    found = np.array(opened.evaluate("playground.at(3)"))
    trained = opened.evaluate("playground.params()")
    opened.click("#once")
    assert "step 51" in opened.inner_text("#status")
    screenshot(opened, "playground")
    opened.select_option("#points", "moons")
    assert "step 0" in opened.inner_text("#status")
    opened.click("#play")
    opened.wait_for_function("!document.getElementById('status').textContent.startsWith('step 0')")
    opened.close()
    assert errors == []
    assert [url for url in requests if not url.startswith("file:")] == []

    def layers(flat: list[float]) -> list[Any]:
        values = iter(flat)
        sizes = data["sizes"]
        made = []
        for before, after in pairwise(sizes):
            bias = np.array([next(values) for _ in range(after)])
            made.append({"bias": bias, "weights": np.array([next(values) for _ in range(before * after)]).reshape(
                before, after)})
        return made

    np.testing.assert_allclose(losses, _trained(layers(data["params"]), points, rate, 50), rtol=1e-9)
    slopes = fxgrad.intermediate_grads(lambda taps: network(layers(trained), taps, points[3, :2], points[3, 2])[0])(
        [np.zeros(size) for size in data["sizes"][1:]])
    count, hidden = len(trained), sum(data["sizes"][1:])
    np.testing.assert_allclose(found[1 + hidden + count:], np.concatenate([
        slopes[f"taps[{number}]"] for number in range(3)]), rtol=1e-9, atol=1e-15)
