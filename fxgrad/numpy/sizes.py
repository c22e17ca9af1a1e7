"""Symbolic sizes in arithmetic with anything but whole numbers: they become values of the traced program."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.sizes import SymbolicDim, max_size
from fxgrad.engine.ops.arithmetic import div, mul
from fxgrad.engine.ops.creation import iota, size_in, size_p
from fxgrad.engine.ops.pointwise import add, scalar_like
from fxgrad.engine.tracing.tape import bind, current
from fxgrad.errors import ConcretizationError

_EXACT: dict[Any, Callable[..., Any]] = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul, np.floor_divide: operator.floordiv,
    np.remainder: operator.mod, np.negative: operator.neg, np.less: operator.lt, np.less_equal: operator.le,
    np.greater: operator.gt, np.greater_equal: operator.ge, np.equal: operator.eq, np.not_equal: operator.ne}


def _value(self: SymbolicDim) -> Any:
    return bind(size_p, size=self)[0]


def _array_ufunc(_: SymbolicDim, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """NumPy's integers with sizes make sizes, as Python's do; all else is computed on the values."""
    if ufunc in _EXACT and all(isinstance(value, SymbolicDim | int | np.integer) for value in inputs):
        return _EXACT[ufunc](*(int(value) if isinstance(value, np.integer) else value for value in inputs))
    return getattr(ufunc, method)(*(_value(value) if type(value) is SymbolicDim else value for value in inputs),
                                  **options)


def numbers_between(start: Any, stop: Any, step: Any, dtype: Any) -> Any:
    """Return `arange` with a symbolic bound."""
    wanted = dtypes.int32 if dtype is None else dtypes.canonical(dtype)
    result = iota(wanted, (max_size(-((start - stop) // step), 0),))
    result = result if step == 1 else mul(result, scalar_like(step, result))
    return result if start == 0 else add(result, scalar_like(start, result))


def fractions_of(count: Any, gaps: Any) -> Any:
    """Return the integers below `count`, divided by `gaps`, where these are symbolic sizes."""
    return div(iota(dtypes.float64, (count,)), size_in(gaps, dtypes.float64))


def _raise_remembered(refusal: Callable[[SymbolicDim], Any]) -> Callable[[SymbolicDim], Any]:
    """Return a refusal that is raised again where NumPy would replace it by another error."""
    @functools.wraps(refusal)
    def refused(self: SymbolicDim) -> Any:
        try:
            return refusal(self)
        except ConcretizationError as error:
            tape = current.get()
            raise (error if tape is None else tape.refuse(error)) from None
    return refused


SymbolicDim.__index__ = _raise_remembered(SymbolicDim.__index__)  # type: ignore[method-assign, assignment]
SymbolicDim.__int__ = _raise_remembered(SymbolicDim.__int__)  # type: ignore[method-assign]
SymbolicDim.__float__ = _raise_remembered(SymbolicDim.__float__)  # type: ignore[method-assign]
SymbolicDim.__jax_array__ = _value  # type: ignore[method-assign]
SymbolicDim.__array_ufunc__ = _array_ufunc  # type: ignore[attr-defined]
