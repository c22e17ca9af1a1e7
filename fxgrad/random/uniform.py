"""Random bits, and uniform numbers: bits uniform randint bernoulli rademacher."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Shape
from fxgrad.engine.dtypes import DType
from fxgrad.engine.frontend.operands import as_array_operand, as_new_shape
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.ops.arithmetic import add, mul, rem, sub
from fxgrad.engine.ops.arithmetic import max as maximum
from fxgrad.engine.ops.arithmetic import min as minimum
from fxgrad.engine.ops.comparison import and_, gt, le, lt, or_, shift_right_logical
from fxgrad.engine.ops.creation import bitcast_convert_type
from fxgrad.engine.ops.joining import unstack
from fxgrad.engine.ops.random import random_bits_p
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError
from fxgrad.random.keys import (
    as_parameter,
    chosen_dtype,
    drawn_shape,
    float_dtype,
    int_dtype,
    one_key,
    own_dtype,
    subkeys,
)


def raw_bits(key: Any, shape: Shape, bit_width: int) -> Any:
    """Return random bits of a typed key."""
    return bind(random_bits_p, key, shape=shape, bit_width=bit_width)[0]


def bits(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return random bits as unsigned integers of `dtype`, by default uint32; its width may be 8, 16, 32 or 64 bits.

    Raises `ArgumentError` for an invalid key, `DTypeError` for a dtype that is not unsigned.

    >>> import fxgrad
    >>> fxgrad.random.bits(fxgrad.random.key(0), (2,))
    array([4070199207, 4202968722], dtype=uint32)
    """
    if out_sharding is not None:
        return place_array("bits", bits(key, shape, dtype), out_sharding)
    key = one_key("bits", key)
    chosen = chosen_dtype("bits", dtype, np.dtype(np.uint32))
    if dtypes.kind_of(chosen) != "u":
        raise DTypeError(at_user_line(f"bits: dtype={chosen.name}, where an unsigned dtype is needed, such as "
                                      "'uint32'"))
    return raw_bits(key, as_new_shape("bits", shape), 8 * chosen.itemsize)


def unit_draws(key: Any, shape: Shape, dtype: DType) -> Any:
    """Return numbers in [0, 1) for a typed key: bits become the mantissa of numbers in [1, 2), minus 1."""
    limits = dtypes.finfo(dtype)
    if limits.bits < 8:
        raise DTypeError(at_user_line(f"random: no numbers of {dtype.name} are drawn, of which there are too few. Draw "
                                      "them in float32 and convert them"))
    width = limits.bits
    drawn = 8 if limits.nmant < 8 else width  # the bits of narrow mantissas
    unsigned = np.dtype(f"uint{width}")
    words = convert(raw_bits(key, shape, drawn), unsigned)
    mantissa = shift_right_logical(words, drawn - limits.nmant)
    one = int(np.ones((), dtype).view(unsigned))
    return sub(bitcast_convert_type(or_(mantissa, one), dtype), 1.0)


def between_bounds(key: Any, shape: Shape, dtype: DType, low: Any, high: Any) -> Any:
    """Return numbers from `low` up to `high`, which are of `dtype`, of a typed key."""
    return maximum(low, add(mul(unit_draws(key, shape, dtype), sub(high, low)), low))


def uniform(key: Any, shape: Any = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0,
            *, out_sharding: Any = None) -> Any:
    """Return numbers from `minval` (included) to `maxval` (excluded), all equally likely, of a floating dtype.

    The limits broadcast to `shape`. Raises `ArgumentError` for an invalid key, `DTypeError` for other dtypes.

    >>> import fxgrad
    >>> fxgrad.random.uniform(fxgrad.random.key(0), (2,))
    array([0.947667 , 0.9785799], dtype=float32)
    """
    if out_sharding is not None:
        return place_array("uniform", uniform(key, shape, dtype, minval, maxval), out_sharding)
    key, dtype, shape = one_key("uniform", key), float_dtype("uniform", dtype), as_new_shape("uniform", shape)
    low, high = as_parameter(minval, dtype), as_parameter(maxval, dtype)
    drawn_shape("uniform", shape, low, high)
    if _is_number(minval, 0) and _is_number(maxval, 1):
        return unit_draws(key, shape, dtype)
    return between_bounds(key, shape, dtype, low, high)


def _is_number(value: Any, number: float) -> bool:
    return type(value) in (int, float) and value == number


# --- integers -----------------------------------------------------------------------------------------------------


def _clip_and_convert(value: Any, dtype: DType) -> Any:
    """Return an integer clipped to the range of `dtype`, and converted."""
    own, wanted = dtypes.iinfo(aval_of(value).dtype), dtypes.iinfo(dtype)
    if own.min < wanted.min:
        value = maximum(value, wanted.min)
    if own.max > wanted.max:
        value = minimum(value, wanted.max)
    return convert(value, dtype)


