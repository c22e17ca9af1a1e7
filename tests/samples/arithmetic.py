"""Samples of `fxgrad.engine.ops.arithmetic`, and of `add`."""

from __future__ import annotations

import numpy as np

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.arithmetic import (
    div_p,
    max_p,
    min_p,
    mul_p,
    mulhi_p,
    neg_p,
    nonzero_divisor_p,
    rem_p,
    stop_gradient_p,
    sub_p,
)
from fxgrad.engine.ops.pointwise import add_p
from tests.samples import COMPLEX, INTEGER, REAL, Draw, Sample, elementwise_samples, no_derivatives

NUMERIC = (*REAL, *COMPLEX, *INTEGER)
CUT = no_derivatives("it is there to cut derivatives off")
PECULIAR = Sample(np.array([np.nan, 1, np.inf]), np.array([1, np.nan, 2.0]))

whole = np.array([-7, 7, -8, 8, -(2**31), 5], np.int32)
divisors = np.array([2, -2, 3, -3, -1, 0], np.int32)

SAMPLES: dict[Primitive, list[Sample]] = {
    neg_p: elementwise_samples(1, NUMERIC),
    add_p: elementwise_samples(2, NUMERIC),
    sub_p: elementwise_samples(2, NUMERIC),
    mul_p: elementwise_samples(2, NUMERIC),
    div_p: [*elementwise_samples(2, (*REAL, *COMPLEX), (-2, 2), (0.5, 2)),
            *elementwise_samples(2, INTEGER, (0, 100), (0, 9)), Sample(whole, divisors)],
    # Away from the jumps, where the quotient is whole.
    rem_p: [*elementwise_samples(2, REAL, (3.2, 3.8), (1, 1.05)),
            *elementwise_samples(2, REAL, (-3.8, -3.2), (1, 1.05)),
            *elementwise_samples(2, INTEGER, (0, 100), (0, 9)), Sample(whole, divisors)],
    nonzero_divisor_p: [*elementwise_samples(1, INTEGER, (0, 9)), Sample(divisors), Sample(divisors[5])],
    max_p: [*elementwise_samples(2, (*NUMERIC, "bool"), (-3, 3), (-2, 2)), PECULIAR],
    min_p: [*elementwise_samples(2, (*NUMERIC, "bool"), (-3, 3), (-2, 2)), PECULIAR],
    mulhi_p: [*elementwise_samples(2, INTEGER, (0, 120)),
              Sample(np.array([2**62, -(2**63), -5, 2**63 - 1]), np.array([-7, -(2**63), 2**40, 2**63 - 1])),
              Sample(np.array([2**64 - 1, 2**63], np.uint64), np.array([2**64 - 1, 3], np.uint64)),
              Sample(Draw((5,), "int32", -2**31, 2**31 - 1), Draw((5,), "int32", -2**31, 2**31 - 1))],
    stop_gradient_p: elementwise_samples(1, (*NUMERIC, "bool"), without=CUT),
}
