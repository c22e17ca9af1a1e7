"""Linear systems with I - s J for the Jacobian J of a function: dense, or sparse in a narrow band or by SciPy.

Their unknowns are vectors of real numbers, which containers are packed in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine import dtypes, tree
from fxgrad.engine.api.callbacks import pure_callback
from fxgrad.engine.api.closures import closure_convert
from fxgrad.engine.api.jacobians import jacobian
from fxgrad.engine.api.residuals import stop_gradient
from fxgrad.engine.api.reverse import linear_transpose
from fxgrad.engine.api.types import ShapeDtypeStruct
from fxgrad.engine.caches import cached
from fxgrad.engine.frontend.operands import as_array_operand
from fxgrad.engine.ops.factorizations import lu
from fxgrad.engine.ops.triangular import lu_solve
from fxgrad.flatten_util import ravel_pytree
from fxgrad.lax import complex as complex_of
from fxgrad.lax.linalg import tridiagonal_solve
from fxgrad.lax.solves import custom_linear_solve

Solve = Callable[[Any], Any]

NARROW = 6
"""How many times the width of the band must fit into the matrix for the band to be faster than the dense matrix."""

LAPACK_WIDTH = 48
"""The width up to which LAPACK factors a band sooner than SuperLU the sparse matrix."""

SMALL = 64
"""The number of rows up to which a band is solved as a dense matrix: one operation, which is compiled faster too."""


def real_vector(y: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return a container as a vector of real numbers, and the inverse function."""
    leaves, structure = tree.flatten(y)
    leaves = [as_array_operand(leaf) for leaf in leaves]
    leaves = [leaf if dtypes.is_inexact(fnp.result_type(leaf)) else fnp.astype(leaf, dtypes.float64)
              for leaf in leaves]
    parts = [[fnp.real(leaf), fnp.imag(leaf)] if dtypes.is_complex(fnp.result_type(leaf)) else [leaf]
             for leaf in leaves]
    vector, back = ravel_pytree(parts)

    def unpack(vector: Any) -> Any:
        parts = back(vector)
        return tree.unflatten(structure, [part[0] if len(part) == 1 else complex_of(*part) for part in parts])
    return vector, unpack


def shifted_jacobian(function: Callable[[Any], Any], at: Any, scale: Any, sparse: Any, by_scipy: bool = False) -> Solve:
    """Return the function that solves (I - scale J) x = b, where J is the Jacobian of `function` at the vector `at`.

    With `sparse`, which is as in `fxgrad.jacobian`, J is computed from as few products as its pattern allows. With
    `by_scipy` the system is solved by the factors of LAPACK for narrow bands or SuperLU, which leaves compiled code,
    unless the matrix is tridiagonal or small. Else, if a reordering of the rows and columns makes a narrow band of the
    pattern, the system is solved within the band, without exchanges of rows between blocks of the band's width, and
    otherwise as a dense matrix. All is differentiable, to any order. With `sparse`, `at` must be traced.
    """
    size = at.shape[0]
    if not size:
        return lambda b: b
    if sparse is False:
        return _solve_dense(fnp.eye(size, dtype=at.dtype) - scale * jacobian(function)(at))
    matrix = jacobian(function, sparse=sparse)(at)
    entries, (rows, columns) = matrix.data, np.asarray(matrix.indices).T
    band = _find_band(rows, columns, size)
    if by_scipy and band.width > 1 and size > SMALL:
        return _solve_by_scipy(entries, rows, columns, size, scale)
    if NARROW * band.width > size:
        dense = _place(entries, rows * size + columns, (size, size))
        return _solve_dense(fnp.eye(size, dtype=at.dtype) - scale * dense)
    rows, columns = band.places[rows], band.places[columns]
    solve = _solve_tridiagonal if band.width <= 1 else _solve_blocks
    inner = solve(entries, rows, columns, size, scale, max(band.width, 1))
    return lambda b: inner(b[band.order])[band.places]


def _solve_dense(matrix: Any) -> Solve:
    """Return the solver with a dense matrix, which is factored once, for all derivatives too."""
    factors, _, permutation = lu(stop_gradient(matrix))
    return lambda b: lu_solve(matrix, factors, permutation, b[:, None])[:, 0]


class Band(NamedTuple):
    """An order of the rows and columns, the place of each in it, and the distance of entries from the diagonal."""

    order: Any
    places: Any
    width: int


