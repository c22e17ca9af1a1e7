"""Samples of the rooms of linear algebra: `triangular`, `factorizations`, `eigen`, `determinant`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops.determinant import cofactor_p, det_p, slogdet_p
from fxgrad.engine.ops.eigen import eig_p, eigh_p, svd_p
from fxgrad.engine.ops.factorizations import cholesky_p, lu_p, lu_pivots_to_permutation_p, qr_p
from fxgrad.engine.ops.matrix_functions import expm_frechet_p, expm_p, nearest_unitary_p, sqrtm_p, sylvester_p
from fxgrad.engine.ops.pseudoinverse import pinv_p
from fxgrad.engine.ops.reduced_forms import hessenberg_p, schur_p, tridiagonal_p
from fxgrad.engine.ops.triangular import lu_solve_p, triangular_solve_p, tridiagonal_solve_p
from tests.samples import COMPLEX, Draw, Sample, no_derivatives

SQUARE: tuple[tuple[int, ...], ...] = ((0, 0), (1, 1), (2, 3, 3), (4, 4), (2, 0, 3, 3), (2, 1, 2, 2))
RECTANGULAR: tuple[tuple[int, ...], ...] = (*SQUARE, (4, 2), (2, 4), (0, 3), (3, 0), (2, 5, 3), (2, 3, 5))
NARROW = ("float32", *COMPLEX)
PHASES = "LAPACK's choice of phases is no function of the matrix alone"


def matrix(shape: tuple[int, ...], dtype: str = "float64", shift: float = 0.0, seed: int = 0) -> Any:
    """Random numbers, with `shift` added to the diagonal."""
    random = np.random.default_rng([seed, *shape])
    values: Any = random.uniform(-1, 1, shape)
    if dtype in COMPLEX:
        values = values + 1j * random.uniform(-1, 1, shape)
    return (values + shift * np.eye(*shape[-2:])).astype(dtype)


def unequal(shape: tuple[int, ...], dtype: str = "float64") -> Any:
    """Random numbers in columns of different lengths, so that no small change makes another one the longest."""
    return (matrix(shape, dtype) * (1.0 + np.arange(shape[-1]))).astype(dtype)


def apart(shape: tuple[int, ...], dtype: str = "float64") -> Any:
    """Random numbers, with a diagonal that keeps eigenvalues apart."""
    return (matrix(shape, dtype) + np.diag(3.0 * np.arange(shape[-1]))).astype(dtype)


def hermitian(shape: tuple[int, ...], dtype: str = "float64", shift: float = 0.0) -> Any:
    """Random Hermitian matrices."""
    x = matrix(shape, dtype)
    return (x + np.swapaxes(x, -2, -1).conj() + shift * np.eye(shape[-1])).astype(dtype)


def of_shapes(shapes: tuple[tuple[int, ...], ...], make: Any, *params: dict[str, Any], narrow: Any = NARROW,
           **rest: Any) -> list[Sample]:
    """All shapes in float64 with the first parameters, the third and sixth shape with the others and in all dtypes."""
    samples = [Sample(make(shape), params=params[0], **rest) for shape in shapes]
    for given in params[1:]:
        samples += [Sample(make(shape), params=given, **rest) for shape in (*shapes[2:4], *shapes[6:8])]
    for dtype in narrow:
        samples += [Sample(make(shapes[2], dtype), params=given, slow=given is not params[0], tolerance=10, **rest)
                    for given in params]
    return samples


def systems(left: bool, shapes: Any = ((0, 0, 2), (1, 1, 1), (3, 3, 2), (4, 4, 0))) -> list[tuple[Any, Any]]:
    """Shapes of a matrix and of a right side."""
    plain = [((n, m), (n, k) if left else (k, n)) for n, m, k in shapes]
    return [*plain, ((2, 3, 3), (2, 3, 1) if left else (2, 1, 3)), ((0, 2, 2), (0, 2, 2))]


TRIANGULAR = {"left_side": True, "lower": True, "transpose_a": False, "conjugate_a": False, "unit_diagonal": False}
VARIED = [{}, {"left_side": False}, {"lower": False}, {"transpose_a": True}, {"conjugate_a": True},
          {"unit_diagonal": True, "lower": False}, {"left_side": False, "transpose_a": True, "conjugate_a": True},
          {"left_side": False, "lower": False, "conjugate_a": True}]


def triangular_samples() -> list[Sample]:
    samples = []
    for index, varied in enumerate(VARIED):
        params = TRIANGULAR | varied
        for a, b in systems(params["left_side"])[:6 if index < 2 else 3]:
            samples.append(Sample(matrix(a, shift=3), matrix(b, seed=1), params=params))
        samples += [Sample(matrix((2, 3, 3), dtype, 3), matrix((2, 3, 3), dtype, seed=1), params=params, tolerance=5,
                           slow=index > 1) for dtype in NARROW]
    return samples


def factored(a: Any) -> list[Any]:
    factors, _, permutation = lu_p.numpy(a)
    return [a, factors, permutation]


# The factors are those of `a`: neither may be moved alone, so derivatives are taken in the right side here, and in
# the matrix in the tests of `solve`.
FACTORED = {"jvp": "moving the matrix needs other factors", "second": "moving the matrix needs other factors"}


def lu_solve_samples() -> list[Sample]:
    samples = []
    for transpose_a in (False, True):
        params = {"transpose_a": transpose_a}
        samples += [Sample(*factored(matrix(a)), matrix(b, seed=1), params=params, fixed=(0, 1)) for a, b in
                    systems(True)]
        samples += [Sample(*factored(matrix((2, 3, 3), dtype)), matrix((2, 3, 2), dtype, seed=1), params=params,
                           fixed=(0, 1), tolerance=20) for dtype in NARROW]
    return samples


def slogdet_samples() -> list[Sample]:
    def given(shape: tuple[int, ...], dtype: str = "float64") -> list[Any]:
        a = matrix(shape, dtype)
        return [a, *lu_p.numpy(a)]

    without = no_derivatives("moving the matrix needs other factors")
    samples = [Sample(*given(shape), without=without) for shape in SQUARE]
    return samples + [Sample(*given((2, 3, 3), dtype), without=without) for dtype in NARROW]


def tridiagonal_samples() -> list[Sample]:
    samples = []
    for shape, columns in (((0,), 2), ((1,), 1), ((2,), 3), ((4,), 2), ((2, 3), 2), ((0, 3), 2)):
        diagonals = [Draw(shape), Draw(shape, low=4, high=5), Draw(shape)]
        samples.append(Sample(*diagonals, Draw((*shape, columns))))
    diagonals = [Draw((2, 3), "float32"), Draw((2, 3), "float32", 4, 5), Draw((2, 3), "float32")]
    return [*samples, Sample(*diagonals, Draw((2, 3, 2), "float32"))]


LOWER, UPPER = {"lower": True}, {"lower": False}
EIG = [{"left": left, "right": right} for left, right in ((False, True), (False, False), (True, True), (True, False))]
THIN = {"full_matrices": False, "compute_uv": True}
FULL = {"full_matrices": True, "compute_uv": True}
VALUES = {"full_matrices": False, "compute_uv": False}
QR = [{"full_matrices": full, "pivoting": pivoting} for full, pivoting in
      ((False, False), (True, False), (False, True), (True, True))]
MANY: tuple[tuple[int, ...], ...] = (
    (0, 0), (1, 1), (2, 5, 3), (4, 4), (2, 0, 3, 3), (2, 3, 5), (4, 2), (2, 4), (0, 3), (3, 0))
OTHERS_TURN = {"jvp": "what completes the vectors is no function of the matrix", "second": "as for jvp"}

SAMPLES: dict[Primitive, list[Sample]] = {
    triangular_solve_p: triangular_samples(),
    lu_solve_p: lu_solve_samples(),
    tridiagonal_solve_p: tridiagonal_samples(),
    # The fourth sample is also drawn anew in all dtypes, and what is drawn is not positive definite.
    cholesky_p: of_shapes((*SQUARE[:3], *SQUARE[4:], SQUARE[3]),
                          lambda shape, dtype="float64": hermitian(shape, dtype, 8), {}),
    lu_p: of_shapes(MANY, matrix, {}),
    lu_pivots_to_permutation_p: [
        Sample(np.array(pivots, np.int32).reshape(shape), params={"permutation_size": size})
        for pivots, shape, size in (([], (0,), 0), ([0], (1,), 1), ([2, 1, 2, 3], (4,), 4), ([2, 3], (2,), 5),
                                    ([2, 1, 2, 0, 2, 2], (2, 3), 3), ([], (0, 3), 3))
    ] + [Sample(np.array([1, 1]), params={"permutation_size": 3})],
    qr_p: of_shapes(MANY, unequal, *QR),
    eigh_p: [*of_shapes(SQUARE, hermitian, LOWER, UPPER, narrow=["float32"]), Sample(matrix((4, 4)), params=LOWER),
             Sample(matrix((4, 4)), params=UPPER),
             *(Sample(hermitian((2, 3, 3), dtype), params=params, tolerance=10, without={"jvp": PHASES,
               "second": PHASES}) for dtype in COMPLEX for params in (LOWER, UPPER))],
    eig_p: [*of_shapes(SQUARE, apart, *EIG), *(Sample(matrix((4, 4)), params=params) for params in EIG)],
    svd_p: [*of_shapes(MANY, matrix, THIN, VALUES, narrow=["float32"]),
            *(Sample(matrix(shape), params=FULL, without=OTHERS_TURN) for shape in ((0, 3), (2, 5, 3), (3, 5))),
            *(Sample(matrix((2, 4, 3), dtype), params=params, tolerance=10, without={"jvp": PHASES, "second": PHASES})
              for dtype in COMPLEX for params in (THIN, FULL)),
            *(Sample(matrix((2, 4, 3), dtype), params=VALUES, tolerance=10) for dtype in COMPLEX)],
    det_p: of_shapes(SQUARE, matrix, {}),
    cofactor_p: [*of_shapes(SQUARE, matrix, {}),
                 *(Sample(np.asarray(a), without={"second": "right where singular values differ"}) for a in
                   (np.diag([2.0, 0.0, 3.0, 1.0]), np.zeros((3, 3)), np.diag([2.0, 0.0, 0.0]), np.ones((3, 3))))],
    slogdet_p: slogdet_samples(),
    pinv_p: [*(Sample(matrix(shape), np.full(shape[:-2], 1e-6), fixed=(1,), params={"truncates": truncates})
               for shape in MANY for truncates in (False, True)),
             *(Sample(matrix((2, 5, 3), dtype), np.full((2,), 0.5, matrix((1, 1), dtype).real.dtype), fixed=(1,),
                      tolerance=10, params={"truncates": True}) for dtype in NARROW),
             Sample(matrix((4, 5)), np.array(0.5), fixed=(1,), params={"truncates": True}),
             Sample(np.eye(3), np.array(1e-6), fixed=(1,), params={"truncates": False}),
             Sample(np.diag([2.0, 1.0, 0.0]), np.array(1e-6), fixed=(1,), params={"truncates": False},
                    without=no_derivatives("the rank changes"))],
    expm_p: [*of_shapes(SQUARE, matrix, {"max_squarings": 16}),
             Sample(9 * matrix((3, 3)), params={"max_squarings": 16}, tolerance=1000),
             Sample(np.stack([30 * matrix((2, 2)), matrix((2, 2))]), params={"max_squarings": 2},
                    without=no_derivatives("a result is NaN on purpose"))],
    expm_frechet_p: [*(Sample(matrix(shape), matrix(shape, seed=1), params={"max_squarings": 16}) for shape in SQUARE),
                     *(Sample(matrix((2, 3, 3), dtype), matrix((2, 3, 3), dtype, seed=1), tolerance=10,
                              params={"max_squarings": 16}) for dtype in NARROW),
                     Sample(9 * matrix((2, 2)), matrix((2, 2), seed=1), params={"max_squarings": 16}, tolerance=1000)],
    sylvester_p: [*(Sample(matrix((*stack, m, m), shift=3), matrix((*stack, n, n), shift=3, seed=1),
                           matrix((*stack, m, n), seed=2)) for stack, m, n in
                    (((), 0, 2), ((), 1, 1), ((), 3, 2), ((), 2, 0), ((2,), 2, 3), ((0,), 2, 2))),
                  *(Sample(matrix((2, 3, 3), dtype, 3), matrix((2, 2, 2), dtype, 3, seed=1),
                           matrix((2, 3, 2), dtype, seed=2), tolerance=20) for dtype in NARROW)],
    sqrtm_p: of_shapes(SQUARE, lambda shape, dtype="float64": matrix(shape, dtype, 4), {}),
    nearest_unitary_p: [*of_shapes(((0, 0), (1, 1), (2, 5, 3), (4, 4), (4, 2), (0, 3, 3), (3, 0)), matrix, {}),
                        Sample(np.eye(3)), Sample(np.diag([1.0, -1.0, 1.0]))],
    schur_p: of_shapes(SQUARE, matrix, {"vectors": True}, {"vectors": False}),
    hessenberg_p: of_shapes(SQUARE, matrix, {}),
    tridiagonal_p: of_shapes(SQUARE, hermitian, {"lower": True}, {"lower": False}),
}
