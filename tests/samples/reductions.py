"""Samples of `fxgrad.engine.ops.reductions`, and of `reduce_sum`."""

from __future__ import annotations

import numpy as np

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.reductions import (
    argmax_p,
    argmin_p,
    attains_p,
    reduce_and_p,
    reduce_max_p,
    reduce_min_p,
    reduce_or_p,
    reduce_prod_p,
    reduce_xor_p,
)
from tests.samples import COMPLEX, INTEGER, REAL, Draw, Sample, no_derivatives

CASES = [((), ()), ((0,), (0,)), ((1,), (0,)), ((5,), (0,)), ((2, 3), ()), ((2, 3), (0,)), ((2, 3), (1,)),
         ((2, 3), (0, 1)), ((2, 3, 4), (0, 2)), ((3, 0), (0,)), ((3, 0), (1,))]


def reduced(*dtypes: str) -> list[Sample]:
    """Several axes and sizes."""
    return [Sample(Draw(shape, dtype), params={"axes": axes}, slow=index > 1)
            for index, dtype in enumerate(dtypes) for shape, axes in (CASES if not index else [*CASES[6:8], CASES[9]])]


def nonempty(samples: list[Sample]) -> list[Sample]:
    """Those that XLA takes: it has no infinite complex number to begin with."""
    return [sample for sample in samples if sample.specs[0].dtype.kind != "c" or 0 not in sample.specs[0].shape]


def positions() -> list[Sample]:
    """Axes, dtypes of data and result, ties and NaNs."""
    int32, cases = np.dtype(np.int32), [((1,), 0), ((5,), 0), ((2, 3), 0), ((2, 3), 1), ((0, 3), 1)]
    return [*(Sample(Draw(shape), params={"axis": axis, "index_dtype": int32}) for shape, axis in cases),
            *(Sample(Draw((3, 4), dtype), params={"axis": 0, "index_dtype": int32}, slow=index > 0)
              for index, dtype in enumerate((*REAL[1:], *INTEGER, "bool"))),
            Sample(Draw((3, 4)), params={"axis": 1, "index_dtype": np.dtype(np.int64)}),
            Sample(Draw((3, 4)), params={"axis": 1, "index_dtype": np.dtype(np.uint8)}),
            *(Sample(np.array([[1, np.nan, 3, np.nan], [np.inf, 2, np.inf, 0]]).astype(dtype),
                     params={"axis": 1, "index_dtype": int32}) for dtype in ("float64", "float32", "float16")),
            Sample(np.array([2.0, 1.0, 2.0, 1.0]), params={"axis": 0, "index_dtype": int32}),
            Sample(np.array([0.0, -0.0]), params={"axis": 0, "index_dtype": int32}),
            Sample(np.array([-0.0, 0.0]), params={"axis": 0, "index_dtype": int32})]


def attained() -> list[Sample]:
    """Rows with ties, NaNs and infinities, over one axis, several, and none.

    The fourth, of which a law draws other numbers, has no row that these could leave without its extremum.
    """
    rows = np.array([[1, 3, 3], [np.nan, 2, 1], [np.inf, 0, np.inf], [-np.inf, -np.inf, -np.inf]])
    cases = [(rows, rows.max(1, keepdims=True)), (rows[::2], rows[::2].max(keepdims=True)),
             (rows.T.copy(), rows.T.max(0, keepdims=True)), (Draw((2, 3)), Draw((2, 3))), (rows, rows),
             (np.zeros((0, 3)), np.zeros((0, 1)))]
    return [*(Sample(x, out, params={"greatest": True}) for x, out in cases),
            *(Sample(x.astype(dtype), out.astype(dtype), params={"greatest": True}, slow=True)
              for dtype in REAL[1:] for x, out in cases[:1]),
            *(Sample(rows[:2].astype(dtype), np.array([[3], [np.nan]], dtype), params={"greatest": True}, slow=True)
              for dtype in COMPLEX),
            *(Sample(np.array([[3, 1, 1], [2, 2, 2]], dtype), np.array([[1], [2]], dtype), params={"greatest": False},
                     slow=index > 0) for index, dtype in enumerate(INTEGER)),
            Sample(-rows, (-rows).min(1, keepdims=True), params={"greatest": False}),
            Sample(np.array([True, False]), np.array([True]), params={"greatest": True})]


EXTREMA = [*nonempty(reduced(*REAL, *COMPLEX, *INTEGER, "bool")),
           Sample(np.array([1, np.nan, 3]), params={"axes": (0,)}, without=no_derivatives("a NaN"))]
LOGIC = reduced("bool", *INTEGER)

SAMPLES: dict[Primitive, list[Sample]] = {
    reduce_prod_p: [*reduced(*REAL, *COMPLEX, *INTEGER),
                    *(Sample(np.array([[2.0, 0.0, 3.0], [0.0, 0.0, 5.0]]), params={"axes": axes})
                      for axes in ((0,), (1,), (0, 1)))],
    reduce_max_p: EXTREMA,
    reduce_min_p: EXTREMA,
    reduce_and_p: LOGIC,
    reduce_or_p: LOGIC,
    reduce_xor_p: LOGIC,
    argmax_p: positions(),
    argmin_p: positions(),
    attains_p: attained(),
}
