"""`fxgrad.Array`: what library functions return of NumPy's arrays, and what arguments are handed as.

Those in which a function is neither differentiated nor mapped take traced indices, updates and products, too.
"""

from __future__ import annotations

import itertools
import operator
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import grad, jvp, value_and_grad, vmap
from fxgrad.engine.core.arrays import Array
from fxgrad.errors import FxgradError, MutationError, ShapeError
from tests.comparison.cases import CASES
from tests.comparison.libraries import LIBRARIES

X, PLACES, W = np.arange(3.0), np.array([2, 0]), np.array([0.5, 1.5, 2.5])


def test_traced_indices_of_unmapped_arrays() -> None:
    for _ in range(3):
        np.testing.assert_array_equal(vmap(lambda x, i: x[i], (None, 0))(X, PLACES), X[PLACES])
        table = np.outer(X, X)
        np.testing.assert_array_equal(vmap(lambda x, i: x[i, 1:], (None, 0))(table, PLACES), table[PLACES, 1:])
        np.testing.assert_array_equal(vmap(lambda d, i: d["x"][i], (None, 0))({"x": X}, PLACES), X[PLACES])


def test_traced_indices_of_arrays_that_are_constants_of_a_derivative() -> None:
    for _ in range(3):
        gradient = grad(lambda w, x: np.sum(w * x[np.floor(w).astype(int)]))(W, X)
        np.testing.assert_array_equal(gradient, X[[0, 1, 2]])
        _, tangent = jvp(lambda w: vmap(lambda x, i: x[i] * w[0], (None, 0))(X, PLACES), (W,), (np.ones(3),))
        np.testing.assert_array_equal(tangent, X[PLACES])


def test_arrays_of_jax_that_are_constants_take_traced_indices() -> None:
    table = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    params, tokens = {"embedding": jnp.asarray(table)}, np.array([1, 2, 1])

    def looked_up(params: Any, token: Any) -> Any:
        return params["embedding"][token]

    def chosen(w: Any, params: Any) -> Any:
        return np.sum(w ** 2 * params["embedding"][np.argmax(w)])

    for given in (tokens, jnp.asarray(tokens)):
        rows = fxgrad.vmap(looked_up, (None, 0))(params, given)
        assert isinstance(rows, jax.Array)
        np.testing.assert_array_equal(rows, table[tokens])
    w = table[0]
    slope = 2 * w * table[np.argmax(w)]
    for one in (fxgrad.grad(chosen)(w, params), fxgrad.jacfwd(chosen)(w, params), fxgrad.jacrev(chosen)(w, params)):
        assert isinstance(one, jax.Array)
        np.testing.assert_allclose(one, slope, rtol=1e-6)
    doubled = fxgrad.vmap(lambda params, token: (2 * params["embedding"])[token], (None, 0))(params, tokens)
    np.testing.assert_array_equal(doubled, 2 * table[tokens])


def test_auxiliary_output_of_constants_is_of_the_kind_that_is_given() -> None:
    def loss(w: Any, x: Any) -> Any:
        return np.sum(w * x), (x.mean(), {"first": x[0], "all": x, "new": np.arange(2)}, np.float64(0.1))

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    w = np.ones(3, np.float32)
    expected = (x.mean(), {"first": x[0], "all": x, "new": np.arange(2)}, np.float64(0.1))
    for given, kinds in (((jnp.asarray(w), jnp.asarray(x)), [jax.Array] * 3),
                         ((jnp.asarray(w), x), [np.ndarray] * 3),
                         ((w, x), [np.ndarray] * 3)):
        for transformed in (fxgrad.grad, fxgrad.jacrev, fxgrad.hessian):
            aux = transformed(loss, has_aux=True)(*given)[1]
            for found, wanted in zip(jax.tree.leaves(aux), jax.tree.leaves(expected), strict=True):
                np.testing.assert_array_equal(found, wanted)
                assert found.dtype == wanted.dtype
            assert isinstance(aux[1]["all"], kinds[0])
            assert isinstance(aux[1]["first"], kinds[1])
            assert isinstance(aux[0], kinds[2])
            assert type(aux[1]["new"]) is np.ndarray


