"""What jitted functions make of their arguments for jax, and of its results for callers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from fxgrad import tree
from fxgrad.api.keys import is_jax_tracer
from fxgrad.api.static_arguments import Args, Kwargs
from fxgrad.core.arrays import Array, made
from fxgrad.core.avals import keys_to_jax, to_numpy
from fxgrad.dtypes import SUPPORTED, is_64bit

Arguments = Callable[[Args, Kwargs], tuple[Args, Kwargs]]


def has_numpy_keys(arguments: Any) -> bool:
    """Whether there are NumPy's arrays of random keys in a container."""
    return any(keys_to_jax(leaf) is not leaf for leaf in tree.leaves(arguments))


def with_jax_keys(args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """Arguments with NumPy's arrays of random keys as jax's, which does not take them as they are."""
    converted: tuple[Args, Kwargs] = tree.map(keys_to_jax, (args, kwargs))
    return converted


def chained(first: Arguments, second: Arguments, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """The arguments after two conversions."""
    return second(*first(args, kwargs))


def like_arguments(outputs: Any, args: Args, kwargs: Kwargs) -> Any:
    """The outputs of a call in the x64 scope: those of 64 bits as NumPy's arrays, unless an argument is one of jax's.

    Outside that scope jax's own operators would narrow them. On the CPU both share their memory.
    """
    results = results_for(tree.leaves((args, kwargs)))
    return outputs if results is None else results(outputs)


def results_for(leaves: Sequence[Any]) -> Callable[..., Any] | None:
    """As `like_arguments`, for all calls with leaves of the same classes; None if the outputs stay what they are."""
    if any(isinstance(leaf, jax.Array) for leaf in leaves):
        return None
    return _wide_as_ours if any(type(leaf) is Array for leaf in leaves) else _wide_as_numpy


def _wide_as_numpy(outputs: Any, *_: Any) -> Any:
    return _numpy_if_wide(outputs) if isinstance(outputs, jax.Array) else tree.map(_numpy_if_wide, outputs)


def _wide_as_ours(outputs: Any, *_: Any) -> Any:
    return tree.map(made, _wide_as_numpy(outputs))


def _numpy_if_wide(output: Any) -> Any:
    """An array of 64 bits as NumPy's; that of a trace of jax's under way stays what it is, as does all else."""
    if not isinstance(output, jax.Array) or output.dtype not in WIDE or is_jax_tracer(output) or \
            not output.is_fully_addressable:  # other processes have parts of it
        return output
    return to_numpy(output)


WIDE = frozenset(dtype for dtype in SUPPORTED.values() if is_64bit(dtype))
