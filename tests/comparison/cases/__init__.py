"""The cases, by library and function; each module has tables of one or a few libraries."""

from __future__ import annotations

from tests.comparison.arguments import Case
from tests.comparison.cases import (
    jax_alone,
    lax_arrays,
    lax_elements,
    lax_functions,
    linear_algebra,
    networks,
    numpy_arrays,
    numpy_elements,
    numpy_reductions,
    randomness,
    special_functions,
)

CASES: dict[str, dict[str, list[Case]]] = {
    "numpy": {**numpy_elements.CASES, **numpy_arrays.CASES, **numpy_reductions.CASES},
    "numpy.linalg": linear_algebra.NUMPY,
    "numpy.fft": numpy_reductions.FFT,
    "lax": {**lax_elements.CASES, **lax_arrays.CASES, **lax_functions.CASES, **jax_alone.LAX},
    "lax.linalg": {**linear_algebra.LAX, **jax_alone.LAX_LINALG},
    "nn": networks.CASES,
    "random": randomness.CASES,
    "scipy.special": special_functions.CASES,
    "scipy.linalg": {**linear_algebra.SCIPY, **jax_alone.SCIPY_LINALG},
}
