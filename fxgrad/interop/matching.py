"""What the rules of the bridge share: reading the parameters of jax's equations, handing an equation on as it is."""

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
from fxgrad.interop.importing import imports, inlined


def parameters(equation: Any, *names: str, ignored: Sequence[str] = ()) -> list[Any]:
    """The parameters of these names, None for one that this version of jax does not have.

    All others must be None or `ignored`. Raises `UnsupportedError` if one is not, and then the equation stays jax's:
    a setting that fxgrad does not know is never dropped.
    """
    for name, value in equation.params.items():
        if value is not None and name not in names and name not in ignored and not _is_anywhere(value):
            raise UnsupportedError(f"{equation.primitive.name}: {name}={value!r} has no counterpart")
    return [equation.params.get(name) for name in names]


def integers(values: Any) -> Shape:
    """The integers of a parameter, sizes with names among them, as a tuple."""
    return tuple(map(index_of, values))


def _is_anywhere(value: Any) -> bool:
    """Whether a parameter is a placement that names no mesh axis, which jax's own batching and transposing leave."""
    return isinstance(value, jax.sharding.NamedSharding) and not any(value.spec)


def same(primitive: Primitive, *names: str) -> None:
    """Enters the rule of a primitive of jax that is `primitive`, of the same operands and without parameters."""
    def rule(equation: Any, *operands: Any) -> list[Any]:
        parameters(equation)
        return bind(primitive, *operands)

    imports(*(names or (primitive.name,)), made=primitive)(rule)


def precision_of(value: Any) -> Any:
    """A precision of jax's, or a pair of them, as ours; raises `UnsupportedError` for algorithms without a name."""
    pair = value if isinstance(value, tuple) else (value,)
    if any(each is not None and not isinstance(each, jax.lax.Precision | jax.lax.DotAlgorithmPreset) for each in pair):
        raise UnsupportedError(f"precision {value!r} has no counterpart")
    return precision_name(value)


def of_scalars(jaxpr: Any) -> Callable[[list[Any], list[Any]], list[Any]]:
    """The function of two lists of scalars that a jaxpr inside a reduction stands for."""
    return lambda left, right: inlined(jaxpr, [*left, *right])
