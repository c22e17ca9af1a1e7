"""`fusions`: which operations XLA fuses, read from its optimised program, by source line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from fxgrad import jit
from fxgrad.extend import Equation, Program, Source, Variable, bytes_text, hide_frames, trace_program, transformation
from fxgrad.extend.analyses import total_cost
from fxgrad.extend.sizes import require_numbers
from fxgrad.extend.tracing import static_positions
from fxgrad.text.inlining import inline
from fxgrad.text.short import operation_name
from fxgrad.text.tables import Report, add_row, new_table
from fxgrad.tools.profiling.costs import fused_bytes

MOST_ROWS = 30


class FusionGroup(NamedTuple):
    """An instruction of XLA: its name and opcode, and the equations that it computes.

    `equations` are indices into the equations of `Fusions.program`, some of which are computed in part; an equation may
    be in several groups, since cheap ones are recomputed in each. `operations` are their names and `lines` the user's
    lines, each once. They are empty for instructions that XLA added, such as copies.
    """

    name: str
    opcode: str
    equations: tuple[int, ...]
    operations: tuple[str, ...]
    lines: tuple[str, ...]


class Fusions(Report):
    """The groups of a compiled program, in execution order; prints as a table.

    `program` is the compiled program, with calls inlined. `unfused_bytes` are moved if each of its operations reads and
    writes memory, `fused_bytes` by the groups of the model that `fxgrad.memory_analysis` uses, `xla_bytes` by XLA's
    own count, None if it makes none.
    """

    def __init__(self, title: str, program: Program, groups: Sequence[FusionGroup], unfused_bytes: int,
                 fused: int, xla_bytes: int | None) -> None:
        self.title, self.program, self.groups = title, program, tuple(groups)
        self.unfused_bytes, self.fused_bytes, self.xla_bytes = unfused_bytes, fused, xla_bytes

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[FusionGroup]:
        return iter(self.groups)

    def of(self, number: int) -> tuple[FusionGroup, ...]:
        """Return the groups that compute an equation of `program`, by its number; none if XLA dropped it."""
        return tuple([group for group in self.groups if number in group.equations])

    @property
    def grouped(self) -> Program:
        """`program` with each equation in a scope named after its group, the last of several: to be drawn as boxes.

        `fxgrad.draw(found.grouped, view="network")` shows the groups, and the values that flow between them.
        """
        return self._in_scopes({group: group.name for group in self.groups})

    @property
    def grouped_with_bytes(self) -> Program:
        """`grouped`, with the bytes that each group moves, by its operations one by one and together, in its name."""
        titles = {}
        for group in self.groups:
            alone, together = self.bytes_of(group)
            titles[group] = f"{group.name}: {bytes_text(alone)} unfused, {bytes_text(together)} fused"
        return self._in_scopes(titles)

    def _in_scopes(self, titles: dict[FusionGroup, str]) -> Program:
        names = {number: title for group, title in titles.items() for number in group.equations}
        return self.program.replace(equations=[_tag_equation(equation, names.get(number, "")) for number, equation
                                               in enumerate(self.program.equations)])

    def bytes_of(self, group: FusionGroup) -> tuple[int, int]:
        """Return the bytes that the equations of a group move one by one, and those of values that enter or leave it.

        An equation that several groups compute counts in each. Literals count nothing in the second number.
        """
        equations = [self.program.equations[number] for number in group.equations]
        made = {output for equation in equations for output in equation.outputs}
        read = {atom for equation in equations for atom in equation.inputs if isinstance(atom, Variable)} - made
        inside = {*group.equations}
        used = {atom for number, equation in enumerate(self.program.equations) if number not in inside
                for atom in equation.inputs} | {*self.program.outputs}
        return sum(equation.cost.bytes for equation in equations), sum(
            variable.aval.nbytes for variable in read | (made & used))

    @property
    def by_line(self) -> dict[str, tuple[str, ...]]:
        """The names of the groups that compute part of each of the user's lines."""
        found: dict[str, dict[str, None]] = {}
        for group in self.groups:
            for line in group.lines:
                found.setdefault(line, {})[group.name] = None
        return {line: tuple(names) for line, names in found.items()}

    def table(self) -> Table:
        """Return the table for rich."""
        counted = "" if self.xla_bytes is None else f", {bytes_text(self.xla_bytes)} by XLA's count"
        made = new_table(f"fusion of {self.title}: {len(self.program.equations)} operations in {len(self.groups)} "
                         f"groups; bytes moved {bytes_text(self.unfused_bytes)} unfused, "
                         f"{bytes_text(self.fused_bytes)} fused{counted}",
                         {"group": "left", "opcode": "left", "operations": "left", "lines": "left"})
        for group in self.groups[:MOST_ROWS]:
            add_row(made, [group.name, group.opcode, ", ".join(group.operations), ", ".join(group.lines)])
        if len(self.groups) > MOST_ROWS:
            add_row(made, [f"{len(self.groups) - MOST_ROWS} more", "", "", ""])
        return made

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the groups as JSON."""
        return json.dumps({"title": self.title, "unfused_bytes": self.unfused_bytes, "fused_bytes": self.fused_bytes,
                           "xla_bytes": self.xla_bytes, "groups": [group._asdict() for group in self.groups]},
                          indent=indent)

    def __repr__(self) -> str:
        return f"<fusion of {self.title}: {len(self.program.equations)} operations in {len(self.groups)} groups>"


def fusions(fun: Callable[..., Any], *, static_argnums: int | Sequence[int] = ()) -> Callable[..., Fusions]:
    """Return the function that compiles `fun` for its arguments and reports which operations XLA fuses.

    The groups are read from XLA's optimised program, whose instructions carry the number of their equation; a loop or a
    branch is one group. Nothing runs. XLA counts the bytes of one step of a loop.

    Raises `ArgumentError` for arguments that are not arrays.

    >>> import fxgrad, numpy as np
    >>> def layer(x, w, b):
    ...     return np.tanh(x @ w + b) * 2.0
    >>> args = [fxgrad.ShapeDtypeStruct(shape, np.float32) for shape in ((8, 4), (4, 16), (16,))]
    >>> found = fxgrad.tools.profiling.fusions(layer)(*args)
    >>> {"add", "tanh", "mul"} <= {name for group in found if len(group.operations) > 1 for name in group.operations}
    True
    """
    @transformation("fusions", fun)
    @hide_frames
    def found(*args: Any, **kwargs: Any) -> Fusions:
        static = static_positions(static_argnums, len(args))
        program = fun if isinstance(fun, Program) else trace_program("fusions", fun, args, kwargs, static)
        return fusions_of_program(require_numbers("fusions", program))
    return found


def fusions_of_program(program: Program) -> Fusions:
    """Return the fusions of a program."""
    signature = program.signature
    title = "a program" if signature is None else signature.title or signature.name
    opened = inline(program, calls="*").replace(signature=None)
    numbered = opened.replace(equations=[_tag_equation(equation, f"{MARK}{number}")
                                         for number, equation in enumerate(opened.equations)])
    structs = [aval.struct for aval in opened.in_avals[opened.captured:]]
    stage = jit(lambda *leaves: numbered(*leaves)).lower(*structs).compile()
    analysis = stage.cost_analysis()
    moved = analysis.get("bytes accessed") if isinstance(analysis, dict) else None
    groups = [_group(name, opcode, numbers, opened) for name, opcode, numbers in _groups(stage.as_text())]
    return Fusions(title, opened, groups, total_cost(opened).bytes, fused_bytes(opened),
                   None if moved is None else int(moved))


def _tag_equation(equation: Equation, scope: str) -> Equation:
    """Return the equation in a scope, which XLA's metadata names."""
    source = equation.source or Source(_tag_equation.__code__, 0)
    return Equation(equation.primitive, equation.inputs, equation.params, equation.outputs,
                    source._replace(scope=scope))


