"""A container of arrays as one vector, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.engine import tree
from fxgrad.engine.frontend.operands import as_array_operand, common_type, default_float_dtype
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError
from fxgrad.numpy.creation import astype
from fxgrad.numpy.joining import concatenate
from fxgrad.numpy.shaping import ravel, reshape

__all__ = ["ravel_pytree"]


def ravel_pytree(pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """All elements of the arrays in `pytree` as one vector, and the function that takes such a vector apart again.

    The vector has the dtype to which those of the leaves promote; taken apart, each leaf has its own again. Raises
    `ArgumentError` where the function is given an array of another shape or dtype.

    >>> import numpy as np, fxgrad
    >>> vector, unravel = fxgrad.flatten_util.ravel_pytree({"w": np.ones((2, 2)), "b": np.zeros(1)})
    >>> vector
    array([0., 1., 1., 1., 1.])
    >>> unravel(vector * 2.0)["w"]
    array([[2., 2.],
           [2., 2.]])
    """
    leaves, structure = tree.flatten(pytree)
    arrays = [as_array_operand(leaf) for leaf in leaves]
    avals = [aval_of(array) for array in arrays]
    if not arrays:
        return np.zeros(0, default_float_dtype()), lambda _: tree.unflatten(structure, [])
    dtype, _ = common_type(avals)
    flat = concatenate([astype(ravel(array), dtype) for array in arrays])
    count = sum(aval.size for aval in avals)

    def unravel(vector: Any) -> Any:
        vector = as_array_operand(vector)
        given = aval_of(vector)
        if given.shape != (count,) or given.dtype != dtype:
            raise ArgumentError(at_user_line(
                f"unravel: a vector {given.strong()}, where {dtype.name} of shape ({count},) is needed"))
        parts, begin = [], 0
        for aval in avals:
            part = slice_in_dim(vector, begin, begin + aval.size, 0)
            parts.append(astype(reshape(part, aval.shape), aval.dtype))
            begin += aval.size
        return tree.unflatten(structure, parts)
    return flat, unravel
