"""Samples of `fxgrad.interop`: operations of jax's, taken as if fxgrad had no counterpart for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fxgrad.engine.core.primitive import Primitive
from fxgrad.interop.calls import JaxCall
from fxgrad.interop.opaque import jax_call_p, jax_effect_p
from tests.samples import Draw, Sample

OPAQUE = {"text": "an equation of jax's has no text of ours, and parse refuses to make one"}
NARROW = dict.fromkeys(("jvp", "second", "transpose"), "computed in float32, and differences are taken in float64")
WHOLE = dict.fromkeys(("jvp", "second", "transpose"), "integers have no derivative")


def call(function: Callable[..., Any], *draws: Draw) -> JaxCall:
    """The only equation of a function of jax's."""
    with jax.enable_x64(True):
        equation, = jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(draw.shape, draw.dtype) for draw in draws)).eqns
        return JaxCall(equation)


def samples(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "float64") -> Sample:
    draws = [Draw(shape, dtype) for shape in shapes]
    reasons = NARROW if dtype == "float32" else WHOLE if dtype == "int32" else {}
    return Sample(*draws, params={"call": call(function, *draws)}, without=OPAQUE | reasons)


def loop(x: Any, y: Any) -> Any:
    """One equation with two outputs."""
    return jax.lax.scan(lambda carry, entry: (carry * jnp.sin(entry), carry * entry), x, y)


EVERY = [samples(jnp.sin, ()), samples(jnp.sin, (0,)), samples(jnp.sin, (1,)), samples(jnp.sin, (2, 3)),
         samples(jnp.sin, (2, 3), dtype="float32"), samples(jax.lax.neg, (2, 3), dtype="int32"),
         samples(jax.lax.mul, (2, 3), (2, 3)), samples(loop, (), (4,)), samples(jax.lax.dot, (2, 3), (3, 4))]

SAMPLES: dict[Primitive, list[Sample]] = {jax_call_p: EVERY, jax_effect_p: EVERY[:7]}
