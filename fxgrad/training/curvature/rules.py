"""Operations that layers are made of: how each uses a parameter, and the two factors of the parameter's gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from fxgrad import dtypes, lax
from fxgrad import numpy as fnp
from fxgrad.extend import Analysis, Aval, Equation, aval_of, bind, primitives
from fxgrad.extend.parameters import geometry_of

Axes = tuple[int, ...]
Factors = tuple[Any, Any]


class Layer(NamedTuple):
    """A use of a parameter as the weights of a layer: its gradient is a sum of `rows` outer products.

    The axes of the parameter are `blocks`, which inputs and outputs share (groups of a convolution, experts), `ins` of
    the inputs and `outs` of the outputs. `factors(operands, cotangent)` returns the two factors, given the operands of
    the equation and the cotangent of its result: arrays of shapes (blocks, rows, ins) and (blocks, rows, outs), with
    each group of axes as one. The gradient of a block is Σ over rows of input ⊗ output. The first factor of a lookup
    has integers of shape (rows,) instead: its only `ins` axis is one-hot there; -1 is for rows that read no entry. With
    `groups` above 1, the one axis of `blocks` stands for the groups and, within them, the outputs; `outs` is empty.
    `at_outs` are the axes of the result of a dense layer, a convolution or a sum that have the outputs.
    """

    kind: str
    blocks: Axes
    ins: Axes
    outs: Axes
    rows: int
    factors: Callable[[Sequence[Any], Any], Factors]
    is_lookup: bool = False
    groups: int = 1
    at_outs: Axes = ()


Rule = Callable[[Equation, int], "Layer | str"]
"""(equation, place of the parameter among its operands) -> the layer, or the reason why it is none."""

layer_rules: Analysis[Rule | None] = Analysis(
    "layer rules", "How an operation uses a parameter as weights of a layer: the two factors of its gradient.",
    missing="conservative", default=None)

Placement = Callable[[Equation], "list[tuple[tuple[Any, ...], Axes]] | None"]
"""(equation) -> for each output, the steps from the operand to it, and the axes of the stepped operand that it has.

