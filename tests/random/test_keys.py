"""Keys: the bits are jax's, and keys go wherever arrays go."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
from fxgrad import errors
from fxgrad.engine.ops import random as hashing
from fxgrad.text import equal, from_json, parse, program_text, to_json

SEEDS = [0, 42, -1, 2**31 - 1, np.uint32(2**32 - 1), np.int8(-3)]
WIDE_SEEDS = [np.int64(-1), np.int64(2**40 + 5), np.uint64(2**63 + 7), 2**40 + 5]
SHAPES: list[tuple[int, ...]] = [(), (0,), (3,), (3, 4)]


def same(ours: Any, theirs: Any) -> None:
    """Equal bits; keys of jax are compared by their words."""
    np.testing.assert_array_equal(*(np.asarray(fxgrad.random.key_data(keys)) for keys in (ours, theirs)))


@pytest.mark.parametrize("seed", SEEDS, ids=repr)
def test_keys_are_those_of_jax(seed: Any) -> None:
    same(fxgrad.random.key(seed), jax.random.key(seed))
    np.testing.assert_array_equal(fxgrad.random.PRNGKey(seed), jax.random.PRNGKey(seed))


@pytest.mark.parametrize("seed", WIDE_SEEDS, ids=repr)
def test_wide_seeds(seed: Any) -> None:
    with jax.enable_x64(True):
        same(fxgrad.random.key(seed), jax.random.key(seed))


def test_traced_seeds_are_those_of_numbers() -> None:
    """A Python integer that a function is called with gives the key that it gives un-jitted, one beyond 32 bits too."""
    for make in (fxgrad.jit, fxgrad.vmap):
        for seed in (0, 7, -1, -2**31, 2**31 - 1, 2**31, 2**40 + 3, -2**40):
            given = seed if make is fxgrad.jit else np.array([seed])
            found = make(lambda seed: fxgrad.random.key_data(fxgrad.random.key(seed)))(given)
            with jax.enable_x64(make is fxgrad.vmap):
                expected = fxgrad.random.key_data(fxgrad.random.key(seed if make is fxgrad.jit else given[0]))
            np.testing.assert_array_equal(np.asarray(found).reshape(2), expected, str((make, seed)))


@pytest.mark.parametrize("shape", SHAPES)
def test_split_fold_in_and_bits(shape: tuple[int, ...]) -> None:
    ours, theirs = fxgrad.random.key(7), jax.random.key(7)
    same(fxgrad.random.split(ours, shape), jax.random.split(theirs, shape))
    same(fxgrad.random.fold_in(ours, 2**31 + 5), jax.random.fold_in(theirs, 2**31 + 5))
    same(fxgrad.random.fold_in(ours, -3), jax.random.fold_in(theirs, np.uint32(2**32 - 3)))
    for width in (8, 16, 32, 64):
        with jax.enable_x64(True):
            expected = np.asarray(jax.random.bits(theirs, shape, f"uint{width}"))
        got = fxgrad.random.bits(ours, shape, f"uint{width}")
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


def test_many_bits() -> None:
    """More than the kernel hashes at once."""
    np.testing.assert_array_equal(fxgrad.random.bits(fxgrad.random.key(1), (40_001,)),
                                  jax.random.bits(jax.random.key(1), (40_001,)))


def test_words_of_keys_are_keys_too() -> None:
    ours, theirs = fxgrad.random.PRNGKey(3), jax.random.PRNGKey(3)
    np.testing.assert_array_equal(fxgrad.random.split(ours, 3), jax.random.split(theirs, 3))
    np.testing.assert_array_equal(fxgrad.random.fold_in(ours, 3), jax.random.fold_in(theirs, 3))
    np.testing.assert_array_equal(fxgrad.random.normal(ours, (3,)), fxgrad.random.normal(fxgrad.random.key(3), (3,)))
    keys = fxgrad.random.wrap_key_data(np.arange(6, dtype=np.uint32).reshape(3, 2))
    np.testing.assert_array_equal(fxgrad.random.key_data(keys), np.arange(6).reshape(3, 2))
    assert fxgrad.random.key_impl(ours) == jax.random.key_impl(theirs) == "threefry2x32"
    assert keys.dtype == fxgrad.random.key_dtype()
    same(fxgrad.random.clone(keys), keys)


def test_keys_of_jax_are_keys_here() -> None:
    key = jax.random.key(5)
    drawn = fxgrad.random.uniform(key, (3,))
    assert isinstance(drawn, jax.Array)
    np.testing.assert_array_equal(drawn, jax.random.uniform(key, (3,)))
    mixed = fxgrad.numpy.concatenate([fxgrad.random.split(fxgrad.random.key(5)), jax.random.split(key)])
    same(mixed, jax.numpy.concatenate([jax.random.split(key)] * 2))
    same(fxgrad.random.split(key, 4), jax.random.split(key, 4))


# --- transformations ----------------------------------------------------------------------------------------------


def draw(key: Any) -> Any:
    first, second = fxgrad.random.split(key)
    return fxgrad.random.uniform(first, (2,)) + fxgrad.random.uniform(second)


@pytest.mark.parametrize("make", [fxgrad.random.key, jax.random.key])
def test_jit(make: Any) -> None:
    key = make(1)
    compiled = fxgrad.jit(draw)
    for _ in range(3):
        got = compiled(key)
        assert isinstance(got, jax.Array)
        np.testing.assert_array_equal(got, draw(fxgrad.random.key(1)))
    assert "threefry" in compiled.lower(key).as_text()
    same(fxgrad.jit(lambda key: fxgrad.random.split(key, 3))(key), jax.random.split(jax.random.key(1), 3))


def test_jit_of_containers_and_of_captured_keys() -> None:
    keys = fxgrad.random.split(fxgrad.random.key(0), 3)
    compiled = fxgrad.jit(lambda state, x: {"key": state["keys"][1], "x": fxgrad.random.normal(keys[0]) + x})
    for _ in range(2):
        out = compiled({"keys": keys}, 1.0)
        same(out["key"], keys[1])
        np.testing.assert_allclose(out["x"], fxgrad.random.normal(keys[0]) + 1, rtol=1e-6)
    np.testing.assert_allclose(compiled({"keys": jax.random.split(jax.random.key(0), 3)}, 1.0)["x"], out["x"])


def test_vmap_is_a_loop() -> None:
    keys = fxgrad.random.split(fxgrad.random.key(0), 6).reshape(2, 3)
    got = fxgrad.vmap(fxgrad.vmap(draw), in_axes=1, out_axes=1)(keys)
    np.testing.assert_array_equal(got, [[draw(key) for key in row] for row in keys])
    np.testing.assert_array_equal(fxgrad.jit(fxgrad.vmap(fxgrad.vmap(draw)))(keys), got)
    folded = fxgrad.vmap(fxgrad.random.fold_in, in_axes=(None, 0))(keys[0, 0], np.arange(4))
    same(folded, np.stack([fxgrad.random.fold_in(keys[0, 0], number) for number in range(4)]))
    seeded = fxgrad.vmap(fxgrad.random.key)(np.arange(3))
    same(seeded, np.stack([fxgrad.random.key(number) for number in range(3)]))


def test_derivatives_pass_keys_by() -> None:
    key = fxgrad.random.key(0)

    def loss(x: Any, key: Any) -> Any:
        return fxgrad.numpy.sum(x * fxgrad.random.normal(key, (3,), "float64"))

    expected = fxgrad.random.normal(key, (3,), "float64")
    np.testing.assert_array_equal(fxgrad.grad(loss)(np.ones(3), key), expected)
    np.testing.assert_allclose(fxgrad.jit(fxgrad.grad(loss))(np.ones(3), key), expected, rtol=1e-14)
    np.testing.assert_array_equal(fxgrad.grad(fxgrad.jit(loss))(np.ones(3), jax.random.key(0)),
                                  fxgrad.jit(fxgrad.grad(loss))(np.ones(3), key))
    value, pull = fxgrad.vjp(loss, np.ones(3), key)
    np.testing.assert_array_equal(pull(np.ones_like(value))[0], expected)


def test_programs_with_keys_are_read_back() -> None:
    keys = fxgrad.random.split(fxgrad.random.key(0), 3)
    program = fxgrad.make_program(lambda key, x: (draw(key) + x, fxgrad.numpy.where(x > 0, key, keys[1]), keys))(
        keys[0], 1.0)
    assert "key: key<fry>[]" in program_text(program)
    assert equal(parse(program_text(program)), program)
    assert equal(from_json(to_json(program)), program)


# --- errors -------------------------------------------------------------------------------------------------------

MESSAGES: list[tuple[Any, type[Exception], str]] = [
    (lambda: fxgrad.random.normal(3), errors.ArgumentError,
     ("normal: the first argument is a random key, got int. Make one with fxgrad.random.key(0), and new ones from it "
      "with fxgrad.random.split(key)")),
    (lambda: fxgrad.random.uniform(np.ones(3)), errors.ArgumentError,
     ("uniform: the first argument is a random key, got f64[3]. Make one with fxgrad.random.key(0), and new ones from "
      "it with fxgrad.random.split(key)")),
    (lambda: fxgrad.random.normal((3,)), errors.ArgumentError,
     ("normal: the first argument is a random key, got a tuple. Make one with fxgrad.random.key(0), and new ones from "
      "it with fxgrad.random.split(key)")),
    *((lambda draw=draw: draw(fxgrad.random.key(0), 2, 3), errors.DTypeError,
       (f"{draw.__name__}: dtype is 3, which is no dtype. Give a shape as one tuple, such as (2, 3), and what follows "
        "it by name")) for draw in (fxgrad.random.normal, fxgrad.random.uniform, fxgrad.random.bits,
                               fxgrad.random.rademacher)),
    (lambda: fxgrad.random.split("no"), errors.ArgumentError,
     ("split: the first argument is a random key, got a str. Make one with fxgrad.random.key(0), and new ones from it "
      "with fxgrad.random.split(key)")),
    (lambda: fxgrad.random.normal(fxgrad.random.split(fxgrad.random.key(0))), errors.ShapeError,
     ("normal: one key is needed, got an array of keys of shape (2,). Map over them: "
      "fxgrad.vmap(lambda key: fxgrad.random.normal(key, ...))(keys)")),
    (lambda: fxgrad.random.key(1.5), errors.ArgumentError, "key: the seed is f64*[], where an integer is needed"),
    (lambda: fxgrad.random.key(np.arange(3)), errors.ShapeError,
     "key: one seed is needed, got an array of shape (3,). Map over it: fxgrad.vmap(fxgrad.random.key)(seeds)"),
    (lambda: fxgrad.random.key(0, impl="rbg"), errors.UnsupportedError,
     "key: there is no generator 'rbg' here; there is 'threefry2x32', which is the default"),
    (lambda: fxgrad.random.normal(jax.random.key(0, impl="rbg")), errors.DTypeError,
     ("an operand is an array of dtype key<rbg>, keys of a generator which fxgrad does not have; it has threefry2x32: "
      "jax.random.key(seed, impl='threefry2x32'), or fxgrad.random.key(seed)")),
    (lambda: fxgrad.jit(lambda key: key)(jax.random.key(0, impl="rbg")), errors.DTypeError,
     ("jit: key of function is an array of dtype key<rbg>, keys of a generator which fxgrad does not have; it has "
      "threefry2x32: jax.random.key(seed, impl='threefry2x32'), or fxgrad.random.key(seed)")),
    (lambda: fxgrad.random.fold_in(fxgrad.random.key(0), 1.5), errors.ArgumentError,
     "fold_in: data is f64*[], where an integer is needed"),
    (lambda: fxgrad.random.fold_in(fxgrad.random.key(0), np.arange(3)), errors.ShapeError,
     ("fold_in: one integer is needed, got an array of shape (3,). Map over it: fxgrad.vmap(fxgrad.random.fold_in, "
      "in_axes=(None, 0))(key, data)")),
    (lambda: fxgrad.random.normal(fxgrad.random.key(0), (2, -1)), errors.ShapeError,
     "normal: the shape (2, -1) has a negative size"),
    (lambda: fxgrad.random.uniform(fxgrad.random.key(0), dtype=int), errors.DTypeError,
     "uniform: dtype=int64, where a floating dtype is needed, such as 'float32'"),
    (lambda: fxgrad.random.randint(fxgrad.random.key(0), (), 0, 3, dtype=float), errors.DTypeError,
     "randint: dtype=float64, where an integer dtype is needed, such as 'int32'"),
    (lambda: fxgrad.random.bits(fxgrad.random.key(0), dtype="int32"), errors.DTypeError,
     "bits: dtype=int32, where an unsigned dtype is needed, such as 'uint32'"),
    (lambda: fxgrad.random.gamma(fxgrad.random.key(0), np.ones(3), (2,)), errors.ShapeError,
     ("gamma: shapes (2,) and (3,) do not broadcast; counted from the last, sizes must be equal or 1. Insert an axis "
      "with x[:, None] or x.reshape(...), or transpose one of them")),
    (lambda: fxgrad.random.gamma(fxgrad.random.key(0), np.ones((2, 1)), (3,)), errors.ShapeError,
     ("gamma: shape=(3,) cannot hold draws for parameters of shape (2, 1); give a shape that ends in theirs, or leave "
      "it out")),
    (lambda: fxgrad.random.wrap_key_data(np.zeros(3, np.uint32)), errors.ShapeError,
     "wrap_key_data: words of shape (3,); a key is two of them, so the last axis must be of size 2"),
    (lambda: fxgrad.random.wrap_key_data(np.zeros(2)), errors.DTypeError,
     "wrap_key_data: words of float64, where uint32 is needed; convert them with x.astype('uint32')"),
    (lambda: fxgrad.grad(lambda x, key: x * x, argnums=1)(1.0, fxgrad.random.key(0)), errors.DTypeError,
     ("grad needs floating-point arguments, and key is key<fry>[]: random keys have no derivatives. Leave it out of "
      "argnums")),
    (lambda: fxgrad.make_program(lambda key: key + key)(fxgrad.random.key(0)), errors.DTypeError,
     ("add: not defined for random keys (key<fry>); draw numbers with them, for example fxgrad.random.normal(key), or "
      "take their bits with fxgrad.random.key_data(key)")),
    (lambda: fxgrad.numpy.astype(fxgrad.random.key(0), float), errors.DTypeError,
     "astype: random keys (key<fry>) are not converted; take their bits with fxgrad.random.key_data(key)"),
    (lambda: fxgrad.numpy.exp(fxgrad.random.key(0)), errors.DTypeError,
     ("random keys (key<fry>) are no numbers; draw numbers with them, for example fxgrad.random.normal(key), or "
      "take their bits with fxgrad.random.key_data(key)")),
]


@pytest.mark.parametrize(("call", "error", "message"), MESSAGES, ids=[message[:30] for _, _, message in MESSAGES])
def test_messages(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match="^" + re.escape(message)):
        call()


# --- loops --------------------------------------------------------------------------------------------------------


def walked(key: Any, x: Any) -> Any:
    """A random walk with its key as a carry."""
    def step(carry: Any, scale: Any) -> Any:
        key, x = carry
        key, subkey = fxgrad.random.split(key)
        x = x + scale * fxgrad.random.normal(subkey, dtype="float64")
        return (key, x), x

    return fxgrad.lax.scan(step, (key, x), np.arange(1.0, 4.0))


def test_keys_are_carried_in_loops() -> None:
    key, x = fxgrad.random.key(3), 0.5
    expected, carried = [], key
    for scale in (1.0, 2.0, 3.0):
        carried, subkey = fxgrad.random.split(carried)
        x = x + scale * fxgrad.random.normal(subkey, dtype="float64")
        expected.append(x)
    (last, _), path = walked(key, np.float64(0.5))
    same(last, carried)
    np.testing.assert_allclose(path, expected, rtol=1e-14)
    (last, _), path = fxgrad.jit(walked)(key, np.array(0.5))
    same(last, carried)
    np.testing.assert_allclose(path, expected, rtol=1e-13)
    keys = fxgrad.random.split(key, 2)
    batched = fxgrad.vmap(walked, in_axes=(0, None))(keys, np.array(0.5))[1]
    np.testing.assert_allclose(batched, [walked(each, np.array(0.5))[1] for each in keys], rtol=1e-13)
    slope = fxgrad.grad(lambda x: fxgrad.numpy.sum(walked(key, x)[1] ** 2))(np.array(0.5))
    np.testing.assert_allclose(slope, 2 * np.sum(expected), rtol=1e-13)
    slope = fxgrad.grad(lambda key, x: fxgrad.numpy.sum(walked(key, x)[1] ** 2), argnums=1)(key, np.array(0.5))
    np.testing.assert_allclose(slope, 2 * np.sum(expected), rtol=1e-13)


def test_keys_in_loops_of_unknown_length() -> None:
    key = fxgrad.random.key(3)

    def until_large(key: Any) -> Any:
        def body(carry: Any) -> Any:
            key, count, _ = carry
            key, subkey = fxgrad.random.split(key)
            return key, count + 1, fxgrad.random.uniform(subkey)
        return fxgrad.lax.while_loop(lambda carry: carry[2] < 0.9, body, (key, 0, np.float32(0)))

    last, count, drawn = until_large(key)
    carried, steps, value = key, 0, 0.0
    while value < 0.9:
        carried, subkey = fxgrad.random.split(carried)
        value, steps = float(fxgrad.random.uniform(subkey)), steps + 1
    same(last, carried)
    assert (int(count), float(drawn)) == (steps, value)
    same(fxgrad.jit(until_large)(key)[0], carried)
    keys = fxgrad.random.split(key, 3)
    same(fxgrad.vmap(until_large)(keys)[0], np.stack([until_large(each)[0] for each in keys]))


def test_few_and_many_words_are_hashed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 128 elements Python's integers hash, beyond that NumPy does, in blocks."""
    draws = np.random.default_rng(0)
    for shapes in (((), (), (5,), (5,)), ((3, 1), (3, 1), (1, 4), (1, 4)), ((), (), (), ()), ((1,), (1,), (0,), (0,)),
                   ((7, 1), (1, 1), (7, 3), (1, 3))):
        for words in ([draws.integers(0, 2**32, shape, np.uint32) for shape in shapes],
                      [np.full(shape, 2**32 - 1, np.uint32) for shape in shapes],
                      [np.zeros(shape, np.uint32) for shape in shapes]):
            found = []
            for few in (128, -1):
                monkeypatch.setattr(hashing, "_FEW", few)
                found.append(hashing.threefry2x32_p.numpy(*map(np.asarray, words)))
            for one, other in zip(*found, strict=True):
                assert (one.dtype, one.shape) == (other.dtype, other.shape) == (np.uint32, np.broadcast_shapes(*shapes))
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("count", [0, 1, 2, 127, 128, 129, 20_000])
def test_bits_of_all_sizes_are_those_of_jax(count: int) -> None:
    for width in (8, 16, 32):
        expected = jax.random.bits(jax.random.key(7), (count,), f"uint{width}")
        np.testing.assert_array_equal(fxgrad.random.bits(fxgrad.random.key(7), (count,), f"uint{width}"), expected)
