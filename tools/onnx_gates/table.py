"""The table of primitives, from the rules and the samples of the tests."""

from __future__ import annotations

from fxgrad.engine.core.primitive import MissingRule
from fxgrad.shipping.onnx.rules import onnx_rules
from tests.samples import all_samples
from tests.support.onnx_samples import Row, run_samples

HEAD = ("primitive", "form in ONNX", "samples equal")
MOST = 7
"""So many operators are named."""


def cells(row: Row) -> tuple[str, str, str]:
    """One row: the operators it becomes, most frequent first, or why it has none."""
    primitive, equal, operators, refusals = row
    rule = onnx_rules.of(primitive)
    reason = rule.reason if isinstance(rule, MissingRule) else next(iter(refusals), "") if not equal else ""
    if reason:
        return f"`{primitive}`", f"none: it {reason.partition('. ')[0]}", "-"
    names = [name for name, _ in operators.most_common() if name != "Identity"]
    more = len(names) - MOST
    shown = ", ".join(names[:MOST]) + (f" and {more} more" if more > 0 else "")
    if primitive not in onnx_rules.entered():  # which operators differs between versions of jax
        shown = "what its rule for XLA is made of"
    return f"`{primitive}`", shown or "none is needed", str(equal)


def rows_of_table() -> list[tuple[str, str, str]]:
    """All rows, by name."""
    return [cells(run_samples(primitive, samples)) for primitive, samples in sorted(
        all_samples().items(), key=lambda item: item[0].name)]
