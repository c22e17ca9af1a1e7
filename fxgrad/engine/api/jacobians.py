"""Matrices of derivatives: `jacfwd`, `jacrev`, `jacobian`, `hessian`, with values beside them, and `hvp`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from fxgrad.engine import dtypes, tree
from fxgrad.engine.api.argument_names import Argnames, by_names
from fxgrad.engine.api.arguments import (
    Argnums,
    Aux,
    Selected,
    check_chunk_size,
    check_differentiable,
    leaf_avals,
    require_positions,
    select_arguments,
    transformation,
)
from fxgrad.engine.api.forward import jvp_of
from fxgrad.engine.api.inner_arguments import with_respect_to
from fxgrad.engine.api.jacobian_passes import Passes
from fxgrad.engine.api.reverse import Differentiation, gradient_for, keeps_derivatives, trace_differentiated
from fxgrad.engine.api.sparse_derivatives import sparse_values
from fxgrad.engine.core.avals import Aval, without_literals
from fxgrad.engine.derivation.derive import Derived, derive
from fxgrad.engine.frontend.flat import TracedCall
from fxgrad.engine.frontend.operands import ones_on_diagonal
from fxgrad.engine.higher_order.groups import select_marked
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.ops.structural import convert, full, has_weak_cotangent, move_axis, reshape, zeros
from fxgrad.engine.tracebacks import hide_frames
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.transforms.forward import has_tangent
from fxgrad.engine.transforms.linearize import linearize_in_place
from fxgrad.engine.user_lines import at_user_line, function_name, named_as
from fxgrad.errors import ArgumentError, DTypeError

Mode = Literal["auto", "forward", "reverse"]


def jacfwd(fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False,
           chunk_size: int | None = None, *, argnames: Argnames | None = None) -> Callable[..., Any]:
    """Return the function that computes the Jacobian of `fun`, one column at a time by forward mode.

    The result has the structure of the output; each leaf of it is a container with the structure of the arguments at
    `argnums`, or named by `argnames` as for `grad`, with leaves of shape `output.shape + argument.shape`. With
    `has_aux` it is a pair (Jacobian, aux).
    `chunk_size` bounds how many columns are computed at once, and so the memory. Use it where there are fewer inputs
    than outputs. Raises as `grad` does.

    >>> import numpy as np, fxgrad
    >>> fxgrad.jacfwd(lambda x: x ** 2)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """
    if argnames is not None:
        return by_names("jacfwd", jacfwd, fun, argnames, argnums, has_aux=has_aux, holomorphic=holomorphic,
                        chunk_size=chunk_size)
    return _jacobian_of("jacfwd", fun, argnums, has_aux, holomorphic, chunk_size, "forward", with_value=False)


def jacrev(fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False,
           allow_int: bool = False, *, chunk_size: int | None = None, argnames: Argnames | None = None,
           ) -> Callable[..., Any]:
    """Return the function that computes the Jacobian of `fun`, one row at a time by reverse mode; else as `jacfwd`.

    Use it where there are fewer outputs than inputs. With `allow_int` blocks of integer arguments are zeros of dtype
    float0.

    >>> import numpy as np, fxgrad
    >>> fxgrad.jacrev(lambda x: np.sum(x ** 2))(np.array([1.0, 2.0]))
    array([2., 4.])
    """
    if argnames is not None:
        return by_names("jacrev", jacrev, fun, argnames, argnums, has_aux=has_aux, holomorphic=holomorphic,
                        allow_int=allow_int, chunk_size=chunk_size)
    return _jacobian_of("jacrev", fun, argnums, has_aux, holomorphic, chunk_size, "reverse", with_value=False,
                        allow_int=allow_int)


def jacobian(fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False,
             chunk_size: int | None = None, mode: Mode = "auto", *, allow_int: bool = False, sparse: Any = False,
             argnames: Argnames | None = None, wrt: Any = None) -> Callable[..., Any]:
    """Return the function that computes the Jacobian of `fun`; mode "auto" takes the side with fewer elements.

    Otherwise as `jacfwd`; `allow_int` is as in `jacrev`. With `sparse=True` each leaf is a sparse matrix with a row for
    each element of the output and a column for each of the argument, in as few passes as columns or rows that share no
    row or column allow: a `scipy.sparse.csr_array`, and a `jax.experimental.sparse.BCOO` under `jit` and for arrays of
    jax. Its places are those of `fxgrad.sparsity(fun)`; `sparse` may be a matrix or a `Pattern` that has them all.
    `wrt` is as in `grad`: values inside `fun`.

    >>> import numpy as np, fxgrad
    >>> fxgrad.jacobian(lambda x: np.array([2.0, 3.0]) * x)(1.0)
    array([2., 3.])
    >>> matrix = fxgrad.jacobian(lambda x: x[1:] * x[:-1], sparse=True)(np.arange(4.0))
    >>> type(matrix).__name__, matrix.nnz
    ('csr_array', 6)
    """
    if wrt is not None:
        return with_respect_to("jacobian", fun, wrt, argnums, lambda function, zeros: jacobian(
            function, 0, has_aux, holomorphic, chunk_size, mode, allow_int=allow_int, sparse=sparse)(zeros),
            argnames=argnames)
    if argnames is not None:
        return by_names("jacobian", jacobian, fun, argnames, argnums, has_aux=has_aux, holomorphic=holomorphic,
                        chunk_size=chunk_size, mode=mode, allow_int=allow_int, sparse=sparse)
    return _jacobian_of("jacobian", fun, argnums, has_aux, holomorphic, chunk_size, mode, with_value=False,
                        allow_int=allow_int, sparse=sparse)


def value_and_jacobian(fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False,
                       holomorphic: bool = False, chunk_size: int | None = None, mode: Mode = "auto", *,
                       sparse: Any = False, argnames: Argnames | None = None) -> Callable[..., Any]:
    """Return the function that computes `(fun(...), Jacobian)` together; with `has_aux`, `((value, aux), Jacobian)`.

    The arguments are those of `jacobian`.

    >>> import numpy as np, fxgrad
    >>> value, matrix = fxgrad.value_and_jacobian(lambda x: x * x)(np.array([1.0, 3.0]))
    >>> value, matrix.shape
    (array([1., 9.]), (2, 2))
    """
    if argnames is not None:
        return by_names("value_and_jacobian", value_and_jacobian, fun, argnames, argnums, has_aux=has_aux,
                        holomorphic=holomorphic, chunk_size=chunk_size, mode=mode, sparse=sparse)
    return _jacobian_of("value_and_jacobian", fun, argnums, has_aux, holomorphic, chunk_size, mode, with_value=True,
                        sparse=sparse)


def hessian(fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False,
            chunk_size: int | None = None, *, sparse: Any = False, argnames: Argnames | None = None,
            wrt: Any = None) -> Callable[..., Any]:
    """Return the function that computes the second derivatives of `fun`: `jacfwd` of `jacrev`.

    For a scalar function of an array of shape `s` the result has shape `s + s`; containers nest as in `jacfwd`. With
    `sparse`, which is as in `jacobian`, `fun` returns a scalar, and the columns of the matrices are colored with regard
    to their symmetry. `wrt` is as in `grad`: values inside `fun`.

    >>> import numpy as np, fxgrad
    >>> fxgrad.hessian(lambda x: x[0] * x[1])(np.array([1.0, 2.0]))
    array([[0., 1.],
           [1., 0.]])
    >>> fxgrad.hessian(lambda x: np.sum(x ** 3), sparse=True)(np.arange(3.0)).toarray()
    array([[ 0.,  0.,  0.],
           [ 0.,  6.,  0.],
           [ 0.,  0., 12.]])
    """
    if wrt is not None:
        return with_respect_to("hessian", fun, wrt, argnums, lambda function, zeros: hessian(
            function, 0, has_aux, holomorphic, chunk_size, sparse=sparse)(zeros), argnames=argnames)
    if argnames is not None:
        return by_names("hessian", hessian, fun, argnames, argnums, has_aux=has_aux, holomorphic=holomorphic,
                        chunk_size=chunk_size, sparse=sparse)
    require_positions("hessian", "argnums", argnums)
    if not _is_dense(sparse):
        gradient = gradient_for("hessian", fun, argnums, has_aux, holomorphic)
        return _jacobian_of("hessian", gradient, argnums, has_aux, holomorphic, chunk_size, "auto", with_value=False,
                            sparse=sparse, of=fun)
    first = jacrev(fun, argnums, has_aux, holomorphic, chunk_size=chunk_size)
    second = _jacobian_of("hessian", first, argnums, has_aux, holomorphic, chunk_size, "forward", with_value=False,
                          kept=None if has_aux or holomorphic else partial(_trace_rows, fun, chunk_size))
    return transformation("hessian", fun, argnums)(second)


def value_and_hessian(fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False,
                      chunk_size: int | None = None, *, sparse: Any = False, argnames: Argnames | None = None,
                      ) -> Callable[..., Any]:
    """Return the function that computes `(fun(...), Hessian)` of a scalar function together.

    With `has_aux` the result is `((value, aux), Hessian)`. The arguments are those of `hessian`.

    >>> import numpy as np, fxgrad
    >>> value, matrix = fxgrad.value_and_hessian(lambda x: np.sum(x ** 3))(np.array([1.0, 2.0]))
    >>> float(value), matrix
    (9.0, array([[ 6.,  0.],
           [ 0., 12.]]))
    """
    if argnames is not None:
        return by_names("value_and_hessian", value_and_hessian, fun, argnames, argnums, has_aux=has_aux,
                        chunk_size=chunk_size, sparse=sparse)
    require_positions("value_and_hessian", "argnums", argnums)

    @named_as(fun, ())
    def value_aside(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        output = fun(*args, **kwargs)
        return (output[0], output) if has_aux else (output, output)

    gradient = gradient_for("value_and_hessian", value_aside, argnums, has_aux=True)
    second = _jacobian_of("value_and_hessian", gradient, argnums, True, False, chunk_size,
                          "forward" if _is_dense(sparse) else "auto", with_value=False, sparse=sparse, of=fun)

    @transformation("value_and_hessian", fun, argnums)
    @hide_frames
    def value_and_matrix(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        matrix, value = second(*args, **kwargs)
        return value, matrix
    return value_and_matrix


@hide_frames
def hvp(fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], argnums: Argnums = 0,
        has_aux: bool = False) -> Any:
    """Return the Hessian of a scalar function times a vector, without the Hessian: the jvp of the gradient.

    `primals` are the arguments; `tangents` a tuple like those at `argnums`. The result is like the
    gradient. Its cost is a few times that of `fun`. With `has_aux`, where `fun` returns a pair of a scalar and any
    auxiliary output, the result is a pair (product, aux).

    >>> import numpy as np, fxgrad
    >>> fxgrad.hvp(lambda x: np.sum(x ** 3), (np.array([1.0, 2.0]),), (np.array([1.0, 0.0]),))
    array([6., 0.])
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    found = jvp_of("hvp", gradient_for("hvp", fun, argnums, has_aux), primals, tangents, has_aux, numbers)
    return found[1:] if has_aux else found[1]


