"""Un-jitted values and gradients of whole models, on NumPy arrays, beside jax un-jitted and compiled."""

from __future__ import annotations

import functools

import jax

import fxgrad
from benchmarks.compiled import MODELS
from benchmarks.libraries import jax_arguments
from benchmarks.models import FXGRAD, JAX, Model
from benchmarks.workload import Peer, Peers, Workload


def unjitted(model: Model, small: bool) -> Peers:
    """The value and gradient of a model."""
    args = model.arguments(small)
    of_jax = jax_arguments(args)
    ours, theirs = fxgrad.value_and_grad(model.loss(FXGRAD)), jax.value_and_grad(model.loss(JAX))
    compiled = jax.jit(theirs)
    return {"fxgrad": Peer(lambda: ours(*args)), "jax": Peer(lambda: theirs(*of_jax)),
            "jax.jit": Peer(lambda: compiled(*of_jax))}


WORKLOADS = [Workload(f"un-jitted model: {name.split(': ')[1]}", f"Value and gradient of {model.title}, un-jitted",
                      functools.partial(unjitted, model), tolerance=1e-3) for name, model in MODELS.items()]
