"""Tangents and gradients with their values beside the value alone: operations counted, and times by executor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxgrad
from benchmarks.compiled import compiled
from benchmarks.workload import OURS, Peer, Peers, Workload

DRAWS = np.random.default_rng(0)
X, T = DRAWS.normal(size=(2, 10_000))
A, B = DRAWS.normal(size=(2, 100, 100))
POSITIVE = A @ A.T + 100 * np.eye(100)
LARGE = np.eye(256) + 1e-3

BOUNDS = 3.0, 4.0
"""At most so many times the function: a tangent with its value, a gradient with its value."""
TANGENT, VALUE, IN_XLA = "tangent", "value", "by XLA: "
"""What peers are called beside the gradient."""


@dataclass(frozen=True)
class Derivatives:
    """A function, where its derivatives are taken, and along what its tangent."""

    function: Callable[[Any], Any]
    at: Any
    along: Any

    def tangent(self, x: Any, t: Any) -> Any:
        """The value, and its derivative along `t`."""
        return fxgrad.jvp(self.function, (x,), (t,))

    def gradient(self, x: Any) -> Any:
        """The value, and the pullback of it."""
        value, pullback = fxgrad.vjp(self.function, x)
        return value, pullback(value)

    def counted(self) -> tuple[float, float]:
        """Operations of the tangent and of the gradient, each with the value, divided by those of the value."""
        value, tangent, gradient = (fxgrad.cost_analysis(function)(*args).flops for function, args in self.ways)
        return tangent / value, gradient / value

    @property
    def ways(self) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """The value, the tangent and the gradient as functions, and what they are called with."""
        return [(self.function, (self.at,)), (self.tangent, (self.at, self.along)), (self.gradient, (self.at,))]

    def peers(self, small: bool) -> Peers:  # noqa: ARG002  (they are small already)
        """The programs as NumPy code and compiled; the gradients are to be the same."""
        found = {}
        for name, (function, args) in zip((VALUE, TANGENT, OURS), self.ways, strict=True):
            program = fxgrad.make_program(function)(*args)
            found[name] = Peer(functools.partial(program, *args))
            by_xla = compiled(fxgrad.jit(function), tuple(jax.tree.map(jnp.asarray, args)))
            found[IN_XLA + ("gradient" if name == OURS else name)] = Peer(by_xla.call)
        gradients = {name: found.pop(name) for name in (OURS, f"{IN_XLA}gradient")}
        return gradients | {name: Peer(peer.call, result=None) for name, peer in found.items()}


def scan_of_sin(x: Any) -> Any:
    """A hundred steps, each of a product and a sine."""
    return fxgrad.scan(lambda c, _: (np.sin(c * x), None), 0.5, None, length=100)[0]


FUNCTIONS: dict[str, Derivatives] = {
    "sin x": Derivatives(np.sin, X, T),
    "exp x": Derivatives(np.exp, X, T),
    "tanh(A x)": Derivatives(lambda x: np.tanh(A @ x), X[:100], T[:100]),
    "A A": Derivatives(lambda a: a @ a, A, B),
    "softmax": Derivatives(fxgrad.nn.softmax, A, B),
    "cumsum": Derivatives(np.cumsum, X, T),
    "A⁻¹": Derivatives(np.linalg.inv, A, B),
    "A⁻¹ x": Derivatives(lambda a: np.linalg.solve(a, X[:100]), A, B),
    "x y": Derivatives(lambda x: x * x[::-1], X, T),
    "x / y": Derivatives(lambda x: x / x[::-1], X, T),
    "prod": Derivatives(np.prod, np.exp(X / 100), T),
    "max": Derivatives(lambda a: np.max(a, axis=1), A, B),
    "det": Derivatives(np.linalg.det, A, B),
    "log abs det": Derivatives(lambda a: np.linalg.slogdet(a)[1], A, B),
    "cholesky": Derivatives(np.linalg.cholesky, POSITIVE, B + B.T),
    "cholesky 256": Derivatives(np.linalg.cholesky, LARGE, LARGE),
    "expm": Derivatives(fxgrad.scipy.linalg.expm, A / 100, B),
    "scan of sin": Derivatives(scan_of_sin, np.float64(0.7), np.float64(1.0)),
}
"""Those within the bounds first, by the operations counted."""

HEAD = ["function", "counted: tangent", "gradient",
        *(each for executor in ("NumPy", "XLA") for each in (f"{executor}: value", "tangent", "gradient"))]


def row(name: str, times: Mapping[str, float]) -> list[str]:
    """What a function's derivatives cost: operations by those of the value; for each executor its time, and ratios."""
    counts = [f"{count:.1f}" for count in FUNCTIONS[name].counted()]
    by_numpy, by_xla = ([times[VALUE], times[TANGENT], times[OURS]],
                        [times[IN_XLA + each] for each in (VALUE, TANGENT, "gradient")])
    return [name, *counts, *(cell for value, *derivatives in (by_numpy, by_xla)
                             for cell in (f"{value:.0f} µs", *(f"{time / value:.1f}" for time in derivatives)))]


WORKLOADS = [Workload(f"derivative: {name}", f"Tangent and gradient of {name} with the value, and the value",
                      each.peers, tolerance=1e-8, wide=True) for name, each in FUNCTIONS.items()]
