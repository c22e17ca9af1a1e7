"""NaN is never turned into 0: where a value or an argument is NaN, a gradient is, or it is no NaN in jax either."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import grad, jit, lax, vmap
from tests.comparison import runs
from tests.comparison.arguments import Case
from tests.comparison.cases import CASES
from tests.comparison.checks import Item, expected
from tests.comparison.libraries import LIBRARIES, functions

EXCEPTIONS = {
    "numpy.quantile": "the slope in q of a column with a NaN is 0, as that in its elements is in jax too",
}


@pytest.mark.slow
@pytest.mark.parametrize(("library", "names"), [
    pytest.param(library, names, id=f"{library}-{names[0]}") for library, names in runs.groups(functions)])
def test_gradients_at_nan(library: str, names: list[str]) -> None:
    without = [each for name in names if f"{library}.{name}" not in EXCEPTIONS
               for case in CASES[library].get(name, ())
               if not case.static and "float64" in case.dtypes and "derivatives" not in case.without
               for each in _without_nan(library, name, case)]
    answers = expected([item for item, _ in without], True)
    assert [f"{item.label}: {found}; jax {wanted}" for (item, found), wanted in zip(without, answers, strict=True)
            if not isinstance(wanted, Exception) and _have_nan(wanted)] == []


def _without_nan(library: str, name: str, case: Case) -> Iterator[tuple[Item, Any]]:
    """The gradients of calls with a NaN that have none, with the item that jax computes the same of."""
    ours, theirs = (case.function(module, name, "float64") for module in LIBRARIES[library])
    drawn = case.arrays("float64")
    places = tuple(place for place, arg in enumerate(drawn) if arg.dtype.kind == "f" and place not in case.fixed)
    for place in places:
        arguments = [arg.copy() for arg in drawn]
        if not arguments[place].size:
            continue
        arguments[place].reshape(-1)[arguments[place].size // 2] = np.nan
        gradient = grad(_total(fnp, ours), argnums=places)
        with np.errstate(all="ignore"):
            try:
                found = gradient(*arguments)
            except (fxgrad.errors.FxgradError, np.linalg.LinAlgError, ValueError):
                continue  # what has no gradient, and what NumPy refuses
        if not _have_nan(found):
            yield Item(f"{library}.{name}, argument {place}", "nan", jax.grad(_total(jnp, theirs), argnums=places),
                       gradient, arguments, 1.0, True), found


def _total(names: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    def total(*arguments: Any) -> Any:
        leaves = [leaf for leaf in jax.tree.leaves(function(*arguments)) if np.issubdtype(
            getattr(leaf, "dtype", np.dtype(float)), np.inexact)]
        return sum((names.sum(names.real(leaf)) for leaf in leaves), 0.0)
    return total


def _have_nan(gradients: Any) -> bool:
    return any(np.isnan(np.asarray(each)).any() for each in gradients)


# --- of lanes -------------------------------------------------------------------------------------------------------


def _looped(x: Any) -> Any:
    return lax.while_loop(lambda carry: carry[0] < 3, lambda carry: (carry[0] + 1, carry[1] * x), (0, x))[1]


def _until(x: Any) -> Any:
    """A loop whose number of turns differs between lanes, and depends on them."""
    return lax.while_loop(lambda carry: carry[1] < 10.0, lambda carry: (carry[0] + 1, carry[1] * 1.5 + abs(x)),
                          (0, abs(x) + 1.0))[1]


LANES: dict[str, Callable[[Any], Any]] = {
    "while": _looped,
    "while, until": _until,
    "fori": lambda x: lax.fori_loop(0, 3, lambda i, y: y * x + i, x),
    "scan": lambda x: lax.scan(lambda y, z: (y * x, y + z), x, np.arange(3.0))[1].sum(),
    "cond": lambda x: lax.cond(x > 1.0, lambda y: y * y, lambda y: y * 3.0 * y, x),
    "cond of a constant": lambda x: lax.cond(x * 0 == 0, lambda y: y * y, lambda y: y * np.nan, x),
    "switch": lambda x: lax.switch(np.int32(1), [lambda y: y, lambda y: y * y], x),
    "where": lambda x: np.where(x > 1.0, x * x, x * 3.0 * x),
    "where of a NaN": lambda x: np.where(x > 1.0, x * x, np.nan * x),
    "checkpoint": fxgrad.checkpoint(lambda x: np.sin(x) * x),
    "nested": lambda x: lax.fori_loop(0, 2, lambda i, y: lax.cond(y > 0, lambda z: z * x, lambda z: z * z, y), x),
}


@pytest.mark.parametrize("safely", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["plain", "safe"])
def test_lanes_of_batches_keep_their_nans(safely: bool) -> None:
    """The gradient of each lane is what it is alone, NaN or not, un-jitted and jitted."""
    x, problems = np.array([0.7, np.nan, 2.0, -1.5]), []
    for name, lane in LANES.items():
        slope = grad(fxgrad.nan_safe(lane) if safely else lane)
        alone = np.array([slope(each) for each in x])
        for how, mapped in (("mapped", vmap(slope)), ("jitted", jit(vmap(slope))),
                            ("summed", grad(lambda x, lane=lane: np.sum(vmap(lane)(x))))):
            with np.errstate(all="ignore"):
                found = mapped(x)
            if how == "summed" and safely:
                continue
            if not np.allclose(found, alone, rtol=1e-12, equal_nan=True):
                problems.append(f"{name}, {how}: {found}, alone {alone}")
        if not safely and name not in ("while, until", "cond of a constant") and not np.isnan(alone[1]):
            problems.append(f"{name}: {alone[1]} at NaN")
    assert problems == []
