"""Write the statements of one program in the compact style, and decide which values are inlined into expressions.

A value without a name that is used once is inlined into the expression that uses it, if both come from the same line of
the user's code, and if reading the text from left to right gives the equations in their order. Until its user is
written, such a value is *ready*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fxgrad import dtypes
from fxgrad.extend import Atom, Aval, Equation, Literal, Program, Variable, primitives
from fxgrad.text.block_text import BlockText
from fxgrad.text.blocks import block_of
from fxgrad.text.forms import Form, OperandText, render_form
from fxgrad.text.gathers import IMPLIED, Ready, indices_key, short_form
from fxgrad.text.literals import implying_types, literal_expression, literal_with_source, origin_text
from fxgrad.text.margin import UserLine
from fxgrad.text.scope import Scope
from fxgrad.text.sections import sections
from fxgrad.text.sugar import sugar
from fxgrad.text.values import INDENT
from fxgrad.text.wrapping import wrap_line

if TYPE_CHECKING:
    from fxgrad.text.compact_writer import CompactWriter

_NOTHING = Variable(Aval((), dtypes.bool_))
"""Placeholder for the result of an operation that has none."""
MOST_INSIDE = 20
"""If an operation has more of them, its operands are not inlined."""
EXPRESSION_LIMIT = 76
"""A value with a longer expression gets a letter and a line of its own."""


class PendingExpression(NamedTuple):
    """A value whose text is ready to be inserted in a later statement.

    `origins` are the computations of folded numbers in it.
    """

    ready: Ready
    shown: OperandText
    first: Aval | None
    line: UserLine | None
    called: str
    origins: tuple[str, ...] = ()

    @property
    def var(self) -> Variable:
        """The variable of the value."""
        return self.ready.var


class StatementText(NamedTuple):
    """The lines of one statement, with its line in the user's source."""

    lines: list[str]
    line: UserLine | None = None
    recorded: bool = False
    called: str = ""
    origins: tuple[str, ...] = ()

    def indent_by(self, by: str) -> StatementText:
        """Return the statement with its lines indented by `by`."""
        return self._replace(lines=[by + line for line in self.lines])


