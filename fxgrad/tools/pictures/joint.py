"""Forward and backward in one graph: the program with its pullback, and which gradient belongs to which value."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.errors import ArgumentError, FxgradError
from fxgrad.extend import (
    COTANGENT,
    PRIMAL,
    TRANSPOSED,
    Program,
    Signature,
    Zero,
    apply,
    at_user_line,
    derive,
    has_tangent,
    record_joint,
    trace_program,
)
from fxgrad.text.names import UniqueNames
from fxgrad.tools.graphs.graph import Graph
from fxgrad.tools.graphs.nodes import Node, Operation
from fxgrad.tools.pictures.words import is_expression, value_label


class JointGraph(NamedTuple):
    """A graph of both passes: the items of the backward one, each with its forward item.

    `names` are those of gradients: `d_x, d_y` for one of both. `held` maps nodes of the forward pass to the nodes that
    hold their gradients, and `before` to their nodes in the graph of the forward pass alone, if known.
    """

    graph: Graph
    backward: frozenset[Node | Operation]
    twins: Mapping[Node | Operation, Node | Operation]
    names: Mapping[Node, str]
    held: Mapping[Node, Node]
    before: Mapping[Node, Node]

    def gradients(self) -> dict[Node, Any]:
        """Return the gradients of nodes of the forward pass, for a graph with values."""
        found = {value: node.value for value, node in self.held.items()}
        for node, before in self.before.items():
            try:
                found[node] = before.grad
            except FxgradError:  # integers have no gradient; with several results `grad` is undefined
                continue
        return found


def with_backward(graph: Graph) -> JointGraph:
    """Return the graph with its backward pass: unchanged if it has one, else that of the differentiated program.

    Gradients are those of the parameters, or of all floating-point arguments if none is a parameter. Raises
    `ArgumentError` if there are none.
    """
    return link_gradients(graph, {}, {}) if has_backward(graph) else link_gradients(*_differentiate(graph))


def has_backward(graph: Graph) -> bool:
    """Return whether the graph is a gradient's, in which the backward pass is marked."""
    return any(operation.part == "backward" for operation in graph.operations)


def _differentiate(graph: Graph) -> tuple[Graph, dict[Node, list[Node]], dict[Node, Node]]:
    """Return the graph of a program and its pullback; its additional arguments are the gradients of the results.

    Also return the arguments in which each of its further results is the gradient, and the nodes of `graph` that its
    own correspond to.
    """
    program = graph.program
    chosen = any(node.role == "parameter" for node in graph.inputs)
    wrt = (*[False] * graph.program.captured,
           *(has_tangent(node.aval) and (not chosen or node.role == "parameter") for node in graph.inputs))
    results = [node for node in graph.outputs if has_tangent(node.aval)]
    if not any(wrt) or not results:
        raise ArgumentError(at_user_line(
            f"draw: show='joint' needs an argument and a result with derivatives, and {graph.title or 'the program'} "
            f"takes {', '.join(f'{node.name}: {node.aval}' for node in graph.inputs) or 'nothing'} and returns "
            f"{', '.join(str(node.aval) for node in graph.outputs) or 'nothing'}; draw it with show='forward'"))
    given = [graph.node_of(var) for var in program.inputs]
    unique = UniqueNames([node.name for node in given])
    names = [node.name for node in given]
    names += [unique(f"d_{node.name if node.is_named and not node.is_number else 'out'}") for node in results]
    made = _joint_program(program, wrt).replace(signature=Signature(graph.title, tuple(names), None, None))
    leaves = None
    if graph.has_values:
        leaves = [*(node.value for node in given), *(np.ones(node.shape, node.dtype)[()] for node in results)]
    both = Graph(made, {}, leaves=leaves)
    for node, before in itertools.zip_longest(both.inputs, given):
        node.role = "gradient" if before is None else before.role
    found: dict[Node, list[Node]] = {}
    moving = [node for node, moves in zip(both.inputs, wrt, strict=False) if moves]
    for node, gradient in zip(moving, both.outputs[len(graph.outputs):], strict=True):
        found.setdefault(gradient, []).append(node)
    arriving = [node for node in both.outputs[:len(graph.outputs)] if has_tangent(node.aval)]
    for node, result in zip(both.inputs[len(given):], arriving, strict=True):
        found.setdefault(node, []).append(result)
    before = {node: graph.node_of(origin.var) for node in both.nodes for origin in node.origins
              if origin.role == PRIMAL and origin.program is program}
    return both, found, {**dict(zip(both.inputs, given, strict=False)), **before}


def _joint_program(program: Program, wrt: tuple[bool, ...]) -> Program:
    count = len(program.inputs)
    moving = [has_tangent(atom.aval) for atom in program.outputs]
    avals = [*program.in_avals, *(aval for aval, moves in zip(program.out_avals, moving, strict=True) if moves)]

    def build(*given: Any) -> tuple[list[Any], None]:
        arriving = iter(given[count:])
        cotangents = [next(arriving) if moves else Zero(atom.aval)
                      for moves, atom in zip(moving, program.outputs, strict=True)]
        outputs, gradients = record_joint(program, given[:count], cotangents, wrt)
        return [*outputs, *gradients], None

    def together(*given: Any) -> Sequence[Any]:
        derived = derive(program, ("with its pullback", wrt), build, avals)
        return apply(derived.program, [*derived.captured, *given])

    return trace_program("draw", together, tuple([aval.struct for aval in avals]), {})


