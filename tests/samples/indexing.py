"""Samples of indexing: fxgrad/engine/ops/{index,dynamic}.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p
from fxgrad.engine.ops.indexing import (
    gather_p,
    scatter_add_p,
    scatter_max_p,
    scatter_min_p,
    scatter_mul_p,
    scatter_p,
    scatter_sub_p,
)
from fxgrad.engine.ops.windows import Windows
from tests.samples import Draw, Sample

Shape = tuple[int, ...]
OTHERS = ("float32", "bfloat16", "float16", "complex64", "int32", "int64", "uint8", "bool")
NUMERIC = OTHERS[:-1]


def integers(*values: Any, dtype: str = "int32") -> Any:
    return np.array(values, dtype)


class Case:
    """A way to address windows: shape of the array, indices, numbers, sizes of the windows; whether none repeats."""

    def __init__(self, shape: Shape, indices: Any, windows: Windows, sizes: Shape, mode: str = "checked",
                 unique: bool = False) -> None:
        self.shape, self.indices, self.windows, self.sizes = shape, np.asarray(indices), windows, sizes
        self.mode, self.unique = mode, unique

    def gathered(self, dtype: str = "float64", **rest: Any) -> Sample:
        params = {**self.windows._asdict(), "slice_sizes": self.sizes, "mode": self.mode, "fill_value": None,
                  "promises": ("unique",) if self.unique else ()}
        # A NaN for what is out of range is no sum of columns.
        return Sample(Draw(self.shape, dtype), self.indices, params=params, fixed=(1,), **rest)

    def scattered(self, dtype: str = "float64", **rest: Any) -> Sample:
        windows = self.windows
        updates = windows.result_shape(self.sizes, self.indices.shape[:-1])
        params = {"update_window_dims": windows.offset_dims, "inserted_window_dims": windows.collapsed_slice_dims,
                  "scatter_dims_to_operand_dims": windows.start_index_map,
                  "operand_batching_dims": windows.operand_batching_dims,
                  "scatter_indices_batching_dims": windows.start_indices_batching_dims,
                  "mode": self.mode, "promises": ("unique",) if self.unique else ()}
        return Sample(Draw(self.shape, dtype), self.indices, Draw(updates, dtype), params=params, fixed=(1,), **rest)


ROWS = Windows((1,), (0,), (0,))
COLUMNS = Windows((0,), (1,), (1,))
ELEMENTS = Windows((), (0,), (0,))
PAIRS = Windows((), (0, 1), (0, 1))

UNIQUE = [
    Case((), np.zeros((0,), np.int32), Windows((), (), ()), (), unique=True),
    Case((4,), integers(1), ELEMENTS, (1,)), Case((1,), integers([0]), ELEMENTS, (1,), unique=True),
    Case((4,), integers([2], [0]), ELEMENTS, (1,), unique=True),
    Case((4, 3), integers([2], [-1]), ROWS, (1, 3), unique=True),
    Case((3, 4), integers([3], [0]), COLUMNS, (3, 1), unique=True),
    Case((4, 3), integers([2, 1], [-1, 0]), PAIRS, (1, 1), unique=True),
    Case((5, 4), integers(3, 1), Windows((0, 1), (), (0, 1)), (2, 3)),
    Case((6, 4), integers([0, 1], [3, 2]), Windows((1, 2), (), (0, 1)), (2, 2), unique=True),
    Case((3, 4), integers([[1]], [[3]], [[0]]), Windows((), (1,), (1,), (0,), (0,)), (1, 1), unique=True),
    Case((2, 3, 4), integers([[1], [0]], [[2], [1]], [[0], [2]]), Windows((2,), (1,), (1,), (0,), (1,)), (1, 1, 4),
         unique=True),
    Case((2, 3, 2), integers([1], [0]), Windows((1, 2), (1,), (1,)), (2, 1, 2), unique=True),
    Case((4, 3), np.zeros((0, 1), np.int32), ROWS, (1, 3), unique=True),
]
CLIPPED = [
    Case((4,), integers([7], [1]), ELEMENTS, (1,), "clip", unique=True),
    Case((4, 3), integers([9], [-3]), ROWS, (1, 3), "clip", unique=True),
    Case((5, 4), integers(-2, 9), Windows((0, 1), (), (0, 1)), (2, 3), "clip"),
    Case((4, 3), integers([2], [0]), ROWS, (1, 3), "promise_in_bounds", unique=True),
    Case((300,), integers([-1], [3], dtype="int8"), ELEMENTS, (1,), unique=True),
    Case((4,), integers([3], [0], dtype="uint32"), ELEMENTS, (1,), unique=True),
    Case((4,), integers([3], [0], dtype="int64"), ELEMENTS, (1,), unique=True),
]
DROPPED = [
    Case((4,), integers([7], [1], [-1]), ELEMENTS, (1,), "fill", unique=True),
    Case((4, 3), integers([9], [-3], [2]), ROWS, (1, 3), "fill", unique=True),
    Case((5, 4), integers([4, 0], [1, 1]), Windows((1, 2), (), (0, 1)), (2, 3), "fill", unique=True),
    Case((3, 4), integers([[1]], [[4]], [[0]]), Windows((), (1,), (1,), (0,), (0,)), (1, 1), "fill", unique=True),
]
REPEATED = [
    Case((4,), integers([2], [0], [2]), ELEMENTS, (1,)),
    Case((4, 3), integers([2], [1], [2], [2]), ROWS, (1, 3)),
    Case((3, 4), integers([[1], [1]], [[3], [0]], [[0], [0]]), Windows((), (1,), (1,), (0,), (0,)), (1, 1)),
    Case((6,), integers([0], [1], [3]), Windows((1,), (), (0,)), (2,)),
    Case((2, 4, 3), integers([[1, 1], [0, 2]], [[1, 1], [1, 1]]), Windows((1,), (0, 1), (0, 1)), (1, 1, 3)),
]
NAN = dict.fromkeys(("jvp", "transpose", "second_order"), "out of range is NaN")


def at(shape: Shape, sizes: Shape, *starts: int, dtype: str = "float64", **rest: Any) -> Sample:
    return Sample(Draw(shape, dtype), *(np.int32(start) for start in starts), params={"slice_sizes": sizes},
                  fixed=range(1, len(starts) + 1), **rest)


def updated(shape: Shape, sizes: Shape, *starts: int, dtype: str = "float64", **rest: Any) -> Sample:
    return Sample(Draw(shape, dtype), Draw(sizes, dtype), *(np.int32(start) for start in starts),
                  fixed=range(2, len(starts) + 2), **rest)


PLACES: list[tuple[Any, ...]] = [
    ((), ()), ((0,), (0,), 0), ((1,), (1,), 0), ((5,), (2,), 1), ((5,), (2,), 4), ((5,), (2,), -3), ((5,), (0,), 2),
    ((3, 4), (2, 3), 1, 0), ((3, 4), (3, 1), 7, -7), ((2, 3, 4), (1, 2, 2), 1, 1, 1),
]

SAMPLES: dict[Primitive, list[Sample]] = {
    gather_p: [
        *(case.gathered() for case in UNIQUE + CLIPPED + REPEATED),
        *(case.gathered(without=NAN) for case in DROPPED),
        *(UNIQUE[4].gathered(dtype, slow=True) for dtype in OTHERS),
        *(DROPPED[1].gathered(dtype, slow=True, without=NAN) for dtype in OTHERS),
    ],
    scatter_p: [
        *(case.scattered() for case in UNIQUE + CLIPPED + DROPPED + REPEATED[:3]),
        *(UNIQUE[4].scattered(dtype, slow=True) for dtype in OTHERS),
    ],
    scatter_add_p: [
        *(case.scattered() for case in UNIQUE + CLIPPED + DROPPED + REPEATED),
        *(REPEATED[1].scattered(dtype, slow=True) for dtype in NUMERIC),
    ],
    scatter_sub_p: [
        *(case.scattered() for case in UNIQUE[:6] + CLIPPED[:2] + DROPPED[:2] + REPEATED),
        *(REPEATED[1].scattered(dtype, slow=True) for dtype in NUMERIC),
    ],
    scatter_mul_p: [
        *(case.scattered() for case in UNIQUE[:6] + CLIPPED[:2] + DROPPED[:2] + REPEATED),
        *(REPEATED[1].scattered(dtype, slow=True) for dtype in NUMERIC),
    ],
    scatter_min_p: [
        *(case.scattered() for case in UNIQUE[:6] + CLIPPED[:2] + DROPPED[:2] + REPEATED),
        *(REPEATED[1].scattered(dtype, slow=True) for dtype in OTHERS if dtype != "complex64"),
    ],
    scatter_max_p: [
        *(case.scattered() for case in UNIQUE[:6] + CLIPPED[:2] + DROPPED[:2] + REPEATED),
        *(REPEATED[1].scattered(dtype, slow=True) for dtype in OTHERS if dtype != "complex64"),
    ],
    dynamic_slice_p: [
        *(at(*place) for place in PLACES), *(at(*PLACES[7], dtype=dtype, slow=True) for dtype in OTHERS),
    ],
    dynamic_update_slice_p: [
        *(updated(*place) for place in PLACES), *(updated(*PLACES[7], dtype=dtype, slow=True) for dtype in OTHERS),
    ],
}
