"""Simulated steps: the model by hand, which link an axis uses, and memory against what XLA plans for one device."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

import fxgrad
from fxgrad import lax
from fxgrad.errors import ArgumentError
from fxgrad.tools.profiling.simulation import H100, Machine, NetworkLink, Simulation

sys.path[:0] = [str(Path(__file__).parents[3] / "tools")]
from parallels.measured import laid_out  # noqa: E402  (the path is set first)
from parallels.patterns import PATTERNS, example  # noqa: E402

MACHINE = Machine(flops=1e12, memory=7000, per_node=8, inside=NetworkLink(1e-6, 1e9), between=NetworkLink(1e-5, 1e8))


def mean_of_products(mesh: AbstractMesh, axis: str) -> Simulation:
    def body(w: np.ndarray, x: np.ndarray) -> np.ndarray:
        return lax.psum(x @ w, axis)
    mapped = fxgrad.shard_map(body, mesh=mesh, in_specs=(P(), P()), out_specs=P(*[None] * 2))
    w, x = (fxgrad.ShapeDtypeStruct(shape, np.float32) for shape in ((10, 20), (30, 10)))
    return fxgrad.simulate(mapped, machine=MACHINE)(w, x)


def test_a_step_by_hand() -> None:
    found = mean_of_products(AbstractMesh((4,), ("data",)), "data")
    assert found.devices == 4
    assert found.compute == pytest.approx((2 * 30 * 10 * 20 + 30 * 20) / 1e12)
    exchange, = found.exchanges
    assert (exchange.link, exchange.transfer.sent) == ("inside", 2 * 3 * 30 * 20 * 4 // 4)
    assert exchange.seconds == pytest.approx(4 * 1e-6 + 3600 / 1e9)  # 2 log 4 rounds
    assert found.wire == {"data": exchange.seconds}
    assert found.time == found.compute + exchange.seconds
    assert found.overlapped == exchange.seconds
    assert (found.arguments, found.results) == (4 * (10 * 20 + 30 * 10), 4 * 30 * 20)
    assert found.memory == found.arguments + found.results + found.temporaries == 2000 + 2400 + 2400  # x @ w
    assert found.fits


@pytest.mark.parametrize(("mesh", "axis", "link"), [
    ({"a": 2, "b": 8}, "b", "inside"), ({"a": 2, "b": 8}, "a", "between"), ({"a": 2, "b": 4}, "a", "inside"),
    ({"a": 16}, "a", "between")])
def test_axes_that_fit_into_a_node_use_its_links(mesh: dict[str, int], axis: str, link: str) -> None:
    found = mean_of_products(AbstractMesh(tuple(mesh.values()), tuple(mesh)), axis)
    assert [each.link for each in found.exchanges] == [link]


@pytest.mark.parametrize(("mesh", "collective", "link"), [
    ({"a": 16}, lambda x: lax.psum(x, "a", axis_index_groups=[[*range(8)], [*range(8, 16)]]), "inside"),
    ({"a": 16}, lambda x: lax.psum(x, "a", axis_index_groups=[[*range(0, 16, 2)], [*range(1, 16, 2)]]), "between"),
    ({"a": 16}, lambda x: lax.psum(x, "a", axis_index_groups=[[0], [*range(1, 8)], [*range(8, 16)]]), "inside"),
    ({"a": 4, "b": 4}, lambda x: lax.psum(x, "a", axis_index_groups=[[0, 1], [2, 3]]), "inside"),
    ({"a": 4, "b": 4}, lambda x: lax.psum(x, "a", axis_index_groups=[[0, 2], [1, 3]]), "between"),
    ({"a": 16}, lambda x: lax.ppermute(x, "a", [(k, k ^ 1) for k in range(16)]), "inside"),
    ({"a": 16}, lambda x: lax.ppermute(x, "a", [(k, (k + 1) % 16) for k in range(16)]), "between"),
    ({"a": 2, "b": 8}, lambda x: lax.ppermute(x, "b", [(0, 7), (3, 3)]), "inside"),
    ({"a": 3, "b": 6}, lambda x: lax.psum(x, "b"), "between"),  # the second row is in two nodes
    ({"a": 2, "b": 2, "c": 4}, lambda x: lax.psum(x, ("c", "b")), "inside"),
    ({"a": 2, "b": 2, "c": 4}, lambda x: lax.psum(x, ("c", "a")), "between")])
def test_groups_use_the_links_of_a_node_that_has_them(mesh: dict[str, int], collective: Any, link: str) -> None:
    """By who speaks with whom: groups, pairs, and rows of the mesh; the largest of unequal groups counts."""
    mapped = fxgrad.shard_map(collective, mesh=AbstractMesh(tuple(mesh.values()), tuple(mesh)), in_specs=P(),
                              out_specs=P(), check_vma=False)
    found, = fxgrad.simulate(mapped, machine=MACHINE)(fxgrad.ShapeDtypeStruct((16,), np.float32)).exchanges
    assert found.link == link
    assert found.transfer.sent > 0


def test_it_prints_as_a_table() -> None:
    text = str(mean_of_products(AbstractMesh((16,), ("data",)), "data"))
    for part in ("on data: 16", "all-reduce over data", "between", "nothing overlaps", "6,800"):
        assert part in text


def test_nothing_of_a_mesh_is_needed_to_be_there() -> None:
    mesh = AbstractMesh((4096,), ("data",))
    mapped = fxgrad.shard_map(lambda x: lax.pmean(np.sum(x * x), "data"), mesh=mesh, in_specs=P("data"), out_specs=P())
    found = fxgrad.simulate(fxgrad.grad(mapped))(fxgrad.ShapeDtypeStruct((4096, 1000), np.float32))
    assert (found.devices, found.arguments, found.results) == (4096, 4000, 4000)
    assert found.machine is H100


def double(x: float) -> float:
    return x * 2.0


def test_a_function_without_a_mesh_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"simulate: double calls no shard_map, so that there is no mesh\. "
                                            r"Write the step with"):
        fxgrad.simulate(double)(1.0)


def test_steps_of_loops_are_counted_and_jitted_functions_opened() -> None:
    def body(x: np.ndarray) -> np.ndarray:
        return lax.scan(lambda c, _: (lax.ppermute(c, "i", [(0, 1), (1, 0)]), None), x, None, length=5)[0]
    mapped = fxgrad.jit(fxgrad.shard_map(body, mesh=AbstractMesh((2,), ("i",)), in_specs=P("i"), out_specs=P("i")))
    exchange, = fxgrad.simulate(mapped, machine=MACHINE)(np.ones((2, 100), np.float32)).exchanges
    assert (exchange.transfer.times, exchange.transfer.sent) == (5, 5 * 400)
    assert exchange.seconds == pytest.approx(5 * (1e-6 + 400 / 1e9))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PATTERNS if name != "transformer"])
def test_memory_is_what_xla_plans_for_one_device(name: str) -> None:
    """Arguments and results to the byte; with temporaries, which XLA fuses or copies, about the same."""
    pattern = PATTERNS[name]
    mesh, _, laid = laid_out(pattern, **pattern.measured)
    step = pattern.step(mesh)
    with jax.enable_x64(True):
        planned = fxgrad.jit(step).lower(*laid).compile().memory_analysis()
    found = fxgrad.simulate(step)(*laid)
    constants = sum(np.asarray(value).nbytes for value in fxgrad.make_program(step)(*laid).constants)
    assert found.arguments - constants == planned.argument_size_in_bytes
    pointers = 8 * len(jax.tree.leaves((0.0, laid[0])))
    assert found.results + pointers == planned.output_size_in_bytes
    whole = planned.argument_size_in_bytes + planned.output_size_in_bytes + planned.temp_size_in_bytes
    assert 0.8 * whole <= found.memory <= 1.35 * whole


@pytest.mark.slow
def test_the_state_of_an_optimiser_is_divided_as_the_parameters_are() -> None:
    """What is computed with pieces in arrays of the same shape is in pieces too, outside of the mapped function."""
    module, setting = example("fully_sharded"), example("setting")
    mesh, _, (params, x, y) = laid_out(PATTERNS["fully sharded"])
    state = module.initial_state(params)
    found = fxgrad.simulate(module.training_step(mesh))(params, state, x, y)
    assert found.arguments == max(setting.bytes_on_each((params, state, x, y)))
    assert found.results == max(setting.bytes_on_each((params, state))) + 8  # and the loss
