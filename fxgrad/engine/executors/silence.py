"""NumPy's floating-point warnings turned off around a call: NaN and infinities are values like others here."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any

import numpy as np


def _silent_setting() -> tuple[ContextVar[Any], Any] | None:
    """The context variable that `np.errstate` sets, and what it sets in order to be silent.

    To set it takes a third of what `np.errstate` takes, on every call. None if NumPy keeps its setting otherwise.
    """
    outside = copy_context()
    with np.errstate(all="ignore"):
        for variable, value in copy_context().items():
            if variable not in outside or outside[variable] is not value:
                return variable, value
    return None


_setting = _silent_setting()


def silence_warnings(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, of positional arguments, without warnings of NumPy's."""
    def quietly(*args: Any) -> Any:
        token = variable.set(silence)
        try:
            return function(*args)
        finally:
            variable.reset(token)

    if _setting is None:
        return np.errstate(all="ignore")(function)
    variable, silence = _setting
    return quietly
