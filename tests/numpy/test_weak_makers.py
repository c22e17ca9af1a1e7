"""Arrays made like Python's numbers are weak, as these numbers are: float32 beside them stays float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax, scipy

MAKERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "zeros_like": (fnp.zeros_like, jnp.zeros_like), "ones_like": (fnp.ones_like, jnp.ones_like),
    "empty_like": (fnp.empty_like, jnp.empty_like),
    "full_like": (lambda x: fnp.full_like(x, 2), lambda x: jnp.full_like(x, 2)),
    "lax.full_like": (lambda x: lax.full_like(x, 2), lambda x: jax.lax.full_like(x, 2)),
    "imag": (fnp.imag, jnp.imag), "heaviside": (lambda x: fnp.heaviside(x, 0.5), lambda x: jnp.heaviside(x, 0.5)),
}
NUMBERS: list[Any] = [0.5, 2, 1j, np.float64(0.5)]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_like_numbers_they_are_weak(name: str, number: Any) -> None:
    ours, theirs = MAKERS[name]
    if name == "heaviside" and isinstance(number, complex):
        pytest.skip("not defined for complex numbers")
    assert jax.typeof(jax.jit(theirs)(number if type(number) is not np.float64 else float(number))).weak_type
    seen = []
    for call in (ours, fxgrad.jit(ours), fxgrad.jit(lambda x: seen.append(fxgrad.typeof(ours(x))) or ours(x))):
        found = call(number)
        assert fxgrad.typeof(found).weak_type
        np.testing.assert_array_equal(found, theirs(number))
    assert all(each.weak_type for each in seen)
    wanted = np.complex64 if isinstance(number, complex) and name != "imag" else np.float32
    for call in (lambda x, y: fnp.multiply(x, ours(y)), fxgrad.jit(lambda x, y: x * ours(y))):
        assert call(np.ones(2, np.float32), number).dtype == wanted


@pytest.mark.parametrize("name", MAKERS)
def test_like_arrays_they_have_their_dtype(name: str) -> None:
    ours, _ = MAKERS[name]
    for dtype in (np.float32, np.float64, np.int32):
        for call in (ours, fxgrad.jit(ours)):
            found = call(np.ones(3, dtype))
            assert not fxgrad.typeof(found).weak_type
            assert found.dtype == (np.float32 if name == "heaviside" and dtype is np.int32 else dtype)


def test_full_arrays_are_strong() -> None:
    for dtype in (np.float64, np.complex128, np.int64):
        for shape in ((), (3,)):
            assert not fxgrad.typeof(lax.full(shape, 2, dtype)).weak_type
            assert not fxgrad.typeof(fxgrad.jit(lambda x, dtype=dtype, shape=shape: lax.full(shape, x, dtype))(
                2)).weak_type


def test_with_a_dtype_they_are_strong() -> None:
    for make in (fnp.zeros_like, fnp.ones_like, lambda x, dtype: fnp.full_like(x, 1, dtype),
                 lambda x, dtype: lax.full_like(x, 1, dtype)):
        assert not fxgrad.typeof(make(0.5, "float64")).weak_type


def test_numpys_own_functions_make_strong_arrays_of_traced_numbers() -> None:
    for make in (np.zeros_like, np.ones_like, np.empty_like, lambda x: np.full_like(x, 2.0)):
        def call(x: Any, make: Callable[[Any], Any] = make) -> Any:
            return np.ones(2, np.float32) * make(x)
        assert fxgrad.jit(call)(0.5).dtype == call(0.5).dtype == np.float64


@pytest.mark.parametrize("is_jitted", [True, False])
def test_adam_by_hand_keeps_float32_beside_a_number(is_jitted: bool) -> None:
    """Momenta are made by `zeros_like`; the loss came out in float64 from the second step on."""
    def loss(p: Any, x: Any, y: Any) -> Any:
        return fnp.mean((x @ p["w"] + p["b"] - y) ** 2)

    def step(p: Any, state: Any, x: Any, y: Any) -> Any:
        value, slopes = fxgrad.value_and_grad(loss)(p, x, y)
        m, v, n = state
        n = n + 1
        m = fxgrad.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, slopes)
        v = fxgrad.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, slopes)
        p = fxgrad.tree.map(lambda p, m, v: p - 0.01 * (m / (1 - 0.9 ** n)) / (
            fnp.sqrt(v / (1 - 0.999 ** n)) + 1e-8), p, m, v)
        return p, (m, v, n), value

    x, y = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32), np.full(8, 0.1, np.float32)
    p: Any = {"w": fnp.zeros(3), "b": 0.0}
    state: Any = (fxgrad.tree.map(fnp.zeros_like, p), fxgrad.tree.map(fnp.zeros_like, p), 0)
    run = fxgrad.jit(step) if is_jitted else step
    for _ in range(4):
        p, state, value = run(p, state, x, y)
        assert value.dtype == np.float32
        assert p["w"].dtype == state[0]["w"].dtype == np.float32
        assert fxgrad.typeof(p["b"]).weak_type


def test_sums_of_exponentials_of_numbers_are_weak() -> None:
    for call in (fxgrad.scipy.special.logsumexp, fxgrad.scipy.special.softmax, fxgrad.scipy.special.log_softmax):
        for run in (call, fxgrad.jit(call)):
            assert fxgrad.typeof(run(0.5)).weak_type
    assert fxgrad.typeof(fxgrad.jit(fnp.gcd)(4, 6)).weak_type
    assert fxgrad.typeof(fxgrad.jit(fnp.lcm)(4, 6)).weak_type


def test_dtypes_themselves_are_complex_or_not() -> None:
    for dtype in ("float32", "complex64"):
        for given in (np.dtype(dtype), getattr(np, dtype), getattr(fnp, dtype)):
            assert fnp.iscomplexobj(given) is (dtype == "complex64")
            assert fnp.isrealobj(given) is (dtype != "complex64")


# --- results of linear algebra, transforms, running sums and order statistics --------------------------------------

MATRIX = np.array([[3.0, 0.4, 0.1], [0.4, 2.0, 0.3], [0.1, 0.3, 1.5]])
OF_MATRICES: dict[str, Callable[[Any], Any]] = {
    "cholesky": fnp.linalg.cholesky, "inv": fnp.linalg.inv, "det": fnp.linalg.det,
    "slogdet": lambda a: fnp.linalg.slogdet(a)[1], "eigh": lambda a: fnp.linalg.eigh(a)[0],
    "eig": lambda a: fnp.abs(fnp.linalg.eig(a)[1]), "svd": lambda a: fnp.linalg.svd(a)[1],
    "qr": lambda a: fnp.abs(fnp.linalg.qr(a)[1]), "solve": lambda a: fnp.linalg.solve(a, a[0]),
    "pinv": fnp.linalg.pinv, "lu": lambda a: scipy.linalg.lu(a)[2], "expm": scipy.linalg.expm,
    "expm_frechet": lambda a: scipy.linalg.expm_frechet(a, a)[1], "polar": lambda a: scipy.linalg.polar(a)[0],
    "solve_sylvester": lambda a: scipy.linalg.solve_sylvester(a, a, a),
    "solve_triangular": lambda a: scipy.linalg.solve_triangular(a, a), "hankel": lambda a: scipy.linalg.hankel(a[0]),
    "tridiagonal_solve": lambda a: fxgrad.lax.linalg.tridiagonal_solve(a[0], a[1], a[2], a),
    "schur": lambda a: fnp.abs(scipy.linalg.schur(a)[0]), "hessenberg": lambda a: fnp.abs(scipy.linalg.hessenberg(a)),
    "fft": lambda a: fnp.abs(fnp.fft.fft(a)), "rfft": lambda a: fnp.abs(fnp.fft.rfft(a)), "irfft": fnp.fft.irfft,
    "cumsum": fnp.cumsum, "cumprod": fnp.cumprod, "nancumsum": fnp.nancumsum,
    "cumulative_sum": lambda a: fnp.cumulative_sum(a, axis=0, include_initial=True),
    "median": fnp.median, "nanmedian": fnp.nanmedian, "percentile": lambda a: fnp.percentile(a, 30.0, axis=0),
    "nanmean": fnp.nanmean, "nanvar": fnp.nanvar, "nanstd": lambda a: fnp.nanstd(a, axis=0), "cov": fnp.cov,
    "corrcoef": fnp.corrcoef, "frexp": lambda a: fnp.frexp(a)[0], "spacing": fnp.spacing,
    "histogram_bin_edges": fnp.histogram_bin_edges, "ediff1d": lambda a: fnp.ediff1d(a, a[0], a[1]),
    "unwrap": lambda a: fnp.unwrap(3 * a), "vander": lambda a: fnp.vander(a[0]),
    "polyval": lambda a: fnp.polyval(a[0], a),
    "polyder": lambda a: fnp.polyder(a[0]), "polyint": lambda a: fnp.polyint(a[0]), "poly": lambda a: fnp.poly(a[0]),
    "roots": lambda a: fnp.abs(fnp.roots(a[0], strip_zeros=False)), "insert": lambda a: fnp.insert(a[0], 1, 7.0),
    "wofz": lambda a: fnp.abs(scipy.special.wofz(a)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_MATRICES)
def test_functions_of_weak_arrays_alone_are_weak_and_lose_no_digit(name: str) -> None:
    """A matrix of Python numbers, such as a rotation by an angle that is an argument, leaves float32 as it is."""
    function = OF_MATRICES[name]

    def of_numbers(scale: float) -> Any:
        return function(fnp.stack([fnp.stack([fnp.multiply(scale, float(entry)) for entry in row]) for row in MATRIX]))

    expected = np.asarray(function(1.5 * MATRIX))
    assert expected.dtype == np.float64
    result = fxgrad.jit(of_numbers)(1.5)
    assert fxgrad.typeof(result).weak_type, fxgrad.typeof(result)
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-11, atol=1e-14)
    p = np.ones(2, np.float32)
    assert fxgrad.jit(lambda p, scale: p * fnp.sum(of_numbers(scale)))(p, 1.5).dtype == np.float32


UN_JITTED: dict[str, Callable[[Any], Any]] = {
    **{name: lambda w, name=name: getattr(w, name)() for name in (
        "sum", "mean", "max", "min", "prod", "std", "var", "cumsum", "cumprod", "flatten", "conj", "ptp", "copy")},
    "take": lambda w: w.take(0), "repeat": lambda w: w.repeat(2), "clip": lambda w: w.clip(0.3, 0.4),
    "trace": lambda w: fnp.outer(w, w).trace(), "diagonal": lambda w: fnp.outer(w, w).diagonal(),
    "at": lambda w: w.at[0].add(1.0), "real": lambda w: fnp.real(w[0]),
    "logsumexp": lambda w: fxgrad.nn.logsumexp(w[0]),
    "lax.reduce_max": lambda w: lax.reduce_max(w, (0,)), "lax.reduce_sum": lambda w: lax.reduce_sum(w, (0,)),
    "lax.stage": lambda w: lax.stage(w[0]),
}


@pytest.mark.parametrize("name", UN_JITTED)
def test_methods_of_weak_arrays_are_as_weak_as_those_of_traced_ones(name: str) -> None:
    function = UN_JITTED[name]

    def of_numbers(mask: Any) -> Any:
        return function(fnp.where(mask, 0.5, 0.25))

    mask = np.array([True, False])
    found, compiled = of_numbers(mask), fxgrad.jit(of_numbers)(mask)
    assert fxgrad.typeof(found) == fxgrad.typeof(compiled)
    assert fxgrad.typeof(found).weak_type
    np.testing.assert_allclose(np.asarray(found), np.asarray(compiled), rtol=1e-15)


def test_methods_of_weak_arrays_write_where_numpy_would() -> None:
    weak, out = fnp.where(np.array([True, False]), 0.5, 0.25), np.zeros(())
    assert weak.sum(out=out) is out
    assert out == 0.75


# --- un-jitted and traced ---------------------------------------------------------------------------------------------

OF_NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    **{name: lambda n, w, name=name: getattr(fnp, name)(n, n) for name in (
        "floor_divide", "remainder", "fmod", "divmod", "fmax", "fmin", "left_shift", "right_shift", "gcd", "lcm", "dot",
        "outer", "kron", "inner", "polymul")},
    **{name: lambda n, w, name=name: getattr(fnp, name)(n) for name in (
        "nansum", "nanprod", "nanmax", "nanmin", "ptp", "nancumsum", "cumsum")},
    "clip": lambda n, w: fnp.clip(n, 0, 10), "roll": lambda n, w: fnp.roll(n, 1),
    "with bools": lambda n, w: [fnp.floor_divide(np.array([True, False]), n), fnp.power(n, np.array([True, False]))],
    "linspace": lambda n, w: fnp.linspace(w, n), "geomspace": lambda n, w: fnp.geomspace(1.0, w),
    "logspace": lambda n, w: fnp.logspace(0.0, w), "vander": lambda n, w: fnp.vander(w),
    "polyval": lambda n, w: fnp.polyval(w, w), "poly": lambda n, w: fnp.poly(w),
}


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_results_of_numbers_have_one_type_un_jitted_and_traced(name: str) -> None:
    seen: list[list[str]] = []

    def types(n: Any, factor: Any) -> Any:
        result = OF_NUMBERS[name](n, fnp.where(np.array([True, False]), factor, 0.75))
        seen.append([str(fxgrad.typeof(leaf)) for leaf in fxgrad.tree.leaves(result)])
        return result

    fxgrad.make_program(types)(2, 0.25)
    np.testing.assert_equal([*map(np.asarray, fxgrad.tree.leaves(types(2, 0.25)))],
                            [*map(np.asarray, fxgrad.tree.leaves(fxgrad.make_program(types)(2, 0.25)(2, 0.25)))])
    assert seen[0] == seen[1]


def test_tolerances_and_replacements_may_be_traced() -> None:
    """They are of another dtype than the elements."""
    x = np.array([1.0, np.nan, 2.0, np.inf], np.float32)
    for tolerance in (0.5, 1, np.float64(0.5), np.float32(0.5)):
        for function in (fnp.isclose, lambda *args: fnp.isclose(args[0], args[1], 0.0, args[2])):
            found = fxgrad.jit(function)(x, x + 0.25, tolerance)
            np.testing.assert_array_equal(found, function(x, x + 0.25, tolerance))
        found = fxgrad.jit(lambda x, v: fnp.nan_to_num(x, nan=v, posinf=v))(x, tolerance)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, np.float32([1.0, tolerance, 2.0, tolerance]))
    assert fxgrad.jit(fnp.allclose)(x[:1], x[:1], 0, 1)
