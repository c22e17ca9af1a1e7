"""The builder of elementwise records, and `add`, which every sum of tangents or cotangents needs.

Elementwise operations broadcast as NumPy does. This module has the explicit broadcast for XLA and the alignment of
batch axes, `structural` the un-broadcast of cotangents; each is written once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.arrays import Integer
from fxgrad.engine.core.avals import PYTHON_SCALARS, Aval, Literal
from fxgrad.engine.core.primitive import (
    NO_TANGENT,
    NOT_LINEAR,
    ArrayKernel,
    Cost,
    Primitive,
    Rule,
    register,
    require_primitive,
    total_bytes,
)
from fxgrad.engine.core.sizes import SymbolicDim
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.dtypes import DType
from fxgrad.engine.ops import structural
from fxgrad.engine.ops.creation import size_in
from fxgrad.engine.ops.families import broadcast_shapes, check_kind, check_same_dtype, is_linear, lax_function, rank_of
from fxgrad.engine.ops.structural import broadcast_to, unbroadcast
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.errors import ArgumentError


def align(lax: Any, *values: Any, to_shape: bool = True) -> list[Any]:
    """Return jax values broadcast to one shape, as XLA's elementwise operations need them.

    Without `to_shape` they are broadcast to one rank only, and scalars stay unchanged: the functions of `lax` do the
    rest.
    """
    shapes = {value.shape for value in values}
    if len(shapes) == 1 or (not to_shape and len({len(shape) for shape in shapes} - {0}) < 2):
        return list(values)
    shape = broadcast_shapes("broadcast", *shapes)
    return [value if value.shape == shape or not (to_shape or 0 < value.ndim < len(shape)) else
            lax.broadcast_in_dim(value, shape, tuple(range(len(shape) - value.ndim, len(shape))))
            for value in values]


_WITHOUT_DTYPE = PYTHON_SCALARS - {Integer}


def scalars_like(*operands: Any) -> list[Any]:
    """Return operands with Python scalars replaced by literals of the dtype of the others: for use in rules."""
    typed = [aval_of(operand) for operand in operands if type(operand) not in _WITHOUT_DTYPE]
    if len(typed) == len(operands):
        return list(operands)
    aval = Aval((), typed[0].dtype, all(aval.weak for aval in typed))  # so that it does not affect weakness
    return [Literal(operand, aval) if type(operand) in _WITHOUT_DTYPE else operand
            for operand in operands]


def scalar_like(value: Any, operand: Any) -> Any:
    """Return a number, or a symbolic size, in the dtype and weakness of `operand`: a literal, or a value."""
    aval = aval_of(operand)
    if type(value) is SymbolicDim:
        return size_in(value, aval.dtype, aval.weak)
    return Literal(value, Aval((), aval.dtype, aval.weak))


def is_same(value: Any, other: Any) -> bool:
    """In a rewrite, return whether both are the same variable, or equal literals."""
    if type(value) is Tracer and type(other) is Tracer:
        return value.variable is other.variable
    return type(value) is Literal and value == other


acts_on_each: Analysis[bool] = Analysis(
    "acts on each element", "Whether an element of the result depends on one element of each operand alone.",
    missing="conservative", default=False)

Tangent = Callable[..., Any]
"""(tangent, output, *inputs, **params) -> this input's part of the output tangent (may be a symbolic zero)."""


