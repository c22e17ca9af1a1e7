"""What a checkpoint keeps, stored in fewer bits or in another memory, and what that does to gradients."""

from __future__ import annotations

import tracemalloc
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import checkpoint_policies as policies

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(16, 8)), RNG.normal(size=(8, 8)) / 2
STORES = {"offload": (policies.offload(), 1e-12), "bfloat16": (policies.store_as("bfloat16"), 1e-2),
          "float16": (policies.store_as(np.float16), 1e-3), "float32": (policies.store_as(np.dtype("float32")), 1e-6),
          "int8": (policies.store_as("int8"), 3e-2),
          "int8 of products": (policies.store_as("int8", policies.dots_saveable), 3e-2)}


def f(w: Any, x: Any) -> Any:
    return fnp.sum(fnp.sin(fnp.tanh(x @ w) @ w) ** 2)


def kept(function: Any, *args: Any) -> list[str]:
    return [str(each.aval) for each in fxgrad.saved_residuals(function, *args) if each.made_at != "an argument"]


@pytest.mark.parametrize("name", STORES)
def test_gradients_with_stored_values(name: str) -> None:
    policy, tolerance = STORES[name]
    block, expected = fxgrad.checkpoint(f, policy=policy), fxgrad.grad(f)(W, X)
    assert float(block(W, X)) == float(f(W, X))
    scale = np.max(np.abs(expected))
    for found in (fxgrad.grad(block)(W, X), fxgrad.jit(fxgrad.grad(block))(W, X)):
        np.testing.assert_allclose(found, expected, atol=tolerance * scale)
    assert np.any(fxgrad.grad(block)(W, X) != expected) == (name != "offload")


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_stored_values_under_other_transformations(name: str) -> None:
    policy, tolerance = STORES[name]
    block = fxgrad.checkpoint(f, policy=policy)
    expected = fxgrad.hessian(f)(W, X)
    if name.startswith("int8"):
        with pytest.raises(fxgrad.errors.UnsupportedError) as raised:
            fxgrad.hessian(block)(W, X)
        assert str(raised.value).split("\n")[0] == (
            "a second derivative goes through what a checkpoint keeps in int8, and rounding has no derivative. Keep it "
            "in bfloat16, fxgrad.checkpoint_policies.store_as('bfloat16'), or as it is")
        block = fxgrad.checkpoint(f, policy=policies.offload())
    np.testing.assert_allclose(fxgrad.hessian(block)(W, X), expected, atol=4 * tolerance * np.max(np.abs(expected)))
    block = fxgrad.checkpoint(f, policy=policy)
    expected = fxgrad.vmap(fxgrad.grad(f), (None, 0))(W, X)
    np.testing.assert_allclose(fxgrad.vmap(fxgrad.grad(block), (None, 0))(W, X), expected,
                               atol=tolerance * np.max(np.abs(expected)))
    looped = lambda each: lambda w: fxgrad.scan(lambda c, x: (c + each(w, x), None), 0.0, X.reshape(2, 8, 8))[0]
    expected = fxgrad.grad(looped(f))(W)
    np.testing.assert_allclose(fxgrad.grad(looped(block))(W), expected, atol=tolerance * np.max(np.abs(expected)))
    np.testing.assert_allclose(fxgrad.jvp(lambda w: block(w, X), (W,), (W,))[1], fxgrad.jvp(
        lambda w: f(w, X), (W,), (W,))[1], rtol=1e-12)


def test_what_is_stored() -> None:
    products = policies.store_as("int8", policies.dots_saveable)
    assert sorted(kept(fxgrad.checkpoint(f, policy=products), W, X)) == ["f64[16,1]"] * 2 + ["i8[16,8]"] * 2
    narrow = fxgrad.checkpoint(lambda x: fnp.exp(fnp.sin(x)), policy=policies.store_as("bfloat16"))
    assert set(kept(narrow, X)) == {"bf16[16,8]"}
    assert set(kept(narrow, X.astype(np.float16))) == {"f16[16,8]"}
    assert set(kept(narrow, X + 1j * X)) == {"c128[16,8]"}
    mixed = policies.save_from_both_policies(policies.save_only_these_names("a"),
                                             policies.store_as("float32", policies.save_only_these_names("b")))
    named = fxgrad.checkpoint(lambda x: fnp.sin(fxgrad.checkpoint_name(fnp.exp(fxgrad.checkpoint_name(
        fnp.sin(x), "a")), "b")), policy=mixed)
    assert sorted(kept(named, X)) == ["f32[16,8]", "f64[16,8]"]


