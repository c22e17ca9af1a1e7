"""The functions of `jax.lax` that index by computed positions: dynamic slices, gather, scatter."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fxgrad.engine import dtypes, tree
from fxgrad.engine.core.avals import Shape
from fxgrad.engine.core.parameter_classes import declare_parameter_class
from fxgrad.engine.frontend.operands import as_integer, is_concrete, shape_of
from fxgrad.engine.frontend.strict import as_integers, check_operands, require_array, strict_axis_of, unify_dtypes
from fxgrad.engine.ops import dynamic, indexing
from fxgrad.engine.ops.arithmetic import rem
from fxgrad.engine.ops.comparison import lt
from fxgrad.engine.ops.families import check_kind
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.joining import unstack as unstacked
from fxgrad.engine.ops.pointwise import add, scalar_like
from fxgrad.engine.ops.reductions import reduce_max
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.structural import full, reshape
from fxgrad.engine.ops.windows import Windows
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, IndexingError, ShapeError
from fxgrad.lax.combinations import apply_to_elements, combining_program
from fxgrad.lax.loops import fori_loop

__all__ = ["GatherDimensionNumbers", "GatherScatterMode", "ScatterDimensionNumbers", "dynamic_index_in_dim",
           "dynamic_slice", "dynamic_slice_in_dim", "dynamic_update_index_in_dim", "dynamic_update_slice",
           "dynamic_update_slice_in_dim", "gather", "index_take", "scatter", "scatter_add", "scatter_apply",
           "scatter_max", "scatter_min", "scatter_mul", "scatter_sub"]

# --- windows at computed places -----------------------------------------------------------------------------------


def _starts(name: str, given: Any, shape: Shape, allow_negative: bool | Sequence[bool]) -> list[Any]:
    """Return the start indices as scalars of one dtype, with negative ones counted from the end."""
    starts = unstacked(given, 0) if hasattr(given, "shape") and len(given.shape) == 1 else list(given)
    if len(starts) != len(shape):
        raise ShapeError(at_user_line(f"{name}: {len(starts)} start indices for an array of shape {shape}; one is "
                                      "needed for each axis"))
    allowed = [allow_negative] * len(starts) if isinstance(allow_negative, bool) else list(allow_negative)
    for axis, (start, size, may_be_negative) in enumerate(zip(starts, shape, allowed, strict=True)):
        if not may_be_negative and isinstance(start, int) and start < 0:
            raise IndexingError(at_user_line(
                f"{name}: index {start} is out of range for axis {axis} of size {size} with "
                f"allow_negative_indices=False; in range are 0 to {size - 1}"))
    return [_from_front(start, size) if may_be_negative else start
            for start, size, may_be_negative in zip(unify_dtypes(name, *starts) if starts else [], shape, allowed,
                                                    strict=True)]


def _from_front(start: Any, size: int) -> Any:
    dtype = aval_of(start).dtype
    if dtypes.kind_of(dtype) != "i":
        return start  # unsigned, or refused by the operation
    if is_concrete(start) and not shape_of(start):
        return dtype.type(start + size if start < 0 else start)
    return where(lt(start, scalar_like(0, start)), add(start, scalar_like(size, start)), start)


def dynamic_slice(operand: Any, start_indices: Any, slice_sizes: Sequence[int], *,
                  allow_negative_indices: bool | Sequence[bool] = True) -> Any:
    """Return the window of static sizes at computed start indices, one for each axis, clamped to the array's range.

    Negative indices count from the end. Raises `ShapeError`, `DTypeError`.

    >>> import numpy as np
    >>> dynamic_slice(np.arange(5), (4,), (2,))
    array([3, 4])
    """
    operand = require_array("dynamic_slice", operand)
    starts = _starts("dynamic_slice", start_indices, shape_of(operand), allow_negative_indices)
    sizes = as_integers("dynamic_slice", slice_sizes)
    check_operands(dynamic.dynamic_slice_p, operand, *starts, slice_sizes=sizes)
    return dynamic.dynamic_slice(operand, starts, sizes)


def dynamic_slice_in_dim(operand: Any, start_index: Any, slice_size: int, axis: int = 0, *,
                         allow_negative_indices: bool = True) -> Any:
    """Return a window along one axis, like `dynamic_slice`.

    >>> import numpy as np
    >>> dynamic_slice_in_dim(np.arange(5), 1, 2)
    array([1, 2])
    """
    operand = require_array("dynamic_slice_in_dim", operand)
    sizes = list(shape_of(operand))
    axis = strict_axis_of("dynamic_slice_in_dim", axis, len(sizes))
    starts = _starts_along(start_index, axis, len(sizes))
    sizes[axis] = as_integer("dynamic_slice_in_dim", slice_size)
    return dynamic_slice(operand, starts, sizes, allow_negative_indices=allow_negative_indices)


def _starts_along(start: Any, axis: int, rank: int) -> list[Any]:
    """Start indices that are 0 but along one axis."""
    starts: list[Any] = [0] * rank
    starts[axis] = start
    return starts


def dynamic_index_in_dim(operand: Any, index: Any, axis: int = 0, keepdims: bool = True, *,
                         allow_negative_indices: bool = True) -> Any:
    """Return the elements at one computed index along an axis, kept with size 1 unless `keepdims` is false.

    >>> import numpy as np
    >>> dynamic_index_in_dim(np.array([1.0, 2.0]), 1)
    array([2.])
    """
    part = dynamic_slice_in_dim(operand, index, 1, axis, allow_negative_indices=allow_negative_indices)
    sizes = shape_of(part)
    axis = strict_axis_of("dynamic_index_in_dim", axis, len(sizes))
    return part if keepdims else reshape(part, sizes[:axis] + sizes[axis + 1:])


def dynamic_update_slice(operand: Any, update: Any, start_indices: Any, *,
                         allow_negative_indices: bool | Sequence[bool] = True) -> Any:
    """Return the array with `update` in the window at computed start indices, clamped to the array's range.

    Raises `ShapeError`, `DTypeError`.

    >>> import numpy as np
    >>> dynamic_update_slice(np.zeros(3), np.ones(1), (1,))
    array([0., 1., 0.])
    """
    operand, update = unify_dtypes("dynamic_update_slice", operand, update)
    starts = _starts("dynamic_update_slice", start_indices, shape_of(operand), allow_negative_indices)
    check_operands(dynamic.dynamic_update_slice_p, operand, update, *starts)
    return dynamic.dynamic_update_slice(operand, update, starts)


def dynamic_update_slice_in_dim(operand: Any, update: Any, start_index: Any, axis: int, *,
                                allow_negative_indices: bool = True) -> Any:
    """Return the array with a window along one axis replaced, like `dynamic_update_slice`.

    >>> import numpy as np
    >>> dynamic_update_slice_in_dim(np.zeros(3), np.ones(1), -1, 0)
    array([0., 0., 1.])
    """
    operand = require_array("dynamic_update_slice_in_dim", operand)
    rank = len(shape_of(operand))
    starts = _starts_along(start_index, strict_axis_of("dynamic_update_slice_in_dim", axis, rank), rank)
    return dynamic_update_slice(operand, update, starts, allow_negative_indices=allow_negative_indices)


def dynamic_update_index_in_dim(operand: Any, update: Any, index: Any, axis: int, *,
                                allow_negative_indices: bool = True) -> Any:
    """Return the array with the elements at one computed index along an axis replaced; `update` may lack that axis.

    >>> import numpy as np
    >>> dynamic_update_index_in_dim(np.zeros((2, 2)), np.ones(2), 1, 0)
    array([[0., 0.],
           [1., 1.]])
    """
    operand, update = unify_dtypes("dynamic_update_index_in_dim", operand, update)
    rank, sizes = len(shape_of(operand)), shape_of(update)
    axis = strict_axis_of("dynamic_update_index_in_dim", axis, rank)
    if len(sizes) == rank - 1:
        update = reshape(update, (*sizes[:axis], 1, *sizes[axis:]))
    return dynamic_update_slice_in_dim(operand, update, index, axis, allow_negative_indices=allow_negative_indices)


# --- gather and scatter -------------------------------------------------------------------------------------------


class GatherDimensionNumbers(NamedTuple):
    """How the axes of the operand, the indices and the result correspond in `gather`.

    Along `start_index_map[k]` a window starts at `indices[..., k]`. Its axes without `collapsed_slice_dims` are the
    axes `offset_dims` of the result. Along `operand_batching_dims` the windows move with the axes
    `start_indices_batching_dims` of the indices.

    >>> GatherDimensionNumbers((1,), (0,), (0,)).offset_dims
    (1,)
    """

    offset_dims: Sequence[int]
    collapsed_slice_dims: Sequence[int]
    start_index_map: Sequence[int]
    operand_batching_dims: Sequence[int] = ()
    start_indices_batching_dims: Sequence[int] = ()


declare_parameter_class(GatherDimensionNumbers)


class ScatterDimensionNumbers(NamedTuple):
    """Dimension numbers like `GatherDimensionNumbers`, for the updates of a scatter instead of the result.

    >>> ScatterDimensionNumbers((), (0,), (0,)).inserted_window_dims
    (0,)
    """

    update_window_dims: Sequence[int]
    inserted_window_dims: Sequence[int]
    scatter_dims_to_operand_dims: Sequence[int]
    operand_batching_dims: Sequence[int] = ()
    scatter_indices_batching_dims: Sequence[int] = ()


declare_parameter_class(ScatterDimensionNumbers)


class GatherScatterMode(enum.Enum):
    """The treatment of windows outside of the array: clamped, left out, or promised not to occur.

    >>> GatherScatterMode.CLIP.name
    'CLIP'
    """

    CLIP = 1
    FILL_OR_DROP = 2
    PROMISE_IN_BOUNDS = 3


declare_parameter_class(GatherScatterMode)

_MODES = {"clip": "clip", "fill": "fill", "drop": "fill", "fill_or_drop": "fill", "promise_in_bounds": None}


def _mode(name: str, mode: Any, promised: str) -> str:
    """Return our name of `mode`; without one, or for a promise, `promised`: XLA's behaviour if the promise fails."""
    if mode is None:
        return promised
    given = mode if isinstance(mode, str) else getattr(mode, "name", str(mode)).lower()
    if given not in _MODES:
        raise ArgumentError(at_user_line(f"{name}: mode {mode!r}; it is 'clip', 'fill' ('drop'), 'promise_in_bounds', "
                                         "or a GatherScatterMode"))
    return _MODES[given] or promised


