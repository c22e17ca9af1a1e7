"""Programs without the effects of equations that have run already, or run again for their values alone."""

from __future__ import annotations

from collections.abc import Sequence

from fxgrad.engine.core.program import Atom, Equation, Program, Variable
from fxgrad.engine.core.program_properties import ProgramAttribute, has_effects, is_effectful, memoize
from fxgrad.engine.core.regions import replace_programs
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import UnsupportedError

_WITHOUT: ProgramAttribute[Program] = ProgramAttribute("without effects")


def without_effects(program: Program, why: str) -> Program:
    """Return `program` without its effects, for recomputation after they have happened.

    Raises `UnsupportedError` if the result of an operation with effects is needed; `why` names the cause of
    recomputation.
    """
    if not has_effects(program):
        return program
    made = _WITHOUT.of(program)
    if made is None:
        equations = _equations_without(program.equations, set(program.outputs), why)
        made = _WITHOUT.put(program, program.replace(equations=equations))
    return made


def _equations_without(equations: Sequence[Equation], wanted: set[Atom], why: str) -> list[Equation]:
    kept = []
    for equation in reversed(equations):
        if equation.primitive.effectful and wanted.isdisjoint(equation.outputs):
            continue
        if equation.primitive.effectful:
            raise UnsupportedError(at_user_line(
                f"{why} would run {_effect_text(equation)} a second time for its result. Call it outside, and pass the "
                "result in"))
        if is_effectful(equation.primitive, equation.params):
            regions = equation.regions
            params = replace_programs(equation.params, regions,
                                      [without_effects(region.program, why) for region in regions])
            kept.append(equation.replace(equation.inputs, params))
        else:
            kept.append(equation)
        wanted.update(equation.inputs)
    return kept[::-1]


def _effect_text(equation: Equation) -> str:
    where = "" if equation.source is None else f" at line {equation.source.line}"
    return f"the {equation.primitive}{where}"


def without_forced_effects(program: Program, computed: int) -> tuple[Program, int]:
    """Return `program` without the effects of its first `computed` equations, which have happened.

    The second result is the number of those equations now; their outputs are the same. One that has effects and outputs
    stays: its outputs are known, so it does not run again.
    """
    prefix = program.equations[:computed]
    if not has_effects(program) or not any(
            is_effectful(equation.primitive, equation.params) for equation in prefix):
        return program, computed

    def make() -> tuple[Program, int]:
        first = []
        for equation in prefix:
            if equation.primitive.effectful and equation.outputs:
                first.append(equation)
            else:
                why = f"Python's control flow asks for a value, which runs {_effect_text(equation)}; the derivative"
                first += _equations_without([equation], set(equation.outputs), why)
        return program.replace(equations=[*first, *program.equations[computed:]]), len(first)

    return memoize(program, ("after forcing", computed), make)


def repeated_effect(program: Program, computed: int) -> Equation | None:
    """Return the first of the first `computed` equations that has an effect, which would happen again with it."""
    return next((equation for equation in program.equations[:computed]
                 if is_effectful(equation.primitive, equation.params)), None)


def outputs_of_effects(program: Program) -> set[Variable]:
    """Return the outputs of equations with effects, which must not be computed twice."""
    return {var for equation in program.equations if is_effectful(equation.primitive, equation.params)
            for var in equation.outputs}
