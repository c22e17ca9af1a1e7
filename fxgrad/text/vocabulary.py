"""The vocabulary of texts: importing this imports all modules that define primitives, library functions or parameters.

So a text reads the same in every process, whatever that has imported before.
"""

from fxgrad import extend, image, interop, lax, nn, numpy, random, scipy

__all__ = ["extend", "image", "interop", "lax", "nn", "numpy", "random", "scipy"]