def _is_dense(sparse: Any) -> bool:
    return sparse is False or sparse is None


def _jacobian_of(what: str, fun: Callable[..., Any], argnums: Argnums, has_aux: bool, holomorphic: bool,
                 chunk_size: int | None, mode: Mode, with_value: bool, allow_int: bool | None = None,
                 sparse: Any = False, of: Callable[..., Any] | None = None,
                 kept: Callable[..., TracedCall | None] | None = None) -> Callable[..., Any]:
    """Return the function that computes the Jacobian of `fun`, the gradient of `of` if that is given.

    `kept` returns the trace of a call of `fun` from what is kept with another program, or None.
    """
    if mode not in ("auto", "forward", "reverse"):
        raise ArgumentError(at_user_line(f'{what}: mode={mode!r}; it must be "auto", "forward" or "reverse"'))
    check_chunk_size(what, chunk_size)
    if of is not None and not (has_aux or holomorphic):
        kept = Differentiation(what, of, argnums).trace

    @transformation(what, fun if of is None else of, argnums)
    @hide_frames
    def jacobian_function(*args: Any, **kwargs: Any) -> Any:
        selected = select_arguments(what, fun, argnums, args)
        avals = leaf_avals(what, selected)
        check_differentiable(what, selected, avals, holomorphic=holomorphic, allow_int=allow_int)
        aux = None
        traced = None if kept is None else kept(selected, avals, args, kwargs)
        if traced is None:
            traced, aux = trace_differentiated(what, fun, has_aux, args, kwargs, selected, avals)
        main = traced.out_tree.num_leaves
        _check_outputs(what, of or fun, avals, traced.program.out_avals[:main], holomorphic)
        moving = [has_tangent(aval) for aval in avals]
        first = 0 if with_value else main
        if _is_dense(sparse):
            derived = _jacobian_program(traced, main, first, mode, chunk_size, moving)
            values = derived(traced.inputs(*selected.leaves))
        else:
            values = sparse_values(what, traced, main, first, moving, "symmetric" if of else mode, sparse, chunk_size,
                                   selected.leaves)
        return _assemble(traced, selected, aux, values, main, with_value, moving)
    return jacobian_function


