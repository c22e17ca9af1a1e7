"""The backward pass as a table: for each edge, upstream gradient times local derivative is the downstream gradient."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.table import Table

from fxgrad import make_program, tree, vjp
from fxgrad.extend import NO_TANGENT, Aval, Signature, bind, has_tangent
from fxgrad.text.notations import same_parameters
from fxgrad.text.tables import Report, add_row, new_table
from fxgrad.text.text_writer import program_text
from fxgrad.tools.graphs.nodes import Edge, Node

if TYPE_CHECKING:
    from fxgrad.tools.graphs.graph import Graph

FEW = 4
"""Largest size of an array that is written out."""


class Step(NamedTuple):
    """The backward pass along one edge: `downstream` is `upstream` times the local derivative.

    `upstream` is the gradient of the result of the operation (`edge.target`). `downstream` is the contribution of this
    edge to the gradient of the operand (`edge.source`), which is the sum over all its edges.
    """

    edge: Edge
    upstream: Any
    downstream: Any

    @property
    def local(self) -> Any:
        """The local derivative, of shape target.shape + source.shape; raises as `Edge.derivative` does."""
        return self.edge.derivative

    @property
    def rule(self) -> str:
        """The pullback of this edge as an expression: `d_h @ W.T`; "..." if it is more than one."""
        return _rule_text(self.edge)


class BackwardTable(Report):
    """The backward pass of a graph, from the root to the leaves; prints as a table that adds up to the gradients.

    `steps` are its rows, `gradients` the sums by node.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.gradients: dict[Node, Any] = graph.run().gradients()

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """One step for each edge that a gradient flows along, in the order of the backward pass."""
        run = self.graph.run()
        found: list[Step] = []
        for operation in reversed(self.graph.operations):
            arrived = run.arriving.get(operation.index, ())
            flowing = [number for number, upstream in enumerate(arrived) if upstream is not None]
            for number in flowing:
                only = [upstream if place == number else None for place, upstream in enumerate(arrived)]
                left = run.leaving[operation.index] if len(flowing) == 1 else run.pullback(operation)(*only)
                target, upstream = operation.outputs[number], arrived[number]
                found += [Step(Edge(source, target, operation, position), upstream, downstream)
                          for position, (source, downstream) in enumerate(zip(operation.inputs, left, strict=True))
                          if downstream is not None and not source.is_number]
        return tuple(found)

    def table(self) -> Table:
        """Return the table for rich: a row for each edge, and a sum below each value with several uses."""
        made = new_table(f"the backward pass of {self.graph.title or 'a program'}", dict.fromkeys(
            ("operation", "operand", "upstream", "local derivative", "downstream"), "left"))
        waiting: dict[Node, int] = {}
        for step in self.steps:
            source = step.edge.source
            waiting[source] = waiting.get(source, 0) + 1
        several = {node: count for node, count in waiting.items() if count > 1}
        before = None
        for step in self.steps:
            edge = step.edge
            shown = f"{edge.target.name} = {edge.operation.expression}" if edge.operation is not before else ""
            before = edge.operation
            local = step.rule
            if not step.edge.source.shape and not step.edge.target.shape:  # for arrays the rule alone
                local = short(step.local) if local == "..." else f"{short(step.local)}  ({local})"
            add_row(made, [shown, edge.source.name, f"d_{edge.target.name} = {short(step.upstream)}", local,
                           short(step.downstream)])
            if edge.source in several:
                waiting[edge.source] -= 1
                if not waiting[edge.source]:
                    add_row(made, ["", edge.source.name, "", f"sum of {several[edge.source]}",
                                   f"= {short(self.gradients[edge.source])}"], style="bold")
        return made

    def __repr__(self) -> str:
        return f"<the backward pass of {self.graph.title or 'a program'}: {len(self.steps)} steps>"


def short(value: Any) -> str:
    """Format a number, a few numbers, or the type and the norm of an array."""
    array = np.asarray(value)
    if not array.shape:
        return f"{array.item():.6g}" if array.dtype.kind in "fc" else str(array.item())
    if array.size <= FEW:
        return np.array2string(array, precision=4, separator=", ").replace("\n", "")
    size = np.linalg.norm(np.abs(array).astype(float))
    return f"{Aval(array.shape, array.dtype)} of norm {size:.4g}"


def _rule_text(edge: Edge) -> str:
    operation = edge.operation
    equation = operation.equation
    if equation.primitive.jvp is NO_TANGENT or not has_tangent(edge.source.aval):
        return "0"
    number = operation.outputs.index(edge.target)
    operands = [*operation.inputs]

    def back(cotangent: Any, *values: Any) -> Any:
        def local(one: Any) -> Any:
            given: list[Any] = [*values]
            given[edge.position] = one
            return bind(equation.primitive, *given, **equation.params)[number]

        return vjp(local, values[edge.position])[1](cotangent)[0]

    program = make_program(back)(edge.target.aval.struct, *[node.aval.struct for node in operands])
    own = [node.name for node in operands]  # an operand may occur twice in an operation
    names = [f"d_{edge.target.name}", *(name if name not in own[:place] else f"{name}_{place}"
                                        for place, name in enumerate(own))]
    inputs, equations = [*program.inputs], [*program.equations]
    for each in program.equations:  # results of the forward pass have names
        if each.primitive is equation.primitive and each.inputs == inputs[1:] and \
                same_parameters(each.params, equation.params):
            equations.remove(each)
            inputs += each.outputs
            names += [node.name for node in operation.outputs]
            break
    titled = program.replace(inputs=inputs, equations=equations, signature=Signature(
        "rule", tuple(names), None, tree.structure(0)))
    _, *lines = [line.strip() for line in program_text(titled, source=False, width=1000).splitlines()]
    if len(lines) == 2 and lines[1].startswith("return "):  # an assignment and its return
        lines = [lines[0].partition(" = ")[2]]
    return lines[0].removeprefix("return ") if len(lines) == 1 else "..."
