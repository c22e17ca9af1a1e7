"""The dtypes of fxgrad, their kinds, and their promotion: jax's lattice, with weak Python scalars.

The lattice is that of jax's type promotion document (docs.jax.dev, "Type promotion semantics"). Its weak nodes `int*`,
`float*`, `complex*` stand for Python scalars, which take on the dtype of the other operand.
"""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np

from fxgrad.engine import config
from fxgrad.engine.caches import Cache
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import DTypeError

DType = np.dtype[Any]

bfloat16: DType = np.dtype(ml_dtypes.bfloat16)
float0: DType = np.dtype(jax.dtypes.float0)
bool_: DType = np.dtype(np.bool_)
int32: DType = np.dtype(np.int32)
int64: DType = np.dtype(np.int64)
float32: DType = np.dtype(np.float32)
float64: DType = np.dtype(np.float64)
complex64: DType = np.dtype(np.complex64)
complex128: DType = np.dtype(np.complex128)

key_dtype: DType = np.dtype([("threefry2x32", np.uint32, (2,))])
"""The dtype of arrays of keys of the generator threefry2x32 (Salmon et al., 2011): each element is two words."""
KEY_NAME = "key<fry>"
KEY_ADVICE = ("draw numbers with them, for example fxgrad.random.normal(key), or take their bits with "
              "fxgrad.random.key_data(key)")
"""Advice of messages for computing with keys."""

_SUCCESSORS: dict[str, tuple[str, ...]] = {
    "bool": ("int*",),
    "uint8": ("int16", "uint16"), "uint16": ("int32", "uint32"), "uint32": ("int64", "uint64"),
    "uint64": ("float*",),
    "int*": ("uint8", "int8"),
    "int8": ("int16",), "int16": ("int32",), "int32": ("int64",), "int64": ("float*",),
    "float*": ("complex*", "bfloat16", "float16"),
    "bfloat16": ("float32",), "float16": ("float32",), "float32": ("float64", "complex64"),
    "float64": ("complex128",),
    "complex*": ("complex64",), "complex64": ("complex128",), "complex128": (),
}
_SHORT = {"bool": "bool", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "int8": "i8",
          "int16": "i16", "int32": "i32", "int64": "i64", "bfloat16": "bf16", "float16": "f16",
          "float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128"}
WIDE_NAMES = (*_SHORT, "and the narrow dtypes of jax: float8_e4m3fn, float8_e5m2, int4, uint4, ...")
"""The dtypes as messages list them."""
NARROW_FLOATS = tuple(f"float{kind}" for kind in (
    "8_e3m4", "8_e4m3", "8_e4m3b11fnuz", "8_e4m3fn", "8_e4m3fnuz", "8_e5m2", "8_e5m2fnuz", "8_e8m0fnu", "4_e2m1fn"))
NARROW_INTEGERS = ("int2", "int4", "uint2", "uint4")
"""Dtypes without shorter names in texts: `i4` may be a variable, and is NumPy's name of int32."""
_SHORT |= {name: name.replace("float", "f") for name in NARROW_FLOATS} | {name: name for name in NARROW_INTEGERS}
SHORT_NAMES = {short: name for name, short in _SHORT.items()}
SUPPORTED: dict[str, DType] = {
    name: np.dtype(getattr(ml_dtypes, name, None) or name) for name in _SHORT}
_SHORT_OF: dict[DType, str] = {dtype: _SHORT[name] for name, dtype in SUPPORTED.items()}
FIRST_ADDED = 256
"""The number of the first dtype that extensions add to NumPy's; one of them, float8_e5m2, has its kind of floats."""
_KINDS: dict[DType, str] = {dtype: name[0].replace("b", "f") for name, dtype in SUPPORTED.items() if dtype.kind == "V"}
"""The kinds of dtypes that NumPy considers structures of bytes."""
_BITS: dict[DType, int] = {SUPPORTED[name]: int(name.strip("uint")) for name in NARROW_INTEGERS} | {
    SUPPORTED["float4_e2m1fn"]: 4}


def _join_table() -> dict[tuple[str, str], str]:
    bounds: dict[str, set[str]] = {name: {name} for name in _SUCCESSORS}  # the upper bounds of each
    changed = True
    while changed:
        changed = False
        for name, successors in _SUCCESSORS.items():
            reached = bounds[name].union(*(bounds[successor] for successor in successors))
            if reached != bounds[name]:
                bounds[name], changed = reached, True
    table = {}
    for a, above in bounds.items():
        for b, over in bounds.items():
            common = above & over
            table[a, b], = (c for c in common if common == bounds[c])
    return table


