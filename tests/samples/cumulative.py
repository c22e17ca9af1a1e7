"""Samples of `fxgrad.engine.ops.cumulative`."""

from __future__ import annotations

import numpy as np

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.cumulative import cumlogsumexp_p, cummax_p, cummin_p, cumprod_p, cumsum_p, linear_recurrence_p
from tests.samples import COMPLEX, INTEGER, REAL, Draw, Sample, no_derivatives


def running(arity: int, *dtypes: str, low: float | None = None, high: float | None = None) -> list[Sample]:
    """Both directions, several axes and sizes."""
    samples = []
    cases = [((0,), 0), ((1,), 0), ((5,), 0), ((2, 3), 0), ((2, 3), 1), ((3, 0), 0), ((3, 0), 1), ((2, 9, 2), 1)]
    for index, dtype in enumerate(dtypes):
        for shape, axis in cases if not index else cases[4:5]:
            for reverse in (False, True):
                drawn = [Draw(shape, dtype, low, high) for _ in range(arity)]
                samples.append(Sample(*drawn, params={"axis": axis, "reverse": reverse}, slow=index > 1))
    return samples


FORWARD = {"axis": 0, "reverse": False}
PECULIAR = Sample(np.array([1, np.nan, 3]), params=FORWARD, without=no_derivatives("a NaN"))

SAMPLES: dict[Primitive, list[Sample]] = {
    linear_recurrence_p: running(2, *REAL, *COMPLEX, *INTEGER),
    cumsum_p: running(1, *REAL, *COMPLEX, *INTEGER),
    cumprod_p: [*running(1, *REAL, *COMPLEX, *INTEGER), Sample(np.array([2.0, 0.0, 3.0, 0.0, 5.0]), params=FORWARD),
                Sample(np.array([[2.0, 0.0], [0.0, 3.0]]), params={"axis": 1, "reverse": True})],
    cummax_p: [*running(1, *REAL, *COMPLEX, *INTEGER), PECULIAR],
    cummin_p: [*running(1, *REAL, *COMPLEX, *INTEGER), PECULIAR],
    cumlogsumexp_p: [*running(1, *REAL), Sample(np.array([-np.inf, -np.inf, 0.0, 800.0]), params=FORWARD, without={
        "jvp": "infinities", "second": "infinities"})],
}
