"""The functions of `jax.lax` that create arrays and change their dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.arrays import as_strong_scalar, freeze_result
from fxgrad.engine.core.avals import struct_aval
from fxgrad.engine.dtypes import DType
from fxgrad.engine.frontend.flat import as_struct
from fxgrad.engine.frontend.operands import as_integer, constant_array, is_concrete
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.frontend.strict import as_integers, as_sizes, check_operands, refuse_options, require_array
from fxgrad.engine.ops import creation
from fxgrad.engine.ops.structural import broadcast_to, convert
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import DTypeError, ShapeError

__all__ = ["bitcast_convert_type", "broadcasted_iota", "convert_element_type", "dtype", "empty", "full", "full_like",
           "iota", "shape_as_value", "stage"]


def iota(dtype: Any, size: int) -> Any:
    """Return the numbers 0, 1, 2, ... up to `size`. Raises `DTypeError` for bool.

    >>> iota("int32", 3)
    array([0, 1, 2], dtype=int32)
    """
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(dtype: Any, shape: Sequence[int], dimension: int, *, out_sharding: Any = None) -> Any:
    """Return an array that counts 0, 1, 2, ... along one axis. Raises `DTypeError` for bool, and `ShapeError`.

    >>> broadcasted_iota("int32", (2, 2), 1)
    array([[0, 1],
           [0, 1]], dtype=int32)
    """
    if out_sharding is not None:
        return place_array("broadcasted_iota", broadcasted_iota(dtype, shape, dimension), out_sharding)
    settings: dict[str, Any] = {"dtype": dtypes.canonical(dtype), "shape": as_sizes("broadcasted_iota", shape),
                                "dimension": as_integer("broadcasted_iota", dimension)}
    check_operands(creation.iota_p, **settings)
    return creation.iota(**settings)


def full(shape: Sequence[int], fill_value: Any, dtype: Any = None, *, sharding: Any = None) -> Any:
    """Return an array of one repeated scalar, in its dtype or the one given. Raises `ShapeError`.

    >>> full((2,), 1.5)
    array([1.5, 1.5], dtype=float32)
    """
    refuse_options("full", sharding=sharding)
    value, aval = require_array("full", fill_value), aval_of(fill_value)
    if aval.shape:
        raise ShapeError(at_user_line(f"full: fill_value has shape {aval.shape}; a scalar is needed"))
    wanted = (_default(aval.dtype) if aval.weak else aval.dtype) if dtype is None else \
        dtypes.canonical(dtype)
    if aval.weak and type(fill_value) is not np.complex128 and dtypes.is_complex(aval.dtype) and \
            not dtypes.is_complex(wanted):
        raise DTypeError(at_user_line(f"full: fill_value={fill_value!r} is no number of {wanted.name}; give a complex "
                                      "dtype, or fill_value.real"))
    value, sizes = convert(value, wanted), as_sizes("full", shape)
    # A NumPy scalar of float64 is weak, and so would be its repetition.
    return constant_array(sizes, value, wanted) if is_concrete(value) else broadcast_to(value, sizes)


def _default(dtype: DType) -> DType:
    """Return the default dtype of a number of the kind of `dtype`, without an array beside it."""
    if dtypes.is_complex(dtype):
        return dtypes.complex_dtype(dtypes.default_float())
    return dtypes.default_float() if dtypes.is_floating(dtype) else dtype


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Sequence[int] | None = None,
              sharding: Any = None) -> Any:
    """Return an array like `full`, in the shape and dtype of `x`, an array or its type, unless others are given.

    Raises `ShapeError`.

    >>> import numpy as np
    >>> full_like(np.ones(2), 3)
    array([3., 3.])
    """
    refuse_options("full_like", sharding=sharding)
    aval = struct_aval(as_struct(x)) or aval_of(x)
    result = full(aval.shape if shape is None else shape, fill_value, aval.dtype if dtype is None else dtype)
    return convert(result, aval.dtype, weak=True) if aval.weak and dtype is None else result


def empty(shape: Sequence[int], dtype: Any, *, out_sharding: Any = None) -> Any:
    """Return zeros, as an array whose elements do not matter.

    >>> empty((2,), "float32").shape
    (2,)
    """
    if out_sharding is not None:
        return place_array("empty", empty(shape, dtype), out_sharding)
    return constant_array(as_sizes("empty", shape), 0, dtypes.canonical(dtype))


def convert_element_type(operand: Any, new_dtype: Any) -> Any:
    """Return the array in another dtype; complex numbers lose their imaginary part in real dtypes.

    Raises `DTypeError` for unknown dtypes.

    >>> import numpy as np
    >>> convert_element_type(np.array([1.5, -1.5]), "int32")
    array([ 1, -1], dtype=int32)
    """
    return convert(require_array("convert_element_type", operand), dtypes.canonical(new_dtype))


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Any:
    """Return the bits of the array read as another dtype; a narrower one adds a last axis, a wider one removes it.

    Raises `DTypeError` for bool and complex, `ShapeError` if the last axis does not match.

    >>> import numpy as np
    >>> bitcast_convert_type(np.float32(1.0), "int32") == 0x3F800000
    np.True_
    """
    operand, wanted = require_array("bitcast_convert_type", operand), dtypes.canonical(new_dtype)
    check_operands(creation.bitcast_convert_type_p, operand, new_dtype=wanted)
    result = creation.bitcast_convert_type(operand, wanted)
    return result if aval_of(operand).dtype == wanted else as_strong_scalar(result)


def dtype(x: Any) -> DType:
    """Return the dtype of an array or a number.

    >>> dtype(1.0), dtype(True)
    (dtype('float64'), dtype('bool'))
    """
    return aval_of(x).dtype


def shape_as_value(shape: Sequence[int]) -> Any:
    """Return a shape as an array of int32.

    >>> shape_as_value((2, 3))
    array([2, 3], dtype=int32)
    """
    return freeze_result(np.array(as_integers("shape_as_value", shape), np.int32))


def stage(x: Any, /) -> Any:
    """Return the array itself, since numbers are accepted as arrays everywhere.

    >>> import numpy as np
    >>> stage(np.ones(2))
    array([1., 1.])
    """
    return require_array("stage", x)
