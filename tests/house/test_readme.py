"""The README is short, and its first example prints the output that it shows."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SCREEN = 60
"""Lines."""


def test_it_is_short() -> None:
    assert README.count("\n") <= 120


def test_the_first_example_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    first = "\n".join(README.splitlines()[:SCREEN])
    code, = re.findall(r"^```python\n(.*?)^```$", first, re.MULTILINE | re.DOTALL)
    shown, = re.findall(r"^```text\n(.*?)^```$", first, re.MULTILINE | re.DOTALL)
    (tmp_path / "model.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path("model.py")
    assert capsys.readouterr().out == shown
    assert shown.startswith("program grad(loss, [w, b])")
    assert max(map(len, shown.splitlines())) <= 104
