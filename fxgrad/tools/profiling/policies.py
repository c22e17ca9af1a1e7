"""`policy_report`: the residuals that a checkpoint's policy saves, and the gradient's error if it stores fewer bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from fxgrad import checkpoint, dtypes, grad, saved_residuals, tree
from fxgrad.extend import bytes_text, function_name, hide_frames, transformation
from fxgrad.text.tables import Report, add_row, new_table


class GradientError(NamedTuple):
    """The error of the gradient in one leaf: the largest error of an entry, relative to the largest entry."""

    name: str
    error: float


class PolicyReport(Report):
    """Bytes kept beside the arguments with and without a policy, and errors of gradients.

    It prints as a table.
    """

    def __init__(self, title: str, saved: int, saved_without: int, errors: list[GradientError]) -> None:
        self.title, self.saved, self.saved_without, self.errors = title, saved, saved_without, errors

    @property
    def largest(self) -> float:
        """The largest of the errors; 0.0 if there are none."""
        return max((each.error for each in self.errors), default=0.0)

    def table(self) -> Table:
        """Return the table for rich."""
        part = f"{self.saved / self.saved_without:.0%}" if self.saved_without else "-"
        made = new_table(f"{self.title}: {bytes_text(self.saved)} kept, of {bytes_text(self.saved_without)} ({part})",
                         {"gradient in": "left", "largest error": "right"})
        for each in self.errors:
            add_row(made, [each.name, f"{each.error:.1e}"])
        return made

    __repr__ = Report.__str__


def policy_report(fun: Callable[..., Any], policy: Callable[..., Any], argnums: int | Sequence[int] = 0,
                  ) -> Callable[..., PolicyReport]:
    """Return a function that differentiates `fun` with and without `checkpoint(fun, policy=policy)`.

    It takes positional arguments as `grad(fun, argnums)` does, and computes both gradients. The residuals beside the
    arguments are counted from the programs. Raises as `grad` and `checkpoint` do.

    >>> import fxgrad, numpy as np
    >>> policies = fxgrad.checkpoint_policies
    >>> rounded = policy_report(lambda x: np.sum(np.exp(np.sin(x))), policies.store_as("bfloat16"))
    >>> report = rounded(np.linspace(0, 3, 64))
    >>> report.saved / report.saved_without, report.largest < 0.01
    (0.25, True)
    """
    @transformation("policy_report", fun)
    @hide_frames
    def report(*args: Any) -> PolicyReport:
        stored = checkpoint(fun, policy=policy)
        kept = checkpoint(fun, policy=lambda *_, **__: True)
        with_policy, without = (sum(residual.nbytes for residual in saved_residuals(function, *args)
                                    if residual.made_at != "an argument") for function in (stored, kept))
        found, expected = grad(stored, argnums)(*args), grad(fun, argnums)(*args)
        errors = [GradientError(name, _relative_error(one, other)) for name, one, other in zip(
            tree.leaf_names(expected, "gradient"), tree.leaves(found), tree.leaves(expected), strict=True)]
        return PolicyReport(function_name(fun), with_policy, without, errors)
    return report


def _relative_error(found: Any, expected: Any) -> float:
    expected = np.asarray(expected)
    if not expected.size or expected.dtype == dtypes.float0:
        return 0.0
    kind = np.complex128 if np.iscomplexobj(expected) else np.float64
    found, expected = np.asarray(found, kind), np.asarray(expected, kind)
    largest = np.max(np.abs(expected))
    return float(np.max(np.abs(found - expected)) / (largest or 1.0))
