"""Series and constants of kernels, for exporters that write the same formulas in another language.

Special functions are given as functions of NumPy arrays or of anything with the same operators; `GROUPS`, `PARITY` and
`ROTATIONS` are the constants of the random generator.
"""

from fxgrad.engine.ops.arithmetic import mulhi_wide
from fxgrad.engine.ops.parts import MANTISSA, rounded_bits
from fxgrad.engine.ops.random import GROUPS, PARITY, ROTATIONS
from fxgrad.engine.ops.special import BERNOULLI, bessel, digamma_double, erf_inv_single, quantile

__all__ = ["BERNOULLI", "GROUPS", "MANTISSA", "PARITY", "ROTATIONS", "bessel", "digamma_double", "erf_inv_single",
           "mulhi_wide", "quantile", "rounded_bits"]
