"""The page on pictures shows what its examples draw; `python -m tests.tools.pictures.test_images` draws them again."""

from __future__ import annotations

import doctest
import importlib.metadata
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.pictured import LAID_OUT_BY

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = DOCS / "appendix" / "pictures.md"


def drawings() -> dict[str, Any]:
    """What the examples of the page draw, by the names of the images."""
    text = PAGE.read_text(encoding="utf-8")
    session: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        test = doctest.DocTestParser().get_doctest(block, session, PAGE.name, str(PAGE), 0)
        test.globs = session  # the parser made a copy
        doctest.DocTestRunner(verbose=False).run(test, out=lambda _: None, clear_globs=False)
    return {name: session[name] for name in re.findall(r"\]\(\.\./images/(\w+)\.svg\)", text)}


@pytest.mark.skipif(importlib.metadata.version("graphlay") != LAID_OUT_BY, reason="other versions place otherwise")
def test_images_are_those_of_the_examples() -> None:
    found = drawings()
    assert len(found) >= 5
    for name, drawing in found.items():
        assert (DOCS / "images" / f"{name}.svg").read_text(encoding="utf-8") == str(drawing), name


if __name__ == "__main__":
    for each, drawing in drawings().items():
        (DOCS / "images" / f"{each}.svg").write_text(str(drawing), encoding="utf-8")