def _promises(is_sorted: bool, unique: bool) -> tuple[str, ...]:
    return ("sorted",) * bool(is_sorted) + ("unique",) * bool(unique)


def gather(operand: Any, start_indices: Any, dimension_numbers: Any, slice_sizes: Sequence[int], *,
           unique_indices: bool = False, indices_are_sorted: bool = False, mode: Any = None,
           fill_value: Any = None) -> Any:
    """Return windows of static sizes that begin at `start_indices`; see `GatherDimensionNumbers`.

    `mode` handles windows out of range, also those with negative starts, which do not count from the end. `"clip"`
    moves them into the array; it is the default, and used for a promise that there are none. `"fill"` gives
    `fill_value` (by default NaN, the least or largest integer, True). Raises `ShapeError`, `DTypeError`,
    `ArgumentError`.

    >>> import numpy as np
    >>> gather(np.array([1.0, 2.0, 3.0]), np.array([[2], [0]]), GatherDimensionNumbers((), (0,), (0,)), (1,))
    array([3., 1.])
    """
    operand, indices = require_array("gather", operand), require_array("gather", start_indices)
    windows = Windows(*[as_integers("gather", field) for field in _fields(GatherDimensionNumbers, dimension_numbers)])
    sizes = as_integers("gather", slice_sizes)
    settings = {"mode": _mode("gather", mode, "clip"), "fill_value": fill_value,
                "promises": _promises(indices_are_sorted, unique_indices)}
    check_operands(indexing.gather_p, operand, indices, slice_sizes=sizes, **windows._asdict(), **settings)
    return indexing.gather(operand, indices, windows, sizes, **settings)


