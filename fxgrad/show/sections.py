"""Sections of a program: where what does not depend on the differentiated inputs ends, and the backward part begins."""

from __future__ import annotations

from fxgrad.core.program import Program


def sections(_: Program) -> dict[int, str]:
    """The headings of sections by the index of the equation that each begins with."""
    return {}
