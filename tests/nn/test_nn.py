"""The functions of fxgrad.nn, against jax.nn: values, dtypes, derivatives, batches, programs, messages."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors, image, nn, ops

pytestmark = pytest.mark.slow  # jax, the oracle, compiles in every test; the laws and the examples are quick

ACTIVATIONS: dict[str, dict[str, Any]] = {
    "celu": {"alpha": 0.7}, "elu": {"alpha": 0.7}, "gelu": {"approximate": False}, "hard_sigmoid": {},
    "hard_silu": {}, "hard_swish": {}, "hard_tanh": {}, "identity": {}, "leaky_relu": {"negative_slope": 0.2},
    "log_sigmoid": {}, "mish": {}, "relu": {}, "relu6": {}, "selu": {}, "sigmoid": {}, "silu": {}, "soft_sign": {},
    "softplus": {}, "sparse_plus": {}, "sparse_sigmoid": {}, "squareplus": {"b": 3}, "swish": {}, "tanh": {},
}
POINTS = np.array([-1e4, -50.0, -3.5, -1.5, -0.3, 0.2, 0.7, 2.5, 4.5, 30.0, 1e4], "float32")
KINKS = np.array([-3.0, -1.0, -0.0, 0.0, 1.0, 3.0, 6.0], "float32")
SUMS: dict[str, list[dict[str, Any]]] = {
    "softmax": [{}, {"axis": 0}, {"axis": (0, 2)}, {"axis": None}],
    "log_softmax": [{}, {"axis": 0}, {"axis": (0, 2)}, {"axis": None}],
    "logsumexp": [{}, {"axis": 1}, {"axis": (0, -1), "keepdims": True}, {"axis": ()}],
    "logmeanexp": [{}, {"axis": 1}, {"axis": (0, -1), "keepdims": True}],
    "standardize": [{}, {"axis": 0, "epsilon": 1e-2}, {"axis": (0, 2)}, {"axis": 1, "algorithm": "stable"}],
    "glu": [{"axis": 1}],
}


def drawn(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def same(ours: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert mine.dtype == other.dtype
        assert mine.shape == other.shape
        np.testing.assert_allclose(np.asarray(mine, "complex128"), np.asarray(other, "complex128"), tolerance,
                                   tolerance)


def compare(ours: Callable[..., Any], theirs: Callable[..., Any], *args: Any, tolerance: float = 2e-5) -> None:
    """Value, jit, jvp, gradient, second derivative and vmap of two functions of arrays."""
    tangents = tuple(drawn(*arg.shape, dtype=arg.dtype, seed=3 + place) for place, arg in enumerate(args))
    batch = [np.stack([arg, arg[..., ::-1]], 1) for arg in args]
    every = tuple(range(len(args)))
    result = ours(*args)
    weights = drawn(*result.shape, dtype=result.dtype, seed=7)

    @jax.jit  # one program to compile
    def expected(args: Any, tangents: Any, batch: Any) -> Any:
        gradient = jax.grad(lambda *values: jnp.sum(jnp.real(theirs(*values) * weights)), every)
        return (jax.jvp(theirs, args, tangents), jax.jvp(gradient, args, tangents),
                jax.vmap(theirs, in_axes=1)(*batch))

    forward, (first, second), batched = expected(args, tangents, batch)
    same(result, forward[0], tolerance)
    same(fxgrad.jit(ours)(*args), forward[0], tolerance)
    same(fxgrad.jvp(ours, args, tangents), forward, tolerance)
    gradient = fxgrad.grad(lambda *values: fnp.sum(fnp.real(ours(*values) * weights)), every)
    same(gradient(*args), first, tolerance)
    same(fxgrad.jvp(gradient, args, tangents)[1], second, 10 * tolerance)
    same(fxgrad.vmap(ours, in_axes=1)(*batch), batched, tolerance)


def _squareplus(x: Any, b: Any = 4) -> Any:
    """Return what jax's is from 0 on; below, where that loses its digits, the same quotient as ours."""
    root = jnp.sqrt(jnp.square(x) + b)
    return jnp.where(x < 0, b / 2 / jnp.where(x < 0, root - x, 1), (root + x) / 2)