MARK = "equation_"
_HEAD = re.compile(r"(ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .*)?\{$")
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?([\w.\-]+) = .*?\b([a-z][\w\-]*)\(")
_CALLED = re.compile(r"(?:calls|to_apply)=%?([\w.\-]+)")
_NUMBER = re.compile(rf'op_name="[^"]*?{MARK}(\d+)')
_NO_WORK = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast"})


def _groups(text: str) -> Iterator[tuple[str, str, list[int]]]:
    """Yield the outermost instructions of XLA's text that compute: name, opcode, numbers of equations."""
    computations: dict[str, list[str]] = {}
    entry = ""
    lines: list[str] = []
    for line in text.splitlines():
        head = None if line.startswith(" ") else _HEAD.match(line)
        if head:
            lines = computations[head[2]] = []
            entry = head[2] if head[1] else entry
        else:
            lines.append(line)
    yield from _groups_within(entry, computations)


def _groups_within(name: str, computations: dict[str, list[str]]) -> Iterator[tuple[str, str, list[int]]]:
    """Yield the groups of one computation, with those of called computations in place of the call."""
    for line in computations.get(name, ()):
        instruction = _INSTRUCTION.match(line)
        if instruction is None or instruction[2] in _NO_WORK:
            continue
        called = _CALLED.findall(line)
        if instruction[2] == "call":
            for each in called:
                yield from _groups_within(each, computations)
            continue
        inner = [each for within in called for each in computations.get(within, ())]
        numbers = {int(number) for each in (line, *inner) for number in _NUMBER.findall(each)}
        yield instruction[1], instruction[2], sorted(numbers)


def _group(name: str, opcode: str, numbers: list[int], program: Program) -> FusionGroup:
    equations = [program.equations[number] for number in numbers]
    places = [equation.source.place for equation in equations if equation.source is not None]
    return FusionGroup(name, opcode, tuple(numbers), tuple([operation_name(equation) for equation in equations]),
                       tuple(dict.fromkeys(places)))
