"""The table of names in jax is right: an operation that jax has under these names is imported as the operation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import pytest
from jax import lax
from jax.extend.core import Jaxpr

import fxgrad
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.executors.xla import x64
from fxgrad.engine.rooms import registry
from fxgrad.interop.importing import names_in_jax
from tests.samples import Sample, all_samples


def test_names() -> None:
    assert names_in_jax.known(registry["add"])[:2] == ("entered", ("add", "add_any"))
    assert names_in_jax.known(registry["dot_general"])[:2] == ("derived", ("dot_general",))
    assert names_in_jax.known(registry["psum_scatter"])[:2] == ("entered", ("reduce_scatter",))
    assert names_in_jax.known(registry["hypot"])[:2] == ("derived", ())


def _names(jaxpr: Jaxpr) -> Iterator[str]:
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else [value]:
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from _names(inner)


def _imported(primitive: Primitive, sample: Sample) -> set[Primitive] | None:
    """What the XLA rule is imported as; None if it is not made of the operation that jax has under one of the names."""
    def function(*values: Any) -> Any:
        return primitive.xla(lax, *values, **sample.params)

    args = sample.args()
    if any(fxgrad.dtypes.is_key(getattr(arg, "dtype", None)) for arg in args):
        return None
    with x64():
        if {*names_in_jax.of(primitive)}.isdisjoint(_names(jax.make_jaxpr(function)(*args).jaxpr)):
            return None
        return {equation.primitive for equation in fxgrad.make_program(fxgrad.from_jax(function))(*args).equations}


@pytest.mark.slow
def test_what_has_a_name_in_jax_is_imported_as_that() -> None:
    compared = 0
    for primitive, samples in all_samples().items():
        if primitive in registry.values() and not primitive.collective and primitive.regions is None:
            named = (each for sample in samples[:12] if (each := _imported(primitive, sample)) is not None)
            found = next(named, None)
            assert found is None or primitive in found or any(primitive in each for each in named), primitive
            compared += found is not None
    assert compared > 120
