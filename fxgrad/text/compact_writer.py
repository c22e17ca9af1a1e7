"""The compact text of a program: mathematical expressions, one line for one assignment of the user's.

The table `notations` defines how operations are written and read back; docs/reference/grammar.md has the grammar.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

from fxgrad.extend import Equation, Program, Variable, cache_key
from fxgrad.text import indices, operators  # noqa: F401  (they fill the table)
from fxgrad.text.blocks import ROLE_NAMES, block_of
from fxgrad.text.compact_body import BodyWriter, StatementText
from fxgrad.text.definitions import ProgramLabels, is_call, is_plain_call
from fxgrad.text.differentiated import Formula, formulas
from fxgrad.text.forms import Form, OperandText, is_word
from fxgrad.text.margin import COMMENT_COLUMN, Margin, UserLine
from fxgrad.text.names import RESERVED, is_identifier
from fxgrad.text.notations import Written, call_names, form_of, meaning
from fxgrad.text.parameters import optional_parameters, order_parameters
from fxgrad.text.scope import Scope, type_text
from fxgrad.text.sections import HEADINGS
from fxgrad.text.values import INDENT, array_lines, string_text, value_lines
from fxgrad.text.wrapping import wrap_line

BACKWARD = [f"# {HEADINGS['backward']}"]


class CompactWriter:
    """Writer of one main program with everything that it refers to; `remarks` are printed below its head."""

    def __init__(self, program: Program, source: bool, limit: int, width: int, remarks: Sequence[str] = ()) -> None:
        self._remarks = remarks
        self.main, self.shows_source, self.width = program, source, width
        self.definitions = ProgramLabels(program, limit, width, {*call_names(), *ROLE_NAMES},
                                         lambda each: block_of(each) is not None,
                                         compact=True)
        self.sources = self.definitions.sources
        self.margin = Margin(program, self.sources)
        self.numbers: dict[Any, OperandText] = {}
        self.scopes: dict[int, Scope] = {}
        self._forms: dict[Any, Written] = {}
        self._inputs: dict[int, dict[Variable, str]] = {}
        self.formulas: dict[int, list[StatementText]] = {}
        """Remarks on values that are differentiated but not computed, by the `id` of each program that has a head."""

    def lines(self) -> list[str]:
        """Return the lines of the whole text."""
        signature = self.main.signature
        title = "" if signature is None else signature.title or signature.name
        if signature is not None and not is_title(title):
            title = string_text(title)
        lines = self._program(f"program {title}".rstrip(), self.main, self.margin.head if self.shows_source else "")
        for program, label, name in self.definitions.programs():
            shown = "" if name == label else f" {string_text(name)}"
            lines += ["", *self._program(f"where {label}{shown}", program)]
        for label, array in self.definitions.data:
            head, *rest = array_lines(array, self.width - len(INDENT))
            lines += ["", f"where @{label} = {head}", *(INDENT + line for line in rest)]
        return lines

    # --- programs -----------------------------------------------------------------------------------------

    def _program(self, head: str, program: Program, file: str = "") -> list[str]:
        """Return the lines of a program with a head of its own."""
        scope = self.scopes[id(program)] = Scope(program, self.sources, {})
        inputs = scope.bindings(program.inputs[program.captured:])
        bindings = [f"captured {scope.bind(var)}: {type_text(var.aval)}" for var in program.inputs[:program.captured]]
        body = [StatementText([f"# {remark}"]) for remark in self._remarks] if program is self.main else []
        body += [StatementText([line]) for line in self.definitions.captured(program, bindings, scope.names)]
        statements = BodyWriter(self, scope, program).statements()
        if self.shows_source:
            said = self.formulas[id(program)] = formulas(program, self, scope)
            below = [statement.lines for statement in statements].index(BACKWARD) + 1 if \
                any(statement.lines == BACKWARD for statement in statements) else 0
            statements[below:below] = said
        body += statements
        types = ", ".join(type_text(atom.aval) for atom in program.outputs)
        unnamed = any(isinstance(atom, Variable) and atom not in scope.names for atom in program.outputs)
        tail = f" -> {types}:" if unnamed else ":"
        *before, last = wrap_line(f"{head}({', '.join(inputs)}){tail}", self.width, 2 * INDENT, len(head))
        lines = [*((line, "") for line in before), (last, file), *self._mark_lines(body)]
        # Comments are aligned where the lines before them are short enough.
        lengths = [len(line) for line, comment in lines if comment and len(line) <= COMMENT_COLUMN]
        column = max(lengths, default=0)
        return [f"{line:<{column}}  # {comment}" if comment else line for line, comment in lines]

    def block(self, program: Program | None, names: Sequence[str], around: Scope) -> list[StatementText]:
        """Return the statements of a program whose inputs are already named, within the text of another one."""
        if program is None or self.definitions.has_label([program]):
            return [StatementText([self.reference(program)])]
        given = dict(zip(program.inputs, names, strict=True))
        scope = self.scopes[id(program)] = Scope(program, self.sources, given, around)
        return BodyWriter(self, scope, program).statements()

    def apart(self, part: Program, around: Scope) -> list[StatementText]:
        """Return the statements of a program without a head, with letters that the text around it does not use."""
        writer = CompactWriter(part, True, -1, 10_000)
        scope = writer.scopes[id(part)] = Scope(part, writer.sources, {}, around)
        return BodyWriter(writer, scope, part).statements()

    def reference(self, program: Program | None) -> str:
        """Return the label of a program defined under `where`, or `none`; "" if it is written where it is used."""
        if program is None:
            return "None"
        return self.definitions.label(program)[0] if self.definitions.has_label([program]) else ""

    def defined_names(self, program: Program) -> dict[Variable, str]:
        """Return the names that the inputs of a program have in its definition under `where`."""
        known = self._inputs.get(id(program))
        if known is None:
            scope = Scope(program, self.sources, {})
            for var in [*program.inputs[program.captured:], *program.inputs[:program.captured]]:
                scope.bind(var)
            known = self._inputs[id(program)] = {var: scope.names[var] for var in program.inputs}
        return known

    def _mark_lines(self, statements: Sequence[StatementText]) -> list[tuple[str, str]]:
        """Return all lines with their comments; the user's line is on the first of its statements."""
        result: list[tuple[str, str]] = []
        before: tuple[UserLine | None, str] = (None, "")
        for statement in statements:
            comment = ""
            if statement.lines[0].startswith("#"):  # the lines of statements hold across remarks
                shown = self.shows_source and statement.line is not None
                comment = self.margin.comment(statement.line, statement.called) if shown else ""
                comment = "; ".join(filter(None, [comment, *dict.fromkeys(statement.origins)])) if shown else ""
                result.append((INDENT + statement.lines[0], comment))
                continue
            now = statement.line, statement.called
            if self.shows_source and statement.recorded and now[0] is not None and now != before:
                comment = self.margin.comment(*now)
                before = now
            elif self.shows_source and statement.recorded and now[0] is None and before[0] is not None:
                comment = self.margin.comment(None)
                before = (None, "")
            if self.shows_source and statement.origins:
                comment = "; ".join(filter(None, [comment, *dict.fromkeys(statement.origins)]))
            *before_last, last = statement.lines  # no comment can go in the middle of a statement
            result += [*((INDENT + line, "") for line in before_last), (INDENT + last, comment)]
        return result

    # --- operations ---------------------------------------------------------------------------------------

    def written(self, equation: Equation) -> Written:
        """Return the notation of an operation that holds no programs."""
        avals = tuple([atom.aval for atom in equation.inputs])
        key = equation.primitive, avals, *((name, cache_key(value)) for name, value in equation.params.items())
        known = self._forms.get(key)
        if known is None:
            known = self._forms[key] = form_of(equation.primitive, avals, equation.params)
        return known

    def call(self, equation: Equation) -> Written:
        """Return the notation of an operation whose programs are defined under `where`."""
        straight = tuple(range(len(equation.inputs)))
        name = equation.primitive.name
        if is_plain_call(equation):
            rest = tuple((key, value) for key, value in order_parameters(equation.primitive, equation.params).items()
                         if key != "program")
            label = self.definitions.label(equation.params["program"])[0]
            return Form("call", f"{name}({label})", len(straight), (), rest), straight
        if not is_call(equation):
            left_out = optional_parameters(equation.primitive)
            given = tuple((key, value) for key, value in order_parameters(equation.primitive, equation.params).items()
                          if value is not None or key not in left_out)
            form = Form("call", name, len(straight), (), given)
            read = meaning(form, [atom.aval for atom in equation.inputs], {name: equation.primitive})
            plain = is_word(name) and read is not None and read.primitive is equation.primitive
            return form if plain else form._replace(kind="quoted"), straight
        label, defined_as = self.definitions.label(equation.params["program"])
        called_as = equation.params["name"]
        params = () if called_as == defined_as else (("name", called_as),)
        inline = any(region.role == "inline" for region in equation.regions)
        return Form("call", label if inline else f"{name}({label})", len(straight), (), params), straight

    def value(self, value: Any) -> str:
        """Return the text of a static or a parameter."""
        return " ".join(value_lines(value, self.definitions.reference))


def scopes_of(program: Program, limit: int, width: int) -> dict[int, Scope]:
    """Return the names in the text, by the `id` of each program in it; inlined values have none."""
    writer = CompactWriter(program, False, limit, width)
    writer.lines()
    return writer.scopes


def formulas_of(program: Program) -> dict[int, list[Formula]]:
    """Return the remarks on values that are differentiated but not computed, by the `id` of each program."""
    writer = CompactWriter(program, True, -1, 10_000)
    writer.lines()
    return {key: [Formula(each.lines[0], each.line, each.called, each.origins) for each in said]
            for key, said in writer.formulas.items() if said}


def is_title(text: str) -> bool:
    """Return whether a title is written unquoted: a word, followed by arguments in balanced brackets."""
    word = text.partition("(")[0]
    if not _title.fullmatch(text) or not is_identifier(word) or word in RESERVED:
        return False
    depths = [*itertools.accumulate((char in "([") - (char in ")]") for char in text)]
    return not depths[-1] and (depths.count(0) == 1 + text.find("(") if "(" in text else not any(depths))


_title = re.compile(r"[^\W\d]\w*(?:\([\w., ()\[\]-]*\))?")
