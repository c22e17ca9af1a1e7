"""Distributions: named functions of a point and of parameters, derived from formulas of the standard form."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fxgrad import numpy as fnp
from fxgrad.engine.frontend.operands import inexact_operands
from fxgrad.engine.frontend.value_calls import replay_on_values
from fxgrad.engine.pickling import import_object
from fxgrad.engine.user_lines import at_user_line

Formula = Callable[..., Any]


class Distribution:
    """Functions such as `logpdf(x, *shapes, loc=0, scale=1)`, as attributes; they differ between distributions.

    >>> import fxgrad
    >>> float(fxgrad.scipy.stats.norm.cdf(0.0))
    0.5
    """

    def __init__(self, name: str, functions: dict[str, Callable[..., Any]]) -> None:
        self.__name__ = name
        for each, function in functions.items():
            setattr(self, each, function)

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the functions."""
        return tuple(name for name, value in vars(self).items() if callable(value))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        has = f"fxgrad.scipy.stats.{self.__name__} has no {name}; it has {', '.join(self.functions)}"
        if name == "rvs":
            has += f". Draw samples with a key: fxgrad.random.{self.__name__}(fxgrad.random.key(0), ...)" if (
                hasattr(sys.modules["fxgrad"].random, self.__name__)) else ". fxgrad.random draws samples with a key"
        raise AttributeError(at_user_line(has), name=name, obj=self)

    def __reduce__(self) -> Any:
        return import_object, ("fxgrad.scipy.stats", self.__name__)

    def __repr__(self) -> str:
        return f"<distribution {self.__name__}: {', '.join(self.functions)}>"


def add_function(distribution: Distribution, name: str, function: Callable[..., Any]) -> None:
    """Give a distribution one more function. (A method would be one of its functions for all who list these.)"""
    setattr(distribution, name, function)


def continuous(name: str, shapes: str, density: Formula, inside: Formula | None = None, anchor: Any = 0.0,
               **formulas: Formula) -> Distribution:
    """Return the distribution of `loc + scale * z`; `density(z, *shapes)` is the logarithm of the density of z.

    The support is where `inside(z, *shapes)` is true (None: everywhere). `anchor` is a point in it, or a formula for
    one, which replaces points outside, so that these have no derivative. `formulas` are those of the other functions of
    z: `cdf`, `sf`, their logarithms, and `ppf` and `isf` of a probability.
    """
    names = [*shapes.split(), "loc", "scale"]

    def logpdf(z: Any, loc_and_scale: Sequence[Any], *values: Any) -> Any:
        if inside is None:
            return fnp.subtract(density(z, *values), fnp.log(loc_and_scale[1]))
        within = inside(z, *values)
        point = fnp.where(within, z, anchor(*values) if callable(anchor) else anchor)
        return fnp.where(within, fnp.subtract(density(point, *values), fnp.log(loc_and_scale[1])), _outside(z, *values))

    def standard(formula: Formula) -> Formula:
        return lambda z, _, *values: formula(z, *values)

    made: dict[str, Formula] = {"logpdf": logpdf, "pdf": lambda *given: fnp.exp(logpdf(*given)),
                                **{each: standard(formula) for each, formula in _probabilities(formulas).items()}}
    functions = {each: _point_function(f"{name}.{each}", names, formula) for each, formula in made.items()}
    for each in ("ppf", "isf"):
        if each in formulas:
            functions[each] = _probability_function(f"{name}.{each}", names, formulas[each])
    return Distribution(name, functions)


def _probabilities(formulas: Mapping[str, Formula]) -> dict[str, Formula]:
    """Return `cdf`, `sf` and their logarithms, of which `formulas` has some: each by itself, or by its logarithm."""
    made: dict[str, Formula] = {}
    for one, log, other in (("cdf", "logcdf", "sf"), ("sf", "logsf", "cdf")):
        if one in formulas:
            made[one] = formulas[one]
            if log not in formulas:
                by_log = formulas.get("log" + other)
                complement = by_log and (lambda *given, by_log=by_log: fnp.exp(by_log(*given)))
                made[log] = _log_of(formulas[one], formulas.get(other, complement))
        if log in formulas:
            made[log] = formulas[log]
            if one not in formulas:
                made[one] = lambda *given, log=log: fnp.exp(formulas[log](*given))
    return made


def _log_of(formula: Formula, complement: Formula | None) -> Formula:
    return lambda *given: log_probability(formula(*given), complement and complement(*given))


