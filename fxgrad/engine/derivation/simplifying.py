"""`SimplifyingTape` merges equal equations and rewrites while recording; a `Template` is a program to replay on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.cache_keys import param_key
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Atom, Equation, Program, Source, Variable
from fxgrad.engine.core.program_properties import is_effectful
from fxgrad.engine.core.sources import current_source
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.tracing.interning import RecordedStep
from fxgrad.engine.tracing.tape import Tape
from fxgrad.engine.tracing.tracer import Tracer


class Template:
    """A small program in a form that is fast to record again, on operands of the types that it was recorded for.

    Its literals, captured values, inputs and the outputs of its steps are numbered in this order. A step is the
    primitive of an equation, the numbers of its operands, its parameters (twice, the second time as part of a key), the
    types of its outputs, whether its operands commute, and whether it is simple: `SimplifyingTape.instantiate` records
    such a step without calling anything.

    In the template of `sin(x) * y` the inputs have the numbers 0 and 1, and the results of the steps 2 and 3:

    >>> import numpy as np, fxgrad
    >>> template = Template(fxgrad.make_program(lambda x, y: np.sin(x) * y)(1.0, 2.0), [])
    >>> [(str(primitive), numbers) for primitive, numbers, *_ in template.steps], template.outputs
    ([('sin', [0]), ('mul', [2, 1])], [3])
    """

    __slots__ = ("captured", "code", "literals", "outputs", "program", "steps")

    code: Any
    """Code that computes it; an executor generates and stores it here."""

    def __init__(self, program: Program, captured: list[Any]) -> None:
        self.program, self.captured, self.code = program, captured, None
        atoms = [atom for equation in program.equations for atom in equation.inputs] + program.outputs
        self.literals: list[Any] = [*dict.fromkeys(atom for atom in atoms if type(atom) is Literal)]
        made = [var for equation in program.equations for var in equation.outputs]
        number = {atom: at for at, atom in enumerate([*self.literals, *program.inputs, *made])}
        self.outputs = [number[atom] for atom in program.outputs]
        # Plain tuples: they are unpacked for every operation, and named ones are slower at that.
        self.steps: list[tuple[Primitive, list[int], dict[str, Any], tuple[Any, ...], list[Aval], bool, bool]] = []
        for equation in program.equations:
            primitive, params = equation.primitive, equation.params
            simple = rewrites.are_declared(primitive) and not primitive.effectful and primitive.regions is None
            self.steps.append((primitive, [number[atom] for atom in equation.inputs], params,
                               (*param_key(primitive, params),),
                               [var.aval for var in equation.outputs], primitive.commutative, simple))


class MergedEquations:
    """Equations of a program that need no rewrites, with equal ones merged: most programs need no tape for that.

    `kept` are those that remain since the last call of `merge`.
    """

    __slots__ = ("definitions", "kept", "seen")

    def __init__(self) -> None:
        self.seen: dict[Any, list[Any]] = {}
        self.definitions = RecordedDefinitions()
        self.kept: list[Equation] = []

    def merge(self, equations: Sequence[Equation], start: int, changed: dict[Atom, Atom]) -> int:
        """Merge equations from number `start` on, up to one that may need more; return the number of that.

        It may if a rewrite may apply, if it has effects, or if its operands change types. `changed` maps variables to
        what replaces them. `SimplifyingTape.outputs_of` would do the same, with a call for each equation.
        """
        seen, definitions = self.seen, self.definitions
        kept = self.kept = []
        for number in range(start, len(equations)):
            equation = equations[number]
            primitive, atoms, params, outputs = (
                equation.primitive, equation.inputs, equation.params, equation.outputs)
            if changed and not changed.keys().isdisjoint(atoms):
                atoms = [changed.get(atom, atom) for atom in atoms]
                if any(atom.aval != before.aval for atom, before in zip(atoms, equation.inputs, strict=True)):
                    return number
            if rewrites.may_apply(primitive, definitions, atoms, params) or is_effectful(primitive, params):
                return number
            first = seen.setdefault(_equation_key(primitive, atoms, params), outputs)
            if first is outputs:
                if atoms is not equation.inputs:
                    equation = equation.replace(atoms)
                kept.append(equation)
                definitions.note(equation)
            else:
                changed.update(zip(outputs, first, strict=True))
        return len(equations)


class SimplifyingTape(Tape):
    """A tape that gives equal equations the same outputs and applies exact rewrites.

    Equations with effects are never merged. A selective one records tangents, whose program runs at another time.
    It shares no prefixes (`interned` is False).
    """

    __slots__ = ("_definitions", "_done_effects", "_seen", "_tracers")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._definitions = RecordedDefinitions()
        self._seen: dict[Any, list[Any]] = {}  # variables of this tape, and other values
        self._done_effects: dict[Any, list[list[Any]]] = {}
        self._tracers: dict[Variable, Tracer] = {}

    @property
    def takes_effects(self) -> bool:  # type: ignore[override]
        """Whether effects on values of other tapes are recorded here."""
        return self.staging

    def value_of(self, atom: Any) -> Any:
        """Return the one tracer of a variable, since tapes compare captured values by identity; else `atom` itself."""
        if type(atom) is not Variable:
            return atom
        tracer = self._tracers.get(atom)
        if tracer is None:
            tracer = self._tracers[atom] = Tracer(self, atom)
        return tracer

    def finish(self, outputs: Sequence[Any]) -> Program:
        """Return the program as any tape; its tracers, which refer to it, are freed with it, and all around it."""
        program = super().finish(outputs)
        self._tracers.clear()
        return program

    def record(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any],
               source: Source | None = None) -> list[Any]:
        """Record an operation as any tape, unless an equal one was recorded before, or a rewrite applies."""
        atoms: list[Any] = [arg.variable if type(arg) is Tracer and arg.tape is self else self.atom(arg)
                            for arg in args]
        return [self.value_of(output) for output in self.outputs_of(primitive, atoms, params, source)]

    def outputs_of(self, primitive: Primitive, atoms: list[Atom], params: dict[str, Any], source: Source | None = None,
                   avals: Sequence[Aval] | None = None, equation: Equation | None = None, rewritable: bool = True,
                   ) -> list[Any]:
        """Record an operation on variables of this tape and literals, and return such; `avals` is as in `append`.

        If it cannot be simplified, `equation` is entered unchanged. If it is not `rewritable`, it is only merged with
        an equal one.
        """
        key = _equation_key(primitive, atoms, params)
        outputs = self._seen.get(key)
        if outputs is not None and is_effectful(primitive, params):
            outputs = None
        if self._done_effects and self._done_effects.get(key):
            return self._done_effects[key].pop(0)
        if outputs is None:
            rewritten = rewrites.apply(primitive, self._definitions, self, atoms, params) if rewritable else None
            if rewritten is not None:
                outputs = self._bare(rewritten)
            elif equation is not None:
                outputs = equation.outputs
                self.nodes.append(RecordedStep(equation, outputs))
                self._definitions.note(equation)
            else:
                outputs = self.append(primitive, atoms, params, source, avals)
                self._definitions.note(self.nodes[-1].equation)  # type: ignore[arg-type]
            self._seen[key] = outputs
        return outputs

    put = outputs_of

    def enter(self, merged: MergedEquations) -> None:
        """Enter the equations that `merged` has kept; those that are recorded here are entered in `merged` as well."""
        self._seen, self._definitions = merged.seen, merged.definitions
        self.nodes += [RecordedStep(equation, equation.outputs) for equation in merged.kept]

    def instantiate(self, template: Template, operands: Sequence[Atom]) -> list[Any]:
        """Record the operations of `template`, simplified where the operands allow; return its outputs."""
        source = current_source()
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
                # As in `outputs_of`, without its calls: most equations of most programs are made here. Rewrites were
                # tried when the template was made, and cannot apply now.
                made: list[Any] = []
                if commutes and hash(atoms[0]) > hash(atoms[1]):
                    outputs = seen.setdefault((primitive, atoms[1], atoms[0], *items), made)
                else:
                    outputs = seen.setdefault((primitive, *atoms, *items), made)
                if outputs is made:
                    equation = Equation(primitive, atoms, params, made, source)
                    for aval in avals:
                        var = Variable(aval)
                        made.append(var)
                        made_by[var] = equation
                    nodes.append(RecordedStep(equation, made))
                    if primitive in rewrites.makers:
                        notable.update(made)
            values += outputs
        return [*map(value_at, template.outputs)]

    def seed(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any], outputs: list[Any]) -> None:
        """Declare the outputs of an equation as known, so that it is not recorded (once, if it has effects)."""
        key = _equation_key(primitive, [self.atom(arg) for arg in args], params)
        if is_effectful(primitive, params):
            self._done_effects.setdefault(key, []).append(self._bare(outputs))
        else:
            self._seen[key] = self._bare(outputs)

    def _bare(self, values: Sequence[Any]) -> list[Any]:
        return [value.variable if type(value) is Tracer and value.tape is self else value for value in values]


def _equation_key(primitive: Primitive, atoms: list[Atom], params: dict[str, Any]) -> Any:
    """Return the key of an equation; commuting operands are ordered by their hashes."""
    if primitive.commutative:
        first, second = atoms
        if hash(first) > hash(second):
            return (primitive, second, first, *param_key(primitive, params)) if params else (primitive, second, first)
    return (primitive, *atoms, *param_key(primitive, params)) if params else (primitive, *atoms)
