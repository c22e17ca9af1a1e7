"""Estimates of Laplacians, divergences and diagonals of Hessians from random directions, with their standard errors."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from fxgrad import numpy as fnp
from fxgrad import random
from fxgrad.engine import tree
from fxgrad.engine.api.argument_names import Argnames, by_names
from fxgrad.engine.api.arguments import (
    Argnums,
    check_chunk_size,
    leaf_avals,
    select_arguments,
    transformation,
)
from fxgrad.engine.api.batching import vmap
from fxgrad.engine.api.forward import jvp
from fxgrad.engine.api.reverse import gradient_for
from fxgrad.engine.api.laplacians import check_field, check_real
from fxgrad.engine.api.taylor import derivatives
from fxgrad.engine.user_lines import at_user_line, function_name
from fxgrad.errors import ArgumentError


class Estimate(NamedTuple):
    """A mean over random draws: `value`, and `error`, its standard error; containers of equal structure and shapes.

    The standard error is the deviation of the draws divided by the root of their number. The true value is within two
    of them about 19 times in 20, if there are a few dozen draws.
    """

    value: Any
    error: Any


def laplacian(fun: Callable[..., Any], samples: int, argnums: Argnums = 0, *, chunk_size: int | None = None,
              argnames: Argnames | None = None) -> Callable[..., Estimate]:
    """Return the function `(key, *args)` -> estimate of the Laplacian of `fun` from `samples` random directions.

    It is the mean of second derivatives along directions whose entries are 1 or -1 (Hutchinson, 1990): unbiased, and
    exact where the Hessian is diagonal; the variance of one draw is twice the sum of the squares of the other entries.
    The result is an `Estimate`, whose `value` and `error` are like the output of `fun`. `argnums` are positions among
    `args`, and `argnames` names, as for `fxgrad.laplacian`. `chunk_size` bounds how many directions are computed at
    once, and so the memory. Take it where `fxgrad.laplacian`, whose cost grows with the number of entries, is too
    expensive. Raises as it does, and `ArgumentError` for fewer than two samples.

    >>> import numpy as np, fxgrad
    >>> estimate = fxgrad.stochastic.laplacian(lambda x: np.sum(x ** 3), 8)(fxgrad.random.key(0), np.array([1.0, 2.0]))
    >>> float(estimate.value), float(estimate.error)  # the Hessian is diagonal
    (18.0, 0.0)
    """
    def draw(of_selected: Callable[..., Any], args: Any, direction: Any) -> Any:
        return derivatives(of_selected, 2)(args, direction=direction)[2]
    return _estimator("stochastic.laplacian", fun, samples, argnums, argnames, chunk_size, draw)


def hessian_diag(fun: Callable[..., Any], samples: int, argnums: Argnums = 0, *, chunk_size: int | None = None,
                 argnames: Argnames | None = None) -> Callable[..., Estimate]:
    """Return the function `(key, *args)` -> estimate of the diagonal of the Hessian from `samples` random directions.

    It is the mean of v * (H v), element by element, for directions v whose entries are 1 or -1 (Bekas, Kokiopoulou and
    Saad, 2007): unbiased, and exact where the Hessian is diagonal. The result is an `Estimate`, whose `value` and
    `error` are like the arguments at `argnums`. Otherwise as `fxgrad.stochastic.laplacian`; `fun` returns a scalar.

    >>> import numpy as np, fxgrad
    >>> key, x = fxgrad.random.key(0), np.array([1.0, 2.0])
    >>> fxgrad.stochastic.hessian_diag(lambda x: np.sum(x ** 3), 8)(key, x).value
    array([ 6., 12.])
    """
    def draw(of_selected: Callable[..., Any], args: Any, direction: Any) -> Any:
        gradient = gradient_for("stochastic.hessian_diag", of_selected, 0)
        _, moved = jvp(gradient, (args,), (direction,))
        return tree.map(lambda one, other: one * other, moved, direction)
    return _estimator("stochastic.hessian_diag", fun, samples, argnums, argnames, chunk_size, draw)


def divergence(fun: Callable[..., Any], samples: int, argnums: Argnums = 0, *, chunk_size: int | None = None,
               argnames: Argnames | None = None) -> Callable[..., Estimate]:
    """Return the function `(key, *args)` -> estimate of the divergence of a field from `samples` random directions.

    It is the mean of v · (J v) for directions v whose entries are 1 or -1 (Hutchinson, 1990; as in FFJORD, Grathwohl
    et al., 2019): unbiased, and exact where the Jacobian is diagonal. The result is an `Estimate` of two scalars.
    Otherwise as `fxgrad.stochastic.laplacian`; `fun` returns a container like its argument, as for
    `fxgrad.divergence`.

    >>> import numpy as np, fxgrad
    >>> key, x = fxgrad.random.key(0), np.array([1.0, 2.0])
    >>> float(fxgrad.stochastic.divergence(lambda x: x ** 2, 8)(key, x).value)
    6.0
    """
    def draw(of_selected: Callable[..., Any], args: Any, direction: Any) -> Any:
        _, moved = jvp(of_selected, (args,), (direction,))
        return sum(fnp.sum(one * other) for one, other in zip(tree.leaves(moved), tree.leaves(direction), strict=True))
    return _estimator("stochastic.divergence", fun, samples, argnums, argnames, chunk_size, draw,
                      is_field=True)


def _estimator(what: str, fun: Callable[..., Any], samples: int, argnums: Argnums, argnames: Argnames | None,
               chunk_size: int | None, draw: Callable[[Callable[..., Any], Any, Any], Any], is_field: bool = False,
               ) -> Callable[..., Estimate]:
    """Return the function that takes the mean and the standard error of `draw` over random signs."""
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 2:
        raise ArgumentError(at_user_line(
            f"{what} takes the number of random directions as an integer of at least 2, got {samples!r}. Write "
            f"fxgrad.{what}(f, 16)(key, x)"))
    check_chunk_size(what, chunk_size)
    transformation(what, fun)
    if argnames is not None:
        def with_key(key: Any) -> Callable[..., Any]:
            def transform(function: Callable[..., Any], numbers: Argnums) -> Callable[..., Any]:
                return functools.partial(_estimator(what, function, samples, numbers, None, chunk_size, draw, is_field),
                                         key)
            return by_names(what, transform, fun, argnames, argnums)
        with_key(None)  # it raises for names that the function does not have
        return lambda key, *args, **kwargs: with_key(key)(*args, **kwargs)

    def estimate(key: Any, *args: Any, **kwargs: Any) -> Estimate:
        selected = select_arguments(what, fun, argnums, args)
        avals = leaf_avals(what, selected)
        check_real(what, fun, selected, avals)

        def of_selected(moving: Any) -> Any:
            given = [*args]
            for position, value in zip(selected.positions, (moving,) if selected.single else moving, strict=True):
                given[position] = value
            output = fun(*given, **kwargs)
            if is_field:
                check_field(what, fun, selected, output)
            return output

        of_selected.__name__ = function_name(fun)  # in messages
        keys = random.split(key, max(len(avals), 1))
        signs = selected.rebuild([random.rademacher(keys[place], (samples, *aval.shape), aval.dtype)
                                  for place, aval in enumerate(avals)])
        values = selected.rebuild(selected.leaves)
        drawn = vmap(lambda direction: draw(of_selected, values, direction), chunk_size=chunk_size)(signs)
        return Estimate(tree.map(lambda values: fnp.mean(values, axis=0), drawn), tree.map(
            lambda values: fnp.std(values, axis=0, ddof=1) / math.sqrt(samples), drawn))
    return estimate
