"""Methods of elementwise functions: `reduce`, `accumulate`, `reduceat` and `at`, beside NumPy's and jax's."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import ArgumentError, ConcretizationError, IndexingError, MutationError, ShapeError, UnsupportedError
from fxgrad.testing import check_grads

X = np.array([[3.0, 1.5, 2.0, 2.5, 0.5], [1.0, 2.0, 0.25, 3.0, 0.75]])
WHOLE = np.array([[12, 18, 6, 30, 24], [7, 9, 5, 3, 15]])
OF_FLOATS = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "fmax", "fmin", "hypot", "logaddexp",
             "logaddexp2", "logical_and", "logical_or", "logical_xor", "copysign", "fmod")
OF_INTEGERS = ("add", "subtract", "multiply", "maximum", "floor_divide", "bitwise_and", "bitwise_or", "bitwise_xor",
               "gcd", "lcm", "divide", "remainder")
CASES = [(name, X) for name in OF_FLOATS] + [(name, WHOLE) for name in OF_INTEGERS]
SMOOTH = ("subtract", "divide", "hypot", "logaddexp", "logaddexp2", "fmax", "maximum")


def methods(name: str) -> dict[str, Callable[[Any, Any], Any]]:
    """The methods, as functions of a library and an array."""
    return {
        "reduce": lambda of, x: getattr(of, name).reduce(x),
        "reduce axis": lambda of, x: getattr(of, name).reduce(x, axis=-1, keepdims=True),
        "reduce initial": lambda of, x: getattr(of, name).reduce(x, axis=1, initial=x.dtype.type(2)),
        "accumulate": lambda of, x: getattr(of, name).accumulate(x),
        "accumulate axis": lambda of, x: getattr(of, name).accumulate(x, axis=1),
        "reduceat": lambda of, x: getattr(of, name).reduceat(x, [0, 3, 1, 1, 4], axis=1),
        "reduceat rows": lambda of, x: getattr(of, name).reduceat(x, [1, 0]),
    }


@pytest.mark.slow
@pytest.mark.parametrize(("name", "x"), CASES)
def test_methods_are_those_of_numpy(name: str, x: Any) -> None:
    for method, call in methods(name).items():
        expected = call(np, x)
        for result in (fxgrad.jit(lambda x, call=call: call(np, x))(x), call(fnp, x),
                       fxgrad.vmap(lambda x, call=call: call(np, x), in_axes=2, out_axes=-1)(x[..., None])[..., 0]):
            assert np.shape(result) == expected.shape, method
            assert np.asarray(result).dtype.kind == expected.dtype.kind, method
            np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-13, err_msg=method)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_of_methods(name: str) -> None:
    for call in methods(name).values():
        check_grads(lambda x, call=call: call(np, x), (X,), order=2)


def test_several_axes_and_order() -> None:
    cube = np.arange(1.0, 25.0).reshape(2, 3, 4)
    for axis in (None, (0, 2), (2, 1), 1):
        np.testing.assert_allclose(fxgrad.jit(lambda x, axis=axis: np.logaddexp.reduce(x, axis=axis))(cube),
                                   np.logaddexp.reduce(cube, axis=axis), rtol=1e-14)
    with pytest.raises(ArgumentError, match=r"subtract\.reduce: axis=None; the result of subtract depends on the order "
                       r"of the elements, so one axis is needed"):
        fnp.subtract.reduce(cube, axis=None)


def test_sums_of_narrow_integers_are_as_wide_as_the_library_makes_them() -> None:
    x = np.full((1, 4), 2**30, np.int32)
    for method in ("reduce", "accumulate"):
        expected = getattr(np.add, method)(x, axis=1)
        np.testing.assert_array_equal(fxgrad.vmap(getattr(np.add, method))(x), expected)
        assert getattr(fnp.add, method)(x, axis=1).dtype == np.int32
    np.testing.assert_array_equal(fxgrad.jit(lambda x: np.add.reduceat(x, [0, 2], axis=1))(x),
                                  np.add.reduceat(x, [0, 2], axis=1))
    narrow = x.astype(np.int8)
    assert fnp.add.reduceat(narrow, [0, 2], axis=1).dtype == np.int32


def test_folds_are_from_left_to_right_where_those_of_numpy_are_wrong() -> None:
    """NumPy 2.4 reduces by `power` and `arctan2` to the combination of the first and the last element."""
    x = X[0]
    for name, function in (("power", math.pow), ("arctan2", math.atan2)):
        np.testing.assert_allclose(getattr(fnp, name).reduce(x), functools.reduce(function, x), rtol=1e-14)
        check_grads(getattr(fnp, name).reduce, (x,), order=2)


def test_nothing_and_one_element() -> None:
    assert fnp.maximum.accumulate(np.zeros((0, 3))).shape == (0, 3)
    assert fnp.hypot.reduce(np.zeros((3, 0))).shape == (0,)
    assert float(fnp.hypot.reduce(np.array([2.0]))) == 2.0
    assert float(fnp.hypot.reduce(np.zeros(0), initial=3.0)) == 3.0
    assert fnp.maximum.reduceat(np.ones(3), np.zeros(0, int)).shape == (0,)
    with pytest.raises(ShapeError, match=r"copysign\.reduce: an array of shape \(0,\) has no elements along axis 0, "
                       r"and there is no copysign of none; give initial="):
        fnp.copysign.reduce(np.zeros(0))


@pytest.mark.parametrize(("name", "dtype"), [
    ("hypot", "f4"), ("logaddexp", "f8"), ("logaddexp2", "f8"), ("logical_xor", "f8"), ("logical_and", "f8"),
    ("bitwise_and", "u1"), ("bitwise_and", "i4"), ("bitwise_or", "i8"), ("bitwise_xor", "i8"), ("bitwise_and", "?")])
def test_nothing_is_combined_to_the_identity_in_the_type_of_results(name: str, dtype: str) -> None:
    x = np.zeros((0, 3), dtype)
    for function in (lambda of, x: getattr(of, name).reduce(x), lambda of, x: getattr(of, name).accumulate(x),
                     lambda of, x: getattr(of, name).reduce(x, keepdims=True)):
        expected = function(np, x)
        for way in (functools.partial(function, fnp), fxgrad.jit(functools.partial(function, fnp))):
            found = way(x)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


def test_options_of_reductions_that_have_a_function_of_their_own() -> None:
    functions: list[Any] = [
        lambda of, x: of.maximum.reduce(x, dtype=np.float32), lambda of, x: of.minimum.reduce(x, axis=1, dtype="f4"),
        lambda of, x: of.logical_and.reduce(x, axis=1, initial=False),
        lambda of, x: of.logical_and.reduce(x > 1, axis=0, initial=True, where=x > 0.25, keepdims=True),
        lambda of, x: of.logical_or.reduce(x > 9, axis=0, initial=2.0),
        lambda of, x: of.logical_or.reduce(x, dtype=bool)]
    for function in functions:
        expected = function(np, X)
        for way in (functools.partial(function, fnp), fxgrad.jit(functools.partial(function, np))):
            found = way(X)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
    with pytest.raises(ArgumentError, match=r"^logical_and\.reduce: dtype is float32; results are bools"):
        fnp.logical_and.reduce(X, dtype=np.float32)


def test_updates_at_indices_are_those_of_jax() -> None:
    x, at = np.array([3.0, 1.0, 2.0, 5.0], np.float32), np.array([0, 2, 0])
    for name in ("add", "subtract", "multiply", "maximum", "minimum"):
        expected = getattr(jnp, name).at(x, at, 4.0, inplace=False)
        for run in (lambda f: f, fxgrad.jit):
            found = run(lambda x, name=name: getattr(fnp, name).at(x, at, 4.0, inplace=False))(x)
            np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(fnp.negative.at(x, at, inplace=False), jnp.negative.at(x, at, inplace=False))
    np.testing.assert_array_equal(fnp.power.at(x, at, 2.0, inplace=False), [81.0, 1.0, 4.0, 5.0])
    np.testing.assert_array_equal(fxgrad.grad(lambda x: np.sum(fnp.divide.at(x, at, 4.0, inplace=False)))(x),
                                  np.float32([1 / 16, 1, 1 / 4, 1]))


def test_messages() -> None:
    x = np.ones(4)
    cases: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: fnp.exp.reduce(x), ArgumentError,
         "exp.reduce: the function takes 1 operand, where one of two operands is needed"),
        (lambda: fnp.hypot.reduce(x, where=x > 0), UnsupportedError,
         ("hypot.reduce: where= is not supported. Replace the other elements by ones that change nothing: "
          "np.where(condition, x, ...)")),
        (lambda: fnp.add.reduceat(x, [0, 4]), IndexingError,
         "add.reduceat: indices [0, 4] for an axis of size 4; they lie from 0 to 3"),
        (lambda: fnp.add.reduceat(x, 0.5), IndexingError,
         "add.reduceat: indices of type f64[]; a vector of integers is needed"),
        (lambda: fnp.add.at(x, [0], 1.0), MutationError,
         ("add.at would change its argument in place, which cannot be recorded. Write x = fnp.add.at(x, ..., "
          "inplace=False)")),
        (lambda: fnp.hypot.at(x, [0], 1.0, inplace=False), UnsupportedError,
         ("hypot.at is not supported; add, subtract, multiply, divide, power, maximum, minimum and functions of one "
          "operand have it")),
        (lambda: fnp.add.at(x, [0], inplace=False), ArgumentError,
         "add.at: the function takes 2 operands, and 1 came")]
    for call, kind, text in cases:
        with pytest.raises(kind) as error:
            call()
        assert str(error.value).split("\n")[0] == text
    with pytest.raises(ConcretizationError, match=r"np\.add\.reduceat, whose indices choose how many elements"):
        fxgrad.jit(lambda x, at: np.add.reduceat(x, at))(x, np.array([0, 2]))


def test_options_of_reduce_by_position() -> None:
    a = np.arange(6.0).reshape(3, 2)
    for name, initial in (("add", 5.0), ("maximum", 3.0), ("fmax", 3.0)):
        ours, theirs = getattr(fnp, name), getattr(np, name)
        np.testing.assert_array_equal(ours.reduce(a, 0, None, None, True, initial),
                                      theirs.reduce(a, 0, None, None, True, initial))
    mask = np.array([[True], [False], [True]])
    np.testing.assert_array_equal(fnp.add.reduce(a, 0, None, None, False, 5.0, mask),
                                  np.add.reduce(a, 0, None, None, False, 5.0, mask))


def test_no_indices_in_a_list() -> None:
    assert fnp.add.reduceat(np.ones((3, 2)), [], axis=0).shape == (0, 2)
