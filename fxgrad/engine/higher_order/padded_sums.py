"""Sums of padded arrays as one concatenation: the gradient of `w[0], w[1], ...` with respect to `w`."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any, NamedTuple

from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.program import Atom, Equation, Program, Variable
from fxgrad.engine.core.sizes import has_symbolic_dim
from fxgrad.engine.derivation.simplify import remove_dead_code
from fxgrad.engine.ops.joining import concatenate_p
from fxgrad.engine.ops.pointwise import add_p
from fxgrad.engine.ops.shaping import pad_p
from fxgrad.engine.ops.structural import broadcast_to_p


class _Sum(NamedTuple):
    """A sum of arrays padded by zeros along `axis`: where each piece begins and ends, in the order of the additions."""

    axis: int
    pieces: list[tuple[int, int, Atom]]


def join_padded_sums(program: Program, at_least: int) -> Program:
    """Return the program with sums of `at_least` so many disjoint padded arrays joined by one concatenation.

    Each element is then computed by one addition less; it differs only where that was `0 + -0`.
    """
    uses = Counter(program.outputs)
    for equation in program.equations:
        uses.update(equation.inputs)
    sums: dict[Atom, _Sum] = {}
    joined: dict[Atom, _Sum] = {}
    for equation in program.equations:
        if equation.primitive is pad_p:
            found = _padded(equation)
            if found is not None:
                sums[equation.outputs[0]] = found
        elif equation.primitive is add_p:
            left, right = (sums.get(atom) for atom in equation.inputs)
            if left is None or right is None or left.axis != right.axis or any(
                    uses[atom] != 1 for atom in equation.inputs):
                continue
            if len(left.pieces) < len(right.pieces):
                left, right = right, left
            left.pieces.extend(right.pieces)  # it has no other owner
            output = equation.outputs[0]
            sums[output] = joined[output] = left
            for atom in equation.inputs:
                joined.pop(atom, None)
    joined = {var: each for var, each in joined.items() if len(each.pieces) >= at_least and _are_disjoint(each)}
    if not joined:
        return program
    equations: list[Equation] = []
    for equation in program.equations:
        found = joined.get(equation.outputs[0]) if equation.outputs else None
        equations += [equation] if found is None else _concatenation(equation, found)
    return remove_dead_code(program.replace(equations=equations))


def _padded(equation: Equation) -> _Sum | None:
    operand, value = equation.inputs
    if type(value) is not Literal or value.value != 0 or has_symbolic_dim(*operand.aval.shape):
        return None
    config: Any = equation.params["padding_config"]
    moved = [axis for axis, (low, high, inner) in enumerate(config) if low or high or inner]
    if len(moved) != 1 or min(config[moved[0]]) < 0 or config[moved[0]][2]:
        return None
    axis, begin = moved[0], config[moved[0]][0]
    return _Sum(axis, [(begin, begin + operand.aval.shape[axis], operand)])


def _are_disjoint(found: _Sum) -> bool:
    places = sorted((begin, end) for begin, end, _ in found.pieces)
    return all(one[1] <= other[0] for one, other in itertools.pairwise(places))


def _concatenation(equation: Equation, found: _Sum) -> list[Equation]:
    """Return the equations that join the pieces, with zeros between them, in place of the last addition."""
    aval, axis = equation.outputs[0].aval, found.axis
    pieces: list[Atom] = []
    before: list[Equation] = []
    place = 0
    ends = (aval.shape[axis], aval.shape[axis], None)
    for begin, end, piece in (*sorted(found.pieces, key=lambda each: each[0]), ends):
        if begin > place:
            shape = (*aval.shape[:axis], begin - place, *aval.shape[axis + 1:])
            zero = Literal(0, Aval((), aval.dtype))
            gap = Variable(Aval(shape, aval.dtype))
            before.append(Equation(broadcast_to_p, [zero], {"shape": shape}, [gap], equation.source))
            pieces.append(gap)
        if piece is not None:
            pieces.append(piece)
        place = end
    return [*before, Equation(concatenate_p, pieces, {"dimension": axis}, equation.outputs, equation.source)]
