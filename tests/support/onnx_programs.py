"""Programs that are exported: models people train, and each family of operations; many with their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax, nn


class Case(NamedTuple):
    """A function with arguments; `wrt` are those that its gradient is taken in, none if it has none."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    wrt: tuple[int, ...] = ()
    tolerance: float = 1.0


CASES: list[Case] = []


def case(*args: Any, wrt: tuple[int, ...] = (), tolerance: float = 1.0) -> Callable[[Callable[..., Any]], Any]:
    """Enters a function under its name."""
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append(Case(function.__name__, function, args, wrt, tolerance))
        return function
    return enter


def draw(*shape: int, seed: int = 0, dtype: str = "float32", low: float = -1.0, high: float = 1.0) -> Any:
    """Numbers drawn evenly, the same in every run."""
    return np.random.default_rng([seed, *shape]).uniform(low, high, shape).astype(dtype)


def whole(*shape: int, below: int, seed: int = 0, dtype: str = "int32") -> Any:
    """Whole numbers from 0 to below `below`."""
    return np.random.default_rng([seed, *shape]).integers(0, below, shape).astype(dtype)


# --- models ---------------------------------------------------------------------------------------------------------

MLP = {"hidden": {"w": draw(6, 8), "b": draw(8)}, "last": {"w": draw(8, 3, seed=1), "b": draw(3)}}
X, LABELS = draw(5, 6), whole(5, below=3)


@case(MLP, X, wrt=(0,))
def mlp(params, x):
    hidden = np.tanh(x @ params["hidden"]["w"] + params["hidden"]["b"])
    logits = hidden @ params["last"]["w"] + params["last"]["b"]
    return np.mean(logits ** 2)


@case(MLP, X, LABELS, wrt=(0,))
def classifier(params, x, labels):
    hidden = nn.relu(x @ params["hidden"]["w"] + params["hidden"]["b"])
    logits = hidden @ params["last"]["w"] + params["last"]["b"]
    return -np.mean(fnp.take_along_axis(nn.log_softmax(logits), labels[:, None], axis=1))


@case(MLP, X, LABELS)
def sgd_step(params, x, labels):
    loss, gradient = fxgrad.value_and_grad(classifier)(params, x, labels)
    return fxgrad.tree.map(lambda p, g: p - 0.1 * g, params, gradient), loss


@case(MLP, fxgrad.tree.map(np.zeros_like, MLP), fxgrad.tree.map(np.zeros_like, MLP), np.float32(1), X, LABELS)
def adam_step(params, mean, square, count, x, labels):
    loss, gradient = fxgrad.value_and_grad(classifier)(params, x, labels)
    mean = fxgrad.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
    square = fxgrad.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, square, gradient)
    params = fxgrad.tree.map(lambda p, m, s: p - 0.01 * (m / (1 - 0.9 ** count)) / (
        np.sqrt(s / (1 - 0.999 ** count)) + 1e-8), params, mean, square)
    return params, mean, square, count + 1, loss


CONVOLUTIONS = {"first": draw(4, 1, 3, 3), "second": draw(6, 4, 3, 3), "w": draw(24, 3), "b": draw(3)}


