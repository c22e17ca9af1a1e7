"""One operation as a short expression of named operands, for tables and pictures."""

from __future__ import annotations

from collections.abc import Callable

from fxgrad.extend import Equation, Literal, Variable
from fxgrad.text.forms import ATOM, Form, OperandText, render_form
from fxgrad.text.literals import implying_types, literal_expression
from fxgrad.text.notations import form_of
from fxgrad.text.values import value_lines


def expression(equation: Equation, name_of: Callable[[Variable], str]) -> str:
    """Return the operation in the compact style, with the names that `name_of` gives its operands.

    For an operation that holds programs only the name precedes the operands.

    >>> import fxgrad, numpy as np
    >>> program = fxgrad.make_program(lambda x, y: (x + y) * 2.0)(1.0, 2.0)
    >>> expression(program.equations[0], {program.inputs[0]: "x", program.inputs[1]: "y"}.__getitem__)
    'x + y'
    """
    operands = equation.inputs
    if equation.programs:
        form, order = Form("call", operation_name(equation), len(operands)), tuple(range(len(operands)))
    else:
        form, order = form_of(equation.primitive, tuple([atom.aval for atom in operands]), equation.params)
    atoms = [operands[place] for place in order]
    beside = implying_types(form, [None if isinstance(atom, Literal) else atom.aval for atom in atoms])
    shown = [literal_expression(atom, form, beside) if isinstance(atom, Literal) else OperandText(name_of(atom), ATOM)
             for atom in atoms]
    return render_form(form, shown, lambda value: " ".join(value_lines(value, lambda _: ["..."]))).text


def operation_name(equation: Equation) -> str:
    """Return the name of an operation: for a call that of the called function, else that of the primitive."""
    name = equation.params.get("name")
    return name if name and isinstance(name, str) and equation.programs else equation.primitive.name
