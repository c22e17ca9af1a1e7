"""Special functions of each element, on NumPy's arrays, jax's and traced ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import as_array_operand, as_integer, promote_inexact, refuse_complex
from fxgrad.engine.frontend.ufuncs import Elementwise, composite_function
from fxgrad.engine.ops import gamma as gamma_room
from fxgrad.engine.ops import hypergeometric, integrals, special
from fxgrad.engine.ops.arithmetic import add, div, mul, neg, stop_gradient, sub
from fxgrad.engine.ops.comparison import and_, eq, ge, gt, le, lt, not_, or_
from fxgrad.engine.ops.exponential import exp, expm1, log, log1p, logistic, square
from fxgrad.engine.ops.exponential import pow as power
from fxgrad.engine.ops.parts import abs as absolute
from fxgrad.engine.ops.parts import floor
from fxgrad.engine.ops.pointwise import scalar_like
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.special import in_powers
from fxgrad.engine.ops.structural import convert
from fxgrad.engine.ops.trigonometric import sin
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import UnsupportedError


def _special(name: str, function: Callable[..., Any], doc: str, nin: int = 1, real: bool = True) -> Elementwise:
    """Return the public function; `real` ones refuse complex operands, with their own name."""
    def checked(*values: Any) -> Any:
        refuse_complex(name, *values)
        return function(*values)

    return Elementwise(composite_function(checked if real else function), name, nin, doc, __name__)


# --- the error function and the normal distribution ---------------------------------------------------------------

erf = _special("erf", special.erf,
               "Return the error function: 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.")
erfc = _special("erfc", special.erfc, "1 - erf(x), accurate for large x.")
erfinv = _special("erfinv", special.erf_inv, "Return the inverse of `erf`; infinite at 1 and -1, NaN beyond.")
erfcinv = _special("erfcinv", lambda y: mul(special.ndtri(mul(y, 0.5)), -math.sqrt(0.5)),
                   "Return the inverse of `erfc`, accurate near 0 too; infinite at 0 and 2, NaN beyond.")
erfcx = _special("erfcx", integrals.erfcx, "exp(x^2) erfc(x), accurate for large x.")
dawsn = _special("dawsn", integrals.dawsn, "Dawson's integral: exp(-x^2) times the integral of exp(t^2) from 0 to x.")
owens_t = _special("owens_t", integrals.owens_t, "Owen's T function T(h, a).", 2)


def wofz(z: Any) -> Any:
    """Return Faddeeva's function: exp(-z^2) erfc(-i z), complex also for real operands.

    >>> round(float(wofz(1j).real), 6)
    0.427584
    """
    z, = promote_inexact(as_array_operand(z))
    return integrals.wofz(convert(z, dtypes.complex_dtype(aval_of(z).dtype), aval_of(z).weak))


def _ndtr(x: Any) -> Any:
    return mul(special.erfc(mul(x, -math.sqrt(0.5))), 0.5)


def _log_ndtr(x: Any) -> Any:
    """Compute log(ndtr(x)): below 0 by erfcx, with the exponential factored out; above by the small complement."""
    scaled = mul(x, math.sqrt(0.5))
    negative = lt(x, 0.0)
    below, above = where(negative, scaled, 0.0), where(negative, 0.0, scaled)
    low = sub(log(mul(integrals.erfcx(neg(below)), 0.5)), square(below))
    high = log1p(mul(special.erfc(above), -0.5))
    return where(negative, low, high)


ndtr = _special("ndtr", _ndtr, "Return the probability that a normal number is below x.")
ndtri = _special("ndtri", special.ndtri, "Return the inverse of `ndtr`: the quantile of the normal distribution.")
_log_ndtr_of = composite_function(_log_ndtr)


def log_ndtr(x: Any, series_order: int = 3) -> Any:
    """Return the logarithm of `ndtr(x)`, accurate where that is near 0 or 1; `series_order` has no effect here.

    >>> round(float(log_ndtr(-50.0)), 3)
    -1254.831
    """
    as_integer("log_ndtr", series_order)
    refuse_complex("log_ndtr", x)
    return _log_ndtr_of(x)


# --- logarithms and entropies -------------------------------------------------------------------------------------

def _logit(x: Any) -> Any:
    """Compute log(x) - log(1 - x), and around its zero by 2x - 1, which is exact there, so that no digits cancel."""
    apart = sub(log(x), log1p(neg(x)))
    if dtypes.is_complex(aval_of(x).dtype):
        return apart
    near = and_(gt(x, 0.3), lt(x, 0.65))
    twice = sub(mul(where(near, x, 0.5), 2.0), 1.0)
    return where(near, sub(log1p(twice), log1p(neg(twice))), apart)


expit = _special("expit", logistic, "The logistic function 1 / (1 + exp(-x)).", real=False)
logit = _special("logit", _logit, "The inverse of `expit`: log(x / (1 - x)).", real=False)
xlogy = _special("xlogy", special.xlogy, "x log(y), and 0 where x is 0, whatever number y is.", 2, real=False)
xlog1py = _special("xlog1py", special.xlog1py, "x log(1 + y), and 0 where x is 0, whatever number y is.", 2, real=False)
entr = _special("entr", special.entr, "-x log(x): the part of x in an entropy; minus infinity below 0.")


def _entropy(p: Any, q: Any, formula: Callable[..., Any], at_zero: Any) -> Any:
    """Return a formula of positive p and q, `at_zero` where p is 0, infinity where they are no probabilities."""
    inside = and_(gt(p, 0.0), gt(q, 0.0))
    outside = where(and_(eq(p, p), eq(q, q)), math.inf, add(p, q))
    outside = where(and_(eq(p, 0.0), ge(q, 0.0)), at_zero, outside)
    return where(inside, formula(where(inside, p, 1.0), where(inside, q, 1.0)), outside)


def _rel_entr_inside(p: Any, q: Any) -> Any:
    """Compute p log(p / q), which is of the size of p - q where the two are close."""
    apart = sub(q, p)
    near = lt(absolute(apart), mul(p, 0.5))
    close = neg(log1p(div(where(near, apart, 0.0), p)))
    return mul(p, where(near, close, sub(log(p), log(q))))


rel_entr = _special("rel_entr", lambda p, q: _entropy(p, q, _rel_entr_inside, 0.0),
                    "p log(p / q): the part of p and q in a relative entropy.", 2)
kl_div = _special("kl_div", lambda p, q: _entropy(p, q, lambda p, q: gamma_room.deviance(p, q, tiny=True), q),
                  "p log(p / q) - p + q, convex in both, and accurate where p and q are close.", 2)


_EXPM1_OVER_X = [1 / math.factorial(k + 1) for k in range(18)]


def _box(name: str, one: float, doc: str) -> Elementwise:
    """Return the transformation by log(x + 1 - one), which is 0 at x = `one`."""
    logarithm, lowest = (log, 0.0) if one else (log1p, -1.0)

    def function(x: Any, lmbda: Any) -> Any:
        zero, bottom = eq(lmbda, 0.0), eq(x, lowest)
        log_x = logarithm(where(bottom, one, x))
        exponent = mul(lmbda, log_x)
        near = and_(lt(absolute(exponent), 0.5), not_(bottom))  # by the series, for derivatives in lmbda, at 0 too
        series = mul(where(near, log_x, 0.0), in_powers(where(near, exponent, 0.0), _EXPM1_OVER_X))
        divisor = where(zero, 1.0, lmbda)
        # Powers have derivatives where those of the logarithm are infinite, and exp has them where expm1 rounds to -1.
        at_bottom = where(lt(divisor, 0.0), math.inf, power(where(bottom, sub(x, lowest), 1.0), divisor))  # also of -0
        low = lt(exponent, -0.5)
        below = where(bottom, at_bottom, exp(where(low, exponent, 0.0)))
        other = div(where(or_(bottom, low), sub(below, 1.0), expm1(where(low, 0.0, mul(divisor, log_x)))), divisor)
        return where(near, series, where(zero, logarithm(where(zero, x, one)), other))
    return _special(name, function, doc, 2)


boxcox = _box("boxcox", 1.0,
              "Return the transformation of Box and Cox: (x^lmbda - 1) / lmbda, and log(x) for lmbda = 0.")
boxcox1p = _box("boxcox1p", 0.0, "`boxcox` of 1 + x, accurate for small x.")

# --- gamma and beta functions -------------------------------------------------------------------------------------


def _gammasgn(x: Any) -> Any:
    """Return the sign of gamma(x): it alternates between negative integers, and is undefined at them."""
    whole = floor(x)
    one = where(eq(x, x), scalar_like(1.0, x), x)
    odd = ge(mul(sub(mul(whole, 0.5), floor(mul(whole, 0.5))), 2.0), 1.0)
    below = where(eq(whole, x), math.nan, where(odd, -1.0, one))
    at_zero = where(lt(div(1.0, x), 0.0), -1.0, one)
    return stop_gradient(where(eq(x, 0.0), at_zero, where(lt(x, 0.0), below, one)))


def _gamma(x: Any) -> Any:
    """Compute by gammaln, whose exponential has its derivatives, corrected to Stirling's formula for larger x.

    The exponential of a large logarithm loses as many digits as that has before the point.
    """
    dtype, weak = aval_of(x).dtype, aval_of(x).weak
    if dtype.itemsize < 4:
        return convert(_gamma(convert(x, dtypes.float32, weak)), dtype, weak)
    value = exp(special.lgamma(x))
    far = gt(x, 8.0 if dtype.itemsize == 8 else 3.0)
    large = where(far, x, 9.0)
    root = power(large, mul(sub(large, 0.5), 0.5))  # half of the power, which alone would overflow
    error = add(expm1(gamma_room.stirling_error(large)), 1.0)  # XLA would make one exponential of two
    rest = mul(mul(exp(neg(large)), error), math.sqrt(2 * math.pi))
    exact = mul(mul(root, rest), root)
    known = and_(and_(far, lt(exact, math.inf)), lt(value, math.inf))
    correction = where(known, div(exact, where(known, value, 1.0)), 1.0)
    return mul(stop_gradient(mul(_gammasgn(x), correction)), value)


def _beta(a: Any, b: Any) -> Any:
    sign, total = mul(_gammasgn(a), _gammasgn(b)), add(a, b)
    is_zero = and_(and_(lt(total, 0.0), eq(floor(total), total)), eq(sign, sign))  # a pole of its gamma alone
    sign = mul(sign, where(is_zero, 1.0, _gammasgn(total)))
    return mul(sign, exp(gamma_room.betaln(a, b)))


gammaln = _special("gammaln", special.lgamma, "Return the logarithm of the absolute value of the gamma function.")
loggamma = _special("loggamma", lambda x: where(gt(x, 0.0), special.lgamma(x), math.nan),
                    "Return the logarithm of the gamma function, NaN where that is negative.")
gammasgn = _special("gammasgn", _gammasgn, "Return the sign of the gamma function, NaN at its poles.")
gamma = _special("gamma", _gamma, "Return the gamma function.")
digamma = _special("digamma", special.digamma, "Return the derivative of `gammaln`.")
polygamma = _special("polygamma", special.polygamma, "Return the derivative of order n of `digamma`.", 2)
gammainc = _special("gammainc", gamma_room.igamma, "Return the regularized lower incomplete gamma function P(a, x).", 2)
gammaincc = _special("gammaincc", gamma_room.igammac,
                     "Return the regularized upper incomplete gamma function Q(a, x).", 2)
betaln = _special("betaln", gamma_room.betaln, "Return the logarithm of the absolute value of the beta function.", 2)
beta = _special("beta", _beta, "Return the beta function: gamma(a) gamma(b) / gamma(a + b).", 2)
betainc = _special("betainc", hypergeometric.betainc,
                   "Return the regularized incomplete beta function I_x(a, b), with derivatives in all of them.", 3)
def _poch(z: Any, m: Any) -> Any:
    """Compute the quotient, of two numbers up to 0 by reflection (DLMF 5.5.3): gamma underflows there, and has poles.

    At a pole of gamma(z) alone it is 0.
    """
    total = add(z, m)
    low, whole = and_(le(z, 0.0), le(total, 0.0)), and_(le(z, 0.0), eq(floor(z), z))
    found = _quotient_of_gammas(where(low, sub(1.0, total), z), where(low, sub(1.0, z), total), m)
    rests = [sub(each, floor(add(each, 0.5))) for each in (z, total)]
    below, above = (sin(mul(where(low, rest, 0.25), math.pi)) for rest in rests)
    steps = sub(sub(z, rests[0]), sub(total, rests[1]))
    sign = where(eq(mul(floor(mul(steps, 0.5)), 2.0), steps), scalar_like(1.0, z), -1.0)
    both = and_(eq(below, 0.0), eq(above, 0.0))
    turned = mul(sign, where(both, 1.0, div(below, where(both, 1.0, above))))
    found = where(low, mul(turned, found), where(and_(whole, gt(total, 0.0)), 0.0, found))
    return where(and_(eq(m, 0.0), not_(eq(found, 1.0))), 1.0, found)


def _quotient_of_gammas(z: Any, top: Any, m: Any) -> Any:
    """Return gamma(top) / gamma(z) for top = z + m; of large numbers by a difference of logarithms (DLMF 5.11)."""
    far = and_(gt(z, 8.0), gt(top, 8.0))
    large, step = where(far, z, 8.0), where(far, m, 1.0)
    total = add(large, step)
    exponent = add(mul(sub(large, 0.5), log1p(div(step, large))), mul(step, sub(log(total), 1.0)))
    errors = sub(gamma_room.stirling_error(total), gamma_room.stirling_error(large))
    near = div(_gamma(where(far, 1.0, top)), _gamma(where(far, 1.0, z)))
    return where(far, exp(add(exponent, errors)), near)


poch = _special("poch", _poch,
                "Pochhammer's symbol: gamma(z + m) / gamma(z).", 2)
_zeta = composite_function(gamma_room.zeta)


def zeta(x: Any, q: Any = None) -> Any:
    """Return Hurwitz's zeta function: the sum of (q + k)^-x over k = 0, 1, 2, ...; Riemann's (q = 1) without `q`.

    >>> round(float(zeta(2.0)), 4)
    1.6449
    """
    return _zeta(x, 1.0 if q is None else q)


def factorial(n: Any, exact: bool = False) -> Any:
    """Return the factorial as gamma(n + 1), and 0 below 0. Raises `UnsupportedError` for `exact=True`.

    >>> round(float(factorial(5.0)), 3)
    120.0
    """
    if exact:
        raise UnsupportedError(at_user_line("factorial: exact=True is not supported; use math.factorial(n)"))
    return _factorial(n)


@composite_function
def _factorial(n: Any) -> Any:
    refuse_complex("factorial", n)
    return where(lt(n, 0.0), 0.0, _gamma(add(where(lt(n, 0.0), 0.0, n), 1.0)))


def _choose(n: Any, k: Any) -> Any:
    """Compute by gammaln, and for large n by Stirling's formula, since differences of its logarithms lose digits."""
    refuse_complex("comb", n)
    inside = and_(le(k, n), and_(ge(n, 0.0), ge(k, 0.0)))
    far = and_(and_(gt(n, 8.0), inside), and_(gt(k, 0.0), lt(k, n)))
    few, some = where(and_(inside, not_(far)), n, 0.0), where(and_(inside, not_(far)), k, 0.0)
    near = sub(sub(special.lgamma(add(few, 1.0)), special.lgamma(add(some, 1.0))),
               special.lgamma(add(sub(few, some), 1.0)))
    many, chosen = where(far, n, 9.0), where(far, k, 1.0)
    rest, inverse = sub(many, chosen), log(div(many, chosen))
    entropy = sub(mul(chosen, inverse), mul(rest, log1p(neg(div(chosen, many)))))
    errors = sub(gamma_room.stirling_error(many),
                 add(gamma_room.stirling_error(chosen), gamma_room.stirling_error(rest)))
    scale = mul(sub(inverse, log(mul(rest, 2 * math.pi))), 0.5)
    return where(inside, exp(where(far, add(add(entropy, scale), errors), near)), 0.0)


