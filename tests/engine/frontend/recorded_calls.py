"""The table of calls of library functions on values, as its tests read it."""

from __future__ import annotations

from typing import Any

from fxgrad.engine.core.backends import use_executor
from fxgrad.engine.frontend import value_calls
from tests.support.counting import Counting


def recorded(function: Any = None) -> list[Any]:
    """The recorded calls, of one function or of all; None stands for one that runs as it is written."""
    return [call for key, call in value_calls._calls.items() if function is None or key[0] is function]


def plain(function: Any, *args: Any) -> Any:
    """The result of a call that is neither counted nor replayed: of another executor, which does the same."""
    with use_executor(Counting()):
        return function(*args)
