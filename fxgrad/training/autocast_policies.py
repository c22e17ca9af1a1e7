"""Policies for `fxgrad.autocast`: which half precision, and which operations compute in it.

>>> import fxgrad
>>> fxgrad.autocast_policies.bfloat16.half
('conv_general_dilated', 'dot_general', 'strong_dot_general')
"""

from __future__ import annotations

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.training.autocast.policies import Policy

__all__ = ["Policy", "bfloat16", "float16"]

bfloat16 = Policy(dtypes.canonical(dtypes.bfloat16))
"""Products and convolutions in bfloat16, which has the range of float32 and 8 bits of precision."""
float16 = Policy(dtypes.canonical(np.float16))
"""Products and convolutions in float16, which has 11 bits, and a range from 6e-8 to 65504: scale the loss."""
