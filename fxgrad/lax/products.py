"""The products of `jax.lax`, dot and dot_general, with the classes of their arguments, and its Fourier transform."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.core.parameter_classes import declare_parameter_class
from fxgrad.engine.frontend.operands import promote_operands, shape_of
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.frontend.strict import as_dtype_or_none, as_integers, require_array
from fxgrad.engine.ops import fft as fft_room
from fxgrad.engine.ops import products as dot_room
from fxgrad.engine.ops.arithmetic import mul
from fxgrad.engine.ops.structural import broadcast_to, convert, reshape
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError

__all__ = ["DotAlgorithmPreset", "DotDimensionNumbers", "FftType", "Precision", "PrecisionLike", "batch_matmul", "dot",
           "dot_general", "fft", "scaled_dot"]

DotDimensionNumbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]
"""((contracted axes of the left operand, of the right one), (batch axes of the left one, of the right one))."""


class Precision(enum.Enum):
    """The precision of XLA's products of float32, on devices that offer a choice; also by its name in `precision=`.

    >>> Precision("float32")
    <Precision.HIGHEST: 2>
    """

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    @classmethod
    def _missing_(cls, value: object) -> Precision | None:
        level = dot_room.PRECISIONS.get(value) if isinstance(value, str) else 0 if value is None else None
        return None if level is None else cls(level)


declare_parameter_class(Precision)


class DotAlgorithmPreset(enum.Enum):
    """The algorithm of XLA's products, instead of a precision: dtypes of operands and sums, and number of passes.

    The available ones depend on the device; jax refuses others. Un-jitted, NumPy multiplies in the dtype of the
    operands.

    >>> import numpy as np
    >>> float(dot(np.ones(2, np.float32), np.ones(2, np.float32), precision=DotAlgorithmPreset.F32_F32_F32))
    2.0
    """

    DEFAULT = 0
    ANY_F8_ANY_F8_F32 = 1
    ANY_F8_ANY_F8_F32_FAST_ACCUM = 2
    ANY_F8_ANY_F8_ANY = 3
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = 4
    F16_F16_F16 = 5
    F16_F16_F32 = 6
    BF16_BF16_BF16 = 7
    BF16_BF16_F32 = 8
    BF16_BF16_F32_X3 = 9
    BF16_BF16_F32_X6 = 10
    BF16_BF16_F32_X9 = 11
    TF32_TF32_F32 = 12
    TF32_TF32_F32_X3 = 13
    F32_F32_F32 = 14
    F64_F64_F64 = 15


declare_parameter_class(DotAlgorithmPreset)

PrecisionLike = None | str | Precision | tuple[str, str] | tuple[Precision, Precision]
"""The forms of `precision`: also one for each operand; jax's own `Precision` is accepted too."""


def dot_general(lhs: Any, rhs: Any, dimension_numbers: Any, precision: Any = None,
                preferred_element_type: Any = None, *, out_sharding: Any = None) -> Any:
    """Return the sum of products over contracted axes, for each index along batch axes.

    The result has the batch axes, then the other axes of `lhs`, then those of `rhs`. Operands of different dtypes are
    promoted; sums accumulate in, and are returned as, `preferred_element_type`, with which float8 may be combined with
    other floats too. Raises `ShapeError`.

    >>> import numpy as np
    >>> dot_general(np.ones((2, 3)), np.ones((4, 3)), (((1,), (1,)), ((), ()))).shape
    (2, 4)
    """
    if out_sharding is not None:
        result = dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type)
        return place_array("dot_general", result, out_sharding)
    wanted = as_dtype_or_none(preferred_element_type)
    lhs, rhs = promote_operands(*dot_room.unify_operands(require_array("dot_general", lhs),
                                                         require_array("dot_general", rhs), wanted))
    (left, right), (left_batch, right_batch) = dimension_numbers
    pairs = [as_integers("dot_general", axes) for axes in (left, right, left_batch, right_batch)]
    numbers = (pairs[0], pairs[1]), (pairs[2], pairs[3])
    return dot_room.dot_general(lhs, rhs, numbers, precision, wanted)


def dot(lhs: Any, rhs: Any, *, dimension_numbers: Any = None, precision: Any = None,
        preferred_element_type: Any = None, out_sharding: Any = None) -> Any:
    """Return the product of vectors and matrices, or with `dimension_numbers` of `dot_general`. Raises `ShapeError`.

    >>> import numpy as np
    >>> float(dot(np.array([1.0, 2.0]), np.array([3.0, 4.0])))
    11.0
    """
    if dimension_numbers is None:
        ranks = len(shape_of(require_array("dot", lhs))), len(shape_of(require_array("dot", rhs)))
        if not all(rank in (1, 2) for rank in ranks) or shape_of(lhs)[-1] != shape_of(rhs)[0]:
            raise ShapeError(at_user_line(
                f"dot: shapes {shape_of(lhs)} and {shape_of(rhs)}; vectors or matrices are needed, the last axis of "
                "the first as long as the first one of the second. Give dimension_numbers, or call fxgrad.numpy.dot"))
        dimension_numbers = (((ranks[0] - 1,), (0,)), ((), ()))
    return dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type, out_sharding=out_sharding)


