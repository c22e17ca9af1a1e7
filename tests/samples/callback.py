"""Samples of `fxgrad.engine.frontend.callback`: functions of NumPy arrays that are called when a program runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad import tree
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.frontend.callback import debug_callback_p, host_function, io_callback_p, pure_callback_p
from tests.samples import Draw, Sample

# By argument; the results are like the first.
ARGUMENTS: list[list[tuple[tuple[int, ...], str]]] = [
    [((), "float64")], [((0,), "float64")], [((1,), "float64")], [((2, 3), "float64"), ((2, 1), "int32")],
    [((2, 3), "float64")], [((2, 3), "float32")], [((2,), "int32")]]
NO_DERIVATIVE = "the derivative of a Python function is not known"
WITHOUT = {"text": "a Python function has no text, and parse refuses to make one",
           **dict.fromkeys(("jvp", "second", "transpose"), NO_DERIVATIVE)}


def double(x: Any, *others: Any) -> Any:
    return x + x + sum(others)


def look(*values: Any) -> None:
    assert all(isinstance(value, np.ndarray | np.generic) for value in values)


def calls(what: str, function: Any, **params: Any) -> list[Sample]:
    found = []
    for arguments in ARGUMENTS:
        shape, dtype = arguments[0]
        results = () if function is look else (Aval(shape, np.dtype(dtype)),)
        out_tree = tree.structure(() if function is look else 0)
        args = tuple(np.zeros(*argument) for argument in arguments)
        host, _ = host_function(what, function, args, {}, results, out_tree)
        more = {} if function is look else {"results": results}
        found.append(Sample(*[Draw(*argument) for argument in arguments], params={"callback": host, **more, **params},
                            without=WITHOUT))
    return found


SAMPLES: dict[Primitive, list[Sample]] = {
    debug_callback_p: [*calls("debug.callback", look, ordered=False),
                       *calls("debug.callback", look, ordered=True)[-1:]],
    io_callback_p: [*calls("io_callback", double, ordered=False), *calls("io_callback", double, ordered=True)[-1:]],
    pure_callback_p: [*calls("pure_callback", double, vmap_method="sequential"),
                      *calls("pure_callback", double, vmap_method="expand_dims")[-2:],
                      *calls("pure_callback", double, vmap_method="broadcast_all")[-2:]],
}
