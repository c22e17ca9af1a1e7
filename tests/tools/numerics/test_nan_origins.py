"""Where NaNs come from: a corpus of the kinds that people meet, each explained by its line and what to write."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors, nn

ZERO, ONES, MIXED = np.zeros(3), np.ones(3), np.array([0.0, 1.0, 2.0])


def total(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: fnp.sum(f(x))


VALUES: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "log of softmax": (lambda x: fnp.log(fnp.exp(x) / fnp.sum(fnp.exp(x))), 1000 * MIXED, "exp"),
    "log-sum-exp of infinities": (lambda x: x - x.max() + fnp.log(fnp.exp(x - x.max()).sum()), -np.inf * ONES,
                                  "infinity minus infinity"),
    "a square root below 0": (lambda x: fnp.sqrt(x - 1.0), MIXED, "sqrt"),
    "a logarithm below 0": (lambda x: fnp.log(x - 1.0), MIXED, "log"),
    "0 by 0": (lambda x: x / fnp.sum(x), ZERO, "quotient"),
    "a cosine of zero vectors": (lambda x: x @ x / (fnp.sqrt(x @ x) * fnp.sqrt(x @ x)), ZERO, "quotient"),
    "a mean of nothing": (lambda x: fnp.sum(x[x.shape[0]:]) / (x.shape[0] - 3), MIXED, "quotient"),
    "a mask that is multiplied": (lambda x: (1.0 / x) * (x > 0), MIXED, "quotient"),
    "0 log 0": (lambda x: x * fnp.log(x), MIXED, "log"),
    "entropy": (lambda x: -fnp.sum(x * fnp.log2(x)), MIXED, "log"),
    "a broken power of a negative number": (lambda x: (x - 1.0) ** 0.5, MIXED, "power"),
    "a broken power": (lambda x: (x - 1.0) ** 0.3, MIXED, "power"),
    "an arccosine beyond 1": (lambda x: fnp.arccos(x * 1.0000001), MIXED / 2 + 0.5, "acos"),
    "an arctanh beyond 1": (lambda x: fnp.arctanh(x), MIXED, "atanh"),
    "infinity minus infinity": (lambda x: fnp.exp(x) - fnp.exp(x * 2), 800 * MIXED, "exp"),
    "a sigmoid written out": (lambda x: fnp.exp(x) / (1 + fnp.exp(x)), 1000 * MIXED, "exp"),
    "a tanh written out": (lambda x: (fnp.exp(x) - fnp.exp(-x)) / (fnp.exp(x) + fnp.exp(-x)), 1000 * MIXED, "exp"),
    "standardised constants": (lambda x: (x - x.mean()) / x.std(), ONES, "quotient"),
    "a product of 0 and infinity": (lambda x: 0.0 * fnp.exp(x), 1000 * MIXED, "exp"),
    "in a matrix product": (lambda x: fnp.diag(x) @ (1.0 / x), MIXED, "quotient"),
}
GRADIENTS: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "norm": (lambda x: fnp.sqrt(fnp.sum(x * x)), ZERO, "sqrt"),
    "norm of the library": (lambda x: fnp.linalg.norm(x), ZERO, "sqrt"),
    "distance": (lambda x: fnp.sqrt(fnp.sum((x - x[0]) ** 2)), ONES, "sqrt"),
    "a root that is masked": (total(lambda x: fnp.where(x > 0, fnp.sqrt(x), 0.0)), MIXED, "sqrt"),
    "a logarithm that is masked": (total(lambda x: fnp.where(x > 0, fnp.log(x), 0.0)), MIXED, "log"),
    "a quotient that is masked": (total(lambda x: fnp.where(x != 0, fnp.sin(x) / x, 1.0)), MIXED, "quotient"),
    "an exponential that is masked": (total(lambda x: fnp.where(x < 10, fnp.exp(x), 1.0)), 1000 * MIXED, "exp"),
    "a power that is masked": (total(lambda x: fnp.where(x > 0, x ** 0.3, 0.0)), MIXED, "power"),
    "an exponent at base 0": (lambda p: fnp.sum(fnp.log(MIXED) * (MIXED ** p)), 0.5, "log"),
    "arctan2 at the origin": (lambda x: fnp.arctan2(x[0], x[1]), np.zeros(2), "atan2"),
    "an arccosine at 1": (total(lambda x: fnp.where(x < 1, fnp.arccos(x), 0.0)), ONES, "acos"),
    "an arcsine at 1": (total(lambda x: fnp.where(x < 1, fnp.arcsin(x), 0.0)), ONES, "asin"),
    "standard deviation of constants": (lambda x: fnp.std(x), ONES, "sqrt"),
    "cosine of zero vectors": (lambda x: x @ ONES / fnp.sqrt(x @ x), ZERO, "quotient"),
    "a hypotenuse": (lambda x: fnp.sqrt(x[0] ** 2 + x[1] ** 2), ZERO, "sqrt"),
    "0 log 0": (lambda x: fnp.where(x[0] > 0, x[0] * fnp.log(x[0]), 0.0), ZERO, "log"),
    "cross entropy of softmax": (lambda x: -fnp.log(nn.softmax(x)[1]), np.array([0.0, -800.0]), "log"),
    "a cubic root": (total(lambda x: fnp.where(x > 0, fnp.cbrt(x), 0.0)), MIXED, "cbrt"),
    "log1p at -1": (total(lambda x: fnp.where(x > 0, fnp.log1p(x - 1.0), 0.0)), MIXED, "log1p"),
    "eigenvalues that are equal": (lambda x: fnp.sum(1.0 / (fnp.linalg.eigvalsh(x) - 1.0)) * 0.0, np.eye(3),
                                   "quotient"),
    "in a scan": (lambda x: fxgrad.lax.scan(lambda c, y: (c + fnp.where(y > 0, fnp.sqrt(y), 0.0), None), 0.0, x)[0],
                  MIXED, "sqrt"),
    "in a jitted function": (fxgrad.jit(lambda x: fnp.where(x[0] > 0, fnp.sqrt(x[0]), 0.0)), ZERO, "sqrt"),
    "on a mesh": (fxgrad.shard_map(
        lambda x: fxgrad.lax.psum(fnp.sum(fnp.where(x > 0, fnp.sqrt(x), 0.0)), "i"),
        mesh=jax.sharding.AbstractMesh((3,), ("i",)), in_specs=jax.sharding.PartitionSpec("i"),
        out_specs=jax.sharding.PartitionSpec()), MIXED, "sqrt"),
}


def check(function: Callable[..., Any], x: Any, operation: str) -> None:
    with np.errstate(all="ignore"):
        assert np.isnan(np.asarray(function(x))).any()
    origin = fxgrad.debug.find_nan(function)(x)
    assert origin
    assert origin.results == ["the result"]
    assert origin.cause is not None
    assert origin.cause.line.startswith(("test_nan_origins.py:", "norms.py:", "statistics.py:"))
    assert operation in origin.write, origin.write
    assert "NaN in" in str(origin)


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    check(*VALUES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    function, x, operation = GRADIENTS[name]
    check(fxgrad.grad(function), x, operation)


@pytest.mark.slow
def test_causes_are_found_without_the_source_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a console of Python 3.11, whose lines cannot be had."""
    cases = [VALUES[name][:2] for name in VALUES]
    cases += [(fxgrad.grad(function), x) for function, x, _ in GRADIENTS.values()]
    read = [fxgrad.debug.find_nan(function)(x).write for function, x in cases]
    for name in ("getline", "getlines"):
        monkeypatch.setattr(linecache, name, lambda *_, name=name: "" if name == "getline" else [])
    assert [fxgrad.debug.find_nan(function)(x).write for function, x in cases] == read


