"""The dtypes in which ONNX operators are computed: those with kernels in onnxruntime, and the conversions to them.

The standard allows more than runtimes do. Operators that are not in the table have kernels for every dtype.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fxgrad import dtypes
from fxgrad.extend import DType

_FLOATS = ("float16", "float32", "float64")
_SINGLE = ("float16", "float32")
_SIGNED = ("int8", "int16", "int32", "int64")
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
_NUMBERS = (*_FLOATS, *_SIGNED, *_UNSIGNED)
_SUMMED = (*_FLOATS, "int32", "int64")
_EXTREMES = (*_FLOATS, "int8", "int32", "int64", "uint8")
_WORDS = ("uint32", "uint64")
_MOVED = (*_NUMBERS, "bool")

KERNELS: dict[str, frozenset[str]] = {name: frozenset(kinds) for names, kinds in (
    ("Floor Ceil Round Sqrt Reciprocal Exp Log Sin Tanh Sigmoid Softmax LogSoftmax", _FLOATS),
    ("Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Erf Conv Softplus", _SINGLE),
    ("Abs Mod", _NUMBERS),
    ("Add Sub Mul Div", (*_SUMMED, *_WORDS)),
    ("Less LessOrEqual Greater GreaterOrEqual", _SUMMED),
    ("Neg", (*_FLOATS, "int8", "int32", "int64")),
    ("Sign", (*_NUMBERS, "bfloat16")),
    ("IsNaN IsInf", (*_FLOATS, "bfloat16")),
    ("And Or Xor Not", ("bool",)),
    ("BitwiseAnd BitwiseOr BitwiseXor BitwiseNot", (*_SIGNED, *_UNSIGNED)),
    ("BitShift", ("uint8", *_WORDS)),
    ("Pow", (*_FLOATS, "int32", "int64")),
    ("Max Min MatMul", (*_SUMMED, *_WORDS)),
    ("Equal", (*_SUMMED, "bool")),
    ("ReduceSum ReduceProd CumSum Einsum", _SUMMED),
    ("ReduceMax ReduceMin", (*_EXTREMES, "bool")),
    ("ArgMax ArgMin", _EXTREMES),
    ("TopK", _SUMMED),
    ("Where", (*_SUMMED, "uint8")),
    ("Expand Tile", _MOVED),
    ("Pad", (*_EXTREMES, *_WORDS, "bool")),
    ("Range", ("float32", "float64", "int16", "int32", "int64")),
    ("MaxPool", ("float16", "float32", "float64", "int8", "uint8")),
) for name in names.split()}
"""The dtypes for which onnxruntime has had CPU kernels since 1.20 (arithmetic of unsigned words since 1.24).

float16 is computed in float32, between two casts.
"""

ORDERED = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Max", "Min", "ReduceMax", "ReduceMin",
                     "ArgMax", "ArgMin", "TopK"})
"""Operators that compare two numbers: conversions of unsigned 64-bit integers must preserve their order."""

COMPARING = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "IsNaN", "IsInf"})
"""Operators of numbers that give bools."""

_WIDER = {
    "bool": ("uint8", "int32"), "int8": ("int32",), "uint8": ("int32",), "int16": ("int32",),
    "uint16": ("int32", "uint32"), "uint32": ("int64", "uint64"), "uint64": ("int64",),
    "bfloat16": ("float32",), "float16": ("float32",),
}
NARROW = {**dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), "float32"),
          "int4": "int32", "uint4": "int32"}
"""The narrow dtypes, for which ONNX has conversions and little else, and the dtypes to compute in instead."""


class NoKernel(Exception):  # noqa: N818  (rules that may meet it choose another way)
    """There is no dtype in which an operator may be computed."""


class KernelDtype(NamedTuple):
    """The dtype to compute in, and whether the first bit of unsigned numbers is flipped to keep their order."""

    dtype: DType
    turned: bool = False


def kernel_dtype(operator: str, dtype: DType) -> KernelDtype | None:
    """Return how `operator` is computed on `dtype`: None if there is a kernel, else the dtype to convert to.

    >>> kernel_dtype("Add", np.dtype("float64")), kernel_dtype("ReduceSum", np.dtype("int8")).dtype
    (None, dtype('int32'))

    Raises `NoKernel` if there is none.
    """
    known = KERNELS.get(operator)
    if dtype.name in NARROW:
        return KernelDtype(np.dtype(NARROW[dtype.name]))
    if known is None or dtype.name in known:
        return None
    for name in _WIDER.get(dtype.name, ()):
        if name in known:
            return KernelDtype(np.dtype(name), dtype == np.uint64 and operator in ORDERED)
    raise NoKernel(f"{operator} of {dtypes.shown_name(dtype)}")
