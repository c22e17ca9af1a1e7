"""The site of the documentation: every page has its place in it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def test_every_page_has_a_place() -> None:
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "tools" / "site" / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if not re.match(r"0\d", path.name)}
    assert pages == set(listed)


def test_every_design_note_and_gallery_page_is_in_its_index() -> None:
    for folder in ("design", "gallery"):
        index = (DOCS / folder / "index.md").read_text(encoding="utf-8")
        pages = {path.name for path in (DOCS / folder).glob("*.md")} - {"index.md"}
        assert pages == set(re.findall(r"\]\(([\w-]+\.md)\)", index))


def test_links_between_pages_lead_somewhere() -> None:
    broken = [f"{path.relative_to(ROOT)}: {target}" for path in DOCS.rglob("*.md")
              for target in re.findall(r"\]\(((?!https?:)[^)#\s]+)[^)]*\)", _prose(path))
              if not (path.parent / target).exists()]
    assert broken == []


def _prose(path: Path) -> str:
    """A page without its code."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_tests_that_pages_name_are_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+)(?:\[([^\]]+)\])?)?`",
                       (DOCS / "coverage.md").read_text(encoding="utf-8"))
    assert len(named) > 50
    for file, function, parameter in named:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert f"def {function}(" in text or not function, f"{file}::{function}"
        assert not parameter or (ROOT / parameter).is_file(), parameter
