"""Rules for products and quotients: softmax, sigmoid, tanh and their like written out, entropy, inverses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fxgrad import numpy as fnp
from fxgrad.extend import Atom, Equation, bind, primitives
from fxgrad.tools.numerics import formulas
from fxgrad.tools.numerics.rules import StableForm, register_form_rule
from fxgrad.tools.numerics.view import ExponentialTerm, ProgramView, Sum

OVERFLOW = "exp overflows for large x, and inf / inf is NaN"


class Powers(NamedTuple):
    """A sum of exponentials: `single` ones and a positive `number`, or one that is reduced (`total`, of `inner`)."""

    single: tuple[ExponentialTerm, ...]
    number: float
    total: Sum | None = None
    inner: ExponentialTerm | None = None


def sum_of_exponentials(view: ProgramView, atom: Atom) -> Powers | None:
    """Return a value as a sum of exponentials, at most two of them, or one reduced; None if it is not such a sum."""
    total = view.sum(atom)
    if total is not None:
        inner = view.exponential(total.operand)
        return None if inner is None else Powers((), 0.0, total, inner)
    terms = view.terms(atom)
    numbers = [view.number(term.atom) for term in terms]
    single = [view.exponential(term.atom) for term, number in zip(terms, numbers, strict=True) if number is None]
    number = sum(term.sign * each for term, each in zip(terms, numbers, strict=True) if each is not None)
    added = all(term.sign > 0 for term, each in zip(terms, numbers, strict=True) if each is None)
    if len(terms) != 2 or not single or not added or any(each is None for each in single):
        return None
    if number < 0 or (len(single) == 1 and number == 0):
        return None
    return Powers(tuple(each for each in single if each is not None), number)


def remaining_factors(number: float, factors: dict[Atom, int]) -> tuple[list[Atom], Any]:
    """Return the remaining factors, and a function that multiplies their values and one more value."""
    atoms, exponents = [*factors], [*factors.values()]

    def times(main: Any, values: Sequence[Any]) -> Any:
        for value, exponent in zip(values, exponents, strict=True):
            size = value if abs(exponent) == 1 else value ** abs(exponent)
            main = main * size if exponent > 0 else main / size
        return main if number == 1.0 else main * number
    return atoms, times


def divide_factors(factors: dict[Atom, int], *taken: tuple[Atom, int]) -> dict[Atom, int]:
    """Return the factors without some powers of some."""
    result = dict(factors)
    for atom, power in taken:
        result[atom] = result[atom] - power
    return {atom: power for atom, power in result.items() if power}


def _numerators(view: ProgramView, factors: dict[Atom, int]) -> list[tuple[Atom, ExponentialTerm]]:
    return [(atom, found) for atom, power in factors.items()
            if power > 0 and (found := view.exponential(atom)) is not None]


@register_form_rule("cancelling exponentials", primitives.div, primitives.mul, naive="exp(x) * y / exp(x)", write="y",
                    fault=OVERFLOW)
def _cancelling(view: ProgramView, equation: Equation) -> StableForm | None:
    number, factors, cancelled = view.product(equation.outputs[0])
    powers = [found.argument for atom in cancelled if (found := view.exponential(atom)) is not None]
    if not powers:
        return None
    atoms, times = remaining_factors(number, factors)
    return StableForm(lambda *values: times(formulas.one_or_nan(values[:len(powers)]), values[len(powers):]),
                      (*powers, *atoms))


@register_form_rule("tanh", primitives.div, primitives.mul, naive="(exp(x) - exp(-x)) / (exp(x) + exp(-x))",
                    write="np.tanh(x)",
                    fault=OVERFLOW)
def _tanh(view: ProgramView, equation: Equation) -> StableForm | None:
    number, factors, _ = view.product(equation.outputs[0])
    for low in (atom for atom, power in factors.items() if power == -1):
        for high in (atom for atom, power in factors.items() if power == 1):
            found = _tanh_of(view, high, low)
            if found is not None:
                sign, arguments = found
                atoms, times = remaining_factors(sign * number, divide_factors(factors, (high, 1), (low, -1)))
                many = len(arguments)
                return StableForm(lambda *values, many=many, times=times: times(
                    formulas.tanh(0.5 * (values[0] if many == 1 else values[0] - values[1])), values[many:]),
                    (*arguments, *atoms))
    return None


@register_form_rule("sinh over cosh", primitives.div, primitives.mul, naive="sinh(x) / cosh(x)", write="np.tanh(x)",
                    fault="sinh and cosh overflow for large x, and inf / inf is NaN")
def _sinh_over_cosh(view: ProgramView, equation: Equation) -> StableForm | None:
    number, factors, _ = view.product(equation.outputs[0])
    for high in (atom for atom, power in factors.items() if power > 0):
        of_high = view.of(high, primitives.sinh)
        for low in (atom for atom, power in factors.items() if power < 0 and of_high is not None):
            if of_high is not None and of_high == view.of(low, primitives.cosh):
                atoms, times = remaining_factors(number, divide_factors(factors, (high, 1), (low, -1)))
                return StableForm(lambda x, *values, times=times: times(formulas.tanh(x), values), (of_high[0], *atoms))
    return None


def _tanh_of(view: ProgramView, high: Atom, low: Atom) -> tuple[int, list[Atom]] | None:
    """Return the sign, and arguments a and b of (exp(a) - exp(b)) / (exp(a) + exp(b)); a alone if b is 0."""
    above, below = view.terms(high), view.terms(low)
    if len(above) != 2 or sorted(term.sign for term in above) != [-1, 1] or any(term.sign < 0 for term in below):
        return None
    minuend, subtrahend = sorted(above, key=lambda term: -term.sign)
    if {view.number(term.atom) or term.atom for term in above} != {
            view.number(term.atom) or term.atom for term in below} or len(below) != 2:
        return None
    first, second = view.exponential(minuend.atom), view.exponential(subtrahend.atom)
    if first is not None and second is not None:
        return 1, [first.argument, second.argument]
    if first is not None and view.is_number(subtrahend.atom, 1.0):
        return 1, [first.argument]
    if second is not None and view.is_number(minuend.atom, 1.0):
        return -1, [second.argument]
    return None


@register_form_rule("sinh", primitives.div, primitives.mul, naive="(exp(x) - exp(-x)) / 2", write="np.sinh(x)",
                    fault="digits cancel for x near zero, and exp overflows before sinh does")
def _sinh(view: ProgramView, equation: Equation) -> StableForm | None:
    return _half_sum(view, equation, -1, fnp.sinh)


@register_form_rule("cosh", primitives.div, primitives.mul, naive="(exp(x) + exp(-x)) / 2", write="np.cosh(x)",
                    fault="exp overflows before cosh does")
def _cosh(view: ProgramView, equation: Equation) -> StableForm | None:
    return _half_sum(view, equation, 1, fnp.cosh)


def _half_sum(view: ProgramView, equation: Equation, sign: int, function: Any) -> StableForm | None:
    number, factors, _ = view.product(equation.outputs[0])
    for atom, power in factors.items():
        opposite = opposite_exponentials(view, atom, sign) if power == 1 else None
        if opposite is not None:
            atoms, times = remaining_factors(2.0 * number, divide_factors(factors, (atom, 1)))
            return StableForm(lambda x, *values, times=times: times(function(x), values), (opposite, *atoms))
    return None


def opposite_exponentials(view: ProgramView, atom: Atom, sign: int) -> Atom | None:
    """Return the x of exp(x) + exp(-x), or of exp(x) - exp(-x) for the sign -1."""
    terms = view.terms(atom)
    if len(terms) != 2 or terms[0].sign * terms[1].sign != sign:
        return None
    first, second = (view.exponential(term.atom) for term in sorted(terms, key=lambda term: -term.sign))
    if first is None or second is None or not first.is_of(second, -1.0) or terms[0].sign == terms[1].sign == -1:
        return None
    return first.argument


@register_form_rule("softmax", primitives.div, primitives.mul, naive="exp(x) / sum(exp(x))",
                    write="fxgrad.nn.softmax(x, axis)",
                    fault=OVERFLOW)
def _softmax(view: ProgramView, equation: Equation) -> StableForm | None:
    number, factors, _ = view.product(equation.outputs[0])
    for low, power in factors.items():
        found = sum_of_exponentials(view, low) if power < 0 else None
        if found is None or found.total is None or found.total.is_mean or found.inner is None:
            continue
        total, inner = found.total, found.inner
        for high, numerator in _numerators(view, factors):
            atoms, times = remaining_factors(number, divide_factors(factors, (high, 1), (low, -1)))
            if numerator.argument == inner.argument and _is_broadcast_back(total):
                return StableForm(lambda x, *values, times=times, axes=total.axes: times(
                    formulas.softmax(x, axes), values), (inner.argument, *atoms))
            return StableForm(lambda u, x, *values, times=times, total=total: times(
                _softmax_share(u, x, total), values), (numerator.argument, inner.argument, *atoms))
    return None


def _is_broadcast_back(total: Sum) -> bool:
    """Return whether the sum is broadcast back over its axes, so that each element is divided by its own sum."""
    shape = total.operand.aval.shape
    kept = formulas.kept_shape(shape, total.axes)
    reached = total.moves[-1].outputs[0].aval.shape if total.moves else tuple(
        extent for axis, extent in enumerate(shape) if axis not in total.axes)
    if reached == kept:
        return True
    leads = sorted(total.axes) == [*range(len(total.axes))]  # the sum is broadcast along the other axes unchanged
    if reached == shape and total.moves:  # broadcast to the whole in one step or in two
        return any(move.outputs[0].aval.shape == kept for move in total.moves) or leads
    return leads and reached == tuple(kept[len(kept) - len(reached):])


def _softmax_share(u: Any, x: Any, total: Sum) -> Any:
    """Return exp(u) / sum(exp(x)), in the shape in which the sum is used."""
    peak = formulas.peak_of(x, total.axes)
    shares = formulas.exp_of_difference(x, formulas.keep_axes(peak, x, total.axes))
    return formulas.exp_of_difference(u, total.moved(peak)) / total.moved(fnp.sum(shares, axis=total.axes))


@register_form_rule("sigmoid", primitives.div, primitives.mul, primitives.integer_pow, naive="1 / (1 + exp(-x))",
                    write="fxgrad.nn.sigmoid(x)",
                    fault="exp overflows for x far below zero, and its derivative is NaN there")
def _sigmoid(view: ProgramView, equation: Equation) -> StableForm | None:
    number, factors, _ = view.product(equation.outputs[0])
    for low, power in factors.items():
        found = sum_of_exponentials(view, low) if power < 0 else None
        if found is None or found.total is not None:
            continue
        first, second = found.single[0], found.single[1] if len(found.single) == 2 else None
        if second is None and found.number != 1.0:
            continue
        taken, shares = [(low, power)], []
        numerators = {atom: factors[atom] for atom, _ in _numerators(view, factors)}
        for _ in range(-power):
            high, sign = _numerator(view, numerators, first, second)
            if high is not None:
                numerators[high] -= 1
                taken.append((high, 1))
            elif second is not None:
                return None
            shares.append(sign)
        atoms, times = remaining_factors(number, divide_factors(factors, *taken))
        arguments = (first.argument,) if second is None else (first.argument, second.argument)
        return StableForm(_product_of_shares(len(arguments), tuple(shares), times), (*arguments, *atoms))
    return None


def _product_of_shares(many: int, shares: tuple[int, ...], times: Any) -> Any:
    """Return a function of `many` arguments of exponentials, and of the values of the other factors."""
    return lambda *values: times(_two_shares(values[:many], shares), values[many:])


def _numerator(view: ProgramView, numerators: dict[Atom, int], first: ExponentialTerm, second: ExponentialTerm | None,
               ) -> tuple[Atom | None, int]:
    """Return the exponential that numerator and denominator share, and 1 for the first, -1 for the second."""
    for atom, left in numerators.items():
        found = view.exponential(atom)
        if left > 0 and found is not None and found.is_of(first):
            return atom, 1
        if left > 0 and found is not None and second is not None and found.is_of(second):
            return atom, -1
    return None, -1


def _two_shares(values: Sequence[Any], signs: Sequence[int]) -> Any:
    if len(values) == 1 and sorted(signs) == [-1, 1]:  # near 0, the derivatives of the two cancel
        return 0.25 * formulas.sech_squared(0.5 * values[0])
    result: Any = None
    for sign in signs:
        if len(values) == 1:
            share = formulas.sigmoid(values[0] if sign > 0 else -values[0])
        else:
            share = formulas.share_of_two(*(values if sign > 0 else values[::-1]))
        result = share if result is None else result * share
    return result


@register_form_rule("entropy", primitives.mul, naive="p * log(p)", write="fxgrad.scipy.special.xlogy(p, p)",
                    fault="0 * log(0) is NaN, where the limit is 0", domain="p >= 0")
def _entropy(view: ProgramView, equation: Equation) -> StableForm | None:
    for one, other in (equation.inputs, equation.inputs[::-1]):
        operands = view.of(other, primitives.log)
        if operands is None:
            continue
        number, base = view.scaled(one)
        if operands[0] in (one, base) and view.number(base) is None:
            scale = 1.0 if operands[0] == one else number
            return StableForm(lambda p, scale=scale: formulas.xlogy(p, p) if scale == 1.0 else (
                formulas.xlogy(p, p) * scale), (operands[0],))
    return None


@register_form_rule("solve", primitives.dot_general, naive="inv(a) @ b", write="np.linalg.solve(a, b)",
                    fault="an inverse is less accurate than a solution, and takes longer", domain="regular a",
                    kind="cancellation")
def _solve(view: ProgramView, equation: Equation) -> StableForm | None:
    inverse = view.of(equation.inputs[0], primitives.lu_solve)
    maker = view.maker(equation.inputs[0])
    (over, of), batch = equation.params["dimension_numbers"]
    right = equation.inputs[1]
    if inverse is None or maker is None or maker.params["transpose_a"] or any(batch):
        return None
    if inverse[0].aval.ndim != 2 or tuple(over) != (1,) or tuple(of) != (0,) or right.aval.ndim not in (1, 2):
        return None
    if not is_identity(view, inverse[3]):
        return None

    def solved(a: Any, factors: Any, permutation: Any, b: Any) -> Any:
        if len(right.aval.shape) == 2:
            return bind(primitives.lu_solve, a, factors, permutation, b, transpose_a=False)[0]
        return fnp.ravel(bind(primitives.lu_solve, a, factors, permutation, b[:, None], transpose_a=False)[0])
    return StableForm(solved, (*inverse[:3], right))


def is_identity(view: ProgramView, atom: Atom) -> bool:
    """Return whether a value is the identity matrix as the library builds it: row index equal to column index."""
    if atom in view.identities:
        return True
    operands = view.of(atom, primitives.convert_element_type)
    sides = None if operands is None else view.of(operands[0], primitives.eq)
    if sides is None:
        return False
    dimensions = []
    for side in sides:
        maker = view.maker(side)
        if maker is not None and maker.primitive is primitives.add and view.is_number(maker.inputs[1], 0.0):
            maker = view.maker(maker.inputs[0])
        if maker is None or maker.primitive is not primitives.iota:
            return False
        dimensions.append(maker.params["dimension"])
    return sorted(dimensions) == [0, 1]
