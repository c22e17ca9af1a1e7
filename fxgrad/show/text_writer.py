"""The text of a program, which reads like the code it came from and which `parse` reads back.

The grammar stands in docs/programs.md. Programs that are called are printed once, after the main one, under `where`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad import dtypes
from fxgrad.core.avals import Aval, Literal
from fxgrad.core.primitive import registry
from fxgrad.core.program import Atom, Equation, Program, Var
from fxgrad.show.color import ansi
from fxgrad.show.names import Unique, quoted_name, variable_names
from fxgrad.show.sources import Sources
from fxgrad.show.unfolding import unfold as unfold_calls
from fxgrad.show.values import (
    INDENT,
    array_lines,
    fill,
    is_uniform,
    labelled,
    literal_text,
    optional_parameters,
    string_text,
    value_lines,
)
from fxgrad.tracing.tracer import Tracer

WIDTH = 100
CONSTANT_LIMIT = 1000
COMMENT_COLUMN = 64
NESTING_LIMIT = 4


def program_text(program: Program, *, source: bool = True, unfold: bool = False, color: bool = False,
                 constants: bool | int = CONSTANT_LIMIT, width: int = WIDTH) -> str:
    """`program` as text, which `parse` reads back as an equal program.

    - `source`: whether each equation ends with the line of the user's code that recorded it.
    - `unfold`: whether library functions are shown with their equations in the place of one line; the text is then
      that of the program `fxgrad.show.unfold(program)`.
    - `color`: whether the text has the escape sequences of a terminal in it; `parse` reads it without them.
    - `constants`: arrays with more elements than this are elided as `...`; `True` prints all of them, `False` none.
    - `width`: where lines are broken that can be. Comments stand beyond it.

    >>> import fxgrad
    >>> def f(x, y):
    ...     total = x + y
    ...     return total * 2.0
    >>> print(program_text(fxgrad.make_program(f)(1.0, 2.0), source=False))
    program f(x: f64*[], y: f64*[]) {
      total: f64*[] = add(x, y)
      a: f64*[] = mul(total, 2.0)
      return a
    }
    """
    limit = int(constants) if not isinstance(constants, bool) else (1 << 62 if constants else -1)
    shown = unfold_calls(program) if unfold else program
    result = "\n".join(_Writer(shown, source, limit, width).lines())
    return ansi(result) if color else result


class _Line(NamedTuple):
    """The lines of one statement, and the comment at the end of the first."""

    lines: list[str]
    comment: str = ""


class _Writer:
    """Writes one main program with everything that it refers to."""

    def __init__(self, program: Program, source: bool, limit: int, width: int) -> None:
        self._main, self._source, self._limit, self._width = program, source, limit, width
        self._sources = Sources()
        self._types: dict[Aval, str] = {}
        self._labels: dict[int, tuple[str, str]] = {}  # what a program is called in the text, and by its equations
        self._defined: list[Program] = []
        self._data: list[tuple[str, np.ndarray[Any, Any]]] = []
        self._data_names = Unique()
        self._find_definitions()

    def lines(self) -> list[str]:
        """The whole text."""
        lines = self.program(self._main)
        for program in self._defined:
            label, name = self._labels[id(program)]
            shown = "" if name == label else f" {string_text(name)}"
            head, *rest = self.program(program)
            lines += ["", f"where {label}{shown} = {head}", *rest]
        for label, array in self._data:
            head, *rest = array_lines(array, self._width - len(INDENT))
            lines += ["", f"where @{label} = {head}", *(INDENT + line for line in rest)]
        return lines

    # --- what is printed under `where` --------------------------------------------------------------------

    def _find_definitions(self) -> None:
        """Labels for programs that are called by name, that occur more than once, or that are nested deeply."""
        count: dict[int, int] = {}
        wanted: dict[int, tuple[Program, str]] = {}
        primitives = {*registry}
        queue = [(self._main, 0)]
        for program, depth in queue:
            for equation in program.equations:
                primitives.add(equation.primitive.name)
                called = is_call(equation)
                for inner in equation.programs:
                    count[id(inner)] = count.get(id(inner), 0) + 1
                    deep = depth == NESTING_LIMIT
                    if called or deep or count[id(inner)] > 1:
                        wanted.setdefault(id(inner), (inner, equation.params["name"] if called else "body"))
                    if count[id(inner)] == 1:
                        queue.append((inner, 0 if called or deep else depth + 1))
        unique = Unique([*primitives, *map(dtypes.short_name, dtypes.SUPPORTED.values()), "float0"])
        for key, (program, name) in wanted.items():
            self._labels[key] = unique(name if name.isidentifier() else "function"), name
            self._defined.append(program)

    # --- one program --------------------------------------------------------------------------------------

    def program(self, program: Program) -> list[str]:
        """The lines of a program, the first of them its head."""
        names = variable_names(program, self._sources)
        signature = program.signature
        title = "" if signature is None else signature.name
        if signature is not None and (not title.isidentifier() or title == "program"):
            title = string_text(title)
        inputs = [self._binding(names, var) for var in program.inputs[program.captured:]]
        body = [*self._captured(program, names)]
        body += [self._equation(equation, names) for equation in program.equations]
        outputs = fill([self._atom(names, atom) for atom in program.outputs], self._width - 12) or [""]
        body.append(_Line([f"return {outputs[0]}".rstrip(), *(INDENT + line for line in outputs[1:])]))
        head = self._broken(f"program {title}", [], [[item] for item in inputs], " {")
        return [*head, *(INDENT + line for line in _commented(body)), "}"]

    def _captured(self, program: Program, names: dict[Var, str]) -> Iterator[_Line]:
        constants = program.constants or [None] * program.captured
        for var, value in zip(program.inputs[:program.captured], constants, strict=True):
            binding = f"captured {self._binding(names, var)}"
            yield _Line([binding if value is None else f"{binding} = {self._constant(value, var.aval, names[var])}"])

    def _constant(self, value: Any, aval: Aval, name: str) -> str:
        if isinstance(value, Tracer):
            return "..."
        array = np.asarray(value)
        if array.dtype != aval.dtype or array.shape != aval.shape:
            return "..."  # not of the type that the program says: no text gives back such a program
        if array.size > max(self._limit, 1) and not is_uniform(array):
            return "..."
        lines = array_lines(array, self._width)
        if len(lines) == 1 and len(lines[0]) <= self._width // 2:
            return lines[0]
        label = self._data_names(name if name.isidentifier() else "constant")
        self._data.append((label, array))
        return f"@{label}"

    def _equation(self, equation: Equation, names: dict[Var, str]) -> _Line:
        outputs = ", ".join([self._binding(names, var) for var in equation.outputs]) or "()"
        name = equation.primitive.name
        callee = name if name.isidentifier() else string_text(name)
        operands = [self._atom(names, atom) for atom in equation.inputs]
        if is_call(equation):
            label, defined_as = self._labels[id(equation.params["program"])]
            callee = label if name == "named_call" else f"{callee} {label}"
            called_as = equation.params["name"]
            arguments = [] if called_as == defined_as else [[f"name={string_text(called_as)}"]]
        else:
            left_out = optional_parameters(equation.primitive)
            arguments = [labelled(key, value_lines(value, self._nested)) for key, value in equation.params.items()
                         if value is not None or key not in left_out]
        comment = self._sources.comment(equation.source) if self._source and equation.source is not None else ""
        return _Line(self._broken(f"{outputs} = {callee}", operands, arguments), comment)

    def _nested(self, program: Program) -> list[str]:
        defined = self._labels.get(id(program))
        return self.program(program) if defined is None else [defined[0]]

    def _broken(self, head: str, packed: Sequence[str], arguments: Sequence[list[str]], tail: str = "") -> list[str]:
        """`head(packed, arguments)tail` on one line if it fits; else many of `packed` to a line, one of the rest."""
        *early, last = [*([item] for item in packed), *arguments] or [[""]]
        if all(len(argument) == 1 for argument in early):
            line = f"{head}({', '.join([*(argument[0] for argument in early), last[0]])}"
            if len(line) + (len(last) == 1) * (len(tail) + 1) <= self._width:
                return [line + f"){tail}"] if len(last) == 1 else [line, *last[1:-1], f"{last[-1]}){tail}"]
        lines = fill([*packed, ""], self._width - 4) if packed else []
        lines = [line.rstrip(" ") for line in lines if line]
        for argument in arguments:
            lines += [*argument[:-1], argument[-1] + ","]
        return [f"{head}(", *(INDENT + line for line in lines), f"){tail}"]

    def _binding(self, names: dict[Var, str], var: Var) -> str:
        return f"{quoted_name(names[var])}: {self._type(var.aval)}"

    def _type(self, aval: Aval) -> str:
        known = self._types.get(aval)
        if known is None:
            known = self._types[aval] = repr(aval)
        return known

    def _atom(self, names: dict[Var, str], atom: Atom) -> str:
        if isinstance(atom, Literal):
            return literal_text(atom)
        # A program that is wrong must print too: its error message shows it.
        return quoted_name(names[atom]) if atom in names else f"<unbound {atom.aval}>"


def is_call(equation: Equation) -> bool:
    """Whether an equation calls a program by name, and so prints as one line."""
    params = equation.params
    return len(params) == 2 and isinstance(params.get("program"), Program) and isinstance(params.get("name"), str)


def _commented(statements: Sequence[_Line]) -> list[str]:
    """All lines, with the comments below each other where the equations are short enough."""
    lengths = [len(statement.lines[0]) for statement in statements if statement.comment]
    column = max((length for length in lengths if length <= COMMENT_COLUMN), default=0)
    lines: list[str] = []
    for statement in statements:
        first, *rest = statement.lines
        lines.append(f"{first:<{column}}  # {statement.comment}" if statement.comment else first)
        lines += rest
    return lines

