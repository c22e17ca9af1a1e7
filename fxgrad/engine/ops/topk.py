"""The greatest elements along an axis, and their positions: top_k."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import NOT_LINEAR, Cost, Primitive, register, total_bytes
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.ops.families import check_axes, check_kind
from fxgrad.engine.ops.indexing import take_along
from fxgrad.engine.ops.structural import is_negative
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import ShapeError

COVERED_BY = {
    "approx_top_k": "top_k: an exact result satisfies every recall that is asked for",
}
"""jax's primitives of this family without a counterpart in fxgrad, and their replacements."""


def _top_k_abstract(x: Aval, *, k: int, axis: int) -> list[Aval]:
    check_kind("top_k", "ordered", x)
    check_axes("top_k", x, (axis,))
    if is_negative(k) or is_negative(x.shape[axis] - k):
        raise ShapeError(f"top_k: k={k} of an axis of size {x.shape[axis]} (axis {axis} of shape {x.shape}); a number "
                         f"from 0 to {x.shape[axis]} is needed")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1:])
    return [x.update(shape=shape), Aval(shape, dtypes.int32)]


def _descending_keys(x: Any) -> Any:
    """Return integers that decrease with the total order of elements: NaN, inf, ..., 0, -0, ..., -inf, -NaN."""
    if not dtypes.is_floating(x.dtype):
        return ~x
    if x.dtype.itemsize == 1:
        # Dtypes without -0 use its bits for their NaN, which NumPy converts to a negative one and XLA to a positive
        # one.
        unsigned = x.dtype.name.endswith("fnuz")
        x = x.astype(np.float32)
        x = np.where(np.isnan(x), np.abs(x), x) if unsigned else x
    signed = np.dtype(f"i{x.dtype.itemsize}")
    bits = np.ascontiguousarray(x).view(signed)
    ordered = bits ^ ((bits >> (8 * signed.itemsize - 1)) & np.iinfo(signed).max)
    return ~ordered


def _top_k_numpy(x: Any, *, k: int, axis: int) -> list[Any]:
    _top_k_abstract(Aval(x.shape, x.dtype), k=k, axis=axis)
    keys = _descending_keys(x)
    size = x.shape[axis]
    if 0 < k < size // 8:
        # The k-th least key splits the axis: ties with it are settled by position, in one more pass.
        bound = np.take(np.partition(keys, k - 1, axis), [k - 1], axis)
        spare = k - np.sum(keys < bound, axis, keepdims=True)
        is_tied = keys == bound
        chosen = (keys < bound) | (is_tied & (np.cumsum(is_tied, axis) <= spare))
        last = np.moveaxis(chosen, axis, -1)
        found = np.nonzero(last)[-1].reshape(*last.shape[:-1], k)
        places = np.moveaxis(found, -1, axis)
        order = np.argsort(np.take_along_axis(keys, places, axis), axis, kind="stable")
        places = np.take_along_axis(places, order, axis)
    else:
        order = np.argsort(keys, axis, kind="stable")
        places = np.take(order, np.arange(k), axis)
    return [np.take_along_axis(x, places, axis), places.astype(np.int32)]


def _top_k_jvp(primals: list[Any], tangents: list[Any], *, k: int, axis: int) -> tuple[list[Any], list[Any]]:
    """Take tangents from the positions of the primals."""
    values, places = top_k(primals[0], k, axis)
    moved = take_along(tangents[0], places, axis, mode="promise_in_bounds", promises=("unique",))
    return [values, places], [moved, Zero(aval_of(places))]


def _top_k_cost(x: Aval, *, k: int, axis: int) -> Cost:
    return Cost(x.size * max(k, 1).bit_length(), total_bytes([x], _top_k_abstract(x, k=k, axis=axis)))


def _top_k_xla(lax: Any, x: Any, *, k: int, axis: int) -> list[Any]:
    narrow = dtypes.is_floating(x.dtype) and x.dtype.itemsize == 1  # as for `sort`
    values, places = lax.top_k(lax.convert_element_type(x, np.float32) if narrow else x, k, axis=axis)
    return [lax.convert_element_type(values, x.dtype) if narrow else values, places]


top_k_p = register(Primitive(
    name="top_k", abstract=_top_k_abstract, numpy=_top_k_numpy,
    xla=_top_k_xla,
    jvp=_top_k_jvp, transpose=NOT_LINEAR,
    batch=lambda size, values, axes, *, k, axis: (
        top_k(values[0], k, axis + (axis >= axes[0])), [axes[0], axes[0]]),
    cost=_top_k_cost))


def top_k(x: Any, k: int, axis: int) -> list[Any]:
    """Return the `k` greatest elements along `axis` in descending order, and their positions (int32).

    NaNs are the greatest, -0 is less than 0, and of equal elements the first comes first.
    """
    return bind(top_k_p, x, k=k, axis=axis)
