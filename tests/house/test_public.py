"""The public names: listed, sorted, documented, with examples."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import fxgrad
import fxgrad.numpy

# Public callables whose documentation has no example to run, each with the reason.
WITHOUT_EXAMPLE: dict[str, str] = dict.fromkeys(("P", "set_mesh"), "it is jax's own")

# The names of NumPy that ordinary array code uses most. Each must be there, whatever else is.
NUMPY_CORE = """
    abs absolute add arange arccos arcsin arctan arctan2 argmax argmin array asarray atleast_1d atleast_2d atleast_3d
    broadcast_to ceil clip concatenate copy cos cosh diag diagonal divide dot einsum empty empty_like equal exp
    expand_dims expm1 eye floor full full_like greater greater_equal inner less less_equal linspace log log1p
    logical_and logical_not logical_or logical_xor matmul max maximum mean min minimum moveaxis multiply ndim negative
    not_equal ones ones_like outer pad positive power prod ravel reciprocal reshape shape sign sin sinh size split sqrt
    square squeeze stack subtract sum swapaxes take take_along_axis tan tanh tensordot trace transpose true_divide
    where zeros zeros_like
""".split()


def public(module: ModuleType) -> list[tuple[str, Any]]:
    return [(name, getattr(module, name)) for name in module.__all__]


def is_error(value: Any) -> bool:
    """Errors are documented by cause and cure, and tests/house/test_errors.py holds their messages."""
    return inspect.isclass(value) and issubclass(value, Exception | Warning)


@pytest.mark.parametrize("module", [fxgrad, fxgrad.numpy], ids=lambda module: module.__name__)
def test_names_are_sorted_and_complete(module: ModuleType) -> None:
    assert list(module.__all__) == sorted(set(module.__all__))
    there = {name for name, value in vars(module).items() if not name.startswith("_")
             and not isinstance(value, ModuleType) and not hasattr(value, "compiler_flag")}  # a `__future__` feature
    assert there <= set(module.__all__), f"not listed: {sorted(there - set(module.__all__))}"
    assert all(hasattr(module, name) for name in module.__all__)


def test_names_are_documented() -> None:
    texts = {name: inspect.getdoc(value) or "" for name, value in public(fxgrad)
             if callable(value) or isinstance(value, ModuleType)}  # the documentation of a constant is its type's
    assert [name for name, text in texts.items() if not text.strip()] == []
    assert [name for name, text in texts.items() if ">>> " not in text and callable(getattr(fxgrad, name))
            and not is_error(getattr(fxgrad, name)) and name not in WITHOUT_EXAMPLE] == []


def own_methods(value: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class that are defined in this package."""
    for name, member in inspect.getmembers(value):
        function = getattr(member, "fget", member)
        if not name.startswith("_") and inspect.isfunction(function) and function.__module__.startswith("fxgrad"):
            yield name, member


def test_methods_are_documented() -> None:
    bare = [f"{name}.{method}" for name, value in public(fxgrad) if inspect.isclass(value)
            for method, member in own_methods(value) if not (inspect.getdoc(member) or "").strip()]
    assert bare == []


def test_exceptions_are_needed() -> None:
    for name in WITHOUT_EXAMPLE:
        assert ">>> " not in (inspect.getdoc(getattr(fxgrad, name)) or ""), f"fxgrad.{name} has an example now"


def test_numpy_names_are_documented() -> None:
    functions = [value for _, value in public(fxgrad.numpy) if inspect.isfunction(value)]
    assert [value.__name__ for value in functions if not (value.__doc__ or "").strip()] == []


def test_numpy_has_the_core_names() -> None:
    assert set(NUMPY_CORE) <= set(fxgrad.numpy.__all__)


def test_the_core_names_are_numpys() -> None:
    import numpy as np

    assert len(NUMPY_CORE) == len(set(NUMPY_CORE)) == 94
    assert all(hasattr(np, name) for name in NUMPY_CORE)


def test_completion_shows_public_names_alone() -> None:
    packages = [fxgrad, fxgrad.debug, fxgrad.lax, fxgrad.nn, fxgrad.numpy, fxgrad.numpy.linalg, fxgrad.random,
                fxgrad.scipy, fxgrad.scipy.linalg, fxgrad.scipy.sparse, fxgrad.scipy.special, fxgrad.scipy.stats]
    cluttered = {package.__name__: {*dir(package)} - {*package.__all__, "__version__"} for package in packages}
    assert not any(cluttered.values()), cluttered


@pytest.mark.slow
def test_names_imported_later_are_kept_and_listed_before() -> None:
    script = """
import fxgrad.debug
before = {*dir(fxgrad.debug)}
assert "find_nan" not in vars(fxgrad.debug)
assert fxgrad.debug.find_nan is vars(fxgrad.debug)["find_nan"]
assert before == {*dir(fxgrad.debug)} == {*fxgrad.debug.__all__}
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_rooms_for_looking_are_loaded_when_they_are_asked_for() -> None:
    script = """
import sys, fxgrad
later = ("extend", "text", "interop", "scipy", "nn", "random", "tools.graphs", "tools.pictures", "tools.explorer",
         "tools.granularity", "tools.numerics", "shipping", "training")
assert not [name for name in sys.modules if name.startswith(tuple(f"fxgrad.{each}" for each in later))]
assert [getattr(fxgrad, name) for name in fxgrad.__all__]
assert all(f"fxgrad.{each}" in sys.modules for each in later)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_name_that_there_is_not() -> None:
    for module in (fxgrad, fxgrad.debug):
        with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'gradient'"):
            module.gradient  # noqa: B018  (asked for)
