"""The mapped axes of a collective: their sizes, groups of their entries, and the operation over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.engine import tree
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.executors.xla import evaluate, jax_axis_size
from fxgrad.engine.frontend.operands import as_integer
from fxgrad.engine.frontend.strict import require_array
from fxgrad.engine.ops.varying import psum_invariant, pvary, take_equal
from fxgrad.engine.parallel.collective import axis_params, groups_param, pmax_p, pmin_p, psum_p
from fxgrad.engine.parallel.index_groups import group_size
from fxgrad.engine.tracing.tape import axes_in_scope, bind, innermost_for
from fxgrad.engine.tracing.trace import mesh_in_scope
from fxgrad.engine.tracing.varying import MeshAxes
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, UnsupportedError

AxisName = str | tuple[str, ...]


def named_axes(what: str, axis_name: Any) -> dict[str, int]:
    """Return the sizes of the axes named by `axis_name`, by name; raise `ArgumentError` for one not in scope.

    Axes that jax maps around a trace of its own, such as that of a function of `to_jax`, are in scope too.
    """
    names = axis_name if isinstance(axis_name, tuple) else (axis_name,)
    scope, sizes = axes_in_scope(), {}
    for name in names:
        if not isinstance(name, str):
            raise ArgumentError(at_user_line(
                f"{what}: axis_name is {axis_name!r}, where the name of a mapped axis is needed, or a tuple of names. "
                "The axes of an array itself are reduced with fxgrad.numpy.sum(x, axis=0) and its like"))
        size = scope[name] if name in scope else jax_axis_size(name)
        if size is None:
            raise _not_in_scope(what, name)
        sizes[name] = size
    if len(set(names)) != len(names):
        raise ArgumentError(at_user_line(f"{what}: axis_name={axis_name!r} says an axis twice; name each one once"))
    return sizes


def _not_in_scope(what: str, name: str) -> ArgumentError:
    scope, mesh = axes_in_scope(), mesh_in_scope()
    if mesh is not None and name in mesh.shape.names:
        return ArgumentError(at_user_line(
            f"{what}: the function is not mapped over the mesh axis {name!r}, but over {', '.join(map(repr, scope))}: "
            f"{name!r} is left to the compiler. Name it in axis_names of shard_map too"))
    known = f"those in scope are {', '.join(map(repr, scope))}" if scope else "none is in scope"
    return ArgumentError(at_user_line(
        f"{what}: there is no mapped axis named {name!r} here; {known}. Call it inside a function under "
        f"fxgrad.vmap(..., axis_name={name!r}), or fxgrad.shard_map over a mesh that has it"))


def axis_groups_of(what: str, groups: Any, axes: dict[str, int], alike: bool = True) -> tuple[dict[str, Any],
                                                                                              int | None]:
    """Return the parameter for `axis_index_groups`, and the size of the groups; None if sizes differ."""
    if groups is None:
        return {}, math.prod(axes.values())
    if len(axes) != 1:
        raise UnsupportedError(at_user_line(
            f"{what}: axis_index_groups over the axes {', '.join(map(repr, axes))}; over one axis alone there are "
            "groups. Map over one axis of all the entries instead"))
    try:
        listed = [[*group] for group in groups]
    except TypeError:
        raise ArgumentError(at_user_line(
            f"{what}: axis_index_groups={groups!r}; a list of groups, which are lists of positions, is needed"
        )) from None
    found = tuple(tuple(as_integer(f"{what}: axis_index_groups", position) for position in group) for group in listed)
    return groups_param(found), group_size(what, found, math.prod(axes.values()), alike=alike)


def apply_over_axes(primitive: Primitive, values: Sequence[Any], axes: dict[str, int], **params: Any) -> Any:
    """Apply the collective over all these axes at once, on at most one value."""
    mesh = mesh_in_scope()
    if mesh is not None and not axes.keys().isdisjoint(mesh.names):
        return _over_mesh(primitive, values, axes, mesh, params)
    return _apply_collective(primitive, values, axes, params)


def _over_mesh(primitive: Primitive, values: Sequence[Any], axes: dict[str, int], mesh: MeshAxes,
               params: dict[str, Any]) -> Any:
    """Apply the collective to values that vary over its mesh axes; equal results get an invariant type if checked."""
    names = [name for name in axes if name in mesh.names]
    checked = [name for name in names if name in mesh.checked]
    values = [pvary(value, names) for value in values]
    if primitive is psum_p and "axis_index_groups" not in params:
        result = _apply_collective(primitive, values,
                                   {name: size for name, size in axes.items() if name not in checked}, params)
        return psum_invariant(result, checked) if checked else result
    result = _apply_collective(primitive, values, axes, params)
    if primitive in (pmax_p, pmin_p) and "axis_index_groups" not in params:
        return mark_invariant(result, axes)
    return pvary(result, names)


def mark_invariant(value: Any, axes: dict[str, int]) -> Any:
    """Return `value`, equal for all entries, in a type that does not vary over the axes of a mesh."""
    mesh = mesh_in_scope()
    checked = [] if mesh is None else [name for name in axes if name in mesh.checked]
    return take_equal(value, checked) if checked else value


def _apply_collective(primitive: Primitive, values: Sequence[Any], axes: dict[str, int], params: dict[str, Any]) -> Any:
    if not axes:
        return values[0]
    over = axis_params([*axes], [*axes.values()])
    if innermost_for(values) is None and not axes.keys() & axes_in_scope().keys():  # jax needs to know the axes alone
        return evaluate(primitive, values, {**over, **params})[0]
    return bind(primitive, *values, **over, **params)[0]


def map_leaves(what: str, function: Callable[[Any], Any], x: Any) -> Any:
    """Return `function` of each array of a container."""
    return tree.map(lambda leaf: function(require_array(what, leaf)), x)
