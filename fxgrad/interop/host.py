"""jax's calls back to Python, `pure_callback`, `io_callback`, `debug.callback` and `debug.print`, become ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.extend.core import JaxprEqn

from fxgrad.engine import tree
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.frontend.callback import debug_callback_p, io_callback_p, pure_callback_p
from fxgrad.engine.higher_order.custom import ByValue
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.user_lines import function_name
from fxgrad.errors import UnsupportedError
from fxgrad.interop.importing import aval_of_jax, import_rule


class JaxHost(ByValue):
    """A Python function of flat arrays that jax would call; it gets NumPy arrays, like fxgrad's callbacks."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., Any]) -> None:
        super().__init__(callback)

    @property
    def name(self) -> str:
        """The name of the user's function."""
        return function_name(getattr(self._key[0], "callback_func", self._key[0]))

    def __call__(self, *values: Any) -> list[Any]:
        """Return the results as NumPy arrays."""
        return [np.asarray(result)[()] for result in self._key[0](*map(_own_copy, values)) or ()]


class JaxPrint(ByValue):
    """The text of a `jax.debug.print`: a format with the leaves of its arguments, some of them static."""

    __slots__ = ()

    def __init__(self, text: str, in_tree: Any, static: tuple[tuple[int, Any], ...]) -> None:
        super().__init__(text, in_tree, static)

    @property
    def name(self) -> str:
        """The name in printed programs."""
        return "print"

    def __call__(self, *values: Any) -> list[Any]:
        """Print the text; return no results."""
        text, in_tree, static = self._key
        leaves = [*map(_own_copy, values)]
        for position, constant in static:
            leaves.insert(position, constant)
        args, kwargs = tree.unflatten(in_tree, leaves)
        print(text.format(*args, **kwargs))  # noqa: T201  (what the user asks for)
        return []


def _own_copy(value: Any) -> Any:
    return np.array(value)[()]  # the function may keep and change it


def _results(equation: JaxprEqn) -> tuple[Aval, ...]:
    if equation.params.get("sharding") is not None:
        raise UnsupportedError("sharding has no counterpart")
    return tuple(aval_of_jax(var.aval).strong() for var in equation.outvars)


@import_rule("pure_callback")
def _pure_callback(equation: JaxprEqn, *operands: Any) -> list[Any]:
    params = equation.params
    return bind(pure_callback_p, *operands, callback=JaxHost(params["callback"]), results=_results(equation),
                vmap_method=params["vmap_method"])


@import_rule("io_callback")
def _io_callback(equation: JaxprEqn, *operands: Any) -> list[Any]:
    params = equation.params
    return bind(io_callback_p, *operands, callback=JaxHost(params["callback"]), results=_results(equation),
                ordered=params["ordered"])


@import_rule("debug_callback")
def _debug_callback(equation: JaxprEqn, *operands: Any) -> list[Any]:
    ordered = type(equation.params["effect"]).__name__.startswith("Ordered")
    return bind(debug_callback_p, *operands, callback=JaxHost(equation.params["callback"]), ordered=ordered)


@import_rule("debug_print")
def _debug_print(equation: JaxprEqn, *operands: Any) -> Any:
    params = equation.params
    if params.get("logging_record") is not None:
        return NotImplemented
    text, static = params["fmt"], tuple(params["static_args"])
    return bind(debug_callback_p, *operands, callback=JaxPrint(text, params["in_tree"], static),
                ordered=params["ordered"])