def batch_matmul(lhs: Any, rhs: Any, precision: Any = None) -> Any:
    """Return the matrix products of two stacks of matrices with equal batch axes in front. Raises `ShapeError`.

    >>> import numpy as np
    >>> batch_matmul(np.ones((5, 2, 3)), np.ones((5, 3, 4))).shape
    (5, 2, 4)
    """
    rank = len(shape_of(require_array("batch_matmul", lhs)))
    if rank < 2 or rank != len(shape_of(require_array("batch_matmul", rhs))):
        raise ShapeError(at_user_line(f"batch_matmul: shapes {shape_of(lhs)} and {shape_of(rhs)}; arrays of one rank, "
                                      "at least 2, are needed"))
    batch = tuple(range(rank - 2))
    return dot_general(lhs, rhs, (((rank - 1,), (rank - 2,)), (batch, batch)), precision)


def scaled_dot(lhs: Any, rhs: Any, *, lhs_scale: Any = None, rhs_scale: Any = None, dimension_numbers: Any = None,
               preferred_element_type: Any = None) -> Any:
    """Return `dot_general` of operands times their scales, in `preferred_element_type`, by default bfloat16.

    A scale has the shape of its operand, but each of its entries may scale several consecutive ones along an axis. By
    default the last axis of `lhs` is contracted with the second to last of `rhs`, and the axes before are batch axes.
    Raises `ShapeError`.

    >>> import numpy as np
    >>> scale = np.array([[0.5, 2.0]], np.float32)
    >>> x = scaled_dot(np.ones((1, 4), np.float32), np.ones((4, 1), np.float32), lhs_scale=scale)
    >>> float(x[0, 0])
    5.0
    """
    lhs, rhs = require_array("scaled_dot", lhs), require_array("scaled_dot", rhs)
    rank = len(shape_of(lhs))
    if dimension_numbers is None:
        if rank < 2:
            raise ShapeError(at_user_line(f"scaled_dot: shapes {shape_of(lhs)} and {shape_of(rhs)}; at least two axes "
                                          "are needed, or dimension_numbers"))
        batch = tuple(range(rank - 2))
        dimension_numbers = (((rank - 1,), (rank - 2,)), (batch, batch))
    wanted = as_dtype_or_none(preferred_element_type) or dtypes.bfloat16
    # Scaled in float32: the products themselves are rounded to the wanted dtype once, at the end.
    left, right = (_scale(convert(x, dtypes.float32), scale) for x, scale in ((lhs, lhs_scale), (rhs, rhs_scale)))
    return convert(dot_general(left, right, dimension_numbers), wanted)


def _scale(x: Any, scale: Any) -> Any:
    if scale is None:
        return x
    shape, parts = shape_of(x), shape_of(scale)
    if len(shape) != len(parts) or any(part == 0 or size % part for size, part in zip(shape, parts, strict=True)):
        raise ShapeError(at_user_line(f"scaled_dot: a scale of shape {parts} for an operand of shape {shape}; each "
                                      "size must be a multiple of the scale's"))
    apart = [length for size, part in zip(shape, parts, strict=True) for length in (part, size // part)]
    widened = reshape(convert(scale, aval_of(x).dtype), tuple(length for part in parts for length in (part, 1)))
    return mul(x, reshape(broadcast_to(widened, tuple(apart)), shape))


class FftType(enum.IntEnum):
    """The kinds of Fourier transforms: complex and back, of real numbers and back.

    >>> FftType.RFFT.name
    'RFFT'
    """

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


declare_parameter_class(FftType)


def fft(x: Any, fft_type: Any, fft_lengths: Sequence[int]) -> Any:
    """Return the discrete Fourier transform of the last axes, whose sizes (of the result, for irfft) are `fft_lengths`.

    `fft_type` is an `FftType` or its name; other dtypes become those that it takes. Raises `ShapeError`, `DTypeError`,
    `ArgumentError`.

    >>> import numpy as np
    >>> fft(np.array([1.0, 2.0, 3.0]), "rfft", (3,)).real
    array([ 6. , -1.5])
    """
    name = fft_type if isinstance(fft_type, str) else getattr(fft_type, "name", None)
    if name is None:
        raise ArgumentError(at_user_line(f"fft: fft_type={fft_type!r}; an FftType or its name is needed"))
    kind, x, lengths = name.lower(), require_array("fft", x), as_integers("fft", fft_lengths)
    if not lengths:
        return x
    dtype = dtypes.inexact_dtype(aval_of(x).dtype)
    # rfft of complex numbers is refused by the operation
    x = convert(x, dtype if kind == "rfft" else dtypes.complex_dtype(dtype))
    return fft_room.fft(x, kind, lengths)
