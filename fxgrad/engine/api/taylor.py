"""Derivatives of high order in one direction: `jet`, `taylor` and `derivatives`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import tree
from fxgrad.engine.api.arguments import (
    Selected,
    check_differentiable,
    gradient_leaf,
    leaf_avals,
    like_given,
    match_trees,
    select_arguments,
    tangent_leaf,
    transformation,
)
from fxgrad.engine.api.reverse import trace_differentiated
from fxgrad.engine.core.avals import without_literals
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.frontend.flat import nth_name
from fxgrad.engine.higher_order.series import series_program
from fxgrad.engine.ops.arithmetic import div
from fxgrad.engine.ops.pointwise import scalar_like
from fxgrad.engine.ops.structural import zeros
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.transforms.forward import ONE
from fxgrad.engine.user_lines import at_user_line, named_as
from fxgrad.errors import ArgumentError


@hide_frames
def jet(fun: Callable[..., Any], primals: Sequence[Any], series: Sequence[Sequence[Any]]) -> tuple[Any, Any]:
    """Return the output of `fun` and its derivatives along a curve: `(output, derivatives)`, as jax's `jet`.

    The arguments move on the curve x(t) = x_0 + x_1 t + x_2 t^2 / 2! + ...: `primals` has x_0 for each argument,
    `series` the list [x_1, x_2, ...] for each, all of one length n. The derivatives of `fun(x(t))` at t = 0 of orders 1
    to n are returned as a list of n containers, each like the output.

    All operations that have a jvp rule are taken, loops and branches included; the work grows with the square of n.
    Raises `TreeError` or `ArgumentError` where primals and series do not match.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> output, derivatives = fxgrad.jet(fnp.sin, (0.5,), ([1.0, 0.0, 0.0],))
    >>> [round(float(each), 4) for each in derivatives]  # cos, -sin, -cos
    [0.8776, -0.4794, -0.8776]
    """
    transformation("jet", fun)
    for name, value in (("primals", primals), ("series", series)):
        if not isinstance(value, tuple | list):
            raise ArgumentError(at_user_line(
                f"jet takes the {name} as a tuple, one entry for each argument, got a {type(value).__name__}. "
                f"Write jet(f, (x,), ([x1, x2],))"))
    if len(series) != len(primals):
        raise ArgumentError(at_user_line(
            f"jet got {len(primals)} primals and {len(series)} series, where one series for each argument is needed. "
            "Write jet(f, (x,), ([x1, x2],))"))
    lengths = sorted({len(each) if isinstance(each, tuple | list) else -1 for each in series})
    if len(lengths) != 1 or lengths[0] < 0:
        found = [f"{len(each)} terms" if isinstance(each, tuple | list) else f"a {type(each).__name__}"
                 for each in series]
        raise ArgumentError(at_user_line(
            f"jet takes series that are lists of one length, one for each argument, got {', '.join(found) or 'none'}. "
            "Write jet(f, (x,), ([x1, x2],))"))
    order = lengths[0]
    terms = [tuple(each[level] for each in series) for level in range(order)]
    selected = select_arguments("jet", fun, tuple(range(len(primals))), tuple(primals))
    return _expand("jet", fun, tuple(primals), selected, terms, order, scaled=True)


def taylor(fun: Callable[..., Any], order: int) -> Callable[..., Any]:
    """Return the function `(x, *args, direction=None)` -> Taylor coefficients of `fun` at `x`, of orders 0 to `order`.

    They are those of t -> fun(x + t * direction, *args): a tuple of `order + 1` containers, each like the output; that
    of order k is the k-th derivative divided by k!. `direction` is a container like `x`, of equal shapes; a real number
    `x` needs none, and has 1. Raises `ArgumentError` for a negative order and without a direction where
    `x` is no number, `DTypeError` for integers.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> [round(float(each), 4) for each in fxgrad.taylor(fnp.exp, 4)(0.0)]
    [1.0, 1.0, 0.5, 0.1667, 0.0417]
    """
    return _along("taylor", fun, order, scaled=False)


def derivatives(fun: Callable[..., Any], order: int) -> Callable[..., Any]:
    """Return the function `(x, *args, direction=None)` -> derivatives of `fun` at `x`, of orders 0 to `order`.

    They are those of t -> fun(x + t * direction, *args) at t = 0: a tuple of `order + 1` containers, each like the
    output. `direction` is a container like `x`, of equal shapes; a real number `x` needs none, and has 1. Raises
    `ArgumentError` for a negative order and without a direction where `x` is no number, `DTypeError` for integers.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> [float(each) for each in fxgrad.derivatives(lambda x: x ** 3, 4)(2.0)]
    [8.0, 12.0, 12.0, 6.0, 0.0]
    """
    return _along("derivatives", fun, order, scaled=True)


def _along(what: str, fun: Callable[..., Any], order: int, scaled: bool) -> Callable[..., Any]:
    transformation(what, fun)
    if isinstance(order, bool) or not isinstance(order, int) or order < 0:
        raise ArgumentError(at_user_line(
            f"{what} takes the highest order as an integer of at least 0, got {order!r}. Write {what}(f, 3)"))

    @hide_frames
    @named_as(fun, ())
    def expanded(x: Any, *args: Any, direction: Any = None) -> tuple[Any, ...]:
        selected = select_arguments(what, fun, 0, (x, *args))
        check_differentiable(what, selected, leaf_avals(what, selected))
        if direction is None and [np.shape(leaf) for leaf in selected.leaves] != [()]:
            raise ArgumentError(at_user_line(
                f"{what}(f, {order}) needs a direction where x is no number: a container like x. Write "
                f"{what}(f, {order})(x, direction=v) for the derivatives of f(x + t * v) by t"))
        terms = [] if order == 0 else [ONE] if direction is None else [(direction,)]
        output, found = _expand(what, fun, (x, *args), selected, terms, order, scaled)
        return (output, *found)
    return expanded


def _expand(what: str, fun: Callable[..., Any], args: tuple[Any, ...], selected: Selected, terms: Sequence[Any],
            order: int, scaled: bool) -> tuple[Any, list[Any]]:
    """Return the output and its Taylor coefficients of orders 1 to `order`; if `scaled`, times the factorial of each.

    `terms` are derivatives of the arguments by `t`, from order 1 on: tuples like those selected, or `ONE`.
    """
    avals = leaf_avals(what, selected)
    is_jet = what == "jet"
    columns: list[list[Any]] = [[] for _ in avals]
    for level, term in enumerate(terms, 1):
        if term == ONE:
            break
        given = match_trees(what, "primals" if is_jet else "x", selected.structure, "series" if is_jet else "direction",
                            term)
        for index, (value, aval) in enumerate(zip(given, avals, strict=True)):
            leaf = tangent_leaf(what, value, aval, nth_name(selected.names, index), "term" if is_jet else "direction")
            if type(leaf) is not Zero and level > 1:
                leaf = div(leaf, scalar_like(math.factorial(level), leaf))
            columns[index].append(leaf)
    traced, _ = trace_differentiated(what, fun, False, args, {}, selected, avals)
    counts: list[int | str] = [ONE] if [*terms] == [ONE] else [
        0 if any(type(value) is Zero for value in column) else len(column) for column in columns]
    derived = series_program(traced.program, (*[0] * traced.program.captured, *counts), order, scaled=scaled)
    coefficients = [value for column, count in zip(columns, counts, strict=True) if count for value in column]
    results = without_literals(derived(traced.inputs(*selected.leaves, *coefficients)))
    out_avals, remaining = traced.program.out_avals, iter(results[len(traced.program.outputs):])
    found = [[next(remaining) for _ in range(order)] if mark else without_literals([zeros(aval)] * order)
             for aval, mark in zip(out_avals, derived.extra, strict=True)]
    series = [[gradient_leaf(column[level], aval) for column, aval in zip(found, out_avals, strict=True)]
              for level in range(order)]
    first, *later = like_given([results[:len(out_avals)], *series], [*selected.leaves, *tree.leaves([*terms])])
    return tree.unflatten(traced.out_tree, first), [tree.unflatten(traced.out_tree, each) for each in later]
