"""What `Array` can do beyond NumPy's array, attached here: traced indices, updates, products with traced arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.core.arrays import Array
from fxgrad.core.tracer import Tracer
from fxgrad.numpy import indexing, products
from fxgrad.numpy.inspection import DEVICE
from fxgrad.numpy.updates import Updates

_own_item = np.ndarray.__getitem__


def _getitem(self: Array, index: Any) -> Any:
    """`x[index]`: an element or a part of the array, or, at traced places, what is traced."""
    if type(index) is Tracer or (type(index) is tuple and any(type(entry) is Tracer for entry in index)):
        return indexing.getitem(self, index)
    return _own_item(self, index)


def _dot(self: Array, b: Any, out: Any = None) -> Any:
    """The product with `b`, which may be traced."""
    return products.dot(self, b) if type(b) is Tracer else np.ndarray.dot(self, b, out)


def _block_until_ready(self: Array) -> Array:
    """The array itself: it is computed already."""
    return self


def _devices(self: Array) -> set[Any]:
    """Where the array is."""
    del self
    return {DEVICE}


def _at(self: Array) -> Updates:
    """Updated copies: `x.at[index].set(value)` and its relatives."""
    return Updates(np.asarray(self))


def attach() -> None:
    """Gives `Array` its methods."""
    for name, member in {"__getitem__": _getitem, "dot": _dot, "block_until_ready": _block_until_ready,
                         "devices": _devices, "at": property(_at)}.items():
        setattr(Array, name, member)
