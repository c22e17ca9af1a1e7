"""Programs that are born simple: value numbering and exact algebra while recording, dead code afterwards.

No rewrite changes a NaN, an infinity, the sign of a zero or a rounding. The algebra of a primitive stands beside
its record, entered in `rewrites`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import config
from fxgrad.core.analysis import Analysis
from fxgrad.core.avals import Aval, Literal
from fxgrad.core.facts import Slot, is_effectful
from fxgrad.core.interning import Node, Step
from fxgrad.core.primitive import Primitive
from fxgrad.core.program import Atom, Equation, Program, Source, Var
from fxgrad.core.sources import equation_source, sources, user_source
from fxgrad.core.tape import Tape, current
from fxgrad.core.told import param_key
from fxgrad.core.tracer import Tracer


class Definitions:
    """How each value of the program under way was computed, for rewrites that look one step back."""

    __slots__ = ("made", "notable")

    def __init__(self) -> None:
        self.made: dict[Atom, Equation] = {}
        self.notable: set[Atom] = set()

    def note(self, equation: Equation) -> None:
        """Enters an equation of the program."""
        outputs = equation.outputs
        for output in outputs:
            self.made[output] = equation
        if equation.primitive in rewrites.makers:
            self.notable.update(outputs)

    def inputs_if(self, value: Any, primitive: Primitive) -> list[Any] | None:
        """The inputs of the equation that made `value`, if `primitive` made it."""
        made = self.made.get(value.variable) if type(value) is Tracer else None
        if made is None or made.primitive is not primitive:
            return None
        return [Tracer(value.tape, atom) if type(atom) is Var else atom for atom in made.inputs]

    def are_plain(self, atoms: Sequence[Atom]) -> bool:
        """Whether none of `atoms` was made by a primitive that some rewrite looks for; literals count as plain."""
        return self.notable.isdisjoint(atoms)

    def params_of(self, value: Any) -> dict[str, Any]:
        """The parameters of the equation that made `value`."""
        return self.made[value.variable].params


Rewrite = Callable[[Definitions, list[Any], dict[str, Any]], "list[Any] | None"]
"""(definitions, inputs, params) -> the outputs, made with ops from the inputs; or None to leave the equation alone."""


class Rewrites(Analysis[Sequence[Rewrite]]):
    """Exact algebra by primitive, tried in the order of registration; a primitive without any is left alone.

    `makers` are the primitives that a rewrite declared to look for.
    """

    __slots__ = ("_undeclared", "makers")

    def __init__(self) -> None:
        super().__init__("rewrites", missing="conservative", default=())
        self._undeclared: set[Primitive] = set()
        self.makers: set[Primitive] = set()

    def register(self, *primitives: Primitive, makers: Sequence[Primitive] | None = None,  # type: ignore[override]
                 ) -> Callable[[Rewrite], Rewrite]:
        """A decorator that enters its function for each of `primitives`, after those that were entered before.

        With `makers` it is only asked where an operand is a literal, or where it may have been made by one of them:
        it must look for no others behind the operands.
        """
        def enter(rewrite: Rewrite) -> Rewrite:
            for primitive in primitives:
                self._entries[primitive] = (*self.of(primitive), rewrite)
            if makers is None:
                self._undeclared.update(primitives)
            else:
                self.makers.update(makers)
            return rewrite
        return enter

    def are_declared(self, primitive: Primitive) -> bool:
        """Whether all rewrites of `primitive`, if it has any, said what they look for."""
        return primitive not in self._undeclared

    def apply(self, primitive: Primitive, definitions: Definitions, tape: Tape, atoms: list[Atom],
              params: dict[str, Any]) -> list[Any] | None:
        """The outputs that the first fitting rewrite gives, or None."""
        entries = self._entries.get(primitive)
        if entries is None or (primitive not in self._undeclared and definitions.are_plain(atoms)
                               and Literal not in map(type, atoms)):
            return None
        inputs = [Tracer(tape, atom) if type(atom) is Var else atom for atom in atoms]
        for rewrite in entries:
            outputs = rewrite(definitions, inputs, params)
            if outputs is not None:
                return outputs
        return None


rewrites = Rewrites()

def is_literal(value: Any, number: float) -> bool:
    """Whether `value` is a literal equal to `number`; `0` means the positive zero alone, in both parts."""
    if type(value) is not Literal or not bool(value.value == number):
        return False
    both = complex(value.value)
    return number != 0 or not bool(np.signbit([both.real, both.imag]).any())


class Template:
    """A small program made ready to be recorded again and again, on operands of the types that it was recorded for.

    Its literals, captured values, inputs and the outputs of its steps are numbered in this order. A step has what
    making its equation again takes, found out once: the primitive, the numbers of its operands, its parameters (twice,
    the second time as a key has them), the types of its outputs, whether its operands may be exchanged, and whether
    it is simple: nothing can happen to it but what `SimplifyingTape.instantiate` does by itself.
    """

    __slots__ = ("captured", "code", "literals", "outputs", "program", "steps")

    code: Any
    """What computes it at once, for an executor to keep."""

    def __init__(self, program: Program, captured: list[Any]) -> None:
        self.program, self.captured, self.code = program, captured, None
        atoms = [atom for equation in program.equations for atom in equation.inputs] + program.outputs
        self.literals: list[Any] = [*dict.fromkeys(atom for atom in atoms if type(atom) is Literal)]
        made = [var for equation in program.equations for var in equation.outputs]
        number = {atom: at for at, atom in enumerate([*self.literals, *program.inputs, *made])}
        self.outputs = [number[atom] for atom in program.outputs]
        # Plain tuples: they are taken apart for every operation, and named ones are slower at that.
        self.steps: list[tuple[Primitive, list[int], dict[str, Any], tuple[Any, ...], list[Aval], bool, bool]] = []
        for equation in program.equations:
            primitive, params = equation.primitive, equation.params
            simple = rewrites.are_declared(primitive) and not primitive.effectful and primitive.regions is None
            self.steps.append((primitive, [number[atom] for atom in equation.inputs], params,
                               (*param_key(primitive, params),),
                               [var.aval for var in equation.outputs], primitive.commutative, simple))


class SimplifyingTape(Tape):
    """A tape that gives equal equations the same outputs and rewrites what algebra makes simpler.

    Equations with effects are never merged. A selective one records tangents, whose program runs at another time.
    It shares no prefixes (`interned` is False).
    """

    __slots__ = ("_definitions", "_done_effects", "_seen", "_tracers")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._definitions = Definitions()
        self._seen: dict[Any, list[Any]] = {}  # variables of this tape, and values that are none
        self._done_effects: dict[Any, list[list[Any]]] = {}
        self._tracers: dict[Var, Tracer] = {}

    @property
    def takes_effects(self) -> bool:  # type: ignore[override]
        """Whether effects on values of other tapes are recorded here."""
        return self.staging

    def value_of(self, atom: Any) -> Any:
        """What rules get for an atom: the one tracer of a variable, since tapes tell captured values by identity."""
        if type(atom) is not Var:
            return atom
        tracer = self._tracers.get(atom)
        if tracer is None:
            tracer = self._tracers[atom] = Tracer(self, atom)
        return tracer

    def record(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any],
               source: Source | None = None) -> list[Any]:
        """As any tape, unless an equal equation was recorded before, or a rewrite applies."""
        atoms: list[Any] = [arg.variable if type(arg) is Tracer and arg.tape is self else self.atom(arg)
                            for arg in args]
        return [self.value_of(output) for output in self.outputs_of(primitive, atoms, params, source)]

    def outputs_of(self, primitive: Primitive, atoms: list[Atom], params: dict[str, Any], source: Source | None = None,
                   avals: Sequence[Aval] | None = None, equation: Equation | None = None) -> list[Any]:
        """As `record`, of variables of this tape and literals, and giving such; `avals` as for `append`.

        If nothing is simpler than `equation`, it is entered as it is.
        """
        key = _key(primitive, atoms, params)
        outputs = self._seen.get(key)
        if outputs is not None and is_effectful(primitive, params):
            outputs = None
        if self._done_effects and self._done_effects.get(key):
            return self._done_effects[key].pop(0)
        if outputs is None:
            rewritten = rewrites.apply(primitive, self._definitions, self, atoms, params)
            if rewritten is not None:
                outputs = self._bare(rewritten)
            elif equation is not None:
                outputs = equation.outputs
                self.nodes.append(Step(equation, outputs))
                self._definitions.note(equation)
            else:
                outputs = self.append(primitive, atoms, params, source, avals)
                self._definitions.note(self.nodes[-1].equation)  # type: ignore[arg-type]
            self._seen[key] = outputs
        return outputs

    def instantiate(self, template: Template, operands: Sequence[Atom]) -> list[Any]:
        """Records the operations of `template`, each simplified by what is known of the operands; gives its outputs."""
        source = equation_source.get() or user_source()
        plain = Literal not in map(type, operands)
        seen, nodes, made_by, notable = self._seen, self.nodes, self._definitions.made, self._definitions.notable
        values: list[Any] = [*template.literals, *map(self.atom, template.captured), *operands]
        value_at = values.__getitem__
        for primitive, numbers, params, items, avals, commutes, simple in template.steps:
            atoms = [*map(value_at, numbers)]
            if not (plain and simple and notable.isdisjoint(atoms)):
                outputs = self.outputs_of(primitive, atoms, params, source, avals)
                plain = plain and Literal not in map(type, outputs)
            else:
                # As `outputs_of` has it, without its calls: for here are made most equations of most programs. Rewrites
                # were asked when the template was made, and find no more now.
                made: list[Any] = []
                if commutes and hash(atoms[0]) > hash(atoms[1]):
                    outputs = seen.setdefault((primitive, atoms[1], atoms[0], *items), made)
                else:
                    outputs = seen.setdefault((primitive, *atoms, *items), made)
                if outputs is made:
                    equation = Equation(primitive, atoms, params, made, source)
                    for aval in avals:
                        var = Var(aval)
                        made.append(var)
                        made_by[var] = equation
                    nodes.append(Step(equation, made))
                    if primitive in rewrites.makers:
                        notable.update(made)
            values += outputs
        return [*map(value_at, template.outputs)]

    def seed(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any], outputs: list[Any]) -> None:
        """Declares the outputs of an equation to be known, so that it is not recorded (one time, if it has effects)."""
        key = _key(primitive, [self.atom(arg) for arg in args], params)
        if is_effectful(primitive, params):
            self._done_effects.setdefault(key, []).append(self._bare(outputs))
        else:
            self._seen[key] = self._bare(outputs)

    def _bare(self, values: Sequence[Any]) -> list[Any]:
        return [value.variable if type(value) is Tracer and value.tape is self else value for value in values]


def _key(primitive: Primitive, atoms: list[Atom], params: dict[str, Any]) -> Any:
    """What equal equations have in common: operands that may be exchanged stand in the order of their hashes."""
    if primitive.commutative:
        first, second = atoms
        if hash(first) > hash(second):
            return (primitive, second, first, *param_key(primitive, params)) if params else (primitive, second, first)
    return (primitive, *atoms, *param_key(primitive, params)) if params else (primitive, *atoms)


_LIVE: Slot[list[Equation]] = Slot("live equations")


def live_equations(program: Program) -> list[Equation]:
    """The equations that an output depends on, and those with effects, in order."""
    live = _LIVE.of(program)
    if live is None:
        wanted: set[Atom] = {*program.outputs}
        kept = []
        unwanted, want = wanted.isdisjoint, wanted.update
        for equation in reversed(program.equations):
            if not unwanted(equation.outputs) or is_effectful(equation.primitive, equation.params):
                kept.append(equation)
                want(equation.inputs)
        live = _LIVE.put(program, program.equations if len(kept) == len(program.equations) else kept[::-1])
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
            (primitive, *inputs, *param_key(primitive, params)), equation.outputs)
        if first is not equation.outputs:
            equal.update(zip(equation.outputs, first, strict=True))
        elif inputs == equation.inputs:
            kept.append(equation)
        else:
            kept.append(equation.replace(inputs))
    if not equal:
        return program
    return program.replace(equations=kept, outputs=[equal.get(atom, atom) for atom in program.outputs])


def without_dead_code(program: Program) -> Program:
    """The same program without the equations that neither have effects nor are needed for an output."""
    live = program.replace(equations=live_equations(program))
    _LIVE.put(live, live.equations)
    return live


def simplify(program: Program) -> Program:
    """An equal program without dead, repeated and trivial equations; inputs and outputs stay as they are.

    >>> import fxgrad
    >>> program = fxgrad.make_program(lambda x: (x + x) * (x + x))(1.0)
    >>> len(program.equations), len(simplify(program).equations)
    (3, 2)
    """
    tape = SimplifyingTape(Node(None, program.inputs), staging=True, interned=False, literals=True)
    changed: dict[Atom, Atom] = {}
    token = current.set(tape)
    try:
        with sources() as at:
            for equation in live_equations(program):
                at(equation)
                outputs = _take(tape, equation, changed)
                if outputs is not equation.outputs:
                    changed.update(zip(equation.outputs, outputs, strict=True))
    finally:
        current.reset(token)
        tape.closed = True
    assert not tape.captured, "simplify made a constant: rewrites may use literals only"
    if not changed:
        return without_dead_code(program)
    simple = without_dead_code(program.replace(
        equations=[step.equation for step in tape.nodes if step.equation is not None],
        outputs=[changed.get(atom, atom) for atom in program.outputs]))
    if config.check_level:
        simple.check()
    return simple


def _take(tape: SimplifyingTape, equation: Equation, changed: dict[Atom, Atom]) -> list[Any]:
    """Records an equation on a tape that has its variables but for those that `changed`; as it is, if it can be."""
    primitive, before, params = equation.primitive, equation.inputs, equation.params
    atoms = [changed.get(atom, atom) for atom in before] if changed else before
    if atoms == before:
        return tape.outputs_of(primitive, before, params, equation=equation)
    if any(atom.aval != other.aval for atom, other in zip(atoms, before, strict=True)):
        return tape.outputs_of(primitive, atoms, params, equation.source)
    return tape.outputs_of(primitive, atoms, params, equation=equation.replace(atoms))
