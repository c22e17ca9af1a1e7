"""Functions of jax's with rules of their own become `custom_jvp` and `custom_vjp`; the rules are imported when used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend.core import JaxprEqn

from fxgrad.engine.higher_order.custom import ByValue, Flat, custom_jvp_p, custom_vjp_p
from fxgrad.engine.higher_order.wiring import needs_tangent_tape
from fxgrad.engine.ops.structural import instantiate_zeros
from fxgrad.engine.tracing.tape import bind
from fxgrad.interop.calls import JaxCall
from fxgrad.interop.importing import as_closed_jaxpr, import_nested, import_rule


def jaxpr_name(jaxpr: Any) -> str:
    """Return the name of the function that a jaxpr was traced from."""
    return str(as_closed_jaxpr(jaxpr).jaxpr.debug_info.func_src_info).split(" ", maxsplit=1)[0]


class JaxJvp(ByValue):
    """The jvp rule of a function of jax's. Constants of the program come first, and have no tangents."""

    __slots__ = ()

    def __init__(self, call: JaxCall) -> None:
        super().__init__(call)

    def jvp(self, primals: Flat, tangents: Flat) -> tuple[list[Any], list[Any]]:
        """Return outputs and tangents as jax has them, which calls the user's rule."""
        call: JaxCall = self._key[0]
        front = len(primals) - len(call.in_avals)
        rule = call.linearize if needs_tangent_tape(primals, tangents) else call.jvp
        return rule(primals[front:], tangents[front:])


class JaxVjp(ByValue):
    """The vjp rule of a function of jax's, `front` being the number of constants, which have no cotangents."""

    __slots__ = ()

    def __init__(self, call: JaxCall, front: int) -> None:
        super().__init__(call, front)

    def forward(self, primals: Flat, moving: Sequence[bool]) -> tuple[list[Any], list[Any], Any]:
        """Return outputs and residuals as jax has them, which calls the user's forward pass."""
        call, front = self._key
        marks = tuple(moving[front:])
        return *call.pull(primals[front:], marks), marks

    def backward(self, structure: Any, residuals: Flat, cotangents: Flat) -> list[Any]:
        """Return the cotangents of the user's backward pass; `structure` marks the primals that have one."""
        call, front = self._key
        return [*[None] * front, *call.pull_back(structure, residuals, [*map(instantiate_zeros, cotangents)])]


@import_rule("custom_jvp_call", made=custom_jvp_p)
def _custom_jvp(equation: JaxprEqn, *operands: Any) -> list[Any]:
    inner = equation.params["call_jaxpr"]
    program, constants = import_nested(inner)
    return bind(custom_jvp_p, *constants, *operands, program=program, rule=JaxJvp(JaxCall(equation, jaxpr_name(inner))))


@import_rule("custom_vjp_call", "custom_vjp_call_jaxpr", made=custom_vjp_p)
def _custom_vjp(equation: JaxprEqn, *operands: Any) -> list[Any]:
    inner = equation.params.get("call_jaxpr") or equation.params["fun_jaxpr"]
    program, constants = import_nested(inner)
    rule = JaxVjp(JaxCall(equation, jaxpr_name(inner)), len(constants))
    return bind(custom_vjp_p, *constants, *operands, program=program, rule=rule)
