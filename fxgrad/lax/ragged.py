"""Products of arrays with an axis in groups, as in `jax.lax`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fxgrad.engine.core.parameter_classes import declare_parameter_class
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.frontend.strict import as_dtype_or_none, as_integers, refuse_options, require_array
from fxgrad.engine.ops import ragged
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ShapeError

__all__ = ["RaggedDotDimensionNumbers", "ragged_dot", "ragged_dot_general"]


class RaggedDotDimensionNumbers(NamedTuple):
    """The axes of `ragged_dot_general`: those of `dot_general`, the grouped axis of lhs, and the group axis of rhs.

    `lhs_ragged_dimensions` has one axis. `rhs_group_dimensions` has one axis, with an entry for each group, if the
    grouped axis is neither contracted nor a batch axis, and none otherwise.

    >>> RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), [0], [0]).lhs_ragged_dimensions
    [0]
    """

    dot_dimension_numbers: Any
    lhs_ragged_dimensions: Sequence[int]
    rhs_group_dimensions: Sequence[int]


declare_parameter_class(RaggedDotDimensionNumbers)


def ragged_dot(lhs: Any, rhs: Any, group_sizes: Any, precision: Any = None, preferred_element_type: Any = None,
               group_offset: Any = None, out_sharding: Any = None) -> Any:
    """Return rows of `lhs` times one of the matrices `rhs` each: the first `group_sizes[0]` times rhs[0], and so on.

    The shapes are (rows, inner), (groups, inner, columns), (groups,); rows beyond the last group become 0. Raises
    `ShapeError`, `DTypeError`, and `UnsupportedError` for `group_offset`.

    >>> import numpy as np
    >>> ragged_dot(np.ones((3, 1)), np.array([[[2.0]], [[5.0]]]), np.array([1, 2]))
    array([[2.],
           [5.],
           [5.]])
    """
    if out_sharding is not None:
        return place_array("ragged_dot",
                           ragged_dot(lhs, rhs, group_sizes, precision, preferred_element_type, group_offset),
                           out_sharding)
    refuse_options("ragged_dot", group_offset=group_offset)
    left, right, sizes = (require_array("ragged_dot", each) for each in (lhs, rhs, group_sizes))
    return ragged.ragged_dot(left, right, sizes, precision, as_dtype_or_none(preferred_element_type))


def ragged_dot_general(lhs: Any, rhs: Any, group_sizes: Any, ragged_dot_dimension_numbers: Any, precision: Any = None,
                       preferred_element_type: Any = None, group_offset: Any = None, out_sharding: Any = None) -> Any:
    """Return `dot_general` with one axis of `lhs` in groups of consecutive entries, of `group_sizes` each.

    The result depends on the kind of that axis. If it is neither contracted nor a batch axis, each group is multiplied
    with its own entry along the group axis of `rhs`, and the result has the shape of `dot_general`'s without that axis;
    entries beyond the last group become 0. If it is contracted, there is one product for each group, along a new first
    axis. If it is a batch axis, groups have no effect. `group_sizes` has the shape (groups,), preceded or not by the
    sizes of the batch axes of `lhs` and of those of its kind that come before the grouped axis. Raises `ShapeError`,
    `DTypeError`, and `UnsupportedError` for `group_offset`.

    >>> import numpy as np
    >>> columns = RaggedDotDimensionNumbers((((1,), (0,)), ((), ())), [1], [])
    >>> ragged_dot_general(np.ones((1, 3)), np.ones((3, 1)), np.array([1, 2]), columns).ravel()
    array([1., 2.])
    """
    if out_sharding is not None:
        return place_array("ragged_dot_general", ragged_dot_general(
            lhs, rhs, group_sizes, ragged_dot_dimension_numbers, precision, preferred_element_type, group_offset),
            out_sharding)
    refuse_options("ragged_dot_general", group_offset=group_offset)
    numbers = ragged_dot_dimension_numbers
    (left, right), (left_batch, right_batch) = numbers.dot_dimension_numbers
    axes, groups = (as_integers("ragged_dot_general", each)
                    for each in (numbers.lhs_ragged_dimensions, numbers.rhs_group_dimensions))
    if len(axes) != 1 or len(groups) > 1:
        raise ShapeError(at_user_line(
            f"ragged_dot_general: lhs_ragged_dimensions={list(axes)} and rhs_group_dimensions={list(groups)}; one "
            "axis, and one or none are needed"))
    pairs = [as_integers("ragged_dot_general", each) for each in (left, right, left_batch, right_batch)]
    dot = (pairs[0], pairs[1]), (pairs[2], pairs[3])
    dimensions = ragged.RaggedDimensions(dot, axes[0], groups[0] if groups else None)
    arrays = [require_array("ragged_dot_general", each) for each in (lhs, rhs, group_sizes)]
    return ragged.ragged_dot_general(arrays[0], arrays[1], arrays[2], dimensions, precision,
                                     as_dtype_or_none(preferred_element_type))
