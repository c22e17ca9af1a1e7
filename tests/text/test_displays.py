"""What notebooks show of every object that has a display of its own: once, and with its columns below each other."""

from __future__ import annotations

import builtins
import importlib
import io
import pkgutil
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import rich.jupyter
from jax.sharding import AbstractMesh

import fxgrad
from fxgrad import P, ShapeDtypeStruct
from fxgrad.engine.rooms import registry
from fxgrad.text import side_by_side
from fxgrad.text.display import print_program
from fxgrad.tools.cards import card
from fxgrad.tools.profiling.fusion import fusions

formatters = pytest.importorskip("IPython.core.formatters")
x, w = np.ones(3), np.ones((3, 3))


def loss(w: Any, x: Any) -> Any:
    with fxgrad.named_scope("layer"):
        hidden = np.tanh(w @ x)
    return np.sum(fxgrad.nn.softmax(hidden) * np.log(x / np.sum(x)))


def _explained() -> Any:
    explained = fxgrad.explain_retraces(fxgrad.jit(lambda x: x * 2.0))
    explained(np.ones(2))
    return explained


MESH = AbstractMesh((2,), ("data",))
_sharded = fxgrad.shard_map(lambda x: fxgrad.lax.psum(np.sum(x), "data"), mesh=MESH, in_specs=P("data"), out_specs=P())


def _unfollowed(x: Any) -> Any:
    return np.sum(np.fft.fft(x).real)


OBJECTS = {
    "tools.profiling.benchmarking.Benchmark": [lambda: fxgrad.benchmark(np.sin, seconds=0.001, rounds=1)(1.0)],
    "tools.cards.Card": [lambda: card(registry["sin"])],
    "text.columns.Columns": [lambda: side_by_side(loss, fxgrad.grad(loss))(w, x)],
    "tools.profiling.costs.CostReport": [lambda: fxgrad.cost_analysis(fxgrad.grad(loss))(w, x)],
    "tools.profiling.budgets.BudgetCurve": [lambda: fxgrad.budget_curve(loss)(w, x)],
    "text.difference.Difference": [
        lambda: fxgrad.make_program(np.sin)(x).diff(fxgrad.make_program(np.cos)(x))],
    "tools.pictures.drawing.Drawing": [lambda: fxgrad.draw(loss)(w, x)],
    "tools.retracing.watching.Explained": [_explained],
    "tools.retracing.report.RetraceReport": [lambda: _explained().report],
    "tools.graphs.backward.BackwardTable": [lambda: fxgrad.graph(loss)(w, x).backward_table()],
    "shipping.exports.Exported": [lambda: fxgrad.export(loss)(w, x)],
    "tools.numerics.bounds.Bounds": [lambda: fxgrad.bounds(np.sin)((0.0, 1.0))],
    "tools.numerics.findings.Findings": [lambda: fxgrad.lint(loss)(w, x), lambda: fxgrad.lint(np.sin)(x)],
    "tools.profiling.fusion.Fusions": [lambda: fusions(loss)(w, x)],
    "tools.granularity.comparison.Granularities": [lambda: fxgrad.compare_granularities(loss)(w, x)],
    "tools.profiling.report.Memory": [lambda: fxgrad.memory_analysis(fxgrad.grad(loss))(w, x)],
    "tools.numerics.nan_origins.NanOrigin": [lambda: fxgrad.debug.find_nan(np.log)(-1.0),
                                             lambda: fxgrad.debug.find_nan(np.sin)(1.0)],
    "tools.explorer.page.Page": [lambda: fxgrad.visualize(loss)(w, x)],
    "training.autocast_policies.AutocastPolicy": [lambda: fxgrad.autocast_policies.bfloat16],
    "tools.profiling.policies.PolicyReport": [
        lambda: fxgrad.policy_report(loss, fxgrad.checkpoint_policies.nothing_saveable)(w, x)],
    "tools.numerics.precision_report.PrecisionReport": [
        lambda: fxgrad.debug.precision_report(loss)(w, x), lambda: fxgrad.debug.precision_report(_unfollowed)(x)],
    "engine.core.program.Program": [lambda: fxgrad.make_program(fxgrad.grad(loss))(w, x)],
    "tools.graphs.proposals.Proposal": [lambda: fxgrad.infer_roles(fxgrad.make_program(loss)(w, x))],
    "tools.profiling.simulation.Simulation": [lambda: fxgrad.simulate(_sharded)(ShapeDtypeStruct((4,), np.float32))],
    "tools.granularity.summary.Summary": [lambda: fxgrad.tabulate(loss)(w, x)],
    "tools.inside.paths.Values": [lambda: fxgrad.names(loss)(w, x)],
    "training.curvature.listing.Layers": [lambda: fxgrad.curvature.layers(lambda w, x: loss(w, x))(w, x[None])],
    "training.curvature.reporting.CurvatureReport": [
        lambda: fxgrad.curvature.report(lambda w: np.tanh(w), lambda y: np.sum(y ** 2))(w)],
}
"""By the place of their class: objects of all kinds, with those that show something else than a table."""


