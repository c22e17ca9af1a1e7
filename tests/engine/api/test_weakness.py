"""A number that gives way to the dtype of arrays does so beyond every border, as a weakly typed one of jax's does."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import jit
from fxgrad.engine.core.arrays import Integer, WeakArray

OURS = SimpleNamespace(np=fnp, lax=fxgrad.lax, jit=fxgrad.jit, vmap=fxgrad.vmap, checkpoint=fxgrad.checkpoint,
                       jvp=fxgrad.jvp, grad=fxgrad.grad)
THEIRS = SimpleNamespace(np=jnp, lax=jax.lax, jit=jax.jit, vmap=jax.vmap, checkpoint=jax.checkpoint, jvp=jax.jvp,
                         grad=jax.grad)

BORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "jit": lambda of, n: of.jit(lambda n: n + 1)(n),
    "jit twice": lambda of, n: of.jit(of.jit(lambda n: n * n))(n),
    "jit of a container": lambda of, n: of.jit(lambda p: {"n": p["n"] + 1})({"n": n})["n"],
    "jit by keyword": lambda of, n: of.jit(lambda n: n + 1)(n=n),
    "jit of an identity": lambda of, n: of.jit(lambda n: n)(n),
    "vmap, not mapped": lambda of, n: of.vmap(lambda x, n: n + 1, in_axes=(0, None))(np.ones(2, np.float32), n),
    "vmap, twice": lambda of, n: of.vmap(lambda n: n * n)(
        of.vmap(lambda x, n: n + 1, in_axes=(0, None))(np.ones(2, np.float32), n)),
    "vmap, no new axis": lambda of, n: of.vmap(lambda x, n: n + 1, in_axes=(0, None), out_axes=None)(
        np.ones(2, np.float32), n),
    "the carry of a scan": lambda of, n: of.lax.scan(lambda c, _: (c + 1, None), n, None, length=2)[0],
    "what a scan stacks": lambda of, n: of.lax.scan(lambda c, _: (c + 1, c), n, None, length=2)[1],
    "fori_loop": lambda of, n: of.lax.fori_loop(0, 2, lambda i, c: c + 1, n),
    "a counter": lambda of, n: of.lax.fori_loop(0, 2, lambda i, c: c + i, n),
    "while_loop": lambda of, n: of.lax.while_loop(lambda c: c[1] < 3, lambda c: (c[0] + 1, c[1] + 1), (n, 0))[0],
    "cond": lambda of, n: of.lax.cond(True, lambda n: n + 1, lambda n: n, n),
    "checkpoint": lambda of, n: of.checkpoint(lambda n: n + 1)(n),
    "where": lambda of, n: of.np.where(np.array([True, False]), n, 1),
    "two wheres": lambda of, n: of.np.where(np.array([True, False]), of.np.where(np.array([False, True]), n, 2), 3),
    "bools": lambda of, n: of.np.asarray([True, False]) * of.np.add(n, 1),
    "broadcast": lambda of, n: of.np.broadcast_to(n, (2,)),
    "an element": lambda of, n: of.np.where(np.array([True, False]), n, 1)[0],
    "a reshaped array": lambda of, n: of.np.where(np.array([True, False]), n, 1).reshape(2, 1)[:, 0],
    "minus": lambda of, n: -of.np.where(np.array([True, False]), n, 1),
    "array on the left": lambda of, n: of.np.where(np.array([True, False]), n, 1) + of.np.add(n, 1),
}
NUMBERS = {"int": 2, "float": 0.1, "complex": 1j}
DTYPES = ("bfloat16", "float32", "complex64")


def products_of_jax(function: Callable[[Any], Any], number: Any) -> dict[str, Any]:
    """The dtypes of products of arrays with what a function of jax's makes of a number; nothing is compiled."""
    types = jax.eval_shape(lambda: [jnp.multiply(jnp.ones(2, dtype), function(number)) for dtype in DTYPES])
    return {dtype: each.dtype for dtype, each in zip(DTYPES, types, strict=True)}


