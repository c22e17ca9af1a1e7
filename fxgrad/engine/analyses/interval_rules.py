"""Interval rules: how the intervals of operands bound those of results, for each operation without programs.

A rule rounds outward, by more than its kernels may err. An operation without a rule may make anything.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.analyses.interval_values import (
    INFINITE,
    Interval,
    add_exactly,
    any_value,
    fits,
    least_normal,
    multiply_exactly,
    negate,
    of_constant,
    product_of_ends,
    rounded,
    square_exactly,
    with_flushed,
)
from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.program import Equation
from fxgrad.engine.ops import (
    arithmetic,
    barrier,
    comparison,
    creation,
    cumulative,
    dynamic,
    exponential,
    indexing,
    joining,
    ordering,
    parts,
    pointwise,
    products,
    reductions,
    select,
    shaping,
    special,
    structural,
    topk,
    trigonometric,
)
from fxgrad.engine.ops.windows import default_fill

IntervalRule = Callable[[Equation, Sequence[Interval]], "list[Interval]"]

FALSE, TRUE = Interval(0, 0, False), Interval(1, 1, False)
"""The intervals of conditions that are known."""

interval_rules: Analysis[IntervalRule | None] = Analysis(
    "interval rules", "How the intervals of real operands bound the results.", missing="conservative", default=None)


def exact_result(equation: Equation, inputs: Sequence[Interval]) -> Interval | None:
    """Return the interval of the result before it is rounded or wrapped; None for other operations."""
    primitive = equation.primitive
    if primitive is pointwise.add_p:
        return add_exactly(*inputs)
    if primitive is arithmetic.sub_p:
        return add_exactly(inputs[0], negate(inputs[1]))
    if primitive is arithmetic.mul_p:
        return square_exactly(inputs[0]) if equation.inputs[0] is equation.inputs[1] else multiply_exactly(
            inputs[0], inputs[1], least_normal(equation.outputs[0].aval))
    if primitive is arithmetic.neg_p:
        return negate(inputs[0])
    if primitive is structural.reduce_sum_p:
        return _sum_exactly(inputs[0], _count(equation))
    if primitive is cumulative.cumsum_p:
        shape, x = equation.inputs[0].aval.shape, inputs[0]
        count = shape[equation.params["axis"]] if shape else 1
        return Interval(min(x.low, product_of_ends(x.low, count)), max(x.high, product_of_ends(x.high, count)),
                        _sum_exactly(x, count).nan)
    return None


def _sum_exactly(x: Interval, count: int) -> Interval:
    """Return the interval of sums of `count` numbers, in any order."""
    nan = x.nan or (x.low == -INFINITE and x.high == INFINITE and count > 1)
    return Interval(product_of_ends(x.low, count), product_of_ends(x.high, count), nan)


def _count(equation: Equation) -> int:
    inputs, outputs = equation.inputs[0].aval.size, equation.outputs[0].aval.size
    return inputs // outputs if outputs else 0


@interval_rules.register(pointwise.add_p, arithmetic.sub_p, arithmetic.mul_p, arithmetic.neg_p)
def _arithmetic(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    aval = equation.outputs[0].aval
    if equation.primitive is arithmetic.mul_p and dtypes.is_floating(aval.dtype):
        inputs = [with_flushed(each, aval) for each in inputs]
    exact = exact_result(equation, inputs)
    assert exact is not None
    found = rounded(exact, aval)
    if not dtypes.is_floating(aval.dtype) or found == exact or not all(each.is_finite for each in (exact, *inputs)):
        return [found]
    # Rounding keeps the order of numbers, so an end that is a number of the type is passed by no rounded one.
    low, high = _exact_ends(equation, inputs)
    if equation.primitive in (pointwise.add_p, arithmetic.sub_p):
        found = _without_overflow(found, low, high, aval)
    return [found._replace(low=float(low) if found.low > -INFINITE and _is_number(low, aval) else found.low,
                           high=float(high) if found.high < INFINITE and _is_number(high, aval) else found.high)]


def _without_overflow(found: Interval, low: Fraction, high: Fraction, aval: Aval) -> Interval:
    """Return the interval of sums that exceed the greatest number by too little to be rounded to an infinity."""
    info = dtypes.finfo(aval.dtype)
    most = float(info.max)
    limit = Fraction(most) * (1 + Fraction(float(info.eps)) / 16)
    return found._replace(low=-most if found.low == -INFINITE and low >= -limit else found.low,
                          high=most if found.high == INFINITE and high <= limit else found.high)


def _exact_ends(equation: Equation, inputs: Sequence[Interval]) -> tuple[Fraction, Fraction]:
    """Return the exact ends of sums, differences, products and negations of numbers in finite intervals."""
    x, y = ([Fraction(end) for end in each[:2]] for each in (inputs[0], inputs[-1]))
    if equation.primitive is pointwise.add_p:
        return x[0] + y[0], x[1] + y[1]
    if equation.primitive is arithmetic.sub_p:
        return x[0] - y[1], x[1] - y[0]
    if equation.primitive is arithmetic.neg_p:
        return -x[1], -x[0]
    products = [one * other for one in x for other in y]
    if equation.inputs[0] is equation.inputs[1]:  # a square
        products = [x[0] * x[0], x[1] * x[1], *[Fraction(0)] * inputs[0].spans_zero]
    return min(products), max(products)


def _is_number(end: Fraction, aval: Aval) -> bool:
    """Return whether a number is one of a type, and none that XLA takes for 0."""
    number = float(end)
    return number == end and (not number or abs(number) >= float(dtypes.finfo(aval.dtype).tiny)) and (
        aval.dtype == np.float64 or float(np.asarray(number).astype(aval.dtype)) == number)


def _sum_of(exact: Interval, aval: Aval, count: int) -> Interval:
    """Return the interval of a sum of `count` terms, whose partial sums are rounded and may overflow."""
    if dtypes.kind_of(aval.dtype) in "iu":
        return rounded(exact, aval)
    terms, most = max(count, 1), max(abs(exact.low), abs(exact.high))
    partial = rounded(Interval(min(0.0, exact.low), max(0.0, exact.high), exact.nan), aval, terms)
    nan = exact.nan or (partial.low == -INFINITE and partial.high == INFINITE)
    largest = rounded(Interval(-most, most, nan), aval, terms).high
    error = largest - most if largest < INFINITE else INFINITE
    # A sum of numbers of one sign has that sign.
    low = 0.0 if exact.low >= 0 and error == INFINITE else exact.low - error
    high = 0.0 if exact.high <= 0 and error == INFINITE else exact.high + error
    low, high = max(low, 0.0) if exact.low >= 0 else low, min(high, 0.0) if exact.high <= 0 else high
    return rounded(Interval(low, high, nan), aval)


@interval_rules.register(structural.reduce_sum_p)
def _sum(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    count = _count(equation)
    exact = _sum_exactly(inputs[0], count)
    return [_sum_of(exact, equation.outputs[0].aval, count)]


@interval_rules.register(cumulative.cumsum_p)
def _running_sums(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    exact, aval = exact_result(equation, inputs), equation.outputs[0].aval
    assert exact is not None
    return [_sum_of(exact, aval, aval.shape[equation.params["axis"]])]


@interval_rules.register(products.dot_general_p)
def _dot(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    (contracted, _), _ = equation.params["dimension_numbers"]
    shape = equation.inputs[0].aval.shape
    count = math.prod(shape[axis] for axis in contracted)
    exact = _sum_exactly(square_exactly(inputs[0]) if _is_square_sum(equation) else multiply_exactly(
        inputs[0], inputs[1], least_normal(equation.outputs[0].aval)), count)
    return [_sum_of(exact, equation.outputs[0].aval, count)]


def _is_square_sum(equation: Equation) -> bool:
    """Return whether a product sums the squares of one array: each element meets itself."""
    (of_first, of_second), (batch, of_batch) = equation.params["dimension_numbers"]
    return equation.inputs[0] is equation.inputs[1] and tuple(of_first) == tuple(of_second) and (
        tuple(batch) == tuple(of_batch)) and len(of_first) + len(batch) == len(equation.inputs[0].aval.shape)


@interval_rules.register(arithmetic.div_p)
def _quotient(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, y = inputs
    aval = equation.outputs[0].aval
    if dtypes.kind_of(aval.dtype) in "iu":
        return [_whole_quotient(x, y, aval)]
    x = with_flushed(x, aval)
    nan = x.nan or y.nan or not (x.is_finite or y.is_finite)
    if y.spans_zero or min(abs(y.low), abs(y.high)) < least_normal(aval):  # XLA takes what is less for 0
        if y.zero:
            return [any_value(aval)]
        signs = {(number > 0) == (divisor > 0) for number in x[:2] for divisor in y[:2] if number and divisor}
        return [Interval(0.0 if False not in signs else -INFINITE, 0.0 if True not in signs else INFINITE, nan)]
    ends = [0.0] * (not y.is_finite)
    ends += [_divided(a, b) for a in x[:2] for b in y[:2] if not math.isinf(b)]
    return [rounded(Interval(min(ends), max(ends), nan), aval)]


def _whole_quotient(x: Interval, y: Interval, aval: Aval) -> Interval:
    """Return the interval of quotients toward zero."""
    if y.low <= 0:
        return any_value(aval)
    ends = [(abs(int(a)) // int(b)) * (1 if a > 0 else -1) for a in x[:2] for b in y[:2]]
    return Interval(min(ends), max(ends), False)


def _divided(x: float, y: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float64(x) / np.float64(y))


def _rising(function: Callable[[float], float], low: float = -INFINITE, high: float = INFINITE,
            start: float = -INFINITE, steps: int = 1) -> IntervalRule:
    """Return the rule of a rising function with values in [low, high], which has a NaN below `start`.

    Its kernels take `steps` that are rounded.
    """
    def at(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.copysign(INFINITE, x)
        except ValueError:
            return -INFINITE

    def rule(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
        x = inputs[0]
        aval = equation.outputs[0].aval
        if x.high < start:
            return [any_value(aval)]
        least = least_normal(aval)  # XLA takes what is less for 0
        low_end = x.low if abs(x.low) >= least else min(x.low, 0.0)
        high_end = x.high if abs(x.high) >= least else max(x.high, 0.0)
        found = rounded(Interval(at(max(low_end, start)), at(high_end), x.nan or x.low < start), aval, steps)
        return [Interval(max(found.low, low), min(found.high, high), found.nan)]
    return rule


def _log(x: float) -> float:
    return -INFINITE if x <= 0 else math.log(x)


def _log_rule(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x = inputs[0]
    found, = _rising(_log, start=0.0)(equation, inputs)
    if x.low == 0 and not x.zero:  # the logarithm of the least number above 0
        least = float(dtypes.finfo(equation.inputs[0].aval.dtype).smallest_subnormal)
        found = found._replace(low=max(found.low, 1.01 * math.log(least)))
    return [found]


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


interval_rules.enter(_rising(math.exp, 0.0), exponential.exp_p)
interval_rules.enter(_rising(math.expm1, -1.0), exponential.expm1_p)
interval_rules.enter(_log_rule, exponential.log_p)
interval_rules.enter(_rising(lambda x: -INFINITE if x <= -1 else math.log1p(x), start=-1.0), exponential.log1p_p)
interval_rules.enter(_rising(math.sqrt, 0.0, start=0.0), exponential.sqrt_p)
interval_rules.enter(_rising(math.tanh, -1.0, 1.0), trigonometric.tanh_p)
interval_rules.enter(_rising(math.atan, -1.6, 1.6), trigonometric.atan_p)
interval_rules.enter(_rising(_logistic, 0.0, 1.0), exponential.logistic_p)


_STEPS = 64
"""Roundings of a kernel that takes the exponential of a sum, of which each unit is one of the exponent."""
interval_rules.enter(_rising(lambda x: math.pow(2.0, x), 0.0, steps=_STEPS), exponential.exp2_p)
interval_rules.enter(_rising(math.sinh, steps=_STEPS), trigonometric.sinh_p)
interval_rules.enter(_rising(math.asinh, steps=_STEPS), trigonometric.asinh_p)
interval_rules.enter(_rising(math.acosh, 0.0, start=1.0, steps=_STEPS), trigonometric.acosh_p)
interval_rules.enter(_rising(math.erf, -1.0, 1.0, steps=_STEPS), special.erf_p)


@interval_rules.register(trigonometric.cosh_p)
def _catenary(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    return [Interval(0.9, INFINITE, inputs[0].nan)]


@interval_rules.register(special.erfc_p)
def _tail(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    return [Interval(0.0, 2.1, inputs[0].nan)]


@interval_rules.register(trigonometric.tan_p)
def _tangent(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x = inputs[0]
    return [any_value(equation.outputs[0].aval)._replace(nan=x.nan or not x.is_finite)]


@interval_rules.register(trigonometric.atanh_p)
def _area_tangent(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, aval = inputs[0], equation.outputs[0].aval
    nan = x.nan or x.low < -1 or x.high > 1
    # Between -1 and 1 the greatest magnitude is that of the numbers next to them.
    most = 2 + 0.75 * math.log(2 / float(dtypes.finfo(aval.dtype).eps))
    low, high = (math.copysign(INFINITE if abs(end) >= 1 else most, end) for end in x[:2])
    return [Interval(low if x.low < 0 else 0.0, high if x.high > 0 else 0.0, nan)]


@interval_rules.register(exponential.rsqrt_p)
def _reciprocal_root(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, aval = inputs[0], equation.outputs[0].aval
    if x.low < least_normal(aval):  # of -0.0 it is -inf
        return [any_value(aval)]
    high = 1.1 / math.sqrt(x.low)
    return [Interval(0.0 if math.isinf(x.high) else 0.9 / math.sqrt(x.high), high, x.nan)]


def _least_root(aval: Aval) -> float:
    return float(dtypes.finfo(aval.dtype).tiny)


@interval_rules.register(trigonometric.hypot_p)
def _hypotenuse(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    ends = [max(abs(each.low), abs(each.high)) for each in inputs]
    found = rounded(Interval(0.0, ends[0] + ends[1], inputs[0].nan or inputs[1].nan), equation.outputs[0].aval)
    return [found._replace(low=0.0)]


@interval_rules.register(exponential.cbrt_p)
def _cubic_root(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x = inputs[0]  # XLA's root of large numbers is off by more than the bounds allow
    return [Interval(-INFINITE if x.low < 0 else 0.0, INFINITE if x.high > 0 else 0.0, x.nan)]


@interval_rules.register(trigonometric.atan2_p)
def _angle(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    return [Interval(-3.2, 3.2, inputs[0].nan or inputs[1].nan)]


@interval_rules.register(trigonometric.asin_p, trigonometric.acos_p)
def _arc(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x = inputs[0]
    return [Interval(-1.6, 3.2, x.nan or x.low < -1 or x.high > 1)]


_NEAR = 1.5
"""Less than a quarter of the period of a wave: up to there a sine rises, and a cosine is above 0."""


@interval_rules.register(trigonometric.sin_p)
def _sine(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x = inputs[0]
    if x.low >= -_NEAR and x.high <= _NEAR:
        return _rising(math.sin, -1.0, 1.0)(equation, inputs)
    return [Interval(-1.0, 1.0, x.nan or not x.is_finite)]


@interval_rules.register(trigonometric.cos_p)
def _cosine(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x = inputs[0]
    return [Interval(0.0 if x.low >= -_NEAR and x.high <= _NEAR else -1.0, 1.0, x.nan or not x.is_finite)]


@interval_rules.register(exponential.square_p)
def _square_rule(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    aval = equation.outputs[0].aval
    x = with_flushed(inputs[0], aval) if dtypes.is_floating(aval.dtype) else inputs[0]
    found = rounded(square_exactly(x), aval)
    return [found._replace(low=max(found.low, 0.0)) if dtypes.is_floating(aval.dtype) else found]


def _raised(x: float, exponent: int) -> float:
    try:
        return x ** exponent
    except OverflowError:
        return -INFINITE if x < 0 and exponent % 2 else INFINITE


_LARGEST_POWER = 64
"""Powers above it are not computed."""


@interval_rules.register(exponential.integer_pow_p)
def _power(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, aval, exponent = inputs[0], equation.outputs[0].aval, equation.params["exponent"]
    if exponent < 1 or exponent > _LARGEST_POWER:
        return [any_value(aval)]
    ends = _raised(x.low, exponent), _raised(x.high, exponent)
    if exponent % 2 == 0:
        ends = 0 if x.spans_zero else min(ends), max(ends)
    return [rounded(Interval(min(ends), max(ends), x.nan), aval, exponent)]


@interval_rules.register(exponential.pow_p)
def _real_power(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, y = inputs
    aval = equation.outputs[0].aval
    if not dtypes.is_floating(aval.dtype) or x.low < 0 or (0 in x and y.low < 0):  # -0.0 to the power -1 is -inf
        return [any_value(aval)]
    return [Interval(0.0, INFINITE, x.nan or y.nan)]


@interval_rules.register(arithmetic.rem_p)
def _remainder(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, y = inputs
    whole = dtypes.kind_of(equation.outputs[0].aval.dtype) in "iu"
    most = max(abs(y.low), abs(y.high)) - whole
    if 0 in y and whole:
        most = max(abs(x.low), abs(x.high), most)
    nan = not whole and (x.nan or y.nan or 0 in y or not x.is_finite)
    return [Interval(max(min(x.low, 0), -most), min(max(x.high, 0), most), nan)]


@interval_rules.register(comparison.and_p)
def _bits(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    if dtypes.kind_of(equation.outputs[0].aval.dtype) == "b":
        return [Interval(min(each.low for each in inputs), min(each.high for each in inputs), False)]
    positive = [each.high for each in inputs if each.low >= 0]
    if not positive:
        return [any_value(equation.outputs[0].aval)]
    return [Interval(0, min(positive), False)]


@interval_rules.register(select.clamp_p)
def _clamped(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    low, x, high = inputs
    return [Interval(min(max(low.low, x.low), high.low), min(max(low.high, x.high), high.high),
                     low.nan or x.nan or high.nan)]


@interval_rules.register(indexing.gather_p)
def _gathered(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, indices = inputs
    params, shape = equation.params, equation.inputs[0].aval.shape
    axes = params["start_index_map"]
    rooms = [shape[axis] - params["slice_sizes"][axis] for axis in axes]
    wraps = params["mode"] == "checked" and dtypes.kind_of(equation.inputs[1].aval.dtype) == "i"
    least = [-shape[axis] if wraps else 0 for axis in axes]
    inside = not axes or (indices.low >= max(least) and indices.high <= min(rooms))
    if inside or (params["mode"] == "clip" and min(rooms) >= 0):
        return [x]
    if params["mode"] not in ("fill", "checked"):
        return [any_value(equation.outputs[0].aval)]
    aval, fill = equation.outputs[0].aval, params["fill_value"]
    dtype = np.dtype(aval.dtype)
    return [x.join(of_constant(np.asarray(default_fill(dtype) if fill is None else fill, dtype), aval))]


@interval_rules.register(indexing.scatter_p)
def _scattered(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    return [inputs[0].join(inputs[2])]


@interval_rules.register(ordering.sort_p)
def _sorted(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    return [*inputs]


@interval_rules.register(parts.abs_p)
def _magnitude(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, aval = inputs[0], equation.outputs[0].aval
    if dtypes.kind_of(aval.dtype) == "i" and x.low <= dtypes.iinfo(aval.dtype).min:
        return [any_value(aval)]  # the least integer has no magnitude
    ends = abs(x.low), abs(x.high)
    return [Interval(0 if x.spans_zero else min(ends), max(ends), x.nan, x.zero)]


@interval_rules.register(parts.sign_p)
def _sign(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, least = inputs[0], least_normal(equation.inputs[0].aval)
    return [Interval(-1 if x.low < 0 else 1 if x.low > least else 0, 1 if x.high > 0 else -1 if x.high < -least else 0,
                     x.nan)]


@interval_rules.register(parts.floor_p, parts.ceil_p, parts.round_p)
def _whole(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x = inputs[0]
    return [Interval(x.low if math.isinf(x.low) else math.floor(x.low),
                     x.high if math.isinf(x.high) else math.ceil(x.high), x.nan)]


@interval_rules.register(arithmetic.nonzero_divisor_p)
def _nonzero(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x = inputs[0]
    return [Interval(x.low or 1, max(x.high, 1) if 0 in x else x.high, False, zero=False)]


@interval_rules.register(arithmetic.max_p)
def _maximum(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, y = inputs
    return [Interval(max(x.low, y.low), max(x.high, y.high), x.nan or y.nan)]


@interval_rules.register(arithmetic.min_p)
def _minimum(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, y = inputs
    return [Interval(min(x.low, y.low), min(x.high, y.high), x.nan or y.nan)]


@interval_rules.register(structural.reshape_p, structural.transpose_p, structural.broadcast_to_p, shaping.slice_p,
                         shaping.rev_p, arithmetic.stop_gradient_p, dynamic.dynamic_slice_p, arithmetic.name_p,
                         joining.split_p, joining.unstack_p, shaping.broadcast_in_dim_p, shaping.tile_p,
                         creation.copy_p, cumulative.cummax_p, cumulative.cummin_p)
def _moved(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    return [inputs[0]] * len(equation.outputs)


@interval_rules.register(reductions.reduce_max_p, reductions.reduce_min_p)
def _extreme(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    return [inputs[0] if _count(equation) else any_value(equation.outputs[0].aval)]


@interval_rules.register(barrier.optimization_barrier_p)
def _passed(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    return [*inputs]


@interval_rules.register(topk.top_k_p)
def _greatest(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    shape = equation.inputs[0].aval.shape
    last = max(shape[equation.params["axis"]] - 1, 0)
    return [inputs[0], rounded(Interval(0, last, False), equation.outputs[1].aval)]


@interval_rules.register(parts.is_finite_p)
def _finiteness(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x = inputs[0]
    if x.is_finite and not x.nan:
        return [TRUE]
    return [FALSE if x.low == x.high and math.isinf(x.low) else Interval(0, 1, False)]


@interval_rules.register(joining.concatenate_p, joining.stack_p, shaping.pad_p)
def _joined(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    return [functools.reduce(Interval.join, inputs)]


@interval_rules.register(select.select_n_p)
def _chosen(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    which, *cases = inputs
    if which.low == which.high and 0 <= which.low < len(cases):
        return [cases[int(which.low)]]
    return [functools.reduce(Interval.join, inputs[1:])]


@interval_rules.register(dynamic.dynamic_update_slice_p)
def _updated(_: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    return [inputs[0].join(inputs[1])]


def _is_less(x: Interval, y: Interval, aval: Aval) -> bool:
    """Return whether all numbers of `x` are less than those of `y`, for XLA too, which takes tiny ones for 0."""
    if x.nan or y.nan or x.high >= y.low:
        return False
    return x.high <= -least_normal(aval) or y.low >= least_normal(aval)


def _comparison(equation: Equation, x: Interval, y: Interval) -> bool | None:
    """Return the result of a comparison if the intervals decide it."""
    primitive, aval = equation.primitive, equation.inputs[0].aval
    if primitive in (comparison.gt_p, comparison.ge_p):
        x, y = y, x
    below, above = _is_less(x, y, aval), _is_less(y, x, aval)
    if primitive in (comparison.eq_p, comparison.ne_p):
        is_same = dtypes.kind_of(aval.dtype) in "biu" and x.low == x.high == y.low == y.high
        differ = below or above or (y[:2] == (0, 0) and not x.zero and not x.nan)
        return (primitive is comparison.eq_p) if is_same else (primitive is comparison.ne_p) if differ else None
    touches = dtypes.kind_of(aval.dtype) in "biu"
    if primitive in (comparison.lt_p, comparison.gt_p):
        return True if below else False if above or (touches and x.low >= y.high) else None
    return True if below or (touches and x.high <= y.low) else False if above else None


@interval_rules.register(comparison.eq_p, comparison.ne_p, comparison.lt_p, comparison.le_p, comparison.gt_p,
                         comparison.ge_p)
def _compared(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    found = _comparison(equation, *inputs)
    return [Interval(0, 1, False) if found is None else TRUE if found else FALSE]


@interval_rules.register(comparison.not_p)
def _negated(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x = inputs[0]
    if dtypes.kind_of(equation.outputs[0].aval.dtype) == "b":
        return [Interval(1 - x.high, 1 - x.low, False)]
    return [any_value(equation.outputs[0].aval)]


@interval_rules.register(comparison.or_p)
def _either(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, y = inputs
    if dtypes.kind_of(equation.outputs[0].aval.dtype) == "b":
        return [Interval(max(x.low, y.low), max(x.high, y.high), False)]
    return [any_value(equation.outputs[0].aval)]


@interval_rules.register(reductions.argmax_p, reductions.argmin_p)
def _place(equation: Equation, _: Sequence[Interval]) -> list[Interval]:
    return [rounded(Interval(0, max(_count(equation) - 1, 0), False), equation.outputs[0].aval)]


@interval_rules.register(creation.iota_p)
def _numbers(equation: Equation, _: Sequence[Interval]) -> list[Interval]:
    last = max(equation.params["shape"][equation.params["dimension"]] - 1, 0)
    return [rounded(Interval(0, last, False), equation.outputs[0].aval)]


@interval_rules.register(structural.convert_element_type_p)
def _converted(equation: Equation, inputs: Sequence[Interval]) -> list[Interval]:
    x, before, after = inputs[0], equation.inputs[0].aval, equation.outputs[0].aval
    if dtypes.kind_of(after.dtype) == "b":
        return [any_value(after)]
    if dtypes.kind_of(after.dtype) in "iu":
        if dtypes.is_floating(before.dtype):
            if x.nan or not x.is_finite:
                return [any_value(after)]
            x = Interval(math.floor(x.low), math.ceil(x.high), False)
        return [x if fits(x, after) else any_value(after)]
    return [rounded(x, after)]
