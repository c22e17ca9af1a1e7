"""NumPy's functions that differ from jax's of the same names.

`fxgrad.numpy.sum(x)` is jax's, and keeps integers in 32 bits; `np.sum(x)` and `x.sum()` of a traced `x` give the value
that NumPy gives: sums and products of narrow integers and of bools are of 64 bits.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import PYTHON_SCALARS
from fxgrad.engine.frontend.operands import (
    as_array_operand,
    as_integer,
    as_shape,
    axis_of,
    common_type,
    operand,
    shape_of,
    wide_dtype,
)
from fxgrad.engine.ops import ordering as sorting
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.ops.parts import imag, real
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.structural import convert, move_axis
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.numpy.alike import empty_like, full_like, ones_like, zeros_like
from fxgrad.numpy.arithmetic import clip, multiply
from fxgrad.numpy.calculus import convolve, correlate, diff, gradient
from fxgrad.numpy.creation import meshgrid
from fxgrad.numpy.elementwise import absolute, isnan, reciprocal
from fxgrad.numpy.histograms import histogram, histogram2d, histogramdd
from fxgrad.numpy.logic import equal, where
from fxgrad.numpy.ordering import (
    argpartition,
    argsort,
    cumprod,
    cumsum,
    cumulative_prod,
    cumulative_sum,
    flatten_if_none,
    lexsort,
    nancumprod,
    nancumsum,
    partition,
    sort,
)
from fxgrad.numpy.polynomials import polyder, vander
from fxgrad.numpy.quantiles import NEAREST_EVEN, nanpercentile, nanquantile, percentile, quantile
from fxgrad.numpy.rearranging import take, trace
from fxgrad.numpy.reductions import prod, sum
from fxgrad.numpy.sets import isin
from fxgrad.numpy.shaping import atleast_1d, atleast_2d, atleast_3d, broadcast_arrays
from fxgrad.numpy.statistics import nanprod, nanstd, nansum, nanvar

Function = Callable[..., Any]


def _with_default_dtype(function: Function, dtype_for: Callable[[Any], Any] = wide_dtype) -> Function:
    """Return our sum or product, or another function of an array, with NumPy's default dtype (None: ours)."""
    place = [*inspect.signature(function).parameters].index("dtype")

    @functools.wraps(function)
    def widened(a: Any, *args: Any, **options: Any) -> Any:
        given = args[place - 1] if len(args) >= place else options.get("dtype")
        if given is None:
            dtype = dtype_for(a)
            if dtype is not None:
                args = (*args[:place - 1], dtype, *args[place:]) if len(args) >= place else args
                options = options if len(args) >= place else {**options, "dtype": dtype}
        return function(a, *args, **options)
    return widened


WIDENED: dict[str, Function] = {function.__name__: _with_default_dtype(function) for function in (
    sum, prod, cumsum, cumprod, nansum, nanprod, nancumsum, nancumprod, cumulative_sum, cumulative_prod, trace)}
"""Functions of NumPy's, and methods of arrays, by name."""


def _diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """`np.diff`: numbers at the ends are arrays, with their own dtype."""
    prepend, append = (np.asarray(end) if type(end) in PYTHON_SCALARS else end for end in (prepend, append))
    return diff(a, n, axis, prepend, append)


def _vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """`np.vander`: powers of integers are of 64 bits, or as wide as theirs."""
    x = as_array_operand(x)
    return vander(convert(x, dtypes.int64) if dtypes.kind_of(aval_of(x).dtype) in "biu" else x, N, increasing)


def _histogram(a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None) -> Any:
    """`np.histogram`: counts are integers."""
    if density or weights is not None:
        return histogram(a, bins, range, weights, density)
    a = as_array_operand(a)
    return histogram(a, bins, range, np.ones(aval_of(a).shape, np.int64))


def _histogramdd(sample: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None,
                 ) -> Any:
    """`np.histogramdd`: counts are floats."""
    counts, edges = histogramdd(sample, bins, range, weights, density)
    return _as_floats(counts), tuple(edges)


