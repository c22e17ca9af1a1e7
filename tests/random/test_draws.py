"""The samplers against those of jax: equal bits, or equal to rounding where a formula follows."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import scipy.special
import scipy.stats

import fxgrad
from fxgrad import dtypes
from fxgrad.engine.ops import xla_kernels

pytestmark = pytest.mark.slow  # jax, the oracle, compiles in every test; the laws and the examples are quick

SHAPES: list[tuple[int, ...]] = [(), (0,), (3, 4)]
ULPS = {"float64": 4e-15, "float32": 2e-6, "float16": 4e-3, "bfloat16": 3e-2}
"""By dtype, how far formulas of several steps may differ: XLA fuses steps and has functions of its own."""


SIGNED = {"rademacher", "double_sided_maxwell", "generalized_normal", "ball"}


def compare(ours: Any, theirs: Any, tolerance: float = 0.0) -> None:
    """Equal shapes and dtypes, and numbers to `tolerance`."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    if tolerance:
        wide = np.complex128 if theirs.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(ours.astype(wide), theirs.astype(wide), rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(ours, theirs)


def of_jax(name: str, *args: Any, wide: bool = True, **options: Any) -> Any:
    with jax.enable_x64(wide):
        return np.asarray(getattr(jax.random, name)(jax.random.key(11), *args, **options))


def of_ours(name: str, *args: Any, **options: Any) -> Any:
    # Signs are drawn as numbers of the default dtype, which is float64 with jax's x64.
    with fxgrad.default_dtype("float64" if name in SIGNED and args else "float32"):
        return getattr(fxgrad.random, name)(fxgrad.random.key(11), *args, **options)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_uniform(shape: tuple[int, ...], dtype: str) -> None:
    wanted = dtypes.SUPPORTED[dtype]
    compare(of_ours("uniform", shape, wanted), of_jax("uniform", shape, wanted))
    compare(of_ours("uniform", shape, wanted, -2.0, 2.0), of_jax("uniform", shape, wanted, -2.0, 2.0))
    compare(of_ours("uniform", shape, wanted, 0.3, 1.7), of_jax("uniform", shape, wanted, 0.3, 1.7), ULPS[dtype])
    compare(of_ours("uniform", (2, 3), wanted, np.zeros(3), np.ones((2, 1))), of_jax("uniform", (2, 3), wanted))


RANGES: list[tuple[Any, Any]] = [
    (0, 10), (-3, 4), (5, 5), (7, 3), (np.arange(4), np.arange(4) + np.array([[1], [2], [100]]))]


@pytest.mark.parametrize("dtype", ["int32", "int64", "int16", "int8", "uint8", "uint32", "uint64"])
@pytest.mark.parametrize(("low", "high"), RANGES)
def test_randint(low: Any, high: Any, dtype: str) -> None:
    shape = (3, 4)
    compare(of_ours("randint", shape, low, high, dtype), of_jax("randint", shape, low, high, dtype))


@pytest.mark.parametrize("dtype", ["int32", "int64", "int16", "int8", "uint8", "uint32"])
def test_randint_of_the_whole_range(dtype: str) -> None:
    limits = np.iinfo(dtype)
    for low, high in ((limits.min, limits.max), (0, limits.max), (limits.min, int(limits.max) + 1)):
        if high < 2**63:
            compare(of_ours("randint", (50,), np.int64(low), np.int64(high), dtype),
                    of_jax("randint", (50,), np.int64(low), np.int64(high), dtype))
    compare(of_ours("randint", (5,), 0, 2**31 - 1), of_jax("randint", (5,), 0, 2**31 - 1, wide=False))


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
def test_unsigned_signs_and_counts(dtype: str) -> None:
    """The sign -1 is the greatest number."""
    compare(of_ours("rademacher", (9,), dtype), of_jax("rademacher", (9,), dtype))
    for rate in (3.0, -1.0):
        compare(of_ours("poisson", rate, (5,), dtype), of_jax("poisson", rate, (5,), dtype))
    np.testing.assert_array_equal(of_ours("poisson", np.inf, (2,), dtype), np.full(2, np.iinfo(dtype).max, dtype))


def test_no_choices_have_the_dtype_of_choices() -> None:
    for a in (5, np.arange(5)):
        for replace in (True, False):
            none, one = (of_ours("choice", a, (count,), replace) for count in (0, 1))
            assert (none.shape, none.dtype) == ((0,), one.dtype)


@pytest.mark.slow
def test_defaults_are_those_of_jax_without_x64() -> None:
    for name, args in (("uniform", ()), ("normal", ()), ("randint", ((3,), 0, 9)), ("bits", ()), ("bernoulli", ()),
                       ("rademacher", ()), ("gumbel", ()), ("gamma", (2.0,)), ("poisson", (3.0,)),
                       ("binomial", (5.0, 0.3)), ("permutation", (5,)), ("choice", (5, (3,))),
                       ("categorical", (np.zeros(3, np.float32),)), ("geometric", (0.3,)), ("bits", ((4,),))):
        compare(of_ours(name, *args), of_jax(name, *args, wide=False), 1e-6)


@pytest.mark.parametrize("dtype", ["float32", *(
    pytest.param(name, marks=pytest.mark.slow) for name in ("float64", "float16", "bfloat16"))])
@pytest.mark.parametrize("name", ["normal", "exponential", "gumbel", "laplace", "logistic", "cauchy", "maxwell",
                                  "rademacher"])
def test_without_parameters(name: str, dtype: str) -> None:
    wanted = dtypes.SUPPORTED[dtype]
    for shape in SHAPES:
        # The tangent of an angle near a right one has lost digits.
        tolerance = ULPS[dtype] * (30 if name == "cauchy" else 1)
        compare(of_ours(name, shape, wanted), of_jax(name, shape, wanted), tolerance)


PARAMETERS: list[tuple[str, tuple[Any, ...], tuple[int, ...]]] = [
    ("truncated_normal", (-1.0, np.array([0.5, 2.0])), (3, 2)),
    ("lognormal", (np.array([0.5, 2.0]),), (3, 2)),
    ("double_sided_maxwell", (0.5, np.array([1.0, 2.0])), (3,)),
    ("rayleigh", (np.array([0.5, 2.0]),), (3, 2)),
    ("wald", (np.array([0.5, 2.0]),), (3, 2)),
    ("pareto", (np.array([0.5, 2.0]),), (3, 2)),
    ("weibull_min", (2.0, np.array([0.5, 2.0])), (3, 2)),
    ("triangular", (0.0, np.array([0.5, 1.0]), 2.0), (3, 2)),
    ("gamma", (np.array([0.5, 2.0]),), (3, 2)),
    ("loggamma", (np.array([0.01, 2.0]),), (3, 2)),
    ("beta", (np.array([0.5, 2.0]), 3.0), (3, 2)),
    ("dirichlet", (np.array([0.5, 2.0, 1.0]),), (3, 2)),
    ("chisquare", (np.array([3.0, 2.0]),), (3, 2)),
    ("t", (np.array([3.0, 2.0]),), (3, 2)),
    ("f", (np.array([3.0, 2.0]), np.array([4.0, 5.0])), (2,)),
    ("generalized_normal", (1.5,), (3, 2)),
    ("ball", (3, 1.5), (2,)),
    ("ball", (2,), ()),
    ("orthogonal", (3,), (2,)),
]
REJECTING = {"loggamma", "dirichlet", "beta", "chisquare", "t", "f", "ball"}
"""Made of gamma numbers, whose sampler takes long to compile: `gamma` stands for them in the quick tier."""
NEEDS_A_SHAPE = {"double_sided_maxwell", "weibull_min", "generalized_normal", "ball", "orthogonal"}


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "parameters", "shape"), [
    pytest.param(*case, id=case[0], marks=[pytest.mark.slow] * (case[0] in REJECTING)) for case in PARAMETERS])
