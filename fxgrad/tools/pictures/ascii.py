"""Draw pictures in characters for terminals, logs and comments: boxes in rows, lines between them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fxgrad.tools.pictures.layers import Layers, arrange_layers
from fxgrad.tools.pictures.picture import Box, Line, Picture

STEEP = 3
"""Rows that slanted lines may take; longer ones have corners."""
MOST_EXCHANGED = 60
PLAIN = str.maketrans({"·": "_", "…": "~", "×": "x"})
"""Replacements of the other characters where only ASCII is available."""


def ascii_text(picture: Picture) -> str:
    r"""Return the picture in characters, downward or to the right; regions follow as separate pictures.

    >>> boxes = (Box("x", "x"), Box("y", "y"), Box("add", "+", kind="operation"), Box("z", "z"))
    >>> lines = (Line("x", "add"), Line("y", "add", position=1), Line("add", "z"))
    >>> print(ascii_text(Picture("", boxes, lines)))
    x   y
     \ /
     [+]
      |
      z
    """
    between = [line for line in picture.lines if line.source != line.target]
    draw = _draw_text if picture.orientation == "down" else _draw_rightward
    parts = [draw(_with_labels(picture._replace(lines=tuple(between)))), picture.caption]
    for title, inset in picture.insets:
        inner = ascii_text(inset).splitlines()
        parts.append("\n".join([f"{title}:", *(f"  {line}".rstrip() for line in inner)]))
    return "\n\n".join(part for part in parts if part).translate(PLAIN)


def _with_labels(picture: Picture) -> Picture:
    """Return the picture with each line label as a box that splits its line in two."""
    boxes, lines = [*picture.boxes], []
    for number, line in enumerate(picture.lines):
        if line.label:
            key = f"label{number}"
            boxes.append(Box(key, line.label, is_marked=line.is_marked))
            lines += [line._replace(target=key, label=""), line._replace(source=key, label="")]
        else:
            lines.append(line)
    return picture._replace(boxes=tuple(boxes), lines=tuple(lines))


def _box_lines(box: Box, lines: int) -> list[str]:
    """Return the text lines of a box at which `lines` lines arrive.

    The user's names are bare, operations and expressions are in brackets, marked boxes in stars.
    """
    label = f"*{box.label}*" if box.is_marked else box.label
    has_brackets = label.startswith("[") and label.endswith("]")
    if not has_brackets and (box.kind != "value" or box.is_expression or box.shape == "square"):
        label = f"[{label.center(_box_width(lines) - 2)}]"
    return [label, *box.details]


def _box_width(lines: int) -> int:
    """Return the width of a box at which that many lines arrive, two columns apart."""
    return 2 * lines + (1 if lines > 1 and lines % 2 else -1)


def _draw_text(picture: Picture) -> str:
    pins: dict[str, int] = {}
    for line in picture.lines:
        pins[line.ends[1]] = pins.get(line.ends[1], 0) + 1
    texts = {box.key: _box_lines(box, pins.get(box.key, 0)) for box in picture.boxes}
    widths = {key: max(*(len(text) for text in lines), _box_width(pins.get(key, 0))) for key, lines in texts.items()}
    arcs = [line.ends for line in picture.lines]
    for step in (1, 2, 4):  # wider columns if lines would overlap; with a step of four none can
        drawing = _Drawing(texts, widths, arrange_layers([*texts], arcs, widths, step), picture.lines, even=step > 1)
        if drawing.is_right:
            break
    return drawing.text


def _draw_rightward(picture: Picture) -> str:
    """Return the picture from left to right: the layers are columns, whose boxes have rows."""
    texts = {box.key: _box_lines(box, 1) for box in picture.boxes}
    heights = {key: 2 * len(lines) - 1 for key, lines in texts.items()}
    layers = arrange_layers([*texts], [line.ends for line in picture.lines], heights, 2)
    leftward = {line.ends for line in picture.lines if line.is_upward}
    for shift in (0, 1):  # columns in turns a row lower, where a line would run over another one
        rows = {name: layers.columns[name] // 2 * (1 + shift) + shift * (number % 2)
                for number, layer in enumerate(layers.rows) for name in layer}
        drawn = _Rightward(texts, layers, rows, leftward)
        if drawn.is_right:
            break
    return drawn.text


class _Rightward:
    """Characters by row and column, drawn from left to right.

    The lines to a box meet in a track, a vertical piece of its own, unless the only one is straight. An `o` is where a
    line goes on and gives one to a track, a `+` where lines meet; lines cross straight.
    """

    def __init__(self, texts: Mapping[str, Sequence[str]], layers: Layers, rows: Mapping[str, int],
                 leftward: set[tuple[str, str]]) -> None:
        self._texts, self._layers, self._rows, self._leftward = texts, layers, rows, leftward
        self.is_right = True
        self._chars: dict[int, dict[int, str]] = {}
        column = 0
        for number, layer in enumerate(layers.rows):
            width = max(len(text) for name in layer for text in texts.get(name, [""]))
            ahead = layers.rows[number + 1] if number + 1 < len(layers.rows) else []
            tracks = self._tracks(ahead)
            first, after = column + width + 3, column + width + 3 + 2 * len(tracks) + 3
            self._boxes(layer, column, first)
            if ahead:
                self._lines(ahead, {name: first + 2 * place for place, name in enumerate(tracks)}, first, after)
            column = after

    @property
    def text(self) -> str:
        lines = []
        for row in range(min(self._chars, default=0), max(self._chars, default=-1) + 1):
            chars = self._chars.get(row, {})
            lines.append("".join(chars.get(column, " ") for column in range(max(chars, default=-1) + 1)).rstrip())
        return "\n".join(lines)

    def _put(self, row: int, column: int, char: str) -> None:
        self._chars.setdefault(row, {})[column] = char

    def _boxes(self, layer: Sequence[str], column: int, first: int) -> None:
        """Draw the boxes of a layer, and their lines and those that pass between them as far as the first track."""
        for name in layer:
            row, end = self._rows[name], column
            for below, text in enumerate(self._texts.get(name, [])):
                for place, char in enumerate(text, column):
                    self._put(row + below, place, char)
            if name in self._texts:
                end = column + len(self._texts[name][0])
                users = self._layers.down.get(name, [])
                if any((name, self._end(user)) in self._leftward for user in users):
                    self._put(row, end, "<")
                end += 1
            if self._layers.down.get(name):
                for place in range(end, first):
                    self._put(row, place, "-")

    def _end(self, name: str) -> str:
        """Return the box at which a line through a rail arrives."""
        while name not in self._texts:
            name = self._layers.down[name][0]
        return name

    def _tracks(self, ahead: Sequence[str]) -> list[str]:
        """Return the boxes of a layer whose lines need a track, in an order in which no line covers another."""
        rows, up = self._rows, self._layers.up
        needed = [name for name in ahead if up[name] and {rows[source] for source in up[name]} != {rows[name]}]
        # A line from a row goes as far as the last of its tracks; the one that arrives in that row begins behind it.
        before = {name: {other for other in needed if other != name and any(
            rows[source] == rows[name] for source in up[other])} for name in needed}
        order: list[str] = []
        while len(order) < len(needed):
            free = [name for name in needed if name not in order and before[name] <= {*order}]
            self.is_right &= bool(free)
            order += free or [name for name in needed if name not in order]
        return order

    def _lines(self, ahead: Sequence[str], tracks: Mapping[str, int], first: int, after: int) -> None:
        """Draw the lines of one gap: horizontal pieces, then tracks over them, then where both meet."""
        rows, up = self._rows, self._layers.up
        last: dict[int, int] = {}
        for name in ahead:
            reach = tracks.get(name, after - 1)
            for source in up[name]:
                last[rows[source]] = max(last.get(rows[source], 0), reach)
        for row, reach in last.items():
            for place in range(first, reach):
                self._put(row, place, "-")
        for name in ahead:
            if not up[name]:
                continue
            for place in range(tracks.get(name, first), after):
                self._put(rows[name], place, "-")
            if name in self._texts:
                is_back = all((self._origin(source), name) in self._leftward for source in up[name])
                self._put(rows[name], after - 2, "-" if is_back else ">")
                self._put(rows[name], after - 1, " ")
        for name, column in tracks.items():
            met = {rows[source] for source in up[name]}
            top, bottom = min(*met, rows[name]), max(*met, rows[name])
            for row in range(top, bottom + 1):
                if row in met and row == rows[name]:
                    char = "+"
                elif row in met and last[row] > column:
                    char = "o"
                elif row in met or row == rows[name]:
                    char = "." if row == top else "'" if row == bottom else "+"
                else:
                    char = "|"
                self._put(row, column, char)

    def _origin(self, name: str) -> str:
        """Return the box at which a line through a rail begins."""
        while name not in self._texts:
            name = self._layers.up[name][0]
        return name


class LineNet(NamedTuple):
    """All lines from one box or rail to the next row: from one column to several."""

    name: str
    top: int
    bottom: list[int]

    @property
    def is_straight(self) -> bool:
        return self.bottom == [self.top]

    @property
    def span(self) -> tuple[int, int]:
        return min(self.top, *self.bottom), max(self.top, *self.bottom)


class _Drawing:
    """Characters by row and column, drawn from above to below."""

    def __init__(self, texts: Mapping[str, Sequence[str]], widths: Mapping[str, int], layers: Layers,
                 lines: Sequence[Line], even: bool) -> None:
        self._texts, self._widths, self._layers, self._even = texts, widths, layers, even
        self._upward = {line.ends[0] for line in lines if line.is_upward}
        self.is_right = True
        self._rows: list[dict[int, str]] = []
        for number, row in enumerate(layers.rows):
            self._boxes(row)
            if number + 1 < len(layers.rows):
                nets = self._nets(row, layers.rows[number + 1])
                if not self._upward.isdisjoint(net.name for net in nets):
                    self._rows.append({net.top: "^" if net.name in self._upward else "|" for net in nets})
                if all(net.is_straight for net in nets):
                    self._rows.append({net.top: "|" for net in nets})
                elif not self._draw_slanted(nets):
                    self._draw_corners(nets)

    @property
    def text(self) -> str:
        lines = ["".join(row.get(column, " ") for column in range(max(row, default=-1) + 1)) for row in self._rows]
        indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        return "\n".join(line[indent:].rstrip() for line in lines)

    def _boxes(self, row: Sequence[str]) -> None:
        height = max(len(self._texts.get(name, "|")) for name in row)
        rows: list[dict[int, str]] = [{} for _ in range(height)]
        for name in row:
            column = self._layers.columns[name]
            for number, text in enumerate(self._texts.get(name, ["|"])):
                for place, char in enumerate(text, column - len(text) // 2):
                    rows[number][place] = char
            if self._layers.down.get(name):
                for each in rows[len(self._texts.get(name, "|")):]:
                    each[column] = "^" if name in self._upward else "|"
                    self._upward.discard(name)  # its arrow has its head
        self._rows += rows

    # --- between two rows -----------------------------------------------------------------------------------

    def _nets(self, above: Sequence[str], below: Sequence[str]) -> list[LineNet]:
        columns = self._layers.columns
        nets = {name: LineNet(name, columns[name], []) for name in above if self._layers.down.get(name)}
        for name in below:
            sources = sorted(self._layers.up[name], key=lambda source: columns[source])
            for source, column in zip(sources, self._pins(name, sources), strict=True):
                nets[source].bottom.append(column)
        return [*nets.values()]

    def _pins(self, name: str, sources: Sequence[str]) -> list[int]:
        """Return the columns at which lines from `sources` reach a box: centered, on odd columns for an even count.

        So they are not below the middle of another box.
        """
        middle, count = self._layers.columns[name], len(sources)
        if count == 1:
            return [middle]
        if self._even:
            return [middle + 2 * place - count + 1 + count % 2 for place in range(count)]
        return [middle + 2 * place - count + 1 for place in range(count)]

    def _draw_slanted(self, nets: Sequence[LineNet]) -> bool:
        """Draw short lines slanted if none meets another; return whether it did."""
        height = max(abs(column - net.top) for net in nets for column in net.bottom)
        if height > STEEP or any(len(net.bottom) > 1 for net in nets):
            return False
        rows: list[dict[int, str]] = [{} for _ in range(height)]
        for net in nets:
            column, target = net.top, net.bottom[0]
            for left, row in zip(range(height, 0, -1), rows, strict=True):
                turn = 0 if abs(target - column) < left else 1 if target > column else -1
                column += turn
                if column in row:
                    return False
                row[column] = {-1: "/", 0: "|", 1: "\\"}[turn]
        self._rows += rows
        return True

    def _draw_corners(self, nets: Sequence[LineNet]) -> None:
        """Draw a horizontal piece for each net that is not straight, in as few rows as they fit in."""
        tracks = self._tracks(nets)
        first = {net.name: number for number, track in enumerate(tracks) for net in track}
        rows: list[dict[int, str]] = [{} for _ in tracks]
        for net in nets:
            at = first.get(net.name, len(tracks))
            for number in range(len(tracks)):
                for column in [net.top] if number < at else net.bottom if number > at else []:
                    self.is_right &= column not in rows[number]
                    rows[number][column] = "|"
        for number, track in enumerate(tracks):
            for net in track:
                self._horizontal(rows[number], net)
        self._rows += rows

    @staticmethod
    def _horizontal(row: dict[int, str], net: LineNet) -> None:
        """Draw a horizontal piece: lines from above end in `'`, lines downward start with a dot, both give a cross."""
        left, right = net.span
        for column in range(left, right + 1):
            if column == net.top:
                row[column] = "+" if column in net.bottom else "'"
            elif column in net.bottom:
                row[column] = "."
            elif column not in row:
                row[column] = "-"

    def _tracks(self, all_nets: Sequence[LineNet]) -> list[list[LineNet]]:
        """Distribute the nets that are not straight over rows, so that few lines cross and none covers another."""
        nets = sorted([net for net in all_nets if not net.is_straight],
                      key=lambda net: (net.span[0] + net.span[1], net.top))
        for _ in range(len(nets) if len(nets) < MOST_EXCHANGED else 0):
            changed = False
            for index in range(len(nets) - 1):
                first, second = nets[index], nets[index + 1]
                if _cost(second, first) < _cost(first, second):
                    nets[index], nets[index + 1] = second, first
                    changed = True
            if not changed:
                break
        tracks: list[list[LineNet]] = []
        taken = {column for net in all_nets for column in (net.top, *net.bottom)}
        for net in nets:
            if tracks and all(_is_between(other, net, taken) or _is_between(net, other, taken) for other in tracks[-1]):
                tracks[-1].append(net)
            else:
                tracks.append([net])
        self.is_right &= all(_cost(first, second) < COVERED for one, other in itertools.combinations(tracks, 2)
                             for first in one for second in other)
        return tracks


def _is_between(left: LineNet, right: LineNet, taken: set[int]) -> bool:
    """Return whether two nets in one row have a free column between them."""
    return any(column not in taken for column in range(left.span[1] + 1, right.span[0]))


COVERED = 1000


def _cost(upper: LineNet, lower: LineNet) -> int:
    """Return the number of crossings if one net is drawn above the other; a huge number if lines would overlap."""
    left, right = upper.span
    cost = int(left <= lower.top <= right)
    left, right = lower.span
    cost += sum(left <= column <= right for column in upper.bottom)
    return cost + COVERED * (lower.top in upper.bottom)