def of_jax(name: str) -> Any:
    return _squareplus if name == "squareplus" else getattr(jax.nn, name)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_jaxs(name: str) -> None:
    for options in ({}, ACTIVATIONS[name]):
        compare(lambda x, options=options: getattr(nn, name)(x, **options),
                lambda x, options=options: of_jax(name)(x, **options), POINTS)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_at_kinks_and_beyond(name: str) -> None:
    ours, theirs = getattr(nn, name), of_jax(name)
    same(ours(KINKS), theirs(KINKS))
    same(fxgrad.vmap(fxgrad.grad(ours))(KINKS), jax.jit(jax.vmap(jax.grad(theirs)))(KINKS))
    far = np.array([np.nan, np.inf, -np.inf], "float32")
    same(ours(far), theirs(far))


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32", "uint8"])
def test_activations_have_jaxs_dtypes(name: str, dtype: str) -> None:
    x = np.array([0, 1, 3, 7]).astype(jnp.dtype(dtype))
    if dtype == "uint8" and name in ("log_sigmoid", "hard_tanh"):
        return  # jax wraps negative numbers round
    # jax has no sigmoid of integers, which are floats here.
    given = x.astype("float32") if name in ("sigmoid", "silu", "swish") and x.dtype.kind in "iu" else x
    with jax.enable_x64(dtype == "float64"):
        expected = getattr(jax.nn, name)(given)
    same(getattr(nn, name)(x), expected, 2e-2 if x.dtype.itemsize == 2 else 1e-5)


@pytest.mark.slow
def test_parameters_may_be_arrays() -> None:
    x, parameter = drawn(4, 3), np.abs(drawn(3, seed=1)) + 0.5
    for name in ("celu", "elu", "leaky_relu", "squareplus"):
        compare(getattr(nn, name), getattr(jax.nn, name), x, np.broadcast_to(parameter, (4, 3)).copy())


def test_log1mexp() -> None:
    x = np.array([1e-7, 1e-3, 0.5, 0.69, 0.7, 2.0, 30.0, 200.0], "float32")
    compare(nn.log1mexp, jax.nn.log1mexp, x[1:-1])
    same(nn.log1mexp(x), jax.nn.log1mexp(x))
    for at in (0.0, 1e-7, 200.0):
        same(fxgrad.grad(nn.log1mexp)(np.float32(at)), jax.grad(jax.nn.log1mexp)(np.float32(at)))
    same(nn.log1mexp(np.array([0.0, -1.0], "float32")), jax.nn.log1mexp(np.array([0.0, -1.0], "float32")))


@pytest.mark.parametrize(("name", "options"), [
    pytest.param(name, options, marks=[pytest.mark.slow] * (index > 1)) for name, several in SUMS.items()
    for index, options in enumerate(several)])
def test_sums_are_jaxs(name: str, options: dict[str, Any]) -> None:
    compare(lambda x: getattr(nn, name)(x, **options), lambda x: getattr(jax.nn, name)(x, **options),
            3 * drawn(3, 4, 2), tolerance=5e-5)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "logmeanexp", "standardize"])
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32", "uint8", "bool"])
def test_sums_have_jaxs_dtypes(name: str, dtype: str) -> None:
    x = np.array([[0, 1, 3], [2, 2, 0]]).astype(jnp.dtype(dtype))
    # jax takes the maximum of integers from minus infinity on, which they have not; here they are floats before.
    given = x.astype("float32") if name in ("softmax", "log_softmax") and x.dtype.kind in "iub" else x
    for where in (None, np.array([[True, True, False], [True, False, True]])):
        with jax.enable_x64(dtype == "float64"):
            expected = getattr(jax.nn, name)(given, axis=-1, where=where)
        same(getattr(nn, name)(x, axis=-1, where=where), expected, 2e-2 if x.dtype.itemsize == 2 else 1e-5)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "logmeanexp"])
