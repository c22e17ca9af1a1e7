"""Samples of `fxgrad.engine.ops.exponential`."""

from __future__ import annotations

import numpy as np

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.exponential import (
    cbrt_p,
    exp2_p,
    exp_p,
    expm1_p,
    integer_pow_p,
    log1p_p,
    log_p,
    logaddexp_p,
    logistic_p,
    pow_p,
    rsqrt_p,
    sqrt_p,
    square_p,
    whole_pow_p,
)
from tests.samples import COMPLEX, INTEGER, REAL, Draw, Sample, elementwise_samples, no_derivatives

INEXACT = (*REAL, *COMPLEX)
SINGULAR = no_derivatives("a singular point")
EXTREMES = Sample(np.array([-800.0, 800, np.inf, -np.inf, np.nan]), without=SINGULAR)


def powers(exponent: int) -> list[Sample]:
    """One static exponent."""
    params = {"exponent": exponent}
    whole = elementwise_samples(1, INTEGER, params=params) if exponent >= 0 else []
    return [*elementwise_samples(1, INEXACT, (0.5, 1.5), params=params), *whole]


SAMPLES: dict[Primitive, list[Sample]] = {
    exp_p: [*elementwise_samples(1, INEXACT), EXTREMES],
    exp2_p: elementwise_samples(1, INEXACT),
    expm1_p: [*elementwise_samples(1, INEXACT), Sample(np.array([1e-12, -1e-12]))],
    log_p: [*elementwise_samples(1, INEXACT, (0.2, 3)), Sample(np.array([0.0, -1, np.inf]), without=SINGULAR)],
    log1p_p: [*elementwise_samples(1, INEXACT, (-0.7, 3)), Sample(np.array([1e-12, -1e-12]))],
    logistic_p: [*elementwise_samples(1, INEXACT), EXTREMES],
    sqrt_p: [*elementwise_samples(1, INEXACT, (0.2, 3)), Sample(np.array([0.0, -1, np.inf]), without=SINGULAR)],
    rsqrt_p: [*elementwise_samples(1, INEXACT, (0.2, 3)), Sample(np.array([0.0, -0.0, -1, np.inf]), without=SINGULAR)],
    cbrt_p: [*elementwise_samples(1, REAL, (0.2, 3)), *elementwise_samples(1, REAL, (-3, -0.2))],
    square_p: elementwise_samples(1, (*INEXACT, *INTEGER)),
    integer_pow_p: [*powers(3), *powers(1), *powers(0), *powers(2), *powers(-2), *powers(7)],
    whole_pow_p: [
        *elementwise_samples(2, INTEGER, (0, 3), (0, 4)),
        Sample(np.array([0, 2, 3, -3, 1, -1, 0], np.int32), np.array([64, 65, 70, 33, -5, -5, -1], np.int32)),
        Sample(np.array([2, -2, 3, -1]), np.array([-1, -3, 100, -(2**63)])),
    ],
    logaddexp_p: [
        *elementwise_samples(2, REAL),
        Sample(np.array([800.0, -800, 800]), np.array([-800.0, 800, 800.5])),
        Sample(np.array([1.5, 0.0, 800]), np.array([1.5, 0.0, 800])),
        Sample(np.array([np.inf, -np.inf, np.inf, np.nan]), np.array([np.inf, -np.inf, -np.inf, 0.0]),
               without=SINGULAR),
    ],
    pow_p: [
        *elementwise_samples(2, INEXACT, (0.3, 2), (-2, 2)),
        Sample(np.array([-2.0, -2.0, -3.0, 0.0, 0.0]), np.array([2.0, 3.0, -1.0, 2.0, 3.0]), fixed=[1]),
        Sample(np.array([0.0, 0.0]), np.array([1.5, 2.5]), fixed=[0]),
        Sample(np.array([0.0, np.inf, 0.0, np.nan]), np.array([0.0, -1.0, -1.0, 0.0]), without=SINGULAR),
        Sample(Draw((3,), low=-2, high=-1), Draw((3,)), without=SINGULAR),
    ],
}
