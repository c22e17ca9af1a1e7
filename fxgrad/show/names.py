"""Names for the variables of a program: from its signature, from the user's assignments, and letters for the rest."""

from __future__ import annotations

import itertools
import keyword
import re
import string
import sys
from collections.abc import Iterator, Sequence

from fxgrad.core.facts import Slot
from fxgrad.core.program import Equation, Program, Source, Var
from fxgrad.show.sources import Assigned, Sources, Targets

STRING = r'"(?:[^"\\\n]|\\.)*"'
PATH = rf"[^\W\d]\w*(?:\.[^\W\d]\w*|\[(?:-?\d+|{STRING}|'(?:[^'\\\n]|\\.)*')\])*"
TYPE = r"(?:bool|bf16|[iuf]\d+|c\d+|key<fry>)\*?\[[\d,\s]*\]"
RESERVED = frozenset(["program", "captured", "return", "where",
                      "True", "False", "None", "nan", "inf", "complex"])
"""Words of the text form that no variable can be called without quotes."""

_plain = re.compile(PATH)
_type = re.compile(TYPE)


def quoted_name(name: str) -> str:
    """A name as it stands in the text: between backquotes if it is not made of identifiers, dots and indices."""
    if _plain.fullmatch(name) and name not in RESERVED and not _type.fullmatch(name):
        return name
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`").replace("\n", "\\n") + "`"


def unquoted_name(text: str) -> str:
    """The name that `quoted_name` wrote between backquotes as `text`."""
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], text[1:-1])


class Unique:
    """Hands out names, each once: `h`, then `h_1`, `h_2`; for a path such as `layer.h` the root is counted."""

    def __init__(self, taken: Sequence[str] = ()) -> None:
        self.taken = {*RESERVED, *taken}
        self._next: dict[str, int] = {}

    def __call__(self, wanted: str) -> str:
        name = wanted
        number = self._next.get(wanted, 1)
        while name in self.taken:
            name = f"{wanted}_{number}"
            number += 1
        self._next[wanted] = number
        self.taken.add(name)
        return name

    def letters(self) -> Iterator[str]:
        """a, b, ..., z, aa, ab, ... without what is taken and Python's keywords."""
        for length in itertools.count(1):
            for letters in itertools.product(string.ascii_lowercase, repeat=length):
                name = "".join(letters)
                if name not in self.taken and not keyword.iskeyword(name):
                    self.taken.add(name)
                    yield name


NAMES: Slot[dict[Var, str]] = Slot("names")
"""Those that variables have from text that was read."""


def variable_names(program: Program, sources: Sources) -> dict[Var, str]:
    """A name for every variable of `program`, each given once: those of `own_names`, and letters for the rest."""
    names = own_names(program, sources)
    letters = Unique([*names.values()]).letters()
    inputs = [*program.inputs[program.captured:], *program.inputs[:program.captured]]  # in the order of the text
    for var in itertools.chain(inputs, *(equation.outputs for equation in program.equations)):
        if var not in names:
            names[var] = next(letters)
    return names


def own_names(program: Program, sources: Sources) -> dict[Var, str]:
    """The names that variables have from text that was read, from the signature, and from the user's assignments."""
    names: dict[Var, str] = dict(NAMES.of(program) or {})
    unique = Unique([*names.values()])
    if program.signature is not None:
        for var, name in zip(program.inputs[program.captured:], program.signature.input_names, strict=False):
            if var not in names:
                # An argument may be called as the grammar's words are: it is quoted then.
                names[var] = name if name not in unique.taken - RESERVED else unique(name)
                unique.taken.add(names[var])
    _name_captured(program, sources, names, unique)
    _name_results(program, sources, names, unique)
    return names


def _name_captured(program: Program, sources: Sources, names: dict[Var, str], unique: Unique) -> None:
    """Captured values are called as the expression that uses them calls them, where that is beyond doubt."""
    wanted = {*program.inputs[:program.captured]} - names.keys()
    for equation in program.equations:
        if not wanted:
            return
        free = {atom for atom in equation.inputs if isinstance(atom, Var) and atom in wanted}
        if len(free) == 1 and equation.source is not None:
            name = sources.free_operand(equation.source)
            if name is not None:
                var = free.pop()
                wanted.discard(var)
                names[var] = unique(name)


