"""Shared checks of rules, and builders of records for layout changes and reductions.

The builder of elementwise records is in `pointwise`, since it needs operations that `structural` makes with these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval, Shape
from fxgrad.engine.core.primitive import NOT_LINEAR, ArrayKernel, Cost, Primitive, Rule, register, total_bytes
from fxgrad.engine.core.sizes import size_hint
from fxgrad.engine.core.symbolic import Linear, Zero
from fxgrad.engine.dtypes import DType
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import DTypeError, ShapeError

Accepts = Callable[[DType], bool]

KINDS: dict[str, Accepts] = {
    "any": lambda dtype: True,
    "all": lambda dtype: True,
    "numeric": lambda dtype: dtype.kind != "b",
    "real": lambda dtype: dtype.kind not in "bc",
    "ordered": lambda dtype: dtype.kind != "c",
    "inexact": dtypes.is_inexact,
    "floating": dtypes.is_floating,
    "complex": dtypes.is_complex,
    "integer": dtypes.is_integer,
    "integral": lambda dtype: dtypes.kind_of(dtype) in "biu",
}
"""Sets of dtypes by name, as messages show them; only `all` includes the dtype of random keys."""


def broadcast_shapes(name: str, *shapes: Shape) -> Shape:
    """Return the shape that NumPy broadcasts `shapes` to; raise a `ShapeError` naming them if there is none."""
    result: list[int] = []
    rank = max(map(len, shapes))
    for axis in range(-rank, 0):
        sizes = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(sizes) > 1:
            shown = " and ".join(str(shape) for shape in shapes)
            raise ShapeError(f"{name}: shapes {shown} do not broadcast: axis {axis} has sizes "
                             f"{' and '.join(map(str, sorted(sizes, key=size_hint)))}, where equal sizes or 1 are "
                             "needed. Insert an axis with x[:, None] or x.reshape(...), or transpose one of them")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def check_kind(name: str, kind: str, *avals: Aval) -> None:
    """Raise `DTypeError` unless all dtypes belong to the set `kind` of `KINDS`."""
    for aval in avals:
        if dtypes.is_key(aval.dtype) and kind != "all":
            raise DTypeError(at_user_line(f"{name}: not defined for random keys (key<fry>); {dtypes.KEY_ADVICE}"))
        if not KINDS[kind](aval.dtype):
            fitting = next(example for example in ("float32", "int32", "complex64")
                           if KINDS[kind](dtypes.SUPPORTED[example]))
            # Python's bools, which are no arrays, may have been traced.
            cure = ("Write 1 * x for the numbers 0 and 1, or ^ and ~ for logic" if aval.dtype == dtypes.bool_ and
                    kind == "numeric" else f"Convert first, for example x.astype('{fitting}')")
            raise DTypeError(at_user_line(f"{name}: not defined for {aval.dtype.name}; it takes {kind} dtypes. {cure}"))


def check_same_dtype(name: str, *avals: Aval) -> None:
    """Raise `DTypeError` unless all dtypes are equal."""
    if any(aval.dtype != avals[0].dtype for aval in avals):
        shown = " and ".join(aval.dtype.name for aval in avals)
        raise DTypeError(f"{name}: dtypes {shown} differ, where equal ones are needed; convert one with "
                         "x.astype(...), or call the function of fxgrad.numpy, which promotes")


def rank_of(value: Any) -> int:
    """Return the number of axes of an operand of any kind."""
    return len(aval_of(value).shape)


# --- operations that are linear in their one array input --------------------------------------------------


def linear_unary(name: str, *, abstract: Rule, numpy: Callable[..., Any], xla: Callable[..., Any],
                 transpose: Callable[..., Any], batch: Rule, flops: int = 0, cost: Rule | None = None,
                 **facts: Any) -> Primitive:
    """Return the record of an operation linear in its one input, such as a change of layout: its jvp is itself.

    `transpose(cotangent, aval, **params)` returns the cotangent of the input of type `aval`; `facts` are further
    properties of the record. Without `cost` it counts `flops` operations for each element, and reads and writes
    everything once.
    """
    def jvp(primals: list[Any], tangents: list[Any], **params: Any) -> tuple[list[Any], list[Any]]:
        out = bind(primitive, *primals, **params)
        tangent = tangents[0]
        if type(tangent) is Zero or not dtypes.is_inexact(aval_of(out[0]).dtype):
            return out, [Zero(aval_of(out[0]))]
        return out, bind(primitive, tangent, **params)

    def transpose_rule(cotangents: list[Any], inputs: list[Any], **params: Any) -> list[Any]:
        return [transpose(cotangents[0], inputs[0].aval, **params)]

    def usual_cost(aval: Aval, **params: Any) -> Cost:
        outputs = abstract(aval, **params)
        return Cost(flops * aval.size, total_bytes([aval], outputs))

    primitive = register(Primitive(
        name=name, abstract=abstract, numpy=ArrayKernel(numpy),
        xla=lambda lax, x, **params: [xla(lax, x, **params)],
        jvp=jvp, transpose=transpose_rule, batch=batch, cost=cost or usual_cost, **facts))
    return primitive


# --- reductions -------------------------------------------------------------------------------------------


def reduced_shape(aval: Aval, axes: tuple[int, ...]) -> Shape:
    """Return the shape without `axes`."""
    return tuple(extent for axis, extent in enumerate(aval.shape) if axis not in axes)


def check_axes(name: str, aval: Aval, axes: Sequence[int]) -> None:
    """Raise `ShapeError` unless `axes` are distinct axes of `aval`, each counted from the front."""
    if len(set(axes)) != len(axes) or any(not (isinstance(axis, int) and 0 <= axis < aval.ndim) for axis in axes):
        raise ShapeError(f"{name}: axes {tuple(axes)} of an array of shape {aval.shape}; distinct axes from 0 to "
                         f"{aval.ndim - 1} are needed")


def lax_function(xla: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return a function `(lax, *values, **params)`: `xla` itself, or the one of that name in `lax`."""
    if callable(xla):
        return xla
    return lambda lax, *values, **params: getattr(lax, xla)(*values, **params)


