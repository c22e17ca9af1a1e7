"""`roll`: repeated blocks of a function compiled once, as a loop or as one function that is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxgrad.engine.frontend.calling import trace_for_rewrite
from fxgrad.engine.frontend.flat import plain_outside, transformation
from fxgrad.engine.higher_order.rolling import Way, choose_by_hand, merge_equal_numbers, roll_program
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.apply import apply_program
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError


def roll(fun: Callable[..., Any], *, by: str | None = None, at_least: int = 3) -> Callable[..., Any]:
    """Return `fun` with its repeated blocks rolled: layers and steps of a Python loop that record the same operations.

    Blocks are equal up to the values that they read and the numbers in them. By "scan" they become one
    `fxgrad.lax.scan`: layers whose parameters lie stacked (`w[i]` of one array) are scanned over in place, forward and
    backward; parameters in separate arrays are stacked first, at each call. By "call" they become calls of one
    function, which XLA compiles apart on CPUs; parameters stay where they are. None chooses a scan where nothing has to
    be stacked for it, and else calls. A block that reads values of other copies than the one before is always called.

    Blocks of fewer than `at_least` copies stay as they are, and so do those with effects, collective operations or
    code that runs at each call (callbacks). The results are equal up to the rounding of compiled code. It composes with
    all transformations: `make_program(roll(f))` prints the rolled program, and `roll(grad(f))` rolls the forward and
    the backward pass. `jit` rolls large programs by itself.

    Raises `ArgumentError` for another `by`, and for `at_least` below 2.

    >>> import fxgrad, numpy as np
    >>> def network(weights, x):
    ...     for i in range(4):
    ...         x = np.tanh(weights[i] @ x)
    ...     return x
    >>> program = fxgrad.make_program(fxgrad.roll(network))(np.ones((4, 2, 2)), np.ones(2))
    >>> [(str(equation.primitive), equation.params["length"]) for equation in program.equations]
    [('scan', 4)]
    """
    if by not in (None, "scan", "call"):
        raise ArgumentError(at_user_line(f"roll: by={by!r}, where 'scan', 'call' or None is needed"))
    if at_least < 2:
        raise ArgumentError(at_user_line(f"roll: at_least={at_least!r}, where at least 2 copies make a repeated block"))

    @transformation("roll", fun)
    @hide_frames
    def rolled(*args: Any, **kwargs: Any) -> Any:
        traced, leaves = trace_for_rewrite("roll", fun, args, kwargs)
        program, captured = merge_equal_numbers(traced.program, traced.captured)
        rolled_program = roll_program(program, Way(choose_by_hand[by], at_least))
        return traced.rebuild(apply_program(rolled_program, [*plain_outside(captured), *leaves]))
    return rolled
