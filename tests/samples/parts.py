"""Samples of `fxgrad.engine.ops.parts`."""

from __future__ import annotations

import numpy as np

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.parts import (
    abs_p,
    ceil_p,
    complex_p,
    conj_p,
    floor_p,
    imag_p,
    is_finite_p,
    nextafter_p,
    real_p,
    reduce_precision_p,
    round_p,
    sign_p,
)
from tests.samples import COMPLEX, INTEGER, REAL, Draw, Sample, elementwise_samples, no_derivatives

NUMERIC = (*REAL, *COMPLEX, *INTEGER)
halves = np.array([0.5, -0.5, 1.5, 2.5, -2.5, 0.49999999999999994, np.inf, np.nan, -0.0, 1e30])
STEPS = no_derivatives("linear to the transformations only, which no difference shows")


def rounded(exponent_bits: int, mantissa_bits: int) -> list[Sample]:
    """Into one format, from several dtypes."""
    params = {"exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits}
    numbers = np.array([1e-5, 6e4, 7e4, 1.2345678, -3.0000001, 0.0, -0.0, np.inf, np.nan, 65519.0, 65520.0])
    return [*elementwise_samples(1, REAL, params=params, without=STEPS),
            *(Sample(numbers.astype(dtype), params=params, without=STEPS) for dtype in ("float64", "float32"))]


SAMPLES: dict[Primitive, list[Sample]] = {
    sign_p: [*elementwise_samples(1, NUMERIC), Sample(np.array([0j, 1 + 1j]), without=no_derivatives("singular at 0")),
             Sample(np.array([0.0, -0.0, np.nan, np.inf, -np.inf]), without=no_derivatives("a jump"))],
    abs_p: elementwise_samples(1, NUMERIC),
    floor_p: [*elementwise_samples(1, REAL), Sample(halves, without={"jvp": "jumps"})],
    ceil_p: [*elementwise_samples(1, REAL), Sample(halves, without={"jvp": "jumps"})],
    round_p: [sample for to_even in (True, False) for sample in (
        *elementwise_samples(1, REAL, params={"to_even": to_even}),
        Sample(halves, params={"to_even": to_even}, without={"jvp": "jumps"}),
        Sample(halves.astype(np.float32), params={"to_even": to_even}, without={"jvp": "jumps"}))],
    is_finite_p: [*elementwise_samples(1, REAL), Sample(halves)],
    nextafter_p: [*elementwise_samples(2, REAL), Sample(
        np.array([1.0, 1.0, 1.0, np.nan, np.inf]), np.array([2.0, 0.0, 1.0, 1.0, 0.0]),
        without=no_derivatives("infinities"))],
    reduce_precision_p: [*rounded(5, 10), *rounded(8, 7), *rounded(11, 52),
                         Sample(Draw((4,), "float32"), params={"exponent_bits": 2, "mantissa_bits": 0},
                                without=STEPS)],
    real_p: elementwise_samples(1, COMPLEX),
    imag_p: elementwise_samples(1, COMPLEX),
    conj_p: elementwise_samples(1, COMPLEX),
    complex_p: elementwise_samples(2, REAL[:2]),
}
