"""Looking into a function while it is traced."""

from __future__ import annotations

from typing import Any

from fxgrad.core.tracer import Tracer
from fxgrad.debug_keys import check_key_reuse

__all__ = ["check_key_reuse", "value"]


def value(x: Any) -> Any:
    """The concrete value of `x` for looking at, never for computing with: derivatives do not flow through it.

    A NumPy or jax array where the value is known (under `grad`, `jvp`, `vjp`, `linearize`), `x` itself if it
    is no tracer. Raises `ConcretizationError` under `jit`, and on mapped arguments of `vmap`.

    >>> import fxgrad
    >>> seen = []
    >>> def f(x):
    ...     seen.append(float(fxgrad.debug.value(x * 2)))
    ...     return x * x
    >>> _ = fxgrad.grad(f)(3.0)
    >>> seen
    [6.0]
    """
    return x.tape.force(x, "fxgrad.debug.value()") if type(x) is Tracer else x
