"""Sums of second derivatives: `laplacian`, `hessian_diag`, and `divergence`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes, tree
from fxgrad.engine.analyses.coloring import color_columns
from fxgrad.engine.api.argument_names import Argnames, by_names
from fxgrad.engine.api.arguments import (
    Argnums,
    Aux,
    Selected,
    check_chunk_size,
    check_differentiable,
    leaf_avals,
    like_given,
    select_arguments,
    split_aux,
    transformation,
)
from fxgrad.engine.api.batching import vmap
from fxgrad.engine.api.forward import linearize
from fxgrad.engine.api.jacobians import basis_of
from fxgrad.engine.api.laplacian_stages import Stages, product_stages, second_sums, shared_stages
from fxgrad.engine.api.reverse import trace_differentiated
from fxgrad.engine.api.sparse_derivatives import sparsity
from fxgrad.engine.core.arrays import wrap_array
from fxgrad.engine.core.avals import Aval, without_literals
from fxgrad.engine.frontend.flat import TracedCall
from fxgrad.engine.higher_order.series import series_program
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.reductions import reduce_sum
from fxgrad.engine.ops.structural import zeros
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError, DTypeError, TreeError, UnsupportedError


def laplacian(fun: Callable[..., Any], argnums: Argnums = 0, with_value: bool = False, has_aux: bool = False, *,
              sparse: bool = False, argnames: Argnames | None = None) -> Callable[..., Any]:
    """Return the function that computes the Laplacian of `fun`: the sum of its second derivatives by each entry of `x`.

    `x`, the argument at `argnums`, or named by `argnames` as for `grad`, is a real array or a container of them; the
    sum is over all arguments where there are several. The result is like the output, whose arrays may have any shape;
    with `with_value` it is a pair (value, Laplacian), with `has_aux` (Laplacian, aux), with both ((value, aux),
    Laplacian). The second derivatives are summed as they arise (the forward Laplacian, Li et al. 2023): n entries cost
    about n + 2 evaluations at once, in place of the 2n of products with the Hessian. With `sparse`, entries whose mixed
    second derivatives are zero by the pattern of the Hessian (`fxgrad.sparsity`) share a direction: for particles that
    do not meet, as many as one of them has entries; for particles that meet, these up to there. Raises `DTypeError` for
    integer and complex arguments.

    >>> import numpy as np, fxgrad
    >>> float(fxgrad.laplacian(lambda x: np.sum(x ** 3))(np.array([1.0, 2.0])))
    18.0
    """
    if argnames is not None:
        return by_names("laplacian", laplacian, fun, argnames, argnums, with_value=with_value, has_aux=has_aux,
                        sparse=sparse)

    @transformation("laplacian", fun, argnums)
    @hide_frames
    def laplacian_function(*args: Any, **kwargs: Any) -> Any:
        selected, avals, traced, aux = _trace("laplacian", fun, argnums, has_aux, args, kwargs)
        inputs = traced.inputs(*selected.leaves)
        number, main = len(traced.program.outputs), traced.out_tree.num_leaves
        moving, wanted = traced.wrt(), tuple(place < main for place in range(number))
        basis, stages = _directions(fun, argnums, has_aux, args, kwargs, avals, traced) if sparse and main else (
            _basis(avals), product_stages(traced.program, moving))

        def along(*directions: Any) -> tuple[list[Any], list[Any]]:
            derived = series_program(traced.program, (*map(int, moving),), 2, wanted, scaled=True)
            results = without_literals(derived([*inputs, *directions]))
            return results[:number], results[number + 1::2]

        if not (basis and aval_of(basis[0]).shape[0]):
            values = without_literals(series_program(traced.program, (0,) * len(inputs), 0)(inputs))
            found = without_literals([zeros(aval.strong()) for aval in traced.program.out_avals[:main]])
        else:
            try:
                values, found = second_sums(traced.program, moving, inputs, basis, wanted, stages)
            except UnsupportedError:  # an operation with programs that has no rule for sums: each direction by itself
                values, found = vmap(along, out_axes=(None, 0))(*basis)
                found = [reduce_sum(value, (0,)) for value in found]
        value, result = (like_given(tree.unflatten(traced.out_tree, leaves), inputs)
                         for leaves in (values[:main], found))
        if aux is None:
            return (value, result) if with_value else result
        further = aux.restore(values[main:])
        return ((value, further), result) if with_value else (result, further)
    return laplacian_function


def hessian_diag(fun: Callable[..., Any], argnums: Argnums = 0, chunk_size: int | None = None, has_aux: bool = False,
                 *, argnames: Argnames | None = None) -> Callable[..., Any]:
    """Return the function that computes the diagonal of the Hessian of a scalar function, without the Hessian.

    The result is like the arguments at `argnums`, or named by `argnames` as for `grad`: real arrays or containers of
    them. With `has_aux` it is a pair (diagonal, aux). `chunk_size` bounds how many entries are computed at once, and so
    the memory. Raises `DTypeError` for integer and complex arguments,
    `ArgumentError` where the output is no scalar.

    >>> import numpy as np, fxgrad
    >>> fxgrad.hessian_diag(lambda x: np.sum(x ** 3) + x[0] * x[1])(np.array([1.0, 2.0]))
    array([ 6., 12.])
    """
    check_chunk_size("hessian_diag", chunk_size)
    if argnames is not None:
        return by_names("hessian_diag", hessian_diag, fun, argnames, argnums, chunk_size=chunk_size, has_aux=has_aux)

    @transformation("hessian_diag", fun, argnums)
    @hide_frames
    def diagonal(*args: Any, **kwargs: Any) -> Any:
        selected, avals, traced, aux = _trace("hessian_diag", fun, argnums, has_aux, args, kwargs)
        number, main = len(traced.program.outputs), traced.out_tree.num_leaves
        avals_out = traced.program.out_avals[:main]
        if [aval.shape for aval in avals_out] != [()]:
            raise ArgumentError(at_user_line(
                f"hessian_diag needs a function with a scalar output, and {function_name(fun)} returned "
                f"{', '.join(map(str, avals_out)) or 'nothing'}. Take fxgrad.hessian, or the sum"))

        def second(*directions: Any) -> tuple[Any, list[Any]]:
            counts = (*[0] * traced.program.captured, *[1] * len(avals))
            results = without_literals(series_program(
                traced.program, counts, 2, tuple(place < main for place in range(number)), scaled=True)(
                    traced.inputs(*selected.leaves, *directions)))
            return results[number + 1], results[main:number]
        found, further = vmap(second, out_axes=(0, None), chunk_size=chunk_size)(*_basis(avals))
        result = like_given(_cut(found, selected, avals), selected.leaves)
        return result if aux is None else (result, aux.restore(further))
    return diagonal


def divergence(fun: Callable[..., Any], argnums: Argnums = 0, chunk_size: int | None = None, has_aux: bool = False,
               *, argnames: Argnames | None = None) -> Callable[..., Any]:
    """Return the function that computes the divergence of a vector field: the trace of its Jacobian, a scalar.

    `fun` returns a container like its argument at `argnums`, or named by `argnames` as for `grad`: a real array or a
    container of them; a tuple like the arguments where there are several. With `has_aux` it returns a pair (field,
    aux), and the result is a pair (divergence, aux). `chunk_size` bounds how many columns are computed at once, and so
    the memory. Raises `TreeError` or `ArgumentError` where the output is not like the argument, `DTypeError` for
    integer and complex arguments.

    >>> import numpy as np, fxgrad
    >>> float(fxgrad.divergence(lambda x: x ** 2)(np.array([1.0, 2.0])))
    6.0
    """
    check_chunk_size("divergence", chunk_size)
    if argnames is not None:
        return by_names("divergence", divergence, fun, argnames, argnums, chunk_size=chunk_size, has_aux=has_aux)

    @transformation("divergence", fun, argnums)
    @hide_frames
    def divergence_function(*args: Any, **kwargs: Any) -> Any:
        selected = select_arguments("divergence", fun, argnums, args)
        avals = leaf_avals("divergence", selected)
        check_real("divergence", fun, selected, avals)

        def field(*values: Any) -> Any:
            given = [*args]
            for position, value in zip(selected.positions, values, strict=True):
                given[position] = value
            output = fun(*given, **kwargs)
            return split_aux("divergence", fun, output) if has_aux else output

        value, push, *aux = linearize(field, *(args[position] for position in selected.positions), has_aux=has_aux)
        check_field("divergence", fun, selected, value)

        def entry(*direction: Any) -> Any:
            moved = tree.leaves(push(*tree.unflatten(selected.structure, direction)))
            return _total([reduce_sum(one * other, tuple(range(aval_of(one).ndim)))
                           for one, other in zip(moved, direction, strict=True)])
        result = like_given(reduce_sum(vmap(entry, chunk_size=chunk_size)(*_basis(avals)), (0,)),
                            tree.leaves((args, kwargs)))
        return (result, *aux) if has_aux else result
    return divergence_function


def _total(values: Sequence[Any]) -> Any:
    result = values[0]
    for value in values[1:]:
        result = add(result, value)
    return result


def _trace(what: str, fun: Callable[..., Any], argnums: Argnums, has_aux: bool, args: tuple[Any, ...],
           kwargs: dict[str, Any]) -> tuple[Selected, list[Aval], TracedCall, Aux | None]:
    selected = select_arguments(what, fun, argnums, args)
    avals = leaf_avals(what, selected)
    check_real(what, fun, selected, avals)
    traced, aux = trace_differentiated(what, fun, has_aux, args, kwargs, selected, avals)
    for aval in traced.program.out_avals[:traced.out_tree.num_leaves]:
        if not dtypes.is_inexact(aval.dtype):
            raise DTypeError(at_user_line(
                f"{what} needs floating-point outputs, and {function_name(fun)} returned {aval.strong()}, which has no "
                "derivative. Return floating-point arrays alone"))
    return selected, avals, traced, aux


def check_real(what: str, fun: Callable[..., Any], selected: Selected, avals: Sequence[Aval]) -> None:
    """Raise `DTypeError` for arguments that are not real floating-point arrays."""
    check_differentiable(what, selected, avals)
    for name, aval in zip(selected.names(), avals, strict=True):
        if dtypes.is_complex(aval.dtype):
            raise DTypeError(at_user_line(
                f"{what} takes real arguments, and {name} of {function_name(fun)} is {aval}. Pass its real and "
                "imaginary parts as two arguments"))


def check_field(what: str, fun: Callable[..., Any], selected: Selected, value: Any) -> None:
    """Raise `TreeError` or `ArgumentError` unless the output of `fun` is like the selected arguments."""
    leaves, structure = tree.flatten((value,) if selected.single else value)
    if structure != selected.structure:
        raise TreeError(at_user_line(
            f"{what} needs a function whose output is like its argument: {function_name(fun)} takes "
            f"{selected.structure} and returned {structure}"))
    shapes, needed = ([aval_of(leaf).shape for leaf in each] for each in (leaves, selected.leaves))
    if shapes != needed:
        raise ArgumentError(at_user_line(
            f"{what} needs a function whose output is like its argument: {function_name(fun)} takes arrays of "
            f"the shapes {needed} and returned {shapes}"))


def _basis(avals: Sequence[Aval]) -> list[Any]:
    """Return the rows of the identity over all elements of the arguments, as one stack for each.

    They are `Array`s, as is what is computed along them, until `like_given` returns the kind of the arguments.
    """
    return [*map(wrap_array, basis_of(avals, 0, sum(aval.size for aval in avals)))]


def _directions(fun: Callable[..., Any], argnums: Argnums, has_aux: bool, args: tuple[Any, ...],
                kwargs: dict[str, Any], avals: Sequence[Aval], traced: TracedCall) -> tuple[list[Any], Stages | None]:
    """Return directions in which no two entries with a mixed second derivative move, as one stack for each argument.

    If they are nearly as many as the entries, it may be that entries share directions in a first stage alone.
    """
    def total(*args: Any, **kwargs: Any) -> Any:
        output = fun(*args, **kwargs)
        return _total([reduce_sum(leaf, tuple(range(aval_of(leaf).ndim)))
                       for leaf in tree.leaves(output[0] if has_aux else output)])

    pattern = sparsity(total, argnums)(*args, **kwargs).hessian
    meets = pattern.rows < pattern.columns
    pairs = np.stack([pattern.rows[meets], pattern.columns[meets]], axis=1)
    colors = color_columns(np.arange(len(pairs) + 1) * 2, pairs.ravel(), pattern.shape[1])
    number = max(colors.number, 1)
    if 2 * number > pattern.shape[1]:
        stages = shared_stages(traced.program, traced.wrt()) or product_stages(traced.program, traced.wrt())
        if stages is not None:
            return _basis(avals), stages
    rows = np.zeros((number, pattern.shape[1]))
    rows[np.maximum(colors.colors, 0), np.arange(pattern.shape[1])] = 1  # those that meet no other have no color
    stacks = np.split(rows, np.cumsum([aval.size for aval in avals])[:-1], axis=1)
    return [wrap_array(stack.reshape(number, *aval.shape).astype(aval.dtype))
            for stack, aval in zip(stacks, avals, strict=True)], None


def _cut(diagonal: Any, selected: Selected, avals: Sequence[Aval]) -> Any:
    """Return a vector with an entry for each element of the arguments as a container like them."""
    pieces, start = [], 0
    for aval in avals:
        pieces.append(diagonal[start:start + aval.size].reshape(aval.shape))
        start += aval.size
    return selected.rebuild(pieces)
