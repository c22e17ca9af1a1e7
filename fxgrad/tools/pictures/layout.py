"""Layout of pictures: box sizes, and positions of boxes and lines from graphlay, an optional dependency."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fxgrad.errors import UnsupportedError
from fxgrad.extend import at_user_line
from fxgrad.tools.pictures.clearance import Area, Point, area_around, crosses, label_places, title_place
from fxgrad.tools.pictures.picture import Box, Picture

LABEL, DETAIL, TITLE, BESIDE = 14.0, 10.5, 11.5, 11.5
"""Font sizes, in pixels: of names, of the lines below them, of frame titles, of line labels."""
ASPECT = 0.602
"""The width of a character of a monospaced font, by its size."""
LEADING = 1.28
SMALLEST = 38.0
PADDING = 7.0
MARGIN = 14.0
EFFORT_ABOVE = 300
"""Boxes above which the layout is to take less time."""
OPTIONS: dict[str, Any] = {
    "spacing": {"layer_gap": 30, "node_gap": 22, "dummy_gap": 16, "port_gap": 10, "stub": 6, "isolated_gap": 24,
                "compound_padding": 14, "compound_header": 20, "edge_label_margin": 10},
    "routing": {"style": "diagonal"},
    "order": {"group_lanes": "strict"},
}
LABELLED = {"layer_gap": 44, "node_gap": 32}
"""Spacing if lines have labels."""
AROUND_LABEL = 28.0
"""What is seen of a level line to the right beside its label, its head included."""
SYMMETRIC: dict[str, Any] = {"coords": {"placement": "brandes_koepf", "branch_style": "symmetric"}}
"""For small pictures: results are centered below their operands. Large ones have straight columns."""
SMALL = 12

TITLE_HEIGHT = 19.0


class Frame(NamedTuple):
    """A position: center, width and height."""

    x: float
    y: float
    width: float
    height: float


class PictureLayout(NamedTuple):
    """The positions in a picture, starting at (0, 0): boxes and clusters by key, corners of lines, centers of labels.

    `titles` has the start of each cluster's title.
    """

    width: float
    height: float
    boxes: Mapping[str, Frame]
    clusters: Mapping[str, Frame]
    lines: tuple[tuple[Point, ...], ...]
    labels: tuple[Point, ...]
    titles: Mapping[str, Point]


def text_width(text: str, size: float) -> float:
    """Return the width of a text."""
    return len(text) * ASPECT * size


def text_rows(box: Box) -> list[tuple[str, float]]:
    """Return the lines of text of a box, with their font sizes."""
    return [(box.label, LABEL), *((detail, DETAIL) for detail in box.details)]


def text_height(box: Box) -> float:
    """Return the height of all lines of text."""
    return sum(font * LEADING for _, font in text_rows(box))


def box_size(box: Box) -> tuple[float, float]:
    """Return width and height of a box that fits its text, as a circle, a square or a rectangle."""
    lines = text_rows(box)
    width, height = max(text_width(text, font) for text, font in lines), text_height(box)
    if box.shape == "circle":
        top, radius = -height / 2, SMALLEST / 2
        for text, font in lines:  # the corners of each line are inside
            edge = max(abs(top), abs(top + font * LEADING)) - 0.2 * font
            radius = max(radius, math.hypot(text_width(text, font) / 2, edge) + 3)
            top += font * LEADING
        return 2 * radius, 2 * radius
    side = max(SMALLEST if box.shape == "square" else 26.0, height + PADDING)
    return max(side if box.shape == "square" else SMALLEST, width + 2 * PADDING), side


def place_picture(picture: Picture) -> PictureLayout:
    """Return the layout of a picture, to a tenth of a pixel.

    Raises `UnsupportedError` if graphlay is not installed.
    """
    try:
        import graphlay  # an extra
    except ImportError:
        raise UnsupportedError(at_user_line(
            "draw: a picture as SVG or HTML is laid out by graphlay, which is not installed; "
            "write pip install 'fxgrad[draw]', or take style='ascii', which needs nothing")) from None
    graph = graphlay.Graph()
    numbers: dict[str, int] = {}

    def inside(cluster: str) -> dict[str, Any]:
        return {"parent": numbers[cluster]} if cluster else {}

    for cluster in picture.clusters:  # wide enough to fit the title beside the lines that enter at the top
        numbers[cluster.key] = graph.node(("cluster", cluster.key), height=30.0, label=cluster.title,
                                          width=2 * text_width(cluster.title, TITLE) + 60, **inside(cluster.parent))
    parts = {box.part for box in picture.boxes}
    for box in picture.boxes:
        width, height = box_size(box)
        lane = {"group": int(box.part == "backward")} if len(parts) > 1 and not picture.clusters else {}
        graph.node(box.key, width=width, height=height, shape="ellipse" if box.shape == "circle" else "box",
                   label=box.label, **inside(box.cluster), **lane)
    for line in picture.lines:
        fields: dict[str, Any] = {}
        if line.label:
            fields["label_size"] = {"width": text_width(line.label, BESIDE) + 8, "height": 16.0}
        graph.edge(*line.ends, **fields)
    count = len(picture.boxes)
    more = {"effort": "fast"} if count > EFFORT_ABOVE else SYMMETRIC if count <= SMALL else {}
    rightward = picture.orientation == "right"
    widest = max([text_width(line.label, BESIDE) for line in picture.lines if line.label], default=0.0)
    if widest:
        gap = max(LABELLED["layer_gap"], widest + AROUND_LABEL if rightward else 0.0)
        more = {**more, "spacing": {**OPTIONS["spacing"], **LABELLED, "layer_gap": gap}}
    more = {**more, "direction": "leftright" if rightward else "topbottom"}
    layout = _read_layout(picture, graphlay.layout(graph, options={**OPTIONS, **more}))
    areas = {key: area_around((frame.x, frame.y), frame.width - 2, frame.height - 2)
             for key, frame in layout.boxes.items()}
    # Straight lines are nicer, as long as they cross no box but their source and target.
    if _hits_a_box(picture, layout.lines, areas):
        layout = _read_layout(picture,
                              graphlay.layout(graph, options={**OPTIONS, **more, "routing": {"style": "orthogonal"}}))
    return layout


def _hits_a_box(picture: Picture, lines: Sequence[Sequence[Point]], areas: dict[str, Area]) -> bool:
    """Return whether a line crosses a box that is none of its ends. Of large pictures, few boxes are near a line."""
    axis = 0 if picture.orientation == "right" else 1
    ordered = sorted(areas.items(), key=lambda item: item[1][axis])
    begins = [area[axis] for _, area in ordered]
    longest = max([area[axis + 2] - area[axis] for area in areas.values()], default=0.0)
    for line, points in zip(picture.lines, lines, strict=True):
        places = [point[axis] for point in points]
        near = ordered[bisect.bisect_left(begins, min(places) - longest):bisect.bisect_right(begins, max(places))]
        if any(key not in line.ends and crosses(points, area) for key, area in near):
            return True
    return False


def _read_layout(picture: Picture, found: Any) -> PictureLayout:
    """Return graphlay's layout, shifted onto the page, and mirrored if that puts operands in order."""
    nodes = [Frame(**node["center"], **node["size"]) for node in found.nodes]
    lines = [[(point["x"], point["y"]) for point in edge["points"]] for edge in found.edges]
    anchors = [edge["label_anchor"] for edge in found.edges]
    labels = [(anchor["x"], anchor["y"]) if anchor else middle(points)
              for anchor, points in zip(anchors, lines, strict=True)]
    count = len(picture.clusters)
    flip_x, flip_y = _flips(picture, nodes[count:])
    wide = [text_width(line.label, BESIDE) / 2 if line.label else 0.0 for line in picture.lines]
    across = [(flip_x * frame.x, frame.width / 2) for frame in nodes]
    across += [(flip_x * x, 0.0) for points in lines for x, _ in points]
    across += [(flip_x * x, width) for (x, _), width in zip(labels, wide, strict=True)]
    left = min([x - width for x, width in across], default=0.0) - MARGIN
    right = max([x + width for x, width in across], default=0.0) + MARGIN
    along = [(flip_y * frame.y, frame.height / 2) for frame in nodes]
    along += [(flip_y * y, 0.0) for points in lines for _, y in points]
    top = min([y - height for y, height in along], default=0.0) - MARGIN
    bottom = max([y + height for y, height in along], default=0.0) + MARGIN

    def at(point: Point) -> Point:
        return round(flip_x * point[0] - left, 1), round(flip_y * point[1] - top, 1)

    frames = [Frame(*at((frame.x, frame.y)), round(frame.width, 1), round(frame.height, 1)) for frame in nodes]
    moved = [tuple([at(point) for point in points]) for points in lines]
    areas = [area_around((frame.x, frame.y), frame.width, frame.height) for frame in frames]
    placed = label_places(moved, [at(point) for point in labels], [2 * width for width in wide], BESIDE * LEADING,
                          areas[count:], right - left)
    titles = {}
    for cluster, area in zip(picture.clusters, areas[:count], strict=True):
        x, y = title_place(area, text_width(cluster.title, TITLE), TITLE_HEIGHT, moved)
        titles[cluster.key] = round(x, 1), round(y, 1)
    return PictureLayout(round(right - left, 1), round(bottom - top, 1),
                         {box.key: frame for box, frame in zip(picture.boxes, frames[count:], strict=True)},
                         {cluster.key: frame for cluster, frame in zip(picture.clusters, frames[:count], strict=True)},
                         tuple([points[::-1] if line.is_upward else points
                                for line, points in zip(picture.lines, moved, strict=True)]),
                         tuple([(round(x, 1), round(y, 1)) for x, y in placed]), titles)


