"""Geometry, as jax.scipy.spatial."""

from fxgrad.scipy.spatial import transform

__all__ = ["transform"]


def __dir__() -> list[str]:
    return [*__all__]  # without modules, for completion
