"""The recipes of docs/appendix/kernels.md, under every transformation."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import errors

BLOCKS = re.findall(r"^```text\n(.*?)^```", (Path(__file__).parents[2] / "docs" / "appendix" / "kernels.md").read_text(
    encoding="utf-8"), re.MULTILINE | re.DOTALL)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 3, 8)).astype(np.float32)


def plain(x: Any) -> Any:
    return x / np.sqrt(np.mean(x ** 2, axis=-1, keepdims=True) + 1e-6)


def ran(*words: str) -> dict[str, Any]:
    """What the blocks of the page that have these words define."""
    names: dict[str, Any] = {}
    for word in words:
        block, = [each for each in BLOCKS if word in each]
        exec(block, names)
    return names


def check(kernel: Any, formula: Any, *args: Any) -> None:
    """A function holds to its formula un-jitted and jitted, alone, batched, and differentiated."""
    def loss(function: Any) -> Any:
        return lambda *xs: (function(*xs) * np.arange(xs[0].shape[-1], dtype=np.float32)).sum()

    every = tuple(range(len(args)))
    forms = {
        "plain": lambda f: f, "grad": lambda f: fxgrad.grad(loss(f), argnums=every), "vmap": fxgrad.vmap,
        "vmap of grad": lambda f: fxgrad.vmap(fxgrad.grad(loss(f), argnums=every)),
        "grad of vmap": lambda f: fxgrad.grad(loss(fxgrad.vmap(f)), argnums=every)}
    for name, form in forms.items():
        wanted = form(formula)(*args)
        for made in (form(kernel), fxgrad.jit(form(kernel))):
            found = made(*args)
            for one, other in zip(fxgrad.tree.leaves(found), fxgrad.tree.leaves(wanted), strict=True):
                assert one.dtype == other.dtype == np.float32
                np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5, err_msg=name)
        assert all(isinstance(leaf, np.ndarray) for leaf in fxgrad.tree.leaves(form(kernel)(*args)))
    text = str(fxgrad.make_program(forms["grad"](kernel))(*args))
    assert "sqrt" not in text, "the derivative is that of the formula, not the kernel's"


@pytest.mark.slow
def test_pallas() -> None:
    names = ran("forward_kernel")
    check(names["rms_norm"], plain, X)
    program = fxgrad.make_program(fxgrad.grad(lambda x: names["rms_norm"](x).sum()))(X)
    assert [each.primitive.name for each in program.equations].count("jax_call") == 1  # the backward kernel alone


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler (g++), which jax.ffi's headers need")
def test_ffi() -> None:
    check(ran("SOURCE =", "ffi_call")["rms_norm"], plain, X)


@pytest.mark.slow
def test_attention_of_jax() -> None:
    q, k, v = (RNG.normal(size=(2, 5, 3, 4)).astype(np.float32) for _ in range(3))

    def formula(q: Any, k: Any, v: Any) -> Any:
        scores = np.einsum("...thd,...shd->...hts", q, k) / 2.0
        return np.einsum("...hts,...shd->...thd", fxgrad.nn.softmax(
            np.where(np.tri(5, dtype=bool), scores, -np.inf)), v)

    attention = ran("dot_product_attention")["attention"]
    assert "jax_call" not in str(fxgrad.make_program(attention)(q, k, v))
    check(attention, formula, q, k, v)


@pytest.mark.slow
def test_a_kernel_without_a_rule_is_refused_by_name() -> None:
    forward = ran("forward_kernel")["forward"]  # jax's own error names neither the kernel nor what to write
    with pytest.raises(errors.UnsupportedError) as caught:
        fxgrad.grad(lambda x: forward(x).sum())(X)
    text = re.sub(r": Linearization.*?\. Give", ": REASON. Give", str(caught.value))
    assert re.sub(r"\w+\.py:\d+", "FILE", text) == (
        "pallas_call is computed by jax, which has no rule for what is asked of it (linearize): REASON. Give the "
        "function that calls it a rule, with fxgrad.custom_vjp or custom_jvp, or with those of jax\n  at FILE (in "
        "test_a_kernel_without_a_rule_is_refused_by_name)")
