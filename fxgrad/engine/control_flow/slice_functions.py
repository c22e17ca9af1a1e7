"""NumPy's functions of slices whose length is traced: each has here the arguments that it takes.

Those of linear algebra are in `matrices.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import dtypes
from fxgrad.engine.api.checking import check
from fxgrad.engine.control_flow.matrices import TracedMatrix, ndim_of, product
from fxgrad.engine.control_flow.slices import (
    FUNCTIONS,
    OpenMesh,
    TracedSlice,
    check_lengths,
    chosen_rows,
    greatest,
    item,
    named,
    unsupported,
)
from fxgrad.engine.control_flow.structures import as_elements
from fxgrad.engine.frontend.operands import shape_of
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.tracing.tracer import Tracer


def _slice(value: Any, name: str) -> TracedSlice:
    """Return an argument that must be the slice."""
    if type(value) is not TracedSlice:
        raise unsupported(f"{name} with these arguments")
    return value


def _together(*values: Any) -> list[TracedSlice]:
    """Return slices and arrays as slices of one length, which a check of the program compares."""
    like = next((each for each in values if type(each) is TracedSlice), None)
    if like is None or any(type(each) is TracedMatrix for each in values):
        raise unsupported("a matrix among arrays of one length")
    arrays = []
    for each in values:
        is_slice = type(each) is TracedSlice
        if not is_slice or each.key != like.key:
            check_lengths(like.length, each.length if is_slice else np.shape(each)[0])
        arrays.append(each.values if is_slice else as_elements(each))
    size = min(array.shape[0] for array in arrays)
    return [TracedSlice(array[:size], like.length, like.key) for array in arrays]


# --- methods ----------------------------------------------------------------------------------------------------------


def _method(name: str, method: str) -> Callable[..., Any]:
    return lambda x, *args, **kwargs: getattr(x if type(x) is TracedMatrix else _slice(x, name), method)(
        *args, **kwargs)


for _name in ("sum", "prod", "mean", "var", "std", "any", "all", "max", "min", "argmax", "argmin", "copy", "argsort",
              "ravel"):
    FUNCTIONS[_name] = _method(_name, _name)
FUNCTIONS |= {"amax": FUNCTIONS["max"], "amin": FUNCTIONS["min"]}


@named("size")
def _size(a: Any) -> Any:
    return a.size


@named("sort")
def _sort(a: Any, axis: int | None = -1) -> Any:
    return _slice(a, "sort").sorted(axis)


@named("flip")
def _flip(m: Any, axis: Any = None) -> Any:
    axes = _slice(m, "flip").axes(axis)
    rows = m.with_rows(np.flip(m.values, tuple(each for each in axes if each)))
    return rows[::-1] if 0 in axes else rows


@named("flipud")
def _flipud(m: Any) -> Any:
    return _flip(m, 0)


@named("cumsum")
def _cumsum(a: Any, axis: Any = None) -> Any:
    return _running("cumsum", np.cumsum, a, axis)


@named("cumprod")
def _cumprod(a: Any, axis: Any = None) -> Any:
    return _running("cumprod", np.cumprod, a, axis)


def _running(name: str, function: Any, a: Any, axis: Any) -> Any:
    if type(a) is TracedMatrix and axis is not None:
        return a.with_rows(function(a.values, axis=axis))
    rows = _slice(a, name) if axis is not None else a.ravel()
    return rows.with_rows(function(rows.values, axis=0 if axis is None else axis))


# --- statistics -------------------------------------------------------------------------------------------------------


@named("count_nonzero")
def _count_nonzero(a: Any, axis: Any = None) -> Any:
    return TracedSlice.elementwise(fnp.not_equal, a, 0).sum(axis)


@named("ptp")
def _ptp(a: Any, axis: Any = None) -> Any:
    return _slice(a, "ptp").max(axis) - a.min(axis)


@named("average")
def _average(a: Any, axis: Any = None, weights: Any = None) -> Any:
    if weights is None:
        return _slice(a, "average").mean(axis)
    a = a.astype("float64") if type(a) is TracedSlice and dtypes.kind_of(a.dtype) in "iub" else a
    return (a * weights).sum(axis) / weights.sum(axis)


@named("median")
def _median(a: Any, axis: Any = None) -> Any:
    return _quantile(a, 0.5, axis)


@named("percentile")
def _percentile(a: Any, q: Any, axis: Any = None, method: str = "linear") -> Any:
    return _quantile(a, fnp.divide(q, 100) if type(q) is Tracer else np.asarray(q) / 100, axis, method)


@named("quantile")
def _quantile(a: Any, q: Any, axis: Any = None, method: str = "linear") -> Any:
    rows = _slice(a, "quantile") if axis is not None else a.ravel()
    if rows.axes(0 if axis is None else axis) != (0,):
        raise unsupported("quantiles along another axis than the first")
    rows.check_ordered("quantile")
    rows = rows if dtypes.kind_of(rows.dtype) == "f" else rows.astype("float64")
    found = fnp.nanquantile(rows.filled(np.nan), q, axis=0, method=method)
    return fnp.where(fnp.any(fnp.isnan(rows.values), axis=0), np.nan, found)


def _without_nan(name: str) -> Callable[..., Any]:
    def reduced(a: Any, axis: Any = None) -> Any:
        rows = _slice(a, name)
        axes = rows.axes(axis)
        if dtypes.kind_of(rows.dtype) not in "fc":
            return getattr(rows, name.removeprefix("nan"))(axis)
        found = getattr(fnp, name)(rows.filled(np.nan), axis=axes)
        return found if 0 in axes else rows.with_rows(found)
    return reduced


for _name in ("nansum", "nanprod", "nanmean", "nanmax", "nanmin", "nanvar", "nanstd"):
    FUNCTIONS[_name] = _without_nan(_name)


@named("cov")
def _cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None) -> Any:
    ddof = (0 if bias else 1) if ddof is None else ddof
    if type(m) is TracedMatrix and m.rows is None and rowvar and y is None:
        m, rowvar = m.T, False
    if y is not None and ndim_of(m) == ndim_of(y) == 1:
        m, rowvar, y = _column_stack([m, y]), False, None
    if _slice(m, "cov").ndim == 1 and y is None:
        return m.var(ddof=ddof)
    if rowvar or y is not None:
        raise unsupported("cov of variables in rows")
    apart = (m - m.mean(axis=0, keepdims=True)).filled(0)
    return fnp.matmul(apart.T, apart.conj()) / fnp.maximum(m.length - ddof, 0)


@named("corrcoef")
def _corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Any:
    found = _cov(x, y, rowvar)
    spread = fnp.sqrt(fnp.diag(found))
    return found / spread[:, None] / spread


@named("histogram")
def _histogram(a: Any, bins: Any = 10, range: Any = None,  # noqa: A002  (NumPy's name)
               density: Any = None, weights: Any = None) -> Any:
    rows = _slice(a, "histogram").ravel()
    bounds = (rows.min(), rows.max()) if range is None and not np.shape(bins) else range
    rows, counted = _together(rows, rows.with_rows(np.ones(rows.values.shape)) if weights is None else weights)
    counts, edges = fnp.histogram(rows.values, bins, bounds, density=density, weights=counted.filled(0))
    return (counts if density or weights is not None else counts.astype("int64")), edges


@named("bincount")
def _bincount(x: Any, weights: Any = None, *, minlength: int) -> Any:
    """Return the counts, of which there are `minlength`: a check of the program compares the greatest number."""
    rows = x if type(x) is TracedSlice else TracedSlice(x, np.shape(x)[0], object())
    check(fnp.all(rows.filled(0) < minlength), "bincount of a number that is {} at most, with minlength={}: the result "
          "has as many elements as minlength says. Write a greater one", fnp.max(rows.filled(0), initial=0), minlength)
    rows, counted = _together(
        rows, rows.with_rows(np.ones(rows.values.shape, np.int64)) if weights is None else weights)
    return fnp.bincount(rows.filled(0), counted.filled(0), length=minlength).astype(counted.dtype)


# --- joining and choosing -------------------------------------------------------------------------------------------


@named("concatenate")
def _concatenate(parts: Any, axis: int | None = 0) -> Any:
    if any(type(each) is TracedMatrix for each in parts):
        raise unsupported("concatenate of matrices")
    if axis is None:
        return _join([each.ravel() if type(each) is TracedSlice else fnp.ravel(each) for each in parts])
    if axis in (0, -ndim_of(parts[0])):
        return _join(parts)
    rows = _together(*parts)
    return rows[0].with_rows(np.concatenate([each.values for each in rows], axis=axis))


@named("hstack")
def _hstack(parts: Any) -> Any:
    return _concatenate(parts, axis=0 if all(ndim_of(each) == 1 for each in parts) else 1)


@named("vstack")
def _vstack(parts: Any) -> Any:
    if any(ndim_of(each) == 1 and type(each) is TracedSlice for each in parts):
        raise unsupported("vstack of rows")
    return _concatenate([each if ndim_of(each) > 1 else as_elements(each)[None] for each in parts])


@named("append")
def _append(arr: Any, values: Any, axis: Any = None) -> Any:
    return _concatenate([arr, values], axis)


@named("stack")
def _stack(arrays: Any, axis: int = 0) -> Any:
    if not axis or any(-ndim_of(each) - 1 == axis for each in arrays):
        raise unsupported("stack along a first axis")
    rows = _together(*arrays)
    return rows[0].with_rows(np.stack([each.values for each in rows], axis=axis))


@named("column_stack")
def _column_stack(arrays: Any) -> Any:
    rows = _together(*arrays)
    return rows[0].with_rows(np.column_stack([each.values for each in rows]))


JOINS: set[Any] = {np.concatenate, np.hstack, np.vstack, np.stack, np.column_stack}


def joined(function: Any, rows: TracedSlice, axis: int = 0) -> Any:
    """Return what a function of NumPy's makes of a list of arrays whose length is traced: `rows`, one for each."""
    ndim = rows.ndim - 1  # of each array
    if function is np.vstack and ndim == 0:
        return rows[:, None]
    is_new = function is np.stack or (function in (np.vstack, np.column_stack) and ndim == 1)
    if function is np.column_stack or (function is np.hstack and ndim > 1):
        axis = 1
    axis = axis + ndim + is_new if axis < 0 else axis
    if axis == 0 and (is_new or ndim == 0):
        return rows
    if axis == 0:
        return _merged(rows)
    if axis == 1 and is_new and ndim == 1:
        return rows.T
    if axis == 1 and not is_new and ndim == 2:
        return _merged(rows.with_rows(fnp.swapaxes(rows.values, 1, 2))).T
    raise unsupported(f"{function.__name__} along axis {axis}")


