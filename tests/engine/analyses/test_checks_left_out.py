"""How many automatic checks intervals leave out, over functions with loops, branches and masks, of unbounded inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.analyses.intervals import Interval, any_value
from fxgrad.engine.core.program import Program
from fxgrad.engine.higher_order import automatic_checks
from fxgrad.engine.higher_order.automatic_checks import KINDS, Finding, add_checks
from fxgrad.engine.higher_order.checks import check_p
from tests.engine.control_flow.functions import CASES
from tests.support.nan_corpus import CASES as MASKED


class Library:
    """The library under the names of the corpus of NaNs."""

    numpy = fnp

    def __getattr__(self, name: str) -> Any:
        return getattr(fxgrad, name)


def programs() -> Iterator[Program]:
    """Programs of functions of which no value is known."""
    for case in CASES:
        if not case.refusal:
            yield fxgrad.make_program(fxgrad.python_control_flow(case.function))(*map(as_number, case.args))
    for masked in MASKED.values():
        yield fxgrad.make_program(lambda x, of=masked[0]: of(Library(), x))(masked[1])


def as_number(value: Any) -> Any:
    return np.asarray(value)[()]


def count(program: Program) -> Counter[str]:
    """Count the automatic checks of a program, by kind."""
    found: Counter[str] = Counter()
    for equation in program.equations:
        if equation.primitive is check_p and isinstance(equation.params["report"], Finding):
            found[equation.params["report"].kind] += 1
        for inner in equation.programs:
            found += count(inner)
    return found


def of_any_value(number: int, attribute: str) -> Callable[..., list[Interval]]:
    """Return a function that knows no interval: one for each output of its argument at `number`."""
    return lambda *args: [any_value(var.aval) for var in getattr(args[number], attribute)]


def without_intervals(program: Program, quick: bool) -> Program:
    """Return `program` with every check that an operation of its kind may need."""
    def everywhere(program: Program, _: Sequence[Interval]) -> dict[Any, Interval]:
        return {var: any_value(var.aval) for var in [
            *program.inputs, *(var for equation in program.equations for var in equation.outputs)]}
    with mock.patch.multiple(
            automatic_checks, intervals_of=everywhere, outputs_of=of_any_value(0, "outputs"),
            operands_of=lambda atoms, _: [any_value(atom.aval) for atom in atoms],
            region_inputs=lambda equation, region, *_: [any_value(var.aval) for var in region.program.inputs]):
        # One more kind, so that derived programs are not those with intervals.
        return automatic_checks._Checks(frozenset([*KINDS, "without intervals"]), quick).of(
            program, None, (), [*map(any_value, program.in_avals)], is_main=True)


@pytest.mark.slow
@pytest.mark.parametrize(("quick", "least"), [(False, 0.55), (True, 0.43)], ids=["complete", "quick"])
def test_intervals_leave_checks_out(quick: bool, least: float) -> None:
    every, left = Counter[str](), Counter[str]()
    for program in programs():
        every += count(without_intervals(program, quick))
        left += count(add_checks(program, frozenset(KINDS), quick, program.constants))
    assert left.total() <= (1 - least) * every.total(), {kind: (every[kind], left[kind]) for kind in KINDS}
    assert all(left[kind] <= every[kind] for kind in KINDS)
