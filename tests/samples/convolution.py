"""Samples of convolutions: fxgrad/engine/ops/convolution.py."""

from __future__ import annotations

from typing import Any

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.dtypes import SUPPORTED
from fxgrad.engine.ops.convolution import conv_general_dilated_p
from tests.samples import Draw, Sample

Shape = tuple[int, ...]


def slid(lhs: Shape, rhs: Shape, strides: Shape | None = None, padding: Any = None, holes: Shape | None = None,
         kernel_holes: Shape | None = None, numbers: Any = None, features: int = 1, batches: int = 1,
         dtype: str = "float64", preferred: str | None = None, **rest: Any) -> Sample:
    rank = len(lhs) - 2
    one, order = (1,) * rank, tuple(range(len(lhs)))
    params = {"window_strides": strides or one, "padding": padding or ((0, 0),) * rank, "lhs_dilation": holes or one,
              "rhs_dilation": kernel_holes or one, "dimension_numbers": numbers or (order, order, order),
              "feature_group_count": features, "batch_group_count": batches, "precision": None,
              "preferred_element_type": preferred and SUPPORTED[preferred]}
    return Sample(Draw(lhs, dtype), Draw(rhs, dtype), params=params, **rest)


LAST = ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
ODD = ((2, 0, 3, 1), (1, 3, 0, 2), (3, 1, 0, 2))
DTYPES = ("float16", "bfloat16", "complex64", "complex128", "int32", "int64", "int8", "uint8", "bool")

SAMPLES: dict[Primitive, list[Sample]] = {
    conv_general_dilated_p: [
        slid((2, 3), (4, 3)), slid((1, 1), (1, 1)), slid((1, 1, 1), (1, 1, 1)),
        slid((2, 3, 5), (4, 3, 2), dtype="float32"), slid((2, 3, 5), (4, 3, 2)),
        slid((0, 3, 5), (4, 3, 2)), slid((2, 0, 5), (4, 0, 2)), slid((2, 3, 5), (0, 3, 2)), slid((2, 3, 0), (4, 3, 2)),
        slid((2, 3, 1), (4, 3, 2)), slid((1, 2, 0), (2, 2, 2), padding=((2, 1),)),
        slid((2, 1, 7), (3, 1, 3), (2,), ((1, 2),)), slid((2, 1, 8), (3, 1, 3), (3,), ((0, 1),)),
        slid((2, 1, 7), (3, 1, 3), padding=((-1, -2),)), slid((1, 2, 7), (2, 2, 2), (3,), ((2, -3),)),
        slid((1, 2, 5), (2, 2, 3), padding=((1, 0),), holes=(2,)), slid((1, 2, 7), (2, 2, 3), kernel_holes=(3,)),
        slid((1, 2, 6), (2, 2, 3), (2,), ((3, 2),), (3,), (2,)), slid((2, 3, 2), (1, 3, 4), padding=((5, 4),)),
        slid((2, 4, 5), (6, 2, 2), features=2), slid((2, 3, 5), (6, 1, 2), (2,), ((1, 1),), features=3),
        slid((4, 3, 5), (6, 3, 2), batches=2), slid((3, 2, 5), (3, 2, 2), (2,), ((1, 1),), (2,), batches=3),
        slid((2, 4, 5, 3), (2, 2, 3, 4), (2, 1), ((1, 0), (0, 1)), (1, 2), (2, 1), LAST, features=1, slow=True),
        slid((2, 4, 5, 2), (3, 2, 2, 4), (2, 1), ((1, 0), (0, 1)), numbers=LAST),
        slid((2, 4, 5, 4), (3, 2, 2, 6), (1, 2), ((1, 0), (0, 1)), numbers=LAST, features=2),
        slid((4, 4, 5, 2), (3, 2, 2, 6), (1, 2), ((1, 0), (0, 1)), numbers=LAST, batches=2, slow=True),
        slid((2, 5, 3, 4), (2, 4, 3, 2), (1, 2), ((1, 1), (0, 2)), (2, 1), (1, 2), ODD),
        slid((1, 2, 3, 4, 2), (2, 2, 2, 3, 1), (1, 2, 1), ((0, 1), (1, 1), (0, 0))),
        slid((1, 2, 3, 2, 3, 2), (2, 2, 2, 1, 2, 2), slow=True),
        slid((2, 3, 5), (4, 3, 2), dtype="float32", preferred="float64"),
        slid((2, 3, 5), (4, 3, 2), dtype="bfloat16", preferred="float32"),
        slid((2, 3, 5), (4, 3, 2), dtype="int8", preferred="int32"),
        *(slid((2, 2, 5), (4, 2, 2), (2,), ((1, 1),), dtype=dtype, slow=index > 2) for index, dtype in
          enumerate(DTYPES)),
        *(slid((2, 4, 5), (4, 2, 2), features=2, dtype=dtype, slow=True)
          for dtype in ("complex64", "bfloat16", "int32")),
    ],
}
