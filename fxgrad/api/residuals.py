"""What reverse mode keeps and where it stops: `checkpoint` and `stop_gradient`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad import tree
from fxgrad.api.arguments import static_positions, transformation
from fxgrad.control.call import checkpoint_p
from fxgrad.control.flat import function_name, leaf_aval, trace_flat, with_static
from fxgrad.core.tape import aval_of, bind, innermost_for
from fxgrad.core.tracer import Tracer
from fxgrad.ops import arithmetic


def stop_gradient(x: Any) -> Any:
    """`x`, through which no derivative flows; `x` is an array, a number, or a container of them.

    >>> import fxgrad
    >>> float(fxgrad.grad(lambda x: x * fxgrad.stop_gradient(x))(3.0))
    3.0
    """
    return tree.map(lambda leaf: arithmetic.stop_gradient(leaf) if type(leaf) is Tracer else leaf, x)


def checkpoint(fun: Callable[..., Any], *, static_argnums: int | Sequence[int] = ()) -> Callable[..., Any]:
    """`fun`, of which reverse mode keeps only the inputs: its inner values are computed again in the backward pass.

    Saves memory for time. Values and derivatives are unchanged. Also under the name `remat`.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> block = fxgrad.checkpoint(lambda x: fnp.sin(fnp.sin(x)))
    >>> round(float(fxgrad.grad(block)(1.0)), 4)
    0.36
    """
    @transformation("checkpoint", fun)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        static = static_positions(static_argnums, len(args))
        dynamic = [arg for position, arg in enumerate(args) if position not in static]
        leaves, structure = tree.flatten((dynamic, kwargs))
        if any(leaf_aval(leaf) is None for leaf in leaves) or innermost_for(leaves) is None:
            return fun(*args, **kwargs)

        def call(*tracers: Any) -> Any:
            given, keywords = tree.unflatten(structure, tracers)
            return fun(*with_static(args, static, given), **keywords)

        traced = trace_flat(call, [aval_of(leaf) for leaf in leaves], "checkpoint", fun, values=leaves)
        outputs = bind(checkpoint_p, *traced.captured, *leaves, program=traced.program, name=function_name(fun))
        return tree.unflatten(traced.out_tree, outputs)
    return checkpointed
