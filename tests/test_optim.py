"""The optimisers beside optax's over a hundred steps, and as functions that are traced."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
import pytest

import fxgrad
from fxgrad import optim
from fxgrad.errors import ArgumentError

RNG = np.random.default_rng(0)
PARAMS = {"w": RNG.normal(size=(3, 2)), "b": [np.zeros(2)]}
X, Y = RNG.normal(size=(10, 3)), RNG.normal(size=(10, 2))


def loss(params):
    return np.mean((np.tanh(X @ params["w"]) + params["b"][0] - Y) ** 2)


PAIRS: dict[str, tuple[optim.Optimizer, Any]] = {
    "sgd": (optim.sgd(0.1), optax.sgd(0.1)),
    "momentum": (optim.sgd(0.1, 0.9), optax.sgd(0.1, 0.9)),
    "nesterov": (optim.sgd(0.1, 0.9, nesterov=True), optax.sgd(0.1, 0.9, nesterov=True)),
    "decay": (optim.sgd(0.1, 0.9, weight_decay=0.01),
              optax.chain(optax.add_decayed_weights(0.01), optax.sgd(0.1, 0.9))),
    "adam": (optim.adam(0.05), optax.adam(0.05)),
    "adam, decay": (optim.adam(0.05, weight_decay=0.1), optax.chain(optax.add_decayed_weights(0.1), optax.adam(0.05))),
    "adamw": (optim.adamw(0.05, 0.8, 0.99, 1e-6, weight_decay=0.1),
              optax.adamw(0.05, 0.8, 0.99, 1e-6, weight_decay=0.1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_a_hundred_steps_are_those_of_optax(name: str) -> None:
    own, other = PAIRS[name]
    params, state = PARAMS, own.init(PARAMS)
    with jax.enable_x64(True):
        theirs, their_state = PARAMS, other.init(PARAMS)
        for _ in range(100):
            params, state = own.update(fxgrad.grad(loss)(params), state, params)
            updates, their_state = other.update(fxgrad.grad(loss)(theirs), their_state, theirs)
            theirs = optax.apply_updates(theirs, updates)
    for one, two in zip(fxgrad.tree.leaves(params), fxgrad.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-9)
    assert loss(params) < loss(PARAMS)


def of_pytorch(name: str, w: Any, gradient: Any, steps: int) -> Any:
    """Parameters after some steps by the algorithms that PyTorch's documentation lists, written out."""
    m, v, buffer = 0.0, 0.0, None
    for count in range(1, steps + 1):
        g = gradient(w)
        if name == "sgd":
            g = g + 0.01 * w
            buffer = g if buffer is None else 0.9 * buffer + g
            w = w - 0.1 * (g + 0.9 * buffer)  # Nesterov's form
            continue
        if name == "adam":
            g = g + 0.1 * w
        else:
            w = w - 0.05 * 0.1 * w
        m, v = 0.8 * m + (1 - 0.8) * g, 0.99 * v + (1 - 0.99) * g ** 2
        w = w - 0.05 / (1 - 0.8 ** count) * m / (np.sqrt(v) / np.sqrt(1 - 0.99 ** count) + 1e-8)
    return w


@pytest.mark.parametrize(("name", "own"), [
    ("sgd", optim.sgd(0.1, 0.9, nesterov=True, weight_decay=0.01)),
    ("adam", optim.adam(0.05, 0.8, 0.99, weight_decay=0.1)),
    ("adamw", optim.adamw(0.05, 0.8, 0.99, weight_decay=0.1)),
])
def test_row_w18_a_hundred_steps_are_pytorchs(name: str, own: optim.Optimizer) -> None:
    slope = fxgrad.grad(lambda w: np.mean((np.tanh(X @ w) - Y[:, 0]) ** 2))
    params, state = PARAMS["w"][:, 0], own.init(PARAMS["w"][:, 0])
    for _ in range(100):
        params, state = own.update(slope(params), state, params)
    np.testing.assert_allclose(params, of_pytorch(name, PARAMS["w"][:, 0], slope, 100), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", PAIRS)
def test_steps_are_traced_and_scanned(name: str) -> None:
    own, _ = PAIRS[name]

    def step(carry, _):
        params, state = carry
        return own.update(fxgrad.grad(loss)(params), state, params), loss(params)

    state = own.init(PARAMS)
    if name.startswith("adam"):
        state = state._replace(count=np.int64(0))
    (last, _), losses = fxgrad.scan(step, (PARAMS, state), None, length=5)
    params, state = PARAMS, own.init(PARAMS)
    for _ in range(5):
        params, state = own.update(fxgrad.grad(loss)(params), state, params)
    np.testing.assert_allclose(last["w"], params["w"], rtol=1e-12)
    assert losses[-1] < losses[0]


def test_a_step_is_differentiated() -> None:
    def after(start):
        params, _ = optim.sgd(0.1, 0.9).update(fxgrad.grad(lambda w: w ** 2)(start), 0.0, start)
        return params ** 2  # (0.8 start)²

    assert fxgrad.grad(after)(3.0) == pytest.approx(2 * 0.64 * 3)


@pytest.mark.parametrize(("call", "text"), [
    (lambda: optim.sgd(-0.1), "sgd: rate is -0.1, where a number from 0 on is needed"),
    (lambda: optim.adam(beta1=1.0), "adam: beta1 is 1.0, where a number from 0 to below 1 is needed"),
    (lambda: optim.sgd(0.1, nesterov=True), "sgd: nesterov=True needs a momentum, such as momentum=0.9"),
    (lambda: optim.sgd(0.1).update([1.0], None, {"w": 1.0}),
     ("sgd: the gradients have the structure PyTreeDef([*]), the parameters PyTreeDef({'w': *}); they must be the "
      "same. fxgrad.grad gives them so")),
])
def test_mistakes(call: Any, text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    assert str(caught.value).split("\n")[0] == text
