"""Lines that a Python loop repeats: many copies of one block, which compile as one if they are rolled."""

from __future__ import annotations

from collections.abc import Iterable

from fxgrad.extend import Equation, Program, Source
from fxgrad.extend.analyses import find_repeats
from fxgrad.tools.numerics.findings import Finding

_FEWEST_COPIES, _LEAST_EQUATIONS = 8, 150
"""Fewer copies, or fewer equations of all of them, compile in a moment."""
_WRITE_STACKED = ("fxgrad.lax.scan over the stacked arrays, or fxgrad.roll(f), which finds the loop. On CPUs jit does "
                  "so by itself")
_WRITE_APART = ('fxgrad.roll(f, by="call"), or stack the parameters once and write fxgrad.lax.scan. On CPUs jit calls '
                "one function by itself")
_WRITE_STEPS = "fxgrad.lax.scan or fori_loop, or fxgrad.roll(f), which finds the loop. On CPUs jit does so by itself"


def repeated_lines(program: Program) -> list[Finding]:
    """Return a finding for each large stretch of copies of a block that the user's lines, not derivatives, record."""
    found = find_repeats(program, _FEWEST_COPIES)
    findings = []
    for repeat in found.repeats:
        sources = [equation.source for equation in repeat.block]
        first = sources[0]
        if len(repeat.copies) * len(repeat.block) < _LEAST_EQUATIONS or first is None or any(
                source is not None and source.part is not None for source in sources):
            continue
        arrays = [atom for column in repeat.flow.by_copy for atom in column if atom.aval.shape]
        is_stacked = all(atom in found.rows for atom in arrays)
        write = _WRITE_APART if not is_stacked else _WRITE_STACKED if arrays else _WRITE_STEPS
        findings.append(Finding(first.place, f"{len(repeat.copies)} copies of {_lines(repeat.block)}", write,
                                "repeats", first.line))
    return findings


def _lines(block: Iterable[Equation]) -> str:
    """Return the lines of a block in words, function by function: "lines 12 to 19"."""
    by_code: dict[object, list[Source]] = {}
    for equation in block:
        if equation.source is not None:
            by_code.setdefault(equation.source.code, []).append(equation.source)
    ranges = sorted((min(lines), max(lines)) for lines in (
        [source.line for source in sources] for sources in by_code.values()))
    texts = [str(low) if low == high else f"{low} to {high}" for low, high in ranges]
    is_one_line = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return ("line " if is_one_line else "lines ") + " and ".join(texts)
