"""Where the values lie that the copies of a block read (entries of arrays, results of loops), and an order for them."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from fxgrad.engine.analyses.repeats import Output, Repeat, Repeats, Row
from fxgrad.engine.core.program import Atom, Equation, Program, Variable

Chosen = list[tuple[Repeat, str]]
"""Repeats, each with its form: "scan", "call", or "" to leave it."""


def output_of(copy: Sequence[Equation], output: Output) -> Variable:
    """Return the variable that an output of the block is in one copy."""
    return copy[output.place].outputs[output.number]


class Run(NamedTuple):
    """Entries `first`, `first + step`, ... of an array along an axis, one for each copy; `step` is 1 or -1."""

    base: Variable
    axis: int
    first: int
    step: int

    def is_whole(self, order: Order) -> bool:
        """Return whether a loop in this order takes the array as it is."""
        return self.axis == 0 and self.base.aval.shape[0] == order.length and (self.step > 0) == order.forward


class Order(NamedTuple):
    """The number of copies, and whether a loop over them counts up."""

    length: int
    forward: bool

    def of_copies(self, first: int, step: int) -> tuple[int, int]:
        """Return first number and difference, by index, of numbers that are `first + step * copy`."""
        return (first, step) if self.forward else (first + step * (self.length - 1), -step)


class Stacks:
    """Where the values lie that differ by copy: as entries of one array, or apart.

    Loops stack what they compute: `note` enters their repeats.
    """

    def __init__(self, found: Repeats) -> None:
        self.rows = found.rows
        self._loops: list[Repeat] = []
        self._made: dict[Atom, tuple[int, Output, int]] = {}
        self._entered: dict[Atom, list[tuple[int, int, int]]] = {}

    def note(self, repeat: Repeat, how: str, again: Repeat | None = None) -> str:
        """Note the choice for a repeat, in place of that for `again`; return it."""
        if how == "scan":
            if again is None:
                self._loops.append(repeat)
            loop = len(self._loops) - 1 if again is None else next(
                number for number, other in enumerate(self._loops) if other is again)
            self._loops[loop] = repeat
            for copy, equations in enumerate(repeat.copies):
                for place, equation in enumerate(equations):
                    self._made.update((var, (loop, Output(place, number), copy))
                                      for number, var in enumerate(equation.outputs))
                for number in range(len(repeat.flow.carried)):
                    self._entered.setdefault(state_entering(repeat, number, copy), []).append((loop, number, copy))
        return how

    def states_of(self, column: Sequence[Atom]) -> tuple[Repeat, int] | None:
        """Return the loop and the carried value whose states before each copy are the values, if nothing else is."""
        run = self._run_of_states(column) if self.place_of(column) == "states" else None
        return None if run is None else (self._loops[run[0]], run[1])

    def _run_of_states(self, column: Sequence[Atom]) -> tuple[int, int, list[int], int] | None:
        """Return the loop, the carried value, the copies and the step between them, if the values enter its copies."""
        for loop, number, copy in self._entered.get(column[0], ()):
            repeat = self._loops[loop]
            for step in (1, -1):
                copies = [*range(copy, copy + step * len(column), step)]
                if all(0 <= each < len(repeat.copies) and state_entering(repeat, number, each) is atom
                       for each, atom in zip(copies, column, strict=True)):
                    return loop, number, copies, step
        return None

    def are_stacked(self, repeat: Repeat) -> bool:
        """Return whether all values that differ by copy are scalars, or the entries of one array, in order or reverse.

        Such an array is one that the caller has, or that a loop of the copies of another block makes.
        """
        return all(map(self.place_of, repeat.flow.by_copy))

    def place_of(self, column: Sequence[Atom]) -> str:
        """Return where the values of one input lie in a row: as "scalars", "rows", "results", "states"; or ""."""
        if not column[0].aval.shape:
            return "scalars"
        if run_of_rows(self._rows_of(column)) is not None:
            return "rows"
        if self._run_of_results(column) is not None:
            return "results"
        return "" if self._run_of_states(column) is None else "states"

    def _rows_of(self, column: Sequence[Atom]) -> list[Row | None]:
        return [self.rows.get(atom) for atom in column]

    def _run_of_results(self, column: Sequence[Atom]) -> tuple[int, Output, list[int], int] | None:
        """Return the loop, its output, the copies and the step between them, if the values are results of a loop."""
        made = [self._made.get(atom) for atom in column]
        first = made[0]
        if first is None or any(each is None or each[:2] != first[:2] for each in made):
            return None
        copies = [each[2] for each in made if each is not None]
        step = step_of(copies)
        return None if step is None else (*first[:2], copies, step)

    def guess(self, column: Sequence[Atom], side: int) -> Atom | None:
        """Return the value after the last one of a column (`side` is 1), or before the first (-1), if it is known."""
        run = run_of_rows(self._rows_of(column))
        if run is not None:
            index = run.first + run.step * (len(column) if side > 0 else -1)
            row = self.rows[column[0]]
            if not 0 <= index < run.base.aval.shape[run.axis]:
                return None
            var = Variable(column[0].aval)
            self.rows[var] = row._replace(place=index)
            return var
        results = self._run_of_results(column)
        if results is not None:  # not as states, too: then a loop would stack both
            loop, output, copies, step = results
            index = copies[-1] + step if side > 0 else copies[0] - step
            known = self._loops[loop].copies
            return output_of(known[index], output) if 0 <= index < len(known) else None
        states = self._run_of_states(column)
        if states is not None:
            loop, number, copies, step = states
            index = copies[-1] + step if side > 0 else copies[0] - step
            known = self._loops[loop].copies
            return state_entering(self._loops[loop], number, index) if 0 <= index < len(known) else None
        return None

    def reads_itself(self, repeat: Repeat) -> bool:
        """Return whether copies read values of other copies than the one before."""
        made = {var for equations in repeat.copies for equation in equations for var in equation.outputs}
        return any(not made.isdisjoint(column) for column in repeat.flow.by_copy)


def state_entering(repeat: Repeat, number: int, copy: int) -> Atom:
    """Return a carried value as it enters a copy."""
    carry = repeat.flow.carried[number]
    return output_of(repeat.copies[copy - 1], carry.output) if copy else carry.first


def step_of(places: Sequence[int]) -> int | None:
    """Return 1 or -1 if the numbers go up or down by one, or None."""
    for step in (1, -1):
        if all(other - one == step for one, other in itertools.pairwise(places)):
            return step
    return None


def run_of_rows(rows: Sequence[Row | None]) -> Run | None:
    """Return the run that entries are, or None."""
    first = rows[0]
    if first is None or any(row is None or row[:2] != first[:2] or row.shape != first.shape for row in rows):
        return None
    step = step_of([row.place for row in rows if row is not None])
    return None if step is None else Run(first.base, first.axis, first.place, step)


def reads_of(program: Program, rows: dict[Atom, Row]) -> set[Equation]:
    """Return the equations that read entries of arrays and nothing else."""
    return {equation for equation in program.equations if equation.outputs[:1] and equation.outputs[0] in rows}


def order_equations(equations: Sequence[Equation], rows: dict[Atom, Row], chosen: Chosen) -> list[Equation] | None:
    """Return the equations in an order in which loops, and calls, stand in one place; None if there is none.

    It is the given order as far as possible.
    """
    position = {equation: place for place, equation in enumerate(equations)}
    groups: list[list[Equation]] = []
    for repeat, how in chosen:
        if how:
            groups += [[each for copy in repeat.copies for each in copy]] if how == "scan" else repeat.copies
    node: dict[Equation, int] = {equation: number for number, group in enumerate(groups) for equation in group}
    for equation in equations:
        if equation not in node:
            node[equation] = len(groups)
            groups.append([equation])
    maker: dict[Atom, int] = {var: node[equation] for equation in node for var in equation.outputs}
    after: list[list[int]] = [[] for _ in groups]
    missing = [0] * len(groups)
    for number, group in enumerate(groups):
        read = {atom for equation in group for atom in equation.inputs}
        read = {rows[atom].base if atom in rows else atom for atom in read}
        for before in {maker[atom] for atom in read if atom in maker} - {number}:
            after[before].append(number)
            missing[number] += 1
    priority = [max(position.get(equation, -1) for equation in group) for group in groups]
    ready = [(priority[number], number) for number, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    result: list[Equation] = []
    count = 0
    while ready:
        _, number = heapq.heappop(ready)
        result += groups[number]
        count += 1
        for other in after[number]:
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(ready, (priority[other], other))
    return result if count == len(groups) else None
