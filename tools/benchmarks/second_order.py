"""Un-jitted Hessians and per-example gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxgrad
from benchmarks.libraries import autograd, jax_arguments, torch, torch_arguments
from benchmarks.problems import PROBLEMS
from benchmarks.workload import Peer, Peers, Workload


def hessian_by_hand(x: Any) -> Any:
    """The Hessian of Rosenbrock's function, which has three diagonals."""
    size, head = len(x), x[:-1]
    hessian = np.zeros((size, size), x.dtype)
    row = np.arange(size - 1)
    hessian[row, row] = 1200.0 * head * head - 400.0 * x[1:] + 2.0
    hessian[row + 1, row + 1] += 200.0
    hessian[row, row + 1] = hessian[row + 1, row] = -400.0 * head
    return hessian


def hessian(small: bool) -> Peers:
    """The Hessian of Rosenbrock's function in all libraries."""
    problem = PROBLEMS["Rosenbrock"]
    args = problem.given("float64", small)
    of_jax = jax_arguments(args)
    ours, theirs = fxgrad.hessian(problem.loss(np)), jax.hessian(problem.loss(jnp))
    compiled = jax.jit(theirs)
    peers = {"fxgrad": Peer(lambda: ours(*args)), "hand-written": Peer(lambda: hessian_by_hand(*args))}
    if torch():
        by_torch, of_torch = torch().func.hessian(problem.loss(torch())), torch_arguments(args)
        peers["PyTorch"] = Peer(lambda: by_torch(*of_torch))
    if autograd():
        by_autograd = autograd().hessian(problem.loss(autograd().numpy))
        peers["autograd"] = Peer(lambda: by_autograd(*args))
    return {**peers, "jax": Peer(lambda: theirs(*of_jax)), "jax.jit": Peer(lambda: compiled(*of_jax))}


def per_example(transforms: Any, xp: Any) -> Any:
    """`vmap(grad)` of the network with the transformations of a library."""
    return transforms.vmap(transforms.grad(PROBLEMS["MLP"].loss(xp)), in_axes=(None, 0, 0))


def examples_by_hand(p: Any, x: Any, y: Any) -> Any:
    """The gradient of the network for each example."""
    hidden = np.tanh(x @ p["w1"] + p["b1"])
    error = (2.0 / y.shape[1]) * (hidden @ p["w2"] + p["b2"] - y)
    slope = (error @ p["w2"].T) * (1.0 - hidden * hidden)
    return {"b1": slope, "b2": error, "w1": x[:, :, None] * slope[:, None, :],
            "w2": hidden[:, :, None] * error[:, None, :]}


def examples(small: bool) -> Peers:
    """Per-example gradients of the network in all libraries; HIPS autograd has no vmap, so it loops."""
    args = PROBLEMS["MLP"].given("float64", small)
    of_jax = jax_arguments(args)
    ours, theirs = per_example(fxgrad, np), per_example(jax, jnp)
    compiled = jax.jit(theirs)
    peers = {"fxgrad": Peer(lambda: ours(*args)), "hand-written": Peer(lambda: examples_by_hand(*args))}
    if torch():
        loss, of_torch = PROBLEMS["MLP"].loss(torch()), torch_arguments(args)
        by_torch = torch().func.vmap(torch().func.grad(loss), in_dims=(None, 0, 0))
        peers["PyTorch"] = Peer(lambda: by_torch(*of_torch))
    if autograd():
        by_autograd = autograd().grad(PROBLEMS["MLP"].loss(autograd().numpy))
        parameters, x, y = args
        peers["autograd"] = Peer(lambda: jax.tree.map(
            lambda *leaves: np.stack(leaves), *(by_autograd(parameters, *pair) for pair in zip(x, y, strict=True))))
    return {**peers, "jax": Peer(lambda: theirs(*of_jax)), "jax.jit": Peer(lambda: compiled(*of_jax))}


WORKLOADS = [
    Workload("second order: Hessian of Rosenbrock", "Hessian of Rosenbrock's function, n = 100, float64, un-jitted",
             hessian, tolerance=1e-9, wide=True),
    Workload("per example: MLP", "vmap(grad) of a network 64-64-1 on 32 examples, float64, un-jitted",
             examples, tolerance=1e-9, wide=True),
]
