"""Forty programs that were written after the first model of memory, and that the second was made with."""

from __future__ import annotations

from typing import Any

import numpy as np

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax, nn
from xrays.programs import Case, f32, i32


def mixer(layers: Any, x: Any) -> Any:
    """Perceptrons over places and over channels, in turn."""
    for first, second, up, down in layers:
        x = x + fnp.swapaxes(nn.gelu(fnp.swapaxes(nn.standardize(x), 1, 2) @ first) @ second, 1, 2)
        x = x + nn.gelu(nn.standardize(x) @ up) @ down
    return fnp.mean(x ** 2)


def tagger(moves: Any, start: Any, scores: Any) -> Any:
    """The normaliser of a conditional random field over a sentence."""
    def step(alpha: Any, score: Any) -> Any:
        return nn.logsumexp(alpha[:, :, None] + moves[None], axis=1) + score, None
    alpha, _ = lax.scan(step, start[None] + scores[0], scores[1:])
    return fnp.mean(nn.logsumexp(alpha, axis=1))


def decoder(layers: Any, x: Any) -> Any:
    """Causal layers of one head, with root-mean-square norms and gated perceptrons."""
    mask = np.tril(np.ones((x.shape[1], x.shape[1]), bool))
    for query, key, value, gate, up, down in layers:
        h = x / fnp.sqrt(fnp.mean(x * x, -1, keepdims=True) + 1e-6)
        scores = fnp.where(mask, (h @ query) @ fnp.swapaxes(h @ key, 1, 2) / 8.0, -1e9)
        x = x + nn.softmax(scores) @ (h @ value)
        h = x / fnp.sqrt(fnp.mean(x * x, -1, keepdims=True) + 1e-6)
        x = x + (nn.silu(h @ gate) * (h @ up)) @ down
    return fnp.mean(x * x)


def unet(kernels: Any, x: Any) -> Any:
    """Convolutions down and up again, NHWC, with a skip."""
    def conv(x: Any, kernel: Any, stride: int = 1) -> Any:
        return nn.relu(lax.conv_general_dilated(x, kernel, (stride, stride), "SAME",
                                                dimension_numbers=("NHWC", "HWIO", "NHWC")))
    first = conv(x, kernels[0])
    low = conv(conv(first, kernels[1], 2), kernels[2])
    high = fnp.repeat(fnp.repeat(low, 2, axis=1), 2, axis=2)
    return fnp.mean(conv(fnp.concatenate([first, high], axis=3), kernels[3]) ** 2)


def bodies(places: Any, speeds: Any) -> Any:
    """Some steps of bodies that attract each other."""
    for _ in range(4):
        apart = places[:, None] - places[None]
        speeds = speeds - 0.1 * fnp.sum(apart / (1 + fnp.sum(apart ** 2, -1, keepdims=True)), 1)
        places = places + 0.1 * speeds
    return fnp.sum(places ** 2)


def lstm(w: Any, u: Any, xs: Any) -> Any:
    """A gated cell over time."""
    def step(carry: Any, x: Any) -> Any:
        h, cell = carry
        gate, new, forget, out = fnp.split(x @ w + h @ u, 4, axis=-1)
        cell = nn.sigmoid(forget) * cell + nn.sigmoid(gate) * fnp.tanh(new)
        h = nn.sigmoid(out) * fnp.tanh(cell)
        return (h, cell), None
    zero = fnp.zeros((xs.shape[1], u.shape[0]), np.float32)
    (h, _), _ = lax.scan(step, (zero, zero), xs)
    return fnp.mean(h * h)


def gru(w: Any, u: Any, xs: Any) -> Any:
    """Another gated cell, whose states are all used."""
    def step(h: Any, x: Any) -> Any:
        reset, update = fnp.split(nn.sigmoid(x @ w[0] + h @ u[0]), 2, axis=-1)
        h = (1 - update) * h + update * fnp.tanh(x @ w[1] + (reset * h) @ u[1])
        return h, h
    _, states = lax.scan(step, fnp.zeros((xs.shape[1], u[1].shape[0]), np.float32), xs)
    return fnp.mean(states ** 2)


