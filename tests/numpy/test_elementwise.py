"""Functions of elements: values, dtypes and weakness against jax.numpy, over dtypes and kinds of operands."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import dtypes
from fxgrad.engine.core.avals import array_aval
from fxgrad.errors import DTypeError, UnsupportedError
from tests.support.with_numpy import DTYPES, call, check, check_all, check_gradient, draw, each, together

UNARY = """absolute angle arccos arccosh arcsin arcsinh arctan arctanh ceil conjugate cos cosh deg2rad exp exp2 expm1
    floor imag iscomplex isfinite isinf isnan isreal log log10 log1p log2 logical_not nan_to_num positive rad2deg real
    reciprocal rint sin sinc sinh sqrt square tan tanh trunc""".split()
NUMERIC = ["negative", "sign"]
REAL = ["fabs", "signbit", "cbrt", "isneginf", "isposinf"]
INTEGRAL = ["bitwise_not", "bitwise_count", "invert"]
BINARY = "add divide equal float_power greater greater_equal less less_equal maximum minimum multiply not_equal".split()
LOGICAL = ["logical_and", "logical_or", "logical_xor"]
ORDERED = "fmax fmin floor_divide fmod remainder".split()
INEXACT = "arctan2 copysign heaviside hypot logaddexp logaddexp2 nextafter".split()
BITWISE = ["bitwise_and", "bitwise_or", "bitwise_xor"]


def suits(name: str, dtype: str) -> bool:
    kind = DTYPES[dtype].kind
    refused = {"b": NUMERIC, "c": [*REAL, *ORDERED, *INEXACT, "ceil", "floor", "trunc", "cbrt", "maximum", "minimum"]}
    if name in refused.get(kind, []) or (kind == "V" and name == "nextafter") or (name in ORDERED and kind == "b"):
        return False
    return kind in "biu" or name not in INTEGRAL + BITWISE


QUICK_DTYPES = {"int32", "float32", "bfloat16"}


def grid(names: list[str]) -> Any:
    """Parametrizes with functions, each with every dtype it takes; with dtypes beyond three in the slow tier only."""
    suiting = {name: [dtype for dtype in DTYPES if suits(name, dtype)] for name in names}
    tiers = [("quick", QUICK_DTYPES, [], 12), ("rest", DTYPES.keys() - QUICK_DTYPES, [pytest.mark.slow], 2)]
    return pytest.mark.parametrize("functions", [
        pytest.param([(name, [dtype for dtype in suiting[name] if dtype in dtypes]) for name in names[at:at + size]],
                     id=f"{names[at]}-{names[min(at + size, len(names)) - 1]}-{tier}", marks=marks)
        for tier, dtypes, marks, size in tiers for at in range(0, len(names), size)])


@grid(UNARY + NUMERIC + REAL + INTEGRAL)
def test_unary(functions: list[tuple[str, list[str]]]) -> None:
    check_all(*(call(name, draw((2, 3), dtype)) for name, dtypes in functions for dtype in dtypes))


@grid(BINARY + LOGICAL + ORDERED + INEXACT + BITWISE)
def test_binary(functions: list[tuple[str, list[str]]]) -> None:
    check_all(*(call(name, draw((2, 3), dtype), divisor(name, draw((3,), dtype, seed="other")))
                for name, dtypes in functions for dtype in dtypes
                if (name, dtype) != ("divide", "bool")))  # jax divides False by False to 0


def divisor(name: str, y: Any) -> Any:
    """Integers that may be divided by: of `x // 0` jax says that it is not defined, and here it is NumPy's 0."""
    return np.where(y == 0, 1, y).astype(y.dtype) if name == "floor_divide" and y.dtype.kind in "biu" else y


PAIRS = [("int8", "float32"), ("int32", "uint8"), ("bfloat16", "float16"), ("bool", "int8")]


@pytest.mark.parametrize("name", BINARY + ORDERED)
def test_mixed_dtypes(name: str) -> None:
    check_all(*(call(name, draw((2, 3), one), divisor(name, draw((2, 1), other))) for one, other in PAIRS
                if name != "divide" or "bool" not in (one, other)))  # jax divides False by 0 to 0


