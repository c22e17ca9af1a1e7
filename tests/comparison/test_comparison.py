"""Every public function that jax has too gives what jax gives: values, dtypes, derivatives, batches, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.comparison import runs
from tests.comparison.arguments import A, Case
from tests.comparison.cases import CASES
from tests.comparison.checks import Item, compare, refusal, value_items
from tests.comparison.exceptions import DIFFERENT, WITHOUT_CASE
from tests.comparison.libraries import LIBRARIES, functions

GROUPS = pytest.mark.parametrize(("library", "names"), [
    pytest.param(library, names, id=f"{library}-{names[0]}") for library, names in runs.groups()])
WIDER = tuple(dtype for dtype in runs.DTYPES if dtype != "float32")


def assert_none(problems: list[str]) -> None:
    assert not problems, "\n" + "\n".join(problems)


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_function_has_a_case(library: str) -> None:
    bare = [name for name in functions(library)
            if not CASES[library].get(name) and f"{library}.{name}" not in WITHOUT_CASE]
    assert not bare, f"functions of {library} without a case in tests/comparison/cases: {bare}"


def test_exceptions_are_of_functions_that_have_none() -> None:
    for label in WITHOUT_CASE:
        library, name = label.rsplit(".", 1)
        assert name in functions(library), f"{label} is not there"
        assert not CASES[library].get(name), f"{label} has a case now"


@pytest.mark.slow
@GROUPS
def test_values_in_float32(library: str, names: list[str]) -> None:
    assert_none(runs.unknown(runs.value_problems(library, names, ("float32",))))


@pytest.mark.slow
@GROUPS
def test_values_in_other_dtypes(library: str, names: list[str]) -> None:
    problems = runs.value_problems(library, names, WIDER)
    assert_none(runs.unknown(problems))
    known = {label for label in DIFFERENT if label.split(" ")[0].rsplit(".", 1)[0] == library
             and label.split(" ")[0].rsplit(".", 1)[1] in names}
    stale = known - {problem.label for problem in problems}
    assert not stale, f"no difference any more, so no exception is needed: {sorted(stale)}"


@pytest.mark.slow
@GROUPS
def test_derivatives_and_batches(library: str, names: list[str]) -> None:
    assert_none(runs.unknown(runs.derived_problems(library, names)))


@pytest.mark.slow
@GROUPS
def test_compiled(library: str, names: list[str]) -> None:
    assert_none(runs.unknown(runs.jit_problems(library, names)))


def wrong(item: Item, change: Any) -> list[str]:
    return [problem.message for problem in compare([item._replace(ours=change(item.ours))])]


def test_differences_are_seen() -> None:
    item, = value_items("numpy", "sin", Case(A(2, 3)), ("float32",))
    assert not compare([item])
    assert "where" in wrong(item, lambda f: lambda x: f(x) + np.float32(0.01))[0]
    assert "float64" in wrong(item, lambda f: lambda x: f(x).astype("float64"))[0]
    assert "shape" in wrong(item, lambda f: lambda x: f(x)[:1])[0]
    assert "2 results" in wrong(item, lambda f: lambda x: [f(x), f(x)])[0]
    assert "ZeroDivisionError" in wrong(item, lambda f: lambda x: f(x) / (1 // 0))[0]
    narrow, = value_items("numpy", "sin", Case(A(2, 3), dtypes=("float64",)), ("float64",))
    assert "where" in wrong(narrow, lambda f: lambda x: f(x) + 1e-7)[0]


@pytest.mark.slow
@GROUPS
def test_cases_are_accepted_by_jax(library: str, names: list[str]) -> None:
    """A case that jax refuses in every dtype compares nothing."""
    for name in names:
        for case in CASES[library].get(name, []):
            refusals = [refusal(item) for item in value_items(library, name, case, case.dtypes)]
            assert case.static or None in refusals, f"{library}.{name}: {refusals}"
