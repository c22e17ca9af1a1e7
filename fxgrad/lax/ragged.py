"""Products of matrices with groups of rows, as in `jax.lax`."""

from __future__ import annotations

from typing import Any

from fxgrad import dtypes
from fxgrad.errors import UnsupportedError, at_user_line
from fxgrad.frontend.operands import as_array
from fxgrad.ops import ragged

__all__ = ["ragged_dot"]


def ragged_dot(lhs: Any, rhs: Any, group_sizes: Any, precision: Any = None, preferred_element_type: Any = None,
               group_offset: Any = None, out_sharding: Any = None) -> Any:
    """The rows of `lhs` times one of the matrices `rhs` each: the first `group_sizes[0]` rows times rhs[0], and so on.

    The shapes are (rows, inner), (groups, inner, columns), (groups,); rows beyond the last group become 0. Raises
    `ShapeError`, `DTypeError`, and `UnsupportedError` for the last two arguments.

    >>> import numpy as np
    >>> ragged_dot(np.ones((3, 1)), np.array([[[2.0]], [[5.0]]]), np.array([1, 2]))
    array([[2.],
           [5.],
           [5.]])
    """
    if group_offset is not None or out_sharding is not None:
        raise UnsupportedError(at_user_line("ragged_dot: group_offset= and out_sharding= are not supported; leave them "
                                            "out"))
    precision = precision if precision is None or isinstance(precision, str) else precision.name.lower()
    wanted = None if preferred_element_type is None else dtypes.canonical(preferred_element_type)
    return ragged.ragged_dot(as_array(lhs), as_array(rhs), as_array(group_sizes), precision, wanted)
