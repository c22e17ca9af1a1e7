"""Errors of compiled programs, translated: a callback's error is raised again, and the user's line is added."""

from __future__ import annotations

import heapq
import operator
from collections import deque

import jax

from fxgrad import errors
from fxgrad.engine import user_lines
from fxgrad.engine.core.program import Program, inner_first
from fxgrad.engine.executors.lines import operation_place

AT_RUN_TIME = jax.errors.JaxRuntimeError, FloatingPointError
"""Exceptions of jax from failing compiled programs."""
_EXHAUSTED = "RESOURCE_EXHAUSTED"
_INVALID = "invalid value (nan) encountered in ", "invalid value (inf) encountered in "

_OF_PIECES = "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape"
"""Calls that remain in a compiled program if it is for a single device, and arrays must be sharded."""

_raised: deque[BaseException] = deque(maxlen=4)  # few: each keeps its frames
"""Recent errors of callbacks, since XLA passes only the text of an error."""


def note_callback_error(error: BaseException, what: str, line: str) -> None:
    """Keep the error of a callback, called by the operation `what` in the user's `line`, for `translate_error`."""
    if line:
        _add_note(error, f"  in {what}, called by a compiled program at {line}")
    _raised.append(error)


def translate_error(error: BaseException) -> BaseException:
    """Return the exception to raise instead of `error`, with which a compiled program or its compilation ended.

    This is the error of the user's callback, if one failed; for a NaN or an infinity, the message of un-jitted code;
    for a mesh without devices, a message with the fix; otherwise the error itself, with the user's line as a note.
    """
    if isinstance(error, errors.FxgradError):
        return error
    if isinstance(error, jax.errors.JaxRuntimeError):
        if any(call in str(error) for call in _OF_PIECES):
            return errors.UnsupportedError(user_lines.at_user_line(
                "shard_map: its mesh has no devices (jax.sharding.AbstractMesh), and none of its arrays is on a "
                "device. Make the mesh with fxgrad.make_mesh, call within jax.set_mesh(mesh), or pass arrays of "
                "NumPy and leave out jit, which needs none"))
        return _callback_error(str(error)) or error
    place = operation_place(error.__traceback__)
    if isinstance(error, FloatingPointError) and place:
        for text, what in zip(_INVALID, ("NaN", "infinity"), strict=True):
            if str(error).startswith(text):
                operation = str(error)[len(text):]
                return FloatingPointError(f"{what} in the result of {operation}, in a compiled program\n  at {place}")
    if place:
        _add_note(error, f"  at {place}")
    return error


def _add_note(error: BaseException, note: str) -> None:
    """Add a note to an error unless it has the note: errors may pass more than once."""
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether a program ended for lack of memory."""
    return isinstance(error, jax.errors.JaxRuntimeError) and str(error).startswith(_EXHAUSTED)


def note_memory(error: BaseException, program: Program) -> None:
    """Add to an out-of-memory error the lines of the program that make the largest values."""
    made = [(var.aval.nbytes, str(equation.primitive), var.aval, equation.source)
            for inner in inner_first(program) for equation in inner.equations for var in equation.outputs]
    largest = heapq.nlargest(3, made, key=operator.itemgetter(0))
    lines = [f"    {aval} = {name}, {nbytes:,} bytes" + ("" if source is None else (
        f", at {source.place} (in {source.code.co_name})")) for nbytes, name, aval, source in largest]
    error.add_note("\n".join((
        "  The largest values that the program makes:", *lines,
        ("  Write fxgrad.memory_analysis(f)(*args) to see what is alive at the peak; fxgrad.checkpoint(f), or "
         "grad(f, memory_budget=...), keeps less"))))


def _callback_error(text: str) -> BaseException | None:
    """Return the error of the callback that made XLA fail with `text`."""
    for error in reversed([*_raised]):
        if f"{type(error).__name__}: {error}".rstrip(": ") in text:
            _raised.remove(error)
            return error
    return None
