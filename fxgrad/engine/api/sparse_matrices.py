"""The class of sparse matrices of arrays of jax, loaded with the first of them: jax's own takes long to import."""

from __future__ import annotations

from typing import Any

import jax
from jax.experimental.sparse import BCOO


@jax.tree_util.register_pytree_node_class
class Matrix(BCOO):
    """A `BCOO` whose entries may be traced; a batch of them, as `vmap` returns it, has batch axes in front."""

    def tree_flatten(self) -> Any:
        """Return the entries and their places, and the shape of one matrix."""
        return (self.data, self.indices), (self.shape[-2:], self.indices_sorted, self.unique_indices)

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Any) -> Any:
        """Return the matrix of these leaves, which may be anything."""
        self = object.__new__(cls)  # the constructor takes arrays of jax alone
        self.data, self.indices = children
        shape, self.indices_sorted, self.unique_indices = aux_data
        self.shape = (*getattr(self.data, "shape", ())[:-1], *shape)
        return self


def matrix_of(data: Any, indices: Any, shape: tuple[int, int], is_sorted: bool) -> Matrix:
    """Return the matrix of distinct entries `data` at `indices`, pairs of a row and a column."""
    found: Matrix = Matrix.tree_unflatten((shape, is_sorted, True), (data, indices))
    return found
