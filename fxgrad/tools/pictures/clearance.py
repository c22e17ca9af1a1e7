"""Positions of labels and titles: labels on their lines, titles clear of lines; and lines that hit boxes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

Point = tuple[float, float]
Area = tuple[float, float, float, float]
"""Left, top, right and bottom."""
FARTHEST = 20.0
"""Pixels from a line beyond which a label no longer seems to belong to it."""
STEPS = (0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74, 0.18, 0.82, 0.1, 0.9)
"""Fractions of a line's length at which a label may be placed, in order of preference."""
TITLE_STEP = 12.0


def distance(point: Point, line: Sequence[Point]) -> float:
    """Return the distance of a point from a line of straight pieces.

    >>> distance((1.0, 2.0), [(0.0, 0.0), (4.0, 0.0)])
    2.0
    """
    return min(_from_piece(point, *piece) for piece in itertools.pairwise(line))


def _from_piece(point: Point, start: Point, end: Point) -> float:
    along = end[0] - start[0], end[1] - start[1]
    square = along[0] ** 2 + along[1] ** 2
    part = 0.0 if not square else ((point[0] - start[0]) * along[0] + (point[1] - start[1]) * along[1]) / square
    part = min(1.0, max(0.0, part))
    return math.hypot(point[0] - start[0] - part * along[0], point[1] - start[1] - part * along[1])


def crosses(line: Sequence[Point], area: Area) -> bool:
    """Return whether a line passes through an area.

    >>> crosses([(0.0, 0.0), (4.0, 4.0)], (1.0, 0.0, 3.0, 2.0)), crosses([(0.0, 0.0), (4.0, 4.0)], (3.0, 0.0, 5.0, 2.0))
    (True, False)
    """
    return any(_piece_crosses(*piece, area) for piece in itertools.pairwise(line))


def _piece_crosses(start: Point, end: Point, area: Area) -> bool:
    """Liang and Barsky (1984): the part of the piece that is inside of all four edges."""
    begin, finish = 0.0, 1.0
    for axis in (0, 1):
        step = end[axis] - start[axis]
        for way, room in ((-step, start[axis] - area[axis]), (step, area[axis + 2] - start[axis])):
            if not way:
                if room <= 0:
                    return False
            elif way < 0:
                begin = max(begin, room / way)
            else:
                finish = min(finish, room / way)
    return begin < finish


def areas_overlap(one: Area, other: Area) -> bool:
    """Return whether two areas overlap."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def area_around(middle: Point, width: float, height: float) -> Area:
    """Return the area of a width and a height centered on a point."""
    return middle[0] - width / 2, middle[1] - height / 2, middle[0] + width / 2, middle[1] + height / 2


def label_places(lines: Sequence[Sequence[Point]], places: Sequence[Point], widths: Sequence[float], height: float,
                 boxes: Sequence[Area], page: float) -> list[Point]:
    """Return the centers of labels: `places` near their lines and on no box, for the others a free place on the line.

    A width of 0 is that of no label; `page` is the width of the page, which labels do not leave.
    """
    kept = [not width or (distance(place, line) <= FARTHEST and not any(
        areas_overlap(area_around(place, width, height), box) for box in boxes))
            for line, place, width in zip(lines, places, widths, strict=True)]
    taken = [area_around(place, width, height) for place, width, keep in zip(places, widths, kept, strict=True)
             if keep and width]
    found = []
    for line, place, width, keep in zip(lines, places, widths, kept, strict=True):
        if not keep:
            tried = [_point_along(line, part) for part in STEPS]
            free = (at for at in tried if width / 2 <= at[0] <= page - width / 2 and not any(
                areas_overlap(area_around(at, width, height), other) for other in (*boxes, *taken)))
            place = next(free, tried[0])  # noqa: PLW2901  (the place in the place of that one)
            taken.append(area_around(place, width, height))
        found.append(place)
    return found


def _point_along(line: Sequence[Point], part: float) -> Point:
    """Return the point at a fraction of the length of a line."""
    pieces = [*itertools.pairwise(line)]
    lengths = [math.dist(*piece) for piece in pieces]
    left = part * sum(lengths)
    for (start, end), length in zip(pieces, lengths, strict=True):
        if left <= length and length:
            share = left / length
            return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share
        left -= length
    return line[-1]


def title_place(frame: Area, width: float, height: float, lines: Sequence[Sequence[Point]]) -> Point:
    """Return where a title's text begins in a frame: at the top or else the bottom, leftmost without crossing a line.

    If there is no such place, it is the top left.
    """
    left, top, _, bottom = frame
    rows = ((top + 2, top + height - 4), (bottom - height + 5, bottom - 4))
    free = ((x, line) for above, line in rows for x in _left_edges(frame, width)
            if not any(crosses(each, (x - 2, above, x + width + 2, line + 3)) for each in lines))
    return next(free, (left + 9, top + height - 4))


def _left_edges(frame: Area, width: float) -> Iterator[float]:
    left = frame[0] + 9
    while left == frame[0] + 9 or left + width <= frame[2] - 6:
        yield left
        left += TITLE_STEP
