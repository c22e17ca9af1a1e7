"""Random bits: keys, their creation, splitting and conversion, and the hash threefry2x32.

Source: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011). A key is two
words of 32 bits. The bits of a key are the hashes of counters, one counter an element, so that every element can be
computed alone; keys that are split off are hashes too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.caches import cached
from fxgrad.engine.core.avals import Aval, Shape
from fxgrad.engine.core.primitive import NO_TANGENT, NOT_LINEAR, ArrayKernel, Cost, Primitive, register, total_bytes
from fxgrad.engine.core.sizes import SymbolicDim
from fxgrad.engine.dtypes import DType, key_dtype
from fxgrad.engine.ops import xla_kernels
from fxgrad.engine.ops.comparison import eq
from fxgrad.engine.ops.families import broadcast_shapes, check_kind
from fxgrad.engine.ops.pointwise import align, align_batch
from fxgrad.engine.ops.reductions import reduce_and
from fxgrad.engine.ops.structural import move_axis
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.errors import ArgumentError, DTypeError, ShapeError

WORDS = "threefry2x32"
"""The name of the one field of the key dtype."""

# --- the hash -----------------------------------------------------------------------------------------------------

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)
GROUPS = 5
_HASH_FLOPS = 20 * 6
_BLOCK = 1 << 14
"""The number of elements that NumPy hashes at once: few enough for them to stay in the cache."""
_FEW = 128
"""The number of elements up to which Python's integers are faster than NumPy."""
_LOWER = 0xFFFFFFFF
_SHIFTS = [[(np.array(rotation, np.uint32), np.array(32 - rotation, np.uint32)) for rotation in rotations]
           for rotations in ROTATIONS]


def _hash_numpy(*words: Any) -> list[Any]:
    """Hash broadcast operands (two words of the key, two of the counter): few of them as integers, others in blocks."""
    shape = np.broadcast_shapes(*[word.shape for word in words])
    count = math.prod(shape)
    flat = [word.reshape(-1) if word.size == 1 or word.shape == shape else np.broadcast_to(word, shape).reshape(-1)
            for word in words]
    if count <= _FEW:
        ones, _ = _lanes(count)
        outputs = _hash_lanes([int(word[0]) * ones if len(word) == 1 else int.from_bytes(
            word.astype("<u8").tobytes(), "little") for word in flat], count)
    else:
        outputs = np.empty((2, count), np.uint32)
        for begin in range(0, count, _BLOCK):
            part = slice(begin, begin + _BLOCK)
            _hash_block([word[part] if len(word) > 1 else word for word in flat], outputs[:, part])
    return [output.reshape(shape)[()] for output in outputs]


def _hash_block(words: list[Any], out: Any) -> None:
    """Compute twenty rounds of threefry2x32 in the two rows of `out`."""
    k0, k1, x0, x1 = words
    first, second = out
    schedule = (k0, k1, k0 ^ k1 ^ PARITY)
    np.add(x0, k0, first)
    np.add(x1, k1, second)
    left = np.empty_like(second)
    for group in range(GROUPS):
        for up, down in _SHIFTS[group % 2]:
            np.add(first, second, first)
            np.left_shift(second, up, left)
            np.right_shift(second, down, second)
            np.bitwise_or(second, left, second)
            np.bitwise_xor(second, first, second)
        np.add(first, schedule[(group + 1) % 3], first)
        np.add(second, schedule[(group + 2) % 3] + np.uint32(group + 1), second)


@cached("lanes of counters", 1024)
def _lanes(count: int) -> tuple[int, int]:
    """Return integers with 1 in each lane, and with 0, 1, 2, ..."""
    counters = np.arange(count, dtype="<u8")
    return int.from_bytes(np.ones_like(counters).tobytes(), "little"), int.from_bytes(counters.tobytes(), "little")


