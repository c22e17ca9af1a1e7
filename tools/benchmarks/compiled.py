"""Compiled gradients against jax's: their time, and the temporary memory that XLA plans for them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxgrad
from benchmarks import models, second_order
from benchmarks.models import FXGRAD, JAX, Model
from benchmarks.problems import PROBLEMS
from benchmarks.workload import AGAIN, Bar, Memory, Peer, Peers, Ratio, Workload


def compiled(function: Any, args: tuple[Any, ...]) -> Peer:
    """A jitted function, compiled for these arguments and called with them."""
    stage = function.lower(*args).compile()
    return Peer(lambda: jax.block_until_ready(stage(*args)), memory=stage.memory_analysis().temp_size_in_bytes)


def both(ours: Any, theirs: Any, args: tuple[Any, ...], small: bool) -> Peers:
    """The same function of fxgrad and of jax, that of jax twice; where it is `small`, it is compiled once for both."""
    args = jax.tree.map(jnp.asarray, args)
    first = compiled(jax.jit(theirs), args)
    again = first if small else compiled(jax.jit(lambda *args: theirs(*args)), args)
    return {"fxgrad": compiled(fxgrad.jit(ours), args), "jax.jit": first, AGAIN: Peer(again.call)}


def of_model(model: Model, small: bool) -> Peers:
    """The value and gradient of a model."""
    return both(fxgrad.value_and_grad(model.loss(FXGRAD)), jax.value_and_grad(model.loss(JAX)), model.arguments(small),
                small)


def of_loss(name: str, small: bool) -> Peers:
    """The gradient of one of the problems."""
    problem = PROBLEMS[name]
    return both(fxgrad.grad(problem.loss(np)), jax.grad(problem.loss(jnp)), problem.given("float32", small), small)


def of_hessian(small: bool) -> Peers:
    """The Hessian of Rosenbrock's function."""
    problem = PROBLEMS["Rosenbrock"]
    args = problem.given("float32", small)
    return both(fxgrad.hessian(problem.loss(np)), jax.hessian(problem.loss(jnp)), args, small)


def of_examples(small: bool) -> Peers:
    """Per-example gradients of the network."""
    args = PROBLEMS["MLP"].given("float32", small)
    return both(second_order.per_example(fxgrad, np), second_order.per_example(jax, jnp), args, small)


def of_columns(small: bool) -> Peers:
    """A loss of standardised columns, few rows of many, with its gradient by a weight for each."""
    def loss(lib: Any) -> Callable[..., Any]:
        return lambda w, x: lib.mean(lib.tanh((x - lib.mean(x, axis=0)) / lib.std(x, axis=0) * w) ** 2)

    args = models.random(40_000), models.random(3 if small else 64, 40_000, scale=1)
    return both(fxgrad.value_and_grad(loss(np)), jax.value_and_grad(loss(jnp)), args, small)


def of_transposed(small: bool) -> Peers:
    """Ten steps of gradient descent on least squares, written with the transposed matrix."""
    def descend(w: Any, x: Any, targets: Any) -> Any:
        for _ in range(10):
            w = w - 1e-3 * (x.T @ (x @ w - targets))
        return w

    rows, columns = (8, 3) if small else (1000, 500)
    args = models.random(columns), models.random(rows, columns), models.random(rows)
    return both(descend, descend, args, small)


def of_operation(operation: Callable[..., Any], counts: tuple[int, ...], small: bool) -> Peers:
    """An operation on so many random numbers, the last ones in order, beside NumPy."""
    *others, last = (models.random(min(count, 50) if small else count, scale=1) for count in counts)
    args = (*others, np.sort(last)) if others else (last,)
    return {**both(lambda *args: operation(np, *args), lambda *args: operation(jnp, *args), args, small),
            "NumPy": Peer(lambda: operation(np, *args))}


OPERATIONS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[Bar, ...]]] = {
    "sort": (lambda lib, x: lib.sort(x), (100_000,), (Ratio("jax.jit", 0.4),)),
    "median": (lambda lib, x: lib.median(x), (100_000,), (Ratio("jax.jit", 0.4),)),
    "argsort": (lambda lib, x: lib.argsort(x, stable=True), (100_000,), (Ratio("jax.jit", 1.25),)),
    "searchsorted": (lambda lib, x, at: lib.searchsorted(at, x), (100_000, 1000), (Ratio("jax.jit", 1.0),)),
    "interp": (lambda lib, x, at: lib.interp(x, at, lib.abs(at)), (100_000, 1000), (Ratio("jax.jit", 1.0),)),
    "argmax": (lambda lib, x: lib.argmax(x), (100_000,), (Ratio("jax.jit", 1.1),)),
    "arctan2": (lambda lib, x, y: lib.arctan2(x, y), (100_000, 100_000), (Ratio("jax.jit", 0.2),)),
    **{name: (lambda lib, x, name=name: getattr(lib, name)(x), (100_000,), (Ratio("jax.jit", bar),))
       for name, bar in (("sin", 0.4), ("exp", 1.1), ("tanh", 1.1))}}
