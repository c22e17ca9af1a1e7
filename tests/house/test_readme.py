"""The first screen of the README: a file, and what it prints when it is run."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SCREEN = 60
"""Lines."""


def test_the_first_example_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    first = "\n".join(README.splitlines()[:SCREEN])
    code, = re.findall(r"^```python\n(.*?)^```$", first, re.MULTILINE | re.DOTALL)
    shown = re.findall(r"^```text\n(.*?)^```$", first, re.MULTILINE | re.DOTALL)
    (tmp_path / "model.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path("model.py")
    assert capsys.readouterr().out == "".join(shown)
    assert len(shown) == 2
    assert "program grad(loss" in shown[1]
    assert max(map(len, "".join(shown).splitlines())) <= 104