def _find_band(rows: Any, columns: Any, size: int) -> Band:
    """Return the order with the narrower band: the given one, or that of Cuthill and McKee (1969), reversed."""
    from scipy import sparse
    from scipy.sparse.csgraph import reverse_cuthill_mckee
    pattern = sparse.csr_array((np.ones(len(rows), np.int8), (rows, columns)), shape=(size, size))
    bands = []
    for order in (np.arange(size), reverse_cuthill_mckee(sparse.csr_array(pattern + pattern.T), symmetric_mode=True)):
        places = np.empty(size, np.int64)
        places[order] = np.arange(size)
        width = int(np.abs(places[rows] - places[columns]).max(initial=0))
        bands.append(Band(order.astype(np.int64), places, width))
    return min(bands, key=lambda band: band.width)


def _place(entries: Any, at: Any, shape: tuple[int, ...]) -> Any:
    """Return an array of this shape with the entries at these places of the flat array, and zeros elsewhere."""
    sources = np.full(int(np.prod(shape)), len(at), np.int64)
    sources[at] = np.arange(len(at))
    return fnp.concatenate([entries, fnp.zeros(1, entries.dtype)])[sources].reshape(shape)


class _ScipySolver:
    """SciPy's direct solver for the matrices of one pattern, with the factors of those that were last solved with.

    Narrow bands are factored by LAPACK, in the order of `_find_band`, and other matrices by SuperLU. Where a matrix is
    singular, the solution is NaN, so that the step is refused.
    """

    def __init__(self, rows: Any, columns: Any, size: int) -> None:
        band = _find_band(rows, columns, size)
        self._size, self._band = size, band if band.width <= LAPACK_WIDTH else None
        # The diagonal comes twice, from the identity and the Jacobian: places of the matrix, and the entries' places.
        at = columns * size + rows
        if self._band is not None:
            below = 2 * band.width + band.places[rows] - band.places[columns]
            at = below * size + band.places[columns]
        self._places, self._sources = np.unique(at, return_inverse=True)
        self._factors: tuple[tuple[Any, bytes, Any], ...] = ()
        self.solve, self.solve_transposed = (functools.partial(self._solve, kind) for kind in "NT")

    def _solve(self, kind: str, entries: Any, b: Any) -> Any:
        content = entries.tobytes()
        # Comparing takes less time than a hash.
        factors = next((found for dtype, known, found in self._factors
                        if known == content and dtype == entries.dtype), None)
        if factors is None:
            factors = self._factor(entries)
            self._factors = (entries.dtype, content, factors), *self._factors[:1]
        return np.full_like(b, np.nan) if factors == "singular" else factors(b, kind)

    def _factor(self, entries: Any) -> Any:
        """Return the function (b, kind) -> x, or "singular"."""
        summed = np.zeros(self._places.size, entries.dtype)
        np.add.at(summed, self._sources, entries)
        return self._by_super_lu(summed) if self._band is None else self._by_lapack(summed, self._band)

    def _by_super_lu(self, entries: Any) -> Any:
        from scipy.sparse import csc_array
        from scipy.sparse.linalg import splu
        columns, rows = np.divmod(self._places, self._size)
        starts = np.searchsorted(columns, np.arange(self._size + 1))
        try:
            return splu(csc_array((entries, rows, starts), shape=(self._size, self._size))).solve
        except RuntimeError:
            return "singular"

    def _by_lapack(self, entries: Any, band: Band) -> Any:
        from scipy.linalg import get_lapack_funcs
        width, size = band.width, self._size
        diagonals = np.zeros((3 * width + 1) * size, entries.dtype)  # with `width` more, for exchanges of rows
        diagonals[self._places] = entries
        factor, solve = get_lapack_funcs(("gbtrf", "gbtrs"), (diagonals,))
        factors, pivots, info = factor(diagonals.reshape(-1, size), width, width)

        def solved(b: Any, kind: str) -> Any:
            found, _ = solve(factors, width, width, b[band.order][:, None], pivots, trans=int(kind == "T"))
            return found[band.places, 0]
        return "singular" if info > 0 else solved


@cached("sparse solvers", 32)
def _scipy_solver(rows: bytes, columns: bytes, size: int) -> _ScipySolver:
    return _ScipySolver(np.frombuffer(rows, np.int64), np.frombuffer(columns, np.int64), size)


