"""Mapped calls of `vmap` and `pmap`: the mapped axis of each argument and result."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import tree
from fxgrad.engine.api.arguments import as_known
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.frontend.flat import (
    argument_leaf_names,
    broadcast_prefix,
    check_leaf,
    constant_name,
    parameter_names,
)
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError

Axes = Any
"""An int, None, or a container of them that is a prefix of the arguments' container."""


class MappedCall:
    """One call of a mapped function: `values`, the mapped leaves, with `axes`, `names` and the common `size`."""

    def __init__(self, what: str, fun: Callable[..., Any], in_axes: Axes, args: tuple[Any, ...], kwargs: dict[str, Any],
                 axis_size: int | None) -> None:
        axes = _argument_axes(what, fun, in_axes, args, kwargs)
        self._fun = fun
        self._leaves, self._structure = tree.flatten((args, kwargs))
        names = argument_leaf_names(fun, args, kwargs=kwargs)()
        leaf_axes: list[int | None] = []
        entries = [*zip(axes[0], args, strict=True), *((axes[1][key], kwargs[key]) for key in sorted(kwargs))]
        for prefix, argument in entries:
            name = names[len(leaf_axes)] if len(leaf_axes) < len(names) else ""
            leaf_axes.extend(_broadcast_prefix(what, "in_axes", prefix, argument, name))
        self.size = _mapped_size(what, function_name(fun), self._leaves, leaf_axes, names, axis_size)
        self._mapped = [index for index, axis in enumerate(leaf_axes) if axis is not None]
        self.names = [names[index] for index in self._mapped]
        self.values = [self._leaves[index] for index in self._mapped]
        self.axes = tuple(_check_axis(what, leaf_axes[index], self._leaves[index], names[index])
                          for index in self._mapped)

    def whole_arguments(self) -> tuple[int, ...] | None:
        """Return the positions of the mapped arguments; None if one is mapped in part, or a keyword is mapped."""
        args, kwargs = tree.unflatten(self._structure, range(len(self._leaves)))
        mapped, positions = {*self._mapped}, []
        for position, arg in enumerate(args):
            places = tree.leaves(arg)
            if places and mapped.issuperset(places):
                positions.append(position)
            elif not mapped.isdisjoint(places):
                return None
        return tuple(positions) if mapped.isdisjoint(tree.leaves(kwargs)) else None

    def __call__(self, *entries: Any) -> Any:
        """Call the function with one entry of each mapped leaf; all other leaves are fixed."""
        args, kwargs = self.arguments(entries, [*map(as_known, self._leaves)])
        return self._fun(*args, **kwargs)

    def arguments(self, entries: Sequence[Any], leaves: Sequence[Any] | None = None) -> tuple[tuple[Any, ...], Any]:
        """Return the arguments and keywords with `entries` in place of the mapped leaves; `leaves` are all of them."""
        given = [*(self._leaves if leaves is None else leaves)]
        for index, entry in zip(self._mapped, entries, strict=True):
            given[index] = entry
        args, kwargs = tree.unflatten(self._structure, given)
        return args, kwargs

    def first(self) -> list[Any]:
        """Return the first entries of the mapped leaves."""
        return [value[(slice(None),) * axis + (0,)] for value, axis in zip(self.values, self.axes, strict=True)]

    def rows(self, start: int, count: int) -> list[Any]:
        """Return the mapped leaves, cut to some of their entries."""
        stop = min(start + count, self.size)
        if (start, stop) == (0, self.size):
            return self.values
        return [slice_in_dim(value, start, stop, axis) for value, axis in zip(self.values, self.axes, strict=True)]


def check_axes_argument(what: str, name: str, axes: Axes, containers: tuple[type, ...]) -> None:
    """Raise `ArgumentError` unless the argument `name` of the map holds axes in one of `containers`."""
    if not (axes is None or isinstance(axes, (int, np.integer, *containers))) or isinstance(axes, bool):
        raise ArgumentError(at_user_line(
            f"{what}: {name} is a {type(axes).__name__} ({axes!r}), where an int, None, a tuple with an entry for each "
            "argument, or a dict by argument name is needed"))
    for leaf in tree.leaves(axes, is_leaf=tree.is_none):
        if leaf is not None and (not isinstance(leaf, int | np.integer) or isinstance(leaf, bool)):
            raise ArgumentError(at_user_line(
                f"{what}: {name} holds {leaf!r}, where ints and None are needed, such as {name}=(0, None)"))


