"""What texts may speak of: importing this imports all that defines primitives, library functions or their parameters.

So a text reads the same in every process, whatever that has imported before.
"""

from fxgrad import image, interop, lax, nn, numpy, random, scipy
from fxgrad.engine import rooms

__all__ = ["image", "interop", "lax", "nn", "numpy", "random", "rooms", "scipy"]
