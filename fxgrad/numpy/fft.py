"""Discrete Fourier transforms: names, signatures and dtypes are those of jax.numpy.fft."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_integer,
    axis_of,
    default_float_dtype,
    inexact_operands,
    shape_of,
)
from fxgrad.engine.frontend.strict import as_integers
from fxgrad.engine.frontend.value_calls import replay_public as _replay
from fxgrad.engine.ops.arithmetic import mul
from fxgrad.engine.ops.fft import fft as transformed
from fxgrad.engine.ops.parts import conj
from fxgrad.engine.ops.pointwise import scalar_like
from fxgrad.engine.ops.shaping import pad, slice_in_dim
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, AxisError, DTypeError, ShapeError
from fxgrad.numpy.arithmetic import divide, multiply
from fxgrad.numpy.creation import arange
from fxgrad.numpy.joining import concatenate
from fxgrad.numpy.rearranging import roll
from fxgrad.numpy.shaping import moveaxis

__all__ = ["fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft",
           "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn"]

_NORMS = ("backward", "ortho", "forward")


def _as_operand(name: str, kind: str, a: Any) -> Any:
    """Return real numbers for rfft and complex ones for the others; half precision as 32 bits, as in NumPy."""
    a, = inexact_operands(a)
    dtype = aval_of(a).dtype
    if kind == "rfft" and dtypes.is_complex(dtype):
        raise DTypeError(at_user_line(f"{name}: not defined for {dtype.name}; it takes real numbers. Pass a.real, or "
                                      f"use {name.replace('rfft', 'fft').replace('ihfft', 'ifft')}"))
    if dtypes.is_floating(dtype) and dtype.itemsize < 4:
        dtype = dtypes.float32
    return convert(a, dtype if kind == "rfft" else dtypes.complex_dtype(dtype), aval_of(a).weak)


def _many(name: str, kind: str, a: Any, s: Any, axes: Any, norm: str | None) -> Any:
    """Return the transform over `axes`, after padding with zeros or cutting to the sizes `s`, but for those of -1."""
    if norm not in (None, *_NORMS):
        raise ArgumentError(at_user_line(f"{name}: norm={norm!r}; it is one of 'backward', 'ortho', 'forward'"))
    a = _as_operand(name, kind, a)
    rank = len(shape_of(a))
    if s is not None and not isinstance(s, Sequence | np.ndarray):
        raise ArgumentError(at_user_line(f"{name}: s={s!r}; a sequence of sizes is needed, one for each axis"))
    if axes is None:
        axes = range(rank) if s is None else range(rank - len(s), rank)
    places = [axis_of(name, axis, rank) for axis in as_integers(name, axes)]
    if s is not None and len(s) != len(places):
        raise ArgumentError(at_user_line(f"{name}: {len(s)} sizes for {len(places)} axes; one for each is needed"))
    if len(set(places)) != len(places):
        raise AxisError(at_user_line(f"{name}: axes={tuple(axes)!r} names an axis twice; name each once"))
    if not places:
        return a
    lengths = [shape_of(a)[place] for place in places]
    if s is not None:
        sizes = [-1 if each is None else as_integer(name, each) for each in s]
        lengths = [length if size == -1 else size for size, length in zip(sizes, lengths, strict=True)]
    elif kind == "irfft":
        lengths[-1] = max(2 * (lengths[-1] - 1), 0)
    if any(length < 1 for length in lengths):
        raise ShapeError(at_user_line(f"{name}: {tuple(lengths)} points; at least one is needed along each axis"))
    needed = lengths if kind != "irfft" else [*lengths[:-1], lengths[-1] // 2 + 1]
    for place, size in zip(places, needed, strict=True):
        a = _resize(a, place, size)
    last = range(rank - len(places), rank)
    result = transformed(moveaxis(a, places, last), kind, tuple(lengths))
    result, count = moveaxis(result, last, places), math.prod(lengths)
    is_inverse = kind.startswith("i")  # such a transform has been divided by `count`
    if norm == "ortho":
        return mul(result, math.sqrt(count) if is_inverse else 1 / math.sqrt(count))
    if norm == "forward":
        return mul(result, float(count) if is_inverse else 1 / count)
    return result


def _resize(a: Any, axis: int, size: int) -> Any:
    """Return `a` with zeros at the end of `axis`, or cut there."""
    given = shape_of(a)[axis]
    if given > size:
        return slice_in_dim(a, 0, size, axis)
    config = [(0, 0, 0)] * len(shape_of(a))
    config[axis] = (0, size - given, 0)
    return a if given == size else pad(a, scalar_like(0, a), config)


def _one(name: str, kind: str, a: Any, n: int | None, axis: int, norm: str | None) -> Any:
    if isinstance(axis, Sequence):
        raise ArgumentError(at_user_line(f"{name}: axis={axis!r}; one integer is needed. fftn takes several axes"))
    if n is not None and as_integer(name, n) < 1:
        raise ShapeError(at_user_line(f"{name}: ({n},) points; at least one is needed along each axis"))
    return _many(name, kind, a, None if n is None else [n], [axis], norm)


# --- along one axis ---------------------------------------------------------------------------------------------------


def fft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the Fourier transform along `axis`, sum_j a[j] exp(-2πi jk/n), of `n` points; complex.

    The array is cut, or padded with zeros, to `n` points. `norm` selects the transform that is divided by n: the
    inverse one (None or "backward"), this one ("forward"), or each by the root of n ("ortho"). float32 and half
    precision give complex64.

    >>> fft([1.0, 0.0, 0.0, 0.0])
    array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j])
    """
    return _one("fft", "fft", a, n, axis, norm)


