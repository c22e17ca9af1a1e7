"""`fxgrad.nan_safe` and functions of matrices: what `where` did not choose gives nothing back, singular or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
import fxgrad.scipy.linalg as sla

GOOD = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]])
BAD = {"zeros": np.zeros((3, 3)), "negative": -np.eye(3), "ones": np.ones((3, 3)),
       "not a number": np.full((3, 3), np.nan)}
B = np.array([1.0, 2.0, 3.0])
la = fnp.linalg

SUMS: dict[str, Callable[[Any], Any]] = {
    "slogdet": lambda a: la.slogdet(a)[1],
    "det": la.det,
    "inv": lambda a: fnp.sum(la.inv(a)),
    "cholesky": lambda a: fnp.sum(la.cholesky(a)),
    "upper cholesky": lambda a: fnp.sum(sla.cholesky(a)),
    "solve": lambda a: fnp.sum(la.solve(a, B)),
    "eigh": lambda a: fnp.sum(la.eigh(a)[0] ** 2) + fnp.sum(la.eigh(a)[1] ** 3),
    "eigvalsh": lambda a: fnp.sum(la.eigvalsh(a) ** 2),
    "eig": lambda a: fnp.sum(fnp.abs(la.eig(a)[0])),
    "svd": lambda a: fnp.sum(la.svd(a)[1]) + fnp.sum(fnp.abs(la.svd(a)[0])),
    "cond": la.cond,
    "norm of order 2": lambda a: la.norm(a, 2),
    "nuclear norm": lambda a: la.norm(a, "nuc"),
    "matrix_power": lambda a: fnp.sum(la.matrix_power(a, -2)),
    "qr": lambda a: fnp.sum(la.qr(a)[0] ** 3) + fnp.sum(la.qr(a)[1]),
    "tensorinv": lambda a: fnp.sum(la.tensorinv(a, 1)),
    "solve_triangular": lambda a: fnp.sum(sla.solve_triangular(a, B, lower=True)),
    "cho_solve": lambda a: fnp.sum(sla.cho_solve(sla.cho_factor(a), B)),
    "lu": lambda a: fnp.sum(sla.lu(a)[2]),
    "lu_factor": lambda a: fnp.sum(sla.lu_factor(a)[0]),
}
"""A number made by each function of square matrices whose derivative solves or divides."""


def chosen(function: Callable[[Any], Any]) -> Callable[..., Any]:
    """The sum over those matrices of a stack that are chosen."""
    return lambda matrices, which: fnp.sum(fnp.where(which, fxgrad.vmap(function)(matrices), 0.0))


@pytest.mark.slow
@pytest.mark.parametrize("name", SUMS)
def test_matrices_that_are_not_chosen_get_the_gradient_zero(name: str) -> None:
    function = SUMS[name]
    expected = fxgrad.grad(function)(GOOD)
    stacked = fxgrad.jit(fxgrad.grad(fxgrad.nan_safe(chosen(function))))
    alone = fxgrad.jit(fxgrad.grad(fxgrad.nan_safe(lambda a: fnp.where(a[0, 0] > 3.9, function(a), 0.0))))
    wrong = []
    for kind, bad in BAD.items():
        found = np.asarray(stacked(np.stack([GOOD, bad]), np.array([True, False])))
        if not (found[1] == 0).all() or not np.allclose(found[0], expected, rtol=1e-9):
            wrong.append((kind, "in a stack"))
        if not (np.asarray(alone(bad)) == 0).all():
            wrong.append((kind, "alone"))
    assert not wrong


@pytest.mark.slow
def test_gradients_of_those_chosen_are_the_closed_forms() -> None:
    inverse = np.linalg.inv(GOOD)
    forms = {"slogdet": inverse.T, "inv": -inverse.T @ np.ones((3, 3)) @ inverse.T,
             "solve": -np.outer(inverse.T @ np.ones(3), inverse @ B), "det": np.linalg.det(GOOD) * inverse.T}
    for name, form in forms.items():
        safe = fxgrad.nan_safe(chosen(SUMS[name]))
        for gradient in (fxgrad.jit(fxgrad.grad(safe)), fxgrad.jit(fxgrad.jacfwd(safe))):
            found = gradient(np.stack([GOOD, BAD["ones"]]), np.array([True, False]))
            np.testing.assert_allclose(found, np.stack([form, np.zeros((3, 3))]), rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_a_singular_matrix_that_is_chosen_stays_one() -> None:
    for name in ("slogdet", "inv", "solve", "cholesky"):
        gradient = fxgrad.jit(fxgrad.grad(fxgrad.nan_safe(SUMS[name])))(BAD["zeros"])
        assert not np.isfinite(gradient).all(), name
    slope = fxgrad.jit(fxgrad.grad(fxgrad.nan_safe(lambda b: sla.solve_triangular(BAD["zeros"], b, lower=True)[2])))(B)
    assert np.isnan(slope).all()


@pytest.mark.slow
def test_second_derivatives_and_complex_matrices() -> None:
    def log_volume(a: Any) -> Any:
        return fnp.where(a[0, 0] > 3.9, la.slogdet(a)[1], 0.0)

    second = fxgrad.jit(fxgrad.hessian(fxgrad.nan_safe(log_volume)))
    assert (np.asarray(second(BAD["ones"])) == 0).all()
    np.testing.assert_allclose(second(GOOD), fxgrad.hessian(SUMS["slogdet"])(GOOD), rtol=1e-12, atol=1e-15)

    def modulus(a: Any) -> Any:
        return fnp.where(fnp.abs(a[0, 0]) > 3.9, fnp.sum(fnp.abs(la.inv(a)) ** 2), 0.0)

    gradient = fxgrad.jit(fxgrad.grad(fxgrad.nan_safe(modulus)))
    turned = GOOD + 1j * np.triu(GOOD, 1)
    assert (np.asarray(gradient(BAD["ones"] + 0j)) == 0).all()
    np.testing.assert_allclose(gradient(turned), fxgrad.grad(modulus)(turned), rtol=1e-12)


def test_without_jit_numpy_raises_for_a_value_that_it_cannot_compute() -> None:
    function = fxgrad.nan_safe(lambda a: fnp.where(a[0, 0] > 3.9, fnp.sum(la.inv(a)), 0.0))
    for call in (function, fxgrad.grad(function)):
        with pytest.raises(np.linalg.LinAlgError):
            call(BAD["zeros"])
    masked = fxgrad.nan_safe(lambda a: fnp.where(a[0, 0] > 3.9, la.slogdet(a)[1], 0.0))
    assert (fxgrad.grad(masked)(BAD["zeros"]) == 0).all()
