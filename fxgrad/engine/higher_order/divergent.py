"""Programs run by only some devices of a mesh: every value in them is device-varying.

The cotangent of a value that is equal on all devices is summed over them. A branch that only some devices run cannot
compute this sum. So the operands of a branch or a loop are made varying before it, and the sum is computed there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.core.regions import replace_programs
from fxgrad.engine.core.walk import eval_program
from fxgrad.engine.derivation.derive import derive
from fxgrad.engine.ops.varying import pvary, pvary_p, take_equal, take_equal_p
from fxgrad.engine.tracing.tape import bind, bind_equation

Names = tuple[str, ...]


def make_divergent(names: frozenset[str], programs: Sequence[Program], values: Sequence[Any],
                   ) -> tuple[tuple[Program, ...], list[Any]]:
    """Return `programs` of the same inputs, and `values` for these, varying over the axes `names`.

    Along these axes some devices run the programs and others do not.
    """
    if not names or all(names <= aval.vma for program in programs for aval in program.in_avals):
        return tuple(programs), [*values]
    order = tuple(sorted(names))
    return tuple(make_varying(program, order) for program in programs), [pvary(value, order) for value in values]


def make_varying(program: Program, names: Names) -> Program:
    """Return `program` with all inputs, outputs and intermediates varying over the mesh axes `names`."""
    def step(equation: Equation, values: list[Any]) -> list[Any]:
        if equation.primitive is pvary_p:
            return [pvary(values[0], equation.params["axis_name"])]
        if equation.primitive is take_equal_p:
            return [take_equal(values[0], [name for name in equation.params["axis_name"] if name not in names])]
        if not equation.regions:
            return bind_equation(equation, values)
        taken = {link.place for region in equation.regions for link in region.inputs}
        given = [pvary(value, names) if place in taken else value for place, value in enumerate(values)]
        inner = [make_varying(region.program, names) for region in equation.regions]
        return bind(equation.primitive, *given, **replace_programs(equation.params, equation.regions, inner))

    def build(*values: Any) -> tuple[list[Any], None]:
        return [pvary(output, names) for output in eval_program(program, values, step)], None

    return derive(program, ("varying", names), build, [aval.varying(names) for aval in program.in_avals]).program
