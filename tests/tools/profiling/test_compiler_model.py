"""The model of XLA's memory, rule by rule: the bytes that each says, which are those of XLA's plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax, nn

KB = 4 * 256  # of 256 float32


def f32(*shape: int) -> fxgrad.ShapeDtypeStruct:
    return fxgrad.ShapeDtypeStruct(shape, np.float32)


def i32(*shape: int) -> fxgrad.ShapeDtypeStruct:
    return fxgrad.ShapeDtypeStruct(shape, np.int32)


def bisected(x: Any) -> Any:
    """Both carried values are read for both that follow."""
    def step(_: Any, ends: Any) -> Any:
        low, high = ends
        middle = fnp.tanh(x * (low + high))
        return fnp.where(middle > 0, low, middle), fnp.where(middle > 0, middle, high)
    low, high = lax.fori_loop(0, 5, step, (x - 1, x + 1))
    return low + high


def beside_a_product(x: Any, y: Any, z: Any) -> Any:
    """`scaled` is stored for the product, and yet what reads it and a product of its own is computed in one group."""
    scaled = x * z * y
    return fnp.maximum(fnp.maximum(scaled, z * x), x @ scaled), fnp.tanh(scaled)


def smoothed(x: Any) -> Any:
    """The next value is computed beside the carried one, which it reads at other places."""
    return lax.fori_loop(0, 5, lambda _, c: fnp.pad(c[1:] + c[:-1], ((0, 1), (0, 0))), x)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "large sums are computed with what they read": (lambda x: fnp.sum(fnp.tanh(x * 2.0)), (f32(64, 256),), 0),
    "what small sums read is stored, and 32 sums": (lambda x: fnp.sum(fnp.tanh(x * 2.0)), (f32(4, 256),), 4 * KB + 32),
    "choices are not computed with large sums": (
        lambda x: fnp.sum(fnp.where(x > 0, x, 0.5)), (f32(64, 256),), 64 * KB),
    "constants of two sums are arrays": (
        lambda x, y: fnp.sum(fnp.exp(x * 3.0)) + fnp.sum(fnp.exp(y * 3.0)), (f32(64, 256), f32(64, 256)),
        64 * KB + 4),
    "quotients by rows are products with inverses": (
        lambda x: x / fnp.sum(x, axis=1, keepdims=True), (f32(64, 256),), 4 * 64),
    "products are not written over their operands": (
        lambda x, w: fnp.tanh(x @ w) @ w, (f32(64, 256), f32(256, 256)), 64 * KB),
    "transposed operands are read as they lie": (lambda x, y: x.T @ y, (f32(64, 256), f32(64, 32)), 0),
    "operands of products over two axes are turned": (
        lambda x, y: fnp.einsum("abc,dba->cd", x, y), (f32(8, 16, 32), f32(64, 16, 8)),
        4 * (8 * 16 * 32 + 8 * 16 * 64)),
    "what is scattered into is written over": (
        lambda x, at: fnp.zeros((256, 64), np.float32).at[at].add(x), (f32(512, 64), i32(512)), 4 * 512),
    "carried values that others read are copied": (bisected, (f32(64, 256),), 2 * 64 * KB),
    "a next value that reads neighbours is another": (smoothed, (f32(64, 256),), 64 * KB),
    "cheap values are computed again": (
        lambda x, w: ((x + 1.0) @ w, fnp.exp(x + 1.0)), (f32(64, 256), f32(256, 256)), 64 * KB),
    "what a product reads is stored": (beside_a_product, (f32(64, 64),) * 3, 2 * 4 * 64 * 64),
    "two layers with gelu share its three constants": (
        lambda x, y, w: fnp.sum(nn.gelu(x @ w)) + fnp.sum(nn.gelu(y @ w)), (f32(64, 256), f32(64, 256), f32(256, 256)),
        3 * 64 * KB + 4),
}


@pytest.mark.parametrize("rule", CASES)
def test_each_rule_in_closed_form(rule: str) -> None:
    function, args, temporary = CASES[rule]
    assert fxgrad.memory_analysis(function)(*args).fused.temporary == temporary
