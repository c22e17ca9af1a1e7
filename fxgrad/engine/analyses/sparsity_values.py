"""The values of an analysis of sparsity, and the walk through a linear program that finds them.

A value of a linear program depends on its linear inputs (`Dependence`), is known (a NumPy array), or is a number that
depends on values at run time: nothing is known of it (None), or which of its elements are 0 (`Masked`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine.analyses.index_sets import Dependence, union
from fxgrad.engine.analyses.sparsity_zeros import factor_outputs, masked_outputs
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Equation, Program, Source
from fxgrad.engine.core.program_properties import calls_user_code, has_effects
from fxgrad.engine.core.regions import Region
from fxgrad.engine.core.walk import eval_program
from fxgrad.errors import FxgradError

Value = Any
"""A `Dependence`, a NumPy array, a `Masked`, or None."""

_KNOWN = 20_000_000
"""The most elements of a value that is computed."""
_CALLS = frozenset({"inline", "call", "recomputed"})
_DENSE = 0.5
"""The share of all inputs from which on an element counts as one that depends on everything."""


class Blame(NamedTuple):
    """An operation whose results depend on many more inputs than its operands do; `source` is its line, if known."""

    primitive: Primitive
    source: Source | None


class Walk:
    """One analysis: `width` input elements, the rules by operation, and the operations that made values dense."""

    def __init__(self, width: int, rule_of: Callable[[Primitive], SparsityRule]) -> None:
        self.width, self.rule_of = width, rule_of
        self.blames: list[Blame] = []
        self.reverse_only = False
        """Whether an operation was met whose tangents cannot be computed, but its cotangents."""

    def run(self, program: Program, inputs: Sequence[Value]) -> list[Value]:
        """Return the values of the outputs of a program, given those of its inputs."""
        return eval_program(program, inputs, self.equation, lambda literal: np.asarray(literal.value))

    def equation(self, equation: Equation, values: list[Value]) -> list[Value]:
        """Return the values of the results of an operation."""
        found = [value for value in values if type(value) is Dependence]
        if not found:
            return known_outputs(equation, values) if not equation.regions or all(
                isinstance(value, np.ndarray) for value in values) else self._known_through(equation, values)
        if all(each.is_empty for each in found):
            return [Dependence(var.aval.shape, self.width, []) for var in equation.outputs]
        results = self.rule_of(equation.primitive)(self, equation, values)
        bound = _DENSE * self.width
        for each in results:
            if type(each) is Dependence and each.most >= bound and self.width > 8:
                if not equation.regions and max(each.most for each in found) < bound:
                    self.blames.append(Blame(equation.primitive, equation.source))
                break
        return results

    def _known_through(self, equation: Equation, values: list[Value]) -> list[Value]:
        """Return what is known of the results of an operation that holds programs, some operands of which are known."""
        regions = equation.regions
        is_followed = called_region(equation) is not None or (
            len(regions) == 1 and regions[0].role == "body" and regions[0].times is not None) or (
            isinstance(values[0], np.ndarray) and all(region.role == "branch" for region in regions))
        if not is_followed or all(value is None for value in values):
            return [None] * len(equation.outputs)
        return [None if type(each) is Dependence else each
                for each in self.rule_of(equation.primitive)(self, equation, values)]


def called_region(equation: Equation) -> Region | None:
    """Return the region of an operation that computes what its only program computes; None for others."""
    regions = equation.regions
    return regions[0] if len(regions) == 1 and regions[0].role in _CALLS else None


def operands_of(region: Region, values: Sequence[Value]) -> list[Value]:
    """Return the inputs of the program of a region that runs once, given the operands of its operation."""
    return [values[link.place] for link in region.inputs]


def placed(equation: Equation, region: Region, results: Sequence[Value]) -> list[Value]:
    """Return the results of an operation, given those of the program of a region."""
    found: list[Value] = [None] * len(equation.outputs)
    for link, result in zip(region.outputs, results, strict=True):
        if link.place >= 0:
            found[link.place] = result
    return found


def known_outputs(equation: Equation, values: Sequence[Value]) -> list[Value]:
    """Return what is known of the results of an operation: their values, their zeros (`Masked`), or nothing (None)."""
    primitive = equation.primitive
    if not all(isinstance(value, np.ndarray) for value in values):
        return factor_outputs(equation) or masked_outputs(equation, values)
    if (primitive.effectful or primitive.collective
            or primitive.calls_user_code or any(var.aval.size > _KNOWN for var in equation.outputs)
            or any(has_effects(program) or calls_user_code(program) for program in equation.programs)
            or not all(isinstance(var.aval.dtype, np.dtype) for var in equation.outputs)):
        return [None] * len(equation.outputs)
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(each) for each in primitive.numpy(*values, **equation.params)]
    except FxgradError:  # in a branch that is not taken; if it is taken, running it raises
        return [None] * len(equation.outputs)


SparsityRule = Callable[[Walk, Equation, "list[Value]"], "list[Value]"]
"""(walk, equation, values of its operands) -> values of its results; at least one operand is a `Dependence`."""


def linear_values(values: Sequence[Value]) -> list[Dependence]:
    """Return those of the values that depend on linear inputs."""
    return [value for value in values if type(value) is Dependence]


def conservative(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    """Each element of each result may depend on all that the operands depend on."""
    whole = [each.everywhere(()) for each in linear_values(values)]
    return [union(whole, (), walk.width).everywhere(var.aval.shape) for var in equation.outputs]


def reverse_only(walk: Walk, equation: Equation, values: list[Value]) -> list[Value]:
    """Each element may depend on everything, and the program is to be looked at backwards."""
    walk.reverse_only = True
    return conservative(walk, equation, values)