def _trace_rows(fun: Callable[..., Any], chunk_size: int | None, selected: Selected, avals: Sequence[Aval],
                args: tuple[Any, ...], kwargs: dict[str, Any]) -> TracedCall | None:
    """Return the trace of a call of `jacrev(fun)`: the program that is kept with that of the function.

    None where a recording is another program, as for `Differentiation.trace`.
    """
    if not keeps_derivatives(avals):
        return None
    traced, _ = trace_differentiated("jacrev", fun, False, args, kwargs, selected, avals)
    outputs = traced.program.out_avals
    _check_outputs("jacrev", fun, avals, outputs, False)
    main, moving = len(outputs), [True] * len(avals)
    derived = _jacobian_program(traced, main, main, "reverse", chunk_size, moving)
    blocks = [0] * len(derived.program.outputs)
    return traced.of_derived(derived, tree.structure(_assemble(traced, selected, None, blocks, main, False, moving)))


def _check_outputs(what: str, fun: Any, inputs: Sequence[Aval], outputs: Sequence[Aval], holomorphic: bool) -> None:
    name = function_name(fun)
    for aval in outputs:
        if not dtypes.is_inexact(aval.dtype):
            raise DTypeError(at_user_line(
                f"{what} needs floating-point outputs, and {name} returned {aval.strong()}, which has no derivative. "
                "Return it with has_aux=True"))
    complex_inputs = any(dtypes.is_complex(aval.dtype) for aval in inputs)
    complex_outputs = any(dtypes.is_complex(aval.dtype) for aval in outputs)
    # Real functions of complex arrays have gradients, which are the rows of reverse mode alone.
    if not holomorphic and ((complex_inputs and what != "jacrev") or (complex_outputs and what != "jacfwd")):
        raise DTypeError(at_user_line(
            f"{what} of complex arrays is defined for holomorphic functions; {name} has inputs {list(inputs)} and "
            f"outputs {list(outputs)}. Pass holomorphic=True if it is one, or take real and imaginary parts as "
            "separate arrays"))