def _fields(kind: Any, numbers: Any) -> list[Any]:
    """Return the fields of dimension numbers, ours or jax's."""
    return [getattr(numbers, field) for field in kind._fields]


def index_take(src: Any, idxs: Sequence[Any], axes: Sequence[int]) -> Any:
    """Return the slices at the positions `idxs[k][i]` along `axes[k]`, stacked along a new first axis.

    Positions are vectors of integers, taken modulo the size of their axis. Raises `ShapeError`, `DTypeError`.

    >>> import numpy as np
    >>> index_take(np.array([[1, 2], [3, 4]]), (np.array([1, -1]),), (0,))
    array([[3, 4],
           [3, 4]])
    """
    src = require_array("index_take", src)
    shape, axes = shape_of(src), as_integers("index_take", axes)
    columns = []
    for positions, axis in zip(unify_dtypes("index_take", *idxs), axes, strict=True):
        check_kind("index_take (positions)", "integer", aval_of(positions))
        size = scalar_like(shape[axis], positions)
        from_zero = rem(positions, size)
        inside = where(lt(from_zero, scalar_like(0, positions)), add(from_zero, size), from_zero)
        columns.append(reshape(inside, (*shape_of(positions), 1)))
    sizes = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    windows = Windows(tuple(range(1, len(shape) - len(axes) + 1)), tuple(sorted(axes)), axes)
    return indexing.gather(src, concatenate(columns, 1), windows, sizes, "promise_in_bounds")


