"""Einstein sums: the subscripts are read, and the operands contracted two by two with `dot_general`."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any, NamedTuple

import opt_einsum  # type: ignore[import-untyped]

from fxgrad.engine.core.sizes import size_hint
from fxgrad.engine.frontend.operands import as_dtype, as_numpy_scalars, promote_operands, refuse_out, shape_of
from fxgrad.engine.frontend.operands import operands as read
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.frontend.strict import as_dtype_or_none
from fxgrad.engine.ops.products import dot_general
from fxgrad.engine.ops.structural import reduce_sum, reshape, transpose
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.numpy.arithmetic import multiply
from fxgrad.numpy.rearranging import diagonal


class EinsumOperand(NamedTuple):
    """An operand, and the name of each of its axes."""

    array: Any
    names: str


def einsum(subscripts: Any, /, *operands: Any, out: Any = None, optimize: Any = "auto", precision: Any = None,
           preferred_element_type: Any = None, out_sharding: Any = None, dtype: Any = None) -> Any:
    """Return sums of products of elements, given by `subscripts` such as `"ij,jk->ik"`: letters name axes.

    A letter that is not after the arrow is summed over; one that an operand has twice takes its diagonal; `...` stands
    for axes that broadcast. Without an arrow the result has the letters that appear once, in alphabetical order.
    Operands may also be given as `einsum(a, [0, 1], b, [1, 2], [0, 2])`. More than two are contracted in the order that
    `optimize` (as in opt_einsum) finds. Sums accumulate in `preferred_element_type`. Operands are converted to `dtype`
    first.

    Raises `ArgumentError` for subscripts that cannot be read, `ShapeError` if sizes of one letter differ.

    >>> einsum("ij,j->i", [[1.0, 2.0]], [3.0, 4.0])
    array([11.])
    """
    if out_sharding is not None:
        return place_array("einsum", einsum(subscripts, *operands, out=out, optimize=optimize, precision=precision,
                                            preferred_element_type=preferred_element_type, dtype=dtype), out_sharding)
    refuse_out("einsum", out)
    subscripts, operands = _with_letters(subscripts, operands)
    arrays = as_numpy_scalars(promote_operands(*(as_dtype(each, dtype) for each in read(*operands))))
    preferred = as_dtype_or_none(preferred_element_type)
    names, result = _read(subscripts, arrays)
    terms = [_without_repeats(EinsumOperand(array, name)) for array, name in zip(arrays, names, strict=True)]
    terms = _squeeze_ones(subscripts, terms)
    for pair in _order(terms, result, optimize):
        chosen = [terms.pop(place) for place in sorted(pair, reverse=True)][::-1]
        needed = set(result).union(*(term.names for term in terms))
        made = chosen[0]
        for place, other in enumerate(chosen[1:], 2):
            later = needed.union(*(term.names for term in chosen[place:]))
            made = _contract(made, other, later, result, precision, preferred)
        terms.append(_sum_names(made, needed))
    last = _sum_names(terms[0], set(result))
    array = last.array if preferred is None else as_dtype(last.array, preferred)
    return transpose(array, [last.names.index(name) for name in result])


def einsum_path(subscripts: Any, /, *operands: Any, optimize: Any = "auto") -> tuple[list[tuple[int, ...]], Any]:
    """Return the order in which `einsum` contracts its operands, pair by pair, and a printable description of its cost.

    >>> einsum_path("ij,jk,k->i", [[1.0]], [[1.0]], [1.0])[0]
    [(0, 2), (0, 1)]
    """
    subscripts, operands = _with_letters(subscripts, operands)
    arrays = as_numpy_scalars(promote_operands(*read(*operands)))
    names, result = _read(subscripts, arrays)
    shapes = [tuple(map(size_hint, shape_of(array))) for array in arrays]
    path, cost = opt_einsum.contract_path(",".join(names) + "->" + result, *shapes, shapes=True, optimize=optimize)
    return path, cost


# --- reading ------------------------------------------------------------------------------------------------------


def _with_letters(subscripts: Any, operands: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Return subscripts as a text, and the arrays, of which there is at least one."""
    if not isinstance(subscripts, str):
        subscripts, operands = _from_lists((subscripts, *operands))
    if not operands:
        raise ArgumentError(at_user_line(f"einsum: no arrays for {subscripts!r}. Write einsum('ij->j', x)"))
    return subscripts, operands


