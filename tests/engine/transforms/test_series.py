"""Taylor series of every operation: the coefficients are derivatives of forward mode, nested as often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.core.avals import array_aval
from fxgrad.engine.core.primitive import NO_TANGENT, Primitive
from fxgrad.engine.rooms import registry
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.transforms.forward import has_tangent
from fxgrad.errors import UnsupportedError
from tests.samples import COMPILED, Sample, all_samples

SAMPLES = all_samples()
ORDER = 3
QUICK_SAMPLES = 2
TOLERANCES = {8: 1e-9, 4: 2e-3}
"""Of a part of a number, by the bytes of it. Numbers of two bytes have no digits left at the third order."""


def along(primitive: Primitive, sample: Sample) -> Callable[[Any], list[Any]]:
    """The operation as a function of a number, by which its arguments move."""
    args, random = sample.args(), np.random.default_rng(7)
    directions = [random.uniform(-0.5, 0.5, np.shape(arg)).astype(arg.dtype)
                  if has_tangent(array_aval(arg)) and place not in sample.fixed else None
                  for place, arg in enumerate(args)]

    def function(t: Any) -> list[Any]:
        values = [arg if direction is None else arg + t * direction
                  for arg, direction in zip(args, directions, strict=True)]
        return [output for output in bind(primitive, *values, **sample.params) if has_tangent(aval_of(output))]
    return function


def nested(function: Callable[[Any], Any], order: int) -> Callable[[Any], Any]:
    for _ in range(order):
        function = lambda t, function=function: fxgrad.jvp(function, (t,), (1.0,))[1]
    return function


def has_forward_mode(function: Callable[[Any], Any]) -> bool:
    try:
        nested(function, ORDER)(0.0)
    except UnsupportedError:
        return False
    return True


def check_series(primitive: Primitive, sample: Sample) -> None:
    function = along(primitive, sample)
    with np.errstate(all="ignore"):
        if not has_forward_mode(function):
            with pytest.raises(UnsupportedError):
                fxgrad.derivatives(function, ORDER)(0.0)
            return
        expected = [fxgrad.jvp(function, (0.0,), (1.0,))[0], *(
            nested(function, order)(0.0) for order in range(1, ORDER + 1))]
        found = fxgrad.derivatives(function, ORDER)(0.0)
    for order in range(ORDER + 1):
        for one, other in zip(found[order], expected[order], strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype), order
            digits = TOLERANCES.get(np.asarray(one).real.dtype.itemsize)
            if digits is not None:
                scale = np.max(np.abs(np.where(np.isfinite(other), other, 0)), initial=1.0)
                np.testing.assert_allclose(one, other, rtol=digits * sample.tolerance,
                                           atol=digits * sample.tolerance * scale, err_msg=f"order {order}")


DIFFERENTIABLE = [name for name in sorted(registry) if registry[name].jvp is not NO_TANGENT
                  and not any("jvp" in sample.without for sample in SAMPLES[registry[name]])]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in COMPILED))
                                  for name in DIFFERENTIABLE])
def test_coefficients_are_the_derivatives_of_forward_mode(name: str) -> None:
    samples = [sample for sample in SAMPLES[registry[name]] if not sample.slow]
    for sample in samples[:QUICK_SAMPLES]:
        check_series(registry[name], sample)


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_coefficients_of_further_samples(name: str) -> None:
    samples = [sample for sample in SAMPLES[registry[name]] if not sample.slow]
    for sample in samples[QUICK_SAMPLES:]:
        check_series(registry[name], sample)


LARGEST = 24
"""Elements of the operands of samples whose Hessians are computed."""


def check_laplacian(primitive: Primitive, sample: Sample) -> None:
    """Compare sums of second derivatives with traces; the operands have second derivatives, too."""
    args = sample.args()
    places = [place for place, arg in enumerate(args) if place not in sample.fixed and arg.dtype == np.float64]
    start = [np.asarray(args[place]) for place in places]
    if not 0 < sum(x.size for x in start) <= LARGEST:
        return

    def function(*xs: Any) -> list[Any]:
        values = list(args)
        for place, x in zip(places, xs, strict=True):
            values[place] = x + 0.1 * (x - args[place]) ** 2
        outputs = [output for output in bind(primitive, *values, **sample.params)
                   if has_tangent(aval_of(output)) and aval_of(output).dtype.itemsize >= 8]
        return [fnp.real(output) + 0.3 * fnp.real(output) ** 2 + fnp.imag(output) ** 2 for output in outputs]

    numbers = tuple(range(len(start)))
    with np.errstate(all="ignore"):
        try:
            blocks = [fxgrad.jacfwd(lambda *xs, number=number: fxgrad.jacfwd(function, argnums=number)(*xs),
                                    argnums=number)(*start) for number in numbers]
        except UnsupportedError:
            return
        for sparse in (False, True):
            found = fxgrad.laplacian(function, argnums=numbers, sparse=sparse)(*start)
            for output, one in enumerate(found):
                traces = [np.einsum("...ii->...", np.reshape(block[output], (*np.shape(one), x.size, x.size)))
                          for block, x in zip(blocks, start, strict=True)]
                scale = max(np.max(np.abs(trace), initial=1.0, where=np.isfinite(trace)) for trace in traces)
                if np.isfinite(traces).all():
                    np.testing.assert_allclose(one, np.sum(traces, axis=0), rtol=1e-8, atol=1e-8 * scale)


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_laplacians_are_traces(name: str) -> None:
    """Of samples in float64; half precision, and parts of operands without derivatives, are as in the other laws."""
    samples = [sample for sample in SAMPLES[registry[name]] if not sample.slow and all(
        not has_tangent(array_aval(arg)) or arg.dtype == np.float64 for arg in sample.args())]
    for sample in samples:
        check_laplacian(registry[name], sample)


def test_tangent_rules_may_take_sizes_of_tangents() -> None:
    """A rule that is linear, by way of a constant factor made of the tangent: that had been 0 in the second order."""
    @fxgrad.custom_jvp
    def exponential(x: Any) -> Any:
        return np.exp(x)

    @exponential.defjvp
    def exponential_jvp(primals: Any, tangents: Any) -> Any:
        size = fxgrad.stop_gradient(np.abs(tangents[0]))
        return exponential(*primals), np.exp(primals[0]) * (tangents[0] / size) * size

    series = (0.5,), ((1.0, 0.5, -2.0),)
    np.testing.assert_allclose(fxgrad.jet(exponential, *series)[1], fxgrad.jet(np.exp, *series)[1], rtol=1e-12)