def test_arrays_say_whether_they_are_weak() -> None:
    assert [fnp.ones(2).weak_type, fnp.where(X > 0, 0.1, 1.0).weak_type, fxgrad.jit(lambda n: n + 1)(2).weak_type] == [
        False, True, True]
    assert [each.weak_type for each in fxgrad.jit(lambda x, n: (fnp.where(x > 0, n, n), x))(X, 0.1)] == [True, False]


def test_arrays_of_jax_that_are_constants_keep_what_jax_says_of_them() -> None:
    seen: list[Any] = []

    def loss(w: Any, x: Any, *others: Any) -> Any:
        seen[:] = x, *others
        return np.sum(w * x), x

    half = jnp.asarray([1.0, 2.0], jnp.bfloat16)
    _, aux = fxgrad.grad(loss, has_aux=True)(np.ones(2, np.float32), half)
    assert aux is half
    assert seen[0].dtype == jnp.bfloat16
    assert (seen[0].sharding, seen[0].weak_type, seen[0].is_deleted()) == (half.sharding, False, False)
    with pytest.raises(MutationError):
        seen[0][0] = 1.0
    with pytest.raises(AttributeError, match=r"'Array' object has no attribute 'sharding', .*put\(x\)\.sharding$"):
        fnp.ones(2).sharding  # noqa: B018
    key, weak, deleted = jax.random.key(0), jnp.asarray(2.0), jnp.ones(3)
    deleted.delete()
    assert weak.weak_type
    fxgrad.grad(loss, has_aux=True)(np.ones(2, np.float32), half, key, weak, deleted)
    assert [one is given for one, given in zip(seen[1:], (key, weak, deleted), strict=True)] == [True] * 3
    other = jax.device_put(half, jax.devices()[1])
    fxgrad.grad(loss, has_aux=True)(np.ones(2, np.float32), half, other)
    assert seen[1] is other
    with jax.default_device(jax.devices()[1]):
        fxgrad.grad(loss, has_aux=True)(np.ones(2, np.float32), other, half)
    assert [type(one) is Array for one in seen] == [True, False]
    donated = jnp.ones(4)
    fxgrad.grad(loss, has_aux=True)(np.ones(4, np.float32), donated)
    seen.clear()
    jax.jit(lambda x: x + 1, donate_argnums=0)(donated)
    assert donated.is_deleted()


def test_updates_and_products() -> None:
    for _ in range(3):
        np.testing.assert_array_equal(grad(lambda w, x: np.sum(w * x.at[0].set(5.0)))(W, X), [5.0, 1.0, 2.0])
        np.testing.assert_array_equal(grad(lambda w, x: np.sum(x.at[1].add(w[0])))(W, X), [1.0, 0.0, 0.0])
        np.testing.assert_array_equal(grad(lambda w, x: x.dot(w))(W, X), X)
        np.testing.assert_array_equal(grad(lambda w, *, x: x.dot(w))(W, x=X), X)
    np.testing.assert_array_equal(X, np.arange(3.0))


def test_arrays_made_here_take_traced_places() -> None:
    xs = fnp.arange(5.0)
    for _ in range(2):
        assert float(fxgrad.lax.fori_loop(0, 5, lambda i, total: total + xs[i], 0.0)) == 10.0
        assert float(fxgrad.jit(lambda i: xs[i] * 2)(3)) == 6.0
        assert float(fxgrad.jit(lambda i: fnp.asarray(X)[i])(1)) == 1.0
    np.testing.assert_array_equal(vmap(lambda i: xs.at[i].set(9.0)[i])(PLACES), [9.0, 9.0])
    draws = fxgrad.random.normal(fxgrad.random.key(0), (3,))
    np.testing.assert_array_equal(fxgrad.jit(lambda i: draws[i])(PLACES), np.asarray(draws)[PLACES])


