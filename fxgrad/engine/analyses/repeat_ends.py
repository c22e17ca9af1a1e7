"""Copies at the ends of a repeat that compute only a part of its block, such as a first layer without a derivative.

The first layer of a network is seldom differentiated in its input, and the last step back computes no cotangent of it.
Such copies are blocks of which some equations are missing. Computing these too, without anyone using the results, makes
them whole: a loop then takes them along, and they are not compiled on their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from fxgrad.engine.analyses.repeats import BlockFlow, Carry, Output, Repeat, symbols_of
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.program import Atom, Equation, Variable
from fxgrad.engine.ops.arithmetic import div_p, mul_p, neg_p, sub_p
from fxgrad.engine.ops.pointwise import add_p

Guess = Callable[[Sequence[Atom], int], "Atom | None"]
"""(the values of an input by copy, 1 or -1) -> the value expected after the last or before the first copy, or None."""
Zeros = Callable[[Aval], "Atom | None"]
"""Makes an array of what can be added without a change, -0 for floats; None if the dtype has none."""
_LEAST_SHARE = 0.25
"""The part of the equations of the block that a copy must have."""
_MOST_WORK = 0.05
"""The part of the operations of all copies that may be added."""


class _Signed(NamedTuple):
    """A value of the program, or its negative."""

    atom: Atom
    sign: int

    def negated(self) -> _Signed:
        """Return the negative."""
        return _Signed(self.atom, -self.sign)


_Pending = tuple[Output, _Signed]
"""An output of the block, and the value that it has to be in the copy."""


class Surroundings:
    """The equations of a program by symbol, and who makes and reads each value; `taken` ones belong to repeats.

    `kept` are the values that others than the equations read. The tables are made at their first use: most programs
    have no loop with partial copies at its ends.
    """

    def __init__(self, equations: Sequence[Equation], taken: set[Equation], kept: set[Atom]) -> None:
        self._equations, self.taken, self.kept = equations, taken, kept

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

    def accept(self, repeat: Repeat, replaced: set[Equation]) -> None:
        """Note that the copies of a repeat are taken, and that equations are replaced."""
        self.taken.update(equation for equations in repeat.copies for equation in equations)
        for equation in replaced:
            for atom in dict.fromkeys(equation.inputs):
                self.readers[atom].remove(equation)


class _Copy:
    """One copy at an end, as far as it is known: the values at each place of the block, and the inputs.

    A value is an atom of the program and a sign, since simplification moves signs: where the block adds -x to a sum,
    the first copy may have the sum of nothing, and -x. Such a place gets a new equation (it is in `values` and not in
    `kept`), in place of the `replaced` equations.
    """

    def __init__(self, repeat: Repeat, around: Surroundings, zeros: Zeros) -> None:
        self.flow, self.block, self.around, self.zeros = repeat.flow, repeat.block, around, zeros
        self.values: dict[int, list[_Signed]] = {}
        self.kept: dict[int, Equation] = {}
        self.inputs: dict[int, Atom] = dict(enumerate(self.flow.shared))
        self.replaced: set[Equation] = set()
        self._used: set[Equation] = set()
        self._zeros: dict[int, Atom] = {}

    def _operands_match(self, place: int, values: Sequence[_Signed], expand: list[_Pending] | None) -> bool:
        """Return whether the operands of a place can be these values.

        Notes those that are inputs of the block, and adds those that are yet to be matched to `expand`.
        """
        inputs: dict[int, Atom] = {}
        further: list[_Pending] = []
        for operand, value in zip(self.flow.operands[place], values, strict=True):
            if isinstance(operand, int):
                if value.sign < 0 or self.inputs.get(operand, inputs.get(operand, value.atom)) != value.atom:
                    return False
                inputs[operand] = value.atom
            elif isinstance(operand, Literal):
                if value != (operand, 1):
                    return False
            elif operand.place in self.values:
                if self.values[operand.place][operand.number] != value:
                    return False
            elif expand is None:
                return False
            else:
                further.append((operand, value))
        self.inputs.update(inputs)
        if expand is not None:
            expand += further
        return True

    def _takes(self, place: int, equation: Equation, sign: int, expand: list[_Pending] | None) -> bool:
        """Return whether an equation computes what the block computes at a place, or its negative."""
        if not self._is_free(equation) or self.around.symbol.get(equation) != self.around.symbol[self.block[place]]:
            return False
        values = [_Signed(atom, 1) for atom in equation.inputs]
        if sign < 0:
            inner = [number for number, operand in enumerate(self.flow.operands[place]) if isinstance(operand, Output)]
            if equation.primitive not in (mul_p, div_p) or len(inner) != 1:
                return False
            values[inner[0]] = values[inner[0]]._replace(sign=-1)
        if not self._operands_match(place, values, expand):
            return False
        self.values[place] = [_Signed(var, sign) for var in equation.outputs]
        self._used.add(equation)
        if sign > 0:
            self.kept[place] = equation
        else:
            self.replaced.add(equation)
        return True

    def _is_free(self, equation: Equation) -> bool:
        return not (equation in self.around.taken or equation in self._used)

    def match_back(self, output: Output, atom: Atom) -> bool:
        """Match the equations that compute `atom` to those that compute an output of the block."""
        pending: list[_Pending] = [(output, _Signed(atom, 1))]
        while pending:
            output, value = pending.pop()
            if output.place in self.values:
                if self.values[output.place][output.number] != value:
                    return False
            elif not self._matches(output, value, pending):
                return False
        return True

    def _matches(self, output: Output, value: _Signed, expand: list[_Pending]) -> bool:
        maker, number = self.around.makers.get(value.atom, (None, -1))
        if maker is not None and number == output.number and self._takes(output.place, maker, value.sign, expand):
            return True
        if maker is not None and self._is_free(maker):
            if maker.primitive is neg_p:
                self.replaced.add(maker)
                self._used.add(maker)
                expand.append((output, _Signed(maker.inputs[0], -value.sign)))
                return True
            if value.sign > 0 and self._is_other_sum(output.place, maker, expand):
                return True
        return self._is_first_sum(output.place, value, expand)

    def _is_other_sum(self, place: int, equation: Equation, expand: list[_Pending]) -> bool:
        """Return whether an equation is a difference where the block has the sum, or the reverse, of negated values."""
        model = self.block[place]
        if {model.primitive, equation.primitive} != {add_p, sub_p} or (
                [atom.aval for atom in model.inputs] != [atom.aval for atom in equation.inputs]):
            return False
        first, second = equation.inputs
        if not self._operands_match(place, [_Signed(first, 1), _Signed(second, -1)], expand):
            return False
        self.values[place] = [_Signed(equation.outputs[0], 1)]
        self._used.add(equation)
        self.replaced.add(equation)
        return True

    def _is_first_sum(self, place: int, value: _Signed, expand: list[_Pending]) -> bool:
        """Return whether the block adds to a carried value that can be 0, so that the first copy adds nothing."""
        model, operands = self.block[place], self.flow.operands[place]
        if model.primitive not in (add_p, sub_p):
            return False
        for number, other in ((0, 1), (1, 0)) if model.primitive is add_p else ((0, 1),):
            carried, term = operands[number], operands[other]
            place_of_carry = carried - len(self.flow.shared) if isinstance(carried, int) else -1
            if not isinstance(carried, int) or not isinstance(term, Output) or not (
                    0 <= place_of_carry < len(self.flow.carried)):
                continue
            aval = self.flow.carried[place_of_carry].first.aval
            if aval != model.outputs[0].aval or aval != model.inputs[other].aval or (carried in self.inputs and (
                    self.inputs[carried] is not self._zeros.get(carried))):
                continue
            if carried not in self._zeros:
                zero = self.zeros(aval)
                if zero is None:
                    return False
                self._zeros[carried] = self.inputs[carried] = zero
            self.values[place] = [value]
            expand.append((term, value if model.primitive is add_p else value.negated()))
            return True
        return False

    def match_forward(self) -> None:
        """Match further equations, whose operands are known or inputs that differ by copy."""
        for place, operands in enumerate(self.flow.operands):
            if place in self.values:
                continue
            atoms = [self.inputs.get(operand) if isinstance(operand, int) else operand if isinstance(operand, Literal)
                     else self.values[operand.place][operand.number].atom if operand.place in self.values else None
                     for operand in operands]
            known = next((atom for atom in atoms if type(atom) is Variable), None)
            for equation in () if known is None else self.around.readers.get(known, ()):
                if self._takes(place, equation, 1, None):
                    break

    def complete(self, fill: Callable[[int], Atom | None]) -> list[Equation] | None:
        """Return all equations of the copy, those that are missing made anew; None if an input is not known."""
        equations: list[Equation] = []
        for place, (model, operands) in enumerate(zip(self.block, self.flow.operands, strict=True)):
            if place in self.kept:
                equations.append(self.kept[place])
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


    def can_replace(self, copies: Sequence[Sequence[Equation]]) -> bool:
        """Return whether only this copy, and those after it, as a carried value, read what is replaced."""
        flow = self.flow
        readers = {*self.kept.values(), *self.replaced, *copies[0]}
        elsewhere = {*flow.shared, *(atom for column in flow.by_copy for atom in column)}
        return all(var not in self.around.kept and var not in elsewhere and
                   readers.issuperset(self.around.readers.get(var, ()))
                   for equation in self.replaced for var in equation.outputs)


def with_first_copy(repeat: Repeat, around: Surroundings, guess: Guess, zeros: Zeros,
                    ) -> tuple[Repeat, set[Equation]] | None:
    """Return the repeat with the copy before its first one, and what that replaces; None if there is none."""
    flow, copy = repeat.flow, _Copy(repeat, around, zeros)
    if not flow.carried or not all(copy.match_back(carry.output, carry.first) for carry in flow.carried):
        return None
    copy.match_forward()
    found = _completed(copy, len(repeat.copies), guess, -1) if copy.can_replace(repeat.copies) else None
    if found is None:
        return None
    equations, carried, by_copy = found
    return Repeat([equations, *repeat.copies], BlockFlow(
        flow.operands, flow.shared,
        [Carry(atom, carry.output) for atom, carry in zip(carried, flow.carried, strict=True)],
        [(atom, *column) for atom, column in zip(by_copy, flow.by_copy, strict=True)])), copy.replaced


def with_last_copy(repeat: Repeat, around: Surroundings, guess: Guess, zeros: Zeros,
                   ) -> tuple[Repeat, set[Equation]] | None:
    """Return the repeat with the copy after its last one, which replaces no equations; None if there is none."""
    flow, copy = repeat.flow, _Copy(repeat, around, zeros)
    for number, carry in enumerate(flow.carried, len(flow.shared)):
        copy.inputs[number] = repeat.copies[-1][carry.output.place].outputs[carry.output.number]
    copy.match_forward()
    found = _completed(copy, len(repeat.copies), guess, 1)
    if found is None:
        return None
    equations, _, by_copy = found
    return Repeat([*repeat.copies, equations], BlockFlow(
        flow.operands, flow.shared, flow.carried,
        [(*column, atom) for atom, column in zip(by_copy, flow.by_copy, strict=True)])), copy.replaced


def _completed(copy: _Copy, copies: int, guess: Guess, step: int,
               ) -> tuple[list[Equation], list[Atom], list[Atom]] | None:
    """Return the equations of a copy beside so many `copies`, its carried inputs and those by copy.

    None if it has too little of the block, or completing it would take too long.
    """
    flow = copy.flow
    if len(copy.values) < _LEAST_SHARE * len(copy.block):
        return None
    work = [equation.cost.flops for equation in copy.block]
    added = sum(flops for place, flops in enumerate(work) if place not in copy.values)
    if added > _MOST_WORK * copies * sum(work):
        return None
    begin = len(flow.shared)
    middle = begin + len(flow.carried)

    def fill(number: int) -> Atom | None:
        if number >= middle:
            column = flow.by_copy[number - middle]
            return guess(column, step) or copy.zeros(column[0].aval)
        return copy.zeros(flow.carried[number - begin].first.aval)

    equations = copy.complete(fill)
    if equations is None or not {*copy.inputs.values()}.isdisjoint(
            var for equation in equations for var in equation.outputs):  # equal values may be one in this copy alone
        return None
    count = middle + len(flow.by_copy)
    return (equations, [copy.inputs[number] for number in range(begin, middle)],
            [copy.inputs[number] for number in range(middle, count)])