def _hash_lanes(words: list[int], count: int) -> Any:
    """Compute as `_hash_block`, each word as one integer with a lane of 64 bits for each of `count` elements.

    Few elements take a fifth of the time of NumPy's calls. The upper halves of the lanes hold what is carried or
    shifted out of the lower ones; sums of 26 words do not overflow them.
    """
    k0, k1, x0, x1 = words
    ones, _ = _lanes(count)
    lower = _LOWER * ones
    schedule = (k0, k1, k0 ^ k1 ^ int(PARITY) * ones)
    first, second = x0 + k0, (x1 + k1) & lower
    for group in range(GROUPS):
        for rotation in ROTATIONS[group % 2]:
            first += second
            second <<= rotation
            second = ((second | (second >> 32)) ^ first) & lower
        first += schedule[(group + 1) % 3]
        second = (second + schedule[(group + 2) % 3] + (group + 1) * ones) & lower
    lanes = (first & lower).to_bytes(8 * count, "little") + second.to_bytes(8 * count, "little")
    return np.frombuffer(lanes, "<u4")[::2].astype(np.uint32).reshape(2, count)


def _hash_abstract(*words: Aval) -> list[Aval]:
    if len(words) != 4:
        raise ArgumentError(f"threefry2x32: {len(words)} operands; two words of the key and two of the counter are "
                            "needed")
    if any(word.dtype != np.uint32 for word in words):
        raise DTypeError(f"threefry2x32: operands of {', '.join(dtypes.shown_name(word.dtype) for word in words)}; "
                         "all must be uint32")
    return [Aval(broadcast_shapes("threefry2x32", *(word.shape for word in words)), words[0].dtype)] * 2


def _hash_batch(size: int, values: list[Any], axes: list[int | None]) -> tuple[list[Any], list[int]]:
    return bind(threefry2x32_p, *align_batch(values, axes)), [0, 0]


def _hash_xla(lax: Any, *words: Any) -> list[Any]:
    k0, k1, x0, x1 = align(lax, *words)
    schedule = (k0, k1, k0 ^ k1 ^ PARITY)
    first, second = x0 + k0, x1 + k1
    for group in range(GROUPS):
        for rotation in ROTATIONS[group % 2]:
            first = first + second
            second = (second << np.uint32(rotation)) | (second >> np.uint32(32 - rotation))
            second = second ^ first
        first = first + schedule[(group + 1) % 3]
        second = second + (schedule[(group + 2) % 3] + np.uint32(group + 1))
    return [first, second]


def _hash_cost(*words: Aval) -> Cost:
    outputs = _hash_abstract(*words)
    return Cost(_HASH_FLOPS * outputs[0].size, total_bytes(words, outputs))


threefry2x32_p = register(Primitive(
    name="threefry2x32", abstract=_hash_abstract, numpy=_hash_numpy, xla=_hash_xla, jvp=NO_TANGENT,
    transpose=NOT_LINEAR, batch=_hash_batch, cost=_hash_cost))


def _key_words(keys: Any) -> tuple[Any, Any]:
    words = np.asarray(keys)[WORDS]
    return words[..., 0], words[..., 1]


def _hash_counters(keys: Any, shape: Shape) -> list[Any]:
    """Return, for each key, the hashes of the counters 0, 1, 2, ... (of 64 bits) in the elements of `shape`."""
    count = math.prod(shape)
    if not keys.shape and count <= _FEW:
        ones, lanes = _lanes(count)
        k0, k1 = keys[WORDS].tolist()
        first, second = _hash_lanes([k0 * ones, k1 * ones, 0, lanes], count)
        return [first.reshape(shape)[()], second.reshape(shape)[()]]
    counters = np.arange(count, dtype=np.uint64).reshape(shape)
    spread = (*np.shape(keys), *(1,) * len(shape))
    high = (counters >> np.uint64(32)).astype(np.uint32) if counters.size > 2**32 else np.zeros((1,) * len(shape),
                                                                                               np.uint32)
    return _hash_numpy(*(word.reshape(spread) for word in _key_words(keys)), high, counters.astype(np.uint32))


def _as_keys(words: Any) -> Any:
    return np.ascontiguousarray(words).view(key_dtype).reshape(np.shape(words)[:-1])


# --- operations on keys -------------------------------------------------------------------------------------------


