"""Points with infinite or undefined slopes, and the derivatives of `fxgrad.nan_safe` there."""

from __future__ import annotations

import math
from typing import NamedTuple

from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.ops import arithmetic, exponential, parts, special, trigonometric

INF, NAN = math.inf, math.nan


class SingularPoint(NamedTuple):
    """Operands of an operation, and its first and second derivative there in the operand at `place`, within `safe`.

    `because` gives the reason if it is not the limit.
    """

    operands: tuple[float, ...]
    first: float
    second: float
    place: int = 0
    because: str = ""


singular_points: Analysis[tuple[SingularPoint, ...]] = Analysis(
    "singular points", "The points of an operation at which its slope, or the slope of that, is no number.",
    missing="conservative", default=())
"""Operations without an entry have finite derivatives wherever their value is finite, or are in the table of array
operations in docs/appendix/nan-gradients.md. If the incoming cotangent or tangent is 0, all of these are 0.
"""

LEAST, PAIR = "the least of all subgradients", "no limit: 0, the mean of all directions"
ODD = "it goes to both infinities, and the mean is taken"
singular_points.enter((SingularPoint((0.0,), INF, -INF),), exponential.sqrt_p, exponential.log_p)
singular_points.enter((SingularPoint((0.0,), -INF, INF),), exponential.rsqrt_p)
singular_points.enter((SingularPoint((0.0,), INF, 0.0, because=ODD),), exponential.cbrt_p)
singular_points.enter((SingularPoint((-1.0,), INF, -INF),), exponential.log1p_p)
singular_points.enter((SingularPoint((1.0, 0.0), -INF, INF, 1, "that from above"),
                       SingularPoint((0.0, 0.0), NAN, NAN, 1, "the value is a NaN")), arithmetic.div_p)
singular_points.enter((SingularPoint((0.0, 0.5), INF, -INF), SingularPoint((0.0, 1.5), 0.0, INF),
                       SingularPoint((0.0, 0.0), 0.0, 0.0),
                       SingularPoint((0.0, 0.5), 0.0, 0.0, 1)), exponential.pow_p)
singular_points.enter((SingularPoint((1.0,), INF, INF), SingularPoint((-1.0,), INF, -INF)), trigonometric.asin_p)
singular_points.enter((SingularPoint((1.0,), -INF, -INF), SingularPoint((-1.0,), -INF, INF)), trigonometric.acos_p)
singular_points.enter((SingularPoint((1.0,), INF, INF),), trigonometric.atanh_p)
singular_points.enter((SingularPoint((1.0,), INF, -INF),), trigonometric.acosh_p)
singular_points.enter((SingularPoint((0.0, 0.0), 0.0, 0.0, 0, PAIR), SingularPoint((0.0, 0.0), 0.0, 0.0, 1, PAIR)),
                      trigonometric.atan2_p)
singular_points.enter((SingularPoint((0.0, 0.0), 0.0, 0.0, 0, "the length of a vector: " + LEAST),),
                      trigonometric.hypot_p)
singular_points.enter((SingularPoint((0.0,), 0.0, 0.0, because=LEAST),), parts.abs_p)
singular_points.enter((SingularPoint((1.0, 1.0), 0.5, 0.0, because="one half for each of two that are equal"),),
                      arithmetic.max_p, arithmetic.min_p)
singular_points.enter((SingularPoint((0.0, 0.0), -INF, 0.0),
                       SingularPoint((0.0, 0.0), 0.0, 0.0, 1, "x / y where x is 0")),
                      special.xlogy_p)
singular_points.enter((SingularPoint((0.0, -1.0), -INF, 0.0),
                       SingularPoint((0.0, -1.0), 0.0, 0.0, 1, "x / (1 + y) where x is 0")),
                      special.xlog1py_p)
singular_points.enter((SingularPoint((0.0,), INF, -INF),), special.entr_p)
singular_points.enter((SingularPoint((1.0,), INF, INF),), special.erf_inv_p)
singular_points.enter((SingularPoint((0.0,), INF, -INF),), special.ndtri_p)
singular_points.enter((SingularPoint((-INF, -INF), 0.5, 0.0, because="one half for each of two that are equal"),),
                      exponential.logaddexp_p)
