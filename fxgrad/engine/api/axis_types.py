"""`reshard`, `auto_axes` and `explicit_axes`: shardings of values, and of the results and arguments of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AxisType

from fxgrad.engine import tree
from fxgrad.engine.api.compiled import jit
from fxgrad.engine.frontend.flat import require_function
from fxgrad.engine.frontend.placing import place_array, shardings_of_leaves
from fxgrad.engine.frontend.strict import require_array
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError


@hide_frames
def reshard(xs: Any, out_shardings: Any) -> Any:
    """Return the arrays of the container `xs`, placed by `out_shardings`: one sharding, or a prefix of the container.

    Concrete arrays are moved and become `jax.Array`s. For traced arrays the program constrains the placement, and that
    of their cotangents. A `PartitionSpec` refers to the mesh set by `set_mesh`, whatever the types of its axes. Raises
    `ArgumentError` and `ShapeError` for shardings that do not fit.

    >>> import numpy as np, fxgrad
    >>> rows = fxgrad.NamedSharding(fxgrad.make_mesh((1,), ("data",)), fxgrad.P("data"))
    >>> fxgrad.reshard(np.ones(4), rows).sharding.spec
    P('data',)
    """
    return _place_arrays("reshard", xs, out_shardings)


def _place_arrays(what: str, xs: Any, shardings: Any) -> Any:
    leaves, structure = tree.flatten(xs)
    given = shardings_of_leaves(what, xs, shardings)
    names = tree.leaf_names(xs, "x")
    return tree.unflatten(structure, [
        leaf if sharding is None else place_array(what, require_array(what, leaf), sharding, name)
        for leaf, sharding, name in zip(leaves, given, names, strict=True)])


def auto_axes(f: Callable[..., Any] | None = None, /, *, axes: str | tuple[str, ...] | None = None,
              out_sharding: Any = None) -> Callable[..., Any]:
    """Return `f` with its results placed by `out_sharding`; XLA chooses the placement of all values inside.

    In programs XLA chooses placements on all mesh axes, so `axes` makes no difference. Arrays on Explicit axes, on
    which jax's own operators work un-jitted, are computed as under `jit`. `out_sharding` may be given to the call
    instead. Without `f` it is a decorator. Raises `ArgumentError` if no sharding is given, and otherwise as `reshard`.

    >>> import numpy as np, fxgrad
    >>> rows = fxgrad.NamedSharding(fxgrad.make_mesh((1,), ("data",)), fxgrad.P("data"))
    >>> fxgrad.auto_axes(np.sin, out_sharding=rows)(np.zeros(4)).sharding.spec
    P('data',)
    """
    if f is None:
        return functools.partial(auto_axes, axes=axes, out_sharding=out_sharding)
    require_function("auto_axes", f)
    function: Callable[..., Any] = f
    compiled = jit(function)

    @functools.wraps(function)
    @hide_frames
    def call(*args: Any, **kwargs: Any) -> Any:
        sharding = _required_sharding("auto_axes", "out_sharding", out_sharding, kwargs)
        run = compiled if any(map(_is_explicit, tree.leaves((args, kwargs)))) else function
        return _place_arrays("auto_axes", run(*args, **kwargs), sharding)
    return call


def _is_explicit(value: Any) -> bool:
    """Return whether an array lies on a mesh with Explicit axes, where jax's own operators need a sharding."""
    return isinstance(value, jax.Array) and AxisType.Explicit in jax.typeof(value).sharding.mesh.axis_types


def explicit_axes(f: Callable[..., Any] | None = None, /, *, axes: str | tuple[str, ...] | None = None,
                  in_sharding: Any = None) -> Callable[..., Any]:
    """Return `f` with its arguments placed by `in_sharding`: one sharding, or a prefix of the arguments' container.

    Inside, `reshard` and `out_sharding=` place values, and XLA chooses all other placements, so `axes` makes no
    difference. `in_sharding` may be given to the call instead. Raises as `auto_axes`.

    >>> import numpy as np, fxgrad
    >>> rows = fxgrad.NamedSharding(fxgrad.make_mesh((1,), ("data",)), fxgrad.P("data"))
    >>> fxgrad.explicit_axes(lambda x: x.sharding.spec, in_sharding=rows)(np.zeros(4))
    P('data',)
    """
    if f is None:
        return functools.partial(explicit_axes, axes=axes, in_sharding=in_sharding)
    require_function("explicit_axes", f)
    function: Callable[..., Any] = f

    @functools.wraps(function)
    @hide_frames
    def call(*args: Any, **kwargs: Any) -> Any:
        sharding = _required_sharding("explicit_axes", "in_sharding", in_sharding, kwargs)
        return function(*_place_arrays("explicit_axes", args, sharding), **kwargs)
    return call


def _required_sharding(what: str, name: str, given: Any, kwargs: dict[str, Any]) -> Any:
    found = kwargs.pop(name, given)
    if found is None:
        raise ArgumentError(at_user_line(
            f"{what}: {name} is missing; write {what}(f, {name}=P('x')), or give it to the call"))
    return found
