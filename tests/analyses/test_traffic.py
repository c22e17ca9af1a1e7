"""Bytes on the wire: against rings played through, and what is counted of loops, branches and unknown collectives."""

from __future__ import annotations

import numpy as np
import pytest

import fxgrad
from fxgrad import lax
from fxgrad.analyses.memory import peak_bytes
from fxgrad.analyses.traffic import Transfer, by_axis, bytes_sent, speaks, traffic
from fxgrad.core.primitive import Cost, registry


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
        np.testing.assert_allclose(piece, pieces(np.sum(rows, 0), n)[(i + 1) % n])
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
    known = {name: speaks.of(primitive) for name, primitive in registry.items()}
    assert {name for name, kind in known.items() if kind != "nothing"} >= {
        "psum", "pmax", "pmin", "all_gather", "psum_scatter", "all_to_all", "ppermute"}
    unsaid = {name for name, primitive in registry.items() if primitive.collective} - {
        primitive.name for primitive in speaks.entered()}
    assert unsaid == set()


def test_a_program_without_a_mesh_sends_nothing() -> None:
    program = fxgrad.make_program(fxgrad.vmap(lambda x: lax.psum(x, "i"), axis_name="i"))(np.ones(4))
    assert traffic(program) == ()
    assert fxgrad.cost(program).wire == {}
    assert repr(fxgrad.cost(program)) == "Cost(flops=4, bytes=80)"


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
    assert peak_bytes(fxgrad.make_program(lambda x: np.tanh(np.sin(np.exp(x))))(x)) == 800  # each over the one before
    assert peak_bytes(fxgrad.make_program(lambda x: (np.sin(x), np.exp(x)))(x)) == 1600
    assert peak_bytes(fxgrad.make_program(lambda x: x)(x)) == 0

    def loop(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return lax.scan(lambda c, _: (np.sin(c), 1.0), x, None, length=7)
    carried, ones = 800, 7 * 8  # what is carried is written over
    assert peak_bytes(fxgrad.make_program(loop)(x)) == carried + ones

    def loop_that_keeps(x: np.ndarray) -> np.ndarray:
        return lax.scan(lambda c, _: (np.sin(c) * np.sum(np.exp(c)), None), x, None, length=7)[0]
    assert peak_bytes(fxgrad.make_program(loop_that_keeps)(x)) == carried + 800 + 8  # exp(c), while c is still needed
