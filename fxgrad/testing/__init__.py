"""Testing: `check_grads` for the derivatives of functions, `check_primitive` for the seven rules of an operation."""

from fxgrad.testing.gradients import check_grads, check_jvp, check_vjp
from fxgrad.testing.laws import LAWS, check_laws, check_primitive
from fxgrad.testing.numbers import DIFFERENCES, TOLERANCES, LawError

__all__ = ["DIFFERENCES", "LAWS", "LawError", "TOLERANCES", "check_grads", "check_jvp",
           "check_laws", "check_primitive", "check_vjp"]
