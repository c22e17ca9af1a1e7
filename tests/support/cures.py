"""Functions from their source, rerun with each refused line replaced by the code that the message suggests."""

from __future__ import annotations

import copy
import itertools
import linecache
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.special

import fxgrad
from fxgrad.errors import ArrayConversionError, MutationError, UnsupportedError

REFUSALS = MutationError, ArrayConversionError, UnsupportedError
numbers = itertools.count()


def compiled(lines: list[str]) -> Callable[[Any], Any]:
    """Return the function of `x` with these lines, with its source where tracebacks look for it."""
    source = "def function(x):\n" + "".join(f"    {line}\n" for line in lines)
    name = f"variant{next(numbers)}.py"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"np": np, "fxgrad": fxgrad, "copy": copy, "math": math, "scipy": scipy,
                             "expit": scipy.special.expit}
    exec(compile(source, name, "exec"), space)
    function: Callable[[Any], Any] = space["function"]
    return function


def cured(body: str, run: Callable[[Callable[[Any], Any]], Any]) -> Any:
    """Return the result of `run` after each refused line is replaced by the code that its message suggests."""
    lines = body.split("\n")
    for _ in range(5):
        try:
            return run(compiled(lines))
        except REFUSALS as error:
            found: Any = re.search(r"Write (.*?)(?:\. \(.*)?\n  at .*\.py:(\d+) ", str(error))
            at = int(found[2]) - 2
            indent = lines[at][:len(lines[at]) - len(lines[at].lstrip())]
            before = lines[at].strip()
            lines[at] = indent + _replaced(before, str(error), found[1])
    raise AssertionError("\n".join(lines))


def _replaced(line: str, message: str, instead: str) -> str:
    """Return the line with the suggested code: as a whole, or in the place of the code that it quotes first."""
    quoted = re.match(r"(.*?) (?:would|is not supported|on a traced)", message)
    if quoted is None or quoted[1] == line or quoted[1] not in line:
        return instead
    return line.replace(quoted[1], instead)
