"""The page of the report: how many faults were caught, by kind and by room, and why the others were not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from planted.explained import EXPLAINED
from planted.generate import Fault
from planted.kinds import KINDS

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "appendix" / "faults.md"

Verdict = Mapping[str, Any]
"""A fault and what became of it, as it is kept in the file of verdicts."""

HEAD = """# Planted faults

How many bugs would the tests notice? `tools/faults` changes one expression of the package at a time, in a copy, and
runs tests until one fails. It generates the faults from the source, by the kinds in the first table
(`tools/planted/kinds.py`), and draws by a seed which of them to plant: for each room the number in
`tools/planted/rooms.py`, kinds and files in turns. It plants none in costs, which are estimates, and none in the texts
of messages, which the tests compare word for word.

First the whole suite runs on sources that record which tests compute the expression of each fault. Only these tests can
catch it. They run in three tiers: the quick tests of the file, which `tools/planted/rooms.py` names, then quick tests
of other files, then slow tests; in each tier the cheapest first, as many as fit into a few minutes.

```text
./tools/faults                   everything: the suite once, and an hour or two on two cores
./tools/faults --survivors       again for what survived, after tests were written
./tools/faults --page "a date"   writes this page
```

An interrupted run continues where it stopped. `--only` plants single faults again, such as those below by their names,
and `--list` shows all of them with what caught them. At the end the tests that caught something run once without any
fault, and must pass.
"""


def text(verdicts: Iterable[Verdict], when: str) -> str:
    """The whole page, for the faults of one run."""
    found = list(verdicts)
    caught = sum(verdict["caught"] for verdict in found)
    survivors = [verdict for verdict in found if not verdict["caught"]]
    tiers = Counter(verdict["tier"] for verdict in found if verdict["caught"])
    summary = (f"{when} Of {len(found)} faults {caught} were caught ({caught / max(len(found), 1):.1%}), and "
               f"{len(survivors)} survived. {tiers['quick']} were caught by the quick tests of the file, "
               f"{tiers['others'] + tiers['slow']} by quick tests of other files and by slow ones, and {tiers['new']} "
               "by tests that were written for them, and were run with the fault in.\n")
    parts = [HEAD, "## The last run\n", summary,
             _table("kind", found, lambda verdict: verdict["kind"], KINDS),
             _table("room", found, lambda verdict: _fault(verdict).room, None)]
    parts += ["## Survivors\n"] if survivors else []
    for verdict in survivors:
        why = explanation(verdict) or "Not explained yet."
        parts.append(f"- `{verdict['name']}` {verdict['file']}, `{verdict['function']}`, {verdict['kind']}: "
                     f"`{_line(verdict['before'])}` became `{_line(verdict['after'])}`. {why}")
    return "\n".join(parts) + "\n"


def _fault(verdict: Verdict) -> Fault:
    return Fault(**{name: verdict[name] for name in Fault.__dataclass_fields__})


def _line(source: str) -> str:
    return " ".join(source.split())


def _table(title: str, verdicts: list[Verdict], group: Callable[[Verdict], str], order: Iterable[str] | None) -> str:
    """Planted and caught faults by group, with what each kind means."""
    planted, caught = Counter(map(group, verdicts)), Counter(group(each) for each in verdicts if each["caught"])
    lines = [f"| {title} | planted | caught |", "|---|---|---|"]
    for name in planted if order is None else order:
        if planted[name]:
            shown = name if order is None else f"{name}: {(KINDS[name].__doc__ or '').rstrip('.').lower()}"
            lines.append(f"| {shown} | {planted[name]} | {caught[name]} |")
    lines.append(f"| all | {sum(planted.values())} | {sum(caught.values())} |")
    return "\n".join(lines) + "\n"


def explanation(verdict: Verdict) -> str | None:
    """Why no test catches the fault, if that is known."""
    function = verdict["function"].rpartition(".")[2]
    place = verdict["file"] if function == "the module" else function
    return EXPLAINED.get((place, verdict["before"], verdict["after"]))
