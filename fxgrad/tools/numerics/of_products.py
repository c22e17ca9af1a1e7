"""Rules for logarithms of exponentials, powers, products, determinants, gamma functions and running sums."""

from __future__ import annotations

from typing import Any

from fxgrad import numpy as fnp
from fxgrad.extend import Equation, bind, primitives
from fxgrad.tools.numerics import formulas
from fxgrad.tools.numerics.rules import StableForm, register_form_rule
from fxgrad.tools.numerics.view import ProgramView


@register_form_rule("log of exp", primitives.log, naive="log(exp(x)), log(exp(x) * exp(y)), log(exp(x) / exp(y))",
                    write="x, x + y, x - y",
                    fault="exp overflows for large x")
def _log_of_exp(view: ProgramView, equation: Equation) -> StableForm | None:
    number, factors, _ = view.product(equation.inputs[0])
    found = {atom: view.of(atom, primitives.exp) for atom in factors}
    if number != 1.0 or not factors or any(operands is None for operands in found.values()):
        return None
    exponents = [*factors.values()]

    def total(*values: Any) -> Any:
        result: Any = None
        for power, value in zip(exponents, values, strict=True):
            term = value if abs(power) == 1 else abs(power) * value
            result = (term if power > 0 else -term) if result is None else result + term if power > 0 else result - term
        return result
    arguments = tuple(operands[0] for operands in found.values() if operands is not None)
    if len(arguments) == 1 and exponents == [1] and view.of(arguments[0], primitives.lgamma) is not None:
        return StableForm(lambda x: x, arguments)
    return StableForm(total, arguments)


@register_form_rule("log of a power", primitives.log, naive="log(x**n), log(x**y)",
                    write="n * np.log(abs(x)), y * np.log(x)",
                    fault="the power overflows or underflows")
def _log_of_power(view: ProgramView, equation: Equation) -> StableForm | None:
    maker = view.maker(equation.inputs[0])
    if maker is None:
        return None
    if maker.primitive in (primitives.integer_pow, primitives.square):
        exponent = maker.params.get("exponent", 2)
        return StableForm(lambda x: formulas.log_of_power(x, exponent), (maker.inputs[0],)) if exponent else None
    if maker.primitive is not primitives.pow:
        return None
    return StableForm(formulas.log_of_real_power, tuple(maker.inputs))


@register_form_rule("log of a product", primitives.log, naive="log(prod(x))", write="np.sum(np.log(x))",
                    fault="the product overflows or underflows")
def _log_of_product(view: ProgramView, equation: Equation) -> StableForm | None:
    maker = view.maker(equation.inputs[0])
    if maker is None or maker.primitive is not primitives.reduce_prod:
        return None
    axes = tuple(maker.params["axes"])
    return StableForm(lambda x, naive: formulas.log_of_product(x, axes, naive), (maker.inputs[0], equation.inputs[0]))


@register_form_rule("log of a determinant", primitives.log, naive="log(det(a))", write="np.linalg.slogdet(a)[1]",
                    fault="the determinant overflows or underflows", domain="det(a) > 0")
def _log_of_determinant(view: ProgramView, equation: Equation) -> StableForm | None:
    operands = view.of(equation.inputs[0], primitives.det)
    return None if operands is None else StableForm(formulas.log_of_determinant, (operands[0], equation.inputs[0]))


@register_form_rule("log of gamma", primitives.log, naive="log(gamma(x))", write="fxgrad.scipy.special.gammaln(x)",
                    fault="gamma overflows",
                    domain="x > 0")
def _log_of_gamma(view: ProgramView, equation: Equation) -> StableForm | None:
    operands = view.of(equation.inputs[0], primitives.mul)
    for sign, power in () if operands is None else (operands, operands[::-1]):
        inner = view.of(power, primitives.exp)
        argument = None if inner is None else view.of(inner[0], primitives.lgamma)
        maker = view.maker(sign)
        # The sign of a gamma function has stop_gradient applied.
        if argument is not None and maker is not None and maker.primitive is primitives.stop_gradient:
            return StableForm(lambda x, s: formulas.lgamma(x) + fnp.log(formulas.stop_gradient(s)), (argument[0], sign))
    return None


@register_form_rule("cumulative log-sum-exp", primitives.log, naive="log(cumsum(exp(x)))",
                    write="fxgrad.lax.cumlogsumexp(x, axis)",
                    fault="exp overflows for large x, and the sum is 0 for small ones")
def _cumulative(view: ProgramView, equation: Equation) -> StableForm | None:
    maker = view.maker(equation.inputs[0])
    inner = view.exponential(maker.inputs[0]) if maker is not None and maker.primitive is primitives.cumsum else None
    if maker is None or inner is None:
        return None
    return StableForm(lambda x: bind(primitives.cumlogsumexp, x, **maker.params)[0], (inner.argument,))
