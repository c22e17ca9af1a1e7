"""Batching: `vmap`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import tree
from fxgrad.api.arguments import check_chunk_size, transformation
from fxgrad.core.arrays import handed
from fxgrad.core.avals import Aval, plain
from fxgrad.errors import ArgumentError, at_user_line, function_name
from fxgrad.frontend.flat import check_leaf, indexed_names, just, parameter_names, spread_over, trace_flat
from fxgrad.ops.joining import concatenate
from fxgrad.ops.shaping import slice_in_dim
from fxgrad.tracebacks import boundary
from fxgrad.tracing.apply import apply_program
from fxgrad.tracing.tape import aval_of
from fxgrad.transforms.batch import batched_program, batching_over

Axes = Any
"""An int, None, or a container of them that is a prefix of the arguments' container."""


def vmap(fun: Callable[..., Any], in_axes: Axes = 0, out_axes: Axes = 0, axis_name: str | None = None,
         axis_size: int | None = None, chunk_size: int | None = None,
         spmd_axis_name: str | Sequence[str] | None = None) -> Callable[..., Any]:
    """The function that applies `fun` to every entry along an axis of its arguments, all at once.

    `in_axes` says which axis of each argument is mapped, None for an argument that is the same for all: one int
    for all arguments, a tuple with an entry for each positional argument (each an int, None, or a container that
    is a prefix of the argument's), or a dict by argument name, in which arguments not named are not mapped.
    Keyword arguments are mapped along axis 0 unless a dict says otherwise. `out_axes` says where the outputs
    have the new axis, in the same way; None for an output that does not depend on mapped arguments.
    `axis_name` is what the collectives of `fxgrad.lax`, such as `psum`, call the mapped axis: with them the entries
    speak with each other. `axis_size` is needed only where nothing is mapped. `chunk_size` bounds how many entries are
    computed at once; an axis with a name is not cut into chunks. Along the mesh axes `spmd_axis_name` the mapped axis
    is cut wherever `fun` says how a value lies (`fxgrad.lax.with_sharding_constraint`).

    Raises `ArgumentError` for axes that do not fit, and where mapped sizes differ (which argument, which path).

    >>> import numpy as np, fxgrad
    >>> slopes = fxgrad.vmap(fxgrad.grad(lambda x: x ** 3))
    >>> slopes(np.array([1.0, 2.0]))
    array([ 3., 12.])
    >>> shares = fxgrad.vmap(lambda x: x / fxgrad.lax.psum(x, "i"), axis_name="i")
    >>> shares(np.array([1.0, 3.0]))
    array([0.25, 0.75])
    """
    name = function_name(fun)
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    _check_axes_argument("in_axes", in_axes, (tuple, dict))
    check_chunk_size("vmap", chunk_size)
    _check_axis_name(axis_name, chunk_size)
    spmd = _mesh_axes(spmd_axis_name)

    @transformation("vmap", fun)
    @boundary
    def batched(*args: Any, **kwargs: Any) -> Any:
        call = _MappedCall(fun, in_axes, args, kwargs, axis_size)
        avals = [_without_axis(aval_of(value), axis) for value, axis in zip(call.values, call.axes, strict=True)]
        traced = trace_flat(call, avals, "vmap", fun, names=lambda: call.names,
                            axes={} if axis_name is None else {axis_name: call.size})
        outputs_axes = _output_axes(name, out_axes, traced.out_tree, traced.program.out_avals)
        step = chunk_size or max(call.size, 1)
        with batching_over(axis_name, spmd):
            parts = [_run(name, traced, min(step, call.size - start), call.axes, outputs_axes, call.rows(start, step))
                     for start in range(0, max(call.size, 1), step)]
        return tree.unflatten(traced.out_tree, _joined(parts, outputs_axes))
    return batched


def _mesh_axes(spmd_axis_name: Any) -> tuple[str, ...]:
    if spmd_axis_name is None:
        return ()
    names = (spmd_axis_name,) if isinstance(spmd_axis_name, str) else spmd_axis_name
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
        raise ArgumentError(at_user_line(
            f"vmap: spmd_axis_name is {spmd_axis_name!r}, where the name of a mesh axis is needed, or a tuple of "
            "names"))
    return tuple(names)


