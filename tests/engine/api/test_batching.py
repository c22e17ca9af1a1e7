"""`vmap`: axes as ints, prefixes and by name; sizes; chunks; nesting; against Python loops."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
from fxgrad import grad, vmap

MATRIX = np.arange(12.0).reshape(3, 4)


def test_axes_of_arguments() -> None:
    def f(x, y):
        return np.dot(x, y)

    np.testing.assert_array_equal(vmap(f, in_axes=(0, None))(MATRIX, np.ones(4)), MATRIX.sum(1))
    np.testing.assert_array_equal(vmap(f, in_axes=(1, None))(MATRIX, np.ones(3)), MATRIX.sum(0))
    np.testing.assert_array_equal(vmap(f, in_axes=(-1, 1))(MATRIX, MATRIX), (MATRIX * MATRIX).sum(0))
    np.testing.assert_array_equal(vmap(f, in_axes=[None, 0])(np.ones(4), MATRIX), MATRIX.sum(1))


def test_axes_by_name() -> None:
    def f(x, y, scale=1.0):
        return np.sum(x * y) * scale

    expected = MATRIX.sum(1) * 2.0
    np.testing.assert_array_equal(vmap(f, in_axes={"x": 0})(MATRIX, np.ones(4), 2.0), expected)
    np.testing.assert_array_equal(vmap(f, in_axes={"x": 0})(MATRIX, np.ones(4), scale=2.0), expected)
    scales = np.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(
        vmap(f, in_axes={"x": 0, "scale": 0})(MATRIX, np.ones(4), scale=scales), MATRIX.sum(1) * scales)


def test_axes_of_keywords_belong_to_their_names_in_any_order() -> None:
    def f(a: Any, b: Any) -> Any:
        return a.sum() + (b * np.arange(3)).sum()

    a, b = np.arange(6.0).reshape(2, 3), np.arange(6.0, 12.0).reshape(3, 2)
    np.testing.assert_array_equal(vmap(f, in_axes={"a": 0, "b": 1})(b=b, a=a), [f(a[0], b[:, 0]), f(a[1], b[:, 1])])


def test_keyword_arguments_are_mapped() -> None:
    np.testing.assert_array_equal(vmap(lambda x, *, y: x * y)(np.arange(3.0), y=np.arange(3.0)), [0.0, 1.0, 4.0])


def test_prefixes_of_containers() -> None:
    params = {"w": np.ones((3, 2)), "b": np.arange(3.0)}

    def f(p, x):
        return {"y": p["w"] @ x + p["b"], "x": x}

    result = vmap(f, in_axes=({"w": None, "b": None}, 0), out_axes={"y": 1, "x": 0})(params, np.ones((5, 2)))
    assert result["y"].shape == (3, 5)
    assert result["x"].shape == (5, 2)
    mixed = vmap(lambda p: p["a"] * p["b"], in_axes=({"a": 0, "b": None},))({"a": np.arange(3.0), "b": 2.0})
    np.testing.assert_array_equal(mixed, [0.0, 2.0, 4.0])


def test_out_axes() -> None:
    assert vmap(lambda x: np.outer(x, x), out_axes=-1)(MATRIX).shape == (4, 4, 3)
    constant, mapped = vmap(lambda x: (np.float64(3.0), x), out_axes=(None, 0))(np.arange(2.0))
    assert constant == 3.0
    assert mapped.shape == (2,)
    np.testing.assert_array_equal(vmap(lambda x: 3.0)(np.arange(2.0)), [3.0, 3.0])


def test_axis_size_and_size_zero() -> None:
    np.testing.assert_array_equal(vmap(lambda x: x * 2.0, in_axes=None, axis_size=3)(1.0), [2.0, 2.0, 2.0])
    assert vmap(lambda x: np.sum(x * x))(np.zeros((0, 3))).shape == (0,)


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 100])
def test_chunks(chunk_size: int) -> None:
    expected = np.sin(MATRIX).sum(1)
    np.testing.assert_allclose(vmap(lambda x: np.sum(np.sin(x)), chunk_size=chunk_size)(MATRIX), expected, rtol=1e-12)
    np.testing.assert_allclose(
        vmap(lambda x: np.sin(x), in_axes=1, out_axes=1, chunk_size=chunk_size)(MATRIX), np.sin(MATRIX), rtol=1e-12)


def test_nesting_and_closures() -> None:
    outer = vmap(lambda x: vmap(lambda y: x * y)(np.arange(4.0)))(np.arange(3.0))
    np.testing.assert_array_equal(outer, np.outer(np.arange(3.0), np.arange(4.0)))
    slopes = vmap(grad(lambda x, y: x ** 2 * y), in_axes=(0, None))(np.arange(3.0), 2.0)
    np.testing.assert_array_equal(slopes, [0.0, 4.0, 8.0])
    np.testing.assert_array_equal(grad(lambda x: np.sum(vmap(lambda y: y * x)(np.arange(3.0))))(2.0), 3.0)


def test_per_example_gradients_equal_a_loop() -> None:
    rng = np.random.default_rng(0)
    w, xs, ys = rng.normal(size=(4, 3)), rng.normal(size=(6, 4)), rng.integers(0, 3, 6)

    def loss(w, x, y):
        logits = x @ w
        return np.log(np.sum(np.exp(logits))) - logits[y]

    batched = vmap(grad(loss), in_axes=(None, 0, 0))(w, xs, ys)
    looped = np.stack([grad(loss)(w, x, y) for x, y in zip(xs, ys, strict=True)])
    np.testing.assert_allclose(batched, looped, rtol=1e-12)


def test_batched_index_and_update() -> None:
    xs, indices = np.arange(12.0).reshape(3, 4), np.array([0, 3, 2])
    np.testing.assert_array_equal(vmap(lambda x, i: x[i])(xs, indices), [0.0, 7.0, 10.0])
    updated = vmap(lambda x, i: x.at[i].set(-1.0))(xs, indices)
    with jax.enable_x64(True):
        expected = jax.vmap(lambda x, i: x.at[i].set(-1.0))(jnp.asarray(xs), jnp.asarray(indices))
    np.testing.assert_array_equal(updated, expected)


def test_values_that_are_not_mapped_keep_python_control_flow() -> None:
    def f(x, flag):
        return x * 2.0 if flag else x

    np.testing.assert_array_equal(vmap(f, in_axes=(0, None))(np.arange(2.0), True), [0.0, 2.0])
    np.testing.assert_array_equal(vmap(f, in_axes=(0, None))(np.arange(2.0), np.bool_(False)), [0.0, 1.0])


def test_under_jit_with_integers_and_bools() -> None:
    counts = fxgrad.jit(vmap(lambda n, b: np.where(b, n, -n)))(np.arange(3), np.array([True, False, True]))
    np.testing.assert_array_equal(counts, [0, -1, 2])
    assert counts.dtype == np.int64


@pytest.mark.parametrize("size", [2, 3])
def test_what_is_not_batched_is_repeated_along_any_axis(size: int) -> None:
    value = np.arange(3.0)
    for axis in (0, 1, -1):
        repeated = vmap(lambda x: value, out_axes=axis)(np.arange(float(size)))
        np.testing.assert_array_equal(repeated, np.stack([value] * size, axis))


def test_loops_and_branches_that_hand_on_what_is_batched() -> None:
    """What every step leaves as it is may still be another in each lane."""
    xs = np.arange(3)
    handed = [lambda x: fxgrad.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1]), (x, x * 2))[1],
              lambda x: fxgrad.lax.fori_loop(0, x, lambda i, s: (s[0] + i, s[1]), (x, x * 2))[1],
              lambda x: fxgrad.lax.cond(x > 1, lambda a, b: (a, b), lambda a, b: (a + 1, b), x, x * 2)[1]]
    for function in handed:
        np.testing.assert_array_equal(vmap(function)(xs), [0, 2, 4])
