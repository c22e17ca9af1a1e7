"""Un-jitted gradients, Hessians and per-example gradients, from the second call on."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

import fxgrad
from benchmarks.libraries import autograd, jax_arguments, torch, torch_arguments
from benchmarks.problems import PROBLEMS, Problem
from benchmarks.workload import Absolute, Bar, Peer, Peers, Ratio, Workload


def gradient(problem: Problem, dtype: str, small: bool) -> Peers:
    """The gradient of a problem in all libraries."""
    args = problem.given(dtype, small)
    of_jax = jax_arguments(args)
    ours, theirs = fxgrad.grad(problem.loss(np)), jax.grad(problem.loss(jnp))
    compiled = jax.jit(theirs)
    peers = {"fxgrad": Peer(lambda: ours(*args)), "hand-written": Peer(lambda: problem.by_hand(*args))}
    if torch():
        of_torch = torch_arguments(args)
        loss, leaves, gradient = problem.loss(torch()), jax.tree.leaves(of_torch[0]), torch().autograd.grad
        peers["PyTorch"] = Peer(lambda: gradient(loss(*of_torch), leaves))
    if autograd():
        by_autograd = autograd().grad(problem.loss(autograd().numpy))
        peers["autograd"] = Peer(lambda: by_autograd(*args))
    peers["jax"] = Peer(lambda: theirs(*of_jax))
    if problem is not PROBLEMS["while"]:  # a compiled function cannot ask for values
        peers["jax.jit"] = Peer(lambda: compiled(*of_jax))
    return peers


def declared(problem: Problem, dtype: str, small: bool) -> Peers:
    """The gradient of a problem whose function is declared transparent, and what of it the generated code takes."""
    args = problem.given(dtype, small)
    ours, undeclared = fxgrad.grad(fxgrad.transparent(problem.loss(np))), fxgrad.grad(problem.loss(np))
    program = fxgrad.make_program(fxgrad.grad(problem.loss(np)))(*args)
    peers = gradient(problem, dtype, small)
    chosen = {name: peers[name] for name in ("hand-written", "PyTorch", "autograd") if name in peers}
    return {"fxgrad": Peer(lambda: ours(*args)), **chosen, "not declared": Peer(lambda: undeclared(*args)),
            "generated code": Peer(lambda: program(*args))}


PEERS: tuple[Bar, ...] = (Ratio("PyTorch", 1 / 2), Ratio("autograd", 1 / 5), Ratio("jax", 1 / 50))


def of_gradient(name: str, dtype: str, *bars: Bar) -> Workload:
    """The workload of the gradient of the problem `name`."""
    problem, wide = PROBLEMS[name], dtype == "float64"
    numbers = {"scalar": "Python float", "oscillator": "Python floats"}.get(name, dtype)
    return Workload(f"gradient: {name}, {numbers}", f"Gradient of {problem.title}, un-jitted",
                    functools.partial(gradient, problem, dtype), bars, tolerance=1e-9 if wide else 1e-4, wide=wide)


def of_declared(name: str, limit: float) -> Workload:
    """The workload of the gradient of the problem `name`, whose function is declared transparent."""
    problem = PROBLEMS[name]
    return Workload(f"declared: {name}, float64", f"Gradient of {problem.title}, un-jitted, declared transparent",
                    functools.partial(declared, problem, "float64"),
                    (Ratio("hand-written", limit), Ratio("PyTorch", 1 / 4), Ratio("autograd", 1 / 8)), tolerance=1e-9,
                    wide=True)


WORKLOADS = [
    of_gradient("scalar", "float32", Absolute(6.0), *PEERS),
    of_gradient("oscillator", "float64", Ratio("hand-written", 6.0), *PEERS),
    of_gradient("logistic regression", "float64", Ratio("hand-written", 4.0), *PEERS),
    of_gradient("Rosenbrock", "float64", Ratio("hand-written", 4.0), *PEERS),
    of_gradient("MLP", "float64", Ratio("hand-written", 1.3), *PEERS),
    of_gradient("RNN", "float64", Ratio("hand-written", 1.3), *PEERS),
    of_gradient("logistic regression", "float32", Ratio("hand-written", 4.0), *PEERS),
    of_gradient("Rosenbrock", "float32", Ratio("hand-written", 4.0), *PEERS),
    of_gradient("MLP", "float32", *PEERS),
    of_gradient("RNN", "float32", Ratio("hand-written", 1.3), *PEERS),
    of_gradient("while", "float64"),
    *(of_gradient(name, "float64", Ratio("hand-written", 3.3), *PEERS) for name in (
        "bell", "ridge", "softmax", "elements", "neighbours")),
    *(of_declared(name, 1.5) for name in (
        "bell", "ridge", "softmax", "logistic regression", "Rosenbrock", "MLP", "RNN")),
    *(of_declared(name, 2.0) for name in ("oscillator", "elements", "neighbours")),
]
