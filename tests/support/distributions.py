"""The functions of all distributions, jax's beside fxgrad's, and arguments to call them with."""

from __future__ import annotations

from typing import Any

import jax.scipy.stats
import numpy as np

from fxgrad.scipy import stats

REALS = np.array([-2.3, -0.4, 0.0, 0.3, 0.8, 1.7, 4.2])
UNITS = np.array([0.03, 0.2, 0.5, 0.77, 0.98])
COUNTS = np.array([-1.0, 0.0, 1.0, 2.0, 5.0, 9.0])
SHAPES: dict[str, tuple[float, ...]] = {
    "norm": (), "cauchy": (), "expon": (), "gumbel_l": (), "gumbel_r": (), "laplace": (), "logistic": (),
    "uniform": (), "gamma": (2.5,), "chi2": (3.5,), "beta": (1.5, 2.5), "gennorm": (1.7,), "pareto": (2.2,),
    "t": (4.5,), "truncnorm": (-0.7, 1.9), "vonmises": (1.3,), "wrapcauchy": (0.4,), "bernoulli": (0.3,),
    "binom": (6.0, 0.3), "betabinom": (6.0, 1.5, 2.5), "nbinom": (4.0, 0.6), "geom": (0.3,), "poisson": (2.4,)}
WITHOUT_LOC = {"gennorm", "vonmises", "wrapcauchy"}
WITHOUT_DERIVATIVE = {("poisson", "cdf"), ("bernoulli", "ppf"), ("bernoulli", "cdf")}
FUNCTIONS = [(name, function) for name in SHAPES for function in dir(getattr(jax.scipy.stats, name))
             if not function.startswith("_") and callable(getattr(getattr(jax.scipy.stats, name), function))
             and (name, function) != ("poisson", "entropy")]
SCIPYS = [(name, function) for name in SHAPES for function in getattr(stats, name).functions
          if not hasattr(getattr(jax.scipy.stats, name), function)]
"""The functions that jax lacks."""


def pair(name: str, function: str) -> tuple[Any, Any]:
    return getattr(getattr(stats, name), function), getattr(getattr(jax.scipy.stats, name), function)


def points(name: str, function: str) -> np.ndarray:
    if function in ("ppf", "isf"):
        return UNITS
    discrete = hasattr(getattr(stats, name), "pmf")
    return COUNTS if discrete else UNITS if name == "beta" else REALS


def parameters(name: str, function: str) -> list[float]:
    rest = [] if name in WITHOUT_LOC or (name, function) in (("bernoulli", "cdf"), ("bernoulli", "ppf")) else (
        [0.0] if hasattr(getattr(stats, name), "pmf") else [0.1, 1.3])
    return [*SHAPES[name], *rest]
