"""Programs as functions of jax on flat lists of leaves: the interface for exporters of compiled programs."""

from fxgrad.engine.api.conversions import like_arguments
from fxgrad.engine.core.avals import keys_to_jax
from fxgrad.engine.core.program_properties import needs_x64
from fxgrad.engine.derivation.sizes import at_jax_sizes
from fxgrad.engine.executors.xla import emit, x64
from fxgrad.interop.manual import struct_for_jax

__all__ = ["at_jax_sizes", "emit", "keys_to_jax", "like_arguments", "needs_x64", "struct_for_jax", "x64"]
