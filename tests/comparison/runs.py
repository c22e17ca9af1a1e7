"""Runs of the cases of several functions at once: what is not as in jax, known differences left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tests.comparison.arguments import DTYPES
from tests.comparison.cases import CASES
from tests.comparison.checks import (
    Answers,
    Bridge,
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


def groups(names: Callable[[str], list[str]] = functions) -> list[tuple[str, list[str]]]:
    """All functions of all libraries, in groups."""
    return [(library, names(library)[begin:begin + GROUP]) for library in LIBRARIES
            for begin in range(0, len(names(library)), GROUP)]


def all_items(library: str, names: Sequence[str], dtypes: Sequence[str] = DTYPES, bridge: Bridge | None = None,
              ) -> list[Item]:
    """The calls of these functions that can be traced."""
    return [item for name in names for case in CASES[library].get(name, []) if not case.static
            for item in value_items(library, name, case, dtypes, bridge)]


def value_problems(library: str, names: Sequence[str], dtypes: Sequence[str] = DTYPES, bridge: Bridge | None = None,
                   answers: Answers | None = None) -> list[Problem]:
    """Values and dtypes; with a bridge, of what can be traced."""
    static = [problem for name in names for case in CASES[library].get(name, []) if case.static and bridge is None
              for problem in static_problems(library, name, case)]
    return static + compare(all_items(library, names, dtypes, bridge), answers)


def refused_cases(library: str, names: Sequence[str], answers: Answers, dtypes: Sequence[str] = DTYPES) -> list[str]:
    """Those of which jax refuses every call that is among `answers`, so that they compare nothing."""
    found = []
    met: Counter[str] = Counter()
    for name in names:
        for place, case in enumerate(CASES[library].get(name, [])):
            accepted = case.static
            for item in [] if case.static else value_items(library, name, case, dtypes):
                accepted |= not isinstance(answers[item.label, item.aspect, met[item.label]], Exception)
                met[item.label] += 1
            found += [] if accepted else [f"case {place} of {library}.{name}"]
    return found


def derived_problems(library: str, names: Sequence[str], bridge: Bridge | None = None, answers: Answers | None = None,
                     ) -> list[Problem]:
    """Derivatives and batches."""
    return compare([item for name in names for case in CASES[library].get(name, []) if not case.static
                    for item in derived_items(library, name, case, bridge)], answers)


def jit_problems(library: str, names: Sequence[str], bridge: Bridge | None = None) -> list[Problem]:
    """Compiled results, in float32 and complex64."""
    return compiled_problems(all_items(library, names, ("float32", "complex64"), bridge))


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