def _merged(rows: TracedSlice) -> TracedSlice:
    """Return the rows of all rows, one after the other."""
    count, size, *shape = rows.values.shape
    return TracedSlice(fnp.reshape(rows.values, (count * size, *shape)), rows.length * size, ("joined", rows.key, size))


def _join(parts: Sequence[Any]) -> Any:
    """Return slices and arrays one after the other; the two sides of one array, cut at a traced place, are as long."""
    arrays = [each.values if type(each) is TracedSlice else as_elements(each) for each in parts]
    if len({each.shape[1:] for each in arrays}) > 1 or not arrays[0].ndim:
        raise unsupported("concatenate of arrays with different shapes of a row")
    dtype = np.result_type(*[each.dtype for each in arrays])
    size = sum(each.shape[0] for each in arrays)
    whole = _whole_size(parts)
    places, start = np.arange(size if whole is None else whole), 0
    result: Any = None
    for array, part in zip(arrays, parts, strict=True):
        if array.shape[0]:
            rows = array.astype(dtype)[fnp.clip(places - start, 0, array.shape[0] - 1)]
            is_later = fnp.reshape(fnp.greater_equal(places, start), (-1, *[1] * (array.ndim - 1)))
            result = rows if result is None else fnp.where(is_later, rows, result)
        start = start + (part.length if type(part) is TracedSlice else array.shape[0])
    if result is None:
        result = fnp.zeros((0, *arrays[0].shape[1:]), dtype)
    if whole is not None:
        return result
    return TracedSlice(result, start, ("concatenate", *[
        part.key if type(part) is TracedSlice else array.shape[0] for part, array in zip(parts, arrays, strict=True)]))


