"""The scalar types, as in jax: names of dtypes, and functions that convert to them.

`float32(x)` is `x` as an array of float32, traced or not. They are accepted wherever NumPy takes a dtype, equal NumPy's
types, and have NumPy's scalars as their only instances.

>>> import numpy as np
>>> np.zeros(2, float32).dtype == float32, float32 == np.float32, isinstance(np.float32(1), float32)
(True, True, True)
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.arrays import freeze_result
from fxgrad.engine.dtypes import DType
from fxgrad.numpy.creation import asarray


class ScalarType(type):
    """The type of `fxgrad.numpy.float32` and its like."""

    dtype: DType

    def __eq__(cls, other: object) -> bool:
        return cls is other or bool(cls.dtype.type == other)

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.dtype.type)


class Scalar(metaclass=ScalarType):
    """The base of the scalar types: a call converts its argument."""

    def __new__(cls, x: Any = 0) -> Any:
        """Return `x`, a number, a list, or an array of any kind, as an array of this dtype."""
        return freeze_result(asarray(x, cls.dtype), [x])


class bool_(Scalar):  # noqa: N801
    """The type of bools; called, it converts to it."""

    dtype = dtypes.bool_


class int8(Scalar):  # noqa: N801
    """The type of signed integers of 8 bits; called, it converts to it."""

    dtype = np.dtype(np.int8)


class int16(Scalar):  # noqa: N801
    """The type of signed integers of 16 bits; called, it converts to it."""

    dtype = np.dtype(np.int16)


class int32(Scalar):  # noqa: N801
    """The type of signed integers of 32 bits; called, it converts to it."""

    dtype = dtypes.int32


class int64(Scalar):  # noqa: N801
    """The type of signed integers of 64 bits; called, it converts to it."""

    dtype = dtypes.int64


class uint8(Scalar):  # noqa: N801
    """The type of unsigned integers of 8 bits; called, it converts to it."""

    dtype = np.dtype(np.uint8)


class uint16(Scalar):  # noqa: N801
    """The type of unsigned integers of 16 bits; called, it converts to it."""

    dtype = np.dtype(np.uint16)


class uint32(Scalar):  # noqa: N801
    """The type of unsigned integers of 32 bits; called, it converts to it."""

    dtype = np.dtype(np.uint32)


class uint64(Scalar):  # noqa: N801
    """The type of unsigned integers of 64 bits; called, it converts to it."""

    dtype = np.dtype(np.uint64)


class bfloat16(Scalar):  # noqa: N801
    """The type of floats of 16 bits, eight of them for the mantissa; called, it converts to it."""

    dtype = dtypes.bfloat16


class float16(Scalar):  # noqa: N801
    """The type of floats of 16 bits; called, it converts to it."""

    dtype = np.dtype(np.float16)


class float32(Scalar):  # noqa: N801
    """The type of floats of 32 bits; called, it converts to it."""

    dtype = dtypes.float32


class float64(Scalar):  # noqa: N801
    """The type of floats of 64 bits; called, it converts to it."""

    dtype = dtypes.float64


class complex64(Scalar):  # noqa: N801
    """The type of complex numbers of 64 bits; called, it converts to it."""

    dtype = dtypes.complex64


class complex128(Scalar):  # noqa: N801
    """The type of complex numbers of 128 bits; called, it converts to it."""

    dtype = dtypes.complex128


class float8_e4m3fn(Scalar):  # noqa: N801
    """The type of floats of 8 bits, three of them for the mantissa, without infinities; called, it converts to it."""

    dtype = dtypes.SUPPORTED["float8_e4m3fn"]


class float8_e4m3(Scalar):  # noqa: N801
    """The type of floats of 8 bits, three of them for the mantissa, as IEEE 754 has it; called, it converts to it."""

    dtype = dtypes.SUPPORTED["float8_e4m3"]


class float8_e4m3b11fnuz(Scalar):  # noqa: N801
    """The type of floats of 8 bits, three for the mantissa, bias 11, without -0.0; called, it converts to it."""

    dtype = dtypes.SUPPORTED["float8_e4m3b11fnuz"]


class float8_e4m3fnuz(Scalar):  # noqa: N801
    """The type of floats of 8 bits, three for the mantissa, without -0.0 and infinities; called, it converts to it."""

    dtype = dtypes.SUPPORTED["float8_e4m3fnuz"]


class float8_e3m4(Scalar):  # noqa: N801
    """The type of floats of 8 bits, four of them for the mantissa; called, it converts to it."""

    dtype = dtypes.SUPPORTED["float8_e3m4"]


class float8_e5m2(Scalar):  # noqa: N801
    """The type of floats of 8 bits, two of them for the mantissa; called, it converts to it."""

    dtype = dtypes.SUPPORTED["float8_e5m2"]


class float8_e5m2fnuz(Scalar):  # noqa: N801
    """The type of floats of 8 bits, two for the mantissa, without -0.0 and infinities; called, it converts to it."""

    dtype = dtypes.SUPPORTED["float8_e5m2fnuz"]


class float8_e8m0fnu(Scalar):  # noqa: N801
    """The type of powers of 2 in 8 bits, in which scales are kept; called, it converts to it."""

    dtype = dtypes.SUPPORTED["float8_e8m0fnu"]


class float4_e2m1fn(Scalar):  # noqa: N801
    """The type of floats of 4 bits: 0 to 6, and their negatives; called, it converts to it."""

    dtype = dtypes.SUPPORTED["float4_e2m1fn"]


class int2(Scalar):  # noqa: N801
    """The type of signed integers of 2 bits; called, it converts to it."""

    dtype = dtypes.SUPPORTED["int2"]


class int4(Scalar):  # noqa: N801
    """The type of signed integers of 4 bits; called, it converts to it."""

    dtype = dtypes.SUPPORTED["int4"]


class uint2(Scalar):  # noqa: N801
    """The type of unsigned integers of 2 bits; called, it converts to it."""

    dtype = dtypes.SUPPORTED["uint2"]


class uint4(Scalar):  # noqa: N801
    """The type of unsigned integers of 4 bits; called, it converts to it."""

    dtype = dtypes.SUPPORTED["uint4"]


for _type in (bool_, int2, int4, int8, int16, int32, int64, uint2, uint4, uint8, uint16, uint32, uint64, bfloat16,
              float16, float32, float64, complex64, complex128, float4_e2m1fn, float8_e3m4, float8_e4m3,
              float8_e4m3b11fnuz, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu):
    _type.__module__ = "fxgrad.numpy"  # the module where users and pickle find it


def missing_scalar_reason(name: str) -> str | None:
    """Return the message for a narrow type of jax's that is missing here; None if `name` is none."""
    found = re.fullmatch(r"float6_e(\d)m(\d)\w*|u?int1", name)
    if found is None:
        return None
    instead = "bool holds its numbers" if found[1] is None else (
        f"fxgrad.lax.reduce_precision(x, {found[1]}, {found[2]}) rounds to as many digits")
    return f"module 'fxgrad.numpy' has no attribute {name!r}: XLA does not compute with that dtype. {instead}"