def _histogram2d(x: Any, y: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None,
                 ) -> Any:
    """`np.histogram2d`: counts are floats."""
    counts, *edges = histogram2d(x, y, bins, range, weights, density)
    return _as_floats(counts), *edges


def _as_floats(counts: Any) -> Any:
    return counts if dtypes.is_inexact(aval_of(counts).dtype) else convert(counts, dtypes.float64)


def _reciprocal(x: Any) -> Any:
    """`np.reciprocal`: of integers it is an integer."""
    x = as_array_operand(x)
    if dtypes.kind_of(aval_of(x).dtype) not in "iu":
        return reciprocal.function(x)
    return where(equal.function(absolute.function(x), 1), x, zeros_like(x))


def _exact(function: Function) -> Function:
    """Return a product of sequences that keeps integers."""
    @functools.wraps(function)
    def exact(a: Any, v: Any, *args: Any, **options: Any) -> Any:
        a, v = as_array_operand(a), as_array_operand(v)
        dtype, _ = common_type([aval_of(a), aval_of(v)])
        if dtypes.kind_of(dtype) in "iu":
            options = {"preferred_element_type": dtype, **options}
        return function(a, v, *args, **options)
    return exact


def _polyder(p: Any, m: int = 1) -> Any:
    """Compute `np.polyder`, which keeps 64-bit integers for integers."""
    p = as_array_operand(p)
    if dtypes.kind_of(aval_of(p).dtype) not in "iu":
        return polyder(p, m)
    for _ in range(as_integer("polyder", m)):
        degree = aval_of(p).shape[0] - 1
        p = multiply.function(p[:-1], np.arange(degree, 0, -1))
    return p


def _nan_class(z: Any) -> Any:
    """Return 0 for complex numbers without NaNs, 1 with one in the imaginary part, 2 in the real part, 3 in both."""
    real_is_nan, imag_is_nan = (convert(isnan.function(part(z)), dtypes.int32) for part in (real, imag))
    return add(multiply.function(real_is_nan, 2), imag_is_nan)


def _sort(a: Any, axis: int | None = -1, kind: Any = None, order: Any = None, **options: Any) -> Any:
    """`np.sort`: complex numbers with a NaN in either part come last."""
    del kind, order
    if aval_of(operand(a)).dtype.kind != "c" or options.get("descending"):
        return sort(a, axis, **options)
    a, at = flatten_if_none("sort", a, axis)
    return sorting.sort([_nan_class(a), a], at, 2)[1]


def _argsort(a: Any, axis: int | None = -1, kind: Any = None, order: Any = None, **options: Any) -> Any:
    """`np.argsort`: complex numbers with a NaN in either part come last."""
    del kind, order
    if aval_of(operand(a)).dtype.kind != "c" or options.get("descending"):
        return argsort(a, axis, **options)
    a, at = flatten_if_none("argsort", a, axis)
    return sorting.sort([_nan_class(a), a, iota(dtypes.int32, aval_of(a).shape, at)], at, 2)[2]


def _lexsort(keys: Any, axis: int = -1) -> Any:
    """`np.lexsort`: complex numbers with a NaN in either part come last."""
    arrays = [as_array_operand(key) for key in keys]
    return lexsort([part for key in arrays
                    for part in ([key, _nan_class(key)] if aval_of(key).dtype.kind == "c" else [key])], axis)


def _sort_complex(a: Any) -> Any:
    """`np.sort_complex`: numbers with a NaN in either part come last."""
    a = as_array_operand(a)
    return _sort(convert(a, dtypes.complex_dtype(dtypes.inexact_dtype(aval_of(a).dtype))))


def _partition(a: Any, kth: Any, axis: int | None = -1, kind: Any = None, order: Any = None) -> Any:
    """`np.partition`: sorted, as `np.sort` does."""
    del kind, order
    partition(a, kth, axis)  # checks `kth`; its equations are not used
    return _sort(a, axis)


def _argpartition(a: Any, kth: Any, axis: int | None = -1, kind: Any = None, order: Any = None) -> Any:
    """`np.argpartition`: the order of `np.argsort`."""
    del kind, order
    argpartition(a, kth, axis)
    return _argsort(a, axis)