@case(CONVOLUTIONS, draw(2, 1, 8, 8), LABELS[:2], wrt=(0,), tolerance=3.0)
def convolutional_net(params, images, labels):
    hidden = nn.relu(lax.conv(images, params["first"], (1, 1), "SAME"))
    hidden = lax.reduce_window(hidden, -np.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    hidden = nn.relu(lax.conv(hidden, params["second"], (2, 2), "SAME"))
    logits = hidden.reshape(2, -1) @ params["w"] + params["b"]
    return -np.mean(nn.log_softmax(logits)[np.arange(2), labels])


TRANSFORMER = {"qkv": draw(8, 24), "out": draw(8, 8), "up": draw(8, 16), "down": draw(16, 8), "scale": draw(8, low=0.5),
               "shift": draw(8)}


def layer_norm_of(x, scale, shift):
    centered = x - np.mean(x, axis=-1, keepdims=True)
    return centered / np.sqrt(np.mean(centered ** 2, axis=-1, keepdims=True) + 1e-5) * scale + shift


@case(TRANSFORMER, draw(2, 5, 8), wrt=(0, 1), tolerance=3.0)
def transformer_block(params, x):
    with fxgrad.named_scope("attention"):
        normed = layer_norm_of(x, params["scale"], params["shift"])
        q, k, v = (part.reshape(2, 5, 2, 4) for part in np.split(normed @ params["qkv"], 3, axis=-1))
        scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(4.0)
        scores = np.where(np.tril(np.ones((5, 5), bool)), scores, -1e9)
        mixed = np.einsum("bhqk,bkhd->bqhd", nn.softmax(scores), v)
        x = x + mixed.reshape(2, 5, 8) @ params["out"]
    with fxgrad.named_scope("feedforward"):
        hidden = nn.gelu(layer_norm_of(x, params["scale"], params["shift"]) @ params["up"])
        return np.sum((x + hidden @ params["down"]) ** 2)


LSTM = {"wx": draw(3, 16), "wh": draw(4, 16), "b": draw(16)}


@case(LSTM, draw(6, 2, 3), wrt=(0, 1))
def lstm(params, xs):
    def step(state, x):
        h, c = state
        i, f, g, o = np.split(x @ params["wx"] + h @ params["wh"] + params["b"], 4, axis=-1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * np.tanh(g)
        h = nn.sigmoid(o) * np.tanh(c)
        return (h, c), h

    begin = np.zeros((2, 4), xs.dtype), np.zeros((2, 4), xs.dtype)
    _, hs = lax.scan(step, begin, xs)
    return np.sum(hs ** 2)


@case(draw(4, 4), draw(7, 4), wrt=(0,))
def recurrent_backwards(w, xs):
    last, all_of_them = lax.scan(lambda h, x: ((after := np.tanh(h @ w + x)), after), np.zeros(4, "f"), xs,
                                 reverse=True)
    return np.sum(last * all_of_them)


@case({"w": draw(3, dtype="float64"), "b": np.float64(0.5)}, draw(20, 3, dtype="float64"),
      whole(20, below=2, dtype="float64"), wrt=(0,))
def logistic_regression(params, x, y):
    logits = x @ params["w"] + params["b"]
    return np.mean(np.logaddexp(0.0, logits) - y * logits)


@case(draw(10, 4), whole(3, 2, below=10), wrt=(0,))
def embedding(table, words):
    return np.sum(np.tanh(table[words]).mean(axis=1) ** 2)


@case(draw(6, dtype="float16"), draw(6, seed=1, dtype="float16"))
def half_precision(x, y):
    return np.sum(np.exp(x) * y), np.maximum(x, y), x / y


@case(draw(3, 4).astype(fxgrad.dtypes.bfloat16), draw(4, 2).astype(fxgrad.dtypes.bfloat16))
def bfloat16_products(x, w):
    return np.tanh(x @ w), np.where(x > 0, x, 0), np.sum(x, axis=0)


# --- normalisations and activations ---------------------------------------------------------------------------------


@case(draw(3, 5), wrt=(0,))
def softmax(x):
    return np.sum(nn.softmax(x) ** 2)


@case(draw(4, 6), draw(6, low=0.5), draw(6), wrt=(0, 1, 2))
def layer_norm(x, scale, shift):
    return np.sum(np.sin(layer_norm_of(x, scale, shift)))


@case(draw(3, 4, dtype="float64"), wrt=(0,))
def logsumexp(x):
    return np.sum(nn.logsumexp(x, axis=1))


@case(draw(20, dtype="float64", low=-4, high=4), wrt=(0,))
def activations(x):
    smooth = nn.gelu(x, approximate=False) + nn.silu(x) + nn.softplus(x)
    return np.sum(smooth + nn.elu(x) + nn.leaky_relu(x) + nn.mish(x))


# --- indexing -------------------------------------------------------------------------------------------------------


@case(draw(6, 4), whole(5, below=6), wrt=(0,))
def rows_and_slices(x, places):
    return np.sum(x[places] ** 2) + np.sum(x[::-2, 1:3] * x[:3, ::2])


@case(draw(6, 4), whole(3, below=6), whole(3, below=4, seed=1), draw(3), wrt=(0, 3))
def scatter(x, rows, columns, news):
    y = fnp.array(x).at[rows, columns].add(news).at[0].set(1.0).at[rows].max(0.5)
    return np.sum(y ** 2)


@case(draw(4), np.array([-9, -4, 0, 3, 7], np.int32))
def out_of_bounds(x, places):
    y = fnp.array(x)
    return (y.at[places].get(mode="fill", fill_value=-7.0), y.at[places].get(mode="clip"),
            y.at[places].set(9.0, mode="drop"), y.at[places].add(1.0, mode="drop"))


@case(draw(5, 3), np.int32(4), wrt=(0,))
def dynamic_windows(x, start):
    window = lax.dynamic_slice(x, (start, 1), (2, 2))
    return np.sum(lax.dynamic_update_slice(x, window ** 2, (start - 2, 0)) ** 2)


@case(draw(3, 5), whole(3, 2, below=5), wrt=(0,))
def along_an_axis(x, places):
    return np.sum(fnp.take_along_axis(x, places, axis=1) ** 2)


@case(draw(2, 3, 4), wrt=(0,))
def shapes(x):
    turned = np.moveaxis(x, 0, -1)[..., None]
    rolled = np.roll(np.pad(x, ((1, 0), (0, 2), (1, 1))), 1, axis=1)
    parts = np.concatenate([x, np.flip(x, 2)], axis=1)
    return np.sum(turned ** 2) + np.sum(np.tile(parts, (1, 2, 1)) ** 3) + np.sum(np.sin(rolled))


# --- sorting and running results ------------------------------------------------------------------------------------


@case(np.array([3.0, np.nan, -1.0, np.inf, 3.0, -0.0, 0.0, -np.inf]))
def sorting_with_nans(x):
    return np.sort(x), np.argsort(x), np.argmax(x), np.argmin(x), np.max(x), np.min(x)


@case(draw(4, 6), wrt=(0,))
def sorting(x):
    return np.sum(np.sort(x, axis=1) * np.arange(6.0, dtype="f"))


@case(draw(3, 9), wrt=(0,))
def top_k(x):
    return np.sum(lax.top_k(x, 3)[0] ** 2)


@case(whole(4, 5, below=3), whole(5, below=9, dtype="int64"))
def sorting_integers(x, y):
    return np.sort(x, axis=0), np.argsort(x, axis=1), fnp.unique(y, size=5), np.argmax(x, axis=1), fnp.lexsort((y, -y))


@case(draw(3, 5, dtype="float64"), wrt=(0,))
def running(x):
    return np.sum(np.cumsum(x, axis=1) ** 2) + np.sum(np.cumprod(x, axis=0)) + np.sum(
        lax.cummax(x, axis=1, reverse=True)) + np.sum(lax.cumlogsumexp(x, axis=1))


# --- products, windows ----------------------------------------------------------------------------------------------


@case(draw(2, 3, 4), draw(4, 3, 5), draw(5), wrt=(0, 1, 2))
def einsum(x, y, z):
    return np.einsum("bij,jik,k->b", x, y, z).sum() + np.einsum("bij,bij->", x, x)


@case(draw(2, 3, 4, 5), draw(3, 5, 2), draw(3), draw(4), wrt=(0, 1))
def products(x, y, u, v):
    return np.sum((x @ y) ** 2) + np.sum(np.outer(u, v)) + np.sum(np.tensordot(x, y, axes=([1, 3], [0, 1])))


@case(draw(1, 7, 7, 2), wrt=(0,))
def pooling(x):
    greatest = lax.reduce_window(x, -np.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    means = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "VALID") / 4
    return np.sum(greatest ** 2) + np.sum(means ** 2)


@case(draw(2, 9, 4, dtype="float64"), draw(3, 2, 6, dtype="float64"), wrt=(0, 1))
def dilated_convolution(x, w):
    return np.sum(lax.conv_general_dilated(x, w, (2,), [(2, 1)], (1,), (2,), ("NWC", "WIO", "NWC"),
                                           feature_group_count=2) ** 2)


@case(draw(1, 4, 5, 2), draw(3, 3, 2, 3), wrt=(0, 1))
def transposed_convolution(x, w):
    return np.sum(lax.conv_transpose(x, w, (2, 2), "SAME") ** 2)


# --- elements -------------------------------------------------------------------------------------------------------


@case(draw(30, dtype="float64", low=-3, high=3), wrt=(0,))
def elementary(x):
    size = np.abs(x)
    return np.sum(np.sin(x) + np.cos(x) * np.tan(x) + np.arctan(x) + np.sinh(x) - np.cosh(x) + np.arcsinh(x)
                  + np.expm1(x) + np.log1p(size) + np.exp2(x) + np.sqrt(size) + np.cbrt(x) + np.arctan2(x, 1 + x)
                  + np.arcsin(x / 4) * np.arccos(x / 4) + np.arctanh(x / 4) + np.arccosh(size + 1.5))


@case(draw(4, 4, low=-2, high=2), wrt=(0,))
def where_and_clip(x):
    return np.sum(np.where(x > 0, x ** 3, np.exp(x))) + np.sum(np.clip(x, -0.5, 0.8) * np.maximum(x, 0.1))


@case(np.array([2.5, 3.5, -2.5, -0.5, 0.49999997, np.nan, -0.0, 1e9], "f"))
def rounding(x):
    return np.round(x), np.floor(x), np.ceil(x), np.trunc(x), np.sign(x), lax.round(x), np.rint(x), np.isfinite(x)


@case(np.array([7, -7, 7, -7, 5, -2**31], np.int32), np.array([2, 2, -2, -2, 0, -1], np.int32))
def whole_quotients(x, y):
    return lax.div(x, y), lax.rem(x, y), x // 3, x % 3, np.floor_divide(y, 2), np.abs(x), -y, x * x, np.sign(x)


@case(np.array([0, 1, 0xF0, 2**32 - 1], np.uint32), np.array([0, 1, 7, 40], np.uint32),
      np.array([-5, 9, 127, -128], np.int8))
def bits(x, y, z):
    return (x & y, x | y, x ^ y, ~x, x << y, x >> y, z >> np.int8(2), z << np.int8(1), np.bitwise_count(x), lax.clz(x),
            z + z, z * z)


@case(np.array([-1.7, 0.2, 3.9, 200.4], "f"), np.array([0, 3, -1, 128], np.int16), np.array([True, False]))
def casts(x, y, z):
    return (x.astype("int32"), x.astype("float64"), x.astype("float16"), x.astype(bool), y.astype("uint8"),
            y.astype("float32"), y.astype(bool), z.astype("int8"), z.astype("float32"), y.astype("int64"))


@case(np.array([1.0, np.nan, -0.0, np.inf], "f"), np.array([np.nan, 2.0, 0.0, -np.inf], "f"))
def nans(x, y):
    return (np.maximum(x, y), np.minimum(x, y), np.clip(x, 0.0, 1.0), x == y, np.isnan(y), np.nanmax(x), np.nansum(y),
            x < y, x != y, np.sign(x), np.where(x > 0, x, y))


@case(draw(3, 4, dtype="float64"), np.zeros((0, 4)), np.array([[True, False], [True, True]]), wrt=(0,))
def reductions(x, nothing, flags):
    total = np.sum(x) + np.mean(x, axis=0).sum() + np.prod(x, axis=1).sum() + np.var(x) + np.std(x, axis=1).sum()
    total = total + np.max(x, axis=(0, 1)) + np.min(x, axis=1).sum() + np.sum(nothing) + np.prod(nothing)
    return total + np.sum(x, axis=()).sum() + np.all(flags) + np.any(flags, axis=0).sum() + np.linalg.norm(x)


@case(np.zeros((0, 3)), draw(2, 3, dtype="float64"))
def empty_arrays(nothing, x):
    return (np.concatenate([nothing, x]), np.sum(nothing, axis=0), nothing @ x.T, x @ nothing.T, np.exp(nothing),
            x[:0], np.max(np.abs(nothing), initial=-1.0))


# --- control flow ---------------------------------------------------------------------------------------------------


@case(np.float64(0.7), np.int32(2), wrt=(0,))
def branches(x, which):
    return lax.switch(which, [np.sin, np.cos, lambda y: np.exp(y) * 2], x) + lax.cond(x > 0, np.tanh, np.sqrt, x)


@case(np.float64(3.0))
def newton(a):
    return lax.while_loop(lambda x: np.abs(x * x - a) > 1e-12, lambda x: 0.5 * (x + a / x), a)


@case(draw(3, dtype="float64"), wrt=(0,))
def counted_loop(x):
    return np.sum(lax.fori_loop(0, 5, lambda i, y: np.sin(y) + 0.1 * i, x))


@case(draw(3, 3, dtype="float64"), np.int32(4), wrt=(0,))
def loop_in_branch(x, count):
    return lax.cond(count > 2, lambda y: np.sum(lax.scan(lambda c, row: (c * row, c), y[0], y)[0]), np.sum, x)


@case(draw(4, 3), whole(4, below=6))
def mapped_loops(x, counts):
    return fxgrad.vmap(lambda row, count: lax.fori_loop(0, count, lambda i, y: y * 0.5 + i, row))(x, counts)


# --- transformations ------------------------------------------------------------------------------------------------


@case(draw(5, dtype="float64"), draw(5, seed=1, dtype="float64"))
def forward_mode(x, t):
    return fxgrad.jvp(lambda y: np.cumsum(np.sin(y)) / (1 + y * y), (x,), (t,))


@case(draw(4, dtype="float64", low=0.5))
def hessian(x):
    return fxgrad.hessian(lambda y: np.sum(np.log(y)[1:] * y[:-1]) + np.prod(y))(x)


@case(MLP, X)
def gradients_of_each_example(params, x):
    return fxgrad.vmap(fxgrad.grad(mlp), in_axes=(None, 0))(params, x[:, None])


@case(draw(3, dtype="float64"))
def checkpointed(x):
    return fxgrad.grad(lambda y: np.sum(fxgrad.checkpoint(lambda z: np.sin(np.exp(z)))(y)))(x)


@case(fxgrad.random.key(3))
def random_numbers(key):
    first, second = fxgrad.random.split(key)
    return (fxgrad.random.uniform(first, (3,)), fxgrad.random.bits(second, (2,)), fxgrad.random.fold_in(key, 7),
            fxgrad.random.randint(second, (4,), 0, 10), fxgrad.random.permutation(first, 5))


@case({"w": draw(4, 2)}, draw(5, 4), fxgrad.random.key(1), wrt=(0,))
def dropout(params, x, key):
    kept = fxgrad.random.bernoulli(key, 0.5, x.shape)
    return np.sum((np.where(kept, x / 0.5, 0) @ params["w"]) ** 2)


@case(2.0, 3, [1.5, (True, 2)])
def python_numbers(x, n, rest):
    a, (flag, k) = rest
    return {"sum": x + n, "power": x ** k, "product": a * n, "flag": flag}
