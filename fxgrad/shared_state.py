"""What a process has once: pickled and copied by name, so that functions which refer to it can be, by value.

Libraries that send functions to other processes pickle what is defined inside of others by value, and what it refers to
with it: `jit(f)` is such a function.
"""

from __future__ import annotations

import copyreg
import sys
from contextvars import ContextVar
from typing import Any, NoReturn


def found(module: str, name: str) -> Any:
    """The object of a name in a module; what is pickled by name comes back through this.

    The module is there: importing this one imports the package, and that all of it.
    """
    return getattr(sys.modules[module], name)


def _refuse(value: Any) -> NoReturn:
    raise TypeError(f"cannot pickle '{type(value).__module__}.{type(value).__name__}' object")


def _by_name(variable: ContextVar[Any]) -> tuple[Any, tuple[str, str]]:
    """How a context variable of this package's is pickled; others are not."""
    for module_name, module in [*sys.modules.items()]:
        if module_name.partition(".")[0] == "fxgrad":
            for name, value in vars(module).items():
                if value is variable:
                    return found, (module_name, name)
    _refuse(variable)


copyreg.pickle(ContextVar, _by_name)


class SharedList(list[Any]):
    """A list that a module has under `name`, and that stays that one list when it is pickled or copied."""

    def __init__(self, module: str, name: str) -> None:
        super().__init__()
        self._place = module, name

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return found, self._place
