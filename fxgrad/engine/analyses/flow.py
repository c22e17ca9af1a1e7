"""What a program does to values, step by step: which are made, read and views of others, with its calls opened."""

from __future__ import annotations

from collections.abc import Sequence

from fxgrad.engine.analyses.fusing import ALIAS, BARRIER, VIEW, kind_of
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.facts import fact
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Atom, Equation, Program, Source, Var
from fxgrad.engine.core.regions import Region
from fxgrad.engine.ops.arithmetic import div_p
from fxgrad.engine.ops.moving import move_p
from fxgrad.engine.ops.pointwise import acts_on_each

OPENED = frozenset({"inline", "call", "recomputed", "mapped"})
"""Roles of the programs that run once and in whose place their equations may stand."""
LIMIT = 100_000
"""Equations of an opened program; calls within calls may stand for any number, and are steps of their own then."""
_VIEWS = frozenset({ALIAS, VIEW})


@fact
def opened_size(program: Program) -> int:
    """How many equations a program has with its calls opened."""
    return sum(sum(opened_size(region.program) for region in equation.regions) if _is_opened(equation) else 1
               for equation in program.equations)


def _is_opened(equation: Equation) -> bool:
    if equation.primitive.regions is None:
        return False
    regions = equation.regions
    return len(regions) == 1 and regions[0].role in OPENED


_CALLS = frozenset({"call", "recomputed"})
"""Roles of the programs that are not opened where calls stay steps."""


