"""Operations on elements in C: the expression of an element of the result, from those of the operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.extend import Analysis, Aval, primitives
from fxgrad.shipping.c.values import SHORT, TYPES, SourceRefusal

Rule = Callable[[Sequence[str], Sequence[Aval], Aval, dict[str, Any]], str]
"""(expressions of the operands, types of the operands, type of the result, parameters) -> expression."""


def _f(aval: Aval) -> str:
    if aval.dtype.kind != "f":
        raise SourceRefusal(f"of dtype {aval.dtype.name}")
    return "f" if aval.dtype.itemsize == 4 else ""


def _library(name: str) -> Rule:
    return lambda x, avals, out, params: f"{name}{_f(avals[0])}({', '.join(x)})"


def _helper(name: str) -> Rule:
    return lambda x, avals, out, params: f"{name}_{SHORT[avals[0].dtype.name]}({', '.join(x)})"


def _operator(sign: str, helper: str) -> Rule:
    """Return the rule of a C operator for floats, and of a helper for integers, which must not overflow as in C."""
    return lambda x, avals, out, params: (f"({x[0]} {sign} {x[1]})" if avals[0].dtype.kind == "f" else
                                          _helper(helper)(x, avals, out, params))


def _comparison_rule(sign: str) -> Rule:
    return lambda x, avals, out, params: f"({x[0]} {sign} {x[1]})"


def _bits(sign: str, of_bools: str) -> Rule:
    return lambda x, avals, out, params: (
        f"({x[0]} {of_bools if avals[0].dtype.kind == 'b' else sign} {x[1]})")


def _identity(x: Sequence[str], avals: Sequence[Aval], out: Aval, params: dict[str, Any]) -> str:
    return x[0]


def _negation_text(x: Sequence[str], avals: Sequence[Aval], out: Aval, params: dict[str, Any]) -> str:
    return f"(-{x[0]})".replace("(--", "(- -") if avals[0].dtype.kind == "f" else _helper("neg")(x, avals, out, params)


def _not(x: Sequence[str], avals: Sequence[Aval], out: Aval, params: dict[str, Any]) -> str:
    kind = avals[0].dtype.kind
    return f"(!{x[0]})" if kind == "b" else f"~{x[0]}" if kind == "i" else f"({TYPES[out.dtype.name]})~{x[0]}"


def _extremum(name: str, of_bools: str) -> Rule:
    return lambda x, avals, out, params: (
        f"({x[0]} {of_bools} {x[1]})" if avals[0].dtype.kind == "b" else _helper(name)(x, avals, out, params))


def _sign(x: Sequence[str], avals: Sequence[Aval], out: Aval, params: dict[str, Any]) -> str:
    kind = avals[0].dtype.kind
    return (_helper("sign")(x, avals, out, params) if kind == "f" else f"({x[0]} > 0)" if kind == "u" else
            f"(({x[0]} > 0) - ({x[0]} < 0))")


def _abs(x: Sequence[str], avals: Sequence[Aval], out: Aval, params: dict[str, Any]) -> str:
    return (_library("fabs") if avals[0].dtype.kind == "f" else _helper("abs"))(x, avals, out, params)


def _power(x: Sequence[str], avals: Sequence[Aval], out: Aval, params: dict[str, Any]) -> str:
    return f"power_{SHORT[avals[0].dtype.name]}({x[0]}, {params['exponent']})"


def _square(x: Sequence[str], avals: Sequence[Aval], out: Aval, params: dict[str, Any]) -> str:
    return f"power_{SHORT[avals[0].dtype.name]}({x[0]}, 2)"


def _rsqrt(x: Sequence[str], avals: Sequence[Aval], out: Aval, params: dict[str, Any]) -> str:
    return f"(1 / sqrt{_f(avals[0])}({x[0]}))"


def _clamp(x: Sequence[str], avals: Sequence[Aval], out: Aval, params: dict[str, Any]) -> str:
    largest = _extremum("max", "|")([x[0], x[1]], avals, out, params)
    return _extremum("min", "&")([largest, x[2]], avals, out, params)


def _select(x: Sequence[str], avals: Sequence[Aval], out: Aval, params: dict[str, Any]) -> str:
    which, first, *rest = x
    if avals[0].dtype.kind == "b":
        return f"({which} ? {rest[0]} : {first})" if rest else first
    chosen = first
    for number, case in enumerate(rest, 1):  # the first one for all below, the last one for all above
        chosen = f"({which} >= {number} ? {case} : {chosen})"
    return chosen


def _conversion_text(x: Sequence[str], avals: Sequence[Aval], out: Aval, params: dict[str, Any]) -> str:
    source, target = avals[0].dtype, out.dtype
    if source == target:
        return x[0]
    if target.kind == "b":
        return f"({x[0]} != 0)"
    if target.kind in "iu" and source.kind == "f":
        return f"whole_{SHORT[target.name]}_{SHORT[source.name]}({x[0]})"
    return f"({TYPES[target.name]}){x[0]}"


def _bitcast(x: Sequence[str], avals: Sequence[Aval], out: Aval, params: dict[str, Any]) -> str:
    source, target = avals[0].dtype, out.dtype
    if source == target:
        return x[0]
    if source.itemsize == target.itemsize and {source.kind, target.kind} == {"i", "u"}:
        return f"({TYPES[target.name]}){x[0]}"
    if source.itemsize != target.itemsize or source.kind == target.kind:
        raise SourceRefusal(f"from {source.name} to {target.name}, of another size")
    return f"{TYPES[target.name]}_of_bits({x[0]})"


def _rounding_text(x: Sequence[str], avals: Sequence[Aval], out: Aval, params: dict[str, Any]) -> str:
    return f"{'rint' if params['to_even'] else 'round'}{_f(avals[0])}({x[0]})"


def _finite(x: Sequence[str], avals: Sequence[Aval], out: Aval, params: dict[str, Any]) -> str:
    return f"(isfinite({x[0]}) != 0)"


def _remainder(x: Sequence[str], avals: Sequence[Aval], out: Aval, params: dict[str, Any]) -> str:
    return (_library("fmod") if avals[0].dtype.kind == "f" else _helper("rem"))(x, avals, out, params)


def _wide(name: str) -> Rule:
    """Return the rule of a function that NumPy's kernel computes in float64."""
    return lambda x, avals, out, params: f"{name}({x[0]})" if not _f(avals[0]) else f"(float){name}({x[0]})"


