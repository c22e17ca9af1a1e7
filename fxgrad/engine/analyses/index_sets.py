"""Index sets: which input elements each element of an array depends on, as strided arrays of indices.

A term of an array of shape s is an array of integers of shape s + (k,): k input elements for each element, -1 for none.
Terms of sliced, transposed or broadcast arrays are views of the term before, so that regular dependence takes the
memory of one range. What is irregular is a sparse matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Indices = Any
"""A NumPy array of integers."""


def scipy_sparse() -> Any:
    """Return the module `scipy.sparse`, which is slow to import."""
    from scipy import sparse
    return sparse


_TERMS = 12
"""Terms from which on equal indices are looked for."""
_ENTRIES = 150_000_000
"""Indices of one array that are written out at most; beyond, each element depends on all that any depends on."""
_WASTE = 100_000
"""Indices of a term that may be -1 without a thought for their memory."""


class Dependence:
    """The input elements that each element of an array of shape `shape` depends on, among `width` elements.

    The union of `terms` (arrays of indices) and `rest`, a matrix with a row for each element, or None.
    """

    __slots__ = ("rest", "shape", "terms", "width")

    def __init__(self, shape: Shape, width: int, terms: Sequence[Indices], rest: Any = None) -> None:
        self.shape, self.width, self.terms, self.rest = shape, width, list(terms), rest

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def is_empty(self) -> bool:
        """Whether it is known, without a look at indices, that no element depends on anything."""
        return not self.terms and self.rest is None

    @property
    def is_narrow(self) -> bool:
        """Whether each term has one index for each element, and nothing is a matrix."""
        return self.rest is None and all(term.shape[-1] == 1 for term in self.terms)

    @property
    def most(self) -> int:
        """An upper bound for the input elements that one element depends on."""
        found = sum(term.shape[-1] for term in self.terms)
        if self.rest is not None and self.size:
            found += int(np.diff(self.rest.indptr).max())
        return min(found, self.width)

    @property
    def pair_bound(self) -> int:
        """An upper bound for the number of `pairs`; as many indices are written out for them."""
        return sum(term.size for term in self.terms) + (0 if self.rest is None else int(self.rest.nnz))

    # --- moves ---

    def viewed(self, view: Callable[[Indices], Indices]) -> Dependence:
        """Return the dependence of an array made by `view`, which maps arrays with one more, last, axis."""
        terms = [view(term) for term in self.terms]
        if self.rest is None and terms:
            return Dependence(terms[0].shape[:-1], self.width, terms)
        ids = view(np.arange(self.size).reshape(*self.shape, 1))
        rest = None if self.rest is None else self.rest[ids.reshape(-1)]
        return Dependence(ids.shape[:-1], self.width, terms, rest)

    def reshaped(self, shape: Sequence[int]) -> Dependence:
        """Return the dependence of the array in another shape, of which one size may be -1."""
        sizes = np.empty(self.shape, bool).reshape(shape).shape  # indices of nothing do not tell what -1 is
        return self.viewed(lambda index: index.reshape(*sizes, index.shape[-1]))

    def broadcast(self, shape: Shape) -> Dependence:
        """Return the dependence of the array broadcast as NumPy does."""
        if shape == self.shape:
            return self
        padding = (1,) * (len(shape) - len(self.shape))
        return self.viewed(lambda index: np.broadcast_to(
            index.reshape(*padding, *index.shape), (*shape, index.shape[-1])))

    def take(self, ids: Indices) -> Dependence:
        """Return the dependence of an array whose element i is the element `ids[i]` of this one, flat; -1 is none."""
        chosen = ids >= 0
        whole = bool(chosen.all())
        flat = ids.reshape(-1)
        terms, rows = [], []
        for term in self.terms:
            count = term.shape[-1]
            if not self.size:
                continue
            if whole and _is_uniform(term):
                terms.append(np.broadcast_to(_first_row(term), (*ids.shape, count)))
            elif count > 1 and flat.size * count > _WASTE + 4 * count * int(chosen.sum()):
                kept = np.flatnonzero(chosen.reshape(-1))
                rows.append(_matrix_of_rows(kept, _rows(term, flat[kept]), flat.size, self.width))
            else:
                found = _rows(term, flat)
                if not whole:
                    found[flat < 0] = -1
                terms.append(found.reshape(*ids.shape, count))
        if self.rest is not None:
            kept = np.flatnonzero(flat >= 0)
            rows.append(self.rest[flat] if kept.size == flat.size else _select_rows(self.rest, flat, kept))
        return Dependence(ids.shape, self.width, terms, _sum(rows)).bounded()

    def spread(self, targets: Indices, shape: Shape) -> Dependence:
        """Return the dependence of an array of `shape` to whose element `targets[i]`, flat, element i is added."""
        targets = targets.reshape(-1)
        kept = np.flatnonzero(targets >= 0)
        size = math.prod(shape)
        order = kept[np.argsort(targets[kept], kind="stable")]
        aims = targets[order]
        starts = np.flatnonzero(np.r_[True, aims[1:] != aims[:-1]]) if aims.size else np.zeros(0, np.int64)
        rank = np.arange(aims.size) - np.repeat(starts, np.diff(np.r_[starts, aims.size]))
        most = int(rank.max()) + 1 if rank.size else 0
        if most * size <= _WASTE + 4 * kept.size:
            found = [self.take(_filled(size, aims[rank == level], order[rank == level]).reshape(shape))
                     for level in range(most)]
            return union(found, shape, self.width)
        rows, columns = self.pairs()
        matrix = _matrix(targets[rows], columns, size, self.width)
        return Dependence(shape, self.width, [], matrix)

    def masked(self, mask: Any) -> Dependence:
        """Return the dependence of the array with zeros where `mask`, broadcast to its shape, is False."""
        mask = np.broadcast_to(mask, self.shape)
        if mask.all():
            return self
        if not mask.any():
            return Dependence(self.shape, self.width, [])
        if any(term.shape[-1] > 1 for term in self.terms) or self.rest is not None:
            ids = np.where(mask, np.arange(self.size).reshape(self.shape), -1)
            return self.take(ids)
        return Dependence(self.shape, self.width, [np.where(mask[..., None], term, np.int32(-1))
                                                   for term in self.terms])

    def merged(self, axes: Sequence[int], keep: bool = False) -> Dependence:
        """Return the dependence of what combines the elements along `axes`; with `keep` they stay, of size 1."""
        axes = tuple(sorted(axis % len(self.shape) for axis in axes))
        if not axes:
            return self
        shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(self.shape) if keep
                      or axis not in axes)
        if not self.size:
            return Dependence(shape, self.width, [])
        terms = []
        for term in self.terms:
            along = [axis for axis in axes if term.strides[axis] != 0 and term.shape[axis] > 1]
            index = tuple(0 if axis in axes and axis not in along else slice(None) for axis in range(term.ndim - 1))
            rest = [axis for axis in range(term.ndim - 1) if axis not in axes]
            kept = term[index]  # equal along the axes that are left out
            places = [axis for axis in range(term.ndim - 1) if axis in rest or axis in along]
            order = [places.index(axis) for axis in (*rest, *along)]
            moved = kept.transpose(*order, kept.ndim - 1)
            terms.append(_joined_last(moved, 1 + len(along)).reshape(*shape, -1) if keep else _joined_last(
                moved, 1 + len(along)))
        matrix = None
        if self.rest is not None:
            outer = np.broadcast_to(np.arange(math.prod(shape)).reshape(
                [1 if axis in axes else extent for axis, extent in enumerate(self.shape)]), self.shape).reshape(-1)
            entries = self.rest.tocoo()
            matrix = _matrix(outer[entries.row], entries.col, math.prod(shape), self.width)
        return Dependence(shape, self.width, terms, matrix).bounded()

    def accumulated(self, axis: int, reverse: bool) -> Dependence:
        """Return the dependence of what combines elements with all before them along `axis`; behind, if `reverse`."""
        axis %= len(self.shape)
        length = self.shape[axis]
        if not self.size or length <= 1:
            return self
        if length * sum(term.size for term in self.terms) > _ENTRIES // 8 or self.rest is not None:
            return self.merged((axis,), keep=True).broadcast(self.shape)
        places = np.arange(length)
        before = places[None, :] <= places[:, None]
        before = before.T if reverse else before
        terms = []
        for term in self.terms:
            moved = np.moveaxis(term, axis, -2)  # (..., place, k)
            spread = np.where(before[..., None], moved[..., None, :, :], np.int32(-1))
            terms.append(np.moveaxis(spread.reshape(*spread.shape[:-2], -1), -2, axis))
        return Dependence(self.shape, self.width, terms).bounded()

    def everywhere(self, shape: Shape) -> Dependence:
        """Return the dependence of an array each of whose elements may depend on all that any of these depends on."""
        columns = self.columns()
        if not columns.size:
            return Dependence(shape, self.width, [])
        return Dependence(shape, self.width, [np.broadcast_to(columns, (*shape, columns.size))])

    # --- forms ---

    def columns(self) -> Indices:
        """Return all input elements that some element depends on."""
        present = np.zeros(self.width + 1, bool)
        for term in self.terms:
            present[_first_row(term) if self.size and _is_uniform(term) else _without_repeats(term)] = True
        if self.rest is not None:
            present[self.rest.indices] = True
        present[-1] = False
        return np.flatnonzero(present).astype(np.int32)

    def bounded(self) -> Dependence:
        """Return an equal dependence with few terms; a larger one if it cannot be written out."""
        terms = _distinct(self.terms)
        if len(terms) <= _TERMS and (sum(term.shape[-1] for term in terms) <= max(self.width, 64)
                                     or sum(map(_extent, terms)) <= max(self.width, 64)):
            return Dependence(self.shape, self.width, terms, self.rest)
        return self.compact(terms)

    def compact(self, terms: Sequence[Indices]) -> Dependence:
        """Return an equal dependence without repeated indices."""
        if all(map(_is_uniform, terms)) and self.size:
            rows = np.unique(np.concatenate([_first_row(term) for term in terms]))
            rows = rows[rows >= 0]
            return Dependence(self.shape, self.width, [np.broadcast_to(rows, (*self.shape, rows.size))], self.rest)
        count = sum(term.shape[-1] for term in terms)
        if self.size * count > _ENTRIES:
            return self.everywhere(self.shape)
        table, keeps = _sorted_rows(self.size, terms)
        counts = keeps.sum(1)
        most = int(counts.max()) if counts.size else 0
        if most * self.size <= _WASTE + 2 * int(counts.sum()):
            if most == table.shape[1]:
                return Dependence(self.shape, self.width, [table.reshape(*self.shape, most)], self.rest)
            squeezed = np.full((self.size, most), -1, np.int32)
            squeezed[np.arange(most)[None, :] < counts[:, None]] = table[keeps]
            if most and self.size and counts.min() == most and (squeezed == squeezed[:1]).all():
                return Dependence(self.shape, self.width, [np.broadcast_to(squeezed[0], (*self.shape, most))],
                                  self.rest)
            return Dependence(self.shape, self.width, [squeezed.reshape(*self.shape, most)] if most else [], self.rest)
        matrix = _matrix_of_counts(counts, table[keeps], self.width)
        return Dependence(self.shape, self.width, [], _sum([matrix] if self.rest is None else [matrix, self.rest]))

    def csr(self) -> tuple[Indices, Indices]:
        """Return the sorted column indices of each row: where each row begins, and the indices."""
        rest = [] if self.rest is None else [self.rest]
        bands = _bands(self.size, self.terms) if not rest else None
        if bands is not None:
            return bands
        if not self.terms:
            matrix = _sum(rest) if rest else scipy_sparse().csr_array((self.size, self.width), dtype=bool)
        else:
            table, keeps = _sorted_rows(self.size, _distinct(self.terms))
            if keeps.all():
                starts = np.arange(0, table.size + 1, max(table.shape[1], 1)) if table.shape[1] else np.zeros(
                    self.size + 1, np.int64)
                if not rest:
                    return starts, table.reshape(-1)
                counts = np.full(self.size, table.shape[1])
            else:
                counts = keeps.sum(1)
                if not rest:
                    return starts_of(counts), table[keeps]
            matrix = _sum([_matrix_of_counts(counts, table[keeps], self.width), *rest])
        matrix.sort_indices()
        return matrix.indptr, matrix.indices

    def pairs(self) -> tuple[Indices, Indices]:
        """Return the pairs (element, input element), sorted."""
        starts, columns = self.csr()
        return np.repeat(np.arange(self.size), np.diff(starts)), columns

    def matrix(self) -> Any:
        """Return the dependence as a matrix of bools."""
        starts, columns = self.csr()
        return scipy_sparse().csr_array((np.ones(columns.size, bool), columns, starts), shape=(self.size, self.width))


def identity(shape: Shape, first: int, width: int) -> Dependence:
    """Return the dependence of an input of `shape`, whose elements have the indices from `first` on."""
    size = math.prod(shape)
    return Dependence(shape, width, [np.arange(first, first + size, dtype=np.int32).reshape(*shape, 1)])


def union(found: Sequence[Dependence], shape: Shape, width: int) -> Dependence:
    """Return the dependence of what combines arrays element by element, broadcast to `shape`."""
    found = [each.broadcast(shape) for each in found if not each.is_empty]
    if len(found) == 1:
        return found[0]
    return Dependence(shape, width, [term for each in found for term in each.terms],
                      _sum([each.rest for each in found if each.rest is not None])).bounded()


def joined(pieces: Sequence[Dependence | None], shapes: Sequence[Shape], axis: int, width: int) -> Dependence:
    """Return the dependence of arrays of `shapes`, one behind the other along `axis`; None depends on nothing."""
    lengths = [shape[axis] for shape in shapes]
    total = (*shapes[0][:axis], sum(lengths), *shapes[0][axis + 1:])
    whole, slots, rest = math.prod(total), [], []
    by_count: dict[int, list[list[Indices | None]]] = {}
    ids = np.arange(whole).reshape(total)
    start = 0
    for place, (piece, length) in enumerate(zip(pieces, lengths, strict=True)):
        inside = ids[(*[slice(None)] * axis, slice(start, start + length))]
        start += length
        used: dict[int, int] = {}
        for term in [] if piece is None else piece.terms:
            count = term.shape[-1]
            if count > 1 and count * whole > _WASTE + 4 * term.size:
                rest.append(_matrix_of_rows(inside.reshape(-1), term.reshape(-1, count), whole, width))
                continue
            rows = by_count.setdefault(count, [])
            number = used[count] = used.get(count, -1) + 1
            if number == len(rows):
                rows.append([None] * len(pieces))
            rows[number][place] = term
        if piece is not None and piece.rest is not None:
            entries = piece.rest.tocoo()
            rest.append(_matrix(inside.reshape(-1)[entries.row], entries.col, whole, width))
    for count, rows in by_count.items():
        slots += [np.concatenate([np.broadcast_to(np.int32(-1), (*shape, count)) if term is None else term
                                  for term, shape in zip(row, shapes, strict=True)], axis) for row in rows]
    return Dependence(total, width, slots, _sum(rest)).bounded()


def of_matrix(matrix: Any, shape: Shape) -> Dependence:
    """Return the dependence given by a sparse matrix, which has a row for each element of an array of `shape`."""
    matrix = scipy_sparse().csr_array(matrix)
    counts = np.diff(matrix.indptr)
    size, width = matrix.shape
    most = int(counts.max()) if size else 0
    if most * size > _WASTE + 2 * matrix.indices.size:
        return Dependence(shape, width, [], matrix)
    table = np.full((size, most), -1, np.int32)
    table[np.arange(most)[None, :] < counts[:, None]] = matrix.indices
    return Dependence(shape, width, [table.reshape(*shape, most)] if most else [])


def composed(inner: Dependence, flat: Dependence) -> Dependence:
    """Return the dependence of an array that depends by `inner` on the elements of an array that is `flat`."""
    if inner.rest is None and sum(term.shape[-1] for term in inner.terms) <= 64:
        return union([flat.take(term[..., place]) for term in inner.terms for place in range(term.shape[-1])],
                     inner.shape, flat.width)
    if inner.size * inner.most * max(flat.most, 1) > _ENTRIES * 8:
        return flat.everywhere(inner.shape)
    matrix = scipy_sparse().csr_array(inner.matrix().astype(np.int32) @ flat.matrix().astype(np.int32)).astype(bool)
    return Dependence(inner.shape, flat.width, [], matrix)


# --- arrays of indices ------------------------------------------------------------------------------------------------


def _is_uniform(term: Indices) -> bool:
    """Return whether all elements have the same indices, as the strides show."""
    return all(stride == 0 or extent == 1 for stride, extent in zip(term.strides[:-1], term.shape[:-1], strict=True))


def _first_row(term: Indices) -> Indices:
    return term[(0,) * (term.ndim - 1)]


def _without_repeats(term: Indices) -> Indices:
    """Return the term without the axes along which it is broadcast."""
    return term[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in term.strides)]


def _extent(term: Indices) -> int:
    """Return how many indices of a term lie in memory for one element, or for all if they are the same."""
    return term.shape[-1] if not _is_uniform(term) else 1


def _rows(term: Indices, ids: Indices) -> Indices:
    """Return the rows `ids`, flat, of a term, as a new array."""
    if term.ndim <= 2:  # of a number there is one row
        return np.atleast_2d(term)[ids]
    if term.flags.c_contiguous:
        return term.reshape(-1, term.shape[-1])[ids]
    if not ids.size:
        return np.zeros((0, term.shape[-1]), term.dtype)
    return term[np.unravel_index(np.where(ids < 0, 0, ids), term.shape[:-1])]


def _distinct(terms: Sequence[Indices]) -> list[Indices]:
    """Return the terms without those that are the same view."""
    found: dict[Any, Indices] = {}
    for term in terms:
        found.setdefault((term.__array_interface__["data"][0], term.strides, term.shape), term)
    return [*found.values()]


def _joined_last(array: Indices, count: int) -> Indices:
    """Return the array with its last `count` axes as one."""
    return array.reshape(*array.shape[:array.ndim - count], math.prod(array.shape[array.ndim - count:]))


def _sorted_rows(size: int, terms: Sequence[Indices]) -> tuple[Indices, Indices]:
    """Return all indices by row, sorted, and a mask of those that are none and no repetition."""
    flat = [term.reshape(size, term.shape[-1]) for term in terms]
    if size and all(term.shape[1] for term in flat):  # in this order bands need no sorting
        flat.sort(key=lambda term: int(term[size // 2, 0]))
    table = np.concatenate(flat, 1) if len(flat) != 1 else flat[0]
    keeps = np.empty(table.shape, bool)
    if table.shape[1] > 1:
        steps = table[:, 1:] > table[:, :-1]
        if not steps.all():
            table = np.sort(table, axis=1)
            steps = table[:, 1:] != table[:, :-1]
        keeps[:, 1:] = steps
    keeps[:, :1] = True
    if size and table.shape[1] and int(table[:, 0].min()) < 0:
        keeps &= table >= 0
    return table, keeps


def _bands(size: int, terms: Sequence[Indices]) -> tuple[Indices, Indices] | None:
    """Return what `csr` does, if each term is a diagonal: an index at one distance from each element, or -1."""
    if not size or not terms or any(term.shape[-1] != 1 for term in terms):
        return None
    own = np.arange(size, dtype=np.int32)
    moved: dict[int, Indices] = {}  # by distance, the element at it
    found: dict[int, Indices] = {}  # by distance, the elements that have an index; None for all
    middle = size // 2
    for term in terms:
        flat = term.reshape(size)
        place = middle if flat[middle] >= 0 else int(flat.argmax())
        offset = int(flat[place]) - place
        if offset not in moved:
            moved[offset] = own + np.int32(offset)
        present = flat == moved[offset]
        present[:max(-offset, 0)] = False  # there is none
        count = np.count_nonzero(present)
        if count == size:
            found[offset] = None
        elif count + np.count_nonzero(flat < 0) != size:
            return None
        elif offset not in found:
            found[offset] = present
        elif found[offset] is not None:
            found[offset] |= present
    offsets = sorted(found)
    table = np.stack([moved[offset] for offset in offsets], 1)
    if all(present is None for present in found.values()):
        return np.arange(0, table.size + 1, len(offsets)), table.reshape(-1)
    keeps = np.ones(table.shape, bool)
    counts = np.zeros(size, np.int64)
    for place, offset in enumerate(offsets):
        if found[offset] is not None:
            keeps[:, place] = found[offset]
        counts += keeps[:, place]
    return starts_of(counts), table[keeps]


def starts_of(counts: Indices) -> Indices:
    """Return where each row begins, and the last one ends, given the number of entries of each."""
    starts = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def _filled(size: int, places: Indices, values: Indices) -> Indices:
    found = np.full(size, -1, np.int64)
    found[places] = values
    return found


def _matrix(rows: Indices, columns: Indices, size: int, width: int) -> Any:
    """Return the matrix of these pairs; a negative row or column is none."""
    keeps = (rows >= 0) & (columns >= 0)
    rows, columns = rows[keeps], columns[keeps]
    matrix = scipy_sparse().coo_array((np.ones(rows.size, bool), (rows, columns)), shape=(size, width)).tocsr()
    matrix.data[:] = True
    return matrix


def _matrix_of_rows(rows: Indices, table: Indices, size: int, width: int) -> Any:
    return _matrix(np.repeat(rows, table.shape[1]), table.reshape(-1), size, width)


def _matrix_of_counts(counts: Indices, columns: Indices, width: int) -> Any:
    return scipy_sparse().csr_array((np.ones(columns.size, bool), columns, starts_of(counts)),
                            shape=(counts.size, width))


def _select_rows(matrix: Any, ids: Indices, kept: Indices) -> Any:
    """Return the rows `ids` of a matrix, empty ones outside of the places `kept`."""
    counts = np.zeros(ids.size, np.int64)
    chosen = matrix[ids[kept]]
    counts[kept] = np.diff(chosen.indptr)
    return _matrix_of_counts(counts, chosen.indices, matrix.shape[1])


def _sum(matrices: Sequence[Any]) -> Any:
    """Return the union of matrices; None for none."""
    if not matrices:
        return None
    total = matrices[0]
    for matrix in matrices[1:]:
        total = total + matrix
    return scipy_sparse().csr_array(total)