def _from_lists(given: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """Return the form with lists of numbers converted to the form with letters."""
    letters = string.ascii_letters
    if len(given) < 2:
        raise ArgumentError(at_user_line(
            "einsum: one array alone, without subscripts. Write einsum('ij->j', x), or einsum(x, [0, 1], [1])"))

    def named(numbers: Any) -> str:
        return "".join("..." if number is Ellipsis else letters[number] for number in numbers)

    pairs = len(given) // 2
    inputs = ",".join(named(given[2 * place + 1]) for place in range(pairs))
    return inputs + ("->" + named(given[-1]) if len(given) % 2 else ""), tuple(given[:2 * pairs:2])


def _read(subscripts: str, arrays: list[Any]) -> tuple[list[str], str]:
    """Return the names of the axes of each operand and of the result; axes of `...` get letters of their own."""
    text = subscripts.replace(" ", "")
    inputs, arrow, result = text.partition("->")
    names = inputs.split(",")
    if len(names) != len(arrays):
        raise ArgumentError(at_user_line(f"einsum: {subscripts!r} names {len(names)} operands, and {len(arrays)} are "
                                         "given"))
    for each in (*names, result):
        if not set(each.replace("...", "", 1)) <= set(string.ascii_letters):
            raise ArgumentError(at_user_line(f"einsum: {each!r} in {subscripts!r} cannot be read; letters and one "
                                             "'...' can stand there"))
    free = [letter for letter in string.ascii_letters if letter not in text]
    spare = 0
    for name, array in zip(names, arrays, strict=True):
        hidden = len(shape_of(array)) - len(name.replace("...", ""))
        if hidden < 0 or (hidden and "..." not in name):
            raise ShapeError(at_user_line(f"einsum: {name!r} in {subscripts!r} for an array of shape "
                                          f"{shape_of(array)}; one letter an axis is needed"))
        spare = max(spare, hidden if "..." in name else 0)
    dots = "".join(free[:spare])

    def expanded(name: str, rank: int) -> str:
        hidden = rank - len(name.replace("...", ""))
        return name.replace("...", dots[len(dots) - hidden:] if hidden else "")

    full = [expanded(name, len(shape_of(array))) for name, array in zip(names, arrays, strict=True)]
    if not arrow:
        every = "".join(full)
        return full, dots + "".join(sorted(name for name in set(every) if every.count(name) == 1 and name not in dots))
    result = result.replace("...", dots)
    if set(result) - set("".join(full)) or len(set(result)) != len(result):
        raise ArgumentError(at_user_line(f"einsum: the result {result!r} in {subscripts!r} must name axes of the "
                                         "operands, each once"))
    return full, result


def _without_repeats(term: EinsumOperand) -> EinsumOperand:
    """Return letters that an operand has twice taken as its diagonal."""
    array, names = term
    for name in dict.fromkeys(names):
        while names.count(name) > 1:
            first = names.index(name)
            second = names.index(name, first + 1)
            if shape_of(array)[first] != shape_of(array)[second]:
                raise ShapeError(at_user_line(f"einsum: the axes {name!r} of an array of shape {shape_of(array)} have "
                                              "different sizes, which have no diagonal"))
            array = diagonal(array, 0, first, second)
            names = names[:first] + names[first + 1:second] + names[second + 1:] + name
    return EinsumOperand(array, names)


def _squeeze_ones(subscripts: str, terms: list[EinsumOperand]) -> list[EinsumOperand]:
    """Return the terms without axes of size 1 whose letter has a larger size elsewhere: they broadcast."""
    sizes: dict[str, int] = {}
    for array, names in terms:
        for name, extent in zip(names, shape_of(array), strict=True):
            known = sizes.setdefault(name, extent)
            if known == 1:
                sizes[name] = extent
            elif extent not in (1, known):
                shapes = ", ".join(str(shape_of(term.array)) for term in terms)
                raise ShapeError(at_user_line(f"einsum: {name!r} in {subscripts!r} has sizes {known} and {extent} in "
                                              f"arrays of shapes {shapes}, which must be equal"))
    results = []
    for array, names in terms:
        kept = [(name, extent) for name, extent in zip(names, shape_of(array), strict=True)
                if extent == sizes[name]]
        results.append(EinsumOperand(reshape(array, tuple(extent for _, extent in kept)),
                                     "".join(name for name, _ in kept)))
    return results


# --- contracting --------------------------------------------------------------------------------------------------


def _order(terms: list[EinsumOperand], result: str, optimize: Any) -> list[tuple[int, ...]]:
    """Return the pairs of positions to contract, one after the other; results are appended."""
    count = len(terms)
    if count <= 2:
        return [tuple(range(count))]
    if optimize is False:
        return [(0, 1), *[(count - 2 - step, 0) for step in range(count - 2)]]
    text = ",".join(term.names for term in terms) + "->" + result
    chosen = optimize if isinstance(optimize, str) else "auto"
    path = optimize if isinstance(optimize, list) else opt_einsum.contract_path(
        text, *(tuple(map(size_hint, shape_of(term.array))) for term in terms), shapes=True, optimize=chosen)[0]
    return [pair for pair in path if isinstance(pair, tuple)]


def _sum_names(term: EinsumOperand, needed: set[str]) -> EinsumOperand:
    """Return the term summed over names that are no longer needed."""
    gone = [axis for axis, name in enumerate(term.names) if name not in needed]
    return EinsumOperand(reduce_sum(term.array, gone), "".join(name for name in term.names if name in needed))


def _contract(x: EinsumOperand, y: EinsumOperand, needed: set[str], result: str, precision: Any,
              preferred: Any) -> EinsumOperand:
    """Return the sum of products over the names that are no longer needed."""
    x, y = _sum_names(x, needed | set(y.names)), _sum_names(y, needed | set(x.names))
    both = [name for name in x.names if name in y.names]
    batch = [name for name in both if name in needed]
    inner = [name for name in both if name not in needed]
    if not inner:
        return _product(x, y)
    if "".join([*batch, *(name for name in y.names + x.names if name not in both)]) == result:
        x, y = y, x  # avoids a transpose
    numbers = ((tuple(x.names.index(name) for name in inner), tuple(y.names.index(name) for name in inner)),
               (tuple(x.names.index(name) for name in batch), tuple(y.names.index(name) for name in batch)))
    names = [*batch, *(name for name in x.names if name not in both), *(name for name in y.names if name not in both)]
    return EinsumOperand(dot_general(x.array, y.array, numbers, precision, preferred), "".join(names))


def _product(x: EinsumOperand, y: EinsumOperand) -> EinsumOperand:
    """Return the product of elements: axes are aligned, and broadcast."""
    names = x.names + "".join(name for name in y.names if name not in x.names)
    order = [y.names.index(name) for name in names if name in y.names]
    y_array = transpose(y.array, order)
    x_shape = shape_of(x.array) + (1,) * (len(names) - len(x.names))
    sizes = iter(shape_of(y_array))
    y_shape = tuple(next(sizes) if name in y.names else 1 for name in names)
    if aval_of(x.array).dtype != aval_of(y.array).dtype:
        x_array, y_array = promote_operands(x.array, y_array)
        x = EinsumOperand(x_array, x.names)
    return EinsumOperand(multiply(reshape(x.array, x_shape), reshape(y_array, y_shape)), names)
