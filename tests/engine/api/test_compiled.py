"""`jit`: static arguments, donation, dtypes, containers, stages, and calls inside other transformations."""

from __future__ import annotations

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, vmap


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint64", "complex64", "complex128", "bool"])
def test_results_are_of_the_dtypes_given_and_those_of_64_bits_stay_so(dtype: str) -> None:
    """jax's operators would narrow a `jax.Array` of 64 bits; so would its functions, and they say so."""
    is_wide = dtype in {"float64", "int64", "uint64", "complex128"}
    x = np.ones(3, dtype)
    function = jit(lambda x: (x, {"first": x[0]}))
    for _ in range(3):
        result, rest = function(x)
        assert result.dtype == rest["first"].dtype == dtype
        for each in (result, rest["first"]):
            assert isinstance(each, np.ndarray | np.generic if is_wide else jax.Array)
        assert (result + result).dtype == dtype
    for _ in range(2):  # what came as a jax array is answered by one
        with jax.enable_x64(True):
            given = jnp.asarray(x)
        result, rest = function(given)
        assert isinstance(result, jax.Array)
        assert isinstance(rest["first"], jax.Array)
        assert result.dtype == dtype
    with jax.enable_x64(True):
        assert isinstance(function(x)[0], jax.Array)
    assert not jax.config.jax_enable_x64


def test_descent_with_a_compiled_gradient_keeps_its_digits() -> None:
    w, plain = np.full(3, 1 / 3), np.full(3, 1 / 3)
    gradient = jit(fxgrad.grad(lambda w: np.sum(w ** 3)))
    for _ in range(5):
        w, plain = w - 0.1 * gradient(w), plain - 0.3 * plain ** 2
    assert w.dtype == np.float64
    np.testing.assert_allclose(w, plain, rtol=1e-15)
    assert int(np.sum(jit(lambda i: i)(np.array([2**40 + 1, 5])))) == 2**40 + 6


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_stages_keep_64_bits(dtype: str) -> None:
    x = np.arange(3).astype(dtype)
    function = jit(lambda x, k: (x * k, np.sum(x)))
    for compiled in (function.lower(x, 3).compile(), function.trace(x, 3).lower().compile(),
                     function.lower(fxgrad.ShapeDtypeStruct((3,), dtype), 3).compile()):
        for _ in range(2):
            scaled, total = compiled(x, 3)
            assert type(scaled) is type(function(x, 3)[0])
            assert (scaled.dtype, total.dtype) == (dtype, dtype)
            np.testing.assert_array_equal(scaled, x * 3)
        with jax.enable_x64(True):
            on_device = jnp.asarray(x)
        assert isinstance(compiled(on_device, 3)[0], jax.Array)
        assert "main" in compiled.as_text()
        with pytest.raises(TypeError, match=r"x: \w+\[3\] is needed, not \w+\[4\]"):
            compiled(np.ones(4, dtype), 3)


def test_results_of_64_bits_inside_a_trace_of_jax() -> None:
    inner = jit(lambda: np.ones(2) * 2.0)
    assert inner().dtype == np.float64
    with jax.enable_x64(True):
        assert jax.jit(lambda y: y + inner())(jnp.ones(2)).dtype == np.float64


def test_python_numbers_have_64_bits_and_give_way_to_arrays() -> None:
    for _ in range(3):
        assert repr(jit(lambda x: x * 0.1)(3.0)) == repr(np.float64(3.0 * 0.1))
        assert repr(jit(lambda n: n * n)(100_000)) == "10000000000"
        assert repr(jit(lambda z: z * 0.1)(3j)) == repr(np.complex128(3j * 0.1))
        assert jit(lambda x, s: x * s)(np.ones(2, np.float32), 2.0).dtype == np.float32
        assert jit(lambda x, s: x + s)(np.ones(2, np.int32), 2).dtype == np.int32
        assert jit(lambda x, s: x * s)(np.ones(2, np.int32), 2.0).dtype == np.float32
        assert jit(lambda x, s: x * s)(np.ones(2, np.int64), 2.0).dtype == np.float64
        assert float(jit(np.mean)(np.array([16777217]))) == 16777217.0


def test_python_integers_that_do_not_fit_32_bits() -> None:
    f = jit(lambda tree: tree["n"] + 1)
    assert int(f({"n": 3})) == 4
    assert int(f({"n": 2 ** 40})) == 2 ** 40 + 1
    assert int(jit(lambda n: n + 1)(-2 ** 35)) == -2 ** 35 + 1
    assert jit(lambda n: n + 1)(3).dtype == np.int64


