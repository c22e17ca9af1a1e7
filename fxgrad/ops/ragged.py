"""Products of matrices with rows in groups, each group with a matrix of its own: made of dot_general."""

from __future__ import annotations

from typing import Any

from fxgrad import dtypes
from fxgrad.dtypes import DType
from fxgrad.errors import ShapeError
from fxgrad.ops.arithmetic import sub
from fxgrad.ops.choose import where
from fxgrad.ops.comparison import and_, ge, lt
from fxgrad.ops.creation import iota
from fxgrad.ops.cumulative import cumsum
from fxgrad.ops.families import check_kind, check_same_dtype
from fxgrad.ops.products import dot_general
from fxgrad.ops.space import convert, reshape
from fxgrad.tracing.tape import aval_of

COVERED_BY = {
    "ragged_dot_general": "dot_general of an operand masked for each group, for matrices (fxgrad.lax.ragged_dot)",
    "scaled_dot": "dot_general of operands multiplied by their scales: fxgrad has no dtypes of 8 bits and less",
}
"""Primitives of jax of this family that fxgrad has none for, and what stands in their place."""


def ragged_dot(lhs: Any, rhs: Any, group_sizes: Any, precision: Any = None,
               preferred_element_type: DType | None = None) -> Any:
    """The first `group_sizes[0]` rows of `lhs` times `rhs[0]`, the next ones times `rhs[1]`, ...; 0 for rows beyond.

    Each group sees `lhs` with the rows of the others set to 0, so one product over rows and groups adds up the parts.
    """
    left, right, sizes = map(aval_of, (lhs, rhs, group_sizes))
    check_same_dtype("ragged_dot", left, right)
    check_kind("ragged_dot (group_sizes)", "integer", sizes)
    if left.ndim != 2 or right.ndim != 3 or left.shape[1] != right.shape[1] or sizes.shape != right.shape[:1]:
        raise ShapeError(f"ragged_dot: shapes {left.shape}, {right.shape} and {sizes.shape}; (rows, inner), (groups, "
                         "inner, columns) and (groups,) are needed")
    (rows, inner), groups = left.shape, right.shape[0]
    counted = convert(group_sizes, dtypes.int32)
    ends = cumsum(counted, 0)
    numbers = iota(dtypes.int32, (1, rows), 1)
    begins, ends = reshape(sub(ends, counted), (groups, 1)), reshape(ends, (groups, 1))
    members = and_(ge(numbers, begins), lt(numbers, ends))
    masked = where(reshape(members, (groups, rows, 1)), reshape(lhs, (1, rows, inner)), 0)
    return dot_general(masked, rhs, (((0, 2), (0, 1)), ((), ())), precision, preferred_element_type)
