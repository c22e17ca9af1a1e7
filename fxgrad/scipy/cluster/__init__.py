"""Clusters of points, as jax.scipy.cluster."""

from fxgrad.scipy.cluster import vq

__all__ = ["vq"]


def __dir__() -> list[str]:
    return [*__all__]  # without modules, for completion
