"""Sliding products of arrays, under the names of jax.scipy.signal; spectra have a file of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxgrad import numpy as fnp
from fxgrad.engine.frontend.operands import as_array_operand, axes_of, inexact_operands, shape_of
from fxgrad.engine.frontend.value_calls import replay_public as _replay
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError, UnsupportedError
from fxgrad.lax.convolution import conv_general_dilated
from fxgrad.scipy.spectra import csd, detrend, istft, stft, welch

__all__ = ["convolve", "convolve2d", "correlate", "correlate2d", "csd", "detrend", "fftconvolve", "istft", "stft",
           "welch"]


def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None) -> Any:
    """Return the sums of products of `in1` with `in2`, reversed and slid along all axes.

    `mode` selects the positions: `"full"` all where they overlap, `"same"` as many as `in1` has, in the middle,
    `"valid"` those where one lies within the other. `method` is `"direct"`, `"fft"`, or `"auto"`, which is `"direct"`.
    Raises `ShapeError` unless both have the same number of axes.

    >>> import numpy as np
    >>> convolve(np.array([1.0, 2.0, 3.0]), np.array([1.0, 10.0]), mode="same")
    array([ 1., 12., 23.])
    """
    if method == "fft":
        return fftconvolve(in1, in2, mode)
    if method not in ("auto", "direct"):
        raise ArgumentError(at_user_line(f"convolve: method={method!r}; it must be 'auto', 'direct' or 'fft'"))
    first, second = _pair("convolve", in1, in2)
    rank = len(shape_of(first))
    spatial = range(rank)
    image, kernel = (fnp.expand_dims(each, (0, 1)) for each in (first, fnp.flip(second)))
    padding = [(size - 1, size - 1) for size in shape_of(second)]
    full = conv_general_dilated(image, kernel, (1,) * rank, padding, precision=precision)[0, 0]
    return _cut_product("convolve", full, shape_of(first), shape_of(second), mode, spatial)


def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None) -> Any:
    """Return sums of products like `convolve`, with `in2` conjugated and not reversed.

    >>> import numpy as np
    >>> correlate(np.array([1.0, 2.0, 3.0]), np.array([1.0, 10.0]), mode="valid")
    array([21., 32.])
    """
    return convolve(in1, fnp.conj(fnp.flip(as_array_operand(in2))), mode, method, precision)


def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Sequence[int] | None = None) -> Any:
    """Convolve like `convolve`, by Fourier transforms along `axes` (None: all); along the other axes sizes broadcast.

    >>> import numpy as np
    >>> fftconvolve(np.array([1.0, 2.0]), np.array([1.0, 10.0])).round(6)
    array([ 1., 12., 20.])
    """
    first, second = _pair("fftconvolve", in1, in2)
    chosen = axes_of("fftconvolve", axes, len(shape_of(first)))
    sizes = [shape_of(first)[axis] + shape_of(second)[axis] - 1 for axis in chosen]
    is_complex = first.dtype.kind == "c"
    forward, backward = (fnp.fft.fftn, fnp.fft.ifftn) if is_complex else (fnp.fft.rfftn, fnp.fft.irfftn)
    full = backward(forward(first, sizes, chosen) * forward(second, sizes, chosen), sizes, chosen) if chosen else \
        first * second
    return _cut_product("fftconvolve", full, shape_of(first), shape_of(second), mode, chosen)


def convolve2d(in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: float = 0,
               precision: Any = None) -> Any:
    """Return `convolve` of matrices; beyond their ends are zeros.

    >>> import numpy as np
    >>> convolve2d(np.ones((2, 2)), np.ones((2, 2)), mode="valid")
    array([[4.]])
    """
    _check_2d("convolve2d", in1, in2, boundary, fillvalue)
    return convolve(in1, in2, mode, "direct", precision)


def correlate2d(in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: float = 0,
                precision: Any = None) -> Any:
    """Return `correlate` of matrices; beyond their ends are zeros.

    >>> import numpy as np
    >>> correlate2d(np.eye(2), np.eye(2), mode="valid")
    array([[2.]])
    """
    _check_2d("correlate2d", in1, in2, boundary, fillvalue)
    full = correlate(in1, in2, "full", "direct", precision)
    # The middle is the later place for even sizes, as in SciPy.
    sizes = [size + 1 - size % 2 if mode == "same" else size for size in shape_of(as_array_operand(in2))]
    return _cut_product("correlate2d", full, shape_of(as_array_operand(in1)), sizes, mode, (0, 1))


def _check_2d(name: str, in1: Any, in2: Any, boundary: str, fillvalue: float) -> None:
    if boundary != "fill" or fillvalue:
        raise UnsupportedError(at_user_line(f"{name}: boundary='fill' with fillvalue=0 is supported, no other"))
    if not len(shape_of(as_array_operand(in1))) == len(shape_of(as_array_operand(in2))) == 2:
        raise ShapeError(at_user_line(f"{name}: two matrices are needed"))


def _pair(name: str, in1: Any, in2: Any) -> tuple[Any, Any]:
    first, second = inexact_operands(in1, in2)
    if len(shape_of(first)) != len(shape_of(second)) or 0 in (*shape_of(first), *shape_of(second)):
        raise ShapeError(at_user_line(f"{name}: arrays of shapes {shape_of(first)} and {shape_of(second)}; both must "
                                      "have as many axes, and elements"))
    return first, second


def _cut_product(name: str, full: Any, first: Sequence[int], second: Sequence[int], mode: str,
                 axes: Sequence[int]) -> Any:
    """Return the part of the full product that `mode` selects."""
    if mode == "full":
        return full
    if mode not in ("same", "valid"):
        raise ArgumentError(at_user_line(f"{name}: mode={mode!r}; it must be 'full', 'same' or 'valid'"))
    longer = {first[axis] > second[axis] for axis in axes if first[axis] != second[axis]}
    if mode == "valid" and len(longer) > 1:
        raise ShapeError(at_user_line(f"{name}: mode='valid' of arrays of shapes {tuple(first)} and {tuple(second)}, "
                                      "of which neither lies within the other"))
    index = [slice(None)] * len(first)
    for axis in axes:
        one, other = first[axis], second[axis]
        begin, size = ((other - 1) // 2, one) if mode == "same" else (min(one, other) - 1, abs(one - other) + 1)
        index[axis] = slice(begin, begin + size)
    return full[tuple(index)]


_replay(globals(), "fxgrad.scipy", ("signal", "spectra"))
