"""Find a pattern in a program: the same operations on the same structure of operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fxgrad.extend import Atom, Equation, Literal, Program, Variable, definitions, is_effectful
from fxgrad.text.equality import same_value


class Match(NamedTuple):
    """An occurrence of a pattern: its `equations` in order, the atoms of its arguments, and its outputs.

    `exchanged` is how many of its operations have their operands the other way round there.
    """

    equations: tuple[Equation, ...]
    operands: tuple[Atom, ...]
    outputs: tuple[Variable, ...]
    exchanged: int = 0


class _State(NamedTuple):
    """A partial match: the atoms bound to atoms of the pattern, and the equations bound to its equations."""

    atoms: dict[Atom, Atom]
    equations: dict[int, Equation]
    exchanged: int


class MatchSites:
    """A program in which patterns are searched."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._makers = definitions(program)
        self._order = {id(equation): number for number, equation in enumerate(program.equations)}
        self.uses: dict[Variable, list[Equation]] = {}
        for equation in program.equations:
            for atom in equation.inputs:
                if isinstance(atom, Variable):
                    self.uses.setdefault(atom, []).append(equation)

    def number(self, equation: Equation) -> int:
        """Return the position of the equation."""
        return self._order[id(equation)]

    def made_at(self, atom: Atom) -> int:
        """Return the position of the equation that defines a value; -1 for arguments and numbers."""
        return self.number(self._makers[atom]) if isinstance(atom, Variable) and atom in self._makers else -1

    def matches(self, pattern: Program) -> Iterator[Match]:
        """Yield all matches of `pattern`, which may overlap, in the order of the definition of its first output."""
        makers = definitions(pattern)
        for state in self._outputs(pattern, makers, list(pattern.outputs), _State({}, {}, 0)):
            found = tuple(sorted(state.equations.values(), key=self.number))
            yield Match(found, tuple(state.atoms[var] for var in pattern.inputs),
                        tuple(state.atoms[atom] for atom in pattern.outputs),  # type: ignore[misc]
                        state.exchanged)

    def _outputs(self, pattern: Program, makers: Mapping[Variable, Equation], outputs: Sequence[Atom], state: _State,
                 ) -> Iterator[_State]:
        """Yield the extensions of a partial match to the remaining outputs of the pattern."""
        if not outputs:
            yield state
            return
        first, *rest = outputs
        assert isinstance(first, Variable)
        if first in state.atoms:
            yield from self._outputs(pattern, makers, rest, state)
            return
        wanted = makers[first]
        number = wanted.outputs.index(first)
        for equation in self.program.equations:
            if equation.primitive is wanted.primitive and len(equation.outputs) == len(wanted.outputs):
                for found in self._all([(first, equation.outputs[number])], makers, state):
                    yield from self._outputs(pattern, makers, rest, found)

    def _all(self, goals: list[tuple[Atom, Atom]], makers: Mapping[Variable, Equation],
             state: _State) -> Iterator[_State]:
        """Yield the extensions of a partial match that bind every pair of a pattern atom and a program atom."""
        if not goals:
            yield state
            return
        (wanted, atom), *rest = goals
        if isinstance(wanted, Literal):
            # Weak types of the pattern match strong ones, as rules write numbers.
            if (isinstance(atom, Literal) and wanted.dtype == atom.dtype
                    and wanted.value.tobytes() == atom.value.tobytes()):
                yield from self._all(rest, makers, state)
            return
        known = state.atoms.get(wanted)
        if known is not None:
            if known is atom or (isinstance(known, Literal) and known == atom):
                yield from self._all(rest, makers, state)
            return
        if wanted.aval != atom.aval:
            return
        bound = state._replace(atoms={**state.atoms, wanted: atom})
        if wanted not in makers:
            yield from self._all(rest, makers, bound)
            return
        equation = self._makers.get(atom) if isinstance(atom, Variable) else None
        if equation is None or not _is_alike(makers[wanted], equation, wanted, atom):
            return
        before = state.equations.get(id(makers[wanted]))
        if before is not None:
            if before is equation:
                yield from self._all(rest, makers, bound)
            return
        bound = bound._replace(equations={**bound.equations, id(makers[wanted]): equation})
        operands = makers[wanted].inputs
        orders = [equation.inputs, equation.inputs[::-1]]
        for exchanged, order in enumerate(orders if equation.primitive.commutative else orders[:1]):
            yield from self._all([*zip(operands, order, strict=True), *rest], makers,
                                 bound._replace(exchanged=bound.exchanged + exchanged))


def _is_alike(wanted: Equation, equation: Equation, var: Variable, atom: Atom) -> bool:
    """Return whether an equation has the operation of the pattern's, and defines the value at the same output."""
    return (wanted.primitive is equation.primitive and len(wanted.inputs) == len(equation.inputs)
            and len(wanted.outputs) == len(equation.outputs) and equation.outputs[wanted.outputs.index(var)] is atom
            and wanted.params.keys() == equation.params.keys()
            and not is_effectful(equation.primitive, equation.params)
            and all(same_value(value, equation.params[name]) for name, value in wanted.params.items()))