def check_keys(name: str, keys: Aval) -> None:
    """Raise `DTypeError` for anything but an array of keys."""
    if not dtypes.is_key(keys.dtype):
        raise DTypeError(f"{name}: random keys (key<fry>) are needed, got {dtypes.shown_name(keys.dtype)}; make them "
                         "with fxgrad.random.key(seed) or fxgrad.random.wrap_key_data(words)")


def _of_keys(name: str, result: Callable[..., tuple[Shape, DType]], numpy: Callable[..., Any],
             xla: Callable[..., Any], flops: int = _HASH_FLOPS) -> Primitive:
    """Return the record of an operation on each key: `result(**params)` gives the axes that it adds, and the dtype."""
    def abstract(keys: Aval, **params: Any) -> list[Aval]:
        check_keys(name, keys)
        added, dtype = result(**params)
        return [Aval((*keys.shape, *added), dtype)]

    def cost(keys: Aval, **params: Any) -> Cost:
        outputs = abstract(keys, **params)
        return Cost(flops * outputs[0].size, total_bytes([keys], outputs))

    primitive = register(Primitive(
        name=name, abstract=abstract, numpy=ArrayKernel(numpy), xla=lambda lax, keys, **params: [xla(keys, **params)],
        jvp=NO_TANGENT, transpose=NOT_LINEAR,
        batch=lambda size, values, axes, **params: (bind(primitive, *values, **params), axes), cost=cost))
    return primitive


def check_sizes(name: str, shape: Any) -> None:
    """Raise `ShapeError` unless `shape` is a tuple of non-negative integers."""
    if not isinstance(shape, tuple) or any(not isinstance(extent, int | SymbolicDim) or extent < 0 for extent in shape):
        raise ShapeError(f"{name}: the shape {shape!r}; a tuple of non-negative integers is needed")


def _split_result(*, shape: Shape) -> tuple[Shape, DType]:
    check_sizes("random_split", shape)
    return shape, key_dtype


random_split_p = _of_keys(
    "random_split", _split_result, xla=xla_kernels.split,
    numpy=lambda keys, *, shape: _as_keys(np.stack(_hash_counters(keys, shape), -1))[()])

_BITS = {width: np.dtype(f"uint{width}") for width in (8, 16, 32, 64)}


def _bits_result(*, shape: Shape, bit_width: int) -> tuple[Shape, DType]:
    check_sizes("random_bits", shape)
    if bit_width not in _BITS:
        raise ArgumentError(f"random_bits: a width of {bit_width!r} bits; 8, 16, 32 or 64 is needed")
    return shape, _BITS[bit_width]


def _bits_numpy(keys: Any, *, shape: Shape, bit_width: int) -> Any:
    first, second = _hash_counters(keys, shape)
    if bit_width == 64:
        return (first.astype(np.uint64) << np.uint64(32)) | second
    return (first ^ second).astype(_BITS[bit_width], copy=False)


random_bits_p = _of_keys("random_bits", _bits_result, numpy=_bits_numpy,
                         xla=lambda keys, *, shape, bit_width: xla_kernels.bits(keys, shape, _BITS[bit_width]))
random_unwrap_p = _of_keys("random_unwrap", lambda: ((2,), np.dtype(np.uint32)), xla=xla_kernels.unwrap, flops=0,
                           numpy=lambda keys: np.array(np.asarray(keys)[WORDS]))
def equal_keys(x: Any, y: Any) -> Any:
    """Return whether two keys are equal, by their words: NumPy's ufuncs take no keys."""
    same = eq(*(bind(random_unwrap_p, keys)[0] for keys in (x, y)))
    return reduce_and(same, (aval_of(same).ndim - 1,))


random_clone_p = _of_keys("random_clone", lambda: ((), key_dtype), xla=xla_kernels.clone, flops=0,
                          numpy=lambda keys: np.array(keys)[()])
"""The same keys, which the check of reuse considers new."""


# --- keys from integers ---------------------------------------------------------------------------------------------