def elementwise(name: str, arity: int, *, numpy: Callable[..., Any], xla: str | Callable[..., Any],
                accepts: str, result: Callable[[DType], DType] = lambda dtype: dtype,
                tangents: Sequence[Tangent | None] | None, transpose: Rule = NOT_LINEAR, flops: int = 1,
                public: str | None = None, parameters: frozenset[str] = frozenset(),
                check: Callable[..., None] | None = None,
                together: Callable[..., Any] | None = None, broadcasts: bool = False, commutative: bool = False,
                exactly_rounded: bool = False) -> Primitive:
    """Return the record of an operation that acts on each element alone, with NumPy's broadcasting.

    `numpy(*arrays, **params)` and `xla(lax, *values, **params)` return one array each. `tangents` has one function an
    input (None if the derivative is zero), or is None if the output has no tangent at all. `together(tangents, output,
    *inputs)` returns the whole tangent if several inputs have one and their parts share work. `check(*avals, **params)`
    raises for errors that the dtypes alone do not show; `params` has the names `parameters`. With `broadcasts`, `xla`
    takes scalars and axes of size 1 unchanged; `commutative` and `exactly_rounded` are those of the record.
    """
    shown = public or name

    results: dict[DType, DType] = {}  # by the dtypes that passed the checks, if these depend on nothing else

    def abstract(*avals: Aval, **params: Any) -> list[Aval]:
        if len(avals) != arity:
            raise ArgumentError(f"{shown} takes {arity} operand{'s' * (arity != 1)}, got {len(avals)}")
        first = avals[0].dtype
        dtype = None if params else results.get(first)
        if dtype is first and arity <= 2:  # the usual cases, which `_result_type` decides in the same way
            one, other = avals[0], avals[-1]
            if other.dtype is first and first is not dtypes.bool_:
                if (other.shape == one.shape or not other.shape) and (other.weak or not one.weak):
                    return [one]
                if not one.shape and (one.weak or not other.weak):
                    return [other]
        for aval in avals:
            if aval.dtype is not first:  # equal dtypes are mostly one object; if not, the checks decide
                dtype = None
        if dtype is None:
            if params.keys() != parameters:
                raise TypeError(f"{name} takes the parameters {sorted(parameters)}, got {sorted(params)}")
            check_kind(shown, accepts, *avals)
            check_same_dtype(shown, *avals)
            if check is not None:
                check(*avals, **params)
            dtype = result(first)
            if check is None and not parameters:
                results[first] = dtype
        return [_result_type(shown, avals, dtype)]

    emitted = lax_function(xla)
    # The functions of `lax` broadcast scalars and axes of size 1 by themselves: fewer equations for jax to trace.
    aligned = functools.partial(align, to_shape=not (broadcasts or isinstance(xla, str)))

    def xla_rule(lax: Any, *values: Any, **params: Any) -> list[Any]:
        return [emitted(lax, *(aligned(lax, *values) if arity > 1 else values), **params)]

    def jvp(primals: list[Any], given: list[Any], **params: Any) -> tuple[list[Any], list[Any]]:
        assert tangents is not None
        out, = bind(primitive, *primals, **params)
        if together is not None and not any(type(tangent) is Zero for tangent in given):
            return [out], [broadcast_to(together(given, out, *primals, **params), aval_of(out).shape)]
        parts = [part(tangent, out, *primals, **params) for part, tangent in zip(tangents, given, strict=True)
                 if part is not None and type(tangent) is not Zero]
        return [out], [sum_of_parts(parts, aval_of(out))]

    def batch(size: int, values: list[Any], axes: list[int | None], **params: Any) -> tuple[list[Any], list[int]]:
        at = axes[0]
        if at is not None and all(axis == at for axis in axes) and len({rank_of(value) for value in values}) == 1:
            return bind(primitive, *values, **params), [at]
        return bind(primitive, *align_batch(values, axes), **params), [0]

    def cost(*avals: Aval, **params: Any) -> Cost:
        outputs = abstract(*avals, **params)
        return Cost(flops * outputs[0].size, total_bytes(avals, outputs))

    primitive = register(Primitive(
        name=name, abstract=abstract, numpy=ArrayKernel(numpy), xla=xla_rule,
        jvp=NO_TANGENT if tangents is None else jvp, transpose=transpose, batch=batch, cost=cost,
        commutative=commutative, exactly_rounded=exactly_rounded))

    acts_on_each.enter(True, primitive)
    if arity > 1:
        _leave_out_broadcasts(primitive)
    return primitive


def _result_type(name: str, avals: Sequence[Aval], dtype: DType) -> Aval:
    """Return the type of an elementwise result: mostly one of `avals`, if that is equal."""
    weak = dtype is not dtypes.bool_ and avals[0].weak
    shape = avals[0].shape
    for aval in avals[1:]:
        weak = weak and aval.weak
        if aval.shape != shape and aval.shape:
            shape = broadcast_shapes(name, *(aval.shape for aval in avals)) if shape else aval.shape
    for aval in avals:
        if aval.shape == shape and aval.dtype is dtype and aval.weak == weak:
            return aval
    return Aval(shape, dtype, weak)


