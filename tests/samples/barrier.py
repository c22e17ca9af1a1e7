"""Samples of `fxgrad.engine.ops.barrier`."""

from __future__ import annotations

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.barrier import optimization_barrier_p
from tests.samples import Draw, Sample

SAMPLES: dict[Primitive, list[Sample]] = {
    optimization_barrier_p: [
        Sample(Draw(())), Sample(Draw((0,))), Sample(Draw((1,), "float32")), Sample(Draw((2, 3)), Draw((3,), "int32")),
        Sample(Draw((2,)), Draw((2, 3), "complex128")), Sample(Draw((2, 3), "bool")), Sample(Draw((4,), "bfloat16")),
    ],
}
