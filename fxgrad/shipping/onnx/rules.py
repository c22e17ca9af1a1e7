"""The table of rules: how an operation is written as nodes, or why it is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fxgrad.extend import Analysis, Aval, MissingRule, Primitive, primitives

if TYPE_CHECKING:
    from fxgrad.shipping.onnx.emission import Emission
    from fxgrad.shipping.onnx.graph import Value


class Refusal(Exception):  # noqa: N818  (it becomes an UnsupportedError)
    """Why an operation has no form in ONNX, and what to write instead."""


class Operation(NamedTuple):
    """What a rule is given of an equation: its primitive, types of inputs and outputs, parameters."""

    primitive: Primitive
    avals: Sequence[Aval]
    outputs: Sequence[Aval]
    params: dict[str, Any]
    regions: Sequence[Any] = ()

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the inputs."""
        return [aval.shape for aval in self.avals]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first output."""
        return self.outputs[0].shape


Rule = Callable[["Emission", Operation, "list[Value]"], "list[Value]"]
"""(emission, operation, values of its inputs) -> values of its outputs."""


def _derived(_: Primitive) -> Rule:
    return BY_DEFINITION[0]


BY_DEFINITION: list[Rule] = []
"""What is done with operations of which nothing is entered; the room of definitions puts it here."""

onnx_rules: Analysis[Rule | MissingRule] = Analysis(
    "onnx rules", "How an operation is written as nodes of ONNX; by default as those that its rule for XLA is made of.",
    missing="derive", derive=_derived)


def rule_of(*names: str) -> Callable[[Rule], Rule]:
    """Enters a rule for the primitives of these names."""
    return onnx_rules.register(*(primitives[name] for name in names))


def library_rule(name: str, function: Callable[..., Value]) -> None:
    """Enters, for the primitive of that name, a function of the graph and the inputs that gives its one result."""
    onnx_rules.enter(lambda emission, operation, values: [function(emission.graph, *values)], primitives[name])
