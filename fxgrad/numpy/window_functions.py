"""Window functions of signal processing: bartlett, blackman, hamming, hanning, kaiser."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad.engine.frontend.operands import as_array_operand, as_integer, default_float_dtype, promote_inexact
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError
from fxgrad.numpy.arithmetic import divide, multiply
from fxgrad.numpy.numbers import i0


def _places(name: str, M: Any) -> tuple[int, Any]:
    """Return the number of points, and their positions between 0 and 1."""
    size = as_integer(name, M)
    if size < 0:
        raise ArgumentError(at_user_line(f"{name}: M={size}; a number from 0 on is needed"))
    return size, np.arange(size) / max(size - 1, 1)


def _cosines(name: str, M: Any, *weights: float) -> Any:
    """Return the sum of `weights[k] cos(2 pi k t)`; 1 for a single point."""
    size, t = _places(name, M)
    values = sum(weight * np.cos(2 * math.pi * k * t) for k, weight in enumerate(weights))
    return np.ones(size, default_float_dtype()) if size == 1 else np.asarray(values).astype(default_float_dtype())


def bartlett(M: int) -> Any:
    """Return the triangular window of `M` points, 0 at both ends.

    >>> bartlett(5)
    array([0. , 0.5, 1. , 0.5, 0. ], dtype=float32)
    """
    size, t = _places("bartlett", M)
    return np.ones(size, default_float_dtype()) if size == 1 else (1 - np.abs(2 * t - 1)).astype(default_float_dtype())


def blackman(M: int) -> Any:
    """Return Blackman's window of `M` points, 0.42 - 0.5 cos(2 pi t) + 0.08 cos(4 pi t).

    >>> float(blackman(5)[2])
    1.0
    """
    return _cosines("blackman", M, 0.42, -0.5, 0.08)


def hamming(M: int) -> Any:
    """Return Hamming's window of `M` points, 0.54 - 0.46 cos(2 pi t).

    >>> float(hamming(5)[2])
    1.0
    """
    return _cosines("hamming", M, 0.54, -0.46)


def hanning(M: int) -> Any:
    """Return the window of von Hann of `M` points, 0.5 - 0.5 cos(2 pi t).

    >>> float(hanning(5)[2])
    1.0
    """
    return _cosines("hanning", M, 0.5, -0.5)


def kaiser(M: int, beta: Any) -> Any:
    """Return Kaiser's window of `M` points: I0(beta sqrt(1 - (2 t - 1)^2)) / I0(beta), differentiable in `beta`.

    >>> float(kaiser(5, 3.0)[2])
    1.0
    """
    size, t = _places("kaiser", M)
    if size == 1:
        return np.ones(size, default_float_dtype())
    beta, = promote_inexact(as_array_operand(beta))
    aval = aval_of(beta)
    shape = np.sqrt(np.maximum(1 - (2 * t - 1) ** 2, 0)).astype(default_float_dtype() if aval.weak else aval.dtype)
    return divide(i0(multiply(beta, shape)), i0(beta))
