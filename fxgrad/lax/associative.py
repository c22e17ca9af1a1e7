"""`associative_scan`: running combinations in logarithmic depth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.engine import tree
from fxgrad.engine.ops.joining import concatenate, stack
from fxgrad.engine.ops.shaping import rev, slice_in_dim
from fxgrad.engine.ops.structural import reshape
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import AxisError, ShapeError, TreeError
from fxgrad.lax.bodies import check_function, flatten_checked


@hide_frames
def associative_scan(fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """Return the running combinations `e0, fn(e0, e1), fn(fn(e0, e1), e2), ...` along `axis` of containers of arrays.

    `fn` must be associative and work on many pairs at once (arrays with an axis of any length at `axis`). It is called
    about 2 log2(n) times, on fewer and fewer pairs (Blelloch, "Prefix sums and their applications", 1990). With
    `reverse` the scan starts at the last entry.

    Raises `AxisError` or `ShapeError` for an axis that does not exist, or has different sizes.

    >>> import numpy as np
    >>> associative_scan(np.add, np.arange(5))
    array([ 0,  1,  3,  6, 10])
    """
    check_function("associative_scan", fn, "fn")
    given = flatten_checked("associative_scan", elems, "elems")
    for aval, name in zip(given.avals, given.names, strict=True):
        if not -aval.ndim <= axis < aval.ndim:
            raise AxisError(at_user_line(f"associative_scan: axis={axis}, and {name} is {aval}"))
    axes = [axis % aval.ndim for aval in given.avals]
    sizes = {name: aval.shape[at] for name, aval, at in zip(given.names, given.avals, axes, strict=True)}
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise ShapeError(at_user_line(f"associative_scan: arrays must be equally long along axis {axis}: {shown}"))

    def combine(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
        leaves, structure = tree.flatten(fn(given.rebuild(first), given.rebuild(second)))
        if structure != given.structure:
            raise TreeError(at_user_line(
                f"associative_scan: {function_name(fn)} returns {structure}, where {given.structure} is needed"))
        return leaves

    leaves = [rev(leaf, (at,)) for leaf, at in zip(given.leaves, axes, strict=True)] if reverse else given.leaves
    results = _running_results(combine, leaves, axes, next(iter(sizes.values()), 0))
    if reverse:
        results = [rev(result, (at,)) for result, at in zip(results, axes, strict=True)]
    return given.rebuild(results)


def _running_results(combine: Callable[..., list[Any]], values: list[Any], axes: list[int], size: int) -> list[Any]:
    if size < 2:
        return values

    def every_second(start: int, stop: int) -> list[Any]:
        return [slice_in_dim(value, start, stop, at, 2) for value, at in zip(values, axes, strict=True)]

    pairs = combine(every_second(0, size - 1), every_second(1, size))
    odd = _running_results(combine, pairs, axes, size // 2)
    first = [slice_in_dim(value, 0, 1, at) for value, at in zip(values, axes, strict=True)]
    if size == 2:
        return [concatenate([begin, end], at) for begin, end, at in zip(first, odd, axes, strict=True)]
    before = odd if size % 2 else [slice_in_dim(value, 0, size // 2 - 1, at)
                                   for value, at in zip(odd, axes, strict=True)]
    even = [concatenate([begin, rest], at) for begin, rest, at in
            zip(first, combine(before, every_second(2, size)), axes, strict=True)]
    return [_interleave(one, other, at) for one, other, at in zip(even, odd, axes, strict=True)]


def _interleave(even: Any, odd: Any, axis: int) -> Any:
    """Return entries of both in turn along `axis`; `even` may have one more."""
    count = aval_of(odd).shape[axis]
    pairs = stack([slice_in_dim(even, 0, count, axis), odd], axis + 1)
    shape = aval_of(odd).shape
    mixed = reshape(pairs, (*shape[:axis], 2 * count, *shape[axis + 1:]))
    if aval_of(even).shape[axis] == count:
        return mixed
    return concatenate([mixed, slice_in_dim(even, count, count + 1, axis)], axis)
