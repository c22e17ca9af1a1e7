"""The table of what derivatives cost: its counts are those of today, and what exceeds the bounds is explained."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
derivatives = importlib.import_module("benchmarks.derivatives")
PAGE = (ROOT / "docs" / "appendix" / "derivative-costs.md").read_text(encoding="utf-8")

EXPLAINED = {"x y": "Products and quotients", "x / y": "Products and quotients", "prod": "`prod`", "max": "`max`",
             "det": "Determinants", "log abs det": "Determinants", "cholesky": "Cholesky factors",
             "cholesky 256": "Cholesky factors", "expm": "`expm`", "scan of sin": "A scan of"}
"""With which words the reason begins."""


def table() -> dict[str, list[str]]:
    found = re.search(r"<!-- ratios: [^\n]*-->\n(.*?)\n<!-- end -->", PAGE, re.DOTALL)
    assert found is not None
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()]
    assert head == derivatives.HEAD
    return {name: cells for name, *cells in rows}


def test_the_page_has_the_functions_with_both_executors() -> None:
    assert [*table()] == [*derivatives.FUNCTIONS]
    assert all(re.fullmatch(r"\d+ µs", cell) for cells in table().values() for cell in (cells[2], cells[5]))
    assert all(float(cell) for cells in table().values() for cell in cells[3:5] + cells[6:])


@pytest.mark.slow
@pytest.mark.parametrize("name", derivatives.FUNCTIONS)
def test_the_counts_of_the_page_are_those_of_today(name: str) -> None:
    counted = derivatives.FUNCTIONS[name].counted()
    assert table()[name][:2] == [f"{count:.1f}" for count in counted]
    exceeds = any(count > bound + 0.05 for count, bound in zip(counted, derivatives.BOUNDS, strict=True))
    assert exceeds == (name in EXPLAINED)
    assert not exceeds or f"**{EXPLAINED[name]}" in PAGE


def test_a_row_divides_by_the_value_of_the_same_executor() -> None:
    times = {"value": 10.0, "tangent": 20.0, "fxgrad": 30.0, "by XLA: value": 5.0, "by XLA: tangent": 20.0,
             "by XLA: gradient": 25.0}
    assert derivatives.row("sin x", times)[3:] == ["10 µs", "2.0", "3.0", "5 µs", "4.0", "5.0"]
