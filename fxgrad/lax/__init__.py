"""The functions of jax.lax, under their own names."""

from fxgrad.lax.associative import associative_scan
from fxgrad.lax.branches import cond, switch
from fxgrad.lax.loops import fori_loop, map, scan, while_loop  # noqa: A004
from fxgrad.lax.solves import custom_linear_solve, custom_root

__all__ = [
    "associative_scan", "cond", "custom_linear_solve", "custom_root", "fori_loop", "map", "scan", "switch", "while_loop",
]
