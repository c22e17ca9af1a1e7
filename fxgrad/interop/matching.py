"""Shared parts of the bridge's rules: reading the parameters of jax's equations, passing an equation on unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from fxgrad.engine.core.avals import Shape
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.sizes import index_of
from fxgrad.engine.ops.products import precision_name
from fxgrad.engine.tracing.tape import bind
from fxgrad.errors import UnsupportedError
from fxgrad.interop.importing import import_rule, inline_jaxpr


def read_parameters(equation: Any, *names: str, ignored: Sequence[str] = ()) -> list[Any]:
    """Return the parameters of these names, None for those that this version of jax does not have.

    All others must be None or `ignored`. Raises `UnsupportedError` if one is not, and then the equation stays jax's: an
    unknown setting is never dropped.
    """
    for name, value in equation.params.items():
        # jax's batching and transposing leave shardings that name no mesh axis.
        is_anywhere = isinstance(value, jax.sharding.NamedSharding) and not any(value.spec)
        if value is not None and name not in names and name not in ignored and not is_anywhere:
            raise UnsupportedError(f"{equation.primitive.name}: {name}={value!r} has no counterpart")
    return [equation.params.get(name) for name in names]


def integer_params(values: Any) -> Shape:
    """Return the integers of a parameter, symbolic sizes included, as a tuple."""
    return tuple(map(index_of, values))


def register_same(primitive: Primitive, *names: str) -> None:
    """Register the rule of a jax primitive that equals `primitive`, of the same operands, without parameters."""
    def rule(equation: Any, *operands: Any) -> list[Any]:
        read_parameters(equation)
        return bind(primitive, *operands)

    import_rule(*(names or (primitive.name,)), made=primitive)(rule)


def precision_of(value: Any) -> Any:
    """Return a precision of jax's, or a pair of them, as ours; raise `UnsupportedError` for unnamed algorithms."""
    pair = value if isinstance(value, tuple) else (value,)
    if any(each is not None and not isinstance(each, jax.lax.Precision | jax.lax.DotAlgorithmPreset) for each in pair):
        raise UnsupportedError(f"precision {value!r} has no counterpart")
    return precision_name(value)


def scalar_function(jaxpr: Any) -> Callable[[list[Any], list[Any]], list[Any]]:
    """Return the function of two lists of scalars for a jaxpr inside a reduction."""
    return lambda left, right: inline_jaxpr(jaxpr, [*left, *right])
