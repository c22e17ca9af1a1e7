"""Functions with converted control flow, beside Python's own."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

import fxgrad


def assert_as_numpy(function: Any, args: tuple[Any, ...]) -> None:
    """Compare a converted function with Python's to the bit, and compiled to rounding."""
    expected = fxgrad.tree.leaves(function(*args))
    converted = fxgrad.python_control_flow(function)
    gc.disable()  # what is refused does not depend on when garbage is collected
    try:
        program = fxgrad.make_program(converted)(*args)
    finally:
        gc.enable()
    for found in (program(*args), converted(*args)):
        for one, other in zip(fxgrad.tree.leaves(found), expected, strict=True):
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
            assert np.asarray(one).dtype == np.asarray(other).dtype
    for one, other in zip(fxgrad.tree.leaves(fxgrad.jit(converted)(*args)), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
