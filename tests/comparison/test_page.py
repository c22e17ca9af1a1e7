"""docs/appendix/comparison.md speaks of the functions that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.comparison.exceptions import ABSENT
from tests.comparison.libraries import LIBRARIES, absent, functions
from tests.comparison.modules import MODULES, is_compared, missing, public_modules, table, why_missing
from tests.support.versions import IS_OLDEST_JAX

AT_OLDEST = pytest.mark.skipif(not IS_OLDEST_JAX, reason="newer versions of jax have other names")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "appendix" / "comparison.md"


def section(library: str) -> str:
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(library)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"docs/appendix/comparison.md has no section on {library}; run tools/compare.py"
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


@AT_OLDEST
def test_every_module_of_jax_has_a_place() -> None:
    without = [module for module in public_modules() if module not in MODULES and not is_compared(module)]
    assert not without, f"say in tests/comparison/modules.py what has the names of {', '.join(without)}"


@AT_OLDEST
@pytest.mark.parametrize("module", [name for name, given in MODULES.items() if given.ours])
def test_names_of_modules_are_there_or_absent_with_a_reason(module: str) -> None:
    absent = missing(module)
    assert not [name for name in absent if not why_missing(module, name)]
    assert not [name for name in MODULES[module].absent if name != "*" and name not in absent], "there after all"


@AT_OLDEST
def test_the_section_on_modules_is_current() -> None:
    assert section("All modules of jax").strip() == table().partition("\n")[2].strip(), "run tools/compare.py --modules"
