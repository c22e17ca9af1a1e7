"""How many automatic checks intervals leave out, over functions with loops, branches and masks, of unbounded inputs."""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.analyses.interval_values import Interval, any_value
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.program import Program
from fxgrad.engine.executors import numpy as numpy_executor
from fxgrad.engine.higher_order import automatic_checks
from fxgrad.engine.higher_order.automatic_checks import KINDS, Finding, add_checks
from fxgrad.engine.higher_order.checks import check_p
from fxgrad.errors import CheckError
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
            operands_of=lambda atoms, _: [any_value(atom.aval) for atom in atoms], floored_divisor=lambda *_: None,
            region_inputs=lambda equation, region, *_: [any_value(var.aval) for var in region.program.inputs]):
        # One more kind, so that derived programs are not those with intervals.
        return automatic_checks._Checks(frozenset([*KINDS, "without intervals"]), quick).of(
            program, None, (), [*map(any_value, program.in_avals)], is_main=True)


@pytest.mark.slow
@pytest.mark.parametrize(("quick", "least"), [(False, 0.7), (True, 0.6)], ids=["complete", "quick"])
def test_intervals_leave_checks_out(quick: bool, least: float) -> None:
    every, left = Counter[str](), Counter[str]()
    for program in programs():
        every += count(without_intervals(program, quick))
        left += count(add_checks(program, frozenset(KINDS), quick, program.constants))
    assert left.total() <= (1 - least) * every.total(), {kind: (every[kind], left[kind]) for kind in KINDS}
    assert all(left[kind] <= every[kind] for kind in KINDS)


NUMBERS = (0.0, -0.0, 0.5, 1.0, -1.0, 2.0, 3.0, 10.0, -7.3, np.inf, -np.inf, 1e308, -1e308, 1e-300, 1e16, 1e-8)
INTEGERS = (0, 1, -1, 2, 3, 4, 5, 7, 10, 100, 2 ** 62, -2 ** 62, 2 ** 63 - 1, -2 ** 63)


def drawn(rng: np.random.Generator, aval: Aval) -> Any:
    """Draw an argument of a type: extreme numbers, ordinary ones, or both."""
    if aval.dtype.kind == "b":
        return rng.integers(0, 2, size=aval.shape).astype(bool)[()]
    if aval.dtype.kind in "iu":
        info = np.iinfo(aval.dtype)
        few = [*{min(max(number, int(info.min)), int(info.max)) for number in INTEGERS[:rng.choice((9, 14))]}]
        return rng.choice(np.asarray(few, aval.dtype), size=aval.shape)[()]
    extreme = rng.random(aval.shape) < rng.choice((0.0, 0.2, 1.0))
    ordinary = rng.normal(size=aval.shape) * rng.choice((1.0, 10.0))
    return np.asarray(np.where(extreme, rng.choice(NUMBERS, size=aval.shape), ordinary), aval.dtype)[()]


def reports(program: Program) -> dict[int, Finding]:
    """Return the automatic checks of a program by identity."""
    found = {id(report): report for equation in program.equations if equation.primitive is check_p and isinstance(
        report := equation.params["report"], Finding)}
    for equation in program.equations:
        for inner in equation.programs:
            found.update(reports(inner))
    return found


