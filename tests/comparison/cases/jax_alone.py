"""Cases of jax's functions that fxgrad has under no name of its own: `from_jax` imports them all the same."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tests.comparison.arguments import A, Case

INEXACT = ("float32", "float64")

LAX: dict[str, list[Case]] = {
    "rng_bit_generator": [Case(A(4, low=0, high=2**31 - 1, dtype="uint32"), call=lambda m, words: m.rng_bit_generator(
        words, (3,)), dtypes=("float32",), without={"vmap": "jax gives each its own order"})],
    "with_sharding_constraint": [Case(A(3), call=lambda m, x: m.with_sharding_constraint(
        x, jax.sharding.SingleDeviceSharding(jax.devices()[0])))],
}
LAX_LINALG: dict[str, list[Case]] = {
    "qdwh": [Case(A(4, 3), call=lambda m, x: m.qdwh(x)[:2], dtypes=INEXACT, tolerance=10.0)],
}
SCIPY_LINALG: dict[str, list[Case]] = {
    "funm": [Case(A(3, 3), call=lambda m, x: m.funm(x, jnp.exp, disp=False)[0], dtypes=INEXACT, tolerance=100.0)],
}

WITHOUT_CASE = {
    **dict.fromkeys(("lax.after_all", "lax.create_token", "lax.dce_sink"), "it computes nothing"),
    **dict.fromkeys(("lax.pbroadcast", "lax.pcast"), "it has a meaning inside `shard_map` alone"),
    **dict.fromkeys(("lax.precv", "lax.psend", "lax.ragged_all_to_all"), "it needs several devices"),
    "lax.rng_uniform": "no two calls give the same numbers",
    **dict.fromkeys(("nn.scaled_dot_general", "nn.scaled_matmul"), "jax has them for GPUs alone"),
    "nn.get_scaled_dot_general_config": "it takes no arrays",
}
"""Functions without a case, by `library.name`."""
