"""What converted code calls for an effect: changes, draws of numbers and others that a traced block would lose."""

from __future__ import annotations

import random
from types import BuiltinFunctionType, FunctionType, GeneratorType
from typing import Any

import numpy as np

from fxgrad.engine.control_flow.assigned_items import attributed, mutable
from fxgrad.engine.control_flow.blocks import block, of_items, probe_logs, refuse
from fxgrad.engine.control_flow.containers import has_choices, note_change
from fxgrad.engine.control_flow.mutators import ARRAY_METHODS, changes_container
from fxgrad.engine.control_flow.structures import with_article
from fxgrad.engine.user_lines import is_library_file, is_user_file

_HOST_RANDOM = (random.Random, np.random.RandomState, np.random.Generator)
"""Generators of numbers on the host, which have a state."""
_WITHOUT_EFFECT = {"flush", "collect", "breakpoint", "set_trace"}
"""Functions that are harmless, or wanted while a function is traced."""


def rebinding(name: str, variable: FunctionType | None = None, depth: int = 0) -> None:
    """Raise if a `global` or `nonlocal` name is assigned in a traced block that does not give it the new value.

    A block does that with a `variable` of a function around. `depth` is the number of traced blocks around that
    function, if it is converted too.
    """
    around = inner = block.get()
    cell = None if variable is None or variable.__closure__ is None else variable.__closure__[0]
    while inner is not None and inner.depth > depth:
        if cell is None or name not in inner.live or inner.cells.get(name) is not cell:
            assert around is not None
            raise refuse(f"`{name}` belongs to a scope outside and is assigned inside {around.text}, which is traced "
                         f"once and may run never or often. Return the value, and assign `{name}` after the block")
        inner = inner.parent


def check_method(function: Any) -> None:
    """Raise if a builtin method changes a container, or draws numbers, in a traced block that it must not."""
    name, owner, around = getattr(function, "__name__", ""), getattr(function, "__self__", None), block.get()
    if name in ("__setattr__", "__delattr__"):
        attributed(owner)
        return
    if around is None:
        if (probe_logs.get() or has_choices()) and changes_container(owner, name):
            note_change(owner)
        return
    if isinstance(owner, np.ndarray) and name in ARRAY_METHODS:
        mutable(owner)
    if isinstance(owner, _HOST_RANDOM) and around.repeats:
        raise refuse(f"{name}() draws numbers on the host inside {around.text}: it would run once, and every turn "
                     "would get the same numbers. Use fxgrad.random with a key, split in each turn")
    if changes_container(owner, name) and not note_change(owner):
        kind = type(owner).__name__
        hint = ("Give the loop a static length, or write into an array of that length with x[i] = v"
                if around.repeats else f"Choose the value in the branch, and change the {kind} after it")
        error = refuse(f".{name}() changes {with_article(kind)} from outside inside {around.text}, which is traced "
                       f"once. {hint}")
        raise of_items(error) if type(owner) is list else error


def check_effect(function: Any) -> None:
    """Raise if a traced block calls a function of Python or of a library without a use for its result: for an effect.

    Functions of the user's are converted, and those of fxgrad's are recorded.
    """
    around = block.get()
    name, owner = getattr(function, "__name__", ""), getattr(function, "__self__", None)
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    is_random = isinstance(owner, _HOST_RANDOM) or str(getattr(function, "__module__", "")).startswith("numpy.random")
    is_of_library = is_random or type(function) is BuiltinFunctionType or (
        code is not None and not is_user_file(code.co_filename) and not is_library_file(code.co_filename))
    is_harmless = name in _WITHOUT_EFFECT or name.startswith("assert")  # such as assert_shape, of what is known
    if around is None or not is_of_library or id(owner) in around.made or is_harmless or (
            changes_container(owner, name) or isinstance(owner, np.ndarray | np.ufunc)):
        return
    raise refuse(f"{name}() is called for an effect inside {around.text}, which is traced once and may run never or "
                 "often. Print with print(), which runs with the program, hand a function of your own to "
                 "fxgrad.debug.callback, or do it after the block, by a value that the block gives")


def check_next(iterator: Any) -> None:
    """Raise if a traced block takes an item from an iterator that it did not make."""
    around = block.get()
    begun = type(iterator) is not GeneratorType or iterator.gi_frame is None or iterator.gi_frame.f_lasti > 0
    if around is not None and id(iterator) not in around.made and begun:
        raise refuse(f"next() takes an item from an iterator inside {around.text}, which is traced once and may run "
                     "never or often. Make a list or an array of the items, and count: x = items[k], then k += 1")
