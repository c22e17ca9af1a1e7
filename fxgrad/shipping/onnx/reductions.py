"""Reductions, running results along an axis, places of extrema, sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.extend import DType, primitives
from fxgrad.extend.parameters import identity_of
from fxgrad.extend.sizes import has_symbolic_dim
from fxgrad.shipping.onnx import library
from fxgrad.shipping.onnx.elementwise import extremum
from fxgrad.shipping.onnx.emission import Emission
from fxgrad.shipping.onnx.graph import INT64, OnnxGraph, OnnxValue, has_nans
from fxgrad.shipping.onnx.kernels import kernel_dtype
from fxgrad.shipping.onnx.moves import is_narrow, pad_value
from fxgrad.shipping.onnx.rules import OnnxRefusal, RuleOperation, onnx_rules, register_onnx_rule

Values = list[OnnxValue]
INT32 = np.dtype(np.int32)

# --- reductions -----------------------------------------------------------------------------------------------------


def emit_reduce(graph: OnnxGraph, operator: str, value: OnnxValue, axes: tuple[int, ...],
                keep: bool = False) -> OnnxValue:
    """Return a reduction over `axes`; over none the value itself."""
    if not axes:
        return value
    return graph.operation(operator, value, graph.sizes(axes), keepdims=int(keep))


def sum_axes(graph: OnnxGraph, value: OnnxValue, axes: tuple[int, ...], shape: tuple[int, ...]) -> OnnxValue:
    """Return sums: of halves in float32, and of integers as the last running sums.

    Newer versions of onnxruntime add integers as float64, which loses digits, and do not wrap.
    """
    if dtypes.is_floating(value.dtype):
        wide = dtypes.float32 if is_narrow(value.dtype) else value.dtype
        return graph.in_dtype(wide, lambda given: emit_reduce(graph, "ReduceSum", given, axes), value)
    return graph.in_dtype(_computed_in(value.dtype), lambda given: _last_sums(graph, given, axes, shape), value)


def _last_sums(graph: OnnxGraph, value: OnnxValue, axes: tuple[int, ...], shape: tuple[int, ...]) -> OnnxValue:
    for axis in sorted(axes, reverse=True):
        if has_symbolic_dim(shape[axis]):  # it may be 0: a 0 comes first
            config = [(0, 0, 0)] * axis + [(1, 0, 0)] + [(0, 0, 0)] * (len(shape) - axis - 1)
            value = pad_value(graph, value, graph.number(0, value.dtype), shape, tuple(config))
        running = graph.operation("CumSum", value, graph.number(axis, INT64))
        value, shape = graph.operation("Gather", running, graph.number(-1, INT64), axis=axis), (
            *shape[:axis], *shape[axis + 1:])
    return value


def _multiply_axes(graph: OnnxGraph, value: OnnxValue, axes: tuple[int, ...], shape: tuple[int, ...]) -> OnnxValue:
    """Return products: of integers by halves, for the reason of `sum_axes`, where the sizes are known."""
    if dtypes.is_floating(value.dtype) or has_symbolic_dim(*(shape[axis] for axis in axes)):
        return emit_reduce(graph, "ReduceProd", value, axes)
    return graph.in_dtype(_computed_in(value.dtype), lambda given: fold_axes(graph, "Mul", given, axes, shape), value)


def _computed_in(dtype: DType) -> DType:
    """Return the dtype with kernels that integers are added and multiplied in."""
    way = kernel_dtype("CumSum", dtype)
    return dtype if way is None else way.dtype


def emit_extremum(graph: OnnxGraph, operator: str, value: OnnxValue, axes: tuple[int, ...],
                  keep: bool = False) -> OnnxValue:
    """Emit "ReduceMax" or "ReduceMin"; a NaN wins, which runtimes leave undefined."""
    found = emit_reduce(graph, operator, value, axes, keep)
    if not has_nans(value.dtype):
        return found
    any_nan = emit_reduce(graph, "ReduceMax", graph.isnan(value), axes, keep)
    return graph.where(any_nan, graph.number(np.nan, value.dtype), found)


def _reduction(of_none: Callable[[Any], Any], rule: Callable[..., OnnxValue]) -> Any:
    def reduction(emission: Emission, operation: RuleOperation, values: Values) -> Values:
        graph, axes = emission.graph, operation.params["axes"]
        if 0 in operation.shapes[0]:
            dtype = values[0].dtype
            return [graph.filled(of_none(dtype), dtype, operation.shape)]
        return [rule(graph, values[0], axes, operation.shapes[0])] if axes else values
    return reduction


def _emit_parity(graph: OnnxGraph, value: OnnxValue, axes: tuple[int, ...]) -> OnnxValue:
    """Return whether an odd number of bools is set."""
    counted = emit_reduce(graph, "ReduceSum", graph.cast(value, INT64), axes)
    return graph.cast(graph.operation("Mod", counted, graph.number(2, INT64)), value.dtype)


def known_size(size: Any) -> int:
    """Return the size of an axis that determines the number of nodes; raise `OnnxRefusal` if it is symbolic."""
    if has_symbolic_dim(size):
        raise OnnxRefusal(f"runs along an axis of the size {size}, and how many nodes it takes depends on that. Trace "
                          "the function for a number")
    return int(size)


def fold_axes(graph: OnnxGraph, operator: str, value: OnnxValue, axes: tuple[int, ...],
              shape: tuple[int, ...]) -> OnnxValue:
    """Combine integers along axes: one half with the other, until one is left."""
    for axis in sorted(axes, reverse=True):
        size = known_size(shape[axis])
        while size > 1:
            half = size // 2
            first = graph.slice(value, [0], [half], [axis])
            second = graph.slice(value, [half], [2 * half], [axis])
            both = graph.operation(operator, first, second)
            last = [graph.slice(value, [2 * half], [size], [axis])] if size % 2 else []
            value = graph.concatenate([both, *last], axis)
            size = half + size % 2
        value = graph.operation("Squeeze", value, graph.sizes([axis]))
    return value


def _bit_reduction(operator: str, of_bools: Callable[[OnnxGraph, OnnxValue, tuple[int, ...]], OnnxValue],
                   of_none: int) -> Any:
    def reduction(emission: Emission, operation: RuleOperation, values: Values) -> Values:
        graph, axes, (value,) = emission.graph, operation.params["axes"], values
        if 0 in operation.shapes[0]:
            dtype = value.dtype
            none = np.invert(np.zeros((), dtype)) if of_none else np.zeros((), dtype)
            return [graph.filled(none, dtype, operation.shape)]
        if not axes:
            return values
        if value.dtype.kind == "b":
            return [of_bools(graph, value, axes)]
        return [fold_axes(graph, operator, value, axes, operation.shapes[0])]
    return reduction


for _name, _rule in (
        ("reduce_sum", _reduction(lambda dtype: 0, sum_axes)),
        ("reduce_prod", _reduction(lambda dtype: 1, _multiply_axes)),
        ("reduce_max", _reduction(lambda dtype: identity_of("max", dtype),
                                  lambda graph, value, axes, _: emit_extremum(graph, "ReduceMax", value, axes))),
        ("reduce_min", _reduction(lambda dtype: identity_of("min", dtype),
                                  lambda graph, value, axes, _: emit_extremum(graph, "ReduceMin", value, axes))),
        ("reduce_and",
         _bit_reduction("BitwiseAnd", lambda graph, value, axes: emit_reduce(graph, "ReduceMin", value, axes), 1)),
        ("reduce_or",
         _bit_reduction("BitwiseOr", lambda graph, value, axes: emit_reduce(graph, "ReduceMax", value, axes), 0)),
        ("reduce_xor", _bit_reduction("BitwiseXor", _emit_parity, 0))):
    onnx_rules.enter(_rule, primitives[_name])


@register_onnx_rule("attains")
def _attains(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    return [emission.graph.operation("Equal", *values)]


@register_onnx_rule("argmax", "argmin")
def _position(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    """Return the first index of the extremum, or of a NaN."""
    graph, (x,), axis = emission.graph, values, operation.params["axis"]
    operator = "ArgMax" if operation.primitive is primitives.argmax else "ArgMin"
    found = graph.operation(operator, x, axis=axis, keepdims=0)
    if has_nans(x.dtype):
        nans = graph.isnan(x)
        first = graph.operation("ArgMax", nans, axis=axis, keepdims=0)
        found = graph.where(emit_reduce(graph, "ReduceMax", nans, (axis,)), first, found)
    return [graph.cast(found, operation.params["index_dtype"])]


# --- running results ------------------------------------------------------------------------------------------------


@register_onnx_rule("cumsum")
def _cumsum(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, params = emission.graph, operation.params
    if not operation.shape:
        return values
    wide = dtypes.float32 if is_narrow(values[0].dtype) else values[0].dtype
    return [graph.in_dtype(wide, lambda x: graph.operation(
        "CumSum", x, graph.number(params["axis"], INT64), reverse=int(params["reverse"])), *values)]


def scan_by_doubling(graph: OnnxGraph, values: Values, fills: Values, shape: tuple[int, ...], axis: int,
                     reversed_: bool,
                     combine: Callable[[Values, Values, OnnxValue], Values]) -> Values:
    """Return running results by doubling: each element is combined with that 1, 2, 4, ... places before it.

    `combine` also takes whether there is an element before; where there is none it is given `fills`.
    """
    step, size = 1, known_size(shape[axis])
    while step < size:
        config = [(0, 0, 0)] * len(shape)
        config[axis] = (-step, step, 0) if reversed_ else (step, -step, 0)
        before = [pad_value(graph, value, fill, shape, tuple(config)) for value,
                  fill in zip(values, fills, strict=True)]
        has_before = np.arange(size) >= step
        values = combine(before, values, graph.constant(
            (has_before[::-1] if reversed_ else has_before).reshape(-1, *[1] * (len(shape) - 1 - axis))))
        step *= 2
    return values


def _running(fill: Callable[[Any], Any],
             combine: Callable[[Emission, RuleOperation, OnnxValue, OnnxValue], OnnxValue]) -> Any:
    def rule(emission: Emission, operation: RuleOperation, values: Values) -> Values:
        graph, params = emission.graph, operation.params
        return scan_by_doubling(graph, values, [graph.number(fill(values[0].dtype), values[0].dtype)], operation.shape,
                                params["axis"], params["reverse"],
                                lambda before, here, _: [combine(emission, operation, *before, *here)])
    return rule


def _logaddexp(emission: Emission, operation: RuleOperation, x: OnnxValue, y: OnnxValue) -> OnnxValue:
    graph = emission.graph
    wide = dtypes.float32 if is_narrow(x.dtype) else x.dtype
    return graph.in_dtype(wide, lambda a, b: log_of_sum(graph, a, b), x, y)


def log_of_sum(graph: OnnxGraph, x: OnnxValue, y: OnnxValue) -> OnnxValue:
    """Return log(exp(x) + exp(y)): the larger one plus a correction; equal infinities have difference 0."""
    apart = graph.operation("Sub", x, y)
    less = graph.operation("Exp", graph.operation("Neg", graph.operation("Abs", apart)))
    total = graph.operation("Add", graph.operation("Max", x, y), library.emit_log1p(graph, less))
    return graph.where(graph.isnan(apart), graph.operation("Add", x, y), total)


for _name, _rule in (
        ("cumprod", _running(lambda dtype: 1, lambda emission, _, x, y: emission.graph.operation("Mul", x, y))),
        ("cummax", _running(lambda dtype: identity_of("max", dtype),
                            lambda emission, _, x, y: extremum(emission.graph, "Max", x, y))),
        ("cummin", _running(lambda dtype: identity_of("min", dtype),
                            lambda emission, _, x, y: extremum(emission.graph, "Min", x, y))),
        ("cumlogsumexp", _running(lambda dtype: -np.inf, _logaddexp))):
    onnx_rules.enter(_rule, primitives[_name])


@register_onnx_rule("logaddexp")
def _logaddexp_rule(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    return [_logaddexp(emission, operation, *values)]


@register_onnx_rule("linear_recurrence")
def _linear_recurrence(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    """Compute y[i] = a[i] y[i-1] + b[i]: two steps combined are a step of the same form."""
    graph, params = emission.graph, operation.params

    def combine(before: Values, here: Values, has_before: OnnxValue) -> Values:
        (a, b), (c, d) = before, here
        follows = graph.operation("Add", graph.operation("Mul", c, b), d)
        if has_nans(c.dtype):  # 0 times an infinite factor is no 0
            follows = graph.where(has_before, follows, d)
        return [graph.operation("Mul", a, c), follows]

    fills = [graph.number(0, values[0].dtype), graph.number(0, values[1].dtype)]
    return scan_by_doubling(graph, values, fills, operation.shape, params["axis"], params["reverse"], combine)[1:]


# --- sorting --------------------------------------------------------------------------------------------------------


def sort_by_keys(graph: OnnxGraph, values: Values, keys: Values, axis: int, size: int, largest: bool = False,
                 wanted: int | None = None) -> tuple[Values, OnnxValue]:
    """Return `values` sorted by `keys`, of which the last is the primary one, and their former positions.

    Only the first `wanted` are kept, by the last sort. No key may have NaNs.
    """
    order: OnnxValue | None = None
    for number, key in enumerate(keys):
        last = number == len(keys) - 1
        given = key if order is None else graph.operation("GatherElements", key, order, axis=axis)
        if given.dtype.kind == "b":
            given = graph.cast(given, INT32)
        count = graph.sizes([size if wanted is None or not last else wanted])
        places = graph.operations("TopK", 2, given, count, axis=axis, largest=int(largest), sorted=1)[1]
        order = places if order is None else graph.operation("GatherElements", order, places, axis=axis)
    assert order is not None
    return [graph.operation("GatherElements", value, order, axis=axis) for value in values], order


@register_onnx_rule("sort")
def _sort(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    graph, axis = emission.graph, operation.params["dimension"]
    if not operation.shape:
        return values
    keys: Values = []
    for value in reversed(values[:operation.params["num_keys"]]):
        if has_nans(value.dtype):  # NaNs are last, behind the infinities
            nans = graph.isnan(value)
            keys += [nans, graph.where(nans, graph.number(np.inf, value.dtype), value)]
        else:
            keys.append(value)
    return sort_by_keys(graph, values, keys, axis, operation.shape[axis])[0]


@register_onnx_rule("top_k")
def _top_k(emission: Emission, operation: RuleOperation, values: Values) -> Values:
    """In the total order: NaNs before the infinity, 0 before -0."""
    graph, (x,), axis = emission.graph, values, operation.params["axis"]
    keys = [x]
    if has_nans(x.dtype):
        nans = graph.isnan(x)
        infinity = graph.number(np.inf, x.dtype)
        inverse = graph.operation("Div", library.one_like(graph, x), x)
        below = graph.operation("Equal", inverse, graph.operation("Neg", infinity))
        finer = graph.operation("Sub", graph.cast(nans, INT32), graph.cast(below, INT32))
        keys = [finer, graph.where(nans, infinity, x)]
    (found,), places = sort_by_keys(graph, [x], keys, axis, operation.shapes[0][axis], largest=True,
                                    wanted=operation.params["k"])
    return [found, graph.cast(places, INT32)]