None if gradients of the operand have other norms than those of the result.
"""

parameter_views: Analysis[Placement | None] = Analysis(
    "parameter views", "How the results of an operation are its operand, or a part of it, in another form.",
    missing="conservative", default=None)

opened_calls: Analysis[bool] = Analysis(
    "opened calls", "Whether layers in the function that an operation calls are found, as if it stood in its place.",
    missing="conservative", default=False)
opened_calls.enter(True, primitives.named_call, primitives.jit_call, primitives.checkpoint, primitives.recompute,
                   primitives.within_budget)


# --- views ----------------------------------------------------------------------------------------------------------


def _everything(equation: Equation) -> list[tuple[tuple[Any, ...], Axes]] | None:
    before, after = equation.inputs[0].aval, equation.outputs[0].aval
    # The gradient of a real array is a part of that of a complex one.
    is_alike = dtypes.is_inexact(after.dtype) and dtypes.is_complex(after.dtype) == dtypes.is_complex(before.dtype)
    return [((), tuple(range(len(after.shape))))] if is_alike else None


def _transposed(equation: Equation) -> list[tuple[tuple[Any, ...], Axes]]:
    return [((), tuple(equation.params["permutation"]))]


def _reshaped(equation: Equation) -> list[tuple[tuple[Any, ...], Axes]]:
    shape = equation.outputs[0].aval.shape
    return [((("reshape", shape),), tuple(range(len(shape))))]


def _entries(equation: Equation) -> list[tuple[tuple[Any, ...], Axes]]:
    rank = len(equation.outputs[0].aval.shape)
    return [((("entry", equation.params["axis"], number),), tuple(range(rank)))
            for number in range(len(equation.outputs))]


def _cut(equation: Equation) -> list[tuple[tuple[Any, ...], Axes]] | None:
    """Return the part that a slice along one axis takes."""
    params, shape = equation.params, equation.inputs[0].aval.shape
    cuts = [(axis, *cut) for axis, (size, *cut) in enumerate(zip(
        shape, params["start_indices"], params["limit_indices"], params["strides"], strict=True))
        if cut != [0, size, 1]]
    return [((("part", *cuts[0]),), tuple(range(len(shape))))] if len(cuts) == 1 else None


def _parts(equation: Equation) -> list[tuple[tuple[Any, ...], Axes]]:
    axis, sizes = equation.params["axis"], equation.params["sizes"]
    ends = np.cumsum(sizes).tolist()
    return [((("part", axis, end - size, end, 1),), tuple(range(len(equation.inputs[0].aval.shape))))
            for size, end in zip(sizes, ends, strict=True)]


def _reversed(equation: Equation) -> list[tuple[tuple[Any, ...], Axes]]:
    return [((("reverse", tuple(equation.params["dimensions"])),), tuple(range(len(equation.inputs[0].aval.shape))))]


parameter_views.enter(_everything, primitives.convert_element_type, primitives.copy, primitives.name)
parameter_views.enter(_transposed, primitives.transpose)
parameter_views.enter(_reshaped, primitives.reshape)
parameter_views.enter(_entries, primitives.unstack)
parameter_views.enter(_cut, primitives.slice)
parameter_views.enter(_parts, primitives.split)
parameter_views.enter(_reversed, primitives.rev)


# --- products -------------------------------------------------------------------------------------------------------


def _dense(equation: Equation, place: int) -> Layer | str:
    """Return the layer of `dot_general`, whose operand at `place` is the parameter."""
    contracted, batched = equation.params["dimension_numbers"]
    weights, other = equation.inputs[place].aval, equation.inputs[1 - place].aval
    ins, blocks = tuple(contracted[place]), tuple(batched[place])
    other_ins, other_blocks = tuple(contracted[1 - place]), tuple(batched[1 - place])
    outs = _rest(weights, ins + blocks)
    others = _rest(other, other_ins + other_blocks)
    # Axes of the result: those of blocks, then the free ones of either operand.
    first, second = (others, outs) if place else (outs, others)
    at_first = tuple(range(len(blocks), len(blocks) + len(first)))
    at_second = tuple(range(len(blocks) + len(first), len(blocks) + len(first) + len(second)))
    at_rows, at_outs = (at_first, at_second) if place else (at_second, at_first)
    rows = _size(other, others)

    def factors(operands: Sequence[Any], cotangent: Any) -> Factors:
        given = operands[1 - place]
        return (_grouped(given, other_blocks, others, other_ins),
                _grouped(cotangent, tuple(range(len(blocks))), at_rows, at_outs))

    return Layer("dense", blocks, ins, outs, rows, factors, at_outs=at_outs)


layer_rules.enter(_dense, primitives.dot_general, primitives.strong_dot_general)


# --- convolutions ---------------------------------------------------------------------------------------------------


def _convolution(equation: Equation, place: int) -> Layer | str:
    """Return the layer of a convolution whose kernel is the parameter: a dense one of its windows."""
    if place == 0:
        return "it is the image of a convolution"
    geometry = geometry_of(equation.params)
    if geometry.batch_group_count != 1:
        return "the convolution has groups of its batch axis"
    kernel = equation.inputs[1].aval
    result, = (var.aval for var in equation.outputs)
    groups = geometry.feature_group_count
    image_spec, kernel_spec, result_spec = geometry.dimension_numbers
    out_axis, in_axis, *window_axes = kernel_spec
    window = tuple(kernel.shape[axis] for axis in window_axes)
    counts = tuple(result.shape[axis] for axis in result_spec[2:])
    rows = result.shape[result_spec[0]] * prod(counts)
    features, made = kernel.shape[in_axis], kernel.shape[out_axis] // groups

    def factors(operands: Sequence[Any], cotangent: Any) -> Factors:
        patches = lax.conv_general_dilated_patches(
            fnp.transpose(operands[0], image_spec), window, geometry.window_strides, geometry.padding,
            geometry.lhs_dilation, geometry.rhs_dilation)
        batch = patches.shape[0]
        inputs = fnp.reshape(patches, (batch, groups, features * prod(window), prod(counts)))
        outputs = fnp.reshape(fnp.transpose(cotangent, result_spec), (batch, groups, made, prod(counts)))
        one, other = (fnp.reshape(fnp.transpose(value, (1, 0, 3, 2)), (groups, rows, value.shape[2]))
                      for value in (inputs, outputs))
        return one, other

    # The groups are part of the axis of output features, which `blocks` of several groups cannot name.
    blocks = () if groups == 1 else (out_axis,)
    return Layer("convolution", blocks, (in_axis, *window_axes), () if blocks else (out_axis,), rows, factors,
                 groups=groups, at_outs=() if blocks else (result_spec[1],))


layer_rules.enter(_convolution, primitives.conv_general_dilated)


# --- lookups --------------------------------------------------------------------------------------------------------


def _lookup(equation: Equation, place: int) -> Layer | str:
    """Return the layer of a `gather` of whole entries along one axis: a dense one of one-hot inputs."""
    params = equation.params
    if place != 0:
        return "it is used as indices"
    table, indices = (atom.aval for atom in equation.inputs)
    axes = tuple(params["start_index_map"])
    if len(axes) != 1 or tuple(params["collapsed_slice_dims"]) != axes or params["operand_batching_dims"]:
        return "it is indexed along several axes"
    axis, = axes
    others = _rest(table, axes)
    if any(params["slice_sizes"][other] != table.shape[other] for other in others):
        return "parts of its entries are read"
    at_outs = tuple(params["offset_dims"])
    at_rows = _rest(equation.outputs[0].aval, at_outs)
    rows = prod(indices.shape[:-1])

    def factors(operands: Sequence[Any], cotangent: Any) -> Factors:
        # The positions come from the operation itself, so that its treatment of indices out of range holds.
        positions, = bind(primitives.gather, fnp.arange(table.shape[axis]), operands[1], **{
            **params, "offset_dims": (), "collapsed_slice_dims": (0,), "start_index_map": (0,), "slice_sizes": (1,),
            "fill_value": -1})
        positions = fnp.reshape(positions, (rows,))
        outputs = _grouped(cotangent, (), at_rows, at_outs)
        inside = fnp.greater_equal(positions, 0)
        return positions, fnp.where(inside[None, :, None], outputs, 0)

    return Layer("lookup", (), axes, others, rows, factors, is_lookup=True)


layer_rules.enter(_lookup, primitives.gather)


# --- biases and scales ----------------------------------------------------------------------------------------------


def _aligned(equation: Equation, place: int) -> tuple[Axes, Axes, int]:
    """Return the axes of the result along which a parameter is repeated, the others, and the number of repetitions."""
    shape, result = equation.inputs[place].aval.shape, equation.outputs[0].aval.shape
    first = len(result) - len(shape)
    own = tuple(first + axis for axis, size in enumerate(shape) if size == result[first + axis])
    repeated = tuple(axis for axis in range(len(result)) if axis not in own)
    return repeated, own, prod(result[axis] for axis in repeated)


def _bias(equation: Equation, place: int, sign: float = 1.0) -> Layer | str:
    """Return the layer of a sum: a dense one with inputs 1."""
    at_rows, at_outs, rows = _aligned(equation, place)
    axes = tuple(range(len(equation.inputs[place].aval.shape)))

    def factors(_: Sequence[Any], cotangent: Any) -> Factors:
        outputs = _grouped(cotangent, (), at_rows, at_outs)
        return fnp.full((1, rows, 1), sign, outputs.dtype), outputs

    return Layer("bias", (), (), axes, rows, factors, at_outs=at_outs)


def _difference(equation: Equation, place: int) -> Layer | str:
    """Return the layer of a difference: a sum, with inputs -1 for what is subtracted."""
    return _bias(equation, place, -1.0 if place else 1.0)


def _scale(equation: Equation, place: int) -> Layer | str:
    """Return the layer of an elementwise product: one of a single input and output for each entry."""
    at_rows, at_blocks, rows = _aligned(equation, place)
    axes = tuple(range(len(equation.inputs[place].aval.shape)))

    def factors(operands: Sequence[Any], cotangent: Any) -> Factors:
        other = fnp.broadcast_to(operands[1 - place], aval_of(cotangent).shape)
        return _grouped(other, at_blocks, at_rows, ()), _grouped(cotangent, at_blocks, at_rows, ())

    return Layer("scale", axes, (), (), rows, factors)


layer_rules.enter(_bias, primitives.add)
layer_rules.enter(_difference, primitives.sub)
layer_rules.enter(_scale, primitives.mul, primitives.strong_mul)


# --- groups of axes -------------------------------------------------------------------------------------------------


def _rest(aval: Aval, axes: Axes) -> Axes:
    return tuple(axis for axis in range(len(aval.shape)) if axis not in axes)


def _size(aval: Aval, axes: Axes) -> int:
    return prod(aval.shape[axis] for axis in axes)


def _grouped(value: Any, *groups: Axes) -> Any:
    """Return `value` with one axis for each group of its axes."""
    aval = aval_of(value)
    return fnp.reshape(fnp.transpose(value, sum(groups, ())), tuple(_size(aval, group) for group in groups))


def wide(value: Any, dtype: Any) -> Any:
    """Return a factor in the dtype of the parameter, or in float32 if that is narrower: sums keep their digits."""
    return fnp.astype(value, np.promote_types(dtype, np.float32) if np.dtype(dtype).itemsize < 4 else dtype)
