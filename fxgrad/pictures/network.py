"""Networks: layers as boxes, each with its parameters, and what flows between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fxgrad.graphs.graph import Graph
from fxgrad.graphs.nodes import Node, Operation
from fxgrad.pictures.picture import Box, Cluster, Line, Picture
from fxgrad.pictures.views import Wishes, bipartite, of_operations
from fxgrad.pictures.words import counted, operation_label, shortened, type_label

MOST_LISTED = 4
"""Parameters that a layer lists by name."""


def network_view(graph: Graph, wishes: Wishes) -> Picture:
    """Layers, with the values that flow between them; the caption counts layers and operations.

    A layer is a scope (`fxgrad.named_scope`, `named_call`), or one run of a function of the user's that the traced one
    calls. Those in `wishes.expand` show their operations; other operations stand for themselves.
    """
    layers = _layers(graph)
    titles = {key: title for key, (title, _) in layers.items()}
    layer_of = {operation: key for key, (_, operations) in layers.items() for operation in operations}
    opened = {key for key, title in titles.items() if wishes.expand is True or (
        not isinstance(wishes.expand, bool) and wishes.expand is not None and title in wishes.expand)}
    whole = of_operations(bipartite(graph, wishes._replace(expand=False, inset=False)))
    places = {f"o{operation.index}": key for operation, key in layer_of.items()}
    closed = {box: key for box, key in places.items() if key not in opened}
    picture = _absorbed(_collapsed(whole, closed, layers), graph)
    places.update(_weights(picture, graph, places))
    boxes = tuple([box._replace(cluster=places[box.key]) if places.get(box.key) in opened else box
                   for box in picture.boxes])
    clusters = tuple([Cluster(key, titles[key]) for key in titles if key in opened])
    caption = f"{counted(len(layers), 'layer')}, {counted(len(graph.operations), 'operation')}"
    return picture._replace(boxes=boxes, clusters=clusters, caption=caption)


def _layers(graph: Graph) -> dict[str, tuple[str, list[Operation]]]:
    """The layers in their order, by key: title and operations."""
    found: dict[str, tuple[str, list[Operation]]] = {}
    main = _main_code(graph)
    runs: dict[object, tuple[str, set[tuple[int, int]]]] = {}
    for operation in graph.operations:
        scope = operation.equation.scope.partition("/")[0]
        source = operation.source
        if scope:
            key, title = f"scope {scope}", scope
        elif source is not None and source.code is not main and not source.code.co_name.startswith("<"):
            title = source.code.co_name
            key, seen = runs.get(source.code, ("", set()))
            place = (source.instruction, id(operation.equation.primitive))
            if not key or place in seen:  # the function runs another time
                seen = set()
                key = f"run {len(found)}"
            seen.add(place)
            runs[source.code] = key, seen
        else:
            continue
        found.setdefault(key, (title, []))[1].append(operation)
    return found


def layer_names(graph: Graph) -> list[str]:
    """What the layers of a graph are called, each once."""
    return [*dict.fromkeys(title for title, _ in _layers(graph).values())]


def _main_code(graph: Graph) -> object:
    """The code of the traced function: that of the operation recorded outside of all others, the last one."""
    codes = [operation.source.code for operation in graph.operations if operation.source is not None]
    title = graph.title.rpartition("(")[2].rstrip(")")
    return next((code for code in codes if code.co_name == title), codes[-1] if codes else None)


def _collapsed(picture: Picture, closed: Mapping[str, str], layers: Mapping[str, tuple[str, Sequence[Operation]]],
               ) -> Picture:
    """The picture with the operations of each closed layer as one box."""
    boxes: dict[str, Box] = {}
    for box in picture.boxes:
        key = closed.get(box.key)
        if key is None:
            boxes[box.key] = box
        elif key not in boxes:
            title, operations = layers[key]
            inside = ", ".join(dict.fromkeys(operation_label(each) for each in operations))
            boxes[key] = Box(key, shortened(title, 28), (counted(len(operations), "operation"),), "layer", "pill",
                             "layer", box.part, note=f"{title}: {inside}\n{box.note.partition(chr(10))[2]}".rstrip(),
                             is_marked=box.is_marked)
    lines: dict[tuple[str, str, str], Line] = {}
    for line in picture.lines:
        source, target = closed.get(line.source, line.source), closed.get(line.target, line.target)
        if source != target:
            lines.setdefault((source, target, line.label), line._replace(source=source, target=target))
    return picture._replace(boxes=tuple(boxes.values()), lines=tuple(lines.values()))


def _weights(picture: Picture, graph: Graph, places: Mapping[str, str]) -> dict[str, str]:
    """The layers of leaves that belong to one."""
    nodes = {f"v{node.index}": node for node in graph.nodes}
    into: dict[str, set[str]] = {}
    for line in picture.lines:
        into.setdefault(line.source, set()).add(places.get(line.target, line.target))
    return {key: next(iter(layers)) for key, layers in into.items()
            if key in nodes and len(layers) == 1 and _is_weight(nodes[key])}


def _absorbed(picture: Picture, graph: Graph) -> Picture:
    """The picture with leaves that only one layer takes, and that are not its input, listed in the layer."""
    layers = {box.key for box in picture.boxes if box.kind == "layer"}
    nodes = {f"v{node.index}": node for node in graph.nodes}
    owner = {key: layer for key, layer in _weights(picture, graph, {}).items() if layer in layers}
    boxes = []
    for box in picture.boxes:
        own = [nodes[key] for key, layer in owner.items() if layer == box.key]
        if own:
            box = box._replace(details=(*_listed(own), *box.details))  # noqa: PLW2901  (with its parameters)
        if box.key not in owner:
            boxes.append(box)
    return picture._replace(boxes=tuple(boxes), lines=tuple([line for line in picture.lines
                                                             if line.source not in owner]))


def _is_weight(node: Node) -> bool:
    """Whether a leaf belongs to a layer: a parameter, or anything but what flows through, where no role says so."""
    if node.producer is not None:
        return False
    if node.role != "input":
        return node.role in ("parameter", "constant")
    has_roles = any(each.role == "parameter" for each in node.graph.inputs)
    # Without roles: arguments in containers, `params[0].W`, and names that begin like a weight's.
    return not has_roles and (not node.name.isidentifier() or node.name.startswith(("W", "w", "b")))


def _listed(own: Sequence[Node]) -> list[str]:
    texts = [f"{shortened(node.name)}: {type_label(node.aval)}".rstrip(": ") for node in own[:MOST_LISTED]]
    return [*texts, *([f"and {len(own) - MOST_LISTED} more"] if len(own) > MOST_LISTED else [])]