def _multichoose(n: Any, k: Any) -> Any:
    return where(and_(eq(k, 0.0), ge(n, 0.0)), 1.0, _choose(sub(add(n, k), 1.0), k))


def comb(N: Any, k: Any, *, exact: bool = False, repetition: bool = False) -> Any:
    """Return the number of ways to choose `k` of `N` elements, each at most once or, with `repetition`, repeatedly.

    Raises `UnsupportedError` for `exact=True`.

    >>> round(float(comb(5.0, 2.0)), 3)
    10.0
    """
    if exact:
        raise UnsupportedError(at_user_line("comb: exact=True is not supported; use math.comb(N, k)"))
    return composite_function(_multichoose if repetition else _choose)(N, k)


# --- Bessel functions and integrals -------------------------------------------------------------------------------

i0e = _special("i0e", special.bessel_i0e, "exp(-|x|) times the modified Bessel function of order 0.")
i1e = _special("i1e", special.bessel_i1e, "exp(-|x|) times the modified Bessel function of order 1.")
_I0 = [0.25 ** k / math.factorial(k) ** 2 for k in range(10)]


def _i0(x: Any) -> Any:
    """Compute by i0e, and near 0 by the series (DLMF 10.25.2), since a sum of derivatives would cancel there."""
    near = lt(absolute(x), 1.0)
    away = where(near, 1.0, x)
    return where(near, in_powers(square(where(near, x, 0.0)), _I0), mul(exp(absolute(away)), special.bessel_i0e(away)))


