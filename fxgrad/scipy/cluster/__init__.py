"""Clusters of points, as jax.scipy.cluster."""

from fxgrad.scipy.cluster import vq

__all__ = ["vq"]
