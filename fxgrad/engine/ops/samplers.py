"""Rejection samplers: gamma, Poisson and binomial distributions, each one operation.

Their kernels are jax's, but for large counts, run by XLA on the CPU for NumPy arrays: the rejection loops draw from
keys that are split inside them, and only the same loop gives the same numbers. Operands have the axes of the keys
first, then their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fxgrad.engine import dtypes
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import NO_TANGENT, NOT_LINEAR, Cost, Primitive, Rule, register, total_bytes
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.dtypes import DType
from fxgrad.engine.ops import xla_kernels
from fxgrad.engine.ops.arithmetic import add, div, mul, sub
from fxgrad.engine.ops.comparison import lt
from fxgrad.engine.ops.exponential import exp
from fxgrad.engine.ops.families import check_kind, check_same_dtype
from fxgrad.engine.ops.gamma import random_gamma_grad
from fxgrad.engine.ops.joining import align_batch_axes
from fxgrad.engine.ops.random import check_keys
from fxgrad.engine.ops.select import where
from fxgrad.engine.ops.special import digamma
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import DTypeError, ShapeError

_FLOPS = 1000
"""The work of one draw: a few hashes and logarithms."""


def _sampler(name: str, kernel: Callable[..., Any], result: Callable[..., DType], jvp: Rule = NO_TANGENT,
             each_alone: bool = False) -> Primitive:
    """Return the record of a sampler; `result(dtype, **params)` is the dtype of draws from parameters of `dtype`.

    `each_alone`: whether a draw is the same however many others there are.
    """
    def abstract(keys: Aval, *parameters: Aval, **params: Any) -> list[Aval]:
        check_keys(name, keys)
        check_kind(name, "floating", *parameters)
        check_same_dtype(name, *parameters)
        shape = parameters[0].shape
        if any(parameter.shape != shape for parameter in parameters) or shape[:keys.ndim] != keys.shape:
            shown = " and ".join(str(parameter.shape) for parameter in parameters)
            raise ShapeError(f"{name}: keys of shape {keys.shape} and parameters of shape {shown}; the parameters must "
                             "be alike, with the axes of the keys first")
        return [Aval(shape, result(parameters[0].dtype, **params))]

    def xla(lax: Any, *operands: Any, **params: Any) -> list[Any]:
        return [kernel(*operands, **params)]

    def batch(size: int, values: list[Any], axes: list[int | None], **params: Any) -> tuple[list[Any], list[int]]:
        alike, at = align_batch_axes(size, values, axes)
        return bind(primitive, *alike, **params), [at]

    def cost(*avals: Aval, **params: Any) -> Cost:
        outputs = abstract(*avals, **params)
        return Cost(_FLOPS * outputs[0].size, total_bytes(avals, outputs))

    primitive = register(Primitive(name=name, abstract=abstract, numpy=xla_kernels.draws_on_cpu(kernel, each_alone),
                                   xla=xla, jvp=jvp, transpose=NOT_LINEAR, batch=batch, cost=cost))
    return primitive


def _gamma_jvp(primals: list[Any], tangents: list[Any], *, log_space: bool) -> tuple[list[Any], list[Any]]:
    """Differentiate by implicit reparameterization: move a draw with the shape parameter at a fixed quantile.

    Source: M. Figurnov, S. Mohamed, A. Mnih, "Implicit reparameterization gradients" (2018).
    """
    keys, a = primals
    draws = bind(random_gamma_p, keys, a, log_space=log_space)
    if type(tangents[1]) is Zero:
        return draws, [Zero(aval_of(draws[0]))]
    if not log_space:
        return draws, [mul(tangents[1], random_gamma_grad(a, draws[0]))]
    # A draw far below 1 is known by its logarithm alone: its quantile is x^a / Gamma(a + 1) but for a factor 1 - O(x).
    small = lt(draws[0], math.log(float(dtypes.finfo(aval_of(a).dtype).eps)))
    value = where(small, 1.0, exp(draws[0]))
    slope = where(small, div(sub(digamma(add(a, 1.0)), draws[0]), a), div(random_gamma_grad(a, value), value))
    return draws, [mul(tangents[1], slope)]


random_gamma_p = _sampler("random_gamma", xla_kernels.gamma, lambda dtype, *, log_space: dtype, _gamma_jvp,
                          each_alone=True)


def random_gamma(keys: Any, a: Any, log_space: bool = False) -> Any:
    """Return draws from gamma distributions of shape parameters `a` and scale 1, or their logarithms."""
    return bind(random_gamma_p, keys, a, log_space=log_space)[0]


def _poisson_result(rate: DType, *, dtype: DType) -> DType:
    if rate != dtypes.float32 or not dtypes.is_integer(dtype):
        raise DTypeError(f"poisson: rates of {rate.name} and draws of {dtypes.shown_name(dtype)}; float32 rates and an "
                         "integer dtype of draws are needed")
    return dtype


random_poisson_p = _sampler("random_poisson", xla_kernels.poisson, _poisson_result)


def _binomial_result(operand: DType, *, dtype: DType) -> DType:
    if not dtypes.is_floating(dtype):
        raise DTypeError(f"binomial: draws of {dtypes.shown_name(dtype)}; a floating dtype is needed")
    return dtype


random_binomial_p = _sampler("random_binomial", xla_kernels.binomial, _binomial_result)
