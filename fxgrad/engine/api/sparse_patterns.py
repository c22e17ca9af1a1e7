"""`Pattern`: the places of a matrix that may be other than zero, with the lines of code that made rows dense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fxgrad.engine.analyses.coloring import Compression, compress, compress_symmetric, transposed
from fxgrad.engine.analyses.index_sets import starts_of
from fxgrad.engine.analyses.sparsity_values import Blame

_SHOWN = 24
"""The most rows and columns that are printed one by one."""


class Pattern:
    """The places of a Jacobian or Hessian that may be other than zero: a superset of those that are.

    `shape` is (elements of the outputs, elements of the inputs), `starts` and `indices` are the columns of each row, as
    in SciPy's CSR format, and `dense_lines` says which operations made rows dense, each with its line if that is known:
    "sum at model.py:3". Patterns pickle: `sparse=pattern` needs no search in another process.

    >>> import numpy as np, fxgrad
    >>> fxgrad.sparsity(lambda x: x[1:] * x[:-1])(np.ones(4)).jacobian
    Pattern(3 x 4, 6 entries, 50.00 %)
    ● ● · ·
    · ● ● ·
    · · ● ●
    """

    __slots__ = ("_compressions", "dense_lines", "indices", "is_symmetric", "shape", "starts")

    def __init__(self, shape: tuple[int, int], starts: Any, indices: Any, dense_lines: Sequence[str] = (),
                 is_symmetric: bool = False) -> None:
        self.shape, self.starts, self.indices = shape, starts, indices
        self.dense_lines, self.is_symmetric = [*dense_lines], is_symmetric
        self._compressions: dict[str, Compression] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Pattern, (self.shape, self.starts, self.indices, self.dense_lines, self.is_symmetric)

    @property
    def nnz(self) -> int:
        """The number of entries."""
        return int(self.indices.size)

    @property
    def rows(self) -> Any:
        """The row of each entry, in the order of rows."""
        return np.repeat(np.arange(self.shape[0], dtype=np.int32), np.diff(self.starts))

    @property
    def columns(self) -> Any:
        """The column of each entry, in the order of rows."""
        return self.indices

    @property
    def density(self) -> float:
        """The share of places that are entries."""
        size = self.shape[0] * self.shape[1]
        return self.nnz / size if size else 0.0

    def compression(self, mode: str = "auto") -> Compression:
        """Return products that suffice for all entries; `mode` is "auto", "forward", "reverse" or "symmetric"."""
        found = self._compressions.get(mode)
        if found is None:
            found = self._compressions[mode] = compress_symmetric(self.starts, self.indices) if (
                mode == "symmetric") else compress(self.starts, self.indices, self.shape[1], mode)
        return found

    def equals(self, other: Pattern) -> bool:
        """Return whether two patterns have the same places."""
        return self is other or (self.shape == other.shape and np.array_equal(self.starts, other.starts)
                                 and np.array_equal(self.indices, other.indices))

    def transpose(self) -> Pattern:
        """Return the pattern of the transposed matrix."""
        starts, indices = transposed(self.starts, self.indices, self.shape[1])
        return Pattern((self.shape[1], self.shape[0]), starts, indices.astype(np.int32), self.dense_lines)

    def symmetric(self) -> Pattern:
        """Return the places that are entries on both sides of the diagonal: all, if the matrix is symmetric."""
        starts, indices = transposed(self.starts, self.indices, self.shape[1])
        if np.array_equal(starts, self.starts) and np.array_equal(indices, self.indices):
            starts, indices = self.starts, self.indices
        else:
            other = Pattern(self.shape, starts, indices)
            size = self.shape[1]
            both = np.intersect1d(self.rows.astype(np.int64) * size + self.indices,
                                  other.rows.astype(np.int64) * size + other.indices, assume_unique=True)
            rows, indices = np.divmod(both, size)
            starts = starts_of(np.bincount(rows, minlength=size))
            indices = indices.astype(np.int32)
        return Pattern(self.shape, starts, indices, self.dense_lines, is_symmetric=True)

    def to_scipy(self) -> Any:
        """Return the pattern as a `scipy.sparse.csr_array` of bools."""
        from scipy import sparse
        return sparse.csr_array((np.ones(self.nnz, bool), self.indices.copy(), self.starts.copy()), shape=self.shape)

    def to_bcoo(self) -> Any:
        """Return the pattern as a `jax.experimental.sparse.BCOO` of ones, in float32."""
        from fxgrad.engine.api.sparse_matrices import matrix_of
        indices = jnp.asarray(np.stack([self.rows, self.indices], 1))
        return matrix_of(jnp.ones(self.nnz, np.float32), indices, self.shape, is_sorted=True)

    def to_svg(self, size: int = 320) -> str:
        """Return a drawing as SVG, at most `size` pixels wide and high; notebooks show it."""
        height, width = self.shape
        cells = max(1, min(size // 2, max(height, width)))
        scale = max(height, width, 1) / cells
        seen = np.unique((self.rows / scale).astype(np.int64) * cells + (self.indices / scale).astype(np.int64))
        side = size / cells
        path = "".join(f"M{place % cells * side:.4g} {place // cells * side:.4g}h{side:.4g}v{side:.4g}h-{side:.4g}z"
                       for place in seen.tolist())
        wide, high = width / scale * side, height / scale * side
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:.4g}" height="{high:.4g}" '
                f'viewBox="0 0 {wide:.4g} {high:.4g}"><title>{self._title()}</title>'
                f'<rect width="100%" height="100%" fill="none" stroke="currentColor"/>'
                f'<path d="{path}" fill="currentColor"/></svg>')

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def _title(self) -> str:
        return f"{self.shape[0]} x {self.shape[1]}, {self.nnz} entries, {self.density:.2%}".replace("%", " %")

    def __repr__(self) -> str:
        height, width = self.shape
        text = f"Pattern({self._title()})"
        if not 0 < max(height, width) <= _SHOWN:
            return text
        table = np.full(self.shape, "·")
        table[self.rows, self.indices] = "●"
        return "\n".join([text, *map(" ".join, table)])


def pattern_of_matrix(matrix: Any) -> Pattern:
    """Return the pattern of a SciPy sparse array or an array of two axes: its stored, or its nonzero, entries."""
    from scipy import sparse
    found = sparse.csr_array(matrix)
    found.sum_duplicates()
    return Pattern(found.shape, found.indptr.astype(np.int64), found.indices.astype(np.int32))


def lines_of(blames: Sequence[Blame]) -> list[str]:
    """Return the operations that made rows dense, each once, with their lines."""
    return [*dict.fromkeys(f"{blame.primitive} at {blame.source.place}" if blame.source else str(blame.primitive)
                           for blame in blames)]