_JOIN = _join_table()


def short_name(dtype: DType) -> str:
    """Return `f32` for float32 and so on: the names in printed programs."""
    found = _SHORT_OF.get(dtype)  # most dtypes are found here; NumPy rebuilds `dtype.name` each time
    return found if found is not None else KEY_NAME if is_key(dtype) else _SHORT.get(dtype.name, dtype.name)


def from_short_name(name: str) -> DType:
    """Return the dtype that `short_name` prints as `name`; raise `KeyError` if there is none."""
    return key_dtype if name == KEY_NAME else SUPPORTED[SHORT_NAMES[name]]


def shown_name(dtype: DType) -> str:
    """Return the name of a dtype in messages: `float32`, `key<fry>`."""
    return KEY_NAME if is_key(dtype) else dtype.name


def is_key(dtype: Any) -> bool:
    """Return whether `dtype` is fxgrad's for random keys."""
    return dtype is key_dtype or (isinstance(dtype, np.dtype) and dtype.names is not None and dtype == key_dtype)


def is_jax_key(dtype: Any) -> bool:
    """Return whether `dtype` is jax's for random keys, of any generator."""
    return not isinstance(dtype, np.dtype) and bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))


def from_jax(dtype: Any) -> DType | None:
    """Return fxgrad's dtype for that of a jax array, jax's key dtype included; None if there is none."""
    if isinstance(dtype, np.dtype):
        return dtype
    return key_dtype if is_jax_key(dtype) and str(dtype) == KEY_NAME else None


def kind_of(dtype: DType) -> str:
    """Return `b`, `i`, `u`, `f` or `c`: bool, signed or unsigned integer, floating, complex; bfloat16 and int4 too.

    >>> bfloat16.kind, kind_of(bfloat16)
    ('V', 'f')
    """
    kind = dtype.kind
    return kind if kind != "V" else _KINDS.get(dtype, kind)


def bits_of(dtype: DType) -> int:
    """Return the bits of a number: less than 8 for int4, although each takes a byte of NumPy's arrays."""
    return _BITS.get(dtype, 8 * dtype.itemsize)


def is_below_byte(dtype: DType) -> bool:
    """Return whether `dtype` is an integer of less than 8 bits, which NumPy cannot compute with."""
    return dtype.kind == "V" and _KINDS.get(dtype, "f") != "f"


def is_floating(dtype: DType) -> bool:
    """Return whether `dtype` is real floating (bfloat16 included)."""
    return kind_of(dtype) == "f"


def is_complex(dtype: DType) -> bool:
    """Return whether `dtype` is complex."""
    return dtype.kind == "c"


def is_inexact(dtype: DType) -> bool:
    """Return whether `dtype` is floating or complex: whether there are derivatives with respect to it."""
    return kind_of(dtype) in "fc"


def is_integer(dtype: DType) -> bool:
    """Return whether `dtype` is a signed or unsigned integer (bool is not)."""
    return kind_of(dtype) in "iu"


def is_64bit(dtype: DType) -> bool:
    """Return whether jax narrows `dtype` unless its x64 mode is on."""
    return dtype.name in ("float64", "int64", "uint64", "complex128")


def real_dtype(dtype: DType) -> DType:
    """Return the dtype of the real part."""
    return float32 if dtype == complex64 else float64 if dtype == complex128 else dtype


def complex_dtype(dtype: DType) -> DType:
    """Return the complex dtype whose parts are of `dtype` (complex64 for those narrower than float32)."""
    return dtype if is_complex(dtype) else complex128 if dtype == float64 else complex64


def inexact_dtype(dtype: DType) -> DType:
    """Return `dtype` if inexact; float64 for 64-bit integers, the default float dtype for other integers and bool."""
    return dtype if is_inexact(dtype) else float64 if is_64bit(dtype) else config.default_float()


