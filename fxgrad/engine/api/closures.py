"""`closure_convert` turns closed-over arrays into arguments; `custom_gradient` defines gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxgrad.engine import dtypes, tree
from fxgrad.engine.api.arguments import match_trees
from fxgrad.engine.api.custom import custom_vjp
from fxgrad.engine.core.avals import struct_aval
from fxgrad.engine.frontend.flat import plain_outside, require_function, trace_flat, transformation
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.apply import apply_program
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.trace import UNSHARED
from fxgrad.engine.tracing.tracer import Tracer


def custom_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the gradient defined by `fun`, which returns `(output, rule)`; `rule` maps cotangents.

    `rule(cotangent)` returns a tuple with one cotangent for each argument, or the cotangent alone if there is one
    argument. It may close over values that `fun` has computed.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> @fxgrad.custom_gradient
    ... def clipped(x):
    ...     return x * x, lambda g: fnp.clip(2.0 * x * g, -1.0, 1.0)
    >>> float(clipped(3.0)), float(fxgrad.grad(clipped)(3.0))
    (9.0, 1.0)
    """
    @transformation("custom_gradient", fun)
    def with_gradient(*args: Any, **kwargs: Any) -> Any:
        structures: list[Any] = []

        def output_alone(*given: Any) -> Any:
            return fun(*given, **kwargs)[0]

        def forward(*given: Any) -> Any:
            output, rule = fun(*given, **kwargs)
            like = tree.map(aval_of, output)
            converted, captured = hoist_closure(rule, (like,), of_integers=True)
            structures.append((converted, len(captured)))
            return output, tuple(captured)

        def backward(residuals: tuple[Any, ...], cotangent: Any) -> Any:
            converted, _ = structures[-1]
            result = converted(cotangent, *residuals)
            return tuple(result) if isinstance(result, tuple | list) else (result,)

        ruled = custom_vjp(output_alone)
        ruled.defvjp(forward, backward)
        return ruled(*args)
    return with_gradient


@hide_frames
def closure_convert(fun: Callable[..., Any], *example_args: Any) -> tuple[Callable[..., Any], list[Any]]:
    """Return `fun` with the traced arrays that it closes over as additional last arguments, and a list of them.

    `example_args` are arrays, or `ShapeDtypeStruct`s, of the argument types. Only floating-point tracers become
    arguments; all other captured values stay inside. `fun` is traced once, here.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> def solve(x):
    ...     step, captured = fxgrad.closure_convert(lambda y: y * x, 1.0)
    ...     assert len(captured) == 1
    ...     return step(2.0, *captured)
    >>> float(fxgrad.grad(solve)(3.0))
    2.0
    """
    require_function("closure_convert", fun, "f, x")
    return hoist_closure(fun, example_args)


def hoist_closure(fun: Callable[..., Any], examples: tuple[Any, ...], of_integers: bool = False,
                  ) -> tuple[Callable[..., Any], list[Any]]:
    """Return what `closure_convert` does; tracers that are no floating-point ones are arguments too, if asked for."""
    leaves, structure = tree.flatten(examples)
    avals = [struct_aval(leaf) or (leaf if hasattr(leaf, "strong") else aval_of(leaf)) for leaf in leaves]
    traced = trace_flat(lambda *tracers: fun(*tree.unflatten(structure, tracers)), avals, "closure_convert", fun,
                        mode=UNSHARED)
    hoisted = [index for index, value in enumerate(traced.captured)
               if type(value) is Tracer and (of_integers or dtypes.is_inexact(value.dtype))]

    def converted(*args: Any) -> Any:
        given, found = args[:len(examples)], args[len(examples):]
        values = match_trees("closure_convert", "the example arguments", structure, "the arguments", given)
        captured = list(traced.captured)
        for index, value in zip(hoisted, found, strict=True):
            captured[index] = value
        return tree.unflatten(traced.out_tree, apply_program(traced.program, [*plain_outside(captured), *values]))
    return converted, [traced.captured[index] for index in hoisted]


__all__ = ["closure_convert", "custom_gradient"]