def test_what_is_said() -> None:
    def length(x: Any) -> Any:
        scale = fnp.sum(x * x)
        root = fnp.sqrt(scale)
        return root * 3.0

    origin = fxgrad.debug.find_nan(fxgrad.value_and_grad(length))(ZERO)
    line = length.__code__.co_firstlineno
    assert origin.cause == ("mul", "inf * 0.0", (0,), f"test_nan_origins.py:{line + 1}", "backward")
    assert origin.infinity is not None
    assert origin.infinity.line == f"test_nan_origins.py:{line + 2}"
    assert origin.results == ["the result[1]"]
    assert origin.write == ("the slope of sqrt is infinite at 0: safe = np.where(x > 0, x, 1.0), then np.where(x > 0, "
                            "np.sqrt(safe), 0.0); or differentiate fxgrad.nan_safe(f), in which 0 times an infinite "
                            "slope is 0")


def test_what_came_in_and_what_is_passed_over() -> None:
    origin = fxgrad.debug.find_nan(lambda x, y: x * y)(MIXED, np.array([1.0, np.nan, 2.0]))
    assert (origin.arguments, origin.cause) == (["y"], None)
    nothing = fxgrad.debug.find_nan(lambda x: fnp.where(x > 0, fnp.log(x), 0.0))(MIXED)
    assert not nothing
    assert str(nothing) == "function: no NaN"
    with pytest.raises(errors.ArgumentError) as caught:
        fxgrad.debug.find_nan(fnp.sin)(jax.ShapeDtypeStruct((2,), "float32"))
    assert str(caught.value).startswith(
        "find_nan: an argument is a type without a value, and values are needed\n  at test_nan_origins.py:")


@pytest.mark.parametrize("key", [jax.random.key(1), fxgrad.random.key(1)], ids=["jax", "ours"])
def test_random_keys_go_in(key: Any) -> None:
    origin = fxgrad.debug.find_nan(lambda key, x: fnp.log(x) * fxgrad.random.normal(key, ()))(key, -1.0)
    assert origin.cause is not None
    assert origin.cause.computed == "log(-1.0)"
