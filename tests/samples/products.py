"""Samples of dot_general: fxgrad/engine/ops/products.py."""

from __future__ import annotations

from typing import Any

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.dtypes import SUPPORTED
from fxgrad.engine.ops.products import dot_general_p
from tests.samples import Draw, Sample

Shape = tuple[int, ...]


def contracted(x: Shape, y: Shape, contract: tuple[Shape, Shape], batch: tuple[Shape, Shape] = ((), ()),
               dtype: str = "float64", preferred: str | None = None, **rest: Any) -> Sample:
    params = {"dimension_numbers": (contract, batch), "precision": None,
              "preferred_element_type": preferred and SUPPORTED[preferred]}
    return Sample(Draw(x, dtype), Draw(y, dtype), params=params, **rest)


MATRIX = ((1,), (0,))

SAMPLES: dict[Primitive, list[Sample]] = {
    dot_general_p: [
        contracted((), (), ((), ())), contracted((), (3,), ((), ())), contracted((2,), (3,), ((), ())),
        contracted((3,), (3,), ((0,), (0,))), contracted((0,), (0,), ((0,), (0,))),
        contracted((1,), (1,), ((0,), (0,))),
        contracted((2, 3), (3, 4), MATRIX), contracted((2, 0), (0, 4), MATRIX), contracted((0, 3), (3, 2), MATRIX),
        contracted((3, 2), (3, 4), ((0,), (0,))), contracted((2, 3), (4, 3), ((1,), (1,))),
        contracted((3, 2), (4, 3), ((0,), (1,))), contracted((2, 3), (3,), MATRIX),
        contracted((3,), (3, 2), ((0,), (0,))),
        contracted((3,), (2, 3), ((0,), (1,))), contracted((2, 3, 4), (4, 5), ((2,), (0,))),
        contracted((2, 3, 4), (3, 5, 2), ((1, 0), (0, 2))), contracted((2, 3), (2, 3), ((0, 1), (0, 1))),
        contracted((2, 3), (3, 2), ((0, 1), (1, 0))),
        contracted((2, 3, 4), (2, 4, 5), ((2,), (1,)), ((0,), (0,))),
        contracted((3, 2, 4), (4, 5, 2), ((2,), (0,)), ((1,), (2,))),
        contracted((2, 3, 4, 2), (2, 2, 3, 4), ((2,), (3,)), ((0, 1, 3), (0, 2, 1))),
        contracted((2, 3), (2, 3), ((1,), (1,)), ((0,), (0,))), contracted((2, 3), (2, 3), ((), ()), ((0, 1), (0, 1))),
        contracted((2, 3), (4,), ((), ())),
        contracted((2, 3), (3, 4), MATRIX, dtype="float32"), contracted((2, 3), (3, 4), MATRIX, dtype="bfloat16"),
        contracted((2, 3), (3, 4), MATRIX, dtype="float32", preferred="float64"),
        contracted((2, 3), (3, 4), MATRIX, dtype="bfloat16", preferred="float32"),
        contracted((2, 3), (3, 4), MATRIX, dtype="int8", preferred="int32"),
        *(contracted((2, 3), (3, 4), MATRIX, dtype=dtype, slow=True)
          for dtype in ("float16", "complex64", "complex128", "int32", "int8", "uint8", "int64", "bool")),
        *(contracted((2, 3, 2), (3, 2, 4), ((1,), (0,)), ((2,), (1,)), dtype=dtype, slow=True)
          for dtype in ("float16", "bfloat16", "complex64", "int32", "bool")),
        contracted((), (3,), ((), ()), dtype="bool", slow=True), contracted((3,), (3,), ((0,), (0,)), dtype="bfloat16"),
    ],
}
