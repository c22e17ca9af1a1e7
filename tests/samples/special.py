"""Samples of `fxgrad.engine.ops.special`."""

from __future__ import annotations

import numpy as np

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.special import (
    bessel_i0e_p,
    bessel_i1e_p,
    digamma_p,
    entr_p,
    erf_inv_p,
    erf_p,
    erfc_p,
    lgamma_p,
    ndtri_p,
    polygamma_p,
    xlog1py_p,
    xlogy_p,
)
from tests.samples import COMPLEX, REAL, Draw, Sample, elementwise_samples, no_derivatives

SINGULAR = no_derivatives("poles and infinities")
PECULIAR = np.array([0.0, -0.0, -1.0, np.inf, np.nan])

SAMPLES: dict[Primitive, list[Sample]] = {
    erf_p: [*elementwise_samples(1, REAL), Sample(PECULIAR, without=SINGULAR)],
    erfc_p: [*elementwise_samples(1, REAL), Sample(np.array([-6.0, 6.0, 20.0]))],
    erf_inv_p: [*elementwise_samples(1, REAL, (-0.9, 0.9)),
                Sample(np.array([1.0, -1.0, 0.5, 2.0, np.nan]), without=SINGULAR)],
    # The two lose digits near their zeros at 1, 2 and 1.46, each in its own way.
    lgamma_p: [*elementwise_samples(1, REAL, (0.3, 4), tolerance=10), Sample(Draw((5,), low=-2.9, high=-2.1)),
               Sample(PECULIAR, without=SINGULAR)],
    digamma_p: [*elementwise_samples(1, REAL, (0.3, 4), tolerance=10), Sample(Draw((5,), low=-2.9, high=-2.1)),
                Sample(PECULIAR[2:], without=SINGULAR)],
    polygamma_p: [*(Sample(np.float64(order), Draw((2, 3), low=0.5, high=12), fixed=[0]) for order in (0, 1, 2, 3)),
                  *(Sample(Draw(shape, dtype, 1, 3, whole=True), Draw(other, dtype, 0.5, 9), fixed=[0],
                           slow=dtype not in REAL[:2])
                    for dtype in REAL for shape, other in (((), ()), ((0,), (0,)), ((1,), (1,)), ((3,), (2, 1)))),
                  Sample(np.array([0.5, -1.0, np.nan]), np.array([2.0, 2.0, 2.0]), without=SINGULAR)],
    ndtri_p: [*elementwise_samples(1, REAL, (0.05, 0.95)),
              Sample(np.array([0.0, 1.0, 1e-30, 1 - 1e-9, -0.5, np.nan]), without=SINGULAR)],
    entr_p: [*elementwise_samples(1, REAL, (0.3, 4)), Sample(PECULIAR, without=SINGULAR)],
    xlogy_p: [*elementwise_samples(2, (*REAL, *COMPLEX), (0.5, 2)), Sample(Draw((5,)), Draw((5,), low=0.5, high=3)),
              Sample(np.array([0.0, 0.0, 0.0, 1.0]), np.array([0.0, np.inf, np.nan, 0.0]), without=SINGULAR)],
    xlog1py_p: [*elementwise_samples(2, (*REAL, *COMPLEX), (0.5, 2)),
                Sample(np.array([0.0, 0.0, 0.0, 1.0]), np.array([-1.0, np.inf, np.nan, -1.0]), without=SINGULAR)],
    bessel_i0e_p: [*elementwise_samples(1, REAL, (-40, 40)), Sample(Draw((5,))), Sample(PECULIAR, without=SINGULAR)],
    bessel_i1e_p: [*elementwise_samples(1, REAL, (-40, 40)), Sample(Draw((5,))), Sample(PECULIAR, without=SINGULAR)],
}
