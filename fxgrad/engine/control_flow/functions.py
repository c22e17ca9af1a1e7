"""`python_control_flow`: functions whose control flow may depend on traced values, converted from their source."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from fxgrad.engine.control_flow import operators
from fxgrad.engine.control_flow.conversion import ConvertedFunction, install_operators
from fxgrad.engine.user_lines import at_user_line, function_name, is_user_file
from fxgrad.errors import ArgumentError, UnsupportedError

install_operators(operators)


def python_control_flow(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return `f` with Python's control flow converted, so that it may depend on traced values.

    `if`, `while`, `for`, `break`, `continue`, `return`, conditional expressions, `and`, `or`, `not`, chained
    comparisons and `match` on numbers become `cond` and `while_loop` where their condition is traced without a value,
    as under `jit` and `vmap`. Where Python knows the condition they run as written, and record the same program as `f`.
    Functions of yours that `f` calls are converted too; libraries are not. Of an object, its class's `__call__` is
    converted.

    Raises `UnsupportedError` if the source of `f` cannot be had or is not what runs, and for generators; and, while
    tracing, `ControlFlowError` with the user's line for code that cannot be compiled.

    >>> import fxgrad
    >>> @fxgrad.jit
    ... @fxgrad.python_control_flow
    ... def root(a):
    ...     x = a
    ...     while abs(x * x - a) > 1e-6 * a:
    ...         x = 0.5 * (x + a / x)
    ...     return x
    >>> round(float(root(2.0)), 4)
    1.4142
    """
    if isinstance(f, ConvertedFunction):
        return f
    if isinstance(f, functools.partial):
        return functools.partial(python_control_flow(f.func), *f.args, **f.keywords)
    if isinstance(f, MethodType) and isinstance(f.__func__, FunctionType):
        return MethodType(ConvertedFunction(f.__func__), f.__self__)
    if not isinstance(f, FunctionType):
        call = getattr(type(f), "__call__", None)  # noqa: B004  (the function itself)
        if isinstance(call, FunctionType) and is_user_file(call.__code__.co_filename):
            return MethodType(ConvertedFunction(call), f)  # an object of a class of yours
        if not callable(f):
            raise ArgumentError(at_user_line(
                f"python_control_flow: a function is needed, got {type(f).__name__}. Pass the function itself"))
        raise UnsupportedError(at_user_line(
            f"python_control_flow: {function_name(f)} is a {type(f).__name__}, not a function written in Python, so it "
            "has no source to convert. Wrap the function that calls it"))
    return ConvertedFunction(f)