def _nonzero(x: Sequence[str], avals: Sequence[Aval], out: Aval, params: dict[str, Any]) -> str:
    return f"({x[0]} == 0 ? 1 : {x[0]})"


elements: Analysis[Rule | None] = Analysis(
    "elements in C", "The expression in C of an element of the result, in one element of each operand.",
    missing="conservative", default=None)

for _name, _rule in {
    "abs": _abs, "acos": _library("acos"), "acosh": _library("acosh"), "add": _operator("+", "add"),
    "and": _bits("&", "&"), "asin": _library("asin"), "asinh": _library("asinh"), "atan": _library("atan"),
    "atan2": _library("atan2"), "atanh": _library("atanh"),
    "bitcast_convert_type": _bitcast, "cbrt": _library("cbrt"), "ceil": _library("ceil"),
    "clamp": _clamp, "convert_element_type": _conversion_text, "copy": _identity, "cos": _library("cos"),
    "cosh": _library("cosh"), "div": _operator("/", "div"), "entr": _helper("entr"), "eq": _comparison_rule("=="),
    "erf": _wide("erf"), "erfc": _wide("erfc"), "exp": _library("exp"), "exp2": _library("exp2"),
    "expm1": _library("expm1"), "floor": _library("floor"), "ge": _comparison_rule(">="), "gt": _comparison_rule(">"),
    "hypot": _library("hypot"), "integer_pow": _power, "is_finite": _finite, "le": _comparison_rule("<="),
    "lgamma": _wide("lgamma"), "log": _library("log"), "log1p": _library("log1p"), "logaddexp": _helper("logaddexp"),
    "logistic": _helper("logistic"), "lt": _comparison_rule("<"), "max": _extremum("max", "|"),
    "min": _extremum("min", "&"),
    "mul": _operator("*", "mul"), "name": _identity, "ne": _comparison_rule("!="), "neg": _negation_text,
    "nextafter": _library("nextafter"), "nonzero_divisor": _nonzero, "not": _not, "or": _bits("|", "|"),
    "pow": _library("pow"), "rem": _remainder,
    "round": _rounding_text, "rsqrt": _rsqrt, "select_n": _select, "shift_left": _helper("shift_left"),
    "shift_right_arithmetic": _helper("shift_right_arithmetic"),
    "shift_right_logical": _helper("shift_right_logical"), "sign": _sign, "sin": _library("sin"),
    "sinh": _library("sinh"), "sqrt": _library("sqrt"), "square": _square, "stop_gradient": _identity,
    "strong_div": _helper("strong_div"), "strong_mul": _helper("strong_mul"), "sub": _operator("-", "sub"),
    "tan": _library("tan"), "tanh": _library("tanh"), "whole_pow": _helper("power"), "xlog1py": _helper("xlog1py"),
    "xlogy": _helper("xlogy"), "xor": _bits("^", "!="),
}.items():
    elements.enter(_rule, primitives[_name])
