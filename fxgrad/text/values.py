"""Numbers, arrays and parameters as text that gives back the same bits."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import json
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.extend import Aval, DType, Integer, Literal, Program, aval_of
from fxgrad.extend.parameters import parameter_classes
from fxgrad.extend.sizes import SymbolicDim

INDENT = "  "
PLAIN_LITERALS: dict[str, Aval] = {aval.dtype.kind: aval for aval in map(aval_of, (False, 0, 0.0, 0j))}
"""The types of literals written without one, by kind: `True`, `2`, `2.0`, `complex(0.0, 1.0)`."""


def literal_kind(dtype: DType) -> str:
    """Return the kind of a dtype: `b`, `i`, `f` or `c`."""
    return dtypes.kind_of(dtype).replace("u", "i")


def bits_dtype(dtype: DType) -> DType:
    """Return the unsigned dtype of the same width as a floating `dtype`."""
    return np.dtype(f"uint{8 * dtype.itemsize}")


# --- numbers ----------------------------------------------------------------------------------------------------


def float_text(value: Any) -> str:
    """Return a floating number as `0.1`, `-inf`, `nan`; a NaN of unusual bits as `nan(0x7fc00001)`."""
    array = np.asarray(value)
    number = float(array)
    if math.isnan(number):
        bits = array.view(bits_dtype(array.dtype))
        usual = np.asarray(np.nan).astype(array.dtype).view(bits.dtype)
        return "nan" if bits == usual else f"nan(0x{int(bits):x})"
    # The shortest digits that are unique in its own dtype, unless parsing them as a double would round twice.
    short = str(value) if array.dtype != dtypes.float64 else repr(number)
    with np.errstate(all="ignore"):
        exact = np.asarray(float(short)).astype(array.dtype).tobytes() == array.tobytes()
    return repr(float(short)) if exact else repr(number)


def number_text(value: Any) -> str:
    """Return a NumPy scalar without its dtype."""
    kind = literal_kind(value.dtype)
    if kind == "f":
        return float_text(value)
    if kind == "c":
        return f"complex({float_text(value.real)}, {float_text(value.imag)})"
    return str(bool(value)) if kind == "b" else str(int(value))


def literal_text(literal: Literal) -> str:
    """Return a literal: `2.0`, or `2.0:f64` if the type is not the one of a bare number."""
    aval = literal.aval
    plain = PLAIN_LITERALS[literal_kind(aval.dtype)] == aval
    suffix = "" if plain else f":{dtypes.short_name(aval.dtype)}{'*' if aval.weak else ''}"
    return number_text(literal.value) + suffix


# --- arrays -----------------------------------------------------------------------------------------------------


def array_lines(array: np.ndarray[Any, Any], width: int) -> list[str]:
    """Return an array as nested lists, filled to lines of `width`; `full(0.0)` if all elements have the same bits."""
    if dtypes.is_key(array.dtype):
        array = array["threefry2x32"]  # the words of each key, along one more axis
    flat = np.ascontiguousarray(array).reshape(-1)
    if not array.shape:
        return [number_text(flat[0])]
    if flat.size > 1 and is_uniform(array):
        return [f"full({number_text(flat[0])})"]
    if not flat.size:
        return ["[]"]
    texts = _element_texts(flat)
    span = 1
    for extent in reversed(array.shape):
        span *= extent
        for start in range(0, flat.size, span):
            texts[start] = "[" + texts[start]
            texts[start + span - 1] += "]"
    rows = [", ".join(texts[start:start + array.shape[-1]]) for start in range(0, flat.size, array.shape[-1])]
    return fill_lines(rows if max(map(len, rows)) < width else texts, width)


def is_uniform(array: np.ndarray[Any, Any]) -> bool:
    """Return whether all elements of an array have the same bits."""
    elements = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, array.dtype.itemsize)
    return bool((elements == elements[:1]).all())


def _element_texts(flat: np.ndarray[Any, Any]) -> list[str]:
    if literal_kind(flat.dtype) != "f":
        return [number_text(value) for value in flat]
    if flat.dtype == dtypes.float64:
        texts = [*map(repr, flat.tolist())]
    else:
        texts = [repr(float(str(value))) for value in flat]  # the digits of its own dtype, always with a point
    with np.errstate(all="ignore"):
        read = np.array([*map(float, texts)]).astype(flat.dtype)
    bits = bits_dtype(flat.dtype)
    for index in np.flatnonzero(read.view(bits) != flat.view(bits)):
        texts[index] = float_text(flat[index])
    return texts


def fill_lines(items: Iterable[str], width: int) -> list[str]:
    """Return `items` separated by commas, as many on a line as fit."""
    lines: list[str] = []
    line = ""
    for item in items:
        if not line:
            line = item
        elif len(line) + len(item) + 3 <= width:
            line += f", {item}"
        else:
            lines.append(line + ",")
            line = item
    return [*lines, line] if line else lines


# --- parameters -------------------------------------------------------------------------------------------------


def string_text(value: str) -> str:
    """Return a string in double quotes, with the escapes of JSON."""
    return json.dumps(value, ensure_ascii=not value.isprintable())


def opaque_name(value: Any) -> str:
    """Return a name for an object that has no text: its own, or that of its class."""
    name = getattr(value, "name", None) or getattr(value, "__name__", None) or type(value).__name__
    return "".join(char for char in str(name) if char.isprintable() and char not in "<>") or "object"


def value_lines(value: Any, program_lines: Callable[[Program], list[str]]) -> list[str]:
    """Return a parameter as one line, or as several if it contains programs."""
    if isinstance(value, Program):
        return program_lines(value)
    text = _atomic_text(value)
    if text is not None:
        return [text]
    if isinstance(value, tuple) and is_named_tuple(type(value)):
        fields = [add_label(name, value_lines(item, program_lines))
                  for name, item in zip(type(value)._fields, value, strict=True)]  # type: ignore[attr-defined]
        return bracket(f"{type(value).__name__}(", fields, ")")
    items = [value_lines(item, program_lines) for item in value]
    if type(value) is list:
        return bracket("[", items, "]")
    return bracket("(", items, ",)" if len(items) == 1 else ")")


def _atomic_text(value: Any) -> str | None:
    kind = type(value)
    if value is None or kind in (bool, int):
        return repr(value)
    if isinstance(value, enum.Enum):
        return f"{kind.__name__}.{value.name}"
    if kind is float or kind is complex:
        return number_text(np.asarray(value)[()])
    if kind is str:
        return string_text(value)
    if isinstance(value, np.dtype):
        return dtype_text(value)
    if kind is Aval:
        return repr(value)
    if kind is SymbolicDim:
        return f"'{value}'"
    if isinstance(value, np.generic | Integer) and value.dtype.name in dtypes.SUPPORTED:
        return f"{number_text(value)}:{dtypes.short_name(value.dtype)}"
    if kind in (tuple, list) or (isinstance(value, tuple) and is_named_tuple(kind)):
        return None
    return f"<{opaque_name(value)}>"


def is_opaque(value: Any) -> bool:
    """Return whether `value` has no text that can be parsed back: a Python object such as a function."""
    if isinstance(value, Program | np.ndarray):
        return False
    text = _atomic_text(value)
    return text is not None and text.startswith("<")


def dtype_text(dtype: DType) -> str:
    """Return the short name of a supported dtype; `float0` and foreign ones as objects without a text."""
    return dtypes.short_name(dtype) if dtype.name in dtypes.SUPPORTED or dtypes.is_key(dtype) else f"<{dtype.name}>"


def add_label(name: str, lines: list[str]) -> list[str]:
    """Return `name=` before a value."""
    return [f"{name}={lines[0]}", *lines[1:]]


def bracket(opening: str, items: Sequence[list[str]], closing: str) -> list[str]:
    """Return items in brackets: on one line if each is on one."""
    if all(len(item) == 1 for item in items):
        return [opening + ", ".join(item[0] for item in items) + closing]
    inner = itertools.chain.from_iterable([*item[:-1], item[-1] + ","] for item in items)
    return [opening, *(INDENT + line for line in inner), closing.lstrip(",")]


def is_named_tuple(kind: type) -> bool:
    """Return whether `kind` is a class made by `NamedTuple`."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields") and hasattr(kind, "_make")


def declared_fields(value: Any) -> dict[str, Any] | None:
    """Return the fields of a dataclass that the library declares for parameters; None for any other object."""
    kind = type(value)
    if parameter_classes.get(kind.__name__) is not kind or not dataclasses.is_dataclass(kind):
        return None
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(kind)}


class ValueClasses:
    """The classes allowed in parameters of a text: `own` ones, and those that fxgrad declares."""

    def __init__(self, own: Iterable[type]) -> None:
        self._own = own

    @cached_property
    def by_name(self) -> dict[str, type]:
        """Return all classes by name."""
        return {**parameter_classes, **{kind.__name__: kind for kind in self._own}}


def is_value_class(kind: type) -> bool:
    """Return whether objects of `kind` can be read from text."""
    return is_named_tuple(kind) or issubclass(kind, enum.Enum)
