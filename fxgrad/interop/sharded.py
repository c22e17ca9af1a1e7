"""Import jax's operations over meshes of devices: `shard_map` and its body become ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend.core import JaxprEqn

from fxgrad.engine.derivation.simplifying import SimplifyingTape
from fxgrad.engine.ops.varying import psum_invariant_p, pvary, pvary_p
from fxgrad.engine.parallel.layouts import Layout
from fxgrad.engine.parallel.meshes import Spec, mesh_shape, spec_of
from fxgrad.engine.parallel.shard_map import bind_shard_map
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.trace import WITH_LITERALS, trace_at
from fxgrad.interop.importing import import_rule, inline_jaxpr
from fxgrad.interop.mapped import axis_names_of_params
from fxgrad.lax import collectives


@import_rule("shard_map")
def _shard_map(equation: JaxprEqn, *operands: Any) -> list[Any]:
    """Import a `shard_map`; types of its body track what varies, as ours do. Unproven equality is taken for granted."""
    params = equation.params
    mesh, avals = mesh_shape("shard_map", params["mesh"]), [*map(aval_of, operands)]
    names = tuple(name for name in mesh.names if name in params["newly_manual_axes"])
    layout = Layout(mesh, _specs(params["in_specs"], equation.invars), _specs(params["out_specs"], equation.outvars),
                    names, params["check_vma"])

    def body(*pieces: Any) -> list[Any]:
        given = pieces if layout.check_vma else [pvary(piece, names) for piece in pieces]
        outputs = inline_jaxpr(params["jaxpr"], given)
        return [layout.brought_to(output, spec) for output, spec in zip(outputs, layout.out_specs, strict=True)]

    program, captured = trace_at(
        body, [layout.piece(aval, spec) for aval, spec in zip(avals, layout.in_specs, strict=True)], mode=WITH_LITERALS,
        name="shard_map", tape_class=SimplifyingTape, axes=layout.axes, mesh=layout.mesh_axes)
    return bind_shard_map(program, captured, operands, layout)


def _specs(partitions: Sequence[Any], variables: Sequence[Any]) -> tuple[Spec, ...]:
    return tuple(spec_of(partition, var.aval.ndim) for partition, var in zip(partitions, variables, strict=True))


@import_rule("psum_invariant", "psum2", made=psum_invariant_p)
def _psum_invariant(equation: JaxprEqn, *operands: Any) -> list[Any]:
    return [collectives.psum(operand, tuple(equation.params["axes"])) for operand in operands]


@import_rule("pvary", "pcast", made=pvary_p)
def _pvary(equation: JaxprEqn, *operands: Any) -> list[Any]:
    return [collectives.pcast(operand, tuple(equation.params["axes"]), to="varying") for operand in operands]


@import_rule("all_gather_invariant")
def _all_gather_invariant(equation: JaxprEqn, operand: Any) -> Any:
    params = equation.params
    return collectives.all_gather(operand, axis_names_of_params(params), axis=params["all_gather_dimension"],
                                  tiled=params["tiled"],
                                  to="invarying")
