"""Calling a program as a function: on containers like those it was traced with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad import tree
from fxgrad.core.avals import plain
from fxgrad.core.program import Program
from fxgrad.errors import ArgumentError, TreeError, at_user_line
from fxgrad.frontend.flat import described_aval, just
from fxgrad.tracing.apply import apply_program


def call_program(program: Program, args: tuple[Any, ...]) -> Any:
    """Runs a program on containers like those it was traced with, or on a flat list of inputs without a signature."""
    expected = len(program.inputs) - len(program.constants)
    if program.signature is None or program.signature.in_tree is None:
        if len(args) != expected:
            raise ArgumentError(at_user_line(f"the program takes {expected} inputs, got {len(args)}"))
        outputs = plain(apply_program(program, _typed(program, args)))
        return outputs[0] if len(outputs) == 1 else outputs
    leaves, structure = tree.flatten((args, {}))
    if structure != program.signature.in_tree:
        if len(args) == expected == len(leaves):
            leaves = list(args)
        else:
            raise TreeError(at_user_line(
                f"the program {program.signature.name} takes {', '.join(program.signature.input_names)} "
                f"(structure {program.signature.in_tree}), got the structure {structure}"))
    outputs = plain(apply_program(program, _typed(program, leaves)))
    return tree.unflatten(program.signature.out_tree, outputs) if program.signature.out_tree is not None else outputs


def _typed(program: Program, values: Sequence[Any]) -> list[Any]:
    """The inputs, checked against the program's types; Python scalars take on the dtype asked for."""
    variables = program.inputs[len(program.constants):]
    result = []
    for index, (value, var) in enumerate(zip(values, variables, strict=True)):
        aval = described_aval(value, "program", just(f"input {index}"))
        if type(value) in (bool, int, float, complex) and not var.aval.shape:
            result.append(np.asarray(value, var.aval.dtype)[()])
            continue
        if aval.shape != var.aval.shape or aval.dtype != var.aval.dtype:
            raise ArgumentError(at_user_line(
                f"the program takes {var.aval} as input {index}, got {aval}. Trace it again for other types, "
                "or convert with x.astype(...)"))
        result.append(value)
    return result
