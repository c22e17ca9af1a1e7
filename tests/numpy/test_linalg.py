"""Norms against jax.numpy.linalg and NumPy."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import ArgumentError, UnsupportedError
from tests.numpy.comparison import assert_equal, draw

A, V, C = draw((3, 4), "float64"), draw((5,), "float64"), draw((3, 4), "complex128")


@pytest.mark.parametrize("order", [None, 1, -1, np.inf, -np.inf, "fro"])
@pytest.mark.parametrize("x", [A, C, A.astype(np.float32), A.astype(np.int32)], ids=["f64", "c128", "f32", "i32"])
def test_matrix_norms(x: Any, order: Any) -> None:
    expected = np.linalg.norm(x, order)
    assert_equal(fnp.linalg.norm(x, order), expected.astype(np.float32 if x.dtype.itemsize == 4 else np.float64))
    program = fxgrad.make_program(lambda x: np.linalg.norm(x, order, axis=(1, 0)))(A)
    assert_equal(program(A), np.linalg.norm(A, order, axis=(1, 0)))


@pytest.mark.parametrize("order", [None, 0, 1, 2, 3, 0.5, np.inf, -np.inf])
def test_vector_norms(order: Any) -> None:
    assert_equal(fnp.linalg.norm(V, order), np.linalg.norm(V, order))
    assert_equal(fnp.linalg.norm(A, order, axis=1, keepdims=True), np.linalg.norm(A, order, axis=1, keepdims=True))


def test_other_functions() -> None:
    assert_equal(fnp.linalg.multi_dot([A, A.T, A]), A @ A.T @ A)
    assert_equal(fnp.linalg.matrix_norm(A), np.linalg.matrix_norm(A))
    assert_equal(fnp.linalg.vector_norm(A, axis=0, ord=3), np.linalg.vector_norm(A, axis=0, ord=3))
    gradient = fxgrad.grad(lambda x: np.linalg.norm(x))(V)
    np.testing.assert_allclose(gradient, V / np.linalg.norm(V), rtol=1e-12)
    assert set(fnp.linalg.__all__) <= set(dir(jnp.linalg))


def test_messages() -> None:
    with pytest.raises(UnsupportedError, match=r"norm: ord='nuc' of matrices is not supported; there are 'fro', 1, -1"):
        fnp.linalg.norm(A, "nuc")
    with pytest.raises(ArgumentError, match=r"norm: ord=1 along 3 axes; a vector norm has one and a matrix norm two"):
        fnp.linalg.norm(A[None], 1)
