"""`bucketed`: functions of arrays of varying length, compiled for a few lengths."""

from __future__ import annotations

import bisect
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fxgrad.engine import tree
from fxgrad.engine.api.arguments import transformation
from fxgrad.engine.api.compiled import jit
from fxgrad.engine.api.mapped_calls import Axes, MappedCall, check_axes_argument
from fxgrad.engine.api.programs import eval_shape
from fxgrad.engine.caches import BoundedDict
from fxgrad.engine.core.avals import keys_to_jax, to_numpy
from fxgrad.engine.executors.xla import is_jax_tracer, x64
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.ops.structural import broadcast_to
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError


class Stats(NamedTuple):
    """Statistics of a bucketed function.

    It counts `calls`, compilations (at most one for each size and type of arguments), calls by padded size, the
    caller's entries, and entries of padding.
    """

    calls: int
    compiles: int
    sizes: dict[int, int]
    entries: int
    padding: int


def bucketed(fun: Callable[..., Any], axis: Axes, sizes: Sequence[int], *, mask: str | None = "mask",
             length: str | None = None) -> Callable[..., Any]:
    """Return `fun` compiled for a few `sizes` of an axis: arguments are padded to the next size, results are cut back.

    `axis` gives the axis of varying size, as `in_axes` of `vmap`: an int for all arguments, or a tuple or a dict with
    an entry for each, None for those without such an axis. All sizes along it are equal, and at most the last of
    `sizes`. `fun` gets two keyword arguments, under the names given: `mask`, bools of the padded size that are True for
    the entries passed by the caller, and `length`, their number as an int32. With None `fun` gets neither, which is
    right where entries are independent. With the mask `fun` excludes the padding from sums: `np.sum(np.where(mask,
    losses, 0.0)) / length`.

    The padding repeats the last entry. So values and derivatives that are finite for the caller's entries are finite
    for the padding (with zeros, a logarithm that the mask removes would still put NaNs into the gradient). Results that
    have the axis are cut back along it. Calls may stand inside `grad`, `vmap` and `jit`. The attribute `stats` counts
    compilations and padded entries.

    Raises `ArgumentError` for more entries than the largest size, for invalid sizes, where `fun` does not take the
    mask, and for results with an axis that varies differently from the arguments'.

    >>> import numpy as np, fxgrad
    >>> def centred(x, mask):
    ...     return x - np.sum(np.where(mask, x, 0.0)) / np.sum(mask)
    >>> f = fxgrad.bucketed(centred, 0, (4, 16))
    >>> f(np.array([1.0, 2.0, 6.0]))
    array([-2., -1.,  3.])
    >>> [f(np.ones(n)).shape for n in (2, 4, 9)], f.stats.compiles, f.stats.sizes
    ([(2,), (4,), (9,)], 2, {4: 3, 16: 1})
    >>> fxgrad.grad(lambda x: np.sum(f(x) ** 2))(np.array([1.0, 2.0, 6.0]))
    array([-4., -2.,  6.])
    """
    check_axes_argument("bucketed", "axis", axis, (tuple, dict))
    try:
        lengths = tuple(sorted({operator.index(size) for size in sizes}))
    except TypeError:
        lengths = ()
    if not lengths or lengths[0] < 1:
        raise ArgumentError(at_user_line(
            f"bucketed: sizes={sizes!r}, where positive integers are needed, such as (16, 64, 256)"))
    found = _Bucketed(fun, axis, lengths, _size_hints(fun, mask, length))

    @transformation("bucketed", fun)
    @hide_frames
    def call(*args: Any, **kwargs: Any) -> Any:
        return found(args, kwargs)

    return _BucketedFunction(call, found)


class _BucketedFunction:
    """A bucketed function and its statistics."""

    def __init__(self, call: Callable[..., Any], found: _Bucketed) -> None:
        self.__dict__.update(vars(call))
        self._call, self._found = call, found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    @property
    def stats(self) -> Stats:
        """The statistics of the calls so far."""
        return self._found.stats()


