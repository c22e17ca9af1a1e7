"""Naive forms: found by line, replaced by stable ones, accurate where they fail and equal where they do not."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import lint, make_program, stabilize, stable


def softmax_of(exponentials):
    return exponentials / exponentials.sum()


NAIVE: dict[str, Any] = {
    "logsumexp": lambda x: np.log(np.sum(np.exp(x))),
    "logsumexp, axis": lambda x: np.log(np.sum(np.exp(x), axis=-1)),
    "logsumexp, kept": lambda x: np.log(np.sum(np.exp(x), axis=0, keepdims=True)),
    "softmax": lambda x: np.exp(x) / np.sum(np.exp(x), axis=-1, keepdims=True),
    "softmax, once": lambda x: softmax_of(np.exp(x)),
    "log_softmax": lambda x: np.log(np.exp(x) / np.sum(np.exp(x), axis=-1, keepdims=True)),
    "softplus": lambda x: np.log(1 + np.exp(x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "expm1": lambda x: np.exp(x) - 1,
    "log1p": lambda x: np.log(1 + x),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAIVE)
def test_forms_are_found_and_replaced(name: str) -> None:
    function = NAIVE[name]
    for x in (np.linspace(0.1, 2.0, 6).reshape(2, 3), np.linspace(0.1, 2.0, 6, dtype=np.float32).reshape(2, 3)):
        program = make_program(function)(x)
        better = stabilize(program)
        assert better is not program
        np.testing.assert_allclose(better(x), program(x), rtol=1e-12 if x.dtype == np.float64 else 1e-5)
        assert np.asarray(better(x)).dtype == x.dtype
        finding, = lint(function)(x)
        inside = softmax_of if name == "softmax, once" else function
        assert finding.line == f"test_stable.py:{inspect.getsourcelines(inside)[1] + (inside is softmax_of)}"


def test_row_w9_log_sum_exp_is_accurate_where_the_naive_form_is_not() -> None:
    better = stabilize(make_program(NAIVE["logsumexp"])(np.ones(7)))
    for scale in (1.0, 1e2, 1e4):
        z = np.linspace(-scale, scale, 7)
        exact = scale + math.log(math.fsum(math.exp(each - scale) for each in z))
        for value in (better(z), fxgrad.nn.logsumexp(z)):
            assert abs(float(value) - exact) <= 4 * np.spacing(exact)
    assert np.all(np.isfinite(fxgrad.grad(better)(np.linspace(-1e4, 1e4, 7))))


def test_row_w10_the_linter_names_the_line_and_the_cure() -> None:
    def naive(x):
        scores = x * 2
        return np.exp(scores) / np.sum(np.exp(scores))

    with np.errstate(over="ignore", invalid="ignore"):
        assert np.isnan(naive(np.array([1000.0, 0.0]))[0])
    found = lint(naive)(np.ones(2))
    line = inspect.getsourcelines(naive)[1] + 2
    assert [tuple(finding) for finding in found] == [
        (f"test_stable.py:{line}", "exp overflows for large x, and inf / inf is NaN",
         "fxgrad.nn.softmax(x, axis=None)")]
    assert f"test_stable.py:{line}" in str(found)
    np.testing.assert_array_equal(stabilize(make_program(naive)(np.ones(2)))(np.array([1000.0, 0.0])), [1.0, 0.0])


def test_what_is_stable_is_left_alone() -> None:
    def good(x):
        shifted = np.exp(x - np.max(x, keepdims=True))
        return fxgrad.nn.softmax(x) + np.log1p(x) + np.exp(x) / 2 + shifted / np.sum(shifted)

    program = make_program(good)(np.ones(3))
    assert stabilize(program) is program
    assert not lint(good)(np.ones(3))
    assert str(lint(good)(np.ones(3))) == "good: nothing was found"


def test_forms_inside_of_loops() -> None:
    def looped(x):
        return fxgrad.fori_loop(0, 3, lambda _, x: np.log(1 + np.exp(x)), x)

    program = make_program(looped)(1.0)
    assert float(program(1000.0)) == np.inf
    assert float(stabilize(program)(1000.0)) == 1000.0
    assert len(lint(looped)(1.0)) == 1


@pytest.mark.parametrize("form", stable.FORMS, ids=lambda form: form.write)
def test_what_to_write_can_be_written(form: stable.Form) -> None:
    x = np.linspace(0.1, 1.0, 16).reshape(2, 2, 2, 2)
    written = eval(form.write, {"fxgrad": fxgrad, "np": np, "x": x})
    np.testing.assert_allclose(np.ravel(form.stable(x)), np.ravel(written), rtol=1e-13)
