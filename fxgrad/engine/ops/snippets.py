"""Snippets: the Python expression of an operation of known types and parameters in generated code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import ArrayKernel, Primitive

_NOTHING: Mapping[str, Any] = {}


class Snippet(NamedTuple):
    """An expression in the operands `{0}`, `{1}`, ...; `objects` are the objects in it, by their names.

    An `owned` result shares no memory with an operand. `{out}` is the place for `, name`, an array of the result's type
    to overwrite, and `{named_out}` that for `, out=name`; with `in_place` it may be an operand. The result is in
    row-major order if all operands are, or always with `row_major`. The value must equal the kernel's own bit for bit.
    `of_numbers` is the expression for scalar operands that are Python's numbers (floats for float64, bools for bool),
    with such a number as the result; "" if there is none. With `takes_numbers` such operands may stand in `text` too.
    With `takes_stored` an input of the program that repeats elements in memory, as `np.broadcast_to` makes it, is
    copied first, as the kernel does.
    """

    text: str
    objects: Mapping[str, Any] = _NOTHING
    owned: bool = True
    in_place: bool = False
    row_major: bool = False
    of_numbers: str = ""
    takes_numbers: bool = False
    takes_stored: bool = False

    def of(self, *operands: int) -> Snippet:
        """Return the snippet for other operands, given by their numbers."""
        numbered = [f"{{{operand}}}" for operand in operands]
        return self._replace(text=self.text.format(*numbered, out="{out}", named_out="{named_out}"),
                             of_numbers=self.of_numbers.format(*numbered))


Rule = Callable[[Sequence[Aval], dict[str, Any]], "Snippet | None"]


def _kernel_snippet(primitive: Primitive) -> Rule:
    """Return the call of a kernel that is a ufunc; None for any other kernel."""
    kernel = primitive.numpy
    if not isinstance(kernel, ArrayKernel) or not isinstance(kernel.function, np.ufunc):
        return lambda avals, params: None
    ufunc = kernel.function
    return lambda avals, params: None if params else ufunc_snippet(ufunc, avals)


snippets: Analysis[Rule] = Analysis(
    "snippets", "The Python expression of an operation in generated code; by default that of a ufunc, or of a call.",
    missing="derive", derive=_kernel_snippet)


def snippet_of(primitive: Primitive, avals: Sequence[Aval], params: dict[str, Any]) -> Snippet | None:
    """Return the expression of an operation on operands of the types `avals`; None if there is none but the kernel."""
    return snippets.of(primitive)(avals, params)


_OPERATORS = {np.add: "{0} + {1}", np.subtract: "{0} - {1}", np.multiply: "{0} * {1}", np.true_divide: "{0} / {1}",
              np.negative: "-{0}"}
_OF_NUMBERS = {
    **_OPERATORS, np.absolute: "abs({0})", np.equal: "{0} == {1}", np.not_equal: "{0} != {1}", np.less: "{0} < {1}",
    np.less_equal: "{0} <= {1}", np.greater: "{0} > {1}", np.greater_equal: "{0} >= {1}",
    np.bitwise_and: "{0} & {1}", np.bitwise_or: "{0} | {1}", np.bitwise_xor: "{0} ^ {1}", np.invert: "not {0}"}


def ufunc_snippet(ufunc: Any, avals: Sequence[Aval]) -> Snippet:
    """Return the call of a ufunc; for plain floats the operator, if there is one, which takes a tenth of the time."""
    name, objects = ufunc.__name__, {ufunc.__name__: ufunc}
    operands = ", ".join(f"{{{index}}}" for index in range(len(avals)))
    of_numbers = _OF_NUMBERS.get(ufunc, "")
    if not of_numbers and all(aval.dtype == np.float64 for aval in avals):
        of_numbers = f"{'bool' if ufunc is np.isfinite else 'float'}({name}({operands}))"
    if ufunc is np.true_divide:  # Python's division by zero raises, NumPy's gives an infinity or a NaN
        of_numbers = f"{{0}} / {{1}} if {{1}} else float({name}({operands}))"
    if ufunc in _OPERATORS and all(not aval.shape and aval.dtype in _FLOATS for aval in avals):
        return Snippet(_OPERATORS[ufunc], objects, of_numbers=of_numbers)
    out = "{named_out}" if ufunc in _NAMED_OUT else "{out}"
    return Snippet(f"{name}({operands}{out})", objects, in_place=True, of_numbers=of_numbers)


_NAMED_OUT = frozenset({np.maximum, np.minimum})
"""Ufuncs that look like functions of many operands; NumPy warns unless `out` is named."""


_FLOATS = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