"""Operations by name, with the counts of their random numbers and their bars."""


def of_while(numbers: int, small: bool) -> Peers:
    """The gradient of a `while_loop`, beside its value, and beside jax's gradient of a scan of as many steps."""
    count, numbers = (20, 3) if small else (100_000, numbers)
    x, steps = jnp.linspace(0.1, 2.0, numbers, dtype="float32"), jnp.int32(count)
    loss = models.growth(FXGRAD)
    return {"fxgrad": compiled(fxgrad.jit(fxgrad.grad(loss)), (x, steps)),
            "jax.jit, scan": compiled(jax.jit(jax.grad(models.growth_by_scan(count))), (x,)),
            "value alone": Peer(compiled(fxgrad.jit(loss), (x, steps)).call, result=None)}


BARS: tuple[Bar, ...] = (Ratio("jax.jit", 1.05), Memory("jax.jit", 1.0))
LOOPS: tuple[Bar, ...] = (Ratio("jax.jit", 0.95), Memory("jax.jit", 1.0))


def workload(name: str, title: str, make: Callable[[bool], Peers], *bars: Bar) -> Workload:
    """A workload of compiled code, in float32."""
    return Workload(name, title, make, bars, tolerance=1e-3, jitted=True)


MODELS = {
    "compiled: classifier": Model("a network 784-256-10 on 64 images", models.classifier,
                                  models.classifier_arguments),
    "compiled: transformer block": Model("one layer of a transformer, width 128, 4 heads, 8 sequences of 64 tokens",
                                         models.transformer_block, functools.partial(models.transformer_arguments, 0)),
    "compiled: convolutional net": Model("two convolutions with max-pooling on 32 images 28x28", models.convolutional,
                                         models.convolutional_arguments),
    "scan: LSTM": Model("an LSTM with 64 units by scan, 32 sequences of 1000 entries", models.lstm,
                        functools.partial(models.recurrent_arguments, 4)),
    "scan: tanh RNN": Model("a tanh RNN with 64 units by scan, 32 sequences of 1000 entries", models.rnn,
                            functools.partial(models.recurrent_arguments, 1)),
    "scan: ODE by Runge-Kutta": Model("500 steps of Runge-Kutta by scan through a network 16-64-64-16, 32 points",
                                      models.runge_kutta, models.runge_kutta_arguments),
    "scan: transformer": Model("12 layers of a transformer by scan, width 128, 8 sequences of 64 tokens",
                               models.transformer, functools.partial(models.transformer_arguments, 12)),
}
"""The models by the names of their workloads."""

WORKLOADS = [
    workload("compiled: logistic regression", f"Gradient of {PROBLEMS['logistic regression'].title}",
             functools.partial(of_loss, "logistic regression"), *BARS),
    workload("compiled: Rosenbrock", f"Gradient of {PROBLEMS['Rosenbrock'].title}",
             functools.partial(of_loss, "Rosenbrock"), *BARS),
    workload("compiled: MLP", f"Gradient of {PROBLEMS['MLP'].title}", functools.partial(of_loss, "MLP"), *BARS),
    workload("compiled: RNN, Python loop", f"Gradient of {PROBLEMS['RNN'].title}",
             functools.partial(of_loss, "RNN"), *BARS),
    workload("compiled: Hessian of Rosenbrock", "Hessian of Rosenbrock's function, n = 100", of_hessian, *BARS),
    workload("compiled: per-example gradients", "vmap(grad) of a network 64-64-1 on 32 examples", of_examples, *BARS),
    workload("compiled: wide rows", "Value and gradient of a loss of 40,000 standardised columns in 64 rows",
             of_columns, Ratio("jax.jit", 0.5), Memory("jax.jit", 1.5)),
    workload("compiled: transposed products", "Ten steps of gradient descent on least squares, 1000 x 500",
             of_transposed, Ratio("jax.jit", 0.5), Memory("jax.jit", 1.0)),
    *(workload(f"operation: {name}", f"{name} of {' and '.join(f'{count:,}' for count in counts)} numbers",
               functools.partial(of_operation, operation, counts), *bars)
      for name, (operation, counts, bars) in OPERATIONS.items()),
    *(workload(name, f"Value and gradient of {model.title}", functools.partial(of_model, model),
               *(LOOPS if name.startswith("scan") else BARS)) for name, model in MODELS.items()),
    *(workload(name, f"Gradient of a while_loop of 100000 steps on {title}", functools.partial(of_while, numbers),
               Memory("jax.jit, scan", 1.0), Ratio("value alone", 6.0))
      for name, title, numbers in (("while: 100000 steps", "1000 numbers", 1000),
                                   ("while: 100000 steps of a number", "one number", 1))),
]
