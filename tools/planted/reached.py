"""Which tests compute the expressions that faults change: the sources with notes in them, and a plugin that keeps them.

A note is put around each expression that a fault changes; the suite runs once with all of them, and says for each
fault which tests came by. Only these can catch it.
"""

from __future__ import annotations

import ast
import builtins
import json
import math
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from planted.generate import Fault

NOTE = "_fault_reached"
"""The name of the function that notes, among the built-in ones."""
OUTSIDE = ""
"""Stands for a test where something is computed as modules are imported: every test needs it."""
_ABSENT = f"import builtins as _builtins; _builtins.{NOTE} = getattr(_builtins, '{NOTE}', lambda name: None)\n"


def noted(source: bytes, faults: Iterable[Fault]) -> bytes:
    """The source of a file in which these expressions and statements note that they are reached."""
    marks: list[tuple[int, int, str]] = []  # where, in which order, what: an outer one opens first and closes last
    for fault in faults:
        call = f'{NOTE}("{fault.name}")'
        for before, after in ((f"({call} or (", "))"), (f"{call}; ", "")):
            if _parses(source[:fault.start] + before.encode() + fault.before.encode() + after.encode()
                       + source[fault.end:]):
                marks += [(fault.start, -fault.end, before), (fault.end, len(source) - fault.start, after)]
                break
    for position, _, text in sorted(marks, reverse=True):
        source = source[:position] + text.encode() + source[position:]
    return source


def _parses(source: bytes) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def without_notes(source: str) -> str:
    """The first file of the package, where notes do nothing unless the plugin has taken them: in processes of tests."""
    tree = ast.parse(source)
    first = next(node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)
                 and getattr(node, "module", None) != "__future__")
    lines = source.splitlines(keepends=True)
    return "".join([*lines[:first.lineno - 1], _ABSENT, *lines[first.lineno - 1:]])


@dataclass
class Reach:
    """The tests that come by each fault, the seconds that each test takes, and those that are slow by name."""

    tests: dict[str, set[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    slow: set[str] = field(default_factory=set)

    @staticmethod
    def read(folder: Path) -> Reach:
        """What the processes of a run wrote."""
        reach = Reach()
        for file in sorted(folder.glob("*.json")):
            written = json.loads(file.read_text(encoding="utf-8"))
            for name, tests in written["tests"].items():
                reach.tests.setdefault(name, set()).update(tests)
            reach.seconds.update(written["seconds"])
            reach.slow.update(written["slow"])
        return reach

    def text(self) -> str:
        """What `read` reads."""
        return json.dumps({"tests": {name: sorted(tests) for name, tests in self.tests.items()},
                           "seconds": self.seconds, "slow": sorted(self.slow)})

    def of(self, fault: str, folders: Sequence[str] | None, slow: bool, most: float) -> list[str]:
        """Tests that come by a fault, the cheapest of each function first, until they take the seconds `most`.

        Where it is computed as modules are imported, all tests can see it: those that do not come by themselves last.
        So it is of a fault that was not there when the suite was looked at.
        """
        reached = self.tests.get(fault, {OUTSIDE})
        fitting = [test for test in (self.seconds if OUTSIDE in reached else reached)
                   if test in self.seconds and (test in self.slow) == slow
                   and (folders is None or test.startswith(tuple(folders)))]
        turns: Counter[tuple[bool, str]] = Counter()
        order = []
        for test in sorted(fitting, key=lambda test: (self.seconds[test], test)):
            function = test not in reached, test.partition("[")[0]
            order.append((test not in reached, turns[function], self.seconds[test], test))
            turns[function] += 1
        kept, total = [], 0.0
        for *_, seconds, test in sorted(order):
            if total + seconds <= most:
                kept.append(test)
                total += seconds
        return kept

    def within(self, tests: Sequence[str], most: float) -> int:
        """How many of these tests, from the first on, take the seconds `most` together; one at least."""
        total = list(accumulate(self.seconds[test] for test in tests))
        return max(1, bisect_right(total, most))


_reach = Reach()
_current = [OUTSIDE]


def _note(name: str) -> None:
    _reach.tests.setdefault(name, set()).add(_current[0])


def pytest_configure() -> None:
    """Takes the notes from here on."""
    setattr(builtins, NOTE, _note)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Notes belong to this test now."""
    _current[0] = nodeid


def pytest_runtest_logfinish() -> None:
    """Notes belong to no test."""
    _current[0] = OUTSIDE


def pytest_runtest_makereport(item: Any, call: Any) -> None:
    """Counts the seconds of a test, with what is set up for it; one that fails without a fault is no test of faults."""
    failed = call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception)
    _reach.seconds[item.nodeid] = math.inf if failed else _reach.seconds.get(item.nodeid, 0.0) + call.duration
    if item.get_closest_marker("slow"):
        _reach.slow.add(item.nodeid)


def pytest_sessionfinish() -> None:
    """Writes what this process noted."""
    folder = Path(os.environ["FAULTS_REACH"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{os.getpid()}.json").write_text(_reach.text(), encoding="utf-8")