def _seed_abstract(seeds: Aval) -> list[Aval]:
    check_kind("random_seed", "integer", seeds)
    return [Aval(seeds.shape, key_dtype)]


def _seed_numpy(seeds: Any) -> Any:
    """Return the low word of each seed and, for 64-bit seeds, the high one."""
    seeds = np.asarray(seeds)
    words = np.zeros((*seeds.shape, 2), np.uint32)
    if seeds.dtype.itemsize == 8:
        words[..., 0] = seeds.astype(np.uint64) >> np.uint64(32)
    words[..., 1] = seeds.astype(np.uint32)
    return _as_keys(words)[()]


def _seed_xla(lax: Any, seeds: Any) -> list[Any]:
    low = lax.convert_element_type(seeds, np.uint32)
    high = lax.full_like(low, 0)
    if seeds.dtype.itemsize == 8:
        unsigned = lax.convert_element_type(seeds, np.uint64)
        high = lax.convert_element_type(lax.shift_right_logical(unsigned, lax.full_like(unsigned, 32)), np.uint32)
    axis = low.ndim
    words = [lax.expand_dims(word, (axis,)) for word in (high, low)]
    return [xla_kernels.wrap(lax.concatenate(words, axis))]


random_seed_p = register(Primitive(
    name="random_seed", abstract=_seed_abstract, numpy=ArrayKernel(_seed_numpy), xla=_seed_xla, jvp=NO_TANGENT,
    transpose=NOT_LINEAR, batch=lambda size, values, axes: (bind(random_seed_p, *values), axes),
    cost=lambda seeds: Cost(0, total_bytes([seeds], _seed_abstract(seeds)))))


def _wrap_abstract(data: Aval) -> list[Aval]:
    if data.dtype != np.uint32:
        raise DTypeError(f"wrap_key_data: words of {dtypes.shown_name(data.dtype)}, where uint32 is needed; convert "
                         "them with x.astype('uint32')")
    if not data.shape or data.shape[-1] != 2:
        raise ShapeError(f"wrap_key_data: words of shape {data.shape}; a key is two of them, so the last axis must be "
                         "of size 2")
    return [Aval(data.shape[:-1], key_dtype)]


def _wrap_batch(size: int, values: list[Any], axes: list[int]) -> tuple[list[Any], list[int]]:
    return bind(random_wrap_p, move_axis(values[0], axes[0], 0)), [0]


random_wrap_p = register(Primitive(
    name="random_wrap", abstract=_wrap_abstract, numpy=ArrayKernel(lambda data: _as_keys(np.array(data))[()]),
    xla=lambda lax, data: [xla_kernels.wrap(data)], jvp=NO_TANGENT, transpose=NOT_LINEAR, batch=_wrap_batch,
    cost=lambda data: Cost(0, 2 * data.nbytes)))


def _fold_abstract(keys: Aval, data: Aval) -> list[Aval]:
    check_keys("fold_in", keys)
    if data.dtype != np.uint32:
        raise DTypeError(f"fold_in: data of {dtypes.shown_name(data.dtype)}, where uint32 is needed; convert it with "
                         "x.astype('uint32')")
    return [Aval(broadcast_shapes("fold_in", keys.shape, data.shape), key_dtype)]


def _fold_numpy(keys: Any, data: Any) -> Any:
    return _as_keys(np.stack(_hash_numpy(*_key_words(keys), np.uint32(0), data), -1))[()]


def _fold_cost(keys: Aval, data: Aval) -> Cost:
    outputs = _fold_abstract(keys, data)
    return Cost(_HASH_FLOPS * outputs[0].size, total_bytes([keys, data], outputs))


random_fold_in_p = register(Primitive(
    name="random_fold_in", abstract=_fold_abstract, numpy=ArrayKernel(_fold_numpy),
    xla=lambda lax, keys, data: [xla_kernels.fold_in(*align(lax, keys, data))], jvp=NO_TANGENT, transpose=NOT_LINEAR,
    batch=lambda size, values, axes: (bind(random_fold_in_p, *align_batch(values, axes)), [0]),
    cost=_fold_cost))
