"""Random functions in which lists and objects get several names and change: as in Python, or refused."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import fxgrad
from fxgrad import python_control_flow
from fxgrad.errors import ControlFlowError
from tests.support.sources import load_source

LISTS, OBJECTS = ["a", "b", "c"], ["p", "q"]
HEAD = '''
class Box:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def bump(self, v):
        if v > 0:
            self.x = self.x + v
        else:
            self.y = self.y - v
'''
REGRESSIONS = [1033, 1061, 2296, 2516, 3088]
"""In these, lists that one block gives two names were different ones after it."""


def expression(draw: random.Random) -> str:
    kind = draw.random()
    if kind < 0.3:
        return draw.choice(["x", "1.0", "2.0", "0.5"])
    if kind < 0.6:
        return f"{draw.choice(LISTS)}[{draw.randrange(2)}]"
    if kind < 0.75:
        return f"{draw.choice(OBJECTS)}.{draw.choice('xy')}"
    return f"({expression(draw)} {draw.choice('+-')} 0.5 * {expression(draw)})"


def statement(draw: random.Random, depth: int, level: int) -> list[str]:
    indent, kind = "    " * level, draw.random()
    if depth > 0 and kind < 0.22:
        lines = [f"{indent}if {expression(draw)} > {expression(draw)}:", *block(draw, depth - 1, level + 1)]
        return [*lines, f"{indent}else:", *block(draw, depth - 1, level + 1)] if draw.random() < 0.6 else lines
    if depth > 0 and kind < 0.32:
        return [f"{indent}for i{level} in range({draw.choice(['n', 'n', '2'])}):", *block(draw, depth - 1, level + 1)]
    kind = draw.random()
    one, other = draw.choice(LISTS), draw.choice(LISTS)
    if kind < 0.16:
        return [f"{indent}{one} = {other}"]
    if kind < 0.30:
        return [f"{indent}{one} = [{expression(draw)}, {expression(draw)}]"]
    if kind < 0.50:
        return [f"{indent}{one}[{draw.randrange(2)}] {draw.choice(['=', '+='])} {expression(draw)}"]
    if kind < 0.55:
        return [f"{indent}{one} = {other}[:]"]
    if kind < 0.62:
        return [f"{indent}{one} += [{expression(draw)}]", f"{indent}{one}.pop(0)"]
    if kind < 0.68:
        return [f"{indent}{one}.reverse()"]
    one, other = draw.choice(OBJECTS), draw.choice(OBJECTS)
    if kind < 0.76:
        return [f"{indent}{one} = {other}"]
    if kind < 0.84:
        return [f"{indent}{one} = Box({expression(draw)}, {expression(draw)})"]
    if kind < 0.92:
        return [f"{indent}{one}.{draw.choice('xy')} = {expression(draw)}"]
    return [f"{indent}{one}.bump({expression(draw)})"]


def block(draw: random.Random, depth: int, level: int) -> list[str]:
    return [line for _ in range(draw.randrange(1, 4)) for line in statement(draw, depth, level)]


def source(seed: int) -> str:
    draw = random.Random(seed)
    body = [line for _ in range(draw.randrange(3, 7)) for line in statement(draw, 2, 1)]
    return "\n".join([f"def f{seed}(x, n):", "    a, b, c = [x, 1.0], [2.0, x], [0.0, 0.0]",
                      "    p, q = Box(x, 1.0), Box(0.0, x)", *body, "    return a, b, c, p.x, p.y, q.x, q.y", ""])


@pytest.mark.slow
def test_random_functions_give_what_python_gives_or_are_refused(tmp_path: Path) -> None:
    seeds = [*range(60), *REGRESSIONS]
    module = load_source(tmp_path / "random_containers.py", "\n".join([HEAD, *map(source, seeds)]))
    refused, wrong = [], []
    for seed in seeds:
        function = getattr(module, f"f{seed}")
        for args in ((1.5, 2), (-0.7, 0)):
            wanted = fxgrad.tree_util.tree_leaves(function(*args))
            try:
                program = fxgrad.make_program(python_control_flow(function))(*args)
            except ControlFlowError:
                refused.append(seed)
                break
            if not np.allclose(fxgrad.tree_util.tree_leaves(program(*args)), wanted, rtol=1e-12):
                wrong.append(source(seed))
    assert not wrong, wrong[0]
    assert len(refused) < 0.5 * len(seeds), "most run"
