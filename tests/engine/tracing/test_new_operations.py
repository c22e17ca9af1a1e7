"""Operations that are new to the table are recorded as those that it knows: of the same types, with the same values."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.tracing import tape as tapes
from fxgrad.errors import FxgradError

DTYPES = ["float32", "float64", "bfloat16", "float16", "complex64", "int8", "uint8", "int32", "int64", "bool"]
NUMBERS = [0, 1, 3, -2, 300, 2**40, 2**70, 0.0, -0.0, 0.1, 1e300, float("nan"), float("inf"), 1 + 2j, True,
           np.float64(0.1), np.float32(0.1), np.int64(3)]
FUNCTIONS = [(operator.add, fnp.add), (operator.mul, fnp.multiply), (operator.sub, fnp.subtract),
             (operator.truediv, fnp.divide), (operator.lt, fnp.less), (np.maximum, fnp.maximum),
             (np.arctan2, fnp.arctan2)]


def outcome(call: Callable[[], Any]) -> Any:
    """Dtype, weakness and bits of a result, or the class of an error."""
    try:
        result = call()
    except (FxgradError, OverflowError, TypeError) as error:
        return type(error)
    value = np.asarray(result)
    return str(value.dtype), value.shape, np.nan_to_num(value.astype(np.complex128), nan=7.0).tolist()


@pytest.mark.usefixtures("fresh_tables")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_numbers_beside_arrays_of_each_dtype(dtype: str) -> None:
    """Recorded for the first time, looked up, and computed without a trace."""
    array = np.array([1, 0, 1]).astype(fxgrad.dtypes.SUPPORTED[dtype])
    different = []
    for (recorded, evaluated), number, first in itertools.product(FUNCTIONS, NUMBERS, (True, False)):
        def call(x: Any, f: Any = recorded, n: Any = number, first: bool = first) -> Any:
            return f(n, x) if first else f(x, n)
        traced = [outcome(lambda call=call: fxgrad.vmap(call)(array)) for _ in range(2)]
        computed = outcome(lambda call=call, f=evaluated: call(array, f))
        if traced[0] != computed or traced[1] != computed:
            different.append((recorded.__name__, number, first, traced, computed))
    assert not different, different[:3]


@pytest.mark.usefixtures("fresh_tables")
def test_recordings_beyond_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are too long to be interned half-way; number operands, arrays and tracers go on as before."""
    table = np.array([0.5, -1.5])

    def loss(x: Any) -> Any:
        for _ in range(30):
            x = np.tanh(x * 0.5 + table) + 2 * x - x * x
        return np.sum(x)

    x = np.array([0.25, 0.75])
    expected = fxgrad.grad(loss)(x)
    for limit in (0, 1, 2, 3, 50, 51):
        monkeypatch.setattr(tapes, "MAX_INTERNED_STEPS", limit)
        fxgrad.clear_caches()
        for _ in range(3):
            np.testing.assert_array_equal(fxgrad.grad(loss)(x), expected)


@pytest.mark.usefixtures("fresh_tables")
def test_one_function_with_numbers_and_with_tracers_of_other_tapes() -> None:
    """An operand of an enclosing tape is captured; numbers of one place are others in each call."""
    def inner(x: Any, y: Any, number: float) -> Any:
        return fxgrad.grad(lambda z: np.sin(z * y) * number + number / z)(x)

    for number in (2.0, -3.0, 0.0, 1.0):
        slope = fxgrad.grad(lambda y, n=number: inner(0.7, y, n))(0.4)
        step = 1e-6
        difference = (inner(0.7, 0.4 + step, number) - inner(0.7, 0.4 - step, number)) / (2 * step)
        np.testing.assert_allclose(slope, difference, rtol=1e-8, atol=1e-9)
