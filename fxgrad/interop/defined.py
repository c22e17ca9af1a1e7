"""jax's primitives that are defined by a function of simpler ones (jax.experimental.hijax), such as nonzero."""

from __future__ import annotations

from typing import Any

import jax

from fxgrad.engine import dtypes
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.interop.importing import aval_of_jax, import_rule, inline_jaxpr
from fxgrad.interop.matching import read_parameters


@import_rule("call_hi_primitive")
def _inline_definition(equation: Any, *operands: Any) -> Any:
    """Inline the definition, unless the primitive has derivatives: these are rules of its own, inside jax."""
    definition, = read_parameters(equation, "_prim")
    outputs = [aval_of_jax(var.aval) for var in equation.outvars]
    if definition.effects or any(dtypes.is_inexact(aval.dtype) for aval in outputs):
        return NotImplemented
    structure = jax.tree.structure(definition.in_avals)

    def flat(*values: Any) -> list[Any]:
        return jax.tree.leaves(definition.expand(*jax.tree.unflatten(structure, values)))

    structs = [jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype, weak_type=aval_of(operand).weak)
               for var, operand in zip(equation.invars, operands, strict=True)]
    return inline_jaxpr(jax.make_jaxpr(flat)(*structs), operands)