def test_results_of_integers_that_do_not_fit_32_bits_are_arguments_again() -> None:
    f = jit(lambda n: n + 1)
    assert int(f(f(2 ** 40))) == 2 ** 40 + 2
    with jax.enable_x64(True):
        weak = jnp.add(2 ** 40, 1)
    assert weak.weak_type
    assert int(f(weak)) == 2 ** 40 + 2


def test_integers_in_containers_and_after_other_arguments() -> None:
    f = jit(lambda x, tree: x * tree[0] + tree[1])
    assert f(np.ones(2, np.float32), (np.float32(2), 1.5)).tolist() == [3.5, 3.5]
    assert f(np.ones(2, np.int32), (2, 3)).dtype == np.int32
    assert int(f(2, (2 ** 40, 3))) == 2 ** 41 + 3
    assert int(f(2 ** 40, (2, 3))) == 2 ** 41 + 3
    lowered = jit(lambda n: n + 1).lower(fxgrad.ShapeDtypeStruct((), np.int32, weak_type=True))
    assert "i32" in lowered.as_text()
    assert "i64" in jit(lambda n: n + 1).lower(2 ** 40).as_text()


def test_the_default_dtype_counts_also_where_a_version_was_compiled() -> None:
    f, n = jit(lambda n: n * 2.0), np.ones(2, np.int32)
    assert f(n).dtype == np.float32
    with fxgrad.default_dtype("float64"):
        assert f(n).dtype == np.float64
    assert f(n).dtype == np.float32


def test_traces_once_for_each_signature() -> None:
    traces = []

    @jit
    def f(x, y=1.0):
        traces.append(x.shape)
        return x * y

    f(np.ones(2)), f(np.zeros(2)), f(np.ones(3)), f(np.ones(3), y=2.0), f(np.ones(3), y=3.0)
    assert traces == [(2,), (3,), (3,)]


def test_static_arguments() -> None:
    @functools.partial(jit, static_argnums=(1,), static_argnames=("mode",))
    def f(x, n, mode="sum"):
        for _ in range(n):
            x = x * 2.0
        return np.sum(x) if mode == "sum" else x

    assert float(f(np.ones(2), 3)) == 16.0
    assert f(np.ones(2), 3, mode="none").shape == (2,)
    assert float(f(np.ones(2), n=2)) == 8.0
    assert grad(lambda x: f(x, 3))(np.ones(2)).tolist() == [8.0, 8.0]
    assert grad(lambda x: f(x, 3, mode="sum"))(np.ones(2)).tolist() == [8.0, 8.0]


def test_donated_argument_is_consumed() -> None:
    x = jnp.ones(1000)
    result = jit(lambda x: x + 1.0, donate_argnums=0)(x)
    assert result[0] == 2.0
    assert x.is_deleted()


def test_containers_and_keywords() -> None:
    result = jit(lambda p, *, scale: {"out": p["a"] * scale, "none": None})({"a": np.ones(2)}, scale=2.0)
    assert result["none"] is None
    np.testing.assert_array_equal(result["out"], [2.0, 2.0])
    many = {f"x{index}": np.float32(index) for index in range(100)}
    assert jit(lambda tree: sum(tree.values()))(many) == 4950.0


def test_stages() -> None:
    lowered = jit(lambda x: np.sin(x)).lower(fxgrad.ShapeDtypeStruct((3,), np.float64))
    assert "sine" in lowered.as_text()
    assert "f64" in lowered.as_text()
    compiled = lowered.compile()
    with jax.enable_x64(True):
        np.testing.assert_allclose(compiled(jnp.ones(3)), np.sin(np.ones(3)), rtol=1e-12)


def test_stages_called_with_what_they_were_made_for_and_then_with_other_things() -> None:
    """The way that needs no scope is for arrays of jax's of at most 32 bits alone; all else takes the other one."""
    function = jit(lambda x, tree: (x + tree["a"], np.sum(x)))
    x = np.arange(3, dtype=np.float32)
    compiled = function.lower(x, {"a": x}).compile()
    given = jnp.asarray(x)
    with jax.enable_x64(True):
        wide = jnp.arange(3.0, dtype=np.float64)
    for _ in range(3):
        for a, b in ((given, given), (x, given), (given, x), (x, x)):
            double, _ = compiled(a, {"a": b})
            np.testing.assert_array_equal(double, 2 * x)
            assert isinstance(double, jax.Array)
        for wrong in (wide, x.astype(np.float64), 1.0, given[:2]):
            with pytest.raises(TypeError):
                compiled(wrong, {"a": given})
            with pytest.raises(TypeError):
                compiled(given, {"a": wrong})
    halves = jit(lambda x: x * np.float64(0.5) + np.arange(3.0)).lower(x).compile()
    for argument, kind in ((given, jax.Array), (x, np.ndarray), (given, jax.Array), (x, np.ndarray)):
        assert isinstance(halves(argument), kind)
        assert halves(argument).dtype == np.float64
        np.testing.assert_array_equal(halves(argument), x * 0.5 + np.arange(3.0))


