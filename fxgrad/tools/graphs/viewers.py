"""Graphs as files for other programs that show them: Google's Model Explorer and TensorBoard."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fxgrad.errors import UnsupportedError
from fxgrad.extend import at_user_line
from fxgrad.tools.graphs.backward import short
from fxgrad.tools.graphs.graph import Graph
from fxgrad.tools.graphs.nodes import Node


def to_model_explorer(graph: Graph) -> dict[str, Any]:
    """Return the graph as JSON data of Google's Model Explorer (ai-edge-model-explorer 0.1), for `json.dump`.

    Scopes become layers. The programs of loops, branches and calls become separate graphs, which their node opens.
    Types, the user's lines, and values if the graph has them, become attributes.

    >>> import fxgrad
    >>> made = to_model_explorer(fxgrad.graph(lambda x: x * 2.0)(3.0))
    >>> [node["label"] for node in made["graphs"][0]["nodes"]]
    ['x', 'mul']
    """
    found: list[dict[str, Any]] = []
    _add_graph(graph, graph.title or "program", found)
    return {"label": graph.title or "program", "graphs": found}


def _add_graph(graph: Graph, name: str, found: list[dict[str, Any]]) -> None:
    nodes: list[dict[str, Any]] = []
    found.append({"id": name, "nodes": nodes})
    nodes += [{"id": leaf.name, "label": leaf.name, "namespace": "", "incomingEdges": [],
               "attrs": _attributes({"role": leaf.role, **_numbers([leaf])}), "outputsMetadata": [_metadata(0, leaf)]}
              for leaf in graph.nodes[:len(graph.program.inputs)]]
    for operation in graph.operations:
        inner = []
        for number, subgraph in enumerate(operation.subgraphs):
            inner.append(f"{name}/{operation.name}/{subgraph.role} {number}")
            _add_graph(subgraph.graph, inner[-1], found)
        place = "" if operation.source is None else operation.source.place
        nodes.append({
            "id": operation.name, "label": operation.op, "namespace": operation.equation.scope, "subgraphIds": inner,
            "attrs": _attributes({"is": operation.expression, "line": place, "part": operation.part,
                                  "flops": f"{operation.cost.flops:,}", **_numbers(operation.outputs)}),
            "incomingEdges": [
                {"sourceNodeId": source, "sourceNodeOutputId": str(output), "targetNodeInputId": str(position)}
                for position, (source, output) in enumerate(map(_origin, operation.inputs)) if source],
            "outputsMetadata": [_metadata(number, node) for number, node in enumerate(operation.outputs)]})


def _origin(node: Node) -> tuple[str, int]:
    """Return the id of the node that computes a value, and the index of the output; "" for a number."""
    if node.producer is None:
        return ("" if node.is_number else node.name), 0
    return node.producer.name, node.producer.outputs.index(node)


def _attributes(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in values.items() if value]


def _metadata(number: int, node: Node) -> dict[str, Any]:
    return {"id": str(number), "attrs": _attributes({
        "__tensor_tag": node.name, "tensor_name": node.name, "tensor_shape": str(node.aval)})}


def _numbers(nodes: Sequence[Node]) -> dict[str, str]:
    return {f"value of {node.name}": short(node.value) for node in nodes if node.graph.has_values}


def to_model_explorer_data(graph: Graph) -> dict[str, dict[str, Any]]:
    """Return the data that Model Explorer colours nodes by, as JSON by name: flops, bytes, and gradients if known.

    Each is a file of its own there ("node data"), which is laid over the graph of `to_model_explorer`. Raises
    `ArgumentError` as `Node.grad` does, if the graph has values and no scalar output.

    >>> import fxgrad
    >>> made = to_model_explorer_data(fxgrad.graph(lambda x: x * x)(3.0))
    >>> {name: [*data.values()][0]["results"]["mul"]["value"] for name, data in made.items()}
    {'flops': 1, 'bytes': 24, 'gradient norm': 1.0}
    """
    columns: dict[str, dict[str, float]] = {
        "flops": {operation.name: operation.cost.flops for operation in graph.operations},
        "bytes": {operation.name: operation.cost.bytes for operation in graph.operations}}
    if graph.has_values:
        slopes = graph.run().gradients()
        made = [(operation.name, slopes[operation.outputs[0]]) for operation in graph.operations
                if operation.outputs and operation.outputs[0] in slopes]
        columns["gradient norm"] = {name: float(np.linalg.norm(np.asarray(slope, float))) for name, slope in made}
    gradient = [{"stop": 0, "bgColor": "#fff8c5"}, {"stop": 1, "bgColor": "#cf222e"}]
    return {name: {graph.title or "program": {"name": name, "gradient": gradient, "results": {
        key: {"value": value} for key, value in values.items()}}} for name, values in columns.items()}


def write_model_explorer(graph: Graph, path: str | Path) -> list[Path]:
    """Write `to_model_explorer` to a file, and beside it each of `to_model_explorer_data`; returns the paths.

    `model-explorer PATH` shows it. Raises as these do.

    >>> import fxgrad, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     paths = write_model_explorer(fxgrad.graph(lambda x: x * x)(3.0), f"{folder}/square.json")
    >>> [path.name for path in paths]
    ['square.json', 'square.flops.json', 'square.bytes.json', 'square.gradient-norm.json']
    """
    main = Path(path)
    main.write_text(json.dumps(to_model_explorer(graph)), encoding="utf-8")
    written = [main]
    for name, data in to_model_explorer_data(graph).items():
        written.append(main.with_suffix(f".{name.replace(' ', '-')}.json"))
        written[-1].write_text(json.dumps(data), encoding="utf-8")
    return written


def write_tensorboard(graph: Graph, folder: str | Path) -> Path:
    """Write the graph as an event file for TensorBoard's graph page; `tensorboard --logdir FOLDER` shows it.

    Scopes become its name scopes; the program of a loop, branch or call is in the scope of its operation. Returns the
    path of the file. Raises `UnsupportedError` if tensorboard is not installed.

    >>> import fxgrad, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_tensorboard(fxgrad.graph(lambda x: x * x)(3.0), folder)
    >>> path.name.startswith("events.out.tfevents")
    True
    """
    try:
        from tensorboard.compat.proto import event_pb2, graph_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise UnsupportedError(at_user_line(
            "write_tensorboard needs the package tensorboard, which is not installed: pip install 'fxgrad[viewers]'. "
            "fxgrad.visualize and fxgrad.draw need nothing")) from None
    made = graph_pb2.GraphDef()
    _add_nodes(made, graph, "", {})
    writer = EventFileWriter(str(folder))
    writer.add_event(event_pb2.Event(graph_def=made.SerializeToString()))
    writer.close()
    return max(Path(folder).glob("events.out.tfevents*"), key=lambda path: path.stat().st_mtime_ns)


def _add_nodes(made: Any, graph: Graph, scope: str, entering: Mapping[Node, str]) -> None:
    """Add the nodes of a graph within a scope; `entering` has the source names of its inputs."""
    names: dict[Node, str] = {}
    for leaf in graph.nodes[:len(graph.program.inputs)]:
        names[leaf] = _join_scope(scope, leaf.name)
        node = made.node.add(name=names[leaf], op="Placeholder" if leaf.role == "input" else leaf.role.title())
        if leaf in entering:
            node.input.append(entering[leaf])
            node.op = "Identity"
        _set_type(node, [leaf])
    for operation in graph.operations:
        name = _join_scope(scope, operation.equation.scope, operation.name)
        operands = [names[each] for each in operation.inputs if each in names]
        node = made.node.add(name=name, op=operation.op, input=operands)
        _set_type(node, operation.outputs)
        for number, output in enumerate(operation.outputs):
            names[output] = f"{name}:{number}" if number else name
        for number, subgraph in enumerate(operation.subgraphs):
            inputs = subgraph.graph.nodes
            captured = subgraph.graph.program.captured
            count = len(subgraph.graph.program.inputs)
            ordered = [*inputs[count - captured:count], *inputs[:count - captured]]
            outer = {inner: names[node] for inner, node in zip(ordered, subgraph.enters, strict=True)
                     if node is not None and node in names}
            _add_nodes(made, subgraph.graph, _join_scope(name, f"{subgraph.role}_{number}"), outer)


def _join_scope(*parts: str) -> str:
    return "/".join(part.replace(" ", "_") for part in parts if part)


def _set_type(node: Any, values: Sequence[Node]) -> None:
    for value in values:
        shape = node.attr["_output_shapes"].list.shape.add()
        for size in value.shape:
            shape.dim.add(size=size)
    node.attr["type"].s = ", ".join(str(value.aval) for value in values).encode()
