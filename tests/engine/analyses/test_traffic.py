"""Bytes on the wire: against rings played through, and what is counted of loops, branches and unknown collectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

import fxgrad
from fxgrad import lax
from fxgrad.engine.analyses.liveness import liveness
from fxgrad.engine.analyses.traffic import Transfer, by_axis, bytes_sent, collective_kinds, traffic
from fxgrad.engine.core.primitive import Cost
from fxgrad.engine.rooms import registry


def pieces(x: np.ndarray, count: int) -> list[np.ndarray]:
    return np.split(x, count)


def reduce_scatter_ring(rows: list[np.ndarray]) -> tuple[list[np.ndarray], int]:
    """The sums of pieces, piece i + 1 on device i, and the bytes that one device sent."""
    n = len(rows)
    held = [pieces(row, n) for row in rows]
    sent = 0
    for step in range(n - 1):
        going = [held[i][(i - step) % n] for i in range(n)]
        sent += going[0].nbytes
        for i in range(n):
            place = (i - 1 - step) % n
            held[i][place] = held[i][place] + going[i - 1]
    return [held[i][(i + 1) % n] for i in range(n)], sent


def all_gather_ring(shards: list[np.ndarray]) -> tuple[list[set[bytes]], int]:
    """What every device has seen at the end, and the bytes that one device sent."""
    n = len(shards)
    going, seen, sent = [*shards], [{shard.tobytes()} for shard in shards], 0
    for _ in range(n - 1):
        sent += going[0].nbytes
        going = [going[i - 1] for i in range(n)]
        for i in range(n):
            seen[i].add(going[i].tobytes())
    return seen, sent


@pytest.mark.parametrize("n", [2, 3, 8])
def test_bytes_are_those_of_rings_played_through(n: int) -> None:
    rows = [*np.random.default_rng(0).normal(size=(n, 4 * n))]
    sums, scattered = reduce_scatter_ring(rows)
    for i, piece in enumerate(sums):
        np.testing.assert_allclose(piece, pieces(np.sum(rows, 0), n)[(i + 1) % n], rtol=1e-12)
    seen, gathered = all_gather_ring(sums)
    assert all(len(each) == n for each in seen)
    assert bytes_sent("reduce-scatter", n, rows[0].nbytes) == scattered
    assert bytes_sent("all-gather", n, sums[0].nbytes) == gathered
    assert bytes_sent("all-reduce", n, rows[0].nbytes) == scattered + gathered
    assert bytes_sent("all-to-all", n, rows[0].nbytes) == rows[0].nbytes - rows[0].nbytes // n  # but its own piece
    assert bytes_sent("permute", n, rows[0].nbytes) == rows[0].nbytes


def test_alone_nothing_is_sent_and_pieces_are_whole_bytes() -> None:
    assert [bytes_sent(kind, 1, 100) for kind in ("all-reduce", "all-gather", "permute")] == [0, 0, 0]
    assert bytes_sent("all-reduce", 8, 1) == 2 * 7
    assert bytes_sent("nothing", 8, 100) == 0


def test_every_collective_says_what_it_is() -> None:
    known = {name: collective_kinds.of(primitive) for name, primitive in registry.items()}
    assert {name for name, kind in known.items() if kind != "nothing"} >= {
        "psum", "pmax", "pmin", "all_gather", "psum_scatter", "all_to_all", "ppermute"}
    unsaid = {name for name, primitive in registry.items() if primitive.collective} - {
        primitive.name for primitive in collective_kinds.entered()}
    assert unsaid == set()


def test_a_program_without_a_mesh_sends_nothing() -> None:
    program = fxgrad.make_program(fxgrad.vmap(lambda x: lax.psum(x, "i"), axis_name="i"))(np.ones(4))
    assert traffic(program) == ()
    assert fxgrad.cost_analysis(program).wire == {}
    assert repr(fxgrad.cost_analysis(program)) == "Cost(flops=4, bytes=80)"


def test_cost_with_a_wire_is_still_a_pair() -> None:
    found = Cost(1, 2).with_wire({"data": 3})
    assert found == (1, 2)
    assert found.wire == {"data": 3}
    assert repr(found) == "Cost(flops=1, bytes=2, wire={'data': 3})"
    found.wire["data"] = 4
    assert found.wire == {"data": 3}


def test_sums_by_axis() -> None:
    found = [Transfer("permute", ("a",), 4, 2, 10), Transfer("all-gather", ("a", "b"), 8, 1, 10),
             Transfer("permute", ("a",), 4, 1, 1)]
    assert by_axis(found) == {"a, b": 70, "a": 21}


# --- memory ---------------------------------------------------------------------------------------------------------


def test_peaks_of_programs_in_closed_form() -> None:
    x = np.ones(100)
    chain = fxgrad.make_program(lambda x: np.tanh(np.sin(np.exp(x))))(x)
    assert liveness(chain).peak == 800  # each over the one before
    assert liveness(fxgrad.make_program(lambda x: (np.sin(x), np.exp(x)))(x)).peak == 1600
    assert liveness(fxgrad.make_program(lambda x: x)(x)).peak == 0

    def loop(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return lax.scan(lambda c, _: (np.sin(c), 1.0), x, None, length=7)
    carried, ones = 800, 7 * 8  # what is carried is written over
    assert liveness(fxgrad.make_program(loop)(x)).peak == carried + ones

    def loop_that_keeps(x: np.ndarray) -> np.ndarray:
        return lax.scan(lambda c, _: (np.sin(c) * np.sum(np.exp(c)), None), x, None, length=7)[0]
    assert liveness(fxgrad.make_program(loop_that_keeps)(x)).peak == carried + 800 + 8  # exp(c), while c is alive


# --- loops, branches, several axes ----------------------------------------------------------------------------------


def sent_by(body: Callable[[Any], Any]) -> dict[tuple[str, str], tuple[int, int]]:
    """How often and how many bytes, by kind and axes, of a body on a mesh of 2 x 4, where each device has 3 floats."""
    mesh, spec = AbstractMesh((2, 4), ("a", "b")), P(("a", "b"))
    mapped = fxgrad.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec)
    program = fxgrad.make_program(mapped)(np.ones(24, np.float32))
    assert fxgrad.cost_analysis(program).wire == by_axis(traffic(program))
    return {(each.kind, each.axis): (each.times, each.sent) for each in traffic(program)}


def turned(x: Any, axis: str = "b") -> Any:
    return lax.ppermute(x, axis, [(0, 1), (1, 0)])


def test_collectives_over_several_axes_are_one() -> None:
    assert sent_by(lambda x: lax.psum(x, ("a", "b")) + x) == {("all-reduce", "a, b"): (1, 2 * 7 * 2)}
    assert sent_by(lambda x: lax.psum(lax.psum(x, "a"), "b") + x) == {
        ("all-reduce", "b"): (1, 2 * 3 * 3), ("all-reduce", "a"): (1, 2 * 6)}


def test_groups_speak_among_themselves() -> None:
    def body(x: Any) -> Any:
        return lax.psum(x, "b", axis_index_groups=[[0, 1], [2, 3]])
    mapped = fxgrad.shard_map(body, mesh=AbstractMesh((4,), ("b",)), in_specs=P("b"), out_specs=P("b"), check_vma=False)
    each, = traffic(fxgrad.make_program(mapped)(np.ones(8, np.float32)))
    assert (each.size, each.sent) == (2, 8)


def test_loops_count_as_often_as_they_run() -> None:
    moved = ("permute", "b")
    assert sent_by(lambda x: lax.scan(lambda c, _: (turned(c), None), x, None, length=5)[0]) == {moved: (5, 60)}
    assert sent_by(lambda x: lax.fori_loop(0, 4, lambda _, c: turned(turned(c)), x)) == {moved: (8, 96)}
    assert sent_by(lambda x: lax.while_loop(lambda c: lax.pmax(c[0], ("a", "b")) < 0.0, turned, x)) == {
        ("all-reduce", "a, b"): (1, 14), moved: (1, 12)}


def test_of_branches_the_one_that_sends_most_counts() -> None:
    def body(x: Any) -> Any:
        return lax.cond(lax.psum(x[0], ("a", "b")) > 0.0, turned, lambda x: turned(turned(x), "a"), x)
    assert sent_by(body) == {("permute", "a"): (1, 12), ("permute", "b"): (1, 12), ("all-reduce", "a, b"): (1, 14)}


def test_what_stays_where_it_is_sends_nothing() -> None:
    assert sent_by(lambda x: lax.ppermute(x, "b", [(0, 0), (1, 1)])) == {}
    assert sent_by(lambda x: x * lax.axis_index("a").astype(np.float32)) == {}


def test_derivatives_send_what_their_transposes_do() -> None:
    gathered = sent_by(lambda x: fxgrad.grad(lambda x: lax.psum(np.sum(np.sin(lax.all_gather(x, "b"))), "a"))(x))
    assert gathered == {("all-gather", "b"): (1, 36), ("reduce-scatter", "b"): (1, 36)}
