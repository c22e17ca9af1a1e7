"""Rules for logarithms of sums: of exponentials, of probabilities, and beside one."""

from __future__ import annotations

import math
from typing import Any

from fxgrad import numpy as fnp
from fxgrad.extend import CALL_NAMES, Atom, Equation, bind, primitives
from fxgrad.tools.numerics import formulas
from fxgrad.tools.numerics.of_quotients import sum_of_exponentials
from fxgrad.tools.numerics.rules import StableForm, register_form_rule
from fxgrad.tools.numerics.view import ExponentialTerm, ProgramView

_MOVES = (primitives.slice, primitives.reshape, primitives.transpose, primitives.broadcast_to, primitives.gather,
          primitives.dynamic_slice)
CANCELS = "digits cancel where the result is near zero"


@register_form_rule("log-sum-exp", primitives.log, naive="log(sum(exp(x)))", write="fxgrad.nn.logsumexp(x, axis)",
                    fault="exp overflows for large x, and the sum is 0 for small ones")
def _log_sum_exp(view: ProgramView, equation: Equation) -> StableForm | None:
    total = view.sum(equation.inputs[0])
    inner = None if total is None else view.exponential(total.operand)
    if total is None or inner is None:
        return None
    less = math.log(total.size) if total.is_mean and total.size else 0.0

    return StableForm(lambda x: total.moved(formulas.log_sum_exp(x, total.axes, less=less)), (inner.argument,))


@register_form_rule("weighted log-sum-exp", primitives.log, naive="log(sum(w * exp(x)))",
                    write="fxgrad.nn.logsumexp(x, axis, b=w)",
                    fault="exp overflows for large x, and the sum is 0 for small ones")
def _weighted_log_sum_exp(view: ProgramView, equation: Equation) -> StableForm | None:
    total = view.sum(equation.inputs[0])
    if total is None or total.is_mean:
        return None
    shape = total.operand.aval.shape
    chosen = view.of(total.operand, primitives.select_n)
    if chosen is not None and len(chosen) == 3 and view.is_number(chosen[1], 0.0):  # sum(exp(x), where=flags)
        inner = view.exponential(chosen[2])
        if inner is not None and inner.argument.aval.shape == shape:
            return StableForm(lambda x, flags: total.moved(formulas.log_sum_exp(
                fnp.where(flags, x, -math.inf), total.axes)), (inner.argument, chosen[0]))
    operands = view.of(total.operand, primitives.mul)
    for weight, power in () if operands is None else (operands, operands[::-1]):
        inner = view.exponential(power)
        if inner is not None and inner.argument.aval.shape == shape and view.exponential(weight) is None:
            return StableForm(lambda x, w: total.moved(formulas.log_sum_exp(x, total.axes, w)),
                              (inner.argument, weight))
    return None


@register_form_rule("softplus", primitives.log, naive="log(1 + exp(x))", write="fxgrad.nn.softplus(x)",
                    fault="exp overflows for large x")
def _softplus(view: ProgramView, equation: Equation) -> StableForm | None:
    found = sum_of_exponentials(view, equation.inputs[0])
    if found is None or len(found.single) != 1 or found.number != 1.0:
        return None
    return StableForm(formulas.softplus, (found.single[0].argument,))


@register_form_rule("softplus, half written", primitives.log1p, naive="log1p(exp(x))", write="fxgrad.nn.softplus(x)",
                    fault="exp overflows for large x")
def _softplus_of_log1p(view: ProgramView, equation: Equation) -> StableForm | None:
    inner = view.exponential(equation.inputs[0])
    return None if inner is None else StableForm(formulas.softplus, (inner.argument,))


@register_form_rule("log-add-exp", primitives.log, naive="log(exp(x) + exp(y))", write="np.logaddexp(x, y)",
                    fault="exp overflows for large x")
def _log_add_exp(view: ProgramView, equation: Equation) -> StableForm | None:
    found = sum_of_exponentials(view, equation.inputs[0])
    if found is None or found.total is not None:
        return None
    if len(found.single) == 2:
        return StableForm(formulas.log_add_exp, tuple(each.argument for each in found.single))
    constant = math.log(found.number)
    return StableForm(lambda x: formulas.log_add_exp(x, constant), (found.single[0].argument,))


