"""Pictures of networks: layers as boxes, each with its parameters, and the values that flow between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from fxgrad.tools.graphs.graph import Graph
from fxgrad.tools.graphs.nodes import Node, Operation
from fxgrad.tools.pictures.picture import Box, Cluster, Line, Picture
from fxgrad.tools.pictures.views import PictureOptions, bipartite, contract_values
from fxgrad.tools.pictures.words import count_noun, operation_label, shorten, type_label

MOST_LISTED = 4
"""Parameters that a layer lists by name."""


def network_view(graph: Graph, wishes: PictureOptions) -> Picture:
    """Layers, with the values that flow between them; the caption counts layers and operations.

    A layer is a scope (`fxgrad.named_scope`, `named_call`), or one run of a user's function that the traced one calls.
    Layers in `wishes.expand` show their operations; operations outside of layers have boxes of their own.
    """
    layers = _layers(graph)
    titles = {key: title for key, (title, _) in layers.items()}
    layer_of = {operation: key for key, (_, operations) in layers.items() for operation in operations}
    opened = {key for key, title in titles.items() if wishes.expand is True or (
        not isinstance(wishes.expand, bool) and wishes.expand is not None and title in wishes.expand)}
    whole = contract_values(bipartite(graph, wishes._replace(expand=False, inset=False)))
    places = {f"o{operation.index}": key for operation, key in layer_of.items()}
    closed = {box: key for box, key in places.items() if key not in opened}
    picture = _absorb_leaves(_collapse(whole, closed, layers), graph)
    places.update(_weights_of_layers(picture, graph, places))
    boxes = tuple([box._replace(cluster=places[box.key]) if places.get(box.key) in opened else box
                   for box in picture.boxes])
    clusters = tuple([Cluster(key, titles[key]) for key in titles if key in opened])
    caption = f"{count_noun(len(layers), 'layer')}, {count_noun(len(graph.operations), 'operation')}"
    return picture._replace(boxes=boxes, clusters=clusters, caption=caption)


def _layers(graph: Graph) -> dict[str, tuple[str, list[Operation]]]:
    """Return the layers in order, by key: title and operations.

    A function starts another run if one of its operations is recorded again. Operations that come after something
    outside of their layer which depends on that layer form another layer; otherwise the boxes would depend on each
    other in a cycle.
    """
    found: dict[str, tuple[str, list[Operation]]] = {}
    codes = [operation.source.code for operation in graph.operations if operation.source is not None]
    name = graph.title.rpartition("(")[2].rstrip(")")
    main = next((code for code in codes if code.co_name == name), None)  # of the traced function itself
    runs: dict[object, tuple[str, set[tuple[int, int]]]] = {}
    needed = [0] * len(graph.operations)  # bit by bit the operations that one depends on
    for operation in graph.operations:
        makers = [node.producer.index for node in operation.inputs if node.producer is not None]
        for maker in makers:
            needed[operation.index] |= needed[maker] | 1 << maker
        kind, title = _layer_kind(operation, main)
        if kind is None:
            continue
        source = operation.source
        place = (-1, -1) if source is None or isinstance(kind, str) else (source.instruction,
                                                                         id(operation.equation.primitive))
        key, seen = runs.get(kind, ("", set()))
        inside = sum(1 << each.index for each in found[key][1]) if key else 0
        goes_around = any(needed[maker] & inside and not 1 << maker & inside for maker in makers)
        if not key or goes_around or place in seen - {(-1, -1)}:
            key, seen = f"layer {len(found)}", set()
        seen.add(place)
        runs[kind] = key, seen
        found.setdefault(key, (title, []))[1].append(operation)
    return {key: (title, operations) for key, (title, operations) in found.items() if not _is_glue(operations)}


def _layer_kind(operation: Operation, main: object) -> tuple[object, str]:
    """Return the outermost scope of an operation, or the code of a function called by the traced one, with its name."""
    scope, source = operation.equation.scope.partition("/")[0], operation.source
    if scope:
        return scope, scope
    if source is not None and source.code is not main and not source.code.co_name.startswith("<"):
        return source.code, source.code.co_name
    return None, ""


def _is_glue(operations: Sequence[Operation]) -> bool:
    """Return whether a layer is one operation on values shared with others, such as a residual connection's sum."""
    return len(operations) == 1 and not operations[0].equation.scope and all(
        node.producer is not None or len(node.uses) > 1 for node in operations[0].inputs)


