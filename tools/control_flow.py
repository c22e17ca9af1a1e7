#!/usr/bin/env python3
"""Write docs/appendix/control-flow-functions.md: sixty functions, and what conversion makes of each."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.engine.control_flow.functions import CASES, REFUSED, Case  # noqa: E402

HEAD = """# Control flow: sixty functions

This page lists the functions of `tests/engine/control_flow/functions.py`, written in plain Python with branches and
loops on values, and what [`fxgrad.python_control_flow`](../guides/control-flow.md) makes of each. Tests compare a
converted function with the function itself: to the bit where Python runs it, to 1e-12 where XLA does, and gradients to
1e-9. `tools/control_flow.py` writes the page.

| function | kind | under `jit` | gradient |
|---|---|---|---|
"""


def page() -> str:
    """Return the text of the page."""
    seen: dict[str, Case] = {}
    for case in CASES:
        seen.setdefault(case.function.__name__, case)
    rows = [_row(name, case) for name, case in seen.items()]
    count = sum(not case.refusal for case in seen.values())
    return f"{HEAD}{''.join(rows)}\n{count} of {len(rows)} are converted.\n"


def _row(name: str, case: Case) -> str:
    refusal = case.refusal.format(test="its line", change="its line").replace("|", "\\|")
    became = f"refused: {refusal}" if refusal else "converted"
    gradient = "" if case.kind == REFUSED else "equal" if case.smooth else "none asked"
    return f"| `{name}` | {case.kind} | {became} | {gradient} |\n"


if __name__ == "__main__":
    (ROOT / "docs" / "appendix" / "control-flow-functions.md").write_text(page(), encoding="utf-8")