@register_form_rule("log1mexp", primitives.log, primitives.log1p, naive="log(1 - exp(x))",
                    write="fxgrad.nn.log1mexp(-x)",
                    fault="digits cancel for x near zero, and are lost for x far below", domain="x < 0")
def _log_one_minus_exp(view: ProgramView, equation: Equation) -> StableForm | None:
    if equation.primitive is primitives.log1p:
        operands = view.of(equation.inputs[0], primitives.neg)
        inner = None if operands is None else view.exponential(operands[0])
    else:
        inner = _with_one(view, equation.inputs[0], 1, -1)
        if inner is None and (negative := view.of(equation.inputs[0], primitives.neg)) is not None:
            operands = view.of(negative[0], primitives.expm1)
            inner = None if operands is None else ExponentialTerm(operands[0], 1.0, operands[0])
    return None if inner is None else StableForm(formulas.log_one_minus_exp, (inner.argument,))


@register_form_rule("log of expm1", primitives.log, naive="log(exp(x) - 1)", write="x + fxgrad.nn.log1mexp(x)",
                    fault="exp overflows for large x, and digits cancel for x near zero", domain="x > 0")
def _log_expm1(view: ProgramView, equation: Equation) -> StableForm | None:
    inner = _with_one(view, equation.inputs[0], -1, 1)
    operands = view.of(equation.inputs[0], primitives.expm1)
    argument = inner.argument if inner is not None else operands[0] if operands is not None else None
    return None if argument is None else StableForm(formulas.log_expm1, (argument,))


def _with_one(view: ProgramView, atom: Atom, of_one: int, of_power: int) -> ExponentialTerm | None:
    """Return the exponential in a sum of 1 and an exponential with these signs."""
    terms = view.terms(atom)
    if len(terms) != 2:
        return None
    for one, power in (terms, terms[::-1]):
        if power.sign == of_power and (view.number(one.atom) or 0.0) * one.sign == of_one:
            return view.exponential(power.atom)
    return None


# --- of probabilities -----------------------------------------------------------------------------------------------


@register_form_rule("log-softmax", primitives.log, naive="log(exp(x) / sum(exp(x)))",
                    write="fxgrad.nn.log_softmax(x, axis)",
                    fault="the logarithm of a share that underflows is -inf, and inf / inf is NaN")
def _log_softmax(view: ProgramView, equation: Equation) -> StableForm | None:
    atom, moves = equation.inputs[0], list[Equation]()
    while (maker := view.maker(atom)) is not None and maker.primitive in _MOVES and (
            maker.params.get("fill_value") is None):
        moves.insert(0, maker)
        atom = maker.inputs[0]
    found = _softmax_of(view, atom)
    if found is None:
        return None
    argument, axes = found
    others = tuple(each for move in moves for each in move.inputs[1:])

    def logarithm(x: Any, *values: Any) -> Any:
        result, remaining = formulas.log_softmax(x, axes), iter(values)
        for move in moves:
            result = bind(move.primitive, result, *(next(remaining) for _ in move.inputs[1:]), **move.params)[0]
        return result
    return StableForm(logarithm, (argument, *others))


def _softmax_of(view: ProgramView, atom: Atom) -> tuple[Atom, tuple[int, ...]] | None:
    """Return the operand and axes of a softmax, called or written out; None if the value is none."""
    maker = view.maker(atom)
    called = [] if maker is None else [region.program for region in maker.regions if region.role == "inline"]
    if maker is not None and called and (name := CALL_NAMES.of(called[0])) is not None and name.is_library and (
            name.name == "softmax"):
        sums = [each for each in called[0].equations if each.primitive is primitives.reduce_sum]
        return maker.inputs[-1], tuple(sums[-1].params["axes"])
    operands = view.of(atom, primitives.div)
    if operands is None:
        return None
    high, total = view.exponential(operands[0]), view.sum(operands[1])
    low = None if total is None or total.is_mean else view.exponential(total.operand)
    if high is None or low is None or total is None or high.argument != low.argument:
        return None
    kept = formulas.kept_shape(total.operand.aval.shape, total.axes)
    is_along = operands[1].aval.shape == kept or sorted(total.axes) == [*range(len(total.axes))]
    return (high.argument, total.axes) if is_along else None


