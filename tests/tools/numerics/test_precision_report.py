"""`precision_report`: it names the line that was planted, in loops, branches, calls and gradients too."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad.errors import ArgumentError
from fxgrad.tools.numerics.precision_report import PrecisionReport
from fxgrad.tools.numerics.records import ShadowPair
from fxgrad.tools.numerics.shadow import _error_slope
from tests.support.ill_conditioned import CASES, Case, X, cool, warm


def line_of(report: PrecisionReport) -> int:
    assert report.culprit is not None
    return int(report.culprit.line.rpartition(":")[2])


@pytest.mark.parametrize("case", [case if case.name.startswith(("variance", "norm of", "recurrence"))
                                  else pytest.param(case, marks=pytest.mark.slow) for case in CASES],
                         ids=lambda case: case.name)
def test_row_m10_the_planted_line_comes_first(case: Case) -> None:
    report = fxgrad.debug.precision_report(case.function)(*case.arguments)
    assert report.error > 1e-5
    assert line_of(report) == case.line


def test_the_corpus_is_large_enough() -> None:
    assert len({case.function for case in CASES}) >= 20


def test_errors_are_those_of_the_two_runs() -> None:
    def f(x: Any) -> Any:
        return cool(warm(x)), np.argmax(x)

    report = fxgrad.debug.precision_report(f)(X)
    low, wide = f(X)[0], f(X.astype(float))[0]
    assert report.results == {"the result[0]": pytest.approx(np.max(np.abs((low - wide) / wide)), rel=0.2)}
    assert report.error < 1e-6  # harmless, as it should be
    assert all(row.own < 1e-6 for row in report)


def test_own_and_amplified_errors_of_a_cancellation() -> None:
    def f(x: Any) -> Any:
        a = x * np.float32(1.1)
        b = a - np.float32(0.7699)
        return b * 2

    report = fxgrad.debug.precision_report(f)(np.float32(0.7))
    culprit = report.culprit
    assert culprit is not None
    assert (culprit.operation, culprit.name, culprit.own, culprit.times) == ("a - 0.7699", "b", 0.0, 1)
    product = next(row for row in report if row.name == "a")
    assert culprit.amplified == pytest.approx(0.77 / 1e-4, rel=0.1)  # the condition of the difference
    assert culprit.error == pytest.approx(product.own * culprit.amplified, rel=1e-3)


def test_gradients_are_reported_on() -> None:
    def f(x: Any) -> Any:
        y = np.exp(x) + 1000
        return (y - 1000) ** 2 + np.sin(x)

    report = fxgrad.debug.precision_report(fxgrad.grad(f))(np.float32(0.1))
    assert report.culprit is not None
    assert report.culprit.operation == "y - 1000.0"
    assert any(row.part == "backward" for row in report)


def test_loops_that_ask_run_as_the_program_does() -> None:
    def f(x: Any) -> Any:
        return fxgrad.lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, np.sin(s[1]) + s[1]), (0, x))[1]

    report = fxgrad.debug.precision_report(f)(np.float32(0.3))
    assert {row.operation.partition("(")[0]: row.times for row in report}["sin"] == 5
    wide = fxgrad.debug.precision_report(f)(np.float64(0.3))
    assert wide.shadow == "longdouble"
    assert 0 < wide.error < 1e-14
    backward = fxgrad.debug.precision_report(fxgrad.grad(f))(np.float32(0.3))
    assert backward.error < 1e-5
    assert backward.unfollowed == ()


def test_half_precision_and_complex_numbers() -> None:
    for dtype, unit in ((np.float16, 1e-3), (fxgrad.dtypes.bfloat16, 1e-2), (np.complex64, 1e-6)):
        report = fxgrad.debug.precision_report(lambda x: np.exp(x) * x + 1)(np.full(3, 0.7).astype(dtype))
        assert report.shadow == "float64"
        assert unit / 1e3 < report.error < unit
    cast = fxgrad.debug.precision_report(fxgrad.autocast(lambda w, x: np.tanh(x @ w)))(np.eye(3, dtype="f") * 0.3,
                                                                                       X[:3])
    assert cast.culprit is not None
    assert 1e-4 < cast.error < 1e-2


@pytest.mark.slow
def test_systems_of_float64_are_told_without_a_wider_kernel() -> None:
    case = next(case for case in CASES if case.name.startswith("solve"))
    report = fxgrad.debug.precision_report(case.function)(*(argument.astype(float) for argument in case.arguments))
    assert {"lu", "lu_solve"} == {*report.unfollowed}
    assert line_of(report) == case.line
    assert "not followed: lu, lu_solve" in str(report)
    assert "relative error unknown (against longdouble)" in str(fxgrad.debug.precision_report(np.fft.fft)(np.ones(3)))


def test_keys_integers_and_callbacks_pass_through_once() -> None:
    seen = []

    def f(key: Any, count: Any) -> Any:
        noise = fxgrad.random.normal(key, (3,), np.float32)
        fxgrad.debug.callback(lambda value: seen.append(value), count)
        return noise * count, count + 1

    report = fxgrad.debug.precision_report(f)(fxgrad.random.key(0), np.int32(3))
    assert len(seen) == 1
    assert list(report.results) == ["the result[0]"]
    assert report.error < 1e-5


def test_what_is_not_chosen_is_not_to_blame() -> None:
    def f(x: Any) -> Any:
        return np.where(x > 0.5, np.log(x), 0.0 * x + x / (x * 0))

    taken = fxgrad.debug.precision_report(f)(X[3:])
    assert taken.culprit is not None
    assert taken.culprit.operation == "log(x)"
    assert all(np.isfinite(row.impact) for row in taken)

    def share(x: Any) -> Any:
        powers = np.exp(x)
        return powers / np.sum(powers)

    report = fxgrad.debug.precision_report(share)(X * 2000)  # more than float64 has, too
    assert report.culprit is not None
    assert report.culprit.operation == "exp(x)"


def test_the_report_prints_and_is_json() -> None:
    report = fxgrad.debug.precision_report(lambda x: np.log(1 + x))(np.float32(1e-6))
    text = str(report)
    assert "against float64" in text
    assert "log((1.0 + x))" in text
    found = json.loads(report.to_json())
    assert found["rows"][0]["line"] == report[0].line
    assert len(found["rows"]) == len(report)
    lost = json.loads(fxgrad.debug.precision_report(lambda x: x * x)(np.float32(1e30)).to_json())
    assert lost["rows"][0]["impact"] == "inf"


@pytest.mark.slow
def test_devices_and_solvers_are_looked_into() -> None:
    mesh, spec = fxgrad.make_mesh((2,), ("i",)), fxgrad.P

    def f(x: Any) -> Any:
        whole = fxgrad.shard_map(lambda x: fxgrad.lax.psum(x * 3, "i"), mesh=mesh, in_specs=spec("i"),
                                 out_specs=spec())(x)
        return fxgrad.lax.custom_root(lambda y: y * y - np.sum(whole), np.float32(1.0),
                                      lambda g, y: fxgrad.lax.fori_loop(0, 8, lambda _, y: y - g(y) / (2 * y + 1), y),
                                      lambda g, y: y / g(np.float32(1.0)))

    report = fxgrad.debug.precision_report(f)(X)
    assert report.error < 1e-5
    assert max(row.times for row in report) == 8


def test_what_cannot_be_reported_on_is_refused() -> None:
    long = fxgrad.debug.precision_report(lambda x: fxgrad.lax.fori_loop(0, 100, lambda _, y: np.sin(y), x), limit=50)
    for call, message in (
            (lambda: long(np.float32(1.0)),
             ("precision_report: the program runs more than 50 operations, of which each is kept. Report on a smaller "
              "case, or write precision_report(f, limit=...)")),
            (lambda: fxgrad.debug.precision_report(np.sin)(fxgrad.ShapeDtypeStruct((), np.float32)),
             "precision_report: an argument is a type without a value, and values are needed")):
        with pytest.raises(ArgumentError, match=re.escape(message)):
            call()


def test_lost_elements_share_the_blame_for_a_result() -> None:
    """A change of all that are lost by the size of the result changes it by one."""
    wide = np.array([1.0, -2.0, 3.0, 4.0])
    for lost in ([True, False, False, False], [True, True, False, False], [True] * 4):
        low = np.where(lost, np.array([np.inf, np.nan, -np.inf, np.nan]), wide).astype(np.float32)
        slope = _error_slope(ShadowPair(low, wide))
        assert np.sum(slope) * 4.0 == 1.0
        np.testing.assert_array_equal(slope > 0, lost)
