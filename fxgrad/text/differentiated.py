"""Describe values that a program differentiates but does not compute, by the user's own expressions."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fxgrad.extend import (
    CALL_NAMES,
    CAPTURED_VALUES,
    PRIMAL,
    Atom,
    Equation,
    Literal,
    Program,
    ProgramAttribute,
    Provenance,
    Variable,
)
from fxgrad.text.compact_body import StatementText
from fxgrad.text.definitions import is_call, is_plain_call
from fxgrad.text.margin import UserLine, programs_within
from fxgrad.text.names import NAMES, own_names, wanted_names
from fxgrad.text.sources import Sources

if TYPE_CHECKING:
    from fxgrad.text.compact_writer import CompactWriter
    from fxgrad.text.scope import Scope

MOST = 3
"""Most functions with such a remark, and most statements for each of them."""
WIDEST = 88
"""A function with a longer expression gets no remark."""


def formulas(program: Program, writer: CompactWriter, scope: Scope) -> list[StatementText]:
    """Return remarks on values differentiated but not computed in `program`: `# derivative of mean(log(cosh(error)))`.

    The expressions use the program's names for values that it computes; other named values are defined on further
    lines. A function gets no remark if none of its values has a name, or if its expression is long.
    """
    kept = FORMULAS.of(program)
    if kept is not None:
        return [StatementText([remark.text], remark.line, True, remark.called, remark.origins) for remark in kept]
    if all(equation.source is None or equation.source.part is None for equation in program.equations):
        return []
    remarks: list[StatementText] = []
    for part in itertools.islice(_Derivation(program, writer.sources, scope.names).absent(), MOST):
        *before, last = writer.apart(part, scope)
        more = before[-MOST:]
        if all(len(each.lines) == 1 and len(each.lines[0]) <= WIDEST for each in (last, *more)):
            remarks += [_add_prefix("# derivative of ", last), *(_add_prefix("#   with ", each) for each in more)]
    return remarks


def _add_prefix(text: str, statement: StatementText) -> StatementText:
    return statement._replace(lines=[text + statement.lines[0].removeprefix("return ")])


class Formula(NamedTuple):
    """A remark: its text, the user's line, the function called there, and the computations of folded numbers."""

    text: str
    line: UserLine | None
    called: str
    origins: tuple[str, ...]


FORMULAS: ProgramAttribute[list[Formula]] = ProgramAttribute("formulas of what is differentiated")
"""The remarks of a program that was rebuilt without the programs that it was derived from."""


class _Value(NamedTuple):
    """A variable of a user's function, and whether it means the value itself, not its tangent or cotangent."""

    function: Program
    var: Variable
    itself: bool


