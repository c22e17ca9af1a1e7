"""A plugin that records how much of each tolerance is used, and in which dtype: for `tools/tolerances`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxgrad.testing.numbers

ROOT = Path(__file__).parents[2]
PASSED_ON = ("tests/support/tolerances.py", "fxgrad/testing/")
"""Shared files that pass comparisons on: the tolerance is attributed to the caller."""

Site = tuple[str, str, float, float]
"""File and line, narrowest inexact dtype, relative and absolute tolerance."""

_used: dict[Site, tuple[float, int]] = {}


def _place() -> str:
    frame: Any = sys._getframe(2)
    while frame:
        name = frame.f_code.co_filename
        if name.startswith(str(ROOT)) and not name.removeprefix(f"{ROOT}/").startswith(PASSED_ON):
            return f"{name.removeprefix(f'{ROOT}/')}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"


def _note(got: Any, expected: Any, rtol: float, atol: float, either: bool = False) -> None:
    """Note the part of the tolerance that the difference takes; `either`: of the greater of the two, else the sum."""
    try:
        arrays = np.asarray(got), np.asarray(expected)
        names = [each.dtype.name for each in arrays if each.dtype.name in RESOLUTION]
        if not names or arrays[0].shape != np.broadcast_shapes(*(each.shape for each in arrays)):
            return
        first, second = (each.astype(np.complex128 if each.dtype.kind == "c" else np.float64) for each in arrays)
        with np.errstate(all="ignore"):
            allowed = np.maximum(atol, rtol * np.abs(second)) if either else atol + rtol * np.abs(second)
            parts = np.where(first == second, 0.0, np.abs(first - second) / allowed)
        part = float(np.max(parts[np.isfinite(parts)], initial=0.0))
    except (TypeError, ValueError):
        return
    site = (_place(), max(names, key=RESOLUTION.__getitem__), float(rtol), float(atol))
    most, count = _used.get(site, (0.0, 0))
    _used[site] = max(most, part), count + 1


RESOLUTION = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "complex64": 2.0**-24, "float64": 2.0**-53,
              "complex128": 2.0**-53}
"""Half the distance between 1 and the next number."""


def pytest_configure() -> None:
    """Put a note before each comparison."""
    allclose, mismatch = np.testing.assert_allclose, fxgrad.testing.numbers.mismatch

    def noted_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 0.0, *args: Any,
                       **options: Any) -> None:
        _note(actual, desired, rtol, atol)
        allclose(actual, desired, rtol, atol, *args, **options)

    def noted_mismatch(got: Any, expected: Any, rtol: float, atol: float | None = None) -> str | None:
        _note(got, expected, rtol, rtol if atol is None else atol, either=True)
        return mismatch(got, expected, rtol, atol)

    np.testing.assert_allclose = noted_allclose  # type: ignore[assignment]
    fxgrad.testing.numbers.mismatch = noted_mismatch


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the notes of this process."""
    del session
    folder = Path(os.environ["FXGRAD_TOLERANCES"])
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(*site, *used) for site, used in _used.items()]
    (folder / f"{os.getpid()}.json").write_text(json.dumps(rows))
