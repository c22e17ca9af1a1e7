"""`from_jax` and `import_jaxpr`: what the wrapper takes, keeps, remembers, returns and refuses."""

from __future__ import annotations

import functools
import gc
import inspect
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors
from tests.support.oracle import assert_close, draw

X = draw(3).astype(np.float32)


def counted(function: Any) -> tuple[Any, list[Any]]:
    """`function`, and a list that grows by one each time that Python runs it."""
    runs: list[Any] = []

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        runs.append(args)
        return function(*args, **kwargs)
    return wrapper, runs


# --- values -----------------------------------------------------------------------------------------------------


def test_numpy_in_numpy_out_and_jax_in_jax_out() -> None:
    table = jnp.arange(3.0)
    f = fxgrad.from_jax(lambda x: x * table)
    assert type(f(X)) is np.ndarray
    assert isinstance(f(jnp.asarray(X)), jax.Array)
    assert type(f(2.0)) is np.ndarray
    assert_close(f(X), X * np.arange(3, dtype=np.float32), "value")
    assert_close(f(jnp.asarray(X)), X * np.arange(3, dtype=np.float32), "value")


def test_wide_arrays_are_not_narrowed() -> None:
    wide = draw(3)
    f = fxgrad.from_jax(lambda x: jnp.sin(x) / 3)
    assert f(wide).dtype == np.float64
    assert f(X).dtype == np.float32
    assert f(np.arange(3)).dtype == np.float64
    assert fxgrad.grad(lambda x: f(x).sum())(wide).dtype == np.float64
    np.testing.assert_allclose(f(wide), np.sin(wide) / 3, rtol=1e-14)


def test_python_numbers_are_weak() -> None:
    f = fxgrad.from_jax(lambda x, y: x * y)
    assert f(2.0, np.ones(2, np.float16)).dtype == np.float16
    assert f(2.0, np.ones(2, np.float64)).dtype == np.float64
    program = fxgrad.make_program(f)(2.0, 3)
    assert [str(aval) for aval in program.in_avals] == ["f64*[]", "i64*[]"]
    assert str(program.out_avals[0]) == "f64*[]"


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "float16", "bfloat16", "complex64", "complex128"])
def test_dtypes(dtype: str) -> None:
    x = np.ones(3).astype(jnp.dtype(dtype))
    result = fxgrad.from_jax(lambda x: (x, x == 1))(x)
    assert result[0].dtype == x.dtype
    assert (result[0] == x).all()
    assert_close(result[1], np.ones(3, bool), "comparison")


def test_random_keys() -> None:
    def noisy(key: Any, x: Any) -> Any:
        first, second = jax.random.split(key)
        return jax.random.normal(first, x.shape) * x, second

    wanted, key = noisy(jax.random.key(3), jnp.asarray(X))
    for given in (fxgrad.random.key(3), jax.random.key(3)):
        value, left = fxgrad.from_jax(noisy)(given, X)
        assert_close(value, wanted, "value", 1e-6)
        assert_close(fxgrad.random.key_data(left), jax.random.key_data(key), "key")
    closed = fxgrad.from_jax(lambda x: jax.random.normal(jax.random.key(3), x.shape) * x)
    assert_close(fxgrad.grad(lambda x: closed(x).sum())(X), jax.random.normal(jax.random.key(3), (3,)), "grad", 1e-6)


def test_without_arguments() -> None:
    assert_close(fxgrad.from_jax(lambda: jnp.ones(2))(), np.ones(2, np.float32), "value")


def test_constants_are_converted_once() -> None:
    table = jnp.arange(3.0)
    f = fxgrad.from_jax(lambda x: jnp.sum(x * table) + jnp.sum(jax.jit(lambda y: y + table)(x)))
    program = fxgrad.import_jaxpr(jax.make_jaxpr(lambda x: jnp.sum(x * table) + jnp.sum(x + table))(X))
    assert len(program.constants) == 1
    assert type(program.constants[0]) is np.ndarray
    assert_close(program(X), f(X), "value", 1e-6)
    assert len(fxgrad.make_program(f)(X).constants) == 1


# --- arguments --------------------------------------------------------------------------------------------------


def test_other_leaves_are_static() -> None:
    def f(params: Any, mode: str) -> Any:
        if mode == "double":
            return {"y": params["act"](params["x"]) * 2, "mode": mode, "none": None}
        return {"y": params["x"], "mode": mode, "none": None}

    ours, runs = counted(f)
    ours = fxgrad.from_jax(ours)
    for _ in range(2):
        double = ours({"x": X, "act": jnp.sin}, "double")
        assert (double["mode"], double["none"]) == ("double", None)
        assert_close(double["y"], np.sin(X) * 2, "value", 1e-6)
        assert_close(ours({"x": X, "act": jnp.cos}, mode="single")["y"], X, "value")
    assert len(runs) == 2
    gradient = fxgrad.grad(lambda x: ours({"x": x, "act": jnp.sin}, "double")["y"].sum())
    assert_close(gradient(X), 2 * np.cos(X), "grad", 1e-6)


