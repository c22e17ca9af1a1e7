"""Details of functions of NumPy's that other tests pass by: shapes of open meshes, powers of two beyond one step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp


@pytest.mark.parametrize("args", [([0, 2], [1, 3, 4]), ([0, 1],), ([2], [True, False, True], [0, 1])], ids=str)
def test_open_meshes(args: Any) -> None:
    ours, theirs = fnp.ix_(*map(np.array, args)), np.ix_(*args)
    assert [each.shape for each in ours] == [each.shape for each in theirs]
    for found, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(found, wanted)
    traced = fxgrad.make_program(lambda *arrays: fnp.ix_(*arrays))(*(np.array(arg, int) for arg in args[:1]))
    np.testing.assert_array_equal(traced(np.array(args[0]))[0], np.ix_(args[0])[0])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_powers_of_two_beyond_the_range(dtype: Any) -> None:
    """Exponents that one power of two cannot hold: from the least number to the greatest, and beyond both."""
    info = np.finfo(dtype)
    x = np.array([info.max, info.smallest_subnormal, 1.5, -1.0, info.tiny, 0.0, np.inf], dtype)[:, None]
    exponents = np.array([info.minexp * 2, info.minexp - 5, -3, 0, 4, info.maxexp + 5, info.maxexp * 2], np.int32)
    with np.errstate(all="ignore"):
        wanted = np.ldexp(x, exponents)
    np.testing.assert_array_equal(fnp.ldexp(x, exponents), wanted)


def test_what_is_repeated_is_read_in_order() -> None:
    """Which XLA is told, so that it need not sort."""
    program = fxgrad.make_program(lambda x, counts: fnp.repeat(x, counts, total_repeat_length=6))(
        np.arange(3.0), np.array([1, 2, 3]))
    promises = [equation.params["promises"] for equation in program.equations if equation.primitive.name == "gather"]
    assert any("sorted" in each for each in promises)


def test_triangles_by_small_letters() -> None:
    a = np.array([[2.0, 5.0], [1.0, 3.0]])
    for letter in "lLuU":
        np.testing.assert_allclose(fxgrad.jit(lambda a, one=letter: np.linalg.eigvalsh(a, one))(a),
                                   np.linalg.eigvalsh(a, letter))
