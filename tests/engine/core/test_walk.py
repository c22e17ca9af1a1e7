"""The backward walk: what sums cotangents, whatever they are."""

from __future__ import annotations

import operator
from typing import Any

from fxgrad.engine.core.walk import pull_back_steps


def test_cotangents_are_summed_at_fan_outs_and_zeros_go_nowhere() -> None:
    asked: list[str] = []

    def pullback(name: str, *factors: list[int] | None) -> Any:
        """The pullback of a linear operation; `factors` are those of each operand, by output."""
        def pull(*cotangents: Any) -> list[Any]:
            asked.append(name)
            return [None if each is None else sum(factor * cotangent for factor, cotangent in zip(
                each, cotangents, strict=True) if cotangent is not None) for each in factors]
        return pull

    # Of a and b one operation makes c and what nobody uses; of c are made d, e, of c twice, and an integer.
    steps = [
        (["dead"], ["b"], pullback("dead", [3])),
        (["integer"], ["c"], pullback("integer", None)),
        (["e"], ["c", "c"], pullback("e", [1], [1])),
        (["d"], ["c"], pullback("d", [5])),
        (["c", "unused"], ["a", "b"], pullback("split", [7, 100], [11, 100])),
    ]
    sums: dict[Any, Any] = {}
    pull_back_steps(sums, ["d", "e", "d", "integer", "a"], [1, 1, 1, None, 1000], steps, operator.add)
    assert asked == ["e", "d", "split"]
    assert sums == {"a": 7 * (2 + 2 * 5) + 1000, "b": 11 * (2 + 2 * 5)}


def test_an_operation_without_outputs_is_passed_over() -> None:
    sums: dict[Any, Any] = {}
    pull_back_steps(sums, ["a"], [2], [([], ["a"], lambda: [1])], operator.add)
    assert sums == {"a": 2}
