"""`tools/gpu` without a GPU: all that it measures lowers for one, and parts run on the CPU at small sizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tools")]
from budgeted import models  # noqa: E402  (the path is set first)
from gpus import lowered, measured  # noqa: E402

COMMAND = [sys.executable, str(ROOT / "tools" / "gpu")]


@pytest.mark.slow
def test_everything_that_is_measured_lowers() -> None:
    rows = [*lowered.rows("cuda", blocks=2)]
    assert [row for row in rows if row.failure] == []
    assert all(row.size > 100 for row in rows)
    assert {row.part for row in rows} == {"equality", "budgets", "offload", "precision", "shardings", "times"}
    assert len(rows) > 85


def test_what_does_not_lower_is_a_row_with_its_reason() -> None:
    def fail() -> lowered.Lowerable:
        raise ValueError("no such program")
    assert lowered._row("times", "x", fail, "cuda") == ("times", "x", 0, "ValueError: no such program")


@pytest.mark.slow
def test_offloading_and_precision_run(monkeypatch: pytest.MonkeyPatch) -> None:
    # Fewer numbers than are measured: a CPU multiplies those of 16 bits one by one.
    for name, size in (("BATCH", 1), ("LENGTH", 32), ("ROWS", 64)):
        monkeypatch.setattr(models, name, size)
    offloaded = measured.offload(rounds=1, blocks=2)
    # A CPU has no memory but its own: that nothing is saved there is what the table says, and gradients are equal.
    assert set(offloaded.missed) <= {"transformer, offloaded", "mlp, offloaded"}
    assert all(float(row[-1]) < 1e-5 for row in offloaded.rows)
    precise = measured.precision(rounds=1, blocks=2, size=64)
    assert precise.missed == []
    errors = {(row[0], row[1]): row[-1] for row in precise.rows}
    assert float(errors["mlp", "float32"]) == 0.0
    assert float(errors["mlp", "bfloat16"]) > 1e-4  # products are in fewer bits


def test_nodes_say_the_device() -> None:
    assert measured.devices().missed == []


@pytest.mark.slow
def test_results_are_within_their_tolerances() -> None:
    found = measured.equality()
    assert found.missed == []
    assert len(found.rows) >= 40


@pytest.mark.slow
def test_a_machine_without_a_gpu_is_told_what_to_run() -> None:
    done = subprocess.run([*COMMAND, "devices"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("tools/gpu: jax finds no cuda device here: ")
    assert done.stderr.strip().endswith(
        "What can be shown without one is tools/gpu --check; jax's own installation guide says which package has GPUs")


def test_parts_that_do_not_exist_are_refused() -> None:
    done = subprocess.run([*COMMAND, "memory"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "gpu: error: there is no part 'memory'; the parts are devices, equality, budgets, offload, precision, "
        "shardings, times")
