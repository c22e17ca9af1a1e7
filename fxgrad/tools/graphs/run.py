"""Values of a graph: every value in one forward pass, every gradient in one backward pass.

The backward pass is the textbook's: from the root to the leaves, each operation's own pullback is called once, and the
cotangents of a value that is used several times are summed. So each number that reverse mode computes can be inspected.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fxgrad import dtypes, vjp, vmap
from fxgrad.errors import ArgumentError, DTypeError
from fxgrad.extend import (
    NO_TANGENT,
    Atom,
    Aval,
    Equation,
    Literal,
    at_user_line,
    bind,
    eval_program,
    has_tangent,
    pull_back_steps,
)

if TYPE_CHECKING:
    from fxgrad.tools.graphs.graph import Graph
    from fxgrad.tools.graphs.nodes import Edge, Node, Operation

LARGEST = 10_000_000
"""Numbers of a local derivative that are still written out."""


class Run:
    """A graph at one point: values, pullbacks of operations, gradients, and the contribution of each edge.

    `evaluations` counts how often the pullback of each operation, by its index, was computed.
    """

    def __init__(self, graph: Graph, inputs: Sequence[Any]) -> None:
        self._graph = graph
        self._values: dict[Atom, Any] = {
            var: _cast_value(value, var.aval) for var, value in zip(graph.program.inputs, inputs, strict=True)}
        self._is_run = False
        self._pullbacks: dict[int, Callable[..., tuple[Any, ...]]] = {}
        self._derivatives: dict[tuple[int, int, int], Any] = {}
        self._gradients: dict[Node, Any] | None = None
        self.arriving: dict[int, tuple[Any, ...]] = {}
        """By the index of an operation: the gradients of its outputs, as the backward pass found them."""
        self.leaving: dict[int, tuple[Any, ...]] = {}
        """Operation -> the cotangents that its pullback returned for the operands; None where there is none."""
        self.evaluations: dict[int, int] = {}

    def value(self, atom: Atom) -> Any:
        """Return the value of a variable or a literal."""
        if isinstance(atom, Literal):
            return atom.value
        if not self._is_run and atom not in self._values:
            program = self._graph.program
            eval_program(program, [self._values[var] for var in program.inputs], self._compute,
                         lambda literal: literal.value)
            self._is_run = True
        return self._values[atom]

    def _compute(self, equation: Equation, inputs: list[Any]) -> Sequence[Any]:
        """Compute an equation, and keep its values."""
        results = bind(equation.primitive, *inputs, **equation.params)
        self._values.update(zip(equation.outputs, results, strict=True))
        return results

    def pullback(self, operation: Operation) -> Callable[..., tuple[Any, ...]]:
        """Return the local pullback of an operation: output cotangents -> operand cotangents, None for integers."""
        found = self._pullbacks.get(operation.index)
        if found is None:
            found = self._pullbacks[operation.index] = self._local_pullback(operation)
            self.evaluations[operation.index] = self.evaluations.get(operation.index, 0) + 1
        return found

    def _local_pullback(self, operation: Operation) -> Callable[..., tuple[Any, ...]]:
        equation = operation.equation
        operands = [_cast_value(self.value(node.atom), node.aval) for node in operation.inputs]
        moving = [place for place, node in enumerate(operation.inputs)
                  if has_tangent(node.aval) and equation.primitive.jvp is not NO_TANGENT]

        def local(*chosen: Any) -> list[Any]:
            given = [*operands]
            for place, value in zip(moving, chosen, strict=True):
                given[place] = value
            return list(bind(equation.primitive, *given, **equation.params))

        _, pull = vjp(local, *[operands[place] for place in moving]) if moving else (None, None)

        def pullback(*cotangents: Any) -> tuple[Any, ...]:
            found: list[Any] = [None] * len(operands)
            if pull is not None:
                filled = [_zero_value(node) if cotangent is None else cotangent
                          for cotangent, node in zip(cotangents, operation.outputs, strict=True)]
                for place, cotangent in zip(moving, pull(filled), strict=True):
                    found[place] = cotangent
            return tuple(found)
        return pullback

    def gradient(self, node: Node) -> Any:
        """Return the gradient of the only output in a value; raise `DTypeError` for a value that has none."""
        if not has_tangent(node.aval):
            raise DTypeError(at_user_line(
                f"{node.name} is {node.aval}, which has no gradient; those of its floating-point neighbours are "
                "there: node.inputs, node.successors"))
        found = self.gradients().get(node)
        return np.zeros(node.shape, node.dtype)[()] if found is None else found

    def gradients(self) -> dict[Node, Any]:
        """Return the gradients of the only output in all values that it depends on."""
        if self._gradients is None:
            root = self._graph.root
            if root.shape or not dtypes.is_inexact(root.dtype) or dtypes.is_complex(root.dtype):
                raise ArgumentError(at_user_line(
                    f"gradients need one real scalar output, and {self._graph.title or 'the program'} returns "
                    f"{root.name}: {root.aval}. Sum or average it"))
            found: dict[Node, Any] = {}

            def pull_back(operation: Operation, *arrived: Any) -> tuple[Any, ...]:
                left = self.pullback(operation)(*arrived)
                self.arriving[operation.index], self.leaving[operation.index] = arrived, left
                found.update((node, cotangent) for node, cotangent in zip(operation.outputs, arrived, strict=True)
                             if cotangent is not None)
                return left

            sums: dict[Node, Any] = {}
            pull_back_steps(sums, [root], [np.ones((), root.dtype)[()]],
                            ((operation.outputs, operation.inputs, partial(pull_back, operation))
                             for operation in reversed(self._graph.operations)), operator.add)
            self._gradients = {**found, **sums}
        return self._gradients

    def derivative(self, edge: Edge) -> Any:
        """Return the local derivative along an edge, of shape target.shape + source.shape."""
        number = edge.operation.outputs.index(edge.target)
        key = edge.operation.index, number, edge.position
        if key in self._derivatives:
            return self._derivatives[key]
        source, target = edge.source, edge.target
        if not (has_tangent(source.aval) and has_tangent(target.aval)):
            found: Any = np.zeros((*target.shape, *source.shape))
        else:
            size = target.aval.size * source.aval.size
            if size > LARGEST:
                raise ArgumentError(at_user_line(
                    f"the local derivative of {target.text} in {source.text} has {size:,} numbers, shape "
                    f"{(*target.shape, *source.shape)}; use node.vjp, which applies it without writing it out"))
            pullback = self.pullback(edge.operation)
            basis = np.eye(target.aval.size, dtype=target.dtype).reshape((target.aval.size, *target.shape))
            others = [_zero_value(node) for node in edge.operation.outputs]
            rows = vmap(lambda one: pullback(*others[:number], one, *others[number + 1:])[edge.position])(basis)
            found = np.asarray(rows).reshape((*target.shape, *source.shape))[()]
        self._derivatives[key] = found
        return found


def _cast_value(value: Any, aval: Aval) -> Any:
    """Return a value with the dtype of its variable, since Python's numbers have none."""
    return np.asarray(value, aval.dtype)[()] if isinstance(value, bool | int | float | complex) else value


def _zero_value(node: Node) -> Any:
    return np.zeros(node.shape, node.dtype if has_tangent(node.aval) else dtypes.float0)[()]
