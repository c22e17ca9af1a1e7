"""`scalarize`: a program of arrays as one of scalars, in which every sum and every product is an equation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad import tree
from fxgrad.errors import ArgumentError
from fxgrad.extend import (
    Aval,
    Equation,
    MissingRule,
    Program,
    Signature,
    Variable,
    at_user_line,
    eval_program,
    remove_dead_code,
    require_program,
)
from fxgrad.text.inlining import inline
from fxgrad.text.names import NAMES, own_names
from fxgrad.text.sources import Sources
from fxgrad.tools.granularity.rules import scalar_rules
from fxgrad.tools.granularity.scalars import Elements, Scalars, as_elements, known_numbers, literal_elements


def scalarize(program: Program, *, limit: int = 100_000) -> Program:
    """Return an equal program of scalars: an input for each element, an equation for each sum and product.

    It is called like the program, with nested lists for arrays (`x.tolist()`), and returns nested lists. Reshapes,
    transposes, broadcasts, static indexing and other moves of elements are no equations. Constants, such as closed-over
    arrays, are folded; calls are inlined, and dead equations are left out.

    Values and gradients are the same up to rounding. Sums go from the first element to the last one, as NumPy's do over
    fewer than 8 elements, while its longer sums and its products of matrices group their terms; and some of its kernels
    round the last bit differently for many numbers than for one. Apart from these the bits are the same.

    Raises `UnsupportedError`, which names the operation and the user's line, for operations that have no form in
    scalars: sorting, FFTs, decompositions, random numbers, traced indices, loops (unroll them by `inline(program,
    loops=True)` first) and branches. Raises `ArgumentError` if the result would have more than `limit` equations or
    inputs.

    >>> import fxgrad, numpy as np
    >>> def neuron(x, W, b):
    ...     return np.exp(x @ W + b)
    >>> program = fxgrad.make_program(neuron)(np.ones(3), np.ones(3), 0.5)
    >>> scalars = fxgrad.scalarize(program)
    >>> [equation.primitive.name for equation in scalars.equations]
    ['mul', 'mul', 'mul', 'add', 'add', 'add', 'exp']
    >>> scalars([0.5, 1.0, 0.0], [0.1, 0.2, 0.3], -0.25)
    np.float64(1.0)
    """
    program = inline(require_program("scalarize", program), calls="*", devices=True, limit=limit)
    scalars = Scalars(limit)
    arguments = program.inputs[len(program.constants):]
    count = sum(var.aval.size for var in program.inputs)
    if count > limit:
        raise ArgumentError(at_user_line(
            f"scalarize: the arrays that the program takes have {count} elements, each of which would be an input or a "
            f"number; at most {limit} are made. Make them smaller, or allow more: scalarize(program, limit=...)"))
    given = [as_elements([*map(Variable, [Aval((), var.aval.dtype, var.aval.weak)] * var.aval.size)], var.aval.shape)
             for var in arguments]
    constants = [literal_elements(value, var.aval) for value,
                 var in zip(program.constants, program.inputs, strict=False)]
    made_of: dict[Variable, Elements] = {}
    outputs = _run_scalars(scalars, program, [*constants, *given], made_of)
    signature = program.signature
    made = Program([atom for operand in given for atom in operand.flat], scalars.equations,
                   [atom for output in outputs for atom in output.flat],
                   captured=sum(var.aval.size for var in program.inputs[len(program.constants):program.captured]))
    named = own_names(program, Sources())
    names = [named.get(var, f"input{number}") for number, var in enumerate(arguments)]
    if signature is not None and signature.in_tree is not None:
        shapes = [var.aval.shape for var in arguments], [atom.aval.shape for atom in program.outputs]
        made = made.replace(signature=Signature(
            signature.name, tuple(text for name, operand in zip(names, given, strict=True)
                                  for text in _names(name, operand)),
            _tree_of_lists(signature.in_tree, shapes[0]),
            None if signature.out_tree is None else _tree_of_lists(signature.out_tree, shapes[1]), signature.title))
        made.base = None
    result = remove_dead_code(made)
    NAMES.put(result, _all_names([*zip(names, given, strict=True), *(
        (name, made_of[var]) for var, name in named.items() if var in made_of)]))
    return result


def _run_scalars(scalars: Scalars, program: Program, inputs: Sequence[Elements], made_of: dict[Variable, Elements],
                 ) -> list[Elements]:
    """Return the elements of the outputs of `program`; `made_of` collects the elements of each variable."""
    def step(equation: Equation, operands: list[Elements]) -> list[Elements]:
        with scalars.at(equation):
            made = _compute_known(equation, operands)
            if not made:
                rule = scalar_rules.of(equation.primitive)
                if isinstance(rule, MissingRule):
                    raise scalars.refusal(rule.reason)
                made = rule(scalars, equation, operands)
        made_of.update(zip(equation.outputs, made, strict=True))
        return made

    return eval_program(program, inputs, step, lambda literal: as_elements([literal], ()))


def _compute_known(equation: Equation, operands: list[Elements]) -> list[Elements] | None:
    """Return the results of an equation of numbers alone; None if it depends on an input, or has effects or regions."""
    if equation.regions or equation.primitive.effectful or equation.primitive.collective:
        return None
    values = [known_numbers(operand, atom.aval) for operand, atom in zip(operands, equation.inputs, strict=True)]
    if any(value is None for value in values):
        return None
    with np.errstate(all="ignore"):
        made = equation.primitive.numpy(*values, **equation.params)
    return [literal_elements(array, var.aval) for array, var in zip(made, equation.outputs, strict=True)]


# --- signature ------------------------------------------------------------------------------------------------------


def _names(name: str, operand: Elements) -> list[str]:
    """Return the names of the elements of an array: `W[0][1]`."""
    return [name + "".join(f"[{index}]" for index in place) for place in np.ndindex(operand.shape)]


def _all_names(operands: Sequence[tuple[str, Elements]]) -> dict[Variable, str]:
    """Return names of the variables among elements of arrays, unique; each variable gets its first name."""
    names: dict[Variable, str] = {}
    taken = set()
    for name, operand in operands:
        for atom, text in zip(operand.flat, _names(name, operand), strict=True):
            if isinstance(atom, Variable) and atom not in names and text not in taken:
                names[atom] = text
                taken.add(text)
    return names


def _tree_of_lists(structure: Any, shapes: Sequence[tuple[int, ...]]) -> Any:
    """Return the structure with nested lists for arrays of these shapes."""
    return tree.structure(tree.unflatten(structure, [np.zeros(shape).tolist() for shape in shapes]))