def _whole_size(parts: Sequence[Any]) -> int | None:
    """Return the length of two parts, `x[:i]` and `x[i:]` in any order; None for others."""
    keys: list[Any] = [each.key if type(each) is TracedSlice else None for each in parts]
    if len(keys) != 2 or not all(type(key) is tuple and len(key) == 4 and key[2] is None for key in keys):
        return None
    for (start, stop, _, size), (next_start, next_stop, _, next_size) in (keys, keys[::-1]):
        if start is next_stop is None and stop is next_start and stop is not None and size == next_size and (
                isinstance(size, int)):
            return size
    return None


@named("compress")
def _compress(condition: Any, a: Any, axis: Any = None) -> Any:
    if axis not in (None, 0) or ndim_of(condition) != 1:
        raise unsupported("compress along another axis than the first")
    if type(a) is TracedSlice:
        return (a.ravel() if axis is None else a)[condition]
    a = fnp.ravel(a) if axis is None else fnp.asarray(a)
    return chosen_rows(a[:np.shape(condition)[0]], condition != 0)


@named("extract")
def _extract(condition: Any, arr: Any) -> Any:
    if type(arr) is TracedSlice:
        return arr.ravel()[condition]
    return chosen_rows(fnp.ravel(arr), fnp.ravel(condition) != 0)


