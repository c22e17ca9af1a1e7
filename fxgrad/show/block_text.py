"""A loop or a branch in the compact style: operands by role and name, and the programs below."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fxgrad.core.avals import Literal
from fxgrad.core.program import Equation, Program, Var
from fxgrad.core.regions import Link
from fxgrad.show.blocks import CHOICE, TRUTH, Block, Roles
from fxgrad.show.literals import shown_literal
from fxgrad.show.names import Unique, called_name, own_names, quoted_name
from fxgrad.show.scope import Scope, type_text
from fxgrad.show.sugar import Ready
from fxgrad.show.values import INDENT

if TYPE_CHECKING:
    from fxgrad.show.compact_body import Pending, Statement
    from fxgrad.show.compact_writer import CompactWriter

OWN = ("captured", "consts")
SHARED = ("carry", "over", "", *OWN)
"""The roles in the order of the text."""


class BlockText:
    """Writes one equation that holds programs."""

    def __init__(self, writer: CompactWriter, scope: Scope, equation: Equation, block: Block) -> None:
        self._writer, self._scope, self._equation, self._block = writer, scope, equation, block
        own = [place for part in block.parts for place in part.own.get(*OWN)]
        self.order = [*block.lead, *block.shared.get(*SHARED), *own]
        self._texts: dict[int, str] = {}
        self._labels: dict[str, str] = {}
        for var in equation.outputs:
            scope.bind(var)  # first, so that no input gets the same letter
        self._names = self._input_names()

    def head(self, given: Mapping[Var, Pending]) -> str:
        """The first line, in which the values `given` stand as expressions."""
        for place, atom in enumerate(self._equation.inputs):
            pending = given.get(atom) if isinstance(atom, Var) else None
            if pending is not None and place in self._block.lead and self._chooses(pending.ready):
                self._labels = dict(zip("01", TRUTH, strict=True))
                self._texts[place] = pending.ready.operands[0].text
                continue
            self._texts[place] = shown_literal(atom, None, ()).text if isinstance(atom, Literal) else \
                self._scope.shown(atom).text if pending is None else pending.shown.text
        block = self._block
        arguments = [*(self._texts[place] for place in block.lead), *self._roles(block.shared, block.parts[0].program),
                     *(f"{name}={self._writer.value(value)}" for name, value in block.params.items())]
        outputs = ", ".join(self._scope.bindings(self._equation.outputs))
        call = f"{self._equation.primitive.name}({', '.join(arguments)}):"
        return f"{outputs} = {call}" if outputs else call

    def called(self) -> str:
        """The user's functions that the programs are of, for the margin."""
        names = [called_name(part.program) for part in self._block.parts]
        return ", ".join(dict.fromkeys(name for name in names if name))

    def parts(self) -> list[Statement]:
        """The programs, indented; one that only returns something stands behind its label."""
        result: list[Statement] = []
        for part, region in zip(self._block.parts, self._equation.regions, strict=True):
            names = [self._names[link.place] for link in region.inputs]
            statements = self._writer.block(part.program, names, self._scope)
            if not part.label:
                result += [statement.indented(INDENT) for statement in statements]
                continue
            own = self._roles(part.own, part.program)
            shown = self._labels.get(part.label, part.label)
            label = f"{shown}({', '.join(own)}):" if own else f"{shown}:"
            if len(statements) == 1 and len(statements[0].lines) == 1 and len(label + statements[0].lines[0]) < 80:
                result.append(statements[0]._replace(lines=[f"{INDENT}{label} {statements[0].lines[0]}"]))
            else:
                result.append(statements[0]._replace(lines=[INDENT + label], line=None, recorded=False))
                result += [statement.indented(2 * INDENT) for statement in statements]
        return result

    def _chooses(self, ready: Ready) -> bool:
        """Whether a value is a truth value, made an integer to choose one of two branches."""
        return ready.form == CHOICE and ready.avals[0].dtype.kind == "b" and len(self._block.parts) == len(TRUTH) and \
            all(part.label in ("0", "1") for part in self._block.parts)

    # --- operands -----------------------------------------------------------------------------------------

    def _roles(self, roles: Roles[int], program: Program) -> list[str]:
        shown = {role: ", ".join(self._item(place, program) for place in roles.of[role]) for role in SHARED
                 if roles.of.get(role)}
        return [f"{role}({items})" if role else items for role, items in shown.items()]

    def _item(self, place: int, program: Program) -> str:
        """`name=operand`; `name` alone where the operand is called so too; with a type that is not the operand's."""
        link, var = next((link, var) for link, var, held in self._links() if link.place == place and held is program)
        aval = self._equation.inputs[place].aval
        implied = aval.update(shape=aval.shape[1:]) if link.how == "entry" else aval
        name, text = quoted_name(self._names[place]), self._texts[place]
        if var.aval != implied:
            return f"{name}: {type_text(var.aval)}={text}"
        return name if text == name else f"{name}={text}"

    def _links(self) -> list[tuple[Link, Var, Program]]:
        return [(link, var, region.program) for region in self._equation.regions
                for link, var in zip(region.inputs, region.program.inputs, strict=True)]

    def _input_names(self) -> dict[int, str]:
        """For each operand the name of the input that it is: in one of the programs, else its own, else a letter."""
        links = self._links()
        held = {id(program): program for _, _, program in links}
        own = {key: own_names(program, self._writer.sources) for key, program in held.items()}
        wanted: dict[int, str] = {}
        for link, var, program in reversed(links):
            if var in own[id(program)]:
                wanted.setdefault(link.place, own[id(program)][var])
        for link, _, _ in links:
            atom = self._equation.inputs[link.place]
            outer = self._scope.names.get(atom) if link.how == "same" and isinstance(atom, Var) else None
            if outer is not None:
                wanted.setdefault(link.place, outer)
        taken: dict[int, set[str]] = {key: set() for key in held}
        names: dict[int, str] = {}
        for place, name in wanted.items():
            names[place] = _free(name, [taken[id(program)] for link, _, program in links if link.place == place])
        letters = self._scope.letters_inside(Unique([*names.values()]))
        for link, _, _ in links:
            if link.place not in names:
                names[link.place] = next(letters)
        return names


def _free(wanted: str, taken: Sequence[set[str]]) -> str:
    """`wanted`, or that with a number, such that none has it yet; all have it then."""
    tried = itertools.chain([wanted], (f"{wanted}_{number}" for number in itertools.count(1)))
    name = next(name for name in tried if not any(name in each for each in taken))
    for each in taken:
        each.add(name)
    return name
