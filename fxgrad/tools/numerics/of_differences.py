"""Rules for sums and differences in which digits cancel, and for square roots of sums of squares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxgrad import numpy as fnp
from fxgrad.extend import Atom, Equation, primitives
from fxgrad.tools.numerics import formulas
from fxgrad.tools.numerics.of_logarithms import erfc_of, sigmoid_of
from fxgrad.tools.numerics.of_quotients import opposite_exponentials
from fxgrad.tools.numerics.rules import StableForm, register_form_rule
from fxgrad.tools.numerics.view import ProgramView, Term

CANCELS = "digits cancel where the result is near zero"
SQUARES = "squares overflow, and are lost where they underflow"


def two_terms(view: ProgramView, equation: Equation) -> list[Term]:
    """Return the two terms of a sum or a difference; an empty list if there are more."""
    terms = view.terms(equation.outputs[0])
    return terms if len(terms) == 2 else []


def constant_and_term(view: ProgramView, equation: Equation, number: float = 1.0) -> tuple[int, Term] | None:
    """Return the sign of the number and the other term of the sum or difference; None if there is none."""
    terms = two_terms(view, equation)
    for one, other in (terms, terms[::-1]) if terms else ():
        value = view.number(one.atom)
        if value is not None and abs(value) == number and view.number(other.atom) is None:
            return one.sign * (1 if value > 0 else -1), other
    return None


def with_sign(formula: Callable[..., Any], sign: int) -> Callable[..., Any]:
    """Return the formula, or its negative."""
    return formula if sign > 0 else lambda *args: -formula(*args)


@register_form_rule("expm1", primitives.add, primitives.sub, naive="exp(x) - 1, 1 - exp(x)", write="np.expm1(x)",
                    fault="digits cancel for x near zero")
def _expm1(view: ProgramView, equation: Equation) -> StableForm | None:
    found = constant_and_term(view, equation)
    inner = None if found is None else view.exponential(found[1].atom)
    if found is None or inner is None or found[0] == found[1].sign:
        return None
    return StableForm(with_sign(formulas.expm1, found[1].sign), (inner.argument,))


@register_form_rule("twice sinh", primitives.add, primitives.sub, naive="exp(x) - exp(-x)", write="2 * np.sinh(x)",
                    fault="digits cancel for x near zero")
def _twice_sinh(view: ProgramView, equation: Equation) -> StableForm | None:
    argument = opposite_exponentials(view, equation.outputs[0], -1)
    return None if argument is None else StableForm(lambda x: 2.0 * fnp.sinh(x), (argument,))


@register_form_rule("difference of exponentials", primitives.add, primitives.sub, naive="exp(x) - exp(y)",
                    write="np.exp(y) * np.expm1(x - y)",
                    fault="digits cancel for x near y")
def _difference_of_exps(view: ProgramView, equation: Equation) -> StableForm | None:
    terms = sorted(two_terms(view, equation), key=lambda term: -term.sign)
    found = [view.exponential(term.atom) for term in terms]
    if [term.sign for term in terms] != [1, -1] or found[0] is None or found[1] is None:
        return None
    return StableForm(formulas.difference_of_exps, (found[0].argument, found[1].argument))


@register_form_rule("1 - cos", primitives.add, primitives.sub, naive="1 - cos(x)", write="2 * np.sin(x / 2) ** 2",
                    fault="digits cancel for x near zero")
def _one_minus_cos(view: ProgramView, equation: Equation) -> StableForm | None:
    found = constant_and_term(view, equation)
    operands = None if found is None else view.of(found[1].atom, primitives.cos)
    if found is None or operands is None or found[0] == found[1].sign:
        return None
    return StableForm(with_sign(formulas.half_versine, found[0]), (operands[0],))


@register_form_rule("cosh - 1", primitives.add, primitives.sub, naive="cosh(x) - 1", write="2 * np.sinh(x / 2) ** 2",
                    fault="digits cancel for x near zero")
def _coshm1(view: ProgramView, equation: Equation) -> StableForm | None:
    found = constant_and_term(view, equation)
    operands = None if found is None else view.of(found[1].atom, primitives.cosh)
    if found is None or operands is None or found[0] == found[1].sign:
        return None
    return StableForm(with_sign(formulas.coshm1, found[1].sign), (operands[0],))


@register_form_rule("1 - tanh squared", primitives.add, primitives.sub, naive="1 - tanh(x)**2",
                    write="1 / np.cosh(x) ** 2",
                    fault="digits cancel where tanh is near one")
def _sech_squared(view: ProgramView, equation: Equation) -> StableForm | None:
    found = constant_and_term(view, equation)
    base = None if found is None else view.squared(found[1].atom)
    operands = None if base is None else view.of(base, primitives.tanh)
    if found is None or operands is None or found[0] == found[1].sign:
        return None
    return StableForm(with_sign(formulas.sech_squared, found[0]), (operands[0],))


@register_form_rule("1 - tanh", primitives.add, primitives.sub, naive="1 - tanh(x), 1 + tanh(x)",
                    write="2 * fxgrad.nn.sigmoid(-2 * x)",
                    fault="digits cancel where tanh is near one")
def _one_minus_tanh(view: ProgramView, equation: Equation) -> StableForm | None:
    found = constant_and_term(view, equation)
    operands = None if found is None else view.of(found[1].atom, primitives.tanh)
    if found is None or operands is None:
        return None
    of_one, of_tanh = found[0], found[0] * found[1].sign
    return StableForm(lambda x: (2.0 * of_one) * formulas.sigmoid((2.0 * of_tanh) * x), (operands[0],))


@register_form_rule("1 - sigmoid", primitives.add, primitives.sub, naive="1 - sigmoid(x)",
                    write="fxgrad.nn.sigmoid(-x)",
                    fault="digits cancel where the sigmoid is near one")
def _one_minus_sigmoid(view: ProgramView, equation: Equation) -> StableForm | None:
    found = constant_and_term(view, equation)
    share = None if found is None else sigmoid_of(view, found[1].atom)
    if found is None or share is None or found[0] == found[1].sign:
        return None
    of_one, sign = found[0], -share[1]
    return StableForm(lambda x: of_one * formulas.sigmoid(sign * x), (share[0],))


@register_form_rule("erfc", primitives.add, primitives.sub, naive="1 - erf(x), 1 + erf(x)",
                    write="fxgrad.scipy.special.erfc(x)",
                    fault="digits cancel where erf is near one")
def _erfc(view: ProgramView, equation: Equation) -> StableForm | None:
    found = erfc_of(view, equation.outputs[0])
    if found is None or found[0] == equation.outputs[0]:
        return None
    argument, sign = found
    return StableForm(lambda x: formulas.erfc(x if sign > 0 else -x), (argument,))


@register_form_rule("variance", primitives.add, primitives.sub, naive="mean(x**2) - mean(x)**2",
                    write="np.var(x, axis)",
                    fault="digits cancel where the mean is large, and the difference may be negative")
def _variance(view: ProgramView, equation: Equation) -> StableForm | None:
    terms = sorted(two_terms(view, equation), key=lambda term: -term.sign)
    if [term.sign for term in terms] != [1, -1]:
        return None
    first, base = view.sum(terms[0].atom), view.squared(terms[1].atom)
    second = None if base is None else view.sum(base)
    if first is None or second is None or not first.is_mean or not second.is_mean or first.axes != second.axes or (
            view.squared(first.operand) != second.operand):
        return None
    return StableForm(lambda x: first.moved(formulas.variance(x, first.axes)), (second.operand,))


@register_form_rule("difference of squares", primitives.add, primitives.sub, naive="x**2 - y**2, 1 - x**2",
                    write="(x - y) * (x + y)", fault=CANCELS,
                    kind="edges")
def _difference_of_squares(view: ProgramView, equation: Equation) -> StableForm | None:
    sides = two_squares(view, equation.outputs[0], -1)
    return None if sides is None else StableForm(formulas.difference_of_squares, sides)


def two_squares(view: ProgramView, atom: Atom, sign: int) -> tuple[Atom, Atom] | None:
    """Return x and y of x**2 + y**2, or of x**2 - y**2 for the sign -1."""
    terms = view.terms(atom)
    if len(terms) != 2 or terms[0].sign * terms[1].sign != sign or all(term.sign < 0 for term in terms):
        return None
    bases = [view.squared(term.atom) for term in sorted(terms, key=lambda term: -term.sign)]
    if bases[0] is None or bases[1] is None or all(view.number(base) is not None for base in bases if base is not None):
        return None
    return bases[0], bases[1]


def difference_of_sums(view: ProgramView, one: Atom, other: Atom) -> tuple[list[Term], float]:
    """Return `one` minus `other` as remaining terms of a sum and a number."""
    left = [*view.terms(one), *(Term(-term.sign, term.atom) for term in view.terms(other))]
    number = 0.0
    for term in [*left]:
        value = view.number(term.atom)
        opposite = Term(-term.sign, term.atom)
        if value is not None:
            number += term.sign * value
            left.remove(term)
        elif term in left and opposite in left:
            left.remove(term)
            left.remove(opposite)
    return left, number


def sum_terms(terms: list[Term], number: float, values: Any) -> Any:
    """Return the sum of terms and a number."""
    total: Any = None
    for term, value in zip(terms, values, strict=True):
        total = (value if term.sign > 0 else -value) if total is None else (
            total + value if term.sign > 0 else total - value)
    return number if total is None else total + number if number else total


@register_form_rule("difference of roots", primitives.add, primitives.sub, naive="sqrt(x + 1) - sqrt(x)",
                    write="1 / (np.sqrt(x + 1) + np.sqrt(x))",
                    fault=CANCELS, domain="x >= 0")
def _difference_of_roots(view: ProgramView, equation: Equation) -> StableForm | None:
    terms = sorted(two_terms(view, equation), key=lambda term: -term.sign)
    if [term.sign for term in terms] != [1, -1]:
        return None
    inside = []
    for term in terms:
        operands = view.of(term.atom, primitives.sqrt)
        inside.append(operands[0] if operands is not None else term.atom if view.is_number(term.atom, 1.0) else None)
    one, other = inside
    if one is None or other is None or all(view.number(each) is not None for each in (one, other)):
        return None
    left, number = difference_of_sums(view, one, other)
    return StableForm(lambda x, y, *values: formulas.difference_of_roots(x, y, sum_terms(left, number, values)),
                      (one, other, *(term.atom for term in left)))


@register_form_rule("difference of logarithms", primitives.add, primitives.sub, naive="log(x + 1) - log(x)",
                    write="np.log1p(1 / x)",
                    fault=CANCELS,
                    domain="x > 0")
def _difference_of_logs(view: ProgramView, equation: Equation) -> StableForm | None:
    terms = sorted(two_terms(view, equation), key=lambda term: -term.sign)
    if [term.sign for term in terms] != [1, -1]:
        return None
    first, second = (view.of(term.atom, primitives.log) for term in terms)
    if first is None or second is None:
        return None
    for one, other, sign in ((first[0], second[0], 1), (second[0], first[0], -1)):
        left, number = difference_of_sums(view, one, other)
        maker = view.maker(one)
        if not left and number > 0 and maker is not None and other in maker.inputs:
            return StableForm(lambda x, sign=sign, number=number: sign * formulas.log_of_next(x, number), (other,))
    return None


@register_form_rule("difference of inverses", primitives.add, primitives.sub, naive="1 / x - 1 / (x + 1)",
                    write="1 / x / (x + 1)",
                    fault=CANCELS,
                    domain="x != 0, x != -1", kind="edges")
def _difference_of_inverses(view: ProgramView, equation: Equation) -> StableForm | None:
    terms = sorted(two_terms(view, equation), key=lambda term: -term.sign)
    if [term.sign for term in terms] != [1, -1]:
        return None
    sides = []
    for term in terms:
        operands = view.of(term.atom, primitives.div)
        maker = view.maker(term.atom)
        if operands is not None and view.is_number(operands[0], 1.0):
            sides.append(operands[1])
        elif maker is not None and maker.primitive is primitives.integer_pow and maker.params["exponent"] == -1:
            sides.append(maker.inputs[0])
    if len(sides) != 2:
        return None
    left, number = difference_of_sums(view, sides[1], sides[0])
    if left or not number:
        return None
    return StableForm(lambda x, y: formulas.difference_of_inverses(x, y, number), (sides[0], sides[1]))


# --- roots ----------------------------------------------------------------------------------------------------------


@register_form_rule("absolute value", primitives.sqrt, naive="sqrt(x**2)", write="np.abs(x)", fault=SQUARES,
                    kind="edges")
def _absolute(view: ProgramView, equation: Equation) -> StableForm | None:
    base = view.squared(equation.inputs[0])
    return None if base is None or view.number(base) is not None else StableForm(fnp.abs, (base,))


@register_form_rule("hypot", primitives.sqrt, naive="sqrt(x**2 + y**2)", write="np.hypot(x, y)", fault=SQUARES,
                    kind="edges")
def _hypot(view: ProgramView, equation: Equation) -> StableForm | None:
    sides = two_squares(view, equation.inputs[0], 1)
    return None if sides is None else StableForm(formulas.hypot, sides)


@register_form_rule("leg", primitives.sqrt, naive="sqrt(x**2 - y**2), sqrt(1 - x**2)",
                    write="np.sqrt(x - y) * np.sqrt(x + y)",
                    fault="squares overflow, and digits cancel where the result is near zero", kind="edges")
def _leg(view: ProgramView, equation: Equation) -> StableForm | None:
    sides = two_squares(view, equation.inputs[0], -1)
    return None if sides is None else StableForm(formulas.root_of_difference, sides)


@register_form_rule("norm", primitives.sqrt, naive="sqrt(sum(x**2))",
                    write="fxgrad.tools.numerics.formulas.norm(x, axes)",
                    fault=SQUARES,
                    kind="edges")
def _norm(view: ProgramView, equation: Equation) -> StableForm | None:
    total = view.sum(equation.inputs[0])
    base = None if total is None or total.is_mean else view.squared(total.operand)
    if total is None or base is None or view.number(base) is not None:
        return None
    return StableForm(lambda x: total.moved(formulas.norm(x, total.axes)), (base,))
