"""`kfac_factors`: the Kronecker factors of curvature for each layer of a loss, found in its program."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np

from fxgrad import numpy as fnp
from fxgrad import tree, vmap
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.extend import Aval, at_user_line, function_name, hide_frames, primitives, transformation
from fxgrad.training.curvature.norms import Term, for_each_entry, in_parts, joined_terms, parts_of, term_of_use
from fxgrad.training.curvature.passes import ExampleLoss, Sums, TracedLoss, pull_back, require_batch, trace_loss
from fxgrad.training.curvature.rules import Layer
from fxgrad.training.curvature.uses import ParameterUses, Use, axes_of, is_swapped, sorted_axes

__all__ = ["Bias", "KroneckerFactors", "Placement", "kfac_factors"]


class Placement(NamedTuple):
    """The kind of the layer of a parameter, and the axes that belong to blocks, inputs and outputs.

    With `groups` above 1, the one axis of `blocks` has the groups of a convolution and, within them, its outputs. The
    axes are those of `shape`; a parameter whose parts along an axis are used as layers of their own has another,
    `whole`, and is reshaped to it. With `cuts`, an axis and the sizes of parts along it, each part is a block.
    """

    kind: str
    shape: tuple[int, ...]
    blocks: tuple[int, ...]
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    groups: int = 1
    whole: tuple[int, ...] | None = None
    cuts: tuple[int, tuple[int, ...]] | None = None

    @property
    def parts(self) -> list[Placement]:
        """The placements of the parts of a parameter that is cut."""
        axis, sizes = self.cuts or (0, ())
        return [self._replace(shape=(*self.shape[:axis], size, *self.shape[axis + 1:]), cuts=None) for size in sizes]

    def entries(self, axes: tuple[int, ...]) -> list[int]:
        """Return the number of entries of each part along `ins` or `outs`."""
        return [prod(part.shape[axis] for axis in axes) for part in self.parts]


class Bias(NamedTuple):
    """The bias of a layer that is in one block with its weights: the name and the shape of the parameter."""

    name: str
    shape: tuple[int, ...]


@tree.register_dataclass
@dataclass(frozen=True)
class KroneckerFactors:
    """The factors of the curvature in one parameter: A of the inputs of its layer, and G of the outputs.

    `inputs` has the shape (blocks, i, i) and `outputs` (blocks, o, o), where i and o are the products of the sizes of
    the axes at `placement.ins` and `placement.outs`, and there is one block without `placement.blocks`. The curvature
    of a block is A ⊗ G, with the parameter as one vector, inputs first. Where blocks are parts of different sizes, i
    and o are the largest, and the others have zeros behind their entries. For lookups, whose `placement.kind` is
    "lookup", A is diagonal, and `inputs` is its diagonal, (blocks, i). With a `bias`, i is one more, for an input 1,
    and `product` and `solve` take and return pairs (weights, bias).

    >>> import numpy as np, fxgrad
    >>> loss = lambda w, x: np.sum(x @ w)
    >>> factors = fxgrad.curvature.kfac_factors(loss)(np.ones((2, 1)), np.array([[1.0, 2.0]]))
    >>> factors.inputs[0].tolist(), factors.outputs[0].tolist(), factors.placement.ins
    ([[1.0, 2.0], [2.0, 4.0]], [[1.0]], (0,))
    >>> factors.product(np.array([[1.0], [0.0]])).tolist()
    [[1.0], [2.0]]
    """

    inputs: Any
    outputs: Any
    placement: Placement = field(metadata={"static": True})
    bias: Bias | None = field(default=None, metadata={"static": True})

    def product(self, value: Any) -> Any:
        """Return the curvature times `value`, an array like the parameter; raise `ShapeError` for another shape."""
        parted = self._parted("product", value)
        left = self.inputs[:, :, None] * parted if self._is_diagonal else self.inputs @ parted
        return self._whole(left @ fnp.swapaxes(self.outputs, 1, 2))

    def solve(self, value: Any, damping: Any) -> Any:
        """Return `value`, an array like the parameter such as its gradient, times the inverse of the damped curvature.

        The damping d is divided among the factors, A + π√d and G + √d / π, with π² the ratio of their mean eigenvalues
        (Martens and Grosse, arXiv:1503.05671, section 6.3). Raises `ShapeError` for another shape.

        >>> import numpy as np, fxgrad
        >>> factors = fxgrad.curvature.kfac_factors(lambda w, x: np.sum(x @ w))(np.ones((2, 1)), np.eye(2))
        >>> factors.solve(np.array([[1.0], [2.0]]), 0.0).tolist()  # A is 1/2, G is 1
        [[2.0], [4.0]]
        """
        parted = self._parted("solve", value)
        sizes = [np.asarray(self.placement.entries(axes) or factor.shape[-1]) for factor, axes in (
            (self.inputs, self.placement.ins), (self.outputs, self.placement.outs))]
        means = [fnp.real(fnp.sum(factor, axis=1) if self._is_diagonal and factor is self.inputs else
                          fnp.trace(factor, axis1=1, axis2=2)) / np.maximum(size, 1).astype(factor.real.dtype)
                 for factor, size in zip((self.inputs, self.outputs), sizes, strict=True)]
        known = fnp.logical_and(fnp.greater(means[0], 0), fnp.greater(means[1], 0))
        ratio = fnp.sqrt(fnp.where(known, means[0], 1.0) / fnp.where(known, means[1], 1.0))
        root = fnp.sqrt(fnp.asarray(damping, self.inputs.dtype))
        outputs = _damped(self.outputs, root / ratio, sizes[1])
        if self._is_diagonal:
            left = parted / (self.inputs + (root * ratio)[:, None])[:, :, None]
        else:
            left = fnp.linalg.solve(_damped(self.inputs, root * ratio, sizes[0]), parted)
        return self._whole(fnp.swapaxes(fnp.linalg.solve(outputs, fnp.swapaxes(left, 1, 2)), 1, 2))

    @property
    def _is_diagonal(self) -> bool:
        return self.placement.kind == "lookup"

    def _parted(self, what: str, value: Any) -> Any:
        """Return an array like the parameter, or a pair with one like its bias, as (blocks, inputs, outputs)."""
        if self.bias is None:
            return self._parted_weights(what, value)
        if not (isinstance(value, tuple | list) and len(value) == 2):
            raise ArgumentError(at_user_line(
                f"KroneckerFactors.{what}: weights and {self.bias.name} are one block, so that a pair (weights, bias) "
                f"is needed, got {type(value).__name__}"))
        weights, bias = value
        if fnp.shape(bias) != self.bias.shape:
            raise ShapeError(at_user_line(
                f"KroneckerFactors.{what}: {self.bias.name} has the shape {self.bias.shape}, and the value "
                f"{fnp.shape(bias)}; they must be the same"))
        parted = self._parted_weights(what, weights)
        return fnp.concatenate([parted, fnp.reshape(bias, (parted.shape[0], 1, parted.shape[2]))], axis=1)

    def _parted_weights(self, what: str, value: Any) -> Any:
        shape = self.placement.whole or self.placement.shape
        if fnp.shape(value) != shape:
            raise ShapeError(at_user_line(
                f"KroneckerFactors.{what}: the parameter has the shape {shape}, and the value {fnp.shape(value)}; "
                "they must be the same"))
        return _blocks_of(value, self.placement)

    def _whole(self, parted: Any) -> Any:
        """Return (blocks, inputs, outputs) as an array like the parameter, or a pair with one like its bias."""
        if self.bias is None:
            return _parameter_of(parted, self.placement)
        return _parameter_of(parted[:, :-1], self.placement), fnp.reshape(parted[:, -1], self.bias.shape)


def _damped(factor: Any, damping: Any, sizes: Any) -> Any:
    """Return factors plus the damping of each block times the identity; 1 on the diagonal behind a block's entries."""
    order = factor.shape[-1]
    diagonal = fnp.where(np.arange(order) < np.reshape(sizes, (-1, 1)), damping[:, None], 1.0)
    return factor + fnp.astype(diagonal, factor.dtype)[:, :, None] * np.eye(order, dtype=factor.dtype)