@pytest.mark.parametrize("made", [fnp.zeros(3), fnp.array([1.0, 2.0]), fnp.eye(2), fnp.linspace(0.0, 1.0, 3),
                                  fxgrad.random.uniform(fxgrad.random.key(1), (2,))], ids=lambda made: str(made.shape))
def test_like_in_like_out(made: Any) -> None:
    assert isinstance(made, Array)
    for result in (made + 1, made[1:], fnp.sin(made), np.sin(made), grad(lambda x: fnp.sum(x * x))(made),
                   vmap(lambda x: x * 2)(made), fxgrad.jit(lambda x: x * 2)(made.astype("float64"))):
        assert type(result) is Array
    assert type(grad(lambda x: np.sum(x * x))(np.ones(2))) is np.ndarray
    assert type(fxgrad.jit(lambda x: x * 2)(np.ones(2))) is Array
    assert fnp.roll(made, made.shape[0], axis=0) is not made
    assert not np.shares_memory(fnp.roll(made, made.shape[0], axis=0), made)
    before = made.copy()
    made.at[0].set(7.0)
    np.testing.assert_array_equal(made, before)


def test_they_are_numpys_arrays_otherwise() -> None:
    """A copy may be written to, NumPy and SciPy take them, and nothing of them comes back."""
    def f(w: Any, x: Any) -> Any:
        assert isinstance(x, np.ndarray)
        assert x.block_until_ready() is x
        assert len(x.devices()) == 1
        assert repr(x) == repr(X)
        scaled = x.copy()
        scaled[1] = 7.0
        scaled += 1.0
        return np.sum(w * scaled) + float(np.linalg.norm(x)), {"x": x, "again": [scaled]}

    for _ in range(3):
        (_, aux), gradient = value_and_grad(f, has_aux=True)(W, X)
        np.testing.assert_array_equal(gradient, [1.0, 8.0, 3.0])
        assert type(aux["x"]) is type(aux["again"][0]) is type(gradient) is np.ndarray
    np.testing.assert_array_equal(X, np.arange(3.0))


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float32", "complex64"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_every_operator_gives_what_it_gives_with_plain_arrays(dtype: str, shape: tuple[int, ...]) -> None:
    given = np.ones(shape, dtype)
    w = np.full(shape, 0.5, np.float32)
    functions = [lambda w, x: w + x, lambda w, x: x - w, lambda w, x: x * w, lambda w, x: w / (x + 1)]
    for f in functions + [lambda w, x: x @ w.T] * bool(shape):
        plain = vmap(lambda w, f=f: f(w, given))(w[None])
        handed = vmap(f, (0, None))(w[None], given)
        assert plain.dtype == handed.dtype
        np.testing.assert_array_equal(plain, handed)


def test_a_function_may_return_what_it_was_given() -> None:
    """Results own their memory."""
    for _ in range(3):
        result = vmap(lambda w, x: (w, x), (0, None), (0, None))(W, X)[1]
        assert type(result) is np.ndarray
        assert not np.shares_memory(result, X)


def test_captured_again_they_are_the_same_input() -> None:
    program = fxgrad.make_program(grad(lambda w, x: np.sum(w * x + x * w)))(W, X)
    assert len(program.inputs) == 2
    with_captured = fxgrad.make_program(lambda w: grad(lambda w, x: np.sum(w * x + x * w))(w, X))(W)
    assert with_captured.captured == 1


@fxgrad.custom_vjp
def _squares(x: Any) -> Any:
    return x ** 2


_squares.defvjp(lambda x: (x ** 2, x), lambda x, slope: (2.0 * x * slope * fnp.ones(3),))
ONES = fnp.ones(3)
MADE_INSIDE: dict[str, Callable[[Any], Any]] = {
    "ones": lambda x: x ** 2 * fnp.ones(3), "linspace": lambda x: x * fnp.linspace(0.0, 1.0, 3) * x,
    "solve": lambda x: fnp.linalg.solve(2.0 * np.eye(3, dtype="float32"), x) * x, "closed over": lambda x: x * ONES * x,
    "digitize": lambda x: fnp.digitize(x, X[:2]) * x * x, "rule": lambda x: _squares(x) * fnp.ones(()),
    "branch": lambda x: x * x * fnp.ones(3) if fnp.sum(x) > 0 else x}
WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda f, x: grad(lambda x: fnp.sum(f(x)))(x), "vjp": lambda f, x: fxgrad.vjp(f, x)[1](x),
    "value_and_grad": lambda f, x: value_and_grad(lambda x: fnp.sum(f(x)))(x),
    "hessian": lambda f, x: fxgrad.hessian(lambda x: fnp.sum(f(x)))(x), "jacrev": lambda f, x: fxgrad.jacrev(f)(x),
    "jvp": lambda f, x: jvp(f, (x,), (x,)), "linearize": lambda f, x: fxgrad.linearize(f, x)[1](x),
    "jacfwd": lambda f, x: fxgrad.jacfwd(f)(x), "jet": lambda f, x: fxgrad.jet(f, (x,), ([x],)),
    "laplacian": lambda f, x: fxgrad.laplacian(lambda x: fnp.sum(f(x)))(x), "vmap": lambda f, x: vmap(f)(x[None]),
    "roll": lambda f, x: fxgrad.roll(f)(x), "nan_safe": lambda f, x: fxgrad.nan_safe(f)(x),
    "checked": lambda f, x: fxgrad.checked(f)(x), "stabilize": lambda f, x: fxgrad.stabilize(f)(x)}
WITHOUT_RULE = {("rule", way) for way in ("jvp", "linearize", "jacfwd", "jet", "laplacian")} | {
    ("branch", way) for way in ("vmap", "laplacian", "roll", "nan_safe", "checked", "stabilize")}
"""Reverse rules in forward mode, and Python's branches where there are no values."""


@pytest.mark.parametrize(("made", "way"), sorted({*itertools.product(MADE_INSIDE, WAYS)} - WITHOUT_RULE))
def test_what_a_function_makes_inside_does_not_decide_what_is_returned(made: str, way: str) -> None:
    """The arguments do; however often it has run."""
    x = np.array([0.3, 0.5, 0.7], np.float32)
    for given in (x, fnp.asarray(x), jnp.asarray(x)):
        for _ in range(3):
            for leaf in fxgrad.tree.leaves(WAYS[way](MADE_INSIDE[made], given)):
                assert (type(leaf) if np.ndim(leaf) or type(given) is not np.ndarray else np.ndarray) is type(given)
                assert type(given) is not np.ndarray or not isinstance(leaf, Array)


# --- what library functions return ----------------------------------------------------------------------------------

NUMPYS_OWN = {"numpy": {"apply_along_axis", "frompyfunc", "vectorize"},  # as a user's function has it
              "lax": {"all_gather", "all_to_all", "axis_index", "axis_size", "pmax", "pmean", "pmin",
                      "ppermute", "pshuffle", "psum", "psum_scatter", "pswapaxes"}}  # under vmap, of NumPy's arrays


@pytest.mark.parametrize("library", [
    "numpy", "numpy.linalg", "numpy.fft", "lax", "lax.linalg", "nn", "scipy.linalg",
    pytest.param("scipy.special", marks=pytest.mark.slow)])
def test_results_of_library_functions_cannot_be_written_to(library: str) -> None:
    ours, looked_at = LIBRARIES[library][0], 0
    for name, examples in CASES[library].items():
        if not hasattr(ours, name) or name in NUMPYS_OWN.get(library, ()):
            continue
        for case in examples[:1]:
            args = case.arrays(case.dtypes[0])
            if not all(isinstance(arg, np.ndarray) for arg in args):
                continue
            try:
                with np.errstate(all="ignore"):
                    result = case.function(ours, name, case.dtypes[0])(*args)
            except FxgradError:
                continue
            for leaf in jax.tree.leaves(result):
                if isinstance(leaf, np.ndarray | np.generic) and not isinstance(leaf, np.bool_):
                    assert type(leaf) is Array, name
                    looked_at += 1
    assert looked_at > 10


