"""The difference of two programs: equations aligned by their computation, not by their position.

Equations that compute the same values from the same inputs are matched first. Between them, equations with the same
operation on operands of the same types are paired; if their operands correspond too, they are unchanged, even if they
compute different values. So an edit shows only at its own place.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from html import escape
from typing import Any, NamedTuple

import numpy as np
from rich.text import Text

from fxgrad.extend import Atom, Equation, Literal, Program, Tracer, Variable, eval_program
from fxgrad.text.equality import equal
from fxgrad.text.html import page
from fxgrad.text.names import quoted_name, variable_names
from fxgrad.text.parameters import optional_parameters, order_parameters
from fxgrad.text.sources import Sources
from fxgrad.text.values import INDENT, array_lines, is_opaque, literal_text, value_lines

MARKS = {"same": " ", "removed": "-", "added": "+"}
COLORS = {"removed": "red", "added": "green"}
FEW = 20
"""Most elements of a captured array that are shown."""
CONTEXT = 1
"""Unchanged equations that are shown before and after a change."""


class DifferenceLine(NamedTuple):
    """A line of a difference: `kind` is "same", "removed" or "added"; `depth` counts the enclosing programs."""

    kind: str
    text: str
    depth: int = 0


class Difference:
    """The difference between two programs: true if there is one, and its lines.

    It prints with `-` before lines of the first program only, and `+` before lines of the second only; a change has
    both. In notebooks and by `rich.print` they are in colour. `len` counts the marked lines.
    """

    def __init__(self, lines: Sequence[DifferenceLine]) -> None:
        self.lines = [*lines]

    def __len__(self) -> int:
        return sum(line.kind != "same" for line in self.lines)

    def _marked_lines(self) -> Iterator[tuple[str, str]]:
        """Yield kinds and texts of the lines with marks, without those far from any change."""
        near = [index for index, line in enumerate(self.lines) if line.kind != "same"]
        wanted = {place for index in near for place in range(index - CONTEXT, index + CONTEXT + 1)}
        wanted |= {place for index in near for place in self._heads(index)}
        last = -1
        for index, line in enumerate(self.lines):
            if index in wanted:
                if last != index - 1:
                    yield "same", f"  {INDENT * line.depth}..."
                yield line.kind, f"{MARKS[line.kind]} {INDENT * line.depth}{line.text}"
                last = index
        if near and last != len(self.lines) - 1:
            yield "same", "  ..."

    def _heads(self, index: int) -> Iterator[int]:
        """Yield the lines of the operations that hold the program of a line."""
        depth = self.lines[index].depth
        for place in range(index, -1, -1):
            if self.lines[place].depth < depth:
                depth = self.lines[place].depth
                yield place

    def __str__(self) -> str:
        return "\n".join(text.rstrip() for _, text in self._marked_lines())

    __repr__ = __str__

    def __rich__(self) -> Text:
        result = Text()
        for number, (kind, text) in enumerate(self._marked_lines()):
            result.append("\n" * bool(number)).append(text.rstrip(), COLORS.get(kind, ""))
        return result

    def _repr_html_(self) -> str:
        return page("\n".join(f'<span class="fx-{kind}">{escape(text)}</span>' for kind, text in self._marked_lines()))


def difference(first: Program, second: Program) -> Difference:
    """Return the difference of `second` from `first`.

    >>> import numpy as np, fxgrad
    >>> def before(x):
    ...     wave = np.sin(x)
    ...     scaled = wave * 2.0
    ...     return np.sum(scaled)
    >>> def after(x):
    ...     wave = np.cos(x)
    ...     scaled = wave * 2.0
    ...     return np.sum(scaled)
    >>> one, other = (fxgrad.make_program(function)(np.ones(3)) for function in (before, after))
    >>> print(difference(one, other))
      x: f64[3]
    - wave: f64[3] = sin(x)
    + wave: f64[3] = cos(x)
      scaled: f64[3] = mul(wave, 2.0)
      ...
    >>> bool(difference(one, one))
    False
    """
    return Difference([] if equal(first, second) else [*_Alignment(first, second, Sources()).lines(0)])


class _Alignment:
    """Two programs with their equations aligned."""

    def __init__(self, first: Program, second: Program, sources: Sources) -> None:
        self._programs, self._sources = (first, second), sources
        self._names = [variable_names(program, sources) for program in self._programs]
        self._counterpart: dict[Variable, Variable] = {}
        self._inputs = self._align([*self._in_order(first)], [*self._in_order(second)],
                                   [self._input(0, var) for var in self._in_order(first)],
                                   [self._input(1, var) for var in self._in_order(second)])
        alone = [[pair[number] for pair in self._inputs if pair[number] is not None and pair[1 - number] is None]
                 for number in (0, 1)]
        self._renamed = [(one, other) for one, other in zip(*alone, strict=False) if one.aval == other.aval]
        self._counterpart.update((one, other) for one, other in (*self._inputs, *self._renamed)
                                 if one is not None and other is not None)

    @staticmethod
    def _in_order(program: Program) -> list[Variable]:
        return [*program.inputs[program.captured:], *program.inputs[:program.captured]]

    @staticmethod
    def _align(first: Sequence[Any], second: Sequence[Any], keys: Sequence[Any], other_keys: Sequence[Any],
               ) -> list[tuple[Any, Any]]:
        """Return pairs of items with equal keys in order, and items alone with None."""
        pairs: list[tuple[Any, Any]] = []
        matcher = SequenceMatcher(None, keys, other_keys, autojunk=False)
        for tag, begin, end, other_begin, other_end in matcher.get_opcodes():
            if tag == "equal":
                pairs += zip(first[begin:end], second[other_begin:other_end], strict=True)
            else:
                pairs += [(item, None) for item in first[begin:end]] + [(None, item) for item in second[
                    other_begin:other_end]]
        return pairs

    # --- aligning equations -----------------------------------------------------------------------------------

    def _pairs(self) -> list[tuple[Equation | None, Equation | None]]:
        """Return all equations in order, paired if they correspond."""
        one, other = (program.equations for program in self._programs)
        known: dict[Any, int] = {}  # a number for each distinct computation
        deep, other_deep = self._deep(0, known), self._deep(1, known)
        pairs: list[tuple[Equation | None, Equation | None]] = []
        matcher = SequenceMatcher(None, deep, other_deep, autojunk=False)
        for tag, begin, end, other_begin, other_end in matcher.get_opcodes():
            mine, theirs = one[begin:end], other[other_begin:other_end]
            if tag == "equal":
                pairs += zip(mine, theirs, strict=True)
            else:
                pairs += self._align(mine, theirs, [*map(self._shallow, mine)], [*map(self._shallow, theirs)])
        for mine_, theirs_ in pairs:
            if mine_ is not None and theirs_ is not None:
                self._counterpart.update(zip(mine_.outputs, theirs_.outputs, strict=True))
        return pairs

    def _deep(self, number: int, known: dict[Any, int]) -> list[int]:
        """Return for each equation the number of its computation, shared by both programs."""
        program = self._programs[number]
        places = {pair[number]: place for place, pair in enumerate([*self._inputs, *self._renamed])}
        result: list[int] = []

        def step(equation: Equation, operands: list[Any]) -> list[Any]:
            computed = known.setdefault((self._shallow(equation), tuple(operands)), len(known))
            result.append(computed)
            return [(computed, place) for place in range(len(equation.outputs))]

        eval_program(program, [("input", places[var]) for var in program.inputs], step)
        return result

    @staticmethod
    def _shallow(equation: Equation) -> Any:
        """Return a key of an equation's operation, without its operands; its inner programs are compared separately."""
        params = tuple((name, _parameter_text(value), id(value) if is_opaque(value) else 0)
                       for name, value in order_parameters(equation.primitive, equation.params).items()
                       if not _holds_programs(value))
        return equation.primitive, params, tuple(atom.aval for atom in (*equation.inputs, *equation.outputs))

    # --- lines ------------------------------------------------------------------------------------------------

    def lines(self, depth: int) -> Iterator[DifferenceLine]:
        """Yield all lines, the unchanged ones too."""
        pairs = self._pair_by_name(self._pairs())
        for one, other in self._inputs:
            yield from self._compare_both(None if one is None else self._input(0, one),
                                          None if other is None else self._input(1, other), depth)
        for mine, theirs in pairs:
            if mine is not None and theirs is not None and self._corresponds(mine, theirs):
                yield DifferenceLine("same", self._text(1, theirs), depth)
                yield from self._inner(mine, theirs, depth)
            else:
                yield from self._compare_both(None if mine is None else self._text(0, mine),
                                              None if theirs is None else self._text(1, theirs), depth)
                if mine is not None and theirs is not None:
                    yield from self._inner(mine, theirs, depth)
        outputs = [[self._atom(number, atom) for atom in program.outputs]
                   for number, program in enumerate(self._programs)]
        first, second = self._programs
        same = len(first.outputs) == len(second.outputs) and all(map(self._same, first.outputs, second.outputs))
        yield from self._compare_both(None if same else f"return {', '.join(outputs[0])}",
                                      f"return {', '.join(outputs[1])}",
                                      depth, "same" if same else "added")

    @staticmethod
    def _compare_both(before: str | None, after: str | None, depth: int,
                      kind: str = "added") -> Iterator[DifferenceLine]:
        if before is not None and before == after:
            yield DifferenceLine("same", before, depth)
            return
        if before is not None:
            yield DifferenceLine("removed", before, depth)
        if after is not None:
            yield DifferenceLine(kind, after, depth)

    def _pair_by_name(self, pairs: Sequence[tuple[Equation | None, Equation | None]],
                      ) -> list[tuple[Equation | None, Equation | None]]:
        """Pair unmatched equations that define a value of the same name, as before and after a change."""
        names = [{self._name_key(number, pair[number]): place for place, pair in enumerate(pairs)
                  if pair[number] is not None and pair[1 - number] is None} for number in (0, 1)]
        result = [*pairs]
        for name, place in names[0].items():
            after = names[1].get(name)
            mine, theirs = pairs[place][0], pairs[after][1] if after is not None else None
            if after is not None and mine is not None and theirs is not None and (
                    [var.aval for var in mine.outputs] == [var.aval for var in theirs.outputs]):
                result[after], result[place] = (mine, theirs), (None, None)
                self._counterpart.update(zip(mine.outputs, theirs.outputs, strict=True))
        return [pair for pair in result if pair != (None, None)]

    def _name_key(self, number: int, equation: Equation | None) -> Any:
        return equation if equation is None or not equation.outputs else tuple(
            self._names[number][var] for var in equation.outputs)

    def _same(self, one: Atom, other: Atom) -> bool:
        return one == other if isinstance(one, Literal) else self._counterpart.get(one) is other

    def _corresponds(self, mine: Equation, theirs: Equation) -> bool:
        """Return whether two equations apply one operation to corresponding operands, their inner programs aside."""
        return mine.primitive is theirs.primitive and len(mine.inputs) == len(theirs.inputs) and all(
            map(self._same, mine.inputs, theirs.inputs)) and self._shallow(mine) == self._shallow(theirs)

    def _inner(self, mine: Equation, theirs: Equation, depth: int) -> Iterator[DifferenceLine]:
        """Yield the differences of the programs that two equations hold."""
        if [region.role for region in mine.regions] != [region.role for region in theirs.regions]:
            return
        for one, other in zip(mine.regions, theirs.regions, strict=True):
            if not equal(one.program, other.program):
                yield from _Alignment(one.program, other.program, self._sources).lines(depth + 1)

    # --- texts ------------------------------------------------------------------------------------------------

    def _input(self, number: int, var: Variable) -> str:
        program = self._programs[number]
        binding = f"{quoted_name(self._names[number][var])}: {var.aval}"
        place = program.inputs.index(var)
        if place >= program.captured:
            return binding
        return f"captured {binding}{_constant_text(program.constants[place]) if program.constants else ''}"

    def _text(self, number: int, equation: Equation) -> str:
        outputs = ", ".join(f"{quoted_name(self._names[number][var])}: {var.aval}" for var in equation.outputs)
        left_out = optional_parameters(equation.primitive)
        arguments = [self._atom(number, atom) for atom in equation.inputs]
        arguments += [f"{name}={_parameter_text(value)}" for name,
                      value in order_parameters(equation.primitive, equation.params).items()
                      if value is not None or name not in left_out]
        return f"{outputs or '()'} = {equation.primitive.name}({', '.join(arguments)})"

    def _atom(self, number: int, atom: Atom) -> str:
        return literal_text(atom) if isinstance(atom, Literal) else quoted_name(self._names[number][atom])


def _parameter_text(value: Any) -> str:
    """Return a parameter; programs in it are shown on lines of their own if they differ."""
    return " ".join(value_lines(value, lambda _: ["..."]))


def _holds_programs(value: Any) -> bool:
    return isinstance(value, Program) or (isinstance(value, tuple | list) and any(map(_holds_programs, value)))


def _constant_text(value: Any) -> str:
    """Return the elements of a captured array; if there are many, a description that identifies it."""
    if isinstance(value, Tracer):
        return ""
    array = np.asarray(value)
    if array.size > FEW:
        return f" = <{array.size} elements, {zlib.crc32(np.ascontiguousarray(array).tobytes()):08x}>"
    return f" = {' '.join(array_lines(array, 10_000))}"
