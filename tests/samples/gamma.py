"""Samples of `engine.ops.gamma`, `hypergeometric` and `integrals`, which are compiled: few are in the quick tier."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.gamma import (
    betaln_p,
    igamma_grad_a_p,
    igamma_p,
    igammac_p,
    random_gamma_grad_p,
    zeta_p,
)
from fxgrad.engine.ops.hypergeometric import (
    betainc_grad_a_p,
    betainc_grad_b_p,
    hyp1f1_grad_a_p,
    hyp1f1_grad_b_p,
    hyp1f1_p,
    hyp2f1_grad_a_p,
    hyp2f1_grad_c_p,
    hyp2f1_p,
    regularized_incomplete_beta_p,
)
from fxgrad.engine.ops.integrals import (
    cosine_integral_p,
    dawsn_p,
    erfcx_p,
    exp1_p,
    expi_p,
    expn_p,
    fresnel_cosine_p,
    fresnel_sine_p,
    owens_t_p,
    sine_integral_p,
    spence_p,
    wofz_p,
)
from tests.samples import Draw, Sample, no_derivatives

Range = tuple[float, float]


def samples(*ranges: Range, dtypes: tuple[str, ...] = ("float64", "float32"), **rest: Any) -> list[Sample]:
    """A matrix in the quick tier; a scalar, sizes 0 and 1, a broadcast and another dtype in the slow one."""
    def drawn(dtype: str, *shapes: tuple[int, ...]) -> list[Draw]:
        return [Draw(shapes[min(place, len(shapes) - 1)], dtype, *limits) for place, limits in enumerate(ranges)]

    shapes: list[list[tuple[int, ...]]] = [[()], [(0,)], [(1,)], [(3,), (2, 1)]]
    return [Sample(*drawn(dtypes[0], (2, 3)), **rest),
            *(Sample(*drawn(dtypes[0], *each), slow=True, **rest) for each in shapes),
            *(Sample(*drawn(dtype, (2, 3)), slow=True, **rest) for dtype in dtypes[1:])]


# The derivative in the first argument is an operation of its own, which has none in it.
NO_SECOND = {"second": "the derivative in a has no closed form to differentiate again"}
ENDS = no_derivatives("the ends of the domain")
HALVES = ("float64", "float32", "float16", "bfloat16")

SAMPLES: dict[Primitive, list[Sample]] = {
    betaln_p: [*samples((0.5, 4), (0.3, 5), dtypes=HALVES, tolerance=10),
               Sample(np.array([1e7, 1e9, 0.5, np.inf]), np.array([0.5, 3.0, 2e4, 1.0]),
                      without=no_derivatives("differences of large numbers"), slow=True)],
    igamma_p: [*samples((0.5, 4), (0.3, 5), dtypes=HALVES, without=NO_SECOND, tolerance=10),
               Sample(Draw((2, 3), low=0.5, high=4), Draw((2, 3), low=0.3, high=5), fixed=[0]),
               Sample(np.array([1.0, 2.0, -1.0, np.nan]), np.array([0.0, np.inf, 1.0, 1.0]), without=ENDS)],
    igammac_p: [*samples((0.5, 4), (0.3, 5), dtypes=HALVES, without=NO_SECOND, tolerance=10),
                Sample(Draw((2, 3), low=0.5, high=4), Draw((2, 3), low=0.3, high=5), fixed=[0]),
                Sample(np.array([1.0, 2.0, -1.0, np.nan]), np.array([0.0, np.inf, 1.0, 1.0]), without=ENDS)],
    # A derivative of a series by its terms has fewer digits than the series.
    igamma_grad_a_p: samples((0.5, 4), (0.3, 5), dtypes=HALVES, fixed=[0], tolerance=100),
    random_gamma_grad_p: samples((0.5, 4), (0.3, 5), dtypes=HALVES, fixed=[0], tolerance=100),
    zeta_p: [*samples((1.5, 6), (0.5, 5), dtypes=HALVES, tolerance=10),
             Sample(np.array([1.0, 0.5, 2.0]), np.array([1.0, 1.0, -1.0]), without=ENDS)],
    regularized_incomplete_beta_p: [
        *samples((0.5, 4), (0.5, 4), (0.1, 0.9), dtypes=HALVES, without=NO_SECOND, tolerance=10),
        Sample(np.array([1.0, 2.0]), np.array([2.0, 3.0]), np.array([0.0, 1.0]), without=ENDS)],
    erfcx_p: samples((-2, 4)),
    dawsn_p: samples((-3, 3)),
    owens_t_p: samples((-2, 2), (-2, 2)),
    wofz_p: samples((0.2, 2), dtypes=("complex128", "complex64")),
    exp1_p: samples((0.3, 5)),
    expi_p: samples((0.3, 5)),
    expn_p: [Sample(Draw(left, dtype, 1, 4, whole=True), Draw(right, dtype, 0.3, 5), fixed=[0],
                    slow=left != (2, 3) or dtype != "float64")
             for left, right, dtype in (
                 ((2, 3), (2, 3), "float64"), ((), (), "float64"), ((0,), (0,), "float64"), ((1,), (1,), "float64"),
                 ((2, 1), (3,), "float64"), ((2, 3), (2, 3), "float32"))],
    # The polynomials that these are made of are good to 1e-8 or so, and their derivatives are exact.
    sine_integral_p: samples((0.3, 5)),
    cosine_integral_p: samples((0.3, 5)),
    fresnel_sine_p: samples((-1.2, 2.5)),
    fresnel_cosine_p: samples((-1.2, 2.5)),
    spence_p: samples((0.2, 3)),
    hyp1f1_p: samples((0.5, 2), (1, 3), (-2, 2), without=NO_SECOND),
    hyp2f1_p: samples((0.5, 2), (0.5, 2), (2, 4), (-0.4, 0.7), without=NO_SECOND),
    betainc_grad_a_p: samples((0.5, 4), (0.5, 4), (0.1, 0.9), dtypes=HALVES, fixed=[0, 1], tolerance=10),
    betainc_grad_b_p: samples((0.5, 4), (0.5, 4), (0.1, 0.9), dtypes=HALVES, fixed=[0, 1], tolerance=10),
    hyp1f1_grad_a_p: samples((0.5, 2), (1, 3), (-2, 2), fixed=[0, 1]),
    hyp1f1_grad_b_p: samples((0.5, 2), (1, 3), (-2, 2), fixed=[0, 1]),
    hyp2f1_grad_a_p: samples((0.5, 2), (0.5, 2), (2, 4), (-0.4, 0.7), fixed=[0, 1, 2]),
    hyp2f1_grad_c_p: samples((0.5, 2), (0.5, 2), (2, 4), (-0.4, 0.7), fixed=[0, 1, 2]),
}
