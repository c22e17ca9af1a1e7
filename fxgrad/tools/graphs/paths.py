"""Paths of a graph: the chain rule as a sum over them, and its cost beside reverse mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fxgrad.errors import ArgumentError
from fxgrad.extend import at_user_line
from fxgrad.tools.graphs.nodes import Edge, Node

if TYPE_CHECKING:
    from fxgrad.tools.graphs.graph import Graph

MOST = 10_000


class Path(NamedTuple):
    """A path through a graph, edge by edge.

    `product` is that of the local derivatives along it; the sum over all paths is the gradient.
    """

    edges: tuple[Edge, ...]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes on the path, both ends included."""
        return (self.edges[0].source, *(edge.target for edge in self.edges)) if self.edges else ()

    @property
    def operations(self) -> tuple[str, ...]:
        """The names of the operations on it, in the order of the forward pass."""
        return tuple([edge.operation.name for edge in self.edges])

    @property
    def product(self) -> Any:
        """Return the product of the local derivatives along the path: shape of the end + shape of the start.

        Raises `ArgumentError` if the graph was made without values.
        """
        found = self.edges[-1].derivative
        for edge in reversed(self.edges[:-1]):
            found = np.tensordot(found, edge.derivative, len(edge.target.shape))[()]
        return found

    def __str__(self) -> str:
        return " -> ".join(node.text for node in self.nodes)


def paths_between(graph: Graph, start: str | Node, end: str | Node, most: int) -> list[Path]:
    """Return all paths from `start` to `end`, as `Graph.paths` does."""
    first, last = graph[start], graph[end]
    count = path_costs(graph, first, last).paths
    if count > most:
        raise ArgumentError(at_user_line(
            f"paths: {count:,} paths lead from {first.name} to {last.name}, more than most={most:,}. "
            "Count them with graph.path_costs(start, end), or look at graph.between(start, end)"))
    return [*_paths_through(first, last, graph.ancestors(last))] if count else []


def _paths_through(first: Node, last: Node, reaching: frozenset[Node]) -> Iterator[Path]:
    if first is last:
        return
    stack = [iter(first.uses)]
    way: list[Edge] = []
    while stack:
        edge = next(stack[-1], None)
        if edge is None:
            stack.pop()
            if way:
                way.pop()
        elif edge.target is last:
            yield Path((*way, edge))
        elif edge.target in reaching:
            way.append(edge)
            stack.append(iter(edge.target.uses))


class PathCosts(NamedTuple):
    """The chain rule as a sum over paths, beside reverse mode: numbers of products and sums of local derivatives.

    `edges` is the number of local derivatives; reverse mode uses each once, the sum over paths once for each path.
    """

    paths: int
    edges: int
    products_by_paths: int
    sums_by_paths: int
    products_in_reverse: int
    sums_in_reverse: int


def path_costs(graph: Graph, start: str | Node, end: str | Node) -> PathCosts:
    """Return the costs of a derivative by both ways, as `Graph.path_costs` does."""
    first, last = graph[start], graph[end]
    among = graph.between(first, last)
    inside = frozenset(among)
    ways: dict[Node, tuple[int, int]] = {first: (1, 0)}  # how many, and how many edges in all
    edges = 0
    for node in among:
        if node is not first:
            arriving = [ways[source] for source in node.inputs if source in inside]
            edges += len(arriving)
            ways[node] = sum(number for number, _ in arriving), sum(number + length for number, length in arriving)
    count, length = ways.get(last, (0, 0)) if first is not last else (0, 0)
    leaving = [sum(edge.target in inside for edge in node.uses) for node in among]
    at_root = sum(source in inside for source in last.inputs)
    return PathCosts(count, edges, length - count, max(0, count - 1), edges - at_root,
                     sum(number - 1 for number in leaving if number > 1))
