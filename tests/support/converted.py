"""Functions with converted control flow, beside Python's own."""

from __future__ import annotations

import gc
import inspect
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, vmap


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


def assert_differentiable(function: Any) -> None:
    """Compare derivatives of a converted function of (x, n) with differences, in both modes, and its batches."""
    def total(x: Any, n: Any) -> Any:
        found = fxgrad.tree.leaves(fxgrad.python_control_flow(function)(x, n))
        return sum(np.sum(each * np.cos(np.arange(np.size(each)).reshape(np.shape(each)))) for each in found)
    step = 1e-6
    expected = (total(0.7 + step, 3) - total(0.7 - step, 3)) / (2 * step)
    np.testing.assert_allclose(jit(grad(total))(0.7, 3), expected, rtol=1e-6)
    np.testing.assert_allclose(grad(total)(0.7, 3), expected, rtol=1e-6)
    np.testing.assert_allclose(jit(fxgrad.jacfwd(total))(0.7, 3), expected, rtol=1e-6)
    np.testing.assert_allclose(vmap(total)(np.array([0.7, 1.5]), np.array([3, 1])), [total(0.7, 3), total(1.5, 1)])


def assert_refused(function: Any, at: Any, message: str, name: str | None = None) -> None:
    """Assert the error of a converted function of (x, n), at the line of `at`, or itself, that ends with "# here"."""
    where = at or function
    lines, begin = inspect.getsourcelines(where)
    line = next(begin + number for number, each in enumerate(lines) if each.rstrip().endswith("# here"))
    with pytest.raises(fxgrad.errors.ControlFlowError) as refused:
        jit(fxgrad.python_control_flow(function))(1.5, 2)
    file = where.__code__.co_filename.rpartition("/")[2]
    assert str(refused.value) == f"{message}\n  at {file}:{line} (in {name or where.__name__})"
