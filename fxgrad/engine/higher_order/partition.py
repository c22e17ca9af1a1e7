"""The partition of a linearized program: a forward half saves values, a tangent half recomputes the rest.

A `saving.SavePolicy` chooses the values to save.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fxgrad.engine.core.interpreter import interpret
from fxgrad.engine.core.program import PRIMAL, Equation, Program, Variable
from fxgrad.engine.core.program_properties import NO_AXES, collective_axes, memoize
from fxgrad.engine.derivation.derive import derive
from fxgrad.engine.derivation.effects import outputs_of_effects
from fxgrad.engine.derivation.simplify import remove_dead_code
from fxgrad.engine.higher_order.groups import Marks, select_marked
from fxgrad.engine.higher_order.saving import SavePolicy
from fxgrad.engine.ops.structural import instantiate_zeros
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.provenance import note_provenance
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.tracing.trace import mesh_in_scope
from fxgrad.engine.transforms.forward import fill_zeros
from fxgrad.engine.transforms.linearize import Linearized


class Partition(NamedTuple):
    """The two halves: `forward` (inputs) -> (outputs, saved), `tangent` (free inputs, saved, tangents) -> tangents."""

    forward: Program
    tangent: Program
    saved: list[Variable]


def partition(known: Program, count: int, half: Linearized, free: Marks, keep: SavePolicy, wanted: Marks) -> Partition:
    """Cut a linearized program, `known` (inputs) -> (`count` outputs, residuals), in two.

    The inputs that `free` marks exist in the backward pass without being saved. The tangent half returns the tangents
    of the outputs that `wanted` marks, zeros where `half` has none.
    """
    residuals = known.outputs[count:]
    free_inputs = {var for var, marked in zip(known.inputs, free, strict=True) if marked}
    needed = [atom for atom in dict.fromkeys(residuals) if type(atom) is Variable and atom not in free_inputs]
    untyped = _untyped_on_mesh(known)  # computed again, since a mesh keeps values by the axes in their types
    saved = [var for var in _with_effects_kept(known, needed, free_inputs, keep(known, needed, free_inputs))
             if var not in untyped]
    forward = memoize(known, ("forward half", count, tuple(saved)), lambda: remove_dead_code(Program(
        known.inputs, known.equations, [*known.outputs[:count], *saved], known.captured)))
    linear = half.linear
    tangent_avals = linear.in_avals[linear.captured:]
    given = [var for var in known.inputs if var in free_inputs] + saved

    def build(*values: Any) -> tuple[list[Any], None]:
        there = dict(zip(given, values, strict=False))
        note_provenance(values, PRIMAL, known, given)

        def recompute(equation: Equation, inputs: list[Any]) -> list[Any]:
            outputs = bind(equation.primitive, *inputs, **equation.params)
            note_provenance(outputs, PRIMAL, known, equation.outputs)
            return [there.get(var, value) for var, value in zip(equation.outputs, outputs, strict=True)]

        part = Program(given, _missing_equations(known, needed, given), residuals)
        recomputed = interpret(part, values[:len(given)], recompute)
        outputs = apply_equations(linear, [*recomputed, *values[len(given):]])
        out_avals = [atom.aval.strong() for atom in known.outputs[:count]]
        return [*map(instantiate_zeros,
                     select_marked(fill_zeros(out_avals, half.nonzero_outputs, outputs), wanted))], None

    tangent = derive(known, ("tangent half", tuple(saved), free, wanted, linear), build,
                     [*(var.aval for var in given), *tangent_avals]).program
    return Partition(forward, tangent, saved)


def _untyped_on_mesh(program: Program) -> set[Variable]:
    """Return the values that vary over a mesh axis which their type lacks.

    These are positions of devices, what collectives make of numbers, and what depends on them alone.
    """
    mesh, missing = mesh_in_scope(), dict[Any, frozenset[str]]()
    if mesh is None:
        return set()
    for equation in program.equations:
        axes = NO_AXES.union(*(missing.get(atom, NO_AXES) for atom in equation.inputs))
        if Variable not in map(type, equation.inputs):
            axes |= collective_axes(equation.primitive, equation.params) & mesh.names
        missing.update((var, axes - var.aval.vma) for var in equation.outputs if axes - var.aval.vma)
    return {*missing}


def _with_effects_kept(known: Program, needed: Sequence[Variable], free: set[Variable],
                       saved: list[Variable]) -> list[Variable]:
    """Return `saved`, and the values that an operation with effects would have to recompute."""
    once = outputs_of_effects(known)
    if not once:
        return saved
    wanted, kept = {var for var in needed if var not in free}, set(saved)
    for equation in reversed(known.equations):
        missing = [var for var in equation.outputs if var in wanted and var not in kept]
        if missing and missing[0] in once:
            kept.update(missing)
        elif missing:
            wanted.update(atom for atom in equation.inputs if type(atom) is Variable and atom not in free)
    return [*saved, *(var for equation in known.equations for var in equation.outputs
                      if var in kept and var not in saved)]


def _missing_equations(program: Program, needed: Sequence[Variable], given: Sequence[Variable]) -> list[Equation]:
    """Return the equations that compute `needed`, if `given` is known."""
    known = {*given}
    wanted = {var for var in needed if var not in known}
    equations: list[Equation] = []
    for equation in reversed(program.equations):
        if not wanted.isdisjoint(equation.outputs):
            equations.append(equation)
            wanted.update(atom for atom in equation.inputs if type(atom) is Variable and atom not in known)
    return equations[::-1]