class ZMQInteractiveShell:
    """What `get_ipython()` gives in a kernel: rich knows one by the name of the class."""


@pytest.fixture
def displayed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What anything displays by itself while we are in a kernel."""
    shown: list[Any] = []
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    monkeypatch.setattr(rich.jupyter, "display", lambda *args: shown.append(args))
    return shown


class _Text(HTMLParser):
    """The text of a page, and the text in elements that keep it in columns whatever else a page says."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[bool] = []
        self.in_columns = self.elsewhere = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        style = dict(attributes).get("style") or ""
        self.open.append(tag == "style" or ("white-space: pre;" in style and "monospace" in style))
        self.in_columns += "\n" * (tag == "div")

    def handle_endtag(self, tag: str) -> None:
        self.open.pop()
        self.in_columns += "\n" * (tag == "div")

    def handle_data(self, data: str) -> None:
        if any(self.open):
            self.in_columns += data
        else:
            self.elsewhere += data.strip()


def _with_displays() -> set[str]:
    """The public classes of the library that have a display of its own in notebooks, by their places."""
    found = set()
    for module in pkgutil.walk_packages(fxgrad.__path__, "fxgrad."):
        if module.name != "fxgrad.__main__":
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, type) and value.__module__ == module.name and not name.startswith("_"):
                    names = {each for base in value.__mro__ if base.__module__.startswith("fxgrad.")
                             for each in vars(base)}
                    if not names.isdisjoint(("_repr_html_", "__rich__", "__rich_console__")):
                        found.add(f"{module.name}.{name}".removeprefix("fxgrad."))
    return found - {"text.tables.Report"}


def test_all_objects_with_displays_are_here() -> None:
    assert _with_displays() == {*OBJECTS}


@pytest.mark.slow
def test_notebooks_show_objects_once_and_in_columns(displayed: list[Any]) -> None:
    wrong = []
    show = formatters.DisplayFormatter().format
    for name, makes in OBJECTS.items():
        for make in makes:
            shown = make()
            data, _ = show(shown)
            page = _Text(data["text/html"])
            if displayed or "\x1b" in data["text/plain"]:
                wrong.append(f"{name} displays something beside what it returns")
            displayed.clear()
            is_text = not data["text/html"].startswith(("<svg", "<iframe"))
            expected = [line.rstrip() for line in str(shown).splitlines() if line.strip()]
            if name == "text.columns.Columns":
                expected = []  # its columns are elements of their own
            got = [line.rstrip() for line in page.in_columns.splitlines() if line.strip()]
            if is_text and (page.elsewhere or not set(expected) <= set(got)):
                wrong.append(f"{name}: {page.elsewhere[:60]!r} {[each for each in expected if each not in got][:2]}")
    assert not wrong, wrong


def test_what_is_printed_to_a_file_goes_there_in_notebooks(displayed: list[Any]) -> None:
    program, file = fxgrad.make_program(lambda x: np.sin(x))(1.0), io.StringIO()
    print_program(program, file=file)
    assert file.getvalue().startswith("program function(x: f64*) -> f64*:")
    assert fxgrad.text.program_text(program, color=True).startswith("\x1b[1mprogram")
    assert not displayed
    print_program(program)
    assert len(displayed) == 1
