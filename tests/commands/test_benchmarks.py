"""The workloads of tools/bench: their peers compute the same, and bars, tables and charts say what was measured."""

from __future__ import annotations

import importlib
import io
import json
import shutil
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from rich.console import Console

import fxgrad

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tools"))

catalogue, measure, report, workload, against = (
    importlib.import_module(f"benchmarks.{name}") for name in ("catalogue", "measure", "report", "workload", "against"))

PEERS = {"fxgrad": workload.Peer(lambda: 2.0), "jax": workload.Peer(lambda: np.float32(2.0))}


@pytest.mark.filterwarnings("default")  # the peers' own code has some
@pytest.mark.slow
@pytest.mark.parametrize("name", catalogue.WORKLOADS)
def test_peers_compute_the_same(name, fresh_tables):
    found = catalogue.WORKLOADS[name]
    with jax.enable_x64(found.wide):
        peers = found.make(True)
        assert next(iter(peers)) == workload.OURS
        measure.check_equal(peers, found.tolerance)
        if any(peer.result for peer in peers.values()):  # parts of the work are only prepared, which once shows
            measure.check_equal(peers, found.tolerance)  # and go on doing so


def test_every_line_of_the_table_of_bars_is_measured():
    with_bars = {found.group for found in catalogue.WORKLOADS.values() if found.bars}
    assert with_bars == {"gradient", "declared", "first call", "record", "transform", "lower", "dispatch", "closure",
                         "compiled", "operation", "scan", "while", "library", "library on jax", "dataflow",
                         "training", "cheap gradient", "checks", "control flow", "series", "laplacian", "rolling",
                         "compilation", "sparse", "curvature", "inside", "sparse problem", "stiff"}


@pytest.mark.parametrize(("other", "message"), [
    (lambda: 2.1, "jax differs from fxgrad by 5.0e-02 of the largest entry"),
    (lambda: float("nan"), "jax differs from fxgrad by nan of the largest entry"),
    (lambda: [2.0, 2.0], "jax returns 2 arrays, fxgrad 1"),
    (lambda: np.array([2.0]), r"jax returns an array \(1,\), fxgrad \(\)"),
])
def test_a_peer_that_computes_something_else_is_refused(other, message):
    measure.check_equal(PEERS, 1e-6)
    with pytest.raises(measure.DifferentResultsError, match=message):
        measure.check_equal({**PEERS, "jax": workload.Peer(other)}, 1e-6)


@pytest.mark.slow
def test_peers_take_turns():
    turns = []
    calls = {name: lambda name=name: turns.append(name) for name in ("fxgrad", "jax")}
    figures = measure.measure({name: workload.Peer(call, prepare=workload.nothing) for name, call in calls.items()}, 4)
    assert turns[-8:] == ["fxgrad", "jax", "jax", "fxgrad"] * 2
    assert [(found.samples, found.calls) for found in figures.values()] == [(4, 1)] * 2


@pytest.mark.slow
def test_every_call_is_prepared_outside_the_clock():
    log = []
    peer = workload.Peer(lambda: log.append("call"), prepare=lambda: log.append("prepare"))
    measure.measure({"fxgrad": peer}, 3)
    assert log == ["prepare", "call"] * 6  # three to find out how long it takes, three measured


def test_quartiles():
    assert measure.figures([4.0, 1.0, 3.0, 2.0, 5.0], 7) == measure.Figures(3.0, 2.0, 4.0, 5, 7)


TIMES, MEMORY = {"fxgrad": 12.0, "jax.jit": 10.0, "scope": 1.0}, {"fxgrad": 300, "jax.jit": 200}


@pytest.mark.parametrize(("bar", "figure", "limit", "met"), [
    (workload.Ratio("jax.jit", 1.1), 1.2, 1.1, False),
    (workload.Ratio("jax.jit", 1.2), 1.2, 1.2, True),
    (workload.Ratio("jax.jit", 1.1, allowance="scope"), 1.2, 1.2, True),
    (workload.Absolute(3.0, 4, "operation"), 3.0, 3.0, True),
    (workload.Absolute(11.0), 12.0, 11.0, False),
    (workload.Memory("jax.jit", 1.0), 1.5, 1.0, False),
])
def test_bars(bar, figure, limit, met):
    verdict = bar.judge(TIMES, MEMORY)
    assert (verdict.figure, verdict.limit, verdict.met) == pytest.approx((figure, limit, met))


def test_a_bar_against_an_absent_peer_is_left_out():
    assert workload.Ratio("PyTorch", 1.0).judge(TIMES, MEMORY) is None
    assert workload.Memory("PyTorch", 1.0).judge(TIMES, MEMORY) is None


@pytest.fixture
def outcomes():
    figures = {name: {"median": time, "lower": time, "upper": time, "samples": 1, "calls": 1}
               for name, time in TIMES.items()}
    bars = (workload.Ratio("jax.jit", 1.5), workload.Memory("jax.jit", 1.0))
    measured = workload.Workload("dispatch: one", "One", lambda small: PEERS, bars)
    broken = workload.Workload("dispatch: two", "Two", lambda small: PEERS, bars)
    return [report.Outcome(measured, figures, MEMORY), report.Outcome(broken, failure="it broke")]


