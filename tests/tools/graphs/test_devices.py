"""Where the values of a graph are, and pictures that say it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.tools.graphs import Graph


def function(x: object) -> object:
    return fnp.sum(fnp.sin(x) * 2)


def test_row_c19_programs_that_did_not_run_show_where_they_put_values() -> None:
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    rows = NamedSharding(mesh, P("data"))
    both = NamedSharding(mesh, P(None, ("data", "model")), memory_kind="pinned_host")

    def placed(x: object) -> object:
        x = fxgrad.lax.with_sharding_constraint(x, rows)
        return fnp.sum(fxgrad.device_put(fnp.tanh(x), both))
    program = fxgrad.make_program(placed)(fxgrad.ShapeDtypeStruct((8, 8), np.float32))
    nodes = [node.placement for node in Graph(program).nodes]
    assert nodes == ["", f"{P('data')} on 8 of cpu", "", f"{P(None, ('data', 'model'))} on 8 of cpu, pinned_host", ""]
    drawing = str(fxgrad.draw(program))
    assert f"{P('data')} on 8 of cpu" in drawing
    assert "pinned_host" in drawing


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
