"""Operations of jax's without a counterpart in fxgrad: one equation each, whose rules are jax's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.extend.core import JaxprEqn

from fxgrad.engine.core.avals import Aval, keys_to_jax, to_numpy
from fxgrad.engine.core.primitive import Cost, Primitive, register, total_bytes
from fxgrad.engine.higher_order.call import check_arguments
from fxgrad.engine.higher_order.wiring import needs_tangent_tape
from fxgrad.engine.tracing.tape import axes_in_scope, bind
from fxgrad.engine.transforms.batch import batched_axis
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import UnsupportedError
from fxgrad.interop.calls import JaxCall
from fxgrad.interop.importing import OTHERS, import_rule


def _abstract(*avals: Aval, call: JaxCall) -> list[Aval]:
    check_arguments(call.name, call.in_avals, avals)
    return [*call.out_avals]


def _numpy(*values: Any, call: JaxCall) -> list[Any]:
    with call.settings.scope(), jax.default_device(jax.local_devices(backend="cpu")[0]):
        return [*map(to_numpy, call.compiled(*map(keys_to_jax, values)))]


def _emit(_: Any, *values: Any, call: JaxCall) -> list[Any]:
    return call(*values)


def _jvp(primals: list[Any], tangents: list[Any], *, call: JaxCall) -> tuple[list[Any], list[Any]]:
    return call.linearize(primals, tangents) if needs_tangent_tape(primals, tangents) else call.jvp(primals, tangents)


def _transpose(cotangents: list[Any], inputs: list[Any], *, call: JaxCall) -> list[Any]:
    return call.transpose(cotangents, inputs)


def _batch(size: int, values: list[Any], axes: list[int | None], *, call: JaxCall,
           ) -> tuple[list[Any], list[int | None]]:
    return call.batch(size, values, axes, batched_axis.get())


def _cost(*avals: Aval, call: JaxCall) -> Cost:
    """Return a lower bound, since jax's work is unknown: one operation for each element of the outputs."""
    return Cost(sum(aval.size for aval in call.out_avals), total_bytes(avals, call.out_avals))


def _opaque_primitive(name: str, effectful: bool) -> Primitive:
    return register(Primitive(name=name, abstract=_abstract, numpy=_numpy, xla=_emit, jvp=_jvp, transpose=_transpose,
                              batch=_batch, cost=_cost, effectful=effectful))


jax_call_p = _opaque_primitive("jax_call", effectful=False)
"""An operation of jax's, whose equation is its parameter. Its derivatives are imported, natively where possible."""
jax_effect_p = _opaque_primitive("jax_effect", effectful=True)
"""An operation of jax's with effects beside its outputs."""


def _names_mapped_axis(equation: JaxprEqn) -> bool:
    """Return whether an equation without inner jaxprs names a mapped axis."""
    axes = axes_in_scope().keys()
    said = [value if isinstance(value, tuple | list | set | frozenset) else (value,) for value in
            equation.params.values()]
    return bool(axes) and any(isinstance(name, str) and name in axes for names in said for name in names)


@import_rule(OTHERS)
def bind_opaque(equation: JaxprEqn, *operands: Any) -> Sequence[Any]:
    """Bind an equation without a counterpart; raise `UnsupportedError` if it is a collective over a mapped axis."""
    kinds = {type(effect).__name__ for effect in equation.effects}
    if "NamedAxisEffect" in kinds or _names_mapped_axis(equation):
        raise UnsupportedError(at_user_line(
            f"{equation.primitive.name} over a mapped axis, with these settings, cannot be imported: fxgrad has no "
            "counterpart, and jax could not be told of the axis"))
    return bind(jax_effect_p if kinds else jax_call_p, *operands, call=JaxCall(equation))

