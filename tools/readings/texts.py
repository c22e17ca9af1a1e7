"""The texts of the functions, by fxgrad and by jax, and what is counted of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import NamedTuple

import jax
import jax.numpy
import jax.scipy.linalg
import jax.scipy.special

import fxgrad
import fxgrad.numpy
import fxgrad.scipy.linalg
import fxgrad.scipy.special
from readings.functions import functions

SHOWN = ("gradient of a regression", "masked attention", "gradient of a scan", "while loop", "gradient of a branch",
         "gradients of examples")
"""Those of the page."""


class Reading(NamedTuple):
    """One function: what fxgrad prints of it, and what jax does."""

    name: str
    ours: str
    theirs: str


def readings() -> list[Reading]:
    """All functions, traced by both."""
    pairs = zip(functions(fxgrad.numpy, fxgrad), functions(jax.numpy, jax), strict=True)
    return [Reading(ours.name, str(fxgrad.make_program(ours.function)(*ours.arguments)),
                    str(jax.make_jaxpr(theirs.function)(*theirs.arguments))) for ours, theirs in pairs]


def tokens(text: str) -> int:
    """The number of words and marks."""
    return len(re.findall(r"\w+|[^\w\s]", text))


def lines(text: str) -> int:
    """The number of lines."""
    return len(text.splitlines())


COUNTS: dict[str, Callable[[str], int]] = {"tokens": tokens, "characters": len, "lines": lines}


def mean_ratio(found: Sequence[Reading], count: Callable[[str], int]) -> float:
    """The geometric mean of ours to theirs."""
    return math.exp(sum(math.log(count(each.ours) / count(each.theirs)) for each in found) / len(found))


def table(found: Sequence[Reading]) -> str:
    """A line for each function, and one for the geometric means."""
    head = ["function", *(f"{name} {part}" for name in COUNTS for part in ("", "of jax", "ratio"))]
    rows = [[each.name, *(cell for count in COUNTS.values() for cell in (
        str(count(each.ours)), str(count(each.theirs)), f"{count(each.ours) / count(each.theirs):.2f}"))]
        for each in found]
    rows.append(["geometric mean", *(cell for count in COUNTS.values()
                                     for cell in ("", "", f"{mean_ratio(found, count):.2f}"))])
    lengths = [max(len(row[place].strip()) for row in [head, *rows]) for place in range(len(head))]
    ruled = ["-" * length for length in lengths]
    return "\n".join(f"| {' | '.join(cell.strip().ljust(length) for cell, length in zip(row, lengths, strict=True))} |"
                     for row in [head, ruled, *rows])


def side_by_side(reading: Reading) -> str:
    """Both texts, ours on the left."""
    left, right = reading.ours.splitlines(), reading.theirs.splitlines()
    width = max(map(len, left))
    return "\n".join(f"{ours:<{width}} | {theirs}".rstrip() for ours, theirs in zip_longest(left, right, fillvalue=""))


def page(found: Sequence[Reading]) -> str:
    """The page of the documentation."""
    chosen = [each for name in SHOWN for each in found if each.name == name]
    shown = "\n\n".join(f"## {each.name[0].upper()}{each.name[1:]}\n\nfxgrad:\n\n```text\n{each.ours}\n```\n\njax:\n\n"
                        f"```text\n{each.theirs}\n```" for each in chosen)
    return f"""# Printed programs beside jax's

`tools/reading --page` wrote this page with jax {jax.__version__}. Both libraries trace the same functions
(`tools/readings/functions.py`); the table compares what `print` shows of `fxgrad.make_program(f)` and of
`jax.make_jaxpr(f)`. Tokens are words and marks (`\\w+|[^\\w\\s]`), comments included. `parse` reads fxgrad's text back
to the same program.

{table(found)}

{shown}
"""
