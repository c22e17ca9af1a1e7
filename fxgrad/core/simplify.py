"""Programs that are born simple: value numbering and exact algebra while recording, dead code afterwards.

No rewrite changes a NaN, an infinity, the sign of a zero or a rounding. The algebra of a primitive stands beside
its record, entered in `rewrites`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.core.avals import Aval, Literal
from fxgrad.core.primitive import Primitive
from fxgrad.core.program import Atom, Equation, Program, Source, Var, is_effectful
from fxgrad.core.sources import sources
from fxgrad.core.tape import Tape, bind, read, trace
from fxgrad.core.tracer import Tracer


class Definitions:
    """How each value of the program under way was computed, for rewrites that look one step back."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: dict[Var, tuple[Primitive, list[Atom], dict[str, Any]]] = {}

    def note(self, primitive: Primitive, inputs: list[Atom], params: dict[str, Any], outputs: Sequence[Var]) -> None:
        """Enters the equation that made `outputs`."""
        for output in outputs:
            self._made[output] = (primitive, inputs, params)

    def inputs_if(self, value: Any, primitive: Primitive) -> list[Any] | None:
        """The inputs of the equation that made `value`, if `primitive` made it."""
        made = self._made.get(value.variable) if type(value) is Tracer else None
        if made is None or made[0] is not primitive:
            return None
        return [Tracer(value.tape, atom) if type(atom) is Var else atom for atom in made[1]]

    def any_made_by(self, makers: set[Primitive], atoms: Sequence[Atom]) -> bool:
        """Whether one of `atoms` is a literal or was made by one of `makers`."""
        made = self._made
        for atom in atoms:  # no `any`: this runs for every operation of a derived program
            if type(atom) is Literal:
                return True
            maker = made.get(atom)  # type: ignore[arg-type]
            if maker is not None and maker[0] in makers:
                return True
        return False

    def params_of(self, value: Any) -> dict[str, Any]:
        """The parameters of the equation that made `value`."""
        return self._made[value.variable][2]


Rewrite = Callable[[Definitions, list[Any], dict[str, Any]], "list[Any] | None"]
"""(definitions, inputs, params) -> the outputs, made with ops from the inputs; or None to leave the equation alone."""


class Rewrites:
    """Exact algebra by primitive, tried in the order of registration; a primitive without any is left alone."""

    def __init__(self) -> None:
        self._entries: dict[Primitive, list[Rewrite]] = {}
        self._makers: dict[Primitive, set[Primitive] | None] = {}

    def register(self, *primitives: Primitive, makers: Sequence[Primitive] | None = None,
                 ) -> Callable[[Rewrite], Rewrite]:
        """A decorator that enters its function for each of `primitives`.

        With `makers` it is only asked where an operand is a literal, or was made by one of them.
        """
        def enter(rewrite: Rewrite) -> Rewrite:
            for primitive in primitives:
                self._entries.setdefault(primitive, []).append(rewrite)
                before = self._makers.setdefault(primitive, set())
                self._makers[primitive] = None if makers is None or before is None else before.union(makers)
            return rewrite
        return enter

    def apply(self, primitive: Primitive, definitions: Definitions, tape: Tape, atoms: list[Atom],
              params: dict[str, Any]) -> list[Any] | None:
        """The outputs that the first fitting rewrite gives, or None."""
        entries = self._entries.get(primitive)
        if entries is None:
            return None
        makers = self._makers[primitive]
        if makers is not None and not definitions.any_made_by(makers, atoms):
            return None
        inputs = [Tracer(tape, atom) if type(atom) is Var else atom for atom in atoms]
        for rewrite in entries:
            outputs = rewrite(definitions, inputs, params)
            if outputs is not None:
                return outputs
        return None


rewrites = Rewrites()
commutative: set[Primitive] = set()
"""Primitives whose two inputs may be exchanged without any change of the result."""


exactly_rounded: set[Primitive] = set()
"""Elementwise primitives that round alike for one element and for many, on every executor."""


def is_literal(value: Any, number: float) -> bool:
    """Whether `value` is a literal equal to `number`; `0` means the positive zero alone."""
    if type(value) is not Literal or not bool(value.value == number):
        return False
    return number != 0 or not bool(np.signbit(np.float64(complex(value.value).real)))