def _limit(value: Any) -> Any:
    value = as_array_operand(value)
    return value if dtypes.is_integer(aval_of(value).dtype) else convert(value, dtypes.int32)


def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return integers from `minval` (included) to `maxval` (excluded), of an integer dtype, by default int32.

    The limits broadcast to `shape`; if there is no number between them, the result is `minval`. All numbers are equally
    likely up to one part in 2^32 (for int32). Raises `ArgumentError` for an invalid key, `DTypeError` for other dtypes.

    >>> import fxgrad
    >>> fxgrad.random.randint(fxgrad.random.key(0), (5,), 0, 10)
    array([9, 0, 2, 3, 1], dtype=int32)
    """
    if out_sharding is not None:
        return place_array("randint", randint(key, shape, minval, maxval, dtype), out_sharding)
    key, wanted, shape = one_key("randint", key), int_dtype("randint", dtype), as_new_shape("randint", shape)
    low, high = _limit(minval), _limit(maxval)
    drawn_shape("randint", shape, low, high)
    if wanted.itemsize >= 4:
        return _integers(key, shape, low, high, wanted)
    limits = dtypes.iinfo(wanted)
    low, high = (minimum(maximum(convert(value, dtypes.int32), int(limits.min)), int(limits.max) + added)
                 for value, added in ((low, 0), (high, 1)))
    return convert(_integers(key, shape, low, high, dtypes.int32), wanted)


def _integers(key: Any, shape: Shape, low: Any, high: Any, dtype: DType) -> Any:
    """Return remainders of numbers of twice the width, in two halves, so equally likely to one part in 2^n."""
    beyond = False
    if dtypes.iinfo(aval_of(high).dtype).max > dtypes.iinfo(dtype).max:
        beyond = gt(high, int(dtypes.iinfo(dtype).max))
    low, high = _clip_and_convert(low, dtype), _clip_and_convert(high, dtype)
    width = 8 * dtype.itemsize
    unsigned = np.dtype(f"uint{width}")
    above, below = (raw_bits(part, shape, width) for part in subkeys(key))
    span = convert(sub(high, low), unsigned)
    span = where(le(high, low), 1, span)
    if beyond is not False:  # the whole range: 2^n is 0 here, and the remainder by 0 changes nothing
        span = where(and_(beyond, gt(high, low)), add(span, 1), span)
    factor = rem(unsigned.type(2 ** (width // 2)), span)
    factor = rem(mul(factor, factor), span)
    offset = rem(add(mul(rem(above, span), factor), rem(below, span)), span)
    return add(low, convert(offset, dtype))


# --- coins --------------------------------------------------------------------------------------------------------


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low", *, out_sharding: Any = None) -> Any:
    """Return bools that are True with probability `p`, of its shape or of `shape`, to which it broadcasts.

    `mode="high"` draws twice as many bits, for probabilities near 0. Raises `ArgumentError` for an invalid key,
    `DTypeError` for a `p` that is not floating.

    >>> import fxgrad
    >>> fxgrad.random.bernoulli(fxgrad.random.key(0), 0.5, (3,))
    array([False, False,  True])
    """
    if out_sharding is not None:
        return place_array("bernoulli", bernoulli(key, p, shape, mode), out_sharding)
    key = one_key("bernoulli", key)
    if mode not in ("low", "high"):
        raise ArgumentError(at_user_line(f"bernoulli: mode must be 'low' or 'high', got {mode!r}"))
    dtype = own_dtype(p)
    if not dtypes.is_floating(dtype):
        raise DTypeError(at_user_line(f"bernoulli: p is {aval_of(as_array_operand(p))}, where a floating dtype is "
                                      "needed"))
    p = as_parameter(p, dtype)
    shape = drawn_shape("bernoulli", shape, p)
    if mode == "low":
        return lt(unit_draws(key, shape, dtype), p)
    first, second = unstack(unit_draws(key, (2, *shape), dtype), 0)
    return lt(mul(second, 2.0 ** -dtypes.finfo(dtype).nmant), sub(p, first))


def rademacher(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return numbers that are 1 or -1, equally likely, by default of dtype int32.

    >>> import fxgrad
    >>> fxgrad.random.rademacher(fxgrad.random.key(0), (3,))
    array([-1, -1,  1], dtype=int32)
    """
    if out_sharding is not None:
        return place_array("rademacher", rademacher(key, shape, dtype), out_sharding)
    key = one_key("rademacher", key)
    chosen = chosen_dtype("rademacher", dtype, dtypes.int32)
    return sign_draws(key, as_new_shape("rademacher", shape), chosen)


def sign_draws(key: Any, shape: Shape, dtype: DType) -> Any:
    """Return 1 or -1, of a typed key; in unsigned integers -1 is the greatest number, as in jax."""
    heads = lt(unit_draws(key, shape, dtypes.default_float()), 0.5)
    return where(heads, dtype.type(1), np.asarray(-1).astype(dtype)[()])
