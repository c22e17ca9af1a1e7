"""Taking named calls apart: the equations of a library function in the place of the one line that calls it."""

from __future__ import annotations

from fxgrad.control.call import named_call_p
from fxgrad.core.program import PRIMAL, Atom, Equation, Origin, Program, Var
from fxgrad.core.regions import replaced
from fxgrad.core.walk import walk
from fxgrad.show.names import NAMES, own_names
from fxgrad.show.sources import Sources


def unfold(program: Program) -> Program:
    """An equal program without named calls: library functions appear with their own equations, at every depth.

    >>> import fxgrad
    >>> from fxgrad.control.call import named
    >>> @named
    ... def square(x):
    ...     return x * x
    >>> program = fxgrad.make_program(lambda x: square(x) + 1.0)(3.0)
    >>> [equation.primitive.name for equation in program.equations]
    ['named_call', 'add']
    >>> [equation.primitive.name for equation in unfold(program).equations]
    ['mul', 'add']
    """
    done: dict[int, Program] = {}
    stack = [program]
    while stack:  # not by recursion: calls may nest deeply
        top = stack[-1]
        missing = [inner for equation in top.equations for inner in equation.programs if id(inner) not in done]
        if missing and id(top) not in done:
            stack.extend(missing)
        else:
            stack.pop()
            done.setdefault(id(top), _unfolded(top, done))
    return done[id(program)]


def _unfolded(program: Program, done: dict[int, Program]) -> Program:
    """`program` with the calls in it replaced, given what the programs in its parameters became."""
    values: dict[Var, Atom] = {}
    equations: list[Equation] = []
    changed = False
    for equation in program.equations:
        regions = equation.regions
        if not regions and not values:
            equations.append(equation)
            continue
        inputs = [_read(values, atom) for atom in equation.inputs]
        if equation.primitive is named_call_p:
            made = _inline(done[id(regions[0].program)], inputs, equation, equations)
            values.update(zip(equation.outputs, made, strict=True))
            changed = True
            continue
        params = replaced(equation.params, regions, [done[id(region.program)] for region in regions])
        changed |= any(done[id(region.program)] is not region.program for region in regions)
        equations.append(equation.replace(inputs, params))
    if not changed:
        return program
    result = program.replace(equations=equations, outputs=[_read(values, atom) for atom in program.outputs])
    names: dict[Var, str] = {}
    for var, name in own_names(program, Sources()).items():
        # What a call made keeps the name that its line gives it.
        atom = _read(values, var)
        if isinstance(atom, Var):
            names.setdefault(atom, name)
    NAMES.put(result, names)
    return result


def _inline(program: Program, inputs: list[Atom], call: Equation, equations: list[Equation]) -> list[Atom]:
    """Adds copies of the equations of `program` to `equations`; returns the atoms of its outputs."""
    def step(equation: Equation, operands: list[Atom]) -> list[Var]:
        outputs = [Var(var.aval) for var in equation.outputs]
        for var, original in zip(outputs, equation.outputs, strict=True):
            var.origins = (Origin(PRIMAL, program, original),)
        equations.append(Equation(equation.primitive, operands, equation.params, outputs,
                                  equation.source or call.source))
        return outputs

    return walk(program, inputs, step)


def _read(values: dict[Var, Atom], atom: Atom) -> Atom:
    return values.get(atom, atom) if isinstance(atom, Var) else atom

