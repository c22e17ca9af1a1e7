"""Samples of every primitive: what the laws of `fxgrad.testing` are held to, a module per room of `engine/ops`.

Each module of this package has a dictionary `SAMPLES: dict[Primitive, list[Sample]]`. A primitive needs at least a
scalar, a size 0, a size 1, a non-square matrix, operands that broadcast (where it broadcasts), and several dtypes.
`shapes_of` and `elementwise_samples` make these for operations on elements; write the others out:

    SAMPLES = {
        cumsum_p: [
            Sample(Draw((2, 3)), params={"axis": 1, "reverse": False}),
            Sample(Draw((2, 3), "bfloat16"), params={"axis": 0, "reverse": True}, slow=True),
        ],
    }

An argument is a `Draw` (random numbers, the same in every run), or an array that is used as it is.
"""

from __future__ import annotations

import importlib
import pkgutil
import zlib
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from fxgrad.engine.core.primitive import Primitive


class Draw:
    """An array of a shape and a dtype, drawn evenly from `low` to `high` (both parts of complex numbers).

    Integers are drawn from `low` to `high`, both included; bools are drawn evenly. Without `low` and `high`:
    from -2 to 2, and from 0 to 4 for unsigned integers. With `whole`, floats are whole numbers: made for ties.
    """

    def __init__(self, shape: Sequence[int], dtype: str = "float64", low: float | None = None,
                 high: float | None = None, whole: bool = False) -> None:
        self.shape, self.whole = tuple(shape), whole
        self.dtype = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        self.low = low if low is not None else 0 if self.dtype.kind == "u" else -2
        self.high = high if high is not None else 4 if self.dtype.kind == "u" else 2

    def __call__(self, random: np.random.Generator) -> Any:
        """The array itself: a NumPy scalar for the shape `()`."""
        kind = self.dtype.kind
        if kind == "b":
            values: Any = random.integers(0, 2, self.shape)
        elif kind in "iu":
            values = random.integers(int(self.low), int(self.high) + 1, self.shape)
        elif kind == "c":
            values = random.uniform(self.low, self.high, self.shape) + \
                1j * random.uniform(self.low, self.high, self.shape)
        else:
            values = random.uniform(self.low, self.high, self.shape)
            values = np.round(values) if self.whole else values
        return np.asarray(values).astype(self.dtype)[()]

    def __repr__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}".replace(" ", "")


class Sample:
    """One application of a primitive: its arguments, its parameters, and what the laws need to know about it.

    - `slow`: held to the laws in the slow tier only (the quick tier then checks its shapes and dtypes).
    - `without`: laws that do not apply here, each with the reason: `{"jvp": "piecewise constant by definition"}`.
      The laws are those of `fxgrad.testing.LAWS`.
    - `fixed`: positions of arguments that no derivative is taken in.
    - `tolerance`: a factor on the tolerances, for operations that are hard to compute; say why beside it.
    """

    def __init__(self, *args: Any, params: dict[str, Any] | None = None, slow: bool = False,
                 without: dict[str, str] | None = None, fixed: Sequence[int] = (), tolerance: float = 1.0) -> None:
        self.specs, self.params, self.slow = args, params or {}, slow
        self.without, self.fixed, self.tolerance = without or {}, tuple(fixed), tolerance

    def args(self) -> list[Any]:
        """The arguments: the same in every run."""
        random = np.random.default_rng(zlib.crc32(repr(self).encode()))
        return [spec(random) if isinstance(spec, Draw) else spec for spec in self.specs]

    def __repr__(self) -> str:
        shown = [repr(spec) if isinstance(spec, Draw) else f"{spec.dtype.name}{list(np.shape(spec))}".replace(" ", "")
                 for spec in self.specs]
        # Programs and rules are too long to show, and what is shown also decides what is drawn.
        shown += [f"{key}={value}".replace(" ", "") for key, value in self.params.items()
                  if isinstance(value, int | str | tuple | np.dtype)]
        return "-".join(shown) or "nothing"


def shapes_of(arity: int) -> list[tuple[tuple[int, ...], ...]]:
    """Shapes of the operands of an elementwise operation: scalar, size 0, size 1, non-square, broadcasting."""
    equal: list[tuple[int, ...]] = [(), (0,), (1,), (2, 3), (3, 0, 2)]
    shapes = [(shape,) * arity for shape in equal]
    if arity == 2:
        shapes += [((2, 3), ()), ((3,), (2, 1)), ((1, 3), (2, 1, 1)), ((0,), (2, 1))]
    elif arity == 3:
        shapes += [((), (2, 3), ()), ((3,), (2, 1), ()), ((2, 3), (1, 1), (3,))]
    return shapes


REAL = ("float64", "float32", "float16", "bfloat16")
COMPLEX = ("complex128", "complex64")
INTEGER = ("int32", "int64", "int8", "uint8", "uint32", "int16", "uint16", "uint64")


def elementwise_samples(arity: int, dtypes: Sequence[str], *ranges: tuple[float, float], params: Any = None,
                        **rest: Any) -> list[Sample]:
    """All shapes in the first dtype; a matrix, and a broadcast, in each of the others (slow from the third on).

    `ranges` are `(low, high)` by operand, the last one for those that follow; the default is that of `Draw`.
    """
    def drawn(shapes: Sequence[tuple[int, ...]], dtype: str) -> list[Draw]:
        limits = [ranges[min(index, len(ranges) - 1)] if ranges else (None, None) for index in range(arity)]
        return [Draw(shape, dtype, *limit) for shape, limit in zip(shapes, limits, strict=True)]

    samples = [Sample(*drawn(shapes, dtypes[0]), params=params, **rest) for shapes in shapes_of(arity)]
    for index, dtype in enumerate(dtypes[1:], 1):
        samples += [Sample(*drawn(shapes, dtype), params=params, slow=index > 1, **rest)
                    for shapes in (shapes_of(arity)[3], shapes_of(arity)[-1], shapes_of(arity)[0])]
    return samples


def no_derivatives(reason: str) -> dict[str, str]:
    """For `Sample.without`: the laws of derivatives do not apply."""
    return dict.fromkeys(("jvp", "second", "transpose"), reason)


def all_samples() -> dict[Primitive, list[Sample]]:
    """The samples of every module of this package."""
    found: dict[Primitive, list[Sample]] = {}
    for module in pkgutil.iter_modules(__path__):
        for primitive, samples in importlib.import_module(f"{__name__}.{module.name}").SAMPLES.items():
            found.setdefault(primitive, []).extend(samples)
    return found


COMPILED = {
    "betainc_grad_a", "betainc_grad_b", "betaln", "cofactor", "conv_general_dilated", "cosine_integral",
    "custom_vjp_tangent", "dawsn", "exp1", "expi", "expm", "expm_frechet", "expn", "hyp1f1", "hyp1f1_grad_a",
    "hyp1f1_grad_b", "hyp2f1", "hyp2f1_grad_a", "hyp2f1_grad_c", "igamma", "igamma_grad_a", "igammac", "jit_call",
    "owens_t", "pinv", "random_binomial", "random_gamma", "random_gamma_grad", "random_poisson",
    "regularized_incomplete_beta", "select_and_scatter_add", "sine_integral", "solve_sylvester", "spence", "sqrtm",
    "sweep", "wofz", "zeta"}
"""XLA computes these for NumPy too, or takes long to compile them: the quick tier looks at their types only."""