_SHARED = """ the windows that begin at `scatter_indices`.

`dimension_numbers` are `ScatterDimensionNumbers`. By default, and with `mode` `"drop"`, updates out of range are left
out; `"clip"` moves them. Raises `ShapeError`, `DTypeError`, `ArgumentError`.

"""


def _scatter(name: str, combine: str, doc: str) -> Callable[..., Any]:
    def function(operand: Any, scatter_indices: Any, updates: Any, dimension_numbers: Any, *,
                 indices_are_sorted: bool = False, unique_indices: bool = False, mode: Any = None) -> Any:
        operand, updates = unify_dtypes(name, operand, updates)
        return indexing.scatter(
            operand, require_array(name, scatter_indices), updates,
            Windows(*[as_integers(name, field) for field in _fields(ScatterDimensionNumbers, dimension_numbers)]),
            combine=combine,
            mode=_mode(name, mode, "fill"), promises=_promises(indices_are_sorted, unique_indices))
    function.__name__ = function.__qualname__ = name
    first, *example = doc.split("\n")
    function.__doc__ = first + _SHARED + "\n".join(example)
    return function


scatter = _scatter("scatter", "set", """Return the array with `updates` put into
>>> import numpy as np
>>> numbers = ScatterDimensionNumbers((), (0,), (0,))
>>> scatter(np.ones(2), np.array([[1]]), np.array([4.0]), numbers)
array([1., 4.])""")
scatter_add = _scatter("scatter_add", "add", """Return the array with `updates` added to
>>> import numpy as np
>>> numbers = ScatterDimensionNumbers((), (0,), (0,))
>>> scatter_add(np.ones(2), np.array([[1]]), np.array([4.0]), numbers)
array([1., 5.])""")
scatter_sub = _scatter("scatter_sub", "sub", """Return the array with `updates` subtracted from
>>> import numpy as np
>>> numbers = ScatterDimensionNumbers((), (0,), (0,))
>>> scatter_sub(np.ones(2), np.array([[1]]), np.array([4.0]), numbers)
array([ 1., -3.])""")
scatter_mul = _scatter("scatter_mul", "mul", """Return the array with `updates` multiplied into
>>> import numpy as np
>>> numbers = ScatterDimensionNumbers((), (0,), (0,))
>>> scatter_mul(np.ones(2), np.array([[1]]), np.array([4.0]), numbers)
array([1., 4.])""")
scatter_min = _scatter("scatter_min", "min", """Return the array with `updates` in the place of greater elements of
>>> import numpy as np
>>> numbers = ScatterDimensionNumbers((), (0,), (0,))
>>> scatter_min(np.ones(2), np.array([[1]]), np.array([0.5]), numbers)
array([1. , 0.5])""")
scatter_max = _scatter("scatter_max", "max", """Return the array with `updates` in the place of lesser elements of
>>> import numpy as np
>>> numbers = ScatterDimensionNumbers((), (0,), (0,))
>>> scatter_max(np.ones(2), np.array([[1]]), np.array([4.0]), numbers)
array([1., 4.])""")


def scatter_apply(operand: Any, scatter_indices: Any, func: Callable[[Any], Any], dimension_numbers: Any, *,
                  update_shape: Sequence[int] = (), indices_are_sorted: bool = False, unique_indices: bool = False,
                  mode: Any = None) -> Any:
    """Return the array with `func`, a function of scalars, applied to elements in windows, once for each window.

    `update_shape` is the shape that updates would have. The other arguments are those of `scatter`. Raises
    `ShapeError`, `DTypeError`, `ArgumentError`.

    >>> import numpy as np
    >>> numbers = ScatterDimensionNumbers((), (0,), (0,))
    >>> scatter_apply(np.ones(3), np.array([[1], [1]]), lambda x: 2 * x, numbers, update_shape=(2,))
    array([1., 4., 1.])
    """
    operand = require_array("scatter_apply", operand)
    aval = aval_of(operand)
    once = full(as_integers("scatter_apply", update_shape), 1, dtypes.int32)
    counts = scatter_add(full(aval.shape, 0, dtypes.int32), scatter_indices, once, dimension_numbers,
                         indices_are_sorted=indices_are_sorted, unique_indices=unique_indices, mode=mode)
    program, captured = combining_program("scatter_apply", func, [aval], tree.structure(0), operands=1)
    most = reduce_max(counts, range(aval.ndim)) if aval.size else 0

    def applied_again(times: Any, x: Any) -> Any:
        changed, = apply_to_elements(program, captured, [x])
        return where(lt(times, counts), changed, x)

    return fori_loop(0, most, applied_again, operand)
