"""The barriers of `jax.lax` to derivatives and to the compiler: stop_gradient and optimization_barrier."""

from __future__ import annotations

from typing import Any

from fxgrad.engine import tree
from fxgrad.engine.dtypes import is_inexact
from fxgrad.engine.frontend.strict import require_array
from fxgrad.engine.ops.arithmetic import stop_gradient as stopped
from fxgrad.engine.ops.barrier import barrier
from fxgrad.engine.tracing.tape import aval_of

__all__ = ["optimization_barrier", "stop_gradient"]


def stop_gradient(x: Any) -> Any:
    """Return the arrays of a container unchanged, with zero derivatives. Raises `ArgumentError` for other leaves.

    >>> import fxgrad
    >>> float(fxgrad.grad(lambda x: x * stop_gradient(x))(3.0))
    3.0
    """
    leaves, structure = tree.flatten(x)
    return tree.unflatten(structure, [stopped(require_array("stop_gradient", leaf)) if is_inexact(aval_of(leaf).dtype)
                                      else leaf for leaf in leaves])


def optimization_barrier(operand: Any, /) -> Any:
    """Return the arrays of a container unchanged; XLA computes all of them before any operation that uses one.

    No computation is moved, merged or left out across it. Derivatives pass. Raises `ArgumentError` for other leaves.

    >>> import numpy as np
    >>> optimization_barrier({"a": np.ones(2)})
    {'a': array([1., 1.])}
    """
    leaves, structure = tree.flatten(operand)
    return tree.unflatten(structure, barrier([require_array("optimization_barrier", leaf) for leaf in leaves]))
