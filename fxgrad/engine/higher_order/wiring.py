"""Programs rewired to stand inside an equation: shared captured inputs, other orders, tangents beside primals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxgrad.engine.core.avals import INVARIANT, Aval
from fxgrad.engine.core.program import Program, Variable
from fxgrad.engine.core.program_properties import memoize
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.derivation.derive import Derived, derive
from fxgrad.engine.derivation.simplify import remove_dead_code
from fxgrad.engine.higher_order.groups import Groups, Marks, join_groups, nonzero_mask, nonzero_tangents, split_by_sizes
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.structural import convert, instantiate_zeros
from fxgrad.engine.ops.varying import pvary
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.tape import innermost_for
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.transforms.forward import fill_zeros, push_forward
from fxgrad.engine.transforms.linearize import linearize_in_place


def rewire(program: Program, avals: tuple[Aval, ...], positions: tuple[int, ...]) -> Program:
    """Return `program` with inputs of `avals`; those at `positions` are its own, in order, the others unused."""
    def make() -> Program:
        own = dict(zip(positions, program.inputs, strict=True))
        inputs = [own[index] if index in own else Variable(aval) for index, aval in enumerate(avals)]
        return program.replace(inputs=inputs, captured=0, constants=())

    if positions == tuple(range(len(avals))) and program.captured == 0:
        return program
    return memoize(program, ("rewired", avals, positions), make)


def select_inputs(program: Program, order: tuple[int, ...]) -> Program:
    """Return `program` taking some of its inputs, in another order; it does not use the others."""
    return memoize(program, ("selected inputs", order), lambda: Program(
        [program.inputs[index] for index in order], program.equations, program.outputs))


def select_outputs(program: Program, kept: Sequence[bool]) -> Program:
    """Return `program` with some of its outputs, without the code for the others."""
    if all(kept):
        return program
    marks = tuple(kept)

    def make() -> Program:
        outputs = [atom for atom, wanted in zip(program.outputs, marks, strict=True) if wanted]
        return remove_dead_code(program.replace(outputs=outputs, constants=(), signature=None))

    return memoize(program, ("with outputs", marks), make)


def cast_outputs(program: Program, avals: Sequence[Aval]) -> Program:
    """Return `program` with outputs of the types `avals`, of the same shapes, that vary no less."""
    if program.out_avals == list(avals):
        return program

    def build(*values: Any) -> tuple[list[Any], None]:
        outputs = apply_equations(program, values)
        return [cast_to(output, aval) for output, aval in zip(outputs, avals, strict=True)], None

    return derive(program, ("output types", tuple(avals)), build, program.in_avals).program


def cast_to(value: Any, aval: Aval) -> Any:
    """Convert `value` to the dtype and weakness of `aval`, varying over the same mesh axes."""
    return pvary(convert(value, aval.dtype, aval.weak), sorted(aval.vma))


def join_carry_vma(outputs: Sequence[Aval], begin: Sequence[Aval], decides: Aval | None = None) -> list[Aval]:
    """Return the types of final carries, which vary over the axes of their initial values and of `decides` too."""
    more = INVARIANT if decides is None else decides.vma
    return [aval.varying(own.vma | more) if own.vma or more else aval
            for aval, own in zip(outputs, begin, strict=True)]


def used_inputs(program: Program) -> Marks:
    """Return a mask of the inputs that an equation or an output of `program` uses."""
    atoms = {atom for equation in program.equations for atom in equation.inputs if type(atom) is Variable}
    atoms.update(atom for atom in program.outputs if type(atom) is Variable)
    return tuple(var in atoms for var in program.inputs)


def needs_tangent_tape(primals: Sequence[Any], tangents: Sequence[Any]) -> bool:
    """Return whether a separate tape records the tangents, as in linearization.

    Then work on known values must not mix with theirs.
    """
    tape = innermost_for(nonzero_tangents(tangents))
    return tape is not None and not tape.staging and not any(
        type(primal) is Tracer and primal.tape is tape for primal in primals)


def dual_program(program: Program, wrt: Marks, wanted: Marks | None = None, separate: bool = False) -> Derived:
    """Return the program (inputs, tangents that `wrt` marks) -> (outputs, tangents that `wanted` marks).

    By default `wanted` marks all nonzero tangents; `extra` is their mask. With `separate` no equation computes both
    known values and tangents that are used, so that the program can be transposed in its tangents.
    """
    avals = program.in_avals

    def build(*values: Any) -> tuple[list[Any], Marks]:
        primals, given = values[:len(avals)], values[len(avals):]
        if separate:
            outputs, residuals, split = linearize_in_place(program, primals, wrt)
            tangents = fill_zeros(program.out_avals, split.nonzero_outputs,
                                  apply_equations(split.linear, [*residuals, *given]))
        else:
            outputs, tangents = push_forward(program, primals, fill_zeros(avals, wrt, given))
        reached = nonzero_mask(tangents)
        shown = [instantiate_zeros(tangent) for tangent, asked in zip(tangents, wanted or reached, strict=True)
                 if asked]
        return [*outputs, *shown], reached

    return derive(program, ("dual", wrt, wanted, separate), build,
                  [*avals, *(aval for aval, marked in zip(avals, wrt, strict=True) if marked)])


def dual_outputs(avals: Sequence[Aval], reached: Marks, results: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the result of a jvp rule from `results`, those of a dual program with outputs of types `avals`."""
    outputs, tangents = split_by_sizes(results, (len(avals), sum(reached)))
    return outputs, fill_zeros(avals, reached, tangents)


def dual_grouped(program: Program, takes: Groups[Any], makes: Groups[Any], wrt: Marks, wanted: Marks,
                 separate: bool = False) -> Derived:
    """Derive as `dual_program`, with each group of inputs and of outputs followed by its own tangents."""
    def build(*values: Any) -> tuple[list[Any], None]:
        primals, tangents = takes.without_tangents(values, wrt)
        results = dual_program(program, wrt, wanted, separate)([*primals, *tangents])
        return join_groups(makes.with_tangents(*dual_outputs(program.out_avals, wanted, results))), None

    avals = program.in_avals
    along = [aval if marked else Zero(aval) for aval, marked in zip(avals, wrt, strict=True)]
    key = ("dual grouped", takes.sizes, makes.sizes, wrt, wanted, separate)
    return derive(program, key, build, join_groups(takes.with_tangents(avals, along)))


def primal_step(step: Derived, program: Program, wrt: Marks) -> tuple[Program, list[Any]]:
    """Return the program for the outputs of `program` where `step`, its dual program in `wrt`, gives the tangents.

    It is `program` itself, unless functions with custom rules are in it: the value of a differentiated one is the one
    that its rule returned, so that the next derivative is that of the rule.
    """
    if not step.guards:
        return program, []

    def build(*primals: Any) -> tuple[list[Any], None]:
        return linearize_in_place(program, primals, wrt)[0], None

    derived = derive(program, ("primal step", wrt), build, program.in_avals)
    return derived.program, derived.captured


def nonzero_outputs_of(program: Program, wrt: Marks) -> Marks:
    """Return a mask of outputs that have a tangent if the inputs that `wrt` marks have one."""
    marks: Marks = dual_program(program, wrt).extra
    return marks


def add_tangents(sums: Sequence[Any], found: Sequence[Any]) -> list[Any]:
    """Return sums of tangents or cotangents, any of which may be `Zero`."""
    return [total if type(one) is Zero else one if type(total) is Zero else add(total, one)
            for total, one in zip(sums, found, strict=True)]