class _Derivation:
    """The provenance of a program's values in the functions that it was derived from."""

    def __init__(self, program: Program, sources: Sources, shown: Mapping[Variable, str]) -> None:
        self._program, self._sources, self._shown = program, sources, shown
        self._names = own_names(program, sources)
        self._known: dict[int, dict[Variable, list[_Value]]] = {}
        self._programs: list[Program] = []
        self._functions: dict[int, Program] = {}
        self._computed: dict[int, dict[Variable, Variable]] = {}  # by function: its variables -> those here
        differentiated = set()
        values = self._values(program)
        for var, _ in _provenances(program):  # without those of earlier programs that nothing uses any more
            for value in values[var]:
                if value.itself:
                    self._computed.setdefault(id(value.function), {}).setdefault(value.var, var)
                else:
                    differentiated.add(id(value.function))
        inner = {id(held) for function in self._functions.values()
                 for held in itertools.islice(programs_within(function), 1, None)}
        self._differentiated = [function for key, function in self._functions.items()
                                if key in differentiated and key not in inner and function is not program]

    def absent(self) -> Iterator[Program]:
        """Yield programs of the results that are differentiated but not computed, with the names of their inputs."""
        for function in self._differentiated:
            part = self._absent(function)
            if part is not None:
                yield part

    def _values(self, program: Program) -> dict[Variable, list[_Value]]:
        """Return the user's variables that each variable of `program` derives from, by its provenance."""
        known = self._known.get(id(program))
        if known is not None:
            return known
        values = self._known[id(program)] = {}
        self._programs.append(program)
        called = CALL_NAMES.of(program)
        if called is not None and not called.is_library:
            self._functions[id(program)] = program
        before = {} if program.base is None else self._values(program.base)
        for var, origins in _provenances(program):
            found = [_Value(program, var, True)] if id(program) in self._functions else []
            for origin in origins:
                found += [value._replace(itself=value.itself and origin.role == PRIMAL)
                          for value in self._values(origin.program).get(origin.var, ())]
            values[var] = [*dict.fromkeys([*found, *before.get(var, ())])]
        for var, found in before.items():
            values.setdefault(var, found)
        return values

    def _absent(self, function: Program) -> Program | None:
        computed = self._computed.get(id(function), {})
        names, numbers = self._names_in_function(function, computed)
        outputs = [atom for atom in function.outputs if isinstance(atom, Variable) and atom not in computed
                   and atom not in function.inputs]
        wanted: set[Atom] = {*outputs}
        given = {*function.inputs}
        equations: list[Equation] = []
        for equation in reversed(function.equations):
            if wanted.isdisjoint(equation.outputs):
                continue
            is_block = equation.primitive.regions is not None and not is_call(equation) and not is_plain_call(equation)
            if is_block or any(names.get(var) for var in equation.outputs):
                given.update(equation.outputs)
                continue
            if equation.source is not None and equation.source.part is not None:
                return None  # a derivative itself
            equations.append(equation.replace([numbers.get(atom, atom) for atom in equation.inputs]))
            wanted.update(equations[-1].inputs)
        own = {var: name.text for var, name in wanted_names(function, self._sources).items()}
        shown = {var: names.get(var) or own.get(var, "") for var in (*function.inputs, *given) if var in wanted}
        if not equations or not all(shown.values()) or len({*shown.values()}) < len(shown):
            return None
        part = Program([*shown], equations[::-1], outputs)
        NAMES.put(part, shown)
        return part

    def _names_in_function(self, function: Program, computed: Mapping[Variable, Variable]) -> tuple[dict[Variable, str],
                                                                                                    dict[Atom,
                                                                                                         Literal]]:
        """Return the names here of a function's variables, and the numbers that it closes over."""
        uses = Counter(atom for equation in function.equations for atom in equation.inputs)
        several = {var for equation in function.equations for var in equation.outputs if len(equation.outputs) > 1}
        # A letter is used only for values that need one in the remark, too.
        names = {var: self._names.get(here) or (self._shown.get(here, "") if uses[var] > 1 or var in several else "")
                 for var, here in computed.items()}
        numbers: dict[Atom, Literal] = {}
        for var, value in zip(function.inputs, CAPTURED_VALUES.of(function) or (), strict=False):
            if isinstance(value, Variable):
                names[var] = self._shown.get(value) or self._name_around(value)
            elif isinstance(value, np.ndarray) or np.ndim(value):
                captured = zip(self._program.inputs, self._program.constants, strict=False)
                names[var] = next((self._shown.get(var, "") for var, constant in captured if constant is value), "")
            else:
                numbers[var] = Literal(value, var.aval)
        return names, numbers

    def _name_around(self, var: Variable) -> str:
        """Return the name of an input in the enclosing function."""
        around = next((program for program in self._programs if var in program.inputs), None)
        name = None if around is None else wanted_names(around, self._sources).get(var)
        return "" if name is None else name.text


def _provenances(program: Program) -> Iterator[tuple[Variable, Sequence[Provenance]]]:
    for var in program.inputs:
        yield var, getattr(var, "origins", ())
    for equation in program.equations:
        noted = () if equation.source is None else equation.source.origins
        for number, var in enumerate(equation.outputs):
            yield var, noted[number] if noted else getattr(var, "origins", ())
