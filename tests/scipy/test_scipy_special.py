"""Special functions against those of jax.scipy.special: values, dtypes, derivatives, batches, compiled."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.scipy.special
import mpmath
import numpy as np
import pytest
import scipy.special

import fxgrad
import fxgrad.scipy.special as fsp
from fxgrad import errors
from fxgrad.engine.ops.xla_kernels import elementwise_on_cpu
from fxgrad.scipy.special import bessel_jn, sph_harm_y

pytestmark = pytest.mark.slow  # jax, the oracle, compiles in every test; the laws and the examples are quick

ANY = np.array([[-2.3, -0.7, 0.4], [0.9, 1.6, 3.2]])
POSITIVE = np.array([[0.3, 0.7, 1.1], [1.9, 2.6, 3.2]])
UNIT = np.array([[0.1, 0.3, 0.45], [0.55, 0.7, 0.95]])
OTHER = np.array([1.3, 0.6, 2.2])

CASES: list[tuple[str, tuple[Any, ...], tuple[int, ...]]] = [
    ("erf", (ANY,), (0,)), ("erfc", (ANY,), (0,)), ("erfinv", (UNIT,), (0,)), ("erfcx", (ANY,), (0,)),
    ("dawsn", (ANY,), (0,)), ("owens_t", (ANY, OTHER), (0, 1)), ("ndtr", (ANY,), (0,)), ("ndtri", (UNIT,), (0,)),
    ("log_ndtr", (3 * ANY,), (0,)), ("expit", (ANY,), (0,)), ("logit", (UNIT,), (0,)),
    ("xlogy", (ANY, OTHER), (0, 1)), ("xlog1py", (ANY, OTHER), (0, 1)), ("entr", (POSITIVE,), (0,)),
    ("rel_entr", (POSITIVE, OTHER), (0, 1)), ("kl_div", (POSITIVE, OTHER), (0, 1)),
    ("boxcox", (POSITIVE, OTHER), (0, 1)), ("boxcox1p", (POSITIVE, OTHER), (0, 1)), ("gammaln", (ANY,), (0,)),
    ("loggamma", (POSITIVE,), (0,)), ("gammasgn", (ANY,), ()), ("gamma", (ANY,), (0,)), ("digamma", (ANY,), (0,)),
    ("gammainc", (POSITIVE, OTHER), (0, 1)), ("gammaincc", (POSITIVE, OTHER), (0, 1)),
    ("betaln", (POSITIVE, OTHER), (0, 1)), ("beta", (POSITIVE, OTHER), (0, 1)),
    ("betainc", (POSITIVE, OTHER, UNIT), (2,)), ("poch", (POSITIVE, OTHER), (0, 1)),
    ("zeta", (POSITIVE + 1, OTHER), (0, 1)),
    ("factorial", (POSITIVE,), (0,)), ("comb", (POSITIVE + 3, OTHER), (0, 1)), ("i0e", (ANY,), (0,)),
    ("i1e", (ANY,), (0,)), ("i0", (ANY,), (0,)), ("i1", (ANY,), (0,)), ("exp1", (POSITIVE,), (0,)),
    ("expi", (ANY,), (0,)), ("expn", (np.array([[1.0], [3.0]]), POSITIVE), (1,)), ("spence", (POSITIVE,), (0,)),
    ("hyp1f1", (POSITIVE, OTHER, ANY), (2,)), ("hyp2f1", (POSITIVE, OTHER, OTHER + 1, UNIT), (3,)),
    ("sici", (POSITIVE,), (0,)), ("fresnel", (ANY,), (0,)), ("logsumexp", (ANY,), (0,)), ("softmax", (ANY,), (0,)),
    ("log_softmax", (ANY,), (0,)), ("polygamma", (np.array([[1], [2]]), POSITIVE), (1,)),
]
WEAKER = {"sici": 1e-8, "fresnel": 1e-7, "hyp2f1": 1e-7, "hyp1f1": 1e-7, "spence": 1e-8, "polygamma": 1e-8,
          "zeta": 1e-9, "gammainc": 1e-9, "gammaincc": 1e-9, "log_ndtr": 1e-7, "owens_t": 1e-8}
"""Functions of which jax's own float64 values or derivatives are good to this only."""


def close(got: Any, expected: Any, tolerance: float) -> None:
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        left, right = np.asarray(ours), np.asarray(theirs)
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


def theirs_of(name: str) -> Callable[..., Any]:
    if name == "owens_t":
        jax.clear_caches()  # it keeps constants in the width of its first call, in whatever mode that was
    return getattr(jax.scipy.special, name)


SLOW = {"hyp1f1", "hyp2f1", "expi", "exp1", "expn", "gammainc", "gammaincc", "betainc", "owens_t", "sici", "fresnel"}
"""Functions whose kernels take long to compile."""


@pytest.mark.parametrize(("name", "args", "places"), [
    pytest.param(*case, id=case[0], marks=[pytest.mark.slow] * (case[0] in SLOW)) for case in CASES])
