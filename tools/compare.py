#!/usr/bin/env python3
"""Writes docs/appendix/comparison.md: public functions beside jax's of the same name, by tests/comparison.

With `--check` it only says whether the page would change; `--library NAME` prints one table.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("JAX_PLATFORMS", "cpu")
PAGE = ROOT / "docs" / "appendix" / "comparison.md"

from tests.comparison import modules, runs  # noqa: E402  (the path is set first)
from tests.comparison.cases import CASES  # noqa: E402
from tests.comparison.exceptions import ABSENT, DIFFERENT, WITHOUT_CASE  # noqa: E402
from tests.comparison.libraries import LIBRARIES, absent, functions  # noqa: E402

HEAD = """# Comparison with jax

`tools/compare.py` writes this page from the cases of `tests/comparison`, which the tests run too. It compares each
public function with jax's of the same name: values and dtypes (in float32, float64, int32, bool and complex64, as far
as jax accepts them), derivatives (jvp and vjp in float64), `vmap`, and `jit` (with fxgrad on NumPy arrays).

`yes`: equal to rounding. `-`: nothing to compare, because the function takes no floats or returns no arrays, or because
jax lacks this derivative or batching. A number: see the notes below the table.
"""

ASPECTS = ("values", "derivatives", "vmap", "jit")


def marks(library: str, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """For each function and aspect a mark, or the message of what differs."""
    problems = [*runs.value_problems(library, names), *runs.derived_problems(library, names),
                *runs.jit_problems(library, names)]
    result: dict[str, dict[str, str]] = {}
    for name in names:
        applicable = runs.aspects_of(library, name)
        result[name] = {aspect: "yes" if aspect in applicable else "-" for aspect in ASPECTS}
        for problem in problems:
            if problem.label.split(" ")[0] == f"{library}.{name}":
                aspect = "derivatives" if problem.aspect in ("jvp", "vjp") else problem.aspect
                known = DIFFERENT.get(problem.label)
                said = result[name][aspect]
                note = f"{problem.label.split(' in ')[1]}: {known or problem.message}"
                if note not in said:
                    result[name][aspect] = note if said in ("yes", "-") else f"{said}; {note}"
        if f"{library}.{name}" in WITHOUT_CASE:
            result[name]["values"] = WITHOUT_CASE[f"{library}.{name}"]
    return result


def reasons(library: str, name: str) -> list[str]:
    """Why aspects of a function are not compared."""
    found = [f"{aspect}: {why}" for case in CASES[library].get(name, []) for aspect, why in case.without.items()]
    return list(dict.fromkeys(found))


def table(library: str) -> str:
    """The section of one library."""
    notes: list[str] = []
    lines = [f"## {library}", "", "| name | values | derivatives | vmap | jit |", "|---|---|---|---|---|"]
    names = functions(library)
    for begin in range(0, len(names), runs.GROUP):
        for name, found in marks(library, names[begin:begin + runs.GROUP]).items():
            cells = []
            for aspect in ASPECTS:
                text = found[aspect]
                if text not in ("yes", "-"):
                    notes.append(f"`{name}`, {text}")
                    text = f"[{len(notes)}]"
                cells.append(text)
            lines.append(f"| {name} | {' | '.join(cells)} |")
            notes += [f"`{name}`, {why}" for why in reasons(library, name)]
    if notes:
        lines += ["", "Notes:", "", *(f"{number}. {note}" for number, note in enumerate(notes, 1))]
    missing = absent(library)
    if missing:
        why = ABSENT.get(library, {})
        lines += ["", f"Names of jax's that are absent ({len(missing)}):", ""]
        lines += [f"- {name}: {why.get(name, why.get('*', ''))}" for name in missing]
    return "\n".join(lines) + "\n"


def page(libraries: Sequence[str]) -> str:
    """The whole page."""
    return "\n".join([HEAD, *map(table, libraries), modules.table()])


def main() -> int:
    """Writes the page, or compares it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--library", choices=LIBRARIES)
    parser.add_argument("--modules", action="store_true", help="only write the section on all modules anew")
    options = parser.parse_args()
    if options.modules:
        before = PAGE.read_text(encoding="utf-8").partition("## All modules of jax\n")[0].rstrip("\n")
        PAGE.write_text(f"{before}\n\n{modules.table()}", encoding="utf-8")
        return 0
    if options.library:
        print(table(options.library))
        return 0
    text = page(list(LIBRARIES))
    if options.check:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
