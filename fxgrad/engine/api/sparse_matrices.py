"""The class of sparse matrices of arrays of jax, loaded with the first of them: jax's own takes long to import."""

from __future__ import annotations

import functools
from typing import Any

import jax
from jax.experimental.sparse import BCOO

from fxgrad.engine.api.batching import vmap
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.frontend.operands import apply
from fxgrad.engine.ops.indexing import Windows, as_scatter, scatter_p
from fxgrad.engine.ops.structural import zeros
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.engine.tracing.tracer import Tracer
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import UnsupportedError


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

    def toarray(self) -> Any:
        """Return the matrix, or the batch of them, as an array with zeros between the entries, which may be traced.

        The dtype is that of the entries. It is SciPy's name, and jax's is `todense`, so that code that takes the
        results of un-jitted functions takes these as well.

        >>> import numpy as np, fxgrad
        >>> slope = fxgrad.jacobian(lambda x: x[1:] * x[:-1], sparse=True)
        >>> fxgrad.jit(lambda x: slope(x).toarray())(np.arange(3.0))
        array([[1., 0., 0.],
               [0., 2., 1.]])
        """
        if aval_of(self.data).ndim > 1:
            return vmap(Matrix.toarray)(self)
        windows = as_scatter(Windows((), (0, 1), (0, 1)), "promise_in_bounds", ("unique",))
        return apply(scatter_p, zeros(Aval(self.shape, aval_of(self.data).dtype)), self.indices, self.data, **windows)

    todense = toarray


def _of_known_entries(name: str, example: str) -> Any:
    """Return jax's method, which refuses traced entries; `example` is what to write for them."""
    method = getattr(BCOO, name)

    @functools.wraps(method)
    def called(self: Matrix, *args: Any, **kwargs: Any) -> Any:
        values: tuple[Any, ...] = (self.data, *args)
        if any(type(value) is Tracer for value in values):
            raise UnsupportedError(at_user_line(
                "the operations of a sparse matrix are jax's, which cannot trace values that fxgrad traces. Wrap the "
                f"function that calls them: fxgrad.from_jax({example})"))
        return method(self, *args, **kwargs)
    return called


for _name, _example in (("transpose", "lambda m: m.T)(m"), ("sum", "lambda m: m.sum())(m"),
                        ("sort_indices", "lambda m: m.sort_indices())(m"),
                        ("__matmul__", "lambda m, x: m @ x)(m, x"), ("__rmatmul__", "lambda m, x: x @ m)(m, x")):
    setattr(Matrix, _name, _of_known_entries(_name, _example))


def matrix_of(data: Any, indices: Any, shape: tuple[int, int], is_sorted: bool) -> Matrix:
    """Return the matrix of distinct entries `data` at `indices`, pairs of a row and a column."""
    found: Matrix = Matrix.tree_unflatten((shape, is_sorted, True), (data, indices))
    return found