def test_values_and_derivatives(name: str, args: tuple[Any, ...], places: tuple[int, ...]) -> None:
    function = getattr(fxgrad.scipy.special, name)
    random = np.random.default_rng(0)
    chosen = [args[place] for place in places]
    tangents = [random.standard_normal(arg.shape) for arg in chosen]
    narrow = [arg.astype(np.float32) if arg.dtype.kind == "f" else arg for arg in args]

    def within(function: Callable[..., Any]) -> Callable[..., Any]:
        def partial(*chosen: Any) -> Any:
            given = dict(zip(places, chosen, strict=True))
            return function(*(given.get(place, arg) for place, arg in enumerate(args)))
        return partial

    @jax.jit
    def oracle(chosen: Any, narrow: Any) -> Any:
        """All that jax is asked for: most of the time of the test goes to compiling."""
        theirs = theirs_of(name)
        both = jax.jvp(within(theirs), chosen, tangents) if places else (theirs(*args), None)
        return both, None if name == "owens_t" else theirs(*narrow)

    with jax.enable_x64(True):
        (expected, slope), of_narrow = oracle(chosen, narrow)
    if name == "owens_t":  # of which jax makes float64 in its mode of 64 bits
        of_narrow = jax.jit(theirs_of(name))(*narrow)
    tolerance = WEAKER.get(name, 1e-10)
    close(function(*args), expected, tolerance)
    with jax.enable_x64(True):
        close(fxgrad.jit(function)(*args), expected, tolerance)
    close(function(*narrow), of_narrow, 2e-4)
    if name not in ("logsumexp", "softmax", "log_softmax"):
        rows = np.broadcast_arrays(*args)
        close(fxgrad.vmap(function)(*rows), function(*rows), 1e-12)
    if places:
        got = fxgrad.jvp(within(function), chosen, tangents)
        close(got, (expected, slope), 10 * tolerance)
        value, pull = fxgrad.vjp(within(function), *chosen)
        cotangents = jax.tree.map(lambda output: random.standard_normal(np.shape(output)), value)
        forwards = sum(np.sum(left * right) for left, right in
                       zip(jax.tree.leaves(cotangents), jax.tree.leaves(got[1]), strict=True))
        backwards = sum(np.sum(left * right) for left, right in zip(pull(cotangents), tangents, strict=True))
        np.testing.assert_allclose(forwards, backwards, rtol=2e-12)


def test_integers_become_floats() -> None:
    for name, args in (("erf", (1,)), ("xlogy", (np.arange(3), np.arange(1, 4))), ("gammaln", (np.arange(1, 4),)),
                       ("comb", (np.arange(5, 8), 2)), ("softmax", (np.arange(3),)), ("logsumexp", (np.arange(3),))):
        close(getattr(fxgrad.scipy.special, name)(*args).astype(np.float32), theirs_of(name)(*args), 1e-5)


ENDS = np.array([0.0, -0.0, 1.0, -1.0, -1.5, -2.5, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("name", ["erf", "erfc", "erfinv", "ndtr", "log_ndtr", "expit", "entr", "gammaln", "loggamma",
                                  "gammasgn", "gamma", "i0e", "i1e", "erfcx", "factorial", "ndtri", "logit"])
def test_ends(name: str) -> None:
    with jax.enable_x64(True):
        expected = np.asarray(theirs_of(name)(ENDS))
    np.testing.assert_allclose(getattr(fxgrad.scipy.special, name)(ENDS), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["xlogy", "xlog1py", "rel_entr", "kl_div", "betaln", "beta"])
def test_ends_of_pairs(name: str) -> None:
    x, y = np.meshgrid(ENDS[[0, 2, 3, 6, 8]], ENDS[[0, 2, 3, 6, 8]])
    with jax.enable_x64(True):
        expected = np.asarray(theirs_of(name)(x, y))
    both = np.isfinite(x) & np.isfinite(y) if name in ("betaln", "beta", "kl_div", "rel_entr") else x == x  # noqa: PLR0124
    # Of betaln(1, 1), which is 0, newer versions of jax make a rounding error.
    np.testing.assert_allclose(getattr(fxgrad.scipy.special, name)(x, y)[both], expected[both], rtol=1e-12, atol=1e-15)


def test_derivatives_of_products_with_logarithms_at_zero() -> None:
    for name in ("xlogy", "xlog1py"):
        with jax.enable_x64(True):
            expected = jax.grad(theirs_of(name), (0, 1))(0.0, 3.0)
        np.testing.assert_allclose(fxgrad.grad(getattr(fxgrad.scipy.special, name), (0, 1))(0.0, 3.0), expected,
                                   rtol=1e-12)


LOG_SUMS: list[dict[str, Any]] = [
    {}, {"axis": 0}, {"axis": (0, 1), "keepdims": True}, {"axis": -1, "b": OTHER}, {"b": -OTHER, "return_sign": True},
    {"axis": 1, "where": POSITIVE > 1}, {"axis": 1, "b": np.array([0.0, 1.0, 0.0]), "return_sign": True}]


@pytest.mark.parametrize("options", LOG_SUMS)
def test_logsumexp(options: dict[str, Any]) -> None:
    theirs = functools.partial(theirs_of("logsumexp"), **options)
    with jax.enable_x64(True):
        for array in (ANY, 1e3 * ANY, np.array([[-np.inf, 0.0, np.inf], [-np.inf] * 3]), ANY + 1j):
            if "where" in options and array.dtype.kind == "c":
                continue
            close(fxgrad.scipy.special.logsumexp(array, **options), jax.jit(theirs)(array), 1e-12)
        if "return_sign" not in options:
            expected = jax.jit(jax.grad(lambda x: theirs(x).sum()))(ANY)
            got = fxgrad.grad(lambda x: fxgrad.numpy.sum(fxgrad.scipy.special.logsumexp(x, **options)))(ANY)
            np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1)])
def test_softmax(name: str, axis: Any) -> None:
    theirs = jax.jit(functools.partial(theirs_of(name), axis=axis))
    with jax.enable_x64(True):
        close(getattr(fxgrad.scipy.special, name)(ANY, axis=axis), theirs(ANY), 1e-12)
        close(getattr(fxgrad.scipy.special, name)(ANY.astype(np.float32), axis=axis), theirs(ANY.astype(np.float32)),
              1e-6)


