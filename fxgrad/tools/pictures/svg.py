"""SVG of pictures: a self-contained file in the colours of the page around it, light or dark."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from fxgrad.text.html import DARK_PAGES, LIGHT_PAGES
from fxgrad.tools.pictures.layout import (
    BESIDE,
    DETAIL,
    LEADING,
    TITLE,
    Frame,
    PictureLayout,
    Point,
    place_picture,
    text_height,
    text_rows,
    text_width,
)
from fxgrad.tools.pictures.picture import Box, Cluster, Line, Picture
from fxgrad.tools.pictures.theme import LINES, Paint, Theme, apply_theme

FONT = "ui-monospace, 'SFMono-Regular', Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
GROUND = ("#ffffff", "#0d1117")
ROUND = 9.0
"""The radius of the corners of lines."""
HEAD, HALF = 7.5, 3.4
"""Length and half the width of the head of an arrow."""
DASHES = {"gradient": "6 3", "saved": "2 3", "carry": "8 3 2 3"}
CAPTION_GAP = 22.0


def svg_text(picture: Picture, theme: Theme | None = None) -> str:
    """Return the picture as SVG. Its attributes have the colours for light pages; a style has those for dark ones.

    Raises `UnsupportedError` if the layout library is not installed.
    """
    layout = place_picture(picture)
    light, dark = apply_theme(theme)
    caption = picture.caption
    width = max(layout.width, text_width(caption, DETAIL) + 28)
    height = layout.height + (CAPTION_GAP if caption else 0)
    shift = (width - layout.width) / 2
    size = f'width="{_n(width)}" height="{_n(height)}" viewBox="0 0 {_n(width)} {_n(height)}"'
    # Styles apply to the whole page, so a theme has a class of its own.
    scope = "fxp" if not theme else f"fxp-{zlib.crc32(repr(sorted(theme.items())).encode()):x}"
    muted = light["cluster"].text
    title = escape(picture.title or "picture of a computation")
    end = _text_element("caption", width / 2, height - 11, caption, muted, anchor="middle") if caption else ""
    return "\n".join(filter(None, [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{scope}" role="img" font-family="{FONT}" {size}>',
        f"<title>{title}</title>",
        f"<style>\n{_style(picture, dark, scope)}\n</style>",
        f'<rect class="fxp-ground" width="100%" height="100%" rx="6" fill="{GROUND[0]}"/>',
        f'<g transform="translate({_n(shift)} 0)">',
        *_clusters(picture.clusters, layout, light),
        *_twin_lines(picture.boxes, layout),
        *_lines(picture.lines, layout, light["intermediate"].text),
        *(_box(box, layout.boxes[box.key], light) for box in picture.boxes),
        "</g>", end, "</svg>"])) + "\n"


def _text_element(role: str, x: float, y: float, text: str, color: str, size: float = DETAIL,
                  anchor: str = "start") -> str:
    """Return a line of text outside of boxes."""
    return (f'<text class="fxp-{role}" x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}" font-size="{size}" '
            f'fill="{color}">{escape(text)}</text>')


def _n(number: float) -> str:
    """Format a number to a tenth, without trailing zeros."""
    return f"{round(number, 1) + 0.0:.1f}".removesuffix(".0")


# --- colours ------------------------------------------------------------------------------------------------------


def _style(picture: Picture, dark: Mapping[str, Paint], scope: str) -> str:
    """Return the style for dark pages. A notebook's light setting takes precedence over a dark system."""
    roles = {box.role for box in picture.boxes} | ({"cluster"} if picture.clusters else set())
    kinds = {line.kind for line in picture.lines} | {"twin" for box in picture.boxes if box.twin}
    kinds |= {"marked" for line in picture.lines if line.is_marked}
    rules = [f".{scope} {{ max-width: 100%; height: auto; }}"]
    system, page = f".{scope}:not(:is({LIGHT_PAGES}) *)", f":is({DARK_PAGES}) .{scope}"
    for around, begin, end in ((system, "@media (prefers-color-scheme: dark) {\n", "\n}"), (page, "", "")):
        rules.append(begin + "\n".join(_rules(around, dark, sorted(roles), sorted(kinds))) + end)
    return "\n".join(rules)


def _rules(scope: str, palette: Mapping[str, Paint], roles: Sequence[str], kinds: Sequence[str]) -> Iterator[str]:
    yield f"{scope} .fxp-ground {{ fill: {GROUND[1]}; }}"
    yield f"{scope} :is(.fxp-caption, .fxp-title) {{ fill: {palette['cluster'].text}; }}"
    yield f"{scope} .fxp-label {{ fill: {palette['intermediate'].text}; }}"
    for role in roles:
        fill, stroke, text = palette[role]
        yield f"{scope} .fxp-{role} .fxp-shape {{ fill: {fill}; stroke: {stroke}; }}"
        yield f"{scope} .fxp-{role} text {{ fill: {text}; }}"
    for kind in kinds:
        yield f"{scope} .fxp-{kind}-line {{ stroke: {LINES[kind][1]}; }}"
        yield f"{scope} .fxp-{kind}-head {{ fill: {LINES[kind][1]}; }}"
    yield f"{scope} .fxp-on .fxp-shape {{ stroke: {LINES['marked'][1]}; }}"


# --- lines --------------------------------------------------------------------------------------------------------


def _lines(lines: Sequence[Line], layout: PictureLayout, color: str) -> Iterator[str]:
    marked_last = sorted(range(len(lines)), key=lambda index: lines[index].is_marked)
    for index in marked_last:
        yield _line(lines[index], layout.lines[index])
    for index in marked_last:
        if lines[index].label:
            x, y = layout.labels[index]
            wide = text_width(lines[index].label, BESIDE) + 4
            yield (f'<rect class="fxp-ground" x="{_n(x - wide / 2)}" y="{_n(y - BESIDE * 0.62)}" width="{_n(wide)}" '
                   f'height="{_n(BESIDE * 1.24)}" fill="{GROUND[0]}"/>'
                   + _text_element("label", x, y + BESIDE * 0.35, lines[index].label, color, BESIDE, "middle"))


