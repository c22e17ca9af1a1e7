"""Colorings of sparse matrices: which columns, or rows, one product with a sum of unit vectors can serve together.

Curtis, Powell and Reid, "On the estimation of sparse Jacobian matrices" (1974); Coleman and Moré, "Estimation of sparse
Hessian matrices and graph coloring problems" (1984); Gebremedhin, Manne and Pothen, "What color is your Jacobian?"
(2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fxgrad.engine.analyses.index_sets import Indices, starts_of

_BEYOND = 8
"""How many colors beyond the least are tried regularly before colors are chosen one by one."""
_SAMPLED = 24
"""How many rows are looked at before a regular coloring is tried on all."""
_PAIRS = 8_192
"""About how many pairs of entries are looked at in these rows."""
_AROUND = 8
"""Rows around which a coloring is looked at count as so much fuller."""
_FORMS = 1_024
_LOOKS = 32_768
"""The most regular colorings of one number that are looked at, and times the entries of each look."""
_TRIED = 2
"""How many regular colorings of one number are tried on all rows."""
_FILLED = 16
"""The fullest row has at most so many times the entries of the mean where regular colors are tried."""
_REVERSE = 1.5
"""The cost of a reverse pass, in forward passes."""
_HUB = 4
"""A vertex with so many times the neighbors of the median is colored before others."""
_HUBS = 8
"""So many of them at most get colors of their own."""
_SMALL = 64
"""The size up to which dense symmetric matrices are colored by stars too, and up to which Python colors in no time."""
_EVEN = 0.9
"""Where rows have so many of the entries of the fullest one, a star coloring has no use."""
_FEW = 6
"""The cost that is not worth a look for a cheaper compression."""


class Coloring(NamedTuple):
    """Colors of columns or rows, from 0 to `number` - 1; -1 for those that are not needed."""

    colors: Indices
    number: int


class Compression(NamedTuple):
    """Products that suffice for all entries of a matrix, and where each entry stands in them.

    `columns` are colors of columns, for forward passes; `rows` of rows, for reverse passes. The results of the forward
    passes, one row for each color, and those of the reverse passes behind them, are one flat array; entry k, in the
    order of rows and then columns, is its element `places[k]`.
    """

    columns: Coloring
    rows: Coloring
    places: Indices

    @property
    def cost(self) -> float:
        """The cost of all products, in forward passes."""
        return self.columns.number + _REVERSE * self.rows.number


def transposed(starts: Indices, indices: Indices, width: int) -> tuple[Indices, Indices]:
    """Return the rows of each column: where each column begins, and the rows, sorted."""
    rows = np.repeat(np.arange(starts.size - 1), np.diff(starts))
    return starts_of(np.bincount(indices, minlength=width)), np.take(rows, np.argsort(indices, kind="stable"))


def color_columns(starts: Indices, indices: Indices, width: int) -> Coloring:
    """Color columns such that no two of a color have an entry in the same row.

    Row i has entries at `indices[starts[i]:starts[i + 1]]`, in order. Regular colors are tried first. Unless they are
    as few as can be, or one more, one column after the other gets the first color that is free, in their order and by
    decreasing degree.
    """
    found = _color_with(width, starts, indices, width)
    assert found is not None, "as many colors as columns suffice"
    return found


def _color_with(most: int, starts: Indices, indices: Indices, width: int) -> Coloring | None:
    """Color columns; None where no more than `most` colors were not found to suffice."""
    counts = np.diff(starts)
    least = int(counts.max()) if counts.size else 0
    used = np.bincount(indices, minlength=width) > 0
    if least > most:
        return None
    if least <= 1:
        return Coloring(np.where(used, 0, -1).astype(np.int32), min(least, 1))
    if least == width:
        return Coloring(np.arange(width, dtype=np.int32), width)
    found, regular = None, None
    if least * counts.size <= _FILLED * indices.size:
        regular = _regular_columns(starts, indices, width, most)
        if regular is not None:
            found = Coloring(np.where(used, regular.colors, -1).astype(np.int32), regular.number)
            most = regular.number - 1
    if found is None or found.number > least + 1:
        of_column, members = transposed(starts, indices, width)
        found = _greedy(of_column, members, counts.size, range(width), most) or found
        if regular is None and (found is None or found.number > least):
            order = np.argsort(-np.add.reduceat(np.r_[counts[members], 0], np.minimum(of_column[:-1], members.size)) * (
                np.diff(of_column) > 0), kind="stable")
            if (np.diff(order) < 0).any():
                fewer = most if found is None else found.number - 1
                found = _greedy(of_column, members, counts.size, order.tolist(), fewer) or found
    return found


# --- regular colorings ------------------------------------------------------------------------------------------------


def _regular_columns(starts: Indices, indices: Indices, width: int, most: int) -> Coloring | None:
    """Return colors that repeat with a period, or along the axes of a grid, if few suffice.

    Column j gets the color (m[0] j + m[1] (j // strides[0]) + ...) modulo their number: on a grid, a sum of multiples
    of its coordinates. Which multipliers m suit some rows says which are tried on all.
    """
    counts = np.diff(starts)
    least = int(counts.max())
    filled = counts > 0
    spread = int((indices[starts[1:][filled] - 1] - indices[starts[:-1][filled]]).max())
    if spread < least:
        return Coloring(np.arange(width) % least, least)
    rows = np.repeat(np.arange(counts.size), counts)
    pairs = _pairs(starts, indices, _some_rows(counts.size, least))
    strides = _strides(pairs[1] - pairs[0], width)
    apart = _distinct(_coordinates(pairs[1], strides) - _coordinates(pairs[0], strides), strides)
    everything = _coordinates(np.arange(width), strides)
    for number in range(least, min(least + _BEYOND, 2 * least, most) + 1):
        if spread < number:
            return Coloring(everything[0] % number, number)
        forms = _forms(number, len(strides), apart.shape[1])
        for form in forms[(forms @ apart % number).all(1)][:_TRIED]:
            found = Coloring(form @ everything % number, number)
            if _is_free(rows, indices, found, counts.size):
                return found
    return None


def _some_rows(count: int, least: int) -> Indices:
    """Return rows far apart, at no regular distance, fewer of those that have many entries."""
    return (np.arange(max(2, min(_SAMPLED, _PAIRS // least ** 2))) * 0.6180339887 % 1 * count).astype(np.int64)


def _pairs(starts: Indices, indices: Indices, rows: Indices) -> Indices:
    """Return the columns of all pairs of entries in these rows, shape (2, pairs), the lower ones first."""
    places, row = _entries(starts, rows)
    columns = indices[places].astype(np.int64)
    found = [np.stack([columns[:-by], columns[by:]])[:, row[:-by] == row[by:]]
             for by in range(1, int(np.bincount(row).max(initial=0)))]
    return np.concatenate([np.zeros((2, 0), np.int64), *found], axis=1)


def _entries(starts: Indices, rows: Indices) -> tuple[Indices, Indices]:
    """Return the places of the entries of these rows, and which of the rows each is in."""
    counts = starts[rows + 1] - starts[rows]
    which = np.repeat(np.arange(rows.size), counts)
    return np.arange(which.size) + (starts[rows] - np.cumsum(counts) + counts)[which], which


def _strides(apart: Indices, width: int) -> list[int]:
    """Return distances between columns of a row that divide the width: the strides of the axes of a grid, likely."""
    found, often = np.unique(apart, return_counts=True)
    strides: list[int] = []
    for stride in found[np.argsort(-often, kind="stable")][:_SMALL].tolist():
        if stride > 1 and width % stride == 0 and not any(stride == 2 * other for other in strides):
            strides.append(stride)
    return strides[:3]


def _coordinates(columns: Indices, strides: Sequence[int]) -> Indices:
    return np.stack([columns, *(columns // stride for stride in strides)])


def _distinct(apart: Indices, strides: Sequence[int]) -> Indices:
    """Return the distances without repetition: along an axis they are the quotient, or one more."""
    carried = sum(((apart[1 + axis] != apart[0] // stride) << axis for axis, stride in enumerate(strides)), 0)
    return apart[:, np.unique(apart[0] << len(strides) | carried, return_index=True)[1]]


def _forms(number: int, strides: int, looked: int) -> Indices:
    """Return the multipliers of regular colorings with so many colors, the period first; `looked` entries at each."""
    used = strides
    while used and 2 * number ** used > min(_FORMS, _LOOKS // max(looked, 1)):
        used -= 1
    others = np.zeros((number ** used, strides), np.int64)
    others[:, :used] = np.indices((number,) * used).reshape(used, number ** used).T
    return np.concatenate([np.insert(others, 0, first, 1) for first in ((1, 0) if strides else (1,))])


def _is_free(rows: Indices, indices: Indices, found: Coloring, count: int) -> bool:
    """Return whether no row has two entries in columns of the same color."""
    seen = np.zeros(count * found.number, bool)
    places = rows * found.number + found.colors[indices]
    seen[places] = True
    return int(np.count_nonzero(seen)) == places.size


# --- colors one by one ------------------------------------------------------------------------------------------------


def _greedy(starts: Indices, members: Indices, count: int, order: Sequence[int], limit: int) -> Coloring | None:
    """Give each column, in this order, the first color that no column with a row in common has; `limit` at most."""
    taken = [0] * count  # the colors in each row, as bits
    begins, rows = starts.tolist(), members.tolist()
    colors = [-1] * (len(begins) - 1)
    most = 0
    for column in order:
        mine = rows[begins[column]:begins[column + 1]]
        if not mine:
            continue
        forbidden = 0
        for row in mine:
            forbidden |= taken[row]
        free = ~forbidden & (forbidden + 1)
        for row in mine:
            taken[row] |= free
        number = free.bit_length()
        colors[column] = number - 1
        if number > most:
            if number > limit:
                return None
            most = number
    return Coloring(np.array(colors, np.int32), most)


# --- star colorings ---------------------------------------------------------------------------------------------------


def star_coloring(starts: Indices, indices: Indices, limit: int, only_regular: bool = False) -> Coloring | None:
    """Color a symmetric matrix such that neighbours differ, and each path of four has three colors.

    Then each entry is alone in its row with the color of its column, or its mirror image is. Regular colors are tried
    first, with colors of their own for vertices that have many more neighbors than most. Unless three suffice, or
    `only_regular`, one vertex after the other gets the first color that is free. None where no more than `limit` colors
    were not found to suffice.
    """
    size = starts.size - 1
    degrees = np.diff(starts)
    rows = np.repeat(np.arange(size), degrees)
    hubs = degrees > _HUB * np.median(degrees)
    found = _regular_star(rows, indices, hubs, limit)
    if only_regular or (found is not None and found.number <= 3):
        return found
    return _star_by_vertex(starts, indices, hubs, limit if found is None else found.number - 1) or found


def _regular_star(rows: Indices, indices: Indices, hubs: Indices, limit: int) -> Coloring | None:
    """Return colors that repeat with a period or along the axes of a grid, and own ones for hubs, if they suffice."""
    size, own = hubs.size, int(np.count_nonzero(hubs))
    apart = ~(hubs[rows] | hubs[indices])
    counts = np.bincount(rows[apart], minlength=size)
    least, starts, columns = int(counts.max(initial=0)), starts_of(counts), indices[apart]
    if not 0 < least <= _SMALL or own > _HUBS or own >= limit:
        return None

    sampled = np.unique(_some_rows(size, _AROUND * least))
    strides = _strides(np.abs(np.subtract(*_pairs(starts, columns, sampled))), size)
    near = np.unique(np.concatenate([sampled, columns[_entries(starts, sampled)[0]]]))
    places, which = _entries(starts, near)
    near_rows, near_columns = near[which], columns[places].astype(np.int64)
    asked = np.flatnonzero(np.isin(near_rows, sampled))
    mirrored = np.searchsorted(near_rows * size + near_columns, (near_columns * size + near_rows)[asked])
    everything = _coordinates(np.arange(size), strides)
    mirror = np.argsort(indices, kind="stable")

    def suit_near(colors: Indices, number: int) -> Indices:
        """Return which of several colorings suit the sampled rows; `colors` are those of the columns near them."""
        keys = which * number + colors + np.arange(len(colors))[:, None] * near.size * number
        alone = np.bincount(keys.ravel())[keys] == 1
        return (alone[:, asked] | alone[:, mirrored]).all(1)

    def with_hubs(colors: Indices, number: int) -> Coloring | None:
        """Return the coloring with the hubs' own colors, if it suits all rows."""
        found = Coloring(np.where(hubs, np.cumsum(hubs) - 1, colors + own).astype(np.int32), number + own)
        alone = _alone(rows, indices, found)
        return found if (alone | alone[mirror]).all() else None

    best = None
    fields = [(coordinate, size // stride) for coordinate, stride in zip(everything[1:], strides, strict=True)]
    for classes, count in fields + [(everything[0] % period, period) for period in range(least, 2 * least)]:
        if count <= _SMALL:
            met = _star_of_classes(classes[near_rows[asked]], classes[near_columns[asked]], count, limit - own)
            if met is not None and suit_near(met.colors[classes[near_columns]][None], met.number).all():
                found = with_hubs(met.colors[classes], met.number)
                if found is not None:
                    best, limit = found, found.number - 1
    for number in range(1, min(least + _BEYOND, 2 * least, limit - own) + 1):
        forms = _forms(number, len(strides), which.size)
        suited = forms[suit_near(forms @ everything[:, near_columns] % number, number)]
        for form in suited[:_TRIED]:
            found = with_hubs(form @ everything % number, number)
            if found is not None:
                return found
    return best


def _star_of_classes(rows: Indices, columns: Indices, count: int, limit: int) -> Coloring | None:
    """Color classes of vertices, given which of them meet; first those that meet more than most."""
    met = np.unique(np.concatenate([rows * count + columns, columns * count + rows]))
    starts = np.searchsorted(met, np.arange(count + 1) * count)
    degrees = np.diff(starts)
    return _star_by_vertex(starts, met % count, degrees > np.median(degrees), limit)


def _alone(rows: Indices, indices: Indices, found: Coloring) -> Indices:
    """Return whether each entry is the only one of its row in a column of its color."""
    keys = rows * found.number + found.colors[indices]
    return np.bincount(keys)[keys] == 1


def _star_by_vertex(starts: Indices, indices: Indices, hubs: Indices, limit: int) -> Coloring | None:
    """Give each vertex the first color that is free (Gebremedhin, Manne and Pothen, algorithm 4.1).

    The colors around each vertex are bits. Vertices are taken in their order, hubs before the others, whose colors must
    differ as long as a common neighbor has none.
    """
    size = starts.size - 1
    order = np.concatenate([np.flatnonzero(hubs), np.flatnonzero(~hubs)]).tolist()
    begins, neighbors = starts.tolist(), indices.tolist()
    colors = [-1] * size
    around = [0] * size  # colors of the neighbors
    blocked = [0] * size  # colors of neighbors that have two neighbors of this vertex's color
    number: list[dict[int, int]] = [{} for _ in range(size)]  # how many neighbors have each color
    most = 0
    for vertex in order:
        mine = [other for other in neighbors[begins[vertex]:begins[vertex + 1]] if other != vertex]
        own, forbidden = number[vertex], 0
        for other in mine:
            color = colors[other]
            if color < 0:
                forbidden |= around[other]
            else:
                forbidden |= 1 << color | blocked[other]
                if own[color] > 1:
                    forbidden |= around[other]
        bit = ~forbidden & (forbidden + 1)
        color = colors[vertex] = bit.bit_length() - 1
        if color >= most:
            if color >= limit:
                return None
            most = color + 1
        for other in mine:
            around[other] |= bit
            theirs = number[other]
            before = theirs.get(color, 0)
            theirs[color] = before + 1
            if colors[other] >= 0:
                if before:  # the neighbor has several of this color now
                    for each in neighbors[begins[other]:begins[other + 1]] if before == 1 else (vertex,):
                        if colors[each] == color and each != other:
                            blocked[each] |= 1 << colors[other]
                if own.get(colors[other], 0) > 1:
                    blocked[other] |= bit
    return Coloring(np.array(colors, np.int32), most)


# --- compressions -----------------------------------------------------------------------------------------------------

NOTHING = Coloring(np.zeros(0, np.int32), 0)


def compress(starts: Indices, indices: Indices, width: int, mode: str) -> Compression:
    """Return the cheapest products for a matrix: forward passes, reverse passes, or both ("auto")."""
    height = starts.size - 1
    forward = reverse = None
    by_column = np.bincount(indices, minlength=width)
    least_forward, least_reverse = int(np.diff(starts).max(initial=0)), int(by_column.max(initial=0))
    if mode == "auto" and min(least_forward, least_reverse) * min(width, height) > _FILLED * indices.size:
        mixed = _mixed(starts, indices, by_column, None)  # rows and columns have hubs, which ask for as many colors
        if mixed is not None and mixed.cost <= min(least_forward, _REVERSE * least_reverse):
            return mixed
    if mode == "forward" or (mode == "auto" and least_forward <= _REVERSE * least_reverse * 2):
        forward = _by_columns(starts, indices, width, height)
        if mode == "forward" or forward.cost <= _FEW:
            return forward
    if forward is None or forward.cost > _REVERSE * least_reverse:
        of_column, members = transposed(starts, indices, width)
        colors = _color_with(height if forward is None else int(forward.cost / _REVERSE), of_column, members, height)
        reverse = colors and _by_rows(starts, indices, colors, height, width)
        if mode == "reverse":
            assert reverse is not None, "as many colors as rows suffice"
            return reverse
    best = min([each for each in (forward, reverse) if each is not None], key=lambda each: each.cost)
    return _mixed(starts, indices, by_column, best) or best


def _by_columns(starts: Indices, indices: Indices, width: int, height: int) -> Compression:
    rows = np.repeat(np.arange(height), np.diff(starts))
    colors = color_columns(starts, indices, width)
    return Compression(colors, NOTHING, np.take(colors.colors.astype(np.int64) * height, indices) + rows)


def _by_rows(starts: Indices, indices: Indices, colors: Coloring, height: int, width: int) -> Compression:
    rows = np.repeat(np.arange(height), np.diff(starts))
    return Compression(NOTHING, colors, np.take(colors.colors.astype(np.int64) * width, rows) + indices)


def _mixed(starts: Indices, indices: Indices, by_column: Indices, best: Compression | None) -> Compression | None:
    """Return the cheapest of `best` and those that take the densest rows by reverse passes, or columns by forward."""
    height, width = starts.size - 1, by_column.size
    by_row = np.diff(starts)
    rows = np.repeat(np.arange(height), by_row)
    for counts, is_row in ((by_row, True), (by_column, False)):
        ordered = np.sort(counts)[::-1]
        for dense in sorted({1, 2, 4, 8, int(np.count_nonzero(counts > 4 * max(np.median(counts), 1)))}):
            if not 0 < dense < ordered.size or ordered[dense] * 2 > ordered[0]:
                continue
            chosen = np.argsort(-counts, kind="stable")[:dense]
            reversed_rows = np.isin(rows, chosen) if is_row else ~np.isin(indices, chosen)
            found = _split(rows, indices, reversed_rows, height, width)
            if best is None or found.cost < best.cost:
                best = found
            if best.cost <= _FEW:
                return best
    return best


def _split(rows: Indices, indices: Indices, is_reverse: Indices, height: int, width: int) -> Compression:
    """Return the compression that takes the marked entries by reverse passes and the others by forward passes."""
    places = np.empty(rows.size, np.int64)
    ahead = ~is_reverse
    starts = starts_of(np.bincount(rows[ahead], minlength=height))
    columns = color_columns(starts, indices[ahead], width)
    places[ahead] = columns.colors[indices[ahead]].astype(np.int64) * height + rows[ahead]
    back = starts_of(np.bincount(rows[is_reverse], minlength=height))
    of_column, members = transposed(back, indices[is_reverse], width)
    colored = color_columns(of_column, members, height)
    places[is_reverse] = (columns.number * height + colored.colors[rows[is_reverse]].astype(np.int64) * width
                          + indices[is_reverse])
    return Compression(columns, colored, places)


def compress_symmetric(starts: Indices, indices: Indices) -> Compression:
    """Return the cheapest forward passes for a symmetric matrix: columns apart, or a star coloring."""
    size = starts.size - 1
    least = int(np.diff(starts).max(initial=0))
    if least * size > _FILLED * indices.size:  # there are hubs
        star = star_coloring(starts, indices, size)
        if star is not None and star.number <= least:
            return _by_star(starts, indices, star)
    best = _by_columns(starts, indices, size, size)
    number = best.columns.number
    if number <= 3 or (number == least and indices.size > _EVEN * least * size):
        return best
    is_dense = size > _SMALL and indices.size * 4 > size * size
    star = star_coloring(starts, indices, number - 1, only_regular=number <= min(least, 8) or is_dense)
    return best if star is None else _by_star(starts, indices, star)


def _by_star(starts: Indices, indices: Indices, star: Coloring) -> Compression:
    """Find each entry in the column of its color, or in that of its mirror image where it is not alone there."""
    size = starts.size - 1
    rows = np.repeat(np.arange(size), np.diff(starts))
    colors = star.colors.astype(np.int64)
    places = np.where(_alone(rows, indices, star), colors[indices] * size + rows, colors[rows] * size + indices)
    return Compression(star, NOTHING, places)
