"""Layered layout for pictures in characters: the row of each box, the order within rows, and the columns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

Arc = tuple[str, str]
Preferred = Callable[["Layers", str, bool], tuple[float, float]]
"""The preferred column of a box or rail by those above it, or below it, and the weight of this preference."""
GAP = 3
"""Columns between boxes."""
SWEEPS = 12
MOST_TRANSPOSED = 400
"""Boxes and rails up to which neighbours are exchanged in search of fewer crossings."""


class Layers:
    """Rows of boxes and of rails; a rail is a place where lines from above pass through a row.

    A rail is named after the box that it comes from and its row; `down` and `up` are the neighbours in the row below
    and above, `columns` the centers.
    """

    def __init__(self, rows: list[list[str]], down: dict[str, list[str]]) -> None:
        self.rows, self.down = rows, down
        self.columns: dict[str, int] = {}
        self.up: dict[str, list[str]] = {name: [] for row in rows for name in row}
        for name, below in down.items():
            for other in below:
                self.up[other].append(name)


def arrange_layers(names: Sequence[str], arcs: Sequence[Arc], widths: Mapping[str, int], step: int = 1) -> Layers:
    """Return the layers of an acyclic graph, in order and placed; an arc goes from the upper box to the lower one.

    The centers of boxes are multiples of `step`. Names of boxes have no spaces, unlike those of rails.

    >>> found = arrange_layers(["x", "y", "add"], [("x", "add"), ("y", "add")], {"x": 1, "y": 1, "add": 3})
    >>> found.rows, found.columns
    ([['x', 'y'], ['add']], {'x': 0, 'y': 4, 'add': 2})
    """
    layers = _with_rails(names, arcs, rank_boxes(names, arcs))
    _order_rows(layers)
    _place_columns(layers, widths, step, _mean_of_neighbours)
    widest = max((_extent(layers, row, widths) for row in layers.rows), default=0)
    if _extent(layers, layers.columns, widths) > DRIFTED * widest:
        _place_columns(layers, widths, step, _below_trunks)
    return layers


def rank_boxes(names: Sequence[str], arcs: Sequence[Arc]) -> dict[str, int]:
    """Return the row of each box: as high as possible, but a leaf stands just above its first user."""
    above: dict[str, list[str]] = {name: [] for name in names}
    below: dict[str, list[str]] = {name: [] for name in names}
    for first, second in arcs:
        above[second].append(first)
        below[first].append(second)
    ranks: dict[str, int] = {}
    missing = {name: len(above[name]) for name in names}
    ready = [name for name in names if not missing[name]]
    for name in ready:
        ranks[name] = 1 + max([ranks[other] for other in above[name]], default=-1)
        for other in below[name]:
            missing[other] -= 1
            if not missing[other]:
                ready.append(other)
    loose = set()
    for name in ready:
        if all(other in loose and len(below[other]) == 1 for other in above[name]):
            loose.add(name)
    for name in reversed(ready):
        if name in loose and below[name]:
            ranks[name] = min(ranks[other] for other in below[name]) - 1
    return ranks


def _with_rails(names: Sequence[str], arcs: Sequence[Arc], ranks: Mapping[str, int]) -> Layers:
    """Add a rail to each row that lines from a box pass through; all lines from a box share its rail."""
    rows: list[list[str]] = [[] for _ in range(1 + max(ranks.values(), default=-1))]
    for name in names:
        rows[ranks[name]].append(name)
    down: dict[str, list[str]] = {}
    rails: dict[tuple[str, int], str] = {}
    for first, second in arcs:
        at = first
        for row in range(ranks[first] + 1, ranks[second]):
            rail = rails.get((first, row))
            if rail is None:
                rail = rails[first, row] = f"{first} {row}"
                rows[row].append(rail)
                down.setdefault(at, []).append(rail)
            at = rail
        down.setdefault(at, []).append(second)
    return Layers(rows, down)


# --- order ------------------------------------------------------------------------------------------------------


def _order_rows(layers: Layers) -> None:
    """Order the rows so that few lines cross: by the mean column of neighbours, then by swapping adjacent boxes."""
    _first_order(layers)
    best, fewest = [[*row] for row in layers.rows], _crossings(layers)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        downwards = sweep % 2 == 0
        beside = layers.up if downwards else layers.down
        rows = layers.rows[1:] if downwards else layers.rows[-2::-1]
        for row in rows:
            _sort_row(layers, row, beside)
        if len(layers.up) <= MOST_TRANSPOSED:
            # Neighbours in a row are swapped as long as that reduces the crossings.
            for number, row in enumerate(layers.rows):
                for index in range(len(row) - 1):
                    before = _crossings_below(layers, number - 1) + _crossings_below(layers, number)
                    row[index], row[index + 1] = row[index + 1], row[index]
                    if _crossings_below(layers, number - 1) + _crossings_below(layers, number) >= before:
                        row[index], row[index + 1] = row[index + 1], row[index]
        found = _crossings(layers)
        if found < fewest:
            best, fewest = [[*row] for row in layers.rows], found
    layers.rows[:] = best


def _first_order(layers: Layers) -> None:
    """Order the rows by a depth-first walk from the last boxes upwards, in the order of operands."""
    met: dict[str, int] = {}
    stack = [name for row in layers.rows for name in reversed(row) if name not in layers.down]
    while stack:
        name = stack.pop()
        if name not in met:
            met[name] = len(met)
            stack.extend(reversed(layers.up[name]))
    for row in layers.rows:
        row.sort(key=lambda name: met.get(name, len(met)))


def _sort_row(layers: Layers, row: list[str], beside: Mapping[str, list[str]]) -> None:
    places = {name: place for each in layers.rows for place, name in enumerate(each)}

    def wanted(name: str) -> float:
        near = beside.get(name)
        return sum(places[other] for other in near) / len(near) if near else places[name]

    row.sort(key=wanted)


def _crossings(layers: Layers) -> int:
    return sum(_crossings_below(layers, number) for number in range(len(layers.rows) - 1))


def _crossings_below(layers: Layers, number: int) -> int:
    if not 0 <= number < len(layers.rows) - 1:
        return 0
    places = {name: place for place, name in enumerate(layers.rows[number + 1])}
    ends = [sorted(places[other] for other in layers.down.get(name, ())) for name in layers.rows[number]]
    flat = [*itertools.chain.from_iterable(ends)]
    return sum(1 for index, place in enumerate(flat) for other in flat[index + 1:] if other < place)


# --- columns ----------------------------------------------------------------------------------------------------


def _place_columns(layers: Layers, widths: Mapping[str, int], step: int, preferred: Preferred) -> None:
    """Give each box and rail the column of its middle, a multiple of `step`, near its preferred one.

    With steps of four, rows alternate between the columns of those above.
    """
    columns = layers.columns
    for row in layers.rows:
        at = 0.0
        for name in row:
            columns[name] = round(at + widths.get(name, 1) / 2)
            at += widths.get(name, 1) + GAP
    for sweep in range(SWEEPS + 1):  # the last sweep goes down, so that boxes are below their operands
        downwards = sweep % 2 == 0
        for row in layers.rows if downwards else layers.rows[::-1]:
            _place_row(layers, row, [preferred(layers, name, downwards) for name in row], widths, step)
    for row in layers.rows[::-1]:  # finally chains are straightened where there is room
        _place_row(layers, row, [_straight(layers, name) for name in row], widths, step)
    left = min((columns[name] - widths.get(name, 1) // 2 for name in columns), default=0)
    for name in columns:
        columns[name] -= left - left % step


LIGHT, HEAVY = 0.01, 4.0
DRIFTED = 2
"""Pictures are placed by their trunks where they are this many times as wide as their widest row."""
STAGGERED = 4


def _mean_of_neighbours(layers: Layers, name: str, downwards: bool) -> tuple[float, float]:
    """Return the mean column of the neighbours above, or below, and its weight.

    A box without such neighbours yields, and stays near those on the other side. Rails are to be straight.
    """
    near = (layers.up[name], layers.down.get(name, ()))
    chosen = near[not downwards]
    weight = HEAVY if " " in name else 1.0
    if not chosen:
        chosen, weight = near[downwards], LIGHT
    return sum(layers.columns[other] for other in chosen) / len(chosen) if chosen else layers.columns[name], weight


def _below_trunks(layers: Layers, name: str, downwards: bool) -> tuple[float, float]:
    """Return the column of `_mean_of_neighbours`, but below a box's computed operands alone if it has leaves too.

    Below the mean of both each step of a chain would stand further from its beginning, by half the way to its leaf.
    """
    above = layers.up[name]
    trunks = [other for other in above if layers.up[other]]
    if downwards and 0 < len(trunks) < len(above):
        return sum(layers.columns[other] for other in trunks) / len(trunks), HEAVY
    if not downwards and above and layers.down.get(name):
        return layers.columns[name], HEAVY  # leaves come to their users, and no user goes to a leaf
    return _mean_of_neighbours(layers, name, downwards)


def _extent(layers: Layers, names: Iterable[str], widths: Mapping[str, int]) -> int:
    """Return the number of columns from the first to the last of these boxes and rails."""
    ends = [(layers.columns[name] - widths.get(name, 1) // 2, layers.columns[name] + widths.get(name, 1) // 2)
            for name in names]
    return max((end for _, end in ends), default=0) - min((start for start, _ in ends), default=0) + 1


def _straight(layers: Layers, name: str) -> tuple[float, float]:
    """Return the column of a box's only neighbour below, if the box is its only neighbour above; else its own."""
    below = layers.down.get(name, ())
    if len(below) == 1 and len(layers.up[below[0]]) == 1:
        return layers.columns[below[0]], 1.0
    return layers.columns[name], HEAVY


def _place_row(layers: Layers, row: list[str], preferred: Sequence[tuple[float, float]], widths: Mapping[str, int],
               step: int,
               ) -> None:
    """Place a row as near to the preferred columns as its spacing allows: blocks that collide are moved together."""
    unit = max(step, 2)
    shift = 2 * (layers.rows.index(row) % 2) if step == STAGGERED else 0
    offsets = [0]
    for first, second in itertools.pairwise(row):
        gap = (widths.get(first, 1) + widths.get(second, 1)) / 2 + GAP
        offsets.append(offsets[-1] + unit * -int(-gap // unit))  # even, so that the midpoint is a column
    blocks: list[tuple[float, float, int]] = []  # mean of preferred columns, weight, number of boxes
    for (column, weight), offset in zip(preferred, offsets, strict=False):
        blocks.append((column - offset, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (mean, light, few), (before, heavy, many) = blocks.pop(), blocks.pop()
            blocks.append(((before * heavy + mean * light) / (heavy + light), heavy + light, many + few))
    starts = [step * round((mean - shift) / step) + shift for mean, _, count in blocks for _ in range(count)]
    layers.columns.update((name, start + offset) for name, start, offset in zip(row, starts, offsets, strict=False))
