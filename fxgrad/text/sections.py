"""Sections of a program: the part independent of the differentiated inputs, the forward part, the backward part."""

from __future__ import annotations

from itertools import groupby

from fxgrad.extend import Equation, Program

SHORTEST = 5
"""Least number of equations of a program that is divided into sections."""
HEADINGS = {"": "independent of what is differentiated", "forward": "forward", "backward": "backward"}
"""The heading of each part of equations, in the order of the program."""


def sections(program: Program) -> dict[int, str]:
    """Return the headings of sections by the index of their first equation; none if parts alternate.

    >>> import fxgrad, numpy as np
    >>> def loss(w, x):
    ...     scaled = np.exp(x)
    ...     error = np.tanh(w * scaled) - 1.0
    ...     return error * error
    >>> program = fxgrad.make_program(fxgrad.grad(loss))(1.0, 2.0)
    >>> [*sections(program).values()]
    ['independent of what is differentiated', 'forward', 'backward']
    """
    equations = program.equations
    starts = {part: number for part, group in groupby(range(len(equations)), lambda at: _part_of(equations[at]))
              for number in [next(group)]}
    order = [part for part, _ in groupby(equations, _part_of)]
    if len(equations) < SHORTEST or "backward" not in starts or order != [part for part in HEADINGS if part in starts] \
            or len(order) == 1:
        return {}
    return {starts[part]: HEADINGS[part] for part in order}


def _part_of(equation: Equation) -> str:
    part = "" if equation.source is None else equation.source.part or ""
    return part if part in HEADINGS else ""
