"""Spectra against SciPy, their dtypes against jax, and their derivatives against differences."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.scipy.signal
import numpy as np
import pytest
import scipy.signal

import fxgrad
from fxgrad import errors
from fxgrad.scipy import signal
from fxgrad.testing import check_grads

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(3, 50)), RANDOM.normal(size=(3, 50))
Z = X + 1j * Y

SPECTRA: list[dict[str, Any]] = [
    {"nperseg": 16}, {"nperseg": 16, "noverlap": 3, "nfft": 20},
    {"nperseg": 15, "window": "hamming", "scaling": "spectrum"},
    {"nperseg": 8, "average": "median", "detrend": "linear"}, {"nperseg": 7, "average": "median"},
    {"fs": 10.0, "nperseg": 16, "detrend": False}, {"nperseg": 2, "axis": 0, "noverlap": 1}, {"nperseg": 50},
    {"window": np.hanning(12), "return_onesided": False}]
SHORT_TIME: list[dict[str, Any]] = [
    {"nperseg": 16}, {"nperseg": 16, "noverlap": 3, "nfft": 20}, {"nperseg": 15}, {"nperseg": 16, "boundary": "even"},
    {"nperseg": 16, "boundary": "odd"}, {"nperseg": 16, "boundary": "constant"},
    {"nperseg": 16, "return_onesided": False}, {"nperseg": 16, "boundary": None}, {"nperseg": 16, "padded": False},
    {"nperseg": 2, "axis": 0}, {"window": ("kaiser", 4.0), "nperseg": 12, "fs": 5.0, "detrend": "constant"}]


def close(found: Any, expected: Any) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == np.shape(theirs)
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("options", SPECTRA, ids=str)
def test_spectra_as_scipy(options: dict[str, Any]) -> None:
    close(signal.welch(X, **options), scipy.signal.welch(X, **options))
    close(signal.csd(X, Y, **options), scipy.signal.csd(X, Y, **options))
    one_sided = {**options, "return_onesided": False}
    close(signal.welch(Z, **one_sided), scipy.signal.welch(Z, **one_sided))


@pytest.mark.parametrize("options", SHORT_TIME, ids=str)
def test_short_time_transforms_as_scipy(options: dict[str, Any]) -> None:
    found = signal.stft(X, **options)
    close(found, scipy.signal.stft(X, **options))
    close(signal.stft(Z, **{**options, "return_onesided": False}),
          scipy.signal.stft(Z, **{**options, "return_onesided": False}))
    if {"boundary": None, "padded": False}.items() & options.items() or {"axis", "detrend"} & options.keys():
        return
    inverse = {name: value for name, value in options.items() if name in ("nperseg", "noverlap", "nfft")}
    inverse["input_onesided"] = options.get("return_onesided", True)
    times, back = signal.istft(found[2], **inverse)
    np.testing.assert_allclose(back[:, :50], X, atol=1e-15, rtol=5e-12)
    close([back], [scipy.signal.istft(found[2], **inverse)[1]])
    np.testing.assert_array_equal(times, np.arange(back.shape[-1]))  # SciPy's counts entries of the batch
    turned = np.moveaxis(found[2], (0, 1, 2), (1, 2, 0))
    close([signal.istft(turned, **inverse, time_axis=0, freq_axis=2)[1]],
          [scipy.signal.istft(turned, **inverse, time_axis=0, freq_axis=2)[1]])


@pytest.mark.parametrize("options", [{}, {"type": "constant"}, {"bp": [10, 20]}, {"axis": 0}, {"bp": 1}], ids=str)
def test_detrend_as_scipy(options: dict[str, Any]) -> None:
    close([signal.detrend(X, **options)], [scipy.signal.detrend(X, **options)])


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "welch": lambda module, x: module.welch(x, nperseg=16, detrend="linear")[1],
    "csd": lambda module, x: module.csd(x, x[::-1], nperseg=16)[1],
    "median": lambda module, x: module.welch(x, nperseg=8, average="median")[1],
    "stft": lambda module, x: module.stft(x, nperseg=16, boundary="odd")[2],
    "istft": lambda module, x: module.istft(x[0].reshape(5, 10)[None] * (1 + 2j), nperseg=8)[1],
    "detrend": lambda module, x: module.detrend(x, bp=[20])}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_transformations_of_spectra(name: str) -> None:
    """dtypes are jax's in both widths; derivatives are those of differences; batched and compiled it is the same."""
    function, x = FUNCTIONS[name], X[:2]
    for dtype in (np.float32, np.float64):
        given = x.astype(dtype)
        if name != "istft" or dtype == np.float32:
            with jax.enable_x64(dtype == np.float64):
                expected = jax.eval_shape(lambda x: function(jax.scipy.signal, x), given)
            found = function(signal, given)
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(function(signal, given), function(signal, x), atol=1e-5)
    check_grads(lambda x: function(signal, x), (x,), order=1)
    np.testing.assert_allclose(fxgrad.jit(lambda x: function(signal, x))(x), function(signal, x), atol=1e-15,
                               rtol=2e-12)
    np.testing.assert_allclose(fxgrad.vmap(lambda x: function(signal, x))(np.stack([x, 2 * x]))[1],
                               function(signal, 2 * x), atol=1e-15, rtol=1e-12)


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: signal.welch(X, scaling="power"), errors.ArgumentError,
     "welch: scaling='power'; it is 'density' or 'spectrum'"),
    (lambda: signal.welch(X, average="mode"), errors.ArgumentError, "welch: average='mode'; it is 'mean' or 'median'"),
    (lambda: signal.stft(X, boundary="none"), errors.ArgumentError,
     "stft: boundary='none'; it is one of 'zeros', 'constant', 'even', 'odd', or None"),
    (lambda: signal.stft(X, nperseg=0), errors.ArgumentError,
     "stft: nperseg=0; segments of at least one sample are needed"),
    (lambda: signal.stft(X, nperseg=8, noverlap=8), errors.ArgumentError,
     "stft: noverlap=8 and nfft=8 for nperseg=8; noverlap must be less, and nfft not less"),
    (lambda: signal.stft(X, window=np.ones(60)), errors.ShapeError,
     ("stft: a window of shape (60,) for segments of 60 samples, of a signal of 50; the signal cannot be shorter, and "
      "the window is as long")),
    (lambda: signal.istft(X[0]), errors.ShapeError,
     "istft: an array of shape (50,) with time_axis=-1 and freq_axis=-2; two different axes are needed"),
    (lambda: signal.detrend(X, type="square"), errors.ArgumentError,
     "detrend: type='square'; it is 'linear' or 'constant'"),
    (lambda: signal.detrend(X, bp=60), errors.ArgumentError,
     "detrend: bp=60; places from 0 to 50, the size of the axis, are needed"),
    (lambda: signal.detrend(X, overwrite_data=True), errors.UnsupportedError,
     "detrend: overwrite_data=True is not supported: arrays here are not changed")])
def test_spectra_refuse(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}\n"):
        call()


@pytest.mark.parametrize("shape", [(0,), (5, 0), (0, 5, 2)], ids=str)
def test_spectra_of_no_samples(shape: tuple[int, ...]) -> None:
    nothing = np.zeros(shape)
    for axis in range(len(shape)):
        wanted = [each.shape for each in scipy.signal.welch(nothing, axis=axis)]
        for found in (signal.welch(nothing, axis=axis), signal.csd(nothing, nothing + 1, axis=axis)):
            assert [each.shape for each in found] == wanted
    assert signal.csd(np.zeros(0), np.ones(10))[1].shape == signal.csd(np.ones(10), np.zeros(0))[0].shape == (0,)
