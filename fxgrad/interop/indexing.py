"""jax's operations at places that are computed: dynamic slices, gather and the scatters."""

from __future__ import annotations

from typing import Any

from jax.extend.core import ClosedJaxpr

from fxgrad import lax
from fxgrad.engine.core.primitive import registry
from fxgrad.engine.ops import dynamic
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.errors import UnsupportedError
from fxgrad.interop.importing import Rule, import_rule, inline_jaxpr
from fxgrad.interop.matching import integer_params, read_parameters


@import_rule("dynamic_slice")
def _dynamic_slice(equation: Any, x: Any, *starts: Any) -> Any:
    sizes, = read_parameters(equation, "slice_sizes")
    return dynamic.dynamic_slice(x, list(starts), integer_params(sizes))


@import_rule("dynamic_update_slice")
def _dynamic_update_slice(equation: Any, x: Any, update: Any, *starts: Any) -> Any:
    read_parameters(equation)
    return dynamic.dynamic_update_slice(x, update, list(starts))


_WINDOWS = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")


def _check_mode(mode: Any) -> Any:
    """Return a mode of jax's if fxgrad has it."""
    if mode.name not in lax.GatherScatterMode.__members__:
        raise UnsupportedError(f"the mode {mode} has no counterpart")
    return mode


@import_rule("gather")
def _gather(equation: Any, x: Any, indices: Any) -> Any:
    numbers, is_sorted, unique, mode, sizes, fill = read_parameters(equation, *_WINDOWS, "slice_sizes", "fill_value")
    return lax.gather(x, indices, numbers, integer_params(sizes), unique_indices=unique, indices_are_sorted=is_sorted,
                      mode=_check_mode(mode), fill_value=None if fill is None else fill.item() if hasattr(fill, "item")
                      else fill)


def _scatter(name: str) -> Rule:
    """Return the rule of a scatter whose combination of elements is identified by its name."""
    function = getattr(lax, name)

    def rule(equation: Any, x: Any, indices: Any, updates: Any) -> Any:
        numbers, is_sorted, unique, mode = read_parameters(equation, *_WINDOWS,
                                                           ignored=("update_jaxpr", "update_consts"))
        return function(x, indices, updates, numbers, indices_are_sorted=is_sorted, unique_indices=unique,
                        mode=_check_mode(mode))

    return rule


for _combination in ("add", "sub", "mul", "min", "max"):
    import_rule(f"scatter-{_combination}", f"scatter_{_combination}", made=registry[f"scatter_{_combination}"])(
        _scatter(f"scatter_{_combination}"))
_set = _scatter("scatter")


@import_rule("scatter")
def _scatter_set(equation: Any, x: Any, indices: Any, updates: Any) -> Any:
    """Scatter updates; or, as several operations of ours, apply a user's function to the elements."""
    jaxpr = equation.params["update_jaxpr"]
    if jaxpr is None:
        return _set(equation, x, indices, updates)
    _, unused = jaxpr.invars
    if any(atom is unused for each in jaxpr.eqns for atom in each.invars) or jaxpr.outvars[0] is unused:
        return NotImplemented  # jax.lax.scatter_apply makes functions of the old elements alone
    numbers, is_sorted, unique, mode, constants = read_parameters(equation, *_WINDOWS, "update_consts",
                                                                  ignored=("update_jaxpr",))
    function = ClosedJaxpr(jaxpr, constants)
    return lax.scatter_apply(
        x, indices, lambda old: inline_jaxpr(function, [old, updates])[0], numbers,
        update_shape=aval_of(updates).shape, indices_are_sorted=is_sorted, unique_indices=unique,
        mode=_check_mode(mode))
