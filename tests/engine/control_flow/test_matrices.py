"""Matrices of which a traced number of rows and columns counts: `a[:n, :n]`, `a[:, mask]`, `a[np.ix_(mask, mask)]`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, make_program, python_control_flow, vmap
from fxgrad.errors import CheckError, FxgradError
from tests.support.converted import assert_refused

CASES = []
_STEP = 1e-6


def case(function: Any) -> Any:
    CASES.append(function)
    return function


@case
def of_a_square(a, x, n, m):
    b = a[:n, :n]
    return np.linalg.det(b), np.linalg.slogdet(b)[1], np.trace(np.linalg.inv(b)), np.trace(b), np.linalg.solve(
        b, x[:n]).sum(), np.linalg.solve(b, a[:n, 1:3]).sum(axis=0), np.linalg.matrix_power(b, 3).sum(), np.linalg.det(
        np.linalg.inv(b) @ b)


@case
def by_factors(a, x, n, m):
    lower = np.linalg.cholesky(a[:n, :n])
    alpha = np.linalg.solve(lower.T, np.linalg.solve(lower, x[:n]))
    q, r = np.linalg.qr(a[:, :n])
    return x[:n] @ alpha, np.log(np.diag(lower)).sum(), (q.T @ x).sum(), np.abs(np.diagonal(r)).prod(), (q @ r)[n].sum()


@case
def by_eigenvalues(a, x, n, m):
    values, vectors = np.linalg.eigh(a[:n, :n])
    return values.sum(), values[0], (vectors[:, 0] @ x[:n]) ** 2, np.linalg.eigvalsh(a[:n, :n])[-1]


@case
def by_singular_values(a, x, n, m):
    solution, residuals, rank, values = np.linalg.lstsq(a[:, :n], x, rcond=None)
    return solution.sum(), residuals.sum(), rank, values[-1], (np.linalg.pinv(a[:, :n]) @ x).sum(), np.linalg.svdvals(
        a[:n, 1:])[0], np.linalg.svd(a[:n, :n], compute_uv=False).sum()


@case
def products(a, x, n, m):
    b = a[:n, :n]
    return (x[:n] @ b @ x[:n], (b @ b)[0].sum(), (a[:, :n] @ x[:n]), (a[:, :n] @ b).sum(axis=1), (x @ a[:, :n]).sum(),
            a[:, :n].dot(x[:n]), np.dot(b, x[:n]).sum(), (a[:2] @ a[:, :n]).sum(axis=1), (a[:n] @ a).sum(axis=0),
            (a[:, :n] @ a[:n]), np.outer(x[:n], x[:n]).sum(), np.outer(x, x[:n]).sum(axis=1),
            np.linalg.solve(a, a[:, :n]).sum(axis=1))


@case
def elements(a, x, n, m):
    b = a[:n, :n]
    apart = x[:n][:, None] - x[:n]
    return (np.exp(-apart ** 2).sum(), (b * x[:n]).sum(), (x[:n, None] * b).max(), np.where(b > 0, b, 0.0).sum(),
            (2 - b / 3).min(), np.abs(b).sum(), (b == b.T).all(), (b < 0).any(), (a[:, :n] + x[:, None]).sum(axis=1),
            np.maximum(a[:, :n], 0.5).mean(), (b[0] - b).sum(), np.sqrt(b * b).sum(), (-b).sum(),
            (x[:n, None] * x[None, :n]).sum(), (x[:n][None] - a[:2, :n]).sum(axis=1))


@case
def reductions(a, x, n, m):
    b, c = a[:n, :n], a[:, :n]
    return (b.sum(axis=0).max(), b.mean(axis=1).sum(), b.std(), np.var(c, axis=1), c.sum(axis=1), c.mean(axis=0).sum(),
            c.max(axis=1), np.prod(b, axis=0).sum(), (b - b.mean(axis=0)).std(axis=0).sum(), np.min(b), b.size, len(b),
            len(c), (b / b.sum(axis=1, keepdims=True)).max(), np.linalg.norm(b), np.linalg.norm(c, axis=1),
            np.linalg.norm(b, 1), np.linalg.norm(c, axis=0).sum(), np.sum(b, axis=1).argmax(), np.mean(c),
            c.argmax(axis=1), np.argmin(b), np.median(b), np.cumsum(b, axis=0)[n - 1].sum(), np.cumsum(b).max(),
            np.linalg.cond(b), np.linalg.matrix_rank(c), b.ravel()[n - 1], np.array(b).sum(), b.diagonal().sum(),
            b.round(1).sum(), b.clip(0.1, 1.0).sum())


@case
def parts(a, x, n, m):
    b = a[:n, :n]
    return (b[0].sum(), b[n - 1, n - 1], b[-1, -1], b[:, 0].sum(), b[1:, :-1].sum(), b[:n - 1].sum(), b.T[0].sum(),
            a[1:3, :n].sum(axis=1), a[::-1, :n][0].sum(), a[n:, n:].sum(), a[:n][:, :n].sum(), a[:, ::-1][:, :n].sum(),
            a[:, 1:n + 1].sum(axis=1), np.triu(b).sum(), np.tril(b, -1).sum(),
            b.copy().astype("complex128").conj().sum().real,
            np.transpose(b)[0].sum(), np.diag(x[:n]).sum(axis=0).max(), b[b > 0].sum(),
            len(a[:, :n][a[:, :n] > 0.5]),
            b[[0, -1]].sum(), a[:, :n][[0, 2], 0], a[:, :n][3, [0, -1]])


@case
def by_masks(a, x, n, m):
    chosen = a[np.ix_(m, m)]
    weights = np.linalg.lstsq(a[:, m], x, rcond=None)[0]
    return (np.linalg.solve(chosen, x[m]).sum(), np.linalg.det(a[m][:, m]), a[:, m].mean(axis=1), weights @ x[m],
            a[m, :n].sum(), a[:n, m].sum(), chosen[0].sum(), a[1:, m].sum(axis=1),
            a[np.ix_(np.array([0, n]), np.array([n, 1, 2]))])


@case
def stores(a, x, n, m):
    c, d, e = np.zeros((5, 5)), a.copy(), a.copy()
    c[:n, :n] = np.outer(x[:n], x[:n])
    c[:, :n] += x[:, None]
    d[:n, :n] = d[:n, :n].T @ d[:n, :n]
    d[n:, :n] *= x[:n]
    d[:, m] = d[:, m] * 2
    e[np.ix_(m, m)] = np.linalg.inv(e[np.ix_(m, m)])
    e[:n, 1:n + 1] = e[:n, :n]
    f, h = np.zeros((5, 5)), a.copy()
    f[np.ix_(m, m)] = 1.0
    h[np.ix_(m, m)] += 1.0
    h[np.ix_(m, np.arange(5) > 2)] = h[np.ix_(m, np.arange(5) > 2)] * 3
    return c, d, e, f, h


@case
def copies(a, x, n, m):
    a = a.copy()
    chosen, product, copied = a[:, m], a[:n, :n] * 1.0, a[:n, :n].copy()
    row = chosen[0].sum()
    a[0, 0] = 7.0
    a[1] = 3.0
    return chosen.sum(axis=1), product.sum(), copied.sum(), row, a


@case
def in_loops(a, x, n, m):
    c, k, total = a.copy(), 0, 0.0
    while k < n - 1:
        c[k + 1:, k:] -= np.outer(c[k + 1:, k] / c[k, k], c[k, k:])
        total += np.linalg.det(a[:k + 1, :k + 1])
        k += 1
    for row in a[:n, :n]:
        total += row.max()
    b, turn = a[:n, :n], 0
    while turn < n:
        b = b @ a[:n, :n] / 10
        turn += 1
    for row in a[:, :n]:
        total += row.sum()
    return c, total, b.sum(), (a[:n] ** 2).std(axis=1).sum()


@case
def in_branches(a, x, n, m):
    b = a[:n, :n]
    if x[0] > 0.0:
        b = b * 2.0
    else:
        b = b.T + 1.0
    return b.sum() if n > 2 else b[0, 0]


def arguments() -> tuple[Any, ...]:
    rng = np.random.default_rng(1)
    a, x = rng.normal(size=(5, 5)), rng.normal(size=5)
    masks = np.array([[1, 0, 1, 1, 0], [0, 1, 1, 0, 0], [0, 0, 0, 0, 1]]) > 0
    return a @ a.T + np.eye(5), x, np.array([2, 4, 1]), masks


def assert_equal(found: Any, expected: Any, rtol: float = 1e-10) -> None:
    for one, other in zip(fxgrad.tree.leaves(found), fxgrad.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * 1e-2)


@pytest.mark.parametrize("function", CASES)
def test_programs_compute_what_numpy_does(function: Any) -> None:
    a, x, lengths, masks = arguments()
    converted = python_control_flow(function)
    program = make_program(converted)(a, x, lengths[0], masks[0])
    for n, m in zip(lengths, masks, strict=True):
        assert_equal(program(a, x, n, m), function(a, x, n, m))


@pytest.mark.slow
@pytest.mark.parametrize("function", CASES)
def test_compiled_batches_are_numpys(function: Any) -> None:
    a, x, lengths, masks = arguments()
    found = jit(vmap(python_control_flow(function), in_axes=(None, None, 0, 0)))(a, x, lengths, masks)
    for place, (n, m) in enumerate(zip(lengths, masks, strict=True)):
        assert_equal([each[place] for each in fxgrad.tree.leaves(found)], function(a, x, n, m))


@pytest.mark.slow
@pytest.mark.parametrize("function", CASES)
def test_results_have_numpys_dtypes(function: Any) -> None:
    a, x, lengths, masks = arguments()
    a, x = a.astype(np.float32), x.astype(np.float32) * np.float32(0.1)
    expected = fxgrad.tree.leaves(function(a, x, lengths[0], masks[0]))
    program = make_program(python_control_flow(function))(a, x, lengths[0], masks[0])
    found = fxgrad.tree.leaves(program(a, x, lengths[0], masks[0]))
    dtypes = [[np.asarray(each).dtype for each in results] for results in (found, expected)]
    assert all(one == other for one, other in zip(*dtypes, strict=True) if other.kind == "f")
    assert_equal(found, expected, 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("function", [each for each in CASES if each is not reductions])
def test_gradients(function: Any) -> None:
    """The deviation of one number, in `reductions`, has none."""
    def total(f: Any, n: Any, m: Any) -> Any:
        return lambda a, x: sum(np.sum(np.cos(each)) for each in fxgrad.tree.leaves(f(a, x, n, m))
                                if getattr(each, "dtype", np.dtype(type(each))).kind == "f")

    a, x, lengths, masks = arguments()
    rng = np.random.default_rng(0)
    along_x, along_a = rng.normal(size=5), rng.normal(size=(5, 5))
    along_a = along_a + along_a.T
    slope = jit(grad(lambda n, m, a, x: total(python_control_flow(function), n, m)(a, x), argnums=(2, 3)))
    for n, m in zip(lengths, masks, strict=True):
        value = total(function, n, m)
        difference = value(a + _STEP * along_a, x + _STEP * along_x) - value(a - _STEP * along_a, x - _STEP * along_x)
        of_a, of_x = slope(n, m, a, x)
        np.testing.assert_allclose(np.sum(of_a * along_a) + np.sum(of_x * along_x), difference / (2 * _STEP), rtol=1e-4)


def test_a_product_with_a_number_is_that_of_each_element() -> None:
    program = make_program(python_control_flow(lambda a, n: np.dot(a[:n, :n], 2.0).sum()))(np.ones((3, 3)), 2)
    assert program(np.ones((3, 3)), 2) == 8


# --- what is refused --------------------------------------------------------------------------------------------------


def changed_matrix(x, n):
    b = (np.ones((4, 4)) * x)[:n, :n]
    b[0, 0] = 2.0  # here
    return b.sum()


def changed_array(x, n):
    a = np.ones((4, 4)) * x
    b = a[:n, :n]
    a[0, 0] = 2.0  # here
    return b.sum()


def shape_of_matrix(x, n):
    return (np.ones((4, 4)) * x)[:, :n].shape  # here


def joined_matrices(x, n):
    a = np.ones((4, 4)) * x
    return np.hstack([a[:n, :n], a[:n, n:]]).sum()  # here


def singular_vectors(x, n):
    return np.linalg.svd((np.ones((4, 4)) * x)[:, :n])[0].sum()  # here


def mesh_of_three_axes(x, n):
    mask = np.arange(4) < n
    return (np.ones((4, 4, 4)) * x)[np.ix_(mask, mask)].sum()  # here


def mask_and_places(x, n):
    return (np.ones((4, 4)) * x)[np.ix_(np.arange(4) < n, [0, 1])].sum()  # here


def pairs_of_places(x, n):
    return (np.ones((4, 4)) * x)[:n, :n][[0, 1], [0, 1]].sum()  # here


def changed_under_a_row(x, n):
    a = np.ones((4, 4)) * x
    row = a[:n, :n].T[0]
    a[0, 0] = 2.0  # here
    return row.sum()


def printed_matrix(x, n):
    print((np.ones((4, 4)) * x)[:n, :n])  # noqa: T201  # here
    return x


def text_of_slice(x, n):
    return len(f"{(np.ones(4) * x)[:n]}")  # here


def determinant_of_rows(x, n):
    return np.linalg.det((np.ones((4, 2)) * x)[:n])  # here


_CHANGED = ("a[...] = v changes the array of `a`, which another name, a container or a view has too and would see "
            "change in NumPy. Write a = a.copy() before")
_TEXT = ("a slice with a traced bound, whose length is not known, is made text. Print the array and the bounds, or go "
         "over the items in a loop")
_LOOP = "does not take a slice with a traced bound, whose length is not known. Go over the items in a loop with an `if`"


@pytest.mark.parametrize(("function", "message"), [
    (changed_matrix, ("a slice with a traced bound changes in place. Write x[a:b] = v or x[i] = v on the array; give "
                      "functions the array and the bounds")),
    (changed_array, _CHANGED),
    (shape_of_matrix, ("the shape of a matrix with traced bounds is traced. Write len(x) and len(x.T) in converted "
                       "code")),
    (joined_matrices, f"concatenate of matrices {_LOOP}"),
    (singular_vectors, f"svd with vectors {_LOOP}"),
    (mesh_of_three_axes, f"np.ix_ of an array that is no matrix {_LOOP}"),
    (mask_and_places, f"np.ix_ with a traced mask and places {_LOOP}"),
    (pairs_of_places, f"an index of several arrays, of a new axis or an ellipsis {_LOOP}"),
    (changed_under_a_row, _CHANGED),
    (printed_matrix, _TEXT),
    (text_of_slice, _TEXT),
    (determinant_of_rows, f"det {_LOOP}"),
])
def test_what_is_not_taken_is_refused_by_line(function: Any, message: str) -> None:
    assert_refused(function, None, message)


def test_two_masks_choose_pairs_whose_number_is_not_known() -> None:
    converted = jit(python_control_flow(lambda a, m: a[m, ~m].sum()))
    with pytest.raises(FxgradError, match=r"a mask x\[mask\], whose result has a size that depends on it"):
        converted(np.eye(4), np.array([True, False, True, False]))


def test_lengths_that_differ_are_an_error() -> None:
    a = np.eye(4)
    solved = python_control_flow(lambda a, n, k: np.linalg.solve(a[:n, :n], a[:k, 0]).sum())
    assert vmap(solved, in_axes=(None, 0, 0))(a, np.array([2]), np.array([2])) == 1
    with pytest.raises(CheckError, match="the slices and arrays must have one length, got 2 and 3"):
        vmap(solved, in_axes=(None, 0, 0))(a, np.array([2]), np.array([3]))
    oblong = python_control_flow(lambda a, n, k: np.linalg.det(a[:n, :k]))
    with pytest.raises(CheckError, match="the slices and arrays must have one length, got 2 and 3"):
        vmap(oblong, in_axes=(None, 0, 0))(a, np.array([2]), np.array([3]))
    wide = python_control_flow(lambda a, n, k: np.linalg.qr(a[:n, :k])[1].sum())
    with pytest.raises(CheckError, match="qr of a matrix with more columns, 3, than rows, 2"):
        vmap(wide, in_axes=(None, 0, 0))(a, np.array([2]), np.array([3]))


def test_known_sizes_that_differ_are_an_error() -> None:
    with pytest.raises(ValueError, match="do not broadcast"):
        make_program(python_control_flow(lambda a, n: a[:, :n] + np.ones((3, 1))))(np.eye(4), 2)
    with pytest.raises(ValueError, match="3"):
        make_program(python_control_flow(lambda a, n: np.ones((2, 3)) @ a[:, :n]))(np.eye(4), 2)
