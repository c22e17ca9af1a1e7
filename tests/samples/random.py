"""Samples of `fxgrad.engine.ops.random` and `fxgrad.engine.ops.samplers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.dtypes import key_dtype
from fxgrad.engine.ops.random import (
    random_bits_p,
    random_clone_p,
    random_fold_in_p,
    random_seed_p,
    random_split_p,
    random_unwrap_p,
    random_wrap_p,
    threefry2x32_p,
)
from fxgrad.engine.ops.samplers import random_binomial_p, random_gamma_p, random_poisson_p
from tests.samples import REAL, Draw, Sample, no_derivatives, shapes_of

SHAPES = [shapes[0] for shapes in shapes_of(1)]


def keys(shape: Sequence[int] = ()) -> Any:
    """Keys that differ from each other."""
    words = np.random.default_rng(len(shape)).integers(0, 2**32, (*shape, 2), np.uint32)
    return words.view(key_dtype).reshape(shape)[()]


def words(count: int, *shapes: tuple[int, ...]) -> list[Draw]:
    return [Draw(shapes[place % len(shapes)], "uint32", 0, 2**32 - 1) for place in range(count)]


DRAWN = no_derivatives("draws jump between the branches of the sampler; tests/random compares with jax")
SIZES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), ()), ((), (0,)), ((1,), (1,)), ((), (2, 3)), ((2,), (2, 3)), ((2, 3), (2, 3)), ((3, 0), (3, 0, 2))]

SAMPLES: dict[Primitive, list[Sample]] = {
    random_seed_p: [
        *(Sample(Draw(shape, "int32", -5, 2**31 - 1)) for shape in SHAPES),
        *(Sample(Draw((2, 3), dtype, low, high)) for dtype, low, high in (
            ("int64", -2**62, 2**62), ("uint64", 0, 2**62), ("uint32", 0, 2**32 - 1), ("int8", -128, 127),
            ("uint8", 0, 255)))],
    random_wrap_p: [Sample(Draw((*shape, 2), "uint32", 0, 2**32 - 1)) for shape in SHAPES],
    random_unwrap_p: [Sample(keys(shape)) for shape in SHAPES],
    random_clone_p: [Sample(keys(shape)) for shape in SHAPES],
    random_split_p: [Sample(keys(shape), params={"shape": new})
                     for shape in SHAPES for new in ((2,), (), (0,), (3, 2))],
    random_fold_in_p: [Sample(keys(left), *words(1, right))
                       for left, right in (*((shape, shape) for shape in SHAPES), ((2, 3), ()), ((), (2, 3)),
                                           ((3,), (2, 1)))],
    random_bits_p: [Sample(keys(shape), params={"shape": new, "bit_width": width})
                    for shape in SHAPES for new, width in (((), 32), ((3,), 8), ((0,), 16), ((3, 2), 64))],
    threefry2x32_p: [
        *(Sample(*words(4, shape)) for shape in SHAPES), Sample(*words(4, (), (), (2, 3), (2, 3))),
        Sample(*words(4, (3,), (2, 1))), Sample(*words(4, (2, 3), (1, 1), (3,)))],
    random_gamma_p: [
        *(Sample(keys(outer), Draw(shape, "float64", 0.3, 4), params={"log_space": log}, without=DRAWN,
                 slow=(outer, shape, log) != ((2,), (2, 3), True)) for outer, shape in SIZES for log in (False, True)),
        *(Sample(keys(), Draw((2, 3), dtype, 0.3, 4), params={"log_space": False}, without=DRAWN, slow=True)
          for dtype in REAL)],
    random_poisson_p: [
        Sample(keys(outer), Draw(shape, "float32", 0, rate), params={"dtype": np.dtype(dtype)},
               slow=(outer, shape, rate) != ((2,), (2, 3), 40))
        for outer, shape in SIZES for rate, dtype in ((4, "int32"), (40, "int64"))],
    random_binomial_p: [
        *(Sample(keys(outer), Draw(shape, "float64", 5, 50), Draw(shape, "float64", 0.1, 0.9),
                 params={"dtype": np.dtype("float32")}, without=DRAWN, slow=(outer, shape) != ((2,), (2, 3)))
          for outer, shape in SIZES),
        Sample(keys(), Draw((2, 3), "float32", 5, 50), Draw((2, 3), "float32", 0.1, 0.9),
               params={"dtype": np.dtype("float64")}, without=DRAWN, slow=True)],
}
