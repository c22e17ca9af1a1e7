"""Calls that NumPy or jax refuse are refused here, un-jitted and traced, with a message that says what to write."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import jit, lax
from fxgrad.errors import FxgradError

MATRIX = np.arange(12.0).reshape(3, 4)
COMPLEX = MATRIX + 1j
WHOLE = np.arange(1, 4)
CHOSEN = np.array([1, 0, 1, 0])
BOOLS = "where must be an array of bools, and its dtype is int64. Write where != 0"
POWER = ("power: integers (int64) to the negative power -1 are not integers; convert first, for example "
         "x.astype('float32')")
REAL = ("var: complex numbers (complex128) cannot be computed with in float32. Leave dtype= out: the variance is "
        "real, and .astype converts it")
DTYPES = ("fori_loop: lower is i16[] and upper is i32[]; equal dtypes are needed. Convert one of them with "
          ".astype('int32')")
BOTH = "var: ddof=1 and correction=0 are two names for one number; give one of them"

CALLS: list[tuple[Callable[..., Any], Any, str]] = [
    (lambda n, x: n.cov(x, dtype=int), MATRIX,
     "cov: dtype must be a float or complex dtype, got int64. Convert the result with .astype"),
    (lambda n, x: n.corrcoef(x, dtype=int), MATRIX,
     "corrcoef: dtype must be a float or complex dtype, got int64. Convert the result with .astype"),
    (lambda n, x: n.std(x, ddof=1, correction=0), MATRIX, BOTH),
    (lambda n, x: n.var(x, ddof=1, correction=0), MATRIX, BOTH),
    *[(lambda n, x, name=name: getattr(n, name)(x, where=CHOSEN), MATRIX,
       f"{name.replace('nansum', 'sum').replace('nanprod', 'prod').replace('std', 'var')}: {BOOLS}")
      for name in ("sum", "prod", "mean", "var", "std", "all", "any", "nansum", "nanprod", "nanmean", "nanvar",
                   "nanstd")],
    *[(lambda n, x, name=name: getattr(n, name)(x, where=CHOSEN, initial=0.0), MATRIX,
       f"{name.removeprefix('nan')}: {BOOLS}") for name in ("max", "min", "nanmax", "nanmin")],
    (lambda n, x: n.var(x, dtype=np.float32), COMPLEX,
     REAL),
    (lambda n, x: n.broadcast_shapes((-1,)), MATRIX, "broadcast_shapes: the shape (-1,) has a negative size"),
    (lambda n, x: n.quantile(x, 1.5), MATRIX, "quantile: q must lie from 0 to 1, got 1.5"),
    (lambda n, x: n.nanquantile(x, [0.5, -0.5]), MATRIX, "nanquantile: q must lie from 0 to 1, got [0.5, -0.5]"),
    (lambda n, x: n.percentile(x, 150), MATRIX, "percentile: q must lie from 0 to 100, got 150"),
    (lambda n, x: n.nanpercentile(x, 150.0), MATRIX, "nanpercentile: q must lie from 0 to 100, got 150.0"),
    (lambda n, x: n.power(x, -1), WHOLE, POWER),
    (lambda n, x: n.sum(x, axis=True), MATRIX, "sum: axis must be an integer, got True"),
    (lambda n, x: n.concatenate([x, x], axis=True), MATRIX, "concatenate: axis must be an integer, got True"),
]
"""Functions of a module and an array, with what is refused: the library's are compared with NumPy's and jax's."""

LAX_CALLS: list[tuple[Callable[..., Any], Any, str]] = [
    (lambda n, x: n.squeeze(x, dimensions=(0, -2)), np.ones((1, 3)),
     "squeeze: dimensions=(0, -2) names an axis twice; name each once"),
    (lambda n, x: n.broadcast_shapes((-1,)), MATRIX, "broadcast_shapes: the shape (-1,) has a negative size"),
    (lambda n, x: n.top_k(x, 2**31 + 5), np.arange(4.0),
     "top_k: k=2147483653 of an axis of size 4 (axis 0 of shape (4,)); a number from 0 to 4 is needed"),
    (lambda n, x: n.fori_loop(np.int16(0), np.int32(3), lambda i, carry: carry + 1, x), MATRIX,
     DTYPES),
]


