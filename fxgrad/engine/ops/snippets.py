"""How generated code calls a kernel: the Python expression of an operation whose types and parameters are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import ArrayKernel, Primitive

_NOTHING: Mapping[str, Any] = {}


class Snippet(NamedTuple):
    """An expression in the operands `{0}`, `{1}`, ...; `objects` are those that it speaks of, by their names in it.

    Where the result is `owned` it shares no memory with an operand. `{out}` is the place where `, name` of an array
    of the type of the result may stand, to be written to, and `{named_out}` that of `, out=name`; with `in_place` it
    may be an operand. It is in row-major order if all operands are, or always if `row_major` says so. The value must be
    equal to the kernel's own to the bit. `of_floats` is the expression for operands that are Python floats, which are
    float64 too, with a float as the result; "" where there is none.
    """

    text: str
    objects: Mapping[str, Any] = _NOTHING
    owned: bool = True
    in_place: bool = False
    row_major: bool = False
    of_floats: str = ""

    def of(self, *operands: int) -> Snippet:
        """The same of other operands, given by their numbers."""
        numbered = [f"{{{operand}}}" for operand in operands]
        return self._replace(text=self.text.format(*numbered, out="{out}", named_out="{named_out}"),
                             of_floats=self.of_floats.format(*numbered))


Rule = Callable[[Sequence[Aval], dict[str, Any]], "Snippet | None"]


def _kernel_snippet(primitive: Primitive) -> Rule:
    """What the kernel tells: of a ufunc its call, of any other nothing."""
    kernel = primitive.numpy
    if not isinstance(kernel, ArrayKernel) or not isinstance(kernel.function, np.ufunc):
        return lambda avals, params: None
    ufunc = kernel.function
    return lambda avals, params: None if params else ufunc_snippet(ufunc, avals)


snippets: Analysis[Rule] = Analysis(
    "snippets", "The Python expression of an operation in generated code; by default that of a ufunc, or of a call.",
    missing="derive", derive=_kernel_snippet)


def snippet_of(primitive: Primitive, avals: Sequence[Aval], params: dict[str, Any]) -> Snippet | None:
    """The expression of an operation on operands of the types `avals`; None if there is none but the kernel."""
    return snippets.of(primitive)(avals, params)


_OPERATORS = {np.add: "{0} + {1}", np.subtract: "{0} - {1}", np.multiply: "{0} * {1}", np.true_divide: "{0} / {1}",
              np.negative: "-{0}"}


def ufunc_snippet(ufunc: Any, avals: Sequence[Aval]) -> Snippet:
    """The call of a ufunc; of plain floats, where there is one, the operator, which takes a tenth of the time."""
    name, objects = ufunc.__name__, {ufunc.__name__: ufunc}
    operands = ", ".join(f"{{{index}}}" for index in range(len(avals)))
    of_floats = f"float({name}({operands}))"
    if ufunc in _OPERATORS and all(not aval.shape and aval.dtype in _FLOATS for aval in avals):
        operator = _OPERATORS[ufunc]
        if ufunc is np.true_divide:  # Python's division by zero raises, where NumPy's gives an infinity or a NaN
            return Snippet(operator, objects, of_floats=f"{operator} if {{1}} else {of_floats}")
        return Snippet(operator, of_floats=operator)
    out = "{named_out}" if ufunc in _NAMED_OUT else "{out}"
    return Snippet(f"{name}({operands}{out})", objects, in_place=True, of_floats=of_floats)


_NAMED_OUT = frozenset({np.maximum, np.minimum})
"""Ufuncs that people take for functions of many operands; NumPy warns where `out` is not named."""


_FLOATS = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