def test_of_whole_numbers() -> None:
    with jax.enable_x64(True), fxgrad.default_dtype("float64"):
        for n in (0, 1, 2, 3, 10, 30):
            close(fxgrad.scipy.special.bernoulli(n), theirs_of("bernoulli")(n), 1e-5)  # of the zeta function
        for d in (1, 2, 5):
            close(fxgrad.scipy.special.multigammaln(POSITIVE + 3, d), theirs_of("multigammaln")(POSITIVE + 3, d), 1e-11)
        for n, k in ((5, 2), (2, 5), (0, 0), (-1, 2)):
            for repetition in (False, True):
                close(fxgrad.scipy.special.comb(float(n), float(k), repetition=repetition),
                      np.asarray(theirs_of("comb")(float(n), float(k), repetition=repetition)), 1e-11)


def test_faddeeva() -> None:
    points = ANY + 1j * POSITIVE
    with jax.enable_x64(True):
        expected = theirs_of("wofz")(points)
    close(fxgrad.scipy.special.wofz(points), expected, 1e-11)
    tangent = np.full_like(points, 0.3 - 0.2j)
    step = 1e-6 * tangent
    slope = (fxgrad.scipy.special.wofz(points + step) - fxgrad.scipy.special.wofz(points - step)) / 2e-6
    np.testing.assert_allclose(fxgrad.jvp(fxgrad.scipy.special.wofz, (points,), (tangent,))[1], slope, rtol=1e-7)


def test_derivatives_that_are_not_there() -> None:
    with pytest.raises(errors.UnsupportedError, match=re.escape(
            "expn(n, x) has no derivative in n: no closed form is known. Pass n as a constant "
            "(fxgrad.stop_gradient(n)), or differentiate with respect to the other arguments only")):
        fxgrad.grad(lambda n: fxgrad.scipy.special.expn(n, 0.5))(2.0)
    with pytest.raises(errors.UnsupportedError, match=re.escape(
            "factorial: exact=True is not supported; use math.factorial(n)")):
        fxgrad.scipy.special.factorial(3, exact=True)
    with pytest.raises(errors.UnsupportedError, match=re.escape(
            "comb: exact=True is not supported; use math.comb(N, k)")):
        fxgrad.scipy.special.comb(5, 2, exact=True)


def test_derivatives_of_zeta_in_x() -> None:
    """Against jax's over orders and places of any size, and Riemann's at 2: -(A001620 + log 2 pi - 12 log A) pi^2/6."""
    zeta = fxgrad.scipy.special.zeta
    np.testing.assert_allclose(fxgrad.grad(zeta)(2.0, 1.0), -0.9375482543158437538, rtol=1e-15)
    x, q = (each.ravel() for each in np.meshgrid([1.01, 1.5, 2.0, 3.3, 7.0, 20.0, 60.0, 200.0],
                                                 [0.05, 0.5, 1.0, 2.5, 10.0, 100.0, 1e6]))
    slope = fxgrad.vmap(fxgrad.grad(zeta))
    with jax.enable_x64(True):
        expected = jax.jit(jax.vmap(jax.grad(jax.scipy.special.zeta)))(x, q)
    np.testing.assert_allclose(slope(x, q), expected, rtol=1e-14)
    np.testing.assert_allclose(slope(*np.float32([[2.0, 3.5], [1.0, 2.5]])),
                               slope(*np.float64([[2.0, 3.5], [1.0, 2.5]])), rtol=1e-6)
    x, q, step = np.array([1.5, 3.3, 7.0]), np.array([0.5, 2.5, 1.0]), 1e-5
    mixed = fxgrad.vmap(fxgrad.hessian(zeta, (0, 1)))(x, q)
    np.testing.assert_allclose(mixed[0][0], (slope(x + step, q) - slope(x - step, q)) / (2 * step), rtol=1e-8)
    np.testing.assert_allclose(mixed[0][1], (slope(x, q + step) - slope(x, q - step)) / (2 * step), rtol=1e-8)
    assert np.isnan(fxgrad.grad(zeta)(0.5, 1.0))


def test_names_of_jax() -> None:
    theirs = {name for name in dir(jax.scipy.special) if not name.startswith("_")}
    newer = {"erfcinv"}  # which jax has got since 0.10
    assert theirs | newer == set(fxgrad.scipy.special.__all__) | newer


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_inverse_of_erfc_has_all_digits(dtype: Any) -> None:
    y = np.array([1e-30, 1e-3, 0.4, 0.9, 1 - 2.0 ** -20, 1 + 2.0 ** -20, 1.1, 1.7, 1.99], dtype)
    with mpmath.workdps(50):
        inverses = [mpmath.findroot(lambda x, at=at: mpmath.log(mpmath.erfc(x)) - mpmath.log(mpmath.mpf(float(at))),
                                    near) for at, near in zip(y, scipy.special.erfcinv(np.float64(y)), strict=True)]
        slopes = [float(-mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(each ** 2)) for each in inverses]
    slope = fxgrad.vmap(fxgrad.grad(fsp.erfcinv))
    for transform in (lambda f: f, fxgrad.jit):
        np.testing.assert_allclose(transform(fsp.erfcinv)(y), np.float64(inverses), rtol=4 * np.finfo(dtype).eps)
        np.testing.assert_allclose(transform(slope)(y), slopes, rtol=400 * np.finfo(dtype).eps)  # the square's digits
        np.testing.assert_array_equal(transform(fsp.erfcinv)(np.array([0.0, 1.0, 2.0, -1.0, 3.0, np.nan], dtype)),
                                      [np.inf, 0.0, -np.inf, np.nan, np.nan, np.nan])


