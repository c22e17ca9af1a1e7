"""Programs of 20,000 equations print and parse without recursion, in time that grows with their length."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fxgrad.engine.api.programs import make_program
from fxgrad.engine.core.program import Program
from fxgrad.engine.ops.arithmetic import add, mul
from fxgrad.text import equal, from_json, inline, parse, program_text, to_json


def long_program(rounds: int) -> Program:
    def loop(x: Any, y: Any) -> Any:
        for _ in range(rounds):
            x = mul(x, y)
            x = add(x, 1.0)
        return x

    return make_program(loop)(np.ones(2), np.ones(2))


@pytest.mark.slow
def test_twenty_thousand_equations() -> None:
    program = long_program(10_000)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(250)
    try:
        texts = [program_text(program, style=style) for style in ("equations", "compact")]
        for text in texts:
            assert equal(program, parse(text))
        assert equal(program, from_json(to_json(program)))
        assert inline(program) is program
    finally:
        sys.setrecursionlimit(limit)
    assert [text.count("\n") for text in texts] == [20_002, 20_001]
    assert "x_20000: f64[2] = add(x_19999, 1.0:f64)" in texts[0]
    assert "x_20000: f64[2] = x_19999 + 1 " in texts[1]


def seconds(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


@pytest.mark.bench
def test_time_grows_with_length() -> None:
    small, large = long_program(1_000), long_program(10_000)
    texts = str(small), str(large)
    for work in (lambda index: program_text((small, large)[index]), lambda index: parse(texts[index])):
        assert seconds(lambda work=work: work(1)) < 20 * max(seconds(lambda work=work: work(0)) for _ in range(3))
    assert seconds(lambda: parse(str(large))) < 4
