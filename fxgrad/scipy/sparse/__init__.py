"""The part of jax.scipy.sparse: iterative solvers, in `linalg`."""

from fxgrad.scipy.sparse import linalg

__all__ = ["linalg"]


def __dir__() -> list[str]:
    return [*__all__]  # without modules, for completion
