"""Sums over the first axes are products that are read row by row in code for CPUs: which, and their values."""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from fxgrad.tree import ShapeDtypeStruct

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.executors.column_sums import LARGEST_MADE, LARGEST_ROW, with_row_products

WIDE = LARGEST_ROW // 4 + 1


def primitives(fun: Any, *args: Any) -> list[str]:
    program = fxgrad.make_program(fun)(*args)
    return [str(equation.primitive) for equation in with_row_products(program).equations]


def struct(*shape: int, dtype: Any = np.float32) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(shape, dtype)


def total(x: Any) -> Any:
    return fnp.sum(x, axis=0)


@pytest.mark.parametrize("x", [struct(3, WIDE), struct(2, WIDE // 2 + 1, dtype=np.float64), struct(2, 3, WIDE // 3 + 1),
                               struct(5000, WIDE)], ids=str)
def test_sums_of_wide_rows_become_products(x: ShapeDtypeStruct) -> None:
    assert primitives(total, x) == ["broadcast_to", "dot_general"]


@pytest.mark.parametrize("x", [struct(3, WIDE - 1), struct(1, WIDE), struct(0, WIDE), struct(3, 0),
                               struct(3, 2 * WIDE, dtype=np.int32), struct(3, 2 * WIDE, dtype=np.complex64)], ids=str)
def test_other_sums_stay(x: ShapeDtypeStruct) -> None:
    assert "dot_general" not in primitives(total, x)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_summed_in_float32(dtype: Any) -> None:
    found = primitives(total, struct(3, WIDE, dtype=dtype))
    assert found == ["convert_element_type", "broadcast_to", "dot_general", "convert_element_type"]
    x = np.full((300, WIDE), 0.1).astype(dtype)
    want = (300 * x[0].astype(np.float64)).astype(dtype)
    np.testing.assert_array_equal(fxgrad.jit(total)(x), want)


def test_sums_over_other_axes_stay() -> None:
    assert "dot_general" not in primitives(lambda x: fnp.sum(x, axis=1), struct(WIDE, 3))
    assert "dot_general" not in primitives(lambda x: fnp.sum(x, axis=1), struct(2, 3, WIDE))
    assert "dot_general" not in primitives(lambda x: fnp.sum(x, axis=(0, 2)), struct(3, WIDE, 2))
    assert "dot_general" in primitives(lambda x: fnp.sum(x, axis=(0, 1)), struct(3, 2, WIDE))
    assert "dot_general" not in primitives(fnp.sum, struct(3, WIDE))


def test_large_arrays_that_are_not_stored_stay_within_the_sum() -> None:
    rows = LARGEST_MADE // (4 * WIDE)
    assert "dot_general" in primitives(lambda x: total(fnp.tanh(x)), struct(rows, WIDE))
    assert "dot_general" not in primitives(lambda x: total(fnp.tanh(x)), struct(rows + 1, WIDE))
    assert primitives(lambda x, y: total(x @ y), struct(rows + 1, 2), struct(2, WIDE)).count("dot_general") == 2
    column, row = struct(1_000_000, 1), struct(WIDE)
    assert "dot_general" not in primitives(lambda x, y: total(abs(x - y)), column, row)  # 65 GB otherwise


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(7, WIDE), (2, 3, WIDE)])
def test_values_and_gradients(shape: tuple[int, ...], dtype: Any) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(dtype) + dtype(0.1)
    axes = tuple(range(len(shape) - 1))
    exact = np.sum(x.astype(np.float64), axis=axes)
    found = fxgrad.jit(lambda x: fnp.sum(x, axis=axes))(x)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, exact, rtol=0, atol=8 * np.finfo(dtype).eps * np.max(np.sum(abs(x), axis=axes)))

    def loss(weights: Any) -> Any:
        return fnp.mean(fnp.tanh(x * weights) ** 2)

    weights = np.full(shape[-1], 0.3, dtype)
    slopes = np.sum(2 * np.tanh(x * weights) * (1 - np.tanh(x * weights) ** 2) * x / x.size, axis=axes)
    np.testing.assert_allclose(fxgrad.jit(fxgrad.grad(loss))(weights), slopes, rtol=0,
                               atol=40 * np.finfo(dtype).eps * np.max(abs(slopes)))


def test_what_is_not_finite_stays_in_its_column() -> None:
    x = np.ones((3, WIDE), np.float32)
    x[0, 0], x[1, 1], x[0, 2], x[1, 2], x[2, 3] = np.inf, np.nan, np.inf, -np.inf, 3e38
    x[1, 3] = 3e38
    found = np.asarray(fxgrad.jit(total)(x))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, np.sum(x, axis=0))


