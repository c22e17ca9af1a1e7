"""Numbers among the keywords of losses and optimizers may be traced: under jit, grad and vmap, as elsewhere."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

import fxgrad
from fxgrad import nn, optim
from fxgrad.testing import check_grads

X, Y, V = np.array([0.2, 2.7, 0.4]), np.array([1.0, -1.0, 1.0]), np.array([0.3, 0.2, 0.5])
M = np.arange(12.0).reshape(3, 4) / 7
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "huber_loss": (X, Y), "smooth_l1_loss": (X, Y), "hinge_loss": (X, Y), "hinge_embedding_loss": (X, Y),
    "cosine_embedding_loss": (M, M[::-1], Y), "triplet_margin_loss": (M, M + 0.1, M - 0.5), "poisson_nll_loss": (X, V),
    "gaussian_nll_loss": (X, Y, V),
}
OTHERS = {"poisson_nll_loss": {"log_input": False}}
SETTINGS = {"sgd": ("momentum", "weight_decay"), "adam": ("beta1", "beta2", "epsilon"),
            "adamw": ("beta1", "beta2", "epsilon", "weight_decay"), "rmsprop": ("decay", "epsilon"),
            "lion": ("beta1", "beta2", "weight_decay")}


def cases() -> list[tuple[str, str, Any]]:
    """Each loss with each keyword that is a number, from the signatures, as functions of that number."""
    found = []
    for name, args in ARGUMENTS.items():
        function = getattr(nn, name)
        for setting, parameter in inspect.signature(function).parameters.items():
            if type(parameter.default) is float:
                found.append((name, setting, lambda value, function=function, args=args, setting=setting, name=name:
                              function(*args, **{setting: value}, **OTHERS.get(name, {}))))
    return found


def test_settings_of_losses() -> None:
    wrong = []
    for name, setting, loss in cases():
        expected = [loss(value) for value in (0.25, 0.6)]
        under_vmap = fxgrad.vmap(loss)(np.array([0.25, 0.6]))
        if not np.allclose(under_vmap, expected, rtol=1e-14) or not np.allclose(fxgrad.jit(loss)(0.6), expected[1]):
            wrong.append((name, setting, under_vmap, expected))
        check_grads(loss, (0.55,))
    assert not wrong, wrong
    assert len(cases()) == 9


def test_traced_settings_keep_dtypes_and_limits() -> None:
    half = X.astype(np.float16)
    assert fxgrad.jit(lambda delta: nn.huber_loss(half, half + 1, delta=delta))(0.5).dtype == np.float16
    at_zero = fxgrad.grad(lambda x, beta: nn.smooth_l1_loss(x, Y, beta=beta, reduction="sum"))(Y, 0.0)
    np.testing.assert_array_equal(at_zero, np.zeros(3))
    np.testing.assert_allclose(fxgrad.jit(lambda beta: nn.smooth_l1_loss(X, Y, beta=beta))(0.0), nn.l1_loss(X, Y))


def test_settings_of_optimizers() -> None:
    wrong = []
    for name, settings in SETTINGS.items():
        for setting in settings:
            def steps(value: Any, name: str = name, setting: str = setting) -> Any:
                optimizer = getattr(optim, name)(**{"rate": 0.1, setting: value})
                params, state = X, optimizer.init(X)
                for _ in range(2):
                    params, state = optimizer.update(np.cos(params), state, params)
                return params

            expected = [steps(value) for value in (0.25, 0.6)]
            found = fxgrad.vmap(steps)(np.array([0.25, 0.6]))
            if not np.allclose(found, expected, rtol=1e-12):
                wrong.append((name, setting, found, expected))
    assert not wrong, wrong
