"""Operations that call a Python function when the program runs: for debugging, for effects, or to compute.

`debug_callback` and `io_callback` have effects: they run as often and in the order that the user wrote. `pure_callback`
has none: it may be dropped or merged with an equal one. The function gets NumPy arrays of its own, on either executor.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from fxgrad.engine import dtypes, tree
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.cache_keys import cache_key
from fxgrad.engine.core.primitive import NO_TANGENT, NOT_LINEAR, Cost, Primitive, register, total_bytes
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.executors import callbacks
from fxgrad.engine.frontend.flat import check_leaf, constant_name, leaf_aval
from fxgrad.engine.higher_order.custom import ByValue
from fxgrad.engine.higher_order.masking import acts
from fxgrad.engine.higher_order.saving import kept_always
from fxgrad.engine.ops.structural import move_axis, reshape
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.transforms.batch import Batched, put_axis
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError

Host = callbacks.Host
Avals = tuple[Aval, ...]
LOOKING = ("debug.print", "debug.callback", "check")
"""Public functions that take objects other than arrays."""
RETURNING_NOTHING = (*LOOKING, "debug.plot", "debug.progress")
"""Public functions that ignore what the callback returns."""


class HostFunction(ByValue):
    """The user's function of the leaves of its arguments.

    `constants` maps positions among all leaves to those that are no arrays; `out_tree` is the tree of the results.
    """

    __slots__ = ("_constants", "_function")

    def __init__(self, function: Callable[..., Any], what: str, in_tree: Any, constants: callbacks.Constants,
                 results: Avals, out_tree: Any) -> None:
        super().__init__(cache_key(function), what, in_tree, cache_key(constants), results, out_tree)
        self._function, self._constants = function, constants

    def __reduce__(self) -> tuple[Any, ...]:
        _, what, in_tree, _, results, out_tree = self._key
        return HostFunction, (self._function, what, in_tree, self._constants, results, out_tree)

    @property
    def name(self) -> str:
        """The name of the user's function."""
        return function_name(self._function)

    def returning(self, results: Avals) -> HostFunction:
        """Return the function with results of other types."""
        _, what, in_tree, _, _, out_tree = self._key
        return HostFunction(self._function, what, in_tree, self._constants, results, out_tree)

    def __call__(self, *values: Any) -> list[Any]:
        """Return the leaves of the results; raise unless they have the declared types."""
        _, what, in_tree, _, results, out_tree = self._key
        args, kwargs = callbacks.rebuild_arguments(in_tree, self._constants, values)
        returned = self._function(*args, **kwargs)
        if what in RETURNING_NOTHING:
            return []
        found, structure = tree.flatten(returned)
        if structure != out_tree:
            raise ArgumentError(f"{what}: {self.name} returned a container of the structure {structure}, where "
                                f"result_shape_dtypes has {out_tree}")
        return [self._check_result(what, returned, number, leaf, aval) for number, (leaf, aval) in enumerate(
            zip(found, results, strict=True))]

    def _check_result(self, what: str, returned: Any, number: int, leaf: Any, aval: Aval) -> Any:
        """Return the leaf `number` of what was `returned` as an array of the declared type."""
        array = np.asarray(leaf)
        if array.shape != aval.shape:
            name = tree.leaf_names(returned, "output")[number]
            raise ShapeError(f"{what}: {self.name} returned an array of shape {array.shape} at {name}, where "
                             f"result_shape_dtypes has {aval.shape}")
        if array.dtype != aval.dtype and not np.can_cast(array.dtype, aval.dtype, "same_kind"):
            name = tree.leaf_names(returned, "output")[number]
            raise DTypeError(f"{what}: {self.name} returned {array.dtype.name} at {name}, where result_shape_dtypes "
                             f"has {aval.dtype.name}. Convert with result.astype('{aval.dtype.name}')")
        return array.astype(aval.dtype)[()]


