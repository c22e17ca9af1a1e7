"""The twelve uses of docs/appendix/inside.md on a small transformer, each against the code written out."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp

RANDOM = np.random.default_rng(0)
SHAPES = {"query": (4, 4), "key": (4, 4), "value": (4, 4), "up": (4, 8), "down": (8, 4)}
PARAMS = [{name: RANDOM.normal(size=shape) / 2 for name, shape in SHAPES.items()} for _ in range(2)]
X, OTHER = RANDOM.normal(size=(2, 3, 4))


def attention(p: Any, x: Any) -> Any:
    scores = x @ p["query"] @ (x @ p["key"]).T
    weights = fxgrad.nn.softmax(scores)
    return weights @ x @ p["value"]


def layer(p: Any, x: Any) -> Any:
    mixed = attention(p, x)
    x = x + mixed
    h = np.tanh(x @ p["up"])
    out = x + h @ p["down"]
    return out


def model(params: Any, x: Any) -> Any:
    for number, p in enumerate(params):
        with fxgrad.named_scope(f"layer{number}"):
            x = layer(p, x)
    logits = x.sum(axis=0)
    return logits


def loss(params: Any, x: Any) -> Any:
    return np.sum(model(params, x) ** 2)


def written_out(params: Any, x: Any, change: Any = lambda name, value: value) -> tuple[Any, dict[str, Any]]:
    """The model in jax.numpy, where `change` sees each value; all values by layer and name."""
    values: dict[str, Any] = {}

    def see(name: str, value: Any) -> Any:
        values[name] = change(name, value)
        return values[name]

    for number, p in enumerate(params):
        weights = see(f"{number}.weights", jax.nn.softmax(x @ p["query"] @ (x @ p["key"]).T))
        x = x + see(f"{number}.mixed", weights @ x @ p["value"])
        h = see(f"{number}.h", jnp.tanh(x @ p["up"]))
        x = see(f"{number}.out", x + h @ p["down"])
    return x.sum(axis=0), values


@pytest.fixture(autouse=True)
def _wide() -> Any:
    with jax.enable_x64(True):
        yield


def by_hand(params: Any, x: Any, change: Any = lambda name, value: value) -> Any:
    return jnp.sum(written_out(params, x, change)[0] ** 2)


def assert_same(found: Any, expected: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)


def test_activations_of_all_layers() -> None:
    logits, values = fxgrad.capture(model, "layer*.h")(PARAMS, X)
    expected, known = written_out(PARAMS, X)
    assert_same([logits, values["layer0.layer.h"], values["layer1.layer.h"]], [expected, known["0.h"], known["1.h"]])


def test_activation_patching() -> None:
    clean = fxgrad.capture(model, "layer1.weights")(PARAMS, X)[1]
    patched = fxgrad.replace(model, clean)(PARAMS, OTHER)
    weights = written_out(PARAMS, X)[1]["1.weights"]
    assert_same(patched, written_out(PARAMS, OTHER, lambda name, value: weights if name == "1.weights" else value)[0])


def test_ablation() -> None:
    without = fxgrad.replace(model, {"layer1.mixed": 0.0})(PARAMS, X)
    assert_same(without, written_out(PARAMS, X, lambda name, value: value * (name != "1.mixed"))[0])


def shifted(name: str) -> Any:
    return lambda shift: by_hand(PARAMS, X, lambda each, value: value + shift if each == name else value)


def test_gradients_at_a_layer() -> None:
    assert_same(fxgrad.grad(loss, wrt="layer0.h")(PARAMS, X), jax.grad(shifted("0.h"))(jnp.zeros((3, 8))))


def test_feature_extraction() -> None:
    features, rest = fxgrad.split(model, at="layer0.out")
    assert_same(features(PARAMS, X), written_out(PARAMS, X)[1]["0.out"])
    assert_same(rest(features(PARAMS, X), PARAMS, X), model(PARAMS, X))


def test_freezing() -> None:
    frozen = fxgrad.grad(fxgrad.replace(loss, {"layer0.out": fxgrad.stop_gradient}))(PARAMS, X)
    expected = jax.grad(lambda params: by_hand(params, X, lambda name, value: jax.lax.stop_gradient(
        value) if name == "0.out" else value))(PARAMS)
    assert_same(frozen, expected)


def test_saliency() -> None:
    slope = fxgrad.grad(loss, wrt="layer0.weights")(PARAMS, X)
    assert_same(slope, jax.grad(shifted("0.weights"))(jnp.zeros((3, 3))))


def test_intermediate_losses() -> None:
    def with_penalty(params: Any, x: Any) -> Any:
        logits, values = fxgrad.capture(model, "layer*.h")(params, x)
        return np.sum(logits ** 2) + 0.1 * sum(np.mean(h ** 2) for h in values.values())

    def penalised(params: Any) -> Any:
        logits, values = written_out(params, X)
        return jnp.sum(logits ** 2) + 0.1 * (jnp.mean(values["0.h"] ** 2) + jnp.mean(values["1.h"] ** 2))

    assert_same(fxgrad.grad(with_penalty)(PARAMS, X), jax.grad(penalised)(PARAMS))
    assert_same(fxgrad.jit(fxgrad.grad(with_penalty))(PARAMS, X), jax.grad(penalised)(PARAMS))


def test_swapping_a_layer() -> None:
    before, behind = fxgrad.split(model, at="layer0.out")[0], fxgrad.split(model, at="layer1.out")[1]
    swapped = behind(np.tanh(before(PARAMS, X)), PARAMS, X)
    assert_same(swapped, np.tanh(written_out(PARAMS, X)[1]["0.out"]).sum(axis=0))


def rollout(w: Any, first: Any) -> Any:
    def step(state: Any, _: Any) -> Any:
        state = np.tanh(w @ state)
        return state, state
    return fxgrad.lax.scan(step, first, length=5)[1]


def test_teacher_forcing() -> None:
    truth, target = RANDOM.normal(size=(2, 5, 4))

    def wrong(w: Any) -> Any:
        return np.sum((fxgrad.replace(rollout, {"step.state": lambda state: state})(w, truth[0]) - target) ** 2)

    assert_same(fxgrad.replace(rollout, {"step.state": truth})(np.eye(4), np.ones(4)), truth)
    one = fxgrad.replace(rollout, {"step[2].state": truth[2]})(np.eye(4), np.ones(4))
    states = [np.ones(4)]
    for turn in range(5):
        states.append(truth[2] if turn == 2 else np.tanh(states[-1]))
    assert_same(one, np.stack(states[1:]))
    assert_same(fxgrad.grad(wrong)(np.eye(4)), fxgrad.grad(
        lambda w: fnp.sum((rollout(w, truth[0]) - target) ** 2))(np.eye(4)))


def test_statistics_of_a_loop_by_step() -> None:
    states = fxgrad.capture(rollout, "step.state")(np.eye(4), np.ones(4))[1]["step.state"]
    value, means = 1.0, []
    for _ in range(5):
        value = np.tanh(value)
        means.append(value)
    assert_same(states.mean(axis=1), np.array(means))


def test_a_probe_on_a_hidden_state() -> None:
    inputs, truth = RANDOM.normal(size=(80, 3, 4)), RANDOM.normal(size=24)
    head = fxgrad.split(model, at="layer1.h")[0]
    hidden = fxgrad.vmap(head, in_axes=(None, 0))(PARAMS, inputs).reshape(80, -1)
    assert_same(hidden[7].reshape(3, 8), written_out(PARAMS, inputs[7])[1]["1.h"])
    labels = hidden @ truth
    probe = np.linalg.lstsq(hidden, labels, rcond=None)[0]
    np.testing.assert_allclose(hidden @ probe, labels, atol=1e-8)
