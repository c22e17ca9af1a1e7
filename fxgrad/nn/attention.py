"""Attention: dot_product_attention, with masks, biases, lengths of sequences, windows and groups of heads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.core.avals import Shape
from fxgrad.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError, at_user_line
from fxgrad.frontend.operands import as_array, shape_of
from fxgrad.nn.exponentials import logsumexp, softmax
from fxgrad.numpy.arithmetic import add, multiply
from fxgrad.numpy.creation import astype
from fxgrad.numpy.einsum import einsum
from fxgrad.numpy.logic import less, logical_and, where
from fxgrad.ops.arithmetic import stop_gradient
from fxgrad.ops.space import broadcast_to, reshape, transpose
from fxgrad.tracing.tape import aval_of

__all__ = ["dot_product_attention"]


def dot_product_attention(query: Any, key: Any, value: Any, bias: Any = None, mask: Any = None, *,
                          scale: float | None = None, is_causal: bool = False, query_seq_lengths: Any = None,
                          key_value_seq_lengths: Any = None, local_window_size: int | tuple[int, int] | None = None,
                          implementation: str | None = None, return_residual: bool = False) -> Any:
    """The values weighted for each query by the softmax of its products with the keys.

    `query` has the shape ([batch,] queries, heads, size), `key` and `value` have ([batch,] keys, groups, size), where
    heads is a multiple of groups; all have one dtype. The products are scaled by `scale`, by default 1 / sqrt(size),
    and get `bias` added. Both it and `mask` (bool, True where a key counts) are broadcast to ([batch,] heads, queries,
    keys). With `is_causal` a query sees no later key, with `local_window_size` only so many (before, after) it;
    lengths of sequences (int32, one an entry of the batch) leave out the rest. With `return_residual` a pair: the
    result and the logarithms of the sums of exponentials. The softmax is computed in float32. Raises `ShapeError`,
    `DTypeError`, `ArgumentError`, and `UnsupportedError` for the implementation `"cudnn"`.

    Vaswani et al., "Attention is all you need" (2017).

    >>> import numpy as np
    >>> query, key = np.ones((1, 1, 2)), np.array([[[0.0, 0.0]], [[30.0, 30.0]]])
    >>> dot_product_attention(query, key, np.array([[[1.0, 2.0]], [[3.0, 4.0]]]))
    array([[[3., 4.]]])
    """
    if implementation not in (None, "xla"):
        kind = UnsupportedError if implementation == "cudnn" else ArgumentError
        raise kind(at_user_line(f"dot_product_attention: implementation={implementation!r}; None and 'xla' are there"))
    query, key, value = (as_array(each) for each in (query, key, value))
    shape = shape_of(query)
    query, key, value = (_with_batch(each) for each in (query, key, value))
    bias, mask = (None if each is None else _with_batch(as_array(each)) for each in (bias, mask))
    lengths = [None if each is None else as_array(each) for each in (query_seq_lengths, key_value_seq_lengths)]
    _check(query, key, value, bias, mask, lengths)
    window = (local_window_size,) * 2 if isinstance(local_window_size, int) else local_window_size
    logits = _logits(query, key, scale, bias)
    masks = _masks(shape_of(logits), mask, is_causal, window, lengths)
    if masks is not None:
        lowest = -0.7 * float(np.finfo(np.float32).max)
        logits = where(masks, logits, lowest)
    logits = astype(logits, dtypes.float32)
    batch, keys, groups, _ = shape_of(value)
    heads, queries = shape_of(logits)[1:3]
    weights = reshape(astype(softmax(logits), aval_of(key).dtype), (batch, groups, heads // groups, queries, keys))
    result = reshape(einsum("bkgts,bskh->btkgh", weights, value), (batch, queries, heads, shape[-1]))
    if lengths[0] is not None:
        inside = less(np.arange(queries), reshape(lengths[0], (batch, 1)))
        result = multiply(result, astype(reshape(inside, (batch, queries, 1, 1)), aval_of(result).dtype))
    result = reshape(result, shape)
    if not return_residual:
        return result
    sums = transpose(astype(logsumexp(logits, axis=-1), aval_of(key).dtype), (0, 2, 1))
    return result, stop_gradient(reshape(sums, shape[:-1]))


def _with_batch(x: Any) -> Any:
    """`x` with new axes of size 1 in front, so that there are 4."""
    shape = shape_of(x)
    return reshape(x, (1,) * (4 - len(shape)) + shape)


def _check(query: Any, key: Any, value: Any, bias: Any, mask: Any, lengths: list[Any]) -> None:
    def refuse(name: str, shape: Any, needed: str) -> None:
        raise ShapeError(at_user_line(f"dot_product_attention: {name} of shape {shape}; {needed} is needed"))

    keys = shape_of(key)
    if len(keys) != 4:
        refuse("a key", keys, "([batch,] keys, groups, size)")
    if shape_of(value) != keys:
        refuse("a value", shape_of(value), f"the shape {keys} of the key")
    queries = shape_of(query)
    if len(queries) != 4 or queries[0] != keys[0] or queries[3] != keys[3] or queries[2] % keys[2]:
        refuse("a query", queries, f"for a key of shape {keys}: ({keys[0]}, queries, heads, {keys[3]}), the heads a "
               f"multiple of {keys[2]},")
    if not aval_of(query).dtype == aval_of(key).dtype == aval_of(value).dtype:
        shown = ", ".join(aval_of(each).dtype.name for each in (query, key, value))
        raise DTypeError(at_user_line(f"dot_product_attention: query, key and value of dtypes {shown}, which must be "
                                      "equal; convert with x.astype(...)"))
    full = (queries[0], queries[2], queries[1], keys[1])
    for name, each in (("a bias", bias), ("a mask", mask)):
        if each is not None and (len(shape_of(each)) != 4 or any(
                extent not in (1, wanted) for extent, wanted in zip(shape_of(each), full, strict=True))):
            refuse(name, shape_of(each), f"one that broadcasts to (batch, heads, queries, keys) = {full}")
    if mask is not None and aval_of(mask).dtype != dtypes.bool_:
        raise DTypeError(at_user_line(f"dot_product_attention: a mask of dtype {aval_of(mask).dtype.name}; bool is "
                                      "needed: mask != 0, or pass numbers to be added as bias"))
    for each in lengths:
        if each is not None and (shape_of(each) != (keys[0],) or aval_of(each).dtype != dtypes.int32):
            raise ShapeError(at_user_line(f"dot_product_attention: lengths of sequences of type {aval_of(each)}; int32 "
                                          f"and one an entry of the batch, shape {(keys[0],)}, are needed"))


def _logits(query: Any, key: Any, scale: float | None, bias: Any) -> Any:
    """The scaled products, (batch, heads, queries, keys), in float32 where the operands are narrower."""
    (batch, queries, heads, size), (_, keys, groups, _) = shape_of(query), shape_of(key)
    dtype = dtypes.promote((aval_of(query).dtype, False), (dtypes.float32, False))[0]
    grouped = reshape(query, (batch, queries, groups, heads // groups, size))
    products = einsum("btkgh,bskh->bkgts", grouped, key, preferred_element_type=dtype)
    logits = multiply(reshape(products, (batch, heads, queries, keys)), 1 / math.sqrt(size) if scale is None else scale)
    return logits if bias is None else astype(add(logits, bias), dtype)


def _masks(shape: Shape, mask: Any, is_causal: bool, window: tuple[int, int] | None, lengths: list[Any]) -> Any:
    """All masks together, in a shape that broadcasts to that of the logits; None if there is none."""
    batch, _, queries, keys = shape
    at, other = np.arange(queries)[:, None], np.arange(keys)
    masks = [] if mask is None else [mask]
    if is_causal:
        masks.append(other <= at)
    if window is not None:
        before, after = window
        masks.append((at <= other + before) & (at >= other - after))
    for positions, length in ((at, lengths[0]), (other, lengths[1])):
        if length is not None:
            masks.append(less(positions, reshape(length, (batch, 1, 1, 1))))
    if not masks:
        return None
    combined = masks[0]
    for each in masks[1:]:
        combined = logical_and(combined, each)
    return broadcast_to(combined, shape)
