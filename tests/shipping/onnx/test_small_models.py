"""One small function for each formula of the exporter: its model, run by onnxruntime, equals what fxgrad computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax
from tests.support.with_onnx import compared

AT = np.array([0, 1, 2, 0])
X = np.linspace(-3.0, 7.7, 24).reshape(2, 3, 4)
NARROW = X.astype(np.float32)
WORDS = (np.arange(30, dtype=np.int32).reshape(2, 5, 3) * 37) % 101
LONG = WORDS * (np.int64(2) ** 56 + 5) + 1
IMAGE, KERNEL = NARROW.reshape(1, 2, 3, 4), np.linspace(-1.0, 1.0, 36, dtype=np.float32).reshape(2, 2, 3, 3)
MATRIX = np.array([[0.1, 2.0, -1.0], [4.0, 0.5, 0.3], [1.0, -3.0, 2.5]])
BEYOND = np.array([1.5, -2.5, -128.7, 127.9, 255.5, -0.9, 300.0, np.inf, -np.inf, np.nan, 1e20, -1e20, 2.0 ** 31,
                   -2.0 ** 31, 2.0 ** 63, -2.0 ** 63, 2.0 ** 62])


def running(reverse: bool) -> Callable[..., Any]:
    """A loop with two carried values and two that are stacked."""
    def step(carry: Any, x: Any) -> Any:
        total, count = carry
        return (total * 0.5 + x, count + 1), (total, x * 2.0)
    return lambda xs: lax.scan(step, (xs[0], 0), xs, reverse=reverse)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "gammaln": (fxgrad.scipy.special.gammaln, (np.array([-2.5, 0.3, 1.0, 2.5, 7.0, 9.9, 12.0, 30.0, 1e4]),)),
    "tan": (np.tan, (X,)),
    "shifts": (lambda n: (np.left_shift(n, 3), np.right_shift(n, 2), lax.shift_right_logical(n - 50, n % 7)), (WORDS,)),
    "bits as other numbers": (lambda x, n: (
        lax.bitcast_convert_type(x, np.int32), lax.bitcast_convert_type(n, np.float32),
        lax.bitcast_convert_type(n, np.uint32)), (NARROW, WORDS + 2 ** 30)),
    "floats as whole numbers, beyond their range": (lambda x: [fnp.astype(x, dtype) for dtype in (
        "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")], (BEYOND,)),
    "narrow floats as whole numbers": (lambda x: [fnp.astype(fnp.astype(x, narrow), dtype) for narrow in (
        "float32", "float16", "bfloat16", "float8_e5m2") for dtype in ("int8", "uint8", "int32", "int64")], (BEYOND,)),
    "floats as integers of 4 bits": (lambda x: [fnp.astype(fnp.astype(x, narrow), "int32") for narrow in (
        "int4", "uint4")], (BEYOND,)),
    "sums of bits": (lambda n: (lax.reduce_xor(n, (1,)), lax.reduce_and(n, (0,)), lax.reduce_or(n, (2,))), (WORDS,)),
    "convolutions": (lambda x, w: (lax.conv_general_dilated(x, w, (1, 1), [(1, 1), (0, 2)]),
                                   lax.conv_general_dilated(x, w, (1, 2), "VALID"),
                                   lax.conv_general_dilated(x, w, (1, 1), [(4, 2), (2, 3)], rhs_dilation=(2, 2))),
                     (IMAGE, KERNEL)),
    "padding within": (lambda x: lax.pad(x, 0.5, ((0, 1, 2), (1, 0, 1), (2, 2, 3))), (X,)),
    "loops": (running(False), (X,)),
    "loops in reverse": (running(True), (X,)),
    "triangular factors": (lambda a: lax.linalg.lu(a), (np.stack([MATRIX, MATRIX.T]),)),
    "greatest of windows, and their gradients": (
        fxgrad.value_and_grad(lambda x: fnp.sum(np.arange(12.0).reshape(3, 4) ** 2 * lax.reduce_window(
            x, -np.inf, lax.max, (2, 2), (1, 1), "SAME"))), (X[0] % 2.3,)),
    "random bits": (lambda key: (fxgrad.random.bits(key, (3,), "uint32"), fxgrad.random.bits(key, (2,), "uint64"),
                                 fxgrad.random.bits(key, (5,), "uint8")), (fxgrad.random.key(3),)),
    "sums and products of large integers": (lambda n: [
        reduction(fnp.astype(n, dtype), axis=axes, dtype=dtype)
        for dtype in ("int64", "int32", "int16", "uint64", "uint8")
        for reduction, axes in ((fnp.sum, (0, 2)), (fnp.sum, 1), (fnp.prod, None), (fnp.prod, 0))], (LONG,)),
    "sums of large integers in windows": (lambda n: lax.reduce_window(
        n, np.int64(0), lax.add, (2, 2, 1), (1, 1, 1), "SAME"), (LONG,)),
    "extrema at places, of NaNs": (lambda x, y: [extremum(mode="fill") for extremum in (
        lambda mode: x.at[:, AT].max(y, mode=mode), lambda mode: x.at[:, AT].min(y, mode=mode))], (
            fnp.array([[1.0, np.nan, 2.0]]), np.array([[0.5, 3.0, np.nan, np.nan]]))),
    "recurrences with infinite factors": (lambda x: [fxgrad.jvp(
        lambda x, reverse=reverse: lax.cumprod(x, 0, reverse), (x,), (x * 0.5,))[1] for reverse in (False, True)], (
            np.array([np.inf, 2.0, -0.5, 3.0]),)),
    "elements at places": (lambda x, at: (x[at], fnp.take(x, at, axis=1, mode="fill")), (X[0], np.array([0, -1, 2]))),
}


def test_models_equal_their_functions() -> None:
    wrong = {}
    for name, (function, args) in CASES.items():
        try:
            compared(fxgrad.make_program(function)(*args), args)
        except Exception as error:  # noqa: BLE001  (all that fail are listed)
            wrong[name] = f"{type(error).__name__}: {error}"
    assert not wrong, "\n".join(f"{name}: {text}" for name, text in wrong.items())
