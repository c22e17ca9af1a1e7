"""The executor protocol, and the executor that runs programs: registered by a higher layer, replaced for a block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from fxgrad.engine.core.primitive import Primitive
    from fxgrad.engine.core.program import Program


class Executor(Protocol):
    """The protocol of executors, on concrete values: NumPy arrays, `jax.Array`s, numbers and `Literal`s.

    Raises `LeakedTracerError` if a tracer is among them.
    """

    def evaluate(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        """Return the outputs of one operation."""

    def execute(self, program: Program, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs of a program to the user: none shares memory with an input or with another output."""

    def compute(self, program: Program, inputs: Sequence[Any]) -> list[Any]:
        """Return values of a part of a program, needed by Python's control flow; they may be views."""


class _Unregistered:
    """A placeholder until an executor is registered."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no executor is registered that could {name} programs. Import fxgrad, and not a part of it")


executor: Executor = _Unregistered()
"""The current executor; `fxgrad.engine.executors` registers the first."""


def register_executor(first: Executor) -> None:
    """Register the executor that runs programs; raise `RuntimeError` if there is one already."""
    global executor
    if not isinstance(executor, _Unregistered):
        raise RuntimeError(f"{executor} is the executor already. Write: with use_executor(other)")
    executor = first


@contextmanager
def use_executor(other: Executor) -> Iterator[None]:
    """Run programs by `other` within the block, in all threads; blocks may end in any order."""
    global executor
    if not _others:
        _others.append([executor])
    entered = [other]
    _others.append(entered)
    executor = other
    try:
        yield
    finally:
        _others[:] = [each for each in _others if each is not entered]
        executor, = _others[-1]


def is_replaced() -> bool:
    """Return whether a block of `use_executor` is open, so that programs must not run by rules of another executor."""
    return len(_others) > 1


_others: list[list[Executor]] = []
"""The registered executor, and those of the open blocks, innermost last."""
