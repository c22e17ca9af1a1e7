"""Functions of arrays with symbolic sizes, each with the shapes of its arguments, for tests of `fxgrad.symbolic_spec`.

A shape is a tuple of sizes; one with a dtype is a pair of both.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax, nn, scipy, symbolic_spec
from fxgrad.errors import FxgradError

LARGER = {"n": 3, "m": 4, "b": 2, "k": 5, "t": 3, "h": 6, "w": 7}
"""Sizes to substitute for the names."""


def spec_of(shape: Any) -> Any:
    return symbolic_spec(*shape) if shape and isinstance(shape[0], tuple) else symbolic_spec(shape)


def drawn(shape: Any, count: int, seed: str) -> Any:
    """Return an argument for these sizes: all `count`, or a larger one for each name."""
    wanted = spec_of(shape)
    sizes = tuple(size if isinstance(size, int) else size.at(
        {name: LARGER[name] + count - 3 if count > 2 else count for name in size.names}) for size in wanted.shape)
    random = np.random.default_rng(zlib.crc32(f"{seed}{sizes}".encode()))
    if wanted.dtype.kind == "i":
        return random.integers(0, min(count, 3), sizes).astype(wanted.dtype)
    return random.normal(size=sizes).astype(wanted.dtype)


def agree(found: Any, wanted: Any, tolerance: float = 1e-12) -> None:
    found, wanted = jax.tree.leaves(found), jax.tree.leaves(wanted)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert np.shape(one) == np.shape(other)
        assert one.dtype == other.dtype
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), tolerance, tolerance)


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(FxgradError) as caught:
        call()
    return str(caught.value).split("\n  at ")[0]


# --- the functions --------------------------------------------------------------------------------------------------

I32 = "i32"
ROWS, VECTOR, SQUARE = ("n", 3), ("n",), ("n", "n")


@fxgrad.custom_jvp
def own_sine(x: Any) -> Any:
    return np.sin(x)


@own_sine.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return np.sin(primals[0]), np.cos(primals[0]) * tangents[0]


def convolved(x: Any) -> Any:
    return lax.conv_general_dilated(x, np.ones((2, 1, 3, 3)), (1, 1), "SAME")


Entry = tuple[Callable[..., Any], tuple[Any, ...]]
FUNCTIONS: dict[str, Entry] = {
    "sin": (lambda x: np.sin(x) * 2, (ROWS,)),
    "mean": (lambda x: np.mean(x), (ROWS,)),
    "mean0": (lambda x: np.mean(x, axis=0), (ROWS,)),
    "meth": (lambda x: x.mean(0) + x.sum(0) + x.max(0) - x.min(axis=0), (ROWS,)),
    "var": (lambda x: np.var(x, axis=0) + np.std(x, axis=0) + fnp.var(x), (ROWS,)),
    "bigvar": (lambda x: np.var(np.concatenate([x, x + 1]), axis=0, ddof=1), (ROWS,)),
    "size": (lambda x: x * x.shape[0] / x.size + x.shape[0], (ROWS,)),
    "size2": (
        lambda x: x * (1.0 / x.shape[0]) + np.sqrt(x.shape[0]) + x.shape[0] * 0.5 + x.shape[0] / 2 + x.shape[0] ** 2,
        (ROWS,)),
    "reshape": (lambda x: x.reshape(x.shape[0] * 3), (ROWS,)),
    "flat": (lambda x: x.reshape(-1), (ROWS,)),
    "reshape2": (lambda x: x.reshape(-1, 1, 3).reshape(3, -1), (ROWS,)),
    "ravel": (lambda x: np.ravel(x) + x.flatten(), (ROWS,)),
    "T": (lambda x: x.T @ x, (ROWS,)),
    "matmul": (lambda x, y: x @ y, (ROWS, (3, "m"))),
    "matmul2": (lambda x, y: np.matmul(x, y).sum(1), (ROWS, (3, "n"))),
    "dot": (lambda x, y: np.dot(x, y), (VECTOR, VECTOR)),
    "outer": (lambda x, y: np.outer(x, y), (VECTOR, ("m",))),
    "einsum": (lambda x, y: np.einsum("ij,kj->ik", x, y), (ROWS, ("m", 3))),
    "einsum2": (lambda x: np.einsum("bij,bjk->bik", x, x), (("b", "n", "n"),)),
    "einsum3": (lambda x, w: np.einsum("bij,ik,jl->bkl", x, w, w), (("b", 3, 3), (3, 2))),
    "einsum4": (lambda x, y: np.einsum("ij,kj,kl,il->i", x, y, y, x), (ROWS, ("m", 3))),
    "resize": (lambda x: fxgrad.image.resize(x, (x.shape[0], 5, 4), "linear"), (("b", 3, 3),)),
    "tensordot": (lambda x: np.tensordot(x, x, axes=([0], [0])), (ROWS,)),
    "bias": (lambda x, b: x + b + b[None, :], (ROWS, (3,))),
    "bcast": (lambda x, y: x[:, None] * y[None, :], (VECTOR, ("m",))),
    "bto": (lambda x: np.broadcast_to(x, (4, *x.shape)), (ROWS,)),
    "bto2": (lambda x, b: fnp.broadcast_to(b, x.shape) * x, (ROWS, (3,))),
    "concat": (lambda x, y: np.concatenate([x, y]), (ROWS, ("m", 3))),
    "concat1": (lambda x: np.concatenate([x, x], axis=1), (ROWS,)),
    "stack": (lambda x: np.stack([x, 2 * x]), (ROWS,)),
    "hv": (lambda x: np.vstack([np.hstack([x, x]), np.hstack([x, x])]), (ROWS,)),
    "arange": (lambda x: x * fnp.arange(x.shape[0]), (VECTOR,)),
    "arange2": (lambda x: x * fnp.arange(0, x.shape[0], dtype="f4"), (VECTOR,)),
    "iota": (lambda x: x * lax.iota("float64", x.shape[0]), (VECTOR,)),
    "eye": (lambda x: x @ fnp.eye(x.shape[0]), (SQUARE,)),
    "linspace": (lambda x: x * fnp.linspace(0, 1, x.shape[0]), (VECTOR,)),
    "zeros": (lambda x: fnp.zeros(x.shape) + x + fnp.ones((x.shape[0], 3)) + fnp.full(x.shape, 2.0), (ROWS,)),
    "like": (lambda x: np.zeros_like(x) + x + np.ones_like(x) + np.full_like(x, 3.0), (ROWS,)),
    "sort": (lambda x: np.sort(x, axis=0) + np.sort(x), (ROWS,)),
    "argsort": (lambda x: np.argsort(x), (VECTOR,)),
    "argmax": (lambda x: (np.argmax(x, axis=0), np.argmin(x)), (ROWS,)),
    "cumsum": (lambda x: np.cumsum(x, axis=0) + np.cumprod(x, axis=0), (ROWS,)),
    "pad": (lambda x: np.pad(x, ((1, 2), (0, 0))), (ROWS,)),
    "first and last rows": (lambda x: x[0] + x[-1], (ROWS,)),
    "all but the first row": (lambda x: x[1:], (ROWS,)),
    "diffs": (lambda x: x[1:] - x[:-1], (ROWS,)),
    "diff": (lambda x: np.diff(x, axis=0), (ROWS,)),
    "rev": (lambda x: x[::-1], (ROWS,)),
    "step": (lambda x: x[::2], (ROWS,)),
    "slice0": (lambda x: x[:x.shape[0] // 2 + 1], (ROWS,)),
    "col": (lambda x: x[:, 1] * x[:, -1], (ROWS,)),
    "cols": (lambda x: x[:, 1:], (ROWS,)),
    "flip": (lambda x: np.flip(x, 0) + np.flipud(x), (ROWS,)),
    "roll": (lambda x: np.roll(x, 1, axis=0), (ROWS,)),
    "rollf": (lambda x: np.roll(x, 1), (ROWS,)),
    "take": (lambda x, i: x[i], (ROWS, (("k",), I32))),
    "take2": (lambda x, i: np.take(x, i, axis=0), (ROWS, (("k",), I32))),
    "takealong": (lambda x: np.take_along_axis(x, np.argsort(x, axis=0), axis=0), (ROWS,)),
    "gather2": (lambda x, i: x[i, i % 3], (ROWS, (("k",), I32))),
    "at": (lambda x, i: x.at[i].add(1.0), (ROWS, (("k",), I32))),
    "atset": (lambda x: x.at[0].set(1.0), (ROWS,)),
    "atset2": (lambda x: x.at[:, 0].set(1.0), (ROWS,)),
    "where": (lambda x: np.where(x > 0, x, 0), (ROWS,)),
    "mask": (lambda x: fnp.sum(x, where=x > 0) + np.clip(x, 0, 1).sum(), (ROWS,)),
    "softmax": (lambda x: nn.softmax(x) + nn.softmax(x, axis=0) + nn.log_softmax(x, axis=0), (ROWS,)),
    "lse": (lambda x: nn.logsumexp(x, axis=0), (ROWS,)),
    "relu": (lambda x: nn.relu(x) + nn.gelu(x) + nn.silu(x), (ROWS,)),
    "lnorm": (lambda x: nn.standardize(x), (ROWS,)),
    "onehot": (lambda i: nn.one_hot(i, 5), ((("n",), I32),)),
    "attn": (lambda q: nn.dot_product_attention(q, q, q), (("b", "t", 2, 4),)),
    "attnc": (lambda q: nn.dot_product_attention(q, q, q, is_causal=True), (("b", "t", 2, 4),)),
    "tri": (lambda x: np.tril(x) + np.triu(x, 1), (SQUARE,)),
    "trimask": (lambda x: np.where(fnp.tril(fnp.ones((x.shape[0], x.shape[0]), bool)), x, 0.0), (SQUARE,)),
    "trace": (lambda x: np.trace(x) + np.diag(x), (SQUARE,)),
    "diagm": (lambda x: np.diag(x), (VECTOR,)),
    "solve": (lambda x: np.linalg.solve(x @ x.T + 3 * fnp.eye(x.shape[0]), x), (SQUARE,)),
    "chol": (lambda x: np.linalg.cholesky(x @ x.T + 3 * fnp.eye(x.shape[0])), (SQUARE,)),
    "det": (lambda x: np.linalg.det(x) + np.linalg.slogdet(x)[1], (SQUARE,)),
    "inv": (lambda x: np.linalg.inv(x @ x.T + 3 * fnp.eye(x.shape[0])), (SQUARE,)),
    "eigh": (lambda x: np.linalg.eigh(x + x.T)[0], (SQUARE,)),
    "svd": (lambda x: np.linalg.svd(x, compute_uv=False), (SQUARE,)),
    "batchsolve": (lambda x, y: np.linalg.solve(x, y), (("b", 3, 3), ("b", 3, 1))),
    "batchchol": (lambda x: np.linalg.cholesky(x @ fnp.swapaxes(x, 1, 2) + 3 * fnp.eye(3)), (("b", 3, 3),)),
    "norm": (lambda x: np.linalg.norm(x) + np.linalg.norm(x, axis=0), (ROWS,)),
    "squeeze": (lambda x: np.squeeze(x[:, None], 1) + np.expand_dims(x, 0)[0], (ROWS,)),
    "split": (lambda x: np.split(x, 3, axis=1)[1], (ROWS,)),
    "repeat": (lambda x: np.repeat(x, 2, axis=0), (ROWS,)),
    "tile": (lambda x: np.tile(x, (2, 1)), (ROWS,)),
    "prod": (lambda x: np.prod(x, axis=0), (ROWS,)),
    "anyall": (lambda x: (np.any(x > 0), np.all(x > 0, axis=0)), (ROWS,)),
    "median": (lambda x: np.median(x, axis=0), (ROWS,)),
    "quantile": (lambda x: np.quantile(x, 0.3, axis=0), (ROWS,)),
    "scan": (lambda x: lax.scan(lambda c, _: (np.tanh(c) * 0.5 + x, c.sum()), x, None, length=4), (ROWS,)),
    "scanfix": (lambda x: lax.scan(lambda c, t: (c * 0.5 + t, c), fnp.zeros(x.shape[1:], float), x), ((5, "n"),)),
    "scann": (lambda x: lax.scan(lambda c, t: (c * 0.5 + t, c), fnp.zeros(3, float), x), (ROWS,)),
    "fori": (lambda x: lax.fori_loop(0, 4, lambda i, c: np.sin(c) + i, x), (ROWS,)),
    "forin": (lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i], fnp.zeros(3, float)), (ROWS,)),
    "while": (lambda x: lax.while_loop(lambda c: c.sum() < 10, lambda c: c + 1.0, x * 0), (ROWS,)),
    "cond": (lambda x: lax.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, x), (ROWS,)),
    "map": (lambda x: lax.map(lambda r: np.sin(r).sum(), x), (ROWS,)),
    "ckpt": (lambda x: fxgrad.checkpoint(lambda x: np.sin(np.sin(x)))(x).sum(), (ROWS,)),
    "jit": (lambda x: fxgrad.jit(lambda x: np.sin(x) / x.shape[0])(x), (ROWS,)),
    "vmap": (lambda x: fxgrad.vmap(lambda r: np.sin(r).sum() * r)(x), (ROWS,)),
    "vmapgrad": (lambda x: fxgrad.vmap(fxgrad.grad(lambda r: np.sin(r).sum()))(x), (ROWS,)),
    "hess": (lambda x: fxgrad.hessian(lambda v: np.sum(np.sin(v)))(x), ((3,),)),
    "jacfwdn": (lambda x: fxgrad.jacfwd(lambda v: np.sin(v) * v.sum())(x), (VECTOR,)),
    "jacrevn": (lambda x: fxgrad.jacrev(lambda v: np.sin(v) * v.sum())(x), (VECTOR,)),
    "hessn": (lambda x: fxgrad.hessian(lambda v: np.sum(np.sin(v) * v.sum()))(x), (VECTOR,)),
    "pool": (lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2), (1, 2), "VALID"), (("b", 4),)),
    "fft": (lambda x: np.abs(np.fft.fft(x, axis=1)), (ROWS,)),
    "fftn": (lambda x: np.abs(np.fft.fft(x)), (VECTOR,)),
    "irfft": (lambda x: np.fft.irfft(x + 1j * np.sin(x), 2 * x.shape[0]), (VECTOR,)),
    "convolution by transforms": (lambda x: scipy.signal.fftconvolve(x, np.array([1.0, 2.0, 4.0])), (VECTOR,)),
    "interp": (lambda x: np.interp(x, np.array([0.0, 1.0]), np.array([0.0, 2.0])), (ROWS,)),
    "searchs": (lambda x: np.searchsorted(np.array([0.0, 1.0]), x), (VECTOR,)),
    "isin": (lambda x: np.isnan(x) | np.isinf(x), (ROWS,)),
    "average": (lambda x: np.average(x, axis=0), (ROWS,)),
    "cov": (lambda x: np.cov(x.T), (("n+1", 3),)),
    "logical": (lambda x: np.count_nonzero(x > 0, axis=0), (ROWS,)),
    "meshg": (lambda x: fnp.meshgrid(x, x), (VECTOR,)),
    "polyval": (lambda x: np.polyval(np.array([1.0, 2.0, 3.0]), x), (VECTOR,)),
    "swap": (lambda x: np.swapaxes(x, 0, 1) + np.moveaxis(x, 0, 1), (ROWS,)),
    "kron": (lambda x: np.kron(x, np.ones((2, 2))), (("n", "m"),)),
    "crossent": (lambda x, y: -np.mean(np.sum(nn.one_hot(y, 3) * nn.log_softmax(x), -1)), (ROWS, (("n",), I32))),
    "crossent2": (lambda x, y: -np.mean(nn.log_softmax(x)[fnp.arange(x.shape[0]), y]), (ROWS, (("n",), I32))),
    "dynslice": (lambda x, i: lax.dynamic_slice(x, (i, 0), (1, 3)), (ROWS, ((), I32))),
    "dus": (lambda x, i: lax.dynamic_update_slice(x, np.ones((1, 3)), (i, 0)), (ROWS, ((), I32))),
    "topk": (lambda x: lax.top_k(x, 2)[0], (ROWS,)),
    "maxi": (lambda x, y: np.maximum(x, y) + np.hypot(x, y) + np.arctan2(x, y), (ROWS, ROWS)),
    "random": (lambda x: x + fxgrad.random.normal(fxgrad.random.key(0), x.shape), (ROWS,)),
    "randu": (lambda x: x + fxgrad.random.uniform(fxgrad.random.key(0), (x.shape[0], 3), "f8"), (ROWS,)),
    "rnn": (
        lambda x, w: lax.scan(lambda h, t: (np.tanh(h @ w + t), None), fnp.zeros((x.shape[1], 3), float), x)[0],
        ((5, "b", 3), (3, 3))),
    "own rule": (own_sine, (ROWS,)),
    "convolution of batches": (convolved, (("b", 1, 8, 8),)),
    "convolution of images": (convolved, ((2, 1, "h", "w"),)),
    "dropout": (lambda x: nn.dropout(x, 0.5, fxgrad.random.key(0)), (ROWS,)),
    "segments": (lambda x, i: fxgrad.ops.segment_sum(x, i, 3), (ROWS, (("n",), I32))),
}
