"""Joining and taking apart: concatenate, stack, split, unstack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import Cost, Primitive, Rule, register, total_bytes
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.ops.families import check_axes, check_same_dtype, is_linear
from fxgrad.engine.ops.shaping import linear_many, slice_in_dim
from fxgrad.engine.ops.structural import broadcast_to, instantiate_zeros, move_axis, reshape, zeros
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import ShapeError


def align_batch_axes(size: int, values: Sequence[Any], axes: Sequence[int | None]) -> tuple[list[Any], int]:
    """Return the values with one common batch axis, and that axis; unbatched ones are repeated along it."""
    if None not in axes and len(set(axes)) == 1:
        return list(values), axes[0] or 0
    return [broadcast_to(value, (size, *aval_of(value).shape)) if axis is None else move_axis(value, axis, 0)
            for value, axis in zip(values, axes, strict=True)], 0


def all_weak(avals: Sequence[Aval]) -> bool:
    """Return whether the result of combining arrays of these types is weak."""
    return all(aval.weak for aval in avals)


# --- concatenate, stack -----------------------------------------------------------------------------------------


def _concatenate_abstract(*avals: Aval, dimension: int) -> list[Aval]:
    if not avals:
        raise ShapeError("concatenate: at least one array is needed")
    check_same_dtype("concatenate", *avals)
    first = avals[0].shape
    if not 0 <= dimension < len(first):
        raise ShapeError(f"concatenate: axis {dimension} of arrays with {len(first)} axes")
    for aval in avals:
        others = aval.shape[:dimension] + aval.shape[dimension + 1:]
        if aval.ndim != len(first) or others != first[:dimension] + first[dimension + 1:]:
            shown = ", ".join(str(each.shape) for each in avals)
            raise ShapeError(f"concatenate: arrays of shapes {shown} along axis {dimension}; all other sizes must be "
                             "equal")
    total = sum(aval.shape[dimension] for aval in avals)
    return [Aval((*first[:dimension], total, *first[dimension + 1:]), avals[0].dtype, all_weak(avals))]


def _concatenate_transpose(cotangents: list[Any], inputs: list[Any], *, dimension: int) -> list[Any]:
    sizes = [(value.aval if is_linear(value) else aval_of(value)).shape[dimension] for value in inputs]
    ends = [*accumulate(sizes)]
    return [slice_in_dim(cotangents[0], end - size, end, dimension) if is_linear(value) else None
            for value, size, end in zip(inputs, sizes, ends, strict=True)]


def _concatenate_batch(size: int, values: list[Any], axes: list[int | None], *,
                       dimension: int) -> tuple[list[Any], list[int]]:
    aligned, at = align_batch_axes(size, values, axes)
    return bind(concatenate_p, *aligned, dimension=dimension + (dimension >= at)), [at]


concatenate_p = linear_many(
    "concatenate", abstract=_concatenate_abstract,
    numpy=lambda *arrays, dimension: np.concatenate(arrays, dimension),
    xla=lambda lax, *arrays, dimension: lax.concatenate(arrays, dimension),
    transpose=_concatenate_transpose, batch=_concatenate_batch)


def concatenate(operands: Sequence[Any], dimension: int) -> Any:
    """Return arrays of one dtype joined along an existing axis; a single one unchanged."""
    return operands[0] if len(operands) == 1 else bind(concatenate_p, *operands, dimension=dimension)[0]


@rewrites.register(concatenate_p, when=lambda avals, _: len(avals) == 1)
def _concatenate_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    return inputs if len(inputs) == 1 else None


def _stack_abstract(*avals: Aval, axis: int) -> list[Aval]:
    if not avals:
        raise ShapeError("stack: at least one array is needed")
    check_same_dtype("stack", *avals)
    shape = avals[0].shape
    if any(aval.shape != shape for aval in avals):
        raise ShapeError(f"stack: arrays of shapes {', '.join(str(aval.shape) for aval in avals)}; all must be equal")
    if not 0 <= axis <= len(shape):
        raise ShapeError(f"stack: axis {axis} of a result with {len(shape) + 1} axes")
    return [Aval((*shape[:axis], len(avals), *shape[axis:]), avals[0].dtype, all_weak(avals))]


def _stack_transpose(cotangents: list[Any], inputs: list[Any], *, axis: int) -> list[Any]:
    parts = unstack(cotangents[0], axis)
    return [part if is_linear(value) else None for part, value in zip(parts, inputs, strict=True)]


def _stack_batch(size: int, values: list[Any], axes: list[int | None], *, axis: int) -> tuple[list[Any], list[int]]:
    aligned, at = align_batch_axes(size, values, axes)
    # The new axis comes before the batch axis or after it.
    return bind(stack_p, *aligned, axis=axis + (axis > at)), [at + (axis <= at)]


def _stack_xla(lax: Any, *arrays: Any, axis: int) -> Any:
    """Numbers that are known become one constant: XLA takes long to join hundreds."""
    if all(isinstance(each, np.ndarray | np.generic) for each in arrays):
        return lax.convert_element_type(np.stack(arrays, axis), arrays[0].dtype)
    return lax.stack(arrays, axis)


stack_p = linear_many(
    "stack", abstract=_stack_abstract, numpy=lambda *arrays, axis: np.stack(arrays, axis),
    xla=_stack_xla, transpose=_stack_transpose, batch=_stack_batch)


def stack(operands: Sequence[Any], axis: int) -> Any:
    """Return arrays of one shape and dtype joined along a new axis."""
    return bind(stack_p, *operands, axis=axis)[0]


# --- split, unstack -----------------------------------------------------------------------------------------------


def linear_parts(name: str, *, abstract: Rule, numpy: Rule, xla: Rule, join: Callable[..., Any],
                 batch: Rule) -> Primitive:
    """Return the record of an operation that splits one array; `join(parts, **params)` reassembles it."""
    def jvp(primals: list[Any], tangents: list[Any], **params: Any) -> tuple[list[Any], list[Any]]:
        out = bind(primitive, *primals, **params)
        if type(tangents[0]) is Zero:
            return out, [Zero(aval_of(part)) for part in out]
        return out, bind(primitive, *tangents, **params)

    def transpose_rule(cotangents: list[Any], inputs: list[Any], **params: Any) -> list[Any]:
        return [join([instantiate_zeros(part) for part in cotangents], **params) if cotangents
                else zeros(inputs[0].aval)]

    def cost(aval: Aval, **params: Any) -> Cost:
        return Cost(0, total_bytes([aval], abstract(aval, **params)))

    primitive = register(Primitive(name=name, abstract=abstract, numpy=numpy, xla=xla, jvp=jvp,
                                   transpose=transpose_rule, batch=batch, cost=cost))
    return primitive


def _split_abstract(x: Aval, *, sizes: tuple[int, ...], axis: int) -> list[Aval]:
    check_axes("split", x, (axis,))
    if sum(sizes) != x.shape[axis] or any(size < 0 for size in sizes):
        raise ShapeError(f"split: sizes {sizes} along axis {axis} of an array of shape {x.shape}; they must add up to "
                         f"{x.shape[axis]}")
    return [x.resized(axis, size) for size in sizes]


def _split_numpy(x: Any, *, sizes: tuple[int, ...], axis: int) -> list[Any]:
    before = (slice(None),) * axis
    parts, begin = [], 0
    for size in sizes:
        parts.append(x[(*before, slice(begin, begin + size))])
        begin += size
    return parts


split_p = linear_parts(
    "split", abstract=_split_abstract, numpy=_split_numpy,
    xla=lambda lax, x, *, sizes, axis: list(lax.split(x, sizes, axis)),
    join=lambda parts, *, sizes, axis: concatenate(parts, axis),
    batch=lambda size, values, axes, *, sizes, axis: (
        bind(split_p, *values, sizes=sizes, axis=axis + (axis >= axes[0])), axes * len(sizes)))


def split(x: Any, sizes: Sequence[int], axis: int) -> list[Any]:
    """Return consecutive pieces of `x` along `axis`, of the given sizes."""
    return [x] if len(sizes) == 1 else bind(split_p, x, sizes=tuple(sizes), axis=axis)


@rewrites.register(split_p)
def _split_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    return inputs if len(params["sizes"]) == 1 else None


def _unstack_abstract(x: Aval, *, axis: int) -> list[Aval]:
    check_axes("unstack", x, (axis,))
    return [x.without_axis(axis)] * x.shape[axis]


def _unstack_batch(size: int, values: list[Any], axes: list[int], *, axis: int) -> tuple[list[Any], list[int]]:
    at = axes[0]
    parts = bind(unstack_p, *values, axis=axis + (axis >= at))
    return parts, [at - (axis < at)] * len(parts)


unstack_p = linear_parts(
    "unstack", abstract=_unstack_abstract, numpy=lambda x, *, axis: list(np.moveaxis(x, axis, 0)),
    xla=lambda lax, x, *, axis: list(lax.unstack(x, axis)), join=lambda parts, *, axis: stack(parts, axis),
    batch=_unstack_batch)


def unstack(x: Any, axis: int) -> list[Any]:
    """Return the slices of `x` along `axis`, without that axis."""
    return bind(unstack_p, x, axis=axis)


@rewrites.register(stack_p, when=lambda avals, _: len(avals) == 1)
def _stack_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    """Replace a stack of one array by a reshape."""
    if len(inputs) > 1:
        return None
    shape = aval_of(inputs[0]).shape
    return [reshape(inputs[0], (*shape[:params["axis"]], 1, *shape[params["axis"]:]))]
