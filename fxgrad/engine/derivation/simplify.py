"""Simplification of finished programs: dead, repeated and trivial equations are removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.engine import config, dtypes
from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.cache_keys import param_key
from fxgrad.engine.core.program import PRIMAL, Atom, Equation, Program, Provenance, Variable, require_program
from fxgrad.engine.core.program_properties import ProgramAttribute, is_effectful
from fxgrad.engine.core.regions import rewrite_programs
from fxgrad.engine.core.sources import at_source
from fxgrad.engine.derivation.ordering import line_by_line
from fxgrad.engine.derivation.simplifying import MergedEquations, SimplifyingTape
from fxgrad.engine.tracing.interning import RecordedStep, Root
from fxgrad.engine.tracing.provenance import enter_origins, is_shown
from fxgrad.engine.tracing.tape import current

partial_use: Analysis[Callable[[Equation, Sequence[bool]], Equation] | None] = Analysis(
    "partial use", "How an operation is reduced to the outputs that are used, and what these need.",
    missing="conservative", default=None)
"""(equation, used) -> an equation that computes only the outputs that `used` marks."""
MERGED_VARIABLES: ProgramAttribute[set[Variable]] = ProgramAttribute("merged")
"""Variables of a simplified program that replace several equal ones."""
_LIVE: ProgramAttribute[list[Equation]] = ProgramAttribute("live equations")


def live_equations(program: Program) -> list[Equation]:
    """Return the live equations, on which an output depends, and those with effects, in order."""
    live = _LIVE.of(require_program("live_equations", program))
    return _LIVE.put(program, _live(program.equations, program.outputs)) if live is None else live


def _live(equations: list[Equation], outputs: Sequence[Atom]) -> list[Equation]:
    """Return the live ones of `equations`; the list itself if all are."""
    wanted: set[Atom] = {*outputs}
    kept = []
    unwanted, want = wanted.isdisjoint, wanted.update
    for equation in reversed(equations):
        if not unwanted(equation.outputs) or is_effectful(equation.primitive, equation.params):
            kept.append(equation)
            want(equation.inputs)
    return equations if len(kept) == len(equations) else kept[::-1]


def merge_equal_equations(program: Program) -> Program:
    """Return the program with equal equations merged; the program itself if there are none."""
    equal: dict[Atom, Variable] = {}
    seen: dict[Any, list[Variable]] = {}
    kept: list[Equation] = []
    for equation in require_program("merge_equal_equations", program).equations:
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
    once = program.replace(equations=kept, outputs=[equal.get(atom, atom) for atom in program.outputs])
    MERGED_VARIABLES.put(once, {*equal.values()})
    return once


def remove_dead_code(program: Program) -> Program:
    """Return the program without dead equations; those with effects stay."""
    return _of_live(require_program("remove_dead_code", program), live_equations(program), program.outputs)


def with_outputs(program: Program, outputs: Sequence[Atom]) -> Program:
    """Return the program with other outputs, variables of it, and without the equations that these do not need."""
    return _of_live(program, _live(program.equations, outputs), outputs)


def _of_live(program: Program, live: list[Equation], outputs: Sequence[Atom]) -> Program:
    """Return the program with other outputs and equations, all of them `live`."""
    replaced = program.replace(equations=live, outputs=outputs)
    _LIVE.put(replaced, replaced.equations)
    return replaced


def simplify(program: Program) -> Program:
    """Return an equal program without dead, repeated and trivial equations; inputs and outputs are unchanged.

    >>> import fxgrad
    >>> program = fxgrad.make_program(lambda x: (x + x) * (x + x), as_recorded=True)(1.0)
    >>> len(program.equations), len(simplify(program).equations)
    (3, 2)
    """
    require_program("simplify", program)
    if is_shown(current.get()):
        return _simplify(program, as_written=False)
    live, merged = live_equations(program), MergedEquations()
    changed: dict[Atom, Atom] = {}
    number = merged.merge(live, 0, changed)
    if number < len(live):
        return _simplify(program, as_written=False, merged=merged, changed=changed, number=number)
    if not changed and live is program.equations:
        return program
    return _with_changes(program, merged.kept, changed)


def simplify_for_display(program: Program) -> Program:
    """Simplify a program for display, down to the bodies of its loops and branches.

    Equations of the user's own lines are merged, but not rewritten. Operations on random keys stay, so that a key that
    is used twice can be found.
    """
    known = _READABLE.of(require_program("simplify_for_display", program))
    if known is None:
        known = _READABLE.put(program, _simplify(program, as_written=True))
    return known


_READABLE: ProgramAttribute[Program] = ProgramAttribute("readable")
_WRITTEN_ROLES = {"branch", "body", "condition", "step", "back", "solve", "function", "matvec", "transposed matvec",
                  "transposed solve", "tangent solve", "cotangent solve"}
"""Roles of nested programs whose equations are the user's lines, too."""


