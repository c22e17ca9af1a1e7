"""The traffic of a program: its collectives, their axes, how often they run, and the bytes that a device sends."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Literal, NamedTuple

from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.core.program_properties import program_property

CollectiveKind = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute", "nothing"]

collective_kinds: Analysis[CollectiveKind] = Analysis(
    "speaks", "The kind of a collective, by which its traffic is counted; by default all devices send all they have.",
    missing="derive", derive=lambda primitive: "all-gather" if primitive.collective else "nothing")


class Transfer(NamedTuple):
    """Collectives of one kind, over the same axes, of equal size.

    `size` devices communicate, `times` times, and each contributes `bytes` bytes every time. `groups` are the positions
    along the axes of the devices that communicate, for a permutation its pairs; if it is empty, all do.

    >>> Transfer("all-reduce", ("data",), 8, 1, 1000).sent
    1750
    """

    kind: CollectiveKind
    axes: tuple[str, ...]
    size: int
    times: int
    bytes: int
    groups: tuple[tuple[int, ...], ...] = ()

    @property
    def sent(self) -> int:
        """The bytes that one device sends in all of them: `times` times those of `bytes_sent`."""
        return self.times * bytes_sent(self.kind, self.size, self.bytes)

    @property
    def axis(self) -> str:
        """The names of the axes, as one."""
        return ", ".join(self.axes)


def bytes_sent(kind: CollectiveKind, size: int, operand: int) -> int:
    """Return the bytes that each of `size` devices sends in a collective with operands of `operand` bytes.

    These are the counts of algorithms that send no more than any must, which rings and recursive halving share
    (Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005; Patarasuk and
    Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009), with n = `size`, b = `operand`:

    | kind | bytes |
    |---|---|
    | all-reduce | 2 (n - 1) b / n: a reduce-scatter, then an all-gather of its pieces |
    | reduce-scatter, all-to-all | (n - 1) b / n |
    | all-gather | (n - 1) b |
    | permute | b |

    Pieces are whole bytes, rounded up.

    >>> [bytes_sent(kind, 4, 800) for kind in ("all-reduce", "reduce-scatter", "all-gather", "permute")]
    [1200, 600, 2400, 800]
    """
    if size <= 1 or kind == "nothing":
        return 0
    if kind == "permute":
        return operand
    return (size - 1) * (operand if kind == "all-gather" else (2 if kind == "all-reduce" else 1) * -(-operand // size))


@program_property
def traffic(program: Program) -> tuple[Transfer, ...]:
    """Return the collectives of a program, largest senders first; those of a loop count at every step.

    A loop with an unknown number of steps counts as one step. Among branches the one that sends most counts, as for
    `fxgrad.cost_analysis`. Collectives over an axis that `vmap` maps are not counted: they have become reductions and
    moves of arrays.

    >>> import fxgrad, numpy as np
    >>> traffic(fxgrad.make_program(lambda x: x * 2.0)(np.ones(3)))
    ()
    """
    found: Counter[Transfer] = Counter()
    for equation in program.equations:
        for each in traffic_of(equation):
            found[each._replace(times=1)] += each.times
    merged = [each._replace(times=times) for each, times in found.items()]
    return tuple(sorted(merged, key=lambda each: (-each.sent, each)))


def traffic_of(equation: Equation) -> list[Transfer]:
    """Return the collectives of one operation, with those of the programs that it holds."""
    own = _own_transfer(equation)
    found = [own] if own is not None else []
    branches: list[tuple[Transfer, ...]] = []
    for region in equation.regions:
        inner = traffic(region.program)
        if region.role == "branch":
            branches.append(inner)
            continue
        times = 1 if region.times is None else region.times
        found += [each._replace(times=each.times * times) for each in inner if times]
    if branches:
        found += max(branches, key=total_sent)
    return found


def _own_transfer(equation: Equation) -> Transfer | None:
    kind = collective_kinds.of(equation.primitive)
    if kind == "nothing":
        return None
    axes, sizes = (value if isinstance(value, tuple) else (value,)
                   for value in (equation.params["axis_name"], equation.params["axis_size"]))
    groups = equation.params.get("axis_index_groups")
    size = max(map(len, groups)) if groups else math.prod(sizes)
    if kind == "permute":
        groups = [(source, target) for source, target in equation.params["perm"] if source != target]
        if not groups:
            return None
    operand = sum(atom.aval.nbytes for atom in equation.inputs)
    found = Transfer(kind, axes, size, 1, operand, tuple(map(tuple, groups or ())))
    return found if found.sent else None


def total_sent(found: Iterable[Transfer]) -> int:
    """Return the bytes that one device sends."""
    return sum(each.sent for each in found)


def by_axis(found: Iterable[Transfer]) -> dict[str, int]:
    """Return the bytes that one device sends over each axis, most first; several axes at once are joined in one name.

    >>> by_axis([Transfer("all-reduce", ("data",), 2, 1, 100), Transfer("all-gather", ("data",), 2, 3, 100)])
    {'data': 400}
    """
    sums: Counter[str] = Counter()
    for each in found:
        sums[each.axis] += each.sent
    return dict(sums.most_common())
