"""Orders of equations: grouped by user line, in reading order; or each right before its first use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import CodeType
from typing import Any

from fxgrad.engine.core.program import Atom, Equation, Program, Source
from fxgrad.engine.core.program_properties import is_effectful


def line_by_line(equations: list[Equation], outputs: Sequence[Atom]) -> list[Equation]:
    """Return the equations with each value that a single equation of the same line uses right before that equation.

    `jvp` computes values and tangents alternately: `a, t_a, b, t_b`. If only `b` uses `a`, and only `t_b` uses `t_a`,
    all four of one line, this returns `a, b, t_a, t_b`. Operations with effects stay in place.
    """
    lines = _Lines()
    uses = Counter(outputs)
    user: dict[Atom, int] = {}
    for number, equation in enumerate(equations):
        uses.update(equation.inputs)
        user.update(dict.fromkeys(equation.inputs, number))
    parts: dict[int, list[int]] = {}  # the equations right before each equation, by its number
    for number, equation in enumerate(equations):
        made = equation.outputs
        if len(made) == 1 and uses[made[0]] == 1 and made[0] in user and \
                lines.are_same(equation.source, equations[user[made[0]]].source) and \
                not is_effectful(equation.primitive, equation.params):
            parts.setdefault(user[made[0]], []).append(number)
    moved = {number for each in parts.values() for number in each}
    result: list[Equation] = []
    for number in range(len(equations)):
        if number in moved:
            continue
        pending, found = [number], []
        while pending:  # the last first
            found.append(pending.pop())
            pending += parts.get(found[-1], ())
        result += [equations[each] for each in reversed(found)]
    return result


def as_needed(program: Program, late: int) -> Program:
    """Return the program with all that does not depend on the last `late` inputs computed right before its first use.

    So fewer values are live at once if the rest is the backward pass of a rematerialized program.

    >>> import fxgrad, numpy as np
    >>> program = fxgrad.make_program(lambda x, y: (np.sin(x), np.cos(x), y * 2.0))(1.0, 2.0)
    >>> [str(equation.primitive) for equation in as_needed(program, 1).equations]
    ['mul', 'sin', 'cos']
    """
    dependent: set[Atom] = set(program.inputs[len(program.inputs) - late:])
    maker: dict[Atom, Equation] = {}
    ordered: list[Equation] = []

    def take(atoms: Sequence[Atom]) -> None:
        """Emit the equations that compute `atoms`, after their operands."""
        pending = [maker[atom] for atom in reversed(atoms) if atom in maker]
        while pending:
            equation = pending[-1]
            missing = [maker[atom] for atom in reversed(equation.inputs) if atom in maker]
            if missing:
                pending += missing
                continue
            pending.pop()
            if equation.outputs[0] in maker:  # it may be requested twice
                ordered.append(equation)
                for var in equation.outputs:
                    del maker[var]

    for equation in program.equations:
        is_late = not dependent.isdisjoint(equation.inputs)
        if is_late or not equation.outputs or is_effectful(equation.primitive, equation.params):
            take(equation.inputs)
            ordered.append(equation)
        else:
            maker.update(dict.fromkeys(equation.outputs, equation))
        if is_late:
            dependent.update(equation.outputs)
    take(program.outputs)
    return program.replace(equations=ordered)


class _Lines:
    """Compares sources by line; the line numbers of each code object are looked up once."""

    def __init__(self) -> None:
        self._of: dict[CodeType, list[int | None]] = {}

    def are_same(self, one: Source | None, other: Source | None) -> bool:
        """Return whether two sources are of the same line and of the same part of a derived program."""
        if one is None or other is None or one.part != other.part or one.code is not other.code:
            return one is other
        return one.instruction == other.instruction or self._line(one) == self._line(other)

    def _line(self, source: Source) -> int | None:
        known: Any = self._of.get(source.code)
        if known is None:
            known = self._of[source.code] = [positions[0] for positions in source.code.co_positions()]
        place = source.instruction // 2
        return known[place] if place < len(known) else None
