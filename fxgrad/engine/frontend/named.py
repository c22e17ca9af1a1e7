"""Calls of functions that programs show as one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fxgrad.engine import tree
from fxgrad.engine.frontend.flat import argument_leaf_names, trace_flat
from fxgrad.engine.frontend.operands import PYTHON_SCALARS
from fxgrad.engine.higher_order.call import named_call_p
from fxgrad.engine.tracing.tape import Tape, aval_of, bind
from fxgrad.engine.tracing.trace import SHARED


def record_named_call(what: str, fun: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any],
                      tape_class: type[Tape] = Tape) -> Any:
    """Record `fun(*args, **kwargs)` as one call of `name`; the arguments are containers of arrays and numbers."""
    leaves, structure = tree.flatten((args, kwargs))
    # Python's numbers and bools stay concrete: an `if` can test them.
    arrays = [place for place, leaf in enumerate(leaves) if type(leaf) not in PYTHON_SCALARS]

    def flat(*tracers: Any) -> Any:
        every = list(leaves)
        for place, tracer in zip(arrays, tracers, strict=True):
            every[place] = tracer
        given, keywords = tree.unflatten(structure, every)
        return fun(*given, **keywords)

    names = argument_leaf_names(fun, args, kwargs=kwargs)
    traced = trace_flat(flat, [aval_of(leaves[place]) for place in arrays], what, fun, mode=SHARED,
                        tape_class=tape_class,
                        names=lambda: [each for place, each in enumerate(names()) if place in arrays])
    outputs = bind(named_call_p, *traced.captured, *(leaves[place] for place in arrays), program=traced.program,
                   name=name)
    return tree.unflatten(traced.out_tree, outputs)
