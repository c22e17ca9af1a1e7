"""jax and fxgrad in one program: jax's functions as functions of ours, and ours as jax's."""

from fxgrad.interop import (
           custom,
           defined,
           elementwise,
           host,
           indexing,
           linalg,
           mapped,
           nested,
           opaque,
           products,
           random,
           reductions,
           shaping,
           sharded,
)
from fxgrad.interop.exporting import to_jax
from fxgrad.interop.functions import from_jax
from fxgrad.interop.importing import import_jaxpr

__all__ = ["custom", "defined", "elementwise", "from_jax", "host", "import_jaxpr", "indexing", "mapped", "linalg",
           "nested", "opaque", "products", "random", "reductions", "shaping", "sharded", "to_jax"]
