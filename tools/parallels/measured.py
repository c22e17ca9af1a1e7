"""One pattern measured: by fxgrad and by jax, in turns, with what XLA says of both compiled programs."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import jax
import numpy as np
from benchmarks.measure import measure
from benchmarks.workload import Peer

import fxgrad
from parallels import hlo
from parallels.patterns import PATTERNS, Pattern, example

Pair = tuple[float, float]
"""Of fxgrad and of jax."""


class Row(NamedTuple):
    """What was found: `differs` is the greatest relative difference from one device, `state` the share of the
    parameters on each device, `exact` whether the program's traffic is that of the compiled program.
    """

    name: str
    differs: float
    operations: tuple[Counter[str], Counter[str]]
    sent: tuple[int, int]
    exact: bool
    state: float
    temporary: tuple[int, int]
    time: Pair
    lowering: Pair


def payload(found: Any) -> Counter[str]:
    """The bytes that are given to collectives, by kind."""
    total: Counter[str] = Counter()
    for each in found:
        total[each.kind] += each.times * each.bytes
    return total


def difference(found: Any, expected: Any) -> float:
    """The greatest difference of two trees of arrays, relative to the greatest entry of each array."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return max(float(np.max(np.abs(np.asarray(a) - np.asarray(b))) / max(np.max(np.abs(b)), 1e-300)) for a, b in pairs)


def laid_out(pattern: Pattern, axes: dict[str, int] | None = None, **sizes: int) -> tuple[Any, Any, Any]:
    """The mesh of a pattern (with these `axes`, or its own), its arguments as NumPy arrays, and those on the mesh."""
    setting, module = example("setting"), pattern.ours
    axes = axes or module.AXES
    mesh = setting.make_mesh(**axes)
    arrays = setting.draw(module.types(**axes, **sizes))
    return mesh, arrays, setting.lay_out(arrays, mesh, module.SPECS)


def measured(name: str, rounds: int, small: bool = False) -> Row:
    """The row of a pattern, in float64."""
    pattern = PATTERNS[name]
    mesh, arrays, laid = laid_out(pattern, **({} if small else pattern.measured))
    expected = fxgrad.value_and_grad(pattern.ours.loss)(*arrays)
    with jax.enable_x64(True):
        ours = fxgrad.jit(pattern.step(mesh)).lower(*laid).compile()
        theirs = jax.jit(pattern.jax_step(mesh)).lower(*laid).compile()
        texts = ours.as_text(), theirs.as_text()
        found = [hlo.transfers(text) for text in texts]
        stated = fxgrad.traffic(fxgrad.make_program(pattern.step(mesh))(*laid))
        times = measure({"fxgrad": Peer(lambda: jax.block_until_ready(ours(*laid))),
                         "jax": Peer(lambda: jax.block_until_ready(theirs(*laid)))}, rounds)
        lowering = measure({
            "fxgrad": Peer(lambda: fxgrad.jit(pattern.step(mesh)).lower(*laid), None),
            "jax": Peer(lambda: jax.jit(pattern.jax_step(mesh)).lower(*laid), None)}, rounds)
        differs = difference(ours(*laid), expected)
    params = jax.tree.leaves(laid[0])
    whole = sum(leaf.nbytes for leaf in params)
    memory = [each.memory_analysis().temp_size_in_bytes for each in (ours, theirs)]
    return Row(name, differs, (hlo.operations(texts[0]), hlo.operations(texts[1])),
               (sum(each.sent for each in found[0]), sum(each.sent for each in found[1])),
               payload(stated) == payload(found[0]), max(example("setting").bytes_on_each(params)) / whole,
               (memory[0], memory[1]), (times["fxgrad"].median, times["jax"].median),
               (lowering["fxgrad"].median, lowering["jax"].median))
