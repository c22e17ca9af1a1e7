"""Geometry, as jax.scipy.spatial."""

from fxgrad.scipy.spatial import transform

__all__ = ["transform"]
