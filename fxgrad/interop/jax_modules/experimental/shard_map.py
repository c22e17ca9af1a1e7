"""`shard_map` under the name that it had in jax before it became `jax.shard_map`."""

from fxgrad.engine.api.sharded import shard_map

__all__ = ["shard_map"]
