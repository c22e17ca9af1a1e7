"""Matrices of which a traced number of columns counts, or of rows and columns: `x[:, :n]`, `x[:n, :n]`, `x[:, mask]`.

They are read as a `TracedMatrix`, as slices of rows alone are as a `TracedSlice`. Functions of linear algebra see the
elements that do not count as zeros, or as those of the identity, by which the others have the same results.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import dtypes
from fxgrad.engine.api.checking import check
from fxgrad.engine.control_flow.aliases import Shared
from fxgrad.engine.control_flow.blocks import refuse
from fxgrad.engine.control_flow.items import entries_of, refuse_bound
from fxgrad.engine.control_flow.slices import (
    FUNCTIONS,
    Selection,
    TracedSlice,
    check_lengths,
    chosen_rows,
    greatest,
    item,
    least,
    named,
    set_operators,
    unsupported,
)
from fxgrad.engine.control_flow.structures import UnknownLength, as_elements


class Extent(NamedTuple):
    """The traced length of an axis; axes with one key have one length."""

    length: Any
    key: Any


class TracedMatrix(Selection):
    """The first rows and columns of `values`, as many as `rows` and `columns` say; None says that all count.

    They are a view of the arrays `sources`.
    """

    __slots__ = ("columns", "rows", "values")

    ndim = 2

    def __init__(self, values: Any, rows: Extent | None, columns: Extent | None, sources: Sequence[Any] = ()) -> None:
        self.values, self.rows, self.columns = values, rows, columns
        self.values = self.filled(1)  # the other elements must not make NaNs
        self.values.viewed = Shared(sources) if sources else None

    def parts(self) -> list[Any]:
        """Return the elements and the numbers of rows and of columns."""
        return [self.values, *self.lengths]

    @classmethod
    def of_parts(cls, parts: Sequence[Any]) -> TracedMatrix:
        """Return the matrix with these elements and numbers, which a block gives."""
        found = cls.__new__(cls)
        found.values, rows, columns = parts
        found.rows, found.columns = Extent(rows, object()), Extent(columns, object())
        return found

    @property
    def extents(self) -> tuple[Extent | None, Extent | None]:
        """The extents of the two axes."""
        return self.rows, self.columns

    @property
    def lengths(self) -> tuple[Any, Any]:
        """The numbers of rows and of columns."""
        rows, columns = (size if extent is None else extent.length
                         for size, extent in zip(self.values.shape, self.extents, strict=True))
        return rows, columns

    @property
    def length(self) -> Any:
        """The number of rows."""
        return self.lengths[0]

    @property
    def size(self) -> Any:
        """The number of elements."""
        return self.lengths[0] * self.lengths[1]

    def __getattr__(self, name: str) -> Any:
        if name == "shape":
            raise refuse("the shape of a matrix with traced bounds is traced. Write len(x) and len(x.T) in converted "
                         "code")
        raise AttributeError(name) if name.startswith("__") else unsupported(name)

    def __iter__(self) -> Any:
        if self.rows is None:
            return map(self.row, range(self.values.shape[0]))
        raise refuse_bound()

    def row(self, number: Any) -> Any:
        """Return a row, which counts."""
        return self.values[number] if self.columns is None else TracedSlice(self.values[number], *self.columns)

    def __len__(self) -> int:
        raise refuse("the length of a matrix with traced bounds is traced, and this needs a number of Python. Write "
                     "len(x) in converted code, or stop - start")

    def __getitem__(self, index: Any) -> Any:
        if type(index) is TracedMatrix and index.dtype == dtypes.bool_:
            whole = elementwise(lambda value, mask: mask, self, index)
            return chosen_rows(self.values[tuple(map(slice, whole.values.shape))], whole.filled(False))
        first, *rest = (*entries_of(index), slice(None))[:max(len(entries_of(index)), 2)]
        axes = [-1 if each is None or each is Ellipsis else 0 if isinstance(each, slice) else ndim_of(each)
                for each in (first, *rest)]
        if len(axes) > 2 or min(axes) < 0 or sum(axes) > 1:  # two arrays choose pairs
            raise unsupported("an index of several arrays, of a new axis or an ellipsis")
        by_row = self.values if self.rows is None else TracedSlice(self.values, *self.rows, [self.values])
        chosen = _chosen(by_row, first)
        if type(chosen) is not TracedSlice and len(np.shape(chosen)) == 1:  # one row
            return _chosen(chosen if self.columns is None else TracedSlice(chosen, *self.columns, [self.values]),
                           rest[0])
        rows = Extent(chosen.length, chosen.key) if type(chosen) is TracedSlice else None
        turned = (chosen.values if type(chosen) is TracedSlice else chosen).T
        found = _chosen(turned if self.columns is None else TracedSlice(turned, *self.columns, [self.values]), rest[0])
        if type(found) is not TracedSlice and len(np.shape(found)) == 1:  # one column
            return found if rows is None else TracedSlice(found, *rows, [self.values])
        columns = Extent(found.length, found.key) if type(found) is TracedSlice else None
        return matrix((found.values if type(found) is TracedSlice else found).T, rows, columns, [self.values])

    def with_rows(self, values: Any) -> Any:
        return matrix(values, *self.extents)

    def filled(self, fill: Any) -> Any:
        return fnp.where(self.counted(), self.values, np.asarray(fill).astype(self.values.dtype))

    def counted(self) -> Any:
        """Return for each element whether it counts."""
        found: Any = np.ones(self.values.shape, bool)
        for axis, extent in enumerate(self.extents):
            if extent is not None:
                places = np.arange(self.values.shape[axis])
                found = fnp.logical_and(found, fnp.less(places if axis else places[:, None], extent.length))
        return found

    def with_identity(self) -> Any:
        """Return the elements of a square matrix, and those of the identity in the place of those that do not count."""
        rows, columns = self.lengths
        if self.rows is None or self.columns is None or self.rows.key != self.columns.key:
            check_lengths(rows, columns)
        size = min(self.values.shape)
        return fnp.where(self.counted(), self.values, np.eye(*self.values.shape, dtype=self.dtype))[:size, :size]

    # --- reductions ---

    def _reduce(self, function: Any, neutral: Callable[[Any], Any], axis: Any, keepdims: bool = False) -> Any:
        name = function.__name__
        axes = self.axes(axis)
        if neutral in (least, greatest):
            self.check_ordered(name)
            for each in axes:
                check(fnp.greater(self.lengths[each], 0), f"{name} of a slice without elements")
        found = function(self.filled(neutral(self.dtype)), axis=axes[0] if len(axes) == 1 else axes, keepdims=True)
        found = matrix(found, *(None if axis in axes else extent for axis, extent in enumerate(self.extents)))
        return found if keepdims else _without_axes(found, axes)

    def _count(self, axis: Any) -> Any:
        return functools.reduce(operator.mul, [self.lengths[each] for each in self.axes(axis)])

    # --- other matrices ---

    @property
    def T(self) -> Any:  # noqa: N802
        """The transposed matrix."""
        return matrix(self.values.T, self.columns, self.rows, [self.values])

    def transpose(self) -> Any:
        """Return the transposed matrix."""
        return self.T

    def trace(self) -> Any:
        """Return the sum of the diagonal."""
        return fnp.trace(self.filled(0))

    def diagonal(self) -> Any:
        """Return the diagonal."""
        return FUNCTIONS["diagonal"](self)

    def ravel(self) -> TracedSlice:
        return chosen_rows(self.values, self.counted())

    flatten = ravel

    def argmax(self, axis: Any = None) -> Any:
        """Return the numbers of the greatest elements along an axis, or of all."""
        return self._place_of(fnp.argmax, least, axis)

    def argmin(self, axis: Any = None) -> Any:
        """Return the numbers of the least elements along an axis, or of all."""
        return self._place_of(fnp.argmin, greatest, axis)

    def _place_of(self, function: Any, neutral: Callable[[Any], Any], axis: Any) -> Any:
        if axis is None:
            return getattr(self.ravel(), function.__name__)()
        return self._reduce(function, neutral, axis)


@named("matrix")
def matrix(values: Any, rows: tuple[Any, Any] | None, columns: tuple[Any, Any] | None,
           sources: Sequence[Any] = ()) -> Any:
    """Return the first rows and columns of an array: a matrix, a slice of its rows, or the array if all count."""
    if columns is not None:
        return TracedMatrix(values, rows and Extent(*rows), Extent(*columns), sources)
    return values if rows is None else TracedSlice(values, *rows, sources)


def _chosen(array: Any, index: Any) -> Any:
    """Return `array[index]` along the first axis."""
    return array if isinstance(index, slice) and index == slice(None) else item(array, index)


def _without_axes(found: Any, axes: Sequence[int]) -> Any:
    """Return a matrix, a slice or an array with two axes without those that have one element."""
    if not axes:
        return found
    if type(found) is TracedMatrix and found.columns is not None:
        return TracedSlice(found.values[0], *found.columns)
    if type(found) is TracedSlice:
        return found.with_rows(found.values[:, 0])
    return fnp.squeeze(found, tuple(axes))


# --- operations on each element ---------------------------------------------------------------------------------------


def _axes_of(value: Any) -> tuple[Any, list[Any]]:
    """Return an operand as an array with two axes, and the length of each: an extent or a number.

    A number stays a number.
    """
    if type(value) is TracedMatrix:
        return value.values, [extent or size for extent, size in zip(value.extents, value.values.shape, strict=True)]
    if type(value) is TracedSlice:
        extent = Extent(value.length, value.key)
        if value.ndim == 1:
            return value.values[None], [1, extent]
        if value.ndim == 2:
            return value.values, [extent, value.values.shape[1]]
    elif len(np.shape(value)) <= 2:
        array = fnp.atleast_2d(as_elements(value)) if np.shape(value) else value
        return array, [*np.shape(array)] or [1, 1]
    raise unsupported("an operation of a matrix with an array that has more axes")


def _extent(length: Any) -> Extent | None:
    """Return the length of an axis if it is an extent; None for a number."""
    return length if type(length) is Extent else None


def _joint(lengths: Sequence[Any], sizes: Sequence[int]) -> tuple[Extent | None, int | None]:
    """Return the extent of axes with one length, None if it is known, and the size to cut them to, None for none.

    A check of the program compares the `lengths`, of arrays with these `sizes`.
    """
    extents = [each for each in lengths if type(each) is Extent]
    known = [each for each in lengths if type(each) is not Extent]
    if not extents:
        return None, None
    for each in extents[1:]:
        if each.key != extents[0].key:
            check_lengths(extents[0].length, each.length)
    for size in known:
        check_lengths(extents[0].length, size)
    return (None, known[0]) if known else (extents[0], min(sizes))


@named("elementwise")
def elementwise(function: Callable[..., Any], *args: Any) -> Any:
    """Apply a function of elements to matrices, and slices and arrays of one or two axes, which broadcast.

    Along each axis all have one length, or are known to have one element.
    """
    operands = [*map(_axes_of, args)]
    arrays, lengths = [array for array, _ in operands], [each for _, each in operands]
    extents: list[Extent | None] = []
    for axis, found in enumerate(zip(*lengths, strict=True)):
        long = [number for number, each in enumerate(found) if type(each) is Extent or each != 1]
        extent, size = _joint([found[number] for number in long], [np.shape(arrays[number])[axis] for number in long])
        arrays = [array[(slice(None),) * axis + (slice(size),)] if number in long else array
                  for number, array in enumerate(arrays)]
        extents.append(extent)
    return matrix(function(*arrays), *extents)


set_operators(TracedMatrix, elementwise)


# --- functions --------------------------------------------------------------------------------------------------------


def filled(value: Any, fill: Any = 0) -> Any:
    """Return the elements of a matrix, a slice or an array, with numbers in the place of those that do not count."""
    return value.filled(fill) if isinstance(value, Selection) else as_elements(value)


def ndim_of(value: Any) -> int:
    """Return the number of axes."""
    return value.ndim if isinstance(value, Selection) else len(np.shape(value))


@named("dot", "matmul")
def product(one: Any, other: Any) -> Any:
    """Return `one @ other`, of which at least one is a slice or a matrix."""
    if not (ndim_of(one) and ndim_of(other)):
        return one * other
    is_row, is_column = ndim_of(one) == 1, ndim_of(other) == 1
    if ndim_of(one) > 2 and not isinstance(other, Selection):
        return one.with_rows(fnp.matmul(one.values, other))
    (_, (rows, inner)), (_, (other_inner, columns)) = _axes_of(one), _axes_of(other)
    left, right = fnp.atleast_2d(filled(one)), fnp.atleast_2d(filled(other))
    if is_column:
        right, other_inner, columns = right.T, columns, other_inner
    _, size = _joint([inner, other_inner], [left.shape[1], right.shape[0]])
    found = matrix(fnp.matmul(left[:, :size], right[:size]), _extent(rows), _extent(columns))
    return _without_axes(found, [axis for axis, is_gone in enumerate((is_row, is_column)) if is_gone])


@named("transpose")
def _transpose(a: Any) -> Any:
    return a.T


@named("outer")
def _outer(a: Any, b: Any) -> Any:
    one, other = (each.ravel() if isinstance(each, Selection) else fnp.ravel(as_elements(each))
                  for each in (a, b))
    return elementwise(fnp.multiply, one[:, None], other)


@named("trace")
def _trace(a: Any) -> Any:
    return fnp.trace(filled(a))


@named("triu")
def _upper(m: Any, k: int = 0) -> Any:
    return m.with_rows(fnp.triu(m.values, k))


@named("tril")
def _lower(m: Any, k: int = 0) -> Any:
    return m.with_rows(fnp.tril(m.values, k))


@named("diag", "diagonal")
def _diagonal(a: Any) -> Any:
    """Return the diagonal of a matrix, or the matrix with this diagonal."""
    if type(a) is TracedSlice and a.ndim == 1:
        extent = Extent(a.length, a.key)
        return matrix(fnp.diag(a.values), extent, extent)
    (rows, columns), elements = _axes_of(a)[1], fnp.diagonal(filled(a))
    if type(rows) is type(columns) is Extent and rows.key == columns.key:
        return TracedSlice(elements, *rows)
    return TracedSlice(elements, fnp.minimum(*_lengths(a)), object())


@named("det")
def _determinant(a: Any) -> Any:
    return fnp.linalg.det(_square(a, "det").with_identity())


@named("slogdet")
def _slogdet(a: Any) -> Any:
    return fnp.linalg.slogdet(_square(a, "slogdet").with_identity())


@named("inv")
def _inverse(a: Any) -> Any:
    return a.with_rows(fnp.linalg.inv(_square(a, "inv").with_identity()))


@named("cholesky")
def _cholesky(a: Any) -> Any:
    return a.with_rows(fnp.linalg.cholesky(_square(a, "cholesky").with_identity()))


@named("solve")
def _solve(a: Any, b: Any) -> Any:
    if type(b) is TracedMatrix and b.rows is None and not isinstance(a, UnknownLength):
        return b.with_rows(fnp.linalg.solve(a, b.values))
    whole = _square(a, "solve").with_identity()
    b = b if isinstance(b, UnknownLength) else as_elements(b)
    given = b if ndim_of(b) == 2 else b[:, None]
    values, (rows, columns) = _axes_of(given)
    _joint([a.rows or whole.shape[0], rows], [whole.shape[0], values.shape[0]])
    size = whole.shape[0]
    right = filled(given)[:size]
    right = fnp.pad(right, ((0, size - right.shape[0]), (0, 0)))
    found = matrix(fnp.linalg.solve(whole, right), a.rows or a.columns, _extent(columns))
    return found if ndim_of(b) == 2 else _without_axes(found, (1,))


@named("matrix_power")
def _matrix_power(a: Any, n: int) -> Any:
    return a.with_rows(fnp.linalg.matrix_power(_square(a, "matrix_power").with_identity(), n))


@named("cond")
def _condition(x: Any) -> Any:
    values = _singular_values(x)
    return values[0] / values[-1]


@named("matrix_rank")
def _rank(A: Any, tol: Any = None) -> Any:
    return fnp.linalg.matrix_rank(filled(A), tol)


@named("svdvals")
def _singular_values(a: Any) -> Any:
    return TracedSlice(fnp.linalg.svdvals(filled(a)), fnp.minimum(*_lengths(a)), object())


@named("svd")
def _svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:  # noqa: ARG001  (NumPy's names)
    if compute_uv:
        raise unsupported("svd with vectors")
    return _singular_values(a)


@named("qr")
def _qr(a: Any, mode: str = "reduced") -> Any:
    """Return the factors of as many columns as count, of which there may not be more than rows.

    Columns that do not count are those of the identity in further rows, so that all are independent.
    """
    columns = _extents(a)[1]
    if mode != "reduced" or columns is None:
        raise unsupported("qr of rows" if columns is None else f"qr with mode={mode!r}")
    check(fnp.less_equal(columns.length, a.length), "qr of a matrix with more columns, {}, than rows, {}",
          columns.length, a.length)
    height, width = a.values.shape
    others = np.eye(width) * fnp.greater_equal(np.arange(width), columns.length)
    factor, triangle = fnp.linalg.qr(fnp.concatenate([a.filled(0), others.astype(a.dtype)]))
    return matrix(factor[:height], a.rows, columns), matrix(triangle, columns, columns)


@named("pinv")
def _pseudoinverse(a: Any) -> Any:
    return matrix(fnp.linalg.pinv(filled(a)), *reversed(_extents(a)))


@named("eigvalsh")
def _symmetric_eigenvalues(a: Any) -> Any:
    return _eigh(a)[0]


@named("eigh")
def _eigh(a: Any) -> Any:
    """Return eigenvalues and vectors; elements that do not count have one that is greater than all others."""
    whole = _square(a, "eigh").with_identity()
    is_counted = a.counted()[:whole.shape[0], :whole.shape[0]]
    greater = 1 + 2 * fnp.max(fnp.sum(fnp.abs(fnp.where(is_counted, whole, 0)), axis=1))
    values, vectors = fnp.linalg.eigh(fnp.where(is_counted, whole, whole * greater))
    extent = a.rows or a.columns
    return TracedSlice(values, *extent), matrix(vectors, extent, extent)


@named("norm")
def _norm(x: Any, ord: Any = None, axis: Any = None) -> Any:  # noqa: A002  (NumPy's name)
    if ord not in (None, 1, 2, np.inf, "fro", "nuc"):  # those to which zeros make no difference
        raise unsupported(f"the norm {ord!r}")
    found = fnp.linalg.norm(filled(x), ord, axis)
    if type(x) is TracedSlice:
        return found if 0 in x.axes(axis) else x.with_rows(found)
    others = [extent for number, extent in enumerate(x.extents) if axis is not None and number != axis % 2]
    return TracedSlice(found, *others[0]) if others and others[0] else found


@named("lstsq")
def _lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    """Return what NumPy does; rows and columns of zeros change no solution."""
    values, (length, _) = _axes_of(b if ndim_of(b) == 2 else b[:, None])
    rows, columns = _extents(a)
    _, size = _joint([rows or a.values.shape[0], length], [a.values.shape[0], values.shape[0]])
    found, residuals, rank, singular = fnp.linalg.lstsq(filled(a)[:size], filled(b)[:size], rcond)
    if columns is None:
        return found, residuals, rank, singular
    found = matrix(found, columns, None)
    lengths = _lengths(a)
    apart = filled(b)[:size] - fnp.matmul(filled(a)[:size], found.filled(0))
    is_given = fnp.equal(rank, lengths[1]) & fnp.greater(lengths[0], lengths[1])
    squares = fnp.sum(fnp.square(fnp.abs(fnp.reshape(apart, (apart.shape[0], -1)))), axis=0)
    return (found, TracedSlice(squares, fnp.where(is_given, squares.shape[0], 0), object()), rank,
            TracedSlice(singular, fnp.minimum(*lengths), object()))


def _lengths(a: Any) -> list[Any]:
    return [each.length if type(each) is Extent else each for each in _axes_of(a)[1]]


def _extents(a: Any) -> tuple[Extent | None, Extent | None]:
    rows, columns = map(_extent, _axes_of(a)[1])
    return rows, columns


def _square(a: Any, name: str) -> TracedMatrix:
    """Return an argument that must be a matrix of as many rows as columns."""
    if type(a) is not TracedMatrix:
        raise unsupported(name)
    return a
