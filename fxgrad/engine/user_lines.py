"""The user's lines and names in messages, programs and profilers: which stack frames run user code."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, TypeVar

from fxgrad import errors
from fxgrad.engine.caches import Cache, clear_caches
from fxgrad.errors import FxgradError

Wrapper = TypeVar("Wrapper", bound=Callable[..., Any])

PACKAGE = os.path.dirname(os.path.abspath(errors.__file__)) + os.sep
"""The folder of the package, which contains no user files."""

_PYTHON = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
"""The folders of Python's own modules."""

launchers: set[str] = set()
"""Scripts that only start the command line: they are not user code."""


def hide_launcher(filename: str) -> None:
    """Mark the script `filename`, which only starts the command line, as no user code."""
    launchers.add(filename)
    clear_caches()  # cached results of `is_user_file`


_user_files = Cache("files of users", 4096)
_is_known = _user_files.get


def is_user_file(filename: str) -> bool:
    """Return whether a file belongs neither to fxgrad nor to Python, NumPy, jax or another library."""
    known: bool | None = _is_known(filename)
    if known is None:
        known = _user_files.add(filename, not (
            is_library_file(filename) or filename in launchers or is_installed_file(filename)
            or filename.startswith(("<__array_function__", "<frozen ", *_PYTHON))))
    return known


def is_installed_file(filename: str) -> bool:
    """Return whether a file is one of an installed package; Debian and Colab have another name for their folder."""
    return "site-packages" in filename or "dist-packages" in filename


def is_library_file(filename: str) -> bool:
    """Return whether a file is fxgrad's, or code that it generated."""
    return filename.startswith(PACKAGE) or filename == "<fxgrad>"


def user_frame() -> FrameType | None:
    """Return the innermost frame on the stack that runs user code."""
    frame: FrameType | None = sys._getframe(1).f_back  # who calls this is no user
    while frame is not None:
        filename = frame.f_code.co_filename
        known = _is_known(filename)  # most are: a call less for each frame
        if (known or (known is None and is_user_file(filename))) and not _is_of_dataclass(frame):
            return frame
        frame = frame.f_back
    return None


def _is_of_dataclass(frame: FrameType) -> bool:
    """Return whether a frame runs a method that Python made for a dataclass of the library."""
    return frame.f_code.co_filename == "<string>" and frame.f_globals.get("__name__", "").startswith("fxgrad.")


Place = tuple[Any, int] | None
Refused = tuple[FxgradError, Place]
"""An error that explains why a number was refused, and the user's code and line of the refusal."""


def running_place() -> Place:
    """Return the running code and line of the user."""
    frame = user_frame()
    return None if frame is None else (frame.f_code, frame.f_lineno)


def masks_refusal(error: Exception, refused: Refused | None) -> bool:
    """Return whether NumPy raised `error` in place of the error that refused it a number."""
    return refused is not None and not isinstance(error, FxgradError) and _code_and_line(error) == refused[1]


def _code_and_line(error: BaseException) -> Place:
    """Return the code and the line of the user's innermost frame that an error passed."""
    place = None
    traceback = error.__traceback__
    while traceback is not None:
        if is_user_file(traceback.tb_frame.f_code.co_filename):
            place = traceback.tb_frame.f_code, traceback.tb_lineno
        traceback = traceback.tb_next
    return place


def user_location(error: BaseException) -> str | None:
    """Return the user's innermost line that an error passed, as messages name it; None if there is none."""
    return line_at(_code_and_line(error)) or None


def user_line() -> str:
    """Return the user's own line as `file:line (in function)`, for the end of a message; "" if there is none."""
    return line_at(running_place())


def line_at(place: Place) -> str:
    """Return a place of the user's code as `user_line` does."""
    return "" if place is None else f"{file_name(place[0].co_filename)}:{place[1]} (in {place[0].co_name})"


def file_name(filename: str) -> str:
    """Return the name of a file in messages: without folders, and a cell of a notebook as `In[2]`."""
    notebook = sys.modules.get("IPython")
    shell = notebook.get_ipython() if notebook is not None and hasattr(notebook, "get_ipython") else None
    named = getattr(getattr(shell, "compile", None), "format_code_name", None)
    cell = named(filename) if named is not None else None
    return str(cell[1]) if cell else os.path.basename(filename)


def at_user_line(message: str) -> str:
    """Return `message` followed by the user's own line, if there is one."""
    line = user_line()
    return f"{message}\n  at {line}" if line else message


def add_user_line(error: FxgradError) -> FxgradError:
    """Return an error whose message ends with the user's own line, which is added where it has none."""
    message = str(error)
    if "\n  at " not in message:
        error.args = (at_user_line(message),)
    return error


def named_as(function: Callable[..., Any], updated: Sequence[str] = functools.WRAPPER_UPDATES,
             ) -> Callable[[Wrapper], Wrapper]:
    """Return the decorator of a wrapper of a user's function, as `functools.wraps`.

    An object that is called may have anything as its `__name__`, and a function takes only texts.
    """
    unfit = [name for name in ("__name__", "__qualname__") if not isinstance(getattr(function, name, ""), str)]
    assigned = [name for name in functools.WRAPPER_ASSIGNMENTS if name not in unfit]

    def decorate(wrapper: Wrapper) -> Wrapper:
        functools.update_wrapper(wrapper, function, assigned, updated)
        return wrapper
    return decorate


def function_name(function: Any) -> str:
    """Return the name of `function` (a function, or the name itself) in messages and printed programs."""
    if isinstance(function, str):
        return function
    name = getattr(function, "__name__", None) or type(function).__name__
    return "function" if name == "<lambda>" else str(name)