def canonical(dtype: Any) -> DType:
    """Convert anything NumPy accepts as a dtype to a dtype that fxgrad supports.

    Python's `float`, `int`, `complex` and `bool` stand for float64, int64, complex128 and bool, as in NumPy. Raises
    `DTypeError` for strings, objects, dates.
    """
    result: DType = np.dtype(dtype).newbyteorder("=")
    if result.name not in _SHORT:
        raise DTypeError(at_user_line(f"fxgrad has no dtype {result.name!r}; it supports {', '.join(WIDE_NAMES)}"))
    return result


def _node(dtype: DType, weak: bool) -> str:
    if not weak or dtype == bool_:
        return dtype.name
    return "complex*" if is_complex(dtype) else "float*" if is_floating(dtype) else "int*"


def _of_weak_node(node: str, types: tuple[tuple[DType, bool], ...]) -> tuple[DType, bool]:
    """Return the dtype and weakness if the join in the lattice is a node of Python's numbers.

    Python's numbers keep their width among themselves and bools; jax's weak scalars may be narrower, and then decide.
    With 64-bit integers they make float64, with narrower ones the default float dtype; neither is weak, as the array
    that NumPy computes is not.
    """
    integers = [dtype for dtype, weak in types if not weak and dtype != bool_]
    if integers:
        real = float64 if any(map(is_64bit, integers)) else config.default_float()
    else:
        numbers = [dtype for dtype, weak in types if weak]
        if node == "int*":
            return min(numbers, key=_width), True
        real = min((real_dtype(inexact_dtype(dtype)) for dtype in numbers), key=_width)
    return real if node == "float*" else complex_dtype(real), not integers


_NARROW: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(NARROW_FLOATS, ("bool", "int*", "float*", *(name for name in _SUCCESSORS if "int" in name))),
    **dict.fromkeys(NARROW_INTEGERS, ("bool", "int*"))}
"""Dtypes that give way to the narrow ones, which promote to no other: neither is converted unnoticed."""


def _with_narrow(one: str, other: str) -> str:
    """Return the join of two nodes of which one is a narrow dtype."""
    if one == other or other in _NARROW.get(one, ()):
        return one
    if one in _NARROW.get(other, ()):
        return other
    shown = " and ".join("a Python " + node[:-1] if node.endswith("*") else node for node in (one, other))
    raise DTypeError(at_user_line(
        f"{shown} do not promote: floats of 8 bits and less promote with integers and Python's floats alone, and "
        "integers of less than 8 bits with Python's integers. Convert one first, for example x.astype('float32')"))


def _width(dtype: DType) -> int:
    return dtype.itemsize


_promoted = Cache("promotions", 4096)


def promote(*types: tuple[DType, bool]) -> tuple[DType, bool]:
    """Return the common `(dtype, weak)` of operands given as `(dtype, weak)` pairs.

    >>> import numpy as np
    >>> promote((np.dtype("float32"), False), (np.dtype("float64"), True))
    (dtype('float32'), False)
    """
    key = (types, config.default_float())
    result = _promoted.get(key)
    if result is None:
        nodes = [_node(dtype, weak) for dtype, weak in types]
        for (dtype, _), node in zip(types, nodes, strict=True):
            if is_key(dtype):
                raise DTypeError(at_user_line(f"random keys (key<fry>) are no numbers; {KEY_ADVICE}"))
            if node not in _SUCCESSORS and node not in _NARROW:
                raise DTypeError(at_user_line(
                    f"{dtype.name} does not promote; convert it first: x.astype('float32')"))
        join = nodes[0]
        for node in nodes[1:]:
            join = _JOIN[join, node] if join in _SUCCESSORS and node in _SUCCESSORS else _with_narrow(join, node)
        if join.endswith("*"):
            result = _of_weak_node(join, types)
        else:
            result = SUPPORTED[join], False
        result = _promoted.add(key, result)
    return result


_LIMITS = {dtype: ml_dtypes.finfo(dtype) for dtype in SUPPORTED.values() if kind_of(dtype) == "f"}


def finfo(dtype: DType) -> Any:
    """Return the limits of a floating dtype, bfloat16 included: `tiny`, `eps`, `nmant`, ..."""
    found = _LIMITS.get(dtype)
    return ml_dtypes.finfo(dtype) if found is None else found


def iinfo(dtype: DType) -> Any:
    """Return the limits of an integer dtype, int4 included: `min`, `max`, `bits`."""
    return ml_dtypes.iinfo(dtype)


def default_float() -> DType:
    """Return the dtype of float arrays created without one."""
    return config.default_float()
