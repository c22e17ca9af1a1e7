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
from fxgrad.interop.importing import Rule, imports
from fxgrad.interop.matching import integers, of_scalars, parameters

Operation = Callable[..., Any]

# --- reductions and running results -------------------------------------------------------------------------------


def _reduction(operation: Operation) -> Rule:
    def rule(equation: Any, x: Any) -> Any:
        axes, = parameters(equation, "axes")
        return operation(x, integers(axes))
    return rule


def _position(operation: Operation) -> Rule:
    def rule(equation: Any, x: Any) -> Any:
        axes, dtype = parameters(equation, "axes", "index_dtype")
        axis, = integers(axes)
        return operation(x, axis, dtypes.canonical(dtype))
    return rule


def _running(operation: Operation) -> Rule:
    def rule(equation: Any, x: Any) -> Any:
        axis, backward = parameters(equation, "axis", "reverse")
        return operation(x, int(axis), bool(backward))
    return rule


imports("reduce_sum")(_reduction(structural.reduce_sum))
for _name in ("reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_xor"):
    imports(_name)(_reduction(getattr(reductions, _name)))
for _name in ("argmax", "argmin"):
    imports(_name)(_position(getattr(reductions, _name)))
for _name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
    imports(_name)(_running(getattr(cumulative, _name)))


@imports("reduce")
def _reduce(equation: Any, *operands: Any) -> Any:
    """Several of ours for one: the function is applied to halves until one element is left."""
    jaxpr, axes = parameters(equation, "jaxpr", "dimensions", ignored=("computation",))
    arrays, starts = _halves(operands)
    return lax.reduce(arrays, starts, of_scalars(jaxpr), integers(axes))


def _halves(operands: Any) -> tuple[list[Any], list[Any]]:
    count = len(operands) // 2
    return list(operands[:count]), list(operands[count:])


# --- windows ------------------------------------------------------------------------------------------------------


@imports("reduce_window")
def _reduce_window(equation: Any, *operands: Any) -> Any:
    """Several of ours for one: the function is applied once for each element of a window."""
    jaxpr, constants, *windows = parameters(equation, "jaxpr", "consts", *pool.Sliding._fields)
    arrays, starts = _halves(operands)
    size, strides, padding, base, holes = windows
    return lax.reduce_window(arrays, starts, of_scalars(ClosedJaxpr(jaxpr, constants)), size, strides, padding, base,
                             holes)


def _windows(values: list[Any]) -> pool.Sliding:
    size, strides, padding, base, holes = values
    ones = (1,) * len(size)
    return pool.Sliding(integers(size), integers(strides), tuple((int(low), int(high)) for low, high in padding),
                        integers(base or ones), integers(holes or ones))


def _window(operation: Operation) -> Rule:
    def rule(equation: Any, x: Any) -> Any:
        return operation(x, _windows(parameters(equation, *pool.Sliding._fields)))
    return rule


for _name in ("sum", "max", "min"):
    imports(f"reduce_window_{_name}")(_window(getattr(pool, f"window_{_name}")))


def _chosen(primitive: Primitive) -> Rule:
    def rule(equation: Any, values: Any, x: Any) -> Any:
        compared, *windows = parameters(equation, "select_prim", *pool.Sliding._fields)
        if compared.name not in ("ge", "le"):
            return NotImplemented
        return bind(primitive, values, x, greatest=compared.name == "ge", **_windows(windows)._asdict())
    return rule


for _primitive in (pool.select_and_scatter_add_p, pool.select_and_gather_add_p):
    imports(_primitive.name)(_chosen(_primitive))

# --- order --------------------------------------------------------------------------------------------------------


@imports("sort")
def _sort(equation: Any, *arrays: Any) -> Any:
    """Ours is stable always."""
    axis, keys = parameters(equation, "dimension", "num_keys", ignored=("is_stable",))
    return sort(arrays, int(axis), int(keys))


@imports("top_k")
def _top_k(equation: Any, x: Any) -> Any:
    """Ours is stable always."""
    count, axis = parameters(equation, "k", "axis", ignored=("is_stable",))
    return top_k(x, int(count), int(axis))


@imports("approx_top_k")
def _approx_top_k(equation: Any, x: Any) -> Any:
    """Exact, which satisfies every recall that is asked for; the least elements are the greatest negatives."""
    count, axis, is_max, whole = parameters(
        equation, "k", "reduction_dimension", "is_max_k", "aggregate_to_topk",
        ignored=("recall_target", "reduction_input_size_override"))
    if not whole:
        return NotImplemented  # parts of the result, as many as the device likes
    return (lax.approx_max_k if is_max else lax.approx_min_k)(x, int(count), int(axis))
