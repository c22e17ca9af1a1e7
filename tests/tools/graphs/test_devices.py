"""Where the values of a graph are, and pictures that say it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import fxgrad
import fxgrad.numpy as fnp


def function(x: object) -> object:
    return fnp.sum(fnp.sin(x) * 2)


def test_row_c19_nodes_show_where_their_values_are() -> None:
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    spread = jax.device_put(np.arange(16, dtype=np.float32), NamedSharding(mesh, P("data")))
    for x, first, last in ((np.ones(2), "cpu", "cpu"), (jnp.ones(2), "cpu:0", "cpu:0"),
                           (spread, f"{P('data')} on 8 of cpu", f"{P()} on 8 of cpu")):
        made = fxgrad.graph(function)(x)
        assert (made["x"].device, made.root.device) == (first.replace("cpu:0", str(jax.devices()[0])),
                                                        last.replace("cpu:0", str(jax.devices()[0])))
    assert f"{P('data')} on 8 of cpu" in str(fxgrad.draw(function, values=True)(spread))
    assert "on 8" not in str(fxgrad.draw(function, values=True)(np.ones(2)))
