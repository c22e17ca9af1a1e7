"""Names of a module that are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from fxgrad.engine.pytorch_names import module_getattr


def lazy_getattr(module: str, homes: Mapping[str, str], modules: Mapping[str, str] = MappingProxyType({}),
                 absent: Mapping[str, str] = MappingProxyType({})) -> Callable[[str], Any]:
    """Return the `__getattr__` of `module`, which imports a name when it is first used, and keeps it.

    `homes` has the module that defines each name, and `modules` the module that each name stands for, both without
    `fxgrad.` before them. The function raises `AttributeError` for all other names, as `module_getattr` does, with the
    reasons that `absent` has for jax's.
    """
    refuse = module_getattr(module, absent)

    def find(name: str) -> Any:
        if name in modules:
            found: Any = import_module(f"fxgrad.{modules[name]}")
        elif name in homes:
            found = getattr(import_module(f"fxgrad.{homes[name]}"), name)
        else:
            return refuse(name)
        setattr(sys.modules[module], name, found)
        return found
    return find