def test_static_arguments() -> None:
    f, runs = counted(lambda x, n, *, power: x[:n] ** power)
    ours = fxgrad.from_jax(f, static_argnums=1, static_argnames="power")
    for n, power in [(2, 3), (1, 3), (2, 3), (2, 2)]:
        assert_close(ours(X, n, power=power), X[:n] ** power, "value", 1e-6)
    assert len(runs) == 3


def test_remembered_by_types_and_settings() -> None:
    f, runs = counted(lambda x: jnp.dot(x, x))
    ours = fxgrad.from_jax(f)
    for _ in range(3):
        ours(X)
        fxgrad.grad(ours)(X)
    assert len(runs) == 1
    ours(draw(3))
    ours(X[:2])
    assert len(runs) == 3
    with jax.default_matmul_precision("highest"):
        program = fxgrad.make_program(ours)(X)
    assert len(runs) == 4
    assert "HIGHEST" in str(program).upper()
    with jax.enable_x64(True):
        ours(X)
    assert len(runs) == 5


def test_settings_of_promotion_and_of_generators_are_those_of_each_call() -> None:
    matrix, single = np.ones((2, 2), np.float32), np.ones(2, np.float32)
    add = fxgrad.from_jax(lambda x: x + jnp.ones(2, jnp.int32))
    draws = fxgrad.from_jax(lambda x: x + jax.random.uniform(jax.random.key(3)))
    expected = draws(single)
    assert add(matrix).shape == (2, 2)
    for setting, function, x, error in (
            (jax.numpy_dtype_promotion("strict"), add, matrix, "no available implicit dtype promotion"),
            (jax.numpy_rank_promotion("raise"), add, matrix, "could not be broadcast together"),
            (jax.default_prng_impl("rbg"), draws, single, "key<rbg>")):
        with setting, pytest.raises((ValueError, TypeError, errors.UnsupportedError), match=error):
            function(x)
    np.testing.assert_array_equal(draws(single), expected)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fxgrad.interop.functions.LIMIT", 2)
    f, runs = counted(lambda x: x + 1)
    ours = fxgrad.from_jax(f)
    for size in (1, 2, 3, 1, 3):
        ours(np.ones(size, np.float32))
    assert len(runs) == 4


@pytest.mark.slow
def test_programs_go_with_the_function() -> None:
    def f(x: Any) -> Any:
        return jnp.sin(x)

    alive = weakref.ref(f)
    fxgrad.from_jax(f)(X)
    del f
    gc.collect()
    assert alive() is None


def test_it_looks_like_the_function() -> None:
    def scaled(x: Any, by: float = 2.0) -> Any:
        """Scales."""
        return x * by

    ours = fxgrad.from_jax(scaled)
    assert (ours.__name__, ours.__doc__, str(inspect.signature(ours))) == (
        "scaled", "Scales.", str(inspect.signature(scaled)))
    assert float(ours(3.0)) == 6.0
    assert float(ours(3.0, by=3.0)) == 9.0


# --- jax around it ----------------------------------------------------------------------------------------------


def test_inside_of_jax_it_is_jaxs() -> None:
    f, runs = counted(lambda x: jnp.sum(jnp.sin(x)))
    ours = fxgrad.from_jax(f)
    assert_close(jax.jit(jax.grad(ours))(X), np.cos(X), "grad", 1e-6)
    assert isinstance(runs[0][0], jax.core.Tracer)


def test_inside_of_jax_known_arrays_too() -> None:
    """They may be computed by XLA, which jax is tracing just then."""
    ours = fxgrad.from_jax(jax.jit(lambda x: functools.reduce(lambda x, _: jnp.sin(x) * x, range(10), x)))
    assert "jit_call" in str(fxgrad.make_program(ours)(X))
    assert_close(jax.jit(lambda y: ours(X) * y)(2.0), ours(X) * 2, "value", 1e-6)


def test_captured_tracers_of_jax_are_not_kept() -> None:
    """Where fxgrad differentiates inside of a trace of jax's, and the function closes over what jax traces."""
    f, runs = counted(lambda x: x)

    def outer(y: Any) -> Any:
        ours = fxgrad.from_jax(lambda x: f(jnp.sum(jnp.sin(x) * y)))
        return fxgrad.grad(ours)(X) + fxgrad.grad(ours)(X)

    assert_close(jax.jacobian(outer)(2.0), 2 * np.cos(X), "jacobian", 1e-6)
    assert_close(jax.jit(outer)(2.0), 4 * np.cos(X), "jit", 1e-6)
    assert len(runs) == 4


