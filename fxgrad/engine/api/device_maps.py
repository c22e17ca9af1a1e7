"""`pmap`: the older name for a function that every device runs on its own entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from fxgrad.engine import tree
from fxgrad.engine.api.arguments import transformation
from fxgrad.engine.api.compiled import jit
from fxgrad.engine.api.mapped_calls import Axes, MappedCall, check_axes_argument, output_axes
from fxgrad.engine.api.sharded import shard_map
from fxgrad.engine.ops.structural import move_axis, reshape
from fxgrad.engine.parallel.meshes import partition_of
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError, UnsupportedError


def pmap(fun: Callable[..., Any], axis_name: str | None = None, *, in_axes: Axes = 0, out_axes: Axes = 0,
         static_broadcasted_argnums: int | Iterable[int] = (), devices: Sequence[Any] | None = None,
         backend: str | None = None, axis_size: int | None = None, donate_argnums: int | Iterable[int] = (),
         ) -> Callable[..., Any]:
    """Return `fun` compiled to run on one device for each entry along an axis of the arguments, as `vmap` computes.

    This is an older name. `shard_map` covers it, over meshes of any shape and several processes, and `jit(vmap(fun))`
    runs on the devices that its arguments lie on. `pmap` is `jit` of a `shard_map` over a mesh of one axis, so each
    device runs `fun` itself; `jit(vmap(fun))` leaves the distribution to XLA.

    `in_axes`, `out_axes` and `axis_name` are those of `vmap`; collectives reduce over `axis_name`. With None in
    `out_axes` a result is that of the first device. The arguments at `static_broadcasted_argnums` are hashable, and
    each new value recompiles `fun`; those at `donate_argnums` give up their memory. There is one of `devices` for each
    entry, by default the first of `local_devices(backend=backend)`.

    Raises `ArgumentError` for more entries than devices and for axes that do not fit, and `UnsupportedError` in several
    processes.

    >>> import numpy as np, fxgrad
    >>> shares = fxgrad.pmap(lambda x: x / fxgrad.lax.psum(x, "i"), axis_name="i")
    >>> print(shares(np.array([4.0])))
    [1.]
    """
    name = function_name(fun)
    in_axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    check_axes_argument("pmap", "in_axes", in_axes, (tuple, dict))
    check_axes_argument("pmap", "out_axes", out_axes, (tuple, list, dict))
    if axis_name is not None and not isinstance(axis_name, str):
        raise ArgumentError(at_user_line(
            f"pmap: axis_name is a {type(axis_name).__name__} ({axis_name!r}), where a string is needed, such as "
            "axis_name='i'"))
    axis = axis_name or f"pmap({name})"
    static = [static_broadcasted_argnums] if isinstance(static_broadcasted_argnums, int) else [
        *static_broadcasted_argnums]
    donated = donate_argnums if isinstance(donate_argnums, int) else [*donate_argnums]

    @transformation("pmap", fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        one, given, axes = _without_static(fun, static, in_axes, args)
        call = MappedCall("pmap", one, axes, given, kwargs, axis_size)
        mesh = Mesh(np.array(_choose_devices(name, call.size, devices, backend), dtype=object), (axis,),
                    axis_types=(AxisType.Auto,))
        positions: list[int | None] = []

        def body(*pieces: Any) -> Any:
            entries = [reshape(piece, aval_of(piece).without_axis(at).shape)
                       for piece, at in zip(pieces, call.axes, strict=True)]
            leaves, structure = tree.flatten(call(*entries))
            positions[:] = output_axes("pmap", name, out_axes, structure, [*map(aval_of, leaves)])
            return tree.unflatten(structure, [leaf if at is None else reshape(leaf, (1, *aval_of(leaf).shape))
                                              for leaf, at in zip(leaves, positions, strict=True)])

        specs = tuple([partition_of((*[()] * at, (axis,))) for at in call.axes])
        out_specs = tree.map(lambda at: partition_of(() if at is None else ((axis,),)), out_axes, is_leaf=tree.is_none)
        results = shard_map(body, mesh=mesh, in_specs=specs, out_specs=out_specs, check_vma=False)(*call.values)
        leaves, structure = tree.flatten(results)
        return tree.unflatten(structure, [leaf if at is None else move_axis(leaf, 0, at)
                                          for leaf, at in zip(leaves, positions, strict=True)])

    return jit(mapped, static_argnums=static or None, donate_argnums=donated or None)  # type: ignore[no-any-return]


def _without_static(fun: Callable[..., Any], static: Sequence[int], in_axes: Axes, args: tuple[Any, ...],
                    ) -> tuple[Callable[..., Any], tuple[Any, ...], Axes]:
    """Return the function with its static arguments bound, the remaining arguments, and their axes."""
    fixed = {position % len(args): args[position] for position in static if -len(args) <= position < len(args)}
    if not fixed:
        return fun, args, in_axes
    others = [position for position in range(len(args)) if position not in fixed]

    def one(*given: Any, **kwargs: Any) -> Any:
        values = {**fixed, **dict(zip(others, given, strict=True))}
        return fun(*(values[position] for position in range(len(args))), **kwargs)

    one.__name__ = function_name(fun)
    if isinstance(in_axes, tuple) and len(in_axes) == len(args):
        in_axes = tuple(in_axes[position] for position in others)
    return one, tuple(args[position] for position in others), in_axes


def _choose_devices(name: str, size: int, devices: Sequence[Any] | None, backend: str | None) -> list[Any]:
    """Return as many devices as there are entries."""
    if devices is not None:
        if len(devices) != size:
            raise ArgumentError(at_user_line(
                f"pmap: {len(devices)} devices for a mapped axis of size {size} of {name}; one device for each entry "
                "is needed"))
        return [*devices]
    if jax.process_count() > 1:
        raise UnsupportedError(at_user_line(
            "pmap: there are several processes. Write shard_map over a mesh of all devices, "
            "fxgrad.make_mesh((fxgrad.device_count(),), ('i',))"))
    found: list[Any] = jax.local_devices(backend=backend)
    if size > len(found):
        raise ArgumentError(at_user_line(
            f"pmap: the mapped axis of {name} has size {size}, and there are {len(found)} devices. Give each of them "
            f"several entries, with pmap(vmap(f)) of arrays of shape ({len(found)}, {size} // {len(found)}, ...), or "
            "use vmap"))
    return found[:size]
