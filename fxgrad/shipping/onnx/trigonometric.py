"""Trigonometric and hyperbolic functions, which runtimes have in single precision alone, and roots."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad.extend import primitives
from fxgrad.shipping.onnx import library
from fxgrad.shipping.onnx.elementwise import emit_in_single
from fxgrad.shipping.onnx.emission import Emission
from fxgrad.shipping.onnx.graph import OnnxGraph, OnnxValue
from fxgrad.shipping.onnx.rules import RuleOperation, onnx_rules, register_onnx_rule

Values = list[OnnxValue]

@register_onnx_rule("tan")
def _tan(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, (x,) = emission.graph, values
    if x.dtype == np.float64:
        return [graph.operation("Div", graph.operation("Sin", x), _cos(graph, x))]
    return [graph.operation("Tan", x)]


def _cos(graph: OnnxGraph, x: OnnxValue) -> OnnxValue:
    """Return 1 - 2 sin(x / 2)^2: only newer runtimes have the cosine in double precision."""
    sine = graph.operation("Sin", graph.operation("Mul", library.constant_like(graph, 0.5, x), x))
    square = graph.operation("Mul", sine, sine)
    return graph.operation("Sub", library.one_like(graph, x), graph.operation("Add", square, square))


def _sinh(graph: OnnxGraph, x: OnnxValue) -> OnnxValue:
    """From e = expm1(|x|): (e + e / (e + 1)) / 2, and beyond 20 from the exponential of one half each."""
    size = graph.operation("Abs", x)
    half = library.constant_like(graph, 0.5, x)
    e = library.emit_expm1(graph, size)
    small = graph.operation("Mul", half, graph.operation("Add", e, graph.operation(
        "Div", e, graph.operation("Add", e, library.one_like(graph, x)))))
    root = graph.operation("Exp", graph.operation("Mul", half, size))
    large = graph.operation("Mul", graph.operation("Mul", half, root), root)
    found = graph.where(graph.operation("Greater", size, library.constant_like(graph, 20, x)), large, small)
    return library.odd_function(graph, x, found)


def _cosh(graph: OnnxGraph, x: OnnxValue) -> OnnxValue:
    half = library.constant_like(graph, 0.5, x)
    root = graph.operation("Exp", graph.operation("Mul", half, graph.operation("Abs", x)))
    large = graph.operation("Mul", graph.operation("Mul", half, root), root)
    small = graph.operation("Div", half, graph.operation("Mul", root, root))
    return graph.operation("Add", large, small)


def _asinh(graph: OnnxGraph, x: OnnxValue) -> OnnxValue:
    """Return log1p(a + a^2 / (1 + sqrt(1 + a^2))) for a = |x|, and log(a) + log(2) where squares overflow."""
    size = graph.operation("Abs", x)
    far = graph.operation("Greater", size, library.constant_like(graph, 1e8, x))
    near = graph.where(far, library.one_like(graph, x), size)
    square = graph.operation("Mul", near, near)
    root = graph.operation("Sqrt", graph.operation("Add", square, library.one_like(graph, x)))
    part = graph.operation("Div", square, graph.operation("Add", root, library.one_like(graph, x)))
    small = library.emit_log1p(graph, graph.operation("Add", near, part))
    large = graph.operation("Add", graph.operation("Log", size), library.constant_like(graph, math.log(2), x))
    return library.odd_function(graph, x, graph.where(far, large, small))


def _acosh(graph: OnnxGraph, x: OnnxValue) -> OnnxValue:
    """Return log1p(t + sqrt(2 t + t^2)) for t = x - 1, and log(x) + log(2) where squares overflow."""
    far = graph.operation("Greater", x, library.constant_like(graph, 1e8, x))
    t = graph.operation("Sub", graph.where(far, library.constant_like(graph, 2, x), x), library.one_like(graph, x))
    root = graph.operation("Sqrt", graph.operation("Add", graph.operation("Add", t, t), graph.operation("Mul", t, t)))
    small = library.emit_log1p(graph, graph.operation("Add", t, root))
    large = graph.operation("Add", graph.operation("Log", x), library.constant_like(graph, math.log(2), x))
    return graph.where(far, large, small)


def _atanh(graph: OnnxGraph, x: OnnxValue) -> OnnxValue:
    """Return log1p(2 x / (1 - x)) / 2."""
    size = graph.operation("Abs", x)
    quotient = graph.operation("Div", graph.operation("Add", size, size), graph.operation(
        "Sub", library.one_like(graph, x), size))
    half = graph.operation("Mul", library.constant_like(graph, 0.5, x), library.emit_log1p(graph, quotient))
    return library.odd_function(graph, x, half)


_ATAN_ABOVE = (-8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
               -1.228866684490136173410e2, -6.485021904942025371773e1)
_ATAN_BELOW = (1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
               4.853903996359136964868e2, 1.945506571482613964425e2)


def polynomial(graph: OnnxGraph, coefficients: tuple[float, ...], x: OnnxValue) -> OnnxValue:
    """Evaluate a polynomial by Horner's rule, the highest power first."""
    total = library.constant_like(graph, coefficients[0], x)
    for coefficient in coefficients[1:]:
        total = graph.operation("Add", graph.operation("Mul", total, x), library.constant_like(graph, coefficient, x))
    return total