def _size_hints(fun: Any, *names: str | None) -> tuple[str | None, ...]:
    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        return names  # builtins have no signature
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters)
    known = {each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    for name in names:
        if name is not None and name not in known and not takes_all:
            raise ArgumentError(at_user_line(
                f"bucketed: {function_name(fun)} has no parameter {name!r}, which tells its entries from the "
                f"padding. Write def {function_name(fun)}(..., {name}), and exclude the padding from sums; "
                "or bucketed(..., mask=None), if entries are independent"))
    return names


class _Bucketed:
    """A function, its sizes, and where its results have the axis."""

    def __init__(self, fun: Callable[..., Any], axis: Axes, sizes: tuple[int, ...], hints: tuple[str | None, ...],
                 ) -> None:
        self._fun, self._axis, self._sizes = fun, axis, sizes
        self._mask, self._length = hints
        self._cuts = BoundedDict(256)  # by the types of the arguments
        self._traces = self._entries = 0
        self._calls: dict[int, int] = {}
        self._jitted = jit(self._trace)

    def _trace(self, *args: Any, **kwargs: Any) -> Any:
        self._traces += 1
        return self._fun(*args, **kwargs)

    def stats(self) -> Stats:
        """Return the statistics of the calls so far."""
        calls = dict(sorted(self._calls.items()))
        padded = sum(size * count for size, count in calls.items())
        return Stats(sum(calls.values()), self._traces, calls, self._entries, padded - self._entries)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = MappedCall("bucketed", self._fun, self._axis, args, kwargs, None)
        place = bisect.bisect_left(self._sizes, call.size)
        if place == len(self._sizes):
            raise ArgumentError(at_user_line(
                f"bucketed: {call.names[0]} of {function_name(self._fun)} has {call.size} entries along axis "
                f"{call.axes[0]}, and the largest of the sizes is {self._sizes[-1]}. Add a larger one, or call "
                "it on pieces"))
        size = self._sizes[place]
        given, named = call.arguments([
            _pad_axis(value, axis, size) for value, axis in zip(call.values, call.axes, strict=True)])
        cuts = self._cuts_of(call, given, named, size)
        outputs = self._jitted(*given, **named, **self._hint_arguments(call.size, size))
        self._calls[size] = self._calls.get(size, 0) + 1
        self._entries += call.size
        if size == call.size:
            return outputs
        leaves, structure = tree.flatten(outputs)
        return tree.unflatten(structure,
                              [_cut_axis(leaf, axes, call.size) for leaf, axes in zip(leaves, cuts, strict=True)])

    def _hint_arguments(self, count: int, size: int) -> dict[str, Any]:
        told: dict[str, Any] = {}
        if self._mask is not None:
            told[self._mask] = np.arange(size) < count
        if self._length is not None:
            told[self._length] = np.int32(count)
        return told

    def _cuts_of(self, call: MappedCall, args: tuple[Any, ...], kwargs: dict[str, Any], size: int) -> Any:
        """Return the axes of each result that are as long as the arguments': those that differ between two sizes."""
        leaves, structure = tree.flatten((args, kwargs))
        key = structure, size, *map(aval_of, leaves)
        found = self._cuts.get(key)
        if found is None:
            here, there = (self._results(call, leaves, wanted) for wanted in (size, size + 1))
            found = self._cuts.add(key, [
                self._find_varying_axes(one, other, size) for one, other in zip(here, there, strict=True)])
        return found

    def _results(self, call: MappedCall, leaves: Sequence[Any], size: int) -> list[Any]:
        types = [aval_of(value).resized(axis, size).struct for value, axis in zip(call.values, call.axes, strict=True)]
        args, kwargs = call.arguments(types, [aval_of(leaf).struct for leaf in leaves])
        return tree.leaves(eval_shape(self._fun, *args, **kwargs, **self._hint_arguments(size, size)))

    def _find_varying_axes(self, here: Any, there: Any, size: int) -> tuple[int, ...]:
        if here.shape == there.shape:
            return ()
        axes = tuple(axis for axis, pair in enumerate(zip(here.shape, there.shape, strict=False)) if pair[0] != pair[1])
        if len(here.shape) != len(there.shape) or any(
                (here.shape[axis], there.shape[axis]) != (size, size + 1) for axis in axes):
            raise ArgumentError(at_user_line(
                f"bucketed: a result of {function_name(self._fun)} has the shape {here.shape} for {size} entries and "
                f"{there.shape} for {size + 1}, so its padding cannot be identified. Return results with the axis "
                "unchanged, or without it"))
        return axes


def _is_traced(value: Any) -> bool:
    return type(value) is Tracer or (isinstance(value, jax.Array) and is_jax_tracer(value))


def _pad_axis(value: Any, axis: int, size: int) -> Any:
    """Pad `value` along the axis up to `size`, with copies of its last entry, or with zeros if it has none.

    Concrete arrays are padded by NumPy: XLA would compile a program for each number of entries.
    """
    shape = aval_of(value).shape
    missing = size - shape[axis]
    if not missing:
        return value
    added = (*shape[:axis], missing, *shape[axis + 1:])
    if _is_traced(value):
        if not shape[axis]:
            return broadcast_to(np.zeros((), aval_of(value).dtype), added)
        return concatenate([value, broadcast_to(slice_in_dim(value, shape[axis] - 1, shape[axis], axis), added)], axis)
    array = _as_numpy(value)
    last = array.take([-1], axis) if shape[axis] else np.zeros((), array.dtype)
    return _as_kind_of(np.concatenate([array, np.broadcast_to(last, added)], axis), value)


def _cut_axis(value: Any, axes: tuple[int, ...], count: int) -> Any:
    if not axes:
        return value
    if _is_traced(value):
        for axis in axes:
            value = slice_in_dim(value, 0, count, axis)
        return value
    index = tuple(slice(count) if axis in axes else slice(None) for axis in range(value.ndim))
    return _as_kind_of(_as_numpy(value)[index].copy(), value)


def _as_numpy(value: Any) -> Any:
    return np.asarray(to_numpy(value)) if isinstance(value, jax.Array) else np.asarray(value)


def _as_kind_of(array: Any, value: Any) -> Any:
    """Return `array` as a NumPy array if `value` is one, or on the devices of `value` if that is a `jax.Array`."""
    if not isinstance(value, jax.Array):
        return array
    with x64():
        return jax.device_put(keys_to_jax(array), value.sharding)
