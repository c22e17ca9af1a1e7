"""The part of jax.scipy.sparse: iterative solvers, in `linalg`."""

from fxgrad.scipy.sparse import linalg

__all__ = ["linalg"]
