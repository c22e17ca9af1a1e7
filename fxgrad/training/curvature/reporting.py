"""`report`: the largest eigenvalues of a Hessian, and its trace by parameter, with the Gauss-Newton part."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from fxgrad import dtypes, grad, linear_transpose, linearize, tree
from fxgrad.errors import ArgumentError, DTypeError
from fxgrad.extend import Tracer, at_user_line, aval_of, function_name, hide_frames, parameter_names, transformation
from fxgrad.text.tables import Report, add_row, new_table

__all__ = ["CurvatureReport", "Trace", "TraceByParameter", "report"]

Product = Callable[[Any], Any]


class Trace(NamedTuple):
    """An estimate of a trace, and its standard error, 0 if it is exact."""

    value: float
    error: float = 0.0

    def __str__(self) -> str:
        return f"{self.value:.4g}" + (f" ± {self.error:.2g}" if self.error else "")


class TraceByParameter(NamedTuple):
    """The trace of the diagonal block of a parameter: of the Hessian, of the Gauss-Newton matrix, of the rest.

    The last two are None without a loss of outputs.
    """

    name: str
    size: int
    hessian: Trace
    gauss_newton: Trace | None
    rest: Trace | None


class CurvatureReport(Report):
    """Eigenvalues and traces of a Hessian; it prints as a table.

    `largest` has the largest eigenvalues, first one first, `smallest` is the smallest. `parameters` has the traces by
    parameter, `total` those of all.
    """

    def __init__(self, name: str, largest: tuple[float, ...], smallest: float,
                 parameters: tuple[TraceByParameter, ...], total: TraceByParameter) -> None:
        self.name, self.largest, self.smallest = name, largest, smallest
        self.parameters, self.total = parameters, total

    def table(self) -> Table:
        """Return the table of traces for rich."""
        heads = ["trace"] if self.total.rest is None else ["trace", "Gauss-Newton part", "rest"]
        made = new_table(f"curvature of {self.name}", {
            "parameter": "left", "size": "right", **dict.fromkeys(heads, "right")})
        for entry in (*self.parameters, self.total):
            traces = (entry.hessian, entry.gauss_newton, entry.rest)
            add_row(made, [entry.name, f"{entry.size:,}", *(str(trace) for trace in traces if trace is not None)])
        return made

    def content(self) -> Table | Group | str:
        """Return the table, with the eigenvalues below it."""
        largest = ", ".join(f"{value:.4g}" for value in self.largest)
        return Group(self.table(), Text(f"largest eigenvalues: {largest}; smallest: {self.smallest:.4g}"))

    def __repr__(self) -> str:
        return f"<curvature of {self.name}: trace {self.total.hessian}, largest eigenvalue {self.largest[0]:.4g}>"


def report(model: Callable[..., Any], loss: Callable[..., Any] | None = None, *, eigenvalues: int = 3,
           samples: int = 100, seed: int = 0) -> Callable[..., CurvatureReport]:
    """Return the function `(params, *args) -> CurvatureReport` of the Hessian of `loss(model(params, *args))`.

    `params` is a container of real floating-point arrays. Without `loss`, `model` returns a scalar, and the report has
    no Gauss-Newton part. It has the `eigenvalues` largest eigenvalues and the smallest one, and for each parameter the
    trace of its diagonal block of the Hessian, of the Gauss-Newton matrix (see `gauss_newton_product`), and of their
    difference, which is small where the model is close to linear or the residuals are small.

    Nothing but products with vectors is computed: eigenvalues by Lanczos' method (SciPy's `eigsh`), traces by
    Hutchinson's, with `samples` random signs (drawn from `seed`) and the standard error. With at most as many entries
    of parameters as samples, all are exact. It takes arrays with values, and runs un-jitted; jit `model` for speed.

    Raises `ArgumentError` for fewer than 1 eigenvalue or 2 samples, without parameters, for traced arrays, or if there
    is no scalar; `DTypeError` for complex or integer parameters.

    >>> import numpy as np, fxgrad
    >>> x, y = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([0.0, 1.0])
    >>> found = fxgrad.curvature.report(lambda w, x: x @ w, lambda outputs: np.sum((outputs - y) ** 2))(np.ones(2), x)
    >>> found.largest, found.smallest, found.total.hessian.value, found.total.rest.value
    ((8.0, 2.0), 2.0, 10.0, 0.0)
    """
    for name, value, least in (("eigenvalues", eigenvalues, 1), ("samples", samples, 2)):
        if value < least:
            raise ArgumentError(at_user_line(f"report: {name} must be at least {least}, got {value}"))

    @transformation("report", model)
    @hide_frames
    def reported(params: Any, *args: Any) -> CurvatureReport:
        if any(type(leaf) is Tracer for leaf in tree.leaves((params, args))):
            raise ArgumentError(at_user_line(
                "report takes arrays with values, and got traced ones. Call it outside of jit, vmap and grad"))
        names = tree.leaf_names(params, parameter_names(model, 1)[0])
        for name, leaf in zip(names, tree.leaves(params), strict=True):
            if not dtypes.is_floating(aval_of(leaf).dtype):
                raise DTypeError(at_user_line(
                    f"report: {name} is {aval_of(leaf).strong()}, where real floating-point arrays are needed"))
        vectors = _Vectors(params)
        if not vectors.size:
            raise ArgumentError(at_user_line("report: the parameters have no entries, so there is no curvature"))
        products = [_flat(vectors, product) for product in _products(model, loss, params, args)]
        if vectors.size <= samples:
            columns = [np.stack([product(row) for row in np.eye(vectors.size)]) for product in products]
            spectrum = np.linalg.eigvalsh((columns[0] + columns[0].T) / 2)
            sums = [[vectors.sums(np.diagonal(matrix)) for matrix in columns]]
            entries = _traces(names, vectors, sums, exact=True)
            largest, smallest = spectrum[::-1][:eigenvalues], spectrum[0]
        else:
            draws = np.random.default_rng(seed)
            signs = (draws.choice([-1.0, 1.0], vectors.size) for _ in range(samples))
            entries = _traces(names, vectors, [[vectors.sums(sign * product(sign)) for product in products]
                                               for sign in signs])
            largest, smallest = _extremes(products[0], vectors.size, min(eigenvalues, vectors.size - 1), draws)
        return CurvatureReport(function_name(model), tuple(float(value) for value in largest), float(smallest),
                               tuple(entries[:-1]), entries[-1])
    return reported


class _Vectors:
    """Containers like the parameters as vectors of float64, and back."""

    def __init__(self, params: Any) -> None:
        self._leaves, self._structure = tree.flatten(params)
        self.sizes = [int(np.prod(aval_of(leaf).shape)) for leaf in self._leaves]
        self.size = sum(self.sizes)

    def container(self, vector: np.ndarray) -> Any:
        parts = np.split(vector, np.cumsum(self.sizes)[:-1])
        return tree.unflatten(self._structure, [
            part.reshape(aval_of(leaf).shape).astype(aval_of(leaf).dtype)
            for part, leaf in zip(parts, self._leaves, strict=True)])

    def vector(self, container: Any) -> np.ndarray:
        return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in tree.leaves(container)])

    def sums(self, vector: np.ndarray) -> np.ndarray:
        """Return the sums of a vector by parameter, and the sum of all."""
        parts = [float(np.sum(part)) for part in np.split(vector, np.cumsum(self.sizes)[:-1])]
        return np.array([*parts, sum(parts)])


def _flat(vectors: _Vectors, product: Product) -> Callable[[np.ndarray], np.ndarray]:
    return lambda vector: vectors.vector(product(vectors.container(np.ravel(vector))))


def _products(model: Callable[..., Any], loss: Callable[..., Any] | None, params: Any, args: Any) -> list[Product]:
    """Return the product with the Hessian, and with a loss that with the Gauss-Newton matrix."""
    def objective(params: Any) -> Any:
        outputs = model(params, *args)
        return outputs if loss is None else loss(outputs)

    objective.__name__ = function_name(model)
    _, hessian = linearize(grad(objective), params)
    if loss is None:
        return [hessian]
    outputs, forward = linearize(lambda params: model(params, *args), params)
    _, middle = linearize(grad(loss), outputs)
    back = linear_transpose(forward, params)
    return [hessian, lambda vector: back(middle(forward(vector)))[0]]


def _traces(names: list[str], vectors: _Vectors, sums: Any, exact: bool = False) -> list[TraceByParameter]:
    """Return the traces by parameter and those of all, from `sums` (samples, products, parameters and total)."""
    table = np.asarray(sums)
    if table.shape[1] == 2:  # the difference has an error of its own, since the samples are the same
        table = np.concatenate([table, table[:, :1] - table[:, 1:]], axis=1)
    means = table.mean(axis=0)
    errors = np.zeros_like(means) if exact else table.std(axis=0, ddof=1) / sqrt(len(table))
    entries = []
    for place, (name, size) in enumerate(zip([*names, "all"], [*vectors.sizes, vectors.size], strict=True)):
        traces: list[Any] = [Trace(float(mean), float(error))
                             for mean, error in zip(means[:, place], errors[:, place], strict=True)]
        entries.append(TraceByParameter(name, size, *(traces if len(traces) == 3 else (*traces, None, None))))
    return entries


def _extremes(product: Callable[[np.ndarray], np.ndarray], size: int, count: int, draws: np.random.Generator,
              ) -> tuple[np.ndarray, float]:
    """Return the largest eigenvalues, first one first, and the smallest."""
    from scipy.sparse.linalg import LinearOperator, eigsh
    operator = LinearOperator((size, size), product, dtype=np.float64)
    first = draws.normal(size=size)
    largest = eigsh(operator, count, which="LA", v0=first, tol=1e-4, return_eigenvectors=False)
    smallest = eigsh(operator, 1, which="SA", v0=first, tol=1e-4, return_eigenvectors=False)
    return np.sort(largest)[::-1], float(smallest[0])
