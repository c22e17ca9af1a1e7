"""`argnames`: the arguments of a transformation chosen by name, passed by position or by keyword."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.engine.frontend.flat import transformation
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError

Argnames = str | Sequence[str]


def by_names(what: str, transform: Callable[..., Any], fun: Callable[..., Any], argnames: Argnames, argnums: Any,
             **options: Any) -> Callable[..., Any]:
    """Return `transform(fun)` for the arguments of these names: one, or a sequence, for which results are tuples.

    Raises `ArgumentError` if `argnums` is given as well, for a name that `fun` does not have, and at a call without it.
    """
    single = isinstance(argnames, str)
    names: tuple[str, ...] = (argnames,) if isinstance(argnames, str) else tuple(argnames)
    if argnums != 0:
        raise ArgumentError(at_user_line(
            f"{what} takes argnums or argnames, and got argnums={argnums!r} and argnames={argnames!r}. Leave one out"))
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ArgumentError(at_user_line(
            f'{what}: argnames={argnames!r}, where a name or a sequence of distinct names is needed, such as "x"'))
    signature = inspect.signature(fun)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    unknown = [name for name in names if name not in signature.parameters]
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
        raise ArgumentError(at_user_line(
            f"{what}: argnames={argnames!r}, and {function_name(fun)} has no parameter {unknown[0]}; it has "
            f"{', '.join(signature.parameters)}"))

    def of_values(*given: Any) -> Any:
        *values, args, kwargs = given
        bound = signature.bind_partial(*args, **kwargs)  # with None for those of these names
        further = {name: value for name, value in zip(names, values, strict=True) if name in unknown}
        bound.arguments.update((name, value) for name, value in zip(names, values, strict=True) if name not in unknown)
        return fun(*bound.args, **{**bound.kwargs, **further})

    # Messages name the function, and arguments by the names of its parameters.
    of_values.__name__ = of_values.__qualname__ = getattr(fun, "__name__", type(fun).__name__)
    others = [name for name in ("args", "kwargs", "args_", "kwargs_") if name not in names][:2]
    of_values.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in (*names, *others)])
    transformed = transform(of_values, 0 if single else tuple(range(len(names))), **options)

    @transformation(what, fun)
    @hide_frames
    def of_arguments(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        given = {**bound.arguments, **{name: kwargs[name] for name in unknown if name in kwargs}}
        for name in names:
            if name not in given:
                raise ArgumentError(at_user_line(
                    f"{what}: argnames={argnames!r}, and {function_name(fun)} was called without {name}. Pass it: a "
                    "default is a constant"))
        values = [given[name] for name in names]
        args = tuple([None if name in names else value
                      for name, value in zip(_positions(signature, args), args, strict=True)])
        rest = {name: value for name, value in kwargs.items() if name not in names}
        return transformed(*values, args, rest)
    return of_arguments


def _positions(signature: inspect.Signature, args: Sequence[Any]) -> list[str]:
    """Return the name of the parameter that each positional argument belongs to; "" for those of `*args`."""
    names = [name for name, parameter in signature.parameters.items() if parameter.kind in (
        inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    return [*names, *[""] * len(args)][:len(args)]
