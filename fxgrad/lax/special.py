"""The special functions of `jax.lax`: of the error, gamma, beta, zeta and Bessel functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.frontend.strict import apply_elementwise, document_function
from fxgrad.engine.ops import gamma, hypergeometric, special

__all__ = ["bessel_i0e", "bessel_i1e", "betainc", "digamma", "erf", "erf_inv", "erfc", "igamma", "igamma_grad_a",
           "igammac", "lgamma", "polygamma", "random_gamma_grad", "zeta"]

Function = Callable[..., Any]
_RULE = "Takes floats, of one dtype and shape (or numbers and scalars)."


def _unary(name: str, primitive: Primitive, doc: str) -> Function:
    def function(x: Any) -> Any:
        return apply_elementwise(name, primitive, x)
    return document_function(function, name, doc, _RULE)


def _binary(name: str, primitive: Primitive, doc: str) -> Function:
    def function(a: Any, x: Any) -> Any:
        return apply_elementwise(name, primitive, a, x)
    return document_function(function, name, doc, _RULE)


# --- of one operand -----------------------------------------------------------------------------------------------

erf = _unary("erf", special.erf_p, """2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.
>>> round(float(erf(1.0)), 6)
0.842701""")
erfc = _unary("erfc", special.erfc_p, """1 - erf(x), accurate for large x.
>>> round(float(erfc(1.0)), 6)
0.157299""")
erf_inv = _unary("erf_inv", special.erf_inv_p, """Return the inverse of `erf`.
>>> round(float(erf_inv(0.5)), 6)
0.476936""")
lgamma = _unary("lgamma", special.lgamma_p, """Return the logarithm of |Gamma(x)|.
>>> round(float(lgamma(5.0)), 6)
3.178054""")
digamma = _unary("digamma", special.digamma_p, """Return the derivative of `lgamma`.
>>> round(float(digamma(1.0)), 6)
-0.577216""")
bessel_i0e = _unary("bessel_i0e", special.bessel_i0e_p, """exp(-|x|) I_0(x).
>>> round(float(bessel_i0e(1.0)), 6)
0.46576""")
bessel_i1e = _unary("bessel_i1e", special.bessel_i1e_p, """exp(-|x|) I_1(x).
>>> round(float(bessel_i1e(1.0)), 6)
0.20791""")

# --- of two and three ---------------------------------------------------------------------------------------------

igamma = _binary("igamma", gamma.igamma_p, """Return the regularized lower incomplete gamma function P(a, x).
>>> round(float(igamma(2.0, 1.0)), 6)
0.264241""")
igammac = _binary("igammac", gamma.igammac_p, """Return the regularized upper incomplete gamma function Q(a, x).
>>> round(float(igammac(2.0, 1.0)), 6)
0.735759""")
igamma_grad_a = _binary("igamma_grad_a", gamma.igamma_grad_a_p, """Return the derivative of `igamma` in a.
>>> round(float(igamma_grad_a(2.0, 1.0)), 6)
-0.276196""")
random_gamma_grad = _binary(
    "random_gamma_grad", gamma.random_gamma_grad_p, """Return the derivative in `a` of draws x of a gamma distribution.
>>> float(random_gamma_grad(2.0, 1.0)) > 0
True""")


def polygamma(m: Any, x: Any) -> Any:
    """Return the derivative of `digamma` of the whole order `m`, a float. Raises `DTypeError`, `ShapeError`.

    >>> round(float(polygamma(1.0, 1.0)), 6)
    1.644934
    """
    return apply_elementwise("polygamma", special.polygamma_p, m, x)


def zeta(x: Any, q: Any) -> Any:
    """Return Hurwitz's zeta function: the sum of (q + k)^-x over k from 0 on. Raises `DTypeError`, `ShapeError`.

    >>> round(float(zeta(2.0, 1.0)), 6)
    1.644934
    """
    return apply_elementwise("zeta", gamma.zeta_p, x, q)


def betainc(a: Any, b: Any, x: Any) -> Any:
    """Return the regularized incomplete beta function I_x(a, b). Raises `DTypeError`, `ShapeError`.

    >>> round(float(betainc(1.0, 2.0, 0.5)), 6)
    0.75
    """
    return apply_elementwise("betainc", hypergeometric.regularized_incomplete_beta_p, a, b, x)
