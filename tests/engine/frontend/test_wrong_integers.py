"""What is no integer where one is needed is refused with the name of the function and of the argument."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fxgrad
import fxgrad.scipy.signal
import fxgrad.scipy.sparse.linalg
from fxgrad import lax
from fxgrad.errors import ArgumentError

A, B, X = np.eye(2) * 2, np.ones(2), np.arange(16.0)
IDS = np.array([0, 1])
signal, sparse, segment = fxgrad.scipy.signal, fxgrad.scipy.sparse.linalg, fxgrad.ops


def mapped(function: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: fxgrad.vmap(function, axis_name="i")(B)


CASES: dict[str, Callable[[], Any]] = {
    "cg: maxiter: an integer is needed, got 1.5": lambda: sparse.cg(A, B, maxiter=1.5),
    "bicgstab: maxiter: an integer is needed, got '3'": lambda: sparse.bicgstab(A, B, maxiter="3"),
    "gmres: maxiter: an integer is needed, got 2.0": lambda: sparse.gmres(A, B, maxiter=2.0),
    "gmres: restart: an integer is needed, got 1.5": lambda: sparse.gmres(A, B, restart=1.5),
    "welch: nperseg: an integer is needed, got 4.0": lambda: signal.welch(X, nperseg=4.0),
    "csd: noverlap: an integer is needed, got '1'": lambda: signal.csd(X, X, nperseg=4, noverlap="1"),
    "stft: nfft: an integer is needed, got 8.0": lambda: signal.stft(X, nperseg=4, nfft=8.0),
    "istft: nperseg: an integer is needed, got 4.0": lambda: signal.istft(signal.stft(X, nperseg=4)[2], nperseg=4.0),
    "istft: nfft: an integer is needed, got 4.5":
        lambda: signal.istft(signal.stft(X, nperseg=4)[2], nperseg=4, nfft=4.5),
    "segment_sum: num_segments: an integer is needed, got 2.0": lambda: segment.segment_sum(B, IDS, num_segments=2.0),
    "segment_max: bucket_size: an integer is needed, got '1'": lambda: segment.segment_max(B, IDS, 2, bucket_size="1"),
    "pbroadcast: source: an integer is needed, got 0.0": mapped(lambda x: lax.pbroadcast(x, "i", 0.0)),
    "ppermute: perm: an integer is needed, got 0.5": mapped(lambda x: lax.ppermute(x, "i", [(0, 1), (1, 0.5)])),
    "ppermute: perm=[0, 1]; pairs of positions (source, target) are needed":
        mapped(lambda x: lax.ppermute(x, "i", [0, 1])),
    "pshuffle: perm: an integer is needed, got 1.0": mapped(lambda x: lax.pshuffle(x, "i", [1.0, 0])),
    "pshuffle: perm=1 is not a permutation of 0 to 1, the positions along the axis 'i'":
        mapped(lambda x: lax.pshuffle(x, "i", 1)),
    "psum: axis_index_groups: an integer is needed, got 0.0":
        mapped(lambda x: lax.psum(x, "i", axis_index_groups=[[0.0, 1]])),
    "psum: axis_index_groups=[0, 1]; a list of groups, which are lists of positions, is needed":
        mapped(lambda x: lax.psum(x, "i", axis_index_groups=[0, 1])),
}


def test_wrong_integers() -> None:
    wrong = []
    for message, call in CASES.items():
        try:
            call()
        except ArgumentError as error:
            if not str(error).startswith(message):
                wrong.append((message, str(error)))
        except Exception as error:  # noqa: BLE001  (listed)
            wrong.append((message, repr(error)))
        else:
            wrong.append((message, "nothing raised"))
    assert not wrong, wrong


def test_integers_of_other_kinds_are_taken() -> None:
    sparse.gmres(A, B, restart=np.int32(2), maxiter=np.uint8(3))
    signal.stft(X, nperseg=np.int64(4), noverlap=True)
    segment.segment_sum(B, IDS, num_segments=np.array(2))
    lax_result = fxgrad.vmap(lambda x: lax.ppermute(x, "i", [(np.int8(0), 1), (1, np.int64(0))]), axis_name="i")(X[:2])
    np.testing.assert_array_equal(lax_result, [1.0, 0.0])


HELD = {"operands.py", "strict.py"}
"""Where the helpers are that say whose number it is."""


def test_every_reading_of_an_integer_says_whose_it_is() -> None:
    """`operator.index` stands in the helpers, behind an `except TypeError`, or reads what is an integer already."""
    root = Path(inspect.getfile(fxgrad)).parent
    found = []
    for room in ("numpy", "lax", "scipy", "nn", "random", "image", "segment.py", "optim.py"):
        path = root / room
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if not file.exists() or file.name in HELD:
                continue
            module = ast.parse(file.read_text(encoding="utf-8"))
            tried = {id(node) for each in ast.walk(module) if isinstance(each, ast.Try) for node in ast.walk(each)}
            found += [(file.relative_to(root).as_posix(), ast.unparse(node)) for node in ast.walk(module)
                      if isinstance(node, ast.Call) and ast.unparse(node.func) == "operator.index"
                      and id(node) not in tried]
    assert set(found) <= {("numpy/creation.py", "operator.index(bound)"),
                          ("numpy/joining.py", "operator.index(given.item())"),
                          ("numpy/editing.py", "operator.index(shape_of(arr)[at])"),
                          ("numpy/padding.py", "operator.index(shape_of(array)[axis])")}


