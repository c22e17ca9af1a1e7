"""`nan_safe`: derivatives to which masked values contribute exactly nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from fxgrad.engine.api.reverse import SafeInfo, before_derivatives, rewrite_before_derivatives
from fxgrad.engine.caches import cached
from fxgrad.engine.core.program import Program
from fxgrad.engine.frontend.calling import trace_for_rewrite
from fxgrad.engine.frontend.flat import TracedCall, transformation
from fxgrad.engine.higher_order.safe_call import wrap_safely
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.apply import apply_program
from fxgrad.engine.user_lines import function_name


@overload
def nan_safe(fun: Program) -> Program: ...
@overload
def nan_safe(fun: Callable[..., Any]) -> Callable[..., Any]: ...
def nan_safe(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fun` with derivatives in which 0 times an infinite or undefined slope is 0.

    The values of `fun` are unchanged. In its derivatives, forward, reverse and of any order, products of tangents or
    cotangents with slopes are strong: a factor that is exactly 0 makes 0, so values that `where`, `maximum`, `clip`, a
    mask or an index did not choose contribute nothing. An infinity that reaches the result stays infinite: the
    derivative of sqrt at 0 is, and that of a norm at 0 is 0. docs/appendix/nan-gradients.md lists the derivative at
    every singular point.

    Derivatives that `fun` takes itself are safe too. `fun` takes and returns arrays, numbers or containers of them. For
    a `Program` the result is one. It nests with all other transformations.

    Raises `ArgumentError` for an argument that is no array and no number.

    >>> import fxgrad, numpy as np
    >>> def length(x):
    ...     return np.sum(np.where(x > 0, np.sqrt(x), 0.0))
    >>> fxgrad.grad(length)(np.array([4.0, 0.0]))
    array([0.25,  nan])
    >>> fxgrad.grad(fxgrad.nan_safe(length))(np.array([4.0, 0.0]))
    array([0.25, 0.  ])
    """
    if isinstance(fun, Program):
        signature = fun.signature
        made: Program = wrap_safely(fun, "program" if signature is None else signature.name)
        return made

    @transformation("nan_safe", fun)
    @hide_frames
    def safely(*args: Any, **kwargs: Any) -> Any:
        with rewrite_before_derivatives(_compose_safe(before_derivatives.get())):
            traced, leaves = trace_for_rewrite("nan_safe", fun, args, kwargs)
        program = wrap_safely(traced.program, function_name(fun))
        return traced.rebuild(apply_program(program, traced.inputs(*leaves)))
    safely.safe = SafeInfo(fun, _compose_safe)  # type: ignore[attr-defined]
    return safely


@cached("functions of safe traces", 256)
def _compose_safe(rewriting: Callable[[TracedCall], TracedCall] | None) -> Callable[[TracedCall], TracedCall]:
    """Return the rewrite of traces within a safe function, after `rewriting`; equal inputs give the same object."""
    return _safe_trace if rewriting in (None, _safe_trace) else lambda traced: _safe_trace(rewriting(traced))


def _safe_trace(traced: TracedCall) -> TracedCall:
    """Return the trace to differentiate as one safe call, which recomputes values that forcing has computed."""
    return TracedCall(wrap_safely(traced.program, "safe"), traced.captured, traced.out_tree)
