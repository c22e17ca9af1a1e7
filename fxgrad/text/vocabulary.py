"""What texts may speak of: importing this imports all that defines primitives, library functions or their parameters.

So a text reads the same in every process, whatever that has imported before.
"""

from fxgrad import extend, image, interop, lax, nn, numpy, random, scipy

__all__ = ["extend", "image", "interop", "lax", "nn", "numpy", "random", "scipy"]
