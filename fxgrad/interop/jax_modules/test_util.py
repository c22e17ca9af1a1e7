"""`check_grads`, `check_jvp` and `check_vjp` under the names that `jax.test_util` has for them.

>>> import fxgrad.numpy as fnp
>>> check_grads(lambda x: fnp.sin(x) * x, (1.5,), order=2, modes=["rev"])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.testing import gradients
from fxgrad.testing.gradients import check_jvp, check_vjp

__all__ = ["check_grads", "check_jvp", "check_vjp"]


def check_grads(f: Callable[..., Any], args: Sequence[Any], order: int, modes: Sequence[str] = gradients.MODES,
                atol: float | None = None, rtol: float | None = None, eps: float | None = None) -> None:
    """Compare the derivatives of `f` at `args` up to `order` with central differences; raises `AssertionError`.

    It is `fxgrad.testing.check_grads`, which calls `f` with floating arguments in float64 whatever their dtype: so its
    tolerances are those of float64 by default.

    >>> check_grads(lambda x: x ** 3, (2.0,), order=3)
    """
    named = [mode for mode in gradients.MODES if mode in modes] if isinstance(modes, str) else modes
    gradients.check_grads(f, args, order, named, atol, rtol, eps)
