"""Library functions called un-jitted on values, beside NumPy's, SciPy's and un-jitted jax's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
import scipy.stats

import fxgrad
import fxgrad.numpy as fnp
from benchmarks.libraries import jax_arguments
from benchmarks.workload import Bar, Peer, Peers, Ratio, Workload

DRAWS = np.random.default_rng(0)
VECTOR = (DRAWS.random(100) + 0.1).astype(np.float32)
MATRIX = (DRAWS.random((8, 8)) + 4.0 * np.eye(8)).astype(np.float32)

Function = Callable[..., Any]
EAGER: tuple[Bar, ...] = (Ratio("jax", 1.0),)


@dataclass(frozen=True)
class LibraryCall:
    """A function of the same arguments in fxgrad, in jax, and in NumPy or SciPy if these have it.

    `bars` are by default 3 µs more than 1.5 times NumPy's time, or jax's time.
    """

    ours: Function
    theirs: Function
    by_numpy: Function | None
    args: tuple[Any, ...] = (VECTOR,)
    bars: tuple[Bar, ...] = ()

    def workload(self, name: str) -> Workload:
        """The workload of this call."""
        bars = self.bars or ((Ratio("NumPy", 1.5, plus=3.0),) if self.by_numpy else EAGER)
        return Workload(f"library: {name}", f"{name} on values, un-jitted", functools.partial(self.peers), bars,
                        tolerance=1e-3)

    def peers(self, small: bool) -> Peers:  # noqa: ARG002  (the arrays are small already)
        """The call in each library."""
        of_jax = jax_arguments(self.args)
        found = {"fxgrad": Peer(lambda: self.ours(*self.args)), "jax": Peer(lambda: self.theirs(*of_jax))}
        if self.by_numpy is not None:
            function = self.by_numpy
            found["NumPy"] = Peer(lambda: function(*self.args))
        return found


def draw(kind: str, library: Any) -> Function:
    """A function that draws 100 numbers with one key, made at the first call: before, jax has no devices."""
    key = functools.cache(lambda: library.random.key(0))
    function = getattr(library.random, kind)
    return lambda: function(key(), (100,))


def same(name: str, *args: Any, bars: tuple[Bar, ...] = ()) -> LibraryCall:
    """A function that has one name in all three."""
    def in_namespace(namespace: Any) -> Function:
        function: Function = functools.reduce(getattr, name.split("."), namespace)
        return function

    return LibraryCall(in_namespace(fnp), in_namespace(jnp), in_namespace(np), args, bars)


def axis_0(function: Function) -> Function:
    """The function along the first axis."""
    return functools.partial(function, axis=0)


CALLS: dict[str, LibraryCall] = {
    **{name: same(name, VECTOR) for name in ("exp", "sum", "max", "mean", "var", "std", "sort", "cumsum")},
    "mean of an axis": LibraryCall(axis_0(fnp.mean), axis_0(jnp.mean), axis_0(np.mean), (MATRIX,)),
    "add": same("add", VECTOR, VECTOR), "matmul": same("matmul", MATRIX, MATRIX),
    "norm": same("linalg.norm", VECTOR), "solve": same("linalg.solve", MATRIX, MATRIX[0]),
    "linspace": same("linspace", 0.0, 1.0, 50), "concatenate": same("concatenate", [VECTOR, VECTOR]),
    "stack": same("stack", [VECTOR, VECTOR]), "where": same("where", VECTOR > 0.5, VECTOR, 0.0),
    "clip": same("clip", VECTOR, 0.2, 0.8), "reshape": same("reshape", VECTOR, (10, 10)),
    "einsum": LibraryCall(functools.partial(fnp.einsum, "ij,jk->ik"), functools.partial(jnp.einsum, "ij,jk->ik"),
                          functools.partial(np.einsum, "ij,jk->ik"), (MATRIX, MATRIX)),
    "softmax": LibraryCall(fxgrad.nn.softmax, jax.nn.softmax, scipy.special.softmax),
    "gelu": LibraryCall(fxgrad.nn.gelu, jax.nn.gelu, None),
    "logsumexp": LibraryCall(fxgrad.scipy.special.logsumexp, jax.scipy.special.logsumexp, scipy.special.logsumexp),
    "norm.logpdf": LibraryCall(fxgrad.scipy.stats.norm.logpdf, jax.scipy.stats.norm.logpdf, scipy.stats.norm.logpdf),
    "gamma.logpdf": LibraryCall(fxgrad.scipy.stats.gamma.logpdf, jax.scipy.stats.gamma.logpdf, scipy.stats.gamma.logpdf,
                                (VECTOR, 2.0)),
    "random.normal": LibraryCall(draw("normal", fxgrad), draw("normal", jax), None, (), (Ratio("jax", 2.0),)),
    "random.uniform": LibraryCall(draw("uniform", fxgrad), draw("uniform", jax), None, (), (Ratio("jax", 2.0),)),
}

ON_JAX: dict[str, Function] = {
    "std": lambda xp: functools.partial(xp.std, axis=0), "median": lambda xp: functools.partial(xp.median, axis=0),
    "clip": lambda xp: lambda x: xp.clip(x, 0.2, 0.8), "where": lambda xp: lambda x: xp.where(x, x, 0.0),
    "isclose": lambda xp: lambda x: xp.isclose(x, x), "interp": lambda xp: lambda x: xp.interp(x, x[0], x[1]),
    "trapezoid": lambda xp: xp.trapezoid, "add": lambda xp: lambda x: xp.add(x, x), "sort": lambda xp: xp.sort,
    "norm": lambda xp: xp.linalg.norm, "solve": lambda xp: lambda x: xp.linalg.solve(x, x[0]),
}
"""Functions of an array of jax, by the namespace that has them."""


def on_jax(name: str, function: Function) -> Workload:
    """The workload of a function on an array of jax, un-jitted."""
    def peers(small: bool) -> Peers:  # noqa: ARG001  (the array is small already)
        x, = jax_arguments((MATRIX,))
        ours, theirs = function(fnp), function(jnp)
        return {"fxgrad": Peer(lambda: ours(x)), "jax": Peer(lambda: theirs(x))}

    return Workload(f"library on jax: {name}", f"{name} of a jax.Array, un-jitted", peers,
                    (Ratio("jax", 1.5, plus=3.0),), tolerance=1e-3)


WORKLOADS = [*(call.workload(name) for name, call in CALLS.items()),
             *(on_jax(name, function) for name, function in ON_JAX.items())]