def _jacobian_program(traced: TracedCall, main: int, first: int, mode: Mode, chunk_size: int | None,
                      moving: Sequence[bool]) -> Derived:
    """Return the program inputs -> (outputs from `first` on, Jacobian blocks by row).

    The blocks are those of the `main` first outputs: for each one per `moving` input.
    """
    program = traced.program
    inputs, outputs = select_marked(program.in_avals[program.captured:], moving), program.out_avals[:main]
    if mode == "auto":
        mode = "forward" if _total_size(inputs) <= _total_size(outputs) else "reverse"
    wrt = traced.wrt(moving)
    columns = mode == "forward"

    def build(*primals: Any) -> tuple[list[Any], None]:
        values, residuals, half = linearize_in_place(program, primals, wrt)

        passes = Passes(program, half, residuals, main)
        sources, targets = (inputs, outputs) if columns else (outputs, inputs)
        rows = None
        if chunk_size is None and _total_size(sources) != 1:
            rows = passes.push_identity() if columns else passes.pull_identity()
        if rows is None:
            stacked = _apply_in_chunks(passes.push if columns else passes.pull, sources, targets, chunk_size)
            rows = _blocks(stacked, inputs, outputs, columns)
        return [*values[first:], *_typed(rows, inputs, outputs, columns)], None

    return derive(program, ("jacobian", mode, main, first, chunk_size, *moving), build, program.in_avals)


