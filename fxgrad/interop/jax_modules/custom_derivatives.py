"""Functions with derivatives of their own, under the names that `jax.custom_derivatives` has."""

from fxgrad.engine.api.closures import closure_convert, custom_gradient
from fxgrad.engine.api.custom import custom_jvp, custom_vjp
from fxgrad.engine.api.custom_arguments import CustomVJPPrimal, custom_vjp_primal_tree_values, zero_from_primal
from fxgrad.engine.core.symbolic import Zero as SymbolicZero

__all__ = ["CustomVJPPrimal", "SymbolicZero", "closure_convert", "custom_gradient", "custom_jvp", "custom_vjp",
           "custom_vjp_primal_tree_values", "zero_from_primal"]