def test_inside_transformations_the_call_is_one_equation() -> None:
    inner = jit(lambda x: np.sin(x) * x)
    program = fxgrad.make_program(lambda x: inner(x) + 1.0)(1.0)
    assert [equation.primitive.name for equation in program.equations] == ["jit_call", "add"]
    x = np.array([0.5, 1.0])
    result = grad(lambda x: np.sum(inner(x)))(x)
    assert isinstance(result, np.ndarray)
    np.testing.assert_allclose(result, np.sin(x) + x * np.cos(x), rtol=1e-12)
    np.testing.assert_allclose(vmap(inner)(x), np.sin(x) * x, rtol=1e-12)
    np.testing.assert_allclose(fxgrad.hessian(lambda x: np.sum(inner(x)))(x), np.diag(2 * np.cos(x) - x * np.sin(x)),
                               rtol=1e-12)


def test_closed_over_tracers() -> None:
    def f(x):
        return jit(lambda y: y * x)(3.0)

    assert grad(f)(2.0) == 3.0
    assert jit(grad(f))(2.0) == 3.0
    assert grad(grad(lambda x: jit(lambda y: y * x * x)(3.0)))(2.0) == 6.0


def test_jit_of_jit_and_methods() -> None:
    class Model:
        def __init__(self, weight):
            self.weight = weight

        @functools.partial(jit, static_argnums=0)
        def __call__(self, x):
            return x * self.weight

    assert Model(3.0)(2.0) == 6.0
    assert jit(jit(lambda x: x + 1.0))(1.0) == 2.0


def test_inside_jax_jit() -> None:
    result = jax.jit(grad(lambda x: fxgrad.numpy.sum(fxgrad.numpy.sin(x))))(jnp.ones(3))
    np.testing.assert_allclose(result, np.cos(np.ones(3)), rtol=1e-6)