@pytest.mark.parametrize("scalar", [2, 1.5, True, 1j, np.float64(1.5), np.float32(1.5), np.int32(3)], ids=repr)
@pytest.mark.parametrize("dtype", ["int8", "int32", "bfloat16", "float32", "float64", "complex64"])
def test_scalars_keep_the_dtype_that_jax_gives(dtype: str, scalar: Any) -> None:
    """NumPy's float64 scalars count as Python floats; elsewhere the lattice decides."""
    x = draw((2, 3), dtype)
    for function in (lambda x: x * scalar, lambda x: scalar * x, lambda x: np.multiply(x, scalar)):
        traced = fxgrad.make_program(function)(x)
        aval, given = traced.outputs[0].aval, array_aval(scalar)
        assert given is not None
        assert given.weak == (isinstance(scalar, int | float | complex) and not isinstance(scalar, bool))
        assert (aval.dtype, aval.weak) == fxgrad.dtypes.promote((x.dtype, False), (given.dtype, given.weak))


def test_two_python_numbers_keep_their_digits() -> None:
    assert fnp.sqrt(2.0) == np.sqrt(2.0)
    assert fnp.multiply(0.1, 0.2) == 0.1 * 0.2
    assert np.asarray(fxgrad.jit(lambda x: x * fnp.sqrt(2.0))(np.ones(1)))[0] == np.sqrt(2.0)
    assert fxgrad.grad(lambda x: np.where(x > 0, 1.0, 0.1) * x)(np.array(-1.0)) == 0.1


@each("exponent", [0, 1, 2, 3, -1, 2.0, 0.5, np.int64(3)])
def test_powers(exponent: Any) -> None:
    check("power", draw((2, 3), low=0.5), exponent)
    check_gradient("power", draw((2, 3), "float64", low=0.5), exponent)


@together()
def test_powers_of_arrays() -> None:
    check("power", draw((2, 3), "int32"), draw((2, 3), "int32", low=0))
    check("power", draw((2, 3), "float32", low=0.5), draw((2, 3), "int32"))
    check("power", 2, draw((3,), "int32", low=0))
    check("power", draw((3,), "bool"), np.int32(2))
    assert fxgrad.numpy.power(draw((3,), "bool"), 2).dtype == np.int64  # as for all that bools and a Python int make
    check_gradient("power", draw((2, 3), "float64", low=0.5), draw((3,), "float64"))


def test_an_integer_exponent_is_static() -> None:
    program = fxgrad.make_program(lambda x: x ** 3)(2.0)
    assert [equation.primitive.name for equation in program.equations] == ["integer_pow"]


DERIVED = """absolute arccosh arcsin arcsinh arctan arctanh conjugate cos deg2rad exp2 log1p log2 reciprocal sinc square
    tan tanh nan_to_num real""".split()


@each("name", DERIVED)
def test_gradients_of_unary(name: str) -> None:
    low, high = (1.1, 3) if name == "arccosh" else (-0.9, 0.9)
    check_gradient(name, draw((2, 3), "float64", low, high))


@each("name", ["add", "divide", "multiply", "maximum", "fmin", "remainder", "arctan2", "hypot", "logaddexp",
               "logaddexp2", "copysign", "floor_divide", "fmod"])
def test_gradients_of_binary(name: str) -> None:
    check_gradient(name, draw((2, 3), "float64"), draw((3,), "float64", seed="other"))


def test_at_the_edges() -> None:
    infinity = np.inf
    assert fxgrad.grad(fnp.logaddexp)(-infinity, 0.0) == 0.0
    assert fxgrad.grad(fnp.logaddexp)(0.0, 0.0) == 0.5
    assert fnp.logaddexp(-infinity, -infinity) == -infinity
    assert fnp.hypot(1e200, 1e200) == pytest.approx(np.sqrt(2) * 1e200)
    assert fnp.hypot(infinity, 1.0) == infinity
    assert fxgrad.grad(fxgrad.grad(fnp.sinc))(0.0) == pytest.approx(-np.pi ** 2 / 3)
    assert fnp.remainder(5, 0) == 0


