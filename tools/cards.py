#!/usr/bin/env python3
"""Writes docs/appendix/cards.md: rules of every primitive, its facts in every table, and what is refused and why.

`tools/cards.py` writes; `tools/cards.py --check` fails if the page is not current.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the page is that of this checkout, not of an installed one

import fxgrad.tools.cards  # noqa: E402
from fxgrad.engine.core.analysis import Analysis, all_analyses  # noqa: E402
from fxgrad.engine.core.primitive import RULES, MissingRule, Primitive  # noqa: E402
from fxgrad.engine.rooms import registry  # noqa: E402
from fxgrad.tools.cards import card, load_tables, place_text  # noqa: E402

PAGE = ROOT / "docs" / "appendix" / "cards.md"
HEAD = """# Cards of the primitives

`tools/cards.py` wrote this page. `fxgrad card NAME` prints the card of one primitive, with values, and files and lines.
[Primitives](primitives.md) states the contract of each rule.

| mark | of a rule | of a table |
|---|---|---|
| `●` | written for the primitive | entered for the primitive |
| `○` | returned by a function that makes rules, as those of families do | |
| `✗` | absent, for a [reason](#refusals) | refused, for a [reason](#refusals) |
| blank | | the answer that the table has for all others: its default, or what it derives |
"""
MARKS = {"entered": "●", "derived": "○", "refused": "✗", "default": "", "missing": ""}


def answer(table: Analysis[object]) -> str:
    """What a table answers for primitives without an entry."""
    return {"derive": "derived from the record", "conservative": "a default", "raise": "an error"}[table.missing]


def legend(tables: list[Analysis[object]]) -> Iterator[str]:
    """The numbers of the tables, with what they say."""
    yield from ("## Tables", "", "| | table | what it says | blank | entries | in |", "|---|---|---|---|---|---|")
    for number, table in enumerate(tables, 1):
        file, _, _ = place_text(table.place).rpartition(":")
        count = sum(primitive in registry.values() for primitive in table.entered())
        yield (f"| {number} | {table.name} | {table.description} | {answer(table)} | {count} | `{file}` |")


def matrix(tables: list[Analysis[object]]) -> Iterator[str]:
    """One row for each primitive."""
    heads = ["primitive", *RULES, *map(str, range(1, len(tables) + 1))]
    yield from ("## Primitives", "", f"{len(registry)} primitives.", "")
    yield from (f"| {' | '.join(heads)} |", "|---" * len(heads) + "|")
    for name in sorted(registry):
        found = card(registry[name])
        marks = [MARKS[found[rule].state] for rule in RULES]
        marks += [MARKS[found[table.name].state] if _is_own(table, registry[name]) else "" for table in tables]
        yield f"| `{name}` | {' | '.join(marks)} |"


def _is_own(table: Analysis[object], primitive: Primitive) -> bool:
    """Whether a cell has a mark: an entry, or a refusal."""
    return table.known(primitive).state in ("entered", "refused")


def refusals(tables: list[Analysis[object]]) -> Iterator[str]:
    """Reasons, with the primitives, unless they are all that have no entry of their own."""
    yield from ("## Refusals", "")
    found: dict[tuple[str, MissingRule, bool], list[str]] = defaultdict(list)
    for name in sorted(registry):
        primitive = registry[name]
        for rule in RULES:
            if isinstance(value := getattr(primitive, rule), MissingRule):
                found[rule, value, value.kind == "TODO"].append(name)
        for table in tables:
            if isinstance(value := table.known(primitive).fact, MissingRule):
                found[table.name, value, primitive in table.entered()].append(name)
    for (where, absence, is_listed), names in sorted(found.items(), key=lambda item: (item[0][0], str(item[0][1]))):
        listed = ", ".join(f"`{name}`" for name in names) if is_listed else f"{len(names)} primitives"
        yield f"- {where}: **{absence.kind}**, {absence.reason}: {listed}."


def covered() -> Iterator[str]:
    """The names of jax's vocabulary that stand for other operations here."""
    rooms = [module for name, module in list(sys.modules.items()) if name.startswith("fxgrad.engine.ops.")]
    names = {name: text for module in rooms for name, text in getattr(module, "COVERED_BY", {}).items()}
    yield from ("## Names of jax's vocabulary that need no primitive here", "", "| name | covered by |", "|---|---|")
    for name, text in sorted(names.items()):
        yield f"| `{name}` | {text} |"


def page() -> str:
    """The whole page."""
    load_tables()
    tables = [table for table in all_analyses() if place_text(table.place).startswith("fxgrad/")]
    parts = [HEAD, *("\n".join(lines) + "\n" for lines in (
        legend(tables), matrix(tables), refusals(tables), covered()))]
    return "\n".join(parts)


def main() -> None:
    """Writes the page, or compares it."""
    text = page()
    if "--check" not in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
        print(f"wrote {PAGE.name}: {len(registry)} primitives")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        sys.exit("docs/appendix/cards.md is not current: run tools/cards.py")
    else:
        print(f"docs/appendix/cards.md is current ({len(registry)} primitives, fxgrad {fxgrad.__version__})")


if __name__ == "__main__":
    main()
