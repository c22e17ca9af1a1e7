"""Taylor series: every value of a program becomes a power series, computed coefficient by coefficient.

A value that varies with a number `t` is y(t) = y_0 + y_1 t + y_2 t^2 + ... The coefficients of an operation's result
follow from those of its operands. Linear operations act on each coefficient, products are convolutions, and for all
others y = f(x) the jvp rule is a differential equation: y' = f'(x) x', so that k y_k is coefficient k - 1 of its right
side, which needs coefficients of lower order alone. The operations of the rule are series in turn, and those that occur
twice are computed once: so exp, tanh or division cost a number of products that grows with the square of the order
(Griewank and Walther, Evaluating Derivatives, 2nd ed., chapter 13).

Sums over directions of second coefficients, such as Laplacians, need one second coefficient in place of one for each
direction: it is linear in those of the operands, so that only products of two first coefficients are summed over the
directions (the forward Laplacian: Li et al. 2023, https://arxiv.org/abs/2307.08214).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.cache_keys import param_key
from fxgrad.engine.core.primitive import NO_TANGENT, Primitive
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.core.walk import eval_program
from fxgrad.engine.derivation.derive import Derived, derive, rule_inputs
from fxgrad.engine.ops.arithmetic import div, div_p, mul, mul_p, sub
from fxgrad.engine.ops.convolution import conv_general_dilated_p
from fxgrad.engine.ops.exponential import integer_pow_p, square_p
from fxgrad.engine.ops.pointwise import acts_on_each, add, scalar_like, sum_of_parts
from fxgrad.engine.ops.products import dot_general_p
from fxgrad.engine.ops.strong import strong_dot_general_p, strong_mul_p
from fxgrad.engine.ops.structural import broadcast_to, full, instantiate_zeros
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.trace import WITH_LITERALS, trace_at
from fxgrad.engine.transforms.forward import ONE, has_tangent, instantiate_one, push_forward
from fxgrad.errors import UnsupportedError

Coefficient = Callable[[int], Any]
"""The coefficient of an order above 0, or a `Zero`; it may ask for those of lower orders."""


class Scaled:
    """A coefficient that differs by direction: `factor`, one for all directions or None for 1, times `base`.

    Elementwise operations act on the factor, and the sum over directions of a product of two with one base is that of
    the squares of the base, times the factors.
    """

    __slots__ = ("_value", "base", "factor")

    def __init__(self, factor: Any, base: Any) -> None:
        self.factor, self.base, self._value = factor, base, base if factor is None else None

    @property
    def value(self) -> Any:
        """The coefficient itself."""
        if self._value is None:
            self._value = mul(self.factor, self.base)
        return self._value

    def times(self, factor: Any) -> Scaled:
        """Return it times an array of its shape, or a scalar."""
        return Scaled(factor if self.factor is None else mul(factor, self.factor), self.base)

    def mapped(self, function: Callable[[Any], Any]) -> Scaled:
        """Return the result of a linear function that acts on each element."""
        aval = aval_of(self.base)
        factor = full(aval.shape, 1, aval.dtype) if self.factor is None else broadcast_to(self.factor, aval.shape)
        return Scaled(function(factor), self.base)


class Series:
    """A power series whose coefficients are computed when they are first asked for; `aval` is the type of each.

    The coefficient of order k has the degree k + `shift` in the direction: that of a derivative by `t` is one more.
    """

    __slots__ = ("_next", "aval", "known", "shift")

    def __init__(self, aval: Aval, known: Sequence[Any], further: Coefficient | None = None, shift: int = 0) -> None:
        self.aval, self.known, self._next, self.shift = aval, [*known], further, shift

    def __getitem__(self, order: int) -> Any:
        """Return a coefficient, which may be a symbolic `Zero`."""
        found = self.part(order)
        return found.value if type(found) is Scaled else found

    def part(self, order: int) -> Any:
        """Return a coefficient, which may be a `Zero`, and `Scaled`."""
        while len(self.known) <= order:
            self.known.append(Zero(self.aval) if self._next is None else self._next(len(self.known)))
        return self.known[order]

    def scaled(self, order: int) -> Scaled:
        """Return a coefficient that differs by direction, and is not zero."""
        found = self.part(order)
        return found if type(found) is Scaled else Scaled(None, found)

    @property
    def is_constant(self) -> bool:
        """Whether all coefficients but the first are known to be zero."""
        return self._next is None and all(type(value) is Zero for value in self.known[1:])

    @property
    def value(self) -> Any:
        """The coefficient of order 0 as an array."""
        return instantiate_zeros(self[0])


Rule = Callable[["Expansion", "Operation"], "list[Series]"]


class Operation:
    """An operation on series: its primitive, parameters, operands, and the types of its results.

    `order` is the one up to which the operands are known, if it is the highest that is needed; else 0.
    """

    def __init__(self, primitive: Primitive, params: dict[str, Any], operands: Sequence[Series], avals: Sequence[Aval],
                 order: int) -> None:
        self.primitive, self.params, self.operands, self.avals = primitive, params, operands, avals
        self.order = order

    def on(self, values: Sequence[Any]) -> list[Any]:
        """Return the results of the operation on arrays."""
        return bind(self.primitive, *values, **self.params)

    def values(self) -> list[Any]:
        """Return the coefficients of order 0 of the results."""
        return self.on([operand.value for operand in self.operands])


series_rules: Analysis[Rule | None] = Analysis(
    "Taylor series", "How the coefficients of the results follow from those of the operands, other than by the jvp "
    "rule.", missing="conservative", default=None)


Sum = Callable[[Any], Any]
"""The sum over all directions of a value that differs by direction."""


class Expansion:
    """The series of one program; those of equal operations are one.

    With `sum_directions` the coefficients of order 1 differ by direction, and those of order 2 are sums over them.
    """

    def __init__(self, sum_directions: Sum | None = None) -> None:
        self.sum_directions = sum_directions
        self._squares: dict[int, tuple[Any, Any]] = {}  # by the identity of what is squared, which is kept alive
        self._made: dict[Any, tuple[list[Series], Operation]] = {}  # keys have identities of the operands
        self._constants: dict[Any, Series] = {}
        self._tangents: dict[Any, tuple[Derived, frozenset[int]]] = {}

    def sum_squares(self, base: Any) -> Any:
        """Return the sum over all directions of the squares of a coefficient."""
        assert self.sum_directions is not None
        if id(base) not in self._squares:
            self._squares[id(base)] = self.sum_directions(mul(base, base)), base
        return self._squares[id(base)][0]

    def constant(self, value: Any) -> Series:
        """Return the series of a value that does not vary."""
        if type(value) is not Literal:
            return Series(aval_of(value), [value])
        found = self._constants.get(value)
        if found is None:
            found = self._constants[value] = Series(value.aval, [value])
        return found

    def run(self, program: Program, inputs: Sequence[Series], order: int = 0) -> list[Series]:
        """Return the series of the outputs.

        With the highest order that is needed, coefficients are computed one after the other, so that no series asks for
        those of a long chain, and operations with programs compute all of them at once.
        """
        waiting: list[list[Series]] = []

        def compute() -> None:
            for level in range(1, order + 1):
                for results in waiting:
                    for series in results:
                        series[level]
            waiting.clear()

        def step(equation: Equation, operands: list[Series]) -> list[Series]:
            if equation.primitive.regions is not None:
                compute()
            waiting.append(self.apply(equation.primitive, equation.params, operands,
                                      [out.aval for out in equation.outputs], order))
            return waiting[-1]

        outputs = eval_program(program, inputs, step, self.constant)
        compute()
        return outputs

    def apply(self, primitive: Primitive, params: dict[str, Any], operands: Sequence[Series], avals: Sequence[Aval],
              order: int = 0) -> list[Series]:
        """Return the series of the results of an operation, of the types `avals`."""
        key = (primitive, tuple(param_key(primitive, params)), *map(id, operands))
        found = None if primitive.effectful else self._made.get(key)
        if found is None:
            operation = Operation(primitive, params, operands, avals, order)
            found = self._made[key] = self._apply(operation), operation
        return found[0]

    def _apply(self, operation: Operation) -> list[Series]:
        primitive, operands = operation.primitive, operation.operands
        if primitive.jvp is NO_TANGENT or all(not has_tangent(each.aval) or each.is_constant for each in operands):
            if self.sum_directions is not None and any(each.shift for each in operands):
                raise not_summed(primitive)  # such as a comparison of tangents, which differs by direction
            return [Series(aval, [value]) for aval, value in zip(operation.avals, operation.values(), strict=True)]
        rule = series_rules.of(primitive)
        if rule is not None:
            return rule(self, operation)
        return self._by_tangents(operation)

    def _by_tangents(self, operation: Operation) -> list[Series]:
        """Return the series that the jvp rule gives: as a linear operation, or as a differential equation."""
        operands = operation.operands
        marks = tuple(has_tangent(each.aval) and not each.is_constant for each in operands)
        derived, used = self._tangent(operation, marks)
        is_linear = not used.intersection(_places(marks))
        right: list[Series] = []

        def further(place: int) -> Coefficient:
            def linear(order: int) -> Any:
                along = tuple(mark and type(each[order]) is not Zero
                              for each, mark in zip(operands, marks, strict=True))
                if not any(along):
                    return Zero(operation.avals[place])
                tangent, _ = self._tangent(operation, along)
                moving = [each for each, mark in zip(operands, along, strict=True) if mark]

                def push(*given: Any) -> Any:
                    outputs = tangent([*(each.value for each in operands), *given])
                    return outputs[tangent.extra.index(place)]

                if place not in tangent.extra:
                    return Zero(operation.avals[place])
                if self.sum_directions is not None and len(moving) == 1 == order + moving[0].shift and (
                        acts_on_each.of(operation.primitive)) and _keeps_real(moving[0].aval, operation.avals[place]):
                    return moving[0].scaled(order).mapped(push)
                return push(*(each[order] for each in moving))

            def differential(order: int) -> Any:
                if not right:
                    inputs = [*map(self.constant, derived.captured), *operands,
                              *(derivative(each) for each, mark in zip(operands, marks, strict=True) if mark)]
                    right.extend(self.run(derived.program, inputs))
                return divided(right[derived.extra.index(place)].part(order - 1), order)
            return linear if is_linear else differential

        if self.sum_directions is not None and not self._is_homogeneous(operation, marks, is_linear):
            raise not_summed(operation.primitive)
        shift = max(each.shift for each in operands)
        # At rest, an operand such as the other case of a `where` is a part of the value, unless it is 0.
        if shift and is_linear and len(derived.extra) == len(operation.avals) and all(
                mark or not has_tangent(each.aval) or _is_literal_zero(each.known[0])
                for each, mark in zip(operands, marks, strict=True)):
            return [Series(aval, [], further(place), shift) for place, aval in enumerate(operation.avals)]
        return [Series(aval, [value], further(place) if place in derived.extra else None, shift)
                for place, (aval, value) in enumerate(zip(operation.avals, operation.values(), strict=True))]

    def _is_homogeneous(self, operation: Operation, marks: tuple[bool, ...], is_linear: bool) -> bool:
        """Return whether each coefficient of a result has one degree in the direction, and so is a sum or is not.

        A linear operation on values of two degrees, such as matrices joined, has some entries of each; and one that is
        not linear in a tangent, such as its absolute value, has no degree.
        """
        operands = operation.operands
        if is_linear:
            return len({each.shift for each, mark in zip(operands, marks, strict=True) if mark}) == 1
        if operation.primitive.regions is not None:
            return False
        shifted = tuple(mark and each.shift > 0 for each, mark in zip(operands, marks, strict=True))
        return not any(shifted) or not self._tangent(operation, shifted)[1].intersection(_places(shifted))

    def _tangent(self, operation: Operation, marks: tuple[bool, ...]) -> tuple[Derived, frozenset[int]]:
        """Return the program of the nonzero tangents, and the places of the operands that it depends on.

        It takes the operands, and the tangents of those that `marks` marks; `extra` has the places of the results.
        """
        primitive, params = operation.primitive, operation.params
        avals = tuple(each.aval for each in operation.operands)
        key = (primitive, tuple(param_key(primitive, params)), avals, marks)
        found = self._tangents.get(key)
        if found is None:
            def build(*values: Any) -> tuple[list[Any], tuple[int, ...]]:
                given = iter(values[len(avals):])
                tangents = [next(given) if mark else Zero(aval) for aval, mark in zip(avals, marks, strict=True)]
                _, results = push_forward(single, [*captured, *values[:len(avals)]],
                                          [*(Zero(aval_of(value)) for value in captured), *tangents])
                places = tuple(place for place, result in enumerate(results) if type(result) is not Zero)
                return [results[place] for place in places], places

            single, captured = trace_at(lambda *values: operation.on(rule_inputs(primitive, [*values])), [*avals],
                                        mode=WITH_LITERALS, name=primitive.name)
            derived = derive(single, ("tangents", marks), build, [
                *avals, *(aval for aval, mark in zip(avals, marks, strict=True) if mark)])
            own = derived.program.inputs[len(derived.captured):][:len(avals)]
            used = {atom for equation in derived.program.equations for atom in equation.inputs}
            used |= {*derived.program.outputs}
            found = self._tangents[key] = derived, frozenset(place for place, var in enumerate(own) if var in used)
        return found


def _places(marks: Sequence[bool]) -> list[int]:
    return [place for place, mark in enumerate(marks) if mark]


def _is_literal_zero(value: Any) -> bool:
    return type(value) is Zero or (type(value) is Literal and not np.any(value.value))


def not_summed(primitive: Primitive) -> UnsupportedError:
    """Return the error of an operation that has no sum of second coefficients: directions are then taken one by one."""
    return UnsupportedError(f"the second coefficients of {primitive} are not summed over directions")


def derivative(series: Series) -> Series:
    """Return the series of the derivative by `t`."""
    return Series(series.aval, [], lambda order: times(series.part(order + 1), order + 1), series.shift + 1)


def _keeps_real(operand: Aval, result: Aval) -> bool:
    """Return whether a factor of `operand` may pass through an operation apart from its base: the conjugate may not."""
    return operand.shape == result.shape and operand.dtype == result.dtype and not dtypes.is_complex(result.dtype)


def times(value: Any, number: int) -> Any:
    """Return a coefficient times a number."""
    if type(value) is Zero or number == 1:
        return value
    return value.times(scalar_like(number, value.base)) if type(value) is Scaled else mul(
        value, scalar_like(number, value))


def divided(value: Any, number: int) -> Any:
    """Return a coefficient divided by a number."""
    if type(value) is Zero or number == 1:
        return value
    return value.mapped(lambda factor: divided(factor, number)) if type(value) is Scaled else div(
        value, scalar_like(number, value))


def total(values: Sequence[Any], aval: Aval) -> Any:
    """Return the sum of coefficients of the type `aval`, a `Zero` if all are."""
    present = [value for value in values if type(value) is not Zero]
    if not any(type(value) is Scaled for value in present):
        return sum_of_parts(present, aval)
    result = present[0]
    for value in present[1:]:
        if type(result) is type(value) is Scaled and result.base is value.base and None not in (
                result.factor, value.factor):
            result = Scaled(add(result.factor, value.factor), result.base)
        else:
            result = add(*(each.value if type(each) is Scaled else each for each in (result, value)))
    return result


# --- products ---------------------------------------------------------------------------------------------------------


def _term(expansion: Expansion, multiply: Callable[[Any, Any], Any], one: Series, low: int, other: Series, high: int,
          aval: Aval) -> Any:
    """Return the product, of the type `aval`, of the coefficients of orders `low` and `high` of two series."""
    if Zero in (type(one.part(low)), type(other.part(high))):
        return Zero(aval)
    degrees = low + one.shift, high + other.shift
    if expansion.sum_directions is None or 1 not in degrees:
        return multiply(one[low], other[high])
    shapes = one.aval.shape, other.aval.shape
    if multiply is mul and degrees == (0, 1) and shapes[1] == aval.shape:
        return other.scaled(high).times(one[low])
    if multiply is mul and degrees == (1, 0) and shapes[0] == aval.shape:
        return one.scaled(low).times(other[high])
    if degrees != (1, 1):
        return multiply(one[low], other[high])
    if multiply is mul and shapes == (aval.shape,) * 2 and one.scaled(low).base is other.scaled(high).base:
        product = expansion.sum_squares(one.scaled(low).base)
        for factor in (one.scaled(low).factor, other.scaled(high).factor):
            product = product if factor is None else mul(product, factor)
        return product
    return expansion.sum_directions(multiply(one[low], other[high]))


def _product(expansion: Expansion, operation: Operation) -> list[Series]:
    """Convolve the coefficients of a bilinear operation's operands."""
    one, other = operation.operands
    aval, = operation.avals

    def multiply(*values: Any) -> Any:
        return operation.on(values)[0]

    def term(low: int, high: int) -> Any:
        return _term(expansion, mul if operation.primitive is mul_p else multiply, one, low, other, high, aval)

    def further(order: int) -> Any:
        if one is other and operation.primitive is mul_p:  # each pair of different orders occurs twice
            twice = total([term(low, order - low) for low in range((order + 1) // 2)], aval)
            middle = [term(order // 2, order // 2)] if order % 2 == 0 else []
            return total([times(twice, 2), *middle], aval)
        return total([term(low, order - low) for low in range(order + 1)], aval)
    value = term(0, 0) if one.shift or other.shift else operation.values()[0]
    return [Series(aval, [value], further, one.shift + other.shift)]


series_rules.enter(_product, mul_p, dot_general_p, conv_general_dilated_p, strong_mul_p, strong_dot_general_p)


@series_rules.register(div_p)
def _quotient(expansion: Expansion, operation: Operation) -> list[Series]:
    """From y b = a: y_k is (a_k - sum of y_i b_{k-i}) / b_0."""
    above, below = operation.operands
    aval, = operation.avals
    if expansion.sum_directions is not None and below.shift:
        raise not_summed(operation.primitive)

    def further(order: int) -> Any:
        known = total([_term(expansion, mul, result, low, below, order - low, aval) for low in range(order)], aval)
        rest = above.part(order)
        if type(known) is not Zero:
            rest = sub(instantiate_zeros(above[order]), known.value if type(known) is Scaled else known)
        if type(rest) is Scaled and above.aval.shape == aval.shape:
            return rest.mapped(lambda factor: div(factor, below.value))
        rest = rest.value if type(rest) is Scaled else rest
        return rest if type(rest) is Zero else broadcast_to(div(rest, below.value), aval.shape)
    result = Series(aval, [] if above.shift else operation.values(), further, above.shift)
    return [result]


@series_rules.register(integer_pow_p)
def _integer_power(expansion: Expansion, operation: Operation) -> list[Series]:
    """Multiply by repeated squaring, and divide 1 by that if the power is negative."""
    base, = operation.operands
    power = operation.params["exponent"]
    square, product = base, None
    remaining = abs(power)
    while remaining:
        if remaining % 2:
            product = square if product is None else expansion.apply(mul_p, {}, [product, square], operation.avals)[0]
        remaining //= 2
        if remaining:
            square, = expansion.apply(mul_p, {}, [square, square], operation.avals)
    if product is None:
        return [Series(operation.avals[0], operation.values())]
    if power < 0:
        product, = expansion.apply(div_p, {}, [expansion.constant(scalar_like(1, base.value)), product],
                                   operation.avals)
    return [Series(operation.avals[0], operation.values(), product.part)]


@series_rules.register(square_p)
def _square(expansion: Expansion, operation: Operation) -> list[Series]:
    base, = operation.operands
    product, = expansion.apply(mul_p, {}, [base, base], operation.avals)
    return [Series(operation.avals[0], operation.values(), product.part)]


# --- programs ---------------------------------------------------------------------------------------------------------


def series_program(program: Program, given: tuple[int | str, ...], order: int, wanted: tuple[bool, ...] | None = None,
                   scaled: bool = False, sum_directions: Sum | None = None) -> Derived:
    """Return the program inputs, coefficients -> outputs, coefficients of orders 1 to `order`.

    Behind its inputs it takes, for each, so many coefficients from order 1 on as `given` says; the others are zero. An
    input given as `ONE` has the coefficient 1 of order 1. Behind its outputs it returns `order` coefficients of each
    that `wanted` marks, by default of those that vary; `extra` marks these. With `scaled` they are derivatives: times
    the factorial of the order. With `sum_directions` (equal ones do the same) the coefficients of order 1 are those of
    one direction, and those of order 2 sums over all.
    """
    def build(*values: Any) -> tuple[list[Any], tuple[bool, ...]]:
        remaining = iter(values[len(avals):])
        inputs = [Series(aval, [value, instantiate_one(aval)] if count == ONE else
                         [value, *(next(remaining) for _ in range(int(count)))])
                  for aval, value, count in zip(avals, values, given, strict=False)]
        outputs = Expansion(sum_directions).run(program, inputs, order)
        reached = tuple(any(type(series[level]) is not Zero for level in range(1, order + 1)) for series in outputs)
        marks = wanted or reached
        return [*(series.value for series in outputs), *(
            broadcast_to(instantiate_zeros(times(series[level], math.factorial(level) if scaled else 1)),
                         series.aval.shape)
            for series, mark in zip(outputs, marks, strict=True) if mark for level in range(1, order + 1))], reached

    avals = program.in_avals
    along = [aval for aval, count in zip(avals, given, strict=True) if count != ONE for _ in range(int(count))]
    return derive(program, ("series", given, order, wanted, scaled, sum_directions), build, [*avals, *along])


def solution_program(program: Program, order: int) -> Derived:
    """Return the program of the first `order` coefficients of the solution of y' = f(y, t), by time from `t` on.

    `program` is f, of further inputs, `y` and the time, each one array; the result takes the same. Coefficient k + 1 of
    y is coefficient k of f divided by k + 1, which needs those of y up to k alone.
    """
    def build(*values: Any) -> tuple[list[Any], None]:
        *given, state, time = values
        expansion = Expansion()
        slope: list[Series] = []
        y = Series(aval_of(state), [state], lambda level: divided(slope[0][level - 1], level))
        t = Series(aval_of(time), [time, instantiate_one(aval_of(time))])
        slope += expansion.run(program, [*map(expansion.constant, given), y, t])
        return [broadcast_to(instantiate_zeros(y[level]), y.aval.shape) for level in range(1, order + 1)], None
    return derive(program, ("solution", order), build, program.in_avals)
