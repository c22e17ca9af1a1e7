"""`ensure_compile_time_eval`: compute at once while a function is traced, instead of recording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fxgrad.engine.tracing.tape import current


@contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Within the block compute all that does not depend on a traced array at once, within `jit` and loops too.

    Python sees these values: `if` and `int` accept them. Effects on them, such as printing, take place at once, too.
    Operations on traced arrays are recorded as usual.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> @fxgrad.jit
    ... def f(x):
    ...     with fxgrad.ensure_compile_time_eval():
    ...         size = int(fnp.sum(fnp.arange(3)))
    ...     return x[:size]
    >>> f(fnp.arange(5)).shape
    (3,)
    """
    staging, taking = [], []
    tape = current.get()
    while tape is not None:
        if tape.staging:
            staging.append(tape)
            tape.staging = False
        if tape.takes_effects:
            taking.append(tape)
            tape.takes_effects = False
        tape = tape.parent
    try:
        yield
    finally:
        for tape in staging:
            tape.staging = True
        for tape in taking:
            tape.takes_effects = True
