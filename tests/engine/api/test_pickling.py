"""Transformed functions as values of other programs: copied, and sent to other processes by cloudpickle."""

from __future__ import annotations

import contextvars
import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp


def total(x: Any) -> Any:
    return np.sum(x ** 2)


def with_rules() -> tuple[Any, Any]:
    first = fxgrad.custom_jvp(lambda x: np.sum(x ** 2))
    first.defjvp(lambda primals, tangents: (first(*primals), 3.0 * np.sum(primals[0] * tangents[0])))
    second = fxgrad.custom_vjp(lambda x: np.sum(x ** 2))
    second.defvjp(lambda x: (second(x), x), lambda x, cotangent: (5.0 * x * cotangent,))
    return first, second


def called(function: Any, x: Any) -> Any:
    function(x)
    return function


def pulled(pullback: Any) -> Any:
    return lambda x: pullback(x[0, 0])[0]


X = np.arange(6.0).reshape(2, 3)
FUNCTIONS: dict[str, Callable[[], Any]] = {
    "jit": lambda: fxgrad.jit(total), "grad": lambda: fxgrad.grad(total), "vmap": lambda: fxgrad.vmap(total),
    "hessian": lambda: fxgrad.hessian(total), "jacfwd": lambda: fxgrad.jacfwd(total),
    "checkpoint": lambda: fxgrad.checkpoint(total), "jit of grad": lambda: fxgrad.jit(fxgrad.grad(total)),
    "vmap of jit": lambda: fxgrad.vmap(fxgrad.jit(total)), "called jit": lambda: called(fxgrad.jit(total), X),
    "called grad": lambda: called(fxgrad.grad(total), X), "called vmap": lambda: called(fxgrad.vmap(total), X),
    "called jit of grad": lambda: called(fxgrad.jit(fxgrad.grad(total)), np.ones(2)),
    "static": lambda: fxgrad.jit(lambda x, n=2: x * n, static_argnames="n"),
    "library function": lambda: fnp.sin, "closure": lambda: lambda x: fnp.add(fnp.exp(x), fxgrad.nn.relu(x)),
    "custom_jvp": lambda: fxgrad.grad(with_rules()[0]), "custom_vjp": lambda: fxgrad.grad(with_rules()[1]),
    "pullback": lambda: pulled(fxgrad.vjp(total, X)[1]),
    "distribution": lambda: fxgrad.scipy.stats.norm.pdf}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_sent_by_cloudpickle(name: str) -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    function = FUNCTIONS[name]()
    received = pickle.loads(cloudpickle.dumps(function))
    np.testing.assert_array_equal(received(X), function(X))
    # The tape that is current is the one here.
    np.testing.assert_allclose(fxgrad.jit(received)(X), function(X), rtol=1e-14)
    np.testing.assert_array_equal(fxgrad.vmap(received)(X[None])[0], function(X))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_copied(name: str) -> None:
    function = FUNCTIONS[name]()
    for made in (copy.copy(function), copy.deepcopy({"f": [function]})["f"][0]):
        np.testing.assert_array_equal(made(X), function(X))


def test_library_functions_and_distributions_are_pickled_by_name() -> None:
    for value in (fnp.sin, fnp.arccos, fnp.add, fnp.logical_or, fnp.sum, fxgrad.nn.softmax, fxgrad.scipy.stats.norm,
                  fxgrad.scipy.special.gammaln, fxgrad.lax.scan):
        assert pickle.loads(pickle.dumps(value)) is value


def test_jitted_states_are_made_again() -> None:
    jitted = fxgrad.jit(total)
    lower = pickle.loads(pickle.dumps(jitted.lower))
    np.testing.assert_array_equal(lower(X).compile()(X), total(X))


def test_compiled_stages_say_what_to_pickle() -> None:
    for stage in (fxgrad.jit(total).lower(X), fxgrad.jit(total).lower(X).compile()):
        for copied in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError) as raised:
                copied(stage)
            assert str(raised.value) == (
                "a stage of a jitted function belongs to its process, and is neither pickled nor copied. Pickle the "
                "jitted function, and call lower(*args).compile() where it is read")


def test_context_variables_of_others_are_refused_as_before() -> None:
    with pytest.raises(TypeError, match=r"^cannot pickle '_contextvars\.ContextVar' object$"):
        pickle.dumps(contextvars.ContextVar("mine"))
