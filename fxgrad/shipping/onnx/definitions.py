"""Definitions of operations without a rule: formulas, or the operations of their rule for XLA."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from jax import lax

from fxgrad import dtypes, make_program
from fxgrad import lax as lax_of_ours
from fxgrad.errors import FxgradError
from fxgrad.extend import Aval, Program, primitives
from fxgrad.extend.analyses import acts_on_each
from fxgrad.extend.formulas import (
    BERNOULLI,
    MANTISSA,
    bessel,
    digamma_double,
    erf_inv_single,
    mulhi_wide,
    quantile,
    rounded_bits,
)
from fxgrad.extend.sizes import has_symbolic_dim
from fxgrad.interop import from_jax
from fxgrad.interop.flat import x64
from fxgrad.shipping.onnx.emission import Emission
from fxgrad.shipping.onnx.graph import OnnxValue
from fxgrad.shipping.onnx.moves import is_narrow
from fxgrad.shipping.onnx.rules import BY_DEFINITION, OnnxRefusal, Rule, RuleOperation, onnx_rules, register_onnx_rule

Definition = Callable[..., Any]

NO_FORM = ("has no form in ONNX: there is no operator for it, and it is made of none that has. Leave it out of the "
           "function that is exported, and compute its result before or after")


def definition_rule(function: Definition, least: Any = dtypes.float32) -> Rule:
    """Make a rule for an operation on floats from its definition by simpler ones, computed in at least `least`.

    Floats narrower than `least` are widened to it.
    """
    def rule(emission: Emission, operation: RuleOperation, values: list[OnnxValue]) -> list[OnnxValue]:
        graph = emission.graph
        wide = [least if dtypes.is_floating(aval.dtype) and aval.dtype.itemsize < least.itemsize else aval.dtype
                for aval in operation.avals]
        given = [graph.cast(value, dtype) for value, dtype in zip(values, wide, strict=True)]
        avals = [Aval(aval.shape, dtype) for aval, dtype in zip(operation.avals, wide, strict=True)]
        program = make_program(partial(function, **operation.params))(*(aval.struct for aval in avals))
        constants = [graph.constant(np.asarray(value)) for value in program.constants]
        made = emission.program(program, [*constants, *given], operation.primitive.name)
        return [graph.cast(value, aval.dtype) for value, aval in zip(made, operation.outputs, strict=True)]
    return rule


# --- special functions ----------------------------------------------------------------------------------------------


def _erf_near(x: Any) -> Any:
    """Return erf by its power series, for |x| up to 1."""
    total, square = np.zeros_like(x), x * x
    for n in reversed(range(22)):
        total = total * square + (-1) ** n / (math.factorial(n) * (2 * n + 1))
    return 2 / math.sqrt(math.pi) * x * total


def _scaled_far(x: Any) -> tuple[Any, Any]:
    """For x from 1 on: erfc(x) is exp(-x^2) times the first, and the second.

    The trapezoidal rule on (DLMF 7.7.1), and the residue at its pole, which is in the way for x up to 6.
    F. Matta, A. Reichel, "Uniform computation of the error function and other related functions" (1971).
    """
    step, near = 0.5, np.minimum(x, 6)
    total = 0.5 / x
    for k in range(1, 14):
        total = total + math.exp(-(k * step) ** 2) / (x + (k * step) ** 2 / x)
    return 2 * step / math.pi * total, np.where(x < 6, 2 / (1 - np.exp(2 * math.pi / step * near)), 0)


def _erfc_far(x: Any) -> Any:
    scaled, pole = _scaled_far(x)
    size = np.minimum(x, 30)
    return np.exp(-size * size) * scaled + pole


def _erf(x: Any) -> Any:
    size = np.abs(x)
    near = size < 1
    far = 1 - _erfc_far(np.where(near, 1, size))
    return np.where(~near, np.where(x < 0, -far, far), _erf_near(np.where(~near, 0, x)))


def _erfc(x: Any) -> Any:
    size = np.abs(x)
    near = size < 1
    far = _erfc_far(np.where(near, 1, size))
    return np.where(near, 1 - _erf_near(np.where(near, x, 0)), np.where(x > 0, far, 2 - far))


def _erfcx(x: Any) -> Any:
    """Return exp(x^2) erfc(x)."""
    size = np.abs(x)
    near = size < 1
    scaled, pole = _scaled_far(np.where(near, 1, size))
    growth = np.exp(x * x)
    far = scaled + np.where(size < 6, pole * np.exp(np.minimum(size, 6) ** 2), 0)
    return np.where(near, growth * (1 - _erf_near(np.where(near, x, 0))), np.where(x > 0, far, 2 * growth - far))


def _lgamma(x: Any) -> Any:
    """Stirling's series (DLMF 5.11.1) beyond 10, to which the recurrence leads; reflection (5.5.3) below 1/2.

    Near its zeros at 1 and 2 the error is one of the sum that leads there, some 1e-15.
    """
    reflected = x < 0.5
    above = np.where(reflected, 1 - x, x)
    shifted, product = above, np.ones_like(above)
    for _ in range(10):
        below = shifted < 10
        product = product * np.where(below, shifted, 1)
        shifted = np.where(below, shifted + 1, shifted)
    inverse = 1 / shifted
    series = np.zeros_like(shifted)
    for index, number in reversed(list(enumerate(BERNOULLI, 1))):
        series = series * inverse * inverse + number / (2 * index * (2 * index - 1))
    found = (shifted - 0.5) * np.log(shifted) - shifted + 0.5 * math.log(2 * math.pi) + series * inverse
    found = found - np.log(product)
    found = np.where(above == np.inf, np.inf, np.where((above == 1) | (above == 2), 0, found))
    sine = np.abs(np.sin(math.pi * (x - np.round(x))))
    return np.where(reflected, np.where(x == -np.inf, np.inf, math.log(math.pi) - np.log(sine) - found), found)


def _erf_inv(y: Any) -> Any:
    return quantile(y / 2, (1 - np.abs(y)) / 2) / math.sqrt(2) if y.dtype == np.float64 else erf_inv_single(y)


def _mulhi(x: Any, y: Any) -> Any:
    """Return the upper half of products; narrow numbers in 64 bits, 64-bit ones from products of their halves."""
    bits, kind = 8 * x.dtype.itemsize, x.dtype.kind
    if bits < 64:
        return ((x.astype(f"{kind}8") * y.astype(f"{kind}8")) >> np.dtype(f"{kind}8").type(bits)).astype(x.dtype)
    wide = mulhi_wide(x.astype("uint64"), y.astype("uint64"))
    if kind == "u":
        return wide
    return wide.astype("int64") - np.where(x < 0, y, 0) - np.where(y < 0, x, 0)


def _hypot(x: Any, y: Any) -> Any:
    """Return the greater leg times the root of 1 and the square of the quotient: no square overflows."""
    a, b = np.abs(x), np.abs(y)
    large, small = np.maximum(a, b), np.minimum(a, b)
    plain = (large == 0) | (large == np.inf)
    quotient = small / np.where(plain, 1, large)
    found = np.where(plain, large, large * np.sqrt(1 + quotient * quotient))
    return np.where((a == np.inf) | (b == np.inf), np.inf, found)


def _nextafter(x: Any, y: Any) -> Any:
    """Return the next float: one more or less as an integer, which preserves the order of floats of one sign."""
    whole = np.dtype(f"int{8 * x.dtype.itemsize}")
    bits = lax_of_ours.bitcast_convert_type(x, whole)
    least = lax_of_ours.bitcast_convert_type(np.ones_like(bits), x.dtype)
    away = (y > x) == (x > 0)
    found = lax_of_ours.bitcast_convert_type(bits + np.where(away, 1, -1).astype(whole), x.dtype)
    found = np.where(x == 0, np.where(y > x, least, -least), found)
    return np.where(x != y, np.where(np.isnan(x) | np.isnan(y), np.nan, found), y)


def _reduce_precision(x: Any, *, exponent_bits: int, mantissa_bits: int) -> Any:
    """Equal to the bit."""
    bits = lax_of_ours.bitcast_convert_type(x, np.dtype(f"uint{8 * x.dtype.itemsize}"))
    rounded = rounded_bits(bits, MANTISSA[x.dtype.name], exponent_bits, mantissa_bits)
    return np.where(np.isnan(x), x, lax_of_ours.bitcast_convert_type(rounded, x.dtype))


for _name, _function, _least in (
        ("erfc", _erfc, dtypes.float32), ("erfcx", _erfcx, dtypes.float32), ("erf_inv", _erf_inv, dtypes.float32),
        ("lgamma", _lgamma, dtypes.float64), ("digamma", digamma_double, dtypes.float64),
        ("bessel_i0e", lambda x: bessel(np.abs(x), 0), dtypes.float64),
        ("bessel_i1e", lambda x: np.copysign(bessel(np.abs(x), 1), x), dtypes.float64),
        ("mulhi", _mulhi, dtypes.float32), ("hypot", _hypot, dtypes.float32),
        ("nextafter", _nextafter, dtypes.bfloat16),
        ("reduce_precision", _reduce_precision, dtypes.bfloat16)):
    onnx_rules.enter(definition_rule(_function, _least), primitives[_name])


@register_onnx_rule("erf")
def _erf_rule(emission: Emission, operation: RuleOperation, values: list[OnnxValue]) -> list[OnnxValue]:
    """Emit the operator of ONNX, which runtimes have in single precision alone."""
    if values[0].dtype == np.float64:
        return definition_rule(_erf)(emission, operation, values)
    return [emission.graph.operation("Erf", *values)]


# --- definitions by the rule for XLA --------------------------------------------------------------------------------


def emit_definition(emission: Emission, operation: RuleOperation, values: list[OnnxValue]) -> list[OnnxValue]:
    """Emit the operation as its rule for XLA defines it; each element of halves in single precision."""
    if operation.primitive.effectful or operation.primitive.collective:
        raise OnnxRefusal(NO_FORM)
    avals = [aval.strong() for aval in operation.avals]
    narrow = acts_on_each.of(operation.primitive) and any(is_narrow(aval.dtype) for aval in avals)
    if narrow:
        avals = [aval.update(dtype=dtypes.float32) if is_narrow(aval.dtype) else aval for aval in avals]
        values = [emission.graph.cast(value, aval.dtype) for value, aval in zip(values, avals, strict=True)]
    made = emit_lowered(emission, operation, avals, values)
    return [emission.graph.cast(value, aval.dtype) if narrow else value
            for value, aval in zip(made, operation.outputs, strict=True)]


def emit_lowered(emission: Emission, operation: RuleOperation, avals: list[Aval],
                 values: list[OnnxValue]) -> list[OnnxValue]:
    """Emit the program of the rule for XLA in place of the operation."""
    if any(has_symbolic_dim(*aval.shape) for aval in avals):
        raise OnnxRefusal("needs a number in the place of each size: it has no rule of its own, and jax writes out "
                          "what it is made of. Trace the function for numbers")
    program = _program(operation, avals)
    if program is None or any(equation.primitive is operation.primitive for equation in program.equations):
        raise OnnxRefusal(NO_FORM)
    constants = [emission.graph.constant(np.asarray(value)) for value in program.constants]
    return emission.program(program, [*constants, *values], operation.primitive.name)


def _program(operation: RuleOperation, avals: list[Aval]) -> Program | None:
    def function(*given: Any) -> Any:
        return operation.primitive.xla(lax, *given, **operation.params)

    try:
        with x64():
            return make_program(from_jax(function))(*(aval.struct for aval in avals))
    except FxgradError:
        return None


BY_DEFINITION.append(emit_definition)
