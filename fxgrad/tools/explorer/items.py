"""Convert a graph to the data of the explorer's page: boxes that nest and collapse, and edges between them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.errors import FxgradError
from fxgrad.extend import file_name, has_tangent, source_line
from fxgrad.tools.graphs.backward import short
from fxgrad.tools.graphs.graph import Graph
from fxgrad.tools.graphs.nodes import Node, Operation, Subgraph

TOP = -1


class Items:
    """The items of one graph, which the page folds and unfolds.

    An item is a box: a leaf, an operation, a scope, or a region of an operation (the body of a loop, a branch). `in` is
    the enclosing item. An edge goes from an output of an item to an item; one that enters a region goes to a leaf
    there; one from the end of a body to the start of the next step is marked "carry". `outs` of an operation with
    regions lists the inner items that compute its outputs.
    """

    def __init__(self, graph: Graph) -> None:
        self.items: list[dict[str, Any]] = []
        self.edges: list[tuple[int, int, int] | tuple[int, int, int, str]] = []
        self.sources: dict[str, dict[int, str]] = {}
        self._scopes: dict[tuple[int, str], int] = {}
        self._graph = graph
        self._shows_gradients = graph.has_values and _has_scalar_root(graph)
        self._links: dict[Node, int] = {}
        self._add_graph(graph, TOP)
        for node, of in graph.gradient_links().items():
            if node in self._links and of in self._links:
                # A cotangent is the gradient shown for its primal value.
                item, primal = self.items[self._links[node]], self.items[self._links[of]]
                item.setdefault("of", self._links[of])
                if graph.has_values:
                    primal.setdefault("grad", _short_text(node.value))
                    primal.setdefault("norm", _norm([node.value]))
                    item.setdefault("norm", _norm([node.value]))

    def _add(self, **fields: Any) -> int:
        self.items.append({name: value for name, value in fields.items() if value not in ("", None, [])})
        return len(self.items) - 1

    def _add_graph(self, graph: Graph, around: int) -> tuple[dict[Node, tuple[int, int]], list[int]]:
        """Add the items of a graph inside of an item; return the source of each value, and the items of the leaves."""
        made: dict[Node, tuple[int, int]] = {}
        leaves: list[int] = []
        count = len(graph.program.inputs)
        for node in graph.nodes[:count]:
            number = self._add(**{"in": around}, kind="leaf", label=node.name, type=str(node.aval), role=node.role,
                               **self._numbers([node]))
            made[node] = number, 0
            self._links[node] = number
            leaves.append(number)
        for operation in graph.operations:
            self._add_operation(operation, around, made)
        for place, node in enumerate(graph.outputs):
            if node in made:
                self.items[made[node][0]].setdefault("returns", []).append(place)
        captured = graph.program.captured  # the program's own order has these first
        arguments = count - captured
        return made, [*leaves[arguments:], *leaves[:arguments]]

    def _add_operation(self, operation: Operation, around: int, made: dict[Node, tuple[int, int]]) -> None:
        inside = self._scope(operation, around)
        outputs = operation.outputs
        name = ", ".join(node.name for node in outputs)
        label = f"{name} = {operation.expression}" if name else operation.expression
        types = [*(str(node.aval) for node in outputs), *(node.placement for node in outputs if node.placement)]
        number = self._add(
            **{"in": inside}, kind="op", label=label, op=operation.op, name=name,
            type=", ".join(types), part=operation.part,
            role=outputs[0].role if outputs else "intermediate", line=self._line(operation),
            flops=operation.cost.flops, bytes=operation.cost.bytes, **self._numbers(outputs))
        for place, node in enumerate(outputs):
            made[node] = number, place
            self._links[node] = number
        for node in dict.fromkeys(operation.inputs):
            if node in made:
                self.edges.append((*made[node], number))
        outs: list[list[int]] = [[] for _ in outputs]
        for title, subgraph in zip(operation.titles, operation.subgraphs, strict=True):
            self._add_region(operation, subgraph, title, number, made, outs)
        if operation.subgraphs:
            self.items[number]["outs"] = outs
            # Operands that enter none of the inner programs, such as the index of a branch, have boxes too.
            enters = {node for subgraph in operation.subgraphs for node in subgraph.enters}
            for node in dict.fromkeys(operation.inputs):
                if node not in enters and node in made:
                    how = "chooses" if any(subgraph.role == "branch" for subgraph in operation.subgraphs) else "steps"
                    leaf = self._add(**{"in": number}, kind="leaf", label=f"{how}: {node.name}", type=str(node.aval),
                                     role="input")
                    self.edges.append((*made[node], leaf))

    def _add_region(self, operation: Operation, subgraph: Subgraph, title: str, number: int,
                    made: dict[Node, tuple[int, int]], outs: list[list[int]]) -> None:
        region = operation.equation.regions[operation.subgraphs.index(subgraph)]
        inside = self._add(**{"in": number}, kind="region", label=title)
        inner, leaves = self._add_graph(subgraph.graph, inside)
        for outer, leaf, link in zip(subgraph.enters, leaves, region.inputs, strict=True):
            if outer is not None and outer in made:
                self.edges.append((*made[outer], leaf))
            elif outer is not None:  # a number, which has no box
                first = " at first" if link.how == "carry" else ""
                self.items[leaf]["label"] += f" = {outer.name}{first}"
        carried = iter([leaf for leaf, link in zip(leaves, region.inputs, strict=True) if link.how == "carry"])
        for link, node in zip(region.outputs, subgraph.graph.outputs, strict=True):
            next_step = next(carried, None) if link.how == "carry" else None
            if node in inner:
                maker, at = inner[node]
                if 0 <= link.place < len(outs) and maker not in outs[link.place]:
                    outs[link.place].append(maker)
                if next_step is not None:
                    self.edges.append((maker, at, next_step, "carry"))

    def _scope(self, operation: Operation, around: int) -> int:
        """Return the item of the scope that an operation was recorded in; its backward part is a separate item."""
        is_back = operation.part == "backward"
        path = "backward" if is_back else ""
        for depth, name in enumerate(operation.equation.scope.split("/") if operation.equation.scope else ()):
            path = f"{path}/{name}"
            key = around, path
            if key not in self._scopes:
                parent = self._scopes.get((around, path.rpartition("/")[0]), around)
                label = f"{name}, backward" if is_back and not depth else name
                self._scopes[key] = self._add(**{"in": parent}, kind="scope", label=label,
                                              part=operation.part if is_back else "")
        return self._scopes.get((around, path), around)

    def _line(self, operation: Operation) -> list[Any] | None:
        source = operation.source
        if source is None:
            return None
        lines = self.sources.setdefault(file_name(source.filename), {})
        line = source.line
        if line not in lines:
            lines[line] = source_line(source.filename, line).rstrip()
        return [file_name(source.filename), line]

    def _numbers(self, nodes: Any) -> dict[str, Any]:
        """Return short values and gradients of nodes of the outer graph, and the norm of the gradients."""
        nodes = [node for node in nodes if node.graph is self._graph]
        if not nodes or not self._graph.has_values:
            return {}
        found: dict[str, Any] = {"value": _short_text(nodes[0].value)}
        if self._shows_gradients and has_tangent(nodes[0].aval):
            slopes = [node.grad for node in nodes if has_tangent(node.aval)]
            found |= {"grad": _short_text(slopes[0]), "norm": _norm(slopes)}
        return found

    def data(self) -> dict[str, Any]:
        """Return the items and edges, for JSON."""
        return {"title": self._graph.title or "program", "items": self.items, "edges": self.edges,
                "sources": self.sources}


def _short_text(value: Any) -> str:
    try:
        return short(value)
    except (TypeError, ValueError):  # values without numbers, such as keys
        return type(value).__name__


def _norm(values: list[Any]) -> float | None:
    """Return the norm of arrays taken as one vector; None, which JSON has, if it is NaN or infinite."""
    length = float(np.sqrt(sum(float(np.sum(np.abs(np.asarray(value)).astype(float) ** 2)) for value in values)))
    return length if np.isfinite(length) else None


def _has_scalar_root(graph: Graph) -> bool:
    try:
        graph.run().gradients()
    except (FxgradError, NotImplementedError):  # values without a gradient
        return False
    return True
