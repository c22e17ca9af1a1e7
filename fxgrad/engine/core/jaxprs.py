"""The attributes of jax's jaxprs on programs and equations, so that code written for jaxprs can walk programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fxgrad.engine.core.program import Equation, Program


class ProgramAsJaxpr:
    """The attributes of `ClosedJaxpr` and `Jaxpr` on a program. Primitives and their parameters are not jax's."""

    __slots__ = ()

    @property
    def jaxpr(self: Program) -> Program:  # type: ignore[misc]
        """The program itself, which holds its constants."""
        return self

    @property
    def eqns(self: Program) -> list[Equation]:  # type: ignore[misc]
        """The equations."""
        return [*self.equations]

    @property
    def invars(self: Program) -> list[Any]:  # type: ignore[misc]
        """The inputs passed by callers."""
        return [*self.inputs[len(self.constants):]]

    @property
    def constvars(self: Program) -> list[Any]:  # type: ignore[misc]
        """The inputs whose values are the constants."""
        return [*self.inputs[:len(self.constants)]]

    @property
    def outvars(self: Program) -> list[Any]:  # type: ignore[misc]
        """The outputs."""
        return [*self.outputs]

    @property
    def consts(self: Program) -> list[Any]:  # type: ignore[misc]
        """The values of the constants."""
        return [*self.constants]


class EquationAsJaxpr:
    """The attributes of `JaxprEqn` on an equation."""

    __slots__ = ()

    @property
    def invars(self: Equation) -> list[Any]:  # type: ignore[misc]
        """The inputs: variables and literals."""
        return self.inputs

    @property
    def outvars(self: Equation) -> list[Any]:  # type: ignore[misc]
        """The outputs."""
        return self.outputs
