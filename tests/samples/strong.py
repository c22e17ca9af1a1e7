"""Samples of strong products: fxgrad/engine/ops/strong.py."""

from __future__ import annotations

import math

import numpy as np

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.strong import strong_div_p, strong_dot_general_p, strong_mul_p
from tests.samples import Sample, elementwise_samples
from tests.samples.products import MATRIX, contracted

INF, NAN = math.inf, math.nan
FLOATS = ("float64", "float32", "bfloat16", "float16")
COMPLEX = ("complex64", "complex128")
NOT_SMOOTH = dict.fromkeys(("jvp", "second", "transpose"), "there is no difference quotient beside infinities")
FACTORS = np.array([0.0, 0.0, -0.0, 1.0, INF, 2.0, NAN, 0.0])
OTHERS = np.array([INF, NAN, -INF, NAN, 0.0, 3.0, 1.0, 5.0])
ROWS, COLUMNS = np.array([[1.0, 2.0, INF], [NAN, 1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
PARAMS = {"dimension_numbers": (MATRIX, ((), ())), "precision": None, "preferred_element_type": None}

SAMPLES: dict[Primitive, list[Sample]] = {
    strong_mul_p: [*elementwise_samples(2, (*FLOATS, *COMPLEX)), Sample(FACTORS, OTHERS, without=NOT_SMOOTH)],
    strong_div_p: [*elementwise_samples(2, (*FLOATS, *COMPLEX), (-2, 2), (0.5, 2)),
                   Sample(FACTORS, np.array([0.0, NAN, 0.0, INF, INF, 0.0, 1.0, 5.0]), without=NOT_SMOOTH)],
    strong_dot_general_p: [
        contracted((), (), ((), ())), contracted((2,), (3,), ((), ())), contracted((3,), (3,), ((0,), (0,))),
        contracted((0,), (0,), ((0,), (0,))), contracted((1,), (1,), ((0,), (0,))),
        contracted((2, 3), (3, 4), MATRIX), contracted((2, 0), (0, 4), MATRIX),
        contracted((3, 2), (4, 3), ((0,), (1,))), contracted((2, 3, 4), (3, 5, 2), ((1, 0), (0, 2))),
        contracted((3, 2, 4), (4, 5, 2), ((2,), (0,)), ((1,), (2,))),
        contracted((2, 3), (3, 4), MATRIX, dtype="float32"), contracted((2, 3), (3, 4), MATRIX, dtype="bfloat16"),
        *(contracted((2, 3), (3, 4), MATRIX, dtype=dtype, slow=True) for dtype in ("float16", "complex64")),
        Sample(ROWS, COLUMNS, params=PARAMS, without=NOT_SMOOTH),
        Sample(COLUMNS, ROWS, params=PARAMS, without=NOT_SMOOTH),
    ],
}
