"""Solves in derivatives of `fxgrad.nan_safe`: for a singular matrix, zeros give 0 and other right sides NaN.

They consist of ordinary solves and strong products, so that they transpose, batch and compile as these do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.ops.arithmetic import sub
from fxgrad.engine.ops.comparison import eq, ne, or_
from fxgrad.engine.ops.matrices import diagonal, eye_like, tril, triu
from fxgrad.engine.ops.pointwise import add, scalar_like
from fxgrad.engine.ops.reductions import reduce_or
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.strong import strong_mul
from fxgrad.engine.ops.structural import broadcast_to, expand_axes, full, reduce_sum, reshape
from fxgrad.engine.ops.triangular import lu_solve, lu_solve_p, triangular_solve, triangular_solve_p
from fxgrad.engine.tracing.tape import aval_of

strong_solve: Analysis[Callable[..., Any] | None] = Analysis(
    "strong solve", "The solution of a linear system that takes the place of an operation's within `fxgrad.nan_safe`.",
    missing="conservative", default=None)
"""The replacement of an operation that solves and is linear in its last operand; it takes the same operands."""


@strong_solve.register(triangular_solve_p)
def _solve_triangular(a: Any, b: Any, *, left_side: bool, lower: bool, unit_diagonal: bool, **params: Any) -> Any:
    offside = tril(a, -1) if lower else triu(a, 1)
    bad = _makes_nans_of_zeros(offside, None if unit_diagonal else diagonal(a))
    x = triangular_solve(_replace_bad(bad, a), b, left_side=left_side, lower=lower,
                         unit_diagonal=unit_diagonal, **params)
    return _nan_where(bad, b, x, left_side)


@strong_solve.register(lu_solve_p)
def _solve_factored(a: Any, factors: Any, permutation: Any, b: Any, *, transpose_a: bool) -> Any:
    bad = _makes_nans_of_zeros(add(tril(factors, -1), triu(factors, 1)), diagonal(factors))
    x = lu_solve(_replace_bad(bad, a), _replace_bad(bad, factors), permutation, b, transpose_a)
    return _nan_where(bad, b, x, True)


def _makes_nans_of_zeros(offside: Any, on_diagonal: Any) -> Any:
    """Return whether triangular solves with such parts make NaNs of zeros, as an array of shape (..., 1, 1)."""
    shape = aval_of(offside).shape
    axes = len(shape) - 2, len(shape) - 1
    bad = reduce_or(ne(sub(offside, offside), scalar_like(0, offside)), axes)
    if on_diagonal is not None:
        is_hole = or_(eq(on_diagonal, scalar_like(0, on_diagonal)), ne(on_diagonal, on_diagonal))
        bad = or_(bad, reduce_or(is_hole, axes[:1]))
    return reshape(bad, (*shape[:-2], 1, 1))


def _replace_bad(bad: Any, a: Any) -> Any:
    """Return the matrices with the `bad` ones replaced."""
    return where(broadcast_to(bad, aval_of(a).shape), eye_like(a), a)


def _nan_where(bad: Any, b: Any, x: Any, left_side: bool) -> Any:
    """Return the solutions with NaN columns (or rows) where a bad matrix has a right side that is not 0."""
    axis = len(aval_of(b).shape) - (2 if left_side else 1)
    shape, dtype = aval_of(bad).shape, aval_of(b).dtype
    marked = strong_mul(where(bad, full(shape, np.nan, dtype), full(shape, 0, dtype)), b)
    return add(x, expand_axes(reduce_sum(marked, (axis,)), (axis,), aval_of(b).shape))
