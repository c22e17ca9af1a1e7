"""Integrals over tails of densities, and what kernels of special functions for XLA have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.engine.ops.pointwise import align


def kernel(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Return the rule for XLA of a function of arrays of one shape and of 32 or 64 bits."""
    def rule(lax: Any, *values: Any) -> Any:
        dtype = values[-1].dtype
        wide = [lax.convert_element_type(value, np.float32) if dtype.itemsize < 4 else value
                for value in align(lax, *values)]
        return lax.convert_element_type(function(lax, *wide, **options), dtype)
    return rule


LARGE = 100.0
"""From this on the incomplete functions are integrals of the density over the smaller of both tails."""
_NODES = 48


def integrate(lax: Any, function: Callable[[Any], Any], like: Any) -> Any:
    """Return the integral of a function from 0 to 1 by Gauss's rule, in the type of an array."""
    places, weights = (np.asarray(values, like.dtype) for values in np.polynomial.legendre.leggauss(_NODES))
    one = lax.full_like(like, 1.0)

    def add_node(index: Any, total: Any) -> Any:
        place, weight = (lax.mul(one, lax.dynamic_index_in_dim(values / 2, index, keepdims=False))
                         for values in (places + 1, weights))
        return lax.add(total, lax.mul(weight, function(place)))

    return lax.fori_loop(0, _NODES, add_node, lax.full_like(like, 0.0))


def if_any(lax: Any, chosen: Any, compute: Callable[[], Any], otherwise: Any) -> Any:
    """Return `compute()`, which takes long, if any element is chosen, and else values of the same types."""
    return lax.cond(lax.reduce_or(chosen, (*range(chosen.ndim),)), compute, lambda: otherwise)


def log_scale(lax: Any, a: Any) -> Any:
    """Return the logarithm of gamma(a) / (root(2 pi / a) (a / e)^a) for large a (DLMF 5.11.3)."""
    inverse = lax.div(lax.full_like(a, 1.0), a)
    square = lax.mul(inverse, inverse)
    return lax.mul(inverse, lax.sub(lax.full_like(a, 1 / 12), lax.mul(square, lax.full_like(a, 1 / 360))))


def log_less_digamma(lax: Any, a: Any) -> Any:
    """Return log(a) - digamma(a) for large a (DLMF 5.11.2)."""
    inverse = lax.div(lax.full_like(a, 1.0), a)
    square = lax.mul(inverse, inverse)
    series = lax.sub(lax.full_like(a, 1 / 12), lax.mul(square, lax.full_like(a, 1 / 120)))
    return lax.mul(inverse, lax.add(lax.full_like(a, 0.5), lax.mul(inverse, series)))


def length_of_tail(lax: Any, deviation: Any, rate: Any) -> Any:
    """Return how far to integrate a density that decays at this rate where the tail begins."""
    long, steep = lax.mul(deviation, lax.full_like(rate, 13.0)), lax.div(rate, lax.full_like(rate, 45.0))
    return lax.div(long, lax.add(lax.full_like(rate, 1.0), lax.mul(long, steep)))


def log_excess(lax: Any, m: Any) -> Any:
    """Return m - log(1 + m), near 0 by the series of atanh: r m - 2 (r^3 / 3 + r^5 / 5 + ...) with r = m / (2 + m)."""
    near = lax.lt(lax.abs(m), lax.full_like(m, 0.3))
    small = lax.select(near, m, lax.full_like(m, 0.0))
    ratio = lax.div(small, lax.add(small, lax.full_like(m, 2.0)))
    square, series = lax.mul(ratio, ratio), lax.full_like(m, 0.0)
    for odd in range(17, 1, -2):
        series = lax.mul(square, lax.add(lax.full_like(m, 1 / odd), series))
    series = lax.mul(ratio, lax.sub(small, lax.mul(lax.full_like(m, 2.0), series)))
    return lax.select(near, series, lax.sub(m, lax.log1p(m)))