def _refusal(function: Callable[..., Any], *arguments: Any) -> str | None:
    """The message of the library's error, what else happened, or None where nothing was refused."""
    try:
        function(*arguments)
    except FxgradError as error:
        return str(error)
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__} of another library: {error}"
    return None


def _refused_by_others(function: Callable[..., Any], x: Any, *modules: Any) -> bool:
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of imaginary parts that NumPy discards
        return any(_refusal(function, module, x) is not None for module in modules)


def test_calls_that_others_refuse_are_refused() -> None:
    problems = []
    for calls, ours, others in ((CALLS, fnp, (np, jnp)), (LAX_CALLS, lax, (jax.lax,))):
        for function, x, expected in calls:
            if not _refused_by_others(function, x, *others):
                problems.append(f"nobody refuses: {expected}")
            unjitted = _refusal(function, ours, x)
            traced = _refusal(jit(lambda x, function=function, ours=ours: function(ours, x)), x)
            problems += [f"expected {expected!r}, found {found!r}" for found in (unjitted, traced)
                         if found is None or found.split("\n")[0] != expected]
            if traced is not None and "test_wrong_calls.py:" not in traced:
                problems.append(f"no line of the caller's: {traced!r}")
    assert problems == []


def test_calls_of_numpy_are_refused_while_tracing() -> None:
    for function, x, expected in (
            (lambda x: np.quantile(x, 1.5), MATRIX, "quantile: q must lie from 0 to 1, got 1.5"),
            (lambda x: x ** -1, WHOLE, POWER),
            (lambda x: np.sum(x, axis=True), MATRIX, "sum: axis must be an integer, got True")):
        found = _refusal(jit(function), x)
        assert found is not None
        assert found.split("\n")[0] == expected
        assert "test_wrong_calls.py:" in found


def test_complex_tangents_of_real_primals_are_refused() -> None:
    """An integer of Python's is taken for the float that it equals; jax wants 1.0 written."""
    def square(x: Any) -> Any:
        return x * x
    where = ("c128[], and the primal is f64[]; shape and dtype must be equal. Write t.astype(x.dtype), or "
             "np.broadcast_to(t, x.shape)")
    for tangent in (1j, np.complex128(1j)):
        for called, what in ((lambda t: fxgrad.jvp(square, (1.0,), (t,)), "jvp: the tangent of x"),
                             (fxgrad.linearize(square, 1.0)[1], "linearize: the tangent of leaf 0 of the arguments"),
                             (fxgrad.vjp(square, 1.0)[1], "vjp: the cotangent of output")):
            found = _refusal(called, tangent)
            assert found is not None
            assert found.split("\n")[0] == f"{what} is {where}"
            assert "test_wrong_calls.py:" in found
    assert fxgrad.linearize(square, 1.0)[1](1) == fxgrad.jvp(square, (1.0,), (1,))[1] == 2.0


def test_what_numpy_takes_stays_taken() -> None:
    x = fxgrad.jit(lambda x: fnp.std(x, ddof=0, correction=1))(MATRIX)
    np.testing.assert_allclose(x, np.std(MATRIX, correction=1), rtol=1e-12)
    np.testing.assert_allclose(fnp.percentile(MATRIX, [0, 100]), [0.0, 11.0], rtol=1e-12)
    np.testing.assert_allclose(lax.fori_loop(np.int16(0), 3, lambda i, carry: carry + i, 0), 3)
    np.testing.assert_allclose(fnp.var(COMPLEX, dtype=np.complex64), np.var(COMPLEX), rtol=1e-6)