def host_function(what: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                  results: Avals, out_tree: Any) -> tuple[HostFunction, list[Any]]:
    """Return the user's function on flat arrays, and those arrays; raise `ArgumentError` for other leaves.

    `debug.print` and `debug.callback` take other objects too, and pass them unchanged.
    """
    if not callable(function):
        raise ArgumentError(at_user_line(
            f"{what}: the callback is a {type(function).__name__}, where a function is needed. Pass the function "
            "itself, not what it returns"))
    in_tree, constants, values = flat_arguments(what, args, kwargs)
    return HostFunction(function, what, in_tree, constants, results, out_tree), values


def flat_arguments(what: str, args: tuple[Any, ...], kwargs: dict[str, Any],
                   ) -> tuple[Any, callbacks.Constants, list[Any]]:
    """Return the tree of the arguments, the leaves that are no arrays, and the arrays.

    Raise `ArgumentError` for leaves that are no arrays unless `what` takes them.
    """
    leaves, in_tree = tree.flatten((args, kwargs))
    names = [*tree.leaf_names(args, "args"), *tree.leaf_names(kwargs, "kwargs")]
    constants = tuple((position, leaf) for position, leaf in enumerate(leaves) if leaf_aval(leaf) is None)
    for position, leaf in constants:
        if what not in LOOKING:
            check_leaf(leaf, what, constant_name(names[position]))
        if not _is_hashable(leaf):
            raise ArgumentError(at_user_line(f"{what}: {names[position]} is a {type(leaf).__name__}, which is not "
                                             f"hashable. Pass it as text, str(...), or by closure"))
    return in_tree, constants, [leaf for leaf in leaves if leaf_aval(leaf) is not None]


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


class EntryByEntry(ByValue):
    """A host function applied to each entry of a batch in turn; results are stacked along axis 0."""

    __slots__ = ()

    def __init__(self, host: Host, size: int, axes: tuple[int | None, ...], results: Avals) -> None:
        super().__init__(host, size, axes, results)

    def __call__(self, *values: Any) -> list[Any]:
        """Return the results of all entries, stacked."""
        host, size, axes, results = self._key
        rows = [[value] * size if axis is None else np.moveaxis(value, axis, 0)
                for value, axis in zip(values, axes, strict=True)]
        found = [host(*(row[index] for row in rows)) for index in range(size)]
        return [np.stack([each[place] for each in found]) if size else np.empty((0, *aval.shape), aval.dtype)
                for place, aval in enumerate(results)]


def _batch_results(results: Avals, size: int) -> Avals:
    return tuple(Aval((size, *aval.shape), aval.dtype) for aval in results)


def _cost(*avals: Aval, results: Avals = (), **_: Any) -> Cost:
    return Cost(0, total_bytes(avals, results))  # the work of a Python function is unknown


def _refuse_derivative(what: str) -> Callable[..., Any]:
    def jvp(primals: list[Any], tangents: list[Any], *, callback: Any, results: Avals, **params: Any,
            ) -> tuple[list[Any], list[Any]]:
        if all(dtypes.kind_of(aval.dtype) in "biu" for aval in results):
            outputs = bind(_PRIMITIVES[what](), *primals, callback=callback, results=results, **params)
            return outputs, [Zero(aval_of(output)) for output in outputs]
        raise UnsupportedError(at_user_line(
            f"{what}: {callback.name} is a Python function, whose derivative is not known. Give it one with "
            "fxgrad.custom_jvp, or cut it off with fxgrad.stop_gradient around its arguments"))
    return jvp


_PRIMITIVES: dict[str, Callable[[], Primitive]] = {
    "pure_callback": lambda: pure_callback_p, "io_callback": lambda: io_callback_p}


# --- looking ----------------------------------------------------------------------------------------------------


repeats_a_run: ContextVar[bool] = ContextVar("repeats_a_run", default=False)
"""Whether compiled code has run already, so that callbacks that look have seen the values, and prints are made."""


