"""The programs that are measured on a GPU: whole models, products, gradients within budgets, steps on meshes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from benchmarks import second_order
from benchmarks.compiled import MODELS
from benchmarks.models import FXGRAD, growth
from benchmarks.problems import PROBLEMS
from budgeted.measured import budgets
from budgeted.models import Model, models
from parallels.measured import laid_out
from parallels.patterns import PATTERNS

import fxgrad
import fxgrad.numpy as fnp
from tests.support.shipped import SHIPPED

POLICIES = fxgrad.checkpoint_policies
STORED: dict[str, Callable[[Any], Any]] = {
    "all on the device": lambda block: block,
    "offloaded": functools.partial(fxgrad.checkpoint, policy=POLICIES.offload()),
    "products offloaded": functools.partial(fxgrad.checkpoint, policy=POLICIES.offload(POLICIES.dots_saveable)),
    "computed again": fxgrad.checkpoint,
}
"""Where the residuals of each block go."""
PRECISIONS = {"float32": None, "bfloat16": fxgrad.autocast_policies.bfloat16,
              "float16": fxgrad.autocast_policies.float16}


class Lowerable(NamedTuple):
    """A function with arguments that it can be lowered for."""

    function: Callable[..., Any]
    args: tuple[Any, ...]


def loss_of(model: Model, around: Callable[[Any], Any] = lambda block: block) -> Callable[..., Any]:
    """The loss of a model in fxgrad, each block wrapped by `around`."""
    return model.loss(fnp, around)


def in_precision(model: Model, precision: str) -> Callable[..., Any]:
    """Value and gradient of a model, its products in this precision."""
    policy = PRECISIONS[precision]
    loss = loss_of(model)
    return fxgrad.value_and_grad(loss if policy is None else fxgrad.autocast(loss, policy))


def lowerable(blocks: int = 24) -> Iterator[tuple[str, str, Callable[[], Lowerable]]]:
    """Part, name and maker of what is measured, but for the additions of `dispatch`.

    The models of `times` have the small sizes of the tests.
    """
    for name, (function, args, _) in SHIPPED.items():
        yield "equality", name, lambda function=function, args=args: Lowerable(function, args)
    for name, model in models(blocks).items():
        args = model.parameters, model.data
        # Without a budget, and with `checkpoint` around each block, they are those of `offload`.
        for budget, _ in budgets(loss_of(model), args):
            yield "budgets", f"{name}, {budget} bytes", lambda model=model, args=args, budget=budget: Lowerable(
                fxgrad.grad(loss_of(model), memory_budget=budget), args)
        for how, around in STORED.items():
            yield "offload", f"{name}, {how}", lambda model=model, args=args, around=around: Lowerable(
                fxgrad.grad(loss_of(model, around)), args)
        for precision in PRECISIONS:
            yield "precision", f"{name}, {precision}", lambda model=model, args=args, precision=precision: Lowerable(
                in_precision(model, precision), args)
    for precision in PRECISIONS:
        yield "precision", f"A @ B, {precision}", lambda precision=precision: Lowerable(
            np.matmul, tuple(jnp.asarray(each, precision) for each in matrices(64)))
    for name, workload in MODELS.items():
        yield "times", name, lambda workload=workload: Lowerable(
            fxgrad.value_and_grad(workload.loss(FXGRAD)), workload.arguments(True))
    for name in ("logistic regression", "Rosenbrock", "MLP", "RNN"):
        yield "times", name, lambda problem=PROBLEMS[name]: Lowerable(
            fxgrad.grad(problem.loss(np)), problem.given("float32", True))
    rosenbrock, network = PROBLEMS["Rosenbrock"], PROBLEMS["MLP"]
    yield "times", "Hessian of Rosenbrock", lambda: Lowerable(
        fxgrad.hessian(rosenbrock.loss(np)), rosenbrock.given("float32", True))
    yield "times", "per-example gradients", lambda: Lowerable(
        second_order.per_example(fxgrad, np), network.given("float32", True))
    for numbers in (1, 3):
        yield "times", f"while, {numbers} numbers", lambda numbers=numbers: Lowerable(
            fxgrad.grad(growth(FXGRAD)), (np.ones(numbers, np.float32), np.int32(20)))
    for name in PATTERNS:
        yield "shardings", name, lambda name=name: _step(name)


def matrices(size: int) -> tuple[Any, Any]:
    """Two square matrices of float32."""
    a, b = np.random.default_rng(0).normal(size=(2, size, size)).astype(np.float32)
    return a, b


def _step(name: str) -> Lowerable:
    mesh, _, laid = laid_out(PATTERNS[name])
    return Lowerable(PATTERNS[name].step(mesh), laid)
