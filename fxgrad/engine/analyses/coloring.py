"""Colorings of sparse matrices: which columns, or rows, one product with a sum of unit vectors can serve together.

Curtis, Powell and Reid, "On the estimation of sparse Jacobian matrices" (1974); Coleman and Moré, "Estimation of sparse
Hessian matrices and graph coloring problems" (1984); Gebremedhin, Manne and Pothen, "What color is your Jacobian?"
(2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Indices = Any
"""A NumPy array of integers."""

_PERIODS = 4
"""How many periods beyond the least are tried before colors are chosen one by one."""
_FILLED = 16
"""The fullest row has at most so many times the entries of the mean where periods are tried."""
_REVERSE = 1.5
"""The cost of a reverse pass, in forward passes."""


_HUB = 4
"""A vertex with so many times the neighbors of the median is colored before others."""
_SMALL = 64
"""The size up to which dense symmetric matrices are colored by stars too."""
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
    order = np.argsort(indices, kind="stable")
    return np.r_[0, np.cumsum(np.bincount(indices, minlength=width))], rows[order]


def color_columns(starts: Indices, indices: Indices, width: int, rows: Indices | None = None) -> Coloring:
    """Color columns such that no two of a color have an entry in the same row.

    Row i has entries at `indices[starts[i]:starts[i + 1]]`, in order. Colors that repeat with a period are tried
    first, then one column after the other gets the first color that is free, in their order and by decreasing degree.
    `rows` is the row of each entry, if the caller has it.
    """
    counts = np.diff(starts)
    least = int(counts.max()) if counts.size else 0
    used = np.zeros(width, bool)
    used[indices] = True
    if rows is None:
        rows = np.repeat(np.arange(counts.size), counts)
    if least <= 1:
        return Coloring(np.where(used, 0, -1).astype(np.int32), min(least, 1))
    if least == width:
        return Coloring(np.arange(width, dtype=np.int32), width)
    if least * counts.size <= _FILLED * indices.size:
        filled = counts > 0
        spread = int((indices[starts[1:][filled] - 1] - indices[starts[:-1][filled]]).max())
        for period in range(least, min(least + _PERIODS, width) + 1):
            if spread < period or _is_free(rows, indices, period, counts.size):
                return Coloring(np.where(used, np.arange(width) % period, -1).astype(np.int32), period)
    of_column, members = transposed(starts, indices, width)
    found = _greedy(of_column, members, counts.size, range(width))
    if found.number > least:
        order = np.argsort(-np.add.reduceat(np.r_[counts[members], 0], np.minimum(of_column[:-1], members.size)) * (
            np.diff(of_column) > 0), kind="stable")
        other = _greedy(of_column, members, counts.size, order.tolist())
        found = min(found, other, key=lambda each: each.number)
    return found


def _is_free(rows: Indices, indices: Indices, period: int, count: int) -> bool:
    """Return whether no row has two entries in columns of equal remainder."""
    seen = np.zeros(count * period, bool)
    places = rows * period + indices % period
    seen[places] = True
    return int(np.count_nonzero(seen)) == places.size


def _greedy(starts: Indices, members: Indices, count: int, order: Sequence[int]) -> Coloring:
    """Give each column, in this order, the first color that no column with a row in common has."""
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
        color = colors[column] = free.bit_length() - 1
        most = max(most, color + 1)
    return Coloring(np.array(colors, np.int32), most)


def star_coloring(starts: Indices, indices: Indices) -> Coloring:
    """Color a symmetric matrix such that neighbours differ, and each path of four has three colors.

    One vertex after the other gets the first color that is free (Gebremedhin, Manne and Pothen, algorithm 4.1), with
    the colors around each vertex as bits; in their order, those with many more neighbors than most before the others,
    whose colors must differ as long as a common neighbor has none.
    """
    size = starts.size - 1
    degrees = np.diff(starts)
    hubs = degrees > _HUB * np.median(degrees)
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
        most = max(most, color + 1)
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
        reverse = _by_rows(starts, indices, color_columns(of_column, members, height), height, width)
        if mode == "reverse":
            return reverse
    best = min([each for each in (forward, reverse) if each is not None], key=lambda each: each.cost)
    return _mixed(starts, indices, by_column, best) or best


def _by_columns(starts: Indices, indices: Indices, width: int, height: int) -> Compression:
    rows = np.repeat(np.arange(height), np.diff(starts))
    colors = color_columns(starts, indices, width, rows)
    return Compression(colors, NOTHING, colors.colors[indices].astype(np.int64) * height + rows)


def _by_rows(starts: Indices, indices: Indices, colors: Coloring, height: int, width: int) -> Compression:
    rows = np.repeat(np.arange(height), np.diff(starts))
    return Compression(NOTHING, colors, colors.colors[rows].astype(np.int64) * width + indices)


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
    starts = np.r_[0, np.cumsum(np.bincount(rows[ahead], minlength=height))]
    columns = color_columns(starts, indices[ahead], width)
    places[ahead] = columns.colors[indices[ahead]].astype(np.int64) * height + rows[ahead]
    back = np.r_[0, np.cumsum(np.bincount(rows[is_reverse], minlength=height))]
    of_column, members = transposed(back, indices[is_reverse], width)
    colored = color_columns(of_column, members, height)
    places[is_reverse] = (columns.number * height + colored.colors[rows[is_reverse]].astype(np.int64) * width
                          + indices[is_reverse])
    return Compression(columns, colored, places)


def compress_symmetric(starts: Indices, indices: Indices) -> Compression:
    """Return the cheapest forward passes for a symmetric matrix: columns apart, or a star coloring."""
    size = starts.size - 1
    least = int(np.diff(starts).max(initial=0))
    star = star_coloring(starts, indices) if least * size > _FILLED * indices.size else None  # there are hubs
    if star is not None and star.number <= least:
        return _by_star(starts, indices, star)
    best = _by_columns(starts, indices, size, size)
    if best.columns.number <= max(3, min(least, 8)) or (size > _SMALL and indices.size * 4 > size * size):
        return best
    star = star or star_coloring(starts, indices)
    return best if star.number >= best.columns.number else _by_star(starts, indices, star)


def _by_star(starts: Indices, indices: Indices, star: Coloring) -> Compression:
    """Find each entry in the column of its color, or in that of its mirror image where it is not alone there."""
    size = starts.size - 1
    rows = np.repeat(np.arange(size), np.diff(starts))
    colors = star.colors.astype(np.int64)
    keys = rows * star.number + colors[indices]
    alone = np.bincount(keys, minlength=size * star.number)[keys] == 1
    places = np.where(alone, colors[indices] * size + rows, colors[rows] * size + indices)
    return Compression(star, NOTHING, places)
