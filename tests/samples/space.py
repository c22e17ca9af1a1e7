"""Samples of `fxgrad.engine.ops.structural`."""

from __future__ import annotations

import numpy as np

from fxgrad import dtypes
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.structural import broadcast_to_p, convert_element_type_p, reduce_sum_p, reshape_p, transpose_p
from tests.samples import COMPLEX, INTEGER, REAL, Draw, Sample
from tests.samples.reductions import reduced

EVERY = (*REAL, *COMPLEX, *INTEGER, "bool")


def rearranged(*cases: tuple[tuple[int, ...], dict[str, tuple[int, ...]]]) -> list[Sample]:
    """All cases in float64, and the last one in every dtype."""
    shape, params = cases[-1]
    return [*(Sample(Draw(shape), params=params) for shape, params in cases),
            *(Sample(Draw(shape, dtype), params=params, slow=index > 1) for index, dtype in enumerate(EVERY[1:]))]


def converted() -> list[Sample]:
    """Every pair of dtypes."""
    cases = (((), "float64", "float32"), ((0,), "float32", "float64"), ((1,), "float32", "bfloat16"),
             ((2, 3), "float64", "int32"), ((2, 3), "complex128", "float64"), ((2, 3), "float64", "complex128"))
    samples = [Sample(Draw(shape, source), params={"dtype": dtypes.SUPPORTED[target], "weak": False})
               for shape, source, target in cases]
    samples += [Sample(Draw((2, 3), source, 0, 1 if "bool" in (source, target) else 2),
                       params={"dtype": dtypes.SUPPORTED[target], "weak": False}, slow=True)
                for source in EVERY for target in EVERY]
    return [*samples, Sample(np.array([1 + 2j, 0j, 3j]), params={"dtype": np.dtype(bool), "weak": False}),
            Sample(np.array([1.7, -1.7, 0.0, -0.5]), params={"dtype": np.dtype(np.int8), "weak": False}),
            Sample(Draw(()), params={"dtype": np.dtype(np.float64), "weak": True})]


SAMPLES: dict[Primitive, list[Sample]] = {
    broadcast_to_p: rearranged(
        ((), {"shape": ()}), ((), {"shape": (2, 3)}), ((0,), {"shape": (2, 0)}), ((1,), {"shape": (0,)}),
        ((1,), {"shape": (4,)}), ((2, 1, 3), {"shape": (2, 5, 3)}), ((2, 3), {"shape": (4, 2, 3)})),
    reshape_p: rearranged(
        ((), {"shape": (1, 1)}), ((1,), {"shape": ()}), ((0,), {"shape": (3, 0)}), ((2, 3), {"shape": (6,)}),
        ((2, 3), {"shape": (3, 2)})),
    transpose_p: rearranged(
        ((), {"permutation": ()}), ((1,), {"permutation": (0,)}), ((3, 0), {"permutation": (1, 0)}),
        ((2, 3, 4), {"permutation": (2, 0, 1)}), ((2, 3), {"permutation": (1, 0)})),
    reduce_sum_p: reduced(*REAL, *COMPLEX, *INTEGER),
    convert_element_type_p: converted(),
}
