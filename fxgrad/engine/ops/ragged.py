"""Products of arrays with an axis in groups, each group by itself, computed by dot_general."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fxgrad.engine import dtypes
from fxgrad.engine.dtypes import DType
from fxgrad.engine.ops.arithmetic import sub
from fxgrad.engine.ops.comparison import and_, ge, lt
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.ops.cumulative import cumsum
from fxgrad.engine.ops.families import check_kind, check_same_dtype
from fxgrad.engine.ops.products import DotDimensions, dot_general
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.structural import convert, reshape, transpose
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ShapeError

COVERED_BY = {
    "ragged_dot_general": "dot_general of operands masked for each group (fxgrad.lax.ragged_dot_general)",
    "scaled_dot": "dot_general of operands multiplied by their scales (fxgrad.lax.scaled_dot)",
}
"""jax's primitives of this family without a counterpart in fxgrad, and their replacements."""


class RaggedDimensions(NamedTuple):
    """The axes of a grouped product.

    `dot` has those of dot_general, `ragged` the left operand's axis in groups, and `group` the right operand's axis
    with an entry for each group, or None.
    """

    dot: DotDimensions
    ragged: int
    group: int | None


def ragged_dot_general(lhs: Any, rhs: Any, group_sizes: Any, dimensions: RaggedDimensions, precision: Any = None,
                       preferred_element_type: DType | None = None) -> Any:
    """Return the products of the groups: each with the entries of the other groups set to 0."""
    left, right, sizes = map(aval_of, (lhs, rhs, group_sizes))
    (contracted, right_contracted), (batch, right_batch) = dimensions.dot
    ragged = dimensions.ragged
    check_same_dtype("ragged_dot_general", left, right)
    check_kind("ragged_dot_general (group_sizes)", "integer", sizes)
    _check(left.shape, right.shape, sizes.shape, dimensions)
    if ragged in batch:
        return dot_general(lhs, rhs, dimensions.dot, precision, preferred_element_type)
    counted = convert(group_sizes, dtypes.int32)
    before = _axes_before(left.ndim, dimensions)
    masked = _mask_groups(lhs, ragged, counted, before)
    if ragged not in contracted:
        assert dimensions.group is not None
        numbers = (((*_shift_axes(contracted), 0), (*right_contracted, dimensions.group)),
                   (_shift_axes(batch), right_batch))
        return dot_general(masked, rhs, numbers, precision, preferred_element_type)
    partners = dict(zip((*batch, *contracted), (*right_batch, *right_contracted), strict=True))
    other = _mask_groups(rhs, partners[ragged], counted, [partners[axis] for axis in before])
    numbers = ((_shift_axes(contracted), _shift_axes(right_contracted)),
               ((0, *_shift_axes(batch)), (0, *_shift_axes(right_batch))))
    return dot_general(masked, other, numbers, precision, preferred_element_type)


def _shift_axes(axes: Sequence[int]) -> tuple[int, ...]:
    """Return the axes of an array after a new one is added in front."""
    return tuple([axis + 1 for axis in axes])


def _axes_before(ndim: int, dimensions: RaggedDimensions) -> list[int]:
    """Return the axes of the left operand along which group sizes may differ: those before the ragged one."""
    (contracted, _), (batch, _) = dimensions.dot
    ragged = dimensions.ragged
    if ragged in batch:
        return [*batch[:batch.index(ragged)]]
    kin = contracted if ragged in contracted else [axis for axis in range(ndim) if axis not in (*contracted, *batch)]
    return [*batch, *kin[:kin.index(ragged)]]


def _mask_groups(x: Any, axis: int, sizes: Any, before: Sequence[int]) -> Any:
    """Return `x` for each group, along a new axis in front: 0 where `axis` has entries of other groups."""
    shape, groups = aval_of(x).shape, aval_of(sizes).shape[-1]
    ends = cumsum(sizes, aval_of(sizes).ndim - 1)
    begins = sub(ends, sizes)
    numbers = iota(dtypes.int32, (1,) * (axis + 1) + (shape[axis],) + (1,) * (len(shape) - axis - 1), axis + 1)

    def placed(bounds: Any) -> Any:
        if aval_of(bounds).ndim == 1:
            return reshape(bounds, (groups,) + (1,) * len(shape))
        order = sorted(range(len(before)), key=before.__getitem__)
        turned = transpose(bounds, (len(before), *order))
        return reshape(turned, (groups, *(size if each in before else 1 for each, size in enumerate(shape))))
    members = and_(ge(numbers, placed(begins)), lt(numbers, placed(ends)))
    return where(members, reshape(x, (1, *shape)), 0)


def _check(left: Sequence[int], right: Sequence[int], sizes: Sequence[int], dimensions: RaggedDimensions) -> None:
    (contracted, right_contracted), (batch, right_batch) = dimensions.dot
    ragged, group = dimensions.ragged, dimensions.group
    name = "ragged_dot_general"
    if not 0 <= ragged < len(left):
        raise ShapeError(f"{name}: lhs_ragged_dimensions has {ragged}, and lhs has the shape {tuple(left)}")
    if (group is None) != (ragged in (*contracted, *batch)):
        raise ShapeError(f"{name}: rhs_group_dimensions has one axis where the ragged axis of lhs is neither "
                         "contracted nor a batch axis, and none otherwise")
    if group is not None and not (0 <= group < len(right) and group not in (*right_contracted, *right_batch)):
        raise ShapeError(f"{name}: rhs_group_dimensions has {group}; an axis of rhs, whose shape is {tuple(right)}, is "
                         "needed that is neither contracted nor a batch axis")
    wanted = (*(left[axis] for axis in _axes_before(len(left), dimensions)), sizes[-1] if sizes else 0)
    if len(sizes) != 1 and tuple(sizes) != wanted:
        raise ShapeError(f"{name}: group_sizes has the shape {tuple(sizes)}; (groups,) or {wanted[:-1]} and the groups "
                         "are needed")
    if group is not None and right[group] != sizes[-1]:
        raise ShapeError(f"{name}: axis {group} of rhs has {right[group]} entries, and there are {sizes[-1]} groups")


def ragged_dot(lhs: Any, rhs: Any, group_sizes: Any, precision: Any = None,
               preferred_element_type: DType | None = None) -> Any:
    """Return the first `group_sizes[0]` rows of `lhs` times `rhs[0]`, the next times `rhs[1]`, ...; then 0."""
    left, right, sizes = map(aval_of, (lhs, rhs, group_sizes))
    if left.ndim != 2 or right.ndim != 3 or left.shape[1] != right.shape[1] or sizes.shape != right.shape[:1]:
        raise ShapeError(at_user_line(f"ragged_dot: shapes {left.shape}, {right.shape} and {sizes.shape}; (rows, "
                                      "inner), (groups, inner, columns) and (groups,) are needed"))
    return ragged_dot_general(lhs, rhs, group_sizes, ROWS, precision, preferred_element_type)


ROWS = RaggedDimensions((((1,), (1,)), ((), ())), 0, 0)
"""Rows of a matrix in groups, each with a matrix of its own."""