def log_probability(probability: Any, complement: Any = None) -> Any:
    """Return the logarithm of a probability; near 1 by its complement, which has the digits there.

    A probability of 0, that of points outside of a support, has no derivative.
    """
    none = probability == 0
    log = fnp.where(none, -np.inf, fnp.log(fnp.where(none, 1.0, probability)))
    if complement is None:
        return log
    near = probability > 0.5
    return fnp.where(near, fnp.log1p(-fnp.where(near, complement, 0.0)), log)


def _outside(*point_and_shapes: Any) -> Any:
    """Return the logarithm of the density at points outside of the support: -inf, and NaN for a NaN."""
    is_unknown = functools.reduce(fnp.logical_or, map(fnp.isnan, point_and_shapes))
    return fnp.where(is_unknown, np.nan, -np.inf)


def _point_function(name: str, names: Sequence[str], formula: Formula) -> Callable[..., Any]:
    def compute(x: Any, *values: Any) -> Any:
        *shapes, loc, scale = values
        return formula(fnp.divide(fnp.subtract(x, loc), scale), (loc, scale), *shapes)
    return _with_signature(name, "x", names, compute)


def _probability_function(name: str, names: Sequence[str], formula: Formula) -> Callable[..., Any]:
    def compute(q: Any, *values: Any) -> Any:
        *shapes, loc, scale = values
        q = fnp.where((q >= 0) & (q <= 1), q, np.nan)
        return fnp.add(fnp.multiply(formula(q, *shapes), scale), loc)
    return _with_signature(name, "q", names, compute)


def discrete(name: str, shapes: str, mass: Formula, inside: Formula, anchor: Any = 0.0,
             **formulas: Formula) -> Distribution:
    """Return the distribution of `loc + k`; `mass(k, *shapes)` is the logarithm of the probability of k.

    `formulas` are those of other functions, as for `continuous`.
    """
    names = [*shapes.split(), "loc"]

    def logpmf(k: Any, *values: Any) -> Any:
        *shapes, loc = values
        k = fnp.subtract(k, loc)
        within = inside(k, *shapes)
        point = fnp.where(within, k, anchor(*shapes) if callable(anchor) else anchor)
        return fnp.where(within, mass(point, *shapes), _outside(k, *shapes))

    functions = {"logpmf": _with_signature(f"{name}.logpmf", "k", names, logpmf),
                 "pmf": _with_signature(f"{name}.pmf", "k", names, lambda *given: fnp.exp(logpmf(*given)))}
    for each, formula in (_probabilities(formulas) | formulas).items():
        first = "q" if each == "ppf" else "k"
        functions[each] = _with_signature(f"{name}.{each}", first, names, _shift_and_scale(formula, each == "ppf"))
    return Distribution(name, functions)


def _shift_and_scale(formula: Formula, of_probability: bool) -> Formula:
    def compute(first: Any, *values: Any) -> Any:
        *shapes, loc = values
        if of_probability:
            return fnp.add(formula(first, *shapes), loc)
        return formula(fnp.subtract(first, loc), *shapes)
    return compute


_WHAT = {"logpdf": "Return the logarithm of the density at `x`", "pdf": "Return the density at `x`",
         "logpmf": "Return the logarithm of the probability of `k`", "pmf": "Return the probability of `k`",
         "cdf": "Return the probability of at most the point", "logcdf": "Return the logarithm of `cdf`",
         "sf": "Return the probability of more than the point", "logsf": "Return the logarithm of `sf`",
         "ppf": "Return the point where `cdf` is `q`", "isf": "Return the point where `sf` is `q`"}


def _with_signature(name: str, first: str, names: Sequence[str], compute: Formula) -> Callable[..., Any]:
    """Return `compute` with the signature `(first, *shapes, loc=0, scale=1)`; arguments broadcast."""
    defaults = {"loc": 0, "scale": 1}
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(first, positional), *(
        inspect.Parameter(each, positional, default=defaults.get(each, inspect.Parameter.empty)) for each in names)])

    def function(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        missing = defaults.keys() - bound.arguments.keys()
        bound.apply_defaults()
        # As floats, defaults give way to every argument, un-jitted and traced alike.
        return compute(*inexact_operands(*(float(value) if name in missing else value
                                           for name, value in bound.arguments.items())))
    function.__name__ = function.__qualname__ = name.rsplit(".", 1)[-1]
    of = name.split(".", maxsplit=1)[0]
    function.__doc__ = f"{_WHAT[function.__name__]} of the distribution {of}; arguments broadcast."
    function.__signature__ = signature  # type: ignore[attr-defined]
    return replay_on_values(function)
