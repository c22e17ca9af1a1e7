"""`fwd_and_bwd`: the forward and the backward pass of a function, as two functions that can be jitted separately."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.engine.api.arguments import transformation
from fxgrad.engine.api.compiled import jit
from fxgrad.engine.api.reverse import vjp


def fwd_and_bwd(fun: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool = False, jitted: bool = True,
                ) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the passes of `fun`, differentiated in its arguments at `argnums`: `(forward, backward)`.

    `forward(*args)` returns `(output, residuals)`, or `(output, residuals, aux)` with `has_aux`. `backward(residuals,
    cotangent)` returns the tuple of cotangents (with an int `argnums`, that argument's alone). Both are jitted unless
    `jitted` is False, so that a loop of steps compiles each of them once.

    >>> import numpy as np, fxgrad
    >>> forward, backward = fxgrad.fwd_and_bwd(lambda x, y: x * y, argnums=(0, 1))
    >>> output, residuals = forward(2.0, 5.0)
    >>> [float(cotangent) for cotangent in backward(residuals, 1.0)]
    [5.0, 2.0]
    """
    transformation("fwd_and_bwd", fun)

    def forward(*args: Any, **kwargs: Any) -> Any:
        called = (lambda *given: fun(*given, **kwargs)) if kwargs else fun
        return vjp(called, *args, argnums=argnums, has_aux=has_aux)

    def backward(residuals: Any, cotangent: Any) -> Any:
        return residuals(cotangent)

    return (jit(forward), jit(backward)) if jitted else (forward, backward)
