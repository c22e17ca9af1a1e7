"""Short branches on scalars: compiled as a choice between values that are all computed, with the same results."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax


def text_of(function, *args):
    return fxgrad.jit(function).lower(*args).as_text()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "complex64", "bool", "int8", "uint32"])
def test_either_value_is_chosen(dtype):
    one, other = (fnp.asarray(value).astype(dtype) for value in (1, 0))
    choose = fxgrad.jit(lambda condition, a, b: lax.cond(condition, lambda a, b: a, lambda a, b: b, a, b))
    for condition, expected in ((True, one), (False, other)):
        found = choose(condition, one, other)
        assert found.dtype == expected.dtype
        assert found == expected


def test_keys_are_chosen():
    keys = fxgrad.random.key(0), fxgrad.random.key(1)
    choose = fxgrad.jit(lambda condition, *keys: lax.cond(condition, lambda a, b: a, lambda a, b: b, *keys))
    for condition, expected in zip((True, False), keys, strict=True):
        assert fxgrad.random.bits(choose(condition, *keys)) == fxgrad.random.bits(expected)


@pytest.mark.parametrize("index", [-7, -1, 0, 1, 2, 3, 99])
def test_an_index_out_of_range_takes_the_nearest_branch(index):
    branches = [fnp.sin, fnp.cos, lambda x: x]
    found = fxgrad.jit(lambda index, x: lax.switch(index, branches, x))(np.int32(index), 0.3)
    np.testing.assert_allclose(found, branches[min(max(index, 0), 2)](0.3), rtol=1e-15)


@pytest.mark.parametrize("transformed", [fxgrad.grad, lambda f: fxgrad.grad(fxgrad.grad(f)), fxgrad.value_and_grad])
def test_derivatives_of_the_branch_not_taken_do_not_matter(transformed):
    """Its value and derivatives may be infinite or NaN."""
    def function(x):
        return lax.cond(x > 0, lambda x: fnp.log(x) * fnp.sqrt(x), lambda x: x ** 2, x)
    for x in (-1.5, 0.0, 2.0):
        expected = transformed(function)(x)
        np.testing.assert_allclose(fxgrad.jit(transformed(function))(x), expected, rtol=1e-14)
        assert np.isfinite(np.asarray(expected)).all()


def test_the_conditional_is_gone_where_branches_are_short_and_stays_where_they_are_not():
    short = text_of(lambda x: lax.cond(x > 0, fnp.tanh, lambda x: 2 * x, x), 1.0)
    long = text_of(lambda x: lax.cond(x > 0, lambda x: fxgrad.scipy.special.gammainc(x, 2 * x), lambda x: x, x), 1.0)
    arrays = text_of(lambda x: lax.cond(x[0] > 0, fnp.tanh, lambda x: 2 * x, x), np.ones(3))
    loops = text_of(lambda x: lax.cond(x > 0, lambda x: lax.fori_loop(0, 3, lambda _, y: y * x, x), fnp.sin, x), 1.0)
    printed = text_of(lambda x: lax.cond(x > 0, lambda x: fxgrad.debug.print("{}", x), lambda x: None, x), 1.0)
    assert ["stablehlo.case" in text for text in (short, long, arrays, loops, printed)] == [False] + 4 * [True]


def test_jax_agrees_about_a_loop_of_branches():
    def ours(x):
        return lax.fori_loop(0, 50, lambda n, x: lax.cond(x > 1, lambda x: x / 2, lambda x: 3 * x + 0.1, x), x)

    def theirs(x):
        return jax.lax.fori_loop(0, 50, lambda n, x: jax.lax.cond(x > 1, lambda x: x / 2, lambda x: 3 * x + 0.1, x), x)
    with jax.enable_x64(True):
        np.testing.assert_allclose(fxgrad.jit(ours)(0.7), jax.jit(theirs)(0.7), rtol=1e-13)
        np.testing.assert_allclose(fxgrad.jit(fxgrad.grad(ours))(0.7), jax.jit(jax.grad(theirs))(0.7), rtol=1e-12)


def test_a_bool_chooses_without_an_index_that_is_compared():
    """Wherever the branches stand; an index that something else reads is kept."""
    def short(x):
        return lax.cond(x > 0, fnp.tanh, lambda x: 2 * x, x)

    def steps(x):
        return lax.fori_loop(0, 5, lambda _, x: lax.cond(x > 0, fnp.tanh, lambda x: 2 * x, x), x)

    def arrays(x):
        return lax.cond(x[0] > 0, fnp.tanh, lambda x: 2 * x, x)

    def counted(x):
        index = fnp.asarray(x > 0).astype("int32")
        return lax.switch(index, [fnp.tanh, lambda x: 2 * x], x), index

    for function in (short, steps, fxgrad.grad(short), fxgrad.grad(fxgrad.grad(steps))):
        assert "i32>" not in text_of(function, 0.3)
        for x in (0.3, -0.3):
            np.testing.assert_allclose(fxgrad.jit(function)(x), function(x), rtol=1e-14)
    for sign in (1.0, -1.0):
        for function, x in ((arrays, 0.3 * np.ones(3)), (counted, 0.3)):
            for found, expected in zip(jax.tree.leaves(fxgrad.jit(function)(sign * x)),
                                       jax.tree.leaves(function(sign * x)), strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-15)
