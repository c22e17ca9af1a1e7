"""Every row of docs/appendix/coverage.md names tests that are there, run and pass; no row of the courses is missing."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.browser import CHROMIUM

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "appendix" / "coverage.md"

GROUPS = {"G": 23, "W": 19, "P": 11, "A": 17, "M": 16, "C": 23, "D": 10, "V": 9}
"""So many rows has each group; they are numbered from 1."""
MEASURED = {"tests/tools/granularity/test_rows_granularity.py::test_g22_seconds_for_50_000_equations"}
"""Names that measure a speed, which a busy machine fails: they have to be there."""


def rows_of(page: str) -> dict[str, list[str]]:
    """The names of tests by row, which is called after its ids, or after its claim where it has none."""
    rows: dict[str, list[str]] = {}
    for line in re.findall(r"^\|(.*)\|$", page, re.MULTILINE):
        ids, claim, shown = (cell.strip() for cell in line.split("|"))
        if ids not in ("row", "---"):
            rows[ids or claim] = re.findall(r"`(tests/[^`]+)`", shown)
    return rows


ROWS = rows_of(PAGE.read_text(encoding="utf-8"))


def run_pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    """pytest in a process of its own, without regard to tiers."""
    return subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no", *arguments],
                          cwd=ROOT, capture_output=True, text=True, check=False)


def is_of(test: str, name: str) -> bool:
    """Whether a test that ran is one of those that a page names: a file, a function, or one of its parameters."""
    return test == name or test.startswith((f"{name}::", f"{name}["))


@functools.cache
def collected() -> tuple[str, ...]:
    """All tests in the files that the page names."""
    files = sorted({name.split("::")[0] for names in ROWS.values() for name in names})
    done = run_pytest("--collect-only", "-m", "", *files)
    assert not done.returncode, done.stdout + done.stderr
    return tuple(line for line in done.stdout.splitlines() if line.startswith("tests/"))


def test_every_row_of_the_courses_is_on_the_page_once_with_its_tests() -> None:
    found = [each for ids in ROWS if re.fullmatch(r"[A-Z]\d+(, [A-Z]\d+)*", ids) for each in ids.split(", ")]
    assert sorted(found) == sorted(f"{group}{number}" for group, count in GROUPS.items()
                                   for number in range(1, count + 1))
    assert len(found) == 128
    assert [ids for ids, names in ROWS.items() if not names] == []


def test_the_files_and_functions_of_rows_are_there() -> None:
    for row, names in ROWS.items():
        for name in names:
            file, function, parameter = re.fullmatch(r"([\w/]+\.py)(?:::(\w+))?(?:\[(.+)\])?", name).groups()
            text = (ROOT / file).read_text(encoding="utf-8")
            assert not function or f"def {function}(" in text, f"{row}: {name}"
            assert not parameter or (ROOT / parameter).is_file(), f"{row}: {name}"


@pytest.mark.slow
def test_the_tests_of_rows_are_collected() -> None:
    missing = [(row, name) for row, names in ROWS.items() for name in names
               if not any(is_of(test, name) for test in collected())]
    assert missing == []


@pytest.mark.long
@pytest.mark.parametrize("row", ROWS)
def test_the_tests_of_a_row_pass(row: str) -> None:
    """A test that is skipped shows nothing: of each name one has to pass, and none may fail.

    A row alone has to bring all that it imports. Where there is no browser, rows that need one are skipped in turn.
    """
    names = [name for name in ROWS[row] if name not in MEASURED]
    done = run_pytest("-rps", "-m", "not bench", *names)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    passed = [line.removeprefix("PASSED ") for line in done.stdout.splitlines() if line.startswith("PASSED ")]
    idle = [name for name in names if not any(is_of(test, name) for test in passed)]
    if idle and CHROMIUM is None and re.search(r"^SKIPPED .*: Chromium is not installed$", done.stdout, re.MULTILINE):
        pytest.skip(f"Chromium is not installed: {', '.join(idle)}")
    assert idle == []


def test_rows_are_read_from_the_page() -> None:
    page = ("| row | claim | shown by |\n|---|---|---|\n| A1, A2 | two | `tests/a.py::test_b[c, d]`, `tests/e.py` |\n"
            "| | unnamed | `tests/a.py::test_f` |\n")
    assert rows_of(page) == {"A1, A2": ["tests/a.py::test_b[c, d]", "tests/e.py"], "unnamed": ["tests/a.py::test_f"]}
    assert is_of("tests/e.py::test_g", "tests/e.py")
    assert is_of("tests/a.py::test_f[1]", "tests/a.py::test_f")
    assert not is_of("tests/a.py::test_f_too", "tests/a.py::test_f")
