"""Reference optimisers: stochastic gradient descent, Adam and AdamW, as pairs of pure functions on containers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fxgrad import tree
from fxgrad.errors import ArgumentError, at_user_line
from fxgrad.pytorch_names import of_module

Parameters = Any


class Optimizer(NamedTuple):
    """`init(params)` gives the first state, `update(gradients, state, params)` the next parameters and state.

    Both are pure functions of containers of arrays, so they may be traced, jitted, scanned over and differentiated.
    """

    init: Callable[[Parameters], Any]
    update: Callable[[Parameters, Any, Parameters], tuple[Parameters, Any]]


class Moments(NamedTuple):
    """The state of Adam: the number of updates, and running averages of gradients and of their squares."""

    count: Any
    first: Parameters
    second: Parameters


def sgd(rate: float, momentum: float = 0.0, *, nesterov: bool = False, weight_decay: float = 0.0) -> Optimizer:
    """Stochastic gradient descent, v ← momentum · v + g, p ← p - rate · v, with Nesterov's look-ahead on request.

    `weight_decay` times the parameter is added to its gradient. The state is the container of the v, or None without
    momentum. The formulas are those of PyTorch's SGD (Sutskever et al., 2013, with the rate outside of v).

    Raises `ArgumentError` for a rate, momentum or weight decay that is negative, or Nesterov's form without momentum.

    >>> import fxgrad
    >>> optimizer = fxgrad.optim.sgd(0.1)
    >>> params = {"w": 2.0}
    >>> optimizer.update({"w": 1.0}, optimizer.init(params), params)
    ({'w': 1.9}, None)
    """
    _check("sgd", rate=rate, momentum=momentum, weight_decay=weight_decay)
    if nesterov and not momentum:
        raise ArgumentError(at_user_line("sgd: nesterov=True needs a momentum, such as momentum=0.9"))

    def update(gradients: Parameters, state: Any, params: Parameters) -> tuple[Parameters, Any]:
        _match("sgd", gradients, params)
        gradients = _decayed(gradients, params, weight_decay)
        if not momentum:
            return tree.map(lambda p, g: p - rate * g, params, gradients), None
        velocity = tree.map(lambda v, g: momentum * v + g, state, gradients)
        steps = tree.map(lambda g, v: g + momentum * v, gradients, velocity) if nesterov else velocity
        return tree.map(lambda p, v: p - rate * v, params, steps), velocity

    return Optimizer((lambda params: tree.map(lambda p: 0 * p, params)) if momentum else (lambda _: None), update)


def adam(rate: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, *,
         weight_decay: float = 0.0) -> Optimizer:
    """Adam (Kingma and Ba, 2015, algorithm 1): steps by the average gradient over the root of the average square.

    m ← β₁ m + (1 - β₁) g, s ← β₂ s + (1 - β₂) g², p ← p - rate · (m / (1 - β₁ᵗ)) / (√(s / (1 - β₂ᵗ)) + ε), after t
    updates. `weight_decay` times the parameter is added to its gradient. Raises as `sgd` does.

    >>> import fxgrad
    >>> optimizer = fxgrad.optim.adam(0.1)
    >>> params, state = optimizer.update(3.0, optimizer.init(2.0), 2.0)
    >>> round(params, 6), state.count
    (1.9, 1)
    """
    return _adam("adam", rate, beta1, beta2, epsilon, weight_decay, decoupled=False)


def adamw(rate: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, *,
          weight_decay: float = 1e-2) -> Optimizer:
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019): p shrinks by rate · weight_decay · p besides.

    Raises as `sgd` does.

    >>> import fxgrad
    >>> optimizer = fxgrad.optim.adamw(0.1, weight_decay=0.5)
    >>> params, _ = optimizer.update(3.0, optimizer.init(2.0), 2.0)
    >>> round(params, 6)
    1.8
    """
    return _adam("adamw", rate, beta1, beta2, epsilon, weight_decay, decoupled=True)


def _adam(what: str, rate: float, beta1: float, beta2: float, epsilon: float, weight_decay: float, decoupled: bool,
          ) -> Optimizer:
    _check(what, rate=rate, beta1=beta1, beta2=beta2, epsilon=epsilon, weight_decay=weight_decay)

    def init(params: Parameters) -> Moments:
        return Moments(0, *(tree.map(lambda p: 0 * p, params) for _ in range(2)))

    def update(gradients: Parameters, state: Moments, params: Parameters) -> tuple[Parameters, Moments]:
        _match(what, gradients, params)
        if not decoupled:
            gradients = _decayed(gradients, params, weight_decay)
        count = state.count + 1
        first = tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.first, gradients)
        second = tree.map(lambda s, g: beta2 * s + (1 - beta2) * g * g, state.second, gradients)
        bias1, bias2 = 1 - beta1 ** count, 1 - beta2 ** count
        shrink = 1 - rate * weight_decay if decoupled else 1.0

        def step(p: Any, m: Any, s: Any) -> Any:
            return shrink * p - rate * (m / bias1) / ((s / bias2) ** 0.5 + epsilon)

        return tree.map(step, params, first, second), Moments(count, first, second)

    return Optimizer(init, update)


def _decayed(gradients: Parameters, params: Parameters, weight_decay: float) -> Parameters:
    return tree.map(lambda g, p: g + weight_decay * p, gradients, params) if weight_decay else gradients


__getattr__ = of_module(__name__)


def _check(what: str, **settings: float) -> None:
    for name, value in settings.items():
        most = 1.0 if name in ("beta1", "beta2") else float("inf")
        if not 0 <= value < most:
            raise ArgumentError(at_user_line(
                f"{what}: {name} is {value}, where a number from 0{' to below 1' if most == 1 else ' on'} is needed"))


def _match(what: str, gradients: Parameters, params: Parameters) -> None:
    given: Any = tree.structure(gradients)
    needed: Any = tree.structure(params)
    if given != needed:
        raise ArgumentError(at_user_line(
            f"{what}: the gradients have the structure {given}, the parameters {needed}; they must be the "
            "same. fxgrad.grad gives them so"))
