"""Samples of windows slid over arrays: fxgrad/engine/ops/pool.py."""

from __future__ import annotations

from typing import Any

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.pool import (
    Sliding,
    reduce_window_max_p,
    reduce_window_min_p,
    reduce_window_sum_p,
    select_and_gather_add_p,
    select_and_scatter_add_p,
)
from tests.samples import COMPLEX, INTEGER, REAL, Draw, Sample

Shape = tuple[int, ...]


def windows(window: Shape, strides: Shape | None = None, padding: Any = None, holes: Shape | None = None,
            window_holes: Shape | None = None) -> Sliding:
    one = (1,) * len(window)
    return Sliding(window, strides or one, padding or ((0, 0),) * len(window), holes or one, window_holes or one)


CASES: list[tuple[Shape, Sliding]] = [
    ((), windows(())), ((1,), windows((1,))), ((5,), windows((2,))), ((0,), windows((2,))), ((2,), windows((3,))),
    ((6,), windows((3,), (2,), ((1, 1),))), ((7,), windows((2,), (3,), ((2, 0),))),
    ((7,), windows((3,), padding=((-1, -2),))), ((5,), windows((3,), (2,), ((1, 2),), (2,))),
    ((7,), windows((3,), (1,), ((1, 1),), window_holes=(2,))),
    ((6,), windows((2,), (2,), ((3, 1),), (3,), (2,))),
    ((3, 4), windows((2, 2))), ((4, 5), windows((2, 3), (2, 1), ((0, 1), (1, 1)))), ((3, 0), windows((2, 2))),
    ((4, 3), windows((3, 1), (1, 2), ((1, 1), (0, 0)), (1, 2), (2, 1))),
    ((2, 4, 3), windows((1, 2, 2), (1, 2, 1))),
]


def samples(place: int = 0, dtypes: tuple[str, ...] = REAL[1:], **params: Any) -> list[Sample]:
    """Every case in float64 and one in each of the others; with `place` 1 the first of two arrays has that shape."""
    def sample(shape: Shape, sliding: Sliding, dtype: str = "float64", slow: bool = False) -> Sample:
        given = {**sliding._asdict(), **params}
        if not params:
            return Sample(Draw(shape, dtype), params=given, slow=slow)
        first = sliding.result_shape(shape) if place else shape
        return Sample(Draw(first, dtype), Draw(shape, dtype), params=given, slow=slow)

    return [*(sample(*case, slow=index > 11 and index % 2 == 1) for index, case in enumerate(CASES)),
            *(sample(*CASES[12], dtype, slow=index > 1) for index, dtype in enumerate(dtypes))]


SAMPLES: dict[Primitive, list[Sample]] = {
    reduce_window_sum_p: samples(dtypes=(*REAL[1:], *COMPLEX, *INTEGER)),
    reduce_window_max_p: samples(dtypes=(*REAL[1:], *INTEGER, "bool")),
    reduce_window_min_p: samples(dtypes=(*REAL[1:], *INTEGER, "bool")),
    select_and_gather_add_p: [*samples(greatest=True), *samples(greatest=False)[4:]],
    select_and_scatter_add_p: [*samples(1, greatest=True), *samples(1, greatest=False)[4:]],
}
