"""Every default of jax's functions, and of ours, given explicitly, changes nothing, un-jitted and traced.

The calls are the cases of the comparison, one option at a time and all at once; the results are equal bit for bit.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

import fxgrad
from fxgrad.errors import FxgradError
from fxgrad.text import equal
from tests.comparison.cases import CASES
from tests.comparison.libraries import LIBRARIES, functions
from tests.comparison.runs import groups
from tests.support.versions import IS_OLDEST_JAX

DIFFERENT = {
    ("numpy.einsum", "_dot_general"): "a function of jax's that takes its place",
    ("numpy.fromfunction", "dtype"): "float is float64 here, as in NumPy, and the width of the mode in jax",
    ("lax.cond", "operand"): "the default stands for nothing, and nobody can spell it",
    ("lax.switch", "operand"): "the default stands for nothing, and nobody can spell it",
}
"""Defaults that cannot be given, and why."""

ABSENT = {
    "checkpoint concrete": "deprecated, with a default that nobody spells",
    "grad reduce_axes": "deprecated", "value_and_grad reduce_axes": "deprecated", "vjp reduce_axes": "deprecated",
    "linear_transpose reduce_axes": "deprecated", "jit device": "deprecated", "jit backend": "deprecated",
    "local_devices host_id": "deprecated", "remat concrete": "deprecated",
    "debug_nans new_val": "the settings are functions of another kind",
    "debug_infs new_val": "the settings are functions of another kind",
    **{f"debug.breakpoint {option}": "settings of jax's own prompt" for option in (
        "backend", "filter_frames", "num_frames", "ordered", "token")},
    "default_matmul_precision new_val": "the settings are functions of another kind",
    "make_jaxpr axis_env": "programs here have axes only within vmap and shard_map",
    "make_jaxpr return_shape": "eval_shape returns the shapes, and a program has them",
    "vmap sum_match": "undocumented",
    "numpy.einsum _dot_general": "a function of jax's that takes its place",
    **{f"numpy.ufunc {option}": "made by frompyfunc" for option in (
        "nargs", "call", "reduce", "accumulate", "at", "reduceat")},
    "random.key_dtype impl_spec": "a name of jax's own for impl",
    **{f"stages.{stage} {option}": "made by jit" for stage in ("Compiled", "Lowered")
       for option in ("no_kwargs", "in_types", "out_types")},
}
"""Options of jax's that ours have not, and why."""