def test_infinities(name: str) -> None:
    for row in ([-np.inf, 0.0, 1.0], [-np.inf] * 3, [np.inf, 0.0, 1.0], [np.nan, 0.0, 1.0], [1e30, -1e30, 1e30]):
        x = np.array(row, "float32")
        same(getattr(nn, name)(x, axis=0), getattr(jax.nn, name)(x, axis=0))
    x = np.array([-np.inf, 0.0, 1.0], "float32")
    weights = np.array([0.0, 2.0, 3.0], "float32")

    def energy(module: Any, library: Any) -> Any:
        return lambda x: library.sum(library.where(library.isfinite(x), getattr(module, name)(x, axis=0), 0.0)
                                     * weights)

    same(fxgrad.grad(energy(nn, fnp))(x), jax.grad(energy(jax.nn, jnp))(x))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "logmeanexp", "standardize"])
def test_masks(name: str) -> None:
    x, mask = drawn(3, 5), np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1], [0, 0, 1, 1, 1]], bool)
    finite = -1e3 if name == "log_softmax" else None

    def over(module: Any, library: Any) -> Any:
        def function(x):
            result = getattr(module, name)(x, axis=1, where=mask)
            return library.where(mask, result, finite) if finite is not None else result
        return function

    same(getattr(nn, name)(x, 1, where=mask), getattr(jax.nn, name)(x, 1, where=mask))
    compare(over(nn, fnp), over(jax.nn, jnp), x, tolerance=5e-5)


def test_a_row_that_is_masked_as_a_whole() -> None:
    x, mask = drawn(2, 3), np.array([[0, 0, 0], [1, 1, 0]], bool)
    compare(lambda x: nn.softmax(x, where=mask), lambda x: jax.nn.softmax(x, where=mask), x)
    same(nn.log_softmax(x, where=mask), jax.nn.log_softmax(x, where=mask))
    slope = fxgrad.grad(lambda x: fnp.sum(fnp.where(mask, nn.log_softmax(x, where=mask), 0.0)))(x)
    assert np.all(np.isfinite(slope))


@pytest.mark.slow
def test_logsumexp_with_weights_and_signs() -> None:
    a, b = drawn(3, 4), drawn(3, 4, seed=1)
    b[0, 0] = 0.0
    compare(lambda a, b: nn.logsumexp(a, 1, b, return_sign=True)[0],
            lambda a, b: jax.nn.logsumexp(a, 1, b, return_sign=True)[0], a, b, tolerance=1e-4)
    several: list[dict[str, Any]] = [{}, {"axis": 0, "keepdims": True}, {"where": a > 0, "axis": 1}]
    for options in several:
        for sign in (True, False):
            theirs = jax.jit(functools.partial(jax.nn.logsumexp, return_sign=sign, **options))
            same(nn.logsumexp(a, b=b, return_sign=sign, **options), theirs(a, b=b), 1e-4)
            same(nn.logsumexp(a, return_sign=sign, **options), theirs(a))
    z = (a + 1j * b).astype("complex64")
    for sign in (True, False):
        theirs = jax.jit(functools.partial(jax.nn.logsumexp, axis=1, return_sign=sign))
        same(nn.logsumexp(z, 1, return_sign=sign), theirs(z))
        same(nn.logsumexp(z, 1, b, return_sign=sign), theirs(z, b=b), 1e-4)


