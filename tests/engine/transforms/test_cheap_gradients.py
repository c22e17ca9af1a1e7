"""The cheap-gradient principle: a gradient costs at most five times the function, counted in fxgrad's flops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import nn
from fxgrad.engine.analyses.cost import total_cost
from fxgrad.engine.core.primitive import MissingRule, Primitive
from fxgrad.engine.dtypes import is_inexact
from fxgrad.engine.tracing.tape import bind
from fxgrad.errors import FxgradError
from fxgrad.scipy import linalg
from tests.samples import all_samples

SAMPLES = all_samples()
BOUND = 5
ON_ELEMENTS = 12
"""What a gradient may cost beyond that, for each element of operands and results: rules of elementwise operations are
products and quotients, where the operation itself counts as one."""


def flops(function: Callable[..., Any], *args: Any) -> tuple[int, int, int]:
    """Of the function, of its gradient in all arguments, and the number of elements that go in and out."""
    def total(*args: Any) -> Any:
        return sum(fnp.sum(fnp.real(each)) for each in fxgrad.tree.leaves(function(*args)) if is_inexact(each.dtype))

    avals = [fxgrad.ShapeDtypeStruct(np.shape(arg), arg.dtype) for arg in args]
    program = fxgrad.make_program(function)(*avals)
    places = tuple(place for place, arg in enumerate(args) if is_inexact(arg.dtype))
    gradient = fxgrad.make_program(fxgrad.grad(total, argnums=places))(*avals)
    elements = sum(var.aval.size for var in (*program.inputs, *program.outputs))
    return total_cost(program).flops, total_cost(gradient).flops, elements


EXCEPTIONS = {
    "cofactor": "the derivative goes by singular values, since that of nearly singular matrices must",
    "expm_frechet": "the derivative is a Frechet derivative of a matrix four times as large",
    "sweep": "a whole solver stands in it, whose derivative sweeps several times",
}
"""Operations of which the gradient costs more, and why."""


@pytest.mark.slow
@pytest.mark.parametrize("primitive", [each for each in SAMPLES if not isinstance(each.jvp, MissingRule)], ids=str)
def test_primitives(primitive: Primitive) -> None:
    """Every sample of the quick tier, the first eight of each."""
    ratios = []
    for sample in [each for each in SAMPLES[primitive] if not each.slow][:8]:
        args = sample.args()
        if not any(is_inexact(arg.dtype) for arg in args):
            continue

        def apply(*given: Any, params: dict[str, Any] = sample.params) -> Any:
            return bind(primitive, *given, **params)

        try:
            primal, gradient, elements = flops(apply, *args)
        except FxgradError:
            continue  # without a derivative in some argument
        ratios.append((gradient - BOUND * primal) / max(elements, 8))
    assert (max(ratios, default=0) > ON_ELEMENTS) == (primitive.name in EXCEPTIONS)


A, B = np.eye(64) * 4 + 1, np.ones((64, 32))
LIBRARY: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "matmul": (fnp.matmul, (A, B)), "det": (fnp.linalg.det, (A,)), "slogdet": (fnp.linalg.slogdet, (A,)),
    "inv": (fnp.linalg.inv, (A,)), "solve": (fnp.linalg.solve, (A, B)), "qr": (fnp.linalg.qr, (B + A[:, :32],)),
    "eigh": (fnp.linalg.eigh, (A,)), "svd": (fnp.linalg.svd, (A,)), "expm": (linalg.expm, (A,)),
    "cholesky": (fnp.linalg.cholesky, (np.eye(256),)), "norm": (fnp.linalg.norm, (A,)),
    "matrix_power": (lambda a: fnp.linalg.matrix_power(a, 5), (A,)),
    "softmax": (nn.softmax, (B,)), "convolve": (fnp.convolve, (np.ones(200), np.ones(30))),
    "einsum": (lambda x, y: fnp.einsum("ij,jk->ik", x, y), (A, B)), "fft": (fnp.fft.fft, (np.ones(256, complex),)),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_library_functions(name: str) -> None:
    """At sizes where what matters is the power that the cost grows with."""
    function, args = LIBRARY[name]
    primal, gradient, _ = flops(function, *args)
    assert gradient <= BOUND * primal


def test_determinants_and_cholesky_factors() -> None:
    """A determinant is one factorization, its gradient one and an inverse.

    A large Cholesky factor is differentiated by blocks; a small one is not, where each of the two triangular systems is
    three factorizations and the product six, as dense operations count (in jax they are that at every size).
    """
    primal, gradient, _ = flops(fnp.linalg.det, A)
    assert gradient <= 4.001 * primal
    primal, gradient, elements = flops(np.linalg.cholesky, np.eye(256))
    assert gradient <= 4 * primal + elements
    primal, gradient, _ = flops(fnp.linalg.cholesky, A)
    assert gradient <= 13 * primal
