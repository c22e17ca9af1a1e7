"""Samples of `fxgrad.engine.higher_order.checks`: conditions, of which the report accepts false ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fxgrad.engine.core.cache_keys import StructuralKey
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.higher_order.checks import check_p
from tests.samples import Draw, Sample


@dataclass(frozen=True)
class Accepting(StructuralKey):
    """A report that raises nothing."""

    def fail(self, condition: Any, values: Sequence[Any]) -> None:
        """Return."""

    def require_operands(self, count: int) -> None:
        """Return."""


WITHOUT = {"text": "a report is Python code, which parse refuses to make",
           **dict.fromkeys(("jvp", "second", "transpose"), "a check has no results")}
SAMPLES: dict[Primitive, list[Sample]] = {check_p: [
    Sample(Draw(shape, "bool"), *[Draw(*value) for value in values], params={"report": Accepting(), "lanes": ()},
           without=WITHOUT)
    for shape, values in [((), []), ((0,), []), ((1,), []), ((2, 3), [((2, 1), "float64")]), ((2,), [((), "int32")])]]}
