"""`draw`: the picture of a function, a program or a graph, and the object that it returns."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path as File
from typing import Any, Literal

from fxgrad.errors import ArgumentError, UnsupportedError
from fxgrad.extend import Program, at_user_line, hide_frames, transformation
from fxgrad.text.inlining import holds_call, inline
from fxgrad.tools.graphs.graph import Graph
from fxgrad.tools.graphs.graph import graph as graph_of
from fxgrad.tools.graphs.nodes import Edge, Node
from fxgrad.tools.graphs.paths import Path
from fxgrad.tools.graphs.roles import Roles
from fxgrad.tools.pictures.ascii import ascii_text
from fxgrad.tools.pictures.dot import dot_text, mermaid_text
from fxgrad.tools.pictures.html import html_text
from fxgrad.tools.pictures.joint import JointGraph, has_backward, with_backward
from fxgrad.tools.pictures.network import layer_names, network_view
from fxgrad.tools.pictures.picture import Picture
from fxgrad.tools.pictures.svg import svg_text
from fxgrad.tools.pictures.theme import Theme, apply_theme
from fxgrad.tools.pictures.views import PictureOptions, bipartite, highlighted_items, op_view, opened_names, value_view
from fxgrad.tools.pictures.words import list_choices

View = Literal["bipartite", "value", "op", "network"]
Show = Literal["forward", "backward", "joint"]
Orientation = Literal["down", "right"]
Style = Literal["ascii", "svg", "dot", "mermaid", "html"]

VIEWS = {"bipartite": bipartite, "value": value_view, "op": op_view, "network": network_view}
ORIENTATIONS = ("down", "right")
SHOWS = ("forward", "backward", "joint")
STYLES = {"ascii": lambda picture, _: ascii_text(picture), "svg": svg_text, "dot": dot_text,
          "mermaid": mermaid_text, "html": html_text}
ENDINGS = {".svg": "svg", ".dot": "dot", ".gv": "dot", ".mmd": "mermaid", ".mermaid": "mermaid", ".html": "html",
           ".htm": "html", ".txt": "ascii"}


class Drawing:
    r"""A picture in one style: `print` and `str` give its text, notebooks display it, `save` writes it.

    `picture` has the boxes and lines, without positions. Notebooks show it as SVG if they can.

    >>> import fxgrad
    >>> print(fxgrad.draw(lambda x, y, w: (x + y) * w)(2.0, 3.0, 4.0))
    x   y
     \ /
     [+]
      |
    [x+y]   w
       \   /
        \ /
        [*]
         |
         b
    """

    def __init__(self, make: Callable[[str], Picture], style: str, theme: Theme | None) -> None:
        self._make, self.style, self._theme = make, style, theme
        self.picture = make(style).printable()

    def text(self, style: str | None = None) -> str:
        """Return the picture in a style, by default its own.

        Raises `ArgumentError` for an unknown style; `UnsupportedError` for SVG and HTML without graphlay.
        """
        chosen: str = _require_choice("style", style or self.style, STYLES)
        picture = self.picture if chosen == self.style else self._make(chosen).printable()
        return STYLES[chosen](picture, self._theme)

    def save(self, path: str | File) -> None:
        """Write the picture to a file, in the style of its ending: .svg, .html, .dot, .mmd, .txt.

        Raises `ArgumentError` for other endings; as `text` does.
        """
        file = File(path)
        if file.suffix not in ENDINGS:
            raise ArgumentError(at_user_line(
                f"draw: a file that ends with {file.suffix!r} is none of a picture; "
                f"save it as {list_choices([*ENDINGS], str)}"))
        file.write_text(self.text(ENDINGS[file.suffix]) + ("\n" if ENDINGS[file.suffix] == "ascii" else ""),
                        encoding="utf-8")

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_svg_(self) -> str | None:
        """Return the SVG for notebooks; None, so that they show the text, if the layout library is not installed."""
        try:
            return self.text("svg")
        except UnsupportedError:
            return None

    _repr_html_ = _repr_svg_  # in the page itself an SVG has its notes, and the colours of the page


def draw(fun: Callable[..., Any] | Program | Graph, *, view: View = "bipartite", show: Show | None = None,
         style: Style = "ascii", roles: Roles | None = None, argnums: int | Sequence[int] | None = None,
         types: bool = True, values: bool = False, derivatives: bool = False,
         expand: bool | str | Collection[str] | None = None, highlight: Any = None, theme: Theme | None = None,
         orientation: Orientation = "down") -> Any:
    r"""Return the picture of a program or a graph; for a function, a function that traces it and returns the picture.

    | `view` | boxes are | lines are |
    |---|---|---|
    | "bipartite" | values and operations | what goes into an operation, and what comes out |
    | "value" | values | operations |
    | "op" | operations, between leaves and results | values |
    | "network" | layers | what flows between them |

    With `show="joint"` the backward pass is drawn beside the forward one, each gradient beside its value, and with
    "backward" alone; by default a gradient's program is drawn with both, and others as they are. `style` is "ascii",
    "svg", "dot", "mermaid" or "html". `roles` and `argnums` mark arguments as parameters, as in `fxgrad.graph`;
    gradients with respect to these are drawn. `types` and `values` are shown below names (in joint pictures with the
    gradients), local `derivatives` at lines. `expand` has the names of the operations and layers to open: True for all,
    False for none, by default loops and branches. `highlight` is a node, a path of `fxgrad.paths`, or several, nodes by
    name. `theme` changes colours by role, {"input": "#cfe8ff"}. Pictures lead down, or with `orientation="right"` from
    left to right.

    Raises `ArgumentError` for an unknown view, style, show, orientation, role, node or layer, and for `values` of a
    graph without values; `UnsupportedError` for SVG and HTML if graphlay is not installed
    (`pip install 'fxgrad[draw]'`).

    >>> import fxgrad
    >>> print(fxgrad.draw(lambda w, x: w * x, view="value")(2.0, 3.0))
    w   x
    |   |
    *   *
     \ /
    [w*x]
    >>> print(fxgrad.draw(lambda x, y, w: (x + y) * w, orientation="right")(2.0, 3.0, 4.0))
    x --.
        +--> [+] ---> [x+y] --.
    y --'                     +--> [*] ---> b
                      w ------'
    """
    chosen = _require_choice("view", view, VIEWS)
    _require_choice("show", show or "forward", SHOWS)
    _require_choice("style", style, STYLES)
    _require_choice("orientation", orientation, ORIENTATIONS)
    apply_theme(theme)
    wishes = PictureOptions(types, values, derivatives, (expand,) if isinstance(expand, str) else expand)

    def drawn(graph: Graph) -> Drawing:
        if (values or derivatives) and not graph.has_values:
            raise ArgumentError(at_user_line(
                f"draw: {'values' if values else 'derivatives'}=True needs the numbers of {graph!r}, which was made of "
                "a program, or of shapes alone. Write fxgrad.draw(f, ...)(*arrays), or fxgrad.draw(graph.with_values("
                "*arrays), ...)"))
        return Drawing(lambda wanted: _oriented(
            _picture(graph, chosen, show, wanted, wishes, highlight), orientation), style, theme)

    if isinstance(fun, Graph | Program):
        if isinstance(fun, Program):
            return drawn(_inline_single_call(graph_of(fun, argnums, roles=roles)))
        leaves = [node.value for node in fun.inputs] if fun.has_values else None
        return drawn(Graph(fun.program, roles, leaves=leaves) if roles else fun)

    @transformation("draw", fun)
    @hide_frames
    def traced(*args: Any, **kwargs: Any) -> Drawing:
        return drawn(_inline_single_call(graph_of(fun, argnums, roles=roles)(*args, **kwargs)))

    return traced


def _oriented(picture: Picture, orientation: str) -> Picture:
    """Return the picture, and those of its regions, in an orientation."""
    return picture._replace(orientation=orientation, insets=tuple(
        [(title, _oriented(inset, orientation)) for title, inset in picture.insets]))


def _inline_single_call(graph: Graph) -> Graph:
    """Return the inner graph if a program is a single call: for a jitted function, the function's graph."""
    while len(graph.operations) == 1:
        only = graph.operations[0].equation
        if not holds_call(only) or only.regions[0].role != "call":
            break
        leaves = [node.value for node in graph.inputs] if graph.has_values else None
        made = Graph(inline(graph.program, calls=partial(operator.is_, only)), leaves=leaves)
        for node, before in zip(made.inputs, graph.inputs, strict=True):
            node.role = before.role
        for node, within in zip(made.outputs, graph.operations[0].subgraphs[0].graph.outputs, strict=True):
            if node.producer is not None:  # the name that the call is assigned to is not its result's
                node.name, node.is_named = within.name if within.is_named else "out", within.is_named
        graph = made
    return graph


