"""Operations that move elements, in C: which element of an operand one of the result is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.extend import Analysis, Aval, primitives
from fxgrad.extend.parameters import Windows, default_fill
from fxgrad.shipping.c.values import (
    TYPES,
    CValue,
    broadcast_indices,
    expression_value,
    literal,
    parenthesized_text,
    product_text,
    ravel_index,
    sum_text,
)

Rule = Callable[[Sequence[CValue], Sequence[Aval], dict[str, Any]], list[CValue]]
"""(operands, types of the results, parameters) -> results."""

views: Analysis[Rule | None] = Analysis(
    "views in C", "Which element of an operand, in C, an element of the result is, where elements are only moved.",
    missing="conservative", default=None)

DEEP = 2
"""The depth of an expression with a condition, or a clipped index, in it."""


def _map_indices(x: CValue, out: Aval, at: Callable[[Sequence[str]], Sequence[str]], deeper: int = 0) -> list[CValue]:
    """Return a value whose elements are those of `x` at mapped indices."""
    return [expression_value(out, lambda indices: x.at(at(indices)), x.depth + deeper if x.depth or deeper else 0)]


def _broadcast_to(values: Sequence[CValue], outs: Sequence[Aval], params: dict[str, Any]) -> list[CValue]:
    x, = values
    if not x.aval.shape and x.flat is not None:
        return [expression_value(outs[0], lambda indices: x.at([]), x.depth, lambda text: x.at([]))]
    return _map_indices(x, outs[0], lambda indices: broadcast_indices(x, indices))


def _broadcast_in_dim(values: Sequence[CValue], outs: Sequence[Aval], params: dict[str, Any]) -> list[CValue]:
    x, = values
    return _map_indices(x, outs[0], lambda indices: [
        "0" if extent == 1 else indices[axis]
        for axis, extent in zip(params["broadcast_dimensions"], x.aval.shape, strict=True)])


def _reshape(values: Sequence[CValue], outs: Sequence[Aval], params: dict[str, Any]) -> list[CValue]:
    x, = values
    out = outs[0]
    kept = [extent for extent in out.shape if extent != 1] == [extent for extent in x.aval.shape if extent != 1]

    def at(indices: Sequence[str]) -> str:
        if not kept:
            return x.place(ravel_index(indices, out.shape))
        given = iter([index for index, extent in zip(indices, out.shape, strict=True) if extent != 1])
        return x.at(["0" if extent == 1 else next(given) for extent in x.aval.shape])

    return [expression_value(out, at, x.depth, x.flat)]


def _transpose(values: Sequence[CValue], outs: Sequence[Aval], params: dict[str, Any]) -> list[CValue]:
    order = params["permutation"]
    return _map_indices(values[0], outs[0], lambda indices: [indices[order.index(axis)] for axis in range(len(order))])


def _rev(values: Sequence[CValue], outs: Sequence[Aval], params: dict[str, Any]) -> list[CValue]:
    shape = outs[0].shape
    return _map_indices(values[0], outs[0], lambda indices: [
        f"{shape[axis] - 1} - {parenthesized_text(index)}" if axis in params["dimensions"] and shape[axis] > 1
        else index
        for axis, index in enumerate(indices)])


def _slice(values: Sequence[CValue], outs: Sequence[Aval], params: dict[str, Any]) -> list[CValue]:
    starts = params["start_indices"]
    steps = params["strides"] or (1,) * len(starts)
    return _map_indices(values[0], outs[0], lambda indices: [
        sum_text([product_text(index, step), str(start)])
        for index, start, step in zip(indices, starts, steps, strict=True)])


def _split_value(x: CValue, outs: Sequence[Aval], axis: int, sizes: Sequence[int], kept: bool) -> list[CValue]:
    found, start = [], 0
    for out, size in zip(outs, sizes, strict=True):
        def at(indices: Sequence[str], start: int = start) -> list[str]:
            own = sum_text([indices[axis], str(start)]) if kept else str(start)
            return [*indices[:axis], own, *indices[axis + kept:]]

        found += _map_indices(x, out, at)
        start += size
    return found


def _split(values: Sequence[CValue], outs: Sequence[Aval], params: dict[str, Any]) -> list[CValue]:
    return _split_value(values[0], outs, params["axis"], params["sizes"], True)


def _unstack(values: Sequence[CValue], outs: Sequence[Aval], params: dict[str, Any]) -> list[CValue]:
    return _split_value(values[0], outs, params["axis"], [1] * len(outs), False)


def _join(values: Sequence[CValue], out: Aval, axis: int, sizes: Sequence[int], kept: bool) -> list[CValue]:
    """Return the operands concatenated along an axis."""
    def at(indices: Sequence[str]) -> str:
        ends = np.cumsum(sizes).tolist()
        text = ""
        for number, (value, end) in enumerate(zip(values, ends, strict=True)):
            if not sizes[number]:
                continue
            start = end - sizes[number]
            own = indices[axis] if not start else f"{indices[axis]} - {start}"
            element = value.at([*indices[:axis], *([own] if kept else []), *indices[axis + 1:]])
            text += element if end == ends[-1] else f"{indices[axis]} < {end} ? {element} : "
            if end == ends[-1]:
                break
        return f"({text})"

    return [expression_value(out, at, max(value.depth for value in values) + DEEP)]


def _concatenate(values: Sequence[CValue], outs: Sequence[Aval], params: dict[str, Any]) -> list[CValue]:
    axis = params["dimension"]
    return _join(values, outs[0], axis, [value.aval.shape[axis] for value in values], True)


def _stack(values: Sequence[CValue], outs: Sequence[Aval], params: dict[str, Any]) -> list[CValue]:
    return _join(values, outs[0], params["axis"], [1] * len(values), False)


def _tile(values: Sequence[CValue], outs: Sequence[Aval], params: dict[str, Any]) -> list[CValue]:
    x, = values
    return _map_indices(x, outs[0], lambda indices: [
        "0" if extent == 1 else index if count == 1 else f"{parenthesized_text(index)} % {extent}"
        for index, extent, count in zip(indices, x.aval.shape, params["reps"], strict=True)])


def _pad(values: Sequence[CValue], outs: Sequence[Aval], params: dict[str, Any]) -> list[CValue]:
    x, filler = values
    config = params["padding_config"]

    def at(indices: Sequence[str]) -> str:
        inside, own = [], []
        for index, extent, out, (low, _, interior) in zip(indices, x.aval.shape, outs[0].shape, config, strict=True):
            step = interior + 1
            place = index if not low else f"{index} - {low}" if low > 0 else f"{index} + {-low}"
            if low > 0:
                inside.append(f"{place} >= 0")
            if out - low > (extent - 1) * step + 1:
                inside.append(f"{place} < {(extent - 1) * step + 1}")
            if interior:
                inside.append(f"({place}) % {step} == 0")
            own.append(place if step == 1 else f"({place}) / {step}")
        if 0 in x.aval.shape:
            return filler.at([])
        return f"({' && '.join(inside)} ? {x.at(own)} : {filler.at([])})" if inside else x.at(own)

    return [expression_value(outs[0], at, x.depth + DEEP)]


def _iota(values: Sequence[CValue], outs: Sequence[Aval], params: dict[str, Any]) -> list[CValue]:
    out, axis = outs[0], params["dimension"]
    kind = TYPES.get(out.dtype.name, "")

    def at(indices: Sequence[str]) -> str:
        return f"({kind}){parenthesized_text(indices[axis])}"

    return [expression_value(out, at, 0, (lambda text: f"({kind}){parenthesized_text(text)}") if out.ndim == 1
                             else None)]


def _barrier(values: Sequence[CValue], outs: Sequence[Aval], params: dict[str, Any]) -> list[CValue]:
    return [*values]


def _dynamic_slice(values: Sequence[CValue], outs: Sequence[Aval], params: dict[str, Any]) -> list[CValue]:
    x, *starts = values
    return _map_indices(x, outs[0], lambda indices: [
        sum_text([index, clip_text(start.at([]), extent - size)])
        for index, start, extent, size in zip(indices, starts, x.aval.shape, params["slice_sizes"], strict=True)], DEEP)


def clip_text(text: str, last: int) -> str:
    """Return a start index clipped to its range."""
    return f"clip_index({text}, {last})" if last > 0 else "0"


def window(values: Sequence[CValue], windows: Windows, sizes: Sequence[int], mode: str, indices: Sequence[str],
           ) -> tuple[list[str], list[str]]:
    """Return, for an element of a gather's result or updates, its operand indices and its range conditions."""
    x, places = values
    batch = [index for axis, index in enumerate(indices) if axis not in windows.offset_dims]
    own, conditions = ["0"] * x.aval.ndim, []
    for number, axis in enumerate(windows.start_index_map):
        start, extent = places.at([*batch, str(number)]), x.aval.shape[axis]
        if mode == "checked":
            start = f"wrap_index({start}, {extent})"
        if mode == "clip":
            own[axis] = clip_text(start, extent - sizes[axis])
        else:
            own[axis] = f"(int){parenthesized_text(start)}"
            if mode != "promise_in_bounds":
                conditions.append(f"in_range({start}, {extent - sizes[axis]})")
    for axis, place in zip(windows.operand_batching_dims, windows.start_indices_batching_dims, strict=True):
        own[axis] = batch[place]
    for axis, place in zip(windows.window_axes(x.aval.ndim), windows.offset_dims, strict=True):
        own[axis] = sum_text([own[axis], indices[place]])
    return own, conditions


def _gather(values: Sequence[CValue], outs: Sequence[Aval], params: dict[str, Any]) -> list[CValue]:
    x, fill = values[0], params["fill_value"]
    windows = Windows(*(params[name] for name in Windows._fields))
    missing = literal(default_fill(x.aval.dtype) if fill is None else x.aval.dtype.type(fill), x.aval.dtype)

    def at(indices: Sequence[str]) -> str:
        own, conditions = window(values, windows, params["slice_sizes"], params["mode"], indices)
        return f"({' && '.join(conditions)} ? {x.at(own)} : {missing})" if conditions else x.at(own)

    return [expression_value(outs[0], at, DEEP)]


for _name, _rule in {
    "broadcast_to": _broadcast_to, "broadcast_in_dim": _broadcast_in_dim, "reshape": _reshape,
    "transpose": _transpose, "rev": _rev, "slice": _slice, "split": _split, "unstack": _unstack,
    "concatenate": _concatenate, "stack": _stack, "tile": _tile, "pad": _pad, "iota": _iota,
    "optimization_barrier": _barrier, "dynamic_slice": _dynamic_slice, "gather": _gather,
}.items():
    views.enter(_rule, primitives[_name])
