"""Compilation: `jit`, on jax's own dispatch, cache, static arguments and donation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any, cast

from fxgrad.engine.api.arguments import transformation
from fxgrad.engine.api.jitted_functions import JittedFunction, dispatching
from fxgrad.engine.api.stored import StoreExplanation
from fxgrad.engine.api.switches import Jitted
from fxgrad.engine.frontend.flat import require_function


def jit(fun: Callable[..., Any] | None = None, *, in_shardings: Any = None, out_shardings: Any = None,
        static_argnums: int | Sequence[int] | None = None, static_argnames: str | Iterable[str] | None = None,
        donate_argnums: int | Sequence[int] | None = None, donate_argnames: str | Iterable[str] | None = None,
        inline: bool = False, keep_unused: bool = False, compiler_options: dict[str, Any] | None = None) -> Any:
    """Return `fun` compiled by XLA, once for every combination of shapes, dtypes and static arguments.

    Arguments are arrays, numbers, or containers of them. Static arguments are any hashable Python values; each new
    value recompiles `fun`. Donated arguments give their memory to the outputs, where the platform supports it. float64
    and int64 arguments keep their dtype. The outputs are `jax.Array`s, with one exception: if no argument is a
    `jax.Array` and jax's x64 mode is off, 64-bit outputs are `fxgrad.Array`s (read-only, sharing XLA's memory), since
    jax's operators would narrow them. Results computed from Python numbers alone are weakly typed. `lower(*args)` and
    `trace(*args)` are jax's. Inside other transformations the call is recorded and stays compiled.

    `in_shardings` and `out_shardings` place positional arguments and results on a mesh: one jax sharding for all, or a
    container of them that is a prefix of the arguments, or of the output; None leaves the placement to the argument, or
    to XLA. Results are `jax.Array`s then. Inside other transformations they are constraints on the values.

    Without `fun` it is a decorator, `@jit(static_argnums=0)`. `compiler_options` are XLA's, by name.

    A function re-created on every call, such as a lambda in a loop, is retraced. It is recompiled only if it records
    other operations than the one before; closed-over values make no difference.

    Raises `ArgumentError` for unhashable static arguments, for invalid shardings and for shardings that do not fit the
    containers, `ShapeError` where they do not fit the shapes, `ConcretizationError` where `fun` needs the value of a
    traced array.

    >>> import numpy as np, fxgrad
    >>> fast = fxgrad.jit(lambda x: np.sum(x * 2.0))
    >>> float(fast(np.array([1.0, 2.0])))
    6.0
    """
    if fun is None:
        return functools.partial(jit, in_shardings=in_shardings, out_shardings=out_shardings,
                                 static_argnums=static_argnums, static_argnames=static_argnames,
                                 donate_argnums=donate_argnums, donate_argnames=donate_argnames, inline=inline,
                                 keep_unused=keep_unused, compiler_options=compiler_options)
    state = JittedFunction(fun, static_argnums, static_argnames, donate_argnums, donate_argnames, inline,
                            keep_unused=keep_unused, compiler_options=compiler_options, in_shardings=in_shardings,
                            out_shardings=out_shardings)

    # A function with attributes, since Python calls it faster than an object.
    jitted = cast(Jitted, dispatching(state, fun))
    jitted.lower, jitted.trace, jitted.clear_cache = (  # type: ignore[method-assign]
        state.lower, state.trace, state.clear_cache)
    return jitted


def jit_options(fun: Callable[..., Any]) -> tuple[Callable[..., Any], dict[str, Any]] | None:
    """Return the function that a jitted one compiles, and the options of `jit`; None if `fun` is not jitted."""
    state = _state_of(fun)
    return None if state is None else state.options


def _state_of(fun: Callable[..., Any]) -> JittedFunction | None:
    """Return the state of a jitted function; None if `fun` is not jitted."""
    state = getattr(getattr(fun, "lower", None), "__self__", None)
    return state if isinstance(state, JittedFunction) else None


def explain_store(fun: Callable[..., Any]) -> Callable[..., StoreExplanation]:
    """Return a function of the arguments of `fun` that says whether the store on disk keeps its executable, and why.

    `fun` is a jitted function, or one that is jitted here. The store is that of the setting `executable_store`, which
    need not be set. Nothing is traced or compiled. See docs/appendix/stored-executables.md.

    >>> import numpy as np, fxgrad
    >>> print(fxgrad.explain_store(lambda x: x + np.random.normal())(1.0).reason)
    it uses numpy.random.RandomState.normal, whose results or effects its content does not decide
    """
    require_function("explain_store", fun)
    found = _state_of(fun)
    if found is None:
        return explain_store(jit(fun))

    @transformation("explain_store", fun)
    def explain(*args: Any, **kwargs: Any) -> StoreExplanation:
        return found.explain_store(args, kwargs)
    return explain


_CALL = next(each for each in dispatching.__code__.co_consts if getattr(each, "co_name", "") == "call")
"""The code object of every jitted function."""


def is_jitted_frame(frame: FrameType) -> bool:
    """Return whether a frame of the stack is the call of a jitted function."""
    return frame.f_code is _CALL
