"""Samples of `fxgrad.engine.ops.topk`."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.topk import top_k_p
from tests.samples import INTEGER, REAL, Draw, Sample, no_derivatives

peculiar = np.array([3.0, np.nan, -np.inf, 0.0, -0.0, 1.0, np.inf, -np.nan, -0.0, 0.0, 1.0])
KINKS = no_derivatives("ties and NaNs") | {"batch": "a batch is made by scaling, which moves ties"}

SAMPLES: dict[Primitive, list[Sample]] = {
    top_k_p: [
        *(Sample(Draw(shape), params={"k": k, "axis": axis})
          for shape, k, axis in (((0,), 0, 0), ((1,), 1, 0), ((5,), 2, 0), ((2, 3), 1, 0), ((2, 3), 3, 1),
                                 ((3, 0), 2, 0), ((4, 3), 0, 0), ((40, 3), 3, 0), ((2, 50, 3), 4, 1))),
        *(Sample(Draw((3, 5), dtype), params={"k": 2, "axis": 1}, slow=index > 1)
          for index, dtype in enumerate((*REAL[1:], *INTEGER, "bool"))),
        # many ties: the first come first
        Sample(Draw((60,), "int32", 0, 3), params={"k": 7, "axis": 0}),
        Sample(Draw((3, 60), "int8", 0, 3), params={"k": 4, "axis": 1}),
        *(Sample(peculiar.astype(dtype), params={"k": k, "axis": 0}, without=KINKS)
          for dtype, k in ((np.float64, 11), (np.float64, 1), (np.float32, 8), (np.float16, 11),
                           (ml_dtypes.bfloat16, 9))),
    ],
}
