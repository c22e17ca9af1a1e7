"""Arguments and results of rules with `symbolic_zeros`: marked primals, and zeros without a value."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.engine import dtypes, tree
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.frontend.flat import check_leaf
from fxgrad.engine.ops.structural import instantiate_zeros


class CustomVJPPrimal:
    """An array as passed to the forward pass of a `custom_vjp` with `symbolic_zeros`.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> @fxgrad.custom_vjp
    ... def product(x, y):
    ...     return x * y
    >>> def forward(x, y):
    ...     return x.value * y.value, (y.value if x.perturbed else None, x.value if y.perturbed else None)
    >>> def backward(residuals, cotangent):
    ...     return tuple(None if other is None else cotangent * other for other in residuals)
    >>> product.defvjp(forward, backward, symbolic_zeros=True)
    >>> float(fxgrad.grad(product)(2.0, 3.0))
    3.0
    """

    __slots__ = ("perturbed", "value")

    def __init__(self, value: Any, perturbed: bool) -> None:
        self.value, self.perturbed = value, perturbed

    def __repr__(self) -> str:
        return f"CustomVJPPrimal(value={self.value!r}, perturbed={self.perturbed})"


def custom_vjp_primal_tree_values(primals: Any) -> Any:
    """Return a container of `CustomVJPPrimal`s with each replaced by its value.

    >>> custom_vjp_primal_tree_values((CustomVJPPrimal(2.0, True), {"y": CustomVJPPrimal(3.0, False)}))
    (2.0, {'y': 3.0})
    """
    return tree.map(lambda primal: primal.value, primals)


def zero_from_primal(primal: Any, symbolic_zeros: bool = False) -> Any:
    """Return zero tangents like a container of arrays (of dtype float0 for integers), or `SymbolicZero`s.

    Raises `ArgumentError` for a leaf that is no array and no number.

    >>> zero_from_primal((2.0, 3), symbolic_zeros=True)
    (Zero(f64*[]), Zero(i64*[]))
    """
    def zero(leaf: Any) -> Any:
        aval = check_leaf(leaf, "zero_from_primal", lambda: "a primal")
        if symbolic_zeros:
            return Zero(aval)
        return instantiate_zeros(Zero(aval)) if dtypes.is_inexact(aval.dtype) else np.zeros(aval.shape, dtypes.float0)
    return tree.map(zero, primal)
