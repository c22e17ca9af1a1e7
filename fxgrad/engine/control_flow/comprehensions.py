"""`sum`, `any`, `min`, `len`, `next` and lists of comprehensions whose length or filter is traced."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine.api.programs import eval_shape
from fxgrad.engine.control_flow.blocks import Thunk, is_unknown, refuse_in_try
from fxgrad.engine.control_flow.builtin_functions import extreme_of_turns, kept_elements
from fxgrad.engine.control_flow.calls import called
from fxgrad.engine.control_flow.conditions import boolean, boolean_of, if_expression, known_filter, not_
from fxgrad.engine.control_flow.loops import Counter, loop
from fxgrad.engine.control_flow.positions import as_items
from fxgrad.engine.control_flow.sequences import Sequences, as_sequence
from fxgrad.engine.control_flow.structures import is_growing
from fxgrad.engine.control_flow.variables import Names

_REDUCTIONS = (sum, any, all, min, max, len, next)


def reduced(function: Any, listed: bool, width: int, items: Any, element: Callable[..., Any],
            keep: Callable[..., Any] | None, *start: Any, **options: Any) -> Any:
    """Return what `sum`, `any`, `all`, `min`, `max`, `len` or `next` makes of a comprehension.

    Its filter may be traced, and its length. `element` and `keep`, the filter, take an item, or its `width` parts if
    that is not 0.
    """
    def parts(each: Any) -> tuple[Any, ...]:
        return tuple(each) if width else (each,)

    items = as_sequence(items) if is_growing(items) else items
    is_staged = isinstance(items, Sequences) and is_unknown(items.length)
    is_known = not is_staged and keep is None
    if is_known or not any(function is each for each in _REDUCTIONS):  # a name may be another function's
        values = (element(*parts(each)) for each in items if keep is None or known_filter(keep(*parts(each))))
        return called(function)([*values] if listed else values, *start, **options)
    if function is len:
        return reduced(sum, listed, width, items, lambda *_: 1, keep)
    if function is next and start:
        options = {"default": start[0]}
    if function is min or function is max or function is next:
        return extreme_of_turns(function, items, lambda each: element(*parts(each)), (
            lambda each: True) if keep is None else lambda each: keep(*parts(each)), **options)
    if function is all:  # unless any is false
        return not_(reduced(any, listed, width, items, lambda *given: not_(element(*given)), keep))
    step = _added if function is sum else _found
    total = start[0] if start else 0 if function is sum else False

    def turn(each: Any) -> None:
        nonlocal total
        given = parts(each)
        total = step(total, lambda: True if keep is None else keep(*given), lambda: element(*given))

    if not is_staged:
        for each in items:
            turn(each)
            if function is any and total is True:
                break
        return total
    refuse_in_try(function.__name__)
    if function is sum:
        def one(number: Any) -> Any:
            return total + element(*parts(items.item(number)))

        of_turn = eval_shape(one, np.int64(0))
        if of_turn.shape:
            total = fnp.zeros(of_turn.shape, of_turn.dtype) + total
    unfinished = None if function is sum else cast(FunctionType, lambda: not_(total))
    loop("for", unfinished, cast(FunctionType, turn), Names(["total"], [], ["total"]),
         Counter(items.length, items.item), guaranteed=False)
    return total


def kept(width: int, items: Any, element: Callable[..., Any], keep: Callable[..., Any] | None) -> list[Any]:
    """Return the list of a comprehension; items that a traced condition keeps, or that may be there, may be there."""
    if isinstance(items, Sequences) and is_unknown(items.length) and items.most is not None:
        items = as_items([items.item(number) for number in range(items.most)], items.length)
    if not width:
        return kept_elements(items, element, keep)
    return kept_elements(items, lambda each: element(*each), None if keep is None else lambda each: keep(*each))


def _added(total: Any, is_kept: Thunk, value: Thunk) -> Any:
    return if_expression(is_kept(), lambda: total + value(), lambda: total)


def _found(found: Any, is_kept: Thunk, value: Thunk) -> Any:
    return boolean("or", found, lambda: boolean_of(boolean("and", is_kept(), value)))
