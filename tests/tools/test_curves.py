"""`debug.plot` and `debug.progress`: what running programs leave, without changing their results."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import re
import sys
from typing import Any

import jax
import numpy as np
import pytest
from rich.console import Console

import fxgrad
from fxgrad import debug, lax
from fxgrad.errors import ArgumentError, UnsupportedError

X = np.linspace(0.1, 0.7, 20)


@pytest.fixture
def shown(monkeypatch) -> io.StringIO:
    """What bars show: a terminal of 100 columns."""
    written = io.StringIO()
    monkeypatch.setattr(debug, "_console", lambda: Console(file=written, force_terminal=True, width=100))
    return written


def body(carry: Any, x: Any) -> Any:
    """A step of a recurrence."""
    return np.tanh(carry * x + 0.3), carry * 2.0


def bits(values: Any) -> list[bytes]:
    return [np.asarray(value).tobytes() for value in jax.tree.leaves(values)]


LOOPS: dict[str, Any] = {
    "scan": lambda f: lax.scan(f, 0.5, X),
    "jitted scan": lambda f: fxgrad.jit(lambda x: lax.scan(f, 0.5, x))(X),
    "gradient of a scan": lambda f: fxgrad.grad(lambda x: np.sum(lax.scan(f, 0.5, x)[1]))(X),
    "jitted gradient of a scan": lambda f: fxgrad.jit(fxgrad.grad(lambda x: np.sum(lax.scan(f, 0.5, x)[1])))(X),
    "a loop in Python": lambda f: [f(0.5, x) for x in X],
    "vmap": lambda f: fxgrad.vmap(lambda c: lax.scan(f, c, X)[0])(np.array([0.1, 0.2, 0.3])),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_bar_shows_each_run_and_changes_no_bit(shown, name) -> None:
    loop = LOOPS[name]
    with_bar = loop(debug.progress(body, len(X), "steps"))
    jax.effects_barrier()
    assert bits(with_bar) == bits(loop(body))
    assert "steps" in shown.getvalue()
    assert "20/20" in shown.getvalue()


@pytest.mark.parametrize("jitted", [False, True])
def test_bars_of_fori_loops_and_of_loops_that_begin_anew(shown, jitted) -> None:
    step = debug.progress(lambda i, c: c * 0.9 + i, 7)
    run = (fxgrad.jit if jitted else lambda f: f)(lambda c: lax.fori_loop(0, 7, step, c))
    for turn in range(2):
        assert float(run(0.1)) == float(lax.fori_loop(0, 7, lambda i, c: c * 0.9 + i, 0.1))
        jax.effects_barrier()
        assert shown.getvalue().count("7/7") >= turn + 1


@pytest.mark.slow
def test_a_bar_in_a_notebook_is_replaced(notebook: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug, "_REFRESH", 0.0)
    step = debug.progress(lambda x: x + 1, 3, "steps")
    for _ in range(3):
        step(1)
    assert [re.search(r"[0-3]/3", data["text/html"]).group() for data in notebook] == ["1/3", "2/3", "3/3", "3/3"]


@pytest.mark.slow
def test_a_bar_that_is_left_ends_with_its_function(shown) -> None:
    step = debug.progress(lambda x: x + 1, 10)
    for _ in range(3):
        step(1.0)
    del step
    gc.collect()
    assert "3/10" in shown.getvalue()


@pytest.mark.parametrize(("call", "message"), [
    (lambda: debug.progress(body, 0),
     "debug.progress: total=0, where the number of runs is needed, such as total=1000"),
    (lambda: debug.progress(body, 2.5),
     "debug.progress: total=2.5, where the number of runs is needed, such as total=1000"),
    (lambda: debug.progress(3, 3), "debug.progress: got a int, where the body of a loop, a function, is needed"),
    (lambda: debug.plot({}, loss=1.0),
     "debug.plot: got a dict. Write curves = fxgrad.debug.Curves(), and debug.plot(curves, loss=loss)"),
    (lambda: debug.plot(debug.Curves()),
     "debug.plot: got no values. Write curves = fxgrad.debug.Curves(), and debug.plot(curves, loss=loss)"),
    (lambda: debug.plot(debug.Curves(), loss="high"),
     "debug.plot: kwargs.loss is a str, where an array or a number is needed"),
    (lambda: debug.Curves()["loss"], "curves['loss']: there are no values of that name; there are none yet"),
    (lambda: debug.Curves().figure(),
     "curves.figure: there are no values yet. Call fxgrad.debug.plot(curves, name=value) in the function, and run it"),
])
def test_wrong_input_is_refused(call, message) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    assert str(caught.value).split("\n")[0].startswith(message)


# --- curves -----------------------------------------------------------------------------------------------------------


def descent(curves: Any, wrap: Any) -> Any:
    def loss(w: Any) -> Any:
        value = np.sum((w - 1.0) ** 2)
        debug.plot(curves, loss=value, weights=w)
        return value
    step = wrap(lambda w: w - 0.1 * fxgrad.grad(loss)(w))
    w = np.arange(4.0)
    for _ in range(5):
        w = step(w)
    jax.effects_barrier()
    return w


def test_values_by_step_are_those_of_the_loop_un_jitted_and_jitted() -> None:
    expected, w = [], np.arange(4.0)
    for _ in range(5):
        expected.append(w)
        w = w - 0.2 * (w - 1.0)
    for wrap in (lambda f: f, fxgrad.jit):
        curves = debug.Curves()
        np.testing.assert_allclose(descent(curves, wrap), w, rtol=1e-12)
        assert curves.names == ["loss", "weights"]
        np.testing.assert_allclose(curves["weights"], expected, rtol=1e-12)
        np.testing.assert_allclose(curves["loss"], [np.sum((each - 1.0) ** 2) for each in expected], rtol=1e-12)


def test_values_of_a_scan_come_in_order_and_under_vmap_by_entry() -> None:
    curves = debug.Curves()

    def step(c: Any, x: Any) -> Any:
        debug.plot(curves, carry=c)
        return c + x, None
    lax.scan(step, 0.0, np.arange(4.0))
    np.testing.assert_array_equal(curves["carry"], [0.0, 0.0, 1.0, 3.0])
    batched = debug.Curves()
    fxgrad.vmap(lambda x: debug.plot(batched, x=x) or x)(np.arange(3.0))
    np.testing.assert_array_equal(batched["x"], np.arange(3.0))


def test_arrays_are_copied() -> None:
    curves, x = debug.Curves(), np.ones(2)
    curves.add(x=x)
    x[:] = 5.0
    np.testing.assert_array_equal(curves["x"], np.ones((1, 2)))


def test_steps_are_counted_by_name_unless_they_are_given() -> None:
    curves = debug.Curves()
    curves.add(loss=1.0)
    curves.add_at(4, loss=0.5, step=2.0)
    curves.add(loss=0.2, step=3.0)
    np.testing.assert_array_equal(curves.steps("loss"), [0, 4, 5])
    np.testing.assert_array_equal(curves.steps("step"), [4, 5])
    with pytest.raises(ArgumentError, match=r"^curves\.steps\('w'\): there are no values of that name; there are loss, "
                                            r"step\n"):
        curves.steps("w")


def test_the_figure_has_a_line_for_each_value(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    curves = debug.Curves()
    descent(curves, lambda f: f)
    figure = curves.figure()
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "weights"]
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), curves["loss"])
    np.testing.assert_allclose(figure.axes[1].lines[0].get_ydata(), np.median(curves["weights"], axis=1))
    figure.savefig(tmp_path / "curves.png")
    for shown in (curves, figure):  # in a notebook, though pyplot is not loaded
        assert shown._repr_png_()[:4] == b"\x89PNG"
    assert repr(curves) == f"<curves of loss, weights: {len(curves['loss'])} steps>"
    assert debug.Curves()._repr_png_() is None
    assert repr(debug.Curves()) == "<curves of nothing: 0 steps>"
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_tensorboard_reads_scalars_and_histograms(tmp_path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    curves = debug.Curves()
    descent(curves, lambda f: f)
    path = curves.write_tensorboard(tmp_path)
    read = EventAccumulator(str(path), size_guidance={"histograms": 0})
    read.Reload()
    assert read.Tags()["scalars"] == ["loss"]
    np.testing.assert_allclose([event.value for event in read.Scalars("loss")], curves["loss"], rtol=1e-6)
    assert [event.step for event in read.Scalars("loss")] == [*range(5)]
    histograms = [event.histogram_value for event in read.Histograms("weights")]
    assert [histogram.num for histogram in histograms] == [4.0] * 5
    np.testing.assert_allclose([histogram.sum for histogram in histograms], curves["weights"].sum(axis=1))
    np.testing.assert_allclose([histogram.max for histogram in histograms], curves["weights"].max(axis=1))


@pytest.mark.parametrize(("module", "call", "message"), [
    ("matplotlib.figure", lambda curves, _: curves.figure(),
     ("curves.figure needs matplotlib, which is not installed. Write pip install matplotlib, or take the numbers, "
      "curves['name']")),
    ("tensorboard.compat.proto", lambda curves, folder: curves.write_tensorboard(folder),
     ("curves.write_tensorboard needs the package tensorboard, which is not installed: pip install 'fxgrad[viewers]'. "
      "curves.figure() needs matplotlib alone")),
])
def test_without_the_packages(monkeypatch, tmp_path, module, call, message) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    curves = debug.Curves()
    curves.add(loss=1.0)
    with pytest.raises(UnsupportedError) as caught:
        call(curves, tmp_path)
    assert str(caught.value).split("\n")[0] == message


def test_curves_are_pickled_and_copied() -> None:
    curves = debug.Curves()
    curves.add(loss=1.0, w=np.ones(2))
    for made in (pickle.loads(pickle.dumps(curves)), copy.deepcopy(curves)):
        made.add(loss=2.0)
        np.testing.assert_array_equal(made["loss"], [1.0, 2.0])
        np.testing.assert_array_equal(made["w"], [[1.0, 1.0]])
        made.adding(loss=3.0)
        assert made.steps("loss").tolist() == [0, 1, 2]
    np.testing.assert_array_equal(curves["loss"], [1.0])
