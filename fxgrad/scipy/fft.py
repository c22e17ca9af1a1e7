"""Cosine transforms, under the names of jax.scipy.fft; of type 2, as jax has them."""
# ruff: noqa: A002  (the names of arguments are jax's)

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_integer,
    axes_of,
    axis_of,
    inexact_operands,
    shape_of,
)
from fxgrad.engine.frontend.strict import as_integers
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError, UnsupportedError

__all__ = ["dct", "dctn", "idct", "idctn"]


def dct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the cosine transform of `x` along `axis`, cut or padded with zeros to length `n`.

    Entry k is the sum of `2 x[j] cos(pi k (2j + 1) / 2n)`. `norm` selects the transform that is divided by 2n: the
    inverse one (None or "backward"), or this one ("forward"); with "ortho" both are orthogonal. Of complex numbers the
    parts are transformed. Half precision gives float32. Raises `UnsupportedError` for types other than 2.

    >>> import numpy as np
    >>> dct(np.ones(2))
    array([4., 0.])
    """
    x, at = _prepare("dct", x, type, n, axis, norm)
    if dtypes.is_complex(aval_of(x).dtype):
        return fnp.moveaxis(dct(fnp.real(x), norm=norm) + 1j * dct(fnp.imag(x), norm=norm), -1, at)
    size = shape_of(x)[-1]
    shuffled = fnp.concatenate([x[..., ::2], x[..., 1::2][..., ::-1]], -1)
    result = fnp.real(fnp.fft.fft(shuffled) * _turned(x, -1.0)) * 2.0
    if norm == "ortho":
        result = result * _scale(x, size)
    elif norm == "forward":
        result = result / (2 * size)
    return fnp.moveaxis(result, -1, at)


def idct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the inverse of `dct`, with the same arguments.

    >>> import numpy as np
    >>> idct(dct(np.array([1.0, 5.0, 2.0])))
    array([1., 5., 2.])
    """
    x, at = _prepare("idct", x, type, n, axis, norm)
    if dtypes.is_complex(aval_of(x).dtype):
        return fnp.moveaxis(idct(fnp.real(x), norm=norm) + 1j * idct(fnp.imag(x), norm=norm), -1, at)
    size = shape_of(x)[-1]
    if norm == "ortho":
        x = x / _scale(x, size)
    elif norm == "forward":
        x = x * (2 * size)
    behind = fnp.concatenate([fnp.zeros_like(x[..., :1]), x[..., :0:-1]], -1)
    shuffled = fnp.real(fnp.fft.ifft((x - 1j * behind) * _turned(x, 1.0) * 0.5))
    half = (size + 1) // 2
    places = np.empty(size, np.int32)
    places[::2], places[1::2] = np.arange(half), np.arange(size - 1, half - 1, -1)
    return fnp.moveaxis(fnp.take(shuffled, places, axis=-1), -1, at)


def dctn(x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
         norm: str | None = None) -> Any:
    """Return `dct` along several `axes` (None: all, or the last ones that `s` has sizes for).

    `axes` and `s` may be integers. An axis whose size is -1 is left as it is.

    >>> import numpy as np
    >>> dctn(np.ones((2, 2)))
    array([[16.,  0.],
           [ 0.,  0.]])
    """
    return _along_all(dct, "dctn", x, type, s, axes, norm)


def idctn(x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
          norm: str | None = None) -> Any:
    """Return the inverse of `dctn`, with the same arguments.

    >>> import numpy as np
    >>> np.allclose(idctn(dctn(np.eye(2))), np.eye(2))
    True
    """
    return _along_all(idct, "idctn", x, type, s, axes, norm)


def _along_all(transform: Any, name: str, x: Any, type: int, s: Sequence[int] | None, axes: Sequence[int] | None,
               norm: str | None) -> Any:
    x = as_array_operand(x)
    rank = len(shape_of(x))
    sizes_given = None if s is None else as_integers(name, s if np.ndim(s) else [s])
    if axes is None:
        axes = range(rank) if sizes_given is None else range(rank - len(sizes_given), rank)
    axes = as_integers(name, axes if np.ndim(axes) else [axes])
    chosen = axes_of(name, axes, rank)
    if sizes_given is not None and len(sizes_given) != len(chosen):
        raise ArgumentError(at_user_line(
            f"{name}: {len(sizes_given)} sizes for {len(chosen)} axes; one for each is needed"))
    # The sizes are in the order of `axes`, which need not be ascending.
    sizes = {} if sizes_given is None else {
        axis_of(name, axis, rank): size for axis, size in zip(axes, sizes_given, strict=True) if size != -1}
    for axis in chosen:
        x = transform(x, type, sizes.get(axis), axis, norm)
    return x


def _prepare(name: str, x: Any, type: int, n: int | None, axis: int, norm: str | None) -> tuple[Any, int]:
    """Return the array of length `n` with the axis last, and the original position of the axis."""
    if type != 2:
        raise UnsupportedError(at_user_line(f"{name}: type={type} is not supported; type 2 is"))
    if norm not in (None, "backward", "ortho", "forward"):
        raise ArgumentError(at_user_line(f"{name}: norm={norm!r}; it is one of 'backward', 'ortho', 'forward'"))
    x, = inexact_operands(x)
    if aval_of(x).dtype.itemsize < 4:
        x = fnp.astype(x, np.float32)
    at = axis_of(name, axis, len(shape_of(x)))
    x = fnp.moveaxis(x, at, -1)
    size = shape_of(x)[-1]
    n = None if n is None else as_integer(name, n)
    if (size if n is None else n) < 1:
        raise ShapeError(at_user_line(f"{name}: {size if n is None else n} points; at least one is needed"))
    if n is not None and n < size:
        x = x[..., :n]
    elif n is not None and n > size:
        x = fnp.pad(x, [(0, 0)] * (len(shape_of(x)) - 1) + [(0, n - size)])
    return x, at


def _turned(x: Any, sign: float) -> Any:
    size = shape_of(x)[-1]
    return np.exp(sign * 0.5j * math.pi * np.arange(size) / size).astype(np.result_type(aval_of(x).dtype, np.complex64))


def _scale(x: Any, size: int) -> Any:
    scale = np.full(size, math.sqrt(1 / (2 * size)))
    scale[:1] = math.sqrt(1 / (4 * size))
    return scale.astype(aval_of(x).dtype)
