"""The supported names of `jax.experimental`."""

from importlib import import_module

from fxgrad.engine.api.callbacks import io_callback
from fxgrad.engine.user_lines import at_user_line

__all__ = ["io_callback"]


def __getattr__(name: str) -> object:
    if name in ("mesh_utils", "ode", "shard_map"):
        return import_module(f"fxgrad.experimental.{name}")
    raise AttributeError(at_user_line(
        f"module 'fxgrad.experimental' has no attribute {name!r}; it has io_callback and the modules mesh_utils, ode "
        "and shard_map. A function made with others of jax.experimental is called with fxgrad.from_jax(f)"), name=name)