@pytest.mark.parametrize("jitted", [False, True], ids=["un-jitted", "jitted"])
@pytest.mark.parametrize("border", BORDERS)
def test_a_number_gives_way_as_in_jax(border: str, jitted: bool) -> None:
    function, wrong = BORDERS[border], []
    for kind, number in NUMBERS.items():
        if kind == "complex" and border in ("while_loop", "a counter"):
            continue
        ours, theirs = (lambda n, of=of: function(of, n) for of in (OURS, THEIRS))
        result = jit(ours)(number) if jitted else ours(number)
        for dtype, expected in products_of_jax(jax.jit(theirs) if jitted else theirs, number).items():
            array = fnp.ones(2, dtype)
            met, by_operator = fnp.multiply(array, result).dtype, {(array * result).dtype, (result * array).dtype}
            if {met, *by_operator} != {expected}:
                wrong.append((kind, dtype, str(met), by_operator, str(expected)))
    assert not wrong, wrong


@pytest.mark.parametrize("number", [np.float64(0.5), np.complex128(0.5j), Integer(3)], ids=repr)
def test_scalars_mean_one_thing_on_every_path(number: Any) -> None:
    """Those of NumPy's that are Python's numbers too: as operands, arguments, in containers and in loops."""
    x, plain = np.ones(2, np.float32), number.item()
    wanted = fnp.multiply(x, plain)
    function = jit(lambda p: p["x"] * p["s"])
    many = jit(lambda *values: values[0] * values[-1])
    results = [
        fnp.multiply(x, number), np.asarray(x).view(fxgrad.Array) * number,
        fxgrad.vmap(lambda a, s: a * s, in_axes=(0, None))(x, number), jit(lambda a, s: a * s)(x, number),
        jit(lambda a: a * number)(x), jit(lambda a, s: a * s)(x, s=number),
        *([function({"x": x, "s": s}) for s in (np.float32(0.5), number, np.float32(0.5), number)][1::2]),
        [many(*[x] * 15, s) for s in (np.float32(1.0), number)][1], jit(jit(lambda a, s: a * s))(x, number),
        fxgrad.lax.scan(lambda c, _: (c * number, None), x.astype(wanted.dtype), None, length=1)[0],
        fxgrad.jvp(lambda a, s: a * s, (x, number), (x, number * 0))[0] if not isinstance(number, int) else wanted,
        jit(lambda a, s: a * s).lower(x, number).compile()(x, number),
        fxgrad.make_program(lambda a, s: a * s)(x, number)(x, number)]
    for place, result in enumerate(results):
        assert result.dtype == wanted.dtype, place
        np.testing.assert_array_equal(result, wanted)


def test_a_number_in_a_call_of_another_form_changes_earlier_plans() -> None:
    x, number = np.ones(2, np.float32), np.float64(0.5)
    function = jit(lambda p, other=None: p["x"] * p["s"])
    assert function({"x": x, "s": np.float32(0.5)}).dtype == np.float32
    assert function({"x": x, "s": number}, {"a": x}).dtype == np.float32
    assert function({"x": x, "s": number}).dtype == np.float32


def test_arrays_of_shape_without_axes_stay_strong_where_numbers_do_not() -> None:
    """One executable of jax's serves neither for both: whether a call looks at its arguments is found out."""
    x = np.ones(2, np.float32)
    for first, second in ((np.asarray(0.5), np.float64(0.5)), (np.float64(0.5), np.asarray(0.5))):
        function = jit(lambda p: p["x"] * p["s"])
        for _ in range(2):
            for scalar in (first, second, np.float32(0.5)):
                expected = np.float64 if type(scalar) is np.ndarray else np.float32
                assert function({"x": x, "s": scalar}).dtype == expected


def test_numbers_keep_their_digits_where_they_meet_none() -> None:
    count, third = jit(lambda n, x: (n + 1, x / 3))(2**53, 1.0)
    assert (count, third) == (2**53 + 1, 1 / 3)
    assert type(count) is Integer
    states = fxgrad.lax.scan(lambda c, _: (c / 3, c), 1.0, None, length=3)[1]
    np.testing.assert_array_equal(states, [1.0, 1 / 3, 1 / 3 / 3])
    assert (type(states), states.dtype) == (WeakArray, np.float64)


def test_weak_arrays_are_copied_kept_and_changed_as_arrays_are() -> None:
    weak = fnp.where(np.array([True, False]), 0.1, 1.0)
    for same in (pickle.loads(pickle.dumps(weak)), weak.copy(), weak[:], weak.T, weak.ravel()):
        assert type(same) is WeakArray
        np.testing.assert_array_equal(same, [0.1, 1.0])
    assert type(np.sin(weak)) is fxgrad.Array
    assert type(np.array(weak)) is np.ndarray
    x = fnp.ones(2, "float32")
    x += weak
    assert x.dtype == np.float32
    number = pickle.loads(pickle.dumps(Integer(3)))
    assert (number, type(number), copy.deepcopy(number)) == (3, Integer, 3)
    assert (number.astype("float32"), number.item(), number.shape, number.ndim) == (np.float32(3), 3, (), 0)
    assert [number.astype(dtype).dtype for dtype in ("float32", np.int8, complex)] == ["float32", "int8", "complex128"]
    assert number.block_until_ready() is number
    assert {number: "three"}[3] == "three"


