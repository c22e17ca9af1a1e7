"""The programs that predicted memory is held against XLA's: what people train and solve, at sizes that compile fast."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax, nn


class Case(NamedTuple):
    """A function and what its arguments are like."""

    function: Callable[..., Any]
    args: tuple[Any, ...]


def f32(*shape: int) -> fxgrad.ShapeDtypeStruct:
    """The type of an array of float32."""
    return fxgrad.ShapeDtypeStruct(shape, np.float32)


def i32(*shape: int) -> fxgrad.ShapeDtypeStruct:
    """The type of an array of int32."""
    return fxgrad.ShapeDtypeStruct(shape, np.int32)


# --- what is trained ------------------------------------------------------------------------------------------


def mlp(params: Any, x: Any) -> Any:
    """Hidden layers with tanh; the last is linear."""
    *hidden, (w, b) = params
    for each, bias in hidden:
        x = fnp.tanh(x @ each + bias)
    return x @ w + b


def mlp_loss(params: Any, x: Any, y: Any) -> Any:
    """Mean squared error of `mlp`."""
    return fnp.mean((mlp(params, x) - y) ** 2)


def relu_loss(params: Any, x: Any, y: Any) -> Any:
    """Mean squared error of a perceptron with relu."""
    (w, b), (v, c) = params
    return fnp.mean((nn.relu(x @ w + b) @ v + c - y) ** 2)


def layers(*sizes: int) -> list[tuple[Any, Any]]:
    """The types of weights and biases."""
    return [(f32(m, n), f32(n)) for m, n in itertools.pairwise(sizes)]


def sgd_step(params: Any, x: Any, y: Any) -> Any:
    """New parameters after one step."""
    gradient = fxgrad.grad(mlp_loss)(params, x, y)
    return fxgrad.tree.map(lambda p, g: p - 0.1 * g, params, gradient)


def classifier_loss(w: Any, b: Any, x: Any, labels: Any) -> Any:
    """Softmax cross-entropy of a linear classifier with integer labels."""
    scores = nn.log_softmax(x @ w + b, axis=-1)
    return -fnp.mean(fnp.take_along_axis(scores, labels[:, None], axis=1))


def loss_of_labels(logits: Any, labels: Any) -> Any:
    """Softmax cross-entropy of logits, of which those of the labels are taken by index."""
    return -fnp.mean(nn.log_softmax(logits)[np.arange(logits.shape[0]), labels])


def logistic_loss(w: Any, x: Any, y: Any) -> Any:
    """Logistic regression."""
    return fnp.mean(nn.softplus(x @ w) - y * (x @ w))


def conv_loss(kernels: Any, dense: Any, images: Any, y: Any) -> Any:
    """Two convolutions with relu and a linear layer, NHWC."""
    for kernel in kernels:
        images = nn.relu(lax.conv_general_dilated(images, kernel, (1, 1), "SAME",
                                                  dimension_numbers=("NHWC", "HWIO", "NHWC")))
    return fnp.mean((fnp.mean(images, axis=(1, 2)) @ dense - y) ** 2)


def attention(q: Any, k: Any, v: Any) -> Any:
    """Softmax attention of heads: [heads, length, width]."""
    scores = fnp.einsum("hqd,hkd->hqk", q, k) / np.sqrt(q.shape[-1])
    return fnp.einsum("hqk,hkd->hqd", nn.softmax(scores, axis=-1), v)


def normalised(x: Any) -> Any:
    """Layer normalisation without parameters."""
    mean = fnp.mean(x, axis=-1, keepdims=True)
    return (x - mean) / fnp.sqrt(fnp.mean((x - mean) ** 2, axis=-1, keepdims=True) + 1e-5)


def block(params: Any, x: Any) -> Any:
    """A block of a transformer, four heads."""
    length, width = x.shape
    h = normalised(x)
    q, k, v = ((h @ params[name]).reshape(length, 4, width // 4).transpose(1, 0, 2) for name in ("q", "k", "v"))
    x = x + attention(q, k, v).transpose(1, 0, 2).reshape(length, width) @ params["o"]
    return x + nn.gelu(normalised(x) @ params["up"]) @ params["down"]


def block_params(width: int, *stack: int) -> dict[str, Any]:
    """The types of the parameters of a block, or of a stack of blocks."""
    square = {name: f32(*stack, width, width) for name in ("q", "k", "v", "o")}
    return {**square, "up": f32(*stack, width, 4 * width), "down": f32(*stack, 4 * width, width)}


def block_loss(params: Any, x: Any) -> Any:
    """The mean square of what a block makes."""
    return fnp.mean(block(params, x) ** 2)


def stack_loss(blocks: Any, x: Any) -> Any:
    """The same of blocks in a Python loop."""
    for params in blocks:
        x = block(params, x)
    return fnp.mean(x ** 2)


def scanned_stack_loss(blocks: Any, x: Any) -> Any:
    """The same of blocks in a scan over stacked parameters."""
    x, _ = lax.scan(lambda h, params: (block(params, h), None), x, blocks)
    return fnp.mean(x ** 2)


def rnn_loss(w: Any, u: Any, h: Any, xs: Any) -> Any:
    """A recurrent cell scanned over time."""
    def step(h: Any, x: Any) -> Any:
        h = fnp.tanh(h @ w + x @ u)
        return h, fnp.mean(h ** 2)
    _, losses = lax.scan(step, h, xs)
    return fnp.mean(losses)


def remat_rnn_loss(w: Any, u: Any, h: Any, xs: Any) -> Any:
    """The same, of which each step is computed again in the backward pass."""
    def step(h: Any, x: Any) -> Any:
        return fnp.tanh(h @ w + fnp.tanh(x @ u)), None
    h, _ = lax.scan(fxgrad.checkpoint(step, prevent_cse=False), h, xs)
    return fnp.mean(h ** 2)


# --- what is computed -----------------------------------------------------------------------------------------


def chain(x: Any) -> Any:
    """Twelve elementwise operations."""
    for _ in range(4):
        x = fnp.sin(x) * 2.0 + 1.0
    return x


def chain_loss(x: Any) -> Any:
    """Their sum."""
    return fnp.sum(chain(x))


def pairwise(x: Any, y: Any) -> Any:
    """Squared distances of points, through an array of three axes."""
    return fnp.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=-1)


def rosenbrock(x: Any) -> Any:
    """The test function of Rosenbrock."""
    return fnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def gaussian_process(x: Any, y: Any) -> Any:
    """The log likelihood of a Gaussian process, by a Cholesky factor."""
    kernel = fnp.exp(-0.5 * (x[:, None] - x[None, :]) ** 2) + 0.1 * fnp.eye(x.shape[0], dtype=np.float32)
    factor = fnp.linalg.cholesky(kernel)
    z = lax.linalg.triangular_solve(factor, y[:, None], left_side=True, lower=True)
    return 0.5 * fnp.sum(z ** 2) + fnp.sum(fnp.log(fnp.diagonal(factor)))


def solved(a: Any, b: Any) -> Any:
    """The sum of the squares of a solution of linear equations."""
    return fnp.sum(fnp.linalg.solve(a, b) ** 2)


def power_iteration(a: Any, v: Any) -> Any:
    """Twenty steps towards the largest eigenvalue."""
    def step(_: Any, v: Any) -> Any:
        w = a @ v
        return w / fnp.sqrt(fnp.sum(w ** 2))
    v = lax.fori_loop(0, 20, step, v)
    return v @ (a @ v)


def standardised(x: Any) -> Any:
    """Columns of mean 0 and variance 1."""
    return (x - fnp.mean(x, axis=0)) / fnp.std(x, axis=0)


def per_example(params: Any, x: Any, y: Any) -> Any:
    """The gradient of every example for itself."""
    return fxgrad.vmap(fxgrad.grad(relu_loss), in_axes=(None, 0, 0))(params, x, y)


def chosen(flag: Any, x: Any) -> Any:
    """One of two branches."""
    return lax.cond(flag > 0, lambda x: fnp.sum(fnp.tanh(x @ x)), lambda x: fnp.sum(x ** 2), x)


WEIGHTS = layers(128, 256, 256, 10)

PROGRAMS: dict[str, Case] = {
    "elementwise chain": Case(chain, (f32(512, 512),)),
    "elementwise chain, gradient": Case(fxgrad.grad(chain_loss), (f32(512, 512),)),
    "standardised columns": Case(standardised, (f32(1000, 200),)),
    "pairwise distances": Case(pairwise, (f32(300, 16), f32(200, 16))),
    "matrix products a @ b @ c": Case(lambda a, b, c: a @ b @ c, (f32(200, 300), f32(300, 400), f32(400, 100))),
    "MLP, forward": Case(mlp, (WEIGHTS, f32(256, 128))),
    "MLP, gradient": Case(fxgrad.grad(mlp_loss), (WEIGHTS, f32(256, 128), f32(256, 10))),
    "MLP, value and gradient, relu": Case(fxgrad.value_and_grad(relu_loss), (
        layers(100, 400, 10), f32(512, 100), f32(512, 10))),
    "MLP, a step of SGD": Case(sgd_step, (WEIGHTS, f32(256, 128), f32(256, 10))),
    "MLP of 12 layers, gradient": Case(fxgrad.grad(mlp_loss), (
        layers(*[128] * 12, 10), f32(512, 128), f32(512, 10))),
    "softmax cross-entropy, gradient": Case(fxgrad.grad(classifier_loss, argnums=(0, 1)), (
        f32(200, 50), f32(50), f32(1000, 200), i32(1000))),
    "cross-entropy by index, gradient": Case(fxgrad.grad(loss_of_labels), (f32(128, 1000), i32(128))),
    "logistic regression, gradient": Case(fxgrad.grad(logistic_loss), (f32(300), f32(5000, 300), f32(5000))),
    "convolutions, forward and loss": Case(conv_loss, (
        [f32(3, 3, 3, 16), f32(3, 3, 16, 32)], f32(32, 10), f32(8, 32, 32, 3), f32(8, 10))),
    "convolutions, gradient": Case(fxgrad.grad(conv_loss, argnums=(0, 1)), (
        [f32(3, 3, 3, 16), f32(3, 3, 16, 32)], f32(32, 10), f32(8, 32, 32, 3), f32(8, 10))),
    "attention, forward": Case(attention, (f32(4, 256, 32), f32(4, 256, 32), f32(4, 256, 32))),
    "attention, gradient": Case(fxgrad.grad(lambda q, k, v: fnp.sum(attention(q, k, v) ** 2), argnums=(0, 1, 2)), (
        f32(4, 256, 32), f32(4, 256, 32), f32(4, 256, 32))),
    "transformer block, forward": Case(block, (block_params(64), f32(128, 64))),
    "transformer block, gradient": Case(fxgrad.grad(block_loss), (block_params(64), f32(128, 64))),
    "6 transformer blocks, gradient": Case(fxgrad.grad(stack_loss), ([block_params(64)] * 6, f32(128, 64))),
    "6 blocks in a scan, gradient": Case(fxgrad.grad(scanned_stack_loss), (block_params(64, 6), f32(128, 64))),
    "RNN in a scan, forward": Case(rnn_loss, (f32(64, 64), f32(16, 64), f32(32, 64), f32(100, 32, 16))),
    "RNN in a scan, gradient": Case(fxgrad.grad(rnn_loss, argnums=(0, 1)), (
        f32(64, 64), f32(16, 64), f32(32, 64), f32(100, 32, 16))),
    "RNN in a scan with checkpoints, gradient": Case(fxgrad.grad(remat_rnn_loss, argnums=(0, 1)), (
        f32(64, 64), f32(16, 64), f32(32, 64), f32(100, 32, 16))),
    "gradients of 64 examples": Case(per_example, (layers(50, 100, 10), f32(64, 50), f32(64, 10))),
    "Hessian of Rosenbrock": Case(fxgrad.hessian(rosenbrock), (f32(200),)),
    "Hessian of logistic regression": Case(fxgrad.hessian(logistic_loss), (f32(60), f32(500, 60), f32(500))),
    "Gaussian process, value": Case(gaussian_process, (f32(300), f32(300))),
    "Gaussian process, gradient": Case(fxgrad.grad(gaussian_process), (f32(300), f32(300))),
    "linear equations, value": Case(solved, (f32(200, 200), f32(200, 20))),
    "linear equations, gradient": Case(fxgrad.grad(solved), (f32(200, 200), f32(200, 20))),
    "power iteration in a loop": Case(power_iteration, (f32(300, 300), f32(300))),
    "a branch, gradient": Case(fxgrad.grad(chosen, argnums=1), (f32(), f32(300, 300))),
}


# --- what the model of XLA was not looked at while it was made -------------------------------------------------


def lstm_loss(w: Any, state: Any, xs: Any) -> Any:
    """An LSTM over time, its four gates in one product."""
    def step(state: Any, x: Any) -> Any:
        h, c = state
        i, f, g, o = fnp.split(fnp.concatenate([x, h], axis=-1) @ w, 4, axis=-1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * fnp.tanh(g)
        h = nn.sigmoid(o) * fnp.tanh(c)
        return (h, c), None
    (h, _), _ = lax.scan(step, state, xs)
    return fnp.mean(h ** 2)


def factorisation_loss(u: Any, v: Any, ratings: Any) -> Any:
    """The squared error of a matrix by two thin ones."""
    return fnp.mean((u @ v.T - ratings) ** 2) + 0.1 * (fnp.mean(u ** 2) + fnp.mean(v ** 2))


def means_step(centres: Any, points: Any) -> Any:
    """A soft step of k-means."""
    distances = fnp.sum((points[:, None, :] - centres[None]) ** 2, axis=-1)
    weights = nn.softmax(-distances, axis=1)
    return weights.T @ points / fnp.sum(weights, axis=0)[:, None]


def residual_loss(blocks: Any, x: Any) -> Any:
    """Residual blocks with swish."""
    for w, v in blocks:
        x = x + nn.silu(x @ w) @ v
    return fnp.mean(x ** 2)


def batch_norm_loss(w: Any, scale: Any, x: Any) -> Any:
    """A linear layer with normalisation over the batch, and relu."""
    h = x @ w
    h = (h - fnp.mean(h, axis=0)) / fnp.sqrt(fnp.var(h, axis=0) + 1e-5) * scale
    return fnp.mean(nn.relu(h) ** 2)


def autoencoder_loss(params: Any, x: Any) -> Any:
    """The squared error of an autoencoder."""
    return fnp.mean((mlp(params, x) - x) ** 2)


def heat(u: Any) -> Any:
    """A hundred steps of the heat equation."""
    def step(_: Any, u: Any) -> Any:
        inner = u[1:-1, 1:-1] + 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * u[1:-1, 1:-1])
        return fnp.pad(inner, 1)
    return lax.fori_loop(0, 100, step, u)


HELD_OUT: dict[str, Case] = {
    "LSTM in a scan, gradient": Case(fxgrad.grad(lstm_loss), (
        f32(96, 256), (f32(16, 64), f32(16, 64)), f32(50, 16, 32))),
    "matrix factorisation, gradient": Case(fxgrad.grad(factorisation_loss, argnums=(0, 1)), (
        f32(400, 20), f32(300, 20), f32(400, 300))),
    "soft k-means step": Case(means_step, (f32(10, 8), f32(2000, 8))),
    "residual blocks, gradient": Case(fxgrad.grad(residual_loss), ([(f32(64, 128), f32(128, 64))] * 6, f32(256, 64))),
    "batch normalisation, gradient": Case(fxgrad.grad(batch_norm_loss, argnums=(0, 1)), (
        f32(100, 200), f32(200), f32(500, 100))),
    "autoencoder, gradient": Case(fxgrad.grad(autoencoder_loss), (layers(200, 64, 16, 64, 200), f32(400, 200))),
    "heat equation in a loop": Case(heat, (f32(200, 200),)),
    "Jacobian of an MLP": Case(fxgrad.jacrev(mlp, argnums=1), (layers(20, 50, 10), f32(16, 20))),
    "Hessian-vector product of an MLP": Case(lambda p, x, y, v: fxgrad.jvp(
        lambda p: fxgrad.grad(mlp_loss)(p, x, y), (p,), (v,))[1], (
        layers(64, 128, 10), f32(256, 64), f32(256, 10), layers(64, 128, 10))),
    "residual blocks with checkpoints, gradient": Case(fxgrad.grad(lambda blocks, x: residual_loss(
        [], _checkpointed(blocks, x))), ([(f32(64, 128), f32(128, 64))] * 6, f32(256, 64))),
}


def _checkpointed(blocks: Any, x: Any) -> Any:
    @fxgrad.checkpoint
    def one(w: Any, v: Any, x: Any) -> Any:
        return x + nn.silu(x @ w) @ v
    for w, v in blocks:
        x = one(w, v, x)
    return x
