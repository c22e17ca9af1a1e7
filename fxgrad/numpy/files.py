"""Arrays from buffers, iterators, text and files: NumPy's functions with our default dtypes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.frontend.operands import as_integer
from fxgrad.numpy.creation import array


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Any:
    """Return a vector of the numbers of a dtype in a buffer, copied.

    >>> frombuffer(bytes([1, 2]), dtype="uint8")
    array([1, 2], dtype=uint8)
    """
    count, offset = as_integer("frombuffer", count), as_integer("frombuffer", offset)
    return np.frombuffer(buffer, dtypes.canonical(dtype), count, offset).copy()


def fromiter(iter: Iterable[Any], dtype: Any = float, count: int = -1) -> Any:
    """Return a vector of the numbers of an iterator.

    >>> fromiter(range(3), dtype=int)
    array([0, 1, 2])
    """
    return np.fromiter(iter, dtypes.canonical(dtype), as_integer("fromiter", count))


def fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str) -> Any:
    """Return a vector of the numbers in a text, separated by `sep`.

    >>> fromstring("1 2 3", dtype=int, sep=" ")
    array([1, 2, 3])
    """
    return np.fromstring(string, dtypes.canonical(dtype), as_integer("fromstring", count), sep=sep)


def fromfile(file: Any, dtype: Any = float, count: int = -1, sep: str = "", offset: int = 0) -> Any:
    """Return a vector of the numbers in a file, binary, or as text separated by `sep`.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = file.write(bytes([1, 2])), file.seek(0)
    ...     fromfile(file, dtype="uint8")
    array([1, 2], dtype=uint8)
    """
    return np.fromfile(file, dtypes.canonical(dtype), as_integer("fromfile", count), sep,
                       as_integer("fromfile", offset))


def load(file: Any, *args: Any, **options: Any) -> Any:
    """Return the array in a `.npy` file, or a mapping of those in an `.npz` file, as `numpy.load` does.

    NumPy does not store that an array is of bfloat16: elements of two bytes without a dtype are.

    >>> import io
    >>> file = io.BytesIO()
    >>> np.save(file, array([0.5, 0.5], "bfloat16"))
    >>> load(io.BytesIO(file.getvalue()))
    array([0.5, 0.5], dtype=bfloat16)
    """
    stored = np.load(file, *args, **options)
    return stored.view(dtypes.bfloat16) if isinstance(stored, np.ndarray) and stored.dtype == "V2" else stored


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """Return a CPU array of another library, sharing its memory unless `copy` is given.

    >>> from_dlpack(np.array([1.0, 2.0]))
    array([1., 2.])
    """
    options: dict[str, Any] = {name: value for name, value in (("device", device), ("copy", copy)) if value is not None}
    return array(np.from_dlpack(x, **options), copy=bool(copy))
