"""Data parallel: every device has all parameters and its share of the batch, and gradients are summed over all.

Run it with `python examples/parallel/data_parallel.py`.
"""

from __future__ import annotations

from typing import Any

from jax.sharding import PartitionSpec as P
from setting import floats, show

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax

AXES = {"data": 8}
SPECS = (P(), P("data"), P("data"))
"""Of the parameters, which every device has, and of the batch, of which it has some rows."""


def types(data: int, width: int = 16, rows: int = 4) -> tuple[Any, ...]:
    """Types of the parameters and of a batch with `rows` rows for each device."""
    params = {"w1": floats(width, 4 * width), "b1": floats(4 * width), "w2": floats(4 * width, width)}
    return params, floats(data * rows, width), floats(data * rows, width)


def loss(params: Any, x: Any, y: Any) -> Any:
    """The mean square error of a network with one hidden layer, written for one device."""
    return fnp.mean((fnp.tanh(x @ params["w1"] + params["b1"]) @ params["w2"] - y) ** 2)


def parallel(mesh: Any) -> Any:
    """The loss and its gradient by the parameters, on a mesh with the axis "data".

    The gradient of a parameter that all devices have is summed over them without being asked for.
    """
    def mean_loss(params: Any, x: Any, y: Any) -> Any:
        return lax.pmean(loss(params, x, y), "data")
    return fxgrad.value_and_grad(fxgrad.shard_map(mean_loss, mesh=mesh, in_specs=SPECS, out_specs=P()))


def main() -> None:
    """Shows that one device and eight agree, and what they say to each other."""
    show(loss, parallel, types(**AXES), AXES, SPECS)


if __name__ == "__main__":
    main()