def test_with_parameters(name: str, parameters: tuple[Any, ...], shape: tuple[int, ...], dtype: str) -> None:
    typed = tuple(value.astype(dtype) if isinstance(value, np.ndarray) else
                  np.asarray(value, dtype) if isinstance(value, float) else value for value in parameters)
    tolerance = ULPS[dtype] * 20
    compare(of_ours(name, *typed, shape=shape, dtype=dtype), of_jax(name, *typed, shape=shape, dtype=dtype), tolerance)
    if name not in NEEDS_A_SHAPE:
        compare(of_ours(name, *typed, dtype=dtype), of_jax(name, *typed, dtype=dtype), tolerance)


@pytest.mark.parametrize(("n", "m"), [(3, 2), (2, 3)])
def test_orthogonal_rectangles(n: int, m: int) -> None:
    compare(of_ours("orthogonal", n, (2,), "float64", m), of_jax("orthogonal", n, (2,), "float64", m), 1e-13)


@pytest.mark.parametrize("method", ["cholesky", "eigh", "svd"])
def test_multivariate_normal(method: str) -> None:
    mean = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    root = np.array([[1.0, 0, 0], [0.5, 2, 0], [0.1, -0.3, 0.7]])
    for args in ((mean, root @ root.T), (mean[0], root @ root.T, (4,)), (mean, root @ root.T, (5, 2), "float64")):
        compare(of_ours("multivariate_normal", *args, method=method),
                of_jax("multivariate_normal", *args, method=method), 1e-12)


