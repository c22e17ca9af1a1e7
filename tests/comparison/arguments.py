"""What a case is: a call of one function, with arguments that are drawn in a dtype, the same in every run."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

DTYPES = ("float32", "float64", "int32", "bool", "complex64")
"""What arguments are drawn in, one after the other; those that jax refuses are left out."""


class A:
    """An array of the dtype at hand, drawn evenly from `low` to `high`; integers with both ends, complex in a square.

    `make` is applied to what was drawn, to get positive definite matrices for example.
    """

    def __init__(self, *shape: int, low: float = -2.0, high: float = 2.0,
                 make: Callable[[Any], Any] | None = None, dtype: str | None = None) -> None:
        self.shape, self.low, self.high, self.make, self.dtype = shape, low, high, make, dtype

    def __call__(self, dtype: str, random: np.random.Generator) -> Any:
        """The array itself."""
        kind = np.dtype(self.dtype or dtype).kind
        if kind == "b":
            values: Any = random.integers(0, 2, self.shape).astype(bool)
        elif kind in "iu":
            low, high = int(np.ceil(self.low)), int(np.floor(self.high))
            values = random.integers(low, max(low, high) + 1, self.shape)
        else:
            values = random.uniform(self.low, self.high, self.shape)
            values = values + 1j * random.uniform(self.low, self.high, self.shape) if kind == "c" else values
        values = self.make(values) if self.make else values
        return np.asarray(values).astype(self.dtype or dtype)


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -np.nan, 0.5, -2.5, 7.0, 1e30, -1e30, 0.1, 3.0],
                   np.float32)
"""Numbers at which functions have edges; for cases that are `static`, since nothing is differentiated there."""

PAIRS = tuple(each.ravel() for each in np.meshgrid(SPECIAL, SPECIAL))
"""Every pair of them, as two vectors."""

NARROW = tuple(each.ravel() for each in np.meshgrid(*[np.array([0, 1, 2, 7, 127, -128, -1, -5], np.int8)] * 2))
"""Every pair of such integers of 8 bits, as two vectors."""


def whole(*shape: int, low: int = 0, high: int = 2) -> A:
    """Integers, whatever the dtype at hand."""
    return A(*shape, low=low, high=high, dtype="int32")


def truth(*shape: int) -> A:
    """Bools, whatever the dtype at hand."""
    return A(*shape, dtype="bool")


def key() -> A:
    """The two words of a random key."""
    return A(2, low=0, high=2**31 - 1, dtype="uint32")


class Dtype:
    """Stands for the dtype at hand among the arguments."""


D = Dtype()

Call = Callable[..., Any]


class Case:
    """One call: positional arguments (`A`s are drawn, others are as they are), options, and what sets it apart.

    - `call(module, *arrays)`: what is called, of either library; by default the function of the case's name
    - `dtypes`: what to draw in, where not all that jax accepts
    - `fixed`: positions among the drawn arguments in which no derivative is taken
    - `without`: `derivatives` or `vmap`, where they are known to differ, and how (what jax refuses is left out anyway)
    - `seen`: applied to the results of both before they are compared, where they are told up to a sign for example
    - `static`: results are no arrays, or of shapes that depend on values: they are compared at once, nothing is
      transformed
    - `tolerance`: a factor, for what is computed by different algorithms
    """

    def __init__(self, *args: Any, call: Call | None = None, dtypes: Sequence[str] = DTYPES,
                 fixed: Sequence[int] = (), without: dict[str, str] | None = None,
                 seen: Callable[[Any], Any] | None = None, static: bool = False, tolerance: float = 1.0,
                 **options: Any) -> None:
        self.args, self.options, self.call, self.dtypes = args, options, call, tuple(dtypes)
        self.fixed, self.without, self.seen = tuple(fixed), without or {}, seen
        self.static, self.tolerance = static, tolerance

    def arrays(self, dtype: str, seed: str = "") -> list[Any]:
        """The drawn arguments."""
        shapes = [leaf.shape for leaf in self.specs()]
        random = np.random.default_rng(zlib.crc32(f"{shapes}{dtype}{seed}".encode()))
        return [spec(dtype, random) for spec in self.specs()]

    def specs(self) -> list[A]:
        """What is drawn, in order; also inside of lists and options."""
        return [leaf for arg in (*self.args, *self.options.values())
                for leaf in (arg if isinstance(arg, list) else [arg]) if isinstance(leaf, A)]

    def function(self, module: Any, name: str, dtype: str) -> Callable[..., Any]:
        """The function of the drawn arguments that the case is about, of one of the two libraries."""
        target = self.call or (lambda module, *args, **options: getattr(module, name)(*args, **options))

        def called(*arrays: Any) -> Any:
            given = iter(arrays)

            def filled(arg: Any) -> Any:
                if isinstance(arg, list):
                    return [filled(each) for each in arg]
                if isinstance(arg, np.ndarray):
                    return arg.copy()  # jax remembers of an array what it was in its other mode of 64 bits
                return next(given) if isinstance(arg, A) else np.dtype(dtype) if arg is D else arg

            args = [filled(arg) for arg in self.args]
            options = {option: filled(value) for option, value in self.options.items()}
            result = target(module, *args, **options)
            return self.seen(result) if self.seen else result

        return called
