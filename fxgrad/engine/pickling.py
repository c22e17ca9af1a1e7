"""Pickling of per-process singletons: by name, so that functions which refer to them can be pickled by value.

Libraries that send functions to other processes pickle nested functions by value, with all that they refer to: `jit(f)`
is such a function.
"""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Collection
from contextvars import ContextVar
from types import FrameType
from typing import Any


def import_object(module: str, name: str) -> Any:
    """Return the object of a name in a module; unpickling by name calls this.

    The module is loaded: importing this one imports the package, and that all of it.
    """
    return getattr(sys.modules[module], name)


def qualified_name(value: Any, package: str = "") -> tuple[str, str] | None:
    """Return the module and the name that `value` has there; None if no module of `package` reliably has it."""
    without = modules_left_behind()
    for module_name, module in [*sys.modules.items()]:
        root = module_name.partition(".")[0]
        if root == (package or root) and module_name not in without:
            for name, there in [*(getattr(module, "__dict__", None) or {}).items()]:
                if there is value:
                    return module_name, name
    return None


def _reduce_context_variable(variable: ContextVar[Any]) -> tuple[Any, tuple[str, str]]:
    """Reduce a context variable of this package to its name."""
    place = qualified_name(variable, "fxgrad")
    if place is None:
        raise TypeError(f"cannot pickle '{type(variable).__module__}.{type(variable).__name__}' object")
    return import_object, place


_BY_VALUE = frozenset(["cloudpickle", "dill"])
"""Packages, or copies of them in others, that pickle by value what another process would not find by name."""


def is_pickled_by_value() -> bool:
    """Return whether the pickle goes to a process that may lack this program's definitions."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if not _BY_VALUE.isdisjoint(str(frame.f_globals.get("__name__")).split(".")):
            return True
        frame = frame.f_back
    return False


def modules_left_behind() -> Collection[str]:
    """Return the modules that the reading process may not have."""
    if not is_pickled_by_value():
        return ()
    registered = getattr(sys.modules.get("cloudpickle"), "list_registry_pickle_by_value", set)
    return {"__main__", *registered()}


def is_importable(function: Any) -> bool:
    """Return whether the module of `function` has it under its own name, so that pickle can refer to it."""
    there = sys.modules.get(function.__module__)
    for name in getattr(function, "__qualname__", "").split("."):
        there = getattr(there, name, None)
    return there is function and function.__module__ not in modules_left_behind()


copyreg.pickle(ContextVar, _reduce_context_variable)


class SharedList(list[Any]):
    """A list that a module has under `name`; pickled or copied, it stays the same list."""

    def __init__(self, module: str, name: str) -> None:
        super().__init__()
        self._place = module, name

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return import_object, self._place
