"""Programs of the kinds that people ship: functions with small arguments, forward, differentiated, and whole steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax, nn


class Shipped(NamedTuple):
    """A function and its arguments; `tolerance` bounds the error of compiled results, relative to the largest."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    tolerance: float = 1e-13


_random = np.random.default_rng(7)
SINGLE = 2e-5
"""Also for attention, whose softmax is in float32 whatever its operands are."""
HALF = 2e-2


def _f64(*shape: int) -> Any:
    return _random.normal(size=shape)


def _f32(*shape: int) -> Any:
    return _random.normal(size=shape).astype(np.float32)


# --- dense networks --------------------------------------------------------------------------------------------


def _mlp(params: Any, x: Any) -> Any:
    for layer in params[:-1]:
        x = np.tanh(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def _mlp_loss(params: Any, x: Any, y: Any) -> Any:
    return np.mean((_mlp(params, x) - y) ** 2)


def _sgd_step(params: Any, x: Any, y: Any) -> Any:
    value, slopes = fxgrad.value_and_grad(_mlp_loss)(params, x, y)
    return fxgrad.tree.map(lambda p, slope: p - 0.1 * slope, params, slopes), value


def _adam_step(state: Any, x: Any, y: Any) -> Any:
    params, mean, square, count = state
    slopes = fxgrad.grad(_mlp_loss)(params, x, y)
    count = count + 1
    mean = fxgrad.tree.map(lambda m, slope: 0.9 * m + 0.1 * slope, mean, slopes)
    square = fxgrad.tree.map(lambda s, slope: 0.999 * s + 0.001 * slope * slope, square, slopes)
    params = fxgrad.tree.map(
        lambda p, m, s: p - 0.01 * (m / (1 - 0.9 ** count)) / (np.sqrt(s / (1 - 0.999 ** count)) + 1e-8),
        params, mean, square)
    return params, mean, square, count


def _classify(w: Any, x: Any, labels: Any) -> Any:
    logits = x @ w
    return -fnp.mean(nn.log_softmax(logits)[fnp.arange(len(x)), labels]), fnp.mean(fnp.argmax(logits, 1) == labels)


_PARAMS = [{"w": _f64(4, 8) / 2, "b": _f64(8)}, {"w": _f64(8, 3) / 2, "b": _f64(3)}]
_ZEROS = fxgrad.tree.map(np.zeros_like, _PARAMS)
_BATCH = _f64(5, 4), _f64(5, 3)


# --- images, sequences, attention --------------------------------------------------------------------------------


def _convolutional(params: Any, images: Any) -> Any:
    x = nn.relu(nn.conv2d(images, params["kernel"]) + params["bias"])
    x = lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return x.reshape(len(images), -1) @ params["out"]


def _normed(x: Any, scale: Any, shift: Any) -> Any:
    return nn.layer_norm(x, scale, shift)


def _block(params: Any, x: Any) -> Any:
    def heads(name: str) -> Any:
        return (y @ params[name]).reshape(2, 4, 2, 4)
    y = nn.layer_norm(x, params["scale"], params["shift"])
    mixed = nn.dot_product_attention(heads("q"), heads("k"), heads("v"), is_causal=True).reshape(2, 4, 8)
    x = x + mixed @ params["o"]
    return x + nn.gelu(nn.layer_norm(x, params["scale"], params["shift"]) @ params["up"]) @ params["down"]


def _lstm(params: Any, xs: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        hidden, cell = state
        gates = x @ params["x"] + hidden @ params["h"] + params["b"]
        i, f, g, o = fnp.split(gates, 4, axis=-1)
        cell = nn.sigmoid(f) * cell + nn.sigmoid(i) * fnp.tanh(g)
        hidden = nn.sigmoid(o) * fnp.tanh(cell)
        return (hidden, cell), hidden
    start = fnp.zeros((xs.shape[1], 4), xs.dtype), fnp.zeros((xs.shape[1], 4), xs.dtype)
    return lax.scan(step, start, xs)[1]



_IMAGES = _f32(2, 6, 6, 1)
_CNN = {"kernel": _f32(3, 3, 1, 4), "bias": _f32(4), "out": _f32(36, 3)}
_BLOCK = {name: _f64(8, 8) / 3 for name in "qkvo"} | {
    "up": _f64(8, 16) / 3, "down": _f64(16, 8) / 4, "scale": _f64(8), "shift": _f64(8)}
_LSTM = {"x": _f64(3, 16), "h": _f64(4, 16) / 2, "b": _f64(16)}
_SEQUENCE, _TOKENS = _f64(5, 2, 3), _f64(2, 4, 8)


# --- loops, branches, solvers ------------------------------------------------------------------------------------


def _root(x: Any) -> Any:
    return lax.while_loop(lambda guess: fnp.abs(guess * guess - x) > 1e-9 * x, lambda guess: (guess + x / guess) / 2, x)


def _kalman(observed: Any) -> Any:
    def step(state: Any, seen: Any) -> Any:
        mean, variance = state
        variance = variance + 0.1
        gain = variance / (variance + 0.5)
        mean = mean + gain * (seen - mean)
        return (mean, (1 - gain) * variance), mean
    return lax.scan(step, (0.0, 1.0), observed)


def _newton(w: Any, x: Any, y: Any) -> Any:
    def loss(w: Any) -> Any:
        return fnp.mean(nn.softplus(x @ w) - y * (x @ w)) + 0.1 * fnp.sum(w * w)
    return w - fnp.linalg.solve(fxgrad.hessian(loss)(w), fxgrad.grad(loss)(w))


def _means(points: Any, centres: Any) -> Any:
    nearest = fnp.argmin(fnp.sum((points[:, None] - centres) ** 2, -1), 1)
    chosen = nn.one_hot(nearest, len(centres))
    return chosen.T @ points / fnp.maximum(fnp.sum(chosen, 0), 1.0)[:, None], nearest


def _dropout(key: Any, x: Any) -> Any:
    return fnp.where(fxgrad.random.bernoulli(key, 0.5, x.shape), x * 2.0, 0.0) + fxgrad.random.normal(key, x.shape)


def _bits(x: Any, y: Any) -> Any:
    return x // y, x % y, x & y, x ^ y, ~x, x << 3, x >> 2, fnp.abs(x), fnp.sign(x)


def _casts(x: Any) -> Any:
    return (x.astype("float32"), (x * 3).astype("int32"), x.astype(bool), x.astype("float16").astype("float64"),
            (x > 0).astype("int8"))


_WHOLE = np.array([-7, -1, 0, 5, 12, 100], np.int32), np.array([2, 3, 5, -3, 7, -9], np.int32)
_ROOT = _f64(4, 4)
_POSITIVE = _ROOT @ _ROOT.T + 4 * np.eye(4)

SHIPPED: dict[str, Shipped] = {
    "MLP": Shipped(_mlp, (_PARAMS, _BATCH[0])),
    "MLP, gradient": Shipped(fxgrad.grad(_mlp_loss), (_PARAMS, *_BATCH)),
    "MLP, step of SGD": Shipped(_sgd_step, (_PARAMS, *_BATCH)),
    "MLP, step of Adam": Shipped(_adam_step, ((_PARAMS, _ZEROS, _ZEROS, 3), *_BATCH), 1e-12),
    "MLP, gradients by example": Shipped(fxgrad.vmap(fxgrad.grad(_mlp_loss), (None, 0, 0)), (_PARAMS, *_BATCH)),
    "MLP, forward mode": Shipped(lambda p, x: fxgrad.jvp(lambda p: _mlp(p, x), (p,), (p,)), (_PARAMS, _BATCH[0])),
    "MLP, checkpointed gradient": Shipped(fxgrad.grad(fxgrad.checkpoint(_mlp_loss)), (_PARAMS, *_BATCH)),
    "classifier, loss and accuracy": Shipped(_classify, (_f64(4, 3), _BATCH[0], np.array([0, 2, 1, 1, 0]))),
    "classifier, gradient": Shipped(fxgrad.grad(_classify, has_aux=True),
                                    (_f64(4, 3), _BATCH[0], np.array([0, 2, 1, 1, 0]))),
    "softmax": Shipped(nn.softmax, (_f64(3, 7),)),
    "log-softmax, Jacobian": Shipped(fxgrad.jacrev(nn.log_softmax), (_f64(5),)),
    "logsumexp with an infinity": Shipped(lambda x: nn.logsumexp(x, axis=1),
                                         (np.array([[-np.inf, 1, 2], [3., 4, 5]]),)),
    "layer norm": Shipped(_normed, (_f64(3, 8), _f64(8), _f64(8))),
    "layer norm, gradient": Shipped(fxgrad.grad(lambda *given: np.sum(np.sin(_normed(*given))), argnums=(0, 1, 2)),
                                    (_f64(3, 8), _f64(8), _f64(8)), 1e-12),
    "gelu and erf": Shipped(lambda x: (nn.gelu(x, approximate=False), nn.gelu(x), nn.silu(x), nn.softplus(x)),
                            (_f64(9),)),
    "convolutional net": Shipped(_convolutional, (_CNN, _IMAGES), SINGLE),
    "convolutional net, gradient": Shipped(fxgrad.grad(lambda p, x: fnp.sum(_convolutional(p, x) ** 2)),
                                           (_CNN, _IMAGES), SINGLE),
    "attention": Shipped(lambda q, k, v: nn.dot_product_attention(q, k, v, is_causal=True),
                         tuple(_f64(2, 4, 2, 4) for _ in range(3)), SINGLE),
    "transformer block": Shipped(_block, (_BLOCK, _TOKENS), SINGLE),
    "transformer block, gradient": Shipped(fxgrad.grad(lambda p, x: fnp.sum(_block(p, x) ** 2)), (_BLOCK, _TOKENS),
                                           SINGLE),
    "LSTM by scan": Shipped(_lstm, (_LSTM, _SEQUENCE)),
    "LSTM by scan, gradient": Shipped(fxgrad.grad(lambda p, x: fnp.sum(_lstm(p, x) ** 2)), (_LSTM, _SEQUENCE), 1e-12),
    "Kalman filter": Shipped(_kalman, (_f64(7),)),
    "square root by while": Shipped(_root, (7.0,)),
    "power by a loop, gradient": Shipped(fxgrad.grad(lambda x: lax.fori_loop(0, 5, lambda i, y: y * x + i, x)), (1.3,)),
    "branch, both ways": Shipped(lambda p, x: [lax.cond(p > level, fnp.sin, lambda x: x * 2.0, x) for level in (0, 1)],
                                 (0.5, _f64(3))),
    "cumulative sums": Shipped(lambda x: (fnp.cumsum(x, 1), fnp.cumprod(x, 0), lax.cummax(x, axis=0)), (_f64(3, 4),)),
    "sort": Shipped(lambda x: (fnp.sort(x, 0), fnp.argsort(x, 1), fnp.median(x)), (_f64(4, 5),)),
    "sort, gradient": Shipped(fxgrad.grad(lambda x: fnp.sum(fnp.sort(x) * fnp.arange(6.0))), (_f64(6),)),
    "the largest": Shipped(lambda x: (*lax.top_k(x, 3), fnp.argmax(x, 1), fnp.argmin(x)), (_f64(3, 6),)),
    "indexing": Shipped(lambda x, i: (x[i], x[1:, ::-2], x[:, None, -1], fnp.take(x, i, axis=1)),
                        (_f64(4, 5), np.array([[0, 2], [-1, 3]]))),
    "indexing, gradient": Shipped(fxgrad.grad(lambda x, i: fnp.sum(x[i] ** 2 * 3.0)),
                                  (_f64(4, 5), np.array([0, 2, 0]))),
    "updates of slices": Shipped(lambda x, i: lax.dynamic_update_slice(x, x[:2, :2] * 2.0, (i, 1)), (_f64(4, 5), 2)),
    "pieces put together": Shipped(
        lambda x: (fnp.concatenate([x, x[:1]]), fnp.pad(x, 1), fnp.roll(x, 1, 0), fnp.flip(x), fnp.stack([x, -x], 1)),
        (_f64(3, 2),)),
    "triangles and masks": Shipped(lambda x: (fnp.tril(x), fnp.where(x > 0, x, -1.0), fnp.clip(x, -0.5, 0.5)),
                                   (_f64(4, 4),)),
    "reductions": Shipped(lambda x: (fnp.var(x, 0), fnp.std(x), fnp.prod(x, 1), fnp.max(x, (0, 1)), fnp.any(x > 1, 0)),
                          (_f64(3, 4),)),
    "reductions of nothing": Shipped(lambda x: (fnp.sum(x, 0), fnp.prod(x), fnp.all(x > 0)), (_f64(0, 3),)),
    "whole numbers and bits": Shipped(_bits, _WHOLE),
    "conversions": Shipped(_casts, (_f64(6),)),
    "einsum of three": Shipped(lambda x, y, z: fnp.einsum("ij,jk,lk->il", x, y, z),
                               (_f64(2, 3), _f64(3, 4), _f64(5, 4))),
    "batches of products": Shipped(lambda x, y: (x @ y, fnp.swapaxes(x, 1, 2)), (_f64(2, 3, 4), _f64(2, 4, 2))),
    "half precision": Shipped(lambda x, w: fnp.tanh(x @ w),
                              (_f32(3, 4).astype(np.float16), _f32(4, 2).astype(np.float16)), HALF),
    "Hessian": Shipped(fxgrad.hessian(lambda x: fnp.sum(fnp.exp(-x ** 2) * fnp.sin(x))), (_f64(4),)),
    "Hessian by a vector": Shipped(lambda x, v: fxgrad.hvp(lambda x: fnp.prod(fnp.cosh(x)), (x,), (v,)),
                                   (_f64(4), _f64(4))),
    "k-means, a step": Shipped(_means, (_f64(9, 2), _f64(3, 2))),
    "Newton's step": Shipped(_newton, (_f64(3), _f64(6, 3), np.array([0., 1, 1, 0, 1, 0])), 1e-12),
    "Cholesky": Shipped(fnp.linalg.cholesky, (_POSITIVE,)),
    "linear system, gradient": Shipped(fxgrad.grad(lambda a, b: fnp.sum(fnp.linalg.solve(a, b) ** 2)),
                                       (_POSITIVE, _f64(4)), 1e-12),
    "Fourier transform": Shipped(lambda x: fnp.abs(fnp.fft.rfft(x)) ** 2, (_f64(8),)),
    "random numbers": Shipped(_dropout, (fxgrad.random.key(3), _f32(6)), SINGLE),
}