def _total_size(avals: Sequence[Aval]) -> int:
    return sum(aval.size for aval in avals)


def _apply_in_chunks(apply: Callable[[Sequence[Any], int | None], list[Any]], sources: Sequence[Aval],
                     targets: Sequence[Aval], chunk_size: int | None) -> list[Any]:
    """Apply `apply` to the rows of the standard basis of `sources`, in chunks, and stack the results.

    `apply` takes the rows and their number; a single row comes without a batch axis, and with None.
    """
    count = _total_size(sources)
    if count == 0:
        return [zeros(Aval((0, *aval.shape), aval.dtype)) for aval in targets]
    if count == 1:
        rows = apply([full(aval.shape, 1, aval.dtype) for aval in sources], None)
        return [reshape(row, (1, *aval.shape)) for row, aval in zip(rows, targets, strict=True)]
    bounds = [(0, count)] if chunk_size is None else [
        (start, min(start + chunk_size, count)) for start in range(0, count, chunk_size)]
    parts = [apply(basis_of(sources, start, stop), stop - start) for start, stop in bounds]
    return parts[0] if len(parts) == 1 else [concatenate(pieces, 0) for pieces in zip(*parts, strict=True)]


def basis_of(avals: Sequence[Aval], start: int, stop: int) -> list[Any]:
    """Return rows `start` to `stop` of the identity matrix over all elements of `avals`, cut into their shapes."""
    offset, pieces = 0, []
    for aval in avals:
        rows = ones_on_diagonal((stop - start, aval.size), start - offset, aval.dtype)
        pieces.append(reshape(rows, (stop - start, *aval.shape)))
        offset += aval.size
    return pieces


def _blocks(stacked: Sequence[Any], inputs: Sequence[Aval], outputs: Sequence[Aval], columns: bool) -> list[list[Any]]:
    """Cut stacks (all elements of one side first) into blocks of shape output + input, in a row for each output."""
    rows = []
    for output_index, output in enumerate(outputs):
        row = []
        for input_index, aval in enumerate(inputs):
            if columns:
                block = slice_in_dim(stacked[output_index], *_element_range(inputs, input_index), 0)
                block = move_axis(block, 0, output.ndim)
            else:
                block = slice_in_dim(stacked[input_index], *_element_range(outputs, output_index), 0)
            row.append(reshape(block, (*output.shape, *aval.shape)))
        rows.append(row)
    return rows


def _typed(rows: Sequence[Sequence[Any]], inputs: Sequence[Aval], outputs: Sequence[Aval], columns: bool) -> list[Any]:
    """Return the blocks of all rows, weak where passes make weak ones."""
    found = []
    for output, row in zip(outputs, rows, strict=True):
        for aval, block in zip(inputs, row, strict=True):
            weak = output.weak if columns else (aval.weak and output.weak) or has_weak_cotangent(aval, [output])
            found.append(convert(block, aval_of(block).dtype, weak))
    return found


def _element_range(avals: Sequence[Aval], index: int) -> tuple[int, int]:
    start = _total_size(avals[:index])
    return start, start + avals[index].size


def _assemble(traced: TracedCall, selected: Selected, aux: Aux | None, values: list[Any], main: int, with_value: bool,
              moving: Sequence[bool]) -> Any:
    extra, width = len(traced.program.outputs) - main, len(selected.leaves)
    count = extra + main if with_value else extra
    values = without_literals(values)
    found, inputs = iter(values[count:]), traced.program.in_avals[traced.program.captured:]
    blocks = [next(found) if moves else np.zeros((*output.shape, *aval.shape), dtypes.float0)
              for output in traced.program.out_avals[:main] for aval, moves in zip(inputs, moving, strict=True)]
    rows = [selected.rebuild(blocks[index * width:(index + 1) * width]) for index in range(main)]
    matrix = tree.unflatten(traced.out_tree, rows)
    if not with_value:
        return matrix if aux is None else (matrix, aux.restore(values[:count]))
    value = tree.unflatten(traced.out_tree, values[:main])
    return (value, matrix) if aux is None else ((value, aux.restore(values[main:count])), matrix)