def sigmoid_of(view: ProgramView, atom: Atom) -> tuple[Atom, int] | None:
    """Return the x and the sign of sigmoid(x) or sigmoid(-x), called or written out; None for other values."""
    operands = view.of(atom, primitives.logistic)
    if operands is not None:
        return operands[0], 1
    maker = view.maker(atom)
    called = [] if maker is None else [region.program for region in maker.regions if region.role == "inline"]
    if maker is not None and called and (name := CALL_NAMES.of(called[0])) is not None and name.is_library and (
            name.name == "sigmoid"):
        return maker.inputs[-1], 1
    number, factors, _ = view.product(atom)
    low = next((each for each, power in factors.items() if power == -1), None)
    found = None if low is None or number != 1.0 else sum_of_exponentials(view, low)
    if found is None or found.number != 1.0 or found.total is not None:
        return None
    power = found.single[0]
    others = [each for each in factors if each != low]
    if not others:
        return power.argument, -1
    high = view.exponential(others[0]) if len(others) == 1 and factors[others[0]] == 1 else None
    return (power.argument, 1) if high is not None and high.is_of(power) else None


@register_form_rule("log-sigmoid", primitives.log, naive="log(1 / (1 + exp(-x)))", write="fxgrad.nn.log_sigmoid(x)",
                    fault="the logarithm of a share that underflows is -inf")
def _log_sigmoid(view: ProgramView, equation: Equation) -> StableForm | None:
    found, is_rest = sigmoid_of(view, equation.inputs[0]), False
    if found is None:
        terms = view.terms(equation.inputs[0])
        for one, share in (terms, terms[::-1]) if len(terms) == 2 else ():
            if view.is_number(one.atom, 1.0) and (one.sign, share.sign) == (1, -1):
                found, is_rest = sigmoid_of(view, share.atom), True
    if found is None:
        return None
    sign = found[1] * (-1 if is_rest else 1)
    return StableForm(lambda x: -formulas.softplus(-x if sign > 0 else x), (found[0],))


@register_form_rule("logit", primitives.log, naive="log(p / (1 - p))", write="np.log(p) - np.log1p(-p)", fault=CANCELS,
                    domain="0 < p < 1",
                    kind="edges")
def _logit(view: ProgramView, equation: Equation) -> StableForm | None:
    operands = view.of(equation.inputs[0], primitives.div)
    if operands is None:
        return None
    terms = view.terms(operands[1])
    rest = [term.atom for term in terms if term.sign < 0]
    has_one = any(term.sign > 0 and view.is_number(term.atom, 1.0) for term in terms)
    return StableForm(formulas.logit, (operands[0],)) if len(terms) == 2 and has_one and rest == [operands[0]] else None


@register_form_rule("log of erfc", primitives.log, naive="log(erfc(x)), log(0.5 * erfc(x))",
                    write="fxgrad.scipy.special.log_ndtr(-x * 2**0.5)",
                    fault="erfc underflows for large x")
def _log_erfc(view: ProgramView, equation: Equation) -> StableForm | None:
    number, factors, _ = view.product(equation.inputs[0])
    if [*factors.values()] != [1] or number not in (1.0, 0.5):
        return None
    found = erfc_of(view, next(iter(factors)))
    if found is None:
        return None
    argument, sign = found
    formula = formulas.log_erfc if number == 1.0 else formulas.log_half_erfc
    return StableForm(lambda x: formula(x if sign > 0 else -x), (argument,))


def erfc_of(view: ProgramView, atom: Atom) -> tuple[Atom, int] | None:
    """Return the x and the sign of erfc(x) or erfc(-x), also as 1 - erf(x) or 1 + erf(x); None for other values."""
    operands = view.of(atom, primitives.erfc)
    if operands is not None:
        return operands[0], 1
    terms = view.terms(atom)
    for one, other in (terms, terms[::-1]) if len(terms) == 2 else ():
        operands = view.of(other.atom, primitives.erf)
        if operands is not None and one.sign > 0 and view.is_number(one.atom, 1.0):
            return operands[0], -other.sign
    return None


