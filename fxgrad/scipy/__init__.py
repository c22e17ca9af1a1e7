"""The functions of jax.scipy, in modules of the same names."""

from fxgrad.scipy import linalg, special

__all__ = ["linalg", "special"]