def _argument_axes(what: str, fun: Any, in_axes: Axes, args: tuple[Any, ...], kwargs: dict[str, Any],
                   ) -> tuple[Any, Any]:
    """Return axes for `(args, kwargs)`: a tuple with an entry for each positional argument, and a dict."""
    if isinstance(in_axes, dict):
        names = parameter_names(fun, len(args))
        given = {*names, *kwargs}
        for key in in_axes:
            if key not in given:
                raise ArgumentError(at_user_line(
                    f"{what}: in_axes names {key!r}, and {function_name(fun)} was called with the arguments "
                    f"{', '.join([*names, *kwargs])}"))
        return tuple(in_axes.get(name) for name in names), {name: in_axes.get(name) for name in kwargs}
    if isinstance(in_axes, tuple):
        if len(in_axes) != len(args):
            raise ArgumentError(at_user_line(
                f"{what}: in_axes has {len(in_axes)} entries ({in_axes!r}), and {function_name(fun)} was called with "
                f"{len(args)} positional arguments; one entry for each is needed"))
        return in_axes, dict.fromkeys(kwargs, 0)
    return (in_axes,) * len(args), dict.fromkeys(kwargs, in_axes if args == () else 0)


def _broadcast_prefix(what: str, name: str, axis: Axes, value: Any, where: str) -> list[int | None]:
    leaves: list[int | None] | None = broadcast_prefix(axis, value)
    if leaves is None:
        raise ArgumentError(at_user_line(
            f"{what}: {name} has {axis!r} for {re.split('[.[]', where)[0] or 'an argument'}, which is not a prefix "
            f"of its container {tree.structure(value)}. Write one int or None for the whole argument, or "
            "a container of the same structure"))
    return leaves


def _check_axis(what: str, axis: int | None, value: Any, where: str) -> int:
    assert axis is not None
    rank = len(aval_of(value).shape)
    if not -rank <= axis < rank:
        raise ArgumentError(at_user_line(
            f"{what}: in_axes has {axis} for {where}, an array of shape {aval_of(value).shape}; an axis from {-rank} "
            f"to {rank - 1} is needed" if rank else
            f"{what}: in_axes has {axis} for {where}, which is a scalar and has no axis to map over. Write None there"))
    return int(axis) % rank


def _mapped_size(what: str, name: str, leaves: Sequence[Any], axes: Sequence[int | None], names: Sequence[str],
                 axis_size: int | None) -> int:
    sizes: dict[str, int] = {}
    for leaf, axis, where in zip(leaves, axes, names, strict=True):
        if axis is not None:
            aval = check_leaf(leaf, what, constant_name(where))
            sizes[where] = aval.shape[_check_axis(what, axis, leaf, where)]
    distinct = set(sizes.values()) | ({axis_size} if axis_size is not None else set())
    if not distinct:
        raise ArgumentError(at_user_line(
            f"{what}: no argument of {name} is mapped (in_axes has None for all), so the size of the batch is not "
            "known. Write an int in in_axes, or pass axis_size"))
    if len(distinct) > 1:
        shown = ", ".join(f"{where} has {size} (axis {axis})" for (where, size), axis in
                          zip(sizes.items(), (axis for axis in axes if axis is not None), strict=True))
        given = f", and axis_size is {axis_size}" if axis_size is not None else ""
        raise ArgumentError(at_user_line(
            f"{what}: the mapped axes of the arguments of {name} have different sizes: {shown}{given}. Equal sizes are "
            "needed; in_axes=None leaves an argument unmapped"))
    return distinct.pop()


def output_axes(what: str, name: str, out_axes: Axes, structure: Any, avals: Sequence[Aval]) -> tuple[int | None, ...]:
    """Return the position of the new axis in each leaf of the results, None without it; `avals` lack the axis."""
    check_axes_argument(what, "out_axes", out_axes, (tuple, list, dict))
    example = tree.unflatten(structure, range(structure.num_leaves))
    axes = _broadcast_prefix(what, "out_axes", out_axes, example, "the output")
    result: list[int | None] = []
    for axis, aval in zip(axes, avals, strict=True):
        rank = aval.ndim + 1
        if axis is not None and not -rank <= axis < rank:
            raise ArgumentError(at_user_line(
                f"{what}: out_axes has {axis} for an output of {name} of shape {aval.shape} without the batch; an axis "
                f"from {-rank} to {rank - 1} is needed"))
        result.append(None if axis is None else int(axis) % rank)
    return tuple(result)
