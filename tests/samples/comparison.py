"""Samples of `fxgrad.engine.ops.comparison`."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.comparison import (
    and_p,
    clz_p,
    eq_p,
    eq_to_p,
    ge_p,
    gt_p,
    le_p,
    le_to_p,
    lt_p,
    lt_to_p,
    ne_p,
    not_p,
    or_p,
    population_count_p,
    shift_left_p,
    shift_right_arithmetic_p,
    shift_right_logical_p,
    xor_p,
)
from tests.samples import COMPLEX, INTEGER, REAL, Draw, Sample, elementwise_samples

ORDERED = (*REAL, *INTEGER, "bool")
peculiar = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0])


def compared(*dtypes: str) -> list[Sample]:
    """Numbers, ties and what is peculiar to floats."""
    return [*elementwise_samples(2, dtypes), Sample(Draw((4, 5), whole=True), Draw((5,), whole=True)),
            *(Sample(peculiar.astype(dtype), peculiar[:, None].astype(dtype), slow=index > 1)
              for index, dtype in enumerate((np.float64, np.float32, np.float16, ml_dtypes.bfloat16)))]


LOGICAL = ("bool", *INTEGER)
bits = np.array([0, 1, -1, 5, -8, 2**31 - 1, -(2**31)], np.int32)
places = np.array([0, 1, 31, 32, 40, -1, 3], np.int32)


def moved() -> list[Sample]:
    """Shifts within the width of the dtype, and by all of it, more, and less than nothing."""
    return [*elementwise_samples(2, INTEGER, (0, 100), (0, 7)), Sample(bits, places), Sample(bits[:, None], places),
            *(Sample(bits.astype(dtype), places.astype(dtype)) for dtype in (np.uint32, np.int8, np.int64, np.uint8))]


def counted() -> list[Sample]:
    """Bits of numbers of both signs."""
    return [*elementwise_samples(1, INTEGER, (0, 100)), Sample(bits), Sample(bits.astype(np.int8)),
            Sample(bits.astype(np.int64)), Sample(bits.astype(np.uint16))]


SAMPLES: dict[Primitive, list[Sample]] = {
    **{primitive: compared(*ORDERED, *COMPLEX) for primitive in (eq_p, ne_p)},
    **{primitive: compared(*ORDERED) for primitive in (lt_p, le_p, gt_p, ge_p, eq_to_p, le_to_p, lt_to_p)},
    **{primitive: [*elementwise_samples(2, LOGICAL), Sample(bits, places)] for primitive in (and_p, or_p, xor_p)},
    not_p: [*elementwise_samples(1, LOGICAL), Sample(bits)],
    **{primitive: moved() for primitive in (shift_left_p, shift_right_arithmetic_p, shift_right_logical_p)},
    population_count_p: counted(),
    clz_p: counted(),
}
