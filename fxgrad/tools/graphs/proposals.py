"""Guess the roles of a program's arguments from their uses: labels, biases, weights and inputs."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table

from fxgrad.extend import Program, primitives, require_program
from fxgrad.text.tables import Report, add_row, new_table
from fxgrad.tools.graphs.graph import Graph

PRODUCTS = (primitives.mul, primitives.dot_general)


@dataclass(frozen=True)
class Proposal(Report):
    """The guessed roles of a program's arguments, by name; `reasons` explain them. It prints as a table.

    `pairs` are arguments that are multiplied with each other: either may be the weight; the program cannot tell.
    """

    labels: tuple[str, ...]
    biases: tuple[str, ...]
    weights: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    reasons: dict[str, str]

    def table(self) -> Table:
        """Return the table for rich."""
        made = new_table("", dict.fromkeys(("argument", "seems to be", "because"), "left"))
        for name, reason in self.reasons.items():
            kinds = ((self.labels, "a label"), (self.biases, "a bias"), (self.weights, "a weight"))
            kind = next((word for names, word in kinds if name in names), "a weight or an input")
            add_row(made, [name, kind, reason])
        return made


def infer_roles(program: Program | Graph) -> Proposal:
    """Return guesses at the roles of a model's arguments, made only from the operations that use them.

    A label is subtracted from a computed value, or the reverse; a bias is added to a computed value; a factor of a
    computed value is a weight; of two arguments that are multiplied with each other one is a weight and one an input,
    and nothing in the graph says which.

    >>> import fxgrad
    >>> def loss(w1, w2, b, x1, x2, y):
    ...     error = w1 * x1 + w2 * x2 + b - y
    ...     return error ** 2
    >>> found = fxgrad.infer_roles(fxgrad.make_program(loss)(1.0, 1.0, 1.0, 1.0, 1.0, 1.0))
    >>> found.labels, found.biases, found.pairs
    (('y',), ('b',), (('w1', 'x1'), ('w2', 'x2')))
    """
    graph = program if isinstance(program, Graph) else Graph(require_program("infer_roles", program))
    labels, biases, weights, pairs = [], [], [], []
    reasons: dict[str, str] = {}
    arguments = {*graph.inputs}
    for node in graph.inputs:
        for edge in node.uses:
            operands = edge.operation.inputs
            other = operands[1 - edge.position] if len(operands) == 2 else None
            if other is None or node.name in reasons:
                continue
            primitive, expression = edge.operation.equation.primitive, edge.operation.expression
            if primitive is primitives.sub and other.kind != "leaf":
                labels.append(node.name)
                reasons[node.name] = f"it is compared with what was computed: {expression}"
            elif primitive is primitives.add and other.kind != "leaf":
                biases.append(node.name)
                reasons[node.name] = f"it is added to what was computed: {expression}"
            elif primitive in PRODUCTS and other.kind != "leaf":
                weights.append(node.name)
                reasons[node.name] = f"it multiplies what was computed: {expression}"
            elif primitive in PRODUCTS and other in arguments:
                if (other.name, node.name) not in pairs:
                    pairs.append((node.name, other.name))
                reasons[node.name] = f"it and {other.name} are multiplied: {expression}"
    return Proposal(tuple(labels), tuple(biases), tuple(weights), tuple(pairs), reasons)