def link_gradients(graph: Graph, gradients: Mapping[Node, Sequence[Node]], before: Mapping[Node, Node]) -> JointGraph:
    """Return the backward pass of a gradient's graph, and the forward item of each part of it.

    An operation belongs to that which the same place of the user's code recorded, or if that is gone, since it became
    a part of another, the same line; a gradient to the value that it is of, or to the result of the operation that its
    own belongs to.
    """
    backward: set[Node | Operation] = {node for node in graph.nodes if node.producer is None and (
        node.role == "gradient" or (node.is_number and node in gradients))}
    for operation in graph.operations:
        if operation.part == "backward" or not backward.isdisjoint(operation.inputs):
            backward.add(operation)
            backward.update(operation.outputs)
    backward.update(node for node in graph.nodes if node.is_number and node.uses and all(
        edge.operation in backward for edge in node.uses))
    links = {**graph.gradient_links(), **{node: values[0] for node, values in gradients.items()}}
    made = _twins_of_operations(graph, backward, links)
    twins: dict[Any, Any] = dict(made)
    for node in graph.nodes:
        if node in backward:
            value = links.get(node) if not node.is_number else None
            value = value or _made_beside(node, made) or _named_result(graph, node)
            if value is not None and value not in backward:
                twins[node] = value
    # Gradients of unnamed values are named after the letters in the picture, `d_b`, if a value has a single one.
    shares = [*links.values()]
    names = {}
    for node, primal in links.items():
        if node in backward and not node.is_named and not primal.is_named and shares.count(primal) == 1:
            label = value_label(primal)
            names[node] = f"d({label})" if is_expression(primal) else f"d_{label}"
    for node, values in gradients.items():
        if node in backward and (len(values) > 1 or node.is_number):
            names[node] = ", ".join(f"d_{value.name}" for value in values) + (f" = {node.name}" * node.is_number)
    return JointGraph(graph, frozenset(backward), twins, names, _nested_gradients(graph, gradients), before)


def _nested_gradients(graph: Graph, gradients: Mapping[Node, Sequence[Node]]) -> dict[Node, Node]:
    """Map nodes to the nodes that hold their gradients; merged equal values have several partial ones: left out."""
    primals: dict[Any, Node] = {}
    for node in graph.nodes:
        primals.update(((id(origin.program), origin.var), node) for origin in node.origins if origin.role == PRIMAL)
    found: dict[Node, set[Node]] = {}
    for node in graph.nodes:
        of = [primals.get((id(origin.program), origin.var)) for origin in node.origins
              if origin.role in (COTANGENT, TRANSPOSED)]
        for value in dict.fromkeys([*gradients.get(node, ()), *of]):
            if value is not None and value is not node:
                found.setdefault(value, set()).add(node)
    return {value: nodes.pop() for value, nodes in found.items() if len(nodes) == 1}


def _twins_of_operations(graph: Graph, backward: Collection[Node | Operation], links: Mapping[Node, Node],
                         ) -> dict[Operation, Operation]:
    """Map operations of the backward pass to the operations of the forward pass that they belong to."""
    places: dict[tuple[int, int, str], list[Operation]] = {}
    for operation in graph.operations:
        if operation not in backward:
            for place in _places(operation):
                places.setdefault(place, []).append(operation)
    twins: dict[Operation, Operation] = {}
    for operation in graph.operations:
        if operation in backward:
            left = [links[node] for node in operation.outputs if node in links]
            arrived = [links.get(node) or _named_result(graph, node) for node in operation.inputs if node in backward]
            twin = next((_likeliest_operation(places[place], left, arrived)
                         for place in _places(operation) if place in places), None)
            for node in operation.inputs if twin is None else ():  # a sum of cotangents has no line of its own
                maker = node.producer or _maker_of_result(graph, node)
                if node in backward and maker is not None:
                    twin = twins.get(maker, None if maker in backward else maker)
                    break
            if twin is not None:
                twins[operation] = twin
    return twins


def _likeliest_operation(candidates: Sequence[Operation], left: Sequence[Node],
                         arrived: Sequence[Node | None]) -> Operation:
    """Return the operation that a gradient passes through, of those recorded at one place.

    The gradient goes from a result (`arrived`) to an operand (`left`). If these are unknown, an operation that the user
    wrote is preferred to one that the derivative added to save residuals.
    """
    return max(candidates, key=lambda operation: (
        any(value in operation.inputs for value in left) + any(value in operation.outputs for value in arrived),
        operation.source is not None and any(operation.source.origins)))


def _places(operation: Operation) -> list[tuple[int, int, str]]:
    """Return where an operation was recorded: by instruction, and by line."""
    source = operation.source
    return [] if source is None else [(id(source.code), source.instruction, "instruction"),
                                      (id(source.code), source.line, "line")]


def _maker_of_result(graph: Graph, node: Node) -> Operation | None:
    """Return the operation that computes the result whose gradient is this argument."""
    result = _named_result(graph, node)
    return None if result is None else result.producer


def _made_beside(node: Node, twins: Mapping[Operation, Operation]) -> Node | None:
    """Return the result of the twin of a gradient's operation; for a number, of the twin of an operation using it."""
    makers = [edge.operation for edge in node.uses] if node.producer is None else [node.producer]
    twin = next((twins[maker] for maker in makers if maker in twins and (node.producer or node.is_number)), None)
    return None if twin is None else twin.outputs[0]


def _named_result(graph: Graph, node: Node) -> Node | None:
    """Return the result whose gradient is this argument, found by name."""
    if node.producer is not None or node.role != "gradient":
        return None
    return next((each for each in graph.outputs if f"d_{each.name}" == node.name), graph.outputs[0])
