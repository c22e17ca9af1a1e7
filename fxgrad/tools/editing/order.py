"""Sort equations topologically: each follows the equations that define its operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fxgrad.errors import ArgumentError
from fxgrad.extend import Equation, Variable, at_user_line
from fxgrad.text.short import operation_name


def sort_by_need(equations: Sequence[Equation]) -> Iterator[Equation]:
    """Yield `equations` in order, each after those that it needs.

    Raises `ArgumentError` if a value needs itself.
    """
    maker = {var: equation for equation in equations for var in equation.outputs}
    state: dict[int, str] = {}
    for top in equations:
        stack = [top]
        while stack:
            equation = stack[-1]
            waiting = [maker[atom] for atom in equation.inputs
                       if isinstance(atom, Variable) and atom in maker and state.get(id(maker[atom])) != "done"]
            if state.get(id(equation)) == "done":
                stack.pop()
            elif not waiting:
                state[id(stack.pop())] = "done"
                yield equation
            elif any(state.get(id(each)) == "open" for each in waiting):
                raise ArgumentError(at_user_line(
                    f"edit: {equation_text(equation)} needs a value that is computed from its own result"))
            else:
                state[id(equation)] = "open"
                stack.extend(waiting)


def equation_text(equation: Equation) -> str:
    """Return the operation of an equation and its user line."""
    source = equation.source
    where = "" if source is None else f" at {source.place}"
    return f"{operation_name(equation)}{where}"