class SimplifyingTape(Tape):
    """A tape that gives equal equations the same outputs and rewrites what algebra makes simpler.

    Equations with effects are never merged. A selective one records tangents, whose program runs at another time.
    """

    __slots__ = ("_definitions", "_done_effects", "_seen")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._definitions = Definitions()
        self._seen: dict[Any, list[Any]] = {}
        self._done_effects: dict[Any, list[list[Any]]] = {}

    @property
    def takes_effects(self) -> bool:  # type: ignore[override]
        """Whether effects on values of other tapes are recorded here."""
        return self.staging

    def record(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any],
               source: Source | None = None, avals: Sequence[Aval] | None = None) -> list[Any]:
        """As any tape, unless an equal equation was recorded before, or a rewrite applies; `avals` as for `append`."""
        atoms: list[Any] = [arg.variable if type(arg) is Tracer and arg.tape is self else self.atom(arg)
                            for arg in args]
        key = self._key(primitive, atoms, params)
        outputs = self._seen.get(key)
        if outputs is not None and is_effectful(primitive, params):
            outputs = None
        if self._done_effects and self._done_effects.get(key):
            return self._done_effects[key].pop(0)
        if outputs is None:
            outputs = rewrites.apply(primitive, self._definitions, self, atoms, params)
            if outputs is None:
                variables = self.append(primitive, atoms, params, source, avals)
                self._definitions.note(primitive, atoms, params, variables)
                outputs = [Tracer(self, var) for var in variables]
            self._seen[key] = outputs
        return outputs

    def seed(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any], outputs: list[Any]) -> None:
        """Declares the outputs of an equation to be known, so that it is not recorded (one time, if it has effects)."""
        key = self._key(primitive, [self.atom(arg) for arg in args], params)
        if is_effectful(primitive, params):
            self._done_effects.setdefault(key, []).append(outputs)
        else:
            self._seen[key] = outputs

    def _key(self, primitive: Primitive, atoms: list[Atom], params: dict[str, Any]) -> Any:
        ordered = _ordered(atoms) if primitive in commutative else atoms
        return (primitive, *ordered, *params.items()) if params else (primitive, *ordered)


def _ordered(pair: list[Atom]) -> list[Atom]:
    """Two operands in an order that is the same whichever comes first: literals last."""
    first, second = pair
    if type(first) is Literal:
        turned = type(second) is not Literal or hash(first) > hash(second)
    else:
        turned = type(second) is not Literal and id(first) > id(second)
    return [second, first] if turned else pair


def live_equations(program: Program) -> list[Equation]:
    """The equations that an output depends on, and those with effects, in order."""
    live: list[Equation] | None = program.memo.get("live")
    if live is None:
        wanted: set[Atom] = {*program.outputs}
        kept = []
        for equation in reversed(program.equations):
            if not wanted.isdisjoint(equation.outputs) or is_effectful(equation.primitive, equation.params):
                kept.append(equation)
                wanted.update(equation.inputs)
        live = program.memo["live"] = program.equations if len(kept) == len(program.equations) else kept[::-1]
    return live


def without_repetition(program: Program) -> Program:
    """The same program in which equal equations stand once; the program itself if that is so."""
    equal: dict[Atom, Var] = {}
    seen: dict[Any, list[Var]] = {}
    kept: list[Equation] = []
    for equation in program.equations:
        primitive, params = equation.primitive, equation.params
        inputs = [equal.get(atom, atom) for atom in equation.inputs] if equal else equation.inputs
        first = equation.outputs if is_effectful(primitive, params) else seen.setdefault(
            (primitive, *inputs, *params.items()), equation.outputs)
        if first is not equation.outputs:
            equal.update(zip(equation.outputs, first, strict=True))
        elif inputs == equation.inputs:
            kept.append(equation)
        else:
            kept.append(Equation(primitive, inputs, params, equation.outputs, equation.source))
    if not equal:
        return program
    outputs = [equal.get(atom, atom) for atom in program.outputs]
    return Program(program.inputs, kept, outputs, program.captured, program.constants, program.signature)


def without_dead_code(program: Program) -> Program:
    """The same program without the equations that neither have effects nor are needed for an output."""
    live = Program(program.inputs, live_equations(program), program.outputs, program.captured, program.constants,
                   program.signature)
    live.memo["live"] = live.equations
    return live


def simplify(program: Program) -> Program:
    """An equal program without dead, repeated and trivial equations; inputs and outputs stay as they are.

    >>> import fxgrad
    >>> program = fxgrad.make_program(lambda x: (x + x) * (x + x))(1.0)
    >>> len(program.equations), len(simplify(program).equations)
    (3, 2)
    """
    def rebuild(*inputs: Any) -> list[Any]:
        environment: dict[Var, Any] = dict(zip(program.inputs, inputs, strict=True))
        with sources() as at:
            for equation in live_equations(program):
                at(equation)
                outputs = bind(equation.primitive, *(read(environment, atom) for atom in equation.inputs),
                               **equation.params)
                environment.update(zip(equation.outputs, outputs, strict=True))
        return [read(environment, atom) for atom in program.outputs]

    rebuilt, captured = trace(rebuild, program.in_avals, staging=True, intern=False, literals=True,
                              tape_class=SimplifyingTape)
    assert not captured, "simplify made a constant: rewrites may use literals only"
    return Program(rebuilt.inputs, live_equations(rebuilt), rebuilt.outputs,
                   program.captured, program.constants, program.signature)