class _Timeout(Exception):  # noqa: N818  (no error)
    pass


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Give up code that runs for longer: loops may not end for arguments that were drawn."""
    def stop(*_: Any) -> None:
        raise _Timeout

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with contextlib.suppress(_Timeout):
            signal.setitimer(signal.ITIMER_REAL, seconds)
            try:
                yield
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # time may be up in a destructor
def test_most_checks_that_cannot_fail_are_left_out() -> None:
    """A check is needed for certain if it fails for arguments that are drawn; run with -s to see how many are."""
    rng = np.random.default_rng(0)
    every = left = needed = 0
    for program in programs():
        checked = add_checks(program, frozenset(KINDS), False, program.constants)
        every, left = every + count(without_intervals(program, False)).total(), left + count(checked).total()
        wanted, failed = reports(checked), set[int]()
        assert len(wanted) == count(checked).total()
        with mock.patch.object(Finding, "fail", lambda self, *_, failed=failed: failed.add(id(self))), np.errstate(
                all="ignore"):
            for _ in range(100):
                if wanted.keys() <= failed:
                    break
                given = [drawn(rng, aval) for aval in program.in_avals[len(program.constants):]]
                with at_most(0.05), contextlib.suppress(Exception):  # the operation itself may raise, too
                    numpy_executor.call(checked, [*program.constants, *given])
        needed += len(failed & wanted.keys())
    print(f"{every} checks, {every - left} left out; {needed} others failed for some arguments")  # noqa: T201
    assert every - left >= 0.7 * (every - needed)


def names_of_nan_checks(function: Callable[..., Any], *args: Any) -> list[str]:
    """Return the operations that are tested for NaNs of their own."""
    program = fxgrad.make_program(function)(*args)
    checked = add_checks(program, frozenset(["nan"]), False, program.constants)
    return sorted(report.operation for report in reports(checked).values())


def test_no_nan_is_looked_for_where_one_would_have_come_before() -> None:
    def newton(x: Any) -> Any:
        return x - (x * x - 2.0) / (2.0 * x)

    def waiting(arrival: Any, free: Any, total: Any) -> Any:
        return fxgrad.lax.cond(arrival < free, lambda: abs(total) + (free - arrival), lambda: total)

    def escape(x: Any, y: Any) -> Any:
        return fxgrad.lax.while_loop(lambda s: s[0] * s[0] + s[1] * s[1] < 4.0, lambda s: (
            s[0] * s[0] - s[1] * s[1] + x, 2.0 * s[0] * s[1] + y), (0.0, 0.0))

    def waves(x: Any) -> Any:
        return fnp.sin(x + 0.1 * fnp.sin(x))

    def softmax(x: Any) -> Any:
        parts = fnp.exp(x - fnp.max(x))
        return parts / fnp.sum(parts)

    assert names_of_nan_checks(newton, 1.0) == ["div"]  # of an infinity, which therefore is not subtracted
    assert names_of_nan_checks(waiting, 1.0, 2.0, 3.0) == []
    assert names_of_nan_checks(escape, 0.1, 0.2) == []
    assert names_of_nan_checks(waves, 1.0) == ["sin"]
    assert names_of_nan_checks(softmax, np.ones(3)) == ["sub"]
    assert names_of_nan_checks(lambda x: x * np.array([1.0, -2.0]), np.ones(2)) == []
    assert names_of_nan_checks(lambda x: x * np.array([1.0, 0.0]), np.ones(2)) == ["mul"]
    assert names_of_nan_checks(lambda x: x - np.array([1.0, np.nan]), np.ones(2)) == []
    with pytest.raises(CheckError, match=r"NaN made: div\(inf, inf\)"):
        fxgrad.jit(fxgrad.checked(newton, errors="nan"))(np.inf)


def test_an_index_that_was_checked_needs_no_check_again() -> None:
    def moved(x: Any, i: Any, y: Any) -> Any:
        return fnp.at(x)[i].set(x[i] + y)

    def of_another_length(x: Any, i: Any, y: Any) -> Any:
        return x[:2][i] + y[i] + x[i]
    x, y = np.arange(4.0), np.arange(3.0)
    for function, given, left in ((moved, 2.0, 1), (of_another_length, y, 1)):
        program = fxgrad.make_program(function)(x, np.int64(1), given)
        assert count(add_checks(program, frozenset(["index"]), False, program.constants)).total() == left
        checked = fxgrad.jit(fxgrad.checked(function, errors="index"))
        np.testing.assert_array_equal(checked(x, np.int64(-1), given), function(x, np.int64(-1), given))
        with pytest.raises(CheckError, match="index out of range"):
            checked(x, np.int64(4), given)
    with pytest.raises(CheckError, match="index out of range"):
        checked(x, np.int64(2), y)