def _line(line: Line, points: Sequence[Point]) -> str:
    look = "marked" if line.is_marked else line.kind
    color, width = LINES[look][0], 2.6 if line.is_marked else 1.4
    dash = f' stroke-dasharray="{DASHES[line.kind]}"' if line.kind in DASHES else ""
    tip, before = points[-1], points[-2]
    angle = math.atan2(tip[1] - before[1], tip[0] - before[0])
    cos, sin = math.cos(angle), math.sin(angle)
    neck = tip[0] - HEAD * 0.8 * cos, tip[1] - HEAD * 0.8 * sin
    back = tip[0] - HEAD * cos, tip[1] - HEAD * sin
    corners = " ".join(f"{_n(x)},{_n(y)}" for x, y in (
        tip, (back[0] - HALF * sin, back[1] + HALF * cos), (back[0] + HALF * sin, back[1] - HALF * cos)))
    return (f'<g data-from="{escape(line.source)}" data-to="{escape(line.target)}">'
            f'<path class="fxp-{look}-line" fill="none" stroke="{color}" stroke-width="{width}"{dash} '
            f'd="{_path([*points[:-1], neck])}"/>'
            f'<polygon class="fxp-{look}-head" fill="{color}" points="{corners}"/></g>')


def _path(points: Sequence[Point]) -> str:
    """Return a line through points, with round corners."""
    pieces = [f"M{_n(points[0][0])} {_n(points[0][1])}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        first, second = _corner_start(corner, before), _corner_start(corner, after)
        pieces.append(f"L{_n(first[0])} {_n(first[1])}Q{_n(corner[0])} {_n(corner[1])} {_n(second[0])} {_n(second[1])}")
    pieces.append(f"L{_n(points[-1][0])} {_n(points[-1][1])}")
    return "".join(pieces)


def _corner_start(corner: Point, other: Point) -> Point:
    """Return the point where the rounding of a corner begins."""
    distance = math.dist(corner, other)
    share = min(ROUND, distance / 2) / distance if distance else 0.0
    return corner[0] + (other[0] - corner[0]) * share, corner[1] + (other[1] - corner[1]) * share


def _twin_lines(boxes: Sequence[Box], layout: PictureLayout) -> Iterator[str]:
    """Yield faint lines from items of the backward pass to their forward items."""
    for box in boxes:
        if box.twin in layout.boxes:
            one, other = layout.boxes[box.twin], layout.boxes[box.key]
            turn = 1 if other.x > one.x else -1
            yield (f'<line class="fxp-twin-line" stroke="{LINES["twin"][0]}" stroke-width="1" stroke-dasharray="1 4" '
                   f'x1="{_n(one.x + turn * one.width / 2)}" y1="{_n(one.y)}" '
                   f'x2="{_n(other.x - turn * other.width / 2)}" y2="{_n(other.y)}"/>')


# --- boxes --------------------------------------------------------------------------------------------------------


def _clusters(clusters: Sequence[Cluster], layout: PictureLayout, palette: Mapping[str, Paint]) -> Iterator[str]:
    for cluster in clusters:
        frame = layout.clusters[cluster.key]
        left, line = layout.titles[cluster.key]
        yield (f'<g class="fxp-cluster">{_rectangle(frame, 8, "1", palette["cluster"])}'
               f"{_text_element('title', left, line, cluster.title, palette['cluster'].text, TITLE)}</g>")


def _rectangle(frame: Frame, radius: float, width: str, paint: Paint) -> str:
    return (f'<rect class="fxp-shape" x="{_n(frame.x - frame.width / 2)}" y="{_n(frame.y - frame.height / 2)}" '
            f'width="{_n(frame.width)}" height="{_n(frame.height)}" rx="{_n(radius)}" fill="{paint.fill}" '
            f'stroke="{paint.stroke}" stroke-width="{width}"/>')


def _box(box: Box, frame: Frame, palette: Mapping[str, Paint]) -> str:
    paint = palette[box.role]
    color = LINES["marked"][0] if box.is_marked else paint.stroke
    width = "3" if box.is_marked else "2" if box.role == "output" else "1.4"
    if box.shape == "circle":
        shape = (f'<circle class="fxp-shape" cx="{_n(frame.x)}" cy="{_n(frame.y)}" r="{_n(frame.width / 2)}" '
                 f'fill="{paint.fill}" stroke="{color}" stroke-width="{width}"/>')
    else:
        radius = {"square": 3.0, "pill": min(frame.height, 30.0) / 2}[box.shape]
        shape = _rectangle(frame, 6.0 if box.kind == "layer" else radius, width, paint._replace(stroke=color))
    top, texts = frame.y - text_height(box) / 2, []
    for number, (text, font) in enumerate(text_rows(box)):
        bold = ' font-weight="600"' if not number else ""
        texts.append(f'<text x="{_n(frame.x)}" y="{_n(top + font * (LEADING / 2 + 0.34))}" text-anchor="middle" '
                     f'font-size="{font:g}" fill="{paint.text}"{bold}>{escape(text)}</text>')
        top += font * LEADING
    twin = f' data-twin="{escape(box.twin)}"' if box.twin else ""
    note = f"<title>{escape(box.note)}</title>" if box.note else ""
    on = " fxp-on" if box.is_marked else ""
    return f'<g class="fxp-{box.role}{on}" data-box="{escape(box.key)}"{twin}>{note}{shape}{"".join(texts)}</g>'
