"""Every program of the suite, in every form that it leaves the process in, as the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.targets import HEAD, SHIPPED, TARGETS, outcome
from tests.support.with_c import needs_compiler

PAGE = Path(__file__).parents[2] / "docs" / "appendix" / "targets.md"


@pytest.fixture(scope="module")
def page() -> dict[str, dict[str, str]]:
    """The table of the page: of each program what became of it in each form."""
    found = re.search(r"<!-- targets: [^\n]*-->\n(.*?)\n<!-- end -->", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()]
    assert tuple(head) == HEAD
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


def test_the_page_has_every_program(page: dict[str, dict[str, str]]) -> None:
    assert [*page] == [*SHIPPED]
    assert len(SHIPPED) >= 40
    assert {name: float(row["tolerance"]) for name, row in page.items()} == {
        name: each.tolerance for name, each in SHIPPED.items()}


@pytest.mark.slow
@pytest.mark.parametrize("target", [
    pytest.param(target, marks=needs_compiler if target == "C file" else ()) for target in TARGETS])
def test_results_are_the_same_in_every_form(target: str, page: dict[str, dict[str, str]]) -> None:
    assert {name: outcome(name, target) for name in SHIPPED} == {name: row[target] for name, row in page.items()}