def _leave_out_broadcasts(primitive: Primitive) -> None:
    """Enter the rewrite that removes broadcasts of operands, since the operation broadcasts by itself."""
    @rewrites.register(primitive, makers=(structural.broadcast_to_p, structural.reshape_p))
    def without_needless_broadcasts(known: RecordedDefinitions, inputs: list[Any],
                                    params: dict[str, Any]) -> list[Any] | None:
        scalars = [structural.repeated_scalar(known, value) for value in inputs]
        if primitive.exactly_rounded and any(aval_of(value).shape for value in inputs) and \
                all(scalar is not None for scalar in scalars):
            shape = primitive.abstract(*map(aval_of, inputs), **params)[0].shape
            return [broadcast_to(bind(primitive, *scalars, **params)[0], shape)]
        bare = structural.without_broadcast(known, inputs)
        return None if bare is None else bind(primitive, *bare, **params)


def sum_of_parts(parts: Sequence[Any], aval: Aval) -> Any:
    """Return the sum of the parts of a tangent, of the shape of the output; a symbolic zero if there are none."""
    arrays = [part for part in parts if type(part) is not Zero]
    if not arrays:
        return Zero(aval)
    total = arrays[0]
    for part in arrays[1:]:
        total = add(total, part)
    return broadcast_to(total, aval.shape)


def align_batch(values: Sequence[Any], axes: Sequence[int | None]) -> list[Any]:
    """Return batched operands with the batch axis first, and the other axes aligned from the right."""
    ranks = [rank_of(value) - (axis is not None) for value, axis in zip(values, axes, strict=True)]
    rank = max(ranks)
    return [value if axis is None else structural.move_batch_first(value, axis, rank)
            for value, axis in zip(values, axes, strict=True)]


def unary(name: str, *, numpy: Callable[..., Any], tangent: Tangent | None, accepts: str = "inexact",
          xla: str | Callable[..., Any] | None = None, **rest: Any) -> Primitive:
    """Return the record of an elementwise operation with one input; `xla` is the name in `lax`, by default `name`."""
    return elementwise(name, 1, numpy=numpy, xla=xla or name, accepts=accepts,
                       tangents=None if tangent is None else [tangent], **rest)


def binary(name: str, *, numpy: Callable[..., Any], tangents: Sequence[Tangent | None] | None,
           accepts: str = "numeric", xla: str | Callable[..., Any] | None = None, **rest: Any) -> Primitive:
    """Return the record of an elementwise operation with two inputs of one dtype."""
    return elementwise(name, 2, numpy=numpy, xla=xla or name, accepts=accepts,
                       tangents=tangents, **rest)


def comparison(name: str, *, numpy: Callable[..., Any], accepts: str = "ordered",
               xla: str | Callable[..., Any] | None = None, **rest: Any) -> Primitive:
    """Return the record of an elementwise operation with two inputs of one dtype and a bool output."""
    return elementwise(name, 2, numpy=numpy, xla=xla or name, accepts=accepts,
                       result=lambda dtype: dtypes.bool_, tangents=None, **rest)


def operation(primitive: Primitive) -> Callable[..., Any]:
    """Return the function that applies an elementwise primitive to operands of one dtype or Python scalars."""
    require_primitive("operation", primitive)

    def apply(*operands: Any, **params: Any) -> Any:
        for operand in operands:
            if type(operand) in _WITHOUT_DTYPE:
                return bind(primitive, *scalars_like(*operands), **params)[0]
        return bind(primitive, *operands, **params)[0]
    apply.__name__ = primitive.name
    return apply


def _add_transpose(cotangents: list[Any], inputs: list[Any]) -> list[Any]:
    return [unbroadcast(cotangents[0], x.aval) if is_linear(x) else None for x in inputs]


add_p = binary("add", numpy=np.add, public="add", accepts="numeric", transpose=_add_transpose, commutative=True,
               exactly_rounded=True, tangents=[lambda t, out, x, y: t, lambda t, out, x, y: t])
add = operation(add_p)
