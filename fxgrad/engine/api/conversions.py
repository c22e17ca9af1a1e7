"""Conversions of a jitted function's arguments for jax, and of its results for the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from fxgrad.engine import tree
from fxgrad.engine.api.static_arguments import Args, Kwargs
from fxgrad.engine.core.arrays import WEAK_CLASSES, Integer, WeakArray, freeze_result, make_weak
from fxgrad.engine.core.avals import holds_numpy_keys, keys_to_jax, to_numpy
from fxgrad.engine.dtypes import SUPPORTED, is_64bit
from fxgrad.engine.executors.xla import is_jax_tracer, weaken_jax_outputs, x64
from fxgrad.engine.tracing.tape import aval_of

Arguments = Callable[[Args, Kwargs], tuple[Args, Kwargs]]


def needs_conversion(leaves: Iterable[Any]) -> bool:
    """Return whether jax would take one of these differently: NumPy's random keys, and weakly typed values."""
    return any(type(leaf) in _TAKEN_FOR_STRONG or holds_numpy_keys(leaf) for leaf in leaves)


def convert_arguments(args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """Return arguments as jax takes them: NumPy's random keys as jax keys, weak numbers as Python numbers."""
    leaves, structure = tree.flatten((args, kwargs))
    if not needs_conversion(leaves):
        return args, kwargs
    result: tuple[Args, Kwargs] = tree.unflatten(structure, [*map(_leaf_for_jax, leaves)])
    return result


_TAKEN_FOR_STRONG = WEAK_CLASSES - {Integer}


def _leaf_for_jax(leaf: Any) -> Any:
    kind = type(leaf)
    if kind is np.float64 or kind is np.complex128:
        return leaf.item()
    if kind is WeakArray:
        with x64():
            return weaken_jax_outputs([aval_of(leaf)], [jax.numpy.asarray(leaf)])[0]
    return keys_to_jax(leaf)


def chain_conversions(first: Arguments, second: Arguments, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """Apply one conversion of arguments, then another."""
    return second(*first(args, kwargs))


def like_arguments(outputs: Any, args: Args, kwargs: Kwargs) -> Any:
    """Return the outputs of a call in the x64 scope, 64-bit ones as `fxgrad.Array`s unless an argument is jax's.

    Outside that scope jax's own operators would narrow them. On the CPU both share their memory. Weakly typed numbers
    stay weakly typed.
    """
    results = result_conversion(tree.leaves((args, kwargs)))
    return outputs if results is None else results(outputs)


def result_conversion(leaves: Sequence[Any]) -> Callable[..., Any] | None:
    """Return `like_arguments` for all calls with leaves of the same classes; None if outputs need no conversion."""
    return None if any(isinstance(leaf, jax.Array) for leaf in leaves) else _wide_outputs_to_numpy


def _wide_outputs_to_numpy(outputs: Any, *_: Any) -> Any:
    return _wide_output_to_numpy(outputs) if isinstance(outputs, jax.Array) else tree.map(_wide_output_to_numpy,
                                                                                          outputs)


def _wide_output_to_numpy(output: Any) -> Any:
    """Return a 64-bit array as a NumPy array; return tracers of a running jax trace, and all else, unchanged."""
    if not isinstance(output, jax.Array) or output.dtype not in WIDE or is_jax_tracer(output) or \
            not output.is_fully_addressable:  # other processes have parts of it
        return output
    return make_weak(to_numpy(output)) if output.weak_type else freeze_result(to_numpy(output))


def has_wide(leaves: Iterable[Any]) -> bool:
    """Return whether any of these is a 64-bit array or scalar."""
    return any(getattr(leaf, "dtype", None) in WIDE for leaf in leaves)


WIDE = frozenset(dtype for dtype in SUPPORTED.values() if is_64bit(dtype))
