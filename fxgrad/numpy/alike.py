"""Making arrays of one repeated value in the shape and dtype of others."""

from __future__ import annotations

from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.core.arrays import freeze_result
from fxgrad.engine.core.avals import PYTHON_SCALARS, struct_aval
from fxgrad.engine.dtypes import DType
from fxgrad.engine.frontend.flat import as_struct
from fxgrad.engine.frontend.operands import as_new_shape, constant_array
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.numpy.creation import asarray, full
from fxgrad.numpy.inspection import check_device


def _like(name: str, a: Any, dtype: Any, shape: Any) -> tuple[Any, DType, bool]:
    """Return the shape and the dtype of a result, and whether it is weak, as jax's like a weak array."""
    aval = struct_aval(as_struct(a)) or aval_of(a if type(a) in PYTHON_SCALARS else asarray(a))
    sizes = aval.shape if shape is None else as_new_shape(name, shape)
    return (sizes, aval.dtype, aval.weak) if dtype is None else (sizes, dtypes.canonical(dtype), False)


def _as_typed(value: Any, weak: bool) -> Any:
    """Return an array that was made without primitives, as an `Array` or weakly typed."""
    return convert(value, aval_of(value).dtype, weak=True) if weak else freeze_result(value, [value])


def _from_number(name: str, number: int, a: Any, dtype: Any, shape: Any, device: Any, out_sharding: Any) -> Any:
    check_device(name, device)
    sizes, wanted, weak = _like(name, a, dtype, shape)
    result = _as_typed(constant_array(sizes, number, wanted), weak)
    return result if out_sharding is None else place_array(name, result, out_sharding)


def zeros_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """Return an array of zeros of the shape and dtype of `a`: an array, a list, or anything with `shape` and `dtype`.

    Like a Python number, and like all that is weakly typed, it is weakly typed.

    >>> zeros_like([1, 2])
    array([0, 0], dtype=int32)
    """
    return _from_number("zeros_like", 0, a, dtype, shape, device, out_sharding)


def ones_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """Return an array of ones of the shape and dtype of `a`.

    >>> ones_like([1, 2])
    array([1, 1], dtype=int32)
    """
    return _from_number("ones_like", 1, a, dtype, shape, device, out_sharding)


def empty_like(prototype: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    """Return zeros like `zeros_like`, since programs have no undefined values.

    >>> empty_like([1, 2]).shape
    (2,)
    """
    check_device("empty_like", device)
    return zeros_like(prototype, dtype, shape)


def full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, device: Any = None,
              out_sharding: Any = None) -> Any:
    """Return an array of one repeated value, of the shape and dtype of `a`.

    >>> full_like([1, 2], 7)
    array([7, 7], dtype=int32)
    """
    if out_sharding is not None:
        return place_array("full_like", full_like(a, fill_value, dtype, shape, device=device), out_sharding)
    check_device("full_like", device)
    sizes, wanted, weak = _like("full_like", a, dtype, shape)
    return _as_typed(full(sizes, fill_value, wanted), weak)
