"""What holds a function of jax's imported by fxgrad to jax itself: value, derivatives, batches, both executors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxgrad
from fxgrad import numpy as fnp


def draw(*shape: int, seed: int = 0) -> Any:
    """Numbers of float64, the same at every call."""
    return np.random.default_rng(seed).uniform(-1.5, 1.5, shape)[()]


def assert_close(given: Any, wanted: Any, what: str, tolerance: float = 1e-12) -> None:
    """Holds containers of arrays to each other, dtypes included."""
    first, second = jax.tree.leaves(given), jax.tree.leaves(wanted)
    assert len(first) == len(second), what
    for one, other in zip(map(np.asarray, first), map(np.asarray, second), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype), (what, one.dtype, other.dtype)
        if one.dtype != jax.dtypes.float0:  # that has no values
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance, err_msg=what)


def total(function: Callable[..., Any], sums: Any) -> Callable[..., Any]:
    """Return a scalar that depends on all outputs of `function` nonlinearly; `sums` is the library to write it with."""
    def scalar(*args: Any) -> Any:
        leaves = jax.tree.leaves(function(*args))
        return sum(sums.sum(sums.sin(leaf)) for leaf in leaves if leaf.dtype.kind == "f")
    return scalar


def moving(args: Sequence[Any]) -> tuple[int, ...]:
    """Return the positions of the arguments with derivatives."""
    return tuple(index for index, arg in enumerate(args) if np.asarray(arg).dtype.kind == "f")


def twice(args: Sequence[Any]) -> list[Any]:
    """Return a batch of two: the arguments, and others (integers are the same)."""
    return [(jnp if isinstance(arg, jax.Array) else np).stack([arg, arg * 0.5 if arg.dtype.kind == "f" else arg])
            for arg in args]


def derived(library: Any, sums: Any, function: Callable[..., Any], args: Sequence[Any], wanted: Sequence[str],
            ) -> dict[str, Any]:
    """Results of the transformations of `library`, jax or fxgrad, by name."""
    wrt = moving(args)
    scalar = total(function, sums)

    def moved(*given: Any) -> Any:
        each = iter(given)
        return function(*(next(each) if index in wrt else arg for index, arg in enumerate(args)))

    def second(*args: Any) -> Any:
        return sum(sums.sum(gradient * gradient) for gradient in library.grad(scalar, wrt)(*args))

    primals = tuple(args[index] for index in wrt)
    tangents = tuple(sums.cos(primal) for primal in primals)
    results = {
        "value": lambda: function(*args),
        "grad": lambda: library.grad(scalar, wrt)(*args),
        "jvp": lambda: library.jvp(moved, primals, tangents),
        "second": lambda: library.grad(second, wrt)(*args),
        "vmap": lambda: library.vmap(function)(*twice(args)),
        "vmap of grad": lambda: library.vmap(library.grad(scalar, wrt))(*twice(args)),
    }
    return {name: results[name]() for name in wanted}


EVERYTHING = ("value", "grad", "jvp", "second", "vmap", "vmap of grad")


def check(function: Callable[..., Any], *args: Any, wanted: Sequence[str] = EVERYTHING, tolerance: float = 1e-9,
          ) -> None:
    """Holds `from_jax(function)` to jax, on NumPy arrays, on jax arrays, and jitted."""
    with jax.enable_x64(True):
        on_device = [*map(jnp.asarray, args)]
        oracle = jax.jit(lambda: derived(jax, jnp, function, on_device, wanted))()
    ours = fxgrad.from_jax(function)
    found = derived(fxgrad, fnp, ours, args, wanted)
    for name in wanted:
        assert_close(found[name], oracle[name], name, tolerance)
    assert all(isinstance(leaf, np.ndarray | np.generic) for leaf in jax.tree.leaves(found))
    assert_close(ours(*on_device), oracle["value"], "value on jax arrays", tolerance)
    if "grad" in wanted:
        wrt = moving(args)
        gradient = fxgrad.grad(total(ours, fnp), wrt)
        assert_close(gradient(*on_device), oracle["grad"], "grad on jax arrays", tolerance)
        assert_close(fxgrad.jit(gradient)(*args), oracle["grad"], "jit of grad", tolerance)


def primitives(function: Callable[..., Any], *args: Any) -> list[str]:
    """Return the names of the primitives of `function`, imported."""
    program = fxgrad.make_program(fxgrad.from_jax(function))(*args)
    return [equation.primitive.name for equation in program.equations]
