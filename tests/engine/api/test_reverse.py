"""`grad`, `value_and_grad`, `vjp`, `linear_transpose`: arguments of every kind, against closed forms and jax."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import fxgrad
from fxgrad import grad, linear_transpose, value_and_grad, vjp
from fxgrad.errors import ArgumentError, LinearityError


def test_scalars_arrays_and_sizes() -> None:
    assert grad(lambda x: x ** 3)(2.0) == 12.0
    np.testing.assert_array_equal(grad(lambda x: np.sum(x * x))(np.ones((2, 3))), 2 * np.ones((2, 3)))
    assert grad(lambda x: np.sum(x))(np.zeros((0, 3))).shape == (0, 3)
    assert grad(lambda x: np.sum(x * 2.0))(np.ones((1,))).shape == (1,)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_floating_dtypes_are_kept(dtype: type) -> None:
    x = np.array([1.0, 2.0], dtype)
    result = grad(lambda x: np.sum(x * x * 0.5))(x)
    assert result.dtype == dtype
    np.testing.assert_allclose(np.asarray(result, np.float64), [1.0, 2.0], rtol=1e-12)
    compiled = fxgrad.jit(grad(lambda x: np.sum(x * x * 0.5)))(x)
    assert compiled.dtype == dtype


def test_python_floats_keep_their_digits() -> None:
    for _ in range(3):
        assert repr(grad(lambda x: x * x * 0.1)(0.3)) == repr(np.float64(0.3 * 0.1 + 0.3 * 0.1))
        assert repr(grad(np.sin)(0.5)) == repr(np.cos(0.5))
        assert repr(grad(lambda x: (x > 0) * 0.1 * x)(0.3)) == "np.float64(0.1)"
    with fxgrad.default_dtype("float64"):
        assert grad(lambda x: x * x)(3.0).dtype == np.float64
    assert grad(lambda x: x * x)(np.float64(3.0)).dtype == np.float64


def test_float64_scalars_met_inside_do_not_widen() -> None:
    x = np.ones(4, np.float32)
    assert grad(lambda x: np.sum(x / np.sqrt(4)))(x).dtype == np.float32


@pytest.mark.parametrize("holomorphic", [False, True])
def test_complex_as_jax(holomorphic: bool) -> None:
    z = np.array(1.5 + 0.5j)

    def f(xp):
        return (lambda z: z ** 3 * xp.exp(z)) if holomorphic else (lambda z: xp.real(z * xp.conj(z)) + xp.imag(z ** 2))

    with jax.enable_x64(True):
        expected = jax.grad(f(jnp), holomorphic=holomorphic)(jnp.asarray(z))
    np.testing.assert_allclose(grad(f(np), holomorphic=holomorphic)(z), expected, rtol=1e-12)


def test_argnums() -> None:
    def f(x, y, z):
        return x * y ** 2 * z ** 3

    assert grad(f, argnums=1)(2.0, 3.0, 1.0) == 12.0
    assert grad(f, argnums=-1)(2.0, 3.0, 1.0) == 54.0
    assert grad(f, argnums=(2, 0))(2.0, 3.0, 1.0) == (54.0, 9.0)
    assert grad(f, argnums=[0])(2.0, 3.0, 1.0) == (9.0,)


class Point(NamedTuple):
    x: Any
    y: Any


@functools.partial(jax.tree_util.register_dataclass, data_fields=["weight", "bias"], meta_fields=["name"])
@dataclasses.dataclass
class Layer:
    weight: np.ndarray
    bias: np.ndarray
    name: str = "layer"


def test_containers() -> None:
    params = {"a": [1.0, (2.0,)], "b": Point(3.0, None), "c": Layer(np.ones((2, 2)), np.zeros(2))}

    def loss(p):
        return (p["a"][0] * p["a"][1][0] * p["b"].x + np.sum(p["c"].weight @ np.array([1.0, 2.0]) + p["c"].bias))

    result = grad(loss)(params)
    assert result["a"] == [6.0, (3.0,)]
    assert result["b"] == Point(2.0, None)
    assert isinstance(result["c"], Layer)
    assert result["c"].name == "layer"
    np.testing.assert_array_equal(result["c"].weight, [[1.0, 2.0], [1.0, 2.0]])
    np.testing.assert_array_equal(result["c"].bias, [1.0, 1.0])


def test_other_arguments_are_passed_as_they_are() -> None:
    seen = []

    def f(x, data, *, mode="plain", scale=1):
        seen.append((type(data), mode, scale))
        return np.sum(x * data["values"]) * (2 if mode == "double" else 1) * scale

    result = grad(f)(np.ones(3), {"values": np.arange(3.0), "text": "words"}, mode="double", scale=3)
    np.testing.assert_array_equal(result, [0.0, 6.0, 12.0])
    assert seen == [(dict, "double", 3)]


def test_aux() -> None:
    def f(x):
        return x * x, {"twice": 2 * x, "text": "words", "constant": np.arange(2), "none": None}

    slope, aux = grad(f, has_aux=True)(3.0)
    assert (slope, aux["twice"], aux["text"], aux["none"]) == (6.0, 6.0, "words", None)
    np.testing.assert_array_equal(aux["constant"], [0, 1])
    (value, aux), slope = value_and_grad(f, has_aux=True)(3.0)
    assert (value, slope, aux["twice"]) == (9.0, 6.0, 6.0)


def test_aux_through_outer_transformations() -> None:
    def f(x):
        slope, aux = grad(lambda x: (x ** 3, x ** 2), has_aux=True)(x)
        return slope * aux

    assert grad(f)(2.0) == pytest.approx(12 * 2.0 ** 3)
    np.testing.assert_allclose(fxgrad.vmap(grad(f))(np.array([1.0, 2.0])), [12.0, 96.0], rtol=1e-12)


def test_allow_int() -> None:
    result = grad(lambda n, x: n * x, argnums=(0, 1), allow_int=True)(3, 2.0)
    assert result[0].dtype == fxgrad.dtypes.float0
    assert result[1] == 3.0


WEIGHTS = {"places": np.array([1, 2, 3]), "scale": np.float32(0.1)}
ROWS = np.ones((2, 3), np.float32)


def pulled_back(module: Any, function: Any, p: Any, x: Any) -> Any:
    output, pullback = module.vjp(lambda x: function(p, x), x)
    return output, pullback(output)


@pytest.mark.parametrize("call", {
    "plain": lambda m, f, p, x: f(p, x),
    "jit": lambda m, f, p, x: m.jit(f)(p, x),
    "vmap": lambda m, f, p, x: m.vmap(f, in_axes=(None, 0))(p, np.stack([x, x])),
    "jit of vmap": lambda m, f, p, x: m.jit(m.vmap(lambda x: f(p, x), out_axes=-1))(np.stack([x, x])),
    "jvp": lambda m, f, p, x: m.jvp(lambda x: f(p, x), (x,), (x,)),
    "linearize": lambda m, f, p, x: m.linearize(lambda x: f(p, x), x)[1](x),
    "vjp": pulled_back,
    "scan": lambda m, f, p, x: m.lax.scan(lambda c, r: (c, f(p, r)), x, np.stack([x, x])),
    "cond": lambda m, f, p, x: m.lax.cond(x[0, 0] > 0, f, lambda p, x: f(p, 2 * x), p, x),
    "checkpoint": lambda m, f, p, x: m.checkpoint(f)(p, x),
    "eval_shape": lambda m, f, p, x: m.eval_shape(f, p, x),
    "aux": lambda m, f, p, x: m.value_and_grad(lambda x: (x.sum(), f(p, x)), has_aux=True)(x),
}.items(), ids=lambda call: call[0])
def test_gradients_of_integers_come_out_of_traced_functions_as_in_jax(call: Any) -> None:
    arguments = {"places": np.array([1, 2, 3]), "scale": np.float32(0.1)}, np.ones((2, 3), np.float32)
    found, expected = (
        call[1](module, module.grad(lambda p, x: (x * p["places"]).sum() * p["scale"], (0, 1), allow_int=True),
                *arguments) for module in (fxgrad, jax))
    assert fxgrad.tree.structure(found) == fxgrad.tree.structure(expected)
    for ours, theirs in zip(fxgrad.tree.leaves(found), fxgrad.tree.leaves(expected), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        if isinstance(theirs, jax.Array):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_unused_arguments_and_constant_functions() -> None:
    assert grad(lambda x, y: x * 2.0, argnums=(0, 1))(1.0, np.float32(5)) == (2.0, 0.0)
    np.testing.assert_array_equal(grad(lambda x: 3.0)(np.ones(2)), [0.0, 0.0])


def test_closures_over_outer_tracers() -> None:
    assert grad(lambda x: x * grad(lambda y: x + y)(1.0))(1.0) == 1.0
    assert grad(lambda x: x * grad(lambda y: x * y)(3.0))(5.0) == 10.0
    assert grad(lambda x: grad(lambda y: y * y * x)(x))(3.0) == 12.0


def test_changing_closures_and_constants() -> None:
    scale = 2.0
    slope = grad(lambda x: x * scale)
    assert slope(1.0) == 2.0
    scale = 5.0
    assert slope(1.0) == 5.0
    assert [float(grad(lambda x, k=k: x * k)(1.0)) for k in (1.5, 2.5)] == [1.5, 2.5]


def test_captured_array_changed_while_tracing() -> None:
    data = np.ones(3)

    def f(x):
        product = x * data
        data[:] = 100.0
        return np.sum(product)

    np.testing.assert_array_equal(grad(f)(np.ones(3)), np.ones(3))


def test_captured_array_changed_between_two_uses() -> None:
    data = np.ones(3)

    def f(x):
        first = np.sum(x * data)
        data[:] += 1.0
        return first + np.sum(x * data)

    for before in (1.0, 2.0):
        np.testing.assert_array_equal(grad(f)(np.ones(3)), np.full(3, 2 * before + 1.0))


def test_captured_read_only_view_of_a_changing_array() -> None:
    data = np.ones(3)

    def f(x):
        product = x * np.broadcast_to(data, (2, 3))
        data[:] = 100.0
        return np.sum(product)

    np.testing.assert_array_equal(grad(f)(np.ones((2, 3))), np.ones((2, 3)))


def test_results_own_their_memory() -> None:
    x = np.ones(3)
    same = grad(lambda x: np.sum(x * x) * 0.5)(x)
    same += 1
    np.testing.assert_array_equal(x, np.ones(3))
    spread = grad(np.sum)(np.ones((2, 2)))
    spread *= 2.0
    first, second = grad(lambda x, y: np.sum(x + y), argnums=(0, 1))(np.ones(2), np.ones(2))
    first += 1.0
    np.testing.assert_array_equal(second, np.ones(2))


def test_vjp() -> None:
    output, pullback = vjp(lambda x, y: {"product": x * y, "sum": x + y}, np.array([1.0, 2.0]), 3.0)
    np.testing.assert_array_equal(output["product"], [3.0, 6.0])
    for _ in range(3):
        x_bar, y_bar = pullback({"product": np.array([1.0, 10.0]), "sum": np.zeros(2)})
        np.testing.assert_array_equal(x_bar, [3.0, 30.0])
        assert y_bar == 21.0


def test_vjp_options() -> None:
    output, pullback, aux = vjp(lambda x, y: (x * y, x), 2.0, 3.0, has_aux=True, argnums=1)
    assert (output, pullback(1.0), aux) == (6.0, 2.0, 2.0)
    assert vjp(lambda n, x: n * x, 3, 2.0)[1](1.0)[0].dtype == fxgrad.dtypes.float0


def test_pullback_keeps_its_values_when_arguments_change() -> None:
    x = np.array([1.0, 2.0])
    _, pullback = vjp(lambda x: x * x, x)
    x[:] = 100.0
    np.testing.assert_array_equal(pullback(np.ones(2))[0], [2.0, 4.0])


def test_linear_transpose_of_batches_of_branches() -> None:
    """Lanes that take no part in a branch repeat one that does, behind `stop_gradient`."""
    x, t = np.array([[0.3, -0.4], [-1.0, 0.2]]), np.array([[1.0, 2.0], [3.0, 4.0]])

    def batched(t: Any) -> Any:
        return fxgrad.vmap(lambda x, t: fxgrad.lax.cond(x[0] > 0, lambda t: t * 2, lambda t: t, t))(x, t)

    np.testing.assert_array_equal(linear_transpose(batched, t)(t)[0], [[2.0, 4.0], [3.0, 4.0]])
    np.testing.assert_array_equal(linear_transpose(lambda t: t + fxgrad.stop_gradient(t), t)(t)[0], t)


def _mixing(kind: str) -> Any:
    """A function of which one equation makes values that are multiplied: by `jvp` a value and a tangent."""
    def loop(x: Any) -> Any:
        return fxgrad.lax.fori_loop(0, 2, lambda i, c: (c[0] * 0.5, c[1] * c[0]), (x, x))

    inner = {"jit": fxgrad.jit(lambda x: (np.sin(x), x * 2)), "loop": loop,
             "checkpoint": fxgrad.checkpoint(fxgrad.jit(lambda x: (np.sin(x), x * 2))),
             "cond": lambda x: fxgrad.lax.cond(x[0] > 0, lambda x: (np.sin(x), x * 2), lambda x: (x, x), x)}[kind]

    def function(x: Any) -> Any:
        first, second = inner(x)
        return np.sum(first) * second
    return function


@pytest.mark.parametrize("kind", ["jit", "loop", "checkpoint", "cond"])
def test_linear_transpose_of_pushforwards_through_calls_and_loops(kind: str) -> None:
    """Known and linear values of one equation are separated by linearizing it."""
    function, x, cotangent = _mixing(kind), np.array([0.3, 0.4]), np.array([1.0, -2.0])
    found = linear_transpose(lambda t: fxgrad.jvp(function, (x,), (t,))[1], x)(cotangent)
    np.testing.assert_allclose(found[0], vjp(function, x)[1](cotangent)[0], rtol=1e-12)


@pytest.mark.parametrize("function", [
    fxgrad.jit(lambda t: t * t), lambda t: np.prod(fxgrad.jit(lambda t: np.stack([t, t * 2]))(t), axis=0),
    fxgrad.jit(lambda t: np.floor(t) + t), lambda t: fxgrad.jit(lambda t: np.sign(t))(t) * 2,
    lambda t: fxgrad.jit(lambda t: t.astype(int) * 1.0)(t) + t,
    lambda t: fxgrad.lax.cond(t[0] > 0, lambda t: t * 2, lambda t: t, t),
    lambda t: fxgrad.lax.scan(lambda c, _: (c * c, None), t, None, length=2)[0],
    lambda t: fxgrad.lax.while_loop(lambda c: c[0][0] > 0.1, lambda c: (c[0] * 0.5, c[1] + 1), (t, t))[1]])
def test_functions_that_are_not_linear_are_refused_at_any_depth(function: Any) -> None:
    with pytest.raises(LinearityError):
        linear_transpose(function, np.array([0.3, 0.4]))(np.array([1.0, 2.0]))


def test_linear_transpose_of_loops_that_do_not_end_at_zero() -> None:
    matrix = np.array([[4.0, 1.0], [2.0, 3.0]])

    def solve(b: Any, matrix: Any = matrix) -> Any:
        return fxgrad.lax.while_loop(lambda x: np.linalg.norm(matrix @ x - b) >= 1e-12 * np.linalg.norm(b),
                              lambda x: (b - (matrix - np.diag(np.diag(matrix))) @ x) / np.diag(matrix), np.zeros(2))

    with pytest.raises(LinearityError, match="cannot transpose a while loop whose condition depends on linear values"):
        linear_transpose(solve, np.ones(2))(np.ones(2))

    def by_rule(b: Any) -> Any:
        return fxgrad.lax.custom_linear_solve(lambda x: matrix @ x, b, lambda _, b: solve(b),
                                              lambda _, b: solve(b, matrix.T))

    np.testing.assert_allclose(linear_transpose(by_rule, np.ones(2))(np.ones(2))[0],
                               np.linalg.solve(matrix.T, np.ones(2)), rtol=1e-10)


def test_linear_transpose() -> None:
    matrix = np.arange(6.0).reshape(2, 3)
    transposed = linear_transpose(lambda x: matrix @ x, fxgrad.ShapeDtypeStruct((3,), np.float64))
    np.testing.assert_array_equal(transposed(np.array([1.0, 2.0]))[0], matrix.T @ [1.0, 2.0])
    both = linear_transpose(lambda x, y: 2.0 * x - y, 0.0, 0.0)
    assert both(np.float32(1.0)) == (2.0, -1.0)


@pytest.mark.slow
def test_long_python_loop() -> None:
    def f(x):
        for _ in range(10_000):
            x = x * 0.9999 + 1e-6
        return x

    slope = grad(f)(1.0)
    assert slope == pytest.approx(0.9999 ** 10_000, rel=1e-3)


@pytest.mark.slow
def test_twenty_thousand_equations() -> None:
    def f(x):
        for _ in range(10_000):
            x = np.sin(x) * 1.0001
        return x

    program = fxgrad.make_program(f)(1.0)
    assert len(program.equations) == 20_000
    assert np.isfinite(program(1.0))
    assert np.isfinite(grad(f)(1.0))
    assert np.isfinite(fxgrad.jvp(f, (1.0,), (1.0,))[1])
    assert len(str(program).splitlines()) > 10_000  # a line of the function is one of the text


# --- what is remembered of calls -----------------------------------------------------------------------------------


def test_one_function_called_with_arguments_of_many_kinds() -> None:
    slope = grad(lambda x: np.sum(np.asarray(2.0) * x * x) if getattr(x, "ndim", 0) < 2 else np.sum(np.sin(x)))
    for _ in range(3):
        for value in (np.ones(3), np.ones(3, "float32"), np.ones((2, 2)), 3.0, np.float64(3.0), np.zeros(0)):
            expected = np.cos(value) if np.ndim(value) == 2 else 4.0 * np.asarray(value)
            given = slope(value)
            np.testing.assert_allclose(given, expected, rtol=1e-6)
            assert given.dtype == np.asarray(value).dtype


def test_calls_are_forgotten_with_the_tables_and_with_the_default_dtype() -> None:
    slope = value_and_grad(lambda a: np.sum(np.floor(a).astype(np.int32) / 2 * a))
    given = np.arange(3, dtype=np.float16)
    for _ in range(3):
        for dtype in ("float32", "float64"):
            with fxgrad.default_dtype(dtype):
                value, gradient = slope(given)
            assert (float(value), value.dtype, gradient.tolist()) == (2.5, np.dtype(dtype), [0.0, 0.5, 1.0])
        fxgrad.clear_caches()


def test_a_call_inside_another_transformation_after_one_outside() -> None:
    slope = grad(lambda x: x ** 3)
    assert [float(slope(2.0)) for _ in range(3)] == [12.0] * 3
    assert [float(grad(slope)(2.0)) for _ in range(3)] == [12.0] * 3
    assert float(fxgrad.vmap(slope)(np.array([2.0]))[0]) == 12.0
    assert float(slope(2.0)) == 12.0


def test_what_python_decides_on_values_is_decided_at_each_call() -> None:
    slope = grad(lambda x: x * x if x > 0 else -x)
    assert [float(slope(value)) for value in (3.0, -3.0, 3.0, -3.0)] == [6.0, -1.0, 6.0, -1.0]


def test_the_output_of_a_shared_prefix_decides() -> None:
    which = ["sin"]

    def f(x: Any) -> Any:
        s = np.sin(x)
        c = s * x
        return s if which[0] == "sin" else c

    slope = grad(f)
    for name, expected in [("sin", np.cos(0.5)), ("product", np.sin(0.5) + 0.5 * np.cos(0.5))] * 3:
        which[0] = name
        np.testing.assert_allclose(slope(np.float64(0.5)), expected, rtol=1e-12)


def test_functions_that_keep_their_argument_or_return_it() -> None:
    assert [float(grad(lambda x: x)(2.0)) for _ in range(3)] == [1.0] * 3
    assert [float(grad(lambda x: np.float32(3.0))(2.0)) for _ in range(3)] == [0.0] * 3


@pytest.mark.slow
def test_the_calls_remembered_for_a_function_are_bounded() -> None:
    slope = grad(lambda x: np.sum(x * x))
    for size in range(200):
        assert slope(np.ones(size)).shape == (size,)
    np.testing.assert_array_equal(slope(np.ones(3)), 2.0)


def test_nothing_warns_on_the_way() -> None:
    slope = grad(lambda x: np.sum(np.log(x) / x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            assert np.isinf(slope(np.zeros(3))).all()


@pytest.mark.parametrize("function", [
    lambda y: np.sum(y * 2), np.sum, lambda y: np.sum(y) * 0, lambda y: y[0], lambda y: np.sum(y) ** 2,
    lambda y: np.mean(y) * np.sum(y)])
def test_derivatives_of_strong_arguments_are_strong(function: Any) -> None:
    """NumPy's scalars are weak by their class, and had made weak gradients, which gave way to float32."""
    x = np.array([0.3, -0.4, 0.8])
    seeds = 1.0, np.float64(1.0), np.asarray(1.0), 1.0
    pullbacks = [lambda x, seed=seed: vjp(function, x)[1](seed)[0] for seed in seeds]
    transforms = (grad, fxgrad.hessian, fxgrad.jacfwd, fxgrad.jacrev, lambda f: fxgrad.jacfwd(grad(f)),
                  lambda f: fxgrad.jacrev(grad(f)), lambda f: fxgrad.jacfwd(fxgrad.jacfwd(f)),
                  lambda f: lambda x: fxgrad.vmap(grad(f))(x[None]))
    for derived in (*pullbacks, *(transform(function) for transform in transforms)):
        for wrapped in (derived, fxgrad.jit(derived)):
            found = wrapped(x)
            assert not fxgrad.typeof(found).weak_type
            assert found.dtype == np.float64
    for seed in seeds:
        if function is np.sum:
            transposed = lambda x, seed=seed: linear_transpose(np.sum, x)(seed)[0]
            assert not fxgrad.typeof(transposed(x)).weak_type
            assert not fxgrad.typeof(fxgrad.jit(transposed)(x)).weak_type
    assert type(vjp(function, x)[1](1.0)[0]) is np.ndarray


def test_functions_without_a_return() -> None:
    def lost(x: Any) -> None:
        np.sum(x)

    for wrapped in (grad(lost), value_and_grad(lost), fxgrad.jit(grad(lost))):
        with pytest.raises(ArgumentError, match=r"grad needs a function that returns one scalar, and lost returned "
                                                r"None\. Return the scalar; a return may be missing"):
            wrapped(np.ones(3))
