"""Samples of `fxgrad.engine.ops.trigonometric`."""

from __future__ import annotations

import numpy as np

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.trigonometric import (
    acos_p,
    acosh_p,
    asin_p,
    asinh_p,
    atan2_p,
    atan_p,
    atanh_p,
    cos_p,
    cosh_p,
    hypot_p,
    sin_p,
    sinh_p,
    tan_p,
    tanh_p,
)
from tests.samples import COMPLEX, REAL, Draw, Sample, elementwise_samples, no_derivatives

INEXACT = (*REAL, *COMPLEX)

SAMPLES: dict[Primitive, list[Sample]] = {
    **{primitive: elementwise_samples(1, INEXACT)
       for primitive in (sin_p, cos_p, sinh_p, cosh_p, tanh_p, asinh_p, atan_p)},
    **{primitive: elementwise_samples(1, INEXACT, (-0.9, 0.9)) for primitive in (asin_p, acos_p, atanh_p, tan_p)},
    hypot_p: [*elementwise_samples(2, REAL, (0.2, 2), (-2, 2)), Sample(np.array([3.0, -3.0]), np.array([3.0, 3.0])),
              Sample(np.array([3e200, np.inf, np.nan, 0.0]), np.array([4e200, np.nan, np.inf, 0.0]),
                     without=no_derivatives("no differences at infinity and at the origin"))],
    acosh_p: [*elementwise_samples(1, INEXACT, (1.2, 4)), Sample(Draw((6,), "complex128", -3, 3))],
    atan2_p: [*elementwise_samples(2, REAL, (0.2, 2), (-2, 2)), *elementwise_samples(2, REAL, (-2, -0.2), (-2, 2))],
}
