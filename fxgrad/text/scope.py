"""The names of one program in the compact style: the user's own, and letters for unnamed variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from fxgrad import dtypes
from fxgrad.extend import Aval, Program, ProgramAttribute, Variable, cached
from fxgrad.text.forms import ATOM, OperandText
from fxgrad.text.names import RESERVED, UniqueNames, own_names, quoted_name
from fxgrad.text.sources import Sources

_dtype_word = re.compile(r"(bool|bf16|[iuf]\d+|c\d+)")
UNTYPED: ProgramAttribute[frozenset[Variable]] = ProgramAttribute("names without types")
"""The variables of a parsed text that have no type there."""


class Scope:
    """The names of one program that is being written; `given` are names of inputs from the enclosing text.

    Letters that are used in the text `around` are not used again.
    """

    def __init__(self, program: Program, sources: Sources, given: Mapping[Variable, str],
                 around: Scope | None = None) -> None:
        self.names = dict(given)
        self._unique = UniqueNames([*given.values()])
        for var, name in own_names(program, sources).items():
            if var not in given:
                taken = name in self._unique.taken and name not in RESERVED
                self.names[var] = self._unique(name) if taken else name
                self._unique.taken.add(self.names[var])
        self.named = frozenset(self.names)
        self._untyped = UNTYPED.of(program) or frozenset()
        self._around: frozenset[str] = frozenset() if around is None else around.letters_used()
        self._used: set[str] = set()
        self._letters = self._unique.letters() if around is None else around.letters_inside(self._unique)
        paths = {name for name in self.names.values() if "." in name or "[" in name}
        self._longer = {name[:at] for name in paths for at in range(1, len(name)) if name[at] in ".["}
        self._shown: dict[Variable, OperandText] = {}

    def bind(self, var: Variable) -> str:
        """Return the written name of a variable, a letter if it has none."""
        if var not in self.names:
            self.names[var] = next(self._letters)
            self._used.add(self.names[var])
        return quoted_name(self.names[var])

    def letters_used(self) -> frozenset[str]:
        """Return the letters, and names, that are used here or around."""
        return self._around.union(self._used, self.names.values())

    def letters_inside(self, unique: UniqueNames) -> Iterator[str]:
        """Return letters for a program in the text of this one."""
        used = self.letters_used()
        return (letter for letter in unique.letters() if letter not in used)

    def shown(self, var: Variable) -> OperandText:
        """Return a use of a variable."""
        known = self._shown.get(var)
        if known is None:
            if var not in self.names:
                return OperandText(f"<unbound {var.aval}>", ATOM)  # a program that is wrong must print too
            name = self.names[var]
            apart = name in self._longer or _dtype_word.fullmatch(name)  # x[0] would be another name, or a type
            known = self._shown[var] = OperandText(quoted_name(name), ATOM - 1 if apart else ATOM)
        return known

    def bindings(self, variables: Iterable[Variable]) -> list[str]:
        """Name with types, one type for all in a row that have it."""
        bound = [(self.bind(var), type_text(var.aval)) for var in variables]
        return [name if place + 1 < len(bound) and bound[place + 1][1] == shown else f"{name}: {shown}"
                for place, (name, shown) in enumerate(bound)]

    def target(self, var: Variable, first: Aval | None) -> str:
        """Return the target before `=`: a letter has no type if it is that of the first variable on the right."""
        name = self.bind(var)
        short = first == var.aval and (var not in self.named or var in self._untyped)
        return name if short else f"{name}: {type_text(var.aval)}"


@cached("texts of types", 4096)
def type_text(aval: Aval) -> str:
    """Return a type; that of a scalar without brackets."""
    text = repr(aval)
    return text if dtypes.is_key(aval.dtype) else text.removesuffix("[]")