def test_bessel_functions_of_whole_orders() -> None:
    """Against SciPy, since jax's are NaN for small arguments."""
    z = np.array([0.0, 1e-3, 1.0, 2.4048, 5.0, -3.0, 20.0])
    expected = np.stack([scipy.special.jv(order, z) for order in range(5)])
    for function in (bessel_jn, fxgrad.jit(bessel_jn, static_argnames="v")):
        np.testing.assert_allclose(function(z, v=4), expected, rtol=5e-11, atol=5e-15)
    slope = fxgrad.vmap(fxgrad.grad(lambda x: bessel_jn(x, v=3)[2]))(z)
    np.testing.assert_allclose(slope, scipy.special.jvp(2, z), rtol=5e-9, atol=5e-13)
    assert bessel_jn(np.float32(1.0), v=0).dtype == np.float32
    with pytest.raises(errors.ArgumentError, match=re.escape(
            "bessel_jn: v=50 and n_iter=50; an integer v from 0 to n_iter - 1 is needed")):
        bessel_jn(1.0, v=50)


def test_spherical_harmonics() -> None:
    n, m = np.array([0, 1, 1, 2, 2, 3, 5, 7]), np.array([0, 0, -1, 2, -1, 3, -4, 0])
    theta, phi = np.linspace(0.0, np.pi, 8), np.linspace(0.0, 6.0, 8)
    expected = scipy.special.sph_harm_y(n, m, theta, phi)
    np.testing.assert_allclose(sph_harm_y(n, m, theta, phi), expected, rtol=1e-12, atol=1e-15)
    compiled = fxgrad.jit(lambda *args: sph_harm_y(*args, n_max=7))(n, m, theta, phi)
    np.testing.assert_allclose(compiled, expected, rtol=1e-12, atol=1e-15)
    for angle in (0.7, 0.0, 3.0):
        _, slope = fxgrad.jvp(lambda t: sph_harm_y(3, 2, t, 0.4), (np.float64(angle),), (np.float64(1.0),))
        difference = (scipy.special.sph_harm_y(3, 2, angle + 1e-6, 0.4)
                      - scipy.special.sph_harm_y(3, 2, angle - 1e-6, 0.4)) / 2e-6
        np.testing.assert_allclose(slope, difference, rtol=5e-9, atol=5e-9)
    assert sph_harm_y(2, 1, 0.3, 0.4).dtype == np.complex128
    with pytest.raises(errors.ArgumentError, match=re.escape(
            "sph_harm_y: n is traced, so its greatest value is not known. Pass n_max")):
        fxgrad.jit(sph_harm_y)(n, m, theta, phi)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tails_of_the_normal_distribution(dtype: Any) -> None:
    """Without a gap anywhere, and so are their derivatives."""
    x = np.linspace(-60, 3, 5001).astype(dtype)
    exact = scipy.special.log_ndtr(x.astype(np.float64))
    np.testing.assert_allclose(fsp.log_ndtr(x), exact, rtol=2e-6 if dtype == np.float32 else 2e-14)
    np.testing.assert_allclose(fsp.erfcx(-x), scipy.special.erfcx(-x.astype(np.float64)),
                               rtol=2e-6 if dtype == np.float32 else 2e-14)
    slope = np.exp(-x.astype(np.float64)**2 / 2 - exact) / np.sqrt(2 * np.pi)
    got = fxgrad.vmap(fxgrad.grad(fsp.log_ndtr))(x)
    np.testing.assert_allclose(got, slope, rtol=1e-4 if dtype == np.float32 else 1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logarithm_of_beta_of_large_arguments(dtype: Any) -> None:
    random = np.random.default_rng(0)
    a, b = np.exp(random.uniform(-8, 18, (2, 500))).astype(dtype)
    exact = scipy.special.betaln(a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(fsp.betaln(a, b), exact, rtol=5e-6 if dtype == np.float32 else 1e-9,
                               atol=5e-6 if dtype == np.float32 else 1e-9)
    signed = np.array([-0.5, -1.5, 2.0, 0.0, np.inf]), np.array([0.3, 0.7, -0.4, 1.0, 1.0])
    np.testing.assert_allclose(fsp.betaln(*signed), scipy.special.betaln(*signed), rtol=1e-12)


def test_spherical_harmonics_at_every_angle() -> None:
    """Angles from the pole outside of 0 to pi too: the root of 1 - cos^2 is not negative."""
    theta = np.array([-7.0, -2.0, -0.7, 0.0, 1.0, 3.5, 4.5, 6.0, 9.6])
    for n in range(4):
        for m in range(-n, n + 1):
            got = fsp.sph_harm_y(np.full(9, n), np.full(9, m), theta, np.full(9, 1.1), n_max=3)
            np.testing.assert_allclose(got, scipy.special.sph_harm_y(n, m, theta, 1.1), rtol=1e-12, atol=1e-15)


def test_few_elements_of_any_shape_are_compiled_once() -> None:
    compiled = []

    def rule(lax: Any, x: Any, y: Any) -> Any:
        compiled.append(x.shape)
        return lax.sub(x, y)
    kernel = elementwise_on_cpu(rule)
    for shape in [(), (1,), (3,), (2, 3), (0,), (2, 0, 3), (8,)]:
        x = np.arange(math.prod(shape), dtype=float).reshape(shape)
        result = kernel(x, np.array(0.5))
        assert (result.shape, result.dtype, result.flags.writeable) == (shape, np.float64, True)
        np.testing.assert_array_equal(result, x - 0.5)
    assert compiled == [(8,)]
    np.testing.assert_array_equal(kernel(np.arange(9.0), np.arange(18.0).reshape(2, 9)),
                                  np.arange(9.0) - np.arange(18.0).reshape(2, 9))
    kernel(np.ones((3, 2000)), np.ones(2000))
    assert compiled[1:] == [(32,), (3, 2000)]


def test_polygamma_of_high_orders() -> None:
    orders, x = np.array([12.0, 40.0, 80.0, 120.0])[:, None], np.array([9.5, 10.5, 12.5, 60.0])
    np.testing.assert_allclose(fsp.polygamma(orders, x), scipy.special.polygamma(orders, x), rtol=1e-12)


def test_beta_function_of_a_small_negative_and_a_large_number() -> None:
    a, b = np.array([[-1.5], [-10.3], [-200.7]]), np.array([1500.0, 1e10, 1e30, 1e300])
    np.testing.assert_allclose(fsp.betaln(a, b), scipy.special.betaln(a, b), rtol=1e-12)
    np.testing.assert_allclose(fsp.beta(-1.5, 1e30), scipy.special.beta(-1.5, 1e30), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logit_keeps_its_digits_around_its_zero_and_has_slopes_at_the_ends(dtype: Any) -> None:
    x = np.concatenate([0.5 + 10.0 ** -np.arange(1, 8), np.linspace(0.01, 0.99, 99), [1e-20, 0.3, 0.65]]).astype(dtype)
    expected = scipy.special.logit(x.astype(np.float64))
    for call in (fsp.logit, fxgrad.jit(fsp.logit)):
        np.testing.assert_allclose(call(x), expected, rtol=8 * np.finfo(dtype).eps)
    for end in (0.0, 1.0):
        slopes = [fxgrad.grad(fsp.logit)(dtype(end)), fxgrad.jit(fxgrad.grad(fsp.logit))(dtype(end)),
                  fxgrad.jvp(fsp.logit, (dtype(end),), (dtype(1.0),))[1]]
        assert [float(slope) for slope in slopes] == [np.inf] * 3


MOMENTS: dict[str, tuple[Any, Any, list[float]]] = {
    "erfcx": (fsp.erfcx, lambda x: mpmath.exp(x * x) * mpmath.erfc(x), [0.5, 3.5, 7.0, 10.0, 50.0, 1e4]),
    "log_ndtr": (fsp.log_ndtr, lambda x: mpmath.log(mpmath.erfc(-x / mpmath.sqrt(2)) / 2),
                 [-30.0, -12.0, -1.0, 2.0]),
    "dawsn": (fsp.dawsn, lambda x: mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(-x * x) * mpmath.erfi(x),
              [0.5, -12.0, 50.0]),
    "boxcox": (lambda x: fsp.boxcox(3.0, x), lambda x: mpmath.expm1(x * mpmath.log(3)) / x, [1e-3, 0.2, 2.0])}


@pytest.mark.slow
@pytest.mark.parametrize("name", MOMENTS)
def test_higher_derivatives_far_out(name: str) -> None:
    """Formulas such as 2 x erfcx(x) - 2 / root(pi) lose all digits there, and their derivatives soon the sign."""
    function, exact, points = MOMENTS[name]
    with mpmath.workdps(50):
        wanted = {point: [float(value * mpmath.factorial(order)) for order, value in enumerate(
            mpmath.taylor(exact, mpmath.mpf(point), 5))] for point in points}
    slope = function
    for order in range(1, 6):
        slope = fxgrad.grad(slope)
        for point in points:
            np.testing.assert_allclose(slope(point), wanted[point][order], rtol=1e-9, err_msg=f"{order} {point}")


def test_slopes_of_densities_in_a_parameter_of_1() -> None:
    """There the power of the density is 0, and its derivative a logarithm."""
    slope = fxgrad.grad(fxgrad.grad(fsp.gammainc, 1), 0)
    for function in (slope, fxgrad.jit(slope)):
        assert float(function(1.0, 2.0)) == pytest.approx(math.exp(-2) * (math.log(2) + np.euler_gamma), rel=1e-12)
    slope = fxgrad.grad(fxgrad.grad(fsp.betainc, 2), 0)
    with mpmath.workdps(30):
        expected = mpmath.diff(lambda a: mpmath.mpf("0.4") ** (a - 1) * mpmath.mpf("0.6") ** 2 / mpmath.beta(a, 3), 1)
    assert float(slope(1.0, 3.0, 0.4)) == pytest.approx(float(expected), rel=1e-12)


def test_products_with_logarithms_have_no_slope_where_they_are_0_for_every_number() -> None:
    for function, zero in ((fsp.xlogy, 0.0), (fsp.xlog1py, -1.0)):
        assert fxgrad.grad(function, 1)(0.0, zero) == 0
        assert fxgrad.jit(fxgrad.grad(function, 1))(0.0, zero) == 0
        assert fxgrad.grad(function, 1)(2.0, zero) == np.inf


def test_mixed_second_derivatives_of_products_with_logarithms_at_zero() -> None:
    """They are 1 / y, in either order, though the slope in y is 0."""
    for function, shift in ((fsp.xlogy, 0.0), (fsp.xlog1py, 1.0)):
        for y in (2.0, 0.3, 1e-30):
            for transform in (lambda f: f, fxgrad.jit):
                for order in ((0, 1), (1, 0)):
                    mixed = transform(fxgrad.grad(fxgrad.grad(function, order[0]), order[1]))
                    np.testing.assert_allclose(mixed(0.0, y), 1.0 / (y + shift), rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_relative_entropies_of_close_numbers(dtype: Any) -> None:
    p = np.array([0.3, 1.7, 2e5, 1e-5], dtype)
    q = p * dtype(1 + 3 * np.finfo(dtype).eps ** 0.5)
    with mpmath.workdps(40):
        pairs = [(mpmath.mpf(float(one)), mpmath.mpf(float(other))) for one, other in zip(p, q, strict=True)]
        logarithms = [float(one * mpmath.log(one / other)) for one, other in pairs]
        distances = [float(one * mpmath.log(one / other) - one + other) for one, other in pairs]
    for transform in (lambda f: f, fxgrad.jit):
        np.testing.assert_allclose(transform(fsp.rel_entr)(p, q), logarithms, rtol=4 * np.finfo(dtype).eps)
        np.testing.assert_allclose(transform(fsp.kl_div)(p, q), distances, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_slopes_of_relative_entropies_of_tiny_numbers(dtype: Any) -> None:
    """Their product underflows."""
    tiny = float(np.finfo(dtype).tiny)
    p = np.array([2 * tiny, 1e3 * tiny, tiny ** 0.9, tiny ** 0.5, tiny ** 0.3], dtype)
    for ratio in (1.0, 1.5, 1e5):
        q = (p * dtype(ratio)).astype(dtype)
        share = np.float64(p / q)
        for function, slopes, units in ((fsp.kl_div, (np.log(share), 1.0 - share), 20.0),
                                        (fsp.rel_entr, (np.log(share) + 1.0, -share), -math.log(tiny))):
            slope = fxgrad.vmap(fxgrad.grad(function, (0, 1)))
            for found in (slope(p, q), fxgrad.jit(slope)(p, q)):  # rel_entr has the rounding of the logarithms
                np.testing.assert_allclose(found, slopes, rtol=20 * np.finfo(dtype).eps,
                                           atol=units * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("name", ["rel_entr", "kl_div"])
def test_relative_entropies_at_the_ends(name: str) -> None:
    ends = np.array([0.0, 0.1, -1.0, np.inf, np.nan, 1e-300, 2.0])
    p, q = np.meshgrid(ends, ends)
    np.testing.assert_allclose(getattr(fsp, name)(p, q), getattr(scipy.special, name)(p, q), rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_slopes_of_scaled_bessel_functions_of_large_numbers(dtype: Any) -> None:
    """They are differences of nearly equal functions."""
    x = np.array([25.0, 35.0, 1e3, -1e4, 1e6], dtype)
    with mpmath.workdps(60):
        expected = [[float(mpmath.diff(lambda t, order=order: mpmath.exp(-abs(t)) * mpmath.besseli(order, t),
                                       float(point))) for point in x] for order in (0, 1)]
    for function, values in zip((fsp.i0e, fsp.i1e), expected, strict=True):
        slope = fxgrad.vmap(fxgrad.grad(function))
        for found in (slope(x), fxgrad.jit(slope)(x)):
            np.testing.assert_allclose(found, values, rtol=100 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_choices_and_rising_factorials_of_large_numbers(dtype: Any) -> None:
    """Quotients of gamma functions overflow, and differences of their logarithms have no digits."""
    for function, exact, cases in (
            (fsp.comb, mpmath.binomial, [(1e6, 3.0), (40.0, 20.0), (100.0, 1.0), (5.0, 2.0), (12.0, 12.0), (9.0, 0.0)]),
            (fsp.poch, mpmath.rf, [(200.0, 2.0), (40.0, 2.0), (1e6, 3.5), (9.0, -0.5), (3.0, 4.0)])):
        first, second = np.array(cases, dtype).T
        with mpmath.workdps(30):
            expected = [float(exact(one, other)) for one, other in cases]
        for found in (function(first, second), fxgrad.jit(function)(first, second)):
            np.testing.assert_allclose(found, expected, rtol=60 * np.finfo(dtype).eps)
    with mpmath.workdps(30):
        slope = float(mpmath.diff(lambda z: mpmath.rf(z, 2), 200))
    assert float(fxgrad.grad(fsp.poch)(dtype(200), dtype(2))) == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gamma_functions_have_all_digits(dtype: Any) -> None:
    """The exponential of gammaln, which XLA computes to one digit less, had four digits of 30! in float32."""
    x = np.array([0.5, 1.0, 1.0001, 1.7, 2.0, 3.5, 11.0, 30.0, 34.5] + [120.5, 171.0] * (dtype is np.float64), dtype)
    with mpmath.workdps(40):
        gammas = [float(mpmath.gamma(float(each))) for each in x]
        slopes = [float(mpmath.diff(mpmath.gamma, float(each))) for each in x]
        logarithms = [float(mpmath.loggamma(float(each))) for each in x]
    eps = np.finfo(dtype).eps
    for transform in (lambda f: f, fxgrad.jit):
        np.testing.assert_allclose(transform(fsp.gamma)(x), gammas, rtol=10 * eps)
        np.testing.assert_allclose(transform(fsp.factorial)(x[1:] - 1), gammas[1:], rtol=20 * eps)
        np.testing.assert_allclose(transform(fxgrad.vmap(fxgrad.grad(fsp.gamma)))(x), slopes, rtol=200 * eps)
        np.testing.assert_allclose(transform(fsp.gammaln)(x), logarithms, rtol=10 * eps,
                                   atol=4 * np.finfo(np.float64).eps * (transform is not fxgrad.jit))
    assert float(fsp.gamma(dtype(300))) == np.inf
    assert abs(float(fxgrad.jit(fsp.factorial)(np.float32(10))) - 3628800) < 3  # it was 12


@pytest.mark.parametrize("order", [1, 2, 3])
def test_polygamma_below_0_is_the_same_compiled(order: int) -> None:
    """XLA's series begins at x even where its terms grow: psi'(-12.3) was -0.08."""
    x = np.array([-12.3, -24.25, -5.4, -0.5, -100.2, 0.3, 12.0])
    with mpmath.workdps(40):
        expected = [float(mpmath.psi(order, float(each))) for each in x]
    for dtype in (np.float32, np.float64):
        found = fxgrad.jit(lambda x: fsp.polygamma(order, x))(x.astype(dtype))
        with mpmath.workdps(40):
            exact = [float(mpmath.psi(order, float(each))) for each in x.astype(dtype)]
        np.testing.assert_allclose(found, exact, rtol=100 * np.finfo(dtype).eps)
    np.testing.assert_allclose(fsp.polygamma(order, x), expected, rtol=1e-12)
    whole = np.array([-3.0, 0.0, -2000.5])
    np.testing.assert_array_equal(fxgrad.jit(lambda x: fsp.polygamma(order, x))(whole), fsp.polygamma(order, whole))


@pytest.mark.slow
def test_incomplete_gamma_functions_of_large_parameters() -> None:
    """XLA's values of 1e9 have two digits, and those of float32 numbers none from 1e4 on: 3521 in place of 0.5."""
    points = [(a, a + deviations * math.sqrt(a)) for a in (101.0, 1e4, 1e9)
              for deviations in (-6.0, -0.1, 0.0, 1.0, 6.0)]
    a, x = map(np.array, zip(*points, strict=True))
    upper, slopes = [], []
    with mpmath.workdps(40):
        for shape, start in points:
            ends = [start + 2 * k * mpmath.sqrt(shape) for k in range(13)]

            def density(t: Any, shape: float = shape) -> Any:
                return mpmath.exp((shape - 1) * mpmath.log(t) - t - mpmath.loggamma(shape))
            upper.append(mpmath.quad(density, ends))
            slopes.append(-mpmath.quad(lambda t, shape=shape: density(t, shape) * (
                mpmath.log(t) - mpmath.digamma(shape)), ends))
    lower, above = (np.array([*map(float, values)]) for values in ([1 - value for value in upper], upper))
    np.testing.assert_allclose(fsp.gammainc(a, x), lower, rtol=1e-12)
    np.testing.assert_allclose(fsp.gammaincc(a, x), above, rtol=1e-12)
    np.testing.assert_allclose(fxgrad.vmap(fxgrad.grad(fsp.gammainc))(a, x), [*map(float, slopes)], rtol=1e-12)
    narrow = a.astype(np.float32), x.astype(np.float32)
    for function in (fsp.gammainc, fsp.gammaincc):
        np.testing.assert_allclose(function(*narrow), function(*(each.astype(float) for each in narrow)), atol=4e-7)
    np.testing.assert_array_equal(fsp.gammainc(np.array([1e300, np.inf, 500.0]), np.array([1.0, 1.0, 1e-300])), 0.0)
    draws = fxgrad.lax.random_gamma_grad(*narrow)
    np.testing.assert_allclose(draws, fxgrad.lax.random_gamma_grad(*(each.astype(float) for each in narrow)), rtol=5e-6)


@pytest.mark.slow
def test_exponential_integrals_of_small_and_large_numbers() -> None:
    """jax's loops do not end where one of several numbers is small."""
    x = np.array([0.0, 1e-300, 1e-9, 0.3, 1.0, 1.0001, 2.5, 30.0, 650.0, np.inf, np.nan, -1.0])
    for n in (0, 1, 2, 5, 50, 4999, 5000, 10 ** 6):
        np.testing.assert_allclose(fsp.expn(n, x), scipy.special.expn(n, x), rtol=1e-14, err_msg=str(n))
    np.testing.assert_allclose(fsp.exp1(np.abs(x)), scipy.special.exp1(np.abs(x)), rtol=1e-14)
    both = np.concatenate([x, -x])
    np.testing.assert_allclose(fsp.expi(both), scipy.special.expi(both), rtol=1e-14)
    np.testing.assert_allclose(fsp.expn(60, 30.0), float(mpmath.expint(60, 30)), rtol=1e-14)  # SciPy's has six digits
    assert np.isnan(fsp.expn(-1, 2.0))
    np.testing.assert_allclose(fsp.exp1(np.float32(1e-9)), scipy.special.exp1(1e-9), rtol=1e-7)


@pytest.mark.slow
def test_confluent_functions_of_negative_numbers() -> None:
    for a, b in ((1.5, 2.5), (0.3, 4.0), (3.7, 1.2)):
        points = np.array([-1000.0, -650, -100, -60, -20, -5, -0.5, 0, 5, 80])
        wanted = [float(mpmath.hyp1f1(a, b, point)) for point in points]
        np.testing.assert_allclose(fsp.hyp1f1(a, b, points), wanted, rtol=1e-11)
    assert fxgrad.typeof(fsp.hyp1f1(1.5, 2.5, -20.0)).weak_type


@pytest.mark.slow
def test_hypergeometric_functions_beyond_the_series_of_jax() -> None:
    for a, b, c in ((0.5, 1.5, 2.5), (-3.0, 0.7, 1.4), (1.0, 1.0, 2.0)):
        points = np.array([-200.0, -50, -5, -1, -0.9, 0.5, 0.95, 0.99, 0.995])
        wanted = [float(mpmath.hyp2f1(a, b, c, point)) for point in points]
        np.testing.assert_allclose(fsp.hyp2f1(a, b, c, points), wanted, rtol=1e-11)
        slopes = [float(mpmath.diff(lambda x, a=a, b=b, c=c: mpmath.hyp2f1(a, b, c, x), point)) for point in points]
        np.testing.assert_allclose(fxgrad.vmap(fxgrad.grad(lambda x, a=a, b=b, c=c: fsp.hyp2f1(a, b, c, x)))(points),
                                   slopes, rtol=1e-8)


@pytest.mark.parametrize("name", ["boxcox", "boxcox1p"])
def test_slopes_of_boxcox_at_the_lowest_number_and_near(name: str) -> None:
    """x^(lmbda - 1), and 1 / lmbda^2 in lmbda: of 0 and of powers below 1e-17, whose expm1 rounds to -1."""
    function, x = getattr(fsp, name), np.array([0.0, 0.0, 0.0, 1e-20, 1e-30])
    lmbda, expected = np.array([0.5, 1.0, 2.0, 1.0, 0.7]), np.array([np.inf, 1.0, 0.0, 1.0, 1e9])
    if name == "boxcox1p":
        x, lmbda, expected = x[:3] - 1.0, lmbda[:3], expected[:3]
    for find in (fxgrad.vmap(fxgrad.grad(function, (0, 1))), fxgrad.jit(fxgrad.vmap(fxgrad.grad(function, (0, 1))))):
        in_x, in_lmbda = find(x, lmbda)
        np.testing.assert_allclose(in_x, expected, rtol=1e-12)
        np.testing.assert_allclose(in_lmbda, 1 / lmbda ** 2, rtol=1e-12)
    np.testing.assert_array_equal(function(x, lmbda), getattr(scipy.special, name)(x, lmbda))
    assert fsp.boxcox(-0.0, -1.0) == -np.inf


def test_the_slope_of_poch_in_no_factors() -> None:
    z = np.array([0.5, 1.0, 20.0, -0.5])
    found = fxgrad.vmap(fxgrad.grad(fsp.poch, (0, 1)), (0, None))(z, 0.0)
    np.testing.assert_allclose(found[0], np.zeros(4), atol=1e-15)
    np.testing.assert_allclose(found[1], scipy.special.digamma(z), rtol=1e-13)
    np.testing.assert_array_equal(fsp.poch(np.array([0.0, -1.0, -2.0]), 0.0), np.ones(3))


def test_the_slope_of_expn_of_orders_that_are_cut_to_integers() -> None:
    found = [fxgrad.grad(lambda x, n=n: fsp.expn(n, x))(1.0) for n in (0.5, 1.5, 2.9)]
    np.testing.assert_allclose(found, [-2.0 / np.e, -1.0 / np.e, -scipy.special.exp1(1.0)], rtol=1e-13)


def test_the_slope_of_boxcox_at_0() -> None:
    """It was 0."""
    np.testing.assert_allclose(fxgrad.grad(fsp.boxcox, 1)(3.0, 0.0), np.log(3) ** 2 / 2, rtol=1e-14)
    np.testing.assert_array_equal(fsp.boxcox(np.array([0.0, 1.0]), 0.0), [-np.inf, 0.0])


def test_spherical_harmonics_of_orders_beyond_the_degree() -> None:
    n, m = np.arange(3)[:, None], np.arange(-3, 4)
    wanted = scipy.special.sph_harm_y(n, m, 0.3, 0.4)
    for function in (sph_harm_y, fxgrad.jit(lambda n, m, t, p: sph_harm_y(n, m, t, p, n_max=2))):
        np.testing.assert_allclose(function(n, m, 0.3, 0.4), wanted, atol=1e-15)


def test_quotients_of_gammas_at_and_beyond_poles() -> None:
    """They were NaN, from gammas that are NaN, or that underflow."""
    z = np.array([-15.0, -19.0, -15.0, -2.0, -200.5, -170.25, -1000.0, 0.0, -3.5])
    m = np.array([16.5, 4.0, 0.5, -3.0, 3.0, 60.5, 7.0, 2.0, 0.0])
    for function in (fsp.poch, fxgrad.jit(fsp.poch)):
        np.testing.assert_allclose(function(z, m), scipy.special.poch(z, m), rtol=1e-12)
    slopes = fxgrad.grad(lambda z: np.sum(fsp.poch(z, m)))(z[4:6].repeat([5, 4]))[[4, 5]]
    assert np.isfinite(slopes).all()
    a, b = np.array([-10.5, -13.5, 2.5]), np.array([-19.5, 7.5, -3.5])
    np.testing.assert_array_equal(fsp.beta(a, b), 0.0)


def test_slopes_of_beta_functions_in_a_large_or_negative_number_beside_a_small_one() -> None:
    """Differences of digamma had lost the digits: of betaln(44536, 7.4e-6) all but six, in float32 all."""
    points = [(44536.0, 7.4e-6), (0.5, 1e-7), (13.5, -11.0000001), (-16.5, 1e-6), (-76.97, -0.165), (1e-6, 2.5),
              (336904.0, -0.07), (3e5, 2e5)]
    with mpmath.workdps(40):
        wanted = [float(mpmath.digamma(mpmath.mpf(a)) - mpmath.digamma(mpmath.mpf(a) + mpmath.mpf(b)))
                  for a, b in points]
    a, b = map(np.array, zip(*points, strict=True))
    np.testing.assert_allclose(fxgrad.grad(lambda a: np.sum(fsp.betaln(a, b)))(a), wanted, rtol=1e-12)
    a, b = (each[:2].astype(np.float32) for each in (a, b))
    np.testing.assert_allclose(fxgrad.grad(lambda a: np.sum(fsp.betaln(a, b)))(a), wanted[:2], rtol=1e-5)


def test_the_slope_of_i0_near_0() -> None:
    x = np.array([1e-9, -1e-3, 0.0, 0.9, 1.1], np.float32)
    for dtype, rtol in ((np.float32, 1e-6), (np.float64, 1e-14)):
        slopes = fxgrad.grad(lambda x: np.sum(fsp.i0(x)))(x.astype(dtype))
        np.testing.assert_allclose(slopes, scipy.special.i1(x.astype(dtype)), rtol=rtol)
    np.testing.assert_allclose(fxgrad.grad(fxgrad.grad(fsp.i0))(0.0), 0.5, rtol=1e-14)


def test_owens_function_of_0_and_infinity() -> None:
    h, a = np.array([0.0, 0.0, -0.0, 1.5]), np.array([np.inf, -np.inf, 2.0, np.inf])
    np.testing.assert_allclose(fsp.owens_t(h, a), scipy.special.owens_t(h, a), rtol=1e-14)
