"""Methods of arrays: jax's defaults, given explicitly, change nothing, of traced arrays and of `fxgrad.Array`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad.numpy as fnp
from fxgrad import vmap

X = np.array([[3, 1, 2], [0, 5, 4]])

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "argpartition": (1,), "astype": (np.float32,), "choose": ([X, X, X, X, X, X],), "compress": ([True, False], 0),
    "dot": (X.T,), "repeat": (2,), "reshape": (3, 2), "searchsorted": (3,), "swapaxes": (0, 1), "take": ([0, 2],),
}
"""Arguments of the methods that need some."""

REFUSED = {"out_sharding", "type"}
"""Options that arrays here have not: where results lie is said by programs, and there is one class of arrays."""


def defaults(of: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """The options of a function of jax's with their defaults."""
    try:
        parameters = inspect.signature(of).parameters.values()
    except ValueError:  # of compiled ones, which have no options
        return
    for parameter in parameters:
        if parameter.default is not inspect.Parameter.empty and parameter.name not in REFUSED:
            yield parameter.name, parameter.default


def methods() -> list[str]:
    """The names of the methods that compute, of those that both jax's arrays and traced ones have."""
    found: list[str] = []

    def look(x: Any) -> Any:
        found.extend(name for name in dir(x) if not name.startswith("_"))
        return x
    vmap(look)(X)
    own = jnp.asarray(X)
    return [name for name in found if name not in ("flat", "to_device", "sort", "item", "tolist") and inspect.ismethod(
        getattr(type(own), name, None) and getattr(own, name))]


def leaves(result: Any) -> list[tuple[Any, Any, Any]]:
    """The dtypes, shapes and elements of a result."""
    return [(array.dtype, array.shape, array.tolist()) for array in map(np.asarray, jax.tree.leaves(result))]


def test_defaults_of_methods_given_explicitly() -> None:
    names, count, wrong = methods(), 0, []
    assert {"sum", "any", "std", "argsort", "take", "ptp"} <= set(names)
    for name in names:
        x, args = X[1] if name == "searchsorted" else X, ARGUMENTS.get(name, ())
        method = getattr(jnp.asarray(x), name)
        given = set(list(inspect.signature(method).parameters)[:len(args)])
        for where, run in {"un-jitted": lambda f, x: f(fnp.asarray(x)), "vmap": lambda f, x: vmap(f)(x[None])}.items():
            if where == "vmap" and name in ("choose", "nonzero"):
                continue  # which need the elements there
            wanted = leaves(run(lambda x, name=name, args=args: getattr(x, name)(*args), x))
            for option, default in defaults(method):
                if option in given or (name, option) == ("view", "dtype"):  # in NumPy's, None is float64
                    continue
                count += 1
                try:
                    found = leaves(run(lambda x, name=name, args=args, options={option: default}: getattr(x, name)(
                        *args, **options), x))
                except Exception as error:  # noqa: BLE001
                    wrong.append(f"{where}: x.{name}({option}={default}): {type(error).__name__}: {error}")
                else:
                    if wanted != found:
                        wrong.append(f"{where}: x.{name}({option}={default}): {found}, without it {wanted}")
    assert not wrong, "\n".join(wrong)
    assert count > 150


def test_none_by_position() -> None:
    x = fnp.asarray(X)
    assert x.sum(-1, None, None, False, None, None).tolist() == [6, 9]
    assert x.max(0, None, True, None, None).tolist() == [[3, 5, 4]]
    assert x.sum(0, None, None, False, 10, None).tolist() == [13, 16, 16]
    assert x.mean(where=X > 2) == 4.0
    with pytest.raises(TypeError, match="argument"):
        x.sum(0, None, None, False, None, None, True, None)


def test_options_of_jax() -> None:
    x = fnp.asarray(X)
    assert x.argsort(descending=True).tolist() == [[0, 2, 1], [1, 2, 0]]
    assert x.repeat(2, 1, total_repeat_length=3).tolist() == jnp.asarray(X).repeat(2, 1, total_repeat_length=3).tolist()
    assert x.var(correction=1) == np.var(X, ddof=1)
    assert x.ptp(axis=1).tolist() == [2, 5]
    assert x.nonzero(size=6, fill_value=9)[0].tolist() == [0, 0, 0, 1, 1, 9]