class Flow:
    """A program as steps on numbered values.

    Of each step there are its equation, its place in the user's code, its part ("forward", "backward" or ""), its
    kind, whether it acts on each element (`on_each`), the values that it is `given` (-1 for numbers), and those that it
    `reads` and `makes`; of each value its
    type, its size in bytes, the step that makes it (-1 for inputs), the variable that it first was, the program which
    that is in, and the value that it is a view of, or itself. Numbers, being part of the code, are no values. What a
    call in the backward pass computes is of that pass. Values in a `shard_map`, and those that it takes and makes,
    have the size of what one device has of them. With `calls`, calls stay steps: what they hand on is known, and
    equal calls are looked into once.
    """

    def __init__(self, program: Program, calls: bool = False) -> None:
        self.program = program
        self._calls = calls
        self.equations: list[Equation] = []
        self.sources: list[Source | None] = []
        self.parts: list[str] = []
        self.kinds: list[int] = []
        self.on_each: list[bool] = []
        self._kinds: dict[Primitive, tuple[int, bool]] = {}
        self.given: list[list[int]] = []
        self.reads: list[list[int]] = []
        self.makes: list[list[int]] = []
        self.avals: list[Aval] = []
        self.sizes: list[int] = []
        self.variables: list[Var] = []
        self.homes: list[Program] = []
        self.made_by: list[int] = []
        self.base: list[int] = []
        self.kept: list[tuple[int, list[int]]] = []
        """Steps before which callers still hold the operands of a call."""
        self.waits: dict[int, int] = {}
        """Steps of what is computed again, and a value before which they do not begin, though they do not read it."""
        self.in_pieces = False
        """Whether devices have pieces of some values, which are not of the shapes of their variables there."""
        self._bytes: dict[Aval, int] = {}
        self._elements: dict[Aval, int] = {}
        self._open = opened_size(program) <= LIMIT
        environment: dict[Atom, int] = {var: self.value(var, program, -1) for var in program.inputs}
        self.inputs = [environment[var] for var in program.inputs]
        self._walk(program, environment, None)
        self.results = [found for atom in program.outputs if (found := environment.get(atom, -1)) >= 0]
        self.outputs = [environment.get(atom, -1) for atom in program.outputs]

    def value(self, var: Var, home: Program, step: int, size: int = -1) -> int:
        """A new value."""
        number = len(self.avals)
        aval = var.aval
        if size < 0:
            found = self._bytes.get(aval)
            size = self._bytes[aval] = aval.nbytes if found is None else found
        self.avals.append(aval)
        self.sizes.append(size)
        self.variables.append(var)
        self.homes.append(home)
        self.made_by.append(step)
        self.base.append(number)
        return number

    def _walk(self, program: Program, environment: dict[Atom, int], around: Source | None, is_back: bool = False,
              ) -> None:
        """Adds the steps of a program; `around` is the place of the call that it is of, which may be going back."""
        for equation in program.equations:
            primitive = equation.primitive
            if primitive.regions is not None and self._open and _is_opened(equation) and not self.closes(equation):
                self._call(equation, equation.regions[0], environment, equation.source or around, is_back)
                continue
            given = [environment.get(atom, -1) for atom in equation.inputs]
            reads = [value for value in given if value >= 0]
            known = self._kinds.get(primitive)
            if known is None:
                known = self._kinds[primitive] = kind_of(equation), acts_on_each.of(primitive)
            kind = kind_of(equation) if primitive is div_p else known[0]
            self.on_each.append(known[1])
            number = len(self.equations)
            size = 0 if primitive is move_p and equation.params["to"] == "host" else -1  # it lies in another memory
            made = [self.value(var, program, number, size) for var in equation.outputs]
            source = equation.source or around
            self.sources.append(source)
            self.parts.append("backward" if is_back else "" if source is None else source.part or "")
            self.equations.append(equation)
            self.kinds.append(kind)
            self.given.append(given)
            self.reads.append(reads)
            self.makes.append(made)
            if kind in _VIEWS:
                if reads:
                    for each in made:
                        self.base[each] = self.base[reads[0]]
            elif kind == BARRIER and len(reads) == len(made):
                for each, of in zip(made, reads, strict=True):
                    self.base[each] = self.base[of]
            elif self._calls and self.closes(equation):
                self._hand_on(equation.regions[0], [environment.get(atom, -1) for atom in equation.inputs], made)
            environment.update(zip(equation.outputs, made, strict=True))

    def _hand_on(self, region: Region, operands: Sequence[int], made: Sequence[int]) -> None:
        """Notes which results of a call that stays a step lie where an operand does, or another result."""
        inside = flow_with_calls(region.program)
        lies_in = {value: self.base[operands[link.place]] for value, link in zip(
            inside.inputs, region.inputs, strict=True) if link.place >= 0 and operands[link.place] >= 0}
        for value, link in zip(inside.outputs, region.outputs, strict=True):
            if value >= 0 and link.place >= 0:
                first = lies_in.setdefault(inside.base[value], made[link.place])
                self.base[made[link.place]] = first
                if first == made[link.place]:
                    self.sizes[first] = inside.sizes[inside.base[value]]

    def closes(self, equation: Equation) -> bool:
        """Whether an equation is a call that stays a step though it might be opened."""
        return self._calls and _is_opened(equation) and equation.regions[0].role in _CALLS

    def _call(self, equation: Equation, region: Region, environment: dict[Atom, int], around: Source | None,
              is_back: bool) -> None:
        """The steps of a call in its place."""
        program = region.program
        operands = [environment.get(equation.inputs[link.place], -1) if link.place >= 0 else -1
                    for link in region.inputs]
        inside: dict[Atom, int] = {}
        for var, given in zip(program.inputs, operands, strict=True):
            if given >= 0:
                inside[var] = given
                if region.role == "mapped":
                    self.in_pieces = True
                    self.sizes[self.base[given]] = min(self.sizes[self.base[given]], var.aval.nbytes)
        first = len(self.equations)
        self._walk(program, inside, around, is_back or (around is not None and around.part == "backward"))
        if region.role == "recomputed" and operands and operands[-1] >= 0:
            self.waits.update(dict.fromkeys(range(first, len(self.equations)), operands[-1]))
        self.kept.append((len(self.equations) - 1, [each for each in operands if each >= 0]))
        for link, atom in zip(region.outputs, program.outputs, strict=True):
            found = inside.get(atom, -1)
            if found >= 0 and link.place >= 0:
                environment[equation.outputs[link.place]] = found

    def elements(self, value: int) -> int:
        """How many elements a value has."""
        aval = self.avals[value]
        found = self._elements.get(aval)
        if found is None:
            found = self._elements[aval] = aval.size
        return found

    def users(self) -> list[list[int]]:
        """The steps that read each value."""
        found: list[list[int]] = [[] for _ in self.avals]
        for step, reads in enumerate(self.reads):
            for value in reads:
                found[value].append(step)
        return found

    def bases(self, values: Sequence[int]) -> set[int]:
        """The values that `values` are, or are views of."""
        return {self.base[value] for value in values}


@fact
def flow_of(program: Program) -> Flow:
    """The steps of a program."""
    return Flow(program)


@fact
def flow_with_calls(program: Program) -> Flow:
    """The steps of a program, in which calls are steps."""
    return Flow(program, calls=True)
