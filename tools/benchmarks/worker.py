"""Measures one workload in a process of its own, with the settings that all peers share, and prints JSON."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax

from benchmarks import catalogue
from benchmarks.measure import check_equal, measure
from benchmarks.workload import Peers, Workload

ROOT = Path(__file__).resolve().parent.parent.parent

SETTINGS = {
    # One thread for all: on few shared cores more of them measure the scheduler. NPROC is what XLA sizes its pool by.
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NPROC": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    # glibc keeps the memory that it got: else it may give it back to the system after every gradient, and whether it
    # does hangs on what was allocated before.
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_TOP_PAD_": str(64 << 20), "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "PYTHONHASHSEED": "0",
}
"""The environment of every measurement."""


class FailedError(Exception):
    """A workload could not be measured."""


def environment(platform: str, root: Path = ROOT) -> dict[str, str]:
    """The environment of a process that measures the code under `root` with the workloads of this tree."""
    path = [str(ROOT / "tools"), str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **SETTINGS, "JAX_PLATFORMS": platform, "PYTHONPATH": os.pathsep.join(path)}


def start(name: str, rounds: int, platform: str) -> dict[str, Any]:
    """The figures of the workload `name`, measured in a fresh process; raises `FailedError` with what it said."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.worker", name, str(rounds)], env=environment(platform),
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise FailedError((done.stderr.strip().splitlines() or ["no message"])[-1])
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> None:
    """Measures the workload named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("rounds", type=int)
    options = parser.parse_args()
    with contextlib.redirect_stdout(io.StringIO()):  # what libraries print is not part of the answer
        answer = measured(options.name, options.rounds)
    print(json.dumps(answer))


def prepared(name: str) -> tuple[Workload, Peers]:
    """A workload and its peers, in a process with jax's settings for it."""
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # a call returns when its work is done
    workload = catalogue.WORKLOADS[name]
    if workload.wide:
        jax.config.update("jax_enable_x64", True)
    if workload.devices > 1:
        jax.config.update("jax_num_cpu_devices", workload.devices)
    return workload, workload.make(False)


def measured(name: str, rounds: int) -> dict[str, Any]:
    """The times and the memory of the peers of a workload."""
    workload, peers = prepared(name)
    check_equal(peers, workload.tolerance)
    figures = measure(peers, rounds)
    return {"device": jax.devices()[0].device_kind,
            "times": {peer: asdict(found) for peer, found in figures.items()},
            "memory": {peer: it.memory for peer, it in peers.items() if it.memory is not None}}


if __name__ == "__main__":
    main()