def test_operations_of_fxgrad_inside() -> None:
    """They are traced by jax as any other, also where fxgrad traces everything around."""
    ours = fxgrad.from_jax(lambda x: fnp.sum(fnp.sin(jnp.cos(x))))
    assert_close(fxgrad.jit(ours)(X), np.sin(np.cos(X)).sum(), "jit", 1e-6)
    assert_close(fxgrad.grad(ours)(X), -np.cos(np.cos(X)) * np.sin(X), "grad", 1e-6)


# --- errors -----------------------------------------------------------------------------------------------------


def test_not_a_function() -> None:
    with pytest.raises(errors.ArgumentError, match=r"from_jax takes a function, got a ndarray\. Write from_jax\(f\)"):
        fxgrad.from_jax(X)


def test_jaxs_own_errors_come_through() -> None:
    with pytest.raises(TypeError, match="incompatible shapes"):
        fxgrad.from_jax(lambda x: jnp.add(x, jnp.ones(2)))(X)


@pytest.mark.parametrize("use", [jnp.sin, lambda x: jnp.ones(3) * x, lambda x: x],
                         ids=["function", "operator", "result"])
def test_closed_over_tracer(use: Any) -> None:
    def outer(x: Any) -> Any:
        return fxgrad.from_jax(lambda y: use(x) + (0 if use(x) is x else y))(2.0)

    with pytest.raises(errors.UnsupportedError, match="as an argument"):
        fxgrad.grad(outer)(1.0)


def test_dtypes_that_fxgrad_has_not() -> None:
    with pytest.raises(errors.DTypeError, match="from_jax: an argument of function is an array of dtype float6_e2m3fn"):
        fxgrad.from_jax(lambda x: x)(np.ones(2).astype(jnp.float6_e2m3fn))
    with pytest.raises(errors.UnsupportedError, match=r"value of type float6_e2m3fn\[3\], which fxgrad has not"):
        fxgrad.from_jax(lambda x: x.astype(jnp.float6_e2m3fn))(X)


# --- programs ---------------------------------------------------------------------------------------------------


def test_lines_are_the_users() -> None:
    def f(x: Any) -> Any:
        y = jnp.sin(x)
        return y * 2

    first = inspect.getsourcelines(f)[1]
    program = fxgrad.make_program(fxgrad.from_jax(f))(X)
    assert [equation.source.line - first for equation in program.equations if equation.source] == [1, 2]
    assert [equation.source.code for equation in program.equations if equation.source] == [f.__code__] * 2
    assert "y: f32[3] = sin(x)" in str(program)


def test_import_jaxpr() -> None:
    table = np.arange(3.0)
    with jax.enable_x64(True):
        jaxpr = jax.make_jaxpr(lambda x, y: (jnp.sin(x) * table, y + 1))(draw(3), 2)
    program = fxgrad.import_jaxpr(jaxpr)
    first, second = program(draw(3), np.int64(2))
    assert_close(first, np.sin(draw(3)) * table, "first")
    assert int(second) == 3
    assert fxgrad.cost_analysis(program).flops == 7
    assert str(fxgrad.parse(str(program))) == str(fxgrad.parse(str(fxgrad.parse(str(program)))))


def test_weakness_of_results_is_jaxs() -> None:
    differing = []
    for function in (lambda x: jnp.linalg.cholesky(jnp.full((1, 1), x)), lambda x: jax.lax.top_k(jnp.full(3, x), 2),
                     lambda x: jax.lax.cond(x > 0, lambda: x, lambda: 2 * x), lambda x: jnp.sin(x) * np.float32(2)):
        jaxpr = jax.make_jaxpr(function)(1.0)
        found = [aval.weak for aval in fxgrad.import_jaxpr(jaxpr).out_avals]
        if found != [aval.weak_type for aval in jaxpr.out_avals]:
            differing.append((str(jaxpr), found))
    assert differing == []


def test_numbers_that_do_not_fit_alone_are_of_64_bits() -> None:
    """Beside narrower arrays; what jax makes of nothing has the width that it has in its mode."""
    counted = fxgrad.from_jax(lambda n, x: (jnp.arange(3) + n, x))
    narrow = np.ones(3, np.int8)
    for number in (-5, 3, -2**31, 2**31 - 1):
        assert counted(number, narrow)[0].dtype == np.int32
    for number in (-2**31 - 1, 2**31):
        found, _ = counted(number, narrow)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, np.arange(3) + number)