def _debug_numpy(*values: Any, callback: Host, ordered: bool) -> list[Any]:
    if not repeats_a_run.get():
        callback(*values)
    return []


def _debug_xla(lax: Any, *values: Any, callback: Host, ordered: bool) -> list[Any]:
    callbacks.emit_debug_callback(callback, values, ordered)
    return []


def _debug_batch(size: int, values: list[Any], axes: list[int | None], *, callback: Host, ordered: bool,
                 ) -> tuple[list[Any], list[int]]:
    bind(debug_callback_p, *values, callback=EntryByEntry(callback, size, tuple(axes), ()), ordered=ordered)
    return [], []


debug_callback_p = register(Primitive(
    name="debug_callback", abstract=lambda *avals, callback, ordered: [], numpy=_debug_numpy, xla=_debug_xla,
    jvp=NO_TANGENT, transpose=NOT_LINEAR, batch=_debug_batch, cost=_cost, effectful=True))
"""Calls a function of the inputs; there are no outputs. Under `vmap` it is called for each entry."""
acts.enter(False, debug_callback_p)  # it only observes


# --- acting -----------------------------------------------------------------------------------------------------


def _abstract(*avals: Aval, results: Avals, **_: Any) -> list[Aval]:
    return [*results]


def _io_batch(size: int, values: list[Any], axes: list[int | None], *, callback: Host, results: Avals, ordered: bool,
              ) -> tuple[list[Any], list[int]]:
    each = EntryByEntry(callback, size, tuple(axes), results)
    return bind(io_callback_p, *values, callback=each, results=_batch_results(results, size), ordered=ordered), \
        [0] * len(results)


io_callback_p: Primitive = register(Primitive(
    name="io_callback", abstract=_abstract,
    numpy=lambda *values, callback, results, ordered: callback(*values),
    xla=lambda lax, *values, callback, results, ordered: callbacks.emit_io_callback(callback, values, results, ordered),
    jvp=_refuse_derivative("io_callback"), transpose=NOT_LINEAR, batch=_io_batch, cost=_cost, effectful=True))
"""Calls a function that may have effects, and returns its results. Under `vmap` it is called for each entry."""


# --- computing --------------------------------------------------------------------------------------------------


def _pure_batch(size: int, values: list[Any], axes: list[int | None], *, callback: Host, results: Avals,
                vmap_method: str | None) -> tuple[list[Any], list[int]]:
    batched = _batch_results(results, size)
    if vmap_method is None:
        name = getattr(callback, "name", "the function")
        raise UnsupportedError(at_user_line(
            f"pure_callback: {name} is under vmap, and vmap_method=None does not define that. Write "
            "vmap_method='sequential' to call it for each entry, or 'expand_dims' or 'broadcast_all' to call it once "
            "with one more axis in front"))
    if vmap_method.startswith("sequential"):
        callback = EntryByEntry(callback, size, tuple(axes), results)
    elif vmap_method == "broadcast_all":
        values = [put_axis(Batched(value, axis), size, 0) for value, axis in zip(values, axes, strict=True)]
    else:
        values = [reshape(value, (1, *aval_of(value).shape)) if axis is None else move_axis(value, axis, 0)
                  for value, axis in zip(values, axes, strict=True)]
    if isinstance(callback, HostFunction):
        callback = callback.returning(batched)
    return bind(pure_callback_p, *values, callback=callback, results=batched, vmap_method=vmap_method), \
        [0] * len(results)


pure_callback_p: Primitive = register(Primitive(
    name="pure_callback", abstract=_abstract,
    numpy=lambda *values, callback, results, vmap_method: callback(*values),
    xla=lambda lax, *values, callback, results, vmap_method: callbacks.emit_pure_callback(callback, values, results),
    jvp=_refuse_derivative("pure_callback"), transpose=NOT_LINEAR, batch=_pure_batch, cost=_cost))
"""Calls a function without effects, and returns its results."""
kept_always.enter(True, pure_callback_p)  # the time of a Python function is unknown
