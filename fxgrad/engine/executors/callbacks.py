"""Calls from compiled programs back to Python, with NumPy arrays.

jax's own arrays might wait for the program that is waiting for the call.

jax makes the call in a thread outside of the scope that keeps 64-bit dtypes, and would narrow them. They travel as
32-bit words, both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.experimental import io_callback

from fxgrad.engine import dtypes, tree, user_lines
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.dtypes import DType
from fxgrad.engine.executors.failures import note_callback_error

Host = Callable[..., "list[Any]"]
"""A function of NumPy arrays that returns a list of them."""
Constants = tuple[tuple[int, Any], ...]
"""Leaves of arguments that are no arrays, after their positions among all leaves."""


def rebuild_arguments(in_tree: Any, constants: Constants, values: Sequence[Any]) -> Any:
    """Return the positional and the keyword arguments of a tree with these arrays and constants as leaves."""
    leaves = [np.array(value)[()] for value in values]  # copies, since the function may keep and change them
    for position, constant in constants:
        leaves.insert(position, constant)
    return tree.unflatten(in_tree, leaves)


def emit_debug_callback(host: Host, values: Sequence[Any], ordered: bool) -> None:
    """Call `host`, which returns nothing, whenever the program runs."""
    jax.debug.callback(_call_on_words(host, values, "debug.callback"), *map(_to_words, values), ordered=ordered)


def emit_io_callback(host: Host, values: Sequence[Any], results: Sequence[Aval], ordered: bool) -> list[Any]:
    """Call `host` whenever the program runs; its results have the types `results`."""
    outputs = io_callback(_call_on_words(host, values, "io_callback"), _structs(results), *map(_to_words, values),
                          ordered=ordered)
    return [_from_words(output, aval.dtype) for output, aval in zip(outputs, results, strict=True)]


def emit_pure_callback(host: Host, values: Sequence[Any], results: Sequence[Aval]) -> list[Any]:
    """Call `host` for its results, of the types `results`, as often as XLA needs them."""
    outputs = jax.pure_callback(_call_on_words(host, values, "pure_callback"), _structs(results),
                                *map(_to_words, values),
                                vmap_method="sequential")
    return [_from_words(output, aval.dtype) for output, aval in zip(outputs, results, strict=True)]


def _call_on_words(host: Host, values: Sequence[Any], what: str) -> Callable[..., Any]:
    """Return `host`, called on values restored from words and returning words; record the errors that it raises.

    `what` names the operation, in the user's line being emitted.
    """
    line = user_lines.user_line()
    types = [(value.shape, dtypes.key_dtype if dtypes.is_jax_key(value.dtype) else value.dtype) for value in values]

    def call(*words: Any) -> tuple[Any, ...]:
        arrays = [np.ascontiguousarray(array).view(dtype).reshape(shape) if _travels_as_words(dtype) else
                  np.asarray(array) for array, (shape, dtype) in zip(words, types, strict=True)]
        try:
            results = host(*arrays)
        except Exception as error:
            note_callback_error(error, what, line)
            raise
        return tuple(np.ascontiguousarray(result).view(np.uint32).reshape(*result.shape, result.dtype.itemsize // 4)
                     if _travels_as_words(result.dtype) else result for result in results)
    return call


def _travels_as_words(dtype: DType) -> bool:
    return dtypes.is_key(dtype) or dtypes.is_64bit(dtype)


def _to_words(value: Any) -> Any:
    if dtypes.is_jax_key(value.dtype):
        return jax.random.key_data(value)
    if value.dtype == np.complex128:
        parts = lax.bitcast_convert_type(jax.numpy.stack([lax.real(value), lax.imag(value)], -1), np.uint32)
        return lax.reshape(parts, (*value.shape, 4))
    return lax.bitcast_convert_type(value, np.uint32) if _travels_as_words(value.dtype) else value


def _from_words(words: Any, dtype: DType) -> Any:
    if dtypes.is_key(dtype):
        return jax.random.wrap_key_data(words, impl="threefry2x32")
    if dtype == np.complex128:
        parts = lax.bitcast_convert_type(lax.reshape(words, (*words.shape[:-1], 2, 2)), np.float64)
        return lax.complex(parts[..., 0], parts[..., 1])
    return lax.bitcast_convert_type(words, dtype) if _travels_as_words(dtype) else words


def _structs(avals: Sequence[Aval]) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(jax.ShapeDtypeStruct((*aval.shape, aval.dtype.itemsize // 4), np.uint32)
                 if _travels_as_words(aval.dtype) else jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals)
