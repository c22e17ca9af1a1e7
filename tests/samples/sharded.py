"""Samples of `fxgrad.engine.ops.varying`, over mesh axes of size 1, and of `fxgrad.engine.parallel.shard_map`.

What they mean over more devices is tested against jax in `tests/engine/parallel/test_shard_map.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.trigonometric import sin
from fxgrad.engine.ops.varying import psum_invariant_p, pvary_p, take_equal_p
from fxgrad.engine.parallel.layouts import Layout
from fxgrad.engine.parallel.meshes import MeshShape
from fxgrad.engine.parallel.shard_map import shard_map_p
from fxgrad.engine.tracing.trace import UNSHARED, trace_at
from tests.samples import Draw, Sample
from tests.samples.collective import DTYPES, SHAPES
from tests.samples.control import NARROW, body

OVER = {"axis_name": ("i",), "axis_size": (1,)}


def unary(params: dict[str, Any]) -> list[Sample]:
    return [Sample(Draw(shape), params=params) for shape in SHAPES] + [
        Sample(Draw((2, 3), dtype), params=params) for dtype in DTYPES[1:]]


def mapped(shape: tuple[int, ...], dtype: str = "float64", *, check_vma: bool = True, function: Any = body) -> Sample:
    """`function` on pieces along the first axis of both operands, on two devices."""
    spec = (("i",), *[()] * (len(shape) - 1)) if shape else ()
    layout = Layout(MeshShape(("i",), (2,), "0-1", "cpu"), (spec, spec), (spec, spec), ("i",), check_vma)
    piece = layout.piece(Aval(shape, np.dtype(dtype)), spec)
    program = trace_at(lambda x, y: function(x, y), [piece, piece], mode=UNSHARED)[0]
    return Sample(Draw(shape, dtype), Draw(shape, dtype), params={"program": program, **layout._asdict()},
                  without=NARROW if dtype == "float32" else {})


SAMPLES: dict[Primitive, list[Sample]] = {
    pvary_p: unary({"axis_name": ()}), psum_invariant_p: unary(OVER), take_equal_p: unary(OVER),
    shard_map_p: [mapped(()), mapped((0,)), mapped((2, 3)), mapped((4, 1), "float32", check_vma=False),
                  mapped((2,), function=lambda x, y: [sin(x), x])],  # with an operand that it does not use
}