@each("decimals", [0, 1, -1])
def test_round(decimals: int) -> None:
    check("round", draw((2, 3), high=200), decimals)


@each("bounds, dtype", list(itertools.product([(-1.0, 1.0), (None, 0.5), (0, None), (None, None)],
                                              ["float32", "int32"])))
def test_clip(bounds: tuple[Any, Any], dtype: str) -> None:
    check("clip", draw((2, 3), dtype), *bounds)


@together()
def test_choices() -> None:
    mask, x = draw((2, 3), "bool"), draw((2, 3))
    check("where", mask, x, 2.0)
    check("where", mask, 1, draw((3,), "int8"))
    check("where", x, x, draw((3,), "int32"))
    check("select", [mask, ~mask], [x, 2 * x], 5.0)
    check_gradient("where", mask, draw((2, 3), "float64"), draw((3,), "float64"))


@together()
def test_comparisons_of_arrays() -> None:
    x = draw((2, 3))
    check("isclose", x, x + np.float32(1e-7))
    check("allclose", x, x + np.float32(1))
    check("array_equal", x, x)
    check("array_equiv", x, x[:1])


def test_positions_of_known_values() -> None:
    x = np.array([1.0, 0.0, 2.0])
    gradient = fxgrad.grad(lambda x: fnp.sum(x[fnp.nonzero(x)[0]] ** 2))(x)
    np.testing.assert_array_equal(gradient, [2.0, 0.0, 4.0])
    np.testing.assert_array_equal(fnp.argwhere(x > 0), [[0], [2]])
    np.testing.assert_array_equal(fnp.where(x > 0)[0], [0, 2])


