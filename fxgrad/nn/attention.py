"""Attention: dot_product_attention, with masks, biases, lengths of sequences, windows and groups of heads."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import dtypes, tree
from fxgrad.engine.core.avals import Shape
from fxgrad.engine.core.sizes import has_symbolic_dim
from fxgrad.engine.frontend.operands import as_array_operand, operand, shape_of
from fxgrad.engine.higher_order.call import library_function_of_arrays
from fxgrad.engine.higher_order.checkpoint import rematerialize
from fxgrad.engine.ops.arithmetic import stop_gradient
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.ops.structural import broadcast_to, move_axis, reshape, transpose
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from fxgrad.lax.loops import scan
from fxgrad.nn.exponentials import logsumexp, softmax
from fxgrad.numpy.arithmetic import add, multiply, subtract
from fxgrad.numpy.creation import astype
from fxgrad.numpy.einsum import einsum
from fxgrad.numpy.elementwise import sqrt
from fxgrad.numpy.logic import less, less_equal, logical_and, where

__all__ = ["dot_product_attention"]


def dot_product_attention(query: Any, key: Any, value: Any, bias: Any = None, mask: Any = None, *,
                          scale: float | None = None, is_causal: bool = False, query_seq_lengths: Any = None,
                          key_value_seq_lengths: Any = None, local_window_size: int | tuple[int, int] | None = None,
                          implementation: str | None = None, return_residual: bool = False) -> Any:
    """Return for each query the values weighted by the softmax of its products with the keys.

    `query` has the shape ([batch,] queries, heads, size), `key` and `value` have ([batch,] keys, groups, size), where
    heads is a multiple of groups; all have one dtype. The products are scaled by `scale`, by default 1 / sqrt(size),
    and `bias` is added. Both it and `mask` (bool, True where a key counts) are broadcast to ([batch,] heads, queries,
    keys). With `is_causal` a query attends to no later key, with `local_window_size` only to that many (before, after)
    it; sequence lengths (int32, one per entry of the batch) exclude the rest. With `return_residual` the result is a
    pair with the logarithms of the sums of exponentials. The softmax is
    computed in float32, or in float64 for operands of it. Raises `ShapeError`,
    `DTypeError`, `ArgumentError`, and `UnsupportedError` for the implementation `"cudnn"`.

    With the implementation `"chunked"`, which jax lacks, memory is linear in the number of queries: they are processed
    in chunks of `CHUNK`, and reverse mode saves only the operands and recomputes each chunk.

    Vaswani et al., "Attention is all you need" (2017); chunks: Rabe and Staats, "Self-attention does not need O(n^2)
    memory" (2021), without their inner loop over keys.

    >>> import numpy as np
    >>> query, key = np.ones((1, 1, 2)), np.array([[[0.0, 0.0]], [[30.0, 30.0]]])
    >>> dot_product_attention(query, key, np.array([[[1.0, 2.0]], [[3.0, 4.0]]]))
    array([[[3., 4.]]])
    """
    if implementation not in (None, "xla", "chunked"):
        kind = UnsupportedError if implementation == "cudnn" else ArgumentError
        raise kind(at_user_line(
            f"dot_product_attention: implementation={implementation!r}; None, 'xla' and 'chunked' are there"))
    query, key, value = (as_array_operand(each) for each in (query, key, value))
    shape = shape_of(query)
    query, key, value = (_with_batch(each) for each in (query, key, value))
    bias, mask = (None if each is None else _with_batch(as_array_operand(each)) for each in (bias, mask))
    lengths = [None if each is None else as_array_operand(each) for each in (query_seq_lengths, key_value_seq_lengths)]
    _check(query, key, value, bias, mask, lengths)
    window = (local_window_size,) * 2 if isinstance(local_window_size, int) else local_window_size
    window = None if window is None else (int(window[0]), int(window[1]))
    attend = _Attention(scale, bool(is_causal), window, return_residual)
    run = _attend_in_chunks if implementation == "chunked" else _attend_at_once
    result, sums = run(attend, query, key, value, bias, mask, lengths)
    result = reshape(result, shape)
    return (result, stop_gradient(reshape(sums, shape[:-1]))) if return_residual else result


class _Attention(NamedTuple):
    """Attention of some of the queries, those at the positions `at`, to all keys."""

    scale: float | None
    is_causal: bool
    window: tuple[int, int] | None
    with_sums: bool

    def __call__(self, at: Any, query: Any, key: Any, value: Any, bias: Any, mask: Any, lengths: Sequence[Any],
                 ) -> tuple[Any, Any]:
        """Return the result, (batch, queries, heads, size), and the logarithms of the sums, (batch, queries, heads)."""
        logits = _logits(query, key, self.scale, bias)
        masks = _masks(shape_of(logits), at, mask, self.is_causal, self.window, lengths)
        if masks is not None:
            lowest = -0.7 * float(np.finfo(np.float32).max)
            logits = where(masks, logits, lowest)
        batch, keys, groups, size = shape_of(value)
        heads, queries = shape_of(logits)[1:3]
        weights = reshape(astype(softmax(logits), aval_of(key).dtype), (batch, groups, heads // groups, queries, keys))
        result = reshape(einsum("bkgts,bskh->btkgh", weights, value), (batch, queries, heads, size))
        if lengths[0] is not None:
            inside = less(at, reshape(lengths[0], (batch, 1)))
            result = multiply(result, astype(reshape(inside, (batch, queries, 1, 1)), aval_of(result).dtype))
        return result, transpose(astype(logsumexp(logits, axis=-1), aval_of(key).dtype), (0, 2, 1))


CHUNK = 128
"""The number of queries in a chunk."""


def _attend_at_once(attend: _Attention, query: Any, key: Any, value: Any, bias: Any, mask: Any, lengths: Sequence[Any],
                    ) -> tuple[Any, Any]:
    """Attend to all queries together, as one line of a program if the scale is a number."""
    if type(attend.scale) not in (int, float, NoneType):
        return attend(np.arange(shape_of(query)[1]), query, key, value, bias, mask, lengths)
    maybe = {"bias": bias, "mask": mask, "query_seq_lengths": lengths[0], "key_value_seq_lengths": lengths[1]}
    there = {name: each for name, each in maybe.items() if each is not None}
    made = _line(query, key, value, *there.values(), given=tuple(there), **attend._asdict())
    return made if attend.with_sums else (made, None)


@functools.partial(library_function_of_arrays, name="dot_product_attention")
def _line(query: Any, key: Any, value: Any, *more: Any, given: tuple[str, ...], **settings: Any) -> Any:
    parts = dict(zip(given, more, strict=True))
    at, attend = iota(dtypes.int64, (shape_of(query)[1],)), _Attention(**settings)
    lengths = [parts.get("query_seq_lengths"), parts.get("key_value_seq_lengths")]
    result, sums = attend(at, query, key, value, parts.get("bias"), parts.get("mask"), lengths)
    return (result, sums) if attend.with_sums else result


def _attend_in_chunks(attend: _Attention, query: Any, key: Any, value: Any, bias: Any, mask: Any,
                      lengths: Sequence[Any],
                      ) -> tuple[Any, Any]:
    """Attend chunk by chunk; each chunk is recomputed for its derivative."""
    queries = shape_of(query)[1]
    whole = queries // CHUNK * CHUNK
    if whole < 2 * CHUNK:
        whole = 0
    cut = [None if each is None or shape_of(each)[2] == 1 else each for each in (bias, mask)]  # along the queries
    shared = [None if kept is not None else each for kept, each in zip(cut, (bias, mask), strict=True)]

    def chunk(at: Any, query: Any, *cuts: Any) -> tuple[Any, Any]:
        given = [each if kept is None else kept for kept, each in zip(cuts, shared, strict=True)]
        leaves, structure = tree.flatten((at, query, key, value, *given, lengths))
        result, sums = rematerialize(lambda *inner: attend(*tree.unflatten(structure, inner)), leaves, "chunk")
        return result, sums

    def of(first: int, last: int) -> list[Any]:
        return [None if each is None else slice_in_dim(each, first, last, 2) for each in cut]

    parts = []
    if whole:
        xs = (np.arange(whole).reshape(-1, CHUNK), _split_chunks(slice_in_dim(query, 0, whole, 1), 1),
              *(None if each is None else _split_chunks(each, 2) for each in of(0, whole)))
        _, stacks = scan(lambda carry, entries: (carry, chunk(*entries)), None, xs)
        parts.append([_join_chunks(stack) for stack in stacks])
    if whole < queries or not queries:
        parts.append([*chunk(np.arange(whole, queries), slice_in_dim(query, whole, queries, 1), *of(whole, queries))])
    result, sums = (each[0] if len(each) == 1 else concatenate(each, 1) for each in zip(*parts, strict=True))
    return result, sums


def _split_chunks(x: Any, axis: int) -> Any:
    """Split an axis into chunks, along a new first axis."""
    shape = shape_of(x)
    return move_axis(reshape(x, (*shape[:axis], shape[axis] // CHUNK, CHUNK, *shape[axis + 1:])), axis, 0)


def _join_chunks(x: Any) -> Any:
    """Return chunks, (number, batch, CHUNK, ...), one after the other along axis 1."""
    number, batch, size, *rest = shape_of(x)
    return reshape(move_axis(x, 0, 1), (batch, number * size, *rest))


def _with_batch(x: Any) -> Any:
    """Return `x` with axes of size 1 added in front, up to 4 axes."""
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
    """Return the scaled products, (batch, heads, queries, keys), in float32 if the operands are narrower."""
    (batch, queries, heads, size), (_, keys, groups, _) = shape_of(query), shape_of(key)
    dtype = dtypes.promote((aval_of(query).dtype, False), (dtypes.float32, False))[0]
    grouped = reshape(query, (batch, queries, groups, heads // groups, size))
    products = einsum("btkgh,bskh->bkgts", grouped, key, preferred_element_type=dtype)
    if scale is None:
        scale = 1 / sqrt(operand(size)) if has_symbolic_dim(size) else 1 / math.sqrt(size)
    logits = multiply(reshape(products, (batch, heads, queries, keys)), scale)
    return logits if bias is None else astype(add(logits, bias), dtype)


def _masks(shape: Shape, at: Any, mask: Any, is_causal: bool, window: tuple[int, int] | None, lengths: Sequence[Any],
           ) -> Any:
    """Return all masks combined, in a shape that broadcasts to that of the logits; None if there is none."""
    batch, _, queries, keys = shape
    at, other = reshape(at, (queries, 1)), iota(dtypes.int64, (keys,))
    masks = [] if mask is None else [mask]
    if is_causal:
        masks.append(less_equal(other, at))
    if window is not None:
        before, after = window
        masks.append(logical_and(less_equal(at, add(other, before)), less_equal(subtract(other, after), at)))
    for positions, length in ((at, lengths[0]), (other, lengths[1])):
        if length is not None:
            masks.append(less(positions, reshape(length, (batch, 1, 1, 1))))
    if not masks:
        return None
    combined = masks[0]
    for each in masks[1:]:
        combined = logical_and(combined, each)
    return broadcast_to(combined, shape)
