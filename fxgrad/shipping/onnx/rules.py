"""The table of rules: how an operation is written as nodes, or why it is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fxgrad.extend import Analysis, Aval, MissingRule, Primitive, primitives

if TYPE_CHECKING:
    from fxgrad.shipping.onnx.emission import Emission
    from fxgrad.shipping.onnx.graph import OnnxValue


class OnnxRefusal(Exception):  # noqa: N818  (it becomes an UnsupportedError)
    """An operation without a form in ONNX: the reason, and the code to write instead."""


class RuleOperation(NamedTuple):
    """The description of an equation for a rule: its primitive, types of inputs and outputs, parameters."""

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


Rule = Callable[["Emission", RuleOperation, "list[OnnxValue]"], "list[OnnxValue]"]
"""(emission, operation, values of its inputs) -> values of its outputs."""


def _refuse_derivation(_: Primitive) -> Rule:
    return BY_DEFINITION[0]


BY_DEFINITION: list[Rule] = []
"""The rule for operations without one of their own; the module of definitions sets it."""

onnx_rules: Analysis[Rule | MissingRule] = Analysis(
    "onnx rules", "How an operation is written as nodes of ONNX; by default as those that its rule for XLA is made of.",
    missing="derive", derive=_refuse_derivation)


def register_onnx_rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for the primitives of these names."""
    return onnx_rules.register(*(primitives[name] for name in names))


def register_library_rule(name: str, function: Callable[..., OnnxValue]) -> None:
    """Register a function of the graph and the inputs as the rule of a primitive."""
    onnx_rules.enter(lambda emission, operation, values: [function(emission.graph, *values)], primitives[name])
