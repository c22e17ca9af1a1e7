"""Choices and counts: categorical choice permutation poisson binomial multinomial geometric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Shape
from fxgrad.engine.frontend.operands import as_array_operand, as_new_shape, axis_of, promote_inexact, shape_of
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.ops.arithmetic import add, div, mul, neg, sub
from fxgrad.engine.ops.arithmetic import max as maximum
from fxgrad.engine.ops.arithmetic import min as minimum
from fxgrad.engine.ops.comparison import eq
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.ops.cumulative import cumsum
from fxgrad.engine.ops.exponential import log, log1p
from fxgrad.engine.ops.ordering import argsort, sort
from fxgrad.engine.ops.parts import floor
from fxgrad.engine.ops.random import random_split_p
from fxgrad.engine.ops.reductions import argmax
from fxgrad.engine.ops.samplers import random_binomial_p, random_poisson_p
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.ops.structural import broadcast_to, convert, move_axis, reshape, transpose
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.lax.loops import scan
from fxgrad.numpy.ordering import searchsorted
from fxgrad.numpy.rearranging import take
from fxgrad.random.continuous import gumbel_draws
from fxgrad.random.keys import (
    as_parameter,
    drawn_shape,
    float_dtype,
    int_dtype,
    one_key,
    own_dtype,
    positive_int,
    spread_parameter,
    subkeys,
)
from fxgrad.random.uniform import randint, raw_bits, unit_draws

# --- orders -------------------------------------------------------------------------------------------------------


def _shuffle(key: Any, x: Any, axis: int) -> Any:
    """Return `x` sorted by random words along `axis`, so often that equal words hardly matter."""
    size = math.prod(shape_of(x))
    for _ in range(math.ceil(3 * math.log(size) / math.log(2**32 - 1)) if size > 1 else 0):
        key, subkey = subkeys(key)
        x = sort([raw_bits(subkey, shape_of(x), 32), x], axis)[1]
    return x


def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False, *, out_sharding: Any = None) -> Any:
    """Return `x` in random order along `axis`; for an integer, the numbers below it in random order.

    Slices stay together unless `independent`, with which every line along `axis` has an order of its own. Raises
    `ArgumentError` for an invalid key, and for a scalar that is not an integer.

    >>> import fxgrad
    >>> fxgrad.random.permutation(fxgrad.random.key(0), 4)
    array([0, 1, 3, 2], dtype=int32)
    """
    if out_sharding is not None:
        return place_array("permutation", permutation(key, x, axis, independent), out_sharding)
    key, array = one_key("permutation", key), as_array_operand(x)
    if not shape_of(array):
        count = positive_int("permutation", "a scalar x", x)
        axis_of("permutation", axis, 1)
        return _shuffle(key, iota(dtypes.int32, (count,)), 0)
    axis = axis_of("permutation", axis, len(shape_of(array)))
    if independent or len(shape_of(array)) == 1:
        return _shuffle(key, array, axis)
    return take(array, _shuffle(key, iota(dtypes.int32, (shape_of(array)[axis],)), 0), axis)


def choice(key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0,
           mode: str | None = None) -> Any:
    """Return elements of `a` along `axis` (of the numbers below it, if it is an integer), with probabilities `p`.

    Without `replace` no element is chosen twice. `mode` is that of `gumbel`, for choices without `replace`. Raises
    `ArgumentError` for an invalid key, and `ShapeError` if there are too few elements, or a different number of them
    than of `p`.

    >>> import fxgrad
    >>> fxgrad.random.choice(fxgrad.random.key(0), 10, (4,), replace=False).shape
    (4,)
    """
    key, array = one_key("choice", key), as_array_operand(a)
    if not isinstance(shape, Sequence):
        raise ArgumentError(at_user_line(f"choice: shape must be a tuple, got {shape!r}; write ({shape},)"))
    shape, own = as_new_shape("choice", shape), shape_of(array)
    axis = axis_of("choice", axis, len(own)) if own else 0
    count, draws = own[axis] if own else positive_int("choice", "a scalar a", a), math.prod(shape)
    if not draws:
        return np.zeros(shape, aval_of(array).dtype if own else dtypes.int32)
    if not count or (not replace and draws > count):
        raise ShapeError(at_user_line(f"choice: {draws} draws from {count} elements"
                                      f"{'' if replace else ' without replacement'}; there are too few"))
    if p is None and not replace:
        chosen = permutation(key, array if own else count, axis)
        result = slice_in_dim(chosen, 0, draws, axis)
    else:
        positions = randint(key, shape, 0, count) if p is None else _weighted_choice(key, p, count, shape, replace,
                                                                                     mode)
        result = take(array, positions, axis) if own else positions
    return reshape(result, (*own[:axis], *shape, *own[axis + 1:]))


def _weighted_choice(key: Any, p: Any, count: int, shape: Shape, replace: bool, mode: str | None) -> Any:
    p, = promote_inexact(as_array_operand(p))
    dtype = own_dtype(p)
    p = as_parameter(p, dtype)
    if shape_of(p) != (count,):
        raise ShapeError(at_user_line(f"choice: p has the shape {shape_of(p)}, where a vector with the probabilities "
                                      f"of {count} elements is needed"))
    if not replace:
        ranks = add(gumbel_draws(key, (count,), dtype, mode), log(p))
        return slice_in_dim(argsort(neg(ranks), 0), 0, math.prod(shape), 0)
    sums = cumsum(p, 0)
    total = reshape(slice_in_dim(sums, count - 1, count, 0), ())
    return convert(searchsorted(sums, mul(total, sub(1.0, unit_draws(key, shape, dtype)))), dtypes.int32)


def categorical(key: Any, logits: Any, axis: int = -1, shape: Any = None, replace: bool = True,
                mode: str | None = None, *, out_sharding: Any = None) -> Any:
    """Return positions along `axis`, each with a probability in proportion to exp(logits); of dtype int32.

    `shape` ends in that of `logits` without `axis`; the axes before it are repeated draws, all different unless
    `replace`. `mode` is that of `gumbel`. Raises `ArgumentError` for an invalid key, `ShapeError` for other shapes.

    >>> import fxgrad, numpy as np
    >>> int(fxgrad.random.categorical(fxgrad.random.key(0), np.array([-np.inf, 0.0, -np.inf])))
    1
    """
    if out_sharding is not None:
        return place_array("categorical", categorical(key, logits, axis, shape, replace, mode), out_sharding)
    key, logits = one_key("categorical", key), promote_inexact(as_array_operand(logits))[0]
    own = shape_of(logits)
    axis = axis_of("categorical", axis, len(own))
    rest = (*own[:axis], *own[axis + 1:])
    shape = rest if shape is None else as_new_shape("categorical", shape)
    prefix = shape[:len(shape) - len(rest)]
    if shape[len(prefix):] != rest:
        raise ShapeError(at_user_line(f"categorical: shape={shape} for logits of shape {own}; it must end in {rest}, "
                                      "their shape without the axis that is chosen from"))
    dtype = aval_of(logits).dtype
    if replace:
        noise = gumbel_draws(key, (*prefix, *own), dtype, mode)
        return argmax(add(noise, logits), len(prefix) + axis)
    count = math.prod(prefix)
    if count > own[axis]:
        raise ShapeError(at_user_line(f"categorical: {count} draws from {own[axis]} categories without replacement; "
                                      "there are too few"))
    noisy = move_axis(add(logits, gumbel_draws(key, own, dtype, mode)), axis, len(rest))
    chosen = slice_in_dim(argsort(neg(noisy), len(rest)), 0, count, len(rest))
    return reshape(transpose(chosen, (len(rest), *range(len(rest)))), shape)


# --- counts -------------------------------------------------------------------------------------------------------


def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Count of the Poisson distribution of rate `lam`, of an integer dtype, by default int32.

    The numbers are jax's for rates below 10^4; from there on they are normal numbers corrected by Cornish and Fisher's
    expansion, since a rejection in float32 loses its digits. Counts beyond the dtype are its greatest number. Raises
    `ArgumentError` for an invalid key, `DTypeError` for other dtypes.

    >>> import fxgrad
    >>> int(fxgrad.random.poisson(fxgrad.random.key(0), 0.0))
    0
    """
    if out_sharding is not None:
        return place_array("poisson", poisson(key, lam, shape, dtype), out_sharding)
    key, dtype = one_key("poisson", key), int_dtype("poisson", dtype)
    shape = drawn_shape("poisson", shape, lam)
    return bind(random_poisson_p, key, spread_parameter(lam, shape, dtypes.float32), dtype=dtype)[0]


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Return the number of successes in `n` trials of probability `p`: whole numbers of a floating dtype.

    The numbers are jax's for `n` below 3 · 10^6, and for more as those of `poisson` of large rates. Raises
    `ArgumentError` for an invalid key, `DTypeError` for other dtypes.

    >>> import fxgrad
    >>> float(fxgrad.random.binomial(fxgrad.random.key(0), 5, 1.0))
    5.0
    """
    key, dtype = one_key("binomial", key), float_dtype("binomial", dtype)
    drawn, inner = drawn_shape("binomial", shape, n, p), dtypes.inexact_dtype(own_dtype(p))
    return bind(random_binomial_p, key, spread_parameter(n, drawn, inner), spread_parameter(p, drawn, inner),
                dtype=dtype)[0]


def multinomial(key: Any, n: Any, p: Any, *, shape: Any = None, dtype: Any = None, unroll: int | bool = 1) -> Any:
    """Return how many of `n` draws are in each category (the last axis), of probabilities `p`.

    `shape` is that of the result, by default that of `p`. Raises `ArgumentError` for an invalid key, `DTypeError` for
    dtypes that are not floating. The categories are the steps of a loop; `unroll` is that of `scan`.

    >>> import fxgrad, numpy as np
    >>> float(np.sum(fxgrad.random.multinomial(fxgrad.random.key(0), 10, np.array([0.2, 0.3, 0.5]))))
    10.0
    """
    key, wanted = one_key("multinomial", key), float_dtype("multinomial", dtype)
    inner = dtypes.inexact_dtype(own_dtype(n, p))
    shape = drawn_shape("multinomial", shape_of(as_array_operand(p)) if shape is None else shape, p)
    if not shape:
        raise ShapeError(at_user_line("multinomial: p is a scalar, where a vector is needed: its last axis are the "
                                      "probabilities of one draw"))
    shares = move_axis(spread_parameter(p, shape, inner), len(shape) - 1, 0)
    left = cumsum(shares, 0, reverse=True)
    ratios = minimum(maximum(div(shares, where(eq(left, 0.0), 1.0, left)), 0.0), 1.0)

    def draw(remaining: Any, category: tuple[Any, Any]) -> tuple[Any, Any]:
        count = bind(random_binomial_p, category[0], remaining, category[1], dtype=inner)[0]
        return sub(remaining, count), count

    keys = bind(random_split_p, key, shape=shape[-1:])[0]
    counts = scan(draw, broadcast_to(as_parameter(n, inner), shape[:-1]), (keys, ratios), unroll=unroll)[1]
    return convert(move_axis(counts, 0, len(shape) - 1), wanted)


def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Return the number of trials of probability `p` up to the first success: integers from 1 on, by default int32.

    >>> import fxgrad
    >>> bool(fxgrad.random.geometric(fxgrad.random.key(0), 0.5) >= 1)
    True
    """
    if out_sharding is not None:
        return place_array("geometric", geometric(key, p, shape, dtype), out_sharding)
    key, dtype = one_key("geometric", key), int_dtype("geometric", dtype)
    inner = dtypes.inexact_dtype(own_dtype(p))
    shape = drawn_shape("geometric", shape, p)
    u = unit_draws(key, shape, inner)
    u = where(eq(u, 0.0), 1.0, u)
    tries = div(log(u), log1p(neg(spread_parameter(p, shape, inner))))
    return convert(add(floor(tries), 1.0), dtype)