def _require_choice(name: str, value: Any, known: Iterable[str]) -> Any:
    if value not in known:
        raise ArgumentError(at_user_line(
            f"draw: there is no {name} {value!r}; take {name}={list_choices([*known])}"))
    return value


def _picture(graph: Graph, view: str, show: str | None, style: str, wishes: PictureOptions, highlight: Any) -> Picture:
    """Return the picture for a style: text styles have regions beside the picture, not in it."""
    show = show or ("joint" if has_backward(graph) else "forward")
    if style == "ascii" and wishes.expand is None and view != "network":
        wishes = wishes._replace(inset=True)
    _check_expand(graph, view, wishes)
    if show == "forward" and not has_backward(graph):
        nodes, edges = highlighted_items(graph, highlight)
        return VIEWS[view](graph, wishes._replace(marked=nodes, path=edges))
    if wishes.expand is None and view != "network":  # two passes are enough for one picture
        wishes = wishes._replace(expand=False)
    both = with_backward(graph)
    nodes, edges = _marks_in_both(both, graph, highlight)
    picture = VIEWS[view](both.graph, wishes._replace(
        marked=nodes, path=edges, backward=both.backward, twins=both.twins, names=both.names,
        gradients=both.gradients() if wishes.values else {}))
    picture = picture if show == "joint" else _one_pass(picture, show)
    keys = {box.key for box in picture.boxes}  # views omit some of them
    return picture._replace(boxes=tuple([box if box.twin in keys else box._replace(twin="") for box in picture.boxes]))


