"""A program as rules read it: values as numbers, sums, products, exponentials and means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from fxgrad import dtypes
from fxgrad.extend import (
    CALL_NAMES,
    Atom,
    Equation,
    Literal,
    Primitive,
    Program,
    Variable,
    bind,
    definitions,
    primitives,
)

MOST_TERMS = 16
"""Sums and products of more parts are not taken apart."""

_MODEST = 2.0 ** -14
"""Products of numbers between this and its inverse overflow in no dtype."""

_MOVES = (primitives.reshape, primitives.broadcast_to, primitives.broadcast_in_dim)


class Term(NamedTuple):
    """A part of a sum: plus or minus `atom`."""

    sign: int
    atom: Atom


class Product(NamedTuple):
    """`number` times each of `factors` to its power."""

    number: float
    factors: dict[Atom, int]
    cancelled: frozenset[Atom] = frozenset()
    """Atoms that occur as often above as below."""


class ExponentialTerm(NamedTuple):
    """exp(`argument`), which is `number` times `base`; a `number` of 0 is exp(0), the number 1."""

    argument: Atom
    number: float
    base: Atom

    def is_of(self, other: ExponentialTerm, times: float = 1.0) -> bool:
        """Return whether the argument is that of `other` times a number."""
        return self.base == other.base and self.number == other.number * times


class Sum(NamedTuple):
    """The sum, or the mean, of `operand` over `axes`; `moves` bring it into the shape in which it is used."""

    operand: Atom
    axes: tuple[int, ...]
    size: int
    moves: tuple[Equation, ...]
    is_mean: bool

    def moved(self, value: Any) -> Any:
        """Return `value`, of the shape of the bare sum, in the shape in which the sum is used."""
        for move in self.moves:
            value = bind(move.primitive, value, **move.params)[0]
        return value


class ProgramView:
    """A program that rules inspect; `identities` are inputs that are identity matrices."""

    def __init__(self, program: Program, identities: Sequence[Variable] = ()) -> None:
        self.program = program
        self.identities = {*identities}
        self._makers = definitions(program)

    def maker(self, atom: Atom) -> Equation | None:
        """Return the equation that defines a value; None for inputs and numbers."""
        return self._makers.get(atom) if isinstance(atom, Variable) else None

    def of(self, atom: Atom, *primitives: Primitive) -> list[Atom] | None:
        """Return the operands of the operation that defines a value, if it is one of these; else None."""
        maker = self.maker(atom)
        return maker.inputs if maker is not None and maker.primitive in primitives else None

    def number(self, atom: Atom) -> float | None:
        """Return the real number that a value is known to equal in all elements; None if there is none."""
        while (maker := self.maker(atom)) is not None and maker.primitive in (*_MOVES, primitives.convert_element_type):
            atom = maker.inputs[0]
        if isinstance(atom, Literal):
            is_real = atom.dtype.kind in "iuf" or dtypes.is_floating(atom.dtype)
            return float(atom.value) if is_real else None
        return None

    def is_number(self, atom: Atom, number: float) -> bool:
        """Return whether a value is known to be this number."""
        return self.number(atom) == number

    # --- sums and products ------------------------------------------------------------------------------------

    def terms(self, atom: Atom) -> list[Term]:
        """Return the terms of a sum, through nested sums, differences and signs; another value is its own term."""
        result: list[Term] = []
        waiting = [Term(1, atom)]
        while waiting:
            sign, top = waiting.pop()
            maker = self.maker(top)
            if len(result) + len(waiting) >= MOST_TERMS or maker is None:
                result.append(Term(sign, top))
            elif maker.primitive is primitives.neg:
                waiting.append(Term(-sign, maker.inputs[0]))
            elif maker.primitive in (primitives.add, primitives.sub):
                second = sign if maker.primitive is primitives.add else -sign
                waiting += [Term(second, maker.inputs[1]), Term(sign, maker.inputs[0])]
            else:
                result.append(Term(sign, top))
        return result

    def product(self, atom: Atom) -> Product:
        """Return the factors of a product, through nested products, quotients, signs and whole powers."""
        number, factors = 1.0, dict[Atom, int]()
        waiting = [(atom, 1)]
        while waiting:
            top, power = waiting.pop()
            value = self.number(top)
            maker = self.maker(top)
            if value is not None and abs(power) < MOST_TERMS and _MODEST < abs(value) < 1 / _MODEST and (
                    _MODEST < abs(number * value ** power) < 1 / _MODEST):
                number *= value ** power
            elif maker is None or len(factors) + len(waiting) >= MOST_TERMS:
                factors[top] = factors.get(top, 0) + power
            elif maker.primitive in (primitives.mul, primitives.div):
                second = power if maker.primitive is primitives.mul else -power
                waiting += [(maker.inputs[1], second), (maker.inputs[0], power)]
            elif maker.primitive is primitives.neg:
                number *= (-1) ** (power % 2)
                waiting.append((maker.inputs[0], power))
            elif maker.primitive is primitives.square:
                waiting.append((maker.inputs[0], 2 * power))
            elif maker.primitive is primitives.integer_pow:
                waiting.append((maker.inputs[0], maker.params["exponent"] * power))
            else:
                factors[top] = factors.get(top, 0) + power
        return Product(number, {factor: power for factor, power in factors.items() if power},
                       frozenset(factor for factor, power in factors.items() if not power))

    def scaled(self, atom: Atom) -> tuple[float, Atom]:
        """Return a value as a number times another one: 2 and x of `x * 2`, -1 and x of `-x`."""
        number = 1.0
        while (maker := self.maker(atom)) is not None:
            if maker.primitive is primitives.neg:
                number, atom = -number, maker.inputs[0]
                continue
            numbers = [self.number(each) for each in maker.inputs] if maker.primitive in (primitives.mul,
                                                                                          primitives.div) else [None]
            if not all(each is None or _MODEST < abs(each) < 1 / _MODEST for each in numbers):
                break
            if maker.primitive is primitives.mul and numbers[0] is not None:
                number, atom = number * numbers[0], maker.inputs[1]
            elif maker.primitive in (primitives.mul, primitives.div) and numbers[1]:
                number *= numbers[1] if maker.primitive is primitives.mul else 1 / numbers[1]
                atom = maker.inputs[0]
            else:
                break
        return number, atom

    def squared(self, atom: Atom) -> Atom | None:
        """Return the value whose square this one is; None if there is none."""
        maker = self.maker(atom)
        if maker is None:
            return atom if self.is_number(atom, 1.0) else None
        if maker.primitive is primitives.square or (maker.primitive is primitives.integer_pow
                                                    and maker.params["exponent"] == 2) or (
                maker.primitive is primitives.mul and maker.inputs[0] == maker.inputs[1]):
            return maker.inputs[0]
        return None

    # --- exponentials -----------------------------------------------------------------------------------------

    def exponential(self, atom: Atom) -> ExponentialTerm | None:
        """Return the exponential term of a value; None if it is none, or one with its maximum subtracted."""
        operands = self.of(atom, primitives.exp)
        if operands is None or self.has_maximum_subtracted(operands[0]):
            return None
        return ExponentialTerm(operands[0], *self.scaled(operands[0]))

    def has_maximum_subtracted(self, atom: Atom) -> bool:
        """Return whether a maximum was already subtracted, so that nothing overflows."""
        operands = self.of(atom, primitives.sub)
        if operands is None:
            return False
        maker = self.maker(operands[1])
        while maker is not None and maker.primitive in (*_MOVES, primitives.stop_gradient, primitives.select_n,
                                                        primitives.max):
            maker = next((found for atom in reversed(maker.inputs) if self.number(atom) is None
                          and (found := self.maker(atom)) is not None), None)
        return maker is not None and maker.primitive is primitives.reduce_max

    # --- reductions -------------------------------------------------------------------------------------------

    def sum(self, atom: Atom) -> Sum | None:
        """Return the sum or the mean that a value is; None if it is neither."""
        moves: list[Equation] = []
        maker = self.maker(atom)
        while maker is not None and maker.primitive in _MOVES:
            moves.insert(0, maker)
            maker = self.maker(maker.inputs[0])
        if maker is None:
            return None
        if maker.primitive is primitives.reduce_sum:
            axes = tuple(maker.params["axes"])
            shape = maker.inputs[0].aval.shape
            return Sum(maker.inputs[0], axes, math.prod(shape[axis] for axis in axes), tuple(moves), is_mean=False)
        if maker.primitive in (primitives.div, primitives.mul):
            return self._as_mean(maker, moves)
        called = [region.program for region in maker.regions if region.role == "inline"]
        if called and (name := CALL_NAMES.of(called[0])) is not None and name.is_library and name.name == "mean":
            inner = ProgramView(called[0]).sum(called[0].outputs[0])
            if inner is not None and inner.is_mean and inner.operand is called[0].inputs[-1]:
                return inner._replace(operand=maker.inputs[-1], moves=(*inner.moves, *moves))
        return None

    def _as_mean(self, maker: Equation, moves: Sequence[Equation]) -> Sum | None:
        """Return the mean, if the value is a sum divided by the number of its terms."""
        by = self.number(maker.inputs[1])
        total = self.sum(maker.inputs[0]) if by else None
        if total is None or total.is_mean or not by:
            return None
        count = by if maker.primitive is primitives.div else 1 / by
        return total._replace(moves=(*total.moves, *moves), is_mean=True) if round(count) == total.size and (
            abs(count - total.size) <= 1e-6 * total.size) else None
