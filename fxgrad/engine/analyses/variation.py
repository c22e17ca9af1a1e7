"""Device variance: the mesh axes over which each value varies, and whether all devices reach every collective.

A device that waits in a collective for others, which took another branch or left the loop before, waits forever. So a
collective must not depend on a predicate that varies over the axes that it reduces over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Literal, NamedTuple

from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.core.program_properties import collective_axes
from fxgrad.engine.core.regions import Region
from fxgrad.engine.core.walk import eval_program
from fxgrad.errors import UnsupportedError

Axes = frozenset[str]
NONE: Axes = frozenset()


class Communication(NamedTuple):
    """How a collective communicates: the results of the devices along its axes, and the devices that each waits for.

    The results are "equal", "different", or as the "operand" is. Devices wait for the entries along the collective's
    own "axes", for all devices of the "mesh", or for "nobody".
    """

    gives: Literal["equal", "different", "operand"]
    waits: Literal["axes", "mesh", "nobody"]


communications: Analysis[Communication] = Analysis(
    "communications", "What the devices get from a collective, and for which of them each waits.",
    missing="conservative", default=Communication("different", "axes"))
"""Operations that are no collectives are not looked up."""


def check_collectives(program: Program, varying: Sequence[Axes], axes: Sequence[str]) -> list[Axes]:
    """Return the mesh axes over which each output of `program` varies, where its inputs vary over `varying`.

    Captured inputs come first, as in the program. `axes` are those of the mesh. A type gives an upper bound: `pvary`
    alone does not make a value vary. Raises `UnsupportedError`, with the line of the collective, for one that some
    devices may not reach.

    >>> import numpy as np, fxgrad
    >>> program = fxgrad.make_program(lambda x, y: (x + y, x * 2.0))(1.0, 2.0)
    >>> [sorted(axes) for axes in check_collectives(program, [frozenset(), frozenset("i")], ["i"])]
    [['i'], []]
    """
    return _Walk(frozenset(axes)).walk(program, varying)


class _Walk:
    """One check: `deciding` are the enclosing operations, with the axes over which their predicates vary."""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes
        self._deciding: list[tuple[Equation, Axes]] = []

    def walk(self, program: Program, varying: Sequence[Axes]) -> list[Axes]:
        return eval_program(program, varying, self._equation, literal=lambda _: NONE)

    def _equation(self, equation: Equation, varying: list[Axes]) -> list[Axes]:
        if equation.regions:
            return self._into_regions(equation, varying)
        union = NONE.union(*varying)
        if equation.primitive.collective:
            union = self._collective_result(equation, union)
        return [union] * len(equation.outputs)

    def _collective_result(self, equation: Equation, union: Axes) -> Axes:
        """Return the axes over which the result of a collective varies; raise if it would wait forever."""
        own, exchange = collective_axes(equation.primitive,
                                        equation.params) & self._axes, communications.of(equation.primitive)
        waits_over = {"axes": own, "mesh": self._axes if own else NONE, "nobody": NONE}[exchange.waits]
        for outer, decided in self._deciding:
            if decided & waits_over:
                raise _deadlock_error(equation, outer, decided & waits_over, bool(decided & own))
        if exchange.gives == "equal" and not equation.params.get("axis_index_groups"):
            return union - own
        return union if exchange.gives == "operand" else union | own

    def _into_regions(self, equation: Equation, varying: list[Axes]) -> list[Axes]:
        """Walk all regions of the operation until carries and predicates vary over no more axes."""
        regions, operands = equation.regions, [*varying]
        taken = {link.place for region in regions for link in region.inputs}
        decided = rest = NONE.union(*(axes for place, axes in enumerate(varying) if place not in taken))
        outputs, inside = [rest] * len(equation.outputs), NONE
        while True:
            before = [*operands, *outputs, decided, inside]
            for region in regions:
                given = _region_inputs(region, regions, operands, inside)
                depth = len(self._deciding)
                self._deciding += [(equation, decided)] * (region.times is None and bool(decided))
                made = self.walk(region.program, given)
                del self._deciding[depth:]
                if region.role == "condition":
                    decided = decided.union(*made)
                inside |= _propagate(region, made, operands, outputs)
            if any(region.times is None for region in regions):
                outputs = [axes | decided for axes in outputs]
            if [*operands, *outputs, decided, inside] == before:
                return outputs


def _region_inputs(region: Region, regions: Sequence[Region], operands: Sequence[Axes], inside: Axes) -> list[Axes]:
    """Return the axes over which the inputs of a region vary.

    The states that a sweep visits are those that it steps through. Other values that an operation makes itself may
    depend on all its operands and on all results that it uses itself.
    """
    made: Iterator[Axes] = repeat(inside.union(*operands))
    if region.role == "back":
        made = (operands[link.place] for step in regions if step.role == "step"
                for link in step.inputs if link.how == "carry")
    return [next(made) if link.how == "inside" else operands[link.place] for link in region.inputs]


def _propagate(region: Region, made: Sequence[Axes], operands: list[Axes], outputs: list[Axes]) -> Axes:
    """Add what a region returned to the operands that are carried and to the outputs; return what stays inside."""
    carried = iter([link.place for link in region.inputs if link.how == "carry"])
    inside = NONE
    for link, axes in zip(region.outputs, made, strict=True):
        if link.how == "inside":
            inside |= axes
            continue
        outputs[link.place] |= axes
        if link.how == "carry":
            place = next(carried)
            operands[place] |= axes
            if not region.times:  # there may be no step
                outputs[link.place] |= operands[place]
    if region.role == "step":  # of a loop that is swept back: its outputs are the state that it carries
        for place, axes in zip(carried, made, strict=False):
            operands[place] |= axes
    return inside


def _deadlock_error(equation: Equation, outer: Equation, axes: Axes, over_own: bool) -> UnsupportedError:
    name, shown = equation.primitive.name.removesuffix("_invariant"), ", ".join(map(repr, sorted(axes)))
    own = ", ".join(map(repr, sorted(collective_axes(equation.primitive, equation.params))))
    is_loop = not any(region.role == "branch" for region in outer.regions)
    place = "a loop whose number of steps varies" if is_loop else "a branch of a cond whose predicate varies"
    others = "over the same axis" if over_own else "of the mesh (XLA's collective-permute waits for all of them)"
    cure = ("Make what it is decided by equal, as pmax(predicate, axis_name) does, or speak outside of the loop"
            if is_loop else "Speak before the cond, and choose in it, or with fxgrad.numpy.where, what is used")
    source = equation.source
    at = "" if source is None else f"\n  at {source.place} (in {source.code.co_name})"
    return UnsupportedError(
        f"{name} over {own} is in {place} over {shown}: it would wait forever for devices {others} that do not reach "
        f"it. {cure}{at}")