@pytest.mark.slow
def test_standardize_with_a_mean_and_a_variance_of_ones_own() -> None:
    x, mean, variance = drawn(3, 4), drawn(3, 4, seed=1), np.abs(drawn(3, 4, seed=2))
    compare(lambda x, mean, variance: nn.standardize(x, 1, mean, variance),
            lambda x, mean, variance: jax.nn.standardize(x, 1, mean, variance), x, mean, variance, tolerance=1e-4)
    compare(lambda x, mean: nn.standardize(x, 1, mean), lambda x, mean: jax.nn.standardize(x, 1, mean), x, 0.1 * mean,
            tolerance=2e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_standardize_in_half_precision(dtype: str) -> None:
    weights = np.array([1.0, -2.0, 0.5, 3.0])
    for values in map(np.array, ([0.0] * 4, [3.0] * 4, [300.0, -900.0, 40.0, 5.0], [98.0, 103.0, 99.0, 101.0])):
        x = values.astype(fxgrad.dtypes.SUPPORTED[dtype])
        for transform in (lambda f: f, fxgrad.jit):
            found = transform(nn.standardize)(x)
            assert found.dtype == x.dtype
            np.testing.assert_allclose(found.astype(float), nn.standardize(values), atol=0.01)
            slope = transform(fxgrad.grad(lambda x: fnp.sum(nn.standardize(x) * weights.astype(x.dtype))))(x)
            exact = fxgrad.grad(lambda x: np.sum(nn.standardize(x) * weights))(values)
            np.testing.assert_allclose(slope.astype(float), exact, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(axis: int) -> None:
    x = np.array([[0, 2, -1], [3, 1, 4]])
    for dtype in (None, "float16", "int32", "bool"):
        same(nn.one_hot(x, 4, dtype=dtype, axis=axis), jax.nn.one_hot(x, 4, dtype=dtype, axis=axis))
    same(fxgrad.vmap(lambda x: nn.one_hot(x, 4, axis=axis % 2))(x), jax.vmap(
        lambda x: jax.nn.one_hot(x, 4, axis=axis % 2))(x))
    same(fxgrad.jit(lambda x: nn.one_hot(x, 4))(x.astype("uint8")), jax.nn.one_hot(x.astype("uint8"), 4))
    same(nn.one_hot(1, 3), jax.nn.one_hot(1, 3))


@pytest.mark.parametrize("name", [*sorted(set(ACTIVATIONS) - {"hard_swish", "swish"}), "softmax", "log_softmax",
                                  "logsumexp", "glu", "standardize", "log1mexp"])
def test_programs_show_one_line(name: str) -> None:
    program = fxgrad.make_program(lambda x: getattr(nn, name)(x))(np.ones((2, 4)))
    assert [equation.params.get("name") for equation in program.equations] == [name]


# --- attention --------------------------------------------------------------------------------------------------------

B, T, S, N, K, H = 2, 5, 7, 4, 2, 3
ATTENTION: dict[str, dict[str, Any]] = {
    "plain": {}, "scaled": {"scale": 0.3}, "causal": {"is_causal": True}, "window": {"local_window_size": (2, 1)},
    "symmetric window": {"local_window_size": 1, "is_causal": True}, "xla": {"implementation": "xla"},
    "mask": {"mask": np.random.default_rng(1).integers(0, 2, (B, N, T, S)).astype(bool)},
    "one mask for all heads": {"mask": np.random.default_rng(1).integers(0, 2, (1, 1, T, S)).astype(bool)},
    "bias": {"bias": drawn(1, N, T, S, seed=4)}, "one bias for all heads": {"bias": drawn(B, 1, T, S, seed=4)},
    "lengths": {"query_seq_lengths": np.int32([3, 5]), "key_value_seq_lengths": np.int32([6, 2])},
    "lengths of keys": {"key_value_seq_lengths": np.int32([6, 2]), "is_causal": True},
    "all": {"query_seq_lengths": np.int32([3, 5]), "key_value_seq_lengths": np.int32([6, 4]), "is_causal": True,
            "mask": np.ones((B, 1, 1, S), bool), "bias": drawn(B, N, T, S, seed=4), "local_window_size": (3, 3)},
}


@pytest.mark.parametrize("case", ATTENTION)
def test_attention_is_jaxs(case: str) -> None:
    options = ATTENTION[case]
    args = drawn(B, T, N, H), drawn(B, S, K, H, seed=1), drawn(B, S, K, H, seed=2)
    expected = jax.nn.dot_product_attention(*args, **options)
    ours = nn.dot_product_attention(*args, **options)
    same(ours, expected)
    same(fxgrad.jit(lambda *args: nn.dot_product_attention(*args, **options))(*args), expected)
    weights = drawn(*expected.shape, seed=6)
    same(fxgrad.grad(lambda *args: fnp.sum(nn.dot_product_attention(*args, **options) * weights), (0, 1, 2))(*args),
         jax.jit(jax.grad(lambda *args: jnp.sum(jax.nn.dot_product_attention(*args, **options) * weights),
                          (0, 1, 2)))(*args), 5e-5)


LONG: dict[str, dict[str, Any]] = {
    "plain": {}, "causal": {"is_causal": True}, "window": {"local_window_size": (40, 3), "scale": 0.3},
    "mask": {"mask": np.random.default_rng(1).random((1, 1, 300, 31)) < 0.8},
    "bias": {"bias": drawn(B, N, 300, 31, seed=4)}, "one bias for all queries": {"bias": drawn(B, 1, 1, 31, seed=4)},
    "lengths": {"query_seq_lengths": np.int32([300, 140]), "key_value_seq_lengths": np.int32([6, 31])}}


@pytest.mark.slow
@pytest.mark.parametrize("queries", [300, 256, 20, 0])
@pytest.mark.parametrize("case", LONG)
def test_attention_in_chunks_is_the_same(case: str, queries: int) -> None:
    options = {name: each[:, :, :queries] if name in ("mask", "bias") and each.shape[2] > 1 else each
               for name, each in LONG[case].items()}
    args = drawn(B, queries, N, H), drawn(B, 31, K, H, seed=1), drawn(B, 31, K, H, seed=2)
    same(nn.dot_product_attention(*args, implementation="chunked", return_residual=True, **options),
         nn.dot_product_attention(*args, return_residual=True, **options))

    def gradients(implementation: str) -> Any:
        return fxgrad.grad(lambda *args: fnp.sum(nn.dot_product_attention(
            *args, implementation=implementation, **options) ** 2), (0, 1, 2))

    same(gradients("chunked")(*args), gradients("xla")(*args), 5e-5)
    same(fxgrad.jit(gradients("chunked"))(*args), gradients("xla")(*args), 5e-5)


@pytest.mark.slow
def test_attention_in_chunks_keeps_what_is_linear_in_the_length() -> None:
    def kept(implementation: str, length: int) -> int:
        args = [np.ones((1, length, 2, 4), np.float32)] * 3
        return sum(each.nbytes for each in fxgrad.saved_residuals(lambda *args: fnp.sum(nn.dot_product_attention(
            *args, is_causal=True, implementation=implementation)), *args))

    assert kept("chunked", 1024) <= 2 * kept("chunked", 512) <= 4 * 3 * 512 * 8 * 4
    assert kept("xla", 1024) > 3.9 * kept("xla", 512)


@pytest.mark.slow
def test_attention_in_chunks_is_differentiated_twice_and_batched() -> None:
    args = [drawn(260, N, H, seed=seed).astype(np.float64) / 4 for seed in range(3)]

    def loss(implementation: str) -> Any:
        return lambda q: fnp.sum(nn.dot_product_attention(q, *args[1:], implementation=implementation) ** 2)

    found, expected = (fxgrad.jvp(fxgrad.grad(loss(each)), (args[0],), (args[1],))[1] for each in ("chunked", "xla"))
    np.testing.assert_allclose(found, expected, atol=1e-12, rtol=1e-14)
    batch = np.stack([args[0], args[1]])
    np.testing.assert_allclose(fxgrad.vmap(fxgrad.grad(loss("chunked")))(batch), fxgrad.vmap(fxgrad.grad(loss("xla")))(
        batch), atol=1e-12, rtol=1e-14)


@pytest.mark.slow
def test_attention_second_order_and_batches() -> None:
    args = drawn(T, N, H), drawn(S, N, H, seed=1), drawn(S, N, H, seed=2)
    compare(lambda *args: nn.dot_product_attention(*args, is_causal=True),
            lambda *args: jax.nn.dot_product_attention(*args, is_causal=True), *args, tolerance=5e-5)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_attention_dtypes_and_residuals(dtype: str) -> None:
    args = [drawn(B, T, N, H, seed=seed).astype(jnp.dtype(dtype)) for seed in range(3)]
    with jax.enable_x64(dtype == "float64"):
        expected = jax.nn.dot_product_attention(*args, return_residual=True)
        single = jax.nn.dot_product_attention(*(arg[0] for arg in args), return_residual=True)
    tolerance = 2e-2 if dtype != "float64" else 1e-5
    same(nn.dot_product_attention(*args, return_residual=True), expected, tolerance)
    same(nn.dot_product_attention(*(arg[0] for arg in args), return_residual=True), single, tolerance)


# --- initializers -----------------------------------------------------------------------------------------------------

WITH_FANS = ("glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "kaiming_normal", "kaiming_uniform",
             "lecun_normal", "lecun_uniform", "xavier_normal", "xavier_uniform")
KEY = np.array([3, 14], "uint32")


def made(module: Any, key: Any, name: str, args: tuple[Any, ...], *rest: Any, **options: Any) -> Any:
    return getattr(module.initializers, name)(*args, **options)(key, *rest)


def check_initializer(name: str, *args: Any, shape: Any = (4, 6), dtype: Any = None, tolerance: float = 1e-6,
                      **options: Any) -> None:
    same(made(nn, KEY, name, args, shape, dtype, **options), made(jax.nn, KEY, name, args, shape, dtype, **options),
         tolerance)


@pytest.mark.parametrize("name", [*WITH_FANS, "normal", "uniform", "truncated_normal", "orthogonal"])
def test_initializers_are_jaxs(name: str) -> None:
    check_initializer(name)
    if name != "orthogonal":  # neither jax nor LAPACK decomposes narrow floats
        check_initializer(name, shape=(3, 2, 4), dtype="float16", tolerance=2e-3)
    same(fxgrad.jit(lambda key: made(nn, key, name, (), (4, 6)))(KEY), made(jax.nn, KEY, name, (), (4, 6)), 1e-6)
    if name in WITH_FANS:
        check_initializer(name, shape=(3, 2, 4, 5), in_axis=(0, 1), out_axis=-1, batch_axis=2)


@pytest.mark.parametrize("mode", ["fan_in", "fan_out", "fan_avg", "fan_geo_avg"])
@pytest.mark.parametrize("distribution", ["normal", "truncated_normal", "uniform"])
def test_variance_scaling(mode: str, distribution: str) -> None:
    check_initializer("variance_scaling", 1.5, mode, distribution, shape=(5, 2, 3))
    check_initializer("variance_scaling", 1.5, mode, distribution, shape=(5, 2, 3), dtype="complex64", tolerance=1e-5)


def test_initializers_of_no_elements_and_of_half_precision() -> None:
    for shape in ((0, 3), (3, 0), (2, 0, 4)):
        for initializer in (nn.initializers.he_normal(), nn.initializers.glorot_uniform(),
                            nn.initializers.orthogonal()):
            assert initializer(KEY, shape, np.float16).shape == shape
    for dtype, rtol in (("float16", 2e-3), ("bfloat16", 2e-2)):
        columns = nn.initializers.orthogonal(2.0)(KEY, (6, 4), dtype)
        assert columns.dtype == dtype
        columns = np.asarray(columns, np.float64)
        np.testing.assert_allclose(columns.T @ columns, 4.0 * np.eye(4), atol=4.0 * rtol)


def test_other_initializers() -> None:
    check_initializer("normal", 2.5)
    check_initializer("uniform", 2.5, dtype="bfloat16", tolerance=1e-2)
    check_initializer("truncated_normal", 2.5, None, -1.0, 3.0)
    check_initializer("constant", 2.5)
    check_initializer("constant", np.arange(6.0), "float16")
    check_initializer("orthogonal", 2.0, 0, shape=(5, 3, 2))
    check_initializer("orthogonal", shape=(0, 2))
    for shape in ((3, 2, 4), (2, 3, 2, 2), (3, 1, 2, 2, 3)):
        check_initializer("delta_orthogonal", 2.0, shape=shape)
    for name in ("zeros", "ones"):
        same(getattr(nn.initializers, name)(KEY, (2, 3)), getattr(jax.nn.initializers, name)(KEY, (2, 3)))


def test_every_name_of_jax_is_there() -> None:
    needs_hardware = {"scaled_matmul", "scaled_dot_general", "get_scaled_dot_general_config"}
    names = {name for name in dir(jax.nn) if not name.startswith("_")}
    assert names - set(nn.__all__) == needs_hardware
    assert {name for name in dir(jax.nn.initializers) if not name.startswith("_")} <= set(nn.initializers.__all__)


@pytest.mark.parametrize("module", [nn, nn.initializers, ops, image], ids=lambda module: module.__name__)
def test_names_are_sorted_and_shown_by_example(module: Any) -> None:
    assert list(module.__all__) == sorted(set(module.__all__))
    for name in set(module.__all__) - {"initializers"}:
        assert ">>> " in (inspect.getdoc(getattr(module, name)) or ""), name


MESSAGES: list[tuple[type[Exception], Callable[[], Any], str]] = [
    (errors.ShapeError, lambda: nn.glu(np.ones((2, 3))),
     "glu: axis 1 of an array of shape (2, 3) has an odd size; it is split into two halves"),
    (errors.AxisError, lambda: nn.softmax(np.ones(3), 1),
     "softmax: axis 1 of an array with 1 axes; an axis from -1 to 0 is needed"),
    (errors.ArgumentError, lambda: nn.standardize(np.ones(3), algorithm="exact"),
     "standardize: algorithm='exact'; it is 'fast' or 'stable'"),
    (errors.UnsupportedError, lambda: nn.dot_product_attention(*[np.ones((2, 1, 3))] * 3, implementation="cudnn"),
     "dot_product_attention: implementation='cudnn'; None, 'xla' and 'chunked' are there"),
    (errors.ShapeError, lambda: nn.dot_product_attention(np.ones((2, 3, 4)), *[np.ones((5, 2, 4))] * 2),
     ("dot_product_attention: a query of shape (1, 2, 3, 4); for a key of shape (1, 5, 2, 4): (1, queries, heads, 4), "
      "the heads a multiple of 2, is needed")),
    (errors.ShapeError, lambda: nn.dot_product_attention(*[np.ones((2, 3, 4))] * 3, mask=np.ones((2, 3), bool)),
     ("dot_product_attention: a mask of shape (1, 1, 2, 3); one that broadcasts to (batch, heads, queries, keys) = "
      "(1, 3, 2, 2) is needed")),
    (errors.DTypeError, lambda: nn.dot_product_attention(*[np.ones((2, 3, 4))] * 3, mask=np.ones((2, 2))),
     ("dot_product_attention: a mask of dtype float64; bool is needed: mask != 0, or pass numbers to be added as "
      "bias")),
    (errors.DTypeError, lambda: nn.dot_product_attention(np.ones((2, 3, 4), "float32"), *[np.ones((2, 3, 4))] * 2),
     ("dot_product_attention: query, key and value of dtypes float32, float64, float64, which must be equal; convert "
      "with x.astype(...)")),
    (errors.ArgumentError, lambda: nn.initializers.variance_scaling(1.0, "fan", "normal"),
     "variance_scaling: mode='fan'; it is one of 'fan_in', 'fan_out', 'fan_avg', 'fan_geo_avg'"),
    (errors.ArgumentError, lambda: nn.initializers.variance_scaling(1.0, "fan_in", "even"),
     "variance_scaling: distribution='even'; it is one of 'truncated_normal', 'normal', 'uniform'"),
    (errors.ShapeError, lambda: nn.initializers.he_normal()(KEY, (3,)),
     ("initializers: weights of shape (3,) have no axis of inputs (in_axis=-2); two axes are needed, or in_axis=")),
    (errors.ShapeError, lambda: nn.initializers.orthogonal()(KEY, (3,)),
     "orthogonal: weights of shape (3,); at least two axes are needed"),
    (errors.ShapeError, lambda: nn.initializers.delta_orthogonal()(KEY, (3, 3, 2)),
     ("delta_orthogonal: weights of shape (3, 3, 2); (space, inputs, outputs) are needed, with 1 to 3 spatial axes and "
      "no more inputs than outputs")),
]


@pytest.mark.parametrize(("kind", "call", "text"), [(*case,) for case in MESSAGES])
def test_messages(kind: type[Exception], call: Callable[[], Any], text: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert re.sub(r"\n  at .*", "", str(caught.value)) == text
