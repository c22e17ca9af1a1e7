"""What computes programs and what shows them: two objects that higher layers install, and what they must have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from fxgrad.engine.core.primitive import Primitive
    from fxgrad.engine.core.program import Program


class Executor(Protocol):
    """Computes on concrete values, which are NumPy's arrays, arrays of jax's, numbers and `Literal`s.

    Raises `LeakedTracerError` if a tracer is among them.
    """

    def evaluate(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        """The outputs of one operation."""

    def execute(self, program: Program, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of a program, for a user: none shares memory with an input or with another output."""

    def compute(self, program: Program, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of a part of a program, whose values Python's control flow asks for; they may be views."""


class Presenter(Protocol):
    """What a program is to its user: text, a picture in colour, a function, something to keep."""

    def edit(self, program: Program) -> Any:
        """An editor of a copy."""

    def text(self, program: Program) -> str:
        """What `print` shows."""

    def rich(self, program: Program, width: int) -> Any:
        """What `rich.print` shows, in lines of so many characters."""

    def call(self, program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of calling the program with arguments, in the containers that it was traced with."""

    def check(self, program: Program) -> None:
        """Raises `ProgramError` if the program is not one."""

    def html(self, program: Program) -> str:
        """What notebooks show."""

    def difference(self, program: Program, other: Program) -> Any:
        """What `other` does differently: something that prints, and is false where there is nothing."""

    def python(self, program: Program, source: bool) -> str:
        """A Python file that computes the program with NumPy alone."""

    def c(self, program: Program, source: bool) -> str:
        """A C file that computes the program."""

    def reduce(self, program: Program) -> Any:
        """What `pickle` keeps: a function and its arguments."""


class _Nobody:
    """In the place of what is not installed yet."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"nothing is installed that could {name} programs. Import fxgrad, and not a part of it")


executor: Executor = _Nobody()
"""Installed by `fxgrad.engine.executors`."""
presenter: Presenter = _Nobody()
"""Installed by `fxgrad.text`."""


def install_executor(installed: Executor) -> None:
    """Has `installed` compute from now on; raises `RuntimeError` if there is one already."""
    global executor
    if not isinstance(executor, _Nobody):
        raise RuntimeError(f"{executor} computes programs already. Write: with executing(other)")
    executor = installed


def install_presenter(installed: Presenter) -> None:
    """Has `installed` present programs from now on; raises `RuntimeError` if there is one already."""
    global presenter
    if not isinstance(presenter, _Nobody):
        raise RuntimeError(f"{presenter} presents programs already")
    presenter = installed


@contextmanager
def executing(other: Executor) -> Iterator[None]:
    """Has `other` compute within the block, for all threads; blocks may end in any order."""
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


_others: list[list[Executor]] = []
"""The executor that was installed, and those of the blocks that are entered, innermost last."""
