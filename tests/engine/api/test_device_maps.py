"""`pmap`, against jax's, on eight devices."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import errors

X = np.random.default_rng(0).normal(size=(4, 3, 4))

# (function of (lax, numpy) that gives one of x, and options of the map).
CASES: dict[str, tuple[Callable[[Any, Any], Callable[..., Any]], dict[str, Any]]] = {
    "entries": (lambda lax, np: lambda x: np.sin(x), {}),
    "collectives": (lambda lax, np: lambda x: x / lax.psum(x, "i") + lax.axis_index("i"), {"axis_name": "i"}),
    "axes": (lambda lax, np: lambda x: {"a": np.sin(x), "b": x.sum(0)}, {"in_axes": 2, "out_axes": {"a": 2, "b": 1}}),
    "the same for all": (lambda lax, np: lambda x: lax.pmean(np.sin(x), "i"), {"axis_name": "i", "out_axes": None}),
    "vmap inside": (lambda lax, np: (fxgrad if lax is fxgrad.lax else jax).vmap(
        lambda row: row * lax.psum(row.sum(), "i")), {"axis_name": "i"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_against_jax(name: str) -> None:
    make, options = CASES[name]

    def results(library: Any, lax: Any, numpy: Any) -> Any:
        mapped = library.pmap(make(lax, numpy), **options)
        slope = library.grad(lambda x: sum(numpy.sin(leaf).sum() for leaf in jax.tree.leaves(mapped(x))))(X)
        return mapped(X), slope

    with jax.enable_x64(True):
        wanted = results(jax, jax.lax, jnp)
        got = results(fxgrad, fxgrad.lax, fnp)
    for one, two in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, two, 1e-12, 1e-12)
    if name == "entries":
        assert {shard.device.id for shard in got[0].addressable_shards} == {0, 1, 2, 3}


def test_arguments_that_are_not_mapped() -> None:
    mapped = fxgrad.pmap(lambda power, x, w, k: x ** power * w + k, in_axes=(None, 0, None, 0),
                         static_broadcasted_argnums=0)
    x = X[:, 0, 0].astype(np.float32)
    np.testing.assert_allclose(mapped(
        2, x, np.float32(3.0), np.ones(4, np.float32)), x ** 2 * 3 + 1, 1e-6)
    named = fxgrad.pmap(lambda x, k: x + k, devices=jax.devices()[4:], donate_argnums=0)(jnp.asarray(x), k=x)
    np.testing.assert_allclose(named, 2 * x)
    assert {shard.device.id for shard in named.addressable_shards} == {4, 5, 6, 7}


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: fxgrad.pmap(lambda x: x)(np.ones(9)), errors.ArgumentError,
     ("pmap: the mapped axis of function has size 9, and there are 8 devices. Give each of them several entries, with "
      "pmap(vmap(f)) of arrays of shape (8, 9 // 8, ...), or use vmap")),
    (lambda: fxgrad.pmap(lambda x: x, devices=jax.devices()[:3])(np.ones(2)), errors.ArgumentError,
     "pmap: 3 devices for a mapped axis of size 2 of function; one device for each entry is needed"),
    (lambda: fxgrad.pmap(lambda x, y: x)(np.ones(2), np.ones(3)), errors.ArgumentError,
     ("pmap: the mapped axes of the arguments of function have different sizes: x has 2 (axis 0), y has 3 (axis 0). "
      "Equal sizes are needed; in_axes=None leaves an argument unmapped")),
    (lambda: fxgrad.pmap(lambda x: x, axis_name=0), errors.ArgumentError,
     "pmap: axis_name is a int (0), where a string is needed, such as axis_name='i'"),
    (lambda: fxgrad.pmap(lambda x: x, in_axes="x"), errors.ArgumentError,
     ("pmap: in_axes is a str ('x'), where an int, None, a tuple with an entry for each argument, or a dict by "
      "argument name is needed")),
    (lambda: fxgrad.pmap(lambda x: x, out_axes=3)(np.ones(2)), errors.ArgumentError,
     ("pmap: out_axes has 3 for an output of function of shape () without the batch; an axis from -1 to 0 is needed")),
])
def test_messages(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}(\n  at .*)?$"):
        call()