@pytest.mark.parametrize("name", ["gumbel", "bernoulli"])
def test_more_bits(name: str) -> None:
    args: tuple[Any, ...] = ((3, 4), "float64") if name == "gumbel" else (np.array(0.3), (3, 4))
    compare(of_ours(name, *args, mode="high"), of_jax(name, *args, mode="high"), 1e-14)


def test_complex_normal() -> None:
    for dtype in ("complex64", "complex128"):
        compare(of_ours("normal", (3, 4), dtype), of_jax("normal", (3, 4), dtype), 1e-6 if dtype == "complex64" else
                1e-14)


# --- choices and counts -------------------------------------------------------------------------------------------

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
P = np.array([0.1, 0.2, 0.3, 0.4], np.float32)


@pytest.mark.parametrize("x", [5, 0, 1, np.arange(7), ROWS], ids=str)
def test_permutation(x: Any) -> None:
    compare(of_ours("permutation", x), of_jax("permutation", x, wide=isinstance(x, np.ndarray)))


def test_permutation_along_axes() -> None:
    compare(of_ours("permutation", ROWS, 1), of_jax("permutation", ROWS, 1))
    for axis in (0, 1):
        compare(of_ours("permutation", ROWS, axis, independent=True),
                of_jax("permutation", ROWS, axis, independent=True))
    many = np.arange(3000)  # two rounds
    compare(of_ours("permutation", many), of_jax("permutation", many))


CHOICES: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((10, (3, 2)), {}), ((10, (3, 2), False), {}), ((ROWS, (5,)), {"axis": 1}), ((ROWS, (2, 2), False), {}),
    ((4, (6,)), {"p": P}), ((ROWS, (3,), False), {"p": P}),
    ((4, (2,), False), {"p": P, "mode": "high"}), ((ROWS, ()), {}),
    ((ROWS, (0,)), {})]


@pytest.mark.parametrize(("args", "options"), CHOICES)
def test_choice(args: tuple[Any, ...], options: dict[str, Any]) -> None:
    compare(of_ours("choice", *args, **options), of_jax("choice", *args, **options, wide=False))


@pytest.mark.parametrize(("axis", "shape"), [(-1, None), (0, None), (-1, (5, 4)), (0, (2, 5, 3)), (1, (4,))])
def test_categorical(axis: int, shape: Any) -> None:
    logits = np.log1p(ROWS)
    compare(of_ours("categorical", logits, axis, shape), of_jax("categorical", logits, axis, shape).astype(np.int32))


def test_categorical_without_replacement() -> None:
    logits = np.log1p(ROWS)
    compare(of_ours("categorical", logits, -1, (2, 4), replace=False),
            of_jax("categorical", logits, -1, (2, 4), replace=False).astype(np.int32))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bernoulli(dtype: str) -> None:
    p = np.array([0.1, 0.5, 0.9], dtype)
    for shape in (None, (4, 3)):
        compare(of_ours("bernoulli", p, shape), of_jax("bernoulli", p, shape))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_poisson(dtype: str) -> None:
    rates = np.array([0.0, 0.5, 5.0, 50.0, 5000.0])
    for shape in (None, (4, 5)):
        compare(of_ours("poisson", rates, shape, dtype), of_jax("poisson", rates, shape, dtype))