@named("unique")
def _unique(ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """Return the distinct elements: as many as there are elements at most."""
    rows = ar.ravel() if type(ar) is TracedSlice else TracedSlice(fnp.ravel(ar), np.size(ar), object())
    size = rows.values.shape[0]
    if not size:
        return fnp.unique(rows.values, return_index, return_inverse, return_counts)
    elements = fnp.where(np.arange(size) < rows.length, rows.values, rows.values[0])
    values, places, inverse = fnp.unique(elements, return_index=True, return_inverse=True, size=size)
    counts = fnp.bincount(inverse, rows.with_rows(np.ones(size, np.int64)).filled(0), length=size)
    number, key = convert(fnp.count_nonzero(counts), np.dtype("int64"), weak=True), object()
    found = [TracedSlice(values, number, key)]
    if return_index:
        found.append(TracedSlice(places.astype("int64"), number, key))
    if return_inverse:
        inverse = inverse.astype("int64")
        found.append(rows.with_rows(inverse) if type(ar) is TracedSlice else fnp.reshape(inverse, shape_of(ar)))
    if return_counts:
        found.append(TracedSlice(counts.astype("int64"), number, key))
    return found[0] if len(found) == 1 else tuple(found)


def _split(ary: Any, indices_or_sections: Any) -> Any:
    """Return the parts of an array between places along its first axis, which may be traced."""
    if not (isinstance(indices_or_sections, list | tuple) or np.shape(indices_or_sections)):
        return np.split(ary, indices_or_sections)
    ends = [*indices_or_sections]
    return [item(ary, slice(start, stop)) for start, stop in zip([None, *ends], [*ends, None], strict=True)]


def _places(mask: Any) -> Any:
    """Return the places of the elements that are true: a row for each."""
    return chosen_rows(np.moveaxis(np.indices(mask.shape), 0, -1), mask if mask.dtype == dtypes.bool_ else mask != 0)


def _nonzero(a: Any) -> Any:
    """Return the places of the elements that are true: an array for each axis."""
    places = _places(a)
    return tuple(places.with_rows(places.values[:, axis]) for axis in range(a.ndim))


def _open_mesh(rows: Any, columns: Any) -> Any:
    """Return what `np.ix_` does of two masks, or vectors of places."""
    masks = [each if type(each) is Tracer else np.asarray(each) for each in (rows, columns)]
    if not any(type(each) is Tracer and each.dtype == dtypes.bool_ for each in masks):
        return np.ix_(*masks)
    if any(mask.dtype != dtypes.bool_ or mask.ndim != 1 for mask in masks):
        raise unsupported("np.ix_ with a traced mask and places")
    return OpenMesh(*masks)


def _flat_places(a: Any) -> Any:
    """Return the places in the flattened array of the elements that are true."""
    return _places(fnp.ravel(a))[:, 0]


OF_ARRAYS: dict[Any, Callable[..., Any]] = {
    np.nonzero: _nonzero, np.where: _nonzero, np.flatnonzero: _flat_places, np.argwhere: _places, np.unique: _unique,
    np.compress: _compress, np.extract: _extract, np.bincount: _bincount, np.split: _split,
    np.ix_: _open_mesh}
"""Functions of NumPy's whose results have a traced length for a traced array."""


# --- by neighbours and by search --------------------------------------------------------------------------------------


@named("diff")
def _diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    rows = _slice(a, "diff")
    if rows.axes(axis) != (0,):
        return rows.with_rows(np.diff(rows.values, n, axis=axis))
    for _ in range(n):
        rows = rows[1:] - rows[:-1]
    return rows


@named("trapezoid")
def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0) -> Any:
    if ndim_of(y) > 1 or ndim_of(x) > 1:
        raise unsupported("trapezoid of more than one axis")
    y, *xs = _together(y, *([] if x is None else [x]))
    steps = xs[0][1:] - xs[0][:-1] if xs else dx
    return ((y[1:] + y[:-1]) * 0.5 * steps).sum()