def test_what_is_known_before_all_is_an_array_of_ours(tmp_path: Path) -> None:
    x = np.array([[0.0, 3.0], [2.0, 0.0]])
    np.save(tmp_path / "x.npy", x)
    made = {
        "nonzero": fnp.nonzero(x), "where": fnp.where(x > 1), "argwhere": fnp.argwhere(x),
        "average": fnp.average(x, returned=True), "tril_indices": fnp.tril_indices(3),
        "triu_indices": fnp.triu_indices(3, 1), "triu_indices_from": fnp.triu_indices_from(x),
        "diag_indices": fnp.diag_indices(3), "mask_indices": fnp.mask_indices(3, fnp.triu),
        "indices": [fnp.indices((2, 3)), *fnp.indices((2, 3), sparse=True)],
        "fromfunction": fnp.fromfunction(lambda i, j: i * j, (2, 3)), "grids": [fnp.mgrid[0:3], fnp.mgrid[0:2, 0:2]],
        "windows": [f(n) for f in (fnp.bartlett, fnp.blackman, fnp.hamming, fnp.hanning) for n in (1, 4)],
        "kaiser": fnp.kaiser(1, 2.0), "matrix_power": fnp.linalg.matrix_power(x, 0),
        "load": fnp.load(tmp_path / "x.npy"),
        "from": [fnp.frombuffer(b"ab", "uint8"), fnp.fromiter([1, 2], int), fnp.fromstring("1 2", sep=" "),
                 fnp.from_dlpack(x), fnp.fromfile(tmp_path / "x.npy", "uint8")],
        "scipy": [fxgrad.scipy.linalg.hilbert(3), fxgrad.scipy.linalg.dft(3), fxgrad.scipy.special.bernoulli(3)],
        "shape": fxgrad.lax.shape_as_value((2, 3)), "identity": fxgrad.nn.identity(x),
    }
    for name, results in made.items():
        for leaf in jax.tree.leaves(results):
            assert (type(leaf), leaf.flags.writeable) == (Array, False), name
    x[0, 0] = 5.0  # the caller's array stays writable
    rows, columns = fnp.triu_indices(3)
    taken = fxgrad.lax.fori_loop(0, 6, lambda k, total: total + rows[k] * 10 + columns[k], 0)
    assert int(taken) == sum(10 * i + j for i in range(3) for j in range(i, 3))
    assert (fnp.tril_indices(2)[0] / np.float32([1.0, 2.0, 4.0])).dtype == np.float32


def test_nobody_writes_to_results() -> None:
    x = fnp.sin(np.arange(3.0))
    with pytest.raises(MutationError) as caught:
        x[0] = 1.0
    assert str(caught.value).startswith(
        "x[0] = 1.0: x, an array of shape (3,) and dtype float64, cannot be written to: a function of fxgrad made "
        "it, or it is a read-only array of NumPy's. Write x = x.at[0].set(1.0), or before it x = x.copy(), which "
        "can be written to\n  at test_arrays.py:")
    rows = {"a": fnp.zeros((2, 2))}
    with pytest.raises(MutationError, match=r"Write rows\['a'\] = rows\['a'\]\.at\[0, 1\]\.add\(2\.0\), or "):
        rows["a"][0][1] += 2.0
    for part in (x[1:], x[[0, 1]], x[..., 0:1], x * 2.0, 2.0 - x, x + x, x * np.float32(2.0), -1 * x, x + [1.0] * 3):
        with pytest.raises(MutationError):
            part[0] = 1.0
    for cured in (x.copy(), np.array(x), x + np.zeros(3), np.zeros(3) + x):
        cured[0] = 7.0
    assert x[0] == 0.0
    assert float(x.at[0].set(7.0)[0]) == 7.0


