"""Recordings for display in which Python's control flow takes the path for known values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine.core.program import Variable
from fxgrad.engine.hints import Hint
from fxgrad.engine.tracing.tape import Tape
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import user_line


class Concretization(NamedTuple):
    """A value that Python's control flow requested, with the user's line."""

    var: Variable
    value: Any
    place: str


class FollowedTape(Tape):
    """A tape whose inputs have values for Python's control flow only: all else is recorded as without them.

    `follow` sets the values; `asked` lists the values that control flow needed.
    """

    _followed: Sequence[Any] | None = None
    asked: Sequence[Concretization] = ()

    def follow(self, values: Sequence[Any]) -> None:
        """Let control flow use these values of the inputs."""
        self._followed = values

    def force(self, tracer: Tracer, use: str | Callable[[], Hint]) -> Any:
        """Return the value of `tracer`, and record the request; raise `ConcretizationError` if there are no values."""
        if self.closed or self._followed is None:
            return super().force(tracer, use)
        found = self.run_prefix(self._followed)[tracer.variable]
        value = found.tape.force(found, use) if type(found) is Tracer else np.asarray(found)
        self.asked = (*self.asked, Concretization(tracer.variable, value, user_line()))
        return value
