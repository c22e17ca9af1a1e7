"""Random changes of everything that a function reads: its replayed gradient is that of running it."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad.engine import config
from fxgrad.engine.transparency import replays
from tests.support import held

CHANGES = int(os.environ.get("FXGRAD_CHANGES", "4000"))
"""So many changes are made."""
POOL = [np.linspace(0.1, 0.3, 3), np.array([1.0, -2.0, 0.0]), np.array(2.0), np.ones(3, "f4"), np.arange(3)]
NUMBERS = [0.5, -0.0, 0.0, 2.0, 1e-3, 1, True, np.float64(0.3), np.float32(0.3), float("inf")]
POINTS = [np.array([0.3, -0.7, 1.1]), np.array([0.3, -0.7, 1.1], "f4"), np.array([0.5]), np.zeros((2, 3))]


def change(rng: random.Random, state: held.State) -> None:
    """Changes one thing, mostly content, sometimes a type."""
    values: list[Any] = [*POOL, *NUMBERS]
    steps = {
        "in place": lambda: rng.choice([state.array, *state.items, *state.table.values(), *POOL]),
        "number": lambda: setattr(state, "number", rng.choice([rng.random(), rng.random(), rng.choice(NUMBERS)])),
        "array": lambda: setattr(state, "array", rng.choice([np.array([rng.random()] * 3), rng.choice(values)])),
        "power": lambda: setattr(state, "power", rng.choice([2, 3, 2, 2.0, 1, np.int64(2)])),
        "flag": lambda: setattr(state, "flag", rng.choice([True, False, 1, "", None])),
        "helper": lambda: setattr(state, "helper", rng.choice([held.first, held.second, np.sin, held.scaled(2.0)])),
        "item": lambda: state.items.__setitem__(rng.randrange(len(state.items)), rng.choice(values)),
        "length": lambda: setattr(state, "items", state.items[:1] if len(state.items) > 1 else [*state.items, 2.0]),
        "entry": lambda: state.table.__setitem__(rng.choice("ab"), rng.choice(values)),
        "names": lambda: setattr(state, "names", rng.choice([("sin",), ("cos", "sin"), ["sin", "cos"], ()])),
        "global": lambda: setattr(held, "HELD", rng.choice([rng.random(), rng.choice(NUMBERS)]))}
    name = rng.choice([*["in place", "number", "array", "global"] * 3, *steps])
    found = steps[name]()
    if name == "in place" and isinstance(found, np.ndarray) and found.dtype.kind == "f":
        found[...] = rng.random()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_changes(seed, monkeypatch) -> None:
    monkeypatch.setattr(config, "check_level", 0)
    monkeypatch.setattr(held, "HELD", 1.0)
    monkeypatch.setattr(held, "STATE", held.State())
    rng = random.Random(seed)
    fxgrad.transparent(held.of_everything)
    slope, expected = fxgrad.grad(held.of_everything), fxgrad.grad(lambda *args: held.of_everything(*args))
    before = replays.counts.replayed
    for step in range(CHANGES // 4):
        change(rng, held.STATE)
        args = (rng.choice(POINTS[:1] * 6 + POINTS), *([rng.random()] if rng.random() < 0.1 else []))
        outcomes = []
        for function in (slope, expected):
            try:
                outcomes.append(function(*args))
            except Exception as error:  # noqa: BLE001
                outcomes.append(type(error))
        got, wanted = outcomes
        assert type(got) is type(wanted), step
        if not isinstance(wanted, type):
            assert got.dtype == wanted.dtype, step
            np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted), err_msg=str(step))
    assert replays.counts.replayed - before > CHANGES // 4 // 6  # a number of another class is interpreted anew
