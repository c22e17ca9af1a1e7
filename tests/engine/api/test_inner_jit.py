"""A jitted function inside of other transformations is traced once for each kind of arguments, as by jax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad

X = np.float32(0.5)


def counted(maker: Any, function: Callable[..., Any], **options: Any) -> tuple[Callable[..., Any], list[Any]]:
    traces: list[Any] = []

    def counting(*args: Any) -> Any:
        traces.append(args)
        return function(*args)
    return maker(counting, **options), traces


OUTER: dict[str, Callable[[Any, Any], Any]] = {
    "jit": lambda library, f: library.jit(f), "grad": lambda library, f: library.grad(f),
    "vmap": lambda library, f: lambda x: library.vmap(f)(np.array([x, x])),
    "jit of grad": lambda library, f: library.jit(library.grad(f)),
    "jvp": lambda library, f: lambda x: library.jvp(f, (x,), (np.float32(1),)),
    "checkpoint": lambda library, f: library.grad(library.checkpoint(f)),
}


@pytest.mark.parametrize("outer", OUTER)
def test_many_calls_are_one_trace(outer: str) -> None:
    counts = []
    for library, sine in ((fxgrad, np.sin), (jax, jnp.sin)):
        inner, traces = counted(library.jit, lambda x, sine=sine: sine(x) * 2.0)

        def loop(x: Any, inner: Any = inner) -> Any:
            for _ in range(20):
                x = inner(x)
            return x
        for _ in range(3):
            OUTER[outer](library, loop)(X)
        counts.append(len(traces))
    assert counts == [1, 1]


def test_nesting_is_linear() -> None:
    traces = []
    function: Callable[[Any], Any] = np.sin
    for _ in range(12):
        function, seen = counted(fxgrad.jit, lambda x, f=function: f(x) + f(x * 0.5))
        traces.append(seen)
    assert fxgrad.make_program(function)(X) is not None
    assert [len(seen) for seen in traces] == [1] * 12


def test_nested_values() -> None:
    function: Callable[[Any], Any] = np.sin
    for _ in range(3):
        function = fxgrad.jit(lambda x, f=function: f(x) + f(x * 0.5))
    plain = [2.0 ** -k * np.cos(0.5 * 2.0 ** -k) for k in range(4)]
    assert fxgrad.grad(function)(np.float64(0.5)) == pytest.approx(np.dot([1, 3, 3, 1], plain))


def test_other_kinds_of_arguments_are_other_traces() -> None:
    inner, traces = counted(fxgrad.jit, lambda x: x * 2.0)
    for x in (np.float32(1), np.float64(1), np.ones(2), np.ones(3), np.ones((1, 3)), np.ones(3, np.float32)):
        for _ in range(2):
            assert fxgrad.jvp(inner, (x,), (np.ones_like(x),))[1].dtype == x.dtype
    assert len(traces) == 6
    before = len(traces)
    with fxgrad.default_dtype("float64"):
        fxgrad.jvp(inner, (np.float32(1),), (np.float32(1),))
    assert len(traces) == before + 1


def test_static_arguments() -> None:
    inner, traces = counted(fxgrad.jit, lambda x, k: x * {int: 2.0, bool: 3.0, float: 4.0}[type(k)], static_argnums=1)
    for _ in range(3):
        assert [float(fxgrad.grad(lambda x, k=k: inner(x, k))(X)) for k in (1, True, 1.0)] == [2.0, 3.0, 4.0]
    assert len(traces) == 3


def test_what_it_closes_over_is_that_of_the_first_trace_as_in_jax() -> None:
    seen = []
    for library in (fxgrad, jax):
        k = 2.0
        inner = library.jit(lambda x: x * k)  # noqa: B023
        slope = library.grad(lambda x, inner=inner: inner(x) * 1.0)
        first = float(slope(X))
        k = 5.0
        seen.append([first, float(slope(X))])
        if library is fxgrad:
            inner.clear_cache()
            assert slope(X) == 5.0
    assert seen[0] == seen[1] == [2.0, 2.0]


def test_closing_over_a_tracer_traces_each_time() -> None:
    def outer(y: Any) -> Any:
        inner = fxgrad.jit(lambda x: x * y)
        return inner(y) + inner(y)

    assert fxgrad.grad(outer)(np.float64(3.0)) == 12.0
    assert fxgrad.grad(outer)(np.float64(4.0)) == 16.0
    holder: list[Any] = []
    keeper = fxgrad.jit(lambda x: x * holder[-1])

    def leaking(y: Any) -> Any:
        holder.append(y)
        return keeper(y)

    for y in (3.0, 4.0, 5.0):
        assert fxgrad.grad(leaking)(np.float64(y)) == 2.0 * y


def test_captured_arrays_are_those_of_the_first_trace() -> None:
    a = np.array([1.0, 2.0])
    inner = fxgrad.jit(lambda x: np.sum(x * a))
    slope = fxgrad.grad(lambda x: inner(x) * 1.0)
    np.testing.assert_array_equal(slope(np.ones(2)), [1.0, 2.0])
    a[:] = 5.0
    np.testing.assert_array_equal(slope(np.ones(2)), [1.0, 2.0])


def test_named_axes() -> None:
    inner, traces = counted(fxgrad.jit, lambda x: fxgrad.lax.psum(x, "i"))
    for size in (2, 3, 2):
        np.testing.assert_array_equal(fxgrad.vmap(inner, axis_name="i")(np.ones(size)), np.full(size, size))
    assert len(traces) == 2


def test_operands_go_to_the_backward_call_without_being_results_of_the_forward_one() -> None:
    weights, rows, x = np.arange(12.0).reshape(3, 4), np.array([0, 2, 1]), np.ones(4)

    def loss(x: Any, y: Any) -> Any:
        return np.sum(fxgrad.jit(lambda x, y: np.tanh(weights @ x) * y[rows])(x, y) ** 2)
    gradients = fxgrad.grad(loss, (0, 1))
    program = fxgrad.make_program(gradients)(x, np.arange(3.0))
    forward, backward = (each for each in program.equations if each.primitive.name == "jit_call")
    assert not {*forward.params["program"].inputs} & {*forward.params["program"].outputs}
    assert program.inputs[0] in backward.inputs  # the weights, of which no copy is made
    expected = jax.grad(lambda x, y: jnp.sum((jnp.tanh(weights @ x) * y[rows]) ** 2), (0, 1))(x, jnp.arange(3.0))
    for found, exact in zip(gradients(x, np.arange(3.0)), expected, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-5)