def layer_names(graph: Graph) -> list[str]:
    """Return the distinct names of the layers of a graph."""
    return [*dict.fromkeys(title for title, _ in _layers(graph).values())]


def _collapse(picture: Picture, closed: Mapping[str, str], layers: Mapping[str, tuple[str, Sequence[Operation]]],
              ) -> Picture:
    """Return the picture with the operations of each closed layer as one box."""
    boxes: dict[str, Box] = {}
    for box in picture.boxes:
        key = closed.get(box.key)
        if key is None:
            boxes[box.key] = box
        elif key not in boxes:
            title, operations = layers[key]
            inside = ", ".join(dict.fromkeys(operation_label(each) for each in operations))
            boxes[key] = Box(key, shorten(title, 28), (count_noun(len(operations), "operation"),), "layer", "pill",
                             "layer", box.part, note=f"{title}: {inside}\n{box.note.partition(chr(10))[2]}".rstrip(),
                             is_marked=box.is_marked)
    lines: dict[tuple[str, str, str], Line] = {}
    for line in picture.lines:
        source, target = closed.get(line.source, line.source), closed.get(line.target, line.target)
        if source != target:
            lines.setdefault((source, target, line.label), line._replace(source=source, target=target))
    return picture._replace(boxes=tuple(boxes.values()), lines=_without_circles([*boxes], [*lines.values()]))


def _without_circles(boxes: Sequence[str], lines: Sequence[Line]) -> tuple[Line, ...]:
    """Return the lines; lines back to an earlier box are drawn upward if boxes depend on each other in a cycle.

    So do functions that take turns.
    """
    sorter = TopologicalSorter({box: [line.source for line in lines if line.target == box] for box in boxes})
    try:
        sorter.prepare()
    except CycleError:
        place = {box: number for number, box in enumerate(boxes)}
        return tuple([line._replace(is_upward=place[line.target] < place[line.source]) for line in lines])
    return tuple(lines)


def _weights_of_layers(picture: Picture, graph: Graph, places: Mapping[str, str]) -> dict[str, str]:
    """Map the leaves that belong to a layer to their layer."""
    nodes = {f"v{node.index}": node for node in graph.nodes}
    into: dict[str, set[str]] = {}
    for line in picture.lines:
        into.setdefault(line.source, set()).add(places.get(line.target, line.target))
    return {key: next(iter(layers)) for key, layers in into.items()
            if key in nodes and len(layers) == 1 and _is_weight(nodes[key])}


def _absorb_leaves(picture: Picture, graph: Graph) -> Picture:
    """List leaves that only one layer uses, other than its input, inside the layer's box."""
    layers = {box.key for box in picture.boxes if box.kind == "layer"}
    nodes = {f"v{node.index}": node for node in graph.nodes}
    owner = {key: layer for key, layer in _weights_of_layers(picture, graph, {}).items() if layer in layers}
    boxes = []
    for box in picture.boxes:
        own = [nodes[key] for key, layer in owner.items() if layer == box.key]
        if own:
            texts = [f"{shorten(node.name)}: {type_label(node.aval)}".rstrip(": ") for node in own[:MOST_LISTED]]
            texts += [f"and {len(own) - MOST_LISTED} more"] if len(own) > MOST_LISTED else []
        if box.key not in owner:
            boxes.append(box._replace(details=(*texts, *box.details)) if own else box)
    return picture._replace(boxes=tuple(boxes), lines=tuple([line for line in picture.lines
                                                             if line.source not in owner]))


def _is_weight(node: Node) -> bool:
    """Return whether a leaf belongs to a layer: a parameter or, without roles, anything but its input."""
    if node.producer is not None:
        return False
    if node.role != "input":
        return node.role in ("parameter", "constant")
    has_roles = any(each.role == "parameter" for each in node.graph.inputs)
    # Without roles: arguments in containers, `params[0].W`, and names that begin like a weight's.
    return not has_roles and (not node.name.isidentifier() or node.name.startswith(("W", "w", "b")))