def _solve_by_scipy(entries: Any, rows: Any, columns: Any, size: int, scale: Any) -> Solve:
    every = fnp.concatenate([-scale * entries, fnp.ones(size, entries.dtype)])
    rows, columns = (np.concatenate([places, np.arange(size)]).astype(np.int64) for places in (rows, columns))
    solver = _scipy_solver(rows.tobytes(), columns.tobytes(), size)
    known = stop_gradient(every)

    def by(method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda _, b: pure_callback(method, ShapeDtypeStruct(b.shape, b.dtype), known, b,
                                          vmap_method="sequential")

    def multiply(x: Any) -> Any:
        return fnp.zeros(size, x.dtype).at[rows].add(every * x[columns])

    recorded, captured = closure_convert(multiply, fnp.zeros(size, entries.dtype))  # once for all right-hand sides
    return lambda b: custom_linear_solve(lambda x: recorded(x, *captured), b, by(solver.solve),
                                         by(solver.solve_transposed))


def _solve_tridiagonal(entries: Any, rows: Any, columns: Any, size: int, scale: Any, _: int) -> Solve:
    diagonals = scale * _place(entries, (columns - rows + 1) * size + rows, (3, size))
    low, middle, high = -diagonals[0], 1.0 - diagonals[1], -diagonals[2]
    return lambda b: tridiagonal_solve(low, middle, high, b[:, None])[:, 0]


def _solve_blocks(entries: Any, rows: Any, columns: Any, size: int, scale: Any, width: int) -> Solve:
    """Return the solver with a matrix of square blocks of size `width`, on three diagonals of blocks."""
    count = -(-size // width)
    blocks = columns // width - rows // width + 1, rows // width, rows % width, columns % width
    shape = (3, count, width, width)
    low, middle, high = -scale * _place(entries, np.ravel_multi_index(blocks, shape), shape)
    middle = fnp.eye(width, dtype=entries.dtype) + middle
    factored = _reduce_cyclically(*(stop_gradient(each) for each in (low, middle, high)))

    def multiply(x: Any) -> Any:
        end = fnp.zeros((1, width, 1), x.dtype)
        return low @ fnp.concatenate([end, x[:-1]]) + middle @ x + high @ fnp.concatenate([x[1:], end])

    def solve_padded(b: Any) -> Any:
        padded = fnp.concatenate([b, fnp.zeros(count * width - size, b.dtype)]).reshape(count, width, 1)
        x = custom_linear_solve(multiply, padded, lambda _, b: factored(b),
                                lambda _, b: linear_transpose(factored, b)(b)[0])
        return x.reshape(count * width)[:size]
    return solve_padded


def _join_blocks(low: Any, middle: Any, high: Any) -> Any:
    """Return a block tridiagonal matrix as a dense one."""
    count, width, _ = middle.shape
    blocks = np.zeros((3, count, width, width), bool)
    blocks[0, 1:] = blocks[1] = blocks[2, :-1] = True
    side, row, inner_row, inner_column = np.nonzero(blocks)
    places = (row * width + inner_row) * count * width + (row + side - 1) * width + inner_column
    entries = fnp.concatenate([low[1:].ravel(), middle.ravel(), high[:-1].ravel()])
    return _place(entries, places, (count * width, count * width))


def _reduce_cyclically(low: Any, middle: Any, high: Any) -> Solve:
    """Return the solver with a block tridiagonal matrix, by eliminating every other block at once.

    Block cyclic reduction: Golub and Van Loan, Matrix Computations, 4.5.4. Each stage halves the number of blocks,
    until the rest is small.
    """
    count, width, _ = middle.shape
    if count == 1 or count * width <= SMALL:
        dense = _solve_dense(_join_blocks(low, middle, high))
        return lambda b: dense(b.reshape(count * width)).reshape(b.shape)
    if count % 2 == 0:  # the last block of an odd number has an even index
        zero, one = fnp.zeros((1, width, width), middle.dtype), fnp.eye(width, dtype=middle.dtype)[None]
        solve = _reduce_cyclically(*(fnp.concatenate([each, end]) for each, end in (
            (low, zero), (middle, one), (high, zero))))
        return lambda b: solve(fnp.concatenate([b, fnp.zeros((1, *b.shape[1:]), b.dtype)]))[:-1]
    inverse = fnp.linalg.inv(middle[::2])
    # Kept blocks, with odd indices, in terms of the eliminated ones before and after.
    before, after = low[1::2] @ inverse[:-1], high[1::2] @ inverse[1:]
    inner = _reduce_cyclically(-before @ low[:-1:2], middle[1::2] - before @ high[:-1:2] - after @ low[2::2],
                               -after @ high[2::2])

    def solve_reduced(b: Any) -> Any:
        eliminated = b[::2]
        kept = inner(b[1::2] - before @ eliminated[:-1] - after @ eliminated[1:])
        end = fnp.zeros((1, *kept.shape[1:]), kept.dtype)
        others = inverse @ (eliminated - low[::2] @ fnp.concatenate([end, kept])
                            - high[::2] @ fnp.concatenate([kept, end]))
        pairs = fnp.stack([others, fnp.concatenate([kept, end])], 1)
        return pairs.reshape(count + 1, *b.shape[1:])[:-1]
    return solve_reduced
