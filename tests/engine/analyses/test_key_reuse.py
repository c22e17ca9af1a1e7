"""The check of key reuse finds keys that are used twice, and leaves right programs alone."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
from fxgrad import errors, random
from fxgrad.debug import check_key_reuse


def twice(key: Any) -> Any:
    return random.normal(key) + random.uniform(key)


def split_and_drawn(key: Any) -> Any:
    return random.normal(random.split(key)[0]) + random.normal(key)


def one_of_two_twice(key: Any) -> Any:
    keys = random.split(key, 3)
    return random.normal(keys[1]) + random.normal(keys.reshape(3, 1)[1, 0])


def in_a_call(key: Any) -> Any:
    return fxgrad.jit(random.normal)(key) + random.normal(key)


def as_words(key: Any) -> Any:
    words = random.key_data(key)
    return random.normal(words) + random.normal(words)


def same_seed(key: Any) -> Any:
    return random.normal(random.key(7)) + random.normal(random.key(7))


def folded_twice(key: Any) -> Any:
    return random.normal(random.fold_in(key, 3)) + random.normal(random.fold_in(key, 3))


def folded_and_drawn(key: Any) -> Any:
    return random.normal(random.fold_in(key, 3)) + random.normal(key)


def repeated(key: Any) -> Any:
    return fxgrad.vmap(random.normal)(fxgrad.numpy.broadcast_to(key, (3,)))


KEPT = random.key(11)


def captured(key: Any) -> Any:
    return random.normal(KEPT) + random.normal(KEPT)


def differentiated(key: Any) -> Any:
    return fxgrad.grad(lambda x: random.normal(key, dtype="float64") * x + random.gamma(key, x, dtype="float64"))(1.0)


WRONG = [twice, split_and_drawn, one_of_two_twice, in_a_call, as_words, same_seed, folded_twice, folded_and_drawn,
         repeated, captured, differentiated]


@pytest.mark.parametrize("function", WRONG)
def test_reuse_is_found(function: Any) -> None:
    for key in (random.key(0), jax.random.key(0)):
        with pytest.raises(errors.KeyReuseError, match=r"^a random key is used twice: by "):
            check_key_reuse(function)(key)
    with pytest.raises(errors.KeyReuseError):
        check_key_reuse(fxgrad.make_program(function)(random.key(0)))(random.key(0))


def test_the_message_names_both_lines() -> None:
    first = twice.__code__.co_firstlineno + 1
    with pytest.raises(errors.KeyReuseError) as caught:
        check_key_reuse(twice)(random.key(0))
    place = f"test_key_reuse.py:{first} (in twice)"
    assert str(caught.value) == (
        f"a random key is used twice: by bits at {place}, and by bits at {place}. The numbers would not be "
        "independent. Make new keys with fxgrad.random.split(key), or mark the reuse as intended with "
        "fxgrad.random.clone(key)")


def test_lines_after_a_call_of_the_library() -> None:
    """A function of the library that was walked through is not where later keys are used."""
    def function(key: Any, other: Any) -> Any:
        early = random.normal(key)
        return early + random.bits(other).astype(float) + random.bits(other).astype(float)

    with pytest.raises(errors.KeyReuseError) as caught:
        check_key_reuse(function)(random.key(0), random.key(1))
    place = f"test_key_reuse.py:{function.__code__.co_firstlineno + 2} (in function)"
    assert f"by bits at {place}, and by bits at {place}" in str(caught.value)


def test_batches_of_keys_as_words() -> None:
    words = np.arange(6, dtype=np.uint32).reshape(3, 2)
    check_key_reuse(lambda words: random.bits(words[0]) + random.bits(words[1]))(words)
    with pytest.raises(errors.KeyReuseError):
        check_key_reuse(lambda words: random.bits(words[2]) + random.bits(words[2]))(words)


def test_no_keys_at_all() -> None:
    keys = random.split(random.key(0), 3)[:0]
    check_key_reuse(lambda keys: random.key_data(fxgrad.vmap(lambda key: random.fold_in(key, 1))(keys)))(keys)


def right(key: Any) -> Any:
    first, second, third, last = random.split(key, 4)
    a, b = random.split(second)
    folded = [random.fold_in(third, number) for number in range(3)]
    rows = fxgrad.vmap(random.normal)(random.split(last, 3))
    words = random.key_data(a)
    return (random.normal(first) + sum(random.normal(each) for each in folded) + random.uniform(words)
            + random.normal(random.clone(b)) + random.normal(b) + fxgrad.numpy.sum(rows))


def derivative(key: Any) -> Any:
    return fxgrad.grad(lambda x: fxgrad.checkpoint(lambda x: random.normal(key) * x * x)(x))(np.float32(1.0))


@pytest.mark.parametrize("function", [right, derivative])
def test_right_programs_pass(function: Any) -> None:
    np.testing.assert_array_equal(check_key_reuse(function)(random.key(0)), function(random.key(0)))


def test_one_of_two_branches_runs() -> None:
    lax = pytest.importorskip("fxgrad.lax")
    if not hasattr(lax, "cond"):
        pytest.skip("there is no cond")
    branches = (random.normal, random.uniform)
    check_key_reuse(lambda key: lax.cond(True, *branches, key))(random.key(0))
    with pytest.raises(errors.KeyReuseError):
        check_key_reuse(lambda key: lax.cond(True, *branches, key) + random.normal(key))(random.key(0))


def test_loops() -> None:
    lax = pytest.importorskip("fxgrad.lax")
    if not hasattr(lax, "scan"):
        pytest.skip("there is no scan")

    def good(key: Any) -> Any:
        def step(key: Any, _: Any) -> Any:
            key, subkey = random.split(key)
            return key, random.normal(subkey)
        return lax.scan(step, key, None, 4)[1]

    def bad(key: Any) -> Any:
        return lax.scan(lambda total, _: (total + random.normal(key), None), np.float32(0), None, 4)[0]

    def rows(key: Any) -> Any:
        return lax.scan(lambda total, key: (total + random.normal(key), None), np.float32(0), random.split(key, 4))[0]

    def rows_and_again(key: Any) -> Any:
        keys = random.split(key, 4)
        return lax.scan(lambda total, key: (total + random.normal(key), None), np.float32(0), keys)[0] + \
            random.normal(keys[1])

    for function in (good, rows):
        np.testing.assert_allclose(check_key_reuse(function)(random.key(0)), function(random.key(0)))
    for function in (bad, rows_and_again):
        with pytest.raises(errors.KeyReuseError):
            check_key_reuse(function)(random.key(0))


def test_lines_after_a_library_function_are_the_users() -> None:
    def twice(key, x):
        smooth = fxgrad.nn.softmax(x)
        noise = fxgrad.random.normal(key)
        return smooth * noise + fxgrad.random.uniform(key)

    first = twice.__code__.co_firstlineno
    with pytest.raises(errors.KeyReuseError) as caught:
        fxgrad.debug.check_key_reuse(twice)(fxgrad.random.key(0), np.ones(3))
    assert [int(line) for line in re.findall(r"\.py:(\d+)", str(caught.value))][:2] == [first + 2, first + 3]


def test_words_of_many_keys_as_an_argument() -> None:
    words = random.key_data(random.split(random.key(0), 3))
    check_key_reuse(lambda words: random.normal(words[0]) + random.normal(words[1]))(words)
    with pytest.raises(errors.KeyReuseError):
        check_key_reuse(lambda words: random.normal(words[1]) + random.normal(words[1]))(words)


def test_messages_name_keyword_arguments() -> None:
    with pytest.raises(errors.ArgumentError, match=r"^check_key_reuse: b is a str, where an array or a number is "):
        check_key_reuse(lambda x, *, b, a: x)(1.0, b="no", a=2.0)
