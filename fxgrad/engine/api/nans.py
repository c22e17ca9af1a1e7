"""Find the origin of a NaN or an infinity: run programs one operation at a time and check each result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from fxgrad.engine import dtypes, executors, user_lines
from fxgrad.engine.core.backends import use_executor
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.core.walk import eval_program, value_of
from fxgrad.engine.executors.xla import is_jax_tracer
from fxgrad.engine.tracebacks import shorten_traceback


@contextmanager
def debug_nans(enable: bool = True) -> Iterator[None]:
    """Within the block raise `FloatingPointError` with your line for an operation whose result has a NaN.

    It applies to all threads: to un-jitted code, operation by operation, and to jitted functions by jax's setting of
    the same name.

    >>> import numpy as np, fxgrad
    >>> with fxgrad.debug_nans():
    ...     fxgrad.grad(lambda x: x * np.log(x))(-1.0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FloatingPointError: NaN in the result of log...
    """
    with _search_for("NaN", enable), jax.debug_nans(enable):
        yield


@contextmanager
def debug_infs(enable: bool = True) -> Iterator[None]:
    """Within the block raise `FloatingPointError` for an operation whose result has an infinity, as `debug_nans`.

    >>> import numpy as np, fxgrad
    >>> with fxgrad.debug_infs():
    ...     fxgrad.grad(np.log)(0.0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FloatingPointError: infinity in the result of ...
    """
    with _search_for("infinity", enable), jax.debug_infs(enable):
        yield


_FOUND: dict[str, Callable[[Any], Any]] = {"NaN": np.isnan, "infinity": np.isinf}
CALLS = ("inline", "call", "recomputed")
"""The roles of regions that an operation runs once, on its operands."""
_wanted: list[str] = []
"""The names in `_FOUND` that are searched for, innermost block last."""


@contextmanager
def _search_for(what: str, enable: bool) -> Iterator[None]:
    if not enable:
        yield
        return
    _wanted.append(what)
    try:
        with use_executor(_SearchExecutor()):
            yield
    finally:
        _wanted.remove(what)


class _SearchExecutor:
    """An executor that runs one operation at a time and checks its results."""

    def evaluate(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        with _without_jax():
            outputs = executors.evaluate(primitive, args, params)
        line = user_lines.user_line()
        _check_outputs(primitive, args, outputs, f"\n  at {line}" if line else "")
        return outputs

    def execute(self, program: Program, inputs: Sequence[Any]) -> list[Any]:
        def step(equation: Equation, values: list[Any]) -> list[Any]:
            with _without_jax():
                outputs = executors.evaluate(equation.primitive, values, equation.params)
            if any(_contains(what, output) for what in _wanted for output in outputs):
                for region in equation.regions:
                    if region.role in CALLS and len(region.program.inputs) == len(values):
                        eval_program(region.program, values, step, value_of)  # it names the operation inside
            source = equation.source
            place = "" if source is None else f"\n  at {source.place} (in {source.code.co_name})"
            _check_outputs(equation.primitive, values, outputs, place)
            return outputs

        return eval_program(program, inputs, step, value_of)

    compute = execute


@contextmanager
def _without_jax() -> Iterator[None]:
    """Within the block jax does not search: the operation that it would name is one of a rule, without a line."""
    with jax.debug_nans(False), jax.debug_infs(False):
        yield


def _check_outputs(primitive: Primitive, inputs: Sequence[Any], outputs: Sequence[Any], place: str) -> None:
    for what in dict.fromkeys(_wanted):
        if any(_contains(what, output) for output in outputs):
            given = "its operands have one too" if any(_contains(what, value) for value in inputs) else (
                "its operands have none")
            raise shorten_traceback(FloatingPointError(f"{what} in the result of {primitive.name}; {given}{place}"))


def _contains(what: str, value: Any) -> bool:
    if isinstance(value, jax.Array) and (is_jax_tracer(value) or dtypes.is_jax_key(value.dtype)):
        return False
    array = np.asarray(value)
    return bool(dtypes.is_inexact(array.dtype) and _FOUND[what](array).any())
