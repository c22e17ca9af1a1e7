"""`stablehlo`: the StableHLO text passed to XLA and to other compilers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxgrad.engine import tree
from fxgrad.engine.api.compiled import jit
from fxgrad.engine.core.program import Program
from fxgrad.engine.frontend.flat import require_function, transformation
from fxgrad.engine.tracebacks import hide_frames


def stablehlo(fun: Callable[..., Any] | Program, *, lines: bool = False, **options: Any) -> Callable[..., str]:
    """Return a function of `fun`'s arguments that returns the StableHLO text of its program, as XLA gets it.

    `stablehlo(f)(*args)` compiles nothing and runs nothing; only shapes and dtypes of the arguments matter: arrays,
    numbers, `ShapeDtypeStruct`s, containers of them. For a `Program`, `stablehlo(program)()` uses its own types. With
    `lines`, operations carry the file and line that recorded them. `options` are those of `jit`: `static_argnums`,
    `in_shardings` and others.

    Other compilers that take StableHLO read this text (IREE, and through it others); `fxgrad.export` makes an artefact
    of it that keeps its meaning over versions.

    Raises `ArgumentError` for an argument that is no array, and for arguments beside a program of other types.

    >>> import fxgrad, numpy as np
    >>> text = fxgrad.stablehlo(fxgrad.grad(lambda x: np.sum(np.sin(x))))(np.ones(3))
    >>> [line.split(":")[0].strip() for line in text.splitlines() if "cosine" in line]
    ['%0 = stablehlo.cosine %arg0']
    """
    require_function("stablehlo", fun)
    jitted = fun if hasattr(fun, "lower") and not options else jit(fun, **{"keep_unused": True, **options})

    @transformation("stablehlo", fun)
    @hide_frames
    def lowered(*args: Any, **kwargs: Any) -> str:
        if isinstance(fun, Program) and not args and not kwargs:
            args, kwargs = _arguments_of(fun)
        text: str = jitted.lower(*args, **kwargs).as_text(dialect="stablehlo", debug_info=lines)
        return text
    return lowered


def _arguments_of(program: Program) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return types in place of the arguments of a program."""
    types = [*(aval.struct for aval in program.in_avals[len(program.constants):])]
    if program.signature is None or program.signature.in_tree is None:
        return (*types,), {}
    args, kwargs = tree.unflatten(program.signature.in_tree, types)
    return args, kwargs
