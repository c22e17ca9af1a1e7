"""Convert a graph to a picture: values and operations become boxes, some of which the views omit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from fxgrad.errors import FxgradError
from fxgrad.text.sources import Sources
from fxgrad.tools.graphs.graph import Graph
from fxgrad.tools.graphs.nodes import Edge, Node, Operation, Subgraph
from fxgrad.tools.graphs.paths import Path
from fxgrad.tools.pictures.picture import Box, Cluster, Flow, Line, Picture
from fxgrad.tools.pictures.words import (
    hover_text,
    is_expression,
    number_label,
    operation_label,
    shorten,
    type_label,
    value_label,
)

FOLDED = ("inline", "call", "recomputed")
"""Regions that are functions called once: shown as one operation unless they are expanded."""
CIRCLES = ("input", "parameter", "label", "constant", "gradient", "tangent")


class PictureOptions(NamedTuple):
    """The options of a picture: what it shows beside its structure.

    `expand` has the names of the operations to open; True for all that hold programs, False for none, and None for
    loops and branches. `inset` draws their programs as separate pictures. `twins` maps gradients to their nodes,
    `backward` has the nodes and operations of the backward pass, `names` the names of nodes there, `gradients` the
    numbers of the gradients of forward nodes.
    """

    types: bool = True
    values: bool = False
    derivatives: bool = False
    expand: bool | Collection[str] | None = None
    inset: bool = False
    marked: frozenset[Node] = frozenset()
    path: frozenset[Edge] = frozenset()
    backward: frozenset[Node | Operation] = frozenset()
    twins: Mapping[Any, Any] = MappingProxyType({})
    names: Mapping[Node, str] = MappingProxyType({})
    gradients: Mapping[Node, Any] = MappingProxyType({})

    def opens(self, operation: Operation) -> bool:
        """Return whether the programs that an operation holds are drawn inside of it."""
        if self.inset or not operation.equation.programs:
            return False
        if isinstance(self.expand, bool):
            return self.expand
        is_folded = all(region.role in FOLDED for region in operation.equation.regions)
        return not is_folded if self.expand is None else {operation.op, operation.name} & {*self.expand} != set()


def bipartite(graph: Graph, wishes: PictureOptions) -> Picture:
    """Return values and operations, each a box."""
    return _Builder(wishes).picture(graph)


def value_view(graph: Graph, wishes: PictureOptions) -> Picture:
    """Return a picture of values alone: each line is an operation, named on it."""
    return contract_operations(bipartite(graph, wishes))


def contract_operations(picture: Picture) -> Picture:
    """Return a picture of values and operations with the operations contracted."""
    made = {line.target for line in picture.lines}
    contracted = picture.without(
        lambda box: box.kind == "operation" and box.key in made,
        lambda box, first: f"{box.label}: {first.label}" if first.label else box.label)
    boxes = [box._replace(shape="square", role="operation" if box.role in ("intermediate", "output") else box.role)
             if box.key in made and box.kind == "value" else box for box in contracted.boxes]
    return contracted._replace(boxes=tuple(boxes))


def op_view(graph: Graph, wishes: PictureOptions) -> Picture:
    """Return a picture of operations, between leaves and results: each line is a value, named on it."""
    return contract_values(bipartite(graph, wishes))


def contract_values(picture: Picture) -> Picture:
    """Return a picture of values and operations with inner values contracted."""
    kinds = {box.key: box.kind for box in picture.boxes}
    made = {line.target for line in picture.lines}
    used = {line.source for line in picture.lines}
    beside = {line.key for line in picture.boxes if line.role == "output"}

    def is_between(box: Box) -> bool:
        return kinds[box.key] == "value" and box.key in made and box.key in used and box.key not in beside

    return picture.without(is_between, _line_label)


def _line_label(box: Box, _: Line) -> str:
    """Return the label of a line that is a value: its name if it has one, its type, its number."""
    name = "" if box.is_expression or not box.has_name else box.label
    return ": ".join(filter(None, [name, " ".join(box.details)]))


# --- how the picture of values and operations is built ----------------------------------------------------------------


class _Builder:
    """Builds the boxes, lines and clusters of a graph, and of its inner graphs."""

    def __init__(self, wishes: PictureOptions) -> None:
        self._wishes = wishes
        self._sources = Sources()
        self._is_backward = False  # whether the drawn items are inside an operation of the backward pass
        self.boxes: list[Box] = []
        self.lines: list[Line] = []
        self.clusters: list[Cluster] = []

    def picture(self, graph: Graph) -> Picture:
        self._graph(graph, "", "")
        insets = [(title, bipartite(inner.graph, self._wishes._replace(values=False)))
                  for operation in graph.operations if self._wishes.inset for title, inner in _inner_graphs(operation)]
        order = {box.key: box for box in self.boxes}
        lines = [line for line in self.lines if line.source in order and line.target in order]
        return Picture(graph.title, tuple(self.boxes), tuple(lines), tuple(self.clusters), insets=tuple(insets))

    def _graph(self, graph: Graph, prefix: str, cluster: str) -> None:
        values = self._wishes.values and not prefix and graph.has_values
        made_by = {node: node.producer for node in graph.nodes}
        placed: set[Operation] = set()
        for node in graph.nodes:
            is_unused = prefix and node.producer is None and not node.uses and not node.is_output
            if is_unused or (node.is_number and not node.is_output
                             and not any(edge.operation.equation.programs for edge in node.uses)):
                continue
            operation = made_by[node]
            if operation is not None and operation not in placed:
                placed.add(operation)
                self._operation(operation, prefix, cluster)
            self.boxes.append(self._value(node, prefix, cluster, values))
        for operation in graph.operations:  # operations without results, such as prints
            if operation not in placed:
                self._operation(operation, prefix, cluster)

    def _value(self, node: Node, prefix: str, cluster: str, values: bool) -> Box:
        wishes = self._wishes
        details = [type_label(node.aval)] if wishes.types and not node.is_number else []
        if node.placement and not (values and hasattr(node.value, "sharding")):
            details += [node.placement]
        if values and not node.is_number:
            details += [f"= {number_label(node.value)}"]
            details += [node.device] if hasattr(node.value, "sharding") else []
            if node in wishes.gradients:
                details += [f"d = {number_label(wishes.gradients[node])}"]
        role = "output" if node.is_output and node.role == "intermediate" else node.role
        name = wishes.names.get(node) or value_label(node)
        return Box(
            _box_key(node, prefix), name, tuple(filter(None, details)), "value",
            "circle" if node.producer is None and role in CIRCLES else "pill", role,
            self._part(node), cluster, hover_text(node.name, node.aval, node.source, self._sources),
            _box_key(wishes.twins[node], prefix) if node in wishes.twins else "",
            is_expression(node) and node not in wishes.names, node.is_named or node in wishes.names,
            node in wishes.marked)

    def _part(self, item: Node | Operation) -> Any:
        return "backward" if self._is_backward or item in self._wishes.backward else "forward"

    def _operation(self, operation: Operation, prefix: str, cluster: str) -> None:
        if self._wishes.opens(operation):
            self._opened(operation, prefix, cluster)
            return
        wishes, key = self._wishes, _box_key(operation, prefix)
        marked = self._is_marked(operation)
        self.boxes.append(Box(
            key, operation_label(operation), (), "operation", "square", "operation", self._part(operation), cluster,
            hover_text(operation.expression, None, operation.source, self._sources),
            _box_key(wishes.twins[operation], prefix) if operation in wishes.twins else "", is_marked=marked))
        self._arrive(operation, range(len(operation.inputs)), key, prefix)
        for node in operation.outputs:
            on = node in wishes.marked and marked
            self._line(key, _box_key(node, prefix), self._flow(operation, node), is_marked=on)

    def _arrive(self, operation: Operation, places: Iterable[int], key: str, prefix: str) -> None:
        wishes = self._wishes
        for position in places:
            source = operation.inputs[position]
            edges = [edge for edge in source.uses if edge.operation is operation and edge.position == position]
            on = any(edge in wishes.path for edge in edges) if wishes.path else \
                source in wishes.marked and not wishes.marked.isdisjoint(operation.outputs)
            self._line(_box_key(source, prefix), key, self._flow(source, operation), self._derivative(edges), position,
                       on)

    def _derivative(self, edges: Sequence[Edge]) -> str:
        """Return the local derivative along an edge, if it is requested and known."""
        if not self._wishes.derivatives:
            return ""
        found = []
        for edge in edges:
            try:
                found.append(number_label(edge.derivative))
            except FxgradError:  # of integers, or too large to be written out
                continue
        return ", ".join(found)

    def _is_marked(self, operation: Operation) -> bool:
        wishes = self._wishes
        if wishes.path:
            return any(edge.operation is operation for edge in wishes.path)
        return not wishes.marked.isdisjoint(operation.inputs) and not wishes.marked.isdisjoint(operation.outputs)

    def _line(self, source: str, target: str, kind: Flow, label: str = "", position: int = 0,
              is_marked: bool = False) -> None:
        self.lines.append(Line(source, target, label, kind, position, is_marked, kind == "gradient"))

    def _flow(self, source: Node | Operation, target: Node | Operation) -> Flow:
        backward = self._wishes.backward
        if self._is_backward:
            return "gradient"
        return "forward" if target not in backward else "gradient" if source in backward else "saved"

    # --- regions ----------------------------------------------------------------------------------------------

    def _opened(self, operation: Operation, prefix: str, cluster: str) -> None:
        """Add a frame with the programs that an operation holds, wired by its regions."""
        frame, subgraphs = _box_key(operation, prefix), operation.subgraphs
        several = len(subgraphs) > 1
        times = subgraphs[0].times if len(subgraphs) == 1 else None
        title = shorten(operation.op, 28) + ("" if times in (1, None) else f" × {times}")
        self.clusters.append(Cluster(frame, title, cluster))
        regions = operation.equation.regions
        linked = {link.place for region in regions for link in region.inputs}
        loose = [place for place in range(len(operation.inputs)) if place not in linked]
        merges = any(region.role == "branch" for region in regions)
        if loose or merges:  # operands that select or count
            self.boxes.append(Box(frame, operation_label(operation), (), "operation", "square", "operation",
                                  self._part(operation), frame,
                                  hover_text(operation.op, None, operation.source, self._sources)))
            self._arrive(operation, loose, frame, prefix)
        for number, (subgraph, region) in enumerate(zip(subgraphs, regions, strict=True)):
            within, inside = f"{frame}.{number}/", frame
            if several:
                inside = f"{frame}.{number}"
                self.clusters.append(Cluster(inside, operation.titles[number], frame))
            around, self._is_backward = self._is_backward, self._part(operation) == "backward"
            self._graph(subgraph.graph, within, inside)
            self._is_backward = around
            self._wire(operation, subgraph, region, (prefix, within, frame if merges else ""))
        if merges:
            for node in operation.outputs:
                self._line(frame, _box_key(node, prefix), self._flow(operation, node))

    def _wire(self, operation: Operation, subgraph: Subgraph, region: Any, at: tuple[str, str, str]) -> None:
        """Add lines into a region, out of it (to the box `merge` if given), and from one step to the next."""
        prefix, within, merge = at
        graph = subgraph.graph
        inputs = [graph.node_of(var) for var in region.program.inputs]
        carried = [node for node, link in zip(inputs, region.inputs, strict=True) if link.how == "carry"]
        for position, (node, link) in enumerate(zip(inputs, region.inputs, strict=True)):
            if link.place >= 0:
                self._line(_box_key(operation.inputs[link.place], prefix), _box_key(node, within),
                           self._flow(operation.inputs[link.place], operation), "", position)
        following = iter(carried)
        sent: set[tuple[str, str]] = set()
        for node, link in zip(graph.outputs, region.outputs, strict=True):
            if link.how == "carry":
                again = next(following)
                if again is not node:
                    is_back = self._part(operation) == "backward"
                    self.lines.append(Line(_box_key(node, within), _box_key(again, within), kind="carry",
                                           is_upward=not is_back))
            if link.place >= 0:
                target = merge or _box_key(operation.outputs[link.place], prefix)
                if (_box_key(node, within), target) not in sent:
                    sent.add((_box_key(node, within), target))
                    self._line(_box_key(node, within), target, self._flow(operation, operation.outputs[link.place]))


def opened_names(graph: Graph) -> list[str]:
    """Return the distinct names of the operations of a graph that hold programs, nested ones included."""
    found: dict[str, None] = {}
    stack = [graph]
    while stack:
        for operation in stack.pop().operations:
            if operation.equation.programs:
                found.update(dict.fromkeys((operation.op, operation.name)))
                stack.extend(subgraph.graph for subgraph in operation.subgraphs)
    return [*found]


def _box_key(item: Node | Operation, prefix: str) -> str:
    return f"{prefix}{'v' if isinstance(item, Node) else 'o'}{item.index}"


def _inner_graphs(operation: Operation) -> list[tuple[str, Subgraph]]:
    """Return the loops and branches that an operation holds, with titles: `scan, body × 3`."""
    if all(region.role in FOLDED for region in operation.equation.regions):
        return []
    return [(f"{operation.name}, {title}", each)
            for title, each in zip(operation.titles, operation.subgraphs, strict=True)]


# --- highlighting ---------------------------------------------------------------------------------------------------


def highlighted_items(graph: Graph, highlight: Any) -> tuple[frozenset[Node], frozenset[Edge]]:
    """Return the nodes and edges to highlight: nodes for names and nodes, for paths their edges too.

    Raises `ArgumentError` for a name that no node has, and a node of another graph.
    """
    if highlight is None:
        return frozenset(), frozenset()
    items = [highlight] if isinstance(highlight, str | Node | Path) else [*highlight]
    paths = [item for item in items if isinstance(item, Path)]
    nodes = {graph[item] for item in items if not isinstance(item, Path)}
    edges = [edge for path in paths for edge in path.edges]
    nodes.update(graph[node] for path in paths for node in path.nodes)
    return frozenset(nodes), frozenset(edges)
