"""Programs of which a part runs, or has run, for its values alone: their effects are left out."""

from __future__ import annotations

from collections.abc import Sequence

from fxgrad.engine.core.facts import Slot, has_effects, is_effectful
from fxgrad.engine.core.program import Atom, Equation, Program, Var
from fxgrad.engine.core.regions import replaced
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import UnsupportedError

_WITHOUT: Slot[Program] = Slot("without effects")


def without_effects(program: Program, why: str) -> Program:
    """`program` without its effects, to be computed again where they have happened already.

    Raises `UnsupportedError` if the result of an operation with effects is needed; `why` says what computes it again.
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
                f"{why} would run {_shown(equation)} a second time for its result. Call it outside, and pass the "
                "result in"))
        if is_effectful(equation.primitive, equation.params):
            regions = equation.regions
            params = replaced(equation.params, regions, [without_effects(region.program, why) for region in regions])
            kept.append(equation.replace(equation.inputs, params))
        else:
            kept.append(equation)
        wanted.update(equation.inputs)
    return kept[::-1]


def _shown(equation: Equation) -> str:
    where = "" if equation.source is None else f" at line {equation.source.line}"
    return f"the {equation.primitive}{where}"


def after_forcing(program: Program, computed: int) -> tuple[Program, int]:
    """`program` without the effects that were seen while its first `computed` equations were computed.

    The second result is how many of its first equations those now are; their outputs are the same. An operation of
    their own number that has effects and outputs is still there: whoever knows the outputs need not run it again.
    """
    prefix = program.equations[:computed]
    if not has_effects(program) or not any(
            is_effectful(equation.primitive, equation.params) for equation in prefix):
        return program, computed
    made: tuple[Program, int] | None = program.memo.get(("after forcing", computed))
    if made is None:
        first = []
        for equation in prefix:
            if equation.primitive.effectful and equation.outputs:
                first.append(equation)
            else:
                why = f"Python's control flow asks for a value, which runs {_shown(equation)}; the derivative"
                first += _equations_without([equation], set(equation.outputs), why)
        made = program.memo["after forcing", computed] = (
            program.replace(equations=[*first, *program.equations[computed:]]), len(first))
    return made


def repeated_effect(program: Program, computed: int) -> Equation | None:
    """The first of the first `computed` equations that would have an effect again if they were computed again."""
    return next((equation for equation in program.equations[:computed]
                 if is_effectful(equation.primitive, equation.params)), None)


def outputs_of_effects(program: Program) -> set[Var]:
    """The variables that should not be computed twice, for an effect comes with them."""
    return {var for equation in program.equations if is_effectful(equation.primitive, equation.params)
            for var in equation.outputs}
