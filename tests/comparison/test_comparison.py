"""Every public function that jax has too gives what jax gives: values, dtypes, derivatives, batches, compiled.

So does every function of jax's that `from_jax` imports.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from tests.comparison import runs
from tests.comparison.arguments import A, Case
from tests.comparison.cases import CASES, jax_alone
from tests.comparison.checks import Answers, Item, Problem, compare, derived_items, value_items
from tests.comparison.exceptions import DIFFERENT, DIFFERENT_SLOPES, WITHOUT_CASE
from tests.comparison.libraries import LIBRARIES, functions, importable
from tests.support.origins import bridge
from tests.support.versions import IS_OLDEST_JAX

GROUPS = pytest.mark.parametrize(("library", "names"), [
    pytest.param(library, names, id=f"{library}-{names[0]}") for library, names in runs.groups(importable)])


def assert_none(problems: list[str]) -> None:
    assert not problems, "\n" + "\n".join(problems)


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_function_has_a_case(library: str) -> None:
    known = WITHOUT_CASE | jax_alone.WITHOUT_CASE
    # Newer versions of jax have functions beside these, of which there is no list.
    bare = [name for name in (importable if IS_OLDEST_JAX else functions)(library)
            if not CASES[library].get(name) and f"{library}.{name}" not in known]
    assert not bare, f"functions of {library} without a case in tests/comparison/cases: {bare}"


def test_exceptions_are_of_functions_that_have_none() -> None:
    for label in WITHOUT_CASE:
        library, name = label.rsplit(".", 1)
        assert name in functions(library), f"{label} is not there"
        assert not CASES[library].get(name), f"{label} has a case now"


def own(library: str, names: list[str]) -> list[str]:
    """Those that are functions of ours too."""
    return [name for name in names if name in functions(library)]


@pytest.mark.slow
@GROUPS
def test_values(library: str, names: list[str]) -> None:
    answers: Answers = {}
    problems = runs.value_problems(library, own(library, names), answers=answers)
    assert_none(runs.unknown(problems))
    known = {label for label in DIFFERENT if label.split(" ")[0].rsplit(".", 1)[0] == library
             and label.split(" ")[0].rsplit(".", 1)[1] in names}
    stale = known - {problem.label for problem in problems}
    assert not stale, f"no difference any more, so no exception is needed: {sorted(stale)}"
    assert_imported(runs.value_problems(library, names, bridge=bridge, answers=answers), library, names)
    refused = runs.refused_cases(library, names, answers)
    assert not refused, f"jax refuses these in every dtype, so that they compare nothing: {refused}"


@pytest.mark.slow
@GROUPS
def test_derivatives_and_batches(library: str, names: list[str]) -> None:
    problems = runs.derived_problems(library, own(library, names))
    known = [problem for problem in problems if problem.label in DIFFERENT_SLOPES and problem.aspect in ("jvp", "vjp")]
    assert_none(runs.unknown([problem for problem in problems if problem not in known]))
    expected = {label for label in DIFFERENT_SLOPES if label.split(" ")[0] in {f"{library}.{name}" for name in names}}
    assert expected == {problem.label for problem in known}, "there is no difference any more"


@pytest.mark.long
@GROUPS
def test_derivatives_and_batches_of_imported_functions(library: str, names: list[str]) -> None:
    underived = {(label, aspect) for label in UNDERIVED for aspect in ("jvp", "vjp")}
    problems = runs.derived_problems(library, names, bridge)
    assert_imported([each for each in problems if (each.label, each.aspect) not in underived], library, names)


@pytest.mark.slow
@GROUPS
def test_compiled(library: str, names: list[str]) -> None:
    assert_none(runs.unknown(runs.jit_problems(library, own(library, names))))


@pytest.mark.long
@GROUPS
def test_imported_functions_compiled(library: str, names: list[str]) -> None:
    assert_none(runs.jit_problems(library, names, bridge=bridge))


REFUSED: dict[str, str] = {}
"""Known refusals to import, which are the same in all versions of jax."""
UNDERIVED = {
    "scipy.special.expn in float64": "in jax 0.10 its rule holds the order as a value of the trace, which is over when "
                                     "derivatives are asked for; jax's derivative of its jitted function fails too",
}
"""Known refusals of derivatives of what is imported, which newer versions of jax may have put right."""


def assert_imported(problems: list[Problem], library: str, names: list[str]) -> None:
    """Nothing but what is refused goes wrong with imported functions, and that does."""
    assert_none([f"imported: {problem}" for problem in problems if problem.label not in REFUSED])
    expected = {label for label in REFUSED if label.split(" ")[0] in {f"{library}.{name}" for name in names}}
    assert expected <= {problem.label for problem in problems}, "it is taken now, so it is no exception"


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
    derived = derived_items("numpy", "arctan2", Case(A(2, 3), A(3, low=0.5)))
    assert [each.aspect for each in derived] == ["jvp", "vjp", "vmap", "vmap"]
    assert not compare(derived)
    changed = [each._replace(ours=lambda *args, f=each.ours: jax.tree.map(lambda x: x * (1 + 1e-10), f(*args)))
               for each in derived]
    assert [problem.aspect for problem in compare(changed)] == ["jvp", "vjp", "vmap", "vmap"]
