"""Random vectors and matrices that need a decomposition: multivariate_normal orthogonal."""

from __future__ import annotations

from typing import Any

from fxgrad.engine.frontend.operands import as_new_shape, common_shape, inexact_operands, shape_of
from fxgrad.engine.frontend.placing import place_array
from fxgrad.engine.ops.arithmetic import add, mul
from fxgrad.engine.ops.exponential import sqrt
from fxgrad.engine.ops.parts import sign
from fxgrad.engine.ops.structural import reshape
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, ShapeError
from fxgrad.numpy import linalg
from fxgrad.numpy.products import matvec
from fxgrad.numpy.rearranging import diagonal
from fxgrad.numpy.shaping import matrix_transpose
from fxgrad.random.keys import float_dtype, one_key, positive_int
from fxgrad.random.normal import normal_draws


def multivariate_normal(key: Any, mean: Any, cov: Any, shape: Any = None, dtype: Any = None,
                        method: str = "cholesky", *, out_sharding: Any = None) -> Any:
    """Return normal vectors (the last axis) of a `mean` and a covariance matrix `cov`.

    `shape` is that of the draws without the last axis. `method` selects how the root of `cov` is computed: `"cholesky"`
    requires it to be positive definite, `"eigh"` and `"svd"` do not. Raises `ArgumentError` for an invalid key and for
    other methods, `ShapeError` if the shapes do not match.

    >>> import fxgrad, numpy as np
    >>> fxgrad.random.multivariate_normal(fxgrad.random.key(0), np.zeros(3), np.eye(3), (2,)).shape
    (2, 3)
    """
    if out_sharding is not None:
        return place_array("multivariate_normal", multivariate_normal(key, mean, cov, shape, dtype, method),
                           out_sharding)
    key = one_key("multivariate_normal", key)
    mean, cov = inexact_operands(mean, cov)
    chosen = float_dtype("multivariate_normal", aval_of(mean).dtype if dtype is None else dtype)
    size = shape_of(mean)[-1:]
    if not size or shape_of(cov)[-2:] != size * 2:
        raise ShapeError(at_user_line(f"multivariate_normal: a mean of shape {shape_of(mean)} and a covariance of "
                                      f"shape {shape_of(cov)}; (..., n) and (..., n, n) are needed"))
    rows = common_shape("multivariate_normal", shape_of(mean)[:-1], shape_of(cov)[:-2])
    if shape is not None:
        rows, own = as_new_shape("multivariate_normal", shape), rows
        if common_shape("multivariate_normal", rows, own) != rows:
            raise ShapeError(at_user_line(f"multivariate_normal: shape={rows} cannot hold draws for parameters of "
                                          f"shape {own}; give a shape that ends in theirs, or leave it out"))
    return add(mean, matvec(_root(cov, method), normal_draws(key, (*rows, *size), chosen)))


def _root(cov: Any, method: str) -> Any:
    """Return a matrix whose product with its transpose is `cov`."""
    if method == "cholesky":
        return linalg.cholesky(cov)
    if method == "eigh":
        values, vectors = linalg.eigh(cov)
    elif method == "svd":
        vectors, values, _ = linalg.svd(cov)
    else:
        raise ArgumentError(at_user_line("multivariate_normal: method must be 'cholesky', 'eigh' or 'svd', got "
                                         f"{method!r}"))
    shape = shape_of(values)
    return mul(vectors, sqrt(reshape(values, (*shape[:-1], 1, shape[-1]))))


def orthogonal(key: Any, n: int, shape: Any = (), dtype: Any = None, m: int | None = None,
               *, out_sharding: Any = None) -> Any:
    """Return orthogonal matrices of size `n` (n by m: of orthonormal columns or rows), all equally likely.

    Source: F. Mezzadri, "How to generate random matrices from the classical compact groups" (2007).

    >>> import fxgrad, numpy as np
    >>> matrix = fxgrad.random.orthogonal(fxgrad.random.key(0), 3)
    >>> bool(np.allclose(matrix @ matrix.T, np.eye(3), atol=1e-6))
    True
    """
    if out_sharding is not None:
        return place_array("orthogonal", orthogonal(key, n, shape, dtype, m), out_sharding)
    key, dtype, shape = one_key("orthogonal", key), float_dtype("orthogonal", dtype), as_new_shape("orthogonal", shape)
    rows = positive_int("orthogonal", "n", n)
    columns = rows if m is None else positive_int("orthogonal", "m", m)
    most, least = (rows, columns) if rows >= columns else (columns, rows)
    q, r = linalg.qr(normal_draws(key, (*shape, most, least), dtype))
    signs = sign(diagonal(r, 0, -2, -1))
    result = mul(q, reshape(signs, (*shape, 1, least)))
    return matrix_transpose(result) if rows < columns else result
