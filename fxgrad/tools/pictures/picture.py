"""Pictures before they have a place on the page: boxes, lines between them, clusters around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from fxgrad.text.quoting import one_line

Kind = Literal["value", "operation", "layer"]
Shape = Literal["circle", "square", "pill"]
Part = Literal["forward", "backward"]
Flow = Literal["forward", "gradient", "saved", "carry"]


class Box(NamedTuple):
    """A box for a value, an operation or a layer.

    `label` is its name and `details` the lines below it: type, value, gradient. `role` decides the colour, `note` is
    the hover text. The label of a value without a name is the expression that computes it, or a letter. A box of a
    backward pass has the key of its forward box as `twin`.
    """

    key: str
    label: str
    details: tuple[str, ...] = ()
    kind: Kind = "value"
    shape: Shape = "pill"
    role: str = "intermediate"
    part: Part = "forward"
    cluster: str = ""
    note: str = ""
    twin: str = ""
    is_expression: bool = False
    has_name: bool = True
    is_marked: bool = False


class Line(NamedTuple):
    """A dependency: `target` is computed from `source`, at operand `position`.

    Gradients flow back beside their values, so their lines are drawn upward, as are those from one step of a loop to
    the next.
    """

    source: str
    target: str
    label: str = ""
    kind: Flow = "forward"
    position: int = 0
    is_marked: bool = False
    is_upward: bool = False

    @property
    def ends(self) -> tuple[str, str]:
        """The box above and the box below."""
        return (self.target, self.source) if self.is_upward else (self.source, self.target)


class Cluster(NamedTuple):
    """A frame around boxes, and around other clusters: a loop, a branch, a layer."""

    key: str
    title: str
    parent: str = ""


class Picture(NamedTuple):
    """A picture without positions or style.

    `caption` is the line below; `orientation` says whether lines lead "down" or to the "right". `insets` are the
    pictures of regions that are not drawn in the picture itself, by their titles.
    """

    title: str
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    clusters: tuple[Cluster, ...] = ()
    caption: str = ""
    insets: tuple[tuple[str, Picture], ...] = ()
    orientation: str = "down"

    def printable(self) -> Picture:
        """Return the picture with control characters written as escapes, since no style can draw them."""
        return _printable(self)

    def without(self, gone: Callable[[Box], bool], label: Callable[[Box, Line], str]) -> Picture:
        """Return the picture with boxes contracted: each incoming line of such a box continues along each outgoing one.

        `label(box, incoming)` is the label of the joined line.
        """
        lines = [*self.lines]
        for box in self.boxes:
            if gone(box):
                entering = [line for line in lines if line.target == box.key]
                leaving = [line for line in lines if line.source == box.key]
                through = [first._replace(target=second.target, label=label(box, first),
                                          kind=_joined_flow(first, second),
                                          position=(first if box.kind == "operation" else second).position,
                                          is_upward=_is_upward(first, second),
                                          is_marked=first.is_marked and second.is_marked)
                           for second in leaving for first in entering]
                lines = [line for line in lines if box.key not in (line.source, line.target)] + through
        return self._replace(boxes=tuple([box for box in self.boxes if not gone(box)]), lines=tuple(lines))


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isprintable() else "\n".join(map(one_line, value.split("\n")))
    if not isinstance(value, tuple):
        return value
    make: Any = getattr(value, "_make", tuple)  # of a named tuple
    return make(map(_printable, value))


def _joined_flow(first: Line, second: Line) -> Flow:
    """Return the kind of a line joined of two: from one step to the next, saved, or as the second."""
    kinds = first.kind, second.kind
    return "carry" if "carry" in kinds else "saved" if first.kind == "saved" else second.kind


def _is_upward(first: Line, second: Line) -> bool:
    carried = [line for line in (first, second) if line.kind == "carry"]
    return carried[0].is_upward if carried else first.is_upward and second.is_upward