def test_the_tables_say_in_words_what_is_met(outcomes):
    console = Console(width=120, no_color=True)
    with console.capture() as captured:
        report.show(console, outcomes)
    text = " ".join(captured.get().replace("│", " ").split())
    assert "bars: 1 met, 1 missed" in text
    assert "time of jax.jit met 1.20 x 1.50 x" in text
    assert "memory of jax.jit missed 1.50 x 1.00 x" in text
    assert "failed dispatch: two: it broke" in text


def test_the_line_of_each_workload_has_its_figures_and_bars(outcomes):
    one, two = (report.line(outcome) for outcome in outcomes)
    assert one == ("dispatch: one: fxgrad 12.0 µs, jax.jit 10.0 µs, scope 1.00 µs; time of jax.jit 1.20 x, met; "
                   "memory of jax.jit 1.50 x, missed")
    assert two == "failed dispatch: two: it broke"


def test_the_tables_in_markdown(outcomes):
    text = report.markdown(outcomes)
    assert "| workload | fxgrad | jax.jit | scope |\n| --- | ---: | ---: | ---: |" in text
    assert "| one | 12.0 µs | 10.0 µs (1.20) | 1.00 µs (12.0) |" in text
    assert "| dispatch: one | 300 | 200 (1.50) |" in text
    assert "| dispatch: one | memory of jax.jit | missed | 1.50 x | 1.00 x |" in text


@pytest.mark.parametrize(("number", "text"), [
    (0.0171, "0.0171"), (0.5, "0.500"), (2.0, "2.00"), (123.4, "123"), (999.7, "1,000"), (12345.6, "12,346"), (0, "0")])
def test_three_digits(number, text):
    assert report.digits(number) == text


@pytest.mark.parametrize(("time", "text"), [(0.1234, "0.123 µs"), (12.0, "12.0 µs"), (1500.0, "1.50 ms"),
                                            (2.5e6, "2.50 s")])
def test_durations(time, text):
    assert report.duration(time) == text


def test_json_has_figures_and_verdicts(outcomes):
    found, broken = json.loads(json.dumps([outcome.as_json() for outcome in outcomes]))
    assert found["microseconds"]["fxgrad"]["median"] == 12.0
    assert [bar["met"] for bar in found["bars"]] == [True, False]
    assert broken["failure"] == "it broke"
    assert broken["bars"] == []


@pytest.mark.slow
def test_the_chart_is_drawn(outcomes, tmp_path):
    pytest.importorskip("matplotlib")
    plot = importlib.import_module("benchmarks.plot")
    plot.plot(outcomes, str(tmp_path / "chart.svg"))
    text = (tmp_path / "chart.svg").read_text(encoding="utf-8")
    assert "dispatch: one" in text
    assert "dispatch: two" not in text


class Turns:
    """A side of a comparison that takes these times."""

    def __init__(self, log, times, turn_seconds=0.01):
        self.log, self.times, self.turn_seconds = log, iter(times), turn_seconds

    def turn(self):
        self.log.append(self)
        return next(self.times)


def test_sides_take_turns_and_the_quickest_counts():
    log = []
    sides = Turns(log, [3.0, 1.0, 2.0, 5.0]), Turns(log, [4.0, 4.0, 4.0, 2.0])
    assert against.quickest(sides, 4) == [1.0, 2.0]
    assert log == [*sides, *reversed(sides)] * 2
    slow = [Turns([], [2.0] * 99, 100.0) for _ in range(2)]
    against.quickest(slow, 31)
    assert [len(side.log) for side in slow] == [measure.FEWEST] * 2


def test_ratios_and_their_mean_are_told():
    lines = [against.Line("quick", 1.0, 2.0), against.Line("slow", 4.0, 2.0), against.Line("gone", failure="there: no")]
    assert against.geometric_mean(line.ratio for line in lines[:2]) == pytest.approx(1.0)
    console = Console(record=True, width=100, file=io.StringIO())
    against.show(console, "abc", lines)
    told = [line.split() for line in console.export_text().splitlines()]
    rows = [[word for word in line if word != "│"] for line in told]
    assert [row[-1] for row in rows if row and row[0] in {"slow", "quick", "geometric"}] == ["2.00", "0.500", "1.00"]
    assert ["gone:", "there:", "no"] in told


@pytest.mark.slow
def test_a_workload_is_measured_on_another_tree(tmp_path):
    """The other tree is one with a copy of the package, for there is not always a repository."""
    shutil.copytree(Path(fxgrad.__file__).parent, tmp_path / "fxgrad")
    line = against.compared("gradient: scalar, Python float", tmp_path, 5, "cpu")
    assert not line.failure
    assert 0 < line.here < 1e4
    assert 0 < line.there < 1e4
    (tmp_path / "fxgrad" / "__init__.py").write_text("raise ValueError('an old version')")
    line = against.compared("gradient: scalar, Python float", tmp_path, 5, "cpu")
    assert line.failure == "there: ValueError: an old version"


def test_a_commit_that_is_none_is_told():
    with pytest.raises(against.FailedError), against.tree_of("nonsense"):
        pass
