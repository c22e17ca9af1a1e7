"""Decompositions of matrices with a NaN in them, of singular ones, and of such that are not positive definite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
import fxgrad.scipy.linalg

GOOD = np.array([[2.0, 1.0], [1.0, 3.0]])
NAN = np.array([[1.0, np.nan], [np.nan, 2.0]])
SINGULAR = np.array([[1.0, 2.0], [2.0, 4.0]])
INDEFINITE = np.array([[1.0, 2.0], [2.0, 1.0]])
RIGHT = np.ones(2)

ITERATIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "eigh": lambda linalg, _, a: tuple(linalg.eigh(a)), "eigvalsh": lambda linalg, _, a: linalg.eigvalsh(a),
    "eig": lambda linalg, _, a: tuple(linalg.eig(a)), "eigvals": lambda linalg, _, a: linalg.eigvals(a),
    "svd": lambda linalg, _, a: tuple(linalg.svd(a)), "svdvals": lambda linalg, _, a: linalg.svdvals(a),
    "norm of order 2": lambda linalg, _, a: linalg.matrix_norm(a, ord=2),
    "nuclear norm": lambda linalg, _, a: linalg.matrix_norm(a, ord="nuc"), "cond": lambda linalg, _, a: linalg.cond(a),
    "cond of order 1": lambda linalg, _, a: linalg.cond(a, 1), "pinv": lambda linalg, _, a: linalg.pinv(a),
    "matrix_rank": lambda linalg, _, a: linalg.matrix_rank(a), "qr": lambda linalg, _, a: tuple(linalg.qr(a)),
    "scipy's svd": lambda _, scipy, a: scipy.svd(a), "scipy's eigh": lambda _, scipy, a: scipy.eigh(a),
    "polar": lambda _, scipy, a: tuple(scipy.polar(a)),
}
RAISING: dict[str, tuple[Callable[[Any], Any], np.ndarray[Any, Any]]] = {
    "solve": (lambda a: fnp.linalg.solve(a, RIGHT), SINGULAR), "inv": (fnp.linalg.inv, SINGULAR),
    "matrix_power": (lambda a: fnp.linalg.matrix_power(a, -2), SINGULAR),
    "scipy's solve": (lambda a: fxgrad.scipy.linalg.solve(a, RIGHT), SINGULAR),
    "cholesky": (fnp.linalg.cholesky, INDEFINITE), "scipy's cholesky": (fxgrad.scipy.linalg.cholesky, INDEFINITE),
    "cho_solve": (lambda a: fxgrad.scipy.linalg.cho_solve(fxgrad.scipy.linalg.cho_factor(a), RIGHT), INDEFINITE),
}


def leaves(value: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(each) for each in fxgrad.tree.leaves(value)]


def test_iterations_give_nan_for_the_matrices_that_have_one_and_for_no_other() -> None:
    wrong = []
    for name, function in ITERATIONS.items():
        def call(a: Any, function: Any = function) -> list[np.ndarray[Any, Any]]:
            return leaves(function(fnp.linalg, fxgrad.scipy.linalg, a))

        for dtype in (np.float32, np.complex128):
            alone, good = call(NAN.astype(dtype)), call(GOOD.astype(dtype))
            both = call(np.stack([GOOD, NAN, GOOD]).astype(dtype))
            if name != "qr" and not all(np.isnan(each).all() for each in alone if each.dtype.kind in "fc"):
                wrong.append((name, dtype.__name__, alone))
            for stack, single, one in zip(both, alone, good, strict=True):
                if not (np.allclose(stack[0], one) and np.allclose(stack[2], one)) or stack.dtype != single.dtype or \
                        not np.array_equal(np.isnan(stack[1]), np.isnan(single)):
                    wrong.append((name, dtype.__name__, stack))
    assert not wrong, wrong


@pytest.mark.slow
def test_jit_and_jax_give_nan_at_the_same_places() -> None:
    def of(linalg: Any, scipy: Any) -> Callable[[Any], dict[str, Any]]:
        return lambda a: {name: function(linalg, scipy, a) for name, function in ITERATIONS.items()}

    with jax.enable_x64(True):
        expected = jax.jit(of(jax.numpy.linalg, jax.scipy.linalg))(NAN)
    own = of(fnp.linalg, fxgrad.scipy.linalg)
    wrong = [(name, one, other) for found in (own(NAN), fxgrad.jit(own)(NAN)) for name in ITERATIONS
             for one, other in zip(leaves(found[name]), leaves(expected[name]), strict=True)
             if not np.array_equal(np.isnan(one), np.isnan(other)) or (one.dtype.kind == "i" and one != other)]
    assert not wrong, wrong


def test_gradients_of_nan_are_nan() -> None:
    for name in ("eigvalsh", "svdvals", "norm of order 2", "cond", "pinv", "eigh"):
        def total(a: Any, function: Any = ITERATIONS[name]) -> Any:
            return sum(fnp.sum(each) for each in fxgrad.tree.leaves(function(fnp.linalg, fxgrad.scipy.linalg, a)))
        assert np.isnan(fxgrad.grad(total)(NAN)).any(), name


def test_matrices_without_an_inverse_or_a_factor_raise_un_jitted_as_with_numpy() -> None:
    for name, (function, matrix) in RAISING.items():
        for a in (matrix, np.stack([GOOD, matrix])) if "solve" not in name else (matrix,):
            with pytest.raises(np.linalg.LinAlgError, match="Under jit the result would be NaN"):
                function(a)
        assert all(np.isfinite(each).all() for each in leaves(function(GOOD))), name
