"""Spectra of sampled signals: Fourier transforms of short overlapping segments, and averages over them.

Definitions are those of `scipy.signal` (P. D. Welch, "The use of fast Fourier transform for the estimation of power
spectra", 1967; D. Griffin and J. Lim, "Signal estimation from modified short-time Fourier transform", 1984).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_integer,
    axis_of,
    common_shape,
    inexact_operands,
    shape_of,
)
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError, UnsupportedError

Detrend = str | bool | Callable[[Any], Any]


def detrend(data: Any, axis: int = -1, type: str = "linear", bp: Any = 0,  # noqa: A002  (SciPy's name)
            overwrite_data: Any = None) -> Any:
    """Return `data` less its mean (`type="constant"`) or its straight line of least squares (`"linear"`) along `axis`.

    With `"linear"`, `bp` are places at which one line ends and another begins. Raises `ArgumentError` for another type
    and for places that are not along the axis; `overwrite_data` may not be true.

    >>> import numpy as np
    >>> detrend(np.array([1.0, 3.0, 2.0, 4.0]), type="constant")
    array([-1.5,  0.5, -0.5,  1.5])
    >>> bool(np.all(np.abs(detrend(np.arange(5.0))) < 1e-12))
    True
    """
    if overwrite_data:
        raise UnsupportedError(at_user_line("detrend: overwrite_data=True is not supported: arrays here are not "
                                            "changed"))
    if type not in ("linear", "l", "constant", "c"):
        raise ArgumentError(at_user_line(f"detrend: type={type!r}; it is 'linear' or 'constant'"))
    data, = inexact_operands(data)
    at = axis_of("detrend", axis, len(shape_of(data)))
    if type in ("constant", "c"):
        return data - fnp.mean(data, at, keepdims=True)
    size = shape_of(data)[at]
    ends = sorted({0, size, *map(int, np.atleast_1d(bp))})
    if ends[0] < 0 or ends[-1] > size:
        raise ArgumentError(at_user_line(f"detrend: bp={bp!r}; places from 0 to {size}, the size of the axis, are "
                                         "needed"))
    rows = fnp.moveaxis(data, at, -1)
    parts = [_without_line(rows[..., start:end]) for start, end in pairwise(ends)]
    return fnp.moveaxis(fnp.concatenate(parts, -1), -1, at) if parts else data


def _without_line(rows: Any) -> Any:
    """Return rows less their projection to the constants and the straight lines, by an orthonormal basis of these."""
    count = shape_of(rows)[-1]
    basis, _ = np.linalg.qr(np.stack([np.ones(count), np.linspace(-1.0, 1.0, count)], 1)[:, :max(1, min(count, 2))])
    basis = basis.astype(dtypes.real_dtype(rows.dtype))
    return rows - (rows @ basis) @ basis.T


class _Segments(NamedTuple):
    """The segmentation of a signal: samples in a segment, hop to the next one, points, window, sides."""

    size: int
    step: int
    points: int
    window: Any
    one_sided: bool


def _plan_segments(name: str, length: int, window: Any, nperseg: Any, noverlap: Any, nfft: Any, one_sided: bool,
                   dtype: Any,
                   ) -> _Segments:
    """Read a caller's settings; a window by name is SciPy's, an array of numbers is a window itself."""
    given = None if isinstance(window, str | tuple) else as_array_operand(window)
    size = 256 if given is None else shape_of(given)[-1]
    size = size if nperseg is None else as_integer(f"{name}: nperseg", nperseg)
    if size < 1:
        raise ArgumentError(at_user_line(f"{name}: nperseg={size}; segments of at least one sample are needed"))
    if given is None:
        from scipy.signal import get_window
        size = min(size, length)
        given = get_window(window, size).astype(dtypes.real_dtype(dtype))
    if shape_of(given) != (size,) or size > length:
        raise ShapeError(at_user_line(f"{name}: a window of shape {shape_of(given)} for segments of {size} samples, of "
                                      f"a signal of {length}; the signal cannot be shorter, and the window is as long"))
    overlap = size // 2 if noverlap is None else as_integer(f"{name}: noverlap", noverlap)
    points = size if nfft is None else as_integer(f"{name}: nfft", nfft)
    if not 0 <= overlap < size or points < size:
        raise ArgumentError(at_user_line(f"{name}: noverlap={overlap} and nfft={points} for nperseg={size}; noverlap "
                                         "must be less, and nfft not less"))
    return _Segments(size, size - overlap, points, given, one_sided and not dtypes.is_complex(dtype))


def _transform_segments(x: Any, plan: _Segments, without: Detrend) -> Any:
    """Return the Fourier transforms of the segments, less their trend, under the window."""
    begin = np.arange(0, shape_of(x)[-1] - plan.size + 1, plan.step)
    rows = x[..., begin[:, None] + np.arange(plan.size)]
    if callable(without):
        rows = without(rows)
    elif without:
        rows = detrend(rows, -1, "constant" if without is True else without)
    rows = rows * plan.window
    return fnp.fft.rfft(rows, plan.points) if plan.one_sided else fnp.fft.fft(rows, plan.points)


def _frequencies(plan: _Segments, fs: Any, dtype: Any) -> Any:
    make = np.fft.rfftfreq if plan.one_sided else np.fft.fftfreq
    return fnp.multiply(make(plan.points).astype(dtypes.real_dtype(dtype)), fs)


def csd(x: Any, y: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
        nfft: int | None = None, detrend: Detrend = "constant", return_onesided: bool = True, scaling: str = "density",
        axis: int = -1, average: str = "mean") -> tuple[Any, Any]:
    """Return the frequencies, and the cross spectrum of `x` and `y` (None: `x` itself) there, by Welch's method.

    Transforms of segments under a `window` are multiplied and averaged, by `"mean"` or `"median"`. A segment has
    `nperseg` samples (256, or as many as the window or the signal has) and shares `noverlap` of them (half) with the
    next one; it is padded with zeros to `nfft`. `detrend` is applied to each: `"constant"`, `"linear"`, a function, or
    False. `scaling` is `"density"` (per unit of frequency) or `"spectrum"`. For real signals `return_onesided` gives
    the frequencies from 0 up. Raises `ArgumentError` and `ShapeError`.

    >>> import numpy as np
    >>> frequencies, power = csd(np.cos(np.arange(8.0) * np.pi / 2), None, nperseg=8, detrend=False)
    >>> frequencies
    array([0.   , 0.125, 0.25 , 0.375, 0.5  ])
    >>> int(np.argmax(np.abs(power)))
    2
    """
    return _spectrum("csd", x, y, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average)


def _spectrum(name: str, x: Any, y: Any, fs: Any, window: Any, nperseg: Any, noverlap: Any, nfft: Any, detrend: Detrend,
              return_onesided: bool, scaling: str, axis: int, average: str) -> tuple[Any, Any]:
    """Compute `csd` under the name `name`, for messages."""
    if scaling not in ("density", "spectrum"):
        raise ArgumentError(at_user_line(f"{name}: scaling={scaling!r}; it is 'density' or 'spectrum'"))
    if average not in ("mean", "median"):
        raise ArgumentError(at_user_line(f"{name}: average={average!r}; it is 'mean' or 'median'"))
    first, *rest = inexact_operands(x) if y is None or y is x else inexact_operands(x, y)
    at = axis_of(name, axis, len(shape_of(first)))
    signals = [fnp.moveaxis(each, at, -1) for each in (first, *rest)]
    if any(0 in shape_of(each) for each in signals):  # there are no segments
        sizes = (*common_shape(name, *(shape_of(each)[:-1] for each in signals)),
                 min(shape_of(each)[-1] for each in signals))
        nothing = fnp.moveaxis(fnp.zeros(sizes, dtypes.real_dtype(first.dtype)), -1, at)
        return nothing, nothing
    length = max(shape_of(each)[-1] for each in signals)
    signals = [fnp.pad(each, [(0, 0)] * (len(shape_of(each)) - 1) + [(0, length - shape_of(each)[-1])])
               for each in signals]
    plan = _plan_segments(name, length, window, nperseg, noverlap, nfft, return_onesided, first.dtype)
    spectra = [_transform_segments(each, plan, detrend) for each in signals]
    total = fnp.multiply(fnp.sum(plan.window ** 2), fs) if scaling == "density" else fnp.sum(plan.window) ** 2
    products = fnp.conj(spectra[0]) * spectra[-1] / total
    if not rest:
        products = fnp.real(products)
    if plan.one_sided:
        twice = np.full(shape_of(products)[-1], 2.0)
        twice[0] = 1.0
        twice[-1] = 1.0 if plan.points % 2 == 0 else 2.0
        products = products * twice.astype(dtypes.real_dtype(products.dtype))
    result = _average(products, average)
    return _frequencies(plan, fs, first.dtype), fnp.moveaxis(result, -1, at)


def _average(products: Any, average: str) -> Any:
    """Return the mean over segments, or the median over its bias (B. Allen et al., "FINDCHIRP", 2012, appendix B)."""
    count = shape_of(products)[-2]
    if average == "mean":
        return fnp.mean(products, -2)
    odd = np.arange(2, count if count % 2 else count - 1, 2)
    bias = 1.0 + float(np.sum(1.0 / (odd + 1.0) - 1.0 / odd))
    if dtypes.is_complex(products.dtype):
        middle = fnp.median(fnp.real(products), -2) + 1j * fnp.median(fnp.imag(products), -2)
    else:
        middle = fnp.median(products, -2)
    return middle / bias


def welch(x: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
          nfft: int | None = None, detrend: Detrend = "constant", return_onesided: bool = True,
          scaling: str = "density", axis: int = -1, average: str = "mean") -> tuple[Any, Any]:
    """Return the frequencies, and the power spectrum of `x` there; `csd(x, None, ...)`, with its arguments.

    >>> import numpy as np
    >>> frequencies, power = welch(np.cos(np.arange(64.0) * np.pi / 2), nperseg=8)
    >>> float(frequencies[np.argmax(power)])
    0.25
    """
    return _spectrum("welch", x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis,
                     average)


_PADDED = {"zeros": {}, "constant": {"mode": "edge"}, "even": {"mode": "reflect"},
           "odd": {"mode": "reflect", "reflect_type": "odd"}}


def stft(x: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
         nfft: int | None = None, detrend: Detrend = False, return_onesided: bool = True,
         boundary: str | None = "zeros", padded: bool = True, axis: int = -1) -> tuple[Any, Any, Any]:
    """Return the frequencies, the times of the middles of the segments, and the Fourier transforms of the segments.

    The arguments are those of `csd`. `boundary` selects the extension by half a segment at both ends: `"zeros"`,
    `"constant"` (the last sample), `"even"` or `"odd"` (mirrored), None (no extension). With `padded`, zeros at the end
    fill the last segment. The transforms have the frequencies in the place of `axis`, and segments as their last axis.

    >>> import numpy as np
    >>> frequencies, times, transforms = stft(np.ones(16), nperseg=8)
    >>> transforms.shape, float(times[1])
    ((5, 5), 4.0)
    """
    if boundary is not None and boundary not in _PADDED:
        raise ArgumentError(at_user_line(f"stft: boundary={boundary!r}; it is one of {', '.join(map(repr, _PADDED))}, "
                                         "or None"))
    x, = inexact_operands(x)
    at = axis_of("stft", axis, len(shape_of(x)))
    rows = fnp.moveaxis(x, at, -1)
    plan = _plan_segments("stft", shape_of(rows)[-1], window, nperseg, noverlap, nfft, return_onesided, x.dtype)
    along = [(0, 0)] * (len(shape_of(rows)) - 1)
    half = plan.size // 2
    if boundary is not None:
        rows = fnp.pad(rows, [*along, (half, half)], **_PADDED[boundary])
    if padded:
        rows = fnp.pad(rows, [*along, (0, -(shape_of(rows)[-1] - plan.size) % plan.step % plan.size)])
    transforms = _transform_segments(rows, plan, detrend) / fnp.sum(plan.window)
    times = np.arange(plan.size / 2, shape_of(rows)[-1] - plan.size / 2 + 1, plan.step)
    times = (times - (plan.size / 2 if boundary is not None else 0)).astype(dtypes.real_dtype(x.dtype))
    return _frequencies(plan, fs, x.dtype), fnp.divide(times, fs), fnp.moveaxis(transforms, -1, at)


def istft(Zxx: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
          nfft: int | None = None, input_onesided: bool = True, boundary: bool = True, time_axis: int = -1,
          freq_axis: int = -2) -> tuple[Any, Any]:
    """Return the times, and the signal whose `stft` is `Zxx` (by least squares, if there is none).

    Segments are transformed back, added up under the window and divided by the sum of its squares. The arguments are
    those of `stft`; `boundary` tells that it had one.

    >>> import numpy as np
    >>> x = np.array([1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0])
    >>> istft(stft(x, nperseg=4)[2], nperseg=4)[1].round(9)
    array([ 1.,  2.,  3.,  5.,  8., 13., 21., 34.])
    """
    Zxx, = inexact_operands(Zxx)
    rank = len(shape_of(Zxx))
    if rank < 2 or axis_of("istft", time_axis, rank) == axis_of("istft", freq_axis, rank):
        raise ShapeError(at_user_line(f"istft: an array of shape {shape_of(Zxx)} with time_axis={time_axis} and "
                                      f"freq_axis={freq_axis}; two different axes are needed"))
    Zxx = fnp.moveaxis(Zxx, (time_axis, freq_axis), (-2, -1))
    count, bins = shape_of(Zxx)[-2:]
    length = 2 * (bins - 1) if input_onesided else bins
    size = length if nperseg is None else as_integer("istft: nperseg", nperseg)
    points = nfft if nfft is not None else size if input_onesided and size == length + 1 else length
    plan = _plan_segments("istft", size, window, size, noverlap, points, input_onesided, np.dtype("float32")
                          if Zxx.dtype == dtypes.complex64 else np.dtype("float64"))
    back = fnp.fft.irfft if input_onesided else fnp.fft.ifft
    window = plan.window
    rows = back(Zxx, plan.points)[..., :size] * (window * fnp.sum(window))
    places = np.arange(count)[:, None] * plan.step + np.arange(size)
    length = size + (count - 1) * plan.step
    zeros = fnp.zeros((*shape_of(rows)[:-2], length), rows.dtype)
    signal = fnp.at(zeros)[..., places].add(rows)
    weight = fnp.at(fnp.zeros(length, window.dtype))[places].add(fnp.broadcast_to(window ** 2, places.shape))
    if boundary:
        kept = slice(size // 2, length - size // 2)
        signal, weight = signal[..., kept], weight[kept]
    signal = signal / fnp.where(weight > 1e-10, weight, 1.0)
    times = fnp.divide(np.arange(shape_of(signal)[-1]).astype(dtypes.real_dtype(signal.dtype)), fs)
    if rank > 2:
        signal = fnp.moveaxis(signal, -1, min(time_axis % rank, freq_axis % rank) if freq_axis % rank < time_axis % rank
                              else time_axis % rank)
    return times, signal
