"""`explain_transparency`: whether the Python code of a function need run again, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fxgrad.engine.api.arguments import Argnums, bind_selected, leaf_avals, select_arguments, transformation
from fxgrad.engine.api.reverse import tape_with_values
from fxgrad.engine.core.avals import array_aval
from fxgrad.engine.frontend.flat import finish_trace, record_flat
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.transparency.reading import is_function
from fxgrad.engine.transparency.replays import Kind, make_replay, refusal_text
from fxgrad.engine.transparency.values import Data, Known, Refusal
from fxgrad.engine.user_lines import function_name


@dataclass(frozen=True)
class Transparency:
    """What is known of a call: `reads` has each value that the function reads, with what is tested at every call.

    If the function is not `transparent`, `reason` says why, and `file` and `line` where.

    Attributes:
        transparent: Whether the Python code of the function need not run while the tests hold.
        text: All of it as a text.
        reason: Why it is not transparent, or "".
        file: The file of the line, or "".
        line: The line, or None.
        reads: The paths of values that the function reads, each with what is tested.
    """

    transparent: bool
    text: str
    reason: str = ""
    file: str = ""
    line: int | None = None
    reads: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def _refused(fun: Callable[..., Any], refusal: Refusal) -> Transparency:
    return Transparency(False, refusal_text(fun, refusal), refusal.reason, refusal.filename, refusal.line)


def explain_transparency(fun: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Transparency]:
    """Return a function of the arguments of `fun` that says whether `fun` is transparent, and why.

    `argnums` are the arguments with respect to which it is differentiated, as for `grad`. The function runs once, and
    is interpreted; nothing is kept. See `transparent`.

    >>> import numpy as np, fxgrad
    >>> print(fxgrad.explain_transparency(print)(1.0))
    print is not transparent: it is a builtin_function_or_method, not a function written in Python
    """
    transformation("explain_transparency", fun)

    @hide_frames
    def explain(*args: Any, **kwargs: Any) -> Transparency:
        if not (hasattr(fun, "__code__") or hasattr(fun, "__func__") or isinstance(fun, partial)):
            return _refused(fun, Refusal(f"it is a {type(fun).__name__}, not a function written in Python"))
        selected = select_arguments("explain_transparency", fun, argnums, args)
        avals = leaf_avals("explain_transparency", selected)
        tape = tape_with_values(fun, selected, avals)
        leaves, out_tree = record_flat(tape, bind_selected(fun, args, kwargs, selected), "explain_transparency", fun)
        traced = finish_trace(tape, leaves, out_tree)
        kind = Kind(selected.positions, selected.structure, tuple(avals))
        try:
            if traced.computed:
                raise Refusal("Python's control flow needs values of traced arrays")
            replay = make_replay(fun, kind, traced, args, kwargs, tape)
        except Refusal as refusal:
            return _refused(fun, refusal)
        plan = replay.plan
        reads = [(plan.titles[code], _tested(item)) for code, item in zip(
            (f"p{place}" for place in range(len(plan.loaded))), plan.loaded.values(), strict=True)]
        width = max((len(path) for path, _ in reads), default=0)
        rows = [f"  {path:{width}}  {tested}" for path, tested in reads]
        text = "\n".join([f"{function_name(fun)} is transparent; tested at every call:", *rows])
        return Transparency(True, text, reads=tuple(reads))
    return explain


def _tested(item: Any) -> str:
    """Return what is tested of a value that was read."""
    if isinstance(item, Data):
        return f"{array_aval(item.value)}: its content is read at every call"
    if isinstance(item, Known) and isinstance(item.value, np.ndarray):
        return f"{array_aval(item.value)}: its content is compared at every call"
    if isinstance(item, Known):
        return f"equal to {item.value!r}"
    value = item.value
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, dict):
        return "a dict"
    if isinstance(value, type(np)):
        return "the same module"
    if is_function(value):
        return "the same function"
    return f"an object of class {type(value).__name__}"
