"""Running results along an axis: cumsum cumprod cummax cummin cumlogsumexp, and the linear recurrence behind them.

Each running result y[i] = f(y[i-1], x[i]) has tangents that obey a linear recurrence, dy[i] = a[i] dy[i-1] + b[i] dx[i]
with a = df/dy and b = df/dx. So one linear primitive serves all derivatives of all orders, without a division:
products with zeros in them are no special case.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import NOT_LINEAR, ArrayKernel, Cost, Primitive, register, total_bytes
from fxgrad.engine.core.sizes import surely_less
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.ops.arithmetic import complex_extremum, extremum_share, mul, sub
from fxgrad.engine.ops.comparison import eq, gt, lt
from fxgrad.engine.ops.exponential import exp
from fxgrad.engine.ops.families import check_axes, check_kind, check_same_dtype, linear_unary
from fxgrad.engine.ops.joining import align_batch_axes
from fxgrad.engine.ops.parts import is_finite
from fxgrad.engine.ops.pointwise import add, scalar_like
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.shaping import pad, slice_in_dim
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import ShapeError


def _batch(primitive: Primitive, size: int, values: list[Any], axes: list[int | None], *, axis: int,
           reverse: bool) -> tuple[list[Any], list[int]]:
    alike, at = align_batch_axes(size, values, axes)
    return bind(primitive, *alike, axis=axis + (axis >= at), reverse=reverse), [at]


def shift_along(x: Any, fill: float, axis: int, reverse: bool) -> Any:
    """Return `x` moved by one place along `axis`, in the direction of the running result."""
    config = [(0, 0, 0)] * len(aval_of(x).shape)
    config[axis] = (-1, 1, 0) if reverse else (1, -1, 0)
    return pad(x, scalar_like(fill, x), config)


# --- the linear recurrence --------------------------------------------------------------------------------------


def _recurrence_abstract(a: Aval, b: Aval, *, axis: int, reverse: bool) -> list[Aval]:
    check_kind("linear_recurrence", "numeric", a, b)
    check_same_dtype("linear_recurrence", a, b)
    if a.shape != b.shape:
        raise ShapeError(f"linear_recurrence: factors of shape {a.shape} and terms of shape {b.shape}; "
                         "equal shapes are needed")
    check_axes("linear_recurrence", a, (axis,))
    return [Aval(a.shape, a.dtype, a.weak and b.weak)]


def _recurrence_numpy(a: Any, b: Any, *, axis: int, reverse: bool) -> Any:
    """Double the span of every element until it covers the axis: log2(n) passes over the arrays."""
    a, result = a.copy(), b.copy()
    factors, sums = np.moveaxis(a, axis, 0), np.moveaxis(result, axis, 0)
    if reverse:
        factors, sums = factors[::-1], sums[::-1]
    step = 1
    while step < len(sums):
        sums[step:] += factors[step:] * sums[:-step]
        factors[step:] *= factors[:-step].copy()
        step *= 2
    return result


def _recurrence_xla(lax: Any, a: Any, b: Any, *, axis: int, reverse: bool) -> list[Any]:
    if a.shape[axis] < 2:
        return [b]

    def composed(first: tuple[Any, Any], then: tuple[Any, Any]) -> tuple[Any, Any]:
        return lax.mul(first[0], then[0]), lax.add(lax.mul(then[0], first[1]), then[1])

    return [lax.associative_scan(composed, (a, b), reverse=reverse, axis=axis)[1]]


def _recurrence_jvp(primals: list[Any], tangents: list[Any], *, axis: int,
                    reverse: bool) -> tuple[list[Any], list[Any]]:
    (a, b), (da, db) = primals, tangents
    out = linear_recurrence(a, b, axis, reverse)
    terms = db
    if type(da) is not Zero:
        through_a = mul(da, shift_along(out, 0.0, axis, reverse))
        terms = through_a if type(db) is Zero else add(through_a, db)
    return [out], [Zero(aval_of(out)) if type(terms) is Zero else linear_recurrence(a, terms, axis, reverse)]


def _recurrence_transpose(cotangents: list[Any], inputs: list[Any], *, axis: int, reverse: bool) -> list[Any]:
    a, _ = inputs
    return [None, linear_recurrence(shift_along(a, 0.0, axis, not reverse), cotangents[0], axis, not reverse)]


linear_recurrence_p = register(Primitive(
    name="linear_recurrence", abstract=_recurrence_abstract, numpy=ArrayKernel(_recurrence_numpy),
    xla=_recurrence_xla, jvp=_recurrence_jvp, transpose=_recurrence_transpose,
    batch=lambda *args, **params: _batch(linear_recurrence_p, *args, **params),
    cost=lambda a, b, **params: Cost(2 * a.size, 3 * a.nbytes)))


def linear_recurrence(a: Any, b: Any, axis: int, reverse: bool = False) -> Any:
    """Return y with y[i] = a[i] y[i-1] + b[i] along `axis`, from y[-1] = 0; with `reverse` from the end.

    It is computed by repeated doubling on both executors, so products of neighbouring factors must not overflow.
    """
    return bind(linear_recurrence_p, a, b, axis=axis, reverse=reverse)[0]


# --- running sums, products, extrema ----------------------------------------------------------------------------


def _accumulate_kernel(ufunc: np.ufunc) -> Callable[..., Any]:
    def kernel(x: Any, *, axis: int, reverse: bool) -> Any:
        if reverse:
            return np.flip(ufunc.accumulate(np.flip(x, axis), axis=axis, dtype=x.dtype), axis)
        return ufunc.accumulate(x, axis=axis, dtype=x.dtype)
    return kernel


def _checked_abstract(name: str, accepts: str) -> Callable[..., list[Aval]]:
    def abstract(x: Aval, *, axis: int, reverse: bool) -> list[Aval]:
        check_kind(name, accepts, x)
        check_axes(name, x, (axis,))
        return [x]
    return abstract


cumsum_p = linear_unary(
    "cumsum", abstract=_checked_abstract("cumsum", "numeric"), numpy=_accumulate_kernel(np.add), flops=1,
    xla=lambda lax, x, *, axis, reverse: lax.cumsum(x, axis, reverse),
    transpose=lambda cotangent, aval, *, axis, reverse: cumsum(cotangent, axis, not reverse),
    batch=lambda *args, **params: _batch(cumsum_p, *args, **params))


def _accumulated_xla(lax: Any, name: str, x: Any, axis: int, reverse: bool) -> Any:
    if x.dtype.kind != "c" or name not in ("cummax", "cummin"):
        return getattr(lax, name)(x, axis, reverse)
    return lax.associative_scan(lambda x, y: complex_extremum(lax, name[3:], x, y), x, reverse, axis)


def _cumulative(name: str, ufunc: np.ufunc, accepts: str, weights: Callable[..., tuple[Any, Any]]) -> Primitive:
    """Return the record of a running result; `weights(x, out, axis, reverse)` are the a and b of its tangents."""
    def jvp(primals: list[Any], tangents: list[Any], *, axis: int, reverse: bool) -> tuple[list[Any], list[Any]]:
        out, = bind(primitive, *primals, axis=axis, reverse=reverse)
        if surely_less(aval_of(out).shape[axis], 2):
            return [out], list(tangents)
        kept, given = weights(primals[0], out, axis, reverse)
        return [out], [linear_recurrence(kept, mul(tangents[0], given), axis, reverse)]

    primitive = register(Primitive(
        name=name, abstract=_checked_abstract(name, accepts), numpy=ArrayKernel(_accumulate_kernel(ufunc)),
        xla=lambda lax, x, *, axis, reverse: [_accumulated_xla(lax, name, x, axis, reverse)],
        jvp=jvp, transpose=NOT_LINEAR, batch=lambda *args, **params: _batch(primitive, *args, **params),
        cost=lambda x, **params: Cost(x.size, total_bytes([x], [x]))))
    return primitive


def _product_weights(x: Any, out: Any, axis: int, reverse: bool) -> tuple[Any, Any]:
    return x, shift_along(out, 1.0, axis, reverse)


def _extremum_weights(is_chosen: Callable[[Any, Any], Any]) -> Callable[..., tuple[Any, Any]]:
    def weights(x: Any, out: Any, axis: int, reverse: bool) -> tuple[Any, Any]:
        """Return the shares of the extremum before, and of the element: 1/2 each at a tie, as a repeated max of two.

        The first element has nothing before it. Where the extremum is NaN both shares are 0, as of `maximum`.
        """
        size, config = aval_of(x).shape[axis], [(0, 0, 0)] * len(aval_of(x).shape)
        config[axis] = (0, 1, 0) if reverse else (1, 0, 0)
        before, at = ((1, size), (0, size - 1)) if reverse else ((0, size - 1), (1, size))
        share = extremum_share(slice_in_dim(x, *at, axis), slice_in_dim(out, *at, axis),
                               slice_in_dim(out, *before, axis), is_chosen)
        given = pad(share, scalar_like(1.0, x), config)
        return where(eq(out, out), sub(1.0, given), 0.0), given
    return weights


def _logsumexp_weights(x: Any, out: Any, axis: int, reverse: bool) -> tuple[Any, Any]:
    finite = where(is_finite(out), out, 0.0)
    return exp(sub(shift_along(out, -math.inf, axis, reverse), finite)), exp(sub(x, finite))


cumprod_p = _cumulative("cumprod", np.multiply, "numeric", _product_weights)
cummax_p = _cumulative("cummax", np.maximum, "numeric", _extremum_weights(gt))
cummin_p = _cumulative("cummin", np.minimum, "numeric", _extremum_weights(lt))
cumlogsumexp_p = _cumulative("cumlogsumexp", np.logaddexp, "floating", _logsumexp_weights)


def _register_trivial_axis(primitive: Primitive) -> None:
    """Enter the algebra: the running result along an axis of size 1 is the array itself."""
    @rewrites.register(primitive)
    def rewrite(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
        return [inputs[-1]] if aval_of(inputs[-1]).shape[params["axis"]] == 1 else None


for _primitive in (cumsum_p, cumprod_p, cummax_p, cummin_p, cumlogsumexp_p):
    _register_trivial_axis(_primitive)


def cumsum(x: Any, axis: int, reverse: bool = False) -> Any:
    """Return the sums of the elements up to each one along `axis` (from each one on with `reverse`)."""
    return bind(cumsum_p, x, axis=axis, reverse=reverse)[0]


def cumprod(x: Any, axis: int, reverse: bool = False) -> Any:
    """Return the products of the elements up to each one; exact derivatives also where some are zero."""
    return bind(cumprod_p, x, axis=axis, reverse=reverse)[0]


def cummax(x: Any, axis: int, reverse: bool = False) -> Any:
    """Return the greatest element up to each one; a NaN stays."""
    return bind(cummax_p, x, axis=axis, reverse=reverse)[0]


def cummin(x: Any, axis: int, reverse: bool = False) -> Any:
    """Return the least element up to each one; a NaN stays."""
    return bind(cummin_p, x, axis=axis, reverse=reverse)[0]


def cumlogsumexp(x: Any, axis: int, reverse: bool = False) -> Any:
    """Return the logarithm of the sum of exponentials up to each one, without overflow."""
    return bind(cumlogsumexp_p, x, axis=axis, reverse=reverse)[0]
