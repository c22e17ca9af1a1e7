"""Draws of one key, held to numbers that jax drew of it: without jax, which takes long to compile."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad import random

ROWS = np.arange(12.0).reshape(3, 4)
COVARIANCES = np.array([[[4.0, 1.0], [1.0, 3.0]], [[2.0, -1.0], [-1.0, 5.0]]])
DRAWN: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = [
    ("exponential", ((3,), "float64"), {}, [1.8585850522259963, 0.04647605816229587, 0.2548724120098844]),
    ("beta", (2.0, 3.0, (3,), "float64"), {}, [0.2231560829434036, 0.6066072050211242, 0.500626219549071]),
    ("permutation", (5,), {}, [4, 2, 3, 0, 1]),
    ("choice", (ROWS, (2,), True, np.array([0.1, 0.2, 0.3, 0.4])), {"axis": 1}, ROWS[:, [1, 3]]),
    ("multivariate_normal", (np.zeros(2), COVARIANCES), {"method": "cholesky"},
     [[2.022962671118173, -2.2985665982684367], [-1.068390673223281, -2.6880168267385174]]),
    ("normal", ((2,), "float64"), {}, [1.0114813355590866, -1.6910609087906374]),
    ("bits", ((2,), "uint64"), {}, [15571024786774969728, 837714335556982463]),
]


def test_draws_are_those_of_jax() -> None:
    wrong = {}
    for name, args, options, drawn in DRAWN:
        found = np.asarray(getattr(random, name)(random.key(7), *args, **options))
        if found.shape != np.shape(drawn) or not np.allclose(found, drawn, rtol=1e-13, atol=0):
            wrong[name] = found
    assert not wrong


def test_lengths_with_signs() -> None:
    drawn = random.double_sided_maxwell(random.key(7), 0.5, 2.0, (3,), "float64")
    np.testing.assert_allclose(np.abs(drawn - 0.5), [2.4149009550420124, 2.902631450008386, 3.5768431911817977], 1e-13)


def test_roots_of_many_covariances() -> None:
    """Their products with their transposes are the covariances, whichever the factorization."""
    for method in ("cholesky", "eigh", "svd"):
        draws = random.multivariate_normal(random.key(0), np.zeros(2), COVARIANCES, (40_000, 2), "float64",
                                           method=method)
        np.testing.assert_allclose(np.einsum("nka,nkb->kab", draws, draws) / 40_000, COVARIANCES, atol=0.1)
