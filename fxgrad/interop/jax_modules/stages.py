"""The classes of a jitted function and its stages, as in `jax.stages`; `jit` creates them.

>>> import numpy as np, fxgrad
>>> fast = fxgrad.jit(np.sin)
>>> lowered = fast.lower(np.ones(3))
>>> isinstance(fast, Wrapped), isinstance(lowered, Lowered), isinstance(lowered.compile(), Compiled)
(True, True, True)
"""

from jax.stages import ArgInfo, CompilerOptions

from fxgrad.engine.api.stages import Compiled, Lowered, Traced
from fxgrad.engine.api.switches import Jitted as Wrapped

__all__ = ["ArgInfo", "Compiled", "CompilerOptions", "Lowered", "Traced", "Wrapped"]
