"""Twelve pictures, in characters and as SVG; `python -m tests.tools.pictures.test_golden` writes them again."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.pictured import EXAMPLES, LAID_OUT_BY

GOLDEN = Path(__file__).parent / "golden"
WEIGHTS = {"params": ["W*", "b*"]}
PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "product": ("product", {}),
    "product_joint": ("product", {"show": "joint", "values": True}),
    "wave_value": ("wave", {"view": "value", "derivatives": True}),
    "branching": ("branching", {"values": True, "highlight": "b"}),
    "neuron": ("neuron", {"roles": {"params": ["W", "b"]}}),
    "perceptron": ("perceptron", {"roles": WEIGHTS}),
    "perceptron_joint": ("perceptron", {"roles": WEIGHTS, "show": "joint", "view": "op"}),
    "cross_entropy": ("cross_entropy", {}),
    "attention": ("attention", {"types": False, "roles": {"params": "W"}}),
    "recurrent": ("recurrent", {"argnums": 0}),
    "choice": ("choice", {}),
    "network": ("network", {"view": "network", "argnums": 0, "expand": "layer1"}),
}


def drawn(name: str, style: str) -> str:
    example, options = PICTURES[name]
    return EXAMPLES[example].draw(style=style, **options).text()


@pytest.mark.parametrize("name", PICTURES)
def test_characters(name: str) -> None:
    assert drawn(name, "ascii") == (GOLDEN / f"{name}.txt").read_text().rstrip("\n")


@pytest.mark.parametrize("name", PICTURES)
def test_svg(name: str) -> None:
    found, expected = drawn(name, "svg"), (GOLDEN / f"{name}.svg").read_text()
    if importlib.metadata.version("graphlay") != LAID_OUT_BY:  # the same picture, maybe in other places
        found, expected = ["".join(sorted(re.sub(r"-?\b\d+(\.\d+)?\b|[ML]", "", text).split("\n")))
                           for text in (found, expected)]
    assert found == expected


if __name__ == "__main__":
    for each in PICTURES:
        (GOLDEN / f"{each}.txt").write_text(drawn(each, "ascii") + "\n")
        (GOLDEN / f"{each}.svg").write_text(drawn(each, "svg"))
