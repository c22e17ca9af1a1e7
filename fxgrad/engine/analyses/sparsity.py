"""Sparsity of linear programs: which elements of the inputs each element of an output depends on, a superset always.

Derivatives of any function are linear programs (`engine/transforms/linearize.py`), so that the rules are those of the
linear operations, and of operations that hold programs.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxgrad.engine.analyses import sparsity_products as sparsity_products  # noqa: PLC0414  (it enters its rules)
from fxgrad.engine.analyses.sparsity_moves import sparsity_rules
from fxgrad.engine.analyses.sparsity_values import Value, Walk
from fxgrad.engine.core.program import Program
from fxgrad.engine.derivation.simplify import with_outputs


def dependences(program: Program, inputs: Sequence[Value], width: int) -> tuple[list[Value], Walk]:
    """Return the values of the outputs of a linear program, given those of its inputs, and the walk that found them.

    Inputs and outputs are `Dependence`s on `width` elements, known NumPy arrays, or None: any number that does not
    depend on them.
    """
    walk = Walk(width, sparsity_rules.of)
    return walk.run(program, inputs), walk


def known_values(program: Program, inputs: Sequence[Value], first: int) -> list[Value]:
    """Return what is known of the outputs of a program from `first` on: values that follow from known inputs alone,
    zeros, or None.
    """
    return Walk(0, sparsity_rules.of).run(with_outputs(program, program.outputs[first:]), inputs)
