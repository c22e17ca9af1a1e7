"""What programs become for XLA: no more operations, and no more memory, than jax's own gradients take."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import jit, value_and_grad


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def network(xp: Any, nn: Any) -> Callable[..., Any]:
    def loss(params: Any, x: Any, y: Any) -> Any:
        for weight, bias in params[:-1]:
            x = xp.tanh(x @ weight + bias)
        weight, bias = params[-1]
        return xp.mean((x @ weight + bias - y) ** 2)
    return loss


def logistic_regression(xp: Any, nn: Any) -> Callable[..., Any]:
    return lambda w, x, y: xp.mean(xp.logaddexp(0.0, -y * (x @ w))) + 0.01 * xp.sum(w * w)


def rosenbrock(xp: Any, nn: Any) -> Callable[..., Any]:
    return lambda x: xp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def cross_entropy(xp: Any, nn: Any) -> Callable[..., Any]:
    return lambda w, x, y: -xp.mean(xp.sum(nn.log_softmax(x @ w) * nn.one_hot(y, 10), axis=-1))


def layer_norm(xp: Any, nn: Any) -> Callable[..., Any]:
    def f(scale: Any, x: Any) -> Any:
        centered = x - xp.mean(x, axis=-1, keepdims=True)
        return xp.sum(xp.tanh(centered / xp.sqrt(xp.var(x, axis=-1, keepdims=True) + 1e-5) * scale))
    return f


def sliced(xp: Any, nn: Any) -> Callable[..., Any]:
    return lambda x: xp.sum(xp.sin(x[::2, 1:]) * x[1::2, :-1]) + xp.sum(x[3] * x[-1])


def products(xp: Any, nn: Any) -> Callable[..., Any]:
    return lambda a, b, c: xp.sum(xp.einsum("bij,bjk,kl->bil", a, b, c) ** 2)


WORKLOADS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "network": (network, ([(drawn(32, 64), drawn(64)), (drawn(64, 10), drawn(10))], drawn(128, 32), drawn(128, 10))),
    "logistic regression": (logistic_regression, (drawn(20), drawn(100, 20), np.sign(drawn(100)))),
    "rosenbrock": (rosenbrock, (drawn(1000),)),
    "cross entropy": (cross_entropy, (drawn(64, 10), drawn(128, 64), np.arange(128, dtype=np.int32) % 10)),
    "layer norm": (layer_norm, (drawn(64), drawn(256, 64))),
    "slices": (sliced, (drawn(64, 64),)),
    "products": (products, (drawn(8, 16, 16), drawn(8, 16, 16), drawn(16, 16))),
}


def lowered(name: str) -> tuple[Any, Any]:
    """The gradient lowered by fxgrad and by jax."""
    make, args = WORKLOADS[name]
    arrays = jax.tree.map(jnp.asarray, args)
    return (jit(value_and_grad(make(fnp, fxgrad.nn))).lower(*arrays),
            jax.jit(jax.value_and_grad(make(jnp, jax.nn))).lower(*arrays))


def operations(stage: Any) -> Counter[str]:
    return Counter(re.findall(r"stablehlo\.(\w+)", stage.as_text()))


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_more_operations_than_jax(name: str) -> None:
    ours, theirs = map(operations, lowered(name))
    assert ours.total() <= theirs.total(), (ours - theirs, theirs - ours)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_no_more_memory_than_jax(name: str) -> None:
    ours, theirs = (stage.compile().memory_analysis() for stage in lowered(name))
    assert ours.temp_size_in_bytes <= theirs.temp_size_in_bytes


def test_scalars_are_not_broadcast_for_jax_to_trace() -> None:
    traced = jit(lambda x, s: fnp.maximum(x * 2.0 + s, 1.0) / s).trace(np.ones((2, 3)), np.asarray(3.0))
    assert [str(equation.primitive) for equation in traced.jaxpr.eqns] == ["mul", "add", "max", "div"]
    outputs = jit(lambda x, s: fnp.maximum(s, x) - s)(np.arange(3.0), np.float64(1.0))
    np.testing.assert_array_equal(outputs, [0.0, 0.0, 1.0])


def test_einsum_takes_the_order_that_needs_no_transpose() -> None:
    ours, _ = lowered("products")
    assert "transpose" not in operations(ours)


def test_rules_for_xla_meet_no_weak_values() -> None:
    met: list[tuple[str, bool]] = []
    seen_p = fxgrad.Primitive(
        name="seen", abstract=lambda x: [x], numpy=lambda x: [x],
        xla=lambda lax, x: met.append((str(x.dtype), x.weak_type)) or [x],  # type: ignore[func-returns-value]
        jvp=fxgrad.NO_TANGENT, transpose=fxgrad.NOT_LINEAR, batch=lambda size, values, axes: (values, axes),
        cost=lambda x: fxgrad.Cost(0, 0))
    for number in (2, 0.5, 1j, jnp.multiply(0.5, 1.0)):
        jit(lambda x: fxgrad.bind(seen_p, x)[0])(number)
    assert met == [(dtype, False) for dtype in ("int64", "float64", "complex128", "float32")]


def test_results_of_weak_arguments_are_weak() -> None:
    with jax.enable_x64(True):
        result = jit(lambda x: x)(3.0)
    assert result.weak_type
    assert result.dtype == np.float64