@pytest.mark.parametrize("name", ["sinh", "cosh", "exp2"])
def test_exponentials_of_large_numbers_have_all_digits(name: str) -> None:
    """XLA's round the argument, to which a logarithm is added, or which it multiplies."""
    for dtype in ("float32", "float64", "bfloat16", "float16"):
        x = np.array([-80.0, -9.5, -1.0, -1e-3, -0.0, 0.0, 1e-5, 0.9, 3.0, 11.0, 85.0], dtypes.SUPPORTED[dtype])
        if dtype == "float64":
            x = np.append(x, [700.0, -700.0])
        with np.errstate(over="ignore"):
            expected = getattr(np, name)(x.astype(np.longdouble)).astype(dtypes.SUPPORTED[dtype])
        for found in (getattr(fnp, name)(x), fxgrad.jit(getattr(fnp, name))(x)):
            assert found.dtype == x.dtype
            wide = np.asarray(found).astype(float)
            np.testing.assert_allclose(wide, expected.astype(float), rtol=3.0 * float(fnp.finfo(x.dtype).eps))
            np.testing.assert_array_equal(np.signbit(wide), np.signbit(expected.astype(float)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_compiled_inverse_functions_of_angles(dtype: str) -> None:
    """XLA's call the C library for each number; these are polynomials, right to 2.4 units of the last place."""
    kind, eps = dtypes.SUPPORTED[dtype], float(fnp.finfo(dtypes.SUPPORTED[dtype]).eps)
    rng = np.random.default_rng(0)
    rest = 10 ** rng.uniform(-7, 0, 999)
    near = np.concatenate([rng.uniform(-1, 1, 4000), 1 - rest, rest - 1, [
        0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -2.0, np.nan, np.inf]]).astype(kind)
    far = np.concatenate([near, 10 ** rng.uniform(-4, 4, 2000), [0.66, 0.1, -np.inf]]).astype(kind)
    special = np.array([0.0, -0.0, 1.0, -1.0, 0.1, np.inf, -np.inf, np.nan]).astype(kind)
    pairs = np.concatenate([np.repeat(special, 8), far, -far]), np.concatenate([np.tile(special, 8), far[::-1], far])
    for name, args in {"arcsin": [near], "arccos": [near], "arctan": [far], "arctan2": [*pairs]}.items():
        with np.errstate(invalid="ignore"):
            want = getattr(np, name)(*(arg.astype(np.float64) for arg in args))
        found = fxgrad.jit(getattr(fnp, name))(*args)
        assert found.dtype == kind, name
        wide = np.asarray(found).astype(np.float64)
        np.testing.assert_allclose(wide, want, rtol=3 * eps, atol=float(fnp.finfo(kind).tiny), err_msg=name)
        numbers = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(wide[numbers]), np.signbit(want[numbers]), name)


_MANY = {
    "sin": ("float32", 1.6), "cos": ("float32", 1.6), "tan": ("float32", 2.7), "log": ("float64", 0.9),
    "log1p": ("float64", 0.9)}
"""Functions that are compiled for many numbers at once, with the units of the last place that they may be off."""


@pytest.mark.parametrize("name", _MANY)
def test_functions_compiled_for_many_numbers_at_once(name: str) -> None:
    """Of all sizes, near multiples of pi / 2 and near 1, at the ends: XLA calls the C library for each number."""
    kind, units = np.dtype(_MANY[name][0]), _MANY[name][1]
    rng, limits = np.random.default_rng(0), np.finfo(kind)
    sizes = 10 ** rng.uniform(np.log10(limits.tiny) + 1, np.log10(limits.max), 4000)
    near = 1 + rng.normal(0, 0.3, 4000), np.arange(4000) * (np.pi / 2), 10 ** rng.uniform(-9, 1, 4000)
    ends = [0.0, -0.0, 1.0, -1.0, 0.1, limits.tiny, limits.max, np.inf, -np.inf, np.nan]
    x = np.concatenate([sizes, -sizes, *near, ends]).astype(kind)
    with np.errstate(invalid="ignore", divide="ignore"):
        want = getattr(np, name)(x.astype(np.longdouble))
    found = fxgrad.jit(getattr(fnp, name))(x)
    assert found.dtype == kind
    wide, is_finite = np.asarray(found).astype(np.longdouble), np.isfinite(want)
    np.testing.assert_array_equal(wide[~is_finite], want[~is_finite])
    unit = np.spacing(np.abs(want[is_finite]).astype(kind))
    off = np.abs(wide[is_finite] - want[is_finite]) / np.maximum(unit, limits.tiny * limits.eps)
    assert float(np.max(off)) <= units, (name, x[is_finite][np.argmax(off)])
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(wide[numbers]), np.signbit(want[numbers]))


def test_log1p_of_few_negative_numbers_has_all_digits() -> None:
    x = np.linspace(-0.415, -0.413, 50)
    np.testing.assert_allclose(fxgrad.jit(fnp.log1p)(x), np.log1p(x), rtol=3e-16)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "complex64"])
def test_waves_of_many_numbers_keep_their_dtype_and_slope(dtype: str) -> None:
    """Without jax's flag for 64 bits, batched and differentiated, in a loop."""
    x = np.linspace(0.1, 3.0, 10_000).reshape(100, 100).astype(dtypes.SUPPORTED[dtype])

    def wave(x: Any) -> Any:
        waves, _ = fxgrad.scan(lambda state, _: (fnp.sin(state) + fnp.cos(x), None), x, None, length=2)
        return fnp.log(2.0 + fnp.log1p(waves * waves)) + fnp.tan(x * 0.1)

    assert not jax.config.read("jax_enable_x64")
    found, slope = fxgrad.jit(lambda x: fxgrad.jvp(fxgrad.vmap(wave), (x,), (fnp.ones_like(x),)))(x)
    wide = x.astype(complex if dtype == "complex64" else float)
    few, rise = fxgrad.jvp(wave, (wide,), (np.ones_like(wide),))
    assert found.dtype == slope.dtype == x.dtype
    for one, other in ((found, few), (slope, rise)):
        difference = np.abs(np.asarray(one).astype(complex) - np.asarray(other))
        assert np.max(difference / (1 + np.abs(np.asarray(other)))) < 5 * float(fnp.finfo(x.dtype).eps)


