"""Barriers around recomputation, so that XLA neither CSEs it with the original nor schedules it early.

On GPU and TPU this is XLA's own barrier (`optimization_barrier`). On CPU the compiler removes barriers before CSE.
There, operands pass a `select` between themselves and zeros with a predicate that is always true: a bit that is set in
a number computed from the late operand. No compiler rule recognizes that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from fxgrad.engine.executors.xla import as_jax, is_jax


def remat_barrier(values: Sequence[Any], places: Collection[int]) -> Sequence[Any]:
    """Return values, those at `places` new ones to the compiler, that become available with the last one.

    If the last is a number, or has no elements, it is available from the start: then another one takes its role, and if
    there is none the values stay unchanged.
    """
    late = [place for place, value in enumerate(values) if is_jax(value)]
    values = [*map(jax.numpy.asarray, map(as_jax, values))]
    moment = next((place for place in reversed(late) if values[place].size), None)
    if moment is None:
        return values

    def by_data(*values: Any) -> tuple[Any, ...]:
        # A predicate that holds, but that the compiler must compute from a value, which is not empty.
        bits = _bits(lax.index_in_dim(values[moment].reshape(-1), 0, keepdims=False))
        holds = lax.ne(lax.bitwise_or(bits, lax.full_like(bits, 1)), lax.full_like(bits, 0))
        return tuple(_select_if(holds, value) if place in places else value for place, value in enumerate(values))

    return lax.platform_dependent(*values, cpu=by_data, default=_behind_barrier)


def _behind_barrier(*values: Any) -> tuple[Any, ...]:
    return tuple(lax.optimization_barrier(values))


def _bits(number: Any) -> Any:
    if jax.dtypes.issubdtype(number.dtype, jax.dtypes.prng_key):
        number = jax.random.key_data(number).reshape(-1)[0]
    if number.dtype == bool:
        return lax.convert_element_type(number, np.int32)
    if jax.numpy.issubdtype(number.dtype, np.complexfloating):
        number = lax.real(number)
    if jax.numpy.issubdtype(number.dtype, np.integer):
        return number
    return lax.bitcast_convert_type(number, f"uint{8 * number.dtype.itemsize}")


def _select_if(holds: Any, value: Any) -> Any:
    """Return `value`, selected by a predicate that holds."""
    if getattr(jax.typeof(value), "memory_space", None) == jax.memory.Space.Host:  # no computation in that memory
        return jax.device_put(_select_if(holds, jax.device_put(value, jax.memory.Space.Device)), jax.memory.Space.Host)
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_select_if(holds, jax.random.key_data(value)), impl=jax.random.key_impl(value))
    return jax.numpy.where(holds, value, lax.full_like(value, 0))
