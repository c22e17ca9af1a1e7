"""C files compiled by the system's compiler, and their functions on NumPy's arrays."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad.engine.core.program import Program

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
FLAGS = ["-O2", "-std=c99", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler (cc, gcc or clang) on this system")
C_TYPES = {"float64": ctypes.c_double, "float32": ctypes.c_float, "int64": ctypes.c_int64, "int32": ctypes.c_int32,
           "int8": ctypes.c_int8, "uint8": ctypes.c_uint8, "bool": ctypes.c_bool}


def compiled(programs: Sequence[Program], folder: Path, *more: str) -> list[Callable[..., list[Any]]]:
    """Return the functions of programs, from a file each, compiled by one call of the compiler."""
    files, names, sizes = [], [], []
    for number, program in enumerate(programs):
        text = program.to_c()
        head = re.search(r"^void (\w+)\(", text, re.MULTILINE)
        size = re.search(r"^#define \w+_WORKSPACE (\d+)$", text, re.MULTILINE)
        assert head is not None
        assert size is not None
        own = f"{head[1]}_{number}"
        path = folder / f"{own}.c"
        path.write_text(text.replace(f"void {head[1]}(", f"void {own}("), encoding="ascii")
        files.append(str(path))
        names.append(own)
        sizes.append(int(size[1]))
    assert COMPILER is not None
    library = folder / "all.so"
    made = subprocess.run([COMPILER, *FLAGS, *more, *files, "-o", str(library), "-lm"], capture_output=True, text=True,
                          check=False)
    assert made.returncode == 0, made.stderr[:4000]
    loaded = ctypes.CDLL(str(library))
    return [caller(program, loaded[name], size) for program, name, size in zip(programs, names, sizes, strict=True)]


def _number(array: np.ndarray) -> Any:
    kind: Any = C_TYPES[array.dtype.name]
    return kind(array[()])


def caller(program: Program, function: Any, size: int) -> Callable[..., list[Any]]:
    """Return the function of a file on NumPy arrays, in a work space whose bounds are checked."""
    inputs = program.inputs[len(program.constants):]

    def call(*args: Any) -> list[Any]:
        arrays = [np.array(leaf, var.aval.dtype, order="C") for leaf, var in zip(
            fxgrad.tree.leaves(args), inputs, strict=True)]
        before = [array.copy() for array in arrays]
        given = [array.ctypes.data_as(ctypes.c_void_p) if array.shape else _number(array)
                 for array in arrays]
        results = [np.full(atom.aval.shape, 77, atom.aval.dtype) for atom in program.outputs]
        space = np.full(size + 64, 171, np.uint8)
        start = -space.ctypes.data % 16
        function(*given, *(each.ctypes.data_as(ctypes.c_void_p) for each in results),
                 ctypes.c_void_p(space.ctypes.data + start))
        assert (space[:start] == 171).all()
        assert (space[start + size:] == 171).all(), "what lies behind the work space was written to"
        for array, old in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(array, old)
        return results
    return call
