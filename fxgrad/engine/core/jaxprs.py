"""The names that jax's jaxprs have for the parts of a program, so that code that walks over those finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fxgrad.engine.core.program import Equation, Program


class ProgramAsJaxpr:
    """A program by the names of `ClosedJaxpr` and `Jaxpr`. Primitives and their parameters are not jax's."""

    __slots__ = ()

    @property
    def jaxpr(self: Program) -> Program:  # type: ignore[misc]
        """The program itself, which has its constants with it."""
        return self

    @property
    def eqns(self: Program) -> list[Equation]:  # type: ignore[misc]
        """The equations."""
        return [*self.equations]

    @property
    def invars(self: Program) -> list[Any]:  # type: ignore[misc]
        """The inputs that callers give."""
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
    """An equation by the names of `JaxprEqn`."""

    __slots__ = ()

    @property
    def invars(self: Equation) -> list[Any]:  # type: ignore[misc]
        """The inputs: variables and literals."""
        return self.inputs

    @property
    def outvars(self: Equation) -> list[Any]:  # type: ignore[misc]
        """The outputs."""
        return self.outputs