@pytest.mark.parametrize("change", [operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv,
                                    operator.imod, operator.ipow, operator.imatmul, operator.iand, operator.ior,
                                    operator.ixor, operator.ilshift, operator.irshift])
def test_operators_in_place_make_new_arrays(change: Any) -> None:
    integers = change in (operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift)
    x = fnp.array([[1, 2], [3, 4]], "int32" if integers else "float32")
    y = np.array([[1, 1], [2, 1]], x.dtype)
    before, again = np.array(x), np.array(x)
    result = change(x, y)
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(result, change(again, y) if change is not operator.imatmul else again @ y)
    promoted = change(x, np.ones((2, 2), "int32")) if not integers else result
    assert type(promoted) is Array
    assert promoted.dtype == x.dtype


# --- operators ------------------------------------------------------------------------------------------------------

OPERATORS = {
    "+": (operator.add, fnp.add), "-": (operator.sub, fnp.subtract), "*": (operator.mul, fnp.multiply),
    "/": (operator.truediv, fnp.divide), "//": (operator.floordiv, fnp.floor_divide), "%": (operator.mod, fnp.mod),
    "**": (operator.pow, fnp.power), "@": (operator.matmul, fnp.matmul), "&": (operator.and_, fnp.bitwise_and),
    "|": (operator.or_, fnp.bitwise_or), "^": (operator.xor, fnp.bitwise_xor), "<<": (operator.lshift, fnp.left_shift),
    ">>": (operator.rshift, fnp.right_shift), "==": (operator.eq, fnp.equal), "!=": (operator.ne, fnp.not_equal),
    "<": (operator.lt, fnp.less), "<=": (operator.le, fnp.less_equal), ">": (operator.gt, fnp.greater),
    ">=": (operator.ge, fnp.greater_equal), "divmod": (divmod, fnp.divmod)}
DTYPES = ["bool", "uint8", "int8", "int32", "int64", "uint64", "float16", "bfloat16", "float32", "float64", "complex64",
          "complex128"]
NUMBERS: list[Any] = [True, 2, 3.0, 2j, np.float64(1.5), np.float32(1.5), np.int8(3)]


def sample(dtype: str) -> np.ndarray:
    return np.array([1, 0, 3, 2]).astype(jnp.dtype(dtype))


@pytest.mark.slow
@pytest.mark.parametrize("symbol", OPERATORS)
def test_operators_promote_as_the_functions_do(symbol: str) -> None:
    """And so as jax does, with which the functions are compared: on either side, with every dtype and with numbers."""
    combine, function, looked_at = *OPERATORS[symbol], 0
    for x, y in itertools.product(map(sample, DTYPES), [*map(sample, DTYPES), *(NUMBERS if symbol != "@" else [])]):
        for first, second in ((x, y), (y, x)):
            if isinstance(first, np.generic):  # their operators ask nobody
                continue
            wanted = called(function, first, second)
            for arrays in ((first.view(Array), second) if first is x else (first, second.view(Array)),
                           (as_array(first), as_array(second))):
                ours = called(combine, *arrays)
                assert (ours is None) == (wanted is None), (first, second)
                for one, other in zip(jax.tree.leaves(wanted), jax.tree.leaves(ours), strict=True):
                    assert isinstance(other, Array), (first, second)
                    assert type(other) is type(one), (first, second)
                    assert one.dtype == other.dtype, (first, second)
                    np.testing.assert_array_equal(*[each.astype("float32") if each.dtype == fnp.bfloat16 else each
                                                    for each in (one, other)])
                    looked_at += 1
    assert looked_at > 20


def called(function: Any, *operands: Any) -> Any:
    """None where the operands are refused."""
    try:
        return function(*operands)
    except (TypeError, OverflowError):
        return None


def as_array(operand: Any) -> Any:
    return operand.view(Array) if type(operand) is np.ndarray else operand


