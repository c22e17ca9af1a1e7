"""Every function with wrong integers and axes: what jax and NumPy refuse is refused here, un-jitted and under `jit`.

The calls are made from the signatures: in each case of a function every integer, every tuple of integers and every axis
is replaced by what is none: a float, a text, an axis that is not there, one named twice.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
from fxgrad.errors import FxgradError
from tests.comparison.arguments import Case
from tests.comparison.cases import CASES
from tests.comparison.libraries import LIBRARIES
from tests.comparison.runs import groups

AXES = {"axis", "axes", "axis1", "axis2", "dimension", "dimensions", "source", "destination"}
NO_INTEGERS = (1.5, "1", (), 1j, np.float64(2.0))
NO_AXES = (77, -77, (0, 0), (0, 0.5))

LISTS = {"numpy": "an array may be a list, as in NumPy", "nn": "an array may be a list, as in numpy"}
"""Libraries in which an empty tuple or a list in the place of a number is an array."""

OTHERWISE = {
    ("compress", "fill_value"): "it is for results of a given size",
    ("extract", "fill_value"): "it is for results of a given size",
    ("clip", "min"): "complex numbers have NumPy's order",
    ("clip", "max"): "complex numbers have NumPy's order",
    ("result_type", "1"): "a text is the name of a dtype",
}
"""Arguments that may be what the others refuse."""


def wrong_values(name: str, value: Any) -> list[Any]:
    """What cannot stand in the place of an integer, of a tuple of integers, or of an axis that is None."""
    if type(value) is int:
        return [*NO_INTEGERS, *(NO_AXES if name in AXES else ())]
    if isinstance(value, list | tuple) and value and all(type(each) is int for each in value):
        first, rest, kind = value[0], value[1:], type(value)
        repeated = [kind([first, *value]), kind([77, *rest])] if name in AXES else []
        return [kind([1.5, *rest]), kind(["1", *rest]), 1.5, *repeated]
    return [1.5, "1", 77, -77, (0, 0), [0.5]] if value is None and name in AXES else []


def wrong_cases(function: Callable[..., Any], case: Case) -> Iterator[tuple[str, Any, Case]]:
    """The name of an argument, the wrong value that it gets, and the call."""
    parameters = list(inspect.signature(function).parameters.values())
    positional = [each.name for each in parameters
                  if each.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    names = [*positional, *map(str, range(len(positional), len(case.args)))]
    for at, (name, given) in enumerate(zip(names, case.args, strict=False)):
        for value in wrong_values(name, given):
            yield name, value, Case(*case.args[:at], value, *case.args[at + 1:], **case.options)
    left_out = {each.name: None if each.default is each.empty else each.default for each in parameters
                if each.name not in names[:len(case.args)]
                and each.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)}
    for name, given in {**left_out, **case.options}.items():
        for value in wrong_values(name, given):
            yield name, value, Case(*case.args, **{**case.options, name: value})


def refused(function: Callable[..., Any], arrays: Sequence[Any]) -> Exception | None:
    """What is raised, if anything."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            function(*arrays)
        except Exception as error:  # noqa: BLE001  (jax's and NumPy's refusals have many classes)
            return error
    return None


def problems_of(library: str, names: Sequence[str]) -> tuple[list[str], int]:
    """What is computed, or ends in another library's error, where jax (and NumPy, if it has it) refuse the call."""
    ours, theirs = LIBRARIES[library]
    problems, count = [], 0
    for name in names:
        for case in CASES[library].get(name, [])[:2]:
            dtype = next((each for each in ("float32", "int32", "bool", "complex64") if each in case.dtypes), "")
            if case.call or not dtype:
                continue
            arrays = case.arrays(dtype)
            of_types = functools.partial(jax.eval_shape, case.function(theirs, name, dtype))
            takes_tracers = refused(of_types, arrays) is None
            if not takes_tracers and refused(case.function(theirs, name, dtype), arrays):
                continue
            numpys = getattr(np, library.removeprefix("numpy").strip("."), np) if library.startswith("numpy") else None
            for argument, value, wrong in wrong_cases(getattr(ours, name), case):
                is_array = isinstance(value, tuple) and not value and library in LISTS and argument not in AXES
                if (name, argument) in OTHERWISE or is_array:
                    continue
                of_jax = wrong.function(theirs, name, dtype)
                if not ((takes_tracers and refused(functools.partial(jax.eval_shape, of_jax), arrays))
                        or refused(of_jax, arrays)):  # which is only computed where its types are taken
                    continue
                if hasattr(numpys, name) and not refused(wrong.function(numpys, name, dtype), arrays):
                    continue
                count += 1
                function = wrong.function(ours, name, dtype)
                for path, called in (("un-jitted", function), ("jit", fxgrad.jit(function))):
                    if path == "jit" and case.static:
                        continue
                    error = refused(called, arrays)
                    if not isinstance(error, FxgradError):
                        problems.append(f"{library}.{name}, {argument}={value!r}, {path}: {error!r}")
                    elif "\n  at arguments.py:" not in str(error):
                        problems.append(f"{library}.{name}, {argument}={value!r}, {path}: no line of the caller's")
    return problems, count


@pytest.mark.slow
@pytest.mark.parametrize(("library", "names"), [
    pytest.param(library, names, id=f"{library}-{names[0]}") for library, names in groups()])
def test_wrong_integers_and_axes_are_refused(library: str, names: list[str]) -> None:
    assert problems_of(library, names)[0] == []


def test_wrong_integers_and_axes_of_some_functions_are_refused() -> None:
    """A sample of the above, in quick tests too."""
    problems, count = problems_of("numpy", ["diff", "roll", "pad", "transpose", "insert", "bincount", "max"])
    more, others = problems_of("lax", ["slice_in_dim", "transpose", "top_k", "squeeze"])
    assert problems + more == []
    assert count + others > 100
