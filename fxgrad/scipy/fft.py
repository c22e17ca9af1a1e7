"""Cosine and sine transforms, under the names of scipy.fft."""
# ruff: noqa: A002  (the names of arguments are SciPy's)

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
from fxgrad.engine.frontend.value_calls import replay_public as _replay
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError

__all__ = ["dct", "dctn", "dst", "dstn", "idct", "idctn", "idst", "idstn"]


def dct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the cosine transform of `x` along `axis`, cut or padded with zeros to length `n`.

    Entry k is a sum over j of cosines times 2x[j]. The angles, over pi, are by `type`

    1. jk / (n - 1), without the factor 2 for the first and the last x, for at least two points;
    2. (2j + 1)k / 2n;
    3. j(2k + 1) / 2n, without the factor 2 for x[0];
    4. (2j + 1)(2k + 1) / 4n.

    `norm` selects the transform that is divided by 2n, or by 2(n - 1) for type 1: the inverse one (None or "backward"),
    or this one ("forward"); with "ortho" both are orthogonal. Of complex numbers the parts are transformed. Half
    precision gives float32. Raises `ArgumentError` for other types and norms, `ShapeError` for too few points.

    >>> import numpy as np
    >>> dct(np.ones(2)), dct(np.ones(3), type=1)
    (array([4., 0.]), array([4., 0., 0.]))
    """
    return _transform("dct", x, type, n, axis, norm)


def idct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the inverse of `dct`, with the same arguments.

    >>> import numpy as np
    >>> idct(dct(np.array([1.0, 5.0, 2.0])))
    array([1., 5., 2.])
    """
    return _transform("idct", x, type, n, axis, norm)


def dst(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the sine transform of `x` along `axis`, with the arguments of `dct`.

    Entry k is a sum over j of sines times 2x[j]. The angles, over pi, are by `type`

    1. (j + 1)(k + 1) / (n + 1);
    2. (2j + 1)(k + 1) / 2n;
    3. (j + 1)(2k + 1) / 2n, without the factor 2 for the last x;
    4. (2j + 1)(2k + 1) / 4n.

    The divisor of `norm` is 2n, or 2(n + 1) for type 1.

    >>> import numpy as np
    >>> dst(np.array([1.0, -1.0]))
    array([0., 4.])
    """
    return _transform("dst", x, type, n, axis, norm)


def idst(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the inverse of `dst`, with the same arguments.

    >>> import numpy as np
    >>> idst(dst(np.array([1.0, 5.0, 2.0])))
    array([1., 5., 2.])
    """
    return _transform("idst", x, type, n, axis, norm)


def dctn(x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
         norm: str | None = None) -> Any:
    """Return `dct` along several `axes` (None: all, or the last ones that `s` has sizes for).

    `axes` and `s` may be integers. An axis whose size is -1 is left as it is.

    >>> import numpy as np
    >>> dctn(np.ones((2, 2)))
    array([[16.,  0.],
           [ 0.,  0.]])
    """
    return _along_all(dct, x, type, s, axes, norm)


def idctn(x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
          norm: str | None = None) -> Any:
    """Return the inverse of `dctn`, with the same arguments.

    >>> import numpy as np
    >>> np.allclose(idctn(dctn(np.eye(2))), np.eye(2))
    True
    """
    return _along_all(idct, x, type, s, axes, norm)


def dstn(x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
         norm: str | None = None) -> Any:
    """Return `dst` along several `axes`, with the arguments of `dctn`.

    >>> import numpy as np
    >>> dstn(np.ones((1, 1)))
    array([[4.]])
    """
    return _along_all(dst, x, type, s, axes, norm)


def idstn(x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
          norm: str | None = None) -> Any:
    """Return the inverse of `dstn`, with the same arguments.

    >>> import numpy as np
    >>> np.allclose(idstn(dstn(np.eye(2))), np.eye(2))
    True
    """
    return _along_all(idst, x, type, s, axes, norm)


def _along_all(transform: Any, x: Any, type: int, s: Sequence[int] | None, axes: Sequence[int] | None,
               norm: str | None) -> Any:
    x = as_array_operand(x)
    name, rank = f"{transform.__name__}n", len(shape_of(x))
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


_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}
_INVERSE_NORM = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _transform(name: str, x: Any, type: int, n: int | None, axis: int, norm: str | None) -> Any:
    """Return the transform `name` of `x`; the inverse of one is one of another type, with the divisor at its side."""
    norm = norm or "backward"
    if type not in _INVERSE:
        raise ArgumentError(at_user_line(f"{name}: type={type!r}; it is one of 1, 2, 3, 4"))
    if norm not in _INVERSE_NORM:
        raise ArgumentError(at_user_line(f"{name}: norm={norm!r}; it is one of 'backward', 'ortho', 'forward'"))
    is_sine = name.endswith("st")
    x, at = _prepare(name, x, n, axis, least=2 if type == 1 and not is_sine else 1)
    kind, norm = (_INVERSE[type], _INVERSE_NORM[norm]) if name.startswith("i") else (type, norm)
    of_parts = [_sine_sums(part, kind, norm) if is_sine else _cosine_sums(part, kind, norm) for part in (
        (fnp.real(x), fnp.imag(x)) if dtypes.is_complex(aval_of(x).dtype) else (x,))]
    return fnp.moveaxis(of_parts[0] if len(of_parts) == 1 else of_parts[0] + 1j * of_parts[1], -1, at)