# --- of sums --------------------------------------------------------------------------------------------------------


@register_form_rule("inverse hyperbolic tangent", primitives.log, naive="log((1 + x) / (1 - x))",
                    write="2 * np.arctanh(x)",
                    fault=CANCELS,
                    domain="-1 < x < 1")
def _atanh(view: ProgramView, equation: Equation) -> StableForm | None:
    operands = view.of(equation.inputs[0], primitives.div)
    if operands is None:
        return None
    high, low = _beside_one(view, operands[0]), _beside_one(view, operands[1])
    if high is None or low is None or high[1] != low[1] or high[0] != -low[0]:
        return None
    return StableForm(lambda x: 2.0 * high[0] * formulas.arctanh(x), (high[1],))


def _beside_one(view: ProgramView, atom: Atom) -> tuple[int, Atom] | None:
    """Return the sign and the x of 1 + x or 1 - x."""
    terms = view.terms(atom)
    for one, other in (terms, terms[::-1]) if len(terms) == 2 else ():
        if one.sign > 0 and view.is_number(one.atom, 1.0):
            return other.sign, other.atom
    return None


@register_form_rule("inverse hyperbolic sine", primitives.log, naive="log(x + sqrt(x**2 + 1))", write="np.arcsinh(x)",
                    fault="digits cancel for x below zero, and x**2 overflows")
def _asinh(view: ProgramView, equation: Equation) -> StableForm | None:
    return _inverse(view, equation, 1, formulas.arcsinh)


@register_form_rule("inverse hyperbolic cosine", primitives.log, naive="log(x + sqrt(x**2 - 1))", write="np.arccosh(x)",
                    fault="x**2 overflows, and digits cancel near one", domain="x >= 1")
def _acosh(view: ProgramView, equation: Equation) -> StableForm | None:
    return _inverse(view, equation, -1, formulas.arccosh)


def _inverse(view: ProgramView, equation: Equation, sign: int, function: Any) -> StableForm | None:
    terms = view.terms(equation.inputs[0])
    for argument, root in (terms, terms[::-1]) if len(terms) == 2 else ():
        operands = view.of(root.atom, primitives.sqrt)
        if operands is None or (argument.sign, root.sign) != (1, 1):
            continue
        inside = view.terms(operands[0])
        for square, one in (inside, inside[::-1]) if len(inside) == 2 else ():
            if square.sign > 0 and view.squared(square.atom) == argument.atom and (
                    view.number(one.atom) or 0.0) * one.sign == sign:
                return StableForm(function, (argument.atom,))
    return None


@register_form_rule("log-cosh", primitives.log, naive="log(cosh(x))",
                    write="fxgrad.tools.numerics.formulas.log_cosh(x)",
                    fault="cosh overflows for large x, and digits cancel for x near zero")
def _log_cosh(view: ProgramView, equation: Equation) -> StableForm | None:
    operands = view.of(equation.inputs[0], primitives.cosh)
    return None if operands is None else StableForm(formulas.log_cosh, (operands[0],))


@register_form_rule("log1p", primitives.log, naive="log(1 + x), log(1 - x)", write="np.log1p(x)",
                    fault="digits of a small x are lost in the sum",
                    domain="x > -1")
def _log1p(view: ProgramView, equation: Equation) -> StableForm | None:
    maker = view.maker(equation.inputs[0])
    if maker is None or maker.primitive not in (primitives.add, primitives.sub):
        return None
    terms = view.terms(equation.inputs[0])
    ones = [term for term in terms if term.sign * (view.number(term.atom) or 0.0) == 1.0]
    if len(ones) != 1 or len(terms) > 3:  # the sum of more than two others may lose digits that the whole sum keeps
        return None
    others = [term for term in terms if term is not ones[0]]
    if any(view.number(term.atom) is not None for term in others):
        return None
    signs = [term.sign for term in others]

    def logarithm(total: Any, *values: Any) -> Any:
        rest = values[0] if signs[0] > 0 else -values[0]
        for sign, value in zip(signs[1:], values[1:], strict=True):
            rest = rest + value if sign > 0 else rest - value
        return formulas.log_near_one(rest, total)
    return StableForm(logarithm, (equation.inputs[0], *(term.atom for term in others)))
