"""Kernels of jax: for random keys, and for functions that NumPy lacks, run by XLA on the CPU for it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.scipy.special
import numpy as np
from jax import lax

from fxgrad.engine.caches import cached
from fxgrad.engine.core.avals import Shape, keys_to_jax, to_numpy
from fxgrad.engine.dtypes import DType


def on_cpu(rule: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Return the `numpy` rule that compiles an `xla` rule for the CPU, once per combination of types and parameters."""
    @cached("kernels of XLA", 1024)
    def compiled(params: tuple[tuple[str, Any], ...]) -> Any:
        return jax.jit(lambda *values: rule(lax, *values, **dict(params)))

    def numpy(*arrays: Any, **params: Any) -> list[Any]:
        with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]), \
                jax.numpy_dtype_promotion("standard"):
            outputs = compiled(tuple(params.items()))(*map(keys_to_jax, map(np.asarray, arrays)))
            return [*map(_of_its_own, map(to_numpy, outputs))]
    return numpy


FEW = 4096
"""Up to this many elements, an elementwise kernel is compiled for sizes of powers of 2 only."""


def elementwise_on_cpu(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return the `numpy` rule of an elementwise `xla` rule, with one output of the shape of its arguments.

    Compiling takes some hundred milliseconds. To avoid compiling every shape, few elements are flattened to a vector
    and repeated to the next power of 2.
    """
    kernel = on_cpu(lambda lax, *values: [rule(lax, *values)])

    def numpy(*arrays: Any) -> Any:
        arrays = np.broadcast_arrays(*arrays)
        shape, size = arrays[0].shape, arrays[0].size
        if size > FEW:
            return kernel(*arrays)[0]
        enough = _rounded_up(size)
        return kernel(*(np.resize(array, enough) for array in arrays))[0][:size].reshape(shape)
    return numpy


def _rounded_up(size: int) -> int:
    """Return the next power of 2, or from `FEW` on the next multiple of an eighth of the last one."""
    power = 1 << (size - 1).bit_length()
    return max(8, power) if size <= FEW else -(-size // (power >> 4)) * (power >> 4)


def draws_on_cpu(kernel: Callable[..., Any], each_alone: bool) -> Callable[..., list[Any]]:
    """Return the `numpy` rule of a sampler, `kernel(keys, *parameters, **params)`; parameters start with key axes.

    Compiling takes seconds. The draws from a key depend on their number alone, not on their shape, and not even on
    their number if `each_alone`: if no loop goes on for all while one is rejected. So each row is flattened to a
    vector, which is then repeated to the next of few lengths; and so are the keys, unless there is one.
    """
    drawn = on_cpu(lambda lax, *operands, **params: [kernel(*operands, **params)])

    def numpy(keys: Any, *parameters: Any, **params: Any) -> list[Any]:
        keys = np.asarray(keys)
        shape, count = parameters[0].shape, keys.size
        if count == 0 or count > FEW or parameters[0].size == 0:
            return drawn(keys, *parameters, **params)
        size = parameters[0].size // count
        each = np.resize(np.arange(size), _rounded_up(size) if each_alone and size > 1 else size)
        rows = [np.reshape(parameter, (count, size))[:, each] for parameter in parameters]
        if count == 1:
            return [drawn(keys.reshape(()), *(row[0] for row in rows), **params)[0][:size].reshape(shape)]
        chosen = np.resize(np.arange(count), _rounded_up(count))
        drawn_rows = drawn(keys.reshape(-1)[chosen], *(row[chosen] for row in rows), **params)[0]
        return [drawn_rows[:count, :size].reshape(shape)]
    return numpy


def _of_its_own(value: Any) -> Any:
    """Return a writable array: NumPy's view of a `jax.Array` is not."""
    return value.copy() if isinstance(value, np.ndarray) else value


def in_64_bits() -> AbstractContextManager[Any]:
    """Return a scope in which a rule for XLA may convert to 64 bits, whatever jax's global flag."""
    return jax.enable_x64(True)


def jitted_rule(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of an `xla` rule, which jax traces and lowers once for all places where it is called."""
    return jax.jit(functools.wraps(rule)(lambda *values: rule(lax, *values)))


def special(name: str) -> Callable[..., Any]:
    """Return the `xla` rule `(lax, *values)` that calls a function of jax.scipy.special.

    Some of those reject dtypes narrower than float32, or change the dtype: both is handled here.
    """
    def rule(_: Any, *values: Any) -> Any:
        dtype = values[-1].dtype
        if dtype.itemsize < 4:
            values = tuple(lax.convert_element_type(value, np.float32) for value in values)
        return jax.tree.map(lambda output: lax.convert_element_type(output, dtype),
                            getattr(jax.scipy.special, name)(*values))
    return rule


# --- random keys --------------------------------------------------------------------------------------------------


def wrap(data: Any) -> Any:
    """Return keys made of their words, two along the last axis."""
    return jax.random.wrap_key_data(data, impl="threefry2x32")


def unwrap(keys: Any) -> Any:
    """Return the words of keys, two along a new last axis."""
    return jax.random.key_data(keys)


def clone(keys: Any) -> Any:
    """Return the same keys, to be used again."""
    return jax.random.clone(keys)


def _each(function: Callable[..., Any], keys: Any, *arrays: Any) -> Any:
    """Apply `function(key, *rows)` to every key; `arrays` have the axes of the keys first."""
    # The counters of a key depend on its own shape alone, as in NumPy's kernel.
    with jax.threefry_partitionable(True):
        if not keys.shape:
            return function(keys, *arrays)
        flat = [array.reshape((math.prod(keys.shape), *array.shape[keys.ndim:])) for array in arrays]
        result = jax.vmap(function)(keys.reshape(-1), *flat)
        return result.reshape((*keys.shape, *result.shape[1:]))


def split(keys: Any, shape: Shape) -> Any:
    """Return new keys of `shape` from each key."""
    return _each(lambda key: jax.random.split(key, shape), keys)


def fold_in(keys: Any, data: Any) -> Any:
    """Return a new key from each key and the integer in the same place of `data`."""
    return _each(jax.random.fold_in, keys, data)


def bits(keys: Any, shape: Shape, dtype: DType) -> Any:
    """Return random bits of `shape` from each key."""
    return _each(lambda key: jax.random.bits(key, shape, dtype), keys)


def gamma(keys: Any, a: Any, log_space: bool) -> Any:
    """Return draws from gamma distributions of shapes `a`, or their logarithms."""
    draw = jax.random.loggamma if log_space else jax.random.gamma
    return _each(lambda key, row: draw(key, row, row.shape, row.dtype), keys, a)


def poisson(keys: Any, rate: Any, dtype: DType) -> Any:
    """Return draws from Poisson distributions: jax's, and from rates of 10^4 on `_many`, where jax's lose digits."""
    def draw(key: Any, rate: Any) -> Any:
        are_many = rate >= 1e4
        few = jax.random.poisson(key, jax.numpy.where(are_many, 1.0, rate), rate.shape, dtype)
        whole, most = jax.numpy.floor(rate), np.asarray(np.iinfo(dtype).max, dtype)
        apart = _many(key, rate - whole, jax.numpy.where(are_many, rate, 1.0), 1.0, 1.0)
        # The sum is that of integers: numbers of float32 have 24 bits.
        base, gap = whole.astype(dtype), abs(apart).astype(dtype)
        many = jax.numpy.where(apart < 0, base - gap, base + jax.numpy.minimum(gap, most - base))
        return jax.numpy.where(are_many, jax.numpy.where(rate + apart < most, many, most), few)
    return _each(draw, keys, rate)


def binomial(keys: Any, n: Any, p: Any, dtype: DType) -> Any:
    """Return draws from binomial distributions: jax's, but for large numbers, where these lose digits.

    There they are draws of `_many`, or for a mean, or n less the mean, below 1000 Poisson draws, which are as good.
    """
    def draw(key: Any, n: Any, p: Any) -> Any:
        q = 1 - p
        rare = n * jax.numpy.minimum(p, q)
        large = (n >= 3e6) & (p > 0) & (p < 1) & jax.numpy.isfinite(n)
        are_many = large & (rare >= 1e3)
        few = jax.random.binomial(key, jax.numpy.where(large, 1.0, n), p, n.shape, dtype)
        counts = jax.random.poisson(key, jax.numpy.where(large & ~are_many, rare, 1.0), n.shape, np.int32)
        counts = jax.numpy.where(p < 0.5, counts, jax.numpy.floor(n) - counts).astype(dtype)
        spread, mean = jax.numpy.where(are_many, rare, 1.0) * jax.numpy.maximum(p, q), jax.numpy.floor(n) * p
        many = jax.numpy.clip(_many(key, mean, spread, q - p, 1 - 6 * p * q), 0, jax.numpy.floor(n)).astype(dtype)
        return jax.numpy.where(are_many, many, jax.numpy.where(large, counts, few))
    return _each(draw, keys, n, p)


def _many(key: Any, mean: Any, variance: Any, third: Any, fourth: Any) -> Any:
    """Return whole numbers of a mean and a variance of at least 1000, by a normal draw with corrections of its shape.

    These are in the third and fourth cumulants, given as multiples of the variance. What is left out is of the order of
    1 / variance. E. A. Cornish and R. A. Fisher, "Moments and cumulants in the specification of distributions" (1938).
    """
    z, deviation = jax.random.normal(key, variance.shape, variance.dtype), jax.numpy.sqrt(variance)
    cubic = fourth * (z ** 3 - 3 * z) / 24 - third ** 2 * (2 * z ** 3 - 5 * z) / 36
    return jax.numpy.floor(mean + (deviation * z + third * (z ** 2 - 1) / 6 + cubic / deviation) + 0.5)


def in_memory_space(x: Any, to: str) -> Any:
    """Return a jax value in host or device memory; XLA moves it if these differ, as on GPU and TPU.

    On CPU the device computes in host memory, and nothing is moved.
    """
    return jax.device_put(x, jax.memory.Space.Host if to == "host" else jax.memory.Space.Device)
