"""Copies at the ends of a repeat that compute only a part of its block, such as a first layer without a derivative.

The first layer of a network is seldom differentiated in its input, and the last step back computes no cotangent of it.
Such copies are blocks of which some equations are missing. Computing these too, without anyone using the results, makes
them whole: a loop then takes them along, and they are not compiled on their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from fxgrad.engine.analyses.repeats import BlockFlow, Carry, Output, Repeat, symbols_of
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.program import Atom, Equation, Variable

Guess = Callable[[Sequence[Atom], int], "Atom | None"]
"""(the values of an input by copy, 1 or -1) -> the value expected after the last or before the first copy, or None."""
Zeros = Callable[[Aval], "Atom | None"]
"""Makes an array for values that nobody uses."""
_LEAST_SHARE = 0.25
"""The part of the equations of the block that a copy must have."""
_MOST_WORK = 0.05
"""The part of the operations of all copies that may be added."""


class Surroundings:
    """The equations of a program by symbol, and who makes and reads each value; `taken` ones belong to repeats.

    The tables are made at their first use: most programs have no loop with partial copies at its ends.
    """

    def __init__(self, equations: Sequence[Equation], taken: set[Equation]) -> None:
        self._equations, self.taken = equations, taken

    @cached_property
    def symbol(self) -> dict[Equation, int]:
        return dict(zip(self._equations, symbols_of(self._equations).tolist(), strict=True))

    @cached_property
    def makers(self) -> dict[Atom, tuple[Equation, int]]:
        return {var: (equation, number) for equation in self._equations
                for number, var in enumerate(equation.outputs)}

    @cached_property
    def readers(self) -> dict[Atom, list[Equation]]:
        readers: dict[Atom, list[Equation]] = {}
        for equation in self._equations:
            for atom in dict.fromkeys(equation.inputs):
                readers.setdefault(atom, []).append(equation)
        return readers


class _Copy:
    """One copy at an end, as far as it is known: the equation at each place of the block, and the inputs."""

    def __init__(self, repeat: Repeat, around: Surroundings) -> None:
        self.flow, self.block, self.around = repeat.flow, repeat.block, around
        self.matched: dict[int, Equation] = {}
        self.inputs: dict[int, Atom] = dict(enumerate(self.flow.shared))
        self.used: set[Equation] = set()

    def _takes(self, place: int, equation: Equation, expand: list[tuple[int, Equation]] | None) -> bool:
        """Return whether an equation has the operands of the block's; note inputs, and makers of others to `expand`."""
        if equation in self.around.taken or equation in self.used or (
                self.around.symbol.get(equation) != self.around.symbol[self.block[place]]):
            return False
        inputs: dict[int, Atom] = {}
        for operand, atom in zip(self.flow.operands[place], equation.inputs, strict=True):
            if isinstance(operand, int):
                if self.inputs.get(operand, inputs.get(operand, atom)) != atom:
                    return False
                inputs[operand] = atom
            elif isinstance(operand, Literal):
                if operand != atom:
                    return False
            elif operand.place in self.matched:
                if self.matched[operand.place].outputs[operand.number] is not atom:
                    return False
            else:
                maker, number = self.around.makers.get(atom, (None, -1))
                if expand is None or maker is None or number != operand.number:
                    return False
                expand.append((operand.place, maker))
        self.inputs.update(inputs)
        self.matched[place] = equation
        self.used.add(equation)
        return True

    def match_back(self, output: Output, atom: Atom) -> bool:
        """Match the equations that compute `atom` to those that compute an output of the block."""
        maker, number = self.around.makers.get(atom, (None, -1))
        if maker is None or number != output.number:
            return False
        pending = [(output.place, maker)]
        while pending:
            place, equation = pending.pop()
            known = self.matched.get(place)
            if known is not None:
                if known is not equation:
                    return False
            elif not self._takes(place, equation, pending):
                return False
        return True

    def match_forward(self) -> None:
        """Match further equations, whose operands are known or inputs that differ by copy."""
        for place, operands in enumerate(self.flow.operands):
            if place in self.matched:
                continue
            atoms = [self.inputs.get(operand) if isinstance(operand, int) else operand if isinstance(operand, Literal)
                     else self.matched[operand.place].outputs[operand.number] if operand.place in self.matched else None
                     for operand in operands]
            known = next((atom for atom in atoms if type(atom) is Variable), None)
            for equation in () if known is None else self.around.readers.get(known, ()):
                if self._takes(place, equation, None):
                    break

    def complete(self, fill: Callable[[int], Atom | None]) -> list[Equation] | None:
        """Return all equations of the copy, those that are missing made anew; None if an input is not known."""
        equations: list[Equation] = []
        for place, (model, operands) in enumerate(zip(self.block, self.flow.operands, strict=True)):
            if place in self.matched:
                equations.append(self.matched[place])
                continue
            atoms: list[Atom] = []
            for operand in operands:
                if isinstance(operand, int):
                    found = self.inputs.get(operand)
                    atom = fill(operand) if found is None else found
                    if atom is None:
                        return None
                    self.inputs[operand] = atom
                    atoms.append(atom)
                else:
                    atoms.append(operand if isinstance(operand, Literal) else
                                 equations[operand.place].outputs[operand.number])
            equations.append(Equation(model.primitive, atoms, model.params,
                                      [Variable(var.aval) for var in model.outputs], model.source))
        for number in range(len(self.flow.shared) + len(self.flow.carried) + len(self.flow.by_copy)):
            if number not in self.inputs:
                atom = fill(number)
                if atom is None:
                    return None
                self.inputs[number] = atom
        return equations


