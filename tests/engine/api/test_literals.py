"""Numbers that a derivative turns out to be reach the user's code as numbers, never as literals of programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
from fxgrad.engine.core.avals import Literal, without_literals
from fxgrad.engine.core.primitive import NOT_LINEAR, Cost, Primitive
from fxgrad.engine.ops.structural import instantiate_zeros
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.tracing.tracer import Tracer

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda y: y, "plus": lambda y: y + 1.0, "twice": lambda y: y + y, "scaled": lambda y: 3.0 * y,
    "constant": lambda y: y * 0.0 + 2.0, "idle": lambda y: 5.0, "square": lambda y: y ** 2,
}


def pulled(output: Any, pullback: Callable[[Any], Any]) -> Any:
    return output, pullback(1.0)


def pushed(output: Any, linear: Callable[[Any], Any], x: Any) -> Any:
    return output, linear(1.0), linear(x)


VIEWS: dict[str, Callable[[Callable[[Any], Any], Any], Any]] = {
    "grad": lambda f, x: fxgrad.grad(f)(x),
    "value_and_grad": lambda f, x: fxgrad.value_and_grad(f)(x),
    "has_aux": lambda f, x: fxgrad.value_and_grad(lambda y: (f(y), (f(y), y)), has_aux=True)(x),
    "second": lambda f, x: fxgrad.grad(fxgrad.grad(f))(x),
    "jvp": lambda f, x: fxgrad.jvp(f, (x,), (1.0,)),
    "jvp of one": lambda f, x: fxgrad.jvp(fxgrad.grad(f), (x,), (np.ones_like(x),)),
    "vjp": lambda f, x: pulled(*fxgrad.vjp(f, x)),
    "linearize": lambda f, x: pushed(*fxgrad.linearize(f, x), x),
    "jacfwd": lambda f, x: fxgrad.jacfwd(f)(x), "jacrev": lambda f, x: fxgrad.jacrev(f)(x),
    "jacobian": lambda f, x: fxgrad.value_and_jacobian(f)(x),
    "hessian": lambda f, x: fxgrad.hessian(f)(x), "hvp": lambda f, x: fxgrad.hvp(f, (x,), (1.0,)),
    "vmap": lambda f, x: fxgrad.vmap(fxgrad.grad(f), axis_size=2, in_axes=None)(x),
    "vmap of none": lambda f, x: fxgrad.vmap(lambda _: fxgrad.grad(f)(x), out_axes=None)(np.ones(2)),
    "program": lambda f, x: fxgrad.make_program(fxgrad.grad(f))(np.float64(1.0))(x),
    "parsed": lambda f, x: fxgrad.parse(str(fxgrad.make_program(fxgrad.grad(f))(np.float64(1.0))))(x),
    "checkpoint": lambda f, x: fxgrad.grad(fxgrad.checkpoint(f))(x),
    "jit": lambda f, x: fxgrad.jit(fxgrad.grad(f))(x),
    "cond": lambda f, x: fxgrad.grad(lambda y: fxgrad.lax.cond(y > 0.0, f, f, y))(x),
    "fori_loop": lambda f, x: fxgrad.grad(lambda y: fxgrad.lax.fori_loop(0, 2, lambda i, c: f(c) + y, y))(x),
}
CONTEXTS: dict[str, Callable[[Callable[[Any], Any], Any], Any]] = {
    "jit": lambda f, x: fxgrad.jit(f)(x), "make_program": lambda f, x: fxgrad.make_program(f)(x),
    "grad": lambda f, x: fxgrad.grad(f)(x), "jvp": lambda f, x: fxgrad.jvp(f, (x,), (1.0,)),
    "vmap": lambda f, x: fxgrad.vmap(f)(np.array([x, x])), "eval_shape": fxgrad.eval_shape,
    "checkpoint": lambda f, x: fxgrad.grad(fxgrad.checkpoint(f))(x),
    "while_loop": lambda f, x: fxgrad.lax.while_loop(lambda c: c < 2.0, lambda c: f(c) * 0.0 + 3.0, x),
}


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("view", VIEWS)
def test_results_of_inner_transformations(view: str, context: str) -> None:
    if (context, view) in {("vmap", "vmap of none"), ("jit", "vmap of none")}:
        pytest.skip("the inner vmap maps nothing")

    def used(x: Any) -> Any:
        total = x * 1.0
        for name, function in FUNCTIONS.items():
            if name == "idle" and view in ("fori_loop", "cond", "has_aux"):
                continue  # a number of Python's stays what it is
            for leaf in jax.tree.leaves(VIEWS[view](function, x)):
                assert isinstance(leaf, Tracer | np.generic | np.ndarray | jax.Array), type(leaf)
                total = total + 2.0 * np.sum(leaf) / 1.5 - leaf.astype(total.dtype).sum()
        return total
    CONTEXTS[context](used, np.float64(0.5))


def test_values_are_right() -> None:
    cases = [(lambda x: 2.0 * fxgrad.grad(lambda y: y)(x) * x, 6.0),
             (lambda x: x / -fxgrad.grad(fxgrad.grad(lambda y: y ** 2))(x), -1.5),
             (lambda x: np.sin(fxgrad.grad(lambda y: y + 1.0)(x)) * x, np.sin(1.0) * 3.0),
             (lambda x: 1.0 * x if fxgrad.grad(lambda y: y)(x) > 0 else -x, 3.0)]
    for function, expected in cases:
        assert fxgrad.jit(function)(np.float64(3.0)) == pytest.approx(expected)


def test_rules_of_user_primitives() -> None:
    seen: list[Any] = []

    def look(*values: Any) -> None:
        seen.extend(values)

    def jvp(primals: list[Any], tangents: list[Any]) -> Any:
        look(*primals)
        (x, y), (s, t) = primals, map(instantiated, tangents)
        return bind(product_p, x, y), [x * t + s * y]

    def instantiated(tangent: Any) -> Any:
        return without_literals([instantiate_zeros(tangent)])[0]

    def batch(size: int, values: list[Any], axes: list[int | None]) -> Any:
        look(*values)
        return [values[0] * values[1]], [0]

    product_p = Primitive(name="product", abstract=lambda x, y: [x], numpy=lambda x, y: [x * y],
                          xla=lambda lax, x, y: [x * y], jvp=jvp, transpose=NOT_LINEAR, batch=batch,
                          cost=lambda x, y: Cost(1, 1))

    def product(x: Any, y: Any) -> Any:
        return bind(product_p, x, y)[0]

    f = fxgrad.grad(lambda x: product(x, np.float64(3.0)) * product(np.float64(2.0), x))
    for context in CONTEXTS.values():
        context(f, np.float64(0.5))
    fxgrad.jit(fxgrad.vmap(lambda x: fxgrad.grad(lambda y: product(y, np.float64(2.0)))(x)))(np.ones(2))
    assert seen
    assert not any(type(value) is Literal for value in seen)
