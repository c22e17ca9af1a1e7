"""Products of vectors and matrices, and Einstein sums, against jax.numpy; and how few operations they take."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import ArgumentError, ShapeError
from tests.support.with_numpy import (
    Call,
    assert_equal,
    call,
    check,
    check_all,
    check_gradients,
    draw,
    in_groups,
)

V, W, A, B, M = (draw(shape) for shape in ((3,), (4,), (2, 3), (2, 3, 4), (3, 4)))

PRODUCTS: list[tuple[Any, ...]] = [
    ("matmul", A, M), ("matmul", V, M), ("matmul", A, V), ("matmul", V, V), ("matmul", B, draw((4, 5))),
    ("matmul", M, draw((2, 4, 5))), ("matmul", B, draw((2, 4, 5))), ("matmul", draw((5, 1, 2, 3)), draw((4, 3, 2))),
    ("matmul", V, B), ("matmul", B, W), ("matmul", draw((0, 3)), M),
    ("matmul", draw((2, 3), "bool"), draw((3, 2), "bool")),
    ("matmul", draw((2, 3), "int8"), M), ("matmul", draw((2, 3), "bfloat16"), draw((3, 2), "bfloat16")),
    ("dot", A, M), ("dot", A, V), ("dot", V, V), ("dot", B, draw((5, 4, 2))), ("dot", B, W), ("dot", A, 2.0),
    ("inner", A, V), ("inner", A, A), ("inner", B, W), ("outer", V, W), ("outer", A, W), ("vdot", A, A),
    ("vdot", draw((3,), "complex64"), draw((3,), "complex64")), ("vecdot", A, V), ("matvec", B, W), ("vecmat", V, M),
    ("vecdot", draw((2, 3), "complex64"), draw((3,), "complex64")), ("tensordot", A, M, 1), ("tensordot", A, A),
    ("tensordot", B, B, ((0, 1), (0, 1))), ("tensordot", B, M, [[1, 2], [0, 1]]), ("tensordot", A, M, 0),
    ("tensordot", B, W, (2, 0)), ("kron", A, V), ("kron", A, M), ("cross", V, V), ("cross", A, V),
]


def test_cross_of_vectors_in_the_plane() -> None:
    """Newer NumPy and jax refuse them; here a missing third component is zero, and two such give the third alone."""
    a, b = draw((2, 2)), draw((2,))
    np.testing.assert_allclose(fnp.cross(a, b), a[:, 0] * b[1] - a[:, 1] * b[0], rtol=1e-6)
    np.testing.assert_allclose(fnp.cross(b, V), np.cross(np.append(b, np.float32(0)), V), rtol=1e-6)


@in_groups([call(*case) for case in PRODUCTS])
def test_products(calls: list[Call]) -> None:
    check_all(*calls)


@in_groups([call(name, x.astype(np.float64), y.astype(np.float64), *rest) for name, x, y, *rest in PRODUCTS
            if {getattr(each, "dtype", None) for each in (x, y)} == {np.dtype(np.float32)}
            and name != "vecdot"])  # conjugates
def test_gradients_of_products(calls: list[Call]) -> None:
    check_gradients(*calls)


EINSUMS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(2, 3), (3, 4)]), ("ij,jk", [(2, 3), (3, 4)]), ("ii", [(3, 3)]), ("ii->i", [(3, 3)]),
    ("ij->ji", [(2, 3)]), ("ij->", [(2, 3)]), ("i,i", [(3,), (3,)]), ("i,j->ij", [(3,), (4,)]),
    ("ij,ij->ij", [(2, 3), (2, 3)]), ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]), ("...ij,jk->...ik", [(2, 3, 4), (4, 5)]),
    ("...i,...i", [(2, 3), (3,)]), ("i...,i...->...", [(3, 2), (3, 2)]), ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
    ("ij,ij,ij->i", [(2, 3)] * 3), ("ijk,k,j->i", [(2, 3, 4), (4,), (3,)]), ("a,b,c->abc", [(2,), (3,), (4,)]),
    ("iij->ij", [(3, 3, 2)]), ("ijij->ji", [(2, 3, 2, 3)]), ("ij,i->j", [(2, 3), (2,)]), ("ij,kj->k", [(2, 3), (4, 3)]),
    ("ba", [(2, 3)]), ("", [()]), (",->", [(), ()]), (" i j , j k -> i k ", [(2, 3), (3, 4)]),
    ("ij,jk->ik", [(1, 3), (3, 4)]), ("i,i->i", [(1,), (4,)]), ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]),
    ("...,...->...", [(2, 3), (4, 2, 3)]), ("i...->...i", [(2, 3)]), ("ij,jk->ikj", [(2, 3), (3, 4)]),
]


def test_einsum() -> None:
    operands = [(subscripts, [draw(shape, "float64", seed=str(place)) for place, shape in enumerate(shapes)])
                for subscripts, shapes in EINSUMS]
    check_all(*(call("einsum", subscripts, *(array.astype(np.float32) for array in arrays))
                for subscripts, arrays in operands))
    check_gradients(*(call("einsum", subscripts, *arrays) for subscripts, arrays in operands))


@pytest.mark.parametrize("optimize", [False, True, "optimal", "greedy"])
def test_orders_of_contraction(optimize: Any) -> None:
    check("einsum", "ij,jk,kl,l->i", A, M, draw((4, 5)), draw((5,)), optimize=optimize)


def test_einsum_with_lists_and_types() -> None:
    assert_equal(fnp.einsum(A, [0, 1], M, [1, 2], [0, 2]), A @ M)
    assert_equal(fnp.einsum(A, [0, 1], M, [1, 2]), A @ M)
    check("einsum", "ij,jk->ik", draw((2, 3), "bfloat16"), draw((3, 4), "bfloat16"), preferred_element_type=np.float32)
    check("einsum", "ij,jk->ik", draw((2, 3), "int8"), M)


# --- economy ------------------------------------------------------------------------------------------------------


def names(function: Any, *args: Any) -> list[str]:
    return [equation.primitive.name for equation in fxgrad.make_program(function)(*args).equations]


def test_a_product_is_one_operation() -> None:
    for function in (lambda x, w: x @ w, lambda x, w: np.einsum("ij,jk->ik", x, w), np.matmul, np.dot):
        assert names(function, A, M) == ["dot_general"]
    assert names(lambda q, k: np.einsum("bqd,bkd->bqk", q, k), B, B) == ["dot_general"]


def test_the_gradient_of_a_product_transposes_nothing() -> None:
    assert "transpose" not in names(fxgrad.grad(lambda x, w: np.sum(np.tanh(x @ w)), argnums=(0, 1)), A, M)
    assert "transpose" not in names(fxgrad.grad(lambda x, w: np.sum(np.tanh(x @ w.T)), argnums=(0, 1)), A, draw((4, 3)))


def test_batches_of_products_transpose_nothing() -> None:
    assert names(fxgrad.vmap(lambda x, w: x @ w, in_axes=(0, None)), B, draw((4, 5))) == ["dot_general"]
    assert names(fxgrad.vmap(lambda x, w: x @ w), B, draw((2, 4, 5))) == ["dot_general"]


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "error", "text"), [
    (lambda: fnp.matmul(A, A), ShapeError,
     ("matmul: shapes (2, 3) and (2, 3) do not match: axis 1 of the first has size 3 and axis 0 of the second has size "
      "2, which must be equal. Transpose one of them, for example matmul(a, b.T)")),
    (lambda: fnp.dot(V, W), ShapeError,
     ("dot: shapes (3,) and (4,) do not match: axis 0 of the first has size 3 and axis 0 of the second has size 4, "
      "which must be equal")),
    (lambda: fnp.matmul(A, 2.0), ShapeError,
     "matmul: shapes (2, 3) and (); scalars have no matrix product, write a * b"),
    (lambda: fnp.matmul(B, draw((3, 4, 5))), ShapeError,
     ("matmul: shapes (2, 3, 4) and (3, 4, 5) do not match: without their last two axes they do not broadcast")),
    (lambda: fnp.tensordot(A, M, 2), ShapeError,
     ("tensordot: shapes (2, 3) and (3, 4) with axes (0, 1) and (0, 1): the sizes (2, 3) and (3, 4) must be equal")),
    (lambda: fnp.einsum("ij,jk->ik", A, A), ShapeError,
     "einsum: 'j' in 'ij,jk->ik' has sizes 3 and 2 in arrays of shapes (2, 3), (2, 3), which must be equal"),
    (lambda: fnp.einsum("ij->iz", A), ArgumentError,
     "einsum: the result 'iz' in 'ij->iz' must name axes of the operands, each once"),
    (lambda: fnp.einsum("i j$", A), ArgumentError,
     "einsum: 'ij$' in 'i j$' cannot be read; letters and one '...' can stand there"),
    (lambda: fnp.einsum("ij,jk", A), ArgumentError, "einsum: 'ij,jk' names 2 operands, and 1 are given"),
    (lambda: fnp.einsum("i", A), ShapeError,
     "einsum: 'i' in 'i' for an array of shape (2, 3); one letter an axis is needed"),
    (lambda: fnp.cross(W, W), ShapeError, "cross: vectors of 4 and 4 components; 2 or 3 are needed"),
])
def test_messages(function: Any, error: Any, text: str) -> None:
    with pytest.raises(error) as caught:
        function()
    assert str(caught.value).partition("\n  at ")[0] == text


def test_jax_arrays_stay_jax_arrays() -> None:
    assert isinstance(fnp.matmul(jnp.asarray(A), jnp.asarray(M)), jnp.ndarray)


@pytest.mark.parametrize("shapes", [((4, 3, 5), (4, 5), ((0, 2), (0, 1))), ((4, 3, 5), (5, 4), ((0, 2), (1, 0))),
                                    ((4, 3, 5), (4,), ((0,), (0,))), ((7, 9), (9,), ((1,), (0,))),
                                    ((7, 9), (7, 4), ((0,), (0,)))])
def test_repeated_elements_give_the_bits_of_stored_ones(shapes: Any) -> None:
    """A gradient's cotangents are one number repeated, stored or not; NumPy sums the latter in another order."""
    random = np.random.default_rng(0)
    left, right, contracted = shapes
    for _ in range(20):
        x, repeated = random.normal(size=left), np.broadcast_to(random.normal(), right)
        for first, second, axes in ((x, repeated, contracted), (repeated, x, contracted[::-1])):
            numbers = axes, ((), ())
            np.testing.assert_array_equal(
                fxgrad.lax.dot_general(first, second, numbers),
                fxgrad.lax.dot_general(np.array(first), np.array(second), numbers), strict=True)


def test_vecdot_keeps_an_axis_as_numpys() -> None:
    one, other = draw((4, 3, 2)).astype(float), draw((3, 2)).astype(float)
    for operands, axis in (((one, other), -1), ((one, other), -2), ((one, one), 0)):
        expected = np.vecdot(*operands, axis=axis, keepdims=True)
        for found in (fxgrad.jit(lambda x, y, a=axis: np.vecdot(x, y, axis=a, keepdims=True))(*operands),
                      fnp.vecdot(*operands, axis=axis, keepdims=True)):
            np.testing.assert_allclose(found, expected, rtol=1e-12)