def with_first_copy(repeat: Repeat, around: Surroundings, guess: Guess, zeros: Zeros) -> Repeat | None:
    """Return the repeat with the copy before its first one, or None if there is none."""
    flow, copy = repeat.flow, _Copy(repeat, around)
    if not flow.carried or not all(copy.match_back(carry.output, carry.first) for carry in flow.carried):
        return None
    copy.match_forward()
    found = _completed(copy, len(repeat.copies), guess, zeros, -1)
    if found is None:
        return None
    equations, carried, by_copy = found
    return Repeat([equations, *repeat.copies], BlockFlow(
        flow.operands, flow.shared,
        [Carry(atom, carry.output) for atom, carry in zip(carried, flow.carried, strict=True)],
        [(atom, *column) for atom, column in zip(by_copy, flow.by_copy, strict=True)]))


def with_last_copy(repeat: Repeat, around: Surroundings, guess: Guess, zeros: Zeros) -> Repeat | None:
    """Return the repeat with the copy after its last one, or None if there is none."""
    flow, copy = repeat.flow, _Copy(repeat, around)
    for number, carry in enumerate(flow.carried, len(flow.shared)):
        copy.inputs[number] = repeat.copies[-1][carry.output.place].outputs[carry.output.number]
    copy.match_forward()
    found = _completed(copy, len(repeat.copies), guess, zeros, 1)
    if found is None:
        return None
    equations, _, by_copy = found
    return Repeat([*repeat.copies, equations], BlockFlow(
        flow.operands, flow.shared, flow.carried,
        [(*column, atom) for atom, column in zip(by_copy, flow.by_copy, strict=True)]))


def _completed(copy: _Copy, copies: int, guess: Guess, zeros: Zeros, step: int,
               ) -> tuple[list[Equation], list[Atom], list[Atom]] | None:
    """Return the equations of a copy beside so many `copies`, its carried inputs and those by copy.

    None if it has too little of the block, or completing it would take too long.
    """
    flow = copy.flow
    if len(copy.matched) < _LEAST_SHARE * len(copy.block):
        return None
    work = [equation.cost.flops for equation in copy.block]
    added = sum(flops for place, flops in enumerate(work) if place not in copy.matched)
    if added > _MOST_WORK * copies * sum(work):
        return None
    begin = len(flow.shared)
    middle = begin + len(flow.carried)

    def fill(number: int) -> Atom | None:
        if number >= middle:
            column = flow.by_copy[number - middle]
            return guess(column, step) or zeros(column[0].aval)
        return zeros(flow.carried[number - begin].first.aval)

    equations = copy.complete(fill)
    if equations is None:
        return None
    count = middle + len(flow.by_copy)
    return (equations, [copy.inputs[number] for number in range(begin, middle)],
            [copy.inputs[number] for number in range(middle, count)])
