"""Arrays on meshes with Explicit axes: computed with Auto axes, and returned on the original mesh.

On an Explicit axis jax needs the sharding of each operation's result, and refuses operations without a sharding rule (a
product whose contracted axis is sharded, a sort, a scan) unless the caller gives one. A program has no such caller, and
needs none: between its inputs and its outputs XLA places the arrays, as on Auto axes. Calls without such axes have no
overhead: the trace detects them, and later calls run through `OnMeshes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding, get_abstract_mesh, use_abstract_mesh

from fxgrad.engine import tree
from fxgrad.engine.caches import cached

Emission = Callable[[Sequence[Any]], "list[Any]"]


class ExplicitAxes(Exception):  # noqa: N818  (nobody sees it)
    """Raised if a trace meets an Explicit axis that its caller did not foresee."""


_is_typed: ContextVar[bool] = ContextVar("is_typed", default=False)
"""Whether emission goes into a trace of jax's own, in which types include shardings: then jax's rules apply."""


def is_explicit(value: Any) -> bool:
    """Return whether a `jax.Array` lies on a mesh with an Explicit axis."""
    return _EXPLICIT in value.aval.sharding.mesh.axis_types


_EXPLICIT = AxisType.Explicit  # looking up an enumeration member takes as long as the rest of the check


def explicit_mesh(values: Iterable[Any]) -> Any:
    """Return the first mesh with an Explicit axis that one of `values` lies on, or that jax has set; else None."""
    for value in values:
        if isinstance(value, jax.Array) and _EXPLICIT in value.aval.sharding.mesh.axis_types:
            return jax.typeof(value).sharding.mesh
    mesh = get_abstract_mesh()
    return mesh if _EXPLICIT in mesh.axis_types else None


def emit_on_auto_axes(emission: Emission, values: Sequence[Any], *, foreseen: bool = True) -> list[Any]:
    """Return the outputs of `emission` on `values` within a trace of jax, with all Explicit axes as Auto ones.

    Raises `ExplicitAxes` if there are any, and they were not `foreseen`.
    """
    mesh = None if _is_typed.get() else explicit_mesh(values)
    if mesh is None:
        return emission(values)
    if not foreseen:
        raise ExplicitAxes
    with use_abstract_mesh(_auto_mesh(mesh)):
        return emission([_drop_sharding_type(value) for value in values])


def _auto_mesh(mesh: Any) -> Any:
    return mesh.update_axis_types({name: AxisType.Auto for name, kind in zip(
        mesh.axis_names, mesh.axis_types, strict=True) if kind is AxisType.Explicit})


def _drop_sharding_type(value: Any) -> Any:
    """Return `value` as an array whose type does not include its sharding; the sharding stays."""
    if not isinstance(value, jax.Array) or not is_explicit(value):
        return value
    sharding = jax.typeof(value).sharding
    return jax.lax.with_sharding_constraint(value, NamedSharding(_auto_mesh(sharding.mesh), sharding.spec))


def restore_mesh(outputs: Any, mesh: Any, inputs: Sequence[Any] = ()) -> Any:
    """Return `outputs` with arrays on the Auto version of `mesh` moved to `mesh` itself; they are donated.

    An output that is one of the `inputs` is returned unchanged. Arrays are donated to a compiled identity: nothing
    moves, in a fraction of the time that a `device_put` of each takes.
    """
    leaves, structure = tree.flatten(outputs)
    kept = {*map(id, inputs)}
    found = [_sharding_on(leaf.sharding, mesh.axis_names, mesh.axis_types)
             if isinstance(leaf, jax.Array) and id(leaf) not in kept else None for leaf in leaves]
    places = [place for place, sharding in enumerate(found) if sharding is not None]
    if places:
        same = _donating_identity(tuple(found[place] for place in places))
        for place, moved in zip(places, same(*(leaves[place] for place in places)), strict=True):
            leaves[place] = moved
    return tree.unflatten(structure, leaves)


@cached("identities on explicit meshes", 256)
def _donating_identity(shardings: tuple[Any, ...]) -> Callable[..., tuple[Any, ...]]:
    return jax.jit(lambda *arrays: arrays, out_shardings=shardings, donate_argnums=tuple(range(len(shardings))))


@cached("shardings of results on explicit meshes", 1024)
def _sharding_on(sharding: Any, names: tuple[str, ...], axis_types: Any) -> Any:
    """Return `sharding` with axes of these types, if its mesh has these names and Auto axes only."""
    if not isinstance(sharding, NamedSharding) or sharding.mesh.axis_names != names or (
            AxisType.Explicit in sharding.mesh.axis_types):
        return None
    return NamedSharding(sharding.mesh.update(axis_types=axis_types), sharding.spec, memory_kind=sharding.memory_kind)


class OnMeshes:
    """A compiled function for calls with Explicit axes: the trace of `compiled` foresees them.

    In a trace of jax's own they remain, and `function` is called, from which `compiled` was made.
    """

    __slots__ = ("compiled", "function", "mesh", "otherwise")

    def __init__(self, compiled: Callable[..., Any], function: Callable[..., Any], mesh: Any = None,
                 otherwise: Callable[..., Any] | None = None) -> None:
        self.compiled, self.function = compiled, function
        self.otherwise = otherwise or compiled
        """Called if no axis is Explicit."""
        self.mesh = mesh
        """The mesh that results lie on, wherever the arguments lie."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = tree.leaves((args, kwargs))
        mesh = self.mesh or explicit_mesh(leaves)
        if mesh is None:
            return self.otherwise(*args, **kwargs)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            token = _is_typed.set(True)
            try:
                return self.function(*args, **kwargs)
            finally:
                _is_typed.reset(token)
        return restore_mesh(self.compiled(*args, **kwargs), mesh, leaves)
