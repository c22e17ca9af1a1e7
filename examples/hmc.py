"""Hamiltonian Monte Carlo, driven by the gradient of a log-density: samples of posteriors without a library for them.

Run it with `python examples/hmc.py`. It draws from a correlated normal distribution, whose mean and covariance are
known, and from the posterior of a logistic regression, and prints the gradient of the log-density as a file that needs
NumPy alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.scipy.stats import norm

MEAN = np.array([1.0, -2.0])
COVARIANCE = np.array([[2.0, 1.2], [1.2, 1.0]])
PRECISION = np.linalg.inv(COVARIANCE)


class Draws(NamedTuple):
    """Positions, shape (draws, chains, size), and how many proposals were accepted."""

    positions: Any
    accepted: Any


def correlated(x: Any) -> Any:
    """The log-density of a normal distribution of two correlated numbers, but for a constant."""
    apart = x - MEAN
    return -0.5 * apart @ PRECISION @ apart


def logistic_posterior(x: Any, y: Any, scale: float = 2.0) -> Callable[[Any], Any]:
    """The log-density of weights, given inputs (n, size) and labels 0 or 1, with normal priors."""
    def logpdf(w: Any) -> Any:
        logits = x @ w
        return fnp.sum(norm.logpdf(w, 0.0, scale)) + fnp.sum(y * logits - np.logaddexp(0.0, logits))
    return logpdf


def flowers(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Inputs with a column of ones, and labels, of a model with the weights (0.5, 1.5, -1)."""
    rng = np.random.default_rng(0)
    x = np.concatenate([np.ones((count, 1)), rng.normal(size=(count, 2))], 1)
    chance = 1.0 / (1.0 + np.exp(-x @ np.array([0.5, 1.5, -1.0])))
    return x, (rng.uniform(size=count) < chance).astype(float)


def hmc(logpdf: Callable[[Any], Any], start: Any, key: Any, draws: int, step: float = 0.3, leaps: int = 8) -> Draws:
    """Chains of Hamiltonian Monte Carlo (Duane et al., 1987; Neal, 2011), one from each row of `start`.

    A draw moves a position by `leaps` steps of size `step` along the flow of -logpdf with a random momentum, and is
    accepted with the probability that makes up for the error of the steps.
    """
    slope = fxgrad.grad(logpdf)

    def energy(position: Any, momentum: Any) -> Any:
        return -logpdf(position) + 0.5 * fnp.sum(momentum * momentum)

    def flow(position: Any, momentum: Any) -> tuple[Any, Any]:
        def leap(state: Any, _: Any) -> tuple[Any, None]:
            position, momentum = state
            momentum = momentum + 0.5 * step * slope(position)
            position = position + step * momentum
            return (position, momentum + 0.5 * step * slope(position)), None
        return fxgrad.scan(leap, (position, momentum), None, length=leaps)[0]

    def draw(position: Any, key: Any) -> tuple[Any, tuple[Any, Any]]:
        for_momentum, for_choice = fxgrad.random.split(key)
        momentum = fxgrad.random.normal(for_momentum, position.shape, position.dtype)
        proposed, arrived = flow(position, momentum)
        gain = energy(position, momentum) - energy(proposed, arrived)
        accepted = fnp.log(fxgrad.random.uniform(for_choice, dtype=position.dtype)) < gain
        position = fnp.where(accepted, proposed, position)
        return position, (position, accepted)

    def chain(position: Any, key: Any) -> tuple[Any, Any]:
        return fxgrad.scan(draw, position, fxgrad.random.split(key, draws))[1]

    run = fxgrad.jit(fxgrad.vmap(chain, out_axes=1))
    return Draws(*run(start, fxgrad.random.split(key, len(start))))


def main(draws: int = 2000) -> None:
    """Draws from both, and shows means and deviations."""
    key = fxgrad.random.key(0)
    x, y = flowers()
    console = Console()
    for title, logpdf, size in (("a correlated normal distribution", correlated, 2),
                                ("weights of a logistic regression", logistic_posterior(x, y), 3)):
        found = hmc(logpdf, np.zeros((4, size)), key, draws)
        kept = np.asarray(found.positions)[draws // 10:].reshape(-1, size)
        table = Table("", "mean", "deviation", title=f"{title}, {np.mean(found.accepted):.0%} accepted")
        for number in range(size):
            table.add_row(str(number), f"{kept[:, number].mean():.3f}", f"{kept[:, number].std():.3f}")
        console.print(table)
    console.print(fxgrad.make_program(fxgrad.grad(correlated))(MEAN).to_python())


if __name__ == "__main__":
    main()
