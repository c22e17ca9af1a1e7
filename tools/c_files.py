#!/usr/bin/env python3
"""Writes the table of docs/appendix/c-files.md: which primitives have a C form. `--check` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from fxgrad.engine.core.analysis import Analysis  # noqa: E402  (the path is set first)
from fxgrad.engine.core.primitive import library  # noqa: E402
from fxgrad.shipping.c.elements import elements  # noqa: E402
from fxgrad.shipping.c.statements import statements  # noqa: E402
from fxgrad.shipping.c.views import views  # noqa: E402
from fxgrad.text import vocabulary  # noqa: E402, F401  (registers all of them)
from tools.pages import DOCS, has, markdown, put  # noqa: E402

PAGE = DOCS / "appendix" / "c-files.md"
HELD = {"named_call", "jit_call", "checkpoint", "recompute", "custom_jvp", "custom_vjp", "custom_vmap", "scan", "while",
        "for", "sweep", "cond", "shard_map"}
KINDS: dict[str, Analysis] = {
    "an expression of elements, part of the loop that uses it": elements,
    "other indices of an operand, no loop of its own": views, "a loop of its own": statements}


def table() -> str:
    """The table of the page."""
    rows, seen = [], set()
    for words, analysis in KINDS.items():
        names = sorted(primitive.name for primitive in analysis.entered())
        seen.update(names)
        rows.append([words, _listed(names)])
    held = sorted(primitive.name for primitive in library if primitive.regions is not None and primitive.name in HELD)
    rows.append(["functions, `if` and `for` around the programs that they hold", _listed(held)])
    rest = sorted(primitive.name for primitive in library if primitive.name not in {*seen, *held})
    rows.append(["none: refused, with the operation and the line", _listed(rest)])
    return markdown(["form in C", "primitives"], rows)


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def main() -> None:
    """Writes the table, or says that it would change."""
    if "--check" in sys.argv[1:]:
        sys.exit(0 if has(PAGE, "primitives", table()) else "the table would change")
    put(PAGE, "primitives", table())


if __name__ == "__main__":
    main()
