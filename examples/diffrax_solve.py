"""A differential equation solved by Diffrax, imported with `from_jax`: fxgrad differentiates through the solver.

Run it with `python examples/diffrax_solve.py`. It finds the rates of a predator-prey system from noisy observations.
"""

from __future__ import annotations

from typing import Any

import diffrax
import jax.numpy as jnp
import numpy as np
import optax
from rich.console import Console
from rich.table import Table

import fxgrad

TIMES = np.linspace(0.0, 6.0, 13).astype(np.float32)
TRUE = np.array([1.1, 0.4, 0.4, 0.1], np.float32)
START = np.array([10.0, 5.0], np.float32)


def field(t: Any, y: Any, rates: Any) -> Any:
    """How fast prey and predators grow (Lotka and Volterra)."""
    del t
    prey, predators = y[0], y[1]
    return jnp.stack([rates[0] * prey - rates[1] * prey * predators,
                      rates[3] * prey * predators - rates[2] * predators])


def orbit(rates: Any, start: Any) -> Any:
    """Prey and predators at `TIMES`, shape (13, 2), by an adaptive Runge-Kutta method."""
    return diffrax.diffeqsolve(
        diffrax.ODETerm(field), diffrax.Tsit5(), TIMES[0], TIMES[-1], 0.05, start, args=rates, max_steps=256,
        saveat=diffrax.SaveAt(ts=TIMES), stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-6)).ys


def loss(rates: Any, observed: Any) -> Any:
    """The mean squared error of the logarithms."""
    return jnp.mean((jnp.log(orbit(rates, START)) - jnp.log(observed)) ** 2)


def observations() -> np.ndarray:
    """The true orbit with an error of two per cent."""
    errors = np.random.default_rng(0).normal(scale=0.02, size=(len(TIMES), 2))
    return (np.asarray(orbit(TRUE, START)) * np.exp(errors)).astype(np.float32)


def main(steps: int = 150) -> None:
    """Fits the rates, and shows them beside the true ones."""
    observed = observations()
    gradients = fxgrad.jit(fxgrad.value_and_grad(fxgrad.from_jax(loss)))
    rates: Any = np.array([0.8, 0.3, 0.6, 0.15], np.float32)
    optimiser = optax.adam(2e-2)
    state = optimiser.init(rates)
    for _ in range(steps):
        value, gradient = gradients(rates, observed)
        updates, state = optimiser.update(gradient, state)
        rates = optax.apply_updates(rates, updates)
    table = Table("rate", "true", "found")
    for name, true, found in zip(("birth", "hunting", "death", "growth"), TRUE, rates, strict=True):
        table.add_row(name, f"{true:.3f}", f"{float(found):.3f}")
    console = Console()
    console.print(table)
    console.print(f"loss {float(value):.2e} after {steps} steps")


if __name__ == "__main__":
    main()