@pytest.mark.parametrize("other", [np.ones(2, np.float32), np.ones(2, int)])
def test_shapes_that_do_not_fit(other: Any) -> None:
    """As the functions say it, with the user's line, whether or not the dtypes are equal."""
    with pytest.raises(ShapeError) as caught:
        fnp.ones(3) + other
    assert str(caught.value).startswith(
        "add: shapes (3,) and (2,) do not broadcast: axis -1 has sizes 2 and 3, where equal sizes or 1 are needed. "
        "Insert an axis with x[:, None] or x.reshape(...), or transpose one of them\n  at test_arrays.py:")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("before", ["float16", "float32", "float64", "complex64"])
def test_floats_beyond_integers_are_converted_as_compiled_code_does(before: str, dtype: str) -> None:
    with np.errstate(over="ignore"):
        values = np.array([300.0, -5.5, np.nan, np.inf, -np.inf, 1e20, -1e20, 2.5]).astype(before)
    found, expected = fnp.asarray(values).astype(dtype), fxgrad.jit(lambda x: x.astype(dtype))(values)
    assert (type(found), found.dtype) == (Array, np.dtype(dtype))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(fnp.asarray(values).astype(dtype, copy=False, order="F"), expected)
    found[0] = 1  # NumPy's method makes writable arrays
    assert fnp.asarray(values)[0].astype(dtype) == expected[0]
    assert fnp.asarray(values[:0]).astype(dtype).shape == (0,)


def test_what_is_no_number_here_is_left_to_numpy() -> None:
    x = fnp.arange(3)
    assert (x == None).tolist() == [False] * 3  # noqa: E711
    assert (x.astype(object) + 1).tolist() == [1, 2, 3]
    assert (x + np.array([1, 2, 3], object)).dtype == object
    assert (x * np.longdouble(2)).dtype == np.longdouble
    dates = np.array(["2020-01-01"], "datetime64[D]").view(Array)
    assert (dates + np.timedelta64(1, "D"))[0] == np.datetime64("2020-01-02")
    masked = np.ma.masked_array([1.0, 2.0, 3.0], [True, False, False])
    assert isinstance(x * masked, np.ma.MaskedArray)
    assert isinstance(masked * x, np.ma.MaskedArray)
    assert (fnp.arange(3) * jnp.ones(3)).__class__ is jnp.ones(3).__class__


# --- arrays of shape () ---------------------------------------------------------------------------------------------


def test_results_of_shape_nothing_are_strong() -> None:
    narrow, wide = np.ones(2, np.float32), np.full(4, 2.0)
    calls = [lambda a, b: fnp.hypot(a, fnp.sum(b)), lambda a, b: a * fnp.max(b), lambda a, b: a + fnp.asarray(b)[0],
             lambda a, b: fnp.where(a > 0, a, fnp.mean(b)), lambda a, b: fnp.linalg.norm(b) / a,
             lambda a, b: next(row + a for row in fnp.asarray(b)), lambda a, b: a * fnp.dot(b, b)]
    for call in calls:
        wanted = np.asarray(fxgrad.jit(call)(narrow, wide))
        assert wanted.dtype == np.float64
        for result in (call(narrow, wide), call(narrow.view(Array), wide.view(Array)),
                       *[vmap(call, (0, None))(narrow[:, None], wide)[:, 0] for _ in range(3)]):
            assert result.dtype == wanted.dtype
            np.testing.assert_allclose(result, wanted, 1e-14)
    drawn = fxgrad.random.uniform(fxgrad.random.key(0), (), "float64")
    for strong in (drawn, fnp.asarray(np.float64(0.5)), fnp.asarray(np.sum(wide)), fnp.zeros((), "float64")):
        assert (narrow * strong).dtype == fxgrad.jit(lambda a, b: a * b)(narrow, strong).dtype == np.float64
    assert fnp.hypot(np.float32(3), np.float64(4)).dtype == np.float32  # NumPy's own scalars give way