@named("isin")
def _isin(element: Any, test_elements: Any, *, invert: bool = False) -> Any:
    if type(element) is TracedSlice:
        return element.with_rows(_isin(element.values, test_elements, invert=invert))
    if type(test_elements) is TracedSlice:
        tests = test_elements.ravel()
        found = fnp.any((fnp.asarray(element)[..., None] == tests.values) & tests.is_row(), axis=-1)
        return ~found if invert else found
    return fnp.isin(element, test_elements, invert=invert)


@named("digitize")
def _digitize(x: Any, bins: Any, right: bool = False) -> Any:
    return _slice(x, "digitize").with_rows(fnp.digitize(x.values, bins, right))


@named("searchsorted")
def _searchsorted(a: Any, v: Any, side: str = "left") -> Any:
    if type(a) is not TracedSlice:
        return v.with_rows(fnp.searchsorted(a, v.values, side))
    if type(v) is TracedSlice:
        return v.with_rows(_searchsorted(a, v.values, side))
    return fnp.minimum(fnp.searchsorted(a.filled(greatest(a.dtype)), v, side), a.length)


@named("interp")
def _interp(x: Any, xp: Any, fp: Any) -> Any:
    if type(x) is TracedSlice:
        return x.with_rows(_interp(x.values, xp, fp) if type(xp) is TracedSlice else fnp.interp(x.values, xp, fp))
    xs, fs = _together(xp, fp)
    xs.check_not_empty("interp")
    xs = xs if dtypes.kind_of(xs.dtype) == "f" else xs.astype("float64")
    last = fs.values[fnp.maximum(fs.length - 1, 0)]
    return fnp.interp(x, xs.filled(np.inf), fnp.where(fs.is_row(), fs.values, last))


# --- linear algebra ---------------------------------------------------------------------------------------------------


@named("vdot")
def _vdot(a: Any, b: Any) -> Any:
    return product(a.conj() if type(a) is TracedSlice else fnp.conj(a), b)


@named("polyfit")
def _polyfit(x: Any, y: Any, deg: int) -> Any:
    xs, ys = _together(x, y)
    xs.check_not_empty("polyfit")
    return fnp.polyfit(xs.values, ys.filled(0), deg, w=xs.is_row().astype(xs.dtype))
