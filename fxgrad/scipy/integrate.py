"""Areas under sampled curves, under the name that jax.scipy.integrate has."""

from fxgrad.numpy import trapezoid

__all__ = ["trapezoid"]
