"""The array API standard, 2024.12: every name with its signature, the methods of arrays, and what it says of a library.

The tables are written from the standard's text: positional operands as letters, then the options by name.
"""

from __future__ import annotations

import inspect
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.frontend.ufuncs import Elementwise
from fxgrad.errors import ArgumentError

UNARY = """abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf
    isnan log log1p log2 log10 logical_not negative positive real reciprocal round sign signbit sin sinh square sqrt tan
    tanh trunc""".split()
BINARY = """add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal
    floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum
    minimum multiply nextafter not_equal pow remainder subtract""".split()
CONSTANTS = "e inf nan newaxis pi".split()
DTYPES = """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128""".split()
OTHERS = """
    clip(x, min, max)
    arange(a, stop, step, dtype, device) asarray(x, dtype, device, copy) empty(a, dtype, device)
    empty_like(x, dtype, device) eye(a, b, k, dtype, device) from_dlpack(x, device, copy) full(a, b, dtype, device)
    full_like(x, a, dtype, device) linspace(a, b, num, dtype, device, endpoint) meshgrid(x, y, indexing)
    ones(a, dtype, device) ones_like(x, dtype, device) tril(x, k) triu(x, k) zeros(a, dtype, device)
    zeros_like(x, dtype, device)
    astype(x, a, copy, device) can_cast(a, b) finfo(a) iinfo(a) isdtype(a, b) result_type(x, y)
    take(x, y, axis) take_along_axis(x, y, axis)
    matmul(x, y) matrix_transpose(x) tensordot(x, y, axes) vecdot(x, y, axis)
    broadcast_arrays(x, y) broadcast_to(x, a) concat(x, axis) expand_dims(x, axis) flip(x, axis) moveaxis(x, a, b)
    permute_dims(x, a) repeat(x, a, axis) reshape(x, a, copy) roll(x, a, axis) squeeze(x, a) stack(x, axis) tile(x, a)
    unstack(x, axis)
    argmax(x, axis, keepdims) argmin(x, axis, keepdims) count_nonzero(x, axis, keepdims) nonzero(x)
    searchsorted(x, y, side, sorter) where(x, y, z)
    unique_all(x) unique_counts(x) unique_inverse(x) unique_values(x)
    argsort(x, axis, descending, stable) sort(x, axis, descending, stable)
    cumulative_prod(x, axis, dtype, include_initial) cumulative_sum(x, axis, dtype, include_initial)
    max(x, axis, keepdims) mean(x, axis, keepdims) min(x, axis, keepdims) prod(x, axis, dtype, keepdims)
    std(x, axis, correction, keepdims) sum(x, axis, dtype, keepdims) var(x, axis, correction, keepdims)
    all(x, axis, keepdims) any(x, axis, keepdims) diff(x, axis, n, prepend, append)
"""
LINALG = """
    cholesky(x, upper) cross(x, y, axis) det(x) diagonal(x, offset) eigh(x) eigvalsh(x) inv(x) matmul(x, y)
    matrix_norm(x, keepdims, ord) matrix_power(x, a) matrix_rank(x, rtol) matrix_transpose(x) outer(x, y) pinv(x, rtol)
    qr(x, mode) slogdet(x) solve(x, y) svd(x, full_matrices) svdvals(x) tensordot(x, y, axes) trace(x, offset, dtype)
    vecdot(x, y, axis) vector_norm(x, axis, keepdims, ord)
"""
FFT = """
    fft(x, n, axis, norm) ifft(x, n, axis, norm) fftn(x, s, axes, norm) ifftn(x, s, axes, norm) rfft(x, n, axis, norm)
    irfft(x, n, axis, norm) rfftn(x, s, axes, norm) irfftn(x, s, axes, norm) hfft(x, n, axis, norm)
    ihfft(x, n, axis, norm) fftfreq(a, d, dtype, device) rfftfreq(a, d, dtype, device) fftshift(x, axes)
    ifftshift(x, axes)
"""


def table(text: str) -> list[tuple[str, list[str]]]:
    calls = [call for call in text.replace("\n", " ").replace(") ", ")\n").split("\n") if call.strip()]
    return [(name.strip(), [part.strip() for part in rest.rstrip(") ").split(",") if part.strip()])
            for name, rest in (call.split("(") for call in calls)]


