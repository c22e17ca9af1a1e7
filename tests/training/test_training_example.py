"""The example of training: resumed after a kill it goes on bit for bit; on several devices it learns the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.support.worked import example

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _beside_its_data(monkeypatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")


def started(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FXGRAD_CHECK": "0", "XLA_FLAGS": ""}
    return subprocess.Popen([sys.executable, ROOT / "examples" / "training.py", "--no-bar", *arguments], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def said(process: subprocess.Popen[str]) -> str:
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return " ".join(out.split())


def test_a_killed_run_goes_on_bit_for_bit(tmp_path) -> None:
    checkpoint = tmp_path / "run.npz"
    killed = started("--epochs", "8", "--checkpoint", str(checkpoint))
    while not checkpoint.exists():
        assert killed.poll() is None, killed.communicate()
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    with np.load(checkpoint) as arrays:
        assert 1 <= int(arrays["arr_0"]) < 8
    whole = started("--epochs", "8")
    assert said(started("--epochs", "8", "--checkpoint", str(checkpoint))) == said(whole)


def test_several_devices_learn_what_one_does(monkeypatch) -> None:
    module = example("training")
    assert jax.device_count() > 1
    several, accuracy, _ = module.train(2, bar=False)
    monkeypatch.setattr(module, "on_all_devices", lambda _: None)
    one, same, _ = module.train(2, bar=False)
    assert accuracy > 0.7
    assert abs(accuracy - same) <= 0.02
    for left, right in zip(jax.tree.leaves(several), jax.tree.leaves(one), strict=True):
        np.testing.assert_allclose(left, right, rtol=2e-2, atol=2e-3)


def test_half_precision_learns_too(monkeypatch) -> None:
    module = example("training")
    monkeypatch.setattr(module, "on_all_devices", lambda _: None)
    params, accuracy, _ = module.train(3, half=True, bar=False)
    assert accuracy > 0.8
    assert {np.asarray(leaf).dtype for leaf in jax.tree.leaves(params)} == {np.dtype(np.float32)}


def test_it_stops_when_the_held_out_loss_falls_no_more(monkeypatch) -> None:
    module = example("training")
    monkeypatch.setattr(module, "on_all_devices", lambda _: None)
    monkeypatch.setattr(module, "OPTIMISER", module.optim.sgd(0.0))
    epochs: Any = module.train(30, bar=False)[2]
    assert epochs == 1 + module.PATIENCE
