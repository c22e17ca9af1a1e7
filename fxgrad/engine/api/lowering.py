"""`stablehlo`: the text of what is handed to XLA and to other compilers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxgrad.engine import tree
from fxgrad.engine.api.compiled import jit
from fxgrad.engine.core.program import Program
from fxgrad.engine.frontend.flat import transformation
from fxgrad.engine.tracebacks import hide_frames


def stablehlo(fun: Callable[..., Any] | Program, *, lines: bool = False, **options: Any) -> Callable[..., str]:
    """`stablehlo(f)(*args)` is the StableHLO text of the program of `f(*args)`, as XLA gets it.

    Nothing is compiled and nothing runs; only shapes and dtypes of the arguments matter: arrays, numbers,
    `ShapeDtypeStruct`s, containers of them. Of a `Program`, `stablehlo(program)()` is that of its own types. With
    `lines`, operations carry the file and line that recorded them. `options` are those of `jit`: `static_argnums`,
    `in_shardings` and others.

    The text is what other compilers that take StableHLO read (IREE, and through it others); `fxgrad.export` makes an
    artefact of it that keeps its meaning over versions.

    Raises `ArgumentError` for what is no array, and for arguments beside a program of other types.

    >>> import fxgrad, numpy as np
    >>> text = fxgrad.stablehlo(fxgrad.grad(lambda x: np.sum(np.sin(x))))(np.ones(3))
    >>> [line.split(":")[0].strip() for line in text.splitlines() if "cosine" in line]
    ['%0 = stablehlo.cosine %arg0']
    """
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
    """Types in the place of the arguments of a program."""
    types = [*(aval.struct for aval in program.in_avals[len(program.constants):])]
    if program.signature is None or program.signature.in_tree is None:
        return (*types,), {}
    args, kwargs = tree.unflatten(program.signature.in_tree, types)
    return args, kwargs