def test_hyperbolic_sines_of_small_complex_numbers() -> None:
    z = np.array([1e-10 + 1e-10j, -1e-20 + 1e-30j, 1e-5 - 2.0j, 0.5 + 0.5j, 3.0 - 1.0j])
    np.testing.assert_allclose(fxgrad.jit(fnp.sinh)(z), np.sinh(z), rtol=1e-14)


@pytest.mark.parametrize(("dtype", "scale"), [
    ("float16", 1e-3), ("float16", 1e3), ("float32", 1e-30), ("float32", 1e30), ("float64", 1e-200),
    ("float64", 1e200)])
def test_angles_of_far_and_near_points_have_slopes(dtype: str, scale: float) -> None:
    point = [np.dtype(dtype).type(leg * scale) for leg in (3.0, 4.0)]
    for transform in (lambda f: f, fxgrad.jit):
        slopes = transform(fxgrad.grad(lambda y, x: fnp.arctan2(y, x) * scale, (0, 1)))(*point)
        np.testing.assert_allclose(slopes, [0.16, -0.12], rtol=2e-2 if dtype == "float16" else 1e-6)


def test_slopes_of_inverse_hyperbolic_functions_of_numbers_whose_squares_overflow() -> None:
    x = np.array([300.0, 6e4], "float16")
    for function in (fnp.arcsinh, fnp.arccosh):
        slope = fxgrad.vmap(fxgrad.grad(function))
        for found in (slope(x), fxgrad.jit(slope)(x)):
            np.testing.assert_allclose(found, [1 / 300, 1 / 6e4], rtol=2e-2)


def test_methods_of_ufuncs() -> None:
    x = draw((2, 3), "float64")
    np.testing.assert_array_equal(fnp.add.reduce(x), np.add.reduce(x))
    np.testing.assert_array_equal(fnp.maximum.reduce(x, axis=1, keepdims=True), x.max(1, keepdims=True))
    np.testing.assert_array_equal(fnp.multiply.outer(x, x), np.multiply.outer(x, x))
    np.testing.assert_array_equal(fnp.add(x, 1, dtype="float32"), np.add(x, 1, dtype="float32"))


def message(function: Any, *args: Any, error: Any) -> str:
    with pytest.raises(error) as caught:
        function(*args)
    return str(caught.value).partition("\n  at ")[0]


def test_messages() -> None:
    x = np.ones(3)
    assert message(fnp.add, x, error=TypeError) == "add takes 2 operands, got 1"
    for name in fnp.__all__:
        function = getattr(fnp, name)
        if isinstance(function, fnp.ufunc):  # where NumPy would write into the last one
            last = np.zeros(3)
            text = message(function, *[x] * function.nin, last, error=TypeError)
            assert text.startswith(f"{function.__name__} takes {function.nin} operand")
            assert not last.any()
    assert message(fnp.hypot, 1j * x, x, error=DTypeError) == (
        "hypot: not defined for complex numbers (complex128); use x.real, x.imag or abs(x)")
    assert message(lambda: fnp.add(x, x, out=x), error=UnsupportedError) == (
        "add: out= is not supported: traced arrays cannot change. Write result = add(...) instead")
    assert message(lambda: fnp.add(x, x, where=x > 0), error=UnsupportedError) == (
        "add: where= is not supported, since other elements would stay undefined. Write where(condition, add(...), "
        "other)")
    assert message(fnp.subtract, x > 0, x > 0, error=DTypeError) == (
        "subtract: not defined for bool; it takes numeric dtypes. Write 1 * x for the numbers 0 and 1, or ^ and ~ for "
        "logic")
    assert message(fxgrad.jit(lambda a, b: (a > b) - (a < b)), 1.0, 2.0, error=DTypeError).startswith(
        "subtract: not defined for bool; it takes numeric dtypes. Write 1 * x for the numbers 0 and 1, or ^ and ~ ")
    for sign in (lambda a, b: 1 * (a > b) - 1 * (a < b), fxgrad.jit(lambda a, b: 1 * (a > b) - 1 * (a < b))):
        assert [int(sign(1.0, b)) for b in (0.0, 1.0, 2.0)] == [1, 0, -1]
