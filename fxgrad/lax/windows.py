"""The functions of `jax.lax` of windows slid over arrays, and of the greatest elements along an axis."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import tree
from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.avals import Shape
from fxgrad.engine.core.program import Program
from fxgrad.engine.frontend.operands import as_array_operand, as_integer, axis_of, is_concrete, shape_of
from fxgrad.engine.frontend.strict import as_integers
from fxgrad.engine.ops import topk
from fxgrad.engine.ops.arithmetic import max_p, min_p, neg
from fxgrad.engine.ops.convolution import dilated, window_counts
from fxgrad.engine.ops.families import check_kind
from fxgrad.engine.ops.pointwise import add_p
from fxgrad.engine.ops.pool import Sliding, check_sliding, identity_of, window_max, window_min, window_pads, window_sum
from fxgrad.engine.ops.shaping import pad
from fxgrad.engine.ops.shaping import slice as slice_of
from fxgrad.engine.ops.structural import broadcast_to, reshape
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from fxgrad.lax.combinations import apply_to_elements, combining_program, only_primitive

__all__ = ["approx_max_k", "approx_min_k", "reduce_window", "reduce_window_shape_tuple", "top_k"]

Padding = str | Sequence[tuple[int, int]]

_sliding: Analysis[tuple[str, Callable[..., Any]] | None] = Analysis(
    "sliding windows", "The reduction of windows that combines elements by an operation: its name, and the function.",
    missing="conservative", default=None)
_sliding.enter(("sum", window_sum), add_p)
_sliding.enter(("max", window_max), max_p)
_sliding.enter(("min", window_min), min_p)


def reduce_window(operand: Any, init_value: Any, computation: Callable[..., Any], window_dimensions: Sequence[int],
                  window_strides: Sequence[int] | None = None, padding: Padding = "VALID",
                  base_dilation: Sequence[int] | None = None, window_dilation: Sequence[int] | None = None) -> Any:
    """Combine the elements of each window of `operand` by `computation`, starting from `init_value`.

    There is one window size, stride, dilation and pair of paddings for each axis; `padding` is `"SAME"`,
    `"SAME_LOWER"`, `"VALID"` or pairs, and padded elements are `init_value`. Sums, maxima and minima (starting from 0
    or an infinity) are operations of their own; any other function of two scalars, or of two trees of scalars like that
    of `operand`, is applied once for each element of a window. Raises `ShapeError`, `DTypeError`, `ArgumentError`.

    >>> import numpy as np
    >>> reduce_window(np.arange(6.0), 0.0, np.add, (2,), (2,))
    array([1., 5., 9.])
    >>> reduce_window(np.arange(1.0, 5.0), 1.0, np.multiply, (2,))
    array([ 2.,  6., 12.])
    """
    leaves, structure = tree.flatten(operand)
    init_structure: Any
    inits, init_structure = tree.flatten(init_value)
    if structure != init_structure or not leaves:
        raise ArgumentError(at_user_line(f"reduce_window: operand {structure} and init_value {init_structure}; trees "
                                         "of equal structure with at least one leaf are needed"))
    arrays = [as_array_operand(leaf) for leaf in leaves]
    starts = [_start(init, array) for init, array in zip(inits, arrays, strict=True)]
    windows = _windows(shape_of(arrays[0]), window_dimensions, window_strides, padding, base_dilation, window_dilation)
    if any(shape_of(array) != shape_of(arrays[0]) for array in arrays):
        raise ShapeError(at_user_line(f"reduce_window: operands of shapes "
                                      f"{', '.join(str(shape_of(array)) for array in arrays)}, which must be equal"))
    check_sliding("reduce_window", aval_of(arrays[0]), windows)
    program, captured = combining_program("reduce_window", computation, list(map(aval_of, arrays)), structure)
    primitive = only_primitive(program)
    known = None if primitive is None else _sliding.of(primitive)
    if known is not None:
        name, slid = known
        aval = aval_of(arrays[0])
        check_kind("reduce_window", "numeric" if name == "sum" else "ordered", aval)
        if is_concrete(starts[0]) and bool(starts[0] == identity_of(name, aval.dtype)):
            return tree.unflatten(structure, [slid(arrays[0], windows)])
    return tree.unflatten(structure, _reduce_windows(program, captured, arrays, starts, windows))


def _start(init: Any, array: Any) -> Any:
    """Return an initial value in the dtype of its array."""
    init, dtype = as_array_operand(init), aval_of(array).dtype
    if shape_of(init):
        raise ShapeError(at_user_line(f"reduce_window: init_value of shape {shape_of(init)}; a scalar is needed"))
    if aval_of(init).dtype == dtype:
        return init
    if is_concrete(init) and aval_of(init).weak:
        return dtype.type(init)
    raise DTypeError(at_user_line(f"reduce_window: init_value is {aval_of(init).dtype.name} and the operand "
                                  f"{dtype.name}; equal dtypes are needed: init_value.astype(operand.dtype)"))


def _windows(shape: Shape, window: Sequence[int], strides: Sequence[int] | None, padding: Padding,
             base: Sequence[int] | None, holes: Sequence[int] | None) -> Sliding:
    ones = (1,) * len(window)
    sizes, steps, base, holes = (
        ones if entries is None else as_integers("reduce_window", entries)
        for entries in (window, strides, base, holes))
    if not isinstance(padding, str) or len({len(shape), len(sizes), len(steps), len(holes)}) == 1:
        pads = window_pads(shape, list(map(dilated, sizes, holes)), steps, padding)
    else:
        pads = ((0, 0),) * len(shape)  # another entry is invalid, which the check of the windows reports
    return Sliding(sizes, steps, pads, base, holes)


def _reduce_windows(program: Program, captured: list[Any], arrays: Sequence[Any], starts: Sequence[Any],
                    windows: Sliding) -> list[Any]:
    """Combine the first elements of all windows with the second ones, and so on, for all windows at once."""
    counts = windows.result_shape(shape_of(arrays[0]))
    size = int(np.prod(counts))
    results = [broadcast_to(start, (size,)) for start in starts]
    if not size:
        return [reshape(result, counts) for result in results]
    config = [(low, high, holes - 1) for (low, high), holes in zip(windows.padding, windows.base_dilation, strict=True)]
    filled = [pad(array, start, config) for array, start in zip(arrays, starts, strict=True)]
    for place in itertools.product(*map(range, windows.window_dimensions)):
        first = [at * holes for at, holes in zip(place, windows.window_dilation, strict=True)]
        limits = [at + (count - 1) * stride + 1 for at, count, stride
                  in zip(first, counts, windows.window_strides, strict=True)]
        seen = [reshape(slice_of(array, first, limits, windows.window_strides), (size,)) for array in filled]
        results = apply_to_elements(program, captured, [*results, *seen])
    return [reshape(result, counts) for result in results]


def reduce_window_shape_tuple(operand_shape: Sequence[int], window_dimensions: Sequence[int],
                              window_strides: Sequence[int], padding: Sequence[tuple[int, int]],
                              base_dilation: Sequence[int] | None = None,
                              window_dilation: Sequence[int] | None = None) -> Shape:
    """Return the number of windows along each axis of an array of this shape.

    >>> reduce_window_shape_tuple((5, 4), (2, 2), (1, 2), [(0, 0), (1, 1)])
    (4, 3)
    """
    sizes, window, strides = (as_integers("reduce_window_shape_tuple", entries)
                              for entries in (operand_shape, window_dimensions, window_strides))
    ones = (1,) * len(window)
    return window_counts(sizes, window, strides, tuple(padding), base_dilation or ones,
                         window_dilation or ones)


# --- the greatest elements ------------------------------------------------------------------------------------------


def top_k(operand: Any, k: int, *, axis: int = -1) -> tuple[Any, Any]:
    """Return the `k` greatest elements along `axis` in descending order, and their indices (int32).

    NaNs come first, and of equal elements the first. Raises `AxisError`, `ShapeError` for a `k` that is larger than the
    axis, `DTypeError` for complex numbers.

    >>> top_k([3.0, 1.0, 2.0], 2)
    (array([3., 2.]), array([0, 2], dtype=int32))
    """
    x = as_array_operand(operand)
    values, places = topk.top_k(x, as_integer("top_k", k), axis_of("top_k", axis, len(shape_of(x))))
    return values, places


def approx_max_k(operand: Any, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
                 reduction_input_size_override: int = -1, aggregate_to_topk: bool = True) -> tuple[Any, Any]:
    """Return the `k` greatest elements of floats along an axis, and their indices: exact, whatever the recall target.

    Raises `UnsupportedError` without `aggregate_to_topk`, and otherwise as `top_k` does.

    >>> approx_max_k([3.0, 1.0, 2.0], 1)
    (array([3.]), array([0], dtype=int32))
    """
    x = _approximate_top_k("approx_max_k", operand, recall_target, reduction_input_size_override, aggregate_to_topk)
    return top_k(x, k, axis=reduction_dimension)


def approx_min_k(operand: Any, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
                 reduction_input_size_override: int = -1, aggregate_to_topk: bool = True) -> tuple[Any, Any]:
    """Return the `k` least elements of floats along an axis in ascending order, and their indices; as `approx_max_k`.

    >>> approx_min_k([3.0, 1.0, 2.0], 2)
    (array([1., 2.]), array([1, 2], dtype=int32))
    """
    x = _approximate_top_k("approx_min_k", operand, recall_target, reduction_input_size_override, aggregate_to_topk)
    values, places = top_k(neg(x), k, axis=reduction_dimension)
    return neg(values), places


def _approximate_top_k(name: str, operand: Any, recall: float, size: int, aggregate_to_topk: bool) -> Any:
    if not 0 < recall <= 1 or as_integer(name, size) < -1:
        raise ArgumentError(at_user_line(f"{name}: recall_target={recall!r}, reduction_input_size_override={size!r}; a "
                                         "number above 0 and up to 1, and a size (or -1) are needed"))
    if not aggregate_to_topk:
        raise UnsupportedError(at_user_line(f"{name}: aggregate_to_topk=False is not supported: there are no partial "
                                            "results to return. Leave it out"))
    x = as_array_operand(operand)
    check_kind(name, "floating", aval_of(x))
    return x
