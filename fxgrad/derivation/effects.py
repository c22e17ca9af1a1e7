"""Programs of which a part runs, or has run, for its values alone: their effects are left out."""

from __future__ import annotations

from collections.abc import Sequence

from fxgrad.core.facts import Slot, has_effects, is_effectful
from fxgrad.core.program import Atom, Equation, Program, Var
from fxgrad.core.regions import replaced
from fxgrad.errors import UnsupportedError, at_user_line

_SILENCED: Slot[Program] = Slot("without effects")


def silenced(program: Program, why: str) -> Program:
    """`program` without its effects, to be computed again where they have happened already.

    Raises `UnsupportedError` if the result of an operation with effects is needed; `why` says what computes it again.
    """
    if not has_effects(program):
        return program
    made = _SILENCED.of(program)
    if made is None:
        equations = _without_effects(program.equations, set(program.outputs), why)
        made = _SILENCED.put(program, program.replace(equations=equations))
    return made


def _without_effects(equations: Sequence[Equation], wanted: set[Atom], why: str) -> list[Equation]:
    kept = []
    for equation in reversed(equations):
        if equation.primitive.effectful and wanted.isdisjoint(equation.outputs):
            continue
        if equation.primitive.effectful:
            raise UnsupportedError(at_user_line(
                f"{why} would run {_shown(equation)} a second time for its result. Call it outside, and pass the "
                "result in"))
        if is_effectful(equation.primitive, equation.params):
            regions = equation.regions
            params = replaced(equation.params, regions, [silenced(region.program, why) for region in regions])
            kept.append(equation.replace(equation.inputs, params))
        else:
            kept.append(equation)
        wanted.update(equation.inputs)
    return kept[::-1]


def _shown(equation: Equation) -> str:
    where = "" if equation.source is None else f" at line {equation.source.line}"
    return f"the {equation.primitive}{where}"


def after_forcing(program: Program, known: int) -> tuple[Program, int]:
    """`program` without the effects that were seen while its first `known` equations were computed.

    The second result is how many of its first equations those now are; their outputs are the same. An operation of
    their own number that has effects and outputs is still there: whoever knows the outputs need not run it again.
    """
    prefix = program.equations[:known]
    if not has_effects(program) or not any(
            is_effectful(equation.primitive, equation.params) for equation in prefix):
        return program, known
    made: tuple[Program, int] | None = program.memo.get(("after forcing", known))
    if made is None:
        first = []
        for equation in prefix:
            if equation.primitive.effectful and equation.outputs:
                first.append(equation)
            else:
                first += _without_effects([equation], set(equation.outputs), "Python's control flow asks for a value, "
                                          f"which runs {_shown(equation)}; the derivative")
        made = program.memo["after forcing", known] = (
            program.replace(equations=[*first, *program.equations[known:]]), len(first))
    return made


def repeated_effect(program: Program, known: int) -> Equation | None:
    """The first of the first `known` equations that would have an effect again if they were computed again."""
    return next((equation for equation in program.equations[:known]
                 if is_effectful(equation.primitive, equation.params)), None)


def outputs_of_effects(program: Program) -> set[Var]:
    """The variables that should not be computed twice, for an effect comes with them."""
    return {var for equation in program.equations if is_effectful(equation.primitive, equation.params)
            for var in equation.outputs}