def test_signatures() -> None:
    refused = []
    for module, text in ((fnp, OTHERS), (fnp.linalg, LINALG), (fnp.fft, FFT)):
        for name, parameters in table(text):
            positional = [each for each in parameters if len(each) == 1 and each not in ("k", "n", "s", "d")]
            options = [each for each in parameters if each not in positional]
            if name not in ("finfo", "iinfo"):  # a class or a function of one argument
                try:
                    inspect.signature(getattr(module, name)).bind(*positional, **dict.fromkeys(options))
                except TypeError as error:
                    refused.append((name, str(error)))
    assert refused == []


@pytest.mark.parametrize(("names", "count"), [(UNARY, 1), (BINARY, 2)])
def test_functions_of_elements(names: list[str], count: int) -> None:
    for name in names:
        function = getattr(fnp, name)
        if isinstance(function, Elementwise):
            assert function.nin == count, name
        else:
            inspect.signature(function).bind(*"xy"[:count])


def test_constants_and_dtypes() -> None:
    assert (fnp.e, fnp.inf, fnp.newaxis, fnp.pi) == (np.e, np.inf, None, np.pi)
    assert np.isnan(fnp.nan)
    for name in DTYPES:
        assert np.dtype(getattr(fnp, name)).name == name
    assert {*CONSTANTS, *DTYPES} <= {*fnp.__all__}


def test_inspection() -> None:
    assert fnp.__array_api_version__ == "2024.12"
    about = fnp.__array_namespace_info__()
    assert about.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    assert (about.default_device(), about.devices()) == ("cpu", ["cpu"])
    assert about.default_dtypes() == {"real floating": np.float32, "complex floating": np.complex64,
                                      "integral": np.int32, "indexing": np.int32}
    assert {*about.dtypes()} == {*DTYPES}
    assert {*about.dtypes(kind="signed integer")} == {"int8", "int16", "int32", "int64"}
    assert {*about.dtypes(kind=("bool", "complex floating"))} == {"bool", "complex64", "complex128"}
    with pytest.raises(ArgumentError, match=r"^zeros: device='gpu'; arrays are made on 'cpu'"):
        fnp.zeros(3, device="gpu")
    assert fnp.zeros(3, device="cpu").shape == (3,)


def test_arrays_know_their_namespace() -> None:
    def function(x: Any) -> Any:
        assert x.__array_namespace__() is x.__array_namespace__(api_version="2024.12") is fnp
        assert x.device == "cpu"
        assert x.to_device("cpu") is x
        assert x.mT.shape == (3, 2)
        with pytest.raises(ArgumentError) as caught:
            x.__array_namespace__(api_version="1999.12")
        assert str(caught.value).startswith(
            "__array_namespace__: api_version='1999.12'; there are 2021.12, 2022.12, 2023.12, 2024.12")
        return x.__array_namespace__().sum(x)

    assert fxgrad.grad(function)(np.ones((2, 3))).tolist() == [[1.0] * 3] * 2


def test_code_for_any_library() -> None:
    """A function that takes its namespace from its argument has a derivative, and runs on every kind of array."""
    def standardized(x: Any) -> Any:
        xp = x.__array_namespace__()
        return (x - xp.mean(x, axis=0)) / xp.std(x, axis=0, correction=1)

    x = np.array([[1.0, 2.0], [3.0, 5.0], [4.0, 4.0]])
    expected = standardized(x)
    np.testing.assert_allclose(fxgrad.jit(standardized)(x), expected, rtol=1e-12)
    np.testing.assert_allclose(fnp.sum(fxgrad.grad(lambda x: fnp.sum(standardized(x) ** 3))(x), axis=0), 0, atol=5e-14,
                               rtol=5e-9)
    for values in (x, jnp.asarray(x)):
        result = fnp.unique_counts(values)
        assert [float(value) for value in result.values] == [1.0, 2.0, 3.0, 4.0, 5.0]
        assert result.counts.tolist() == [1, 1, 1, 2, 1]
