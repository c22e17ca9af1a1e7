"""Looking at functions: `make_program` and `eval_shape`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad import tree
from fxgrad.api.arguments import static_positions, transformation
from fxgrad.core.avals import struct_of
from fxgrad.core.program import Program, Signature
from fxgrad.errors import function_name
from fxgrad.frontend.flat import Traced, described_aval, just, parameter_names, title_of, trace_flat, with_static
from fxgrad.tracebacks import boundary
from fxgrad.tracing.trace import SHOWN


def make_program(fun: Callable[..., Any], static_argnums: int | Sequence[int] = ()) -> Callable[..., Program]:
    """The function that traces `fun` and returns its `Program`, the counterpart of `jax.make_jaxpr`.

    The arguments are arrays, numbers, `ShapeDtypeStruct`s, or containers of them; only shapes and dtypes matter.
    Those at `static_argnums` are passed to `fun` as they are. Closed-over arrays become constants of the program.
    The program prints with the names of the user's variables, and calling it runs it.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> program = fxgrad.make_program(lambda x: fnp.sin(x))(1.0)
    >>> len(program.equations)
    1
    """
    @transformation("make_program", fun)
    @boundary
    def traced_program(*args: Any, **kwargs: Any) -> Program:
        static = static_positions(static_argnums, len(args))
        traced, names, structure = trace_call("make_program", fun, args, kwargs, static)
        signature = Signature(function_name(fun), tuple(names), structure, traced.out_tree, title_of(fun))
        return traced.program.replace(constants=traced.captured, signature=signature)
    return traced_program


def trace_call(what: str, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
               static: set[int] = frozenset()) -> tuple[Traced, list[str], Any]:  # type: ignore[assignment]
    """Traces a call without values, as `jit` does: the traced call, names of inputs, tree of the arguments."""
    dynamic = tuple(arg for position, arg in enumerate(args) if position not in static)
    leaves, structure = tree.flatten((dynamic, kwargs))
    roots = parameter_names(fun, len(args))
    names = [name for position, arg in enumerate(args) if position not in static
             for name in tree.leaf_names(arg, roots[position])]
    names += [name for key in sorted(kwargs) for name in tree.leaf_names(kwargs[key], key)]
    avals = [described_aval(leaf, what, just(name)) for leaf, name in zip(leaves, names, strict=True)]

    def call(*tracers: Any) -> Any:
        given, keywords = tree.unflatten(structure, tracers)
        return fun(*with_static(args, static, given), **keywords)

    traced = trace_flat(call, avals, what, fun, mode=SHOWN, names=lambda: names)
    return traced, names, structure


@boundary
def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of `fun(*args, **kwargs)` without computing anything.

    Returns a container like the output with a `ShapeDtypeStruct` in the place of every array.

    >>> import numpy as np, fxgrad
    >>> fxgrad.eval_shape(lambda a, b: a @ b, np.ones((2, 3), "f"), fxgrad.ShapeDtypeStruct((3, 5), "f")).shape
    (2, 5)
    """
    transformation("eval_shape", fun)
    traced, _, _ = trace_call("eval_shape", fun, args, kwargs)
    structs = [struct_of(aval) for aval in traced.program.out_avals]
    return tree.unflatten(traced.out_tree, structs)
