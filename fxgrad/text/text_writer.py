"""The text of a program, which reads like the code that recorded it and which `parse` reads back.

docs/reference/grammar.md has the grammar. Called programs are printed once, after the main one, under `where`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal as OneOf
from typing import NamedTuple

from fxgrad.extend import Atom, Aval, Equation, Literal, Program, Variable, primitives, require_program
from fxgrad.text.color import ansi, user_names
from fxgrad.text.compact_writer import CompactWriter, scopes_of
from fxgrad.text.definitions import ProgramLabels, is_call
from fxgrad.text.inlining import inline as unfold_calls
from fxgrad.text.margin import COMMENT_COLUMN
from fxgrad.text.names import is_identifier, quoted_name, variable_names
from fxgrad.text.parameters import optional_parameters, order_parameters
from fxgrad.text.paths import path_remarks
from fxgrad.text.scope import Scope
from fxgrad.text.values import INDENT, add_label, array_lines, fill_lines, literal_text, string_text, value_lines

WIDTH = 100
CONSTANT_LIMIT = 1000
Style = OneOf["compact", "equations"]


def program_text(program: Program, *, style: Style = "compact", source: bool = True, unfold: bool = False,
                 color: bool = False, constants: bool | int = CONSTANT_LIMIT, width: int = WIDTH) -> str:
    """Return `program` as text, which `parse` reads back as an equal program.

    - `style`: `"compact"` writes expressions, as the code was written; `"equations"` one operation a line, with all
      types and parameters.
    - `source`: whether each equation ends with the line of the user's code that recorded it.
    - `unfold`: whether library functions are shown as their equations instead of one line; the text is then that of
      the program `fxgrad.inline(program)`.
    - `color`: whether the text contains escape sequences for a terminal; `parse` reads the text without them.
    - `constants`: arrays with more elements than this are elided as `...`; `True` prints all of them, `False` none.
    - `width`: the width at which lines are broken if possible. Comments are beyond it.

    >>> import fxgrad
    >>> def f(x, y):
    ...     total = x + y
    ...     return total * 2.0
    >>> print(program_text(fxgrad.make_program(f)(1.0, 2.0), source=False))
    program f(x, y: f64*) -> f64*:
      total: f64* = x + y
      return total * 2.0
    >>> print(program_text(fxgrad.make_program(f)(1.0, 2.0), style="equations", source=False))
    program f(x: f64*[], y: f64*[]) {
      total: f64*[] = add(x, y)
      a: f64*[] = mul(total, 2.0)
      return a
    }

    Raises `ValueError` for an unknown style.
    """
    limit = int(constants) if not isinstance(constants, bool) else (1 << 62 if constants else -1)
    require_program("program_text", program)
    shown = unfold_calls(program) if unfold else program
    if style not in _WRITERS:
        raise ValueError(f"program_text: there is no style {style!r}; there are {', '.join(map(repr, _WRITERS))}")
    writer = _WRITERS[style](shown, source, limit, width, path_remarks(shown))
    result = "\n".join(writer.lines())
    return ansi(result, user_names(shown)) if color else result


def text_scopes(program: Program) -> dict[int, Scope]:
    """Return the names of variables as `program_text` writes them, by the `id` of each program in the text."""
    return scopes_of(program, CONSTANT_LIMIT, WIDTH)


class _Line(NamedTuple):
    """The lines of one statement, and the comment at the end of the first."""

    lines: list[str]
    comment: str = ""


class _TextWriter:
    """Writer of one main program with everything that it refers to; `remarks` are printed below its head."""

    def __init__(self, program: Program, source: bool, limit: int, width: int, remarks: Sequence[str] = ()) -> None:
        self._remarks = remarks
        self._main, self._source, self._width = program, source, width
        self._definitions = ProgramLabels(program, limit, width)
        self._sources = self._definitions.sources
        self._types: dict[Aval, str] = {}

    def lines(self) -> list[str]:
        """Return the lines of the whole text."""
        lines = self.program(self._main)
        for program, label, name in self._definitions.programs():
            shown = "" if name == label else f" {string_text(name)}"
            head, *rest = self.program(program)
            lines += ["", f"where {label}{shown} = {head}", *rest]
        for label, array in self._definitions.data:
            head, *rest = array_lines(array, self._width - len(INDENT))
            lines += ["", f"where @{label} = {head}", *(INDENT + line for line in rest)]
        return lines

    # --- one program --------------------------------------------------------------------------------------

    def program(self, program: Program) -> list[str]:
        """Return the lines of a program, the first of them its head."""
        names = variable_names(program, self._sources)
        signature = program.signature
        title = "" if signature is None else signature.name
        if signature is not None and (not is_identifier(title) or title == "program"):
            title = string_text(title)
        inputs = [self._binding(names, var) for var in program.inputs[program.captured:]]
        bindings = [f"captured {self._binding(names, var)}" for var in program.inputs[:program.captured]]
        body = [_Line([f"# {remark}"]) for remark in self._remarks] if program is self._main else []
        body += [_Line([line]) for line in self._definitions.captured(program, bindings, names)]
        body += [self._equation(equation, names) for equation in program.equations]
        outputs = fill_lines([self._atom(names, atom) for atom in program.outputs], self._width - 12) or [""]
        body.append(_Line([f"return {outputs[0]}".rstrip(), *(INDENT + line for line in outputs[1:])]))
        head = self._break_call(f"program {title}", [], [[item] for item in inputs], " {")
        # Comments are aligned where the equations are short enough.
        lengths = [len(statement.lines[0]) for statement in body if statement.comment]
        column = max((length for length in lengths if length <= COMMENT_COLUMN), default=0)
        lines: list[str] = []
        for statement in body:
            first, *rest = statement.lines
            lines.append(f"{first:<{column}}  # {statement.comment}" if statement.comment else first)
            lines += rest
        return [*head, *(INDENT + line for line in lines), "}"]

    def _equation(self, equation: Equation, names: dict[Variable, str]) -> _Line:
        outputs = ", ".join([self._binding(names, var) for var in equation.outputs]) or "()"
        name = equation.primitive.name
        callee = name if is_identifier(name) else string_text(name)
        operands = [self._atom(names, atom) for atom in equation.inputs]
        if is_call(equation):
            label, defined_as = self._definitions.label(equation.params["program"])
            callee = label if equation.primitive is primitives.named_call else f"{callee} {label}"
            called_as = equation.params["name"]
            arguments = [] if called_as == defined_as else [[f"name={string_text(called_as)}"]]
        else:
            left_out = optional_parameters(equation.primitive)
            arguments = [add_label(key, value_lines(value, self._write_nested))
                         for key, value in order_parameters(equation.primitive, equation.params).items()
                         if value is not None or key not in left_out]
        comment = self._sources.comment(equation.source) if self._source and equation.source is not None else ""
        return _Line(self._break_call(f"{outputs} = {callee}", operands, arguments), comment)

    def _write_nested(self, program: Program) -> list[str]:
        return self._definitions.reference(program) if self._definitions.has_label([program]) else self.program(program)

    def _break_call(self, head: str, packed: Sequence[str], arguments: Sequence[list[str]],
                    tail: str = "") -> list[str]:
        """`head(packed, arguments)tail` on one line if it fits; else many of `packed` to a line, one of the rest."""
        *early, last = [*([item] for item in packed), *arguments] or [[""]]
        if all(len(argument) == 1 for argument in early):
            line = f"{head}({', '.join([*(argument[0] for argument in early), last[0]])}"
            if len(line) + (len(last) == 1) * (len(tail) + 1) <= self._width:
                return [line + f"){tail}"] if len(last) == 1 else [line, *last[1:-1], f"{last[-1]}){tail}"]
        lines = fill_lines([*packed, ""], self._width - 4) if packed else []
        lines = [line.rstrip(" ") for line in lines if line]
        for argument in arguments:
            lines += [*argument[:-1], argument[-1] + ","]
        return [f"{head}(", *(INDENT + line for line in lines), f"){tail}"]

    def _binding(self, names: dict[Variable, str], var: Variable) -> str:
        known = self._types.get(var.aval)
        if known is None:
            known = self._types[var.aval] = repr(var.aval)
        return f"{quoted_name(names[var])}: {known}"

    def _atom(self, names: dict[Variable, str], atom: Atom) -> str:
        if isinstance(atom, Literal):
            return literal_text(atom)
        # A program that is wrong must print too: its error message shows it.
        return quoted_name(names[atom]) if atom in names else f"<unbound {atom.aval}>"


_WRITERS: dict[str, Callable[..., CompactWriter | _TextWriter]] = {"compact": CompactWriter, "equations": _TextWriter}
