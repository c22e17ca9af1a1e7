"""jax's reductions, positions of extrema, running results, windows slid over arrays, and sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax.extend.core import ClosedJaxpr

from fxgrad import lax
from fxgrad.engine import dtypes
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.ops import cumulative, pool, reductions, structural
from fxgrad.engine.ops.ordering import sort
from fxgrad.engine.ops.topk import top_k
from fxgrad.engine.tracing.tape import bind
from fxgrad.interop.importing import Rule, import_rule
from fxgrad.interop.matching import integer_params, read_parameters, scalar_function

Operation = Callable[..., Any]

# --- reductions and running results -------------------------------------------------------------------------------


def _reduction_rule(operation: Operation) -> Rule:
    def rule(equation: Any, x: Any) -> Any:
        axes, = read_parameters(equation, "axes")
        return operation(x, integer_params(axes))
    return rule


def _position_rule(operation: Operation) -> Rule:
    def rule(equation: Any, x: Any) -> Any:
        axes, dtype = read_parameters(equation, "axes", "index_dtype")
        axis, = integer_params(axes)
        return operation(x, axis, dtypes.canonical(dtype))
    return rule


def _running_rule(operation: Operation) -> Rule:
    def rule(equation: Any, x: Any) -> Any:
        axis, backward = read_parameters(equation, "axis", "reverse")
        return operation(x, int(axis), bool(backward))
    return rule


import_rule("reduce_sum")(_reduction_rule(structural.reduce_sum))
for _name in ("reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_xor"):
    import_rule(_name)(_reduction_rule(getattr(reductions, _name)))
for _name in ("argmax", "argmin"):
    import_rule(_name)(_position_rule(getattr(reductions, _name)))
for _name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
    import_rule(_name)(_running_rule(getattr(cumulative, _name)))


@import_rule("reduce")
def _reduce(equation: Any, *operands: Any) -> Any:
    """Import as several operations of ours: the function is applied to halves until one element is left."""
    jaxpr, axes = read_parameters(equation, "jaxpr", "dimensions", ignored=("computation",))
    arrays, starts = _halves(operands)
    return lax.reduce(arrays, starts, scalar_function(jaxpr), integer_params(axes))


def _halves(operands: Any) -> tuple[list[Any], list[Any]]:
    count = len(operands) // 2
    return list(operands[:count]), list(operands[count:])


# --- windows ------------------------------------------------------------------------------------------------------


@import_rule("reduce_window")
def _reduce_window(equation: Any, *operands: Any) -> Any:
    """Import as several operations of ours: the function is applied once for each element of a window."""
    jaxpr, constants, *windows = read_parameters(equation, "jaxpr", "consts", *pool.Sliding._fields)
    arrays, starts = _halves(operands)
    size, strides, padding, base, holes = windows
    return lax.reduce_window(arrays, starts, scalar_function(ClosedJaxpr(jaxpr, constants)), size, strides, padding,
                             base,
                             holes)


def _windows(values: list[Any]) -> pool.Sliding:
    size, strides, padding, base, holes = values
    ones = (1,) * len(size)
    return pool.Sliding(integer_params(size), integer_params(strides),
                        tuple((int(low), int(high)) for low, high in padding),
                        integer_params(base or ones), integer_params(holes or ones))


def _window_rule(operation: Operation) -> Rule:
    def rule(equation: Any, x: Any) -> Any:
        return operation(x, _windows(read_parameters(equation, *pool.Sliding._fields)))
    return rule


for _name in ("sum", "max", "min"):
    import_rule(f"reduce_window_{_name}")(_window_rule(getattr(pool, f"window_{_name}")))


def _choosing_rule(primitive: Primitive) -> Rule:
    def rule(equation: Any, values: Any, x: Any) -> Any:
        compared, *windows = read_parameters(equation, "select_prim", *pool.Sliding._fields)
        if compared.name not in ("ge", "le"):
            return NotImplemented
        return bind(primitive, values, x, greatest=compared.name == "ge", **_windows(windows)._asdict())
    return rule


for _primitive in (pool.select_and_scatter_add_p, pool.select_and_gather_add_p):
    import_rule(_primitive.name)(_choosing_rule(_primitive))

# --- order --------------------------------------------------------------------------------------------------------


@import_rule("sort")
def _sort(equation: Any, *arrays: Any) -> Any:
    """Ours is stable always."""
    axis, keys = read_parameters(equation, "dimension", "num_keys", ignored=("is_stable",))
    return sort(arrays, int(axis), int(keys))


@import_rule("top_k")
def _top_k(equation: Any, x: Any) -> Any:
    """Ours is stable always."""
    count, axis = read_parameters(equation, "k", "axis", ignored=("is_stable",))
    return top_k(x, int(count), int(axis))


@import_rule("approx_top_k")
def _approx_top_k(equation: Any, x: Any) -> Any:
    """Compute exactly, which satisfies every recall; the smallest elements are the largest negatives."""
    count, axis, is_max, whole = read_parameters(
        equation, "k", "reduction_dimension", "is_max_k", "aggregate_to_topk",
        ignored=("recall_target", "reduction_input_size_override"))
    if not whole:
        return NotImplemented  # partial results, whose number depends on the device
    return (lax.approx_max_k if is_max else lax.approx_min_k)(x, int(count), int(axis))