def ifft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the inverse of `fft`, with the same arguments.

    >>> ifft([4.0, 0.0, 0.0, 0.0])
    array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j])
    """
    return _one("ifft", "ifft", a, n, axis, norm)


def rfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the first half (n // 2 + 1 points) of `fft` of real numbers: the other mirrors it.

    Raises for complex numbers.

    >>> rfft([1.0, 1.0, 1.0, 1.0])
    array([4.+0.j, 0.+0.j, 0.+0.j])
    """
    return _one("rfft", "rfft", a, n, axis, norm)


def irfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the inverse of `rfft`: `n` real numbers, by default 2 (points - 1).

    >>> irfft([4.0, 0.0, 0.0])
    array([1., 1., 1., 1.])
    """
    return _one("irfft", "irfft", a, n, axis, norm)


_SWAPPED = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return `fft` of a signal whose second half, not given, is the conjugate of its first half mirrored; real.

    >>> hfft([1.0, 0.0, 0.0])
    array([1., 1., 1., 1.])
    """
    return _one("hfft", "irfft", conj(_as_operand("hfft", "irfft", a)), n, axis, _SWAPPED.get(norm, norm))


def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the inverse of `hfft`: the first half of the transform of real numbers.

    >>> ihfft([1.0, 1.0, 1.0, 1.0])
    array([1.-0.j, 0.-0.j, 0.-0.j])
    """
    return conj(_one("ihfft", "rfft", a, n, axis, _SWAPPED.get(norm, norm)))


# --- along several axes -----------------------------------------------------------------------------------------------


def fftn(a: Any, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Any:
    """Return `fft` along several axes, by default all, cut or padded to the sizes `s` (by default of the last axes).

    An axis whose size is -1 is left as it is.

    >>> fftn([[1.0, 1.0], [1.0, 1.0]])
    array([[4.+0.j, 0.+0.j],
           [0.+0.j, 0.+0.j]])
    """
    return _many("fftn", "fft", a, s, axes, norm)


def ifftn(a: Any, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Any:
    """Return the inverse of `fftn`, with the same arguments.

    >>> ifftn([[4.0, 0.0], [0.0, 0.0]])
    array([[1.+0.j, 1.+0.j],
           [1.+0.j, 1.+0.j]])
    """
    return _many("ifftn", "ifft", a, s, axes, norm)


def rfftn(a: Any, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Any:
    """Return `rfft` along the last of `axes`, and `fft` along the others. Raises for complex numbers.

    >>> rfftn([[1.0, 1.0], [1.0, 1.0]])
    array([[4.+0.j, 0.+0.j],
           [0.+0.j, 0.+0.j]])
    """
    return _many("rfftn", "rfft", a, s, axes, norm)


def irfftn(a: Any, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Any:
    """Return the inverse of `rfftn`; real.

    >>> irfftn([[4.0, 0.0], [0.0, 0.0]])
    array([[1., 1.],
           [1., 1.]])
    """
    return _many("irfftn", "irfft", a, s, axes, norm)


def _plane(name: str, axes: Sequence[int]) -> Sequence[int]:
    if len(as_integers(name, axes)) != 2:
        raise ArgumentError(at_user_line(f"{name}: axes={tuple(axes)!r}; two are needed. {name[:-1]}n takes others"))
    return axes


def fft2(a: Any, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
    """Return `fftn` along two axes, the last ones by default.

    >>> fft2([[1.0, 1.0], [1.0, 1.0]]).real
    array([[4., 0.],
           [0., 0.]])
    """
    return _many("fft2", "fft", a, s, _plane("fft2", axes), norm)


def ifft2(a: Any, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
    """Return `ifftn` along two axes.

    >>> ifft2([[4.0, 0.0], [0.0, 0.0]]).real
    array([[1., 1.],
           [1., 1.]])
    """
    return _many("ifft2", "ifft", a, s, _plane("ifft2", axes), norm)


def rfft2(a: Any, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
    """Return `rfftn` along two axes.

    >>> rfft2([[1.0, 1.0], [1.0, 1.0]]).real
    array([[4., 0.],
           [0., 0.]])
    """
    return _many("rfft2", "rfft", a, s, _plane("rfft2", axes), norm)


def irfft2(a: Any, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
    """Return `irfftn` along two axes.

    >>> irfft2([[4.0, 0.0], [0.0, 0.0]])
    array([[1., 1.],
           [1., 1.]])
    """
    return _many("irfft2", "irfft", a, s, _plane("irfft2", axes), norm)


# --- frequencies ------------------------------------------------------------------------------------------------------


def _points(name: str, n: Any) -> int:
    count = as_integer(name, n)
    if count < 1:
        raise ArgumentError(at_user_line(f"{name}: n must be positive, got {count}"))
    return count


def fftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:  # noqa: ARG001
    """Return the frequencies of the `n` points of `fft`, for samples `d` apart: from 0 up, then the negative ones.

    >>> fftfreq(4)
    array([ 0.  ,  0.25, -0.5 , -0.25], dtype=float32)
    """
    count = _points("fftfreq", n)
    kind = default_float_dtype() if dtype is None else dtypes.canonical(dtype)
    half = (count - 1) // 2 + 1
    whole = concatenate([arange(0, half, dtype=kind), arange(-(count // 2), 0, dtype=kind)])
    span = multiply(d, count)
    return divide(whole, convert(span, kind) if dtype is not None else span)


def rfftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:  # noqa: ARG001
    """Return the frequencies of the points of `rfft` of `n` samples at a distance `d`.

    >>> rfftfreq(4)
    array([0.  , 0.25, 0.5 ], dtype=float32)
    """
    count = _points("rfftfreq", n)
    kind = default_float_dtype() if dtype is None else dtypes.canonical(dtype)
    whole = arange(0, count // 2 + 1, dtype=kind)
    span = multiply(d, count)
    return divide(whole, convert(span, kind) if dtype is not None else span)


def fftshift(x: Any, axes: int | Sequence[int] | None = None) -> Any:
    """Return `x` with the frequency 0 in the middle of `axes` (by default all).

    >>> fftshift([0.0, 1.0, -2.0, -1.0])
    array([-2., -1.,  0.,  1.])
    """
    return _roll_axes("fftshift", x, axes, lambda size: size // 2)


def ifftshift(x: Any, axes: int | Sequence[int] | None = None) -> Any:
    """Return the inverse of `fftshift`.

    >>> ifftshift([-2.0, -1.0, 0.0, 1.0])
    array([ 0.,  1., -2., -1.])
    """
    return _roll_axes("ifftshift", x, axes, lambda size: -(size // 2))


def _roll_axes(name: str, x: Any, axes: int | Sequence[int] | None, shift: Any) -> Any:
    x = as_array_operand(x)
    rank = len(shape_of(x))
    given: Any = range(rank) if axes is None else axes if np.ndim(axes) else [axes]
    places = tuple(axis_of(name, axis, rank) for axis in given)
    return roll(x, tuple(shift(shape_of(x)[place]) for place in places), places)


_replay(globals(), "fxgrad.numpy", ("fft",))
