"""Two processes of this machine that are one: they train in three ways, one dies, and they go on from a checkpoint."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest

import fxgrad
from fxgrad import NamedSharding, P
from tests.support.worked import example

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 120
"""After so long a run is ended, whatever hangs."""

RUN = """
import sys
sys.path.insert(0, "examples")
import jax
jax.distributed.initialize("localhost:{port}", 2, {number}, initialization_timeout=60)
import processes
{code}
"""
SHOW = "print({name!r}, *map(float.hex, processes.train({args})), flush=True)\n"
CLOSED_OVER = """
import fxgrad, numpy as np
mesh = fxgrad.make_mesh((2,), ("i",))  # its axis is Explicit
where = fxgrad.NamedSharding(mesh, fxgrad.P("i"))
wide = processes.spread(np.arange(8.0).reshape(4, 2), where)
total = fxgrad.jit(lambda x: np.sum((x @ wide) ** 2))
for _ in range(2):
    value = total(np.ones((3, 4)))
    gradient = fxgrad.jit(fxgrad.grad(lambda w: np.sum((np.ones((3, 4)) @ w) ** 2)))(wide)
assert gradient.sharding.mesh == mesh and gradient.dtype == "float64", gradient.sharding
print("closed", float(np.asarray(value)).hex(), *[float(piece).hex() for piece in np.asarray(
    gradient.addressable_shards[0].data)[0]], flush=True)
"""


def environment() -> dict[str, str]:
    """That of a process with one device; with more of them the collectives of a step may hang each other."""
    kept = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")}
    return {**kept, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), "JAX_NUM_CPU_DEVICES": "1"}


@contextlib.contextmanager
def started(codes: tuple[str, str], folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes, which are gone afterwards with all that they started; what they say is in files of `folder`."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    processes = []
    try:
        for number, code in enumerate(codes):
            with (folder / f"out{number}").open("wb") as out, (folder / f"err{number}").open("wb") as err:
                processes.append(subprocess.Popen(
                    [sys.executable, "-c", RUN.format(port=port, number=number, code=code)], cwd=ROOT,
                    env=environment(), stdout=out, stderr=err, start_new_session=True))
        yield processes
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def said(folder: Path, number: int) -> dict[str, list[float]]:
    """The losses that a process printed, by name."""
    lines = [line.split() for line in (folder / f"out{number}").read_text().splitlines() if line[:1] not in ("", "[")]
    return {name: [*map(float.fromhex, numbers)] for name, *numbers in lines}  # what begins with [ is Gloo's


@pytest.mark.slow
def test_two_processes_train_in_three_ways_and_go_on_after_one_died(tmp_path: Path) -> None:
    pytest.importorskip("orbax.checkpoint")
    kept = f"'sharded', 4, Path({str(tmp_path / 'kept')!r})"
    first = tmp_path / "first"
    first.mkdir()
    code = "from pathlib import Path\n"
    with started((code + f"processes.train({kept})", code + f"processes.train({kept}, die_at=2)"), first) as running:
        assert running[1].wait(SECONDS) == -signal.SIGKILL, (first / "err1").read_text()
        # The other one waits for it, or fails, as the network has it; whoever started both ends it too.
    second = tmp_path / "second"
    second.mkdir()
    code += SHOW.format(name="resumed", args=kept) + "".join(
        SHOW.format(name=way, args=f"{way!r}, 4") for way in ("sharded", "data", "tensor")) + CLOSED_OVER
    with started((code, code), second) as running:
        for number, process in enumerate(running):
            assert process.wait(SECONDS) == 0, (second / f"err{number}").read_text()
    found = said(second, 0)
    assert found["closed"] == [3 * (12**2 + 16**2), 72.0, 96.0]  # what spans both is no constant of what they compile
    assert found == said(second, 1)
    resumed = found["resumed"]
    assert 2 <= len(resumed) <= 3  # the last checkpoint may not have been complete
    assert resumed == found["sharded"][-len(resumed):]  # bit for bit as if nothing had happened
    expected = alone()
    for way in ("sharded", "data", "tensor"):
        np.testing.assert_allclose(found[way], expected, rtol=1e-12)
    state_lies_on_another_mesh(tmp_path / "kept" / "sharded")


def alone() -> list[float]:
    """The losses on one device, un-jitted, by NumPy."""
    module = example("processes")
    params, moments = module.initial()
    losses = []
    for number in range(4):
        value, gradient = fxgrad.value_and_grad(module.loss)(params, *module.batch(number))
        with jax.enable_x64(True):
            updates, moments = module.OPTIMISER.update(gradient, moments)
            params = jax.tree.map(lambda p, u: np.asarray(p + u), params, updates)
        losses.append(float(value))
    return losses


@pytest.mark.slow
def test_one_process_trains_on_all_its_devices_in_three_ways() -> None:
    """As the page says to start it, on eight virtual devices."""
    pytest.importorskip("orbax.checkpoint")
    module, expected = example("processes"), alone()
    for way in module.WAYS:
        np.testing.assert_allclose(module.train(way, len(expected)), expected, rtol=1e-12)


def state_lies_on_another_mesh(folder: Path) -> None:
    """What two processes saved in halves of rows, eight devices have in eighths of columns, of 64 bits."""
    module = example("processes")
    mesh = fxgrad.make_mesh((8,), ("i",), (fxgrad.sharding.AxisType.Auto,))
    where, _ = module.shardings("tensor", mesh)
    with module.ocp.CheckpointManager(folder) as manager:
        params, moments = module.restored(manager, 3, module.spread(module.initial(), where))
    assert params["w"].dtype == "float64"
    assert params["w"].sharding.is_equivalent_to(NamedSharding(mesh, P(None, "i")), 2)
    assert moments[0].mu["w"].sharding.is_equivalent_to(params["w"].sharding, 2)
    assert int(moments[0].count) == 4
    step = fxgrad.jit(module.step)
    (_, again), value = step((params, moments), *module.batch(4))
    assert np.isfinite(float(value))
    assert int(again[0].count) == 5
    assert isinstance(again[0], optax.ScaleByAdamState)


@pytest.mark.slow
def test_grain_feeds_and_resumes() -> None:
    """Its batches go to the mesh as they are; where it was is a few numbers, which a checkpoint keeps."""
    grain: Any = pytest.importorskip("grain")
    mesh = fxgrad.make_mesh((8,), ("i",), (fxgrad.sharding.AxisType.Auto,))
    rows = NamedSharding(mesh, P("i"))
    data = grain.MapDataset.range(64).seed(3).shuffle().map(lambda n: np.full(2, n, np.float64)).batch(16)
    mean = fxgrad.jit(lambda x: np.mean(x), in_shardings=rows)

    def fed(iterator: Any, count: int) -> list[float]:
        return [float(np.asarray(mean(fxgrad.make_array_from_process_local_data(rows, next(iterator)))))
                for _ in range(count)]

    iterator = iter(data.to_iter_dataset())
    first, state = fed(iterator, 2), iterator.get_state()
    rest = fed(iterator, 2)
    again = iter(data.to_iter_dataset())
    again.set_state(state)
    assert fed(again, 2) == rest
    assert np.isclose(np.mean(first + rest), 31.5)
