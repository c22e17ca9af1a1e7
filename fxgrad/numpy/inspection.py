"""The inspection functions of the array API standard: capabilities, devices and dtypes."""

from __future__ import annotations

from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.dtypes import DType
from fxgrad.engine.frontend.operands import default_float_dtype
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError
from fxgrad.numpy.types import isdtype

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
"""The supported versions of the standard."""
DEVICE = "cpu"
"""The only device of arrays before any program runs: `jit` places its arrays itself."""


class Inspection:
    """The result of `__array_namespace_info__()`.

    >>> Inspection().default_dtypes()["real floating"]
    dtype('float32')
    """

    def capabilities(self) -> dict[str, Any]:
        """Return which optional parts of the standard are supported, and the maximal number of axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """Return the name of the device that arrays are made on."""
        return DEVICE

    def devices(self) -> list[str]:
        """Return the names of all devices."""
        return [DEVICE]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """Return the dtypes of arrays made without one."""
        check_device("default_dtypes", device)
        default = default_float_dtype()
        return {"real floating": default, "complex floating": dtypes.complex_dtype(default), "integral": dtypes.int32,
                "indexing": dtypes.int32}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """Return all dtypes of the standard by name, or those of a kind as in `isdtype`."""
        check_device("dtypes", device)
        return {name: dtype for name, dtype in dtypes.SUPPORTED.items()
                if name != "float16" and dtype.num < dtypes.FIRST_ADDED and (kind is None or isdtype(dtype, kind))}


def __array_namespace_info__() -> Inspection:  # noqa: N807  (the name that the standard gives it)
    """Return the capabilities of this library, as the array API standard defines them.

    >>> __array_namespace_info__().default_device()
    'cpu'
    """
    return Inspection()


def check_device(name: str, device: Any) -> None:
    """Raise `ArgumentError` for an unknown device."""
    if device is not None and str(device) != DEVICE and type(device).__module__.partition(".")[0] != "jaxlib":
        raise ArgumentError(at_user_line(f"{name}: device={device!r}; arrays are made on 'cpu'"))


def check_version(version: Any) -> None:
    """Raise `ArgumentError` for an unsupported version of the standard."""
    if version is not None and version not in VERSIONS:
        raise ArgumentError(at_user_line(f"__array_namespace__: api_version={version!r}; there are "
                                         f"{', '.join(VERSIONS)}"))


