"""jax and fxgrad in one program: jax's functions as functions of ours, and ours as jax's."""

from fxgrad.interop import (
    custom,
    defined,
    elements,
    host,
    indexing,
    mapped,
    matrices,
    nested,
    opaque,
    products,
    randomness,
    reductions,
    shaping,
)
from fxgrad.interop.exporting import to_jax
from fxgrad.interop.functions import from_jax
from fxgrad.interop.importing import import_jaxpr

__all__ = ["custom", "defined", "elements", "from_jax", "host", "import_jaxpr", "indexing", "mapped", "matrices",
           "nested", "opaque", "products", "randomness", "reductions", "shaping", "to_jax"]
