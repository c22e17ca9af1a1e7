"""Calls whose derivatives use strong products: a zero factor stops a NaN, however infinite a slope is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.engine.core.avals import Literal
from fxgrad.engine.core.program import Atom, Equation, Program, Variable
from fxgrad.engine.core.program_properties import calls_user_code, has_effects, memoize
from fxgrad.engine.core.regions import marked_inputs, replace_programs
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.derive import Derived
from fxgrad.engine.executors.numpy import run_first
from fxgrad.engine.executors.speculative import nan_check_outputs, propagates_nans, relax_products
from fxgrad.engine.higher_order.call import call_primitive, emit_inline, inline_calls, named_call_p, run_with_numpy
from fxgrad.engine.higher_order.groups import nonzero_mask, nonzero_tangents
from fxgrad.engine.ops.strong import has_free_axes, is_plain_factor, strong_form
from fxgrad.engine.ops.strong_solves import strong_solve
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.tracing.trace import WITH_LITERALS, trace_at
from fxgrad.engine.transforms.forward import fill_zeros
from fxgrad.engine.transforms.linearize import linearize_program

# --- strong products in place of ordinary ones -----------------------------------------------------------------------


def strengthen(program: Program, linear: Sequence[bool], arguments: Sequence[bool] = (), matrices: bool = True,
               ) -> Program:
    """Return a program, linear in the marked inputs, with strong products, down to the bodies of its loops.

    `arguments` marks the inputs of differentiation. Matrix products with one of these stay ordinary, since otherwise
    every step would read all parameters of a model once more. Without `matrices` all matrix products stay ordinary.
    """
    marks = tuple(linear)
    given = (*arguments, *(False for _ in marks[len(arguments):]))

    def make() -> Program:
        reached: set[Atom] = {var for var, marked in zip(program.inputs, marks, strict=True) if marked}
        known: set[Atom] = {var for var, marked in zip(program.inputs, given, strict=True) if marked}
        equations = []
        for equation in program.equations:
            moving = [atom in reached for atom in equation.inputs]
            if any(moving):
                reached.update(equation.outputs)
                made = _strengthen_equation(equation, moving, [atom in known for atom in equation.inputs], matrices)
                equations.append(made)
            else:
                equations.append(equation)
        return program.replace(equations=equations)

    return memoize(program, ("strengthened", marks, given, matrices), make)


def _strengthen_equation(equation: Equation, moving: Sequence[bool], known: Sequence[bool], matrices: bool) -> Equation:
    if equation.regions:
        inner = [strengthen(region.program, marked_inputs(region, moving),
                            [link.how == "same" and known[link.place] for link in region.inputs], matrices)
                 for region in equation.regions]
        return equation.replace(equation.inputs, replace_programs(equation.params, equation.regions, inner))
    solve = strong_solve.of(equation.primitive)
    if solve is not None:
        return equation if any(moving[:-1]) else _strong_solve(equation, solve)
    strong = strong_form.of(equation.primitive)
    if strong is None or any(map(is_plain_factor, equation.inputs)):
        return equation
    if "dimension_numbers" in equation.params and (not matrices or any(
            is_known and has_free_axes(equation.params, atom.aval.ndim, place)
            for place, (atom, is_known) in enumerate(zip(equation.inputs, known, strict=True)))):
        return equation
    return Equation(strong, equation.inputs, equation.params, equation.outputs, equation.source)


def _strong_solve(equation: Equation, solve: Callable[..., Any]) -> Equation:
    """Return the call of the strong solver that replaces an equation."""
    def build(*values: Any) -> list[Any]:
        return [solve(*values, **equation.params)]

    program, _ = trace_at(build, [atom.aval for atom in equation.inputs], mode=WITH_LITERALS, name="strong solve")
    return Equation(named_call_p, equation.inputs, {"program": program, "name": "strong_solve"}, equation.outputs,
                    equation.source)


def strengthen_slopes(program: Program, values: Sequence[bool]) -> Program:
    """Return a program whose marked outputs are values, and whose slopes are computed with strong products.

    The values are unchanged. One such slope is `out * log(x)`, that of a power in its exponent, which is 0 at 0.
    """
    marks = tuple(values)

    def make() -> Program:
        needed: set[Atom] = {atom for atom, is_value in zip(program.outputs, marks, strict=True) if is_value}
        equations = []
        for equation in reversed(program.equations):
            wanted = [var in needed for var in equation.outputs]
            if any(wanted) and not equation.regions:
                needed.update(equation.inputs)
            elif equation.regions:
                programs = [strengthen_slopes(region.program, [
                    link.how in ("carry", "inside") or wanted[link.place] for link in region.outputs])
                    for region in equation.regions]
                equation = equation.replace(equation.inputs, replace_programs(  # noqa: PLW2901
                    equation.params, equation.regions, programs))
                if any(wanted):
                    needed.update(equation.inputs)
            elif not any(type(atom) is Literal for atom in equation.inputs) and not _is_square(equation):
                equation = _strengthen_equation(equation, (), (), matrices=False)  # noqa: PLW2901
            equations.append(equation)
        return program.replace(equations=equations[::-1])

    return memoize(program, ("strong slopes", marks), make)


def _is_square(equation: Equation) -> bool:
    """Return whether it is a value times itself, in which 0 does not meet an infinity."""
    return equation.primitive.commutative and equation.inputs[0] is equation.inputs[1]


# --- the record ---------------------------------------------------------------------------------------------------


def _jvp(primals: list[Any], tangents: list[Any], *, program: Program, name: str) -> tuple[list[Any], list[Any]]:
    """Bind two such calls, one for known values and one for the tangents, with residuals between them."""
    first = linearize_program(program, nonzero_mask(tangents))
    count, half, moving = len(program.outputs), first.extra, nonzero_tangents(tangents)
    residuals = len(first.program.outputs) - count
    ready = strengthen_slopes(first.program, [True] * count + [False] * residuals)
    known = bind(safe_call_p, *first.captured, *primals, program=ready, name=name)
    if not any(half.nonzero_outputs):
        return known[:count], fill_zeros(program.out_avals, half.nonzero_outputs, [])
    given = {var for var, tangent in zip(first.program.inputs[len(first.captured):], tangents, strict=True)
             if type(tangent) is not Zero}
    linear = strengthen(half.linear, [False] * residuals + [True] * len(moving),
                        [atom in given for atom in first.program.outputs[count:]])
    out_tangents = bind(safe_call_p, *known[count:], *moving, program=linear, name=name)
    return known[:count], fill_zeros(program.out_avals, half.nonzero_outputs, out_tangents)


safe_call_p = call_primitive("safe_call", _jvp, run_with_numpy, emit_inline,
                             of_linear=lambda program, linear: strengthen(program, linear, matrices=False))
"""A function of `fxgrad.nan_safe`, or a part of one of its derivatives."""


def wrap_safely(program: Program, name: str) -> Program:
    """Return a program that only calls `program` safely."""
    if _call_of(program) is not None:
        return program

    def make() -> Program:
        bare = program.replace(captured=0, constants=(), signature=None)
        inputs = [Variable(aval) for aval in program.in_avals]
        outputs = [Variable(aval) for aval in program.out_avals]
        call = Equation(safe_call_p, [*inputs], {"program": bare, "name": name}, outputs, None)
        return program.replace(inputs=inputs, equations=[call], outputs=[*outputs])

    return memoize(program, ("safe", name), make)


def _call_of(program: Program) -> Equation | None:
    """Return the equation of a program that `wrap_safely` made."""
    if len(program.equations) != 1:
        return None
    equation, = program.equations
    is_all = equation.primitive is safe_call_p and [*program.outputs] == equation.outputs and (
        equation.inputs == program.inputs)
    return equation if is_all else None


def map_inside_safe_call(program: Program, make: Callable[[Program], Program]) -> Program:
    """Apply `make` to a program; within a safe call, apply it to the called program."""
    call = _call_of(program)
    if call is None:
        return make(program)
    made, count = make(call.params["program"]), program.captured
    capturing = memoize(made, ("captured", count), lambda: made.replace(captured=count))
    return wrap_safely(capturing, call.params["name"])


def without_safe_calls(derived: Derived) -> Derived:
    """Return the program with the equations of safe calls inlined, if nothing is derived from it."""
    program = inline_calls(derived.program, (safe_call_p,))
    if program is derived.program:
        return derived
    if not has_effects(program) and not calls_user_code(program) and propagates_nans(program):
        run_first(program, relax_products(program), nan_check_outputs(program))
    return derived._replace(program=program)
