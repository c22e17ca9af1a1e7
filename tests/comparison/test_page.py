"""docs/comparison.md speaks of the functions that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.comparison.exceptions import ABSENT
from tests.comparison.libraries import LIBRARIES, absent, functions

PAGE = Path(__file__).resolve().parents[2] / "docs" / "comparison.md"


def section(library: str) -> str:
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(library)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"docs/comparison.md has no section on {library}; run tools/compare.py"
    return found[1]


@pytest.mark.parametrize("library", LIBRARIES)
def test_names_on_the_page_are_current(library: str) -> None:
    rows = re.findall(r"^\| (\w+) \| (?!values)", section(library), re.MULTILINE)
    assert rows == functions(library), "run tools/compare.py"


@pytest.mark.parametrize("library", LIBRARIES)
def test_absent_names_have_a_reason(library: str) -> None:
    reasons = ABSENT.get(library, {})
    for name in absent(library):
        assert reasons.get(name, reasons.get("*")), f"{library}.{name} is absent without a reason"