i0 = _special("i0", _i0,
              "Return the modified Bessel function of order 0.")
i1 = _special("i1", lambda x: mul(exp(absolute(x)), special.bessel_i1e(x)),
              "Return the modified Bessel function of order 1.")
exp1 = _special("exp1", integrals.exp1, "Return the exponential integral E1: of exp(-t) / t from x to infinity.")
expi = _special("expi", integrals.expi, "Return the exponential integral Ei: of exp(t) / t from minus infinity to x.")
expn = _special("expn", integrals.expn,
                "Return the exponential integral E_n: of exp(-x t) / t^n from 1 to infinity.", 2)
spence = _special("spence", integrals.spence, "Spence's function: the integral of log(t) / (1 - t) from 1 to x.")
hyp1f1 = _special("hyp1f1", hypergeometric.hyp1f1,
                  "Kummer's confluent hypergeometric function 1F1(a; b; x), with derivatives in all of them; NaN where "
                  "half of the digits would be lost, as with some negative b.", 3)
hyp2f1 = _special("hyp2f1", hypergeometric.hyp2f1,
                  "Gauss's hypergeometric function 2F1(a, b; c; x) for x <= 1, with derivatives in all of them; NaN "
                  "where half of the digits would be lost, as with some negative c.", 4)
_sici = [composite_function(function) for function in (integrals.sine_integral, integrals.cosine_integral)]
_fresnel = [composite_function(function) for function in (integrals.fresnel_sine, integrals.fresnel_cosine)]


def sici(x: Any) -> tuple[Any, Any]:
    """Return the sine integral (of sin(t) / t from 0 to x) and the cosine integral (of cos(t) / t from infinity to x).

    >>> [round(float(value), 4) for value in sici(1.0)]
    [0.9461, 0.3374]
    """
    sine, cosine = _sici
    return sine(x), cosine(x)


def fresnel(x: Any) -> tuple[Any, Any]:
    """Return Fresnel's integrals S and C: of sin(pi t^2 / 2) and cos(pi t^2 / 2) from 0 to x.

    >>> [round(float(value), 4) for value in fresnel(1.0)]
    [0.4383, 0.7799]
    """
    sine, cosine = _fresnel
    return sine(x), cosine(x)
