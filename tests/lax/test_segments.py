"""Reductions by segments, against jax: values, dtypes, derivatives, batches, options, messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors, ops

pytestmark = pytest.mark.slow  # jax, the oracle, compiles in every test; the laws and the examples are quick

NAMES = ("segment_sum", "segment_prod", "segment_min", "segment_max")
IDS = np.array([0, 2, -1, 0, 7, 2, 2, 1], "int32")


def drawn(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def same(ours: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(np.asarray(ours, "float64"), np.asarray(theirs, "float64"), tolerance, tolerance)


OPTIONS: list[dict[str, Any]] = [
    {"num_segments": 4}, {"num_segments": 4, "mode": "clip"}, {"num_segments": 0},
    {"num_segments": 4, "bucket_size": 3},
    {"num_segments": 9, "mode": "drop"}, {"num_segments": 4, "mode": jax.lax.GatherScatterMode.CLIP}, {},
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("shape", [(8,), (8, 2, 3)])
def test_values_are_jaxs(name: str, options: dict[str, Any], shape: tuple[int, ...]) -> None:
    data = drawn(*shape)
    ours, theirs = getattr(ops, name), getattr(jax.ops, name)
    expected = theirs(data, IDS, **options)
    same(ours(data, IDS, **options), expected)
    same(fxgrad.jit(lambda data: ours(data, IDS, **options))(data), expected)


@pytest.mark.parametrize("name", NAMES)
def test_promises_are_kept(name: str) -> None:
    ours, theirs = getattr(ops, name), getattr(jax.ops, name)
    data, ids = drawn(4, 3), np.array([0, 1, 3, 4])
    options = {"num_segments": 5, "indices_are_sorted": True, "unique_indices": True}
    same(ours(data, ids, **options), theirs(data, ids, **options))
    slope = fxgrad.grad(lambda x: fnp.sum(ours(x, ids, **options)[np.array([0, 1, 3, 4])] ** 2))(data)
    np.testing.assert_allclose(slope, 2 * data, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32", "uint8"])
def test_dtypes_are_jaxs(name: str, dtype: str) -> None:
    data = np.random.default_rng(0).integers(1, 4, (8, 2)).astype(jnp.dtype(dtype))
    with jax.enable_x64(True):
        expected = getattr(jax.ops, name)(data, IDS, 4)
    same(getattr(ops, name)(data, IDS, 4), expected)


def check_derivatives(name: str, ids: Any, bucket: int | None) -> None:
    data, tangent = drawn(8, 2), drawn(8, 2, seed=1)
    data[3] = data[0]  # a tie

    def ours(x):
        result = getattr(ops, name)(x, ids, 4, bucket_size=bucket)
        return fnp.where(fnp.isfinite(result), result, 0.0)

    def theirs(x):
        """jax has no derivative of products of rows that meet; this is the same by definition."""
        if name == "segment_prod":
            return jnp.prod(jnp.where((np.arange(4)[:, None] == ids)[:, :, None], x, 1.0), 1)
        result = getattr(jax.ops, name)(x, ids, 4)
        return jnp.where(jnp.isfinite(result), result, 0.0)

    @jax.jit  # one program to compile
    def expected(x, tangent):
        return (jax.jvp(theirs, (x,), (tangent,)),
                jax.jvp(jax.grad(lambda x: jnp.sum(theirs(x) ** 3)), (x,), (tangent,)))

    (value, slope), (first, second) = expected(data, tangent)
    same(fxgrad.jvp(ours, (data,), (tangent,))[0], value)
    same(fxgrad.jvp(ours, (data,), (tangent,))[1], slope)
    gradient = fxgrad.grad(lambda x: fnp.sum(ours(x) ** 3))
    same(gradient(data), first, 1e-4)
    same(fxgrad.jit(gradient)(data), first, 1e-4)
    same(fxgrad.jvp(gradient, (data,), (tangent,))[1], second, 1e-3)


@pytest.mark.parametrize("bucket", [None, 5])
@pytest.mark.parametrize("name", NAMES)
def test_derivatives(name: str, bucket: int | None) -> None:
    check_derivatives(name, np.array([0, 2, 3, 0, 3, 2, 2, 1], "int32"), bucket)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_where_rows_are_left_out(name: str) -> None:
    check_derivatives(name, IDS, None)


@pytest.mark.parametrize("name", NAMES)
def test_batches(name: str) -> None:
    data, ids = drawn(8, 3, 2), np.stack([IDS, IDS[::-1], IDS * 0])
    ours, theirs = getattr(ops, name), getattr(jax.ops, name)
    for axes in ((1, 0), (1, None), (None, 0)):
        args = [data if axes[0] is not None else data[:, 0], ids if axes[1] is not None else IDS]
        same(fxgrad.vmap(lambda x, i: ours(x, i, 4), in_axes=axes)(*args),
             jax.vmap(lambda x, i: theirs(x, i, 4), in_axes=axes)(*args))


def test_no_rows_at_all() -> None:
    assert ops.segment_sum(np.zeros((0, 2)), np.zeros(0, int)).shape == (0, 2)
    np.testing.assert_array_equal(ops.segment_max(np.zeros(0), np.zeros(0, int), 2), [-np.inf, -np.inf])


def test_the_number_of_segments_must_be_known() -> None:
    with pytest.raises(errors.ConcretizationError):
        fxgrad.jit(lambda ids: ops.segment_sum(np.ones(8), ids))(IDS)
    value, _ = fxgrad.jvp(lambda x: ops.segment_sum(x, IDS), (np.ones(8),), (np.ones(8),))
    assert value.shape == (8,)


MESSAGES: list[tuple[type[Exception], Callable[[], Any], str]] = [
    (errors.ShapeError, lambda: ops.segment_sum(np.ones((3, 2)), IDS, 4),
     ("segment_sum: segment_ids of shape (8,) for data of shape (3, 2); one id is needed for each row, an entry along "
      "the first axis")),
    (errors.DTypeError, lambda: ops.segment_min(np.ones(3), np.ones(3), 4),
     "segment_min: segment_ids are float64; integers are needed: segment_ids.astype('int32')"),
    (errors.DTypeError, lambda: ops.segment_max(np.ones(3) * 1j, np.ones(3, int), 4),
     ("segment_max: not defined for complex128; it takes ordered dtypes. Convert first, for example "
      "x.astype('float32')")),
    (errors.ArgumentError, lambda: ops.segment_prod(np.ones(3), np.ones(3, int), -1),
     "segment_prod: num_segments=-1; a number from 0 on is needed"),
    (errors.ArgumentError, lambda: ops.segment_sum(np.ones(3), np.ones(3, int), 4, bucket_size=0),
     "segment_sum: bucket_size=0; a number from 1 on is needed"),
    (errors.ArgumentError, lambda: ops.segment_sum(np.ones(3), np.ones(3, int), 4, mode="wrap"),
     "segment_sum: mode='wrap'; it is one of 'fill' (or 'drop'), 'clip', 'promise_in_bounds'"),
]


@pytest.mark.parametrize(("kind", "call", "text"), [(*case,) for case in MESSAGES])
def test_messages(kind: type[Exception], call: Callable[[], Any], text: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert re.sub(r"\n  at .*", "", str(caught.value)) == text