def test_errors_in_the_function_come_through() -> None:
    @jit
    def f(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        f(1.0)


# --- without the x64 scope -----------------------------------------------------------------------------------------


def wide_array() -> jax.Array:
    with jax.enable_x64(True):
        return jnp.full(3, 1.0 + 1e-12, "float64")  # without a dtype it would be weak


def narrow_calls(function: Any) -> None:
    """Calls with 32-bit arguments, after which no scope is entered any more."""
    for _ in range(3):
        assert function(jnp.ones(3, "float32")).dtype == np.float32


@pytest.mark.parametrize("again", [False, True], ids=["own executable", "shared executable"])
@pytest.mark.parametrize("value", [np.full(3, 1.0 + 1e-12), wide_array(), np.float64(1.0 + 1e-12), [1.0 + 1e-12] * 3],
                         ids=["NumPy", "jax", "scalar", "list"])
def test_wide_arguments_after_narrow_ones_keep_their_digits(value: Any, again: bool) -> None:
    def make() -> Any:
        return fxgrad.jit(lambda x: (x if hasattr(x, "dtype") else np.stack(x)) - np.float32(1.0))

    if again:
        narrow_calls(make())
    function = make()
    narrow_calls(function)
    for _ in range(2):
        result = function(value)
        if type(value) in (list, np.float64):  # numbers give way to the scalar of float32
            assert result.dtype == np.float32
        else:
            assert result.dtype == np.float64
            np.testing.assert_allclose(np.asarray(result), 1e-12, rtol=1e-3)
    narrow_calls(function)


def test_integers_after_narrow_arguments() -> None:
    function = fxgrad.jit(lambda x: x + 1)
    narrow_calls(function)
    assert int(function(2**40)) == 2**40 + 1
    assert function(5).dtype == np.int64
    assert int(function(np.int64(2**40))) == 2**40 + 1
    narrow_calls(function)


def test_wide_results_of_narrow_arguments() -> None:
    function = fxgrad.jit(lambda x: x.astype("float64") / 3 if x.ndim == 2 else x / 3)
    narrow_calls(function)
    result = function(np.ones((2, 2), "float32"))
    assert result.dtype == np.float64
    assert np.asarray(result)[0, 0] == 1 / 3
    narrow_calls(function)


def test_static_and_named_arguments_without_a_scope() -> None:
    function = fxgrad.jit(lambda x, power, *, sign: sign * x**power, static_argnums=1, static_argnames="sign")
    for power, sign in [(2, 1), (3, -1), (2, 1)]:
        np.testing.assert_array_equal(function(np.full(2, 2.0, "float32"), power, sign=sign), sign * 2.0**power)
    assert function(np.full(2, 0.1), 2, sign=1).dtype == np.float64


def several(*args: Any) -> Any:
    return args[0] + args[1]


@pytest.mark.parametrize("function", [np.add, operator.add, several, lambda x, y, /: x + y],
                         ids=["ufunc", "builtin", "several", "positional"])
def test_static_numbers_of_parameters_that_have_no_keyword(function: Any) -> None:
    """Of ufuncs, builtins, `*args` and positional ones; at the first call and at later ones."""
    f = jit(function, static_argnums=1)
    for addend in (1, 1, 2):
        np.testing.assert_array_equal(f(np.ones(2), addend), [1.0 + addend] * 2)
    assert jit(function, static_argnums=1).lower(np.ones(2), 1).compile()(np.ones(2)).tolist() == [2.0, 2.0]


def test_as_a_decorator_with_options() -> None:
    """Every option that the call has, the decorator hands on."""
    @jit(static_argnames="times")
    def repeated(x: Any, times: Any = 2) -> Any:
        return x * sum(range(times))

    assert repeated(2.0, times=4) == 12.0

    @jit(static_argnums=1)
    def chosen(x: Any, key: Any) -> Any:
        return {"a": x, "b": -x}[key]

    assert chosen(2.0, "b") == -2.0

    @jit(donate_argnums=0, keep_unused=True, inline=True, compiler_options={})
    def plain(x: Any, y: Any) -> Any:
        return x + 1.0

    assert "%arg1" in plain.lower(np.float32(1), np.float32(2)).as_text()


def test_keys_of_which_the_type_alone_is_known_are_lowered() -> None:
    key = fxgrad.random.key(3)
    of_type = fxgrad.eval_shape(lambda key: key, key)
    function = fxgrad.jit(lambda key: fxgrad.random.normal(key, (3,)))
    np.testing.assert_array_equal(function.lower(of_type).compile()(key), function(key))
    keys = fxgrad.jit(fxgrad.vmap(lambda key: fxgrad.random.normal(key, (2,)))).lower(fxgrad.ShapeDtypeStruct(
        (4,), of_type.dtype))
    assert "4x2xui32" in keys.as_text()


def test_static_arguments_that_cannot_be_compared_are_named() -> None:
    """As those of a dataclass that holds arrays, of which `==` has no truth value."""
    class Settings:
        def __init__(self, weights: Any) -> None:
            self.weights = weights

        def __eq__(self, other: object) -> bool:
            return bool(self.weights == other.weights)  # type: ignore[attr-defined]

        def __hash__(self) -> int:
            return 1

    def f(x: Any, settings: Any, *, by: Any = None) -> Any:
        return x * 1
    by_position, by_name = jit(f, static_argnums=1), jit(f, static_argnames=("settings", "by"))
    for name, call in (("settings", lambda: by_position(1.0, Settings(np.ones(2)))),
                       ("by", lambda: by_name(1.0, None, by=Settings(np.ones(2))))):
        assert float(call()) == 1.0
        with pytest.raises(fxgrad.errors.ArgumentError) as caught:
            call()
        assert str(caught.value).startswith(
            f"jit: the static argument {name} of f is a Settings, whose __eq__ raised ValueError: The truth value of "
            "an array with more than one element is ambiguous. Use a.any() or a.all(). Static arguments are keys of "
            "the compile cache, compared with those of earlier calls: have __eq__ return a bool, or pass arrays as "
            "dynamic arguments")


def test_a_key_is_converted_once_in_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = fxgrad.jit(lambda key, x: x + fxgrad.random.uniform(key))
    key, x = fxgrad.random.key(3), np.ones(2, np.float32)
    expected = draw(key, x)
    draw(key, x)
    original, converted = jax.random.wrap_key_data, []
    monkeypatch.setattr(jax.random, "wrap_key_data", lambda *args, **options: converted.append(1) or original(
        *args, **options))
    np.testing.assert_array_equal(draw(key, x), expected)
    assert len(converted) == 1
