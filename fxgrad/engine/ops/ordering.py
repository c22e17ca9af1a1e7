"""Sorting: a stable sort of several arrays by one or more keys."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import NOT_LINEAR, Cost, Primitive, register, total_bytes
from fxgrad.engine.core.sizes import surely_less
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.ops.families import check_axes
from fxgrad.engine.ops.indexing import take_along
from fxgrad.engine.ops.joining import align_batch_axes
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import ArgumentError, ShapeError


def _sort_abstract(*operands: Aval, dimension: int, num_keys: int) -> list[Aval]:
    if not 1 <= num_keys <= len(operands):
        raise ArgumentError(f"sort: {num_keys} keys of {len(operands)} arrays; at least 1 and at most all are needed")
    if any(operand.shape != operands[0].shape for operand in operands):
        raise ShapeError(f"sort: shapes {' and '.join(str(operand.shape) for operand in operands)} differ; "
                         "arrays that are sorted together have equal shapes")
    check_axes("sort", operands[0], (dimension,))
    return list(operands)


def _ordered_parts(x: Any) -> list[Any]:
    """Return the sort keys, in order: parts of complex numbers with NaNs, which NumPy puts last as wholes."""
    return [x.real, x.imag] if x.dtype.kind == "c" and np.isnan(x).any() else [x]


def _sort_numpy(*operands: Any, dimension: int, num_keys: int) -> list[Any]:
    # NumPy does not sort the NaNs of narrow floats last.
    comparable = [operand.astype(np.float32) if operand.dtype.itemsize < 4 and dtypes.is_floating(operand.dtype)
                  else operand for operand in operands[:num_keys]]
    keys = [part for operand in comparable for part in _ordered_parts(operand)]
    if len(operands) == len(keys) == 1:
        return [np.sort(keys[0], axis=dimension, kind="stable").astype(operands[0].dtype, copy=False)]
    if len(keys) == 1:
        order = np.argsort(keys[0], axis=dimension, kind="stable")
    else:
        order = np.lexsort(keys[::-1], axis=dimension)
    if order.ndim == 1:
        return [operand[order] for operand in operands]
    index: list[Any] = [*np.indices(order.shape, sparse=True)]
    index[dimension] = order
    return [operand[tuple(index)] for operand in operands]


def _sort_xla(lax: Any, *operands: Any, dimension: int, num_keys: int) -> list[Any]:
    """Sort floats of a byte as float32: some of their NaNs have a sign, and XLA would put those first."""
    wide = [lax.convert_element_type(operand, np.float32) if dtypes.is_floating(operand.dtype) and
            operand.dtype.itemsize == 1 else operand for operand in operands]
    by_comparison = functools.partial(_sorted, lax, dimension, num_keys)
    few = isinstance(operands[0].size, int) and operands[0].size < _FEW
    if num_keys == 1 and dtypes.is_floating(operands[0].dtype) and not few:
        ordered = lax.platform_dependent(*wide, cpu=functools.partial(_sort_floats, lax, dimension),
                                         default=by_comparison)
    else:
        ordered = by_comparison(*wide)
    return [lax.convert_element_type(each, operand.dtype) if each.dtype != operand.dtype else each
            for each, operand in zip(ordered, operands, strict=True)]


_FEW = 1000
"""Fewer numbers are compared as they are: two sorts to choose from take longer to compile."""


def _sorted(lax: Any, dimension: int, num_keys: int, *operands: Any) -> Any:
    return lax.sort(operands, dimension=dimension, is_stable=True, num_keys=num_keys)


def _sort_floats(lax: Any, dimension: int, key: Any, *others: Any) -> Any:
    """Sort floats, and arrays along with them, by the bits as integers, which XLA compares faster on CPUs.

    Those have the order of the numbers if the lower bits of negative ones are flipped. Only zeros of both signs, which
    are equal and stay in order, have to be compared as floats.
    """
    integer = np.dtype(f"int{8 * key.dtype.itemsize}")
    least, greatest = np.iinfo(integer).min, np.iinfo(integer).max

    def flip(bits: Any) -> Any:
        """Flip the lower bits of negative integers; twice changes nothing."""
        sign = lax.shift_right_arithmetic(bits, lax.full_like(bits, 8 * integer.itemsize - 1))
        return lax.bitwise_xor(bits, lax.bitwise_and(sign, lax.full_like(sign, greatest)))

    def by_bits() -> Any:
        first, *moved = _sorted(lax, dimension, 1, flip(bits), *others)
        return lax.bitcast_convert_type(flip(first), key.dtype), *moved

    bits = lax.bitcast_convert_type(lax.select(lax.ne(key, key), lax.full_like(key, np.nan), key), integer)
    negative_zeros = lax.eq(lax.reduce_min(bits, tuple(range(key.ndim))), integer.type(least))
    return lax.cond(negative_zeros, lambda: tuple(_sorted(lax, dimension, 1, key, *others)), by_bits)


def _sort_jvp(primals: list[Any], tangents: list[Any], *, dimension: int,
              num_keys: int) -> tuple[list[Any], list[Any]]:
    """Move tangents with their primals: positions are sorted along, and address them."""
    positions = iota(dtypes.int32, aval_of(primals[0]).shape, dimension)
    *outs, order = sort([*primals, positions], dimension, num_keys)

    def moved(tangent: Any) -> Any:
        if type(tangent) is Zero:
            return tangent
        return take_along(tangent, order, dimension, mode="promise_in_bounds", promises=("unique",))

    return outs, list(map(moved, tangents))


def _sort_batch(size: int, values: list[Any], axes: list[int | None], *, dimension: int,
                num_keys: int) -> tuple[list[Any], list[int]]:
    alike, at = align_batch_axes(size, values, axes)
    return sort(alike, dimension + (dimension >= at), num_keys), [at] * len(values)


def _sort_cost(*operands: Aval, dimension: int, num_keys: int) -> Cost:
    rounds = max(operands[0].shape[dimension] - 1, 0).bit_length()
    return Cost(num_keys * operands[0].size * rounds, total_bytes(operands, operands))


sort_p = register(Primitive(
    name="sort", abstract=_sort_abstract, numpy=_sort_numpy, xla=_sort_xla, jvp=_sort_jvp, transpose=NOT_LINEAR,
    batch=_sort_batch, cost=_sort_cost))


def sort(operands: Sequence[Any], dimension: int, num_keys: int = 1) -> list[Any]:
    """Return the arrays in the order that sorts the first `num_keys` of them; the first one is the primary key.

    The sort is stable, NaNs come last, and -0 equals 0; complex numbers are compared by their real parts, and where
    those are equal or both NaN by their imaginary parts.
    """
    return bind(sort_p, *operands, dimension=dimension, num_keys=num_keys)


def argsort(x: Any, axis: int) -> Any:
    """Return the positions (int32) that sort `x` along `axis`, equal elements in their original order."""
    return sort([x, iota(dtypes.int32, aval_of(x).shape, axis)], axis)[1]


@rewrites.register(sort_p)
def _sort_rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
    extent = aval_of(inputs[0]).shape[params["dimension"]]
    return list(inputs) if surely_less(extent, 2) else None