class _MappedCall:
    """One call of a mapped function: `values`, the mapped leaves, with `axes`, `names` and the common `size`."""

    def __init__(self, fun: Callable[..., Any], in_axes: Axes, args: tuple[Any, ...], kwargs: dict[str, Any],
                 axis_size: int | None) -> None:
        axes = _argument_axes(fun, in_axes, args, kwargs)
        self._fun = fun
        self._leaves, self._structure = tree.flatten((args, kwargs))
        names = indexed_names(fun, args, kwargs=kwargs)()
        leaf_axes = _leaf_axes(axes, (args, kwargs), names)
        self.size = _mapped_size(function_name(fun), self._leaves, leaf_axes, names, axis_size)
        self._mapped = [index for index, axis in enumerate(leaf_axes) if axis is not None]
        self.names = [names[index] for index in self._mapped]
        self.values = [self._leaves[index] for index in self._mapped]
        self.axes = tuple(_axis(leaf_axes[index], self._leaves[index], names[index]) for index in self._mapped)

    def __call__(self, *entries: Any) -> Any:
        """The function of one entry of each mapped leaf, all others being as given."""
        leaves = [*map(handed, self._leaves)]
        for index, entry in zip(self._mapped, entries, strict=True):
            leaves[index] = entry
        args, kwargs = tree.unflatten(self._structure, leaves)
        return self._fun(*args, **kwargs)

    def rows(self, start: int, count: int) -> list[Any]:
        """The mapped leaves, cut to some of their entries."""
        stop = min(start + count, self.size)
        if (start, stop) == (0, self.size):
            return self.values
        return [slice_in_dim(value, start, stop, axis) for value, axis in zip(self.values, self.axes, strict=True)]


def _run(name: str, traced: Any, size: int, positions: tuple[int, ...], out_axes: tuple[int | None, ...],
         values: Sequence[Any]) -> list[Any]:
    in_axes = (*[None] * traced.program.captured, *positions)
    derived = batched_program(traced.program, size, in_axes, out_axes)
    for index, (axis, is_batched) in enumerate(zip(out_axes, derived.extra, strict=True)):
        if axis is None and is_batched:
            path = tree.leaf_names(tree.unflatten(traced.out_tree, range(len(out_axes))), "output")[index]
            raise ArgumentError(at_user_line(
                f"vmap: out_axes is None for {path} of {name}, which depends on mapped arguments, so its entries "
                "differ. Write an int there, such as out_axes=0"))
    return plain(apply_program(derived.program, [*derived.captured, *traced.captured, *values]))


def _joined(parts: Sequence[list[Any]], axes: Sequence[int | None]) -> list[Any]:
    if len(parts) == 1:
        return parts[0]
    return [pieces[0] if axis is None else concatenate(list(pieces), axis)
            for axis, pieces in zip(axes, zip(*parts, strict=True), strict=True)]


def _check_axes_argument(name: str, axes: Axes, containers: tuple[type, ...]) -> None:
    if not (axes is None or isinstance(axes, (int, np.integer, *containers))) or isinstance(axes, bool):
        raise ArgumentError(at_user_line(
            f"vmap: {name} is a {type(axes).__name__} ({axes!r}), where an int, None, a tuple with an entry for each "
            "argument, or a dict by argument name is needed"))
    for leaf in tree.leaves(axes, is_leaf=tree.is_none):
        if leaf is not None and (not isinstance(leaf, int | np.integer) or isinstance(leaf, bool)):
            raise ArgumentError(at_user_line(
                f"vmap: {name} holds {leaf!r}, where ints and None are needed, such as {name}=(0, None)"))


def _check_axis_name(axis_name: Any, chunk_size: int | None) -> None:
    if axis_name is None:
        return
    if not isinstance(axis_name, str):
        raise ArgumentError(at_user_line(
            f"vmap: axis_name is a {type(axis_name).__name__} ({axis_name!r}), where a string is needed, such as "
            "axis_name='i'"))
    if chunk_size is not None:
        raise ArgumentError(at_user_line(
            f"vmap: axis_name={axis_name!r} with chunk_size={chunk_size}: entries that speak with each other must be "
            "computed at once. Leave out one of the two"))


