"""Running a program after it has left the process, in each of the forms that it leaves in."""

from __future__ import annotations

import functools
import io
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fxgrad.onnx
import jax
import numpy as np
from jax.extend.backend import get_backend

import fxgrad
from fxgrad import tree
from fxgrad.errors import UnsupportedError
from tests.support import with_c, with_onnx
from tests.support.numpy_files import function_of
from tests.support.shipped import SHIPPED

REFUSED = re.compile(r"\w+: (?:an argument is of dtype )?([\w<>]+)")
"""Matches the refused operation or dtype in an error message of a form."""


def _operation(error: UnsupportedError) -> str:
    """Return the operation that a form refuses, with which its message begins."""
    found = REFUSED.match(str(error))
    return found[1] if found else str(error)


def reloaded(program: fxgrad.Program, args: Sequence[Any]) -> Any:
    """Return the results of the program after `save` and `load`."""
    file = io.BytesIO()
    fxgrad.save(file, program)
    return fxgrad.load(file)(*args)


def numpy_file(program: fxgrad.Program, args: Sequence[Any]) -> Any:
    """Return the results of the Python file that imports NumPy alone."""
    return function_of(program.to_python(source=False))(*args)


def exported(program: fxgrad.Program, args: Sequence[Any]) -> Any:
    """Return the results of the export, after a round trip through its bytes."""
    return fxgrad.export.deserialize(fxgrad.export(program)().serialize()).call(*args)


def stablehlo(program: fxgrad.Program, args: Sequence[Any]) -> Any:
    """Return the results of the StableHLO text, read by XLA's client."""
    loaded = get_backend("cpu").compile_and_load(fxgrad.stablehlo(program)(), jax.devices("cpu")[:1])
    leaves = [fxgrad.random.key_data(leaf) if fxgrad.dtypes.is_key(getattr(leaf, "dtype", None)) else leaf
              for leaf in tree.leaves(args)]
    with jax.enable_x64(True):
        given = [jax.numpy.asarray(leaf) for leaf in leaves]
    results = loaded.execute_sharded(given).disassemble_into_single_device_arrays()
    return [np.asarray(shards[0]) for shards in results]


def onnx_model(program: fxgrad.Program, args: Sequence[Any]) -> Any:
    """Return the results of the ONNX model, run by onnxruntime."""
    model = fxgrad.onnx.to_onnx(program)()
    return with_onnx.run(model, fxgrad.onnx.feeds(model, *args))


def c_file(program: fxgrad.Program, args: Sequence[Any]) -> Any:
    """Return the results of the C file, compiled by the system's compiler."""
    with tempfile.TemporaryDirectory() as folder:
        function, = with_c.compiled([program], Path(folder), "-O0")  # which compiles faster
        return function(*args)


class Target(NamedTuple):
    """A form; results of `exact` ones equal NumPy's to the bit."""

    run: Callable[[fxgrad.Program, Sequence[Any]], Any]
    exact: bool = False


TARGETS = {
    "file, loaded": Target(reloaded, exact=True),
    "Python file of NumPy": Target(numpy_file, exact=True),
    "export of jax": Target(exported),
    "StableHLO text, run by XLA": Target(stablehlo),
    "ONNX, run by onnxruntime": Target(onnx_model),
    "C file": Target(c_file),
}
SAME, WITHIN = "bits", "✓"
HEAD = ("program", "tolerance", *TARGETS)


@functools.cache
def _program(name: str) -> tuple[fxgrad.Program, Any]:
    """Return the program of a function of the suite, and its results with NumPy."""
    function, args, _ = SHIPPED[name]
    program = fxgrad.make_program(function)(*args)
    return program, program(*args)


def outcome(name: str, target: str) -> str:
    """What became of a program of the suite: its bits, results within its tolerance, or the operation refused.

    Raises `AssertionError` for results of another shape or dtype, or further off.
    """
    (_, args, tolerance), (run, exact), (program, expected) = SHIPPED[name], TARGETS[target], _program(name)
    try:
        found = run(program, args)
    except UnsupportedError as error:
        return f"no: `{_operation(error)}`"
    off = distance(found, expected)
    assert off == 0 if exact else off <= tolerance, f"{name} by {target} is off by {off:.1e}"
    return SAME if exact else WITHIN


def row(name: str) -> tuple[str, ...]:
    """What became of a program in every form."""
    return name, f"{SHIPPED[name].tolerance:.0e}", *(outcome(name, target) for target in TARGETS)


def distance(found: Any, expected: Any) -> float:
    """Return the largest difference of two trees of arrays, relative to each array's largest; 0 for equal bits."""
    furthest = 0.0
    for one, other in zip(tree.leaves(found), tree.leaves(expected), strict=True):
        one, other = np.asarray(one), np.asarray(other)  # noqa: PLW2901
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        if one.tobytes() != other.tobytes():
            left, right = np.asarray(one, np.complex128), np.asarray(other, np.complex128)
            same = (left == right) | (np.isnan(left) & np.isnan(right))
            apart = np.abs(np.where(same, 0, left - right))
            furthest = max(furthest, float(np.max(apart) / (np.max(np.abs(right[np.isfinite(right)]), initial=0) or 1)))
    return furthest
