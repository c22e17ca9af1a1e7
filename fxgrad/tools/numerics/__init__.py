"""Formulas that overflow or lose digits in floating point: found by line (`lint`), and written better (`stabilize`)."""

from fxgrad.tools.numerics.findings import KINDS, Finding, Findings
from fxgrad.tools.numerics.linting import lint
from fxgrad.tools.numerics.rules import RULES, Rule
from fxgrad.tools.numerics.stabilizing import stabilize

__all__ = ["KINDS", "RULES", "Finding", "Findings", "Rule", "lint", "stabilize"]