@pytest.mark.slow
def test_categories_of_multinomial_are_steps_of_one_loop() -> None:
    def lines(categories: int) -> int:
        text = fxgrad.stablehlo(lambda key, p: fxgrad.random.multinomial(key, 9.0, p))(
            fxgrad.random.key(0), np.full(categories, 1 / categories, np.float32))
        return len(text.splitlines())

    assert lines(20) < lines(3) + 200  # those of a cumulative sum
    keys, shares = fxgrad.random.split(fxgrad.random.key(1), 5), np.array([0.2, 0.5, 0.3], np.float32)
    rows = fxgrad.vmap(lambda key: fxgrad.random.multinomial(key, 9.0, shares))(keys)
    np.testing.assert_array_equal(rows, [fxgrad.random.multinomial(key, 9.0, shares) for key in keys])
    np.testing.assert_array_equal(rows.sum(1), 9.0)
    assert fxgrad.random.multinomial(fxgrad.random.key(0), 3.0, np.zeros((2, 0), np.float32)).shape == (2, 0)
    slope = fxgrad.grad(
        lambda p: np.sum(fxgrad.random.multinomial(fxgrad.random.key(0), 9.0, p) * np.arange(3.0)))(shares)
    np.testing.assert_array_equal(slope, np.zeros(3, np.float32))


@pytest.mark.slow
def test_binomial_and_multinomial() -> None:
    n, p = np.array([0.0, 5.0, 50.0, 500.0]), np.array([[0.1], [0.5], [0.9]])
    for shape in (None, (2, 3, 4)):
        compare(of_ours("binomial", n, p, shape, "float64"), of_jax("binomial", n, p, shape, "float64"))
    shares = np.array([0.2, 0.3, 0.0, 0.5])
    compare(of_ours("multinomial", 20.0, shares, dtype="float64"), of_jax("multinomial", 20.0, shares, dtype="float64"))
    batch = (2, 4) if jax.__version_info__ < (0, 11) else (2,)  # newer versions of jax do not count the categories
    compare(of_ours("multinomial", np.array([5.0, 50.0]), shares, shape=(2, 4), dtype="float64"),
            of_jax("multinomial", np.array([5.0, 50.0]), shares, shape=batch, dtype="float64"))