def _sliding_window_view(x: Any, window_shape: Any, axis: Any = None, **_: Any) -> Any:
    """`np.lib.stride_tricks.sliding_window_view`: copies, since traced arrays have no views."""
    x, sizes = as_array_operand(x), as_shape(window_shape, "sliding_window_view: a window")
    rank = len(shape_of(x))
    axes = [axis_of("sliding_window_view", at, rank) for at in (
        range(rank) if axis is None else axis if isinstance(axis, tuple | list) else [axis])]
    if len(axes) != len(sizes):
        raise ShapeError(at_user_line(f"sliding_window_view: windows of {len(sizes)} axes over {len(axes)} axes; equal "
                                      "numbers are needed"))
    for size, at in zip(sizes, axes, strict=True):
        count = shape_of(x)[at] - size + 1
        if size < 0 or count < 1:
            raise ShapeError(at_user_line(f"sliding_window_view: a window of {size} elements over an axis of "
                                          f"{shape_of(x)[at]}"))
        x = move_axis(take(x, np.arange(count)[:, None] + np.arange(size), at), at + 1, len(shape_of(x)))
    return x


def _with_nearest_even(function: Function) -> Function:
    """Return a function of quantiles whose method "nearest" takes the even one of two places that are as near."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def nearest_even(*args: Any, **options: Any) -> Any:
        given = signature.bind(*args, **options).arguments
        return function(**given | ({"method": NEAREST_EVEN} if given.get("method") == "nearest" else {}))
    return nearest_even


def _with_correction(function: Function) -> Function:
    """Return a variance or deviation without NaNs that takes NumPy's other name of `ddof`."""
    @functools.wraps(function)
    def corrected(*args: Any, correction: float | None = None, **options: Any) -> Any:
        if correction is None:
            return function(*args, **options)
        if len(args) > 4 or "ddof" in options:
            raise ArgumentError(at_user_line(f"{function.__name__}: ddof and correction are one option; give one of "
                                             "them"))
        return function(*args, ddof=correction, **options)
    return corrected


def _isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *,
          kind: str | None = None) -> Any:  # noqa: ARG001  (all have the same result)
    """`np.isin`: `kind` is the way in which NumPy looks for elements."""
    return isin(element, test_elements, assume_unique, invert)


def _clip(a: Any, *bounds: Any, **options: Any) -> Any:
    """`np.clip`: the array may be given by name."""
    return clip(a, *bounds, **options)


def _tuple_of(function: Function) -> Function:
    """Return a function whose result is a tuple, as in NumPy, not a list, as in jax."""
    @functools.wraps(function)
    def as_tuple(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        return tuple(result) if type(result) is list else result
    return as_tuple


FUNCTIONS: dict[str, Function] = WIDENED | {
    **{function.__name__: _with_default_dtype(function, lambda a: aval_of(a).dtype) for function in (
        zeros_like, ones_like, full_like, empty_like)},  # NumPy's arrays like numbers are strong
    "diff": _diff, "vander": _vander, "histogram": _histogram, "histogramdd": _histogramdd,
    "histogram2d": _histogram2d, "reciprocal": _reciprocal, "polyder": _polyder,
    "isin": _isin, "clip": _clip, **{function.__name__: _with_correction(function) for function in (nanvar, nanstd)},
    "sort": _sort, "argsort": _argsort, "lexsort": _lexsort, "sort_complex": _sort_complex, "partition": _partition,
    "argpartition": _argpartition, "convolve": _exact(convolve), "correlate": _exact(correlate),
    **{function.__name__: _with_nearest_even(function) for function in (
        quantile, percentile, nanquantile, nanpercentile)},
    **{function.__name__: _tuple_of(function) for function in (gradient, meshgrid, broadcast_arrays, atleast_1d,
                                                               atleast_2d, atleast_3d)},
}
"""The functions that `np.name(x)` calls for a traced `x` if `fxgrad.numpy.name` follows jax."""
OF_STRIDES: dict[str, Function] = {"sliding_window_view": _sliding_window_view}
"""Functions of `np.lib.stride_tricks`."""
