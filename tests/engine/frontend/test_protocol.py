"""NumPy's own functions and the methods of arrays record what fxgrad.numpy records, and clear errors for the rest."""

from __future__ import annotations

import math
import re
import statistics
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
import scipy.special

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import ArrayConversionError, ConcretizationError, ShapeError, UnsupportedError
from fxgrad.testing import check_grads
from tests.support.with_numpy import assert_equal, draw

X, Y = draw((3, 4), "float64", low=0.5), draw((3, 4), "float64", low=0.5, seed="other")
S = draw((3, 3), "float64")

CALLS: list[tuple[str, Any]] = [
    *((name, lambda module, x, y, name=name: getattr(module, name)(x)) for name in
      """absolute all amax any argmax argsort around atleast_2d cbrt ceil copy cos count_nonzero cumprod cumsum diff exp
      expm1 fabs trunc flip floor isfinite isnan log log10 mean median nan_to_num ndim negative ones_like prod ptp ravel
      reciprocal round shape sign sin size sort sqrt square squeeze std sum tanh trace transpose tril var
      zeros_like""".split()),
    *((name, lambda module, x, y, name=name: getattr(module, name)(x, y)) for name in
      """add allclose arctan2 array_equal divide equal floor_divide fmax greater hypot isclose logaddexp maximum
      multiply outer power remainder subtract vdot""".split()),
    ("operators", lambda module, x, y: -x + 2 * y - x * y / 3 + y ** 2 // x % 5 + abs(x)),
    ("numpy on the left", lambda module, x, y: Y * x + np.float64(2) / y - np.ones(4) @ x.T @ y),
    ("sum", lambda module, x, y: module.sum(x, axis=1, keepdims=True)),
    ("reduce", lambda module, x, y: module.add.reduce(x, axis=1) + module.maximum.reduce(y, axis=1)),
    ("outer", lambda module, x, y: module.multiply.outer(x, y)),
    ("where", lambda module, x, y: module.where(x > y, x, 0.0)),
    ("clip", lambda module, x, y: module.clip(x, 1.0, 2.0)),
    ("concatenate", lambda module, x, y: module.concatenate([x, y], axis=1)),
    ("stack", lambda module, x, y: module.stack([x, y])),
    ("split", lambda module, x, y: module.split(x, 2, axis=1)),
    ("einsum", lambda module, x, y: module.einsum("ij,ij->i", x, y)),
    ("dot", lambda module, x, y: module.dot(x, y.T)),
    ("matmul", lambda module, x, y: module.matmul(x, y.T)),
    ("tensordot", lambda module, x, y: module.tensordot(x, y, axes=([1], [1]))),
    ("reshape", lambda module, x, y: module.reshape(x, (2, 6))),
    ("pad", lambda module, x, y: module.pad(x, 1, mode="edge")),
    ("take", lambda module, x, y: module.take(x, np.array([0, 1]), axis=1)),
    ("moveaxis", lambda module, x, y: module.moveaxis(x, 0, 1)),
    ("mean", lambda module, x, y: module.mean(x, axis=0, dtype=np.float32)),
    ("broadcast_to", lambda module, x, y: module.broadcast_to(x, (2, 3, 4))),
    ("linspace", lambda module, x, y: module.linspace(x, y, 3)),
    ("full_like", lambda module, x, y: module.full_like(x, 2.0)),
    ("quantile", lambda module, x, y: module.quantile(x, 0.3, axis=1)),
    ("interp", lambda module, x, y: module.interp(x, np.array([0.0, 1.0]), y[0, :2])),
    ("roll", lambda module, x, y: module.roll(x, 1, axis=0)),
    ("kron", lambda module, x, y: module.kron(x, y[:2])),
]


def results(function: Any, module: Any) -> Any:
    program = fxgrad.make_program(lambda x, y: [value for value in flat(function(module, x, y))
                                                if type(value) is not int])
    return program(X, Y)


def flat(value: Any) -> list[Any]:
    return [each for part in value for each in flat(part)] if isinstance(value, list | tuple) else [value]


@pytest.mark.parametrize(("name", "function"), CALLS, ids=[name for name, _ in CALLS])
def test_the_same_program(name: str, function: Any) -> None:
    theirs, ours = results(function, np), results(function, fnp)
    assert str(theirs).splitlines()[1:] == str(ours).splitlines()[1:]
    expected = [value for value in flat(function(np, X, Y)) if type(value) is not int or name == "count_nonzero"]
    for got, wanted in zip(theirs(X, Y), expected, strict=True):
        assert_equal(got, narrowed(wanted, got), name)


def narrowed(expected: Any, got: Any) -> Any:
    """NumPy's positions and counts are 64 bits wide, and ours 32."""
    expected = np.asarray(expected)
    return expected.astype(np.asarray(got).dtype) if expected.dtype.kind in "iu" else expected


METHODS: list[tuple[str, Any]] = [
    (name, lambda x, name=name: getattr(x, name)()) for name in
    """all any argmax argmin argsort conj conjugate copy cumprod cumsum diagonal flatten max mean min prod ravel round
    squeeze std sum trace transpose var""".split()
] + [
    ("reshape", lambda x: x.reshape(-1)), ("reshape", lambda x: x.reshape(1, 9)),
    ("reshape", lambda x: x.reshape((9, 1))),
    ("transpose", lambda x: x.transpose(1, 0)), ("transpose", lambda x: x.transpose((1, 0))),
    ("swapaxes", lambda x: x.swapaxes(0, 1)), ("astype", lambda x: x.astype(np.float32)), ("dot", lambda x: x.dot(x)),
    ("take", lambda x: x.take([0, 1])), ("repeat", lambda x: x.repeat(2, axis=0)), ("clip", lambda x: x.clip(0.0, 1.0)),
    ("sum", lambda x: x.sum(axis=0, keepdims=True)), ("mean", lambda x: x.mean(0)), ("T", lambda x: x.T),
    ("mT", lambda x: x.mT), ("real", lambda x: x.real), ("imag", lambda x: x.imag), ("pos", lambda x: +x),
    ("divmod", lambda x: divmod(x, 2.0)), ("rdivmod", lambda x: divmod(2.0, x)), ("round", lambda x: x.round(1)),
    ("rpow", lambda x: 2.0 ** x), ("rmod", lambda x: 2.0 % x), ("rfloordiv", lambda x: 2.0 // x),
    ("comparisons", lambda x: ((x < 1) & (x >= 0.5)) | ~(x != 2)), ("xor", lambda x: (x > 1) ^ True),
    ("shift", lambda x: (x * 4).astype(int) << 2 >> 1),
]


@pytest.mark.parametrize(("name", "function"), METHODS)
def test_methods(name: str, function: Any) -> None:
    program = fxgrad.make_program(lambda x: flat(function(x)))(S)
    for got, expected in zip(program(S), flat(function(S)), strict=True):
        assert_equal(got, narrowed(expected, got), name)


def test_methods_that_need_values() -> None:
    x = np.array([0.0, 2.0, 3.0])
    assert fxgrad.grad(lambda x: x[x.nonzero()[0]].sum())(x).tolist() == [0.0, 1.0, 1.0]
    with pytest.raises(ConcretizationError, match=r"np\.nonzero, whose result has a size that depends on the values"):
        fxgrad.jit(lambda x: x.nonzero())(x)


def test_equality_with_what_is_no_array() -> None:
    def function(x: Any) -> Any:
        assert (x == None) is False  # noqa: E711
        assert x != "no"
        return x

    fxgrad.make_program(function)(1.0)


def test_lists_in_arithmetic() -> None:
    np.testing.assert_array_equal(fxgrad.grad(lambda x: np.sum(x * [1.0, 2.0] + [3, 4]))(np.ones(2)), [1.0, 2.0])


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "text"), [
    (lambda x: np.isnat(x), "np.isnat is not supported for traced arrays. The nearest that is: "),
    (lambda x: np.real_if_close(x), "np.real_if_close is not supported for traced arrays"),
    (lambda x: np.array2string(x), "np.array2string is not supported for traced arrays"),
    (lambda x: np.hypot.reduce(x, where=x > 0), "hypot.reduce: where= is not supported"),
])
def test_unsupported(function: Any, text: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        fxgrad.grad(lambda x: np.sum(function(x)))(S)
    message, _, line = str(caught.value).partition("\n  at ")
    assert message.startswith(text)
    assert line.startswith("test_protocol.py:")


SPECIAL = {"betainc": (0.5, 1.5), "betaln": (1.5,), "beta": (1.5,), "boxcox": (0.5,), "boxcox1p": (0.5,), "expn": (2,),
           "gammainc": (1.5,), "gammaincc": (1.5,), "hyp1f1": (1.0, 2.0), "hyp2f1": (1.0, 2.0, 3.0), "poch": (2.0,),
           "kl_div": (0.5,), "rel_entr": (0.5,), "owens_t": (0.5,), "xlog1py": (0.5,), "xlogy": (0.5,)}


def special_ufuncs() -> list[str]:
    return [name for name in fxgrad.scipy.special.__all__ if isinstance(getattr(scipy.special, name, None), np.ufunc)]


@pytest.mark.parametrize("name", special_ufuncs())
def test_ufuncs_of_scipy_are_recorded(name: str) -> None:
    given = SPECIAL.get(name, ())
    place = 0 if name in ("boxcox", "boxcox1p", "hyp1f1", "hyp2f1", "owens_t", "poch") else len(given)

    def call(module: Any, x: Any) -> Any:
        found = getattr(module, name)(*given[:place], x, *given[place:])
        return found[0] if isinstance(found, tuple) else found

    x = np.array([0.3, 0.4])
    theirs = fxgrad.make_program(lambda x: call(scipy.special, x))(x)
    assert [each.primitive for each in theirs.equations] == [
        each.primitive for each in fxgrad.make_program(lambda x: call(fxgrad.scipy.special, x))(x).equations]
    np.testing.assert_allclose(theirs(x), call(scipy.special, x), rtol=1e-12)
    np.testing.assert_array_equal(fxgrad.vmap(lambda x: call(scipy.special, x))(x), theirs(x))


def test_ufuncs_of_scipy_beside_arrays_and_in_compiled_control_flow() -> None:
    slopes = fxgrad.grad(lambda x: np.sum(scipy.special.xlogy(np.arange(3.0), x) + scipy.special.psi(x)))(
        np.full(3, 2.0))
    np.testing.assert_allclose(slopes, np.arange(3.0) / 2.0 + np.pi ** 2 / 6 - 1, rtol=1e-12)

    def steps(x: Any) -> Any:
        while x < 2.0:
            x = x + scipy.special.expit(x)
        return x

    np.testing.assert_allclose(fxgrad.jit(fxgrad.python_control_flow(steps))(0.5), steps(0.5), rtol=1e-6)


def test_missing_ufuncs_of_scipy_are_named_as_such() -> None:
    with pytest.raises(UnsupportedError) as caught:
        fxgrad.grad(lambda x: scipy.special.jv(1, x))(S)
    message, _, line = str(caught.value).partition("\n  at ")
    assert message == (
        "scipy.special.jv(1, x) is not supported for traced arrays. fxgrad.scipy has no function of this name. If jax "
        "has one, write fxgrad.from_jax(f)(x)")
    assert line.startswith("test_protocol.py:")


def test_missing_ufuncs_of_scipy_in_code_without_source() -> None:
    given = {"special": scipy.special}
    exec("def f(x): return special.jv(1, x)\ndef g(x): return special.betainccinv(x, x, x)", given)
    for name, text in (
            ("f", "scipy.special.jv is not supported for traced arrays; fxgrad.scipy.special lists what is"),
            ("g", "scipy.special.betainccinv is not supported for traced arrays. The nearest that is: scipy.special.")):
        with pytest.raises(UnsupportedError) as caught:
            fxgrad.grad(given[name])(S)
        assert str(caught.value).startswith(text)


def test_the_nearest_name_is_given() -> None:
    with pytest.raises(UnsupportedError, match=r"np\.isnat is not supported for traced arrays\. The nearest that "
                                               r"is: np\.isnan"):
        fxgrad.grad(lambda x: np.sum(np.isnat(x)))(S)


def test_questions_about_types() -> None:
    def function(x: Any) -> Any:
        assert np.result_type(x, np.float32(1)) == np.float64
        assert not np.iscomplexobj(x)
        assert (np.ndim(x), np.shape(x), np.size(x)) == (2, (3, 3), 9)
        return x

    fxgrad.make_program(function)(S)


def test_windows_of_numpy_are_recorded() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    for window, axis in ((2, 1), (2, -1), ((1, 2, 3), None), ((2, 2), (1, 2)), ((2, 2), (2, 2)), (0, 1)):
        expected = np.lib.stride_tricks.sliding_window_view(x, window, axis)
        found = fxgrad.jit(lambda x, window=window, axis=axis: np.lib.stride_tricks.sliding_window_view(
            x, window, axis))(x)
        np.testing.assert_array_equal(found, expected)
    check_grads(lambda x: np.mean(np.lib.stride_tricks.sliding_window_view(x, 2, axis=1) ** 2, -1), (x,), order=2)
    for window, text in ((5, "sliding_window_view: windows of 1 axes over 3 axes; equal numbers are needed"),
                         ((1, 4, 1), "sliding_window_view: a window of 4 elements over an axis of 3")):
        with pytest.raises(ShapeError) as error:
            fxgrad.jit(lambda x, window=window: np.lib.stride_tricks.sliding_window_view(x, window))(x)
        assert str(error.value).split("\n")[0] == text


@pytest.mark.parametrize(("function", "done", "instead"), [
    (lambda x: np.ascontiguousarray(x), "np.ascontiguousarray(x)", "Write fxgrad.numpy.asarray(x)"),
    (lambda x: np.require(x, dtype=float), "np.require(x, dtype=float)", "Write fxgrad.numpy.asarray(x)"),
    (lambda x: np.ndenumerate(x), "np.ndenumerate(x)", "Write ((i, x[i]) for i in np.ndindex(x.shape))"),
    (lambda x: np.nditer(x), "np.nditer(x)", "Write x.ravel()"),
    (lambda x: np.ma.masked_array(x), "np.ma.masked_array(x)", "fxgrad.numpy lists what takes traced arrays"),
    # The coefficients of this one come second, the lowest first.
    (lambda x: np.polynomial.polynomial.polyval(2.0, x), "np.polynomial.polynomial.polyval(2.0, x)",
     "Write fxgrad.numpy.polyval(x[::-1], 2.0)"),
    (lambda x: np.polynomial.polynomial.polyval(2.0, x, tensor=False),
     "np.polynomial.polynomial.polyval(2.0, x, tensor=False)", "fxgrad.numpy lists what takes traced arrays"),
    (lambda x: np.vectorize(abs)(x), "np.vectorize(abs)(x)", "Write fxgrad.numpy.vectorize(abs)(...)"),
    (lambda x: np.float32(x), "np.float32(x)", "Write x.astype('float32')"),
    (lambda x: np.array([x, x]), "np.array([x, x])", "Write fxgrad.numpy.array([x, x])"),
    (lambda x: scipy.fft.rfft(x, 4, norm="ortho"), "scipy.fft.rfft(x, 4, norm='ortho')",
     "Write fxgrad.numpy.fft.rfft(x, 4, norm='ortho')"),
    (lambda x: scipy.fft.dct(x, n=2), "scipy.fft.dct(x, n=2)", "Write fxgrad.scipy.fft.dct(x, n=2)"),
    (lambda x: scipy.fft.fftn(x, workers=2), "scipy.fft.fftn(x, workers=2)", "Write fxgrad.numpy.fft.fftn(x)"),
    (lambda x: math.lgamma(x), "math.lgamma(x)", "Write fxgrad.scipy.special.gammaln(x)"),
    (lambda x: math.hypot(x, 2.0), "math.hypot(x, 2.0)", "Write fxgrad.numpy.hypot(x, 2.0)"),
    # Neither the base of the logarithm, nor the sign of the remainder, nor the tolerance is that of NumPy's function.
    (lambda x: math.log(x, 2.0), "math.log(x, 2.0)", "Write fxgrad.numpy.log(x) / fxgrad.numpy.log(2.0)"),
    (lambda x: math.remainder(x, 2.0 + 1.0), "math.remainder(x, 2.0 + 1.0)",
     "Write x - (2.0 + 1.0) * fxgrad.numpy.round(x / (2.0 + 1.0))"),
    (lambda x: math.isclose(x, 2.0), "math.isclose(x, 2.0)",
     "Write abs(x - 2.0) <= 1e-09 * fxgrad.numpy.maximum(abs(x), abs(2.0))"),
    (lambda x: math.isclose(x, 2.0, abs_tol=1.0), "math.isclose(x, 2.0, abs_tol=1.0)",
     "fxgrad.numpy lists what takes traced arrays"),
    (lambda x: math.hypot(x, x, x), "math.hypot(x, x, x)",
     "Write fxgrad.numpy.linalg.norm(fxgrad.numpy.array([x, x, x]))"),
    (lambda x: math.hypot(x, x, x, x), "math.hypot(x, x, x, x)", "fxgrad.numpy lists what takes traced arrays"),
])
def test_conversions_name_the_call_and_only_what_means_the_same(function: Any, done: str, instead: str) -> None:
    with pytest.raises(ArrayConversionError) as error:
        fxgrad.jit(function)(np.ones(3))
    assert str(error.value).startswith(f"{done} would make numbers of a traced array (f64[3]) and cut it off from the "
                                       f"derivative without a word. {instead}. (stop_gradient(x) cuts on purpose")


def test_what_hints_say_to_write_gives_the_same() -> None:
    x, y = np.array([0.5, -1.0, 2.0]), np.array([1.0, 2.0, -0.5])

    def written(x: Any, y: Any) -> Any:
        return (fnp.polyval(x[::-1], 2.0) + fnp.linalg.norm(fnp.subtract(x, y))
                + sum(i[0] * each for i, each in ((i, x[i]) for i in np.ndindex(x.shape))) + sum(iter(x.ravel()))
                + fnp.linalg.norm(fnp.array([x[0], x[1], x[2]])))

    expected = (np.polynomial.polynomial.polyval(2.0, x) + math.dist(x, y) + 3.0 + x.sum() + math.hypot(*x))
    np.testing.assert_allclose(written(x, y), expected, rtol=1e-12)
    check_grads(written, (x, y))
    for a, b in ((1.0, 1.0), (1.0, 1.0 + 9e-10), (1.0, 1.0 + 2e-9), (0.0, 1e-12), (-1.0, 1.0)):
        assert bool(abs(a - b) <= 1e-09 * fnp.maximum(abs(a), abs(b))) == math.isclose(a, b)
    with pytest.raises(ArrayConversionError) as error:
        fxgrad.grad(lambda x: math.dist(x, y))(x)
    assert str(error.value).split(". (stop_gradient")[0].endswith(
        "Write fxgrad.numpy.linalg.norm(fxgrad.numpy.subtract(x, y))")


def test_functions_of_statistics_name_the_users_call() -> None:
    cases: dict[str, tuple[Any, Any]] = {
        "mean(x)": (lambda x: statistics.mean(x), fnp.mean), "fmean(x)": (lambda x: statistics.fmean(x), fnp.mean),
        "pvariance(x)": (lambda x: statistics.pvariance(x), fnp.var),
        "variance(x)": (lambda x: statistics.variance(x), lambda x: fnp.var(x, ddof=1)),
        "pstdev(x)": (lambda x: statistics.pstdev(x), fnp.std),
        "stdev(x)": (lambda x: statistics.stdev(x), lambda x: fnp.std(x, ddof=1))}
    instead = ["mean(x)", "mean(x)", "var(x)", "var(x, ddof=1)", "std(x)", "std(x, ddof=1)"]
    for (call, (function, own)), written in zip(cases.items(), instead, strict=True):
        for way in (fxgrad.grad, fxgrad.jit):
            with pytest.raises(ArrayConversionError) as error:
                way(function)(np.arange(3.0))
            assert str(error.value).split(". (stop_gradient")[0] == (
                f"statistics.{call} would make numbers of a traced array (f64[]) and cut it off from the derivative "
                f"without a word. Write fxgrad.numpy.{written}")
            assert "test_protocol.py" in str(error.value).split("\n")[-1]
        np.testing.assert_allclose(own(np.array([1.0, 2.5, 7.0])), function([1.0, 2.5, 7.0]), rtol=1e-12)
    with pytest.raises(ArrayConversionError, match=r"x\.as_integer_ratio\(\) would make numbers"):
        fxgrad.grad(lambda x: x.as_integer_ratio()[0])(2.0)


def test_arrays_of_jax_indexed_by_traced_arrays() -> None:
    rows = jnp.arange(6.0).reshape(3, 2)

    def picked(i: Any) -> Any:
        return rows[i, 0]

    for wrapped in (fxgrad.jit(picked), lambda i: fxgrad.vmap(picked)(np.array([i, i])),
                    lambda i: fxgrad.lax.map(picked, np.array([i, i]))):
        with pytest.raises(UnsupportedError) as caught:
            wrapped(2)
        assert re.sub(r"\(i64.*?\)", "(i64)", str(caught.value).split("\n")[0]) == (
            "rows[i, 0] indexes an array of jax's with a traced array of fxgrad (i64), which jax cannot trace. Write "
            "fxgrad.numpy.at(rows)[i, 0].get()")
    assert fxgrad.jit(lambda i: fxgrad.numpy.at(rows)[i, 0].get())(2) == 4.0


def test_methods_of_arrays_of_jax_called_with_traced_arrays() -> None:
    rows = jnp.arange(6.0).reshape(3, 2)
    for function, own, written in (
            (lambda i: rows.at[i, 0].set(1.0), lambda i: fxgrad.numpy.at(rows)[i, 0].set(1.0),
             "fxgrad.numpy.at(rows)[i, 0].set(1.0)"),
            (lambda i: rows.take(i, axis=0), lambda i: fxgrad.numpy.take(rows, i, axis=0),
             "fxgrad.numpy.take(rows, i, axis=0)"),
            (lambda i: rows.clip(i), lambda i: fxgrad.numpy.clip(rows, i), "fxgrad.numpy.clip(rows, i)")):
        with pytest.raises(UnsupportedError, match=r" calls a method of an array of jax's with a ") as caught:
            fxgrad.jit(function)(2)
        assert str(caught.value).split("\n")[0].endswith(f"which jax cannot trace. Write {written}")
        np.testing.assert_array_equal(fxgrad.jit(own)(2), function(2))
    with pytest.raises(UnsupportedError, match=r"^a jax function was called on a traced array"):
        fxgrad.jit(lambda x: jnp.sin(x))(2.0)
    for function in (jax.lax.sin, jax.nn.relu):
        for way in (fxgrad.jit, fxgrad.grad, lambda f: fxgrad.jit(fxgrad.grad(f)), lambda f: lambda x: fxgrad.vmap(f)(
                np.full(2, x))):
            with pytest.raises(TypeError) as refused:
                way(lambda x, function=function: function(x))(2.0)
            assert str(refused.value).count("fxgrad.from_jax(f)(x); or use the function of the same name in fx") == 1
