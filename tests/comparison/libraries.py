"""The modules that are compared, ours and jax's, by the names that reports use."""

from __future__ import annotations

from functools import cache
from types import ModuleType

import jax
import jax.numpy
import jax.scipy.linalg
import jax.scipy.special

import fxgrad.lax
import fxgrad.nn
import fxgrad.numpy
import fxgrad.random
import fxgrad.scipy.linalg
import fxgrad.scipy.special

LIBRARIES: dict[str, tuple[ModuleType, ModuleType]] = {
    "numpy": (fxgrad.numpy, jax.numpy),
    "numpy.linalg": (fxgrad.numpy.linalg, jax.numpy.linalg),
    "numpy.fft": (fxgrad.numpy.fft, jax.numpy.fft),
    "lax": (fxgrad.lax, jax.lax),
    "lax.linalg": (fxgrad.lax.linalg, jax.lax.linalg),
    "nn": (fxgrad.nn, jax.nn),
    "random": (fxgrad.random, jax.random),
    "scipy.special": (fxgrad.scipy.special, jax.scipy.special),
    "scipy.linalg": (fxgrad.scipy.linalg, jax.scipy.linalg),
}


@cache
def functions(library: str) -> list[str]:
    """The public functions of ours that jax has too."""
    ours, theirs = LIBRARIES[library]
    return [name for name in ours.__all__ if callable(getattr(ours, name)) and hasattr(theirs, name)
            and not isinstance(getattr(ours, name), type | ModuleType)]


@cache
def importable(library: str) -> list[str]:
    """The public functions of jax's: those that we have too, and those that we have not."""
    theirs = LIBRARIES[library][1]
    return functions(library) + [name for name in absent(library) if callable(getattr(theirs, name))
                                 and not isinstance(getattr(theirs, name), type)]


def absent(library: str) -> list[str]:
    """The public functions of jax's that we have not."""
    ours, theirs = LIBRARIES[library]
    return [name for name in dir(theirs) if not name.startswith("_") and not name.endswith("_p")
            and name not in ours.__all__ and not isinstance(getattr(theirs, name, None), ModuleType)]
