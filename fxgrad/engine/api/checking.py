"""`check` and `checked`: errors in the values of a program, raised where the user called it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fxgrad.engine.core.avals import Literal, to_numpy
from fxgrad.engine.core.program import Program
from fxgrad.engine.executors.xla import is_jax
from fxgrad.engine.frontend.callback import flat_arguments
from fxgrad.engine.frontend.calling import trace_for_rewrite
from fxgrad.engine.frontend.flat import plain_outside, transformation
from fxgrad.engine.frontend.formats import check_format
from fxgrad.engine.higher_order.automatic_checks import KINDS, add_checks
from fxgrad.engine.higher_order.checks import (
    Diagnosis,
    Message,
    Raised,
    check_p,
    gather_checks,
    has_checks,
)
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.apply import apply_program
from fxgrad.engine.tracing.tape import aval_of, bind, current
from fxgrad.engine.user_lines import at_user_line, user_line
from fxgrad.errors import ArgumentError


@hide_frames
def check(condition: Any, fmt: str, *args: Any, **kwargs: Any) -> None:
    """Raise `CheckError` with `fmt.format(*args, **kwargs)` unless every element of `condition` is true.

    `condition` is a bool, or an array of them of any shape. It works in all transformations: under `jit` and in loops
    the error is raised by the call of the jitted function, under `vmap` it names the entry, a derivative keeps the
    checks of the function. In loops it names the turn as well.

    Raises `ArgumentError` if `fmt` and the arguments do not fit together, or for a condition of another dtype.

    >>> import fxgrad, numpy as np
    >>> def invert(x):
    ...     fxgrad.check(x != 0, "{x} has no inverse", x=x)
    ...     return 1 / x
    >>> float(fxgrad.jit(invert)(2.0))
    0.5
    >>> fxgrad.vmap(invert)(np.array([2.0, 0.0]))
    Traceback (most recent call last):
        ...
    fxgrad.errors.CheckError: 0.0 has no inverse
    ...
    """
    check_format("check", fmt, args, kwargs, "x > 0, ")
    if aval_of(condition).dtype != np.bool_:
        raise ArgumentError(at_user_line(
            f"check: the condition is {aval_of(condition)}, where bool is needed. Write a comparison, such as "
            "fxgrad.check(x > 0, ...)"))
    structure, constants, values = flat_arguments("check", args, kwargs)
    bind(check_p, condition, *values, report=Message(fmt, user_line(), structure, constants), lanes=())


def check_raise(condition: Any, kind: type[BaseException] | None, fmt: str, *args: Any) -> None:
    """Check in the place of a `raise` of an exception of class `kind`: the error is one of that class, too."""
    structure, constants, values = flat_arguments("check", args, {})
    message = Message(fmt, user_line(), structure, constants)
    report = message if kind is None else Raised.of(kind, message)
    bind(check_p, condition, *values, report=report, lanes=())


def checked(fun: Callable[..., Any], errors: str | Iterable[str] = "user") -> Callable[..., Any]:
    """Return `fun` with checks: it returns the same results, or raises `CheckError` with your line.

    `errors` chooses the automatic ones beside those of `fxgrad.check`: "user" (none), one of the kinds below, several
    of them, or "all".

    | kind | raised for |
    |---|---|
    | "nan" | a NaN that an operation makes of numbers; one that comes in is passed on |
    | "div" | a division by 0, and a remainder, of integers too, where `//` and `%` are 0 as in NumPy |
    | "sqrt" | a root or a logarithm of a negative number |
    | "index" | an index out of range, in reads and updates, which XLA fills or moves into range |
    | "overflow" | an integer result or conversion outside of its dtype |

    The program computes one flag beside its results. Only if it is raised, the program runs once more with NumPy,
    operation by operation, and the error names line, operation, values, the turn of each loop and the entry of a batch.

    Raises `ArgumentError` for an unknown kind.

    >>> import fxgrad, numpy as np
    >>> def mean_log(x):
    ...     return np.mean(np.log(x))
    >>> safe = fxgrad.jit(fxgrad.checked(mean_log, errors="sqrt"))
    >>> float(safe(np.array([1.0, 1.0])))
    0.0
    >>> safe(np.array([1.0, -2.0]))
    Traceback (most recent call last):
        ...
    fxgrad.errors.CheckError: root or logarithm of a negative number: log(-2.0) at [1]
    ...
    """
    kinds = _kinds(errors)

    @transformation("checked", fun)
    @hide_frames
    def with_checks(*args: Any, **kwargs: Any) -> Any:
        traced, leaves = trace_for_rewrite("checked", fun, args, kwargs)
        return traced.rebuild(_run_checked(traced.program, kinds, traced.captured, leaves))
    return with_checks


def _kinds(errors: Any) -> frozenset[str]:
    if errors == "all":
        return frozenset(KINDS)
    chosen = {errors} if isinstance(errors, str) else {*errors}
    unknown = [each for each in chosen if each != "user" and each not in KINDS]
    if unknown:
        raise ArgumentError(at_user_line(
            f"checked: errors has {unknown[0]!r}, where the kinds are 'user', "
            f"{', '.join(map(repr, KINDS))}; 'all' means all of them"))
    return frozenset(chosen - {"user"})


def _run_checked(program: Program, kinds: frozenset[str], captured: list[Any], leaves: list[Any]) -> list[Any]:
    complete, inputs = add_checks(program, kinds, False, captured), [*plain_outside(captured), *leaves]
    if not has_checks(complete):
        return apply_program(program, inputs)
    if current.get() is None and not any(map(is_jax, inputs)):
        return apply_program(complete, inputs)  # NumPy stops at the first check that fails
    *outputs, flag = apply_program(gather_checks(add_checks(program, kinds, True, captured)), inputs)
    if not isinstance(flag, Literal):
        given = inputs if current.get() is not None else [to_numpy(each) if is_jax(each) else each for each in inputs]
        bind(check_p, to_numpy(flag) if is_jax(flag) and current.get() is None else flag, *given,
             report=Diagnosis(complete), lanes=())
    return outputs
