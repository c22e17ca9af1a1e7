"""Runs of the cases of several functions at once: what is not as in jax, known differences left out."""

from __future__ import annotations

from collections.abc import Sequence

from tests.comparison.arguments import DTYPES
from tests.comparison.cases import CASES
from tests.comparison.checks import (
    Item,
    Problem,
    compare,
    compiled_problems,
    derived_items,
    refusal,
    static_problems,
    value_items,
)
from tests.comparison.exceptions import DIFFERENT
from tests.comparison.libraries import LIBRARIES, functions

GROUP = 30
"""So many functions are compiled as one program."""


def groups() -> list[tuple[str, list[str]]]:
    """All functions of all libraries, in groups."""
    return [(library, functions(library)[begin:begin + GROUP]) for library in LIBRARIES
            for begin in range(0, len(functions(library)), GROUP)]


def _all(library: str, names: Sequence[str], dtypes: Sequence[str]) -> list[Item]:
    return [item for name in names for case in CASES[library].get(name, []) if not case.static
            for item in value_items(library, name, case, dtypes)]


def value_problems(library: str, names: Sequence[str], dtypes: Sequence[str] = DTYPES) -> list[Problem]:
    """Values and dtypes."""
    static = [problem for name in names for case in CASES[library].get(name, []) if case.static
              for problem in static_problems(library, name, case)]
    return static + compare(_all(library, names, dtypes))


def derived_problems(library: str, names: Sequence[str]) -> list[Problem]:
    """Derivatives and batches."""
    return compare([item for name in names for case in CASES[library].get(name, []) if not case.static
                    for item in derived_items(library, name, case)])


def jit_problems(library: str, names: Sequence[str]) -> list[Problem]:
    """Compiled results, in float32 and complex64."""
    return compiled_problems(_all(library, names, ("float32", "complex64")))


def unknown(problems: Sequence[Problem]) -> list[str]:
    """The problems that are no known differences."""
    return [str(problem) for problem in problems if problem.label not in DIFFERENT]


def aspects_of(library: str, name: str) -> set[str]:
    """What there is to compare of a function: values, derivatives, vmap, jit."""
    found = set()
    for case in CASES[library].get(name, []):
        found.add("values")
        if case.static:
            continue
        found.add("jit")
        for item in derived_items(library, name, case):
            if refusal(item) is None:
                found.add("derivatives" if item.aspect in ("jvp", "vjp") else item.aspect)
    return found