def _name_results(program: Program, sources: Sources, names: dict[Var, str], unique: Unique) -> None:
    runs = _runs(program.equations)
    first_use = _first_uses(program, runs)
    # What an assignment's first run makes gets the name, and so does what the same operations make in further rounds
    # of a loop. Other operations at that instruction are its derivative.
    first_run: dict[tuple[int, int], list[str]] = {}
    for run, forwards in zip(runs, _forwards(runs), strict=True):
        source = run[0].source
        assigned = None if source is None else sources.targets(source)
        if source is None or assigned is None:
            continue
        operations = [equation.primitive.name for equation in run]
        if len({*operations}) == 1:
            operations = operations[:1]
        named = first_run.setdefault((id(source.code), source.instruction), operations if forwards else [])
        if forwards and named == operations:
            for target, equation in _results(run, assigned, first_use):
                _name_outputs(target, equation, names, unique)


def _forwards(runs: list[list[Equation]]) -> list[bool]:
    """Whether each run was recorded by code that runs forwards, and not by a derivative that walks it backwards.

    Forwards, instructions increase, and where a loop begins anew they increase from there. A derivative goes from
    each instruction to one before it.
    """
    by_code: dict[int, list[tuple[int, int]]] = {}
    for number, run in enumerate(runs):
        if run[0].source is not None:
            by_code.setdefault(id(run[0].source.code), []).append((number, run[0].source.instruction))
    result = [True] * len(runs)
    for steps in by_code.values():
        highest = -1
        for index, (number, instruction) in enumerate(steps):
            if instruction < highest:
                follows = index > 0 and steps[index - 1][1] < instruction
                goes_on = index + 1 < len(steps) and steps[index + 1][1] > instruction
                result[number] = follows or goes_on
            highest = max(highest, instruction)
    return result


def _name_outputs(targets: Targets, equation: Equation, names: dict[Var, str], unique: Unique) -> None:
    outputs = equation.outputs
    if len(targets) == 1 and len(outputs) > 1 and targets[0] is not None:
        root = unique(targets[0])
        targets = tuple(f"{root}[{number}]" for number in range(len(outputs)))
    for var, name in zip(outputs, targets, strict=False):
        if name is not None and var not in names:
            names[var] = unique(name)


def _runs(equations: Sequence[Equation]) -> list[list[Equation]]:
    """Consecutive equations that one instruction of the user's code recorded."""
    def key(equation: Equation) -> tuple[int, int]:
        source: Source | None = equation.source
        return (id(source.code), source.instruction) if source is not None else (0, id(equation))

    return [list(run) for _, run in itertools.groupby(equations, key)]


def _first_uses(program: Program, runs: list[list[Equation]]) -> dict[Var, int]:
    """The number of the first run, other than its own, that uses a variable."""
    made: dict[Var, int] = {}
    used: dict[Var, int] = {}
    for number, run in enumerate(runs):
        for equation in run:
            for atom in equation.inputs:
                if isinstance(atom, Var) and made.get(atom) != number:
                    used.setdefault(atom, number)
            made.update(dict.fromkeys(equation.outputs, number))
    for atom in program.outputs:
        if isinstance(atom, Var):
            used.setdefault(atom, len(runs))
    return used


def _results(run: list[Equation], assigned: Assigned, first_use: dict[Var, int]) -> list[tuple[Targets, Equation]]:
    """Which equations of a run make what the names are assigned to.

    A library function, or a derivative, records several equations at one instruction. The value of the expression is
    what an operation of its name makes, or what later code uses first: the backward pass comes after that.
    """
    names = assigned.names
    if len({equation.primitive for equation in run}) == 1 and len(names) == 1:
        return [(names, equation) for equation in run]  # the rounds of a loop
    used = [equation for equation in run if any(var in first_use for var in equation.outputs)] or run[-1:]
    if len(names) > 1 and len(used) == len(names) and all(len(equation.outputs) == 1 for equation in used):
        return [((name,), equation) for name, equation in zip(names, used, strict=True)]
    fitting = [equation for equation in used if len(names) in (1, len(equation.outputs))]
    alike = [equation for equation in fitting if equation.primitive.name == assigned.operation]
    if not fitting:
        return []
    result = min(alike or fitting, key=lambda equation: min(first_use.get(var, sys.maxsize)
                                                            for var in equation.outputs))
    return [(names, result)]
