"""Compositions: base functions under every pair of transformations, against jax with x64 as an independent oracle."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad

VECTOR = np.array([0.3, -0.7, 1.2])
TANGENT = np.array([0.5, 1.0, -0.25])
MATRIX = np.array([[0.2, -0.4, 0.9], [1.1, 0.3, -0.6], [0.7, 0.8, 0.1]])

# Functions from a vector of length 3 to a vector of length 3, written with the namespace that they are given.
BASES: dict[str, Callable[[Any, Any], Any]] = {
    "elementwise": lambda xp, x: xp.sin(x) * x + xp.exp(-x * x),
    "matmul": lambda xp, x: xp.tanh(xp.asarray(MATRIX) @ x),
    "reduction": lambda xp, x: x * xp.sum(x ** 2) / (1.0 + xp.max(x)),
    "indexing": lambda xp, x: x[::-1] * x[np.array([1, 1, 2])] + x[0],
    "where": lambda xp, x: xp.where(x > 0.0, xp.log1p(xp.abs(x)), x ** 3),
    "shapes": lambda xp, x: xp.concatenate([x[1:], x[:1]]) * xp.reshape(xp.outer(x, x).T, (3, 3))[1],
}


class Library(NamedTuple):
    """The transformations of one of the two libraries, each from functions of a vector to such functions."""

    xp: Any
    transformations: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]]


def library(module: Any, xp: Any) -> Library:
    def custom_jvp(f: Callable[..., Any]) -> Callable[..., Any]:
        wrapped = module.custom_jvp(f)
        # Three times the derivative, so that a rule that is not used shows.
        wrapped.defjvp(lambda primals, tangents: (f(*primals), 3.0 * module.jvp(f, primals, tangents)[1]))
        return wrapped

    def custom_vjp(f: Callable[..., Any]) -> Callable[..., Any]:
        wrapped = module.custom_vjp(f)
        wrapped.defvjp(lambda x: (f(x), x), lambda x, cotangent: (2.0 * module.vjp(f, x)[1](cotangent)[0],))
        return wrapped

    return Library(xp, {
        "identity": lambda f: f,
        "jit": lambda f: module.jit(f),
        "jvp": lambda f: lambda x: module.jvp(f, (x,), (xp.asarray(TANGENT),))[1],
        "vjp": lambda f: lambda x: module.vjp(f, x)[1](xp.asarray(TANGENT))[0],
        "vmap": lambda f: lambda x: module.vmap(f)(xp.stack([x, 2.0 * x]))[1],
        "vmap_inner": lambda f: lambda x: module.vmap(lambda s: f(x * s), out_axes=1)(xp.asarray(TANGENT))[:, 1],
        "grad": lambda f: module.grad(lambda x: xp.sum(f(x) ** 2)),
        "linearize": lambda f: lambda x: module.linearize(f, x)[1](xp.asarray(TANGENT)),
        "checkpoint": lambda f: module.checkpoint(f),
        "custom_jvp": custom_jvp,
        "custom_vjp": custom_vjp,
        "scan": lambda f: lambda x: module.lax.scan(lambda c, _: (0.5 * f(c), None), x, None, length=2)[0],
        "cond": lambda f: lambda x: module.lax.cond(x[0] > 0.5, lambda x: x, lambda x: f(x) * x, x),
        "jacfwd": lambda f: lambda x: module.jacfwd(f)(x)[1],
        "jacrev": lambda f: lambda x: module.jacrev(f)(x)[1],
    })


OURS, THEIRS = library(fxgrad, np), library(jax, jnp)
NAMES = list(OURS.transformations)
PAIRS = list(itertools.product(NAMES, NAMES))
# jax cannot push forward through its custom_vjp; where it refuses there is no oracle.
FORWARD = {"jvp", "linearize", "jacfwd", "custom_jvp"}


def composed(library: Library, base: str, names: tuple[str, ...]) -> Callable[[Any], Any]:
    function: Callable[..., Any] = lambda x: BASES[base](library.xp, x)
    for name in names:
        function = library.transformations[name](function)
    return function


def evaluate(library: Library, base: str, names: tuple[str, ...]) -> Any:
    return composed(library, base, names)(library.xp.asarray(VECTOR))


@functools.cache
def expected(names: tuple[str, ...], bases: tuple[str, ...] = tuple(BASES)) -> dict[str, Any]:
    """What jax makes of each base, compiled as one program: most of the time goes there."""
    with jax.enable_x64(True):
        results = jax.jit(lambda x: {base: composed(THEIRS, base, names)(x) for base in bases})(jnp.asarray(VECTOR))
        return jax.tree.map(np.asarray, results)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("names", PAIRS, ids="-".join)
@pytest.mark.slow
def test_pairs_of_transformations_equal_jax(base: str, names: tuple[str, str]) -> None:
    if names[0] == "custom_vjp" and names[1] in FORWARD:
        pytest.skip("jax has no forward mode for custom_vjp functions; see test_forward_mode_of_custom_vjp")
    actual = evaluate(OURS, base, names)
    assert actual.dtype == np.float64
    np.testing.assert_allclose(actual, expected(names)[base], rtol=2e-12, atol=2e-14)


TRIPLES = [
    ("grad", "vmap", "jit"), ("jit", "grad", "vmap"), ("vmap", "grad", "grad"), ("grad", "grad", "grad"),
    ("jvp", "vjp", "jit"), ("checkpoint", "grad", "jvp"), ("custom_jvp", "vmap", "grad"), ("jit", "vmap", "jvp"),
    ("custom_vjp", "grad", "grad"), ("linearize", "vmap", "vjp"), ("jacfwd", "jacrev", "jit"),
    ("scan", "grad", "jit"), ("cond", "vmap", "grad"), ("grad", "scan", "grad"), ("vmap", "cond", "jvp"),
    ("checkpoint", "jit", "grad"), ("vmap_inner", "grad", "jit"), ("jit", "checkpoint", "jacrev"),
]


UNDER_TRIPLES = ("elementwise", "matmul", "where")


@pytest.mark.parametrize("base", UNDER_TRIPLES)
@pytest.mark.parametrize("names", TRIPLES, ids="-".join)
def test_triples_of_transformations_equal_jax(base: str, names: tuple[str, ...]) -> None:
    wanted = expected(names, UNDER_TRIPLES)[base]
    np.testing.assert_allclose(evaluate(OURS, base, names), wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", sorted(FORWARD - {"custom_jvp"}))
@pytest.mark.parametrize("base", BASES)
def test_forward_mode_of_custom_vjp(base: str, name: str) -> None:
    """The rule doubles the derivative; so must forward mode, which is derived from it."""
    wanted = 2.0 * expected((name,))[base]
    np.testing.assert_allclose(evaluate(OURS, base, ("custom_vjp", name)), wanted, rtol=1e-12, atol=1e-14)


class jnp_arrays:  # noqa: N801  (a namespace)
    """The functions that the transformations above call on arrays: constants are jax arrays of float32."""

    asarray = staticmethod(lambda value: jnp.asarray(value, jnp.float32))
    stack = staticmethod(fxgrad.numpy.stack)
    sum = staticmethod(fxgrad.numpy.sum)


@pytest.mark.parametrize("name", NAMES)
def test_on_jax_arrays_the_result_is_a_jax_array(name: str) -> None:
    base = BASES["elementwise"]
    ours = library(fxgrad, jnp_arrays)
    result = ours.transformations[name](lambda x: base(np, x))(jnp.asarray(VECTOR, jnp.float32))
    assert isinstance(result, jax.Array)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected((name,))["elementwise"], rtol=2e-5, atol=2e-5)
