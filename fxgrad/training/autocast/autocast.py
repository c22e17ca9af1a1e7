"""`autocast`: the function with products in half precision and the rest as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxgrad import dtypes
from fxgrad.errors import ArgumentError
from fxgrad.extend import at_user_line, convert, hide_frames, transformation
from fxgrad.extend.tracing import SELECTIVE, trace_for_rewrite
from fxgrad.training import autocast_policies
from fxgrad.training.autocast.casting import cast_program, is_castable
from fxgrad.training.autocast_policies import AutocastPolicy, half_dtype

__all__ = ["autocast"]


def autocast(fun: Callable[..., Any], policy: AutocastPolicy | Any = autocast_policies.bfloat16, *,
             output_dtype: Any = None) -> Callable[..., Any]:
    """Return `fun` with matrix products and convolutions in half precision; all else keeps its dtype.

    Arguments, sums and results keep their dtypes.

    `policy` assigns precisions to operations: `fxgrad.autocast_policies.bfloat16`, `float16`, one derived from them by
    `with_`, or just a dtype. Operands of float32 and float64 are cast where the policy requires it, each value once, by
    `convert_element_type` equations in the program. Results have the dtypes that they have without `autocast`; with
    `output_dtype` all real ones have that one. Gradients have the dtypes of the arguments. Integers, bools, complex
    numbers, random keys, and values already in half precision are left unchanged.

    Computations of `fun` that do not depend on its arguments are unchanged. It nests with all other transformations in
    any order.

    Raises `ArgumentError` if `policy` is not a policy.

    >>> import numpy as np, fxgrad
    >>> def layer(w, x):
    ...     return np.tanh(x @ w)
    >>> w, x = np.ones((3, 2), np.float32), np.ones((4, 3), np.float32)
    >>> print(fxgrad.text.program_text(fxgrad.make_program(fxgrad.autocast(layer))(w, x), source=False))
    program autocast(layer)(w: f32[3,2], x: f32[4,3]) -> f32[4,2]:
      return f32(tanh(bf16(x) @ bf16(w)))
    """
    chosen = policy if isinstance(policy, AutocastPolicy) else _policy_of(policy)
    wanted = None if output_dtype is None else _output_dtype(output_dtype)

    @transformation("autocast", fun)
    @hide_frames
    def cast(*args: Any, **kwargs: Any) -> Any:
        traced, leaves = trace_for_rewrite("autocast", fun, args, kwargs, mode=SELECTIVE)
        program = traced.program
        derived = cast_program(program, chosen, None, (False,) * len(program.inputs),
                               tuple(wanted is not None and is_castable(aval) for aval in program.out_avals))
        outputs = derived(traced.inputs(*leaves))
        if wanted is not None:
            outputs = [convert(output, wanted) if is_castable(aval) else output
                       for output, aval in zip(outputs, program.out_avals, strict=True)]
        return traced.rebuild(outputs)
    return cast


def _policy_of(value: Any) -> AutocastPolicy:
    try:
        dtype = half_dtype(value)
    except (TypeError, ValueError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(at_user_line(
            f"autocast: the policy is {value!r}, where one of fxgrad.autocast_policies is needed, or a dtype of half "
            "precision: fxgrad.autocast(f, fxgrad.autocast_policies.bfloat16)")) from None
    return AutocastPolicy(dtype)


def _output_dtype(value: Any) -> Any:
    dtype = dtypes.canonical(value)
    if not dtypes.is_floating(dtype):
        raise ArgumentError(at_user_line(
            f"autocast: output_dtype is {dtype.name}, where a real floating-point dtype is needed, such as "
            "np.float32"))
    return dtype
