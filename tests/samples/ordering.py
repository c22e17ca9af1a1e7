"""Samples of `fxgrad.engine.ops.ordering`."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.ordering import sort_p
from tests.samples import COMPLEX, INTEGER, REAL, Draw, Sample, no_derivatives

ONE = {"dimension": 0, "num_keys": 1}
peculiar = np.array([3.0, np.nan, -np.inf, 0.0, -0.0, 1.0, np.inf, np.nan, -0.0])
KINKS = no_derivatives("ties and NaNs") | {"batch": "a batch is made by scaling, which moves ties"}

SAMPLES: dict[Primitive, list[Sample]] = {
    sort_p: [
        *(Sample(Draw(shape), params={"dimension": dimension, "num_keys": 1})
          for shape, dimension in (((0,), 0), ((1,), 0), ((5,), 0), ((2, 3), 0), ((2, 3), 1), ((3, 0), 0))),
        *(Sample(Draw((3, 5), dtype), params={"dimension": 1, "num_keys": 1}, slow=index > 1)
          for index, dtype in enumerate((*REAL[1:], *COMPLEX, *INTEGER, "bool"))),
        Sample(Draw((7,), "int32", 0, 2), Draw((7,)), params=ONE),
        Sample(Draw((7,)), Draw((7,)), Draw((7,), "int32"), params=ONE),
        Sample(Draw((2, 7), "int32", 0, 2), Draw((2, 7)), Draw((2, 7)), params={"dimension": 1, "num_keys": 2}),
        Sample(Draw((7,), "int32", 0, 2), Draw((7,), "bool"), Draw((7,), "int32"), Draw((7,)),
               params={"dimension": 0, "num_keys": 3}),
        *(Sample(peculiar.astype(dtype), np.arange(9), params=ONE, without=KINKS)
          for dtype in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16)),
        Sample(peculiar, np.arange(9)[::-1].copy(), params={"dimension": 0, "num_keys": 2}, without=KINKS),
    ],
}
