"""Random models with masks, and arguments with NaNs and infinities in some places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import fxgrad
import fxgrad.numpy as fnp

WIDTH = 4
Layer = Callable[[Any], Any]
ACTIVATIONS: tuple[Layer, ...] = (
    fnp.tanh, lambda h: fnp.sqrt(fnp.abs(h)), lambda h: fnp.where(h > 0, fnp.log(h), 0.0),
    lambda h: fnp.maximum(h, 0.0), lambda h: 1.0 / (h * h + 1.0))


class Model(NamedTuple):
    """A function of parameters and data that returns a number, with arguments."""

    loss: Callable[[list[Any], Any], Any]
    params: list[Any]
    data: Any


def spoilt(random: np.random.Generator, array: Any) -> Any:
    """Return a copy of an array with a NaN or an infinity in up to two elements, rows or columns."""
    array = np.array(array)
    for _ in range(random.integers(0, 3)):
        places = (np.unravel_index(random.integers(array.size), array.shape), random.integers(len(array)),
                  (..., random.integers(array.shape[-1])))
        array[places[random.integers(3)]] = (np.nan, np.inf, -np.inf)[random.integers(3)]
    return array


def any_model(random: np.random.Generator) -> Model:
    """Return a model of up to four layers, of matrices and stacks of matrices."""
    rows = int(random.integers(1, 5))
    mask = (random.random((rows, 1)) < 0.6).astype(float)
    params: list[Any] = []
    layers: list[Callable[[list[Any], Any], Any]] = []

    def parameter(*shape: int) -> int:
        params.append(random.normal(size=shape) / 2)
        return len(params) - 1

    def dense() -> None:
        weights, bias, act = parameter(WIDTH, WIDTH), parameter(WIDTH), ACTIVATIONS[random.integers(5)]
        layers.append(lambda params, h: act(h @ params[weights] + params[bias]))

    def recurrent() -> None:
        weights = parameter(WIDTH, WIDTH)
        layers.append(lambda params, h: fxgrad.lax.scan(
            lambda state, _: (fnp.tanh(state @ params[weights]), None), h, None, length=2)[0])

    def gated() -> None:
        gates = parameter(rows, WIDTH)
        layers.append(lambda params, h: fnp.einsum("...nd,nd->...n", h, params[gates])[..., None] * h)

    def fixed() -> None:
        weights = spoilt(random, random.normal(size=(WIDTH, WIDTH)))
        layers.append(lambda params, h: h @ weights)

    def attention() -> None:
        layers.append(lambda params, h: (h @ fnp.swapaxes(h, -1, -2)) @ h)

    def masked() -> None:
        chosen = (lambda h: fnp.where(mask > 0, h, 0.0), lambda h: h * mask)[random.integers(2)]
        layers.append(lambda params, h: chosen(h))

    dense()
    for _ in range(random.integers(0, 4)):
        (dense, dense, recurrent, gated, fixed, attention, masked)[random.integers(7)]()

    def loss(params: list[Any], h: Any) -> Any:
        for layer in layers:
            h = layer(params, h)
        return fnp.sum(fnp.where(mask > 0, h, 0.0))

    stacked = random.random() < 0.4
    return Model(loss, params, random.normal(size=(2, rows, WIDTH) if stacked else (rows, WIDTH)))
