"""`to_jax`: a function of fxgrad's as one that jax traces, and that fxgrad's rules differentiate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from fxgrad.engine import tree
from fxgrad.engine.core.avals import Aval, check_dtype, vma_of_jax
from fxgrad.engine.executors.xla import x64
from fxgrad.engine.frontend.flat import argument_leaf_names, leaf_aval, trace_flat, transformation
from fxgrad.engine.tracing.trace import SHARED
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import function_name
from fxgrad.extend import hide_frames
from fxgrad.interop.calls import NARROWER, as_typed_number
from fxgrad.interop.emission import apply_in_jax
from fxgrad.interop.manual import mapped_axis_sizes, mesh_around


def to_jax(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fn`, a function written for fxgrad, as a jax function: jax may jit, vmap, shard and differentiate it.

    It is traced for the types of its arguments, as under `jit`, and becomes operations of `jax.lax`. Its derivatives of
    every order are fxgrad's, rules of `custom_jvp` and `custom_vjp` included. Arguments and results are containers of
    arrays and numbers; other leaves among the arguments, such as strings and functions, are passed on unchanged. 64-bit
    dtypes of arrays are kept; results of Python's numbers alone have jax's default width. It may close over jax
    tracers.

    Raises `ArgumentError` if `fn` is not a function or returns anything but arrays, and fxgrad's errors for functions
    that need concrete values (`ConcretizationError`).

    >>> import fxgrad, fxgrad.numpy as fnp, jax
    >>> f = fxgrad.to_jax(lambda x: fnp.sum(fnp.sin(x) * 2))
    >>> print(jax.jit(jax.grad(f))(jax.numpy.array([0.0, 1.0])))
    [2.        1.0806046]
    """
    @transformation("to_jax", fn)
    @hide_frames
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree.flatten((args, kwargs))
        leaves = [*map(as_typed_number, leaves)]
        if any(type(leaf) is Tracer for leaf in leaves):
            return fn(*args, **kwargs)  # it is fxgrad that traces the call
        avals = [leaf_aval(leaf) for leaf in leaves]
        for leaf, aval in zip(leaves, avals, strict=True):
            if aval is None:
                check_dtype(leaf, f"to_jax: an argument of {function_name(fn)}")
        values = [leaf for leaf, aval in zip(leaves, avals, strict=True) if aval is not None]

        def call(*tracers: Any) -> Any:
            given = iter(tracers)
            again, keywords = tree.unflatten(structure, [leaf if aval is None else next(given)
                                                         for leaf, aval in zip(leaves, avals, strict=True)])
            return fn(*again, **keywords)

        def names() -> list[str]:
            every = argument_leaf_names(fn, args, kwargs=kwargs)()
            return [name for name, aval in zip(every, avals, strict=True) if aval is not None]

        mesh = mesh_around()
        given_avals = [aval if mesh is None else aval.varying(vma_of_jax(jax.typeof(leaf)))
                       for leaf, aval in zip(leaves, avals, strict=True) if aval is not None]
        traced = trace_flat(call, given_avals, "to_jax", fn, mode=SHARED, names=names, mesh=mesh,
                            axes=mapped_axis_sizes(mesh))
        outputs = apply_in_jax(traced.program, [*traced.captured, *values])
        return tree.unflatten(traced.out_tree, [*map(_with_jax_width, outputs, traced.program.out_avals)])
    return wrapper


def _with_jax_width(output: Any, aval: Aval) -> Any:
    """Return a result of Python's numbers alone in jax's default width."""
    narrower = NARROWER.get(aval.dtype) if aval.weak else None
    if narrower is None or jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        return output
    with x64():
        return jax.lax.convert_element_type(output, narrower)
