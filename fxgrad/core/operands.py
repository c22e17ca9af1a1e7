"""The types of operands of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.core.avals import Aval, array_aval, check_dtype, operand_aval
from fxgrad.core.symbolic import Linear
from fxgrad.core.tracer import Tracer


def aval_of(value: Any) -> Aval:
    """The type of an operand of any kind; raises `ArgumentError` for what is not an array or a number."""
    if type(value) is Tracer:
        return value.variable.aval
    aval = array_aval(value) if type(value) is np.ndarray else operand_aval(value)
    if aval is None:
        if type(value) is Linear:
            raise errors.LinearityError(errors.at_user_line(
                "cannot transpose: two values that the function is to be linear in are multiplied with each other. "
                "Use vjp, which linearizes first, or pass one of them by closure"))
        check_dtype(value, "an operand")
        raise errors.ArgumentError(errors.at_user_line(
            f"an operand must be an array or a number, got {type(value).__name__}"))
    return aval
