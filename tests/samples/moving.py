"""Samples of `fxgrad.engine.ops.moving`."""

from __future__ import annotations

import numpy as np

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.moving import move_p, round_to_int8_p
from tests.samples import REAL, Draw, Sample, elementwise_samples, no_derivatives

SAMPLES: dict[Primitive, list[Sample]] = {
    move_p: [Sample(Draw(shape, dtype), params={"to": to}) for shape, dtype, to in (
        ((), "float64", "host"), ((0, 2), "float64", "host"), ((2, 3), "float32", "host"), ((3,), "float64", "device"),
        ((2, 2), "complex128", "host"), ((4,), "bfloat16", "host"), ((3,), "int32", "device"), ((3,), "bool", "host"))],
    round_to_int8_p: [
        *elementwise_samples(1, REAL, (-150, 150), without=no_derivatives("it is refused")),
        Sample(np.array([0.5, 1.5, -0.5, 2.5, 126.6, 300.0, -300.0]), without=no_derivatives("it is refused"))],
}