def test_they_do_what_scalars_do() -> None:
    total = fnp.sum(np.arange(4.0))
    assert type(total) is Array
    assert (f"{total:.2f}", f"{total}", str(total), repr(total)) == ("6.00", "6.0", "6.0", "array(6.)")
    assert (round(total), round(total, 1), float(total), int(total), bool(total)) == (6, 6.0, 6.0, 6, True)
    count = fnp.argmax(np.arange(4.0))
    assert ["a", "b", "c", "d"][count] == "d"
    assert len(range(count)) == 3
    assert {0: "no", 3: "yes"}[count] == "yes"
    assert total in {6.0}
    with pytest.raises(TypeError, match="unhashable"):
        hash(fnp.arange(2))
    with pytest.raises(TypeError, match="unhashable"):
        hash(fnp.sum(np.arange(4.0)).copy())


# --- NumPy code on the data that it gets ----------------------------------------------------------------------------


def test_numpy_code_writes_to_what_it_makes_of_its_data() -> None:
    def f(w: Any, x: Any, labels: Any) -> Any:
        weights = 1 - x
        weights[0] = 5.0
        scaled = x * 2
        scaled[1:] += 1.0
        scaled /= 2.0
        table = {0: 1.0, 2: 3.0}
        total = sum(table[label] for label in labels)
        counts = np.zeros(3)
        counts[labels] += 1
        return np.sum(w * weights * scaled) + total * w[labels[0]] + np.sum(counts * w)

    labels = np.array([2, 0])
    slope = np.array([5.0, 0.0, -1.0]) * ((X * 2 + [0, 1, 1]) / 2) + [0.0, 0.0, 4.0] + [1.0, 0.0, 1.0]
    for _ in range(3):
        np.testing.assert_array_equal(grad(f)(W, X, labels), slope)
    np.testing.assert_array_equal(X, np.arange(3.0))


def test_results_are_captured_without_a_copy() -> None:
    data = fnp.sin(np.ones(1000))
    program = fxgrad.make_program(lambda x: x * data)(1.0)
    assert np.shares_memory(program.constants[0], data)
    mine = np.ones(3)
    copied = fxgrad.make_program(lambda x: x * fnp.asarray(mine))(1.0)
    mine[0] = 7.0
    np.testing.assert_array_equal(copied(2.0), [2.0, 2.0, 2.0])


LARGE = np.cos(np.arange(12_000.0)).reshape(3, 4000)
METHODS_THAT_COMPUTE = {
    "argsort": (), "choose": ([LARGE, LARGE],), "clip": (-1, 1), "cumprod": (), "cumsum": (), "dot": (np.eye(4000),),
    "max": (0,), "nonzero": (), "round": (1,), "sum": (0,), "trace": (), "searchsorted": (np.arange(4000.0),)}


@pytest.mark.parametrize("name", METHODS_THAT_COMPUTE)
def test_results_of_methods_can_be_written_to_and_alias_nothing(name: str) -> None:
    values = np.zeros((3, 4000), int) if name == "choose" else np.sort(LARGE[0]) if name == "searchsorted" else LARGE
    array, args = fnp.asarray(values), METHODS_THAT_COMPUTE[name]
    expected = getattr(values, name)(*args)
    for _ in range(3):
        found = getattr(array, name)(*args)
        for one, wanted in zip(found if type(found) is tuple else [found],
                               expected if type(expected) is tuple else [expected], strict=True):
            np.testing.assert_allclose(one, wanted)
            assert one.flags.writeable or not one.shape
            assert not any(np.shares_memory(one, each) for each in (array, values, *args) if isinstance(
                each, np.ndarray))
            if one.shape:
                one[...] = 7
        np.testing.assert_array_equal(array, values)


def test_large_results_of_methods_are_not_copied_if_nobody_else_has_them() -> None:
    array = fnp.asarray(np.ones(1_000_000))
    array.cumsum()
    tracemalloc.start()
    result = array.cumsum()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1.5 * result.nbytes
    integers = fnp.asarray(np.arange(5000))
    rounded = integers.round()
    rounded[0] = 5
    assert integers[0] == 0
