"""jax's random keys and draws, of the generator threefry2x32."""

from __future__ import annotations

from typing import Any

import jax

from fxgrad.engine.core.primitive import registry
from fxgrad.engine.ops import random
from fxgrad.engine.ops.samplers import random_gamma
from fxgrad.engine.tracing.tape import bind
from fxgrad.errors import UnsupportedError
from fxgrad.interop.importing import import_rule
from fxgrad.interop.matching import integer_params, read_parameters, register_same

for _name in ("threefry2x32", "random_unwrap", "random_clone", "random_fold_in"):
    register_same(registry[_name])


def _check_partitionable() -> None:
    """Raise unless each element's bits are the hash of its own counter: jax had, and still has, another order."""
    if not jax.config.jax_threefry_partitionable:  # type: ignore[attr-defined]
        raise UnsupportedError("jax_threefry_partitionable is off")


@import_rule("random_seed")
def _random_seed(equation: Any, seeds: Any) -> Any:
    read_parameters(equation, ignored=("impl",))  # keys of other generators have types that fxgrad lacks
    return bind(random.random_seed_p, seeds)


@import_rule("random_wrap")
def _random_wrap(equation: Any, words: Any) -> Any:
    read_parameters(equation, ignored=("impl",))
    return bind(random.random_wrap_p, words)


@import_rule("random_split")
def _random_split(equation: Any, keys: Any) -> Any:
    sizes, = read_parameters(equation, "shape")
    _check_partitionable()
    return bind(random.random_split_p, keys, shape=integer_params(sizes))


@import_rule("random_bits")
def _random_bits(equation: Any, keys: Any) -> Any:
    sizes, width = read_parameters(equation, "shape", "bit_width")
    _check_partitionable()
    return bind(random.random_bits_p, keys, shape=integer_params(sizes), bit_width=int(width))


@import_rule("random_gamma")
def _random_gamma(equation: Any, keys: Any, shape_parameter: Any) -> Any:
    logarithm, = read_parameters(equation, "log_space")
    _check_partitionable()
    return random_gamma(keys, shape_parameter, bool(logarithm))
