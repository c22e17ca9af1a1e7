"""Operations on each element: arithmetic, comparisons, bits, exponentials, rounding, choices, conversions."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.extend import primitives
from fxgrad.shipping.onnx import library
from fxgrad.shipping.onnx.emission import Emission, dtype_of
from fxgrad.shipping.onnx.graph import Graph, Value, is_float
from fxgrad.shipping.onnx.rules import Operation, Rule, library_rule, onnx_rules, rule_of

Values = list[Value]

# --- one node each --------------------------------------------------------------------------------------------------

def _node(operator: str) -> Rule:
    return lambda emission, operation, values: [emission.graph.operation(operator, *values)]


# Operations that ONNX has, by the names of both, with kernels in single and double precision.
for _name, _operator in {
    "add": "Add", "sub": "Sub", "mul": "Mul", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "tanh": "Tanh",
    "sin": "Sin", "floor": "Floor", "ceil": "Ceil", "logistic": "Sigmoid",
}.items():
    onnx_rules.enter(_node(_operator), primitives[_name])


@rule_of("copy", "stop_gradient", "name", "optimization_barrier", "sharding_constraint", "device_put", "move", "pvary")
def _same(_: Emission, operation: Operation, values: Values) -> Values:
    return values


@rule_of("neg")
def _neg(emission: Emission, operation: Operation, values: Values) -> Values:
    graph, (x,) = emission.graph, values
    return [graph.operation("Sub", library.zero(graph, x), x) if x.dtype.kind == "u" else graph.operation("Neg", x)]


@rule_of("abs")
def _abs(emission: Emission, operation: Operation, values: Values) -> Values:
    return values if values[0].dtype.kind == "u" else [emission.graph.operation("Abs", *values)]


@rule_of("sign")
def _sign(emission: Emission, operation: Operation, values: Values) -> Values:
    """Runtimes make 0 of a NaN."""
    graph, (x,) = emission.graph, values
    found = graph.operation("Sign", x)
    return [graph.where(graph.isnan(x), x, found) if is_float(x.dtype) else found]


@rule_of("square")
def _square(emission: Emission, operation: Operation, values: Values) -> Values:
    return [emission.graph.operation("Mul", *values, *values)]


@rule_of("integer_pow")
def _integer_pow(emission: Emission, operation: Operation, values: Values) -> Values:
    exponent = operation.params["exponent"]
    if exponent == 0:
        return [emission.graph.filled(1, values[0].dtype, operation.shape)]
    return [library.power_of(emission.graph, values[0], exponent)]


@rule_of("pow")
def _pow(emission: Emission, operation: Operation, values: Values) -> Values:
    return [emission.graph.operation("Pow", *values)]


@rule_of("rsqrt")
def _rsqrt(emission: Emission, operation: Operation, values: Values) -> Values:
    return [emission.graph.operation("Reciprocal", emission.graph.operation("Sqrt", *values))]


@rule_of("expm1")
def _expm1(emission: Emission, operation: Operation, values: Values) -> Values:
    return in_single(emission, library.expm1, values)


@rule_of("log1p")
def _log1p(emission: Emission, operation: Operation, values: Values) -> Values:
    return in_single(emission, library.log1p, values)


@rule_of("exp2")
def _exp2(emission: Emission, operation: Operation, values: Values) -> Values:
    graph, (x,) = emission.graph, values
    return [graph.operation("Pow", library.scalar(graph, 2, x), x)]


def in_single(emission: Emission, rule: Any, values: Values) -> Values:
    """What a formula makes, of halves in single precision: their rounding would be that of each step."""
    graph, dtype = emission.graph, values[0].dtype
    wide = dtypes.float32 if dtype.itemsize == 2 else dtype
    return [graph.in_dtype(wide, lambda *given: rule(graph, *given), *values)]


# --- quotients, remainders, extrema ---------------------------------------------------------------------------------


@rule_of("div")
def _div(emission: Emission, operation: Operation, values: Values) -> Values:
    graph = emission.graph
    if dtypes.is_integer(values[0].dtype):
        return [library.divide_whole(graph, *values)[0]]
    return [graph.operation("Div", *values)]


@rule_of("rem")
def _rem(emission: Emission, operation: Operation, values: Values) -> Values:
    graph = emission.graph
    if dtypes.is_integer(values[0].dtype):
        return [library.divide_whole(graph, *values)[1]]
    return [graph.operation("Mod", *values, fmod=1)]


def extremum(graph: Graph, operator: str, x: Value, y: Value) -> Value:
    """"Max" or "Min" of two numbers or bools; a NaN wins, as in NumPy."""
    if x.dtype.kind == "b":
        return graph.operation("Or" if operator == "Max" else "And", x, y)
    return graph.operation(operator, x, y)


@rule_of("max")
def _max(emission: Emission, operation: Operation, values: Values) -> Values:
    return [extremum(emission.graph, "Max", *values)]


@rule_of("min")
def _min(emission: Emission, operation: Operation, values: Values) -> Values:
    return [extremum(emission.graph, "Min", *values)]


@rule_of("clamp")
def _clamp(emission: Emission, operation: Operation, values: Values) -> Values:
    low, x, high = values
    return [extremum(emission.graph, "Min", extremum(emission.graph, "Max", low, x), high)]


# --- comparisons and bits -------------------------------------------------------------------------------------------


def compare(graph: Graph, operator: str, x: Value, y: Value) -> Value:
    """A comparison; bools are in order too."""
    if x.dtype.kind == "b" and operator != "Equal":
        x, y = (graph.cast(value, np.dtype(np.int32)) for value in (x, y))
    return graph.operation(operator, x, y)


def _compared(operator: str) -> Rule:
    return lambda emission, operation, values: [compare(emission.graph, operator, *values)]


def _compared_in_total_order(operator: str) -> Rule:
    return lambda emission, operation, values: [
        compare(emission.graph, operator, *(library.rank(emission.graph, value) for value in values))]


for _name, _operator in {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual",
                         }.items():
    onnx_rules.enter(_compared(_operator), primitives[_name])
for _name, _operator in {"eq_to": "Equal", "lt_to": "Less", "le_to": "LessOrEqual"}.items():
    onnx_rules.enter(_compared_in_total_order(_operator), primitives[_name])


@rule_of("ne")
def _ne(emission: Emission, operation: Operation, values: Values) -> Values:
    graph, (x, y) = emission.graph, values
    if x == y and is_float(x.dtype):
        return [graph.isnan(x)]
    return [graph.operation("Not", graph.operation("Equal", x, y))]


def _bits(name: str) -> Any:
    return lambda emission, operation, values: [library.bitwise(emission.graph, name, *values)]


for _name in ("and", "or", "xor", "not"):
    onnx_rules.enter(_bits(_name.capitalize()), primitives[_name])


@rule_of("shift_left", "shift_right_logical")
def _shift(emission: Emission, operation: Operation, values: Values) -> Values:
    direction = "LEFT" if operation.primitive is primitives.shift_left else "RIGHT"
    return [library.shift(emission.graph, values[0], values[1], direction)]


library_rule("shift_right_arithmetic", library.shift_arithmetic)
library_rule("population_count", library.population_count)
library_rule("clz", library.leading_zeros)


@rule_of("is_finite")
def _is_finite(emission: Emission, operation: Operation, values: Values) -> Values:
    graph, (x,) = emission.graph, values
    return [graph.operation("Not", graph.operation("Or", graph.isnan(x), graph.operation("IsInf", x)))]


# --- rounding -------------------------------------------------------------------------------------------------------


def rounded_away(graph: Graph, x: Value) -> Value:
    """The nearest whole number, halves away from zero; the difference from the whole part is exact."""
    size = graph.operation("Abs", x)
    whole = graph.operation("Floor", size)
    up = graph.operation("GreaterOrEqual", graph.operation("Sub", size, whole), library.scalar(graph, 0.5, x))
    nearest = graph.operation("Add", whole, graph.cast(up, x.dtype))
    return library.odd(graph, x, nearest)


@rule_of("round")
def _round(emission: Emission, operation: Operation, values: Values) -> Values:
    if operation.params["to_even"]:
        return [emission.graph.operation("Round", *values)]
    return in_single(emission, rounded_away, values)


# --- choices and conversions ----------------------------------------------------------------------------------------


@rule_of("select_n")
def _select_n(emission: Emission, operation: Operation, values: Values) -> Values:
    graph, (which, first, *others) = emission.graph, values
    if not others:
        return [graph.expand(first, operation.shape)]
    if which.dtype.kind == "b":
        return [graph.where(which, others[0], first)]
    chosen = first
    for number, case in enumerate(others, 1):
        chosen = graph.where(graph.operation("GreaterOrEqual", which, graph.number(number, which.dtype)), case, chosen)
    return [chosen]


@rule_of("convert_element_type")
def _convert(emission: Emission, operation: Operation, values: Values) -> Values:
    graph, (x,) = emission.graph, values
    return [converted(graph, x, dtype_of(operation.outputs[0]))]


def converted(graph: Graph, x: Value, dtype: Any) -> Value:
    """Conversions that the standard leaves open are those of NumPy: to bool by a comparison."""
    if dtype.kind == "b" and x.dtype.kind != "b":
        return graph.operation("Not", graph.operation("Equal", x, library.zero(graph, x)))
    return graph.cast(x, dtype)


@rule_of("bitcast_convert_type")
def _bitcast(emission: Emission, operation: Operation, values: Values) -> Values:
    """Wider numbers are put together of narrower ones, and taken apart, by shifts."""
    graph, (x,) = emission.graph, values
    new = operation.params["new_dtype"]
    if x.dtype == new:
        return values
    old_bits, new_bits = library.bits_of(x.dtype), library.bits_of(new)
    bits = library.bitcast(graph, x, library.unsigned(x.dtype))
    kind = library.unsigned(new)
    if old_bits > new_bits:
        counts = graph.constant(np.arange(0, old_bits, new_bits).astype(bits.dtype))
        parts = graph.operation("BitShift", graph.unsqueeze(bits, [-1]), counts, direction="RIGHT")
        bits = graph.cast(parts, kind)
    elif old_bits < new_bits:
        counts = graph.constant(np.arange(0, new_bits, old_bits).astype(kind))
        parts = graph.operation("BitShift", graph.cast(bits, kind), counts, direction="LEFT")
        total: Value | None = None
        for place in range(new_bits // old_bits):
            part = graph.operation("Gather", parts, graph.number(place, np.dtype(np.int64)), axis=-1)
            total = part if total is None else graph.operation("BitwiseOr", total, part)
        assert total is not None
        bits = total
    return [library.bitcast(graph, bits, new)]
