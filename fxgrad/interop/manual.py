"""Meshes of jax's around a trace, and the types of values that vary over their axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType

from fxgrad.engine import dtypes
from fxgrad.engine.caches import cached
from fxgrad.engine.core.avals import Aval, vma_of_jax
from fxgrad.engine.executors.xla import as_varying
from fxgrad.engine.parallel.meshes import jax_mesh, mesh_shape
from fxgrad.engine.tracing.trace import bind_axes
from fxgrad.engine.tracing.varying import MeshAxes


def mesh_around() -> MeshAxes | None:
    """Return the mesh axes that jax is mapping the trace over, if it tracks which values vary; None otherwise."""
    mesh = jax.sharding.get_abstract_mesh()
    # The position along a checked mesh axis varies over it.
    checked = frozenset(name for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True)
                        if kind == AxisType.Manual
                        and vma_of_jax(jax.eval_shape(lambda name=name: lax.axis_index(name))))
    return MeshAxes(checked, frozenset(), mesh_shape("to_jax", mesh)) if checked else None


@contextmanager
def bind_mesh_around() -> Iterator[None]:
    """Bind the mesh axes that jax maps the current trace over, for programs derived within the block."""
    mesh = mesh_around()
    if mesh is None:
        yield
        return
    with bind_axes(mapped_axis_sizes(mesh), mesh):
        yield


def mapped_axis_sizes(mesh: MeshAxes | None) -> dict[str, int]:
    """Return the sizes, by name, of the mesh axes that are mapped over."""
    return {} if mesh is None else {name: mesh.shape.size((name,)) for name in mesh.checked}


def _position_aval(name: str) -> Any:
    """Return the type of the position along a mesh axis, which varies over it."""
    return jax.eval_shape(lambda: lax.axis_index(name))


def struct_for_jax(aval: Aval) -> Any:
    """Return the type of one of our values, as jax describes it."""
    if dtypes.is_key(aval.dtype):
        return jax.ShapeDtypeStruct(aval.shape, _key_dtype())
    return aval.struct


@cached("dtype of keys in jax", 1)
def _key_dtype() -> Any:
    return jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32")).dtype


def trace_in_mesh(axes: Mapping[str, int], mesh: MeshAxes | None, function: Callable[..., Any], avals: Sequence[Aval],
                  ) -> Any:
    """Return the jaxpr of `function` for inputs of the types `avals`, mapped over `axes`."""
    if mesh is None:
        return jax.make_jaxpr(function, axis_env=[*axes.items()])(*map(struct_for_jax, avals))
    others = {name: size for name, size in axes.items() if name not in mesh.names}
    found: list[Any] = []

    def body() -> tuple[()]:
        found.append(jax.make_jaxpr(function, axis_env=[*others.items()])(*map(example_value, avals)))
        return ()

    manual = jax.shard_map(body, mesh=jax_mesh(mesh.shape), in_specs=(), out_specs=(),
                           axis_names=mesh.names, check_vma=not mesh.unchecked)
    jax.eval_shape(manual)
    return found[0]


def example_value(aval: Aval) -> Any:
    """Return a value of a type; outside of meshes jax's description of the type."""
    if not aval.vma:
        return struct_for_jax(aval)
    if dtypes.is_key(aval.dtype):
        return as_varying(jnp.broadcast_to(jax.random.key(0, impl="threefry2x32"), aval.shape), aval)
    zero = np.zeros((), aval.dtype)
    return as_varying(lax.broadcast(zero.item() if aval.weak else zero, aval.shape), aval)


def type_in_jax(aval: Aval) -> Any:
    """Return jax's own type of a value, within the mesh around."""
    known, = jax.make_jaxpr(lambda: example_value(aval))().out_avals
    return known
