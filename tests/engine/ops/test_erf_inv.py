"""The inverse of the error function: its tail has a formula of its own, computed where it is needed."""

from __future__ import annotations

import numpy as np
import pytest

from fxgrad.engine.ops.special import erf_inv_p, erf_inv_single


class _Untyped(np.ndarray):
    """Arrays that are not NumPy's own class take the path of traced arrays, which computes both formulas everywhere."""


@pytest.mark.parametrize("span", [0.5, 1.0])
def test_the_tail_alone_and_both_formulas_everywhere_agree_to_the_bit(span: float) -> None:
    y = np.linspace(-span, span, 3999, dtype=np.float32).reshape(3, -1)
    extremes = np.float32([-1.0, 1.0, -0.0, 0.0, np.nan, 1.5, np.nextafter(np.float32(1), np.float32(0))])
    for each in (y, y.T, y[:, ::3], extremes if span == 1.0 else y[0], y[:0]):
        with np.errstate(all="ignore"):
            found, expected = erf_inv_p.numpy(each)[0], erf_inv_single(each.view(_Untyped))
        assert found.dtype == expected.dtype == np.float32
        assert found.tobytes() == expected.tobytes()
