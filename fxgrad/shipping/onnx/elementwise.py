"""Operations on each element: arithmetic, comparisons, bits, exponentials, rounding, choices, conversions."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.extend import primitives
from fxgrad.shipping.onnx import library
from fxgrad.shipping.onnx.emission import Emission, dtype_of
from fxgrad.shipping.onnx.graph import OnnxGraph, OnnxValue, has_nans
from fxgrad.shipping.onnx.rules import Rule, RuleOperation, onnx_rules, register_library_rule, register_onnx_rule

Values = list[OnnxValue]

# --- one node each --------------------------------------------------------------------------------------------------

def _node(operator: str) -> Rule:
    return lambda emission, operation, values: [emission.graph.operation(operator, *values)]


# Operations that ONNX has, by the names of both, with kernels in single and double precision.
for _name, _operator in {
    "add": "Add", "sub": "Sub", "mul": "Mul", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "tanh": "Tanh",
    "sin": "Sin", "floor": "Floor", "ceil": "Ceil", "logistic": "Sigmoid",
}.items():
    onnx_rules.enter(_node(_operator), primitives[_name])


@register_onnx_rule("copy", "stop_gradient", "name", "optimization_barrier", "sharding_constraint", "device_put",
                    "move", "pvary")
def _same(_: Emission, operation: RuleOperation, values: Values) -> Values:
    return values


@register_onnx_rule("neg")
def _neg(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, (x,) = emission.graph, values
    return [graph.operation("Sub", library.zero_like(graph, x), x) if x.dtype.kind == "u"
            else graph.operation("Neg", x)]


@register_onnx_rule("abs")
def _abs(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    return values if values[0].dtype.kind == "u" else [emission.graph.operation("Abs", *values)]


@register_onnx_rule("sign")
def _sign(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    """Runtimes make 0 of a NaN."""
    graph, (x,) = emission.graph, values
    found = graph.operation("Sign", x)
    return [graph.where(graph.isnan(x), x, found) if has_nans(x.dtype) else found]


@register_onnx_rule("square")
def _square(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    return [emission.graph.operation("Mul", *values, *values)]


@register_onnx_rule("integer_pow")
def _integer_pow(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    exponent = operation.params["exponent"]
    if exponent == 0:
        return [emission.graph.filled(1, values[0].dtype, operation.shape)]
    return [library.power_of(emission.graph, values[0], exponent)]


@register_onnx_rule("pow")
def _pow(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    return [emission.graph.operation("Pow", *values)]


@register_onnx_rule("rsqrt")
def _rsqrt(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    return [emission.graph.operation("Reciprocal", emission.graph.operation("Sqrt", *values))]


@register_onnx_rule("expm1")
def _expm1(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    return emit_in_single(emission, library.emit_expm1, values)


@register_onnx_rule("log1p")
def _log1p(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    return emit_in_single(emission, library.emit_log1p, values)


@register_onnx_rule("exp2")
def _exp2(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, (x,) = emission.graph, values
    return [graph.operation("Pow", library.constant_like(graph, 2, x), x)]


def emit_in_single(emission: Emission, rule: Any, values: Values) -> Values:
    """Emit a formula in single precision for halves, whose own rounding would differ at each step."""
    graph, dtype = emission.graph, values[0].dtype
    wide = dtypes.float32 if dtype.itemsize == 2 else dtype
    return [graph.in_dtype(wide, lambda *given: rule(graph, *given), *values)]


# --- quotients, remainders, extrema ---------------------------------------------------------------------------------


@register_onnx_rule("div")
def _div(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph = emission.graph
    if dtypes.is_integer(values[0].dtype):
        return [library.divide_whole(graph, *values)[0]]
    return [graph.operation("Div", *values)]


@register_onnx_rule("rem")
def _rem(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph = emission.graph
    if dtypes.is_integer(values[0].dtype):
        return [library.divide_whole(graph, *values)[1]]
    return [graph.operation("Mod", *values, fmod=1)]


def extremum(graph: OnnxGraph, operator: str, x: OnnxValue, y: OnnxValue) -> OnnxValue:
    """Emit "Max" or "Min" of two numbers or bools; a NaN wins, as in NumPy."""
    if x.dtype.kind == "b":
        return graph.operation("Or" if operator == "Max" else "And", x, y)
    return graph.operation(operator, x, y)


@register_onnx_rule("max")
def _max(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    return [extremum(emission.graph, "Max", *values)]


@register_onnx_rule("min")
def _min(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    return [extremum(emission.graph, "Min", *values)]


@register_onnx_rule("clamp")
def _clamp(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    low, x, high = values
    return [extremum(emission.graph, "Min", extremum(emission.graph, "Max", low, x), high)]


# --- comparisons and bits -------------------------------------------------------------------------------------------


def compare(graph: OnnxGraph, operator: str, x: OnnxValue, y: OnnxValue) -> OnnxValue:
    """Return a comparison; bools are in order too."""
    if x.dtype.kind == "b" and operator != "Equal":
        x, y = (graph.cast(value, np.dtype(np.int32)) for value in (x, y))
    return graph.operation(operator, x, y)


def _emit_comparison(operator: str) -> Rule:
    return lambda emission, operation, values: [compare(emission.graph, operator, *values)]


def _compared_in_total_order(operator: str) -> Rule:
    return lambda emission, operation, values: [
        compare(emission.graph, operator, *(library.order_rank(emission.graph, value) for value in values))]


for _name, _operator in {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual",
                         }.items():
    onnx_rules.enter(_emit_comparison(_operator), primitives[_name])
for _name, _operator in {"eq_to": "Equal", "lt_to": "Less", "le_to": "LessOrEqual"}.items():
    onnx_rules.enter(_compared_in_total_order(_operator), primitives[_name])


@register_onnx_rule("ne")
def _ne(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, (x, y) = emission.graph, values
    if x == y and has_nans(x.dtype):
        return [graph.isnan(x)]
    return [graph.operation("Not", graph.operation("Equal", x, y))]


def _bits(name: str) -> Any:
    return lambda emission, operation, values: [library.bitwise(emission.graph, name, *values)]


for _name in ("and", "or", "xor", "not"):
    onnx_rules.enter(_bits(_name.capitalize()), primitives[_name])


@register_onnx_rule("shift_left", "shift_right_logical")
def _shift(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    direction = "LEFT" if operation.primitive is primitives.shift_left else "RIGHT"
    return [library.shift(emission.graph, values[0], values[1], direction)]


register_library_rule("shift_right_arithmetic", library.shift_arithmetic)
register_library_rule("population_count", library.population_count)
register_library_rule("clz", library.leading_zeros)


@register_onnx_rule("is_finite")
def _is_finite(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, (x,) = emission.graph, values
    return [graph.operation("Not", graph.operation("Or", graph.isnan(x), graph.operation("IsInf", x)))]


# --- rounding -------------------------------------------------------------------------------------------------------


def round_half_away(graph: OnnxGraph, x: OnnxValue) -> OnnxValue:
    """Return the nearest whole number, halves away from zero."""
    size = graph.operation("Abs", x)
    whole = graph.operation("Floor", size)
    up = graph.operation("GreaterOrEqual", graph.operation("Sub", size, whole), library.constant_like(graph, 0.5, x))
    nearest = graph.operation("Add", whole, graph.cast(up, x.dtype))
    return library.odd_function(graph, x, nearest)


@register_onnx_rule("round")
def _round(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    if operation.params["to_even"]:
        return [emission.graph.operation("Round", *values)]
    return emit_in_single(emission, round_half_away, values)


# --- choices and conversions ----------------------------------------------------------------------------------------


@register_onnx_rule("select_n")
def _select_n(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, (which, first, *others) = emission.graph, values
    if not others:
        return [graph.expand(first, operation.shape)]
    if which.dtype.kind == "b":
        return [graph.where(which, others[0], first)]
    chosen = first
    for number, case in enumerate(others, 1):
        chosen = graph.where(graph.operation("GreaterOrEqual", which, graph.number(number, which.dtype)), case, chosen)
    return [chosen]


@register_onnx_rule("convert_element_type")
def _convert(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, (x,) = emission.graph, values
    return [convert_to(graph, x, dtype_of(operation.outputs[0]))]


def convert_to(graph: OnnxGraph, x: OnnxValue, dtype: Any) -> OnnxValue:
    """Convert to a dtype as NumPy does where the standard leaves the conversion open: to bool by a comparison."""
    if dtype.kind == "b" and x.dtype.kind != "b":
        return graph.operation("Not", graph.operation("Equal", x, library.zero_like(graph, x)))
    if dtypes.is_floating(x.dtype) and dtypes.is_integer(dtype):
        return _to_whole(graph, x, dtype)
    return graph.cast(x, dtype)


def _to_whole(graph: OnnxGraph, x: OnnxValue, dtype: Any) -> OnnxValue:
    """Convert floats to integers: beyond the range to the nearest one and NaN to 0, which ONNX leaves open."""
    wide = graph.cast(x, np.dtype(np.float32)) if x.dtype.itemsize < 4 else x
    wide = graph.where(graph.isnan(wide), graph.number(0, wide.dtype), wide)
    limits = dtypes.iinfo(dtype)
    least, greatest = int(limits.min), int(limits.max)
    below = graph.operation("LessOrEqual", wide, graph.number(least - 1.0, wide.dtype))
    above = graph.operation("GreaterOrEqual", wide, graph.number(greatest + 1.0, wide.dtype))
    if dtypes.is_below_byte(dtype):  # to which runtimes round floats
        wide = graph.cast(wide, np.dtype(np.int32))
    whole = graph.where(below, graph.number(least, dtype), graph.cast(wide, dtype))
    return graph.where(above, graph.number(greatest, dtype), whole)


@register_onnx_rule("bitcast_convert_type")
def _bitcast(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    """Wider numbers are put together of narrower ones, and taken apart, by shifts."""
    graph, (x,) = emission.graph, values
    new = operation.params["new_dtype"]
    if x.dtype == new:
        return values
    old_bits, new_bits = library.bit_width(x.dtype), library.bit_width(new)
    bits = library.bitcast(graph, x, library.unsigned_dtype(x.dtype))
    kind = library.unsigned_dtype(new)
    if old_bits > new_bits:
        counts = graph.constant(np.arange(0, old_bits, new_bits).astype(bits.dtype))
        parts = graph.operation("BitShift", graph.unsqueeze(bits, [-1]), counts, direction="RIGHT")
        bits = graph.cast(parts, kind)
    elif old_bits < new_bits:
        counts = graph.constant(np.arange(0, new_bits, old_bits).astype(kind))
        parts = graph.operation("BitShift", graph.cast(bits, kind), counts, direction="LEFT")
        total: OnnxValue | None = None
        for place in range(new_bits // old_bits):
            part = graph.operation("Gather", parts, graph.number(place, np.dtype(np.int64)), axis=-1)
            total = part if total is None else graph.operation("BitwiseOr", total, part)
        assert total is not None
        bits = total
    return [library.bitcast(graph, bits, new)]