def _with_readable_bodies(equation: Equation) -> Equation:
    """Return the equation with its nested programs simplified for display."""
    if any(region.role not in _WRITTEN_ROLES for region in equation.regions):
        return equation
    return rewrite_programs(equation, lambda region: simplify_for_display(region.program))


def _simplify(program: Program, as_written: bool, merged: MergedEquations | None = None,
              changed: dict[Atom, Atom] | None = None, number: int = 0) -> Program:
    """Simplify `program` from equation `number` on, of whose live equations the first ones are `merged`."""
    tape = SimplifyingTape(Root(program.inputs), staging=True, interned=False, literals=True)
    tape.shown = as_written
    live, changed = live_equations(program), {} if changed is None else changed
    token = current.set(tape)
    try:
        with at_source("" if is_shown(tape) else None) as at:
            if as_written:
                live = _without_unused_outputs(live, program.outputs)
            if merged is not None:
                tape.enter(merged)
            while number < len(live):
                equation = live[number]
                number += 1
                at(equation)
                outputs = _record_user_equation(tape, equation,
                                                changed) if as_written else _record_equation(tape, equation, changed)
                if outputs is not equation.outputs:
                    changed.update(zip(equation.outputs, outputs, strict=True))
                if merged is not None:
                    number = merged.merge(live, number, changed)
                    tape.enter(merged)
    finally:
        current.reset(token)
        tape.closed = True
    assert not tape.captured, "simplify made a constant: rewrites may use literals only"
    equations = [step.equation for step in tape.nodes if step.equation is not None]
    if as_written:
        equations = line_by_line(equations, [changed.get(atom, atom) for atom in program.outputs])
    simple = _with_changes(program, equations, changed)
    if is_shown(tape):
        _note_changes(simple, program, tape, changed)
    return simple


def _with_changes(program: Program, equations: list[Equation], changed: dict[Atom, Atom]) -> Program:
    """Return the program with these equations, and its outputs replaced as `changed` says, without dead equations."""
    if not changed and equations == live_equations(program):
        return remove_dead_code(program)
    outputs = [changed.get(atom, atom) for atom in program.outputs]
    simple = _of_live(program, _live(equations, outputs), outputs)
    if config.check_level:
        simple.check()
    return simple


def _without_unused_outputs(equations: Sequence[Equation], outputs: Sequence[Atom]) -> list[Equation]:
    """Return the equations without the outputs of loops that nothing uses."""
    used: set[Atom] = {*outputs}
    result = []
    for equation in reversed(equations):
        part = None if equation.primitive.regions is None else partial_use.of(equation.primitive)
        marks = [] if part is None else [var in used for var in equation.outputs]
        result.append(equation if part is None or all(marks) else part(equation, marks))
        used.update(result[-1].inputs)
    return result[::-1]


def _note_changes(simple: Program, program: Program, tape: SimplifyingTape, changed: dict[Atom, Atom]) -> None:
    """Note the provenance of the variables of a simplified program, and which of them replace several."""
    made = {var for equation in program.equations for var in equation.outputs}
    origins: dict[Variable, list[Provenance]] = {}
    for var, atom in changed.items():
        if type(atom) is Variable and type(var) is Variable:
            origins.setdefault(atom, []).append(Provenance(PRIMAL, program, var))
    MERGED_VARIABLES.put(simple, {var for var, known in origins.items() if var in made or len(known) > 1})
    enter_origins(origins, [step for step in tape.nodes if made.isdisjoint(step.outputs)])


def _record_user_equation(tape: SimplifyingTape, equation: Equation, changed: dict[Atom, Atom]) -> list[Any]:
    """Record an equation that may be a user's line: merge it with equal ones, but do not rewrite it."""
    if any(dtypes.is_key(atom.aval.dtype) for atom in (*equation.inputs, *equation.outputs)):
        atoms = [changed.get(atom, atom) for atom in equation.inputs]
        tape.nodes.append(RecordedStep(equation if atoms == equation.inputs else equation.replace(atoms),
                                       equation.outputs))
        return equation.outputs
    own = equation.source is not None and equation.source.part is None
    return _record_equation(tape, _with_readable_bodies(equation), changed, not own
                            or equation.primitive.regions is not None)


def _record_equation(tape: SimplifyingTape, equation: Equation, changed: dict[Atom, Atom],
                     rewritable: bool = True) -> list[Any]:
    """Record an equation with its variables replaced by `changed`; return its outputs if none is replaced."""
    primitive, before, params = equation.primitive, equation.inputs, equation.params
    atoms = [changed.get(atom, atom) for atom in before] if changed else before
    if atoms == before:
        return tape.outputs_of(primitive, before, params, equation=equation, rewritable=rewritable)
    if any(atom.aval != other.aval for atom, other in zip(atoms, before, strict=True)):
        return tape.outputs_of(primitive, atoms, params, equation.source, rewritable=rewritable)
    return tape.outputs_of(primitive, atoms, params, equation=equation.replace(atoms), rewritable=rewritable)
