"""Operations with loops of their own in C: reductions, products, running sums, and writes into arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from fxgrad.extend import Analysis, Aval, Equation, MissingRule, Primitive, primitives
from fxgrad.extend.parameters import Windows
from fxgrad.shipping.c.elements import elements
from fxgrad.shipping.c.values import INDICES, CValue, SourceRefusal, c_type, literal, loop_lines, strip_parentheses
from fxgrad.shipping.c.views import clip_text, views, window


class StatementContext(Protocol):
    """The context of a statement rule: the result, and the operands on demand."""

    equation: Equation
    out: Aval

    def once(self, number: int) -> CValue:
        """Return an operand whose elements are each read once."""

    def many(self, number: int) -> CValue:
        """Return an operand whose elements are read many times: it is stored first."""

    def write(self, indices: Sequence[str]) -> str:
        """Return the element of the result at some indices."""


Rule = Callable[[StatementContext], Callable[[], list[str]]]
"""Requests the operands, and returns a function that makes the lines."""

NOT_IN_C = MissingRule("NOT_IN_C", "which is not written in C")


def _otherwise(primitive: Primitive) -> MissingRule | None:
    """Return None for an operation that is written in another way, or that may be, if it holds programs."""
    rules = elements.of(primitive), views.of(primitive), primitive.regions
    return NOT_IN_C if rules == (None, None, None) else None


statements: Analysis[Rule | MissingRule | None] = Analysis(
    "statements in C", "The loop in C that computes an operation which is neither an element nor a view.",
    missing="derive", derive=_otherwise)


def _indices(count: int, first: int = 0) -> list[str]:
    return [INDICES[number] if number < len(INDICES) else f"i{number}" for number in range(first, first + count)]


def _ones(indices: Sequence[str], shape: Sequence[int]) -> list[str]:
    """Return the indices, with 0 along axes of size 1."""
    return ["0" if extent == 1 else index for index, extent in zip(indices, shape, strict=True)]


def _as_block(made: list[str], body: Sequence[str]) -> list[str]:
    """Return the lines of a loop, or of a block if variables would otherwise be declared outside a loop."""
    return made if len(made) != len(body) else ["{", *("    " + line for line in body), "}"]


def _element(primitive: Primitive, x: str, y: str, aval: Aval) -> str:
    """Return the expression of an operation on two elements of one type."""
    rule = elements.of(primitive)
    assert rule is not None
    return rule([x, y], [aval, aval], aval, {})


def _combine_text(primitive: Primitive, total: str, element: str, aval: Aval) -> str:
    """Return the update of a reduction by one more element."""
    if aval.dtype.kind == "f" and primitive in (primitives.add, primitives.mul):
        return f"{total} {'+=' if primitive is primitives.add else '*='} {strip_parentheses(element)};"
    return f"{total} = {strip_parentheses(_element(primitive, total, element, aval))};"


firsts: Analysis[Callable[[np.dtype], Any] | None] = Analysis(
    "first in C", "The number with which a loop in C begins that combines elements by an operation, by dtype.",
    missing="conservative", default=None)
firsts.enter(lambda dtype: 0, primitives.add, primitives["or"], primitives.xor)
firsts.enter(lambda dtype: 1, primitives.mul)
firsts.enter(lambda dtype: True if dtype.kind == "b" else -1 if dtype.kind == "i" else np.iinfo(dtype).max,
             primitives["and"])
firsts.enter(lambda dtype: -math.inf if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min,
             primitives.max)
firsts.enter(lambda dtype: math.inf if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max,
             primitives.min)


def _first(primitive: Primitive, dtype: np.dtype) -> str:
    first = firsts.of(primitive)
    assert first is not None
    return literal(first(dtype), dtype)


def _reduction(primitive: Primitive) -> Rule:
    def rule(target: StatementContext) -> Callable[[], list[str]]:
        x, axes = target.once(0), target.equation.params["axes"]

        def lines() -> list[str]:
            shape = x.aval.shape
            indices = _ones(_indices(len(shape)), shape)
            kept = [axis for axis in range(len(shape)) if axis not in axes]
            inner = loop_lines([indices[axis] for axis in axes], [shape[axis] for axis in axes],
                               [_combine_text(primitive, "total", x.at(indices), x.aval)])
            body = [f"{c_type(x.aval)} total = {_first(primitive, x.aval.dtype)};", *inner,
                    f"{target.write([indices[axis] for axis in kept])} = total;"]
            made = loop_lines([indices[axis] for axis in kept], [shape[axis] for axis in kept], body)
            return _as_block(made, body)
        return lines
    return rule


def _attains(target: StatementContext) -> Callable[[], list[str]]:
    x, out = target.once(0), target.many(1)

    def lines() -> list[str]:
        shape = x.aval.shape
        indices = _ones(_indices(len(shape)), shape)
        own = ["0" if extent == 1 else index for index, extent in zip(indices, out.aval.shape, strict=True)]
        return loop_lines(indices, shape, [f"{target.write(indices)} = {x.at(indices)} == {out.at(own)};"])
    return lines


def _position(sign: str) -> Rule:
    def rule(target: StatementContext) -> Callable[[], list[str]]:
        x, axis = target.many(0), target.equation.params["axis"]

        def lines() -> list[str]:
            shape = x.aval.shape
            indices = _ones(_indices(len(shape)), shape)
            index = indices[axis] = INDICES[axis] if axis < len(INDICES) else f"i{axis}"
            element, best = x.at(indices), x.at([*indices[:axis], "best", *indices[axis + 1:]])
            better = f"{element} {sign} {best}"
            if x.aval.dtype.kind == "f":  # the first NaN, if any
                better = f"{best} == {best} && ({better} || {element} != {element})"
            kept = [number for number in range(len(shape)) if number != axis]
            body = ["int best = 0;", f"for (int {index} = 1; {index} < {shape[axis]}; {index}++)",
                    f"    if ({better})", f"        best = {index};",
                    f"{target.write([indices[number] for number in kept])} = best;"]
            made = loop_lines([indices[number] for number in kept], [shape[number] for number in kept], body)
            return _as_block(made, body)
        return lines
    return rule


def _running(primitive: Primitive) -> Rule:
    def rule(target: StatementContext) -> Callable[[], list[str]]:
        x, params = target.once(0), target.equation.params

        def lines() -> list[str]:
            axis, shape = params["axis"], x.aval.shape
            indices = _indices(len(shape))
            step, extent = "step", shape[axis]
            place = f"{extent - 1} - {step}" if params["reverse"] else step
            given = [place if number == axis else index for number, index in enumerate(indices)]
            body = [f"{c_type(x.aval)} total = {_first(primitive, x.aval.dtype)};",
                    f"for (int {step} = 0; {step} < {extent}; {step}++) {{",
                    f"    {_combine_text(primitive, 'total', x.at(given), x.aval)}",
                    f"    {target.write(given)} = total;", "}"]
            kept = [number for number in range(len(shape)) if number != axis]
            made = loop_lines([indices[number] for number in kept], [shape[number] for number in kept], body)
            return _as_block(made, body)
        return lines
    return rule


def _sort(target: StatementContext) -> Callable[[], list[str]]:
    """Sort by insertion, which is stable; NaNs come last."""
    x, axis = target.once(0), target.equation.params["dimension"]

    def lines() -> list[str]:
        shape = x.aval.shape
        indices = _ones(_indices(len(shape)), shape)
        indices[axis] = "step"
        place, before = (target.write([*indices[:axis], index, *indices[axis + 1:]]) for index in (
            "place", "place - 1"))
        behind = f"value < {before}"
        if x.aval.dtype.kind == "f":
            behind = f"({behind} || ({before} != {before} && value == value))"
        body = [f"for (int step = 0; step < {shape[axis]}; step++) {{",
                f"    const {c_type(x.aval)} value = {strip_parentheses(x.at(indices))};", "    int place = step;",
                f"    for (; place > 0 && {behind}; place--)", f"        {place} = {before};",
                f"    {place} = value;", "}"]
        kept = [number for number in range(len(shape)) if number != axis]
        return loop_lines([indices[number] for number in kept], [shape[number] for number in kept], body)
    return lines


def _product(target: StatementContext) -> Callable[[], list[str]]:
    x, y, params = target.many(0), target.many(1), target.equation.params
    if (params.get("preferred_element_type") or x.aval.dtype) != x.aval.dtype:
        raise SourceRefusal("with another dtype as its preferred_element_type")

    def lines() -> list[str]:
        (x_contract, y_contract), (x_batch, y_batch) = params["dimension_numbers"]
        free = [[axis for axis in range(value.aval.ndim) if axis not in (*contract, *batch)]
                for value, contract, batch in ((x, x_contract, x_batch), (y, y_contract, y_batch))]
        count = len(x_batch) + len(free[0]) + len(free[1])
        shape = [*(x.aval.shape[axis] for axis in (*x_batch, *free[0])), *(y.aval.shape[axis] for axis in free[1])]
        outer = _ones(_indices(count), shape)
        sizes = [x.aval.shape[axis] for axis in x_contract]
        inner = _ones(_indices(len(x_contract), count), sizes)
        batch, left, right = outer[:len(x_batch)], outer[len(x_batch):count - len(free[1])], \
            outer[count - len(free[1]):]
        one, other = (value.at(_order_by_axis(value.aval.ndim,
                                              zip((*batches, *frees, *contracts), (*batch, *side, *inner),
                                                                   strict=True)))
                      for value, batches, frees, contracts, side in ((x, x_batch, free[0], x_contract, left),
                                                                     (y, y_batch, free[1], y_contract, right)))
        kind = c_type(x.aval)
        add, by = (primitives["or"], primitives["and"]) if x.aval.dtype.kind == "b" else (primitives.add,
                                                                                          primitives.mul)

        def summed(total: str, one: str) -> str:
            return _combine_text(add, total, _element(by, one, other, x.aval), x.aval)

        if right and right[-1] != "0" and inner and y.name and free[1][-1] == y.aval.ndim - 1:
            # A row at once, in memory order of both; each element is summed in the order of the loop below.
            start = len(outer) - len(right)
            row = loop_lines(right, shape[start:], [f"{target.write(outer)} = 0;"])
            step = [f"const {kind} factor = {strip_parentheses(one)};", *loop_lines(right, shape[start:], [
                summed(target.write(outer), "factor")])]
            body, loops = [*row, *_as_block(loop_lines(inner, sizes, step), step)], (outer[:start], shape[:start])
        else:
            body = [f"{kind} total = 0;", *loop_lines(inner, sizes, [summed("total", one)]),
                    f"{target.write(outer)} = total;"]
            loops = outer, shape
        made = loop_lines(*loops, body)
        return _as_block(made, body)
    return lines


def _order_by_axis(rank: int, pairs: Any) -> list[str]:
    found = [""] * rank
    for axis, index in pairs:
        found[axis] = index
    return found


def _dynamic_update_slice(target: StatementContext) -> Callable[[], list[str]]:
    x, update = target.once(0), target.once(1)
    starts = [target.many(number) for number in range(2, len(target.equation.inputs))]

    def lines() -> list[str]:
        shape, sizes = x.aval.shape, update.aval.shape
        every, own = _ones(_indices(len(shape)), shape), _ones(_indices(len(sizes)), sizes)
        names = [f"at_{index}" for index in _indices(len(sizes))]
        places = [f"int {name} = {clip_text(start.at([]), extent - size)};" for name, start, extent, size in
                  zip(names, starts, shape, sizes, strict=True)]
        indices = [name if index == "0" else f"{index} + {name}" for index, name in zip(own, names, strict=True)]
        put = f"{target.write(indices)} = {update.at(own)};"
        body = [*loop_lines(every, shape, [f"{target.write(every)} = {x.at(every)};"])]
        if 0 in sizes:
            return body
        used = [place for place, name in zip(places, names, strict=True) if name in put]
        return ["{", *("    " + line for line in (*body, *used, *loop_lines(own, sizes, [put]))), "}"]
    return lines


def _scatter(by: Primitive | None) -> Rule:
    def rule(target: StatementContext) -> Callable[[], list[str]]:
        x, places, updates, params = target.once(0), target.many(1), target.once(2), target.equation.params
        windows = Windows(params["update_window_dims"], params["inserted_window_dims"],
                          params["scatter_dims_to_operand_dims"], params["operand_batching_dims"],
                          params["scatter_indices_batching_dims"])

        def lines() -> list[str]:
            shape, sizes = x.aval.shape, updates.aval.shape
            every, given = _ones(_indices(len(shape)), shape), _ones(_indices(len(sizes)), sizes)
            body = loop_lines(every, shape, [f"{target.write(every)} = {x.at(every)};"])
            if 0 in sizes:
                return body
            wide = windows.slice_sizes(len(shape), sizes)
            own, conditions = window([x, places], windows, wide, params["mode"], given)
            element, new = target.write(own), updates.at(given)
            put = f"{element} = {new};" if by is None else _combine_text(by, element, new, x.aval)
            inner = [f"if ({' && '.join(conditions)})", f"    {put}"] if conditions else [put]
            return [*body, *loop_lines(given, sizes, inner)]
        return lines
    return rule


for _name, _rule in {
    "dot_general": _product, "dynamic_update_slice": _dynamic_update_slice, "reduce_sum": _reduction(primitives.add),
    "reduce_prod": _reduction(primitives.mul), "reduce_max": _reduction(primitives.max),
    "reduce_min": _reduction(primitives.min), "reduce_and": _reduction(primitives["and"]),
    "reduce_or": _reduction(primitives["or"]), "reduce_xor": _reduction(primitives.xor), "argmax": _position(">"),
    "argmin": _position("<"), "attains": _attains, "cumsum": _running(primitives.add),
    "cumprod": _running(primitives.mul), "cummax": _running(primitives.max), "cummin": _running(primitives.min),
    "sort": _sort, "scatter": _scatter(None),
    "scatter_add": _scatter(primitives.add), "scatter_sub": _scatter(primitives.sub),
    "scatter_mul": _scatter(primitives.mul), "scatter_min": _scatter(primitives.min),
    "scatter_max": _scatter(primitives.max),
}.items():
    statements.enter(_rule, primitives[_name])