def _check_expand(graph: Graph, view: str, wishes: PictureOptions) -> None:
    if wishes.expand is None or isinstance(wishes.expand, bool):
        return
    known = layer_names(graph) if view == "network" else opened_names(graph)
    for name in wishes.expand:
        if name not in known:
            what = "layer" if view == "network" else "operation that holds a program"
            raise ArgumentError(at_user_line(
                f"draw: {graph.title or 'the program'} has no {what} called {name!r} to expand; "
                f"{f'take {list_choices(known)}' if known else 'it has none'}"))


def _marks_in_both(both: JointGraph, graph: Graph, highlight: Any) -> tuple[frozenset[Node], frozenset[Edge]]:
    """Return the items to highlight in the graph of both passes, matched to those of the forward graph."""
    if highlight is None or both.graph is graph:
        return highlighted_items(both.graph, highlight)
    again = {before: node for node, before in both.before.items()}
    known = {node.name: node for node in reversed(graph.nodes)}
    items = [highlight] if isinstance(highlight, str | Node | Path) else [*highlight]
    nodes = [node for item in items for node in (item.nodes if isinstance(item, Path) else [item])]
    forward = [known.get(node, node) if isinstance(node, str) else node for node in nodes]
    return highlighted_items(both.graph,
                             [again.get(node, node) if isinstance(node, Node) else node for node in forward])


def _one_pass(picture: Picture, show: str) -> Picture:
    """Return one pass of a joint picture; residuals become the leaves of the backward pass."""
    kept = {box.key for box in picture.boxes if box.part == show}
    lines = [line for line in picture.lines if line.target in kept]
    kept.update(line.source for line in lines)
    if show == "backward":  # residuals, without their computation
        lines = [line for line in lines if line.kind in ("gradient", "saved")]
    boxes = [box for box in picture.boxes if box.key in kept]
    return picture._replace(boxes=tuple(boxes), lines=tuple(lines))
