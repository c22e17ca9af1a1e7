"""docs/appendix/bridge-table.md speaks of the functions that there are, and says what becomes of them."""

from __future__ import annotations

import re

import jax
import pytest

from tests.comparison.libraries import LIBRARIES, importable
from tests.support.origins import NOTHING, by_function
from tools import bridge

TEXT = bridge.PAGE.read_text(encoding="utf-8")
MADE_WITH = re.search(r"with jax ([\d.]+[\d])", TEXT)[1]


def section_of(library: str) -> str:
    section = re.search(rf"^## {re.escape(library)}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert section, f"docs/appendix/bridge-table.md has no section on {library}; run tools/bridge.py"
    return section[1]


SAME_JAX = pytest.mark.skipif(jax.__version__ != MADE_WITH, reason="the page is of another version of jax")


@SAME_JAX
@pytest.mark.parametrize("library", LIBRARIES)
def test_names_on_the_page_are_current(library: str) -> None:
    assert re.findall(r"^\| (\w+) \| \d", section_of(library), re.MULTILINE) == importable(library), \
        "run tools/bridge.py"


@pytest.mark.slow
@SAME_JAX
def test_the_page_is_current_and_almost_all_is_native() -> None:
    """Without the numbers of equations, which hang on what jax has cached."""
    total = NOTHING
    for library in LIBRARIES:
        for name, found in by_function(library, ("float32",)).items():
            row, = re.findall(rf"^\| {name} \| \d+ \| (.*) \|$", section_of(library), re.MULTILINE)
            origin = bridge.origin(found)
            assert "float32" not in row if origin in ("native", "-") else origin.partition(" in ")[0] in row
            total = sum(found.values(), total)
    met, opaque = total.met.total(), total.opaque.total()
    assert met > 2000
    assert 1 - opaque / met >= 0.95, f"{opaque} of {met} equations are opaque: {total.opaque}"