def test_sums_in_loops_branches_and_batches() -> None:
    x = np.random.default_rng(1).normal(size=(4, WIDE)).astype(np.float32)

    def looped(x: Any) -> Any:
        def step(carry: Any, scale: Any) -> Any:
            rows = fxgrad.lax.cond(scale > 1, lambda: total(x * scale), lambda: x[0])
            return carry + rows, fnp.max(rows)
        return fxgrad.lax.scan(step, fnp.zeros(WIDE, np.float32), fnp.arange(3, dtype=np.float32))

    want, largest = 2 * x[0] + 2 * x.sum(axis=0), [x[0].max(), x[0].max(), 2 * x.sum(axis=0).max()]
    for found in (looped(x), fxgrad.jit(looped)(x)):
        np.testing.assert_allclose(found[0], want, rtol=0, atol=2e-5)
        np.testing.assert_allclose(found[1], largest, rtol=1e-6)
    stacked = np.stack([x, -x])
    np.testing.assert_allclose(fxgrad.jit(fxgrad.vmap(total))(stacked), stacked.sum(axis=1), rtol=0, atol=1e-5)
    text = fxgrad.jit(looped).lower(x).as_text()
    assert "stablehlo.dot_general" in text


def test_code_for_other_devices_keeps_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    program = fxgrad.make_program(total)(struct(3, WIDE))
    monkeypatch.setattr("fxgrad.engine.executors.column_sums.default_device",
                        lambda: type("Device", (), {"platform": "gpu"}))
    assert with_row_products(program) is program


def test_arrays_on_several_devices_keep_sums() -> None:
    mesh = jax.make_mesh((8,), ("d",), devices=jax.devices()[:8])
    x = np.ones((8, WIDE), np.float32)
    placed = jax.device_put(x, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d")))
    jitted = fxgrad.jit(total)
    np.testing.assert_array_equal(jitted(placed), np.full(WIDE, 8.0))
    assert "stablehlo.dot_general" not in jitted.lower(placed).as_text()
    assert "stablehlo.dot_general" in fxgrad.jit(total).lower(x).as_text()


MATRIX, COLUMN, ROW = struct(3, 2), struct(3), struct(2)


@pytest.mark.parametrize(("fun", "args"), [
    (lambda a, v: a.T @ v, (MATRIX, COLUMN)), (lambda a, v: v @ a.T, (MATRIX, ROW)),
    (lambda a, v: a.T @ v, (MATRIX, struct(3, 1))), (lambda a, v: v @ a.T, (MATRIX, struct(1, 2))),
    (lambda a, v: fnp.tensordot(fnp.moveaxis(a, 2, 0), v, 2), (struct(3, 4, 2), struct(3, 4))),
    (lambda a, b, v: (a @ b).T @ v, (MATRIX, struct(2, 5), COLUMN)),
    (lambda a, v: a.T @ v, (struct(3, 2, dtype=np.float64), struct(3, dtype=np.float64))),
    (lambda a, v: a.T @ v, (struct(3, 2, dtype=np.int8), struct(3, dtype=np.int8)))])
def test_products_of_transposed_matrices_and_vectors_transpose_nothing(fun: Any, args: Any) -> None:
    assert "transpose" not in primitives(fun, *args)
    made = [np.random.default_rng(at).integers(-9, 9, arg.shape).astype(arg.dtype) for at, arg in enumerate(args)]
    found, want = fxgrad.jit(fun)(*made), fun(*made)
    np.testing.assert_array_equal(found, want)
    assert found.dtype == want.dtype


@pytest.mark.parametrize(("fun", "args"), [
    (lambda a, b: a.T @ b, (MATRIX, struct(3, 2))), (lambda a, v: fnp.tanh(a).T @ v, (MATRIX, COLUMN)),
    (lambda a, v: a.T @ v, (struct(3, 2, dtype=np.complex64), struct(3, dtype=np.complex64))),
    (lambda a, v: a.T @ v, (struct(3, 2, dtype=ml_dtypes.bfloat16), struct(3, dtype=ml_dtypes.bfloat16))),
    (lambda a, v: fnp.einsum("ij,kij->k", a.T, v), (MATRIX, struct(4, 2, 3))),
    (lambda a, v: (a.T, a.T @ v), (MATRIX, COLUMN))])
def test_other_transpositions_stay(fun: Any, args: Any) -> None:
    assert "transpose" in primitives(fun, *args)


def test_transposed_products_in_loops_batches_and_gradients() -> None:
    rng = np.random.default_rng(2)
    a, targets = rng.normal(size=(20, 3)) * 0.1, rng.normal(size=20)

    def descend(w: Any) -> Any:
        return fxgrad.lax.fori_loop(0, 5, lambda _, w: w - 0.1 * (a.T @ (a @ w - targets)), w)
    w = np.array([0.1, 0.2, 0.3])
    np.testing.assert_allclose(fxgrad.jit(descend)(w), descend(w), rtol=1e-14)
    assert "stablehlo.transpose" not in fxgrad.jit(descend).lower(w).as_text()
    many = rng.normal(size=(4, 3))
    np.testing.assert_allclose(fxgrad.jit(fxgrad.vmap(descend))(many), [descend(w) for w in many], rtol=1e-13)
    found = fxgrad.jit(fxgrad.jacobian(descend))(w)
    np.testing.assert_allclose(found, np.linalg.matrix_power(np.eye(3) - 0.1 * a.T @ a, 5), rtol=1e-13)
    empty = fxgrad.jit(lambda a, v: a.T @ v)(np.ones((0, 3), np.float32), np.ones(0, np.float32))
    np.testing.assert_array_equal(empty, np.zeros(3, np.float32))
