"""The values of a program in C: an array, a variable, or an expression for each of its elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.extend import Aval, Variable
from fxgrad.shipping.python.trees import SourceRefusal

INDICES = "ijklmnpq"
TYPES = {"float64": "double", "float32": "float", "int64": "int64_t", "int32": "int32_t", "int8": "int8_t",
         "uint8": "uint8_t", "bool": "bool"}
"""The dtypes that files have, and their types in C."""
SHORT = {"float64": "f64", "float32": "f32", "int64": "i64", "int32": "i32", "int8": "i8", "uint8": "u8",
         "bool": "bool"}


@dataclass
class CValue:
    """A value: `at` maps indices to the expression of an element, `flat` maps row-major positions.

    `flat` is None if an element is not as easily computed from its position. `depth` is the number of nested operations
    of an expression, 0 for stored values; `name` is that of the array, or of the variable of a scalar; `var` is the
    program's variable, if any.
    """

    aval: Aval
    at: Callable[[Sequence[str]], str]
    flat: Callable[[str], str] | None
    depth: int = 0
    name: str = ""
    var: Variable | None = None

    @property
    def kind(self) -> str:
        """The short name of the dtype: "f64"."""
        return SHORT[self.aval.dtype.name]

    def place(self, text: str) -> str:
        """Return the element at a row-major position, even if elements are only given by indices."""
        return self.flat(text) if self.flat is not None else self.at(unravel_index(text, self.aval.shape))


def c_type(aval: Aval) -> str:
    """Return the C type; raise `SourceRefusal` for a dtype that has none."""
    if aval.dtype.name not in TYPES:
        name = "key<fry>, that of a random key" if dtypes.is_key(aval.dtype) else aval.dtype.name
        raise SourceRefusal(f"of dtype {name}, where a C file has {', '.join(TYPES)}")
    if aval.size >= 2 ** 31:
        raise SourceRefusal(f"of {aval.size} elements, where a C file counts to {2 ** 31 - 1}")
    return TYPES[aval.dtype.name]


def literal(value: Any, dtype: np.dtype, exact: bool = False) -> str:
    """Return a C literal of a dtype with the same bits; with `exact` floats are hexadecimal."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind in "iu":
        number = int(value)
        if dtype.kind == "i" and number == np.iinfo(dtype).min:
            return f"INT{8 * dtype.itemsize}_MIN"
        return f"INT64_C({number})" if abs(number) >= 2 ** 31 else str(number)
    suffix = "f" if dtype.itemsize == 4 else ""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    if exact:
        return float(value).hex() + suffix
    return str(dtype.type(value)) + suffix  # the fewest digits that are this number and no other


def sum_text(terms: Sequence[str]) -> str:
    """Return a sum without terms that are 0."""
    return " + ".join(term for term in terms if term != "0") or "0"


def product_text(text: str, factor: int) -> str:
    """Return the product of an expression and a known number."""
    if factor == 1 or text == "0":
        return text
    return f"{parenthesized_text(text)} * {factor}"


def parenthesized_text(text: str) -> str:
    """Return an expression as an operand: in parentheses unless it is one word, number or call."""
    if all(c.isalnum() or c in "_." for c in text):
        return text
    depth = 0
    for place, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if depth == 0 and not (c.isalnum() or c in "_.)]") and place + 1 < len(text):
            return f"({text})"
    return text


def ravel_index(indices: Sequence[str], shape: tuple[int, ...]) -> str:
    """Return the row-major place of an element as an expression."""
    terms, stride = [], 1
    for index, extent in zip(reversed(indices), reversed(shape), strict=True):
        if extent != 1:
            terms.append(product_text(index, stride))
        stride *= extent
    return sum_text(terms[::-1])


def unravel_index(text: str, shape: tuple[int, ...]) -> list[str]:
    """Return the indices of the element at a row-major place as expressions."""
    indices, stride = [], math.prod(shape)
    first = True
    for extent in shape:
        stride //= extent or 1
        if extent == 1:
            indices.append("0")
            continue
        index = parenthesized_text(text) if stride == 1 else f"{parenthesized_text(text)} / {stride}"
        indices.append(index if first else f"{parenthesized_text(index)} % {extent}")
        first = False
    return indices


def array_value(aval: Aval, name: str, reading: Callable[[str], None], pointer: bool = False,
                var: Variable | None = None) -> CValue:
    """Return the value of an array or a scalar variable, possibly behind a pointer."""
    def element(text: str) -> str:
        reading(name)
        if not aval.shape:
            return f"*{name}" if pointer else name
        return f"{name}[{text}]"

    return CValue(aval, lambda indices: element(ravel_index(indices, aval.shape)), element, 0, name, var)


def expression_value(aval: Aval, at: Callable[[Sequence[str]], str], depth: int = 0,
                     flat: Callable[[str], str] | None = None) -> CValue:
    """Return a value that is an expression."""
    return CValue(aval, at, flat, depth)


def broadcast_indices(value: CValue, indices: Sequence[str]) -> list[str]:
    """Return the indices in an operand of an elementwise operation, which is broadcast."""
    rank = value.aval.ndim
    kept = indices[len(indices) - rank:]
    return ["0" if extent == 1 else index for index, extent in zip(kept, value.aval.shape, strict=True)]


def loop_lines(indices: Sequence[str], shape: Sequence[int], body: Sequence[str]) -> list[str]:
    """Return lines in a loop over indices; those of size 1 need no loop."""
    lines = [*body]
    for index, extent in reversed([*zip(indices, shape, strict=True)]):
        if index == "0":
            continue
        head = f"for (int {index} = 0; {index} < {extent}; {index}++)"
        lines = [f"{head}", "    " + lines[0]] if len(lines) == 1 else [
            f"{head} {{", *("    " + line for line in lines), "}"]
    return lines


def strip_parentheses(text: str) -> str:
    """Return an expression without parentheses that enclose all of it."""
    if not text.startswith("(") or not text.endswith(")"):
        return text
    depth = 0
    for place, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if not depth and place + 1 < len(text):
            return text
    return text[1:-1]
