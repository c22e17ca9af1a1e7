"""Kernel density estimation: the density of drawn points, by normal distributions around them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

from fxgrad import numpy as fnp
from fxgrad import random
from fxgrad.engine import tree
from fxgrad.engine.frontend.operands import inexact_operands, shape_of
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from fxgrad.scipy.linalg import cho_solve, solve_triangular
from fxgrad.scipy.special import logsumexp, ndtr
from fxgrad.scipy.stats.of_vectors import multivariate_normal

_normal: Any = multivariate_normal


class gaussian_kde:  # noqa: N801  (SciPy's name)
    """The mean of normal densities around the points `dataset`, of shape (dimensions, points) or (points,).

    Their covariance is that of the points, scaled by the square of a factor `bw_method`: `"scott"` (the default),
    n^(-1/(d+4)), or `"silverman"`, (n (d+2)/4)^(-1/(d+4)); a number; or a function of this object. `weights` are the
    weights of the points; n is then the effective number of points, (sum w)^2 / sum w^2. It is a container of arrays:
    transformations take and return it. Raises `ShapeError`, `DTypeError` and `ArgumentError`.

    D. W. Scott, "Multivariate density estimation" (1992); B. W. Silverman, "Density estimation" (1986).

    >>> import numpy as np
    >>> density = gaussian_kde(np.array([-1.0, 0.0, 1.0]))
    >>> round(float(density(np.array([0.0]))[0]), 4)
    0.3182
    >>> round(float(density.integrate_box_1d(-np.inf, 0.0)), 4)
    0.5
    """

    def __init__(self, dataset: Any, bw_method: str | Callable[[Any], Any] | Any = None, weights: Any = None) -> None:
        self.dataset = fnp.atleast_2d(inexact_operands(dataset)[0])
        if self.dataset.dtype.kind == "c":
            raise DTypeError(at_user_line("gaussian_kde: a density of complex numbers is not supported; stack their "
                                          "parts"))
        if len(shape_of(self.dataset)) != 2 or self.n < 2:
            raise ShapeError(at_user_line(f"gaussian_kde: a dataset of shape {shape_of(dataset)}; (points,) or "
                                          "(dimensions, points) of at least two points is needed"))
        given = fnp.ones(self.n, self.dataset.dtype) if weights is None else inexact_operands(weights)[0]
        if shape_of(given) != (self.n,):
            raise ShapeError(at_user_line(f"gaussian_kde: weights of shape {shape_of(given)} for {self.n} points; one "
                                          "for each is needed"))
        self.weights = (given / fnp.sum(given)).astype(self.dataset.dtype)
        factor = self._factor(bw_method)
        scatter = fnp.atleast_2d(fnp.cov(self.dataset, bias=False, aweights=self.weights))
        self.covariance = (scatter * fnp.square(factor)).astype(self.dataset.dtype)
        self.inv_cov = fnp.linalg.inv(self.covariance)

    def _factor(self, method: Any) -> Any:
        if method is None or method == "scott":
            return fnp.power(self.neff, -1.0 / (self.d + 4))
        if isinstance(method, str):
            if method != "silverman":
                raise ArgumentError(at_user_line(f"gaussian_kde: bw_method={method!r}; it is 'scott', 'silverman', a "
                                                 "number or a function"))
            return fnp.power(self.neff * (self.d + 2) / 4.0, -1.0 / (self.d + 4))
        return method(self) if callable(method) else method

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return int(shape_of(self.dataset)[0])

    @property
    def n(self) -> int:
        """The number of points."""
        return int(shape_of(self.dataset)[1])

    @property
    def neff(self) -> Any:
        """The effective number of points, fewer if weights differ."""
        return 1.0 / fnp.sum(fnp.square(self.weights))

    def evaluate(self, points: Any) -> Any:
        """Return the density at `points`, of shape (dimensions, places), or (places,) in one dimension."""
        return fnp.exp(self.logpdf(points))

    __call__ = pdf = evaluate

    def logpdf(self, x: Any) -> Any:
        """Return the logarithm of the density at the points `x`."""
        points = fnp.atleast_2d(inexact_operands(x)[0])
        shape = shape_of(points)
        if shape[0] != self.d and shape == (1, self.d):
            points = points.T  # one point
        if len(shape) != 2 or shape_of(points)[0] != self.d:
            raise ShapeError(at_user_line(f"gaussian_kde: points of shape {shape_of(x)} in {self.d} dimensions; "
                                          f"({self.d}, places) is needed"))
        root = fnp.linalg.cholesky(self.covariance)
        apart = solve_triangular(root, self.dataset, lower=True)[:, :, None] - solve_triangular(
            root, points.astype(self.dataset.dtype), lower=True)[:, None, :]
        energy = -0.5 * fnp.sum(fnp.square(apart), 0)
        scale = fnp.sum(fnp.log(fnp.diag(root))) + 0.5 * self.d * math.log(2 * math.pi)
        return logsumexp(energy, 0, b=self.weights[:, None]) - scale

    def integrate_gaussian(self, mean: Any, cov: Any) -> Any:
        """Return the integral of the density times a normal density, of a `mean` and a covariance `cov`."""
        mean, cov = fnp.atleast_1d(fnp.squeeze(fnp.asarray(mean))), fnp.atleast_2d(cov)
        if shape_of(mean) != (self.d,) or shape_of(cov) != (self.d, self.d):
            raise ShapeError(at_user_line(f"gaussian_kde.integrate_gaussian: a mean of shape {shape_of(mean)} and a "
                                          f"covariance of shape {shape_of(cov)} in {self.d} dimensions"))
        return fnp.sum(self.weights * _normal.pdf(self.dataset.T, mean, self.covariance + cov))

    def integrate_box_1d(self, low: Any, high: Any) -> Any:
        """Return the probability between `low` and `high`; in one dimension only."""
        if self.d != 1:
            raise ShapeError(at_user_line(f"gaussian_kde.integrate_box_1d: the density has {self.d} dimensions"))
        deviation = fnp.sqrt(self.covariance[0, 0])
        upper, lower = (ndtr((bound - self.dataset[0]) / deviation) for bound in (high, low))
        return fnp.sum(self.weights * (upper - lower))

    def integrate_kde(self, other: gaussian_kde) -> Any:
        """Return the integral of the product of this density and another one of as many dimensions."""
        if other.d != self.d:
            raise ShapeError(at_user_line(f"gaussian_kde.integrate_kde: densities of {self.d} and {other.d} "
                                          "dimensions"))
        root = fnp.linalg.cholesky(self.covariance + other.covariance)
        apart = self.dataset[:, :, None] - other.dataset[:, None, :]
        flat = apart.reshape(self.d, self.n * other.n)
        energy = fnp.sum(flat * cho_solve((root, True), flat), 0).reshape(self.n, other.n)
        scale = fnp.prod(fnp.diag(root)) * (2 * math.pi) ** (self.d / 2)
        return self.weights @ fnp.exp(-0.5 * energy) @ other.weights / scale

    def resample(self, key: Any, shape: tuple[int, ...] = ()) -> Any:
        """Return points drawn from the density, of shape (dimensions, *shape)."""
        of_index, of_noise = random.split(key)
        chosen = random.choice(of_index, self.n, shape, p=self.weights)
        zeros = fnp.zeros(self.d, self.dataset.dtype)
        noise = random.multivariate_normal(of_noise, zeros, self.covariance, shape, self.dataset.dtype)
        return self.dataset[:, chosen] + fnp.moveaxis(noise, -1, 0)

    def integrate_box(self, low_bounds: Any, high_bounds: Any, maxpts: Any = None) -> NoReturn:
        """Raise, as in jax: no formula is known in several dimensions."""
        del low_bounds, high_bounds, maxpts
        raise UnsupportedError(at_user_line("gaussian_kde.integrate_box is not supported; draw points with resample, "
                                            "or use integrate_box_1d"))

    def set_bandwidth(self, bw_method: Any = None) -> NoReturn:
        """Raise, as in jax: densities are immutable."""
        raise UnsupportedError(at_user_line("gaussian_kde.set_bandwidth is not supported: densities do not change. "
                                            f"Make another one with bw_method={bw_method!r}"))


_PARTS = ("dataset", "weights", "covariance", "inv_cov")


def _unflattened(_: Any, parts: Any) -> gaussian_kde:
    made = object.__new__(gaussian_kde)
    for name, part in zip(_PARTS, parts, strict=True):
        setattr(made, name, part)
    return made


tree.register_pytree_node(
    gaussian_kde, lambda density: (tuple(getattr(density, name) for name in _PARTS), None), _unflattened)
