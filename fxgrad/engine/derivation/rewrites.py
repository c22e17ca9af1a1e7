"""Exact algebraic rewrites: each replaces an equation of one primitive, and may read its operands' definitions.

No rewrite changes a NaN, an infinity, the sign of a zero or a rounding. The rewrites of a primitive stand beside its
record, entered in `rewrites`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine.core.analysis import Collection
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Atom, Equation, Variable
from fxgrad.engine.tracing.tape import Tape
from fxgrad.engine.tracing.tracer import Tracer


class RecordedDefinitions:
    """The defining equation of each value recorded so far, for rewrites that look one step back.

    `notable` values were computed by a primitive that some rewrite matches.
    """

    __slots__ = ("made", "notable")

    def __init__(self) -> None:
        self.made: dict[Atom, Equation] = {}
        self.notable: set[Atom] = set()

    def note(self, equation: Equation) -> None:
        """Enter an equation of the program."""
        outputs = equation.outputs
        for output in outputs:
            self.made[output] = equation
        if equation.primitive in rewrites.makers:
            self.notable.update(outputs)

    def inputs_if(self, value: Any, primitive: Primitive) -> list[Any] | None:
        """Return the inputs of the equation that made `value`, if `primitive` made it."""
        made = self.made.get(value.variable) if type(value) is Tracer else None
        if made is None or made.primitive is not primitive:
            return None
        return [Tracer(value.tape, atom) if type(atom) is Variable else atom for atom in made.inputs]

    def are_plain(self, atoms: Sequence[Atom]) -> bool:
        """Return whether none of `atoms` was made by a primitive that some rewrite matches; literals count as plain."""
        return self.notable.isdisjoint(atoms)

    def params_of(self, value: Any) -> dict[str, Any]:
        """Return the parameters of the equation that made `value`."""
        return self.made[value.variable].params


Rewrite = Callable[[RecordedDefinitions, list[Any], dict[str, Any]], "list[Any] | None"]
"""(definitions, inputs, params) -> the outputs, made with ops from the inputs; or None to keep the equation."""


When = Callable[[Sequence[Aval], dict[str, Any]], bool]
"""Whether a rewrite may apply to operands of these types, with these parameters, whatever made them."""


class Rewrites(Collection[Rewrite]):
    """Rewrites by primitive, tried in the order of registration; most primitives have none.

    `makers` are the primitives that a rewrite declared to match behind its operands.
    """

    __slots__ = ("_makers", "_undeclared", "_when", "makers")

    def __init__(self) -> None:
        super().__init__("rewrites", "Exact algebraic rewrites of an operation, tried in this order.")
        self._undeclared: set[Primitive] = set()
        self._makers: dict[Primitive, set[Primitive]] = {}
        self._when: dict[Primitive, list[When]] = {}
        self.makers: set[Primitive] = set()

    def register(self, *primitives: Primitive, makers: Sequence[Primitive] | None = None,  # type: ignore[override]
                 when: When | None = None) -> Callable[[Rewrite], Rewrite]:
        """Decorate a rewrite to enter it for each of `primitives`, after those that were entered before.

        With `makers` or `when`, it is tried only if an operand is a literal, if one was made by one of the makers, or
        if `when(types of the operands, parameters)` holds: it must not apply to anything else.
        """
        def enter(rewrite: Rewrite) -> Rewrite:
            self.add(rewrite, *primitives)
            if makers is None and when is None:
                self._undeclared.update(primitives)
            self.makers.update(makers or ())
            for primitive in primitives:
                self._makers.setdefault(primitive, set()).update(makers or ())
                if when is not None:
                    self._when.setdefault(primitive, []).append(when)
            return rewrite
        return enter

    def are_declared(self, primitive: Primitive) -> bool:
        """Return whether all rewrites of `primitive`, if it has any, were entered with `makers` or `when`."""
        return primitive not in self._undeclared

    def makers_of(self, primitive: Primitive) -> frozenset[Primitive]:
        """Return the primitives that the declared rewrites of `primitive` match behind its operands."""
        return frozenset(self._makers.get(primitive, ()))

    def may_apply(self, primitive: Primitive, definitions: RecordedDefinitions, atoms: list[Atom],
                  params: dict[str, Any]) -> bool:
        """Return whether a rewrite may apply to an operation on `atoms`, by what rewrites declared."""
        if primitive not in self._entries:
            return False
        if primitive in self._undeclared or Literal in map(type, atoms):
            return True
        if not definitions.are_plain(atoms):
            makers, made_by = self._makers[primitive], definitions.made
            for atom in atoms:
                made = made_by.get(atom)
                if made is not None and made.primitive in makers:
                    return True
        tests = self._when.get(primitive)
        return tests is not None and any(test([atom.aval for atom in atoms], params) for test in tests)

    def apply(self, primitive: Primitive, definitions: RecordedDefinitions, tape: Tape, atoms: list[Atom],
              params: dict[str, Any]) -> list[Any] | None:
        """Return the outputs of the first rewrite that applies, or None."""
        if not self.may_apply(primitive, definitions, atoms, params):
            return None
        inputs = [Tracer(tape, atom) if type(atom) is Variable else atom for atom in atoms]
        for rewrite in self._entries[primitive]:
            outputs = rewrite(definitions, inputs, params)
            if outputs is not None:
                return outputs
        return None


rewrites = Rewrites()


def is_literal(value: Any, number: float) -> bool:
    """Return whether `value` is a literal equal to `number`; `0` means the positive zero alone, in both parts."""
    if type(value) is not Literal or not bool(value.value == number):
        return False
    both = complex(value.value)
    return number != 0 or not bool(np.signbit([both.real, both.imag]).any())
