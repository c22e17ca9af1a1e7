"""Tracebacks without the frames of fxgrad and jax, so that what remains is the user's own code.

The frame that raises an error again stays, since Python adds it; IPython and pytest leave out frames in which
`__tracebackhide__` is set.
"""

from __future__ import annotations

import dis
import functools
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, cast

from fxgrad import errors
from fxgrad.engine import config, user_lines
from fxgrad.engine.caches import cached
from fxgrad.engine.pytorch_names import add_pytorch_hint

_Function = TypeVar("_Function", bound=Callable[..., Any])
_LEFT_OUT = tuple(f"{os.sep}{package}{os.sep}" for package in ("jax", "jaxlib"))


_REFUSED_BY_JAX = "'fxgrad.engine.tracing.tracer.Tracer'"
_INSTEAD = ("It is a traced array of fxgrad. Wrap the function that calls jax, and pass the array as an argument: "
            "fxgrad.from_jax(f)(x); or use the function of the same name in fxgrad")


_NO_NDARRAY = ("It is a traced array of fxgrad, and no np.ndarray. Ask np.ndim(x) in the place of isinstance(x, "
               "np.ndarray); functions of fxgrad.python_control_flow get the answer of NumPy from isinstance too")


def _add_hint(error: BaseException) -> None:
    """Add what to write to a message about a traced array, whose class jax, or code of the user's, does not take."""
    if type(error) is not TypeError or not error.args or _REFUSED_BY_JAX not in str(error.args[0]) or any(
            hint in error.args[0] for hint in (_INSTEAD, _NO_NDARRAY)):
        return
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    code = None if last is None else last.tb_frame.f_code
    is_of_user = code is not None and last is not None and user_lines.is_user_file(
        code.co_filename) and code.co_code[last.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    error.args = (f"{error.args[0].rstrip()}\n{_NO_NDARRAY if is_of_user else _INSTEAD}",)


def shorten_traceback(error: BaseException) -> BaseException:
    """Return `error` with the frames of fxgrad and jax removed from its traceback, unless settings keep them.

    If the refused call is written as in PyTorch, or is one of jax's, the message gets a hint. If an exception that is
    not one of fxgrad's comes out of fxgrad's own code, that frame stays.
    """
    error = add_pytorch_hint(error)
    _add_hint(error)
    if not config.traceback_filtering:
        return error
    frames: list[TracebackType] = []
    traceback = error.__traceback__
    while traceback is not None:
        is_last = traceback.tb_next is None and not isinstance(error, errors.FxgradError)
        if is_last or not _is_left_out(traceback.tb_frame.f_code.co_filename):
            frames.append(traceback)
        traceback = traceback.tb_next
    kept: TracebackType | None = None
    for frame in reversed(frames):
        kept = TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return error.with_traceback(kept)


@cached("files left out of tracebacks", 4096)
def _is_left_out(filename: str) -> bool:
    return user_lines.is_library_file(filename) or (user_lines.is_installed_file(filename)
                                                    and any(each in filename for each in _LEFT_OUT))


def hide_frames(function: _Function) -> _Function:
    """Wrap a public function so that its errors have shortened tracebacks."""
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  (raised again)
            __tracebackhide__ = True
            raise shorten_traceback(error)  # noqa: B904
    return cast(_Function, wrapper)