def _prepare(name: str, x: Any, n: int | None, axis: int, least: int) -> tuple[Any, int]:
    """Return the array of length `n` with the axis last, and the original position of the axis."""
    x, = inexact_operands(x)
    if aval_of(x).dtype.itemsize < 4:
        x = fnp.astype(x, np.float32)
    at = axis_of(name, axis, len(shape_of(x)))
    x = fnp.moveaxis(x, at, -1)
    size = shape_of(x)[-1]
    n = None if n is None else as_integer(name, n)
    if (size if n is None else n) < least:
        needed = "at least one is needed" if least == 1 else "type 1 needs at least two"
        raise ShapeError(at_user_line(f"{name}: {size if n is None else n} points; {needed}"))
    if n is not None and n < size:
        x = x[..., :n]
    elif n is not None and n > size:
        x = fnp.pad(x, [(0, 0)] * (len(shape_of(x)) - 1) + [(0, n - size)])
    return x, at


def _cosine_sums(x: Any, type: int, norm: str) -> Any:
    """Return the cosine transform along the last axis, by a Fourier transform of the points or their even extension."""
    size = shape_of(x)[-1]
    period = 2 * (size - 1) if type == 1 else 2 * size
    root, ends = math.sqrt(2.0), [0, -1] if type == 1 else [0]
    if norm == "ortho" and type in (1, 3):
        x = x * _ones_but(x, ends, root)
    if type == 1:
        result = fnp.real(fnp.fft.rfft(fnp.concatenate([x, x[..., -2:0:-1]], -1)))
    elif type == 2:
        shuffled = fnp.concatenate([x[..., ::2], x[..., 1::2][..., ::-1]], -1)
        result = fnp.real(fnp.fft.fft(shuffled) * _turns(x, -np.arange(size) / (4 * size))) * 2.0
    elif type == 3:
        behind = fnp.concatenate([fnp.zeros_like(x[..., :1]), x[..., :0:-1]], -1)
        shuffled = fnp.real(fnp.fft.ifft((x - 1j * behind) * _turns(x, np.arange(size) / (4 * size)), norm="forward"))
        places, half = np.empty(size, np.int32), (size + 1) // 2
        places[::2], places[1::2] = np.arange(half), np.arange(size - 1, half - 1, -1)
        result = fnp.take(shuffled, places, axis=-1)
    else:
        turned = fnp.fft.fft(x * _turns(x, -np.arange(size) / (4 * size)), 2 * size)[..., :size]
        result = fnp.real(turned * _turns(x, -(2 * np.arange(size) + 1) / (8 * size))) * 2.0
    if norm == "ortho":
        result = result * _ones_but(x, ends if type < 3 else [], 1 / root, 1 / math.sqrt(period))
    return result / period if norm == "forward" else result


def _sine_sums(x: Any, type: int, norm: str) -> Any:
    """Return the sine transform along the last axis: cosine sums of points of alternating signs or reversed order."""
    size = shape_of(x)[-1]
    signs = _ones_but(x, slice(1, None, 2), -1.0)
    if type == 2:
        return _cosine_sums(x * signs, 2, norm)[..., ::-1]
    if type > 2:
        return _cosine_sums(x[..., ::-1], type, norm) * signs
    zero, period = fnp.zeros_like(x[..., :1]), 2 * (size + 1)
    result = -fnp.imag(fnp.fft.rfft(fnp.concatenate([zero, x, zero, -x[..., ::-1]], -1)))[..., 1:-1]
    return result * {"backward": 1.0, "ortho": 1 / math.sqrt(period), "forward": 1 / period}[norm]


def _turns(x: Any, parts: Any) -> Any:
    """Return the complex numbers of size 1 at these parts of a whole turn, in the precision of `x`."""
    return np.exp(2j * math.pi * parts).astype(np.result_type(aval_of(x).dtype, np.complex64))


def _ones_but(x: Any, places: Any, factor: float, common: float = 1.0) -> Any:
    """Return factors for the points of `x`: `common` ones, multiplied by `factor` at these places."""
    factors = np.full(shape_of(x)[-1], common)
    factors[places] *= factor
    return factors.astype(aval_of(x).dtype)


_replay(globals(), "fxgrad.scipy", ("fft",))
