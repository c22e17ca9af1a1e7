"""Write a loop or a branch in the compact style: operands by role and name, and the programs below."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fxgrad.extend import Equation, Literal, Program, Variable
from fxgrad.text.blocks import INPUTS, OWN, TRUTH, Block, OperandsByRole, is_chosen_by_truth
from fxgrad.text.literals import literal_expression
from fxgrad.text.names import UniqueNames, function_label, own_names, quoted_name
from fxgrad.text.scope import Scope, type_text
from fxgrad.text.values import INDENT

if TYPE_CHECKING:
    from fxgrad.text.compact_body import PendingExpression, StatementText
    from fxgrad.text.compact_writer import CompactWriter

SHOWN = (*(role for role in INPUTS if role not in ("", *OWN)), "", *OWN)
"""The roles in the order in which they are written."""


class BlockText:
    """Writes one equation that holds programs."""

    def __init__(self, writer: CompactWriter, scope: Scope, equation: Equation, block: Block) -> None:
        self._writer, self._scope, self._equation, self._block = writer, scope, equation, block
        self._by_truth = is_chosen_by_truth(equation)
        own = [place for part in block.parts for place in part.own.get(*OWN) if place >= 0]
        self.order = [*block.lead, *block.shared.get(*SHOWN), *own]
        self._texts: dict[int, str] = {}
        self._labels: dict[str, str] = {}
        self._names: dict[int, str] = {}

    def head(self, given: Mapping[Variable, PendingExpression]) -> str:
        """Return the first line, with the values `given` as expressions; all other operands have names by now."""
        for var in self._equation.outputs:
            self._scope.bind(var)  # before the inputs, so that none gets the same letter
        self._names = self._input_names()
        if self._by_truth:
            self._labels = dict(zip("01", TRUTH, strict=True))
        for place, atom in enumerate(self._equation.inputs):
            pending = given.get(atom) if isinstance(atom, Variable) else None
            self._texts[place] = literal_expression(atom, None, ()).text if isinstance(atom, Literal) else \
                self._scope.shown(atom).text if pending is None else pending.shown.text
        block = self._block
        arguments = [*(self._texts[place] for place in block.lead), *self._roles(block.shared),
                     *(f"{name}={self._writer.value(value)}" for name, value in block.params.items())]
        outputs = ", ".join(self._scope.bindings(self._equation.outputs))
        call = f"{self._equation.primitive.name}({', '.join(arguments)}):"
        if not block.parts[0].label:
            call = f"{call} {self._writer.reference(block.parts[0].program)}".rstrip()
        return f"{outputs} = {call}" if outputs else call

    def called(self) -> str:
        """Return the names of the user's functions of the programs, for the margin."""
        names = [function_label(part.program) for part in self._block.parts if part.program is not None]
        return ", ".join(dict.fromkeys(name for name in names if name))

    def parts(self) -> list[StatementText]:
        """Return the programs, indented; a program that is only a `return` is on the line of its label."""
        result: list[StatementText] = []
        for part in self._block.parts:
            names = [self._names[place] for place in part.inputs]
            statements = self._writer.block(part.program, names, self._scope)
            if not part.label:
                below = not self._writer.reference(part.program)
                result += [statement.indent_by(INDENT) for statement in statements if below]
                continue
            own = self._roles(part.own)
            shown = self._labels.get(part.label, part.label)
            label = f"{shown}({', '.join(own)}):" if own else f"{shown}:"
            if len(statements) == 1 and len(statements[0].lines) == 1 and len(label + statements[0].lines[0]) < 80:
                result.append(statements[0]._replace(lines=[f"{INDENT}{label} {statements[0].lines[0]}"]))
            else:
                result.append(statements[0]._replace(lines=[INDENT + label], line=None, recorded=False))
                result += [statement.indent_by(2 * INDENT) for statement in statements]
        return result

    # --- operands -----------------------------------------------------------------------------------------

    def _roles(self, roles: OperandsByRole[int]) -> list[str]:
        shown = {role: ", ".join(map(self._item, roles.of[role])) for role in SHOWN if roles.of.get(role)}
        return [f"{role}({items})" if role else items for role, items in shown.items()]

    def _item(self, place: int) -> str:
        """Return `name=operand`; `name` alone if the operand has that name; with a type if it is not the operand's."""
        part = next(part for part in self._block.parts if place in part.inputs)
        assert part.program is not None
        aval = part.program.inputs[[*part.inputs].index(place)].aval
        name = quoted_name(self._names[place])
        if place < 0:
            return f"{name}: {type_text(aval)}"
        given, text = self._equation.inputs[place].aval, self._texts[place]
        implied = given.update(shape=given.shape[1:]) if place in self._block.shared.get("over") else given
        if aval != implied:
            return f"{name}: {type_text(aval)}={text}"
        return name if text == name else f"{name}={text}"

    def _input_names(self) -> dict[int, str]:
        """For each operand the name of the input that it is: in one of the programs, else its own, else a letter."""
        links = [(place, var, part.program) for part in self._block.parts if part.program is not None
                 for place, var in zip(part.inputs, part.program.inputs, strict=True)]
        held = {id(program): program for _, _, program in links}
        own = {key: self._own_names(program) for key, program in held.items()}
        wanted: dict[int, str] = {}
        for place, var, program in reversed(links):
            if var in own[id(program)]:
                wanted.setdefault(place, own[id(program)][var])
        for place, name in self._names_of_carries().items():
            wanted.setdefault(place, name)
        moving = {*self._block.shared.get("state", "carry", "over")}
        for place, _, _ in links:
            atom = self._equation.inputs[place] if place >= 0 and place not in moving else None
            outer = self._scope.names.get(atom) if isinstance(atom, Variable) else None
            if outer is not None:
                wanted.setdefault(place, outer)
        taken: dict[int, set[str]] = {key: set() for key in held}
        names: dict[int, str] = {}
        for place, name in wanted.items():
            names[place] = _unused_names(name, [taken[id(program)] for where, _, program in links if where == place])
        letters = self._scope.letters_inside(UniqueNames([*names.values()]))
        for place, _, _ in links:
            if place not in names:
                names[place] = next(letters)
        return names

    def _names_of_carries(self) -> dict[int, str]:
        """Name carried inputs after the results that they become, if these have names."""
        found: dict[int, str] = {}
        for region in self._equation.regions:
            starts = [link.place for link in region.inputs if link.how == "carry"]
            ends = [link.place for link in region.outputs if link.how == "carry"]
            for start, end in zip(starts, ends, strict=False):
                var = self._equation.outputs[end] if 0 <= end < len(self._equation.outputs) else None
                if var in self._scope.named and len(starts) == len(ends):
                    found.setdefault(start, self._scope.names[var])
        return found

    def _own_names(self, program: Program) -> dict[Variable, str]:
        """Return the known names of the inputs of a program within it; all names if it is defined under `where`."""
        if self._writer.definitions.has_label([program]):
            return self._writer.defined_names(program)
        return own_names(program, self._writer.sources)


def _unused_names(wanted: str, taken: Sequence[set[str]]) -> str:
    """Return `wanted`, numbered if needed, that is in none of the sets `taken`; add it to all of them."""
    tried = itertools.chain([wanted], (f"{wanted}_{number}" for number in itertools.count(1)))
    name = next(name for name in tried if not any(name in each for each in taken))
    for each in taken:
        each.add(name)
    return name
