"""`scipy.optimize.minimize` with fxgrad's gradients, Hessians and Hessian-vector products.

Run it with `python examples/scipy_minimize.py`. Un-jitted float64 functions of NumPy arrays are what SciPy calls, so
nothing needs to be converted; a jax function comes in by `from_jax`.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import OptimizeResult, minimize

import fxgrad


def rosenbrock(x: Any) -> Any:
    """The banana-shaped valley in as many dimensions as `x` has; its minimum is 0, at ones."""
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def rosenbrock_in_jax(x: Any) -> Any:
    """The same, as somebody may have it for jax."""
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def ways(function: Any) -> dict[str, dict[str, Any]]:
    """SciPy's methods, by the derivatives that they take."""
    gradient, hessian = fxgrad.grad(function), fxgrad.hessian(function)

    def product(x: Any, v: Any) -> Any:
        return fxgrad.jvp(gradient, (x,), (v,))[1]

    return {
        "finite differences": {"method": "BFGS"},
        "gradient": {"method": "BFGS", "jac": gradient},
        "gradient and Hessian": {"method": "trust-exact", "jac": gradient, "hess": hessian},
        "gradient and products": {"method": "Newton-CG", "jac": gradient, "hessp": product},
    }


def solve(function: Any, way: dict[str, Any], size: int = 10) -> OptimizeResult:
    """The minimum that SciPy finds from a start away from it."""
    return minimize(function, np.full(size, -0.5), **way)


def main() -> None:
    """Shows how far each way comes, and with how many calls."""
    table = Table("derivatives", "method", "value", "calls", "gradients", "Hessians or products")
    for name, way in ways(rosenbrock).items():
        result = solve(rosenbrock, way)
        table.add_row(name, way["method"], f"{result.fun:.1e}", str(result.nfev), str(result.njev),
                      str(result.get("nhev", "")))
    imported = fxgrad.from_jax(rosenbrock_in_jax)
    result = solve(imported, ways(imported)["gradient and Hessian"])
    table.add_row("of a jax function", "trust-exact", f"{result.fun:.1e}", str(result.nfev), str(result.njev),
                  str(result.nhev))
    Console().print(table)


if __name__ == "__main__":
    main()
