"""Losses with layers in loops, by `scan` or by a loop of Python's: recurrent networks, stacks, and both in one."""

from __future__ import annotations

from typing import Any

import numpy as np

import fxgrad
import fxgrad.numpy as fnp

DRAWS = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return DRAWS.normal(size=shape)


def looped(step: Any, carry: Any, entries: Any, unrolled: bool, reverse: bool = False) -> tuple[Any, Any]:
    """Return what `scan` does, by itself or by a loop of Python's."""
    if not unrolled:
        return fxgrad.scan(step, carry, entries, reverse=reverse)
    numbers, found = range(len(fxgrad.tree.leaves(entries)[0])), {}
    for number in reversed(numbers) if reverse else numbers:
        carry, found[number] = step(carry, fxgrad.tree.map(lambda leaf, number=number: leaf[number], entries))
    return carry, fxgrad.tree.map(lambda *leaves: fnp.stack(leaves), *[found[number] for number in numbers])


def recurrent_network(params: Any, xs: Any, unrolled: bool = False) -> Any:
    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = fnp.tanh(h @ params["w"] + x @ params["u"] + params["b"])
        return h, h * params["gain"]
    h, seen = looped(step, np.ones(14), xs, unrolled)
    return fnp.sum(h ** 2) + fnp.sum(fnp.sin(seen))


def of_tokens(params: Any, tokens: Any, targets: Any, unrolled: bool = False) -> Any:
    """One table for lookups and predictions in each step, and another matrix before the loop as well."""
    def step(h: Any, now: Any) -> tuple[Any, Any]:
        h = fnp.tanh(h @ params["w"] + params["table"][now[0]])
        return h, -fxgrad.nn.log_softmax(h @ params["table"].T)[now[1]]
    return fnp.sum(looped(step, fnp.tanh(np.ones(16) @ params["w"]), (tokens, targets), unrolled)[1])


def stack_of_loops(layers: Any, xs: Any, unrolled: bool = False) -> Any:
    def layer(xs: Any, w: Any) -> tuple[Any, Any]:
        return looped(lambda h, x: (fnp.tanh(h @ w + x),) * 2, np.ones(16), xs, unrolled)[1], None
    return fnp.sum(looped(layer, xs, layers, unrolled)[0] ** 2)


def loop_of_stacks(layers: Any, xs: Any, unrolled: bool = False) -> Any:
    def step(h: Any, x: Any) -> tuple[Any, Any]:
        return looped(lambda h, w: (fnp.tanh(h @ w + x), None), h, layers, unrolled)[0], 0.0
    h, zeros = looped(step, np.ones(16), xs, unrolled)
    return fnp.sum(h ** 2) + fnp.sum(zeros)


def both_ways(layers: Any, x: Any, unrolled: bool = False) -> Any:
    h, _ = looped(lambda h, w: (fnp.tanh(h @ w), None), x, layers, unrolled)
    return fnp.sum(looped(lambda h, w: (fnp.sin(h @ w), None), h, layers, unrolled, reverse=True)[0])


def carried_along(w: Any, xs: Any, unrolled: bool = False) -> Any:
    (h, after), _ = looped(lambda carry, x: ((fnp.tanh(carry[0] @ carry[1] + x), carry[1]), None), (np.ones(16), w), xs,
                           unrolled)
    return fnp.sum(h @ after)


def lookups_in_a_stack(tables: Any, x: Any, tokens: Any, unrolled: bool = False) -> Any:
    return fnp.sum(looped(lambda h, table: (fnp.tanh(h + table[tokens]), None), x, tables, unrolled)[0])


def convolved_in_a_loop(w: Any, xs: Any, unrolled: bool = False) -> Any:
    return fnp.sum(looped(lambda h, x: (fnp.tanh(fxgrad.lax.conv_general_dilated(h[None], w, (1, 1), "SAME")[0] + x),
                                        None), np.ones(xs.shape[1:]), xs, unrolled)[0])


LOOPS = {
    "recurrent network": (recurrent_network, {"b": draw(14), "gain": draw(14), "u": draw(30, 14), "w": draw(14, 14)},
                          (draw(3, 9, 30),)),
    "tokens": (of_tokens, {"table": draw(40, 16), "w": draw(16, 16)},
               (DRAWS.integers(0, 40, (3, 9)), DRAWS.integers(0, 40, (3, 9)))),
    "stack of loops": (stack_of_loops, 0.3 * draw(10, 16, 16), (draw(3, 9, 16),)),
    "loop of stacks": (loop_of_stacks, 0.3 * draw(10, 16, 16), (draw(3, 9, 16),)),
    "both ways": (both_ways, draw(9, 8, 8), (draw(3, 8),)),
    "carried along": (carried_along, draw(16, 16), (draw(3, 9, 16),)),
    "lookups in a stack": (lookups_in_a_stack, draw(9, 20, 3), (draw(3, 2, 3), DRAWS.integers(0, 20, (3, 2)))),
    "convolution": (convolved_in_a_loop, draw(30, 30, 2, 2), (draw(2, 9, 30, 1, 1),)),
}
