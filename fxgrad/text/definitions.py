"""Definitions under `where`: programs that are called by name or shared, and long arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.extend import Aval, Equation, Link, Program, Tracer, Variable, primitives
from fxgrad.text.names import UniqueNames, function_label, is_identifier
from fxgrad.text.patterns import pattern_text
from fxgrad.text.sources import Sources
from fxgrad.text.values import array_lines, is_uniform

NESTING_LIMIT = 4


class ProgramLabels:
    """The labels of one text; `taken` are words that no label may be.

    `taken` are words that cannot be labels; `stands_inside` selects equations that write their programs in place,
    without a label. In the `compact` style arrays that have a pattern are written as such.
    """

    def __init__(self, main: Program, limit: int, width: int, taken: Iterable[str] = (),
                 stands_inside: Callable[[Equation], bool] = lambda equation: True, compact: bool = False) -> None:
        self.sources = Sources()
        self.data: list[tuple[str, np.ndarray[Any, Any]]] = []
        self._limit, self._width = limit, width
        self._patterns = compact
        self._labels: dict[int, tuple[str, str]] = {}  # the label of a program in the text, and its name in equations
        self._defined: list[Program] = []
        self._data_names = UniqueNames()
        self._find(main, taken, stands_inside, compact)

    def _find(self, main: Program, taken: Iterable[str], stands_inside: Callable[[Equation], bool], compact: bool,
              ) -> None:
        """Assign labels to programs that are called by name, that occur more than once, or that are nested deeply."""
        count: dict[int, int] = {}
        wanted: dict[int, tuple[Program, str]] = {}
        taken_names = {*primitives, *taken}
        queue = [(main, 0)]
        for program, depth in queue:
            for equation in program.equations:
                taken_names.add(equation.primitive.name)
                if equation.primitive.regions is None:
                    continue
                called = is_call(equation)
                for inner in equation.programs:
                    count[id(inner)] = count.get(id(inner), 0) + 1
                    apart = called or depth == NESTING_LIMIT or not stands_inside(equation)
                    if apart or count[id(inner)] > 1:
                        own = equation.params["name"] if called else function_label(inner) if compact else ""
                        wanted.setdefault(id(inner), (inner, own or "body"))
                    if count[id(inner)] == 1:
                        queue.append((inner, 0 if apart else depth + 1))
        unique = UniqueNames([*taken_names, *map(dtypes.short_name, dtypes.SUPPORTED.values()), "float0"])
        for key, (program, name) in wanted.items():
            self._labels[key] = unique(name if is_identifier(name) else "function"), name
            self._defined.append(program)

    def programs(self) -> Iterator[tuple[Program, str, str]]:
        """Yield the programs defined under `where`, with their labels and the names that equations call them by."""
        for program in self._defined:
            yield program, *self._labels[id(program)]

    def label(self, program: Program) -> tuple[str, str]:
        """Return the label of a program that is defined under `where`, and its name in equations."""
        return self._labels[id(program)]

    def has_label(self, programs: Sequence[Program]) -> bool:
        """Return whether one of `programs` is defined under `where`."""
        return any(id(program) in self._labels for program in programs)

    def reference(self, program: Program) -> list[str]:
        """Return the label of a program among parameters."""
        return [self._labels[id(program)][0]]

    def captured(self, program: Program, bindings: Sequence[str], names: Mapping[Variable, str]) -> Iterator[str]:
        """Yield the lines of the captured values, with the values that are known."""
        constants = program.constants or [None] * program.captured
        for var, value, binding in zip(program.inputs[:program.captured], constants, bindings, strict=True):
            yield binding if value is None else f"{binding} = {self._constant(value, var.aval, names[var])}"

    def _constant(self, value: Any, aval: Aval, name: str) -> str:
        if isinstance(value, Tracer):
            return "..."
        array = np.asarray(value)
        if array.dtype != aval.dtype or array.shape != aval.shape:
            return "..."  # not of the type in the program: no text can be parsed back
        pattern = pattern_text(array) if self._patterns and not is_uniform(array) else None
        if pattern is not None:
            return pattern
        if array.size > max(self._limit, 1) and not is_uniform(array):
            return "..."
        lines = array_lines(array, self._width)
        if len(lines) == 1 and len(lines[0]) <= self._width // 2:
            return lines[0]
        label = self._data_names(name if is_identifier(name) else "constant")
        self.data.append((label, array))
        return f"@{label}"


def is_call(equation: Equation) -> bool:
    """Return whether an equation calls a program by name, and so prints as one line."""
    params = equation.params
    return len(params) == 2 and isinstance(params.get("program"), Program) and isinstance(params.get("name"), str)


def is_plain_call(equation: Equation) -> bool:
    """Return whether an equation calls one program with all operands in another way, such as with a custom rule."""
    regions = equation.regions
    whole = len(regions) == 1 and regions[0].at == ("program",) and len(equation.params) > 1 and \
        regions[0].inputs == tuple(Link("same", place) for place in range(len(equation.inputs)))
    return whole and not is_call(equation)
