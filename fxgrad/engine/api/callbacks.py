"""Calling Python from inside transformed functions: `pure_callback` and `io_callback`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxgrad.engine import tree
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.frontend.callback import host_function, io_callback_p, pure_callback_p
from fxgrad.engine.frontend.flat import argument_aval, constant_name
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, UnsupportedError

VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all")


def pure_callback(callback: Callable[..., Any], result_shape_dtypes: Any, *args: Any, sharding: Any = None,
                  vmap_method: str | None = None, **kwargs: Any) -> Any:
    """Return `callback(*args, **kwargs)`, computed by Python when the program runs, also under `jit`.

    `callback` gets NumPy arrays in the containers of the arguments, and returns arrays in the container of
    `result_shape_dtypes`, whose leaves (`ShapeDtypeStruct`s or arrays) give shapes and dtypes. It must have no effects:
    it may run any number of times, and does not run if its results are unused. Under `vmap` the method decides:
    "sequential" (or "sequential_unrolled") calls it once for each entry; "expand_dims" calls it once, with one more
    axis in front of arguments and results, of size 1 where an argument is not mapped; "broadcast_all" does so with the
    full size.

    Raises `UnsupportedError` where it is differentiated (give it a derivative with `custom_jvp`), and under `vmap`
    without a `vmap_method`; when it runs, `ShapeError`, `DTypeError` or `ArgumentError` if the results are others than
    declared.

    >>> import numpy as np, fxgrad
    >>> def root(x):
    ...     return pure_callback(np.sqrt, fxgrad.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="expand_dims")
    >>> fxgrad.vmap(root)(np.array([4.0, 9.0]))
    array([2., 3.])
    """
    _refuse_sharding("pure_callback", sharding)
    if vmap_method is not None and vmap_method not in VMAP_METHODS:
        raise ArgumentError(at_user_line(
            f"pure_callback: vmap_method={vmap_method!r}; one of {', '.join(map(repr, VMAP_METHODS))}, or None is "
            "needed"))
    results, structure = _declared_types("pure_callback", result_shape_dtypes)
    host, values = host_function("pure_callback", callback, args, kwargs, results, structure)
    outputs = bind(pure_callback_p, *values, callback=host, results=results, vmap_method=vmap_method)
    return tree.unflatten(structure, outputs)


def io_callback(callback: Callable[..., Any], result_shape_dtypes: Any, *args: Any, sharding: Any = None,
                ordered: bool = False, **kwargs: Any) -> Any:
    """Call `callback(*args, **kwargs)` whenever the program runs, for its effects, and return its result.

    Arguments and results are as for `pure_callback`. It runs once each time that the user's code reaches it, also where
    the results are unused. NumPy keeps the order of all calls, XLA that of calls that are `ordered`. Under `vmap` it
    runs for each entry in turn.

    Raises `UnsupportedError` where it is differentiated, and where a derivative would have to call it a second time;
    when it runs, `ShapeError`, `DTypeError` or `ArgumentError` if the results are others than declared.

    >>> import numpy as np, fxgrad
    >>> numbers = iter(range(10))
    >>> draw = lambda x: x * io_callback(lambda: np.int32(next(numbers)), fxgrad.ShapeDtypeStruct((), np.int32))
    >>> [float(draw(2.0)), float(draw(2.0))]
    [0.0, 2.0]
    """
    _refuse_sharding("io_callback", sharding)
    results, structure = _declared_types("io_callback", result_shape_dtypes)
    host, values = host_function("io_callback", callback, args, kwargs, results, structure)
    outputs = bind(io_callback_p, *values, callback=host, results=results, ordered=bool(ordered))
    return tree.unflatten(structure, outputs)


def _refuse_sharding(what: str, sharding: Any) -> None:
    if sharding is not None:
        raise UnsupportedError(at_user_line(f"{what}: sharding= is not supported; leave it out"))


def _declared_types(what: str, result_shape_dtypes: Any) -> tuple[tuple[Aval, ...], Any]:
    leaves, structure = tree.flatten(result_shape_dtypes)
    names = tree.leaf_names(result_shape_dtypes, "result_shape_dtypes")
    return tuple(argument_aval(leaf, what, constant_name(name)).strong()
                 for leaf, name in zip(leaves, names, strict=True)), structure