@pytest.mark.parametrize("x", [np.zeros((4, 3)), np.ones((0, 3)), np.float64(2.0), np.array([[1e30, 1.0], [0.0, -2.0]]),
                               np.array([1, 2, 3])], ids=["zeros", "empty", "scalar", "wide", "integers"])
@pytest.mark.parametrize("store", ["int8", "bfloat16"])
def test_values_at_the_edge(x: Any, store: str) -> None:
    block = fxgrad.checkpoint(lambda x: fnp.sin(x * 1.0) * x, policy=policies.store_as(store))
    found = fxgrad.grad(lambda x: fnp.sum(block(x * 1.0)))(x * 1.0)
    assert found.shape == x.shape
    assert np.all(np.isfinite(found))


@pytest.mark.slow
def test_numpy_writes_what_is_offloaded_to_files() -> None:
    x = np.ones((64, 4096))
    chain = lambda x: fnp.sum(fnp.sin(fnp.sin(fnp.sin(fnp.sin(fnp.sin(fnp.sin(x)))))))
    peaks = []
    for function in (fxgrad.checkpoint(chain, policy=policies.everything_saveable),
                     fxgrad.checkpoint(chain, policy=policies.offload())):
        gradient = fxgrad.grad(function)
        expected = gradient(x)
        tracemalloc.start()
        np.testing.assert_array_equal(gradient(x), expected)
        peaks.append(tracemalloc.get_traced_memory()[1] / x.nbytes)
        tracemalloc.stop()
    assert peaks[1] < 4.5
    assert peaks[0] > 6


def test_xla_moves_what_is_offloaded_to_the_memory_of_the_host() -> None:
    x = np.ones((4, 4), np.float32)
    policy = policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    block = fxgrad.checkpoint(lambda x, w: fnp.sin(fnp.sin(x @ w)), policy=policy)
    gradient = fxgrad.to_jax(fxgrad.grad(lambda x, w: fnp.sum(block(block(x, w), w))))
    exported = jax.export.export(jax.jit(gradient), platforms=["cuda"])(x, x)
    text = exported.mlir_module()
    assert text.count("pinned_host") >= 2
    assert "annotate_device_placement" in text
    np.testing.assert_allclose(jax.jit(gradient)(x, x), fxgrad.grad(lambda x, w: fnp.sum(fnp.sin(fnp.sin(
        fnp.sin(fnp.sin(x @ w)) @ w))))(x, x), rtol=1e-5)


def test_the_report() -> None:
    report = fxgrad.policy_report(f, policies.store_as("bfloat16"), (0, 1))(W, X)
    assert report.saved * 4 == report.saved_without
    exact, rounded = fxgrad.grad(f, (0, 1))(W, X), fxgrad.grad(fxgrad.checkpoint(
        f, policy=policies.store_as("bfloat16")), (0, 1))(W, X)
    assert [each.error for each in report.errors] == [
        np.max(np.abs(one - other)) / np.max(np.abs(one)) for one, other in zip(exact, rounded, strict=True)]
    assert 0 < report.largest < 0.01
    assert "(25%)" in str(report)
    assert "gradient[1]" in str(report)


def test_errors_of_complex_gradients_are_measured_in_full_precision() -> None:
    def real(z: Any) -> Any:
        return fnp.sum(fnp.real(z * z) * fnp.exp(fnp.sin(fnp.abs(z))))
    z = (X[:4] + 1j * X[4:8]).astype(np.complex64)
    report = fxgrad.policy_report(real, policies.store_as("bfloat16"))(z)
    exact, rounded = (np.asarray(fxgrad.grad(f)(z), np.complex128) for f in (
        real, fxgrad.checkpoint(real, policy=policies.store_as("bfloat16"))))
    assert 0 < report.largest == np.max(np.abs(exact - rounded)) / np.max(np.abs(exact))


def test_policies_that_are_none() -> None:
    for call, expected in (
            (lambda: policies.store_as("int4"),
             "store_as: dtype is 'int4'; 'bfloat16', 'float16', 'float32' and 'int8' are there"),
            (lambda: policies.store_as("int8", "dots"),
             "store_as: policy is a str, where one of fxgrad.checkpoint_policies or a function is needed"),
            (lambda: policies.offload_dot_with_no_batch_dims("device", "disk"),
             ("offload_dot_with_no_batch_dims: offload_src='device', offload_dst='disk'; values go from 'device' to "
             "'pinned_host'"))):
        with pytest.raises(fxgrad.errors.ArgumentError) as raised:
            call()
        assert str(raised.value).split("\n")[0] == expected