def _flips(picture: Picture, frames: Sequence[Frame]) -> Point:
    """Return the signs of x and y that put operands in their order, from left to right or from the top down.

    Lines lead where they led. Frames of clusters have their titles at the top, and stay so.
    """
    rightward = picture.orientation == "right"
    if (rightward and picture.clusters) or not _is_turned(
            picture, [frame.y if rightward else frame.x for frame in frames]):
        return 1.0, 1.0
    return (1.0, -1.0) if rightward else (-1.0, 1.0)


def _is_turned(picture: Picture, places: Sequence[float]) -> bool:
    """Return whether to mirror the picture: the backward pass comes second, operands are in their order."""
    place = dict(zip([box.key for box in picture.boxes], places, strict=True))
    passes = [[place[box.key] for box in picture.boxes if box.part == part] for part in ("forward", "backward")]
    if all(passes):
        first, second = [sum(each) / len(each) for each in passes]
        return first > second
    entering: dict[str, list[tuple[int, float]]] = {}
    for line in picture.lines:
        entering.setdefault(line.target, []).append((line.position, place[line.source]))
    pairs = [(first[1], second[1]) for operands in entering.values()
             for first, second in itertools.pairwise(sorted(operands))]
    return sum((first > second) - (first < second) for first, second in pairs) > 0


def middle(points: Sequence[Point]) -> Point:
    """Return the center of the middle piece of a line."""
    first, second = points[(len(points) - 1) // 2], points[(len(points) - 1) // 2 + 1]
    return (first[0] + second[0]) / 2, (first[1] + second[1]) / 2