def squares(w: Any, b: Any, x: Any) -> Any:
    return np.mean((x @ w + b - 1.0) ** 2)


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype float64")  # of jax's operators, which narrow
@pytest.mark.parametrize("array", [np.asarray, jnp.asarray, fnp.asarray])
@pytest.mark.parametrize("jitted", [False, True])
def test_a_bias_that_is_a_python_number_widens_no_step(array: Any, jitted: bool) -> None:
    def step(w: Any, b: Any, x: Any) -> Any:
        loss, (dw, db) = fxgrad.value_and_grad(squares, argnums=(0, 1))(w, b, x)
        return loss, w - 0.1 * dw, b - 0.1 * db

    x = array(np.linspace(0.0, 1.0, 15, dtype=np.float32).reshape(5, 3))
    w, b = array(np.zeros(3, np.float32)), 0.0
    for _ in range(3):
        loss, w, b = (fxgrad.jit(step) if jitted else step)(w, b, x)
        assert (loss.dtype, w.dtype) == (np.float32, np.float32)


@pytest.mark.parametrize("name", ["both", "half", "none", "a loop"])
@pytest.mark.parametrize("number", [0.5, 0.5 + 1j])
def test_gradients_of_float32_functions_in_numbers_are_weak(name: str, number: Any) -> None:
    def fun(of: Any) -> Callable[[Any, Any], Any]:
        def loss(w: Any, x: Any) -> Any:
            return of.np.real(of.np.sum(of.np.sin(x) * w * w))

        return {"both": loss, "none": lambda w, x: of.np.sum(x),
                "half": lambda w, x: of.np.sum(x.astype("bfloat16") + abs(w)),
                "a loop": lambda w, x: of.lax.fori_loop(0, 3, lambda i, c: c + loss(w, x), of.np.sum(x))}[name]

    ours, x = fun(OURS), np.ones(3, np.float32)
    one = np.ones((), fxgrad.make_program(ours)(number, x).outputs[0].aval.dtype)
    by_grad = fxgrad.make_program(fxgrad.grad(ours))(number, x)
    by_vjp = fxgrad.make_program(lambda w, x: fxgrad.vjp(ours, w, x)[1](one)[0])(number, x)
    for program in (by_grad, by_vjp):
        aval = program.outputs[0].aval
        assert (aval.dtype, aval.weak) == (np.asarray(number).dtype, True)
    wanted = jax.grad(fun(THEIRS))(number, jnp.asarray(x))
    found = (fxgrad.grad(ours)(number, x), fxgrad.vjp(ours, number, x)[1](one)[0],
             fxgrad.grad(ours)(number, fnp.asarray(x)), fxgrad.vjp(ours, number, fnp.asarray(x))[1](one)[0])
    for gradient in found:
        assert type(gradient) in (np.float64, np.complex128)
        np.testing.assert_allclose(gradient, wanted, rtol=1e-5)


def test_jacobians_are_weak_as_what_they_are_rows_or_columns_of() -> None:
    x = np.ones(3, np.float32)
    for fun, weak in ((fxgrad.hessian(lambda b: np.sum(x * b ** 3)), True), (fxgrad.jacobian(lambda b: b * b), True),
                      (fxgrad.jacrev(lambda b: b * b), True), (fxgrad.jacrev(lambda b: np.sum(x * b)), True),
                      (fxgrad.jacfwd(lambda b: np.sum(x * b)), False)):
        aval = fxgrad.make_program(fun)(2.0).outputs[0].aval
        assert (aval.weak, aval.shape) == (weak, ())


def test_integers_have_the_methods_of_numpys() -> None:
    number = fnp.floor_divide(7, 2)
    assert type(number) is Integer
    assert number.reshape(1, 1).tolist() == [[3]]
    assert (number.sum(), number.T, number.tolist(), number.is_integer()) == (3, 3, 3, True)
    assert not hasattr(number, "__array_interface__")
    with pytest.raises(AttributeError, match="'Integer' object has no attribute 'sharding'"):
        _ = number.sharding
