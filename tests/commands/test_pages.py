"""What the pages speak of exists: files and folders of the project, links, and names of the package."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "changelog.md")]
PLACES = ["fxgrad", "tests", "tools", "docs", "examples",
          *(path.name for path in (ROOT / "fxgrad").iterdir() if path.is_dir() and path.name != "__pycache__")]
PATH = re.compile(rf"`((?:{'|'.join(sorted(PLACES))})/[\w./*-]+)`|\]\(([^)#:\s]+)(?:#[^)]*)?\)")
NAME = re.compile(r"\bfxgrad(?:\.[A-Za-z_]\w*)+")

TO_WRITE = re.compile(r"new\s+file,\s+`([^`]+)`")  # a file that the reader is told to write
ANY = {"fxgrad.numpy.f"}  # stands for any name


def paths(text: str) -> set[str]:
    return {quoted or linked for quoted, linked in PATH.findall(text)}


def is_there(path: str, page: Path) -> bool:
    """As written from the root, from the page, or from the package."""
    found = (place / path for place in (ROOT, page.parent, ROOT / "fxgrad"))
    return any(place.exists() or ("*" in path and any(place.parent.glob(place.name))) for place in found)


def is_a_name(name: str) -> bool:
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


def test_files_exist() -> None:
    missing = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        missing += [(page.name, path) for path in sorted(paths(text) - {*TO_WRITE.findall(text)})
                    if not is_there(path, page)]
    assert missing == []


def test_pages_that_sources_name_exist() -> None:
    named = re.compile(r"\bdocs/[\w/-]+\.md\b")
    missing = [(path.relative_to(ROOT).as_posix(), page) for folder in ("fxgrad", "tests", "tools", "examples")
               for path in sorted((ROOT / folder).rglob("*")) if path.is_file() and path.suffix in ("", ".py", ".txt")
               for page in sorted({*named.findall(path.read_text(encoding="utf-8"))}) if not (ROOT / page).exists()]
    assert missing == []


def test_names_exist() -> None:
    missing = [(page.name, name) for page in PAGES for name in sorted({*NAME.findall(page.read_text(encoding="utf-8"))})
               if name not in ANY and not is_a_name(name)]
    assert missing == []


def test_what_is_missing_is_found() -> None:
    page = ROOT / "docs" / "reference" / "limits.md"
    text = ("see `engine/core/nowhere.py`, [that](nothing.md), [this](errors.md#here), `engine/ops/structural.py` and "
            "`tests/samples/*.py`")
    assert {path for path in paths(text) if not is_there(path, page)} == {"engine/core/nowhere.py", "nothing.md"}
    assert is_a_name("fxgrad.numpy.linalg.norm")
    assert not is_a_name("fxgrad.numpy.nothing")
