"""Samples of `fxgrad.engine.ops.select`."""

from __future__ import annotations

import numpy as np

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.select import clamp_p, select_n_p
from tests.samples import COMPLEX, INTEGER, REAL, Draw, Sample, elementwise_samples

SAMPLES: dict[Primitive, list[Sample]] = {
    select_n_p: [
        *(Sample(Draw(shape, "bool"), Draw(shape), Draw(shape)) for shape in ((), (0,), (1,), (2, 3))),
        *(Sample(Draw(shape, "int32", 0, 2), Draw(shape), Draw(shape), Draw(shape)) for shape in ((), (0,), (2, 3))),
        Sample(Draw((), "bool"), Draw((2, 3)), Draw((2, 3))),
        Sample(Draw((2, 1), "bool"), Draw((3,)), Draw(())),
        Sample(Draw((2, 3), "bool"), Draw(()), Draw((1, 3))),
        Sample(Draw((2, 3), "bool"), Draw((2, 3))),
        Sample(np.array([-4, 0, 1, 2, 7], np.int32), Draw((5,)), Draw((2, 1)), Draw(())),
        Sample(Draw((2, 3), "int32", 0, 1), Draw((2, 3)), Draw((2, 3))),
        *(Sample(Draw((2, 3), "bool"), Draw((2, 3), dtype), Draw((3,), dtype), slow=index > 1)
          for index, dtype in enumerate((*REAL[1:], *COMPLEX, *INTEGER, "bool"))),
        *(Sample(Draw((4,), "int32", 0, 2), *(Draw((4,), dtype) for _ in range(3)), slow=True)
          for dtype in (*REAL[1:], *COMPLEX, *INTEGER, "bool")),
    ],
    clamp_p: [
        *elementwise_samples(3, REAL, (-1, -0.5), (-2, 2), (0.5, 1)),
        *elementwise_samples(3, (*INTEGER, "bool"), (0, 1), (0, 9), (2, 4)),
        Sample(Draw((5,), low=0.5, high=1), Draw((5,)), Draw((5,), low=-1, high=-0.5)),
        Sample(np.array([0, np.nan, 0, -np.inf]), np.array([np.nan, 0, 0, -9.0]), np.array([1, 1, np.nan, np.inf])),
    ],
}
