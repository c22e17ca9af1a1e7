"""The flow of a program: its steps with calls inlined, and the values that each step reads, makes or aliases."""

from __future__ import annotations

from collections.abc import Sequence

from fxgrad.engine.analyses.fusing import ALIAS, BARRIER, VIEW, fusion_kind
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Equation, Program, Source, Variable
from fxgrad.engine.core.program_properties import program_property
from fxgrad.engine.core.regions import Region
from fxgrad.engine.core.walk import eval_program
from fxgrad.engine.ops.arithmetic import div_p
from fxgrad.engine.ops.moving import move_p
from fxgrad.engine.ops.pointwise import acts_on_each

OPENED = frozenset({"inline", "call", "recomputed", "mapped"})
"""Roles of the programs that run once, whose equations may replace the call."""
LIMIT = 100_000
"""The most equations of an inlined program; nested calls may expand to any number, and stay steps beyond it."""
_VIEWS = frozenset({ALIAS, VIEW})


@program_property
def inlined_size(program: Program) -> int:
    """Return the number of equations of a program with its calls inlined."""
    return sum(sum(inlined_size(region.program) for region in equation.regions) if _is_inlined(equation) else 1
               for equation in program.equations)


def _is_inlined(equation: Equation) -> bool:
    if equation.primitive.regions is None:
        return False
    regions = equation.regions
    return len(regions) == 1 and regions[0].role in OPENED


_CALLS = frozenset({"call", "recomputed"})
"""Roles of the programs that are not inlined where calls stay steps."""


class Flow:
    """A program as steps on numbered values.

    Lists by step: `equations`, `sources`, `parts` ("forward", "backward" or ""), `kinds`, `on_each` (whether it is
    elementwise), `given` (its operands, -1 for numbers), `reads` (those that are values) and `makes`. A call in the
    backward pass has all its steps in that part.

    Lists by value: `avals`, `sizes` in bytes, `made_by` (the step, -1 for inputs), `variables` and `homes` (the
    variable that it first was, and the program of that), and `base` (the value that it is a view of, or itself).
    Numbers are no values. Values in a `shard_map`, and its operands and results, have the size of the piece on one
    device.

    With `calls`, calls stay steps: it is known which results share memory with operands, and equal calls are analysed
    once.
    """

    def __init__(self, program: Program, calls: bool = False) -> None:
        self.program = program
        self._calls = calls
        self.equations: list[Equation] = []
        self.sources: list[Source | None] = []
        self.parts: list[str] = []
        self.kinds: list[str] = []
        self.on_each: list[bool] = []
        self._kinds: dict[Primitive, tuple[str, bool]] = {}
        self.given: list[list[int]] = []
        self.reads: list[list[int]] = []
        self.makes: list[list[int]] = []
        self.avals: list[Aval] = []
        self.sizes: list[int] = []
        self.variables: list[Variable] = []
        self.homes: list[Program] = []
        self.made_by: list[int] = []
        self.base: list[int] = []
        self.kept: list[tuple[int, list[int]]] = []
        """Steps through which the operands of a call stay alive in its caller."""
        self.waits: dict[int, int] = {}
        """Recomputed steps, and the value that each waits for though it does not read it."""
        self.in_pieces = False
        """Whether devices hold pieces of some values, in other shapes than those of their variables."""
        self._bytes: dict[Aval, int] = {}
        self._elements: dict[Aval, int] = {}
        self._open = inlined_size(program) <= LIMIT
        self.inputs = [self.value(var, program, -1) for var in program.inputs]
        self.outputs = self._walk(program, self.inputs, None)
        self.results = [value for value in self.outputs if value >= 0]

    def value(self, var: Variable, home: Program, step: int, size: int = -1) -> int:
        """Add a value, and return its number."""
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

    def _walk(self, program: Program, inputs: Sequence[int], around: Source | None, is_back: bool = False,
              ) -> list[int]:
        """Add the steps of a program, and return the values of its outputs, -1 for numbers.

        `around` is the line of the enclosing call, `is_back` whether that is in the backward pass.
        """
        def step(equation: Equation, given: list[int]) -> list[int]:
            source = equation.source or around
            if self._open and _is_inlined(equation) and not self.closes(equation):
                return self._call(equation, given, source, is_back)
            made = self._step(program, equation, given)
            self.sources.append(source)
            self.parts.append("backward" if is_back else "" if source is None else source.part or "")
            return made

        return eval_program(program, inputs, step, lambda _: -1)

    def _step(self, program: Program, equation: Equation, given: list[int]) -> list[int]:
        """Add one step, and return the values that it makes."""
        primitive = equation.primitive
        reads = [value for value in given if value >= 0]
        known = self._kinds.get(primitive)
        if known is None:
            known = self._kinds[primitive] = fusion_kind(equation), acts_on_each.of(primitive)
        kind = fusion_kind(equation) if primitive is div_p else known[0]
        self.on_each.append(known[1])
        number = len(self.equations)
        size = 0 if primitive is move_p and equation.params["to"] == "host" else -1  # it lies in another memory
        made = [self.value(var, program, number, size) for var in equation.outputs]
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
            self._hand_on(equation.regions[0], given, made)
        return made

    def _hand_on(self, region: Region, operands: Sequence[int], made: Sequence[int]) -> None:
        """Note which results of a call that stays a step share memory with an operand, or with another result."""
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
        """Return whether an equation is a call that stays a step though it might be opened."""
        return self._calls and _is_inlined(equation) and equation.regions[0].role in _CALLS

    def _call(self, equation: Equation, given: Sequence[int], around: Source | None, is_back: bool) -> list[int]:
        """Add the steps of a call in its place, and return the values of its results."""
        region, = equation.regions
        operands = [given[link.place] if link.place >= 0 else -1 for link in region.inputs]
        if region.role == "mapped":
            for var, value in zip(region.program.inputs, operands, strict=True):
                if value >= 0:
                    self.in_pieces = True
                    self.sizes[self.base[value]] = min(self.sizes[self.base[value]], var.aval.nbytes)
        first = len(self.equations)
        outputs = self._walk(region.program, operands, around,
                             is_back or (around is not None and around.part == "backward"))
        if region.role == "recomputed" and operands and operands[-1] >= 0:
            self.waits.update(dict.fromkeys(range(first, len(self.equations)), operands[-1]))
        self.kept.append((len(self.equations) - 1, [each for each in operands if each >= 0]))
        made = [-1] * len(equation.outputs)
        for link, value in zip(region.outputs, outputs, strict=True):
            if value >= 0 and link.place >= 0:
                made[link.place] = value
        return made

    def elements(self, value: int) -> int:
        """Return how many elements a value has."""
        aval = self.avals[value]
        found = self._elements.get(aval)
        if found is None:
            found = self._elements[aval] = aval.size
        return found

    def users(self) -> list[list[int]]:
        """Return the steps that read each value."""
        found: list[list[int]] = [[] for _ in self.avals]
        for step, reads in enumerate(self.reads):
            for value in reads:
                found[value].append(step)
        return found

    def bases(self, values: Sequence[int]) -> set[int]:
        """Return the values that `values` are, or are views of."""
        return {self.base[value] for value in values}


@program_property
def flow_of(program: Program) -> Flow:
    """Return the flow of a program."""
    return Flow(program)


@program_property
def flow_with_calls(program: Program) -> Flow:
    """Return the flow of a program in which calls are steps."""
    return Flow(program, calls=True)
