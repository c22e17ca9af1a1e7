"""Remarks on the traced path of Python's control flow: the conditions, and their values."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np

from fxgrad.extend import Atom, ControlFlowPath, Program, Variable
from fxgrad.text.compact_writer import CompactWriter
from fxgrad.text.values import INDENT

MOST = 20
"""Most conditions that are shown; the rest are counted."""


LARGEST = 8
"""Most elements of an array that is shown."""


def path_remarks(program: Program) -> list[str]:
    """Return a line for each condition of Python's control flow when `program` was traced: `here x > 0: True`.

    >>> import fxgrad
    >>> def size(x):
    ...     return x if x > 0 else -x
    >>> [remark.partition(" (")[0] for remark in path_remarks(fxgrad.make_program(size)(2.0))]
    ['here x > 0.0: True']
    """
    path = None if program.signature is None else program.signature.path
    if path is None:
        return []
    makers = {var: equation for equation in path.conditions.equations for var in equation.outputs}
    asked: dict[Any, list[int]] = {}
    for number, (place, atom) in enumerate(zip(path.places, path.conditions.outputs, strict=True)):
        maker = makers.get(atom) if isinstance(atom, Variable) else None
        source = None if maker is None else maker.source
        # A condition of a loop has two instructions, at the begin and at the end.
        written = atom if source is None else source.positions
        asked.setdefault((place, written), []).append(number)
    lines = []
    for (place, _), numbers in [*asked.items()][:MOST]:
        where = f" ({place.partition(' (in ')[0]})" if place else ""
        runs = [(text, len([*same])) for text, same in groupby(_value_text(path.values[number]) for number in numbers)]
        shown = [text if count == 1 else f"{text} {count} times" for text, count in runs]
        values = ", then ".join(shown[:4]) + ", ..." * (len(shown) > 4)
        lines.append(f"here {_condition_text(path, numbers[0])}: {values}{where}")
    return [*lines, f"and {len(asked) - MOST} more"] if len(asked) > MOST else lines


def _value_text(value: Any) -> str:
    array = np.asarray(value)
    if array.size == 1:
        return str(array.reshape(()))
    return str(array.tolist()) if array.size <= LARGEST else f"an array of shape {array.shape}"


def _condition_text(path: ControlFlowPath, number: int) -> str:
    """Return the expression of a condition: the `return` expression of the program that computes it alone."""
    conditions, output = path.conditions, path.conditions.outputs[number]
    wanted: set[Atom] = {output}
    kept = []
    for equation in reversed(conditions.equations):
        if not wanted.isdisjoint(equation.outputs):
            kept.append(equation)
            wanted.update(equation.inputs)
    part = conditions.replace(outputs=[output], equations=kept[::-1])
    lines = CompactWriter(part, False, -1, 10_000).lines()
    return next(line for line in reversed(lines) if line.startswith(_RETURN)).removeprefix(_RETURN)


_RETURN = f"{INDENT}return "
