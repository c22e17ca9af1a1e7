"""The documentation as a book: a short table of contents with paths into it, pages of one form, links that resolve."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import fxgrad
import fxgrad.extend

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
COVER = "index.md"
LINK = re.compile(r"\]\(((?!https?:)[^)#\s]*)(?:#([^)\s]+))?\)")
INDEXED = ("gallery", "design", "appendix")
"""Folders whose pages are listed in an index of their own, which is one entry of the contents."""
TAUGHT = sorted(page for folder in ("tutorials", "guides", "explanation") for page in (DOCS / folder).glob("*.md"))
"""Pages with one task each."""


def contents() -> list[str]:
    """Return the pages of the site's table of contents, in order, without the cover."""
    text = (ROOT / "tools" / "site" / "mkdocs.yml").read_text(encoding="utf-8")
    cover, *pages = re.findall(r"[\w/-]+\.md", text[text.index("\nnav:"):text.index("\nnot_in_nav:")])
    assert cover == COVER
    return pages


def prose(path: Path) -> str:
    """Return a page without its code."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def linked(path: Path) -> list[Path]:
    """Return the pages that a page links to, in order."""
    return [(path.parent / target).resolve() for target, _ in LINK.findall(prose(path)) if target.endswith(".md")]


def test_the_contents_are_short() -> None:
    assert len(contents()) <= 30


def test_the_cover_lists_the_contents() -> None:
    text = (DOCS / COVER).read_text(encoding="utf-8")
    assert re.findall(r"^\d+\. \[[^]]+\]\(([^)]+)\)", text, re.MULTILINE) == contents()
    assert [int(number) for number in re.findall(r"^(\d+)\. ", text, re.MULTILINE)] == [*range(1, len(contents()) + 1)]


def test_every_page_has_a_place() -> None:
    pages = {path.resolve() for path in DOCS.rglob("*.md")} - {DOCS / COVER}
    listed = {DOCS / page for page in contents()}
    assert listed <= pages
    indexed = {page for folder in INDEXED for page in linked(DOCS / folder / "index.md")}
    assert pages - listed <= indexed


def test_every_page_of_a_folder_is_in_its_index() -> None:
    for folder in INDEXED:
        pages = {path.resolve() for path in (DOCS / folder).glob("*.md")} - {DOCS / folder / "index.md"}
        assert pages <= {*linked(DOCS / folder / "index.md")}, folder


def ways(path: Path) -> dict[str, int]:
    """Return the reading paths that a page lists, with the number of pages of each."""
    rows = re.findall(r"^\| (jax|NumPy|PyTorch) \| (.*) \|$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: len(way.split(", ")) for name, way in rows}


def test_the_ways_in_are_short() -> None:
    for path in (ROOT / "README.md", DOCS / COVER):
        found = ways(path)
        assert [*found] == ["jax", "NumPy", "PyTorch"], path
        assert max(found.values()) <= 5, path


def test_pages_open_with_a_sentence_and_an_example() -> None:
    """Pages of the appendix may open with a table."""
    without = []
    for path in [*TAUGHT, *(DOCS / "reference").glob("*.md")]:
        lines = path.read_text(encoding="utf-8").splitlines()
        opened = lines[0].startswith("# ") and not lines[1] and re.match(r"\w|`", lines[2])
        if not opened or not any(line.startswith("```") for line in lines[:15]):
            without.append(path.name)
    assert without == []


def test_pages_are_short() -> None:
    lengths = {path.relative_to(DOCS).as_posix(): len(path.read_text(encoding="utf-8").split()) for path in TAUGHT}
    assert {name: words for name, words in lengths.items() if words > 1250} == {}


def anchors(path: Path) -> set[str]:
    """Return the anchors of the headings of a page, as the site generates them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())
            for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        for target, anchor in LINK.findall(prose(path)):
            page = path.parent / target if target else path
            if not page.exists() or (anchor and anchor not in anchors(page)):
                broken.append(f"{path.relative_to(ROOT)}: {target}#{anchor}")
    assert broken == []


def test_the_reference_has_every_public_name() -> None:
    rows = re.findall(r"^\| (`[^|]+) \|", (DOCS / "reference" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(listed) == len({*listed})
    assert {*listed} == {*fxgrad.__all__}


def test_the_page_of_the_public_line_has_every_name() -> None:
    page = (DOCS / "appendix" / "extend.md").read_text(encoding="utf-8")
    for module in (fxgrad.extend, *(importlib.import_module(f"fxgrad.extend.{each}") for each in (
            "analyses", "sizes", "kernels", "parameters", "formulas", "tracing"))):
        title = module.__name__.removeprefix("fxgrad.")
        part = page.partition("## Names" if title == "extend" else f"### {title}\n")[2]
        part = part.partition("## Modules" if title == "extend" else "\n### ")[0]
        assert sorted(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)) == sorted(module.__all__), title