def _atan_double(graph: OnnxGraph, x: OnnxValue) -> OnnxValue:
    """Around 0 a quotient of polynomials, to which the rest is turned by a quarter or an eighth (Cephes, atan.c)."""
    size, unit = graph.operation("Abs", x), library.one_like(graph, x)
    far = graph.operation("Greater", size, library.constant_like(graph, 1 + math.sqrt(2), x))
    middle = graph.operation("Greater", size, library.constant_like(graph, 0.66, x))
    turned = graph.operation("Div", graph.operation("Sub", size, unit), graph.operation("Add", size, unit))
    inverse = graph.operation("Neg", graph.operation("Reciprocal", size))
    at = graph.where(far, inverse, graph.where(middle, turned, size))
    at = graph.where(graph.operation("IsInf", size), library.zero_like(graph, x), at)
    base = graph.where(far, library.constant_like(graph, math.pi / 2, x), graph.where(
        middle, library.constant_like(graph, math.pi / 4, x), library.zero_like(graph, x)))
    square = graph.operation("Mul", at, at)
    quotient = graph.operation("Div", polynomial(graph, _ATAN_ABOVE, square), polynomial(graph, _ATAN_BELOW, square))
    small = graph.operation("Add", at, graph.operation("Mul", graph.operation("Mul", at, square), quotient))
    return library.odd_function(graph, x, graph.operation("Add", base, small))


def emit_atan(graph: OnnxGraph, x: OnnxValue) -> OnnxValue:
    """Return the arc tangent."""
    return _atan_double(graph, x) if x.dtype == np.float64 else graph.operation("Atan", x)


def emit_atan2(graph: OnnxGraph, y: OnnxValue, x: OnnxValue) -> OnnxValue:
    """Return the angle of (x, y) with its quadrant, and for zeros by their signs."""
    pi, none = library.constant_like(graph, math.pi, x), library.zero_like(graph, x)
    tall, wide = graph.operation("Abs", y), graph.operation("Abs", x)
    steep = graph.operation("Greater", tall, wide)
    low, high = graph.where(steep, wide, tall), graph.where(steep, tall, wide)
    same = graph.operation("Equal", low, high)
    empty = graph.operation("Equal", high, none)
    ratio = graph.operation("Div", low, graph.where(empty, library.one_like(graph, x), high))
    both = graph.operation("And", same, graph.operation("Not", empty))
    angle = emit_atan(graph, graph.where(both, library.one_like(graph, x), ratio))
    angle = graph.where(steep, graph.operation("Sub", library.constant_like(graph, math.pi / 2, x), angle), angle)
    angle = graph.where(library.sign_bit(graph, x), graph.operation("Sub", pi, angle), angle)
    found = library.odd_function(graph, y, angle)
    either = graph.operation("Or", graph.isnan(x), graph.isnan(y))
    return graph.where(either, graph.operation("Add", x, y), found)


def _asin(graph: OnnxGraph, x: OnnxValue) -> OnnxValue:
    unit = library.one_like(graph, x)
    rest = graph.operation("Sqrt", graph.operation("Mul", graph.operation("Sub", unit, x),
                                                   graph.operation("Add", unit, x)))
    return emit_atan2(graph, x, rest)


def _acos(graph: OnnxGraph, x: OnnxValue) -> OnnxValue:
    unit = library.one_like(graph, x)
    half = emit_atan2(graph, graph.operation("Sqrt", graph.operation("Sub", unit, x)),
                      graph.operation("Sqrt", graph.operation("Add", unit, x)))
    return graph.operation("Add", half, half)


def _single_or(operator: str, formula: Any) -> Any:
    """Return a rule: the operator in single precision, which is all that runtimes have, a formula in double."""
    def rule(emission: Emission, operation: RuleOperation, values: Values) -> Values:
        graph, (x,) = emission.graph, values
        return [formula(graph, x) if x.dtype == np.float64 else graph.operation(operator, x)]
    return rule


for _name, _formula in (
        ("cos", _cos), ("asin", _asin), ("acos", _acos), ("atan", _atan_double), ("sinh", _sinh), ("cosh", _cosh),
        ("asinh", _asinh), ("acosh", _acosh), ("atanh", _atanh)):
    onnx_rules.enter(_single_or(_name.capitalize(), _formula), primitives[_name])


@register_onnx_rule("atan2")
def _atan2(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    return emit_in_single(emission, emit_atan2, values)


@register_onnx_rule("cbrt")
def _cbrt(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    """Emit a power, and one step of Newton's method."""
    def rule(graph: OnnxGraph, x: OnnxValue) -> OnnxValue:
        size = graph.operation("Abs", x)
        plain = graph.operation("Or", graph.operation("Equal", size, library.zero_like(graph, x)),
                                graph.operation("IsInf", size))
        given = graph.where(plain, library.one_like(graph, x), size)
        guess = graph.operation("Pow", given, library.constant_like(graph, 1 / 3, x))
        wrong = graph.operation("Sub", guess, graph.operation("Div", given, graph.operation("Mul", guess, guess)))
        found = graph.operation("Sub", guess, graph.operation("Mul", wrong, library.constant_like(graph, 1 / 3, x)))
        return library.odd_function(graph, x, graph.where(plain, size, found))
    return emit_in_single(emission, rule, values)
