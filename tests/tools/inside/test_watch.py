"""`watch`: values by name at each step or at some, to each kind of receiver, with results that stay to the bit."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
from fxgrad.errors import ArgumentError, UnsupportedError

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(8, 3)).astype("float32")
PARAMS = {"w": RANDOM.normal(size=(3, 4)).astype("float32"), "v": RANDOM.normal(size=4).astype("float32")}


def loss_of(params: Any, x: Any) -> Any:
    h = np.tanh(x @ params["w"])
    return np.mean((h @ params["v"] - 0.1) ** 2)


def train(params: Any, x: Any) -> Any:
    loss, grads = fxgrad.value_and_grad(loss_of)(params, x)  # noqa: RUF059  (watched)
    params = {name: params[name] - 0.1 * grads[name] for name in params}
    return params


@pytest.mark.parametrize("jitted", [False, True])
def test_values_are_those_of_the_step_and_results_stay_to_the_bit(jitted: bool) -> None:
    function = fxgrad.jit(train) if jitted else train
    seen: list[tuple[int, dict[str, Any]]] = []
    watched = fxgrad.watch(function, "loss", "grads.norm", "h.mean", "grads.w", every=3,
                           to=lambda step, values: seen.append((step, values)))
    ours = plain = PARAMS
    for step in range(7):
        if step % 3 == 0:
            loss, grads = fxgrad.value_and_grad(loss_of)(plain, X)
            expected = {"loss": loss, "grads.norm": np.sqrt(np.sum(np.asarray(grads["w"]) ** 2) + np.sum(
                np.asarray(grads["v"]) ** 2)), "h.mean": np.mean(np.tanh(X @ plain["w"])), "grads.w": grads["w"]}
        ours, plain = watched(ours, X), function(plain, X)
        if step % 3 == 0:
            assert seen[-1][0] == step
            assert [*seen[-1][1]] == [*expected]
            for name, value in expected.items():
                assert isinstance(seen[-1][1][name], np.ndarray)
                np.testing.assert_allclose(seen[-1][1][name], value, rtol=2e-5, atol=1e-7)
    assert len(seen) == 3
    for name in PARAMS:
        np.testing.assert_array_equal(np.asarray(ours[name]), np.asarray(plain[name]))


def test_donated_arguments_are_watched_before_they_are_gone() -> None:
    seen: list[Any] = []
    step = fxgrad.watch(fxgrad.jit(train, donate_argnums=0), "loss",
                        to=lambda step, values: seen.append(values["loss"]))
    params = {name: jnp.array(value) for name, value in PARAMS.items()}
    for _ in range(3):
        params = step(params, X)
    assert seen[0] > seen[1] > seen[2]


@pytest.mark.parametrize("wrap", [
    lambda f, n: fxgrad.jit(lambda p: fxgrad.lax.fori_loop(0, n, lambda _, p: f(p, X), p)),
    lambda f, n: fxgrad.jit(lambda p: fxgrad.lax.scan(lambda p, x: (f(p, x), None), p, np.stack([X] * n))[0])],
    ids=["fori_loop", "scan"])
def test_values_inside_of_traced_functions_arrive_at_each_run(wrap: Callable[..., Any]) -> None:
    seen: list[tuple[int, float]] = []
    step = fxgrad.watch(train, "loss", every=2, to=lambda step, values: seen.append((step, float(values["loss"]))))
    result = wrap(step, 5)(PARAMS)
    jax.effects_barrier()
    params, losses = PARAMS, []
    for _ in range(5):
        losses.append(float(loss_of(params, X)))
        params = train(params, X)
    assert sorted(number for number, _ in seen) == [0, 2, 4]
    np.testing.assert_allclose([loss for _, loss in sorted(seen)], losses[::2], rtol=1e-5)
    np.testing.assert_allclose(result["w"], params["w"], rtol=1e-4)


def test_lines_of_text(capsys: Any) -> None:
    watched = fxgrad.watch(train, "loss", "h", every=2)
    params = watched(PARAMS, X)
    watched(params, X)
    h = np.tanh(X @ PARAMS["w"]).astype("float64")
    loss = float(loss_of(PARAMS, X))
    assert capsys.readouterr().out == f"step 0  loss {loss:.6g}  h {h.mean():.6g} ± {h.std():.3g}\n"


@pytest.mark.slow
def test_a_table_of_the_last_steps(capsys: Any) -> None:
    watched = fxgrad.watch(train, "loss", "grads.norm", to="table")
    params = PARAMS
    losses = []
    for _ in range(12):
        losses.append(float(loss_of(params, X)))
        params = watched(params, X)
    del watched
    gc.collect()
    lines = [line for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert [line.split("│")[1].strip() for line in lines] == [str(step) for step in range(2, 12)]
    assert f"{losses[2]:.4g}"[:5] in lines[0]


class Writer:
    """What TensorBoard's writer takes."""

    def __init__(self) -> None:
        self.scalars: list[Any] = []
        self.histograms: list[Any] = []

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.append((name, value, step))

    def add_histogram(self, name: str, value: Any, step: int) -> None:
        self.histograms.append((name, value.shape, step))


