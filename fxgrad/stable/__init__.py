"""Formulas that overflow or lose digits in floating point: found by line (`lint`), and written better (`stabilise`)."""

from fxgrad.stable.findings import KINDS, Finding, Findings
from fxgrad.stable.linting import lint
from fxgrad.stable.rules import RULES, Rule
from fxgrad.stable.stabilising import stabilise

__all__ = ["KINDS", "RULES", "Finding", "Findings", "Rule", "lint", "stabilise"]
