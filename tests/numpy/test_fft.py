"""Fourier transforms against jax.numpy.fft and NumPy."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import dtypes
from fxgrad.errors import ArgumentError, AxisError, DTypeError, ShapeError
from fxgrad.testing import check_grads
from tests.support.with_numpy import assert_equal, draw

pytestmark = pytest.mark.slow  # jax, the oracle, compiles in every test; the laws and the examples are quick

X, Z = draw((3, 6), "float64"), draw((3, 6), "complex128")
CUBE = draw((2, 3, 4, 5), "complex128")
ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
MANY = ("fftn", "ifftn", "rfftn", "irfftn")
PLANE = ("fft2", "ifft2", "rfft2", "irfft2")
NORMS = (None, "backward", "ortho", "forward")


def operand(name: str, x: Any, z: Any) -> Any:
    return x if name.startswith(("rfft", "ihfft")) else z


def check(name: str, a: Any, *several: dict[str, Any]) -> None:
    """Compare the transforms of `a` with each of several options with NumPy's and jax's, compiled together."""
    function = getattr(fnp.fft, name)
    with jax.enable_x64(True):
        of_jax = jax.jit(lambda a: [getattr(jnp.fft, name)(a, **options) for options in several])(a)
    for options, expected in zip(several, map(np.asarray, of_jax), strict=True):
        assert_equal(function(a, **options), expected, name)
        assert_equal(fxgrad.make_program(lambda a, options=options: function(a, **options))(a)(a), expected, name)
        assert_equal(getattr(np.fft, name)(a, **options).astype(expected.dtype), expected, name)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ONE)
def test_one_axis(name: str, norm: str | None) -> None:
    a = operand(name, X, Z)
    check(name, a, *({"norm": norm, **options} for options in (
        {}, {"n": 4}, {"n": 9}, {"axis": 0}, {"axis": -2, "n": 5}, {"n": 1})))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", MANY + PLANE)
def test_several_axes(name: str, norm: str | None) -> None:
    a = operand(name, CUBE.real, CUBE)
    check(name, a, *({"norm": norm, **options} for options in (
        {"axes": (-2, -1)}, {"axes": (0, 2)}, {"axes": (2, 0), "s": (3, 6)})))
    if name in MANY:
        check(name, a[0], {"norm": norm}, {"norm": norm, "axes": (1,)})


def test_sizes_of_minus_one_and_arrays_of_sizes() -> None:
    for name in MANY + PLANE:
        a = operand(name, CUBE.real, CUBE)
        for options in ({"axes": (0, 1), "s": (-1, 4)}, {"axes": (0, -1), "s": [3, -1]},
                        {"axes": [2, 0], "s": np.array([-1, -1])}):
            expected = getattr(np.fft, name)(a, **options)
            for call in (getattr(fnp.fft, name), fxgrad.jit(getattr(np.fft, name), static_argnames=("s", "axes"))):
                given = {key: tuple(value) for key, value in options.items()} if call is not getattr(
                    fnp.fft, name) else options
                assert_equal(call(a, **given), expected, name)
    for shift in ("fftshift", "ifftshift"):
        np.testing.assert_array_equal(getattr(fnp.fft, shift)(CUBE, np.array([0, 2])),
                                      getattr(np.fft, shift)(CUBE, (0, 2)))


@pytest.mark.parametrize("half", [np.float16, dtypes.bfloat16])
def test_half_precision_is_transformed_as_float32(half: Any) -> None:
    a = X.astype(half)
    for name in (*ONE, *MANY):
        result = getattr(fnp.fft, name)(a)
        np.testing.assert_array_equal(result, getattr(fnp.fft, name)(a.astype(np.float32)))
        assert result.dtype == (np.float32 if name in ("irfft", "hfft", "irfftn") else np.complex64)
    slope = fxgrad.grad(lambda a: fnp.sum(fnp.abs(fnp.fft.fft(a)) ** 2))(a)
    assert slope.dtype == half
    np.testing.assert_allclose(slope.astype(float), 2 * X.shape[-1] * a.astype(float), rtol=2e-2)


def test_more_axes_than_xla_takes() -> None:
    five = draw((2, 3, 2, 2, 4), "float64")
    for name in MANY:
        a = operand(name, five, five + 1j)
        expected = getattr(np.fft, name)(a)
        assert_equal(getattr(fnp.fft, name)(a), expected)
        assert_equal(fxgrad.jit(getattr(fnp.fft, name))(a), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "int32", "bool"])
def test_dtypes(dtype: str) -> None:
    a = draw((4,), dtype) > 0 if dtype == "bool" else draw((4,), dtype)
    for name in ("fft", "irfft", "hfft", *([] if "complex" in dtype else ["rfft", "ihfft"])):
        with jax.enable_x64(dtype.endswith(("64", "128"))):  # the default float dtype is float32
            expected = np.asarray(getattr(jnp.fft, name)(jnp.asarray(a)))
        assert_equal(getattr(fnp.fft, name)(a), expected, name)
        assert_equal(fxgrad.jit(getattr(fnp.fft, name))(a), expected, name)


def weighted(result: Any) -> Any:
    weights = draw(fnp.shape(result), "float64", seed="w")
    total = (result.real * weights).sum()
    return total + (result.imag * (1 - weights)).sum() if result.dtype.kind == "c" else total


@pytest.mark.parametrize("name", ONE + PLANE)
def test_derivatives(name: str) -> None:
    a = operand(name, X, Z)
    options: dict[str, Any] = {"s": (4, 5)} if name in PLANE else {"n": 5}

    def loss(module: Any) -> Callable[..., Any]:
        return lambda a: weighted(getattr(module.fft, name)(a * a, norm="ortho", **options))

    with jax.enable_x64(True):
        expected = jax.jit(jax.grad(loss(jnp)))(a)
    np.testing.assert_allclose(fxgrad.grad(loss(fnp))(a), expected, 1e-12, 1e-12)
    check_grads(loss(fnp), (a,), order=2)
    batched = fxgrad.vmap(fxgrad.grad(loss(fnp)))(np.stack([a, 2 * a]))
    np.testing.assert_allclose(batched[0], expected, 1e-12, 1e-12)


def test_numpys_own_functions() -> None:
    def loss(x: Any) -> Any:
        return abs(np.fft.fft(x)).sum() + np.fft.irfft(np.fft.rfft(x) * 2, n=5).sum() + \
            (np.fft.fftshift(x, axes=1) * X).sum() + abs(np.fft.fft2(x)).sum()

    check_grads(loss, (X,), order=1)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_frequencies(n: int) -> None:
    for name in ("fftfreq", "rfftfreq"):
        for d in (1.0, 0.25, 3):
            assert_equal(getattr(fnp.fft, name)(n, d), np.asarray(getattr(jnp.fft, name)(n, d)))
        assert_equal(getattr(fnp.fft, name)(n, dtype="float64"), getattr(np.fft, name)(n))
    shifted = np.arange(2 * n).reshape(2, n)
    for axes in (None, 1, (0, 1)):
        assert_equal(fnp.fft.fftshift(shifted, axes), np.fft.fftshift(shifted, axes))
        assert_equal(fnp.fft.ifftshift(shifted, axes), np.fft.ifftshift(shifted, axes))


def test_names_and_signatures_are_jax_s() -> None:
    assert fnp.fft.__all__ == sorted(name for name in dir(jnp.fft) if not name.startswith("_"))
    for name in fnp.fft.__all__:
        mine, theirs = (inspect.signature(getattr(module.fft, name)).parameters for module in (fnp, jnp))
        assert [(each.name, each.kind, each.default) for each in mine.values()] == \
            [(each.name, each.kind, each.default) for each in theirs.values()], name
        assert ">>>" in getattr(fnp.fft, name).__doc__


MESSAGES: dict[str, tuple[type[Exception], Callable[[], Any], str]] = {
    "complex": (DTypeError, lambda: fnp.fft.rfft(Z),
                "rfft: not defined for complex128; it takes real numbers. Pass a.real, or use fft"),
    "norm": (ArgumentError, lambda: fnp.fft.fft(X, norm="unit"),
             "fft: norm='unit'; it is one of 'backward', 'ortho', 'forward'"),
    "points": (ShapeError, lambda: fnp.fft.fft(np.zeros(0)),
               "fft: (0,) points; at least one is needed along each axis"),
    "negative n": (ShapeError, lambda: fnp.fft.fft(X, n=-1),
                   "fft: (-1,) points; at least one is needed along each axis"),
    "negative points": (ArgumentError, lambda: fnp.fft.fftfreq(-3), "fftfreq: n must be positive, got -3"),
    "axes": (AxisError, lambda: fnp.fft.fftn(X, axes=(0, -2)),
             "fftn: axes=(0, -2) names an axis twice; name each once"),
    "sizes": (ArgumentError, lambda: fnp.fft.fftn(X, s=(1, 2), axes=(0,)),
              "fftn: 2 sizes for 1 axes; one for each is needed"),
    "axis": (ArgumentError, lambda: fnp.fft.fft(X, axis=(0, 1)),
             "fft: axis=(0, 1); one integer is needed. fftn takes several axes"),
    "plane": (ArgumentError, lambda: fnp.fft.fft2(CUBE, axes=(0, 1, 2)),
              "fft2: axes=(0, 1, 2); two are needed. fftn takes others"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(name: str) -> None:
    kind, call, text = MESSAGES[name]
    with pytest.raises(kind, match=f"^{re.escape(text)}\n  at test_fft.py:"):
        call()
