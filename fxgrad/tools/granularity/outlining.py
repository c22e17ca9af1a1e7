"""`outline`: the equations of a named scope as one call, the other way round from `inline`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fnmatch import fnmatchcase

from fxgrad.extend import (
    CALL_NAMES,
    Atom,
    CallNames,
    Equation,
    Program,
    Variable,
    eval_program,
    primitives,
    replace_programs,
    require_program,
)
from fxgrad.text.names import NAMES, own_names
from fxgrad.text.sources import Sources


def outline(program: Program, scopes: str | Sequence[str] = "*", *, depth: int | None = None) -> Program:
    """Return an equal program in which each named scope is one call of that name.

    `scopes` are patterns of the outermost names to fold, by default all; scopes within scopes become calls within
    calls, down to `depth` of them. Adjacent equations of a scope become one call; a scope that a derivative re-enters
    later becomes several. `inline` restores the program.

    >>> import fxgrad, numpy as np
    >>> def network(x, W):
    ...     with fxgrad.named_scope("layer"):
    ...         hidden = np.tanh(x @ W)
    ...     return np.sum(hidden)
    >>> program = fxgrad.make_program(network)(np.ones(2), np.ones((2, 2)))
    >>> print(fxgrad.text.program_text(outline(program), source=False))
    program network(x: f64[2], W: f64[2,2]) -> f64:
      hidden: f64[2] = layer(x, W)
      return sum(hidden)
    <BLANKLINE>
    where layer(x: f64[2], W: f64[2,2]):
      hidden: f64[2] = tanh(x @ W)
      return hidden
    >>> fxgrad.text.equal(fxgrad.inline(outline(program)), program)
    True
    """
    patterns = [scopes] if isinstance(scopes, str) else scopes
    return _fold_scopes(require_program("outline", program), patterns, depth)


def _fold_scopes(program: Program, patterns: Sequence[str], depth: int | None) -> Program:
    """Return the program with its scopes folded, and those of its inner programs."""
    named = own_names(program, Sources())
    # How often each variable is used, as an output too.
    left = dict.fromkeys((var for equation in program.equations for var in equation.outputs), 0)
    left.update(dict.fromkeys(program.inputs, 0))
    for atom in itertools.chain(program.outputs, *(equation.inputs for equation in program.equations)):
        if isinstance(atom, Variable):
            left[atom] += 1
    equations: list[Equation] = []

    def scope_of(equation: Equation) -> str:
        first = equation.scope.partition("/")[0]
        return first if depth != 0 and any(fnmatchcase(first, pattern) for pattern in patterns) else ""

    for scope, run in itertools.groupby(program.equations, scope_of):
        group = [*run]
        for equation in group:
            for atom in equation.inputs:
                if isinstance(atom, Variable):
                    left[atom] -= 1
        if not scope:
            equations += [_fold_regions(equation, patterns, depth) for equation in group]
        else:
            equations.append(_fold_call(scope, group,
                                        [var for equation in group for var in equation.outputs if left[var]],
                                        named, depth))
    if all(one is other for one, other in zip(equations, program.equations, strict=False)) and (
            len(equations) == len(program.equations)):
        return program
    result = program.replace(equations=equations)
    NAMES.put(result, named)
    return result.check()


def _fold_regions(equation: Equation, patterns: Sequence[str], depth: int | None) -> Equation:
    regions = equation.regions
    programs = [_fold_scopes(region.program, patterns, depth) for region in regions]
    if all(new is region.program for new, region in zip(programs, regions, strict=True)):
        return equation
    return equation.replace(equation.inputs, replace_programs(equation.params, regions, programs))


def _fold_call(scope: str, group: Sequence[Equation], outputs: Sequence[Variable], named: dict[Variable, str],
               depth: int | None,
               ) -> Equation:
    """Return one call of `scope` that replaces its equations; others use its `outputs`."""
    made = {var for equation in group for var in equation.outputs}
    inputs = [*dict.fromkeys(atom for equation in group for atom in equation.inputs
                             if isinstance(atom, Variable) and atom not in made)]
    inner = [Variable(var.aval) for var in inputs]
    names = {new: named[old] for new, old in zip(inner, inputs, strict=True) if old in named}
    equations: list[Equation] = []

    def step(equation: Equation, operands: list[Atom]) -> list[Variable]:
        new = [Variable(var.aval) for var in equation.outputs]
        names.update((var, named[old]) for var, old in zip(new, equation.outputs, strict=True) if old in named)
        source = equation.source
        assert source is not None
        equations.append(Equation(equation.primitive, operands, equation.params, new,
                                  source._replace(scope=source.scope.partition("/")[2], origins=())))
        return new

    results = eval_program(Program(inputs, group, outputs), inner, step)
    body = Program(inner, equations, results)
    NAMES.put(body, names)
    folded = _fold_scopes(body, ["*"], None if depth is None else depth - 1)
    CALL_NAMES.put(folded, CallNames(scope, ()))
    source = group[-1].source
    assert source is not None
    return Equation(primitives.named_call, [*inputs], {"program": folded, "name": scope}, [*outputs],
                    source._replace(scope="", origins=(), results=()))