def test_curves_writers_and_several_receivers() -> None:
    curves, writer = fxgrad.debug.Curves(), Writer()
    watched = fxgrad.watch(train, "loss", "h", to=[curves, writer])
    watched(watched(PARAMS, X), X)
    assert curves["loss"].shape == (2,)
    assert curves["h"].shape == (2, 8, 4)
    assert [(name, step) for name, _, step in writer.scalars] == [("loss", 0), ("loss", 1)]
    assert writer.scalars[1][1] == float(curves["loss"][1])
    assert writer.histograms == [("h", (8, 4), 0), ("h", (8, 4), 1)]


def test_curves_have_the_numbers_of_the_steps() -> None:
    curves, params = fxgrad.debug.Curves(), PARAMS
    watched = fxgrad.watch(train, "loss", every=3, to=curves)
    for _ in range(7):
        params = watched(params, X)
    np.testing.assert_array_equal(curves.steps("loss"), [0, 3, 6])
    pytest.importorskip("matplotlib")
    np.testing.assert_array_equal(curves.figure().axes[0].lines[0].get_xdata(), [0, 3, 6])


def test_a_figure_in_a_notebook_grows(notebook: list[Any]) -> None:
    pytest.importorskip("matplotlib")
    watched = fxgrad.watch(train, "loss", to="plot")
    watched(watched(PARAMS, X), X)
    assert [data["image/png"][:4] for data in notebook] == [b"\x89PNG"] * 2
    assert notebook[0]["image/png"] != notebook[1]["image/png"]


def test_a_table_in_a_notebook_is_replaced(notebook: list[Any], capsys: Any) -> None:
    watched = fxgrad.watch(train, "loss", to="table")
    watched(watched(PARAMS, X), X)
    loss = f"{float(loss_of(PARAMS, X)):.6g}"
    rows = [[line for line in data["text/html"].splitlines() if "│" in line] for data in notebook]
    assert [len(row) for row in rows] == [1, 2]
    assert loss in rows[0][0]
    assert loss in rows[1][0]
    assert capsys.readouterr() == ("", "")


def test_figures_are_for_notebooks() -> None:
    with pytest.raises(UnsupportedError, match=r'watch: to="plot" shows a figure in a notebook, and this is none\. '
                                               r"Write curves = fxgrad\.debug\.Curves\(\), to=curves, and "
                                               r"curves\.figure\(\) at the end"):
        fxgrad.watch(train, "loss", to="plot")


@pytest.mark.parametrize(("call", "message"), [
    (lambda: fxgrad.watch(train), 'watch: no path is given. Write fxgrad.watch(f, "loss")'),
    (lambda: fxgrad.watch(train, "loss", every=0),
     "watch: every=0, where a number of calls is needed, such as every=10"),
    (lambda: fxgrad.watch(train, "loss", to=3),
     ("watch: to=3, where a function of the step and the values, fxgrad.debug.Curves(), an object with add_scalar, "
      '"table", "plot" or None is needed')),
    (lambda: fxgrad.watch(train, "lss")(PARAMS, X), "watch: train has no value 'lss'. Did you mean 'loss'?"),
    (lambda: fxgrad.watch(train, "hidden.norm")(PARAMS, X),
     ("watch: train has no value 'hidden'. It has params.v, params.w, x, loss_of.h, loss, loss_of.d_params.v, grads.v, "
      "loss_of.d_h, loss_of.d_params.w, grads.w")),
    (lambda: fxgrad.watch(train, "loss.median")(PARAMS, X),
     ("watch: 'loss.median' ends in 'median', which is neither a value in 'loss' nor one of norm, mean, std, min, max, "
      "rms, nans")),
])
def test_what_is_wrong_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        call()
    assert str(raised.value).partition("\n")[0] == message
