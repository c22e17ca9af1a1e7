"""Rules of operations that act along some axes, as gathers, solves and windows do: the others keep their deltas.

The factors along the axes on which an operation acts become one array, whose other labels are one axis more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.api.factored_values import Factor, Factored, Labels, Push, Term, flat_labels, union_of_labels
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Equation
from fxgrad.engine.ops.indexing import as_scatter, gather, gather_windows, scatter_p, scatter_windows
from fxgrad.engine.ops.joining import stack
from fxgrad.engine.ops.pool import Sliding, reduce_window_sum_p
from fxgrad.engine.ops.structural import broadcast_to, convert, move_axis, reshape, zeros
from fxgrad.engine.ops.windows import Windows
from fxgrad.engine.tracing.tape import aval_of, bind


def _rest(whole: Factor, *labels: Labels) -> Labels:
    """Return the labels of a factor that are not among `labels`."""
    return tuple(label for label in whole.labels if label not in flat_labels(labels))


def _array(push: Push, whole: Factor, order: Labels, shape: Sequence[int]) -> Any:
    """Return the array of a factor in the order of labels, repeated along those that it lacks, in this shape."""
    return reshape(broadcast_to(push.aligned(whole, order), push.shape_of(order)), tuple(shape))


def solved(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    """Solve for all labels but those of a batch of matrices; the columns of the right side keep their deltas."""
    *matrices, value = inputs
    aval = equation.outputs[0].aval
    if any(type(each) is Factored for each in matrices) or aval_of(matrices[0].value).dtype != aval.dtype:
        return None
    is_left = equation.params.get("left_side", True)
    axis = aval.ndim - (2 if is_left else 1)
    size, batch = aval.shape[axis], aval.shape[:-2]
    terms = []
    for term in value.terms:
        whole, far, (own,) = push.explicit(term, (axis,), aval)
        tied = flat_labels(term.axes[:-2])
        rest = _rest(whole, tied, own)
        sides = (size, push.size_of(rest)) if is_left else (push.size_of(rest), size)
        array = _array(push, whole, (*tied, *own, *rest) if is_left else (*tied, *rest, *own), (*batch, *sides))
        found, = bind(equation.primitive, *(each.value for each in matrices), array, **equation.params)
        new, = push.labels_of((size,))
        labels = (*tied, *new, *rest) if is_left else (*tied, *rest, *new)
        terms.append(term._replace(factors=(Factor(reshape(found, push.shape_of(labels)), labels, whole.by), *far),
                                   axes=(*term.axes[:axis], new, *term.axes[axis + 1:])))
    return [push.gathered(aval, terms)]


def windowed(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    """Sum windows, or select an element of each, along the axes on which windows have more than one element."""
    windows = Sliding(**{field: equation.params[field] for field in Sliding._fields})
    axes = [axis for axis, entries in enumerate(zip(*windows, strict=True)) if entries != (1, 1, (0, 0), 1, 1)]
    return None if type(inputs[0]) is not Factored else _act_along(
        push, equation, inputs, axes, is_even=equation.primitive is reduce_window_sum_p)


def recurred(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    """Recur along one axis, with the same factors for all columns."""
    return None if type(inputs[0]) is Factored else _act_along(
        push, equation, inputs, [equation.params["axis"]], is_even=False)


def transformed(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored]:
    """Transform the last axes."""
    rank = inputs[0].aval.ndim
    axes = range(rank - len(equation.params["fft_lengths"]), rank)
    return _act_along(push, equation, inputs, axes, is_even=True)


def _act_along(push: Push, equation: Equation, inputs: list[Any], axes: Sequence[int], is_even: bool,
               ) -> list[Factored]:
    """Return the result of an operation of one factored operand that acts along `axes`, by its rule of batches.

    It acts alike on all elements of the other axes if `is_even`, and otherwise on each by its own operands.
    """
    place, = (place for place, value in enumerate(inputs) if type(value) is Factored)
    value, aval = inputs[place], equation.outputs[0].aval
    rank = value.aval.ndim
    terms = []
    for term in value.terms:
        whole, far, own = push.explicit(term, axes, value.aval)
        if dtypes.is_complex(value.aval.dtype) and not dtypes.is_complex(aval.dtype):
            # The real result of a product is no product of the real result of one factor with the others.
            order = union_of_labels(*(factor.labels for factor in (whole, *far)))
            whole, far = push.multiplied([whole, *far], order, value.aval), []
        near = dict(zip(axes, own, strict=True))
        labels = [near.get(axis, () if is_even else term.axes[axis]) for axis in range(rank)]
        rest = _rest(whole, *labels)
        array = _array(push, whole, (*flat_labels(labels), *rest), (
            *(push.size_of(each) for each in labels), push.size_of(rest)))
        values = [array if each is value else each.value for each in inputs]
        (found,), (at,) = equation.primitive.batch(push.size_of(rest), values, [
            rank if each is value else None for each in inputs], **equation.params)
        new = dict(zip(axes, push.labels_of([aval.shape[axis] for axis in axes]), strict=True))
        labels = [new.get(axis, each) for axis, each in enumerate(labels)]
        order = (*flat_labels(labels), *rest)
        others = [factor._replace(array=convert(factor.array, aval.dtype)) for factor in far]
        terms.append(term._replace(
            factors=(Factor(reshape(move_axis(found, at, rank), push.shape_of(order)), order, whole.by), *others),
            axes=tuple(new.get(axis, term.axes[axis]) for axis in range(rank))))
    return [push.gathered(aval, terms)]


class _Address:
    """How windows of `sizes` are addressed by indices in an array of `shape`; `rank` is that of all windows.

    `batch` are the axes of the array that move with axes of the indices, `near` those on which the operation acts, and
    `free` those that windows take whole. `place` has the axis of the windows for each but the batch, if they keep it;
    `spots` are those for the axes of the indices, and `batch_spots` those among them for the batch. The windows
    `changed` are those of an array (batch, all other labels, near axes), in (all other labels, near axes, spots).
    """

    def __init__(self, windows: Windows, shape: tuple[int, ...], sizes: tuple[int, ...], rank: int) -> None:
        self.batch, self.sizes = windows.operand_batching_dims, sizes
        self.place = dict(zip(windows.window_axes(len(shape)), windows.offset_dims, strict=True))
        self.free = [axis for axis in self.place if axis not in windows.start_index_map and sizes[axis] == shape[axis]]
        self.near = [axis for axis in range(len(shape)) if axis not in (*self.batch, *self.free)]
        self.kept = [axis for axis in self.near if axis in self.place]
        self.spots = [axis for axis in range(rank) if axis not in windows.offset_dims]
        self.batch_spots = [self.spots[axis] for axis in windows.start_indices_batching_dims]
        number = {axis: len(self.batch) + 1 + place for place, axis in enumerate(self.near)}
        self.changed = Windows(
            tuple(range(1 + len(self.kept))), tuple(number[axis] for axis in self.near if axis not in self.place),
            tuple(number[axis] for axis in windows.start_index_map), tuple(range(len(self.batch))),
            windows.start_indices_batching_dims)

    def operand(self, push: Push, term: Term, aval: Aval) -> tuple[Any, Factor, list[Factor], Labels]:
        """Return the array (batch, all other labels, near axes) of an operand, its factor, others, and these labels."""
        whole, far, own = push.explicit(term, self.near, aval)
        tied = _of_axes(term, self.batch)
        rest = _rest(whole, tied, *own)
        array = _array(push, whole, (*tied, *rest, *flat_labels(own)), self.shape(push, rest, aval))
        return array, whole, far, rest

    def shape(self, push: Push, rest: Labels, aval: Aval) -> tuple[int, ...]:
        """Return the shape (batch, all other labels, near axes) of an array of an operand."""
        return (*(aval.shape[axis] for axis in self.batch), push.size_of(rest),
                *(aval.shape[axis] for axis in self.near))


def _of_axes(term: Term, axes: Iterable[int]) -> Labels:
    return flat_labels([term.axes[axis] for axis in axes])


def gathered(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    """Gather from the axes that indices address; the others keep their deltas."""
    params = equation.params
    if params["mode"] == "fill" and params["fill_value"] != 0:
        return None
    return _gathered(push, inputs[0], inputs[1].value, gather_windows(params), params["slice_sizes"],
                     equation.outputs[0].aval, params["mode"], params["fill_value"], params["promises"])


def sliced_at(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored]:
    """Slice at indices: gather one window."""
    value, sizes = inputs[0], equation.params["slice_sizes"]
    windows, starts = _one_window(value.aval.shape, sizes, inputs[1:])
    return _gathered(push, value, starts, windows, sizes, equation.outputs[0].aval, "clip", 0, ())


def _one_window(shape: Sequence[int], sizes: Sequence[int], starts: Sequence[Any]) -> tuple[Windows, Any]:
    """Return the addressing of one window, and its start on the axes along which it is smaller than the array."""
    axes = tuple(axis for axis, (size, extent) in enumerate(zip(sizes, shape, strict=True)) if size != extent)
    return Windows(tuple(range(len(shape))), (), axes), stack([starts[axis].value for axis in axes], 0)


def _gathered(push: Push, value: Factored, indices: Any, windows: Windows, slice_sizes: tuple[int, ...], aval: Aval,
              mode: str, fill_value: Any, promises: Sequence[str]) -> list[Factored]:
    address = _Address(windows, value.aval.shape, slice_sizes, aval.ndim)
    terms = []
    for term in value.terms:
        array, whole, far, rest = address.operand(push, term, value.aval)
        sizes = (*(1 for _ in address.batch), push.size_of(rest), *(address.sizes[axis] for axis in address.near))
        found = gather(array, indices, address.changed, sizes, mode, fill_value, promises)
        axes = [*push.labels_of(aval.shape)]
        for axis in address.free:
            axes[address.place[axis]] = term.axes[axis]
        for axis, spot in zip(address.batch, address.batch_spots, strict=True):
            axes[spot] = term.axes[axis]
        labels = (*rest, *flat_labels([axes[place] for place in (
            *(address.place[axis] for axis in address.kept), *address.spots)]))
        terms.append(Term(term.source, (Factor(reshape(found, push.shape_of(labels)), labels, whole.by), *far),
                          tuple(axes), term.basis))
    return [push.gathered(aval, terms)]


def scattered(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    """Scatter updates into zeros, and zeros into an operand if they replace its elements.

    Both are what is not factored, since the program is linear.
    """
    operand, indices, updates = inputs
    params, (out,) = equation.params, equation.outputs
    return _scattered(push, equation.primitive, operand, indices.value, updates, scatter_windows(params), out.aval,
                      equation.inputs[2].aval.shape, params["mode"], params["promises"])


def updated_at(push: Push, equation: Equation, inputs: list[Any]) -> list[Factored] | None:
    """Update a slice at indices: scatter one window."""
    aval, shape = equation.outputs[0].aval, equation.inputs[1].aval.shape
    if aval.shape == shape:
        return None
    windows, starts = _one_window(aval.shape, shape, inputs[2:])
    return _scattered(push, scatter_p, inputs[0], starts, inputs[1], windows, aval, shape, "clip", ("unique",))


def _scattered(push: Push, primitive: Primitive, operand: Any, indices: Any, updates: Any, windows: Windows,
               aval: Aval, shape: tuple[int, ...], mode: str, promises: Sequence[str]) -> list[Factored]:
    address = _Address(windows, aval.shape, windows.slice_sizes(aval.ndim, shape), len(shape))
    kept = [address.place[axis] for axis in address.kept]
    terms = []

    def scatter(array: Any, new: Any) -> Any:
        return bind(primitive, array, indices, new, **as_scatter(address.changed, mode, promises))[0]

    def spread(term: Term, found: Any, whole: Factor, far: Sequence[Factor], rest: Labels, axes: list[Labels]) -> Term:
        new = push.labels_of([aval.shape[axis] for axis in address.near])
        for axis, labels in zip(address.near, new, strict=True):
            axes[axis] = labels
        labels = (*flat_labels([axes[axis] for axis in address.batch]), *rest, *flat_labels(new))
        return Term(term.source, (Factor(reshape(found, push.shape_of(labels)), labels, whole.by), *far), tuple(axes),
                    term.basis)

    for term in operand.terms if type(operand) is Factored else ():
        if primitive is not scatter_p:
            terms.append(term)
            continue
        array, whole, far, rest = address.operand(push, term, aval)
        sizes = push.size_of(rest), *(shape[place] for place in (*kept, *address.spots))
        terms.append(spread(term, scatter(array, zeros(Aval(sizes, aval.dtype))), whole, far, rest, [*term.axes]))
    for term in updates.terms if type(updates) is Factored else ():
        moved = [*kept, *(spot for spot in address.spots if spot not in address.batch_spots)]
        whole, far, own = push.explicit(term, moved, updates.aval)
        at = {**dict(enumerate(term.axes)), **dict(zip(moved, own, strict=True))}
        order = [*kept, *address.spots]
        rest = _rest(whole, *(at[place] for place in order))
        array = _array(push, whole, (*rest, *flat_labels([at[place] for place in order])),
                       (push.size_of(rest), *(shape[place] for place in order)))
        axes: list[Labels] = [()] * aval.ndim
        for axis in address.free:
            axes[axis] = term.axes[address.place[axis]]
        for axis, spot in zip(address.batch, address.batch_spots, strict=True):
            axes[axis] = term.axes[spot]
        base = zeros(Aval(address.shape(push, rest, aval), aval.dtype))
        terms.append(spread(term, scatter(base, array), whole, far, rest, axes))
    return [push.gathered(aval, terms)]
