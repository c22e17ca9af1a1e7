"""The classes of the library whose objects are parameters of operations: texts and files hold them by name."""

from __future__ import annotations

parameter_classes: dict[str, type] = {}
"""Every class that was declared, by its name."""


def declare_parameter_class(kind: type) -> None:
    """Declare a named tuple, an enumeration or a dataclass as a class of parameters, so that programs with it can be
    read back. Objects of dataclasses are read from files alone: in texts they would take too many words.

    It is no decorator, because `to_python` carries the source of such classes into files that import NumPy alone.
    Raises `ValueError` if another class has its name, which is all that a text has of a class.
    """
    other = parameter_classes.setdefault(kind.__name__, kind)
    if other is not kind:
        raise ValueError(f"{other.__module__} has a class of parameters named {kind.__name__} already; "
                         f"that of {kind.__module__} needs another name")
