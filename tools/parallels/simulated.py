"""The patterns at sizes that people train, on meshes of 8, 256 and 4096 devices that are not there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AbstractMesh

import fxgrad
from fxgrad.tools.profiling.simulation import Simulation
from parallels.patterns import PATTERNS

DEVICES = (8, 256, 4096)
WORD = jax.numpy.bfloat16
"""The type of parameters and activations."""

SIZES: dict[str, dict[str, int]] = {
    "data": {"width": 8192, "rows": 8192},
    "fully sharded": {"width": 8192, "layers": 32, "rows": 8192},
    "tensor": {"width": 16384, "rows": 2, "length": 2048},
    "GPipe": {"width": 8192, "rows": 2048, "microbatches": 32},
    "1F1B": {"width": 8192, "rows": 2048, "microbatches": 32},
    "ring attention": {"width": 4096, "heads": 32, "rows": 1, "length": 4096},
    "experts": {"width": 4096, "count": 8192},
    "transformer": {"width": 8192, "layers": 32, "rows": 4, "length": 2048, "words": 32768, "size": 128},
}
"""What is given to the types of each pattern: rows, tokens and lengths are those of one device."""

HEADS = 128
"""Of the tensor parallel block, divided among devices."""

SPLIT: dict[int, list[dict[str, int]]] = {
    8: [{"data": 2, "sequence": 2, "model": 2}], 256: [{"data": 32, "sequence": 2, "model": 4}],
    4096: [{"data": 256, "sequence": 2, "model": 8}]}
"""Meshes of the transformer."""


def meshes(name: str, devices: int) -> list[dict[str, int]]:
    """The meshes on which a pattern is simulated; devices along the last axis are neighbours."""
    if name == "transformer":
        return SPLIT[devices]
    if name in ("GPipe", "1F1B"):
        return [{"data": devices // 8, "stage": 8}]
    if name == "tensor":
        return [{"data": devices // size, "model": size} for size in (8, 32) if size <= devices]
    return [dict.fromkeys(PATTERNS[name].ours.AXES, devices)]


class Case(NamedTuple):
    """A pattern on so many devices."""

    name: str
    devices: int
    mesh: dict[str, int]
    bubble: float
    found: Simulation


def simulated(names: Sequence[str] = tuple(PATTERNS)) -> list[Case]:
    """The patterns of these names on all numbers of devices."""
    return [*cases(names)]


def cases(names: Sequence[str]) -> Iterator[Case]:
    """One simulation after the other."""
    for name in names:
        pattern = PATTERNS[name]
        module = pattern.ours
        for devices in DEVICES:
            for axes in meshes(name, devices):
                assert math.prod(axes.values()) == devices
                sizes = {**SIZES[name], **({"heads": HEADS // axes["model"]} if name == "tensor" else {})}
                types = jax.tree.map(narrow, module.types(**axes, **sizes))
                mesh = AbstractMesh(tuple(axes.values()), tuple(axes))
                bubble = module.bubble(axes["stage"], sizes["microbatches"]) if "stage" in axes else 0.0
                yield Case(name, devices, axes, bubble, fxgrad.simulate(pattern.step(mesh))(*types))


def narrow(each: Any) -> Any:
    """The same type with narrow numbers."""
    return fxgrad.ShapeDtypeStruct(each.shape, each.dtype if each.dtype.kind in "iu" else np.dtype(WORD))