def _blocks_of(value: Any, placement: Placement) -> Any:
    """Return an array like the parameter as (blocks, inputs, outputs), with zeros behind smaller blocks."""
    _, shape, blocks, ins, outs, groups, _, cuts = placement
    if cuts is not None:
        axis, sizes = cuts
        return fnp.concatenate(_equal_sizes([_blocks_of(piece, part) for piece, part in zip(
            fnp.split(value, [*itertools.accumulate(sizes[:-1])], axis), placement.parts, strict=True)]), axis=0)
    ordered = fnp.transpose(fnp.reshape(value, shape), (*blocks, *ins, *outs))
    if groups > 1:
        size = prod(shape[axis] for axis in ins)
        return fnp.swapaxes(fnp.reshape(ordered, (groups, shape[blocks[0]] // groups, size)), 1, 2)
    return fnp.reshape(ordered, tuple(prod(shape[axis] for axis in axes) for axes in (blocks, ins, outs)))


def _equal_sizes(arrays: Sequence[Any]) -> list[Any]:
    """Return arrays with zeros behind their entries along all axes but the first, to the sizes of the largest."""
    sizes = [max(each) for each in zip(*(fnp.shape(array)[1:] for array in arrays), strict=True)]
    return [fnp.pad(array, [(0, 0), *((0, most - own) for most, own in zip(sizes, fnp.shape(array)[1:], strict=True))])
            for array in arrays]


def _parameter_of(parted: Any, placement: Placement) -> Any:
    """Return (blocks, inputs, outputs) as an array like the parameter."""
    _, shape, blocks, ins, outs, groups, whole, cuts = placement
    if cuts is not None:
        return fnp.concatenate([_parameter_of(parted[number:number + 1, :inner, :outer], part) for number, (
            part, inner, outer) in enumerate(zip(placement.parts, placement.entries(ins), placement.entries(outs),
                                                 strict=True))], axis=cuts[0])
    axes = (*blocks, *ins, *outs)
    ordered = fnp.reshape(fnp.swapaxes(parted, 1, 2) if groups > 1 else parted, tuple(shape[axis] for axis in axes))
    found = fnp.transpose(ordered, tuple(axes.index(axis) for axis in range(len(shape))))
    return found if whole is None else fnp.reshape(found, whole)


def kfac_factors(loss: Callable[..., Any], *, sharing: str = "expand", joint_biases: bool = False,
                 ) -> Callable[..., Any]:
    """Return the function `(params, *batch) -> factors` of K-FAC: for each layer, A of its inputs and G of its outputs.

    Arguments are those of `per_example_norms(loss)`: `loss(params, *example)` is the scalar loss of one example. The
    result is a container like `params` of `KroneckerFactors`; None for parameters that are no weights of layers, which
    `fxgrad.curvature.layers(loss)` lists with the reason. For each block of curvature, the mean over
    examples of the outer product of the gradient with itself, A ⊗ G is an approximation, exact for one example at one
    position. With inputs a and cotangents g of the outputs at T positions, and means over examples:

    | `sharing` | A | G |
    |---|---|---|
    | `"expand"` | mean over positions of a aᵀ | sum over positions of g gᵀ |
    | `"reduce"` | ā āᵀ of the mean ā over positions | ḡ ḡᵀ of the sum ḡ over positions |

    With observations drawn from the model, the curvature is the Fisher matrix; with those of the data it is the
    empirical one. Biases have A = 1, so that weights and biases are separate blocks. With `joint_biases`, a bias that
    is added to the result of a dense layer or a convolution, and both are used nowhere else, is in one block with its
    weights: these have a further input, 1, and the bias has None. A of a lookup is diagonal for "expand": the share of
    positions that read each entry; for "reduce" the diagonal alone is kept. The steps of a loop that share a parameter
    are positions; entries of a stack of layers that a loop goes through are blocks of one parameter. A of a layer in a
    branch is the mean over the positions that ran it; G is the mean over all examples. The steps of a `while_loop` are
    positions too; joint biases there stay blocks of their own. Parts that are all of a parameter, such as `w[0]` and
    `w[1]`, those of `split(w, [2, 3])`, or `w[::2]` and `w[1::2]`, are blocks; parameters that are used in other parts
    have None.

    Raises `ArgumentError` for another word, and the errors of `per_example_norms`. The formulas are those of Martens
    and Grosse (arXiv:1503.05671), Grosse and Martens (arXiv:1602.01407) for convolutions, and Eschenhagen, Immer,
    Turner, Schneider and Hennig (arXiv:2311.00636) for shared weights.

    >>> import numpy as np, fxgrad
    >>> def loss(params, x):
    ...     return np.sum(np.tanh(x @ params["w"] + params["b"]))
    >>> params, x = {"b": np.zeros(2), "w": np.zeros((3, 2))}, np.eye(3)
    >>> factors = fxgrad.curvature.kfac_factors(loss)(params, x)
    >>> factors["w"].inputs[0].round(3).tolist()
    [[0.333, 0.0, 0.0], [0.0, 0.333, 0.0], [0.0, 0.0, 0.333]]
    >>> factors["b"].outputs[0].tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    if sharing not in ("expand", "reduce"):
        raise ArgumentError(at_user_line(
            f"kfac_factors: sharing is {sharing!r}, where 'expand' or 'reduce' is needed"))

    @transformation("kfac_factors", loss)
    @hide_frames
    def factors(params: Any, *batch: Any) -> Any:
        require_batch("kfac_factors", batch)

        def of_example(*example: Any) -> list[Any]:
            return _rows_of_example(loss, params, example, joint_biases, sharing)

        of_example.__name__ = function_name(loss)
        rows = vmap(of_example)(*batch)
        return tree.unflatten(tree.structure(params), [
            None if own is None else _averaged(own[0], own[1], sharing) for own in rows])
    return factors


def find_placements(example: ExampleLoss) -> tuple[TracedLoss, list[Placement | str]]:
    """Return a loss with its layers, and where factors belong, or why a parameter has none."""
    traced = example.find_layers(lambda found: found.reason, shortest=0)
    return traced, [_placement(aval, found) for aval, found in zip(traced.avals, traced.uses, strict=True)]


def _rows_of_example(loss: Callable[..., Any], params: Any, example: Sequence[Any], joint_biases: bool, sharing: str,
                     ) -> list[tuple[KroneckerFactors, Any] | None]:
    """Return the inputs and cotangents of each layer in the places of factors, (blocks, positions, entries).

    The inputs of a lookup are the entries that are read, (blocks, positions). Beside them is, for layers in branches,
    1 for each position that ran and 0 for others, (blocks, positions); None for all others. For parameters in a
    `while_loop`, all is summed over positions: A and G, or the vectors for "reduce", and the number of positions.
    """
    traced, placements = find_placements(trace_loss("kfac_factors", loss, params, example))
    biases = {}
    if joint_biases:
        weights = [number for number, found in enumerate(placements) if isinstance(found, Placement)]
        biases = {number: bias for number in weights if (bias := _bias_of(traced, number)) in weights}
    chosen = [number for number, found in enumerate(placements)
              if isinstance(found, Placement) and number not in biases.values()]
    uses = [(number, use) for number in chosen for use in traced.uses[number].uses]
    summed = {place: _sums_of(use, traced.avals[number], sharing) for place, (number, use) in enumerate(uses)
              if _is_open(traced.uses[number])}
    operands, cotangents, _ = pull_back(traced, [use for _, use in uses], [], summed)
    given = iter(zip(operands, cotangents, strict=True))
    result: list[tuple[KroneckerFactors, Any] | None] = [None] * len(placements)
    for number in chosen:
        found, placement = traced.uses[number], placements[number]
        assert isinstance(placement, Placement)
        values = [(use, *next(given)) for use in found.uses]
        if _is_open(found):
            (one, ran), other = functools.reduce(lambda left, right: tree.map(fnp.add, left, right), [
                own for _, *own in values])
            result[number] = KroneckerFactors(one, other, placement), ran
            continue
        one, other, ran = _rows_of_parameter(traced.avals[number], values)
        bias = biases.get(number)
        if bias is None:
            result[number] = KroneckerFactors(one, other, placement), ran
        else:
            ones = fnp.ones((*one.shape[:-1], 1), one.dtype) if ran is None else fnp.astype(ran[..., None], one.dtype)
            result[number] = KroneckerFactors(fnp.concatenate([one, ones], axis=-1), other, placement, Bias(
                traced.names[bias], traced.avals[bias].shape)), ran
    return result


def _is_open(found: ParameterUses) -> bool:
    return any(use.is_open for use in found.uses)


def _sums_of(use: Use, aval: Aval, sharing: str) -> Sums:
    """Return the sums over steps that factors are made of, (blocks, entries, entries), or (blocks, 1, entries).

    Those of the inputs of a lookup are how often each entry is read, (blocks, entries).
    """
    step = use._replace(path=(), entered=())
    ins = 1 if is_swapped(use) else 0

    def total(rows: Any) -> Any:
        return fnp.sum(rows, axis=1, keepdims=True) if sharing == "reduce" else _outer(rows[None])

    def of_inputs(operands: Sequence[Any], result: Any) -> Any:
        factors = term_of_use(step, operands, result, aval).factors
        rows, other = factors[ins], factors[1 - ins]
        if use.layer.is_lookup:
            size = use.equation.inputs[use.place].aval.shape[use.layer.ins[0]]
            own = _counts(rows[None, None], size, other.dtype)[0]
        else:
            own = total(rows)
        return own, fnp.full(other.shape[:1], other.shape[1], np.float32)

    def of_outputs(operands: Sequence[Any], cotangent: Any) -> Any:
        return total(term_of_use(step, operands, cotangent, aval).factors[1 - ins])
    return Sums(of_inputs, of_outputs)


def _bias_of(traced: TracedLoss, number: int) -> int | None:
    """Return the number of the parameter that is the bias of a layer's weights, if both have this one use."""
    found = traced.uses[number]
    if len(found.uses) != 1:
        return None
    use, = found.uses
    if use.is_open:
        return None
    if use.layer.kind not in ("dense", "convolution") or use.layer.blocks or _reads_parts(use) or (
            [*sorted_axes(use)[1]] != [*range(len(use.layer.outs))]) or use.flipped:
        return None
    result, = use.equation.outputs

    def at_outs(layer: Layer) -> list[int]:
        return [axis for axis in layer.at_outs if result.aval.shape[axis] != 1]
    for other, own in enumerate(traced.uses):
        if len(own.uses) == 1 and own.uses[0].layer.kind == "bias" and own.uses[0].loops == use.loops:
            bias, = own.uses
            if (bias.equation.primitive is primitives.add and bias.equation.inputs[1 - bias.place] is result
                    and bias.equation.outputs[0].aval.shape == result.aval.shape
                    and (_is_reshaped(bias) or not _reads_parts(bias)) and bias.entered == use.entered
                    and not bias.flipped
                    and [*bias.axes] == sorted(bias.axes) and at_outs(bias.layer) == at_outs(use.layer)):
                return other
    return None


def _reads_parts(use: Use) -> bool:
    """Return whether a use is of other parts of the parameter than the entries that loops go through, or reshaped."""
    return any(kind != "entries" or axes != tuple(range(len(axes))) for axes, (kind, *_) in use.steps)


def _is_reshaped(use: Use) -> bool:
    """Return whether a use is of the whole parameter in other shapes, with its entries in their order."""
    return all(step[0] == "reshape" and axes == tuple(range(len(axes))) for axes, step in use.steps)


def _rows_of_parameter(aval: Aval, given: Sequence[tuple[Use, Any, Any]]) -> tuple[Any, Any, Any]:
    """Return inputs and cotangents of a parameter's layers, and which positions ran, from its uses."""
    is_conditional = any(use.is_conditional for use, _, _ in given)

    def rows(terms: list[Term]) -> list[Any]:
        term, = joined_terms(terms)  # all of one kind
        factors = [factor[None] if place == term.hot else factor for place, factor in enumerate(term.factors)]
        if not is_conditional:
            return factors
        shape = factors[1 if term.hot == 0 else 0].shape[:2]
        ran = fnp.ones(shape, np.float32) if term.ran is None else fnp.broadcast_to(term.ran, shape)
        ins = 1 if is_swapped(given[0][0]) else 0
        factors[ins] = fnp.where(fnp.greater(ran, 0), factors[ins], -1) if term.hot is not None else (
            factors[ins] * fnp.astype(ran[..., None], factors[ins].dtype))
        return [*factors, ran]

    found = _alike([
        [fnp.reshape(factor, (-1, *factor.shape[2:])) for factor in factors] if part[0][0].entered else factors
        for part in sorted(in_parts(given), key=_number_of_entry) for factors in [for_each_entry(aval, part, rows)]])
    one, other, *ran = (fnp.concatenate(_equal_sizes(factors), axis=0) for factors in zip(*found, strict=True))
    return (*((other, one) if is_swapped(given[0][0]) else (one, other)), ran[0] if ran else None)


def _alike(found: list[list[Any]]) -> list[list[Any]]:
    """Return the rows of parts of a parameter with which of them ran, if some parts have more rows than others."""
    counts = [max(factors, key=fnp.ndim).shape[1] for factors in found]
    if len({*counts}) < 2:
        return found
    result = []
    for (one, other, *ran), count in zip(found, counts, strict=True):
        # The entries read by rows of lookups that are added are -1, none.
        more = ((0, 0), (0, max(counts) - count))
        rows = [fnp.pad(factor, more, constant_values=-1) if fnp.ndim(factor) == 2 else factor
                for factor in (one, other)]
        result.append([*rows, ran[0] if ran else fnp.ones((max(rows, key=fnp.ndim).shape[0], count), np.float32)])
    return result


def _number_of_entry(part: list[tuple[Use, Any, Any]]) -> int:
    steps = part[0][0].steps
    return steps[0][1][2] if steps and steps[0][1][0] in ("entry", "part") else 0


def _placement(aval: Aval, found: ParameterUses) -> Placement | str:
    """Return the axes of a parameter that is used as one layer, or as layers in its entries; else why it is not."""
    if not found.uses:
        return found.reason or "it is not used"
    if _is_open(found) and any(
            use.entered or any(step[0] in ("entry", "part") for _, step in use.steps) for use in found.uses):
        return "a while_loop uses parts of it"
    first = found.uses[0]
    layer, steps = first.layer, first.steps
    alike = {(use.layer.kind, *((axes, step[:2]) for axes, step in use.steps), *axes_of(use)) for use in found.uses}
    if len(alike) > 1:
        return "its parts are used in different ways"
    operand = first.equation.inputs[first.place].aval
    # The shape of the array that is used, whose axes the operand may have in another order.
    shape = tuple(operand.shape[first.axes.index(axis)] for axis in range(len(operand.shape)))
    blocks, ins, outs = (tuple(first.axes[axis] for axis in axes) for axes in (layer.blocks, layer.ins, layer.outs))
    placement = Placement(layer.kind, shape, blocks, tuple(sorted(ins)), tuple(sorted(outs)), layer.groups)
    if not steps and shape == aval.shape:
        return placement
    if layer.groups > 1:
        return "it is used in another shape, and has groups"
    if _is_reshaped(first) and not layer.is_lookup:
        return _before_reshape(placement, aval.shape) or "it is used in a shape that mixes its inputs and outputs"
    kinds = [step[0] for _, step in steps]
    if kinds[0] == "part":
        return _of_parts(placement, aval.shape, found.uses)
    if kinds == ["entry"] and not layer.is_lookup:
        (axes, (_, axis, _)), = steps
        placement = _stacked(placement, axis, len(parts_of(found.uses)))
        is_whole = axes == tuple(range(len(axes)))
    else:
        for number in reversed(first.entered):
            placement = _stacked(placement, 0, first.lengths[number])
        is_whole = not _reads_parts(first)
    return placement if is_whole and placement.shape == aval.shape else _IN_PARTS


_IN_PARTS = "it is used in parts that are not all of it, or in another shape"


def _of_parts(placement: Placement, shape: tuple[int, ...], uses: Sequence[Use]) -> Placement | str:
    """Return the placement of a parameter whose parts along one axis are layers, or why they have no factors.

    Parts that together are all of it do if they follow each other, and equal ones if they interleave, such as `w[::2]`
    and `w[1::2]`. Equal parts of size 1 may lack the axis, as `w[0]` does.
    """
    (axes, (_, axis, *_)), *others = uses[0].steps
    cuts = {range(*use.steps[0][1][2:]) for use in uses}
    length, count, size = shape[axis], len(cuts), max(map(len, cuts))
    if axes != tuple(range(len(shape))) or placement.kind == "lookup":
        return _IN_PARTS
    if {number for cut in cuts for number in cut} != {*range(length)}:
        return "it is used in parts that are not all of it"
    if min(map(len, cuts)) != size:
        ordered = sorted(cuts, key=lambda cut: cut.start)
        follow = all(one.stop == other.start for one, other in itertools.pairwise(ordered))
        if others or not follow or any(cut.step != 1 for cut in cuts) or placement.blocks or axis not in (
                *placement.ins, *placement.outs):
            return "its parts have different sizes, and do not follow each other"
        return placement._replace(shape=shape, cuts=(axis, tuple(map(len, ordered))))
    if cuts == {range(start, start + size) for start in range(0, length, size)}:
        stacked = _stacked(placement, axis, count)
    elif cuts == {range(start, length, count) for start in range(count)}:
        stacked = _stacked(placement, axis + 1, count)
    else:
        return "its parts overlap, or are of no one kind"
    if not others:
        return stacked._replace(whole=shape)
    is_entry = others == [(axes, ("reshape", (*shape[:axis], *shape[axis + 1:])))] and size == 1
    return stacked if is_entry else _IN_PARTS


def _before_reshape(placement: Placement, shape: tuple[int, ...]) -> Placement | None:
    """Return the placement of a parameter of another shape than the array used; None if an axis has several roles."""
    roles = {axis: role for role, axes in enumerate(placement[2:5]) for axis in axes}
    found: tuple[list[int], list[int], list[int]] = [], [], []
    if 0 in shape:
        return None
    axis = other = 0
    while axis < len(shape):
        # The fewest axes of both that have the same entries.
        before, after, size, reached = [axis], [], shape[axis], 1
        while size != reached:
            if reached < size:
                after.append(other)
                reached *= placement.shape[other]
                other += 1
            else:
                before.append(before[-1] + 1)
                size *= shape[before[-1]]
        own = {roles[each] for each in after if placement.shape[each] != 1} or {2}
        if len(own) > 1:
            return None
        found[own.pop()].extend(before)
        axis = before[-1] + 1
    blocks, ins, outs = map(tuple, found)
    return Placement(placement.kind, shape, blocks, ins, outs)


def _stacked(placement: Placement, axis: int, count: int) -> Placement:
    """Return the placement of a parameter with `count` entries along `axis`, each with a placement of its own."""
    def behind(axes: Sequence[int]) -> tuple[int, ...]:
        return tuple(one + (one >= axis) for one in axes)

    shape = placement.shape
    return Placement(placement.kind, (*shape[:axis], count, *shape[axis:]), (axis, *behind(placement.blocks)),
                     behind(placement.ins), behind(placement.outs))


def _averaged(rows: KroneckerFactors, ran: Any, sharing: str) -> KroneckerFactors:
    """Return the factors, given those inputs and cotangents of all examples: (examples, blocks, positions, entries).

    `ran`, None for all, marks the positions that ran, (examples, blocks, positions); means are over these. If it has
    their numbers instead, (examples, blocks), all is summed over positions.
    """
    inputs, outputs = rows.inputs, rows.outputs
    if ran is not None and len(ran.shape) == 2 and rows.placement.kind == "lookup":
        return _of_counts(rows, outputs.shape[0], ran, sharing)
    if ran is not None and len(ran.shape) == 2:
        if sharing == "expand":
            ran = fnp.astype(fnp.maximum(fnp.sum(ran, axis=0), 1.0), outputs.real.dtype)
            return KroneckerFactors(fnp.sum(inputs, axis=0) / ran[:, None, None], fnp.sum(outputs, axis=0) / max(
                outputs.shape[0], 1), rows.placement)
        inputs = inputs / fnp.astype(fnp.maximum(ran, 1.0), inputs.dtype)[:, :, None, None]
        ran = fnp.minimum(ran, 1.0)[:, :, None]
    if rows.placement.kind == "lookup":
        return _averaged_lookup(rows, ran, sharing)
    examples, _, positions, _ = inputs.shape
    count: Any = max(examples * positions, 1)
    if ran is not None:
        ran = fnp.astype(ran, outputs.real.dtype)
        if sharing == "reduce":
            inputs = inputs * (positions / fnp.maximum(fnp.sum(ran, axis=2), 1.0))[:, :, None, None]
            ran = fnp.max(ran, axis=2, keepdims=True, initial=0.0)
        count = fnp.maximum(fnp.sum(ran, axis=(0, 2)), 1.0)[:, None, None]
    elif sharing == "reduce":
        count = max(examples, 1)
    if sharing == "reduce":
        inputs, outputs = fnp.mean(inputs, axis=2, keepdims=True), fnp.sum(outputs, axis=2, keepdims=True)
    return KroneckerFactors(_outer(inputs) / count, _outer(outputs) / max(examples, 1), rows.placement, rows.bias)


def _averaged_lookup(rows: KroneckerFactors, ran: Any, sharing: str) -> KroneckerFactors:
    """Return the factors of lookups, given the entries that are read, (examples, blocks, positions), and cotangents."""
    entries, outputs = rows.inputs, rows.outputs
    size, (examples, blocks, positions) = rows.placement.shape[rows.placement.ins[0]], entries.shape
    ran = fnp.full((examples, blocks), positions, outputs.real.dtype) if ran is None else fnp.sum(
        fnp.astype(ran, outputs.real.dtype), axis=2)
    if sharing == "reduce":
        counts = _counts(entries, size, outputs.dtype)
        outputs = fnp.sum(outputs, axis=2, keepdims=True)
    else:
        counts = _counts(fnp.reshape(fnp.swapaxes(entries, 0, 1), (1, blocks, -1)), size, outputs.dtype)
        outputs = _outer(outputs)[None]
    return _of_counts(KroneckerFactors(counts, outputs, rows.placement), examples, ran, sharing)


def _counts(entries: Any, size: int, dtype: Any) -> Any:
    """Return how often each of `size` entries is read, (examples, blocks, size), given those of all positions."""
    examples, blocks, _ = entries.shape
    entries = fnp.where(fnp.less(entries, 0), size, entries)  # one more, for positions that read none
    return fnp.zeros((examples, blocks, size + 1), dtype).at[
        fnp.arange(examples)[:, None, None], fnp.arange(blocks)[:, None], entries].add(1.0)[:, :, :size]


def _of_counts(rows: KroneckerFactors, examples: int, ran: Any, sharing: str) -> KroneckerFactors:
    """Return the factors of lookups, given `_counts` for the inputs, and the number of positions by example and block.

    The outputs are sums over positions, of products for "expand".
    """
    counts, outputs = rows.inputs, rows.outputs
    ran = fnp.astype(ran, outputs.real.dtype)
    if sharing == "reduce":
        diagonal = fnp.sum(fnp.square(counts / fnp.maximum(ran, 1.0)[:, :, None]), axis=0)
        outputs, number = _outer(outputs), fnp.sum(fnp.minimum(ran, 1.0), axis=0)
    else:
        diagonal, outputs, number = fnp.sum(counts, axis=0), fnp.sum(outputs, axis=0), fnp.sum(ran, axis=0)
    return KroneckerFactors(diagonal / fnp.maximum(number, 1.0)[:, None], outputs / max(examples, 1), rows.placement)


def _outer(rows: Any) -> Any:
    return fnp.einsum("nbti,nbtj->bij", rows, fnp.conj(rows))
