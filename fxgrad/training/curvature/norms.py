"""Norms of the gradients of single examples, from the inputs and cotangents of layers: no gradient of one is formed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement
from math import prod
from typing import Any, NamedTuple

import numpy as np

from fxgrad import numpy as fnp
from fxgrad import tree, vmap
from fxgrad.extend import Aval, function_name, hide_frames, transformation
from fxgrad.training.curvature.passes import pull_back, require_batch, trace_loss
from fxgrad.training.curvature.rules import wide
from fxgrad.training.curvature.uses import ParameterUses, Use, are_apart, is_swapped, sorted_axes


def per_example_norms(loss: Callable[..., Any], *, by_parameter: bool = False, squared: bool = False) -> Any:
    """Return the function `(params, *batch) -> norms` of the gradients of single examples: an array, one for each.

    `loss(params, *example)` is the scalar loss of one example; `params` is a container of floating-point or complex
    arrays, and the arrays of `batch` have the examples along axis 0, as for `vmap(grad(loss), (None, 0, ...))`, whose
    rows have these norms. With `by_parameter`, the result is a container like `params` of the norms of its parts; with
    `squared`, norms are squared, which has a derivative at 0.

    Layers are found in the program of the loss: products with a parameter (dense layers, projections of attention),
    convolutions and lookups, used once or several times, in calls and loops too. The gradient of a layer is a sum of
    outer products a ⊗ g over positions, and its squared norm is Σ (aₛ · aₜ)(gₛ · gₜ) over pairs of them: one pass
    back for all examples, and no gradient of one. For a parameter that is used in other ways, or that
    is smaller than the table of pairs, the gradients of the examples are computed, for it alone;
    `fxgrad.curvature.layers(loss)` lists both kinds. In low precision the sum of pairs may lose digits where the
    terms cancel; it is not negative.

    Raises `ArgumentError` if `loss` returns no scalar or the batch is missing, and `DTypeError` if a parameter has no
    derivative.

    The formulas are those of Goodfellow (arXiv:1510.01799) for dense layers, Rochette, Manoel and Tramel
    (arXiv:1912.06015) for convolutions, and Li, Tramèr, Liang and Hashimoto (arXiv:2110.05679) for sequences.

    >>> import numpy as np, fxgrad
    >>> def loss(params, x, y):
    ...     return np.sum((np.tanh(x @ params["w"]) - y) ** 2)
    >>> params, x, y = {"w": np.eye(2)}, np.array([[1.0, 2.0], [0.0, 3.0]]), np.zeros((2, 2))
    >>> fxgrad.curvature.per_example_norms(loss)(params, x, y).round(4)
    array([1.4625, 0.0589])
    >>> gradients = fxgrad.vmap(fxgrad.grad(loss), (None, 0, 0))(params, x, y)
    >>> np.linalg.norm(gradients["w"].reshape(2, 4), axis=1).round(4)
    array([1.4625, 0.0589])
    """
    @transformation("per_example_norms", loss)
    @hide_frames
    def norms(params: Any, *batch: Any) -> Any:
        require_batch("per_example_norms", batch)

        def of_example(*example: Any) -> Any:
            squares = _squares_of_example(loss, params, example)
            if not by_parameter:
                squares = [sum(squares[1:], squares[0]) if squares else fnp.zeros(())]
            found = squares if squared else [fnp.sqrt(square) for square in squares]
            return tree.unflatten(tree.structure(params), found) if by_parameter else found[0]

        of_example.__name__ = function_name(loss)
        return vmap(of_example)(*batch)
    return norms


def _squares_of_example(loss: Callable[..., Any], params: Any, example: Sequence[Any]) -> list[Any]:
    """Return the squared norms of the gradients of one example, one for each parameter."""
    traced = trace_loss("per_example_norms", loss, params, example).find_layers(reason_for_gradient)
    direct = [number for number, found in enumerate(traced.uses) if reason_for_gradient(found)]
    uses = [use for number, found in enumerate(traced.uses) if number not in direct for use in found.uses]
    operands, cotangents, gradients = pull_back(traced, uses, direct)
    squares: list[Any] = [None] * len(traced.uses)
    for number, gradient in zip(direct, gradients, strict=True):
        squares[number] = _square(wide(gradient, traced.avals[number].dtype))
    given = iter(zip(operands, cotangents, strict=True))
    for number, found in enumerate(traced.uses):
        if number not in direct:
            own = [(use, *next(given)) for use in found.uses]
            squares[number] = _square_of_sum(traced.avals[number], own)
    return squares


def reason_for_gradient(found: ParameterUses) -> str:
    """Return why the gradients of examples themselves are computed for a parameter; "" if they are not."""
    if found.reason:
        return found.reason
    if any(use.is_open for use in found.uses):
        return "a while_loop may use it any number of times"
    for part in parts_of(found.uses):
        rows = sum(use.rows for use in part)
        shape, layer = part[0].equation.inputs[part[0].place].aval.shape, part[0].layer
        blocks = layer.groups if layer.groups > 1 else prod(shape[axis] for axis in layer.blocks)
        if rows > 1 and 2 * blocks * rows ** 2 > prod(shape):
            return f"it is smaller than the pairs of {rows} positions"
    return ""


def parts_of(uses: Sequence[Use]) -> list[list[Use]]:
    """Return the uses in lists: those in one list are of the same entries of the parameter."""
    parts: list[list[Use]] = []
    for use in uses:
        for part in parts:
            if not are_apart(use, part[0]):
                part.append(use)
                break
        else:
            parts.append([use])
    return parts


def _square_of_sum(aval: Aval, given: Sequence[tuple[Use, Any, Any]]) -> Any:
    """Return the squared norm of the gradient of a parameter: that of the sum of its uses."""
    squares = [fnp.sum(for_each_entry(aval, part, lambda terms: _square_of_part(joined_terms(terms))))
               for part in in_parts(given)]
    return sum(squares[1:], squares[0]) if squares else fnp.zeros((), _real(aval.dtype))


def in_parts(given: Sequence[tuple[Use, Any, Any]]) -> list[list[tuple[Use, Any, Any]]]:
    """Return the uses, with their operands and cotangents, in the lists of `parts_of`."""
    values = {id(use): (use, operands, cotangent) for use, operands, cotangent in given}
    return [[values[id(use)] for use in part] for part in parts_of([use for use, _, _ in given])]


class Term(NamedTuple):
    """The factors of a use, (blocks, rows, entries) each; that at `hot` is one-hot, as integers of shape (rows,).

    `ran` is 1 for the rows of branches that ran and 0 for others, all of which have zeros; None if all rows ran.
    """

    factors: tuple[Any, Any]
    hot: int | None
    ran: Any = None


def for_each_entry(aval: Aval, part: Sequence[tuple[Use, Any, Any]], function: Callable[[list[Term]], Any]) -> Any:
    """Return `function` of the terms of uses of the same entries; stacked, if loops go through several of them."""
    def of_entry(values: Sequence[tuple[Any, Any]]) -> Any:
        return function([term_of_use(use, *own, aval) for (use, *_), own in zip(part, values, strict=True)])

    values = [tree.map(lambda value, use=use: _by_entry_and_step(use, value), (operands, cotangent))
              for use, operands, cotangent in part]
    return vmap(of_entry)(values) if part[0][0].entered else of_entry(values)


def _by_entry_and_step(use: Use, value: Any) -> Any:
    """Return an operand or a cotangent with an axis of entries and one of steps, if it has axes of such loops."""
    count, shape = len(use.loops), fnp.shape(value)
    steps = [number for number in range(count) if number not in use.entered]
    moved = fnp.transpose(value, (*use.entered, *steps, *range(count, len(shape))))
    return fnp.reshape(moved, (*[use.entries] * bool(use.entered), *[use.rows // max(use.layer.rows, 1)] * bool(steps),
                               *shape[count:]))


def term_of_use(use: Use, operands: Sequence[Any], cotangent: Any, aval: Aval) -> Term:
    """Return the two factors in an order that all uses of these entries share, and which of them is one-hot."""
    layer, shape = use.layer, use.equation.inputs[use.place].aval.shape
    ran = None
    if use.is_conditional:
        *operands, ran = operands
        ran = fnp.repeat(fnp.reshape(ran, (-1,)), layer.rows)
    if len(use.entered) == len(use.loops):
        found: Sequence[Any] = layer.factors(operands, cotangent)
    else:
        found = _rows_of_steps(vmap(layer.factors)(operands, cotangent))
    factors = [_forward_positions(use, factor, shape) if layer.is_lookup and place == 0 else wide(
        _in_order(use, factor, axes, order, shape), aval.dtype)
        for place, (factor, axes, order) in enumerate(zip(
            found, (layer.ins, layer.outs), sorted_axes(use), strict=True))]
    swapped = is_swapped(use)
    hot = (1 if swapped else 0) if layer.is_lookup else None
    return Term((factors[1], factors[0]) if swapped else (factors[0], factors[1]), hot, ran)


def _rows_of_steps(factors: Sequence[Any]) -> list[Any]:
    """Return factors of all steps, stacked along axis 0, with the steps as further rows."""
    found = []
    for factor in factors:
        if len(factor.shape) == 2:  # steps and rows of a lookup
            found.append(fnp.reshape(factor, (-1,)))
        else:
            steps, blocks, rows, entries = factor.shape
            found.append(fnp.reshape(fnp.swapaxes(factor, 0, 1), (blocks, steps * rows, entries)))
    return found


def _in_order(use: Use, factor: Any, axes: Sequence[int], order: Sequence[int], shape: Sequence[int]) -> Any:
    """Return a factor, the last axis of which stands for several axes, with these in another order, none backward.

    The first axis stands for those of blocks.
    """
    blocks = use.layer.blocks if use.layer.groups == 1 else ()
    flipped = [(*blocks, None, *axes).index(axis) for axis in (*blocks, *axes) if use.axes[axis] in use.flipped]
    if [*order] == sorted(order) and not flipped:
        return factor
    parted = fnp.reshape(factor, (*((shape[axis] for axis in blocks) if blocks else factor.shape[:1]), factor.shape[1],
                                  *(shape[axis] for axis in axes)))
    first = max(len(blocks), 1)
    if flipped:
        parted = fnp.flip(parted, tuple(place + first - len(blocks) for place in flipped))
    return fnp.reshape(fnp.transpose(parted, (*range(first + 1), *(first + 1 + number for number in order))),
                       factor.shape)


def _forward_positions(use: Use, positions: Any, shape: Sequence[int]) -> Any:
    """Return the entries that rows of a lookup read, in a table that is not backward."""
    axis, = use.layer.ins
    if use.axes[axis] not in use.flipped:
        return positions
    return fnp.where(fnp.less(positions, 0), positions, shape[axis] - 1 - positions)


def joined_terms(terms: Sequence[Term]) -> list[Term]:
    """Return the terms with those of one kind as one, of the rows of all."""
    joined = []
    for hot in (None, 0, 1):
        own = [term for term in terms if term.hot == hot]
        if len(own) > 1:
            one, other = (fnp.concatenate(list(factors), axis=0 if place == hot else 1)
                          for place, factors in enumerate(zip(*(term.factors for term in own), strict=True)))
            ran = None if all(term.ran is None for term in own) else fnp.concatenate(
                [fnp.ones(_rows(term), np.float32) if term.ran is None else term.ran for term in own])
            joined.append(Term((one, other), hot, ran))
        else:
            joined += own
    return joined


def _rows(term: Term) -> int:
    return int(term.factors[1 if term.hot == 0 else 0].shape[1])


def _square_of_part(terms: Sequence[Term]) -> Any:
    """Return the squared norm of a sum of outer products."""
    if len(terms) == 1 and terms[0].hot is None and terms[0].factors[0].shape[1] == 1:
        one, other = terms[0].factors
        return fnp.sum(fnp.sum(_squares(one), axis=(1, 2)) * fnp.sum(_squares(other), axis=(1, 2)))
    if len(terms) == 1 and terms[0].hot is not None and terms[0].factors[1 - terms[0].hot].shape[1] == 1:
        return _square(terms[0].factors[1 - terms[0].hot])
    total: Any = 0.0
    for first, second in combinations_with_replacement(terms, 2):
        pairs = fnp.sum(fnp.real(_pairs(first, second, 0) * _pairs(first, second, 1)))
        total = total + (pairs if first is second else 2.0 * pairs)
    return fnp.maximum(total, 0.0)  # rounding may leave less where the terms cancel


def _pairs(first: Term, second: Term, place: int) -> Any:
    """Return the products of all pairs of rows of one factor of two terms: (blocks, rows of one, rows of the other)."""
    one, other = first.factors[place], second.factors[place]
    if first.hot == second.hot == place:
        return fnp.equal(one[:, None], other[None, :])[None]
    if first.hot == place:
        return fnp.swapaxes(fnp.take(fnp.conj(other), one, axis=2), 1, 2)
    if second.hot == place:
        return fnp.take(one, other, axis=2)
    return fnp.einsum("bsi,bti->bst", one, fnp.conj(other))


def _squares(value: Any) -> Any:
    return fnp.square(fnp.abs(value)) if np.issubdtype(value.dtype, np.complexfloating) else fnp.square(value)


def _square(value: Any) -> Any:
    return fnp.sum(_squares(value))


def _real(dtype: Any) -> Any:
    return np.zeros((), np.promote_types(dtype, np.float32) if np.dtype(dtype).itemsize < 4 else dtype).real.dtype
