"""Shared functions of linear algebra: checks, products and parts of stacked matrices, loops over LAPACK."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.caches import cached
from fxgrad.engine.core.avals import Aval, Shape
from fxgrad.engine.core.primitive import Primitive, Rule
from fxgrad.engine.dtypes import DType
from fxgrad.engine.ops.arithmetic import div, mul, sub
from fxgrad.engine.ops.comparison import eq, ge, le
from fxgrad.engine.ops.creation import iota
from fxgrad.engine.ops.indexing import Windows, gather
from fxgrad.engine.ops.parts import abs, conj
from fxgrad.engine.ops.pointwise import add, scalar_like
from fxgrad.engine.ops.products import dot_general
from fxgrad.engine.ops.reductions import reduce_max
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.shaping import slice
from fxgrad.engine.ops.structural import broadcast_to, convert, move_axis, reduce_sum, reshape, transpose
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import DTypeError, ShapeError

_DTYPES = ("float32", "float64", "complex64", "complex128")

# --- checks -------------------------------------------------------------------------------------------------------


def check_matrices(name: str, *avals: Aval, square: bool = False) -> None:
    """Raise unless these are (stacks of) matrices of a dtype that LAPACK has; with `square`, square ones."""
    for aval in avals:
        if aval.dtype.name not in _DTYPES:
            raise DTypeError(at_user_line(f"{name}: not defined for {aval.dtype.name}; it takes {', '.join(_DTYPES)}. "
                                          "Convert first, for example x.astype('float32')"))
        if aval.ndim < 2:
            raise ShapeError(at_user_line(f"{name}: an array of shape {aval.shape}; a matrix, or a stack of matrices "
                                          "(two axes or more), is needed. Write x[:, None] for a column"))
        if square and aval.shape[-1] != aval.shape[-2]:
            raise ShapeError(at_user_line(f"{name}: matrices of {aval.shape[-2]} rows and {aval.shape[-1]} columns "
                                          f"(shape {aval.shape}); square ones are needed"))


def real_of(aval: Aval, shape: Shape) -> Aval:
    """Return `aval` with the real dtype of its precision and another shape."""
    return Aval(shape, dtypes.real_dtype(aval.dtype), aval.weak)


def complex_of(aval: Aval, shape: Shape) -> Aval:
    """Return `aval` with the complex dtype of its precision and another shape."""
    return Aval(shape, dtypes.complex_dtype(aval.dtype), aval.weak)


# --- parts and products of matrices, in operations ----------------------------------------------------------------


def shape_of(x: Any) -> Shape:
    """Return the shape of an operand of any kind."""
    return aval_of(x).shape


def has_complex_dtype(x: Any) -> bool:
    """Return whether `x` has a complex dtype."""
    return dtypes.is_complex(aval_of(x).dtype)


def transpose_matrices(x: Any) -> Any:
    """Return the transposes of the matrices, without conjugation."""
    rank = len(shape_of(x))
    return transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def conj_if_complex(x: Any) -> Any:
    """Return `conj(x)`; `x` itself if it is real."""
    return conj(x) if has_complex_dtype(x) else x


def adjoint(x: Any) -> Any:
    """Return the conjugate transposes of the matrices."""
    return conj_if_complex(transpose_matrices(x))


def matmul(x: Any, y: Any) -> Any:
    """Return the products of matrices with equal leading axes, in the full precision of their dtype."""
    rank = len(shape_of(x))
    batch = tuple(range(rank - 2))
    return dot_general(x, y, (((rank - 1,), (rank - 2,)), (batch, batch)), "highest")


def rows(x: Any, start: int, limit: int) -> Any:
    """Return the rows of the matrices from `start` up to `limit`."""
    shape = shape_of(x)
    return x if (start, limit) == (0, shape[-2]) else slice(
        x, (*(0,) * (len(shape) - 2), start, 0), (*shape[:-2], limit, shape[-1]))


def columns(x: Any, start: int, limit: int) -> Any:
    """Return the columns of the matrices from `start` up to `limit`."""
    shape = shape_of(x)
    return x if (start, limit) == (0, shape[-1]) else slice(
        x, (*(0,) * (len(shape) - 1), start), (*shape[:-1], limit))


def _lower_mask(shape: Shape, k: int) -> Any:
    row, column = iota(dtypes.int32, shape[-2:], 0), iota(dtypes.int32, shape[-2:], 1)
    return broadcast_to(ge(sub(row, column), -k), shape)


def tril(x: Any, k: int = 0) -> Any:
    """Return the matrices with zeros above the `k`-th diagonal."""
    return where(_lower_mask(shape_of(x), k), x, 0.0)


def triu(x: Any, k: int = 0) -> Any:
    """Return the matrices with zeros below the `k`-th diagonal."""
    return where(_lower_mask(shape_of(x), k - 1), 0.0, x)


def lower_or_upper(lower: Any, upper: Any, k: int = 0) -> Any:
    """Return matrices with the elements of `lower` up to the `k`-th diagonal and of `upper` above."""
    return where(_lower_mask(shape_of(lower), k), lower, upper)


def eye(rows: int, columns: int, dtype: DType) -> Any:
    """One matrix with ones on its diagonal."""
    shape = rows, columns
    return convert(eq(iota(dtypes.int32, shape, 0), iota(dtypes.int32, shape, 1)), dtype)


def eye_like(x: Any) -> Any:
    """Return identity matrices of the shape and dtype of `x` (with its leading axes)."""
    shape = shape_of(x)
    return broadcast_to(eye(shape[-2], shape[-1], aval_of(x).dtype), shape)


def on_diagonal(x: Any) -> Any:
    """Return a mask of the diagonal of matrices of the shape of `x`."""
    shape = shape_of(x)
    return broadcast_to(eq(iota(dtypes.int32, shape[-2:], 0), iota(dtypes.int32, shape[-2:], 1)), shape)


def diagonal(x: Any) -> Any:
    """Return the diagonals of the matrices."""
    shape = shape_of(x)
    size = min(shape[-2:])
    square = rows(columns(x, 0, size), 0, size)
    return reduce_sum(where(on_diagonal(square), square, 0.0), (len(shape) - 1,))


def as_row(x: Any) -> Any:
    """Return vectors as matrices of one row, to multiply columns."""
    shape = shape_of(x)
    return reshape(x, (*shape[:-1], 1, shape[-1]))


def as_column(x: Any) -> Any:
    """Return vectors as matrices of one column, to multiply rows."""
    return reshape(x, (*shape_of(x), 1))


def hermitian(x: Any, lower: bool = True) -> Any:
    """Return the Hermitian matrices with the lower (or upper) triangles of `x`; diagonals lose their imaginary part."""
    other = adjoint(x)
    full = lower_or_upper(x, other) if lower else lower_or_upper(other, x, -1)
    return mul(add(full, adjoint(full)), 0.5) if has_complex_dtype(x) else full


def cast_real_like(real: Any, x: Any) -> Any:
    """Return real numbers in the dtype of `x`, which may be complex."""
    return convert(real, aval_of(x).dtype)


def permute_rows(x: Any, permutation: Any) -> Any:
    """Return the rows of the matrices in the order that the integer vectors `permutation` give."""
    shape = shape_of(x)
    rank = len(shape) - 2
    batch = tuple(range(rank))
    windows = Windows(offset_dims=(rank + 1,), collapsed_slice_dims=(rank,), start_index_map=(rank,),
                      operand_batching_dims=batch, start_indices_batching_dims=batch)
    return gather(x, as_column(permutation), windows, (*(1,) * (rank + 1), shape[-1]), mode="promise_in_bounds",
                  promises=("unique",))


def coincide(values: Any, gaps: Any) -> Any:
    """Return whether `gaps` between the numbers in each row of `values` are nothing but rounding of the largest one."""
    shape, rank = shape_of(values), len(shape_of(gaps))
    if not shape[-1]:
        return eq(gaps, 0.0)
    rounding = shape[-1] * float(np.finfo(aval_of(values).dtype).eps)
    bound = mul(reduce_max(abs(values), (len(shape) - 1,)), rounding)
    return le(abs(gaps), reshape(bound, (*shape[:-1], *(1,) * (rank - len(shape) + 1))))


def safe_reciprocal(x: Any, zero: Any) -> Any:
    """Return 1 / x, and 0 where `zero` holds, with derivatives that are finite there too."""
    return where(zero, 0.0, div(scalar_like(1, x), where(zero, 1.0, x)))


# --- rules and kernels --------------------------------------------------------------------------------------------


def stack_rule(primitive: Callable[[], Primitive]) -> Rule:
    """Return the batch rule of an operation on stacks: the batch axis becomes one more axis in front."""
    def batch(size: int, values: list[Any], axes: list[int | None], **params: Any) -> tuple[list[Any], list[int]]:
        outputs = bind(primitive(), *batch_first(size, values, axes), **params)
        return outputs, [0] * len(outputs)
    return batch


def batch_first(size: int, values: Sequence[Any], axes: Sequence[int | None]) -> list[Any]:
    """Return the values with the batch axis in front; unbatched ones are repeated."""
    return [broadcast_to(value, (size, *shape_of(value))) if axis is None else move_axis(value, axis, 0)
            for value, axis in zip(values, axes, strict=True)]


@cached("routines of LAPACK", 256)
def lapack(dtype: DType, *names: str) -> list[Callable[..., Any]]:
    """Return routines of LAPACK for `dtype`.

    They are SciPy's, which jax requires: NumPy has none of them, a call takes a microsecond, and dispatching the XLA
    kernel would take fifty. SciPy is imported at the first use, since that takes a while.
    """
    from scipy.linalg import get_lapack_funcs

    return list(get_lapack_funcs(names, dtype=dtype))


@cached("routines of BLAS", 256)
def blas(dtype: DType, name: str) -> Callable[..., Any]:
    """Return a routine of BLAS for `dtype`; see `lapack`."""
    from scipy.linalg import get_blas_funcs

    routine: Callable[..., Any] = get_blas_funcs(name, dtype=dtype)
    return routine


def each_matrix(kernel: Callable[..., Sequence[Any]], stack: Shape, outputs: Sequence[Aval],
                *arrays: Any) -> list[Any]:
    """Apply `kernel`, of one matrix each, to all in stacks of the shape `stack`; `outputs` are their types."""
    if not stack:
        return list(kernel(*arrays))
    results = [np.empty(aval.shape, aval.dtype) for aval in outputs]
    for index in np.ndindex(stack):
        for result, value in zip(results, kernel(*(array[index] for array in arrays)), strict=True):
            result[index] = value
    return results


def or_unknown(kernel: Callable[[Any], Sequence[Any]], outputs: Callable[[Aval], Sequence[Aval]], a: Any) -> list[Any]:
    """Apply `kernel` to stacks of matrices; as in compiled code, NaN for matrices where it does not converge.

    NumPy raises `LinAlgError` for the whole stack then. `outputs` gives the types of the results.
    """
    try:
        return list(kernel(a))
    except np.linalg.LinAlgError:
        types = outputs(Aval(a.shape, a.dtype))
        if a.ndim > 2:
            return each_matrix(lambda each: or_unknown(kernel, outputs, each), a.shape[:-2], types, a)
        return [*map(unknown, types)]


def unknown(output: Aval) -> Any:
    """Return an array of NaN; both parts of complex numbers are."""
    nan = complex(np.nan, np.nan) if output.dtype.kind == "c" else np.nan
    return np.full(output.shape, nan, output.dtype)


def failure(name: str, message: str) -> np.linalg.LinAlgError:
    """Return the error for matrices without such a decomposition, with the user's line."""
    return np.linalg.LinAlgError(at_user_line(f"{name}: {message} (Under jit the result would be NaN, without an "
                                              "error)"))

