"""Rules for sums and differences in which digits cancel, and for square roots of sums of squares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxgrad import numpy as fnp
from fxgrad.extend import Atom, Equation, primitives
from fxgrad.tools.numerics import formulas
from fxgrad.tools.numerics.of_logarithms import erfc_of, sigmoid_of
from fxgrad.tools.numerics.of_quotients import opposite_exponentials
from fxgrad.tools.numerics.rules import Instead, rule
from fxgrad.tools.numerics.view import Term, View

CANCELS = "digits cancel where the result is near zero"
SQUARES = "squares overflow, and are lost where they underflow"


def pair(view: View, equation: Equation) -> list[Term]:
    """The two parts of a sum or a difference; nothing if there are more."""
    terms = view.terms(equation.outputs[0])
    return terms if len(terms) == 2 else []


def beside(view: View, equation: Equation, number: float = 1.0) -> tuple[int, Term] | None:
    """The sign of the number, and what it is added to or taken from."""
    terms = pair(view, equation)
    for one, other in (terms, terms[::-1]) if terms else ():
        value = view.number(one.atom)
        if value is not None and abs(value) == number and view.number(other.atom) is None:
            return one.sign * (1 if value > 0 else -1), other
    return None


def signed(formula: Callable[..., Any], sign: int) -> Callable[..., Any]:
    """The formula, or its negative."""
    return formula if sign > 0 else lambda *args: -formula(*args)


@rule("expm1", primitives.add, primitives.sub, naive="exp(x) - 1, 1 - exp(x)", write="np.expm1(x)",
      fault="digits cancel for x near zero")
def _expm1(view: View, equation: Equation) -> Instead | None:
    found = beside(view, equation)
    inner = None if found is None else view.exponential(found[1].atom)
    if found is None or inner is None or found[0] == found[1].sign:
        return None
    return Instead(signed(formulas.expm1, found[1].sign), (inner.argument,))


@rule("twice sinh", primitives.add, primitives.sub, naive="exp(x) - exp(-x)", write="2 * np.sinh(x)",
      fault="digits cancel for x near zero")
def _twice_sinh(view: View, equation: Equation) -> Instead | None:
    argument = opposite_exponentials(view, equation.outputs[0], -1)
    return None if argument is None else Instead(lambda x: 2.0 * fnp.sinh(x), (argument,))


@rule("difference of exponentials", primitives.add, primitives.sub, naive="exp(x) - exp(y)",
      write="np.exp(y) * np.expm1(x - y)",
      fault="digits cancel for x near y")
def _difference_of_exps(view: View, equation: Equation) -> Instead | None:
    terms = sorted(pair(view, equation), key=lambda term: -term.sign)
    found = [view.exponential(term.atom) for term in terms]
    if [term.sign for term in terms] != [1, -1] or found[0] is None or found[1] is None:
        return None
    return Instead(formulas.difference_of_exps, (found[0].argument, found[1].argument))


@rule("1 - cos", primitives.add, primitives.sub, naive="1 - cos(x)", write="2 * np.sin(x / 2) ** 2",
      fault="digits cancel for x near zero")
def _one_minus_cos(view: View, equation: Equation) -> Instead | None:
    found = beside(view, equation)
    operands = None if found is None else view.of(found[1].atom, primitives.cos)
    if found is None or operands is None or found[0] == found[1].sign:
        return None
    return Instead(signed(formulas.half_versine, found[0]), (operands[0],))


@rule("cosh - 1", primitives.add, primitives.sub, naive="cosh(x) - 1", write="2 * np.sinh(x / 2) ** 2",
      fault="digits cancel for x near zero")
def _coshm1(view: View, equation: Equation) -> Instead | None:
    found = beside(view, equation)
    operands = None if found is None else view.of(found[1].atom, primitives.cosh)
    if found is None or operands is None or found[0] == found[1].sign:
        return None
    return Instead(signed(formulas.coshm1, found[1].sign), (operands[0],))


@rule("1 - tanh squared", primitives.add, primitives.sub, naive="1 - tanh(x)**2", write="1 / np.cosh(x) ** 2",
      fault="digits cancel where tanh is near one")
def _sech_squared(view: View, equation: Equation) -> Instead | None:
    found = beside(view, equation)
    base = None if found is None else view.squared(found[1].atom)
    operands = None if base is None else view.of(base, primitives.tanh)
    if found is None or operands is None or found[0] == found[1].sign:
        return None
    return Instead(signed(formulas.sech_squared, found[0]), (operands[0],))


@rule("1 - tanh", primitives.add, primitives.sub, naive="1 - tanh(x), 1 + tanh(x)",
      write="2 * fxgrad.nn.sigmoid(-2 * x)",
      fault="digits cancel where tanh is near one")
def _one_minus_tanh(view: View, equation: Equation) -> Instead | None:
    found = beside(view, equation)
    operands = None if found is None else view.of(found[1].atom, primitives.tanh)
    if found is None or operands is None:
        return None
    of_one, of_tanh = found[0], found[0] * found[1].sign
    return Instead(lambda x: (2.0 * of_one) * formulas.sigmoid((2.0 * of_tanh) * x), (operands[0],))


@rule("1 - sigmoid", primitives.add, primitives.sub, naive="1 - sigmoid(x)", write="fxgrad.nn.sigmoid(-x)",
      fault="digits cancel where the sigmoid is near one")
def _one_minus_sigmoid(view: View, equation: Equation) -> Instead | None:
    found = beside(view, equation)
    share = None if found is None else sigmoid_of(view, found[1].atom)
    if found is None or share is None or found[0] == found[1].sign:
        return None
    of_one, sign = found[0], -share[1]
    return Instead(lambda x: of_one * formulas.sigmoid(sign * x), (share[0],))


@rule("erfc", primitives.add, primitives.sub, naive="1 - erf(x), 1 + erf(x)", write="fxgrad.scipy.special.erfc(x)",
      fault="digits cancel where erf is near one")
def _erfc(view: View, equation: Equation) -> Instead | None:
    found = erfc_of(view, equation.outputs[0])
    if found is None or found[0] == equation.outputs[0]:
        return None
    argument, sign = found
    return Instead(lambda x: formulas.erfc(x if sign > 0 else -x), (argument,))


@rule("variance", primitives.add, primitives.sub, naive="mean(x**2) - mean(x)**2", write="np.var(x, axis)",
      fault="digits cancel where the mean is large, and the difference may be negative")
def _variance(view: View, equation: Equation) -> Instead | None:
    terms = sorted(pair(view, equation), key=lambda term: -term.sign)
    if [term.sign for term in terms] != [1, -1]:
        return None
    first, base = view.sum(terms[0].atom), view.squared(terms[1].atom)
    second = None if base is None else view.sum(base)
    if first is None or second is None or not first.is_mean or not second.is_mean or first.axes != second.axes or (
            view.squared(first.operand) != second.operand):
        return None
    return Instead(lambda x: first.moved(formulas.variance(x, first.axes)), (second.operand,))


@rule("difference of squares", primitives.add, primitives.sub, naive="x**2 - y**2, 1 - x**2",
      write="(x - y) * (x + y)", fault=CANCELS,
      kind="edges")
def _difference_of_squares(view: View, equation: Equation) -> Instead | None:
    sides = squares(view, equation.outputs[0], -1)
    return None if sides is None else Instead(formulas.difference_of_squares, sides)


def squares(view: View, atom: Atom, sign: int) -> tuple[Atom, Atom] | None:
    """The x and y of x**2 + y**2, or of x**2 - y**2 for the sign -1; of 1 as well, but not of two numbers."""
    terms = view.terms(atom)
    if len(terms) != 2 or terms[0].sign * terms[1].sign != sign or all(term.sign < 0 for term in terms):
        return None
    bases = [view.squared(term.atom) for term in sorted(terms, key=lambda term: -term.sign)]
    if bases[0] is None or bases[1] is None or all(view.number(base) is not None for base in bases if base is not None):
        return None
    return bases[0], bases[1]


def apart(view: View, one: Atom, other: Atom) -> tuple[list[Term], float]:
    """What `one` is more than `other`, as the parts of a sum that are left and a number."""
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


def added(terms: list[Term], number: float, values: Any) -> Any:
    """The sum of parts and a number."""
    total: Any = None
    for term, value in zip(terms, values, strict=True):
        total = (value if term.sign > 0 else -value) if total is None else (
            total + value if term.sign > 0 else total - value)
    return number if total is None else total + number if number else total


@rule("difference of roots", primitives.add, primitives.sub, naive="sqrt(x + 1) - sqrt(x)",
      write="1 / (np.sqrt(x + 1) + np.sqrt(x))",
      fault=CANCELS, domain="x >= 0")
def _difference_of_roots(view: View, equation: Equation) -> Instead | None:
    terms = sorted(pair(view, equation), key=lambda term: -term.sign)
    if [term.sign for term in terms] != [1, -1]:
        return None
    inside = []
    for term in terms:
        operands = view.of(term.atom, primitives.sqrt)
        inside.append(operands[0] if operands is not None else term.atom if view.is_number(term.atom, 1.0) else None)
    one, other = inside
    if one is None or other is None or all(view.number(each) is not None for each in (one, other)):
        return None
    left, number = apart(view, one, other)
    return Instead(lambda x, y, *values: formulas.difference_of_roots(x, y, added(left, number, values)),
                   (one, other, *(term.atom for term in left)))


@rule("difference of logarithms", primitives.add, primitives.sub, naive="log(x + 1) - log(x)", write="np.log1p(1 / x)",
      fault=CANCELS,
      domain="x > 0")
def _difference_of_logs(view: View, equation: Equation) -> Instead | None:
    terms = sorted(pair(view, equation), key=lambda term: -term.sign)
    if [term.sign for term in terms] != [1, -1]:
        return None
    first, second = (view.of(term.atom, primitives.log) for term in terms)
    if first is None or second is None:
        return None
    for one, other, sign in ((first[0], second[0], 1), (second[0], first[0], -1)):
        left, number = apart(view, one, other)
        maker = view.maker(one)
        if not left and number > 0 and maker is not None and other in maker.inputs:
            return Instead(lambda x, sign=sign, number=number: sign * formulas.log_of_next(x, number), (other,))
    return None


@rule("difference of inverses", primitives.add, primitives.sub, naive="1 / x - 1 / (x + 1)", write="1 / x / (x + 1)",
      fault=CANCELS,
      domain="x != 0, x != -1", kind="edges")
def _difference_of_inverses(view: View, equation: Equation) -> Instead | None:
    terms = sorted(pair(view, equation), key=lambda term: -term.sign)
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
    left, number = apart(view, sides[1], sides[0])
    if left or not number:
        return None
    return Instead(lambda x, y: formulas.difference_of_inverses(x, y, number), (sides[0], sides[1]))


# --- roots ----------------------------------------------------------------------------------------------------------


@rule("absolute value", primitives.sqrt, naive="sqrt(x**2)", write="np.abs(x)", fault=SQUARES, kind="edges")
def _absolute(view: View, equation: Equation) -> Instead | None:
    base = view.squared(equation.inputs[0])
    return None if base is None or view.number(base) is not None else Instead(fnp.abs, (base,))


@rule("hypot", primitives.sqrt, naive="sqrt(x**2 + y**2)", write="np.hypot(x, y)", fault=SQUARES, kind="edges")
def _hypot(view: View, equation: Equation) -> Instead | None:
    sides = squares(view, equation.inputs[0], 1)
    return None if sides is None else Instead(formulas.hypot, sides)


@rule("leg", primitives.sqrt, naive="sqrt(x**2 - y**2), sqrt(1 - x**2)", write="np.sqrt(x - y) * np.sqrt(x + y)",
      fault="squares overflow, and digits cancel where the result is near zero", kind="edges")
def _leg(view: View, equation: Equation) -> Instead | None:
    sides = squares(view, equation.inputs[0], -1)
    return None if sides is None else Instead(formulas.root_of_difference, sides)


@rule("norm", primitives.sqrt, naive="sqrt(sum(x**2))", write="fxgrad.tools.numerics.formulas.norm(x, axes)",
      fault=SQUARES,
      kind="edges")
def _norm(view: View, equation: Equation) -> Instead | None:
    total = view.sum(equation.inputs[0])
    base = None if total is None or total.is_mean else view.squared(total.operand)
    if total is None or base is None or view.number(base) is not None:
        return None
    return Instead(lambda x: total.moved(formulas.norm(x, total.axes)), (base,))