def _argument_axes(fun: Any, in_axes: Axes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Axes for `(args, kwargs)`: a tuple with an entry for each positional argument, and a dict."""
    if isinstance(in_axes, dict):
        names = parameter_names(fun, len(args))
        given = {*names, *kwargs}
        for key in in_axes:
            if key not in given:
                raise ArgumentError(at_user_line(
                    f"vmap: in_axes names {key!r}, and {function_name(fun)} was called with the arguments "
                    f"{', '.join([*names, *kwargs])}"))
        return tuple(in_axes.get(name) for name in names), {name: in_axes.get(name) for name in kwargs}
    if isinstance(in_axes, tuple):
        if len(in_axes) != len(args):
            raise ArgumentError(at_user_line(
                f"vmap: in_axes has {len(in_axes)} entries ({in_axes!r}), and {function_name(fun)} was called with "
                f"{len(args)} positional arguments; one entry for each is needed"))
        return in_axes, dict.fromkeys(kwargs, 0)
    return (in_axes,) * len(args), dict.fromkeys(kwargs, in_axes if args == () else 0)


def _leaf_axes(axes: tuple[Any, Any], arguments: tuple[Any, Any], names: Sequence[str]) -> list[int | None]:
    """The axis of every leaf, from axes that are a prefix of the arguments' container."""
    found: list[int | None] = []
    entries = [*zip(axes[0], arguments[0], strict=True),
               *((axes[1][key], arguments[1][key]) for key in sorted(arguments[1]))]
    for axis, argument in entries:
        found.extend(_broadcast_prefix("in_axes", axis, argument, names[len(found)] if len(found) < len(names) else ""))
    return found


def _broadcast_prefix(name: str, axis: Axes, value: Any, where: str) -> list[int | None]:
    leaves: list[int | None] | None = spread_over(axis, value)
    if leaves is None:
        raise ArgumentError(at_user_line(
            f"vmap: {name} has {axis!r} for {re.split('[.[]', where)[0] or 'an argument'}, which is not a prefix "
            f"of its container {tree.structure(value)}. Write one int or None for the whole argument, or "
            "a container of the same structure"))
    return leaves


def _axis(axis: int | None, value: Any, where: str) -> int:
    assert axis is not None
    rank = len(aval_of(value).shape)
    if not -rank <= axis < rank:
        raise ArgumentError(at_user_line(
            f"vmap: in_axes has {axis} for {where}, an array of shape {aval_of(value).shape}; an axis from {-rank} to "
            f"{rank - 1} is needed" if rank else
            f"vmap: in_axes has {axis} for {where}, which is a scalar and has no axis to map over. Write None there"))
    return int(axis) % rank


def _without_axis(aval: Aval, axis: int) -> Aval:
    return aval.update(shape=aval.shape[:axis] + aval.shape[axis + 1:])


def _mapped_size(name: str, leaves: Sequence[Any], axes: Sequence[int | None], names: Sequence[str],
                 axis_size: int | None) -> int:
    sizes: dict[str, int] = {}
    for leaf, axis, where in zip(leaves, axes, names, strict=True):
        if axis is not None:
            aval = check_leaf(leaf, "vmap", just(where))
            sizes[where] = aval.shape[_axis(axis, leaf, where)]
    distinct = set(sizes.values()) | ({axis_size} if axis_size is not None else set())
    if not distinct:
        raise ArgumentError(at_user_line(
            f"vmap: no argument of {name} is mapped (in_axes has None for all), so the size of the batch is not known. "
            "Write an int in in_axes, or pass axis_size"))
    if len(distinct) > 1:
        shown = ", ".join(f"{where} has {size} (axis {axis})" for (where, size), axis in
                          zip(sizes.items(), (axis for axis in axes if axis is not None), strict=True))
        given = f", and axis_size is {axis_size}" if axis_size is not None else ""
        raise ArgumentError(at_user_line(
            f"vmap: the mapped axes of the arguments of {name} have different sizes: {shown}{given}. Equal sizes are "
            "needed; in_axes=None leaves an argument unmapped"))
    return distinct.pop()


def _output_axes(name: str, out_axes: Axes, structure: Any, avals: Sequence[Aval]) -> tuple[int | None, ...]:
    _check_axes_argument("out_axes", out_axes, (tuple, list, dict))
    example = tree.unflatten(structure, range(structure.num_leaves))
    axes = _broadcast_prefix("out_axes", out_axes, example, "the output")
    result: list[int | None] = []
    for axis, aval in zip(axes, avals, strict=True):
        rank = aval.ndim + 1
        if axis is not None and not -rank <= axis < rank:
            raise ArgumentError(at_user_line(
                f"vmap: out_axes has {axis} for an output of {name} of shape {aval.shape} without the batch; an axis "
                f"from {-rank} to {rank - 1} is needed"))
        result.append(None if axis is None else int(axis) % rank)
    return tuple(result)