class BodyWriter:
    """Writer of the statements of one program."""

    def __init__(self, writer: CompactWriter, scope: Scope, program: Program) -> None:
        self._writer, self._scope, self._program = writer, scope, program
        self._uses = Counter(atom for atom in program.outputs if isinstance(atom, Variable))
        for equation in program.equations:
            self._uses.update([atom for atom in equation.inputs if isinstance(atom, Variable)])
        self._gathers: dict[Atom, list[Equation]] = {}
        for equation in program.equations:
            if equation.primitive is primitives.gather:
                self._gathers.setdefault(equation.inputs[1], []).append(equation)
        self._indices: dict[Variable, Ready] = {}  # arrays of indices, by the operation on named values that makes them
        self._first: dict[Hashable, Variable] = {}  # of equal ones the first
        self._repeated: set[Variable] = set()  # the others of equal ones
        self._ready: list[PendingExpression] = []
        self._numbers: dict[Atom, int] = {}  # positions in the list, counting entries already removed from its front
        self._named = 0
        self._statements: list[StatementText] = []

    def statements(self) -> list[StatementText]:
        """Return all statements, `return` last."""
        writer = self._writer
        headings = sections(self._program) if self._program is writer.main else {}
        for number, equation in enumerate(self._program.equations):
            if number in headings:
                self._flush(len(self._ready))
                if writer.shows_source:
                    self._statements.append(StatementText([f"# {headings[number]}"]))
            self._equation(equation)
        self._return()
        return self._statements

    # --- equations ----------------------------------------------------------------------------------------

    def _equation(self, equation: Equation) -> None:
        line = self._writer.margin.line(equation)
        plain = equation.primitive.regions is None
        block = None if plain else block_of(equation)
        if block is not None:
            text = BlockText(self._writer, self._scope, equation, block)
            atoms = [equation.inputs[place] for place in text.order]
            inside = self._take(self._inside(atoms, line), atoms)
            self._flush(len(self._ready))
            head = text.head({pending.var: pending for pending in inside})
            self._statement(head, line, text.parts(), text.called())
            return
        form, order = self._writer.written(equation) if plain else self._writer.call(equation)
        atoms = [equation.inputs[place] for place in order]
        implied = plain and self._is_implied(equation, form, atoms)
        pending = self._result(equation, form, atoms, line)
        if implied:
            pending = pending._replace(called="indices")
        if len(equation.outputs) == 1 and pending.var not in self._scope.named and \
                (implied or self._uses[pending.var] == 1) and len(pending.shown.text) <= EXPRESSION_LIMIT:
            self._numbers[pending.var] = self._named + len(self._ready)
            self._ready.append(pending)
        else:
            self._flush(len(self._ready))
            self._bind(equation.outputs, pending)

    def _result(self, equation: Equation, form: Form, atoms: Sequence[Atom],
                line: UserLine | None) -> PendingExpression:
        """Return the expression of an equation with operands inlined where possible; the others are bound to names."""
        inside = self._inside(atoms, line)
        if inside and sum([len(pending.shown.text) for pending in inside]) > EXPRESSION_LIMIT - 8:
            inside = []
        given = {pending.var: pending for pending in self._take(inside, atoms)}
        first: Aval | None = None
        operands: list[OperandText] = []
        origins = [each for pending in given.values() for each in pending.origins]
        for atom in atoms:
            if isinstance(atom, Literal):
                beside = tuple([None if isinstance(atom, Literal) else atom.aval for atom in atoms])
                key = atom, form.name, form.statics, beside
                known = self._writer.numbers.get(key)
                if known is None:
                    known = self._writer.numbers[key] = literal_expression(atom, form, implying_types(form, beside))
                operands.append(known)
                told = literal_with_source(equation, equation.inputs.index(atom), self._writer.sources)
                origins.append(origin_text(told or atom, self._writer.margin.function_called_at))
                continue
            pending = given.get(atom)
            operands.append(self._scope.shown(atom) if pending is None else pending.shown)
            first = first or (atom.aval if pending is None else pending.first)
        inner = {var: pending.ready for var, pending in given.items()}
        if equation.primitive is primitives.gather:
            self._note_indices(equation, inner)
        short = sugar(form, equation, operands, inner) if inner else None
        shown = render_form(*(form, operands) if short is None else short, self._writer.value)
        var = equation.outputs[0] if equation.outputs else _NOTHING
        # As one equation: in `x[i[:2]]` the indices `i[:2][:, None]` are one index, unlike `i[:2, None]`.
        ready = Ready(var, form, tuple(operands), tuple([atom.aval for atom in atoms]))
        return PendingExpression(ready, shown, first, line, self._writer.margin.called(equation),
                                 tuple(filter(None, origins)))

    def _note_indices(self, gather: Equation, ready: dict[Variable, Ready]) -> None:
        """Add the earlier indices of a gather to `ready`; remove those that would be read back as an earlier array."""
        indices = gather.inputs[1]
        if not isinstance(indices, Variable):
            return
        if indices in ready:
            if indices in self._repeated:
                del ready[indices]
        elif indices in self._indices:
            ready[indices] = self._indices[indices]

    def _is_implied(self, equation: Equation, form: Form, atoms: Sequence[Atom]) -> bool:
        """Record a possible array of indices; return whether all its uses are gathers whose text implies it."""
        key = indices_key(equation.primitive, equation.inputs, equation.params)
        if key is None or not self._gathers:
            return False
        var = equation.outputs[0]
        bound = all(isinstance(atom, Variable) and atom in self._scope.names for atom in atoms)
        if self._first.setdefault(key, var) is not var:
            self._repeated.add(var)
            return False
        if not bound or (var in self._scope.named and var not in (IMPLIED.of(self._program) or ())):
            return False
        operands = tuple([self._scope.shown(atom) for atom in atoms if isinstance(atom, Variable)])
        made = self._indices[var] = Ready(var, form, operands, tuple([atom.aval for atom in atoms]))
        gathers = self._gathers.get(var, [])
        return len(gathers) == self._uses[var] and all(
            short_form(self._writer.written(gather)[0], gather.inputs[0].aval, made) for gather in gathers)

    def _inside(self, atoms: Sequence[Atom], line: UserLine | None) -> list[PendingExpression]:
        """Return the values that became ready last, if they are operands in text order and of the same line."""
        if not self._ready:
            return []
        wanted = [atom for atom in atoms if isinstance(atom, Variable)]
        ready = {pending.ready.var for pending in self._ready[-len(wanted):]} if wanted else set()
        wanted = [var for var in wanted if var in ready]
        for count in range(min(len(wanted), MOST_INSIDE), 0, -1):
            last = self._ready[-count:]
            variables = [pending.var for pending in last]
            in_order = [var for var in wanted if var in variables] == variables
            if in_order and all(pending.line == line for pending in last):
                return last
        return []

    def _take(self, inside: list[PendingExpression], atoms: Sequence[Atom]) -> list[PendingExpression]:
        """Remove inlined values from the ready ones; other operands get names now."""
        if inside:
            del self._ready[-len(inside):]
            for pending in inside:
                del self._numbers[pending.ready.var]
        if self._ready:
            numbers = [self._numbers[atom] for atom in atoms if isinstance(atom, Variable) and atom in self._numbers]
            self._flush(max(numbers) + 1 - self._named if numbers else 0)
        return inside

    # --- statements ---------------------------------------------------------------------------------------

    def _flush(self, count: int) -> None:
        """Give names to the first values that are ready."""
        if not count:
            return
        for pending in self._ready[:count]:
            del self._numbers[pending.var]
            self._bind([pending.var], pending)
        del self._ready[:count]
        self._named += count

    def _bind(self, outputs: Sequence[Variable], pending: PendingExpression) -> None:
        target = self._scope.target(outputs[0], pending.first) if len(outputs) == 1 else \
            ", ".join(self._scope.bindings(outputs))
        text = f"{target} = {pending.shown.text}" if outputs else pending.shown.text
        self._statement(text, pending.line, called=pending.called, origins=pending.origins)

    def _statement(self, text: str, line: UserLine | None, more: Sequence[StatementText] = (), called: str = "",
                   origins: tuple[str, ...] = ()) -> None:
        lines = wrap_line(text, self._writer.width - len(INDENT), 2 * INDENT, text.find(" = ") + 3, True)
        self._statements += [StatementText(lines, line, True, "" if f"{called}(" in text else called, origins), *more]

    def _return(self) -> None:
        outputs = self._program.outputs
        line = self._ready[-1].line if self._ready else None
        given = {pending.var: pending for pending in self._take(self._inside(outputs, line), outputs)}
        self._flush(len(self._ready))
        texts = [given[atom].shown.text if isinstance(atom, Variable) and atom in given
                 else (self._scope.shown(atom).text if isinstance(atom, Variable)
                       else literal_expression(atom, None, ()).text) for atom in outputs]
        lines = wrap_line(f"return {', '.join(texts) or '()'}", self._writer.width - len(INDENT), 2 * INDENT, 7)
        origins = tuple([each for pending in given.values() for each in pending.origins])
        self._statements.append(StatementText(lines, line, bool(given), origins=origins))