def normalised_images(kernel: Any, scale: Any, images: Any) -> Any:
    """A convolution, a norm over the batch, and the largest of windows."""
    x = lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    x = (x - fnp.mean(x, (0, 1, 2))) / fnp.sqrt(fnp.var(x, (0, 1, 2)) + 1e-5) * scale
    return fnp.mean(lax.reduce_window(nn.relu(x), -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"))


def variational(encoder: Any, decoder_: Any, x: Any, noise: Any) -> Any:
    """An encoder of means and scales, a draw, a decoder, and the divergence."""
    mean, scale = fnp.split(nn.relu(x @ encoder[0]) @ encoder[1], 2, axis=-1)
    logits = nn.relu((mean + fnp.exp(0.5 * scale) * noise) @ decoder_[0]) @ decoder_[1]
    return fnp.mean(nn.softplus(logits) - x * logits) - 0.5 * fnp.mean(1 + scale - mean ** 2 - fnp.exp(scale))


def words(table: Any, w: Any, tokens: Any, labels: Any) -> Any:
    """A bag of embedded words, classified."""
    scores = nn.log_softmax(fnp.mean(table[tokens], axis=1) @ w)
    return -fnp.mean(fnp.take_along_axis(scores, labels[:, None], axis=1))


def graph_network(w: Any, nodes: Any, sources: Any, targets: Any) -> Any:
    """Messages along edges, summed where they arrive, two rounds."""
    for each in w:
        messages = fnp.tanh(nodes[sources] @ each)
        nodes = nodes + fnp.zeros_like(nodes).at[targets].add(messages)
    return fnp.mean(nodes ** 2)


def contrastive(w: Any, v: Any, x: Any, y: Any) -> Any:
    """Pairs in two spaces are to be nearer than all others."""
    one, other = fnp.tanh(x @ w), fnp.tanh(y @ v)
    one, other = (z / fnp.sqrt(fnp.sum(z * z, -1, keepdims=True)) for z in (one, other))
    return -fnp.mean(fnp.diagonal(nn.log_softmax(one @ other.T * 10.0)))


def mixture(means: Any, scales: Any, weights: Any, x: Any) -> Any:
    """The likelihood of a mixture of normal distributions with diagonal covariances."""
    z = (x[:, None] - means) * fnp.exp(-scales)
    return -fnp.mean(nn.logsumexp(nn.log_softmax(weights) - 0.5 * fnp.sum(z * z, -1) - fnp.sum(scales, -1), axis=1))


def diffusion(u: Any, rate: Any) -> Any:
    """Steps of diffusion on a torus in a scan."""
    def step(u: Any, _: Any) -> Any:
        around = sum(fnp.roll(u, shift, axis) for shift in (-1, 1) for axis in (0, 1))
        return u + rate * (around - 4 * u), None
    u, _ = lax.scan(step, u, None, length=10)
    return fnp.sum(u ** 2)


def filtered(x: Any, response: Any) -> Any:
    """Filters in the space of frequencies, with a bend between."""
    for each in response:
        x = fnp.tanh(fnp.fft.irfft(fnp.fft.rfft(x) * each, x.shape[-1]))
    return fnp.mean(x ** 2)


def ridge(x: Any, y: Any, strength: Any) -> Any:
    """The error of a ridge regression on its own rows."""
    w = fnp.linalg.solve(x.T @ x + strength * fnp.eye(x.shape[1], dtype=np.float32), x.T @ y)
    return fnp.mean((x @ w - y) ** 2)


def experts(gate: Any, up: Any, down: Any, x: Any) -> Any:
    """A mixture of experts, all of which are computed."""
    shares = nn.softmax(x @ gate)
    made = fnp.einsum("neh,ehd->ned", nn.gelu(fnp.einsum("nd,edh->neh", x, up)), down)
    return fnp.mean(fnp.einsum("ne,ned->nd", shares, made) ** 2)


def wavelets(x: Any) -> Any:
    """Averages and differences of neighbours, level by level."""
    total = 0.0
    for _ in range(5):
        even, odd = x[:, ::2], x[:, 1::2]
        x, detail = (even + odd) * 0.7, (even - odd) * 0.7
        total = total + fnp.sum(fnp.abs(detail))
    return total + fnp.sum(x ** 2)


def returns(policy: Any, states: Any, actions: Any, rewards: Any) -> Any:
    """A policy gradient with discounted returns."""
    def step(after: Any, reward: Any) -> Any:
        after = reward + 0.99 * after
        return after, after
    _, gains = lax.scan(step, fnp.zeros(rewards.shape[1:], np.float32), rewards, reverse=True)
    scores = nn.log_softmax(fnp.tanh(states @ policy[0]) @ policy[1])
    return -fnp.mean(fnp.take_along_axis(scores, actions[..., None], axis=-1)[..., 0] * gains)


def dropout(w: Any, x: Any, keep: Any) -> Any:
    """Layers whose values are in part put to zero."""
    for each, mask in zip(w, keep, strict=True):
        x = fnp.where(mask > 0.1, nn.elu(x @ each) / 0.9, 0.0)
    return fnp.mean(x ** 2)


_FUNCTIONS: dict[str, Case] = {
    "mixer": Case(mixer, ([(f32(64, 128), f32(128, 64), f32(64, 256), f32(256, 64))] * 3, f32(8, 64, 64))),
    "random field": Case(tagger, (f32(20, 20), f32(20), f32(30, 16, 20))),
    "decoder": Case(decoder, ([(*[f32(64, 64)] * 3, f32(64, 128), f32(64, 128), f32(128, 64))] * 3, f32(4, 64, 64))),
    "U-Net": Case(unet, ([f32(3, 3, 3, 16), f32(3, 3, 16, 32), f32(3, 3, 32, 32), f32(3, 3, 48, 3)],
                         f32(4, 32, 32, 3))),
    "bodies": Case(bodies, (f32(200, 3), f32(200, 3))),
    "LSTM": Case(lstm, (f32(32, 128), f32(32, 128), f32(40, 64, 32))),
    "GRU": Case(gru, ((f32(32, 128), f32(32, 64)), (f32(64, 128), f32(64, 64)), f32(30, 32, 32))),
    "normalised images": Case(normalised_images, (f32(3, 3, 3, 16), f32(16), f32(8, 24, 24, 3))),
    "variational autoencoder": Case(variational, ((f32(200, 128), f32(128, 32)), (f32(16, 128), f32(128, 200)),
                                                  f32(256, 200), f32(256, 16))),
    "bag of words": Case(words, (f32(2000, 32), f32(32, 10), i32(128, 20), i32(128))),
    "graph network": Case(graph_network, ([f32(32, 32)] * 2, f32(500, 32), i32(3000), i32(3000))),
    "contrastive loss": Case(contrastive, (f32(100, 64), f32(80, 64), f32(256, 100), f32(256, 80))),
    "mixture of normals": Case(mixture, (f32(10, 8), f32(10, 8), f32(10), f32(1000, 8))),
    "diffusion": Case(diffusion, (f32(128, 128), f32())),
    "filters": Case(filtered, (f32(64, 1024), f32(3, 513))),
    "ridge regression": Case(ridge, (f32(500, 60), f32(500), f32())),
    "experts": Case(experts, (f32(64, 4), f32(4, 64, 128), f32(4, 128, 64), f32(256, 64))),
    "wavelets": Case(wavelets, (f32(64, 1024),)),
    "policy": Case(returns, ((f32(16, 64), f32(64, 10)), f32(50, 32, 16), i32(50, 32), f32(50, 32))),
    "dropout": Case(dropout, ([f32(128, 128)] * 4, f32(256, 128), f32(4, 256, 128))),
}

LATER: dict[str, Case] = {
    f"{name}, {how}": Case(each.function if how == "forward" else fxgrad.grad(each.function), each.args)
    for name, each in _FUNCTIONS.items() for how in ("forward", "gradient")}
"""The first model was within 15 % of XLA's plan on 15 of these, the second, made with them, on all."""
