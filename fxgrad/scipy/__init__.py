"""The functions of jax.scipy, in modules of the same names."""

from fxgrad.scipy import linalg, special, stats

__all__ = ["linalg", "special", "stats"]
