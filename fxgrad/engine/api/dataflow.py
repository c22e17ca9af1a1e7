"""`dataflow`: a block in which un-jitted programs run as dataflow, on several threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from fxgrad.engine.core.backends import use_executor
from fxgrad.engine.executors.dataflow import DataflowExecutor
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError


@contextmanager
def dataflow(threads: int | None = None, *, seed: int | None = None) -> Iterator[None]:
    """Within the block an operation of an un-jitted program runs as soon as its operands are ready, on some thread.

    It is for programs with several large operations that do not wait for each other: factorisations, products of
    matrices, convolutions, loops. `threads` is the number of threads, by default that of the processors. Results have
    the same bits in any order, effects and users' code keep theirs, and the error that is raised is that of the first
    operation in the program. With a `seed` the order is random, to show just that. Programs on jax's arrays are run by
    XLA as ever, and jitted functions are not concerned.

    The linear algebra of NumPy may use several threads for one operation already; `OPENBLAS_NUM_THREADS=1`, set before
    NumPy is imported, leaves the processors to the operations.

    Raises `ArgumentError` unless `threads` is a positive integer.

    >>> import numpy as np, fxgrad
    >>> def sum_of_logdets(a, b):
    ...     return np.linalg.slogdet(a)[1] + np.linalg.slogdet(b)[1]
    >>> with fxgrad.dataflow(threads=2):
    ...     fxgrad.grad(sum_of_logdets)(2.0 * np.eye(2), np.eye(2))
    array([[0.5, 0. ],
           [0. , 0.5]])
    """
    count: Any = _processors() if threads is None else threads
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ArgumentError(at_user_line(
            f"dataflow: threads={threads!r}, where a positive integer is needed, such as threads=2"))
    random = None if seed is None else Random(seed)  # noqa: S311  (an order, and no secret)
    executor = DataflowExecutor(count, None if random is None else lambda ready: random.randrange(len(ready)))
    try:
        with use_executor(executor):
            yield
    finally:
        executor.close()


def _processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
