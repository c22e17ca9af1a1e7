"""`odeint` under the name that it has in jax."""

from fxgrad.training.ode import odeint

__all__ = ["odeint"]
