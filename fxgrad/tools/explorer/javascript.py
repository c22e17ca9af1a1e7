"""Translate programs of scalars to JavaScript for pages: the same operations in the same order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fxgrad import dtypes
from fxgrad.errors import UnsupportedError
from fxgrad.extend import Analysis, Aval, Equation, MissingRule, Program, at_user_line, eval_program, primitives

Expression = Callable[[list[str], dict[str, Any]], str]
"""(operands, parameters) -> the expression."""

NOT_IN_JAVASCRIPT = MissingRule("NOT_IN_JAVASCRIPT", "has no form in JavaScript")

expressions: Analysis[str | Expression | MissingRule] = Analysis(
    "JavaScript", "The expression in JavaScript of an operation on scalars, with {0} and {1} for the operands.",
    missing="conservative", default=NOT_IN_JAVASCRIPT)

for _text, _primitives in (
        ("{0} + {1}", (primitives.add,)), ("{0} - {1}", (primitives.sub,)), ("{0} * {1}", (primitives.mul,)),
        ("{0} / {1}", (primitives.div,)), ("-{0}", (primitives.neg,)), ("Math.exp({0})", (primitives.exp,)),
        ("Math.log({0})", (primitives.log,)), ("Math.tanh({0})", (primitives.tanh,)),
        ("Math.sqrt({0})", (primitives.sqrt,)), ("Math.sin({0})", (primitives.sin,)),
        ("Math.cos({0})", (primitives.cos,)), ("Math.abs({0})", (primitives.abs,)),
        ("Math.sign({0})", (primitives.sign,)),
        ("Math.max({0}, {1})", (primitives.max,)), ("Math.min({0}, {1})", (primitives.min,)),
        ("Math.log1p({0})", (primitives.log1p,)), ("Math.expm1({0})", (primitives.expm1,)),
        ("{0} === {1}", (primitives.eq,)), ("{0} !== {1}", (primitives.ne,)), ("{0} < {1}", (primitives.lt,)),
        ("{0} <= {1}", (primitives.le,)), ("{0} > {1}", (primitives.gt,)), ("{0} >= {1}", (primitives.ge,)),
        ("{0} ? {2} : {1}", (primitives.select_n,))):
    expressions.enter(_text, *_primitives)


@expressions.register(primitives.integer_pow)
def _power(operands: list[str], params: dict[str, Any]) -> str:
    exponent = params["exponent"]
    return " * ".join([operands[0]] * exponent) if 0 < exponent < 4 else f"{operands[0]} ** {exponent}"


def javascript(program: Program, name: str = "program") -> str:
    """Return the text of a JavaScript function that maps the inputs to the array of the outputs.

    `program` is one of scalars, as `fxgrad.scalarize` makes it, in float64 and bool, which are JavaScript's numbers and
    booleans. Raises `UnsupportedError`, which names the operation, for others.

    >>> import fxgrad
    >>> program = fxgrad.make_program(lambda x, y: (x + y) * x)(1.0, 2.0)
    >>> print(javascript(program, "f"))
    function f(x0, x1) {
      const x2 = x0 + x1;
      const x3 = x2 * x0;
      return [x3];
    }
    """
    for var in program.inputs:
        _check(var.aval, "an input")
    inputs = [f"x{number}" for number in range(len(program.inputs))]
    lines: list[str] = []

    def assign(equation: Equation, operands: list[str]) -> list[str]:
        made = f"x{len(inputs) + len(lines)}"
        for atom in [*equation.inputs, *equation.outputs]:
            _check(atom.aval, f"an operand of {equation.primitive}")
        expression = expressions.of(equation.primitive)
        if isinstance(expression, MissingRule):
            raise UnsupportedError(at_user_line(
                f"javascript: {equation.primitive} {expression.reason}; there are "
                f"{', '.join(sorted(map(str, expressions.entered())))}"))
        text = expression.format(*operands) if isinstance(expression, str) else expression(operands, equation.params)
        lines.append(f"  const {made} = {text};")
        return [made]

    results = eval_program(program, inputs, assign, lambda literal: _number(literal.value))
    return "\n".join([f"function {name}({', '.join(inputs)}) {{", *lines, f"  return [{', '.join(results)}];", "}"])


def _check(aval: Aval, what: str) -> None:
    if aval.shape or aval.dtype not in (dtypes.float64, dtypes.bool_):
        raise UnsupportedError(at_user_line(
            f"javascript: {what} is {aval}, where scalars of float64 or bool are needed. "
            "Write javascript(fxgrad.scalarize(program)) for a program of float64"))


def _number(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    number = float(value)  # type: ignore[arg-type]
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "(-Infinity)"
    return f"({number!r})" if number < 0 or str(number) == "-0.0" else repr(number)
