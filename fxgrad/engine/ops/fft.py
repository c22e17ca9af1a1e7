"""The discrete Fourier transform over the last axes: complex, and from and to real numbers."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import ArrayKernel, Cost, Primitive, register
from fxgrad.engine.ops.arithmetic import mul
from fxgrad.engine.ops.comparison import eq, or_
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.ops.parts import conj, real
from fxgrad.engine.ops.pointwise import add, scalar_like
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.shaping import pad
from fxgrad.engine.ops.structural import broadcast_to, convert, move_axis
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import ArgumentError, DTypeError, ShapeError

KINDS = ("fft", "ifft", "rfft", "irfft")
_MOST = 3
"""The most axes that XLA transforms at once."""


def _abstract(x: Aval, *, fft_type: str, fft_lengths: tuple[int, ...]) -> list[Aval]:
    if fft_type not in KINDS:
        raise ArgumentError(f"fft: type {fft_type!r}; it is one of {', '.join(map(repr, KINDS))}")
    expected = ("float32", "float64") if fft_type == "rfft" else ("complex64", "complex128")
    if x.dtype.name not in expected:
        raise DTypeError(f"fft: type {fft_type!r} takes {' and '.join(expected)}, got {x.dtype.name}; convert first, "
                         f"for example x.astype({expected[0]!r})")
    count = len(fft_lengths)
    if not 0 < count <= x.ndim or any(length < 0 for length in fft_lengths):
        raise ShapeError(f"fft: lengths {fft_lengths} for an array of shape {x.shape}; from 1 to {x.ndim} lengths are "
                         "needed, one for each of the last axes")
    given = fft_lengths if fft_type != "irfft" else (*fft_lengths[:-1], _half(fft_lengths[-1]))
    if x.shape[-count:] != given:
        raise ShapeError(f"fft: type {fft_type!r} with lengths {fft_lengths} needs an array whose last axes have sizes "
                         f"{given}, got shape {x.shape}")
    if fft_type == "irfft":
        return [Aval((*x.shape[:-1], fft_lengths[-1]), dtypes.real_dtype(x.dtype), x.weak)]
    size = _half(fft_lengths[-1]) if fft_type == "rfft" else x.shape[-1]
    return [Aval((*x.shape[:-1], size), dtypes.complex_dtype(x.dtype), x.weak)]


def _half(length: int) -> int:
    """Return the number of complex numbers that determine the transform of `length` real ones."""
    return length // 2 + 1 if length else 0


def _numpy(x: Any, *, fft_type: str, fft_lengths: tuple[int, ...]) -> Any:
    output = _abstract(Aval(x.shape, x.dtype), fft_type=fft_type, fft_lengths=fft_lengths)[0]
    if 0 in (*x.shape, *output.shape):
        return np.zeros(output.shape, output.dtype)
    axes = tuple(range(-len(fft_lengths), 0))
    transformed = getattr(np.fft, f"{fft_type}n")(x, fft_lengths, axes)
    return transformed.astype(output.dtype, copy=False)


def _xla(lax: Any, x: Any, *, fft_type: str, fft_lengths: tuple[int, ...]) -> list[Any]:
    """Transform in several rounds if there are more axes than XLA takes; the last ones first, or last for irfft."""
    if 0 in (*x.shape, *fft_lengths):
        output = _abstract(Aval(x.shape, np.dtype(x.dtype)), fft_type=fft_type, fft_lengths=fft_lengths)[0]
        return [lax.full(output.shape, 0, output.dtype)]
    kinds = lax.FftType
    last = fft_lengths[-_MOST:]
    if fft_type == "irfft":
        return [lax.fft(_others(lax, x, kinds.IFFT, fft_lengths), kinds.IRFFT, last)]
    complex_kind = kinds.IFFT if fft_type == "ifft" else kinds.FFT
    x = lax.fft(x, kinds.RFFT if fft_type == "rfft" else complex_kind, last)
    return [_others(lax, x, complex_kind, fft_lengths)]


def _others(lax: Any, x: Any, kind: Any, lengths: tuple[int, ...]) -> Any:
    """Transform the axes of `lengths` except the last three."""
    end = x.ndim - _MOST
    for begin in range(x.ndim - len(lengths), end, _MOST):
        axes = [*range(begin, min(begin + _MOST, end))]
        order = [axis for axis in range(x.ndim) if axis not in axes] + axes
        x = lax.fft(lax.transpose(x, order), kind, tuple(x.shape[axis] for axis in axes))
        x = lax.transpose(x, sorted(range(x.ndim), key=order.__getitem__))
    return x


def _transpose(cotangents: list[Any], inputs: list[Any], *, fft_type: str,
               fft_lengths: tuple[int, ...]) -> list[Any]:
    """Transpose: the matrices of fft and ifft are symmetric. rfft is fft of real numbers without its second half; its
    transpose puts zeros there and takes the real part. In irfft each number counts twice, except those that are their
    own mirror image.
    """
    cotangent = cotangents[0]
    if fft_type in ("fft", "ifft"):
        return [fft(cotangent, fft_type, fft_lengths)]
    last = aval_of(cotangent).ndim - 1
    size = fft_lengths[-1]
    if fft_type == "rfft":
        config = [(0, 0, 0)] * last + [(0, size - _half(size), 0)]
        return [real(fft(pad(cotangent, scalar_like(0, cotangent), config), "fft", fft_lengths))]
    mirrored = conj(fft(cotangent, "rfft", fft_lengths))
    shape = aval_of(mirrored).shape
    place = iota(dtypes.int32, shape, last)
    # The middle one of an even number. Compared as values, since whether a symbolic size is even is unknown here.
    own = or_(eq(place, 0), eq(add(place, place), scalar_like(size, place)))
    weight = where(own, 1.0, broadcast_to(scalar_like(2, cotangent), shape))
    return [mul(mirrored, convert(mul(weight, 1 / max(prod(fft_lengths), 1)), inputs[0].aval.dtype))]


def _batch(size: int, values: list[Any], axes: list[int], **params: Any) -> tuple[list[Any], list[int]]:
    return bind(fft_p, move_axis(values[0], axes[0], 0), **params), [0]


def _cost(x: Aval, *, fft_type: str, fft_lengths: tuple[int, ...]) -> Cost:
    output = _abstract(x, fft_type=fft_type, fft_lengths=fft_lengths)[0]
    rounds = sum(max(length - 1, 0).bit_length() for length in fft_lengths)
    return Cost(5 * max(x.size, output.size) * rounds, x.nbytes + output.nbytes)


def _jvp(primals: list[Any], tangents: list[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    return bind(fft_p, *primals, **params), bind(fft_p, *tangents, **params)


fft_p = register(Primitive(
    name="fft", abstract=_abstract, numpy=ArrayKernel(_numpy), xla=_xla, jvp=_jvp, transpose=_transpose, batch=_batch,
    cost=_cost))


def fft(x: Any, fft_type: str, fft_lengths: tuple[int, ...]) -> Any:
    """Return the "fft", "ifft", "rfft" or "irfft" of the last axes of `x`; inverse ones divide by the size.

    `fft_lengths` are the sizes of these axes, of the result for "irfft".
    """
    return bind(fft_p, x, fft_type=fft_type, fft_lengths=tuple(fft_lengths))[0]