def by_float32(xla: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return `lax_function(xla)`, with floats of a byte computed in float32."""
    function = lax_function(xla)

    def rule(lax: Any, *values: Any) -> Any:
        dtype = values[0].dtype
        if dtype.itemsize > 1:
            return function(lax, *values)
        wide = [lax.convert_element_type(value, np.float32) for value in values]
        return lax.convert_element_type(function(lax, *wide), dtype)
    return rule


def reduction(name: str, *, numpy: Callable[..., Any], accepts: str, jvp: Rule, transpose: Rule = NOT_LINEAR,
              xla: Callable[..., Any] | None = None, public: str | None = None) -> Primitive:
    """Return the record of an operation that combines the elements along `axes` (a sorted tuple of ints from 0 on).

    `numpy(array, axes)` returns an array of the same dtype; it is not called without axes, since NumPy's functions then
    combine every element with the neutral one.
    """
    shown = public or name
    lax_name = lax_function(xla or name)

    def abstract(aval: Aval, *, axes: tuple[int, ...]) -> list[Aval]:
        check_kind(shown, accepts, aval)
        check_axes(shown, aval, axes)
        return [Aval(reduced_shape(aval, axes), aval.dtype, aval.weak)]

    def batch(size: int, values: list[Any], batch_axes: list[int], *, axes: tuple[int, ...],
              ) -> tuple[list[Any], list[int]]:
        at = batch_axes[0]
        shifted = tuple(axis + (axis >= at) for axis in axes)
        return bind(primitive, values[0], axes=shifted), [at - sum(axis < at for axis in shifted)]

    def cost(aval: Aval, *, axes: tuple[int, ...]) -> Cost:
        return Cost(aval.size, total_bytes([aval], abstract(aval, axes=axes)))

    primitive = register(Primitive(
        name=name, abstract=abstract, numpy=ArrayKernel(lambda x, *, axes: numpy(x, axes) if axes else x.copy()),
        xla=lambda lax, x, *, axes: [lax_name(lax, x, axes=axes) if axes else x],
        jvp=jvp, transpose=transpose, batch=batch, cost=cost))
    return primitive


def is_linear(value: Any) -> bool:
    """In a transpose rule, return whether the output is linear in this input."""
    return type(value) is Linear
