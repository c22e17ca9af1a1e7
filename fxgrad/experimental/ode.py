"""`odeint` under the name that it has in jax."""

from fxgrad.ode import odeint

__all__ = ["odeint"]
