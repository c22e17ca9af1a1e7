"""`autocast` on every primitive that it may compute in half precision, and in every nesting with control flow."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import dtypes
from fxgrad.engine.core.avals import array_aval
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.rooms import registry
from fxgrad.engine.tracing.tape import bind
from fxgrad.training.autocast.classes import kinds
from tests.samples import all_samples
from tests.support.bases import BASES, FXGRAD

pytestmark = pytest.mark.slow
POLICY = fxgrad.autocast_policies.bfloat16
HALVED = [primitive for primitive in registry.values() if kinds.of(primitive) in ("half", "follow")]
TIES = {"round"}  # of what was halfway
X = np.array([0.7, -0.4, 1.2], np.float32)

EAGER = POLICY.with_(half=["mul", "sin", "tanh", "add", "exp", "integer_pow"])
TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "grad": fxgrad.grad,
    "jvp": lambda f: lambda x: fxgrad.jvp(f, (x,), (x,))[1],
    "vmap": lambda f: lambda x: np.sum(fxgrad.vmap(f)(fnp.stack([x, x])), axis=0),
    "linearize": lambda f: lambda x: fxgrad.linearize(f, x)[1](x),
    "checkpoint": lambda f: fxgrad.grad(fxgrad.checkpoint(f)),
    "scan": lambda f: lambda x: fxgrad.lax.scan(lambda c, _: (c, f(c)), x, None, length=2)[1],
    "cond": lambda f: lambda x: fxgrad.lax.cond(x[0] > 0, f, f, x),
}


def is_cast(value: Any) -> bool:
    aval = array_aval(value)
    return aval is not None and dtypes.is_floating(aval.dtype) and aval.dtype.itemsize > 2


@pytest.mark.parametrize("primitive", HALVED, ids=str)
def test_what_may_be_half_can_be(primitive: Primitive) -> None:
    policy = POLICY.with_(half=[primitive])
    for number, sample in enumerate(all_samples()[primitive]):
        def f(*args: Any, sample: Any = sample) -> Any:
            return bind(primitive, *args, **sample.params)

        args = sample.args()
        if not any(map(is_cast, args)):
            continue
        results = map(np.asarray, f(*args)), map(np.asarray, fxgrad.autocast(f, policy)(*args))
        for plain, cast in zip(*results, strict=True):
            assert (plain.dtype, plain.shape) == (cast.dtype, cast.shape), number
            if plain.dtype.kind == "f" and primitive.name not in TIES:
                fits = np.isfinite(plain)
                np.testing.assert_allclose(cast[fits], plain[fits], rtol=0.02, atol=0.05, err_msg=f"sample {number}")


@pytest.mark.parametrize("name", BASES)
def test_it_nests_in_both_orders(name: str) -> None:
    base = functools.partial(BASES[name], FXGRAD)
    x = X.astype(float) if name == "linear_system" else X  # its matrix is of float64

    def f(x: Any) -> Any:
        return base(x)

    for how, transform in TRANSFORMS.items():
        exact = transform(f)(x)
        for cast in (fxgrad.autocast(transform(f), EAGER), transform(fxgrad.autocast(f, EAGER))):
            found = cast(x)
            assert (found.dtype, found.shape) == (exact.dtype, exact.shape), how
            assert np.max(np.abs(found - exact)) < 0.08 * max(np.max(np.abs(exact)), 1e-3), how
