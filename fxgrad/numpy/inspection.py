"""What the array API standard asks of a library: its capabilities, devices and dtypes, and those of its arrays."""

from __future__ import annotations

from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.dtypes import DType
from fxgrad.engine.frontend.operands import default_float_dtype
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError
from fxgrad.numpy.types import isdtype

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
"""The versions of the standard whose names are here."""
DEVICE = "cpu"
"""The only device of arrays that no program has run on: `jit` places its arrays itself."""


class Inspection:
    """What `__array_namespace_info__()` returns.

    >>> Inspection().default_dtypes()["real floating"]
    dtype('float32')
    """

    def capabilities(self) -> dict[str, Any]:
        """What of the standard is optional, and how many axes an array can have."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """The name of the device that arrays are made on."""
        return DEVICE

    def devices(self) -> list[str]:
        """The names of all devices."""
        return [DEVICE]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The dtypes of arrays made without one."""
        check_device("default_dtypes", device)
        default = default_float_dtype()
        return {"real floating": default, "complex floating": dtypes.complex_dtype(default), "integral": dtypes.int32,
                "indexing": dtypes.int32}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """All dtypes of the standard by name, or those of a kind as in `isdtype`."""
        check_device("dtypes", device)
        return {name: dtype for name, dtype in dtypes.SUPPORTED.items()
                if name != "float16" and dtype.num < dtypes.FIRST_ADDED and (kind is None or isdtype(dtype, kind))}


def __array_namespace_info__() -> Inspection:  # noqa: N807  (the name that the standard gives it)
    """What this library can do, in the words of the array API standard.

    >>> __array_namespace_info__().default_device()
    'cpu'
    """
    return Inspection()


def check_device(name: str, device: Any) -> None:
    """Raises `ArgumentError` for a device that there is not."""
    if device is not None and str(device) != DEVICE and type(device).__module__.partition(".")[0] != "jaxlib":
        raise ArgumentError(at_user_line(f"{name}: device={device!r}; arrays are made on 'cpu'"))


def check_version(version: Any) -> None:
    """Raises `ArgumentError` for a version of the standard whose names are not here."""
    if version is not None and version not in VERSIONS:
        raise ArgumentError(at_user_line(f"__array_namespace__: api_version={version!r}; there are "
                                         f"{', '.join(VERSIONS)}"))


