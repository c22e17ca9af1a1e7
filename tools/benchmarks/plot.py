"""The ratios as a chart: one line for each workload, the bars that fxgrad is held to marked on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.report import Outcome
from benchmarks.workload import OURS, Ratio

COLOURS = {"hand-written": "#444444", "PyTorch": "#d1495b", "autograd": "#edae49", "jax": "#00798c",
           "jax.jit": "#003d5b", "jax.jit, scan": "#8f6bb3"}
"""The peers that are drawn, in the order of the legend."""


def plot(outcomes: Sequence[Outcome], path: str) -> None:
    """Draws to a file, whose ending says the format: how many times fxgrad's each peer's time is, on a log axis.

    To the left of 1 fxgrad is slower than the peer, to the right it is faster; a tick stands where a bar is.
    """
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams["svg.fonttype"] = "none"  # text stays text
    import matplotlib.pyplot as plt

    drawn = [outcome for outcome in outcomes if not outcome.failure]
    figure, axes = plt.subplots(figsize=(10, 1.6 + 0.32 * len(drawn)), layout="constrained")
    for row, outcome in enumerate(drawn):
        axes.axhline(row, color="#eeeeee", zorder=0)
        for peer, median in outcome.medians.items():
            if peer in COLOURS:
                axes.plot(median / outcome.medians[OURS], row, "o", color=COLOURS[peer], zorder=3)
        for bar in outcome.workload.bars:
            verdict = bar.judge(outcome.medians, outcome.memory)
            if isinstance(bar, Ratio) and verdict is not None:
                axes.plot(1 / verdict.limit, row, "|", color=COLOURS.get(bar.peer, "black"), markersize=14,
                          markeredgewidth=2, zorder=2)
    _label(axes, drawn)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _label(axes: Any, drawn: Sequence[Outcome]) -> None:
    """Axes, legend and the line where the peer takes as long as fxgrad."""
    axes.set_xscale("log")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(drawn)), [outcome.workload.name for outcome in drawn])
    axes.set_ylim(len(drawn) - 0.5, -0.5)
    axes.set_xlabel("time of the peer as a multiple of fxgrad's (right of 1: fxgrad is faster)")
    present = [peer for peer in COLOURS if any(peer in outcome.times for outcome in drawn)]
    marks = [axes.plot([], [], "o", color=COLOURS[peer], label=peer)[0] for peer in present]
    marks.append(axes.plot([], [], "|", color="black", markersize=12, markeredgewidth=2,
                           label="bar: the peer's dot is to be at it or to its right")[0])
    axes.figure.legend(handles=marks, loc="outside lower center", ncols=4, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