def options(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function, none where it does not say them."""
    try:
        return inspect.signature(function).parameters
    except (ValueError, TypeError):
        return {}


def defaults(library: str, name: str) -> dict[str, Any]:
    """The options that a function has in jax or here, with their defaults: jax's where both have them."""
    ours, theirs = (options(getattr(module, name)) for module in LIBRARIES[library])
    if not IS_OLDEST_JAX:
        theirs = {option: parameter for option, parameter in theirs.items() if option in ours}
    return {parameter.name: parameter.default for parameter in (*ours.values(), *theirs.values())
            if parameter.default is not parameter.empty and parameter.kind is not parameter.POSITIONAL_ONLY
            and (f"{library}.{name}", parameter.name) not in DIFFERENT}


def given(library: str, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> set[str]:
    """The options that a call has already, by keyword or by position, in either library."""
    by_position = [list(options(getattr(module, name)).values())[:len(args)] for module in LIBRARIES[library]]
    return {*kwargs, *(parameter.name for parameters in by_position for parameter in parameters
                       if parameter.kind is parameter.POSITIONAL_OR_KEYWORD)}


def bits(result: Any) -> list[tuple[Any, ...]]:
    """The dtypes, shapes and bytes of a result."""
    return [(leaf.dtype, leaf.shape, leaf.tobytes()) for leaf in map(np.asarray, jax.tree.leaves(result))]


class Recorded:
    """A program and what it is called with: two are equal where the programs are, and where the results are."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        self.program, self.args = fxgrad.make_program(function)(*args), args

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recorded) and (
            equal(self.program, other.program) or self.bits() == other.bits())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self.bits()} of {self.program}"

    def bits(self) -> list[tuple[Any, ...]]:
        return bits(self.program(*self.args))


def un_jitted(function: Callable[..., Any], args: Sequence[Any]) -> list[tuple[Any, ...]]:
    return bits(function(*args))


def traced(function: Callable[..., Any], args: Sequence[Any]) -> Recorded:
    return Recorded(function, args)


def noted(function: Callable[..., Any], calls: list[Any], /, *args: Any, **kwargs: Any) -> Any:
    calls.append((args, kwargs))
    return function(*args, **kwargs)


def spelled(function: Callable[..., Any], chosen: Mapping[str, Any], /, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs, **chosen)


def runs(library: str, names: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """The options of all calls, each with what is wrong with it; every case in the first two dtypes that it takes."""
    module = LIBRARIES[library][0]
    for name in names:
        of_all = defaults(library, name)
        function = getattr(module, name)
        for number, case in enumerate(CASES[library].get(name, []) if of_all else []):
            calls: list[tuple[Sequence[Any], Mapping[str, Any]]] = []
            noting = functools.partial(noted, function, calls)
            taken = 0
            for dtype in case.dtypes:
                called = case.function(module, name, dtype)
                try:
                    args = case.arrays(dtype)
                    with mock.patch.object(module, name, noting):
                        wanted: dict[Any, Any] = {un_jitted: un_jitted(called, args)}
                        if not case.static:
                            wanted[traced] = traced(called, args)
                except (ValueError, TypeError, RuntimeError, RuntimeWarning, FxgradError, np.linalg.LinAlgError):
                    continue  # refused without the options, too
                already = set().union(*(given(library, name, *call) for call in calls))
                left = {option: value for option, value in of_all.items() if option not in already}
                for chosen in [*({option: value} for option, value in left.items()), left]:
                    for run, expected in wanted.items():
                        label = f"{library}.{name}, case {number}, {dtype}, {run.__name__}, {chosen}"
                        try:
                            with mock.patch.object(module, name, functools.partial(spelled, function, chosen)):
                                found = run(called, args)
                        except Exception as error:  # noqa: BLE001
                            yield label, f"{type(error).__name__}: {error}"
                        else:
                            yield label, None if found == expected else f"{found}, without it {expected}"
                taken += bool(left)
                if taken == 2 or not left:
                    break


def assert_nothing_changes(found: Sequence[tuple[str, str | None]], least: int) -> None:
    assert not [f"{label}: {problem}" for label, problem in found if problem]
    assert len(found) >= least


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_defaults_of_functions_given_explicitly(library: str) -> None:
    assert_nothing_changes(list(runs(library, functions(library))), 50)


def test_defaults_of_some_functions_given_explicitly() -> None:
    """A sample of the above, in quick tests too."""
    for library, names in groups():
        assert_nothing_changes(list(runs(library, names[::25])), 0)
    assert_nothing_changes(list(runs("numpy", ["add", "ravel_multi_index", "take_along_axis"])), 20)


@pytest.mark.skipif(not IS_OLDEST_JAX, reason="newer versions of jax have other options")
def test_options_that_jax_has() -> None:
    """Every option with a default that a function of jax's has, the one here has too, or the table says why not."""
    missing, count = [], 0
    for path in ("", "ad_checkpoint", "custom_derivatives", "debug", "dtypes", "ffi", "flatten_util", "image",
                 "experimental", "export", "lax", "lax.linalg", "nn", "nn.initializers", "numpy", "numpy.fft",
                 "numpy.linalg", "random", "scipy.fft", "scipy.integrate", "scipy.linalg", "scipy.signal",
                 "scipy.special", "scipy.stats", "sharding", "stages", "test_util", "tree", "tree_util"):
        ours, theirs = fxgrad, jax
        for part in path.split(".") if path else ():
            ours, theirs = getattr(ours, part, None), getattr(theirs, part, None)
        for name in sorted(set(dir(ours)) & set(dir(theirs))):
            own, jaxs = getattr(ours, name), getattr(theirs, name)
            if name.startswith("_") or own is jaxs or not callable(own) or not (taken := options(own)) or any(
                    parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values()):
                continue
            for parameter in options(jaxs).values():
                if parameter.default is parameter.empty or parameter.kind is parameter.POSITIONAL_ONLY:
                    continue
                count += 1
                if parameter.name not in taken or taken[parameter.name].kind is parameter.POSITIONAL_ONLY:
                    missing.append(f"{path}.{name} {parameter.name}".lstrip("."))
    assert sorted(missing) == sorted(ABSENT)
    assert count > 1000