def _check_draws(draws: Any, distribution: Any) -> None:
    """Compare mean, variance and distribution function (Kolmogorov and Smirnov) with those of draws."""
    draws, (mean, variance) = np.asarray(draws, float), map(float, distribution.stats())
    assert abs(draws.mean() - mean) < 4 * np.sqrt(variance / draws.size)
    assert draws.var() == pytest.approx(variance, rel=0.05)
    noise = np.random.default_rng(0).uniform(size=draws.size)  # whole numbers become a continuous distribution
    below = distribution.cdf(draws - 1)
    assert scipy.stats.kstest(below + noise * (distribution.cdf(draws) - below), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("rate", [1.2e4, 1e6, 1e8, 2e9])
def test_poisson_draws_of_large_rates(rate: float) -> None:
    exact = scipy.stats.poisson(float(np.float32(rate)))
    for draw in (fxgrad.random.poisson, fxgrad.jit(fxgrad.random.poisson, static_argnums=2)):
        _check_draws(draw(fxgrad.random.key(3), np.float32(rate), (20000,)), exact)


def test_poisson_draws_beyond_the_range_are_the_greatest_integer() -> None:
    rates = np.array([3e9, 1e30, np.inf], np.float32)
    np.testing.assert_array_equal(fxgrad.random.poisson(fxgrad.random.key(0), rates), 2**31 - 1)


@pytest.mark.parametrize(("n", "p"), [(1e7, 0.5), (1e8, 0.01), (1e9, 0.5), (1e9, 1e-7), (1e12, 0.25)])
def test_binomial_draws_of_large_numbers(n: float, p: float) -> None:
    draws = fxgrad.random.binomial(fxgrad.random.key(3), np.array(n), np.array(p), (20000,), np.float64)
    _check_draws(draws, scipy.stats.binom(int(n), p))
    opposite = fxgrad.random.binomial(fxgrad.random.key(3), np.array(n), np.array(1 - p), (20000,), np.float64)
    _check_draws(n - opposite, scipy.stats.binom(int(n), p))


def test_numbers_of_the_wald_distribution_are_positive() -> None:
    draws = fxgrad.random.wald(fxgrad.random.key(14), 1e3, (20000,), np.float32)
    assert np.min(draws) > 0
    assert scipy.stats.kstest(np.asarray(draws, float), scipy.stats.invgauss(1e3).cdf).pvalue > 1e-3


@pytest.mark.parametrize(("dtype", "mean"), [
    ("float16", 2e3), ("float16", 6e4), ("bfloat16", 1e20), ("float32", 1e18), ("float32", 1e38), ("float64", 1e300),
    ("float32", np.inf)])
def test_numbers_of_the_wald_distribution_of_large_means(dtype: str, mean: float) -> None:
    """Then they are the inverses of squares of normal numbers, but for one in root of the mean."""
    draws = np.asarray(fxgrad.random.wald(fxgrad.random.key(3), mean, (2000,), dtype), float)
    assert not np.isnan(draws).any()
    assert scipy.stats.kstest(draws, scipy.stats.levy().cdf).pvalue > 1e-3


def test_derivatives_of_numbers_of_the_wald_distribution_are_those_at_a_fixed_quantile() -> None:
    """With the noise fixed they have other means, since the mean also decides which root is drawn."""
    def draw(m: Any) -> Any:
        return fxgrad.random.wald(fxgrad.random.key(5), m, (50,), np.float64)

    def slope(m: Any) -> Any:
        return fxgrad.jvp(draw, (m,), (1.0,))[1]

    for mean in (0.3, 1.0, 2.0):
        part, step = scipy.stats.invgauss.cdf(draw(mean), mean), 3e-4 * mean
        lower, middle, upper = (scipy.stats.invgauss.ppf(part, mean + shift * step) for shift in (-1, 0, 1))
        np.testing.assert_allclose(slope(mean), (upper - lower) / (2 * step), rtol=1e-5)
        np.testing.assert_allclose(fxgrad.jvp(slope, (mean,), (1.0,))[1], (upper - 2 * middle + lower) / step ** 2,
                                   rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(fxgrad.jit(slope)(2.0), slope(2.0), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_derivatives_of_numbers_of_the_wald_distribution_at_the_ends(dtype: str) -> None:
    means = np.array([0.0, 1e-30, 1e-5, 1e3, np.inf], dtypes.SUPPORTED[dtype])
    slopes = fxgrad.jvp(lambda m: fxgrad.random.wald(fxgrad.random.key(5), m, (50, 5), dtype), (means,), (
        np.ones_like(means),))[1]
    assert np.isfinite(np.asarray(slopes, float)).all()
    np.testing.assert_allclose(np.asarray(slopes[:, [0, 1, 4]], float), [[1, 1, 0]] * 50, atol=1e-2)


@pytest.mark.parametrize("p", [12.0, 50.0])
def test_generalized_normal_numbers_of_high_order(p: float) -> None:
    draws = fxgrad.random.generalized_normal(fxgrad.random.key(9), p, (20000,), np.float32)
    assert scipy.stats.kstest(np.asarray(draws, float), scipy.stats.gennorm(p).cdf).pvalue > 1e-3


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_geometric(dtype: str) -> None:
    p = np.array([0.1, 0.5, 1.0])
    for shape in (None, (4, 3)):
        compare(of_ours("geometric", p, shape, dtype), of_jax("geometric", p, shape, dtype))


# --- transformations ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["normal", "uniform", "gumbel", "gamma", "poisson", "permutation"])
def test_on_xla_as_on_numpy(name: str) -> None:
    args: tuple[Any, ...] = {"gamma": (np.array([0.5, 2.0]),), "poisson": (np.array([0.5, 20.0]),),
                             "permutation": (5,)}.get(name, ((3,),))
    sampler = getattr(fxgrad.random, name)
    keys = fxgrad.random.split(fxgrad.random.key(2), 3)
    expected = np.stack([sampler(key, *args) for key in keys])
    compare(fxgrad.vmap(lambda key: sampler(key, *args))(keys), expected, 1e-6)
    compare(fxgrad.jit(fxgrad.vmap(lambda key: sampler(key, *args)))(keys), expected, 1e-6)


DIFFERENTIABLE: list[tuple[str, tuple[float, ...]]] = [
    ("truncated_normal", (-1.0, 1.5)), ("lognormal", (0.7,)), ("double_sided_maxwell", (0.5, 2.0)),
    ("rayleigh", (1.5,)), ("pareto", (1.5,)), ("weibull_min", (2.0, 1.5)), ("triangular", (0.0, 0.7, 2.0)),
    ("gamma", (1.5,)), ("gamma", (0.3,)), ("loggamma", (0.2,)), ("beta", (0.7, 2.0)), ("chisquare", (3.0,)),
    ("t", (3.0,)), ("f", (3.0, 4.0)), ("generalized_normal", (1.5,))]


@pytest.mark.parametrize(("name", "parameters"), [
    pytest.param(*case, marks=[pytest.mark.slow] * (case[0] in REJECTING)) for case in DIFFERENTIABLE])
def test_derivatives_in_the_parameters(name: str, parameters: tuple[float, ...]) -> None:
    places = tuple(range(len(parameters)))
    typed = [np.array(parameter) for parameter in parameters]

    def ours(*parameters: Any) -> Any:
        with fxgrad.default_dtype("float64" if name in SIGNED else "float32"):
            return getattr(fxgrad.random, name)(fxgrad.random.key(4), *parameters, dtype="float64")

    with jax.enable_x64(True):
        sampler = getattr(jax.random, name)
        theirs = jax.jit(jax.grad(lambda *parameters: sampler(jax.random.key(4), *parameters, dtype="float64"),
                                  places))(*typed)
    for got in (fxgrad.grad(ours, places)(*typed), fxgrad.jit(fxgrad.grad(ours, places))(*typed)):
        np.testing.assert_allclose(got, theirs, rtol=1e-12, atol=1e-15)


TAILS = [(8.0, np.inf), (5.0, 6.0), (-40.0, -39.0), (-np.inf, -8.0), (3.5, 3.6), (-1.0, 2.0)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_numbers_far_out_are_the_quantiles_of_uniform_ones(dtype: str) -> None:
    lower, upper = np.array(TAILS, dtype).T
    key = fxgrad.random.key(3)
    part = np.asarray(fxgrad.random.uniform(key, (100, len(TAILS)), dtype), float)
    expected = scipy.stats.truncnorm.ppf(part, *np.array(TAILS).T)
    draw = fxgrad.random.truncated_normal
    digits = {"rtol": 3e-6 if dtype == "float32" else 1e-8, "atol": 3e-7 if dtype == "float32" else 1e-10}
    for found in (draw(key, lower, upper, part.shape, dtype),
                  fxgrad.jit(lambda low, high: draw(key, low, high, part.shape, dtype))(lower, upper)):
        assert found.dtype == dtype
        np.testing.assert_allclose(np.asarray(found, float), expected, **digits)
    one = np.asarray(draw(key, 8.0, np.inf, (50,), dtype))
    assert np.all(one > 8)
    assert np.all(one < 10)


def test_derivatives_of_normal_numbers_far_out() -> None:
    part = float(fxgrad.random.uniform(fxgrad.random.key(3), (), "float64"))
    for bounds in ((8.0, 9.0), (-6.0, -5.0), (3.5, 3.6), (-1.0, 2.0)):
        step = 1e-5
        expected = [(scipy.stats.truncnorm.ppf(part, *(bounds + shift)) - scipy.stats.truncnorm.ppf(
            part, *(bounds - shift))) / (2 * step) for shift in step * np.eye(2)]
        for transform in (lambda f: f, fxgrad.jit):
            found = transform(fxgrad.grad(lambda *bounds: fxgrad.random.truncated_normal(
                fxgrad.random.key(3), *bounds, dtype="float64"), (0, 1)))(*map(np.float64, bounds))
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_draws_at_the_ends_of_parameters_are_finite_and_have_derivatives() -> None:
    key = fxgrad.random.key(0)
    assert np.all(np.isfinite(np.asarray(fxgrad.random.rayleigh(key, 1.0, (100_000,), "float16"))))
    assert not np.any(np.isnan(np.asarray(fxgrad.random.f(key, 0.01, 0.01, (1000,)))))
    few = np.asarray(fxgrad.random.logistic(key, (100_000,), "bfloat16"), float)
    assert abs(np.mean(few)) < 0.1  # the least number of 128 was -87
    part = float(fxgrad.random.uniform(key, (), "float64"))
    slope = fxgrad.grad(lambda mode: fxgrad.random.triangular(key, 0.0, mode, 1.0, dtype="float64"))
    np.testing.assert_allclose(slope(1.0), np.sqrt(part) / 2)
    np.testing.assert_allclose(slope(0.0), np.sqrt(1 - part) / 2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_derivatives_of_logarithms_of_gamma_draws_too_small_for_their_dtype(dtype: str) -> None:
    """Their quantile is x^a / gamma(a + 1), which has a derivative in closed form."""
    draw = fxgrad.vmap(fxgrad.value_and_grad(lambda a, key: fxgrad.random.loggamma(key, a, dtype=dtype)), (None, 0))
    for a in (1e-4, 1e-3):
        for function in (draw, fxgrad.jit(draw)):
            logs, slopes = function(np.asarray(a, dtype), fxgrad.random.split(fxgrad.random.key(1), 500))
            small = np.asarray(logs) < np.log(np.finfo(dtype).tiny)
            assert np.sum(small) > 50
            expected = (float(scipy.special.digamma(a + 1)) - np.asarray(logs, float)) / a
            np.testing.assert_allclose(np.asarray(slopes)[small], expected[small], rtol=2 * np.finfo(dtype).eps)


def test_derivatives_of_vectors() -> None:
    alpha, weights = np.array([0.5, 2.0, 1.0]), np.array([1.0, -2.0, 3.0])
    with jax.enable_x64(True):
        expected = jax.jit(jax.grad(lambda alpha: weights @ jax.random.dirichlet(
            jax.random.key(4), alpha, dtype="float64")))(alpha)
    got = fxgrad.grad(lambda alpha: weights @ fxgrad.random.dirichlet(fxgrad.random.key(4), alpha, dtype="float64"))(
        alpha)
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    cov = np.array([[2.0, 0.5], [0.5, 1.0]])
    with jax.enable_x64(True):
        expected = jax.jit(jax.grad(lambda cov: jax.random.multivariate_normal(
            jax.random.key(4), np.zeros(2), cov).sum()))(cov)
    got = fxgrad.grad(lambda cov: fxgrad.numpy.sum(fxgrad.random.multivariate_normal(
        fxgrad.random.key(4), np.zeros(2), cov)))(cov)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_all_samplers_of_jax_are_here() -> None:
    theirs = {name for name in dir(jax.random) if not name.startswith("_")} - {"random_gamma_p", "Key"}  # no samplers
    assert theirs == set(fxgrad.random.__all__)


@pytest.mark.slow
def test_un_jitted_draws_compile_for_few_sizes_and_are_those_of_all() -> None:
    traced: list[Any] = []

    def kernel(keys: Any, a: Any) -> Any:
        traced.append(a.shape)
        return xla_kernels.gamma(keys, a, False)

    draw, keys = xla_kernels.draws_on_cpu(kernel, each_alone=True), fxgrad.random.split(fxgrad.random.key(2), 3)
    a = np.linspace(0.3, 9.0, 5200).astype(np.float32)
    for size in (1, 2, 5, 8, 100, 117, 128, 4500, 4600, 5120, 5200):
        found, = draw(keys[0], a[:size])
        np.testing.assert_array_equal(found, fxgrad.jit(fxgrad.random.gamma)(keys[0], a[:size]))
    rows = np.resize(a, (3, 2, 7))
    np.testing.assert_array_equal(draw(keys, rows)[0], [fxgrad.random.gamma(key, row) for key, row in zip(
        keys, rows, strict=True)])
    assert traced == [(1,), (8,), (128,), (4608,), (5120,), (5632,), (8, 16)]
