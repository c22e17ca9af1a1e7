"""Recordings to be read in which Python's control flow goes by values: those of the path that they take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine.core.program import Variable
from fxgrad.engine.tracing.tape import Tape
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import user_line


class Concretization(NamedTuple):
    """A value that Python's control flow requested, with the user's line."""

    var: Variable
    value: Any
    place: str


class FollowedTape(Tape):
    """A tape whose inputs have values for Python's control flow alone: all else is recorded as without them.

    `follow` gives it the values; `asked` is what was asked for.
    """

    _followed: Sequence[Any] | None = None
    asked: Sequence[Concretization] = ()

    def follow(self, values: Sequence[Any]) -> None:
        """Control flow goes by these values of the inputs."""
        self._followed = values

    def force(self, tracer: Tracer, use: str) -> Any:
        """The value of `tracer`, which is noted; raises `ConcretizationError` if there are no values."""
        if self.closed or self._followed is None:
            return super().force(tracer, use)
        value = np.asarray(self.run_prefix(self._followed)[tracer.variable])
        self.asked = (*self.asked, Concretization(tracer.variable, value, user_line()))
        return value
