"""Meshes of jax's around a trace, and the types of values that vary over their axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType

from fxgrad import dtypes
from fxgrad.core.avals import Aval, varying_of_jax
from fxgrad.executors.xla import as_varying
from fxgrad.parallel.meshes import jax_mesh, mesh_shape
from fxgrad.tracing.trace import mapped_over
from fxgrad.tracing.varying import MeshAxes


def mesh_around() -> MeshAxes | None:
    """The mesh axes that jax maps what is being traced over, where it knows which values vary; None if it does not."""
    mesh = jax.sharding.get_abstract_mesh()
    checked = frozenset(name for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True)
                        if kind == AxisType.Manual and _is_checked(name))
    return MeshAxes(checked, frozenset(), mesh_shape("to_jax", mesh)) if checked else None


@contextmanager
def within_mesh() -> Iterator[None]:
    """What is derived of programs in this block may speak over the mesh axes that jax maps what it traces over."""
    mesh = mesh_around()
    if mesh is None:
        yield
        return
    with mapped_over(sizes(mesh), mesh):
        yield


def sizes(mesh: MeshAxes | None) -> dict[str, int]:
    """The mesh axes that are mapped over, by name."""
    return {} if mesh is None else {name: mesh.shape.size((name,)) for name in mesh.checked}


def _is_checked(name: str) -> bool:
    return bool(varying_of_jax(_position(name)))


def _position(name: str) -> Any:
    """The type of the position along a mesh axis, which varies over it."""
    return jax.eval_shape(lambda: lax.axis_index(name))


def jaxpr_within(mesh: MeshAxes, axes: Mapping[str, int], function: Callable[..., Any], avals: list[Aval]) -> Any:
    """The jaxpr of `function` where it is mapped over `mesh` and `axes`, for inputs of the types `avals`."""
    found: list[Any] = []

    def body() -> tuple[()]:
        examples = [as_varying(_example(aval), aval) for aval in avals]
        found.append(jax.make_jaxpr(function, axis_env=[*axes.items()])(*examples))
        return ()

    manual = jax.shard_map(body, mesh=jax_mesh(mesh.shape._replace(devices=None)), in_specs=(), out_specs=(),
                           axis_names=mesh.checked | mesh.unchecked, check_vma=not mesh.unchecked)
    jax.eval_shape(manual)
    return found[0]


def _example(aval: Aval) -> Any:
    """A value of a type, the same on all devices."""
    if dtypes.is_key(aval.dtype):
        return jnp.broadcast_to(jax.random.key(0, impl="threefry2x32"), aval.shape)
    return lax.broadcast(np.zeros((), aval.dtype).item() if aval.weak else np.zeros((), aval.dtype), aval.shape)


def type_in_jax(aval: Aval) -> Any:
    """jax's own type of a value, within the mesh around."""
    known, = jax.make_jaxpr(lambda: as_varying(_example(aval), aval))().out_avals
    return known
