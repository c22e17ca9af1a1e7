"""The functions of jax.scipy, in modules of the same names."""

from fxgrad.scipy import cluster, fft, integrate, linalg, ndimage, signal, special, stats

__all__ = ["cluster", "fft", "integrate", "linalg", "ndimage", "signal", "special", "stats"]
