"""Batching: `vmap`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.engine import tree
from fxgrad.engine.api.arguments import check_chunk_size, transformation
from fxgrad.engine.api.mapped_calls import Axes, MappedCall, check_axes_argument, output_axes
from fxgrad.engine.core.avals import Aval, without_literals
from fxgrad.engine.frontend.flat import finish_trace, function_origin, note_result, record_flat
from fxgrad.engine.higher_order.checks import raise_taken
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.apply import apply_program
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.trace import SELECTIVE, join_unchecked_vma, new_tape
from fxgrad.engine.transforms.batch import batched_program, batching_over
from fxgrad.engine.transparency.replays import Run, begin_run, replays_of
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError


def vmap(fun: Callable[..., Any], in_axes: Axes = 0, out_axes: Axes = 0, axis_name: str | None = None,
         axis_size: int | None = None, chunk_size: int | None = None,
         spmd_axis_name: str | Sequence[str] | None = None) -> Callable[..., Any]:
    """Return the function that applies `fun` to every entry along an axis of its arguments, all at once.

    `in_axes` gives the mapped axis of each argument, None for an argument shared by all entries. It is one int for all
    arguments, a tuple with an entry for each positional argument (an int, None, or a container that is a prefix of the
    argument's), or a dict by argument name; arguments missing from the dict are not mapped. Keyword arguments are
    mapped along axis 0 unless a dict names them. `out_axes` gives the position of the new axis in the outputs, in the
    same forms; None for an output that does not depend on mapped arguments. `axis_name` names the mapped axis for the
    collectives of `fxgrad.lax`, such as `psum`, which reduce over the entries. `axis_size` is needed only where nothing
    is mapped. `chunk_size` bounds how many entries are computed at once; an axis with a name is not cut into chunks.
    `spmd_axis_name` names mesh axes that shard the mapped axis wherever `fun` constrains the sharding of a value
    (`fxgrad.lax.with_sharding_constraint`).

    Raises `ArgumentError` for axes that do not fit, and where mapped sizes differ (naming the argument and its path).

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
    check_axes_argument("vmap", "in_axes", in_axes, (tuple, dict))
    check_chunk_size("vmap", chunk_size)
    _check_axis_name(axis_name, chunk_size)
    spmd = () if spmd_axis_name is None else (spmd_axis_name,) if isinstance(spmd_axis_name, str) else spmd_axis_name
    if not isinstance(spmd, tuple | list) or not all(isinstance(axis, str) for axis in spmd):
        raise ArgumentError(at_user_line(
            f"vmap: spmd_axis_name is {spmd_axis_name!r}, where the name of a mesh axis is needed, or a tuple of "
            "names"))
    spmd = tuple(spmd)

    @transformation("vmap", fun, _mapped_positions(in_axes))
    @hide_frames
    def batched(*args: Any, **kwargs: Any) -> Any:
        call = MappedCall("vmap", fun, in_axes, args, kwargs, axis_size)
        avals = [aval_of(value).without_axis(axis) for value, axis in zip(call.values, call.axes, strict=True)]
        run = _run_of(fun, call, avals, args, kwargs) if axis_name is None else None
        if run is not None and run.traced is not None:
            traced = run.traced
        else:
            tape = new_tape(join_unchecked_vma(avals), mode=SELECTIVE, name=fun, input_names=lambda: call.names,
                            origin=function_origin(fun), axes={} if axis_name is None else {axis_name: call.size})
            try:
                leaves, out_tree = record_flat(tape, call, "vmap", fun)
            except Exception as error:
                if call.size and axis_name is None:
                    raise_taken(error, lambda: call(*call.first()))
                raise
            if run is not None:
                run.end(tape, leaves, out_tree)
            traced = finish_trace(tape, leaves, out_tree)
        out_positions = output_axes("vmap", name, out_axes, traced.out_tree, traced.program.out_avals)
        step = chunk_size or max(call.size, 1)
        starts = (0,) if chunk_size is None else range(0, max(call.size, 1), step)
        with batching_over(axis_name, spmd):
            parts = [_run_batch(name, traced, min(step, call.size - start), call.axes, out_positions,
                                call.rows(start, step))
                     for start in starts]
        joined = parts[0]
        if len(parts) > 1:
            joined = [pieces[0] if axis is None else concatenate(list(pieces), axis)
                      for axis, pieces in zip(out_positions, zip(*parts, strict=True), strict=True)]
        result = tree.unflatten(traced.out_tree, joined)
        note_result(result)
        return result
    return batched


def _run_of(fun: Any, call: MappedCall, avals: Sequence[Aval], args: tuple[Any, ...], kwargs: dict[str, Any],
            ) -> Run | None:
    """Return the run of a call that may be replayed, or None."""
    replays = replays_of(fun)
    positions = None if replays is None else call.whole_arguments()
    if not positions:
        return None
    structure = tree.structure(tuple([args[position] for position in positions]))
    return begin_run(fun, positions, structure, avals, args, kwargs, replays, wraps_objects=True)


def _mapped_positions(in_axes: Any) -> tuple[int, ...] | None:
    """Return the positions of the mapped arguments, for titles; None if all are mapped."""
    if not isinstance(in_axes, tuple | list):
        return None
    mapped = tuple([place for place, axes in enumerate(in_axes) if tree.leaves(axes)])
    return None if len(mapped) == len(in_axes) else mapped


def _run_batch(name: str, traced: Any, size: int, positions: tuple[int, ...], out_axes: tuple[int | None, ...],
               values: Sequence[Any]) -> list[Any]:
    in_axes = (*[None] * traced.program.captured, *positions)
    derived = batched_program(traced.program, size, in_axes, out_axes)
    for index, (axis, is_batched) in enumerate(zip(out_axes, derived.extra, strict=True)):
        if axis is None and is_batched:
            path = tree.leaf_names(tree.unflatten(traced.out_tree, range(len(out_axes))), "output")[index]
            raise ArgumentError(at_user_line(
                f"vmap: out_axes is None for {path} of {name}, which depends on mapped arguments, so its entries "
                "differ. Write an int there, such as out_axes=0"))
    return without_literals(apply_program(derived.program, [*derived.captured, *traced.inputs(*values)]))


def _check_axis_name(axis_name: Any, chunk_size: int | None) -> None:
    if axis_name is None:
        return
    if not isinstance(axis_name, str):
        raise ArgumentError(at_user_line(
            f"vmap: axis_name is a {type(axis_name).__name__} ({axis_name!r}), where a string is needed, such as "
            "axis_name='i'"))
    if chunk_size is not None:
        raise ArgumentError(at_user_line(
            f"vmap: axis_name={axis_name!r} with chunk_size={chunk_size}: entries that communicate must be computed "
            "at once. Leave out one of the two"))
