"""docs/bridge-table.md speaks of the functions that there are, and says what becomes of them."""

from __future__ import annotations

import re

import jax
import pytest

from tests.comparison.libraries import LIBRARIES, importable
from tools import bridge

TEXT = bridge.PAGE.read_text(encoding="utf-8")
MADE_WITH = re.search(r"with jax ([\d.]+[\d])", TEXT)[1]


@pytest.mark.parametrize("library", LIBRARIES)
def test_names_on_the_page_are_current(library: str) -> None:
    section = re.search(rf"^## {re.escape(library)}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert section, f"docs/bridge-table.md has no section on {library}; run tools/bridge.py"
    assert re.findall(r"^\| (\w+) \| \d", section[1], re.MULTILINE) == importable(library), "run tools/bridge.py"


@pytest.mark.slow
@pytest.mark.skipif(jax.__version__ != MADE_WITH, reason="the page is of another version of jax")
def test_the_page_is_current() -> None:
    assert bridge.page() == TEXT, "run tools/bridge.py"
