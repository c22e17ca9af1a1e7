"""Changes in place: as in NumPy, or refused with what to write, which then works; never silently different."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, value_and_grad, vmap
from fxgrad.errors import DTypeError, MutationError, ShapeError
from tests.support.cures import REFUSALS, compiled, cured

X = np.array([[0.3, -1.2, 2.0], [0.7, 0.1, -0.4], [1.1, 0.9, 0.2]])


class Variant(NamedTuple):
    """The body of a function of the matrix `x` that changes an array in place."""

    body: str
    refused: bool
    aliased: bool = False
    """Whether other names see the change, so that what the message says to write means something else."""


VARIANTS: dict[str, Variant] = {
    # What nobody else can see.
    "fresh": Variant("y = x * 1.0\ny += 1.0\nreturn np.sum(y * x)", False),
    "all operators": Variant(
        "y = x * 1.0\ny += 1.0\ny -= 0.5\ny *= x\ny /= 3.0\ny **= 2\ny %= 0.7\nreturn np.sum(y * x)",
                             False),
    "matrix product": Variant("y = x * 1.0\ny @= x\nreturn np.sum(y)", False),
    "copy": Variant("y = x.copy()\ny *= 2.0\nreturn np.sum(y * x)", False),
    "np.copy": Variant("y = np.copy(x)\ny *= 2.0\nreturn np.sum(y * x)", False),
    "copy.copy": Variant("y = copy.copy(x)\ny *= 2.0\nreturn np.sum(y * x)", False),
    "copy.deepcopy": Variant("p = copy.deepcopy({'w': x})\np['w'] *= 2.0\nreturn np.sum(p['w'] * x)", False),
    "astype": Variant("y = x.astype(np.float64)\ny *= 2.0\nreturn np.sum(y * x)", False),
    "flatten": Variant("y = x[0].flatten()\ny *= 2.0\nreturn np.sum(y * x)", False),
    "index array": Variant("y = x[[0, 2]]\ny *= 2.0\nreturn np.sum(y * x[:2])", False),
    "mask": Variant("y = x[np.eye(3, dtype=bool)]\ny *= 2.0\nreturn np.sum(y * x)", False),
    "in a loop": Variant("y = x * 1.0\nfor i in range(4):\n    y += y[i % 3] * 0.1\nreturn np.sum(y * x)", False),
    "views that are gone": Variant("y = x * 1.0\ns = y[0, 0] + np.sum(y[1]) + np.sum(y.T[2])\ny += s\nreturn np.sum(y)",
                                   False),
    "attribute": Variant("o = type('O', (), {})()\no.y = x * 2.0\no.y += 1.0\nreturn np.sum(o.y * x)", False),
    "item of a list": Variant("p = [x * 2.0]\np[0] += 1.0\nreturn np.sum(p[0] * x)", False),
    "closure": Variant(
        "y = x * 2.0\ndef change():\n    nonlocal y\n    y += 1.0\nchange()\nreturn np.sum(y * x)", False),
    "argument of an inner function": Variant(
        "def doubled(h):\n    h *= 2.0\n    return h\nreturn np.sum(doubled(x + 1.0))",
                                             False),
    "scalars": Variant(
        "s = x[0, 0]\nt = s\nt += 1.0\ns *= 3.0\nfor row in x:\n    for entry in row:\n        t += entry\n"
                       "return s + t", False),
    "sum of a scalar": Variant("s = 0.0\nfor row in x:\n    s += np.sum(row)\nreturn s", False),
    "a number becomes an array": Variant("s = np.sum(x)\ns += np.ones(3)\nreturn np.sum(s)", False),
    "generator": Variant("y = x * 1.0\ny += sum(np.sin(row) for row in x)\nreturn np.sum(y)", False),
    "choice on the right": Variant("y = x * 1.0\ny += x if x[0, 0] > 0 else 1.0\nreturn np.sum(y)", False),
    "sorted copy": Variant("y = np.sort(x)\ny += 1.0\nreturn np.sum(y * x)", False),
    # What others see.
    "rows of a loop": Variant("y = x * 1.0\nfor row in y:\n    row *= 2.0\nreturn np.sum(y)", True, True),
    "row": Variant("y = x * 1.0\ny[0] += 1.0\nreturn np.sum(y * y)", True),
    "row by an operator": Variant("y = x * 1.0\ny[1] //= 0.3\nreturn np.sum(y * x)", True),
    "slice": Variant("y = x * 1.0\ny[1:, ::2] -= x[1:, ::2] * 3.0\nreturn np.sum(y * y)", True),
    "element": Variant("y = x * 1.0\ny[0, 1] *= 5.0\nreturn np.sum(y * x)", True),
    "element of a row": Variant("y = x * 1.0\ny[0][1] = 5.0\nreturn np.sum(y * x)", True),
    "element of a row, increased": Variant("y = x * 1.0\ny[0][1] += 5.0\nreturn np.sum(y * x)", True),
    "element of an index": Variant("y = x * 1.0\nfor i in range(3):\n    y[i, i] = 0.0\nreturn np.sum(y * x)", True),
    "mask assignment": Variant("y = x * 1.0\ny[y < 0] = 0.0\nreturn np.sum(y * x)", True),
    "item of a dictionary": Variant("p = {'w': x * 1.0}\np['w'][0] += 1.0\nreturn np.sum(p['w'] * x)", True),
    "named row": Variant("y = x * 1.0\nrow = y[0]\nrow += 1.0\nreturn np.sum(y)", True, True),
    "transpose": Variant("y = x * 1.0\nz = y.T\nz += x\nreturn np.sum(y * x)", True, True),
    "reshape": Variant("y = x * 1.0\nz = y.reshape(-1)\nz *= 3.0\nreturn np.sum(y)", True, True),
    "ravel": Variant("y = x * 1.0\nz = np.ravel(y)\nz *= 3.0\nreturn np.sum(y)", True, True),
    "diagonal of a part": Variant("y = x * 1.0\na, b = np.split(y, [1])\nb *= 3.0\nreturn np.sum(y)", True, True),
    "view of a view": Variant("y = x * 1.0\nz = y.T[0]\nz *= 3.0\nreturn np.sum(y)", True, True),
    "base of a view": Variant("y = x * 1.0\nrow = y[0]\ny *= 3.0\nreturn np.sum(row)", True, True),
    "second name": Variant("y = x * 1.0\nz = y\nz *= 3.0\nreturn np.sum(y)", True, True),
    "in a container": Variant("y = x * 1.0\np = [y]\ny *= 3.0\nreturn np.sum(p[0])", True, True),
    "argument": Variant("x *= 3.0\nreturn np.sum(x)", True),
    "leaf of an argument": Variant("w = {'w': x}['w']\nw -= 0.1 * w\nreturn np.sum(w * w)", True),
    "argument of an inner function that has a name": Variant(
        "def doubled(h):\n    h *= 2.0\n    return h\ny = x + 1.0\nz = doubled(y)\nreturn np.sum(y)", True, True),
    "an array of NumPy's": Variant("y = np.ones((3, 3))\ny *= x\nreturn np.sum(y * y)", True),
    "array under an iteration": Variant("y = x[0] * 1.0\nfor v in y:\n    y *= v\nreturn np.sum(y)", True, True),
    "array under enumerate": Variant("y = x[0] * 1.0\nfor i, v in enumerate(y):\n    y *= v\nreturn np.sum(y)", True,
                                     True),
    "array under zip": Variant("y = x[0] * 1.0\nfor a, v in zip(x[0], y):\n    y += v\nreturn np.sum(y)", True, True),
    "array under map": Variant("y = x[0] * 1.0\nfor v in map(np.sin, y):\n    y += v\nreturn np.sum(y)", True, True),
    "array under an iterator": Variant("y = x[0] * 1.0\nrest = iter(y)\nnext(rest)\ny *= 2.0\nreturn next(rest)", True,
                                       True),
    "array after its iteration": Variant("y = x[0] * 1.0\nt = 0.0\nfor v in y:\n    t += v\ny += t\nreturn np.sum(y)",
                                         False),
    "array after a break": Variant("y = x[0] * 1.0\nfor v in y:\n    break\ny += v\nreturn np.sum(y)", False),
    "element as an array": Variant("y = x * 1.0\ns = y[0, 0, ...]\ns += 10.0\nreturn np.sum(y)", True, True),
    "squeezed element": Variant("y = x * 1.0\ns = y[:1, :1].squeeze()\ns += 10.0\nreturn np.sum(y)", True, True),
    "element as a number": Variant("y = x * 1.0\ns = y[0, 0]\ns += 10.0\nreturn np.sum(y * s)", False),
    "conjugate of a real array": Variant("y = x * 1.0\nz = y.conj()\ny += 10.0\nreturn np.sum(z)", True, True),
    "conjugate of a complex array": Variant("y = x * 1j\nz = y.conj()\ny += 10.0\nreturn np.sum(z.imag)", False),
    "conjugate by a ufunc": Variant("y = x * 1.0\nz = np.conj(y)\ny += 10.0\nreturn np.sum(z)", False),
    "astype without a copy": Variant("y = x * 1.0\nz = y.astype(float, copy=False)\ny += 10.0\nreturn np.sum(z)", True,
                                     True),
    "astype to another dtype": Variant(
        "y = x * 1.0\nz = y.astype('f4', copy=False)\ny += 10.0\nreturn np.sum(y + z * 0)", False),
    # Methods and functions.
    "sort": Variant("y = x[0] * 1.0\ny.sort()\nreturn np.sum(y * x)", True),
    "sort along an axis": Variant("y = x * 1.0\ny.sort(axis=0)\nreturn np.sum(y * x)", True),
    "partition": Variant("y = x * 1.0\ny.partition(1)\nreturn np.sum(np.sum(y, 1))", True),
    "fill": Variant("y = x * 1.0\ny.fill(2.0)\nreturn np.sum(y * x)", True),
    "put": Variant("y = x * 1.0\nnp.put(y, [0, 4], [7.0, 8.0])\nreturn np.sum(y * x)", True),
    "put, the method": Variant("y = x * 1.0\ny.put([0, 4], [7.0, 8.0])\nreturn np.sum(y * x)", True),
    "fill_diagonal": Variant("y = x * 1.0\nnp.fill_diagonal(y, 2.0)\nreturn np.sum(y * x)", True),
    "copyto": Variant("y = x * 1.0\nnp.copyto(y, x[0])\nreturn np.sum(y * x)", True),
    "copyto where": Variant("y = x * 1.0\nnp.copyto(y, 7.0, where=x > 0)\nreturn np.sum(y * x)", True),
    "copyto an array of NumPy's": Variant("y = np.ones((3, 3))\nnp.copyto(y, x[0])\nreturn np.sum(y * x)", True),
    "place": Variant("y = x * 1.0\nnp.place(y, np.eye(3) > 0, [7.0])\nreturn np.sum(y * x)", True),
    "putmask": Variant("y = x * 1.0\nnp.putmask(y, x > 0, x * x)\nreturn np.sum(y * x)", True),
    "put_along_axis": Variant("y = x * 1.0\nnp.put_along_axis(y, np.array([[0], [1], [2]]), 9.0, 1)\n"
                              "return np.sum(y * x)", True),
    "nan_to_num": Variant("y = np.log(np.abs(x)) * np.nan\nnp.nan_to_num(y, copy=False, nan=2.0)\nreturn np.sum(y * x)",
                          True),
    "out of a ufunc": Variant("y = x * 1.0\nnp.multiply(y, 2.0, out=y)\nreturn np.sum(y * x)", True),
    "out of a ufunc in NumPy's array": Variant("y = np.empty((3, 3))\nnp.sin(x, out=y)\nreturn np.sum(y * x)", True),
    "out of a function": Variant("y = x * 1.0\nnp.cumsum(x, axis=0, out=y)\nreturn np.sum(y * x)", True),
    "add.at": Variant("y = x * 1.0\nnp.add.at(y, [0, 0, 1], 2.0)\nreturn np.sum(y * x)", True),
    "maximum.at": Variant("y = x * 1.0\nnp.maximum.at(y, [0, 1], 0.5)\nreturn np.sum(y * x)", True),
    "add.at of NumPy's array": Variant("y = np.zeros(3)\nnp.add.at(y, [0, 0, 1], x[0])\nreturn np.sum(y * x)", True),
    "element of NumPy's array": Variant("y = np.zeros(3)\ny[1] = x[0, 0] * 2.0\nreturn np.sum(y * x)", True),
    "row of NumPy's array": Variant("y = np.zeros((3, 3))\ny[1] = x[0] * 2.0\nreturn np.sum(y * x)", True),
    "row of NumPy's array, increased": Variant("y = np.ones((3, 3))\ny[1] += x[0] * 2.0\nreturn np.sum(y * x)", True),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variant(name: str) -> None:
    variant = VARIANTS[name]
    function = compiled(variant.body.split("\n"))
    expected = function(X.copy())
    if not variant.refused:
        for _ in range(3):  # recorded, replayed, and in generated code
            value, slope = value_and_grad(function)(X)
            np.testing.assert_allclose(value, expected, rtol=1e-12)
        step = 1e-6 * np.cos(np.arange(9.0)).reshape(3, 3)
        difference = (function(X + step) - function(X - step)) / 2
        np.testing.assert_allclose(np.sum(slope * step), difference, rtol=5e-7, atol=5e-14)
        return
    for _ in range(2):
        with pytest.raises(REFUSALS):
            grad(function)(X)
    value = cured(variant.body, lambda function: value_and_grad(function)(X)[0])
    if not variant.aliased:
        np.testing.assert_allclose(value, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["fresh", "all operators", "copy", "in a loop", "scalars", "row", "second name",
                                  "argument", "array under zip", "array after its iteration", "element as an array",
                                  "conjugate of a real array", "astype without a copy",
                                  "named row", "sort", "put", "element of NumPy's array"])
def test_jit_and_vmap(name: str) -> None:
    variant = VARIANTS[name]
    function = compiled(variant.body.split("\n"))
    expected = function(X.copy())
    for run in (lambda f: jit(f)(X), lambda f: vmap(f)(X[None])[0], lambda f: vmap(grad(f))(X[None])[0]):
        if variant.refused:
            with pytest.raises(REFUSALS):
                run(function)
        value = cured(variant.body, run)
        if np.ndim(value) == 0 and not variant.aliased:
            np.testing.assert_allclose(value, expected, rtol=1e-12)


def test_an_argument_that_is_a_number_is_rebound() -> None:
    def function(x):
        x += 1.0
        x *= x
        return x
    assert float(grad(function)(2.0)) == 6.0
    assert float(vmap(function)(np.array([2.0]))[0]) == 9.0
    with pytest.raises(MutationError, match="belongs to the caller"):
        grad(function)(np.array(2.0))


def test_bodies_of_loops_own_their_carry() -> None:
    def body(carry, x):
        carry += x
        return carry, None
    total, _ = fxgrad.lax.scan(body, np.zeros(3), X)
    np.testing.assert_allclose(total, X.sum(0), rtol=1e-12)


def test_the_dtype_and_the_shape_stay() -> None:
    def widened(x):
        y = x * np.float32(1)
        y += np.ones(3)
        assert y.dtype == np.float32
        return np.sum(y)
    assert grad(widened)(np.ones(3, np.float32)).dtype == np.float32

    def integer(x):
        y = np.argsort(x) + 0
        y += x
        return np.sum(y)
    with pytest.raises(DTypeError, match=r"cannot change in place. Write x = x \+ y"):
        grad(integer)(np.ones(3))

    def grown(x):
        y = x * 1.0
        y += np.ones((2, 3))
        return np.sum(y)
    with pytest.raises(ShapeError, match=r"cannot change in place. Write x = x \+ y"):
        grad(grown)(np.ones(3))


def test_operators_as_functions() -> None:
    def function(x):
        return np.sum(operator.iadd(x * 1.0, 2.0))
    np.testing.assert_array_equal(grad(function)(np.ones(3)), np.ones(3))
    with pytest.raises(MutationError, match=r"x \+= y would change .* Write x = x \+ y"):
        grad(lambda x: np.sum(operator.iadd(x, 2.0)))(np.ones(3))


def test_shuffling() -> None:
    def function(x):
        y = x * 1.0
        np.random.default_rng(0).shuffle(y)
        return np.sum(y * x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(MutationError, match=r"Write y = y\[np.random.permutation\(len\(y\)\)\]"):
            grad(function)(np.ones(3))


def test_sort_with_its_result_used_is_a_copy() -> None:
    np.testing.assert_array_equal(grad(lambda x: np.sum(x.sort()[:1]))(np.array([2.0, 1.0])), [0.0, 1.0])


NUMBERS = {
    "sum": "data.sum()", "np.sum": "np.sum(data)", "mean": "np.mean(data)", "minus": "-data.sum()",
    "product": "data @ data", "ufunc": "np.sqrt(data.max())", "power": "data.sum() ** 2", "absolute": "abs(data.min())",
    "rounded": "round(data.sum(), 1)", "reduce": "np.add.reduce(data)", "nanmean": "np.nanmean(data)",
    "median": "np.median(data)", "clip": "np.clip(data.sum(), 0, 1)", "astype": "data.sum().astype('float64')",
    "element": "data[0]", "of a part": "data[1:].sum() * 2", "count": "np.sum(data > 0)", "argmax": "np.argmax(data)",
}


def differing_from_numpy(lines: str, names: Iterable[str]) -> list[Any]:
    """Return the cases in which `lines` of a number `s` that is computed from an argument give another result."""
    data, wrong = np.array([0.5, -0.2, 0.1]), []
    for name in names:
        scope: dict[str, Any] = {"np": np}
        exec(f"def f(w, data):\n    s = {NUMBERS[name]}\n    {lines}", scope)
        f = scope["f"]
        expected = f(1.5, data)
        for way, found in {"grad": value_and_grad(f)(1.5, data)[0],
                           "vmap": vmap(f, (0, None))(np.array([1.5]), data)[0],
                           "Array": f(1.5, fxgrad.numpy.asarray(data))}.items():
            if not np.allclose(found, expected, rtol=1e-6):
                wrong.append((name, way, found, expected))
    return wrong


@pytest.mark.parametrize("change", ["s += 1.0", "s *= w", "s /= 2", "s -= data[1]", "s **= 2"])
def test_numbers_computed_from_data_are_rebound_as_numpys_scalars(change: str) -> None:
    """Arguments that are neither differentiated nor mapped are arrays, and so are numbers computed from them."""
    assert not differing_from_numpy(
        f"old, kept = s, [s]\n    {change}\n    return (s + 2 * old - kept[0]) * w", NUMBERS)


VIEWS = ["np.atleast_1d(s)", "np.atleast_2d(s)", "np.reshape(s, (1,))", "s.reshape(1)", "np.ravel(s)", "s.ravel()",
         "np.expand_dims(s, 0)", "s[None]", "s[np.newaxis, ...]"]


@pytest.mark.parametrize("view", VIEWS)
def test_changes_of_arrays_made_of_numbers_from_data_leave_the_numbers(view: str) -> None:
    assert not differing_from_numpy(  # NumPy's integers take no fractions in place
        f"a = {view}\n    a += 1.0\n    return (s + 2 * a.sum()) * w", NUMBERS.keys() - {"count", "argmax"})


def test_arrays_of_callers_change_as_in_numpy_and_numbers_are_keys() -> None:
    def f(w, number, row):
        number += 1.0
        view = row[0, ...]
        view += 1.0
        return {row.sum(): w}[row.sum()] * number * row[0]

    def called(function):
        number, row = np.array(2.0), np.array([3.0, 4.0])
        return function(1.5, number, row), number, row

    (value, slope), *changed = called(value_and_grad(f))
    expected, *others = called(f)
    assert value == expected
    assert slope == 12.0
    for one, other in zip(changed, others, strict=True):
        np.testing.assert_array_equal(one, other)


def test_sequences_times_an_integer_from_data_are_repeated() -> None:
    sizes = np.array([2, 3])
    bodies = [lambda n: [1.0, 2.0] * n[0], lambda n: n[0] * (1.0,), lambda n: "ab" * n[0], lambda n: b"a" * n.sum(),
              lambda n: [[None] * n[0] for _ in range(n[1])], lambda n: [0] * -n[0], lambda n: n * [1.0, 2.0],
              lambda n: [1, 2] * n, lambda n: n[0, ...] * [1.0, 2.0]]
    for body in bodies:
        for way in (lambda f: grad(f)(1.0, sizes), lambda f: vmap(f, (0, None))(np.ones(1), sizes)):
            made = []

            def f(w, n, body=body, made=made):
                made.append(body(n))
                return w * 1.0

            way(f)
            expected = body(sizes)
            assert np.shape(made[0]) == np.shape(expected)
            assert np.all(made[0] == expected) if isinstance(expected, np.ndarray) else made[0] == expected


FILLED = {
    "second name": "y = np.zeros_like(x)\nz = y\ny += 1.0\nreturn np.sum(x * z)",
    "row": "y = np.zeros_like(x)\nrow = y[0]\nrow += 1.0\nreturn np.sum(x * y)",
    "rows of a loop": "y = np.ones_like(x)\nfor row in y:\n    row *= 2.0\nreturn np.sum(x * y)",
    "element": "y = np.full_like(x, 2.0)\ny[0, 1] = 5.0\ny.T[0] += 1.0\nreturn np.sum(x * y)",
    "result of an operator": "y = np.ones_like(x) * 3\nz = y.ravel()\nz += 1\nreturn np.sum(x * y)",
    "sum of traced arrays": "y = np.zeros_like(x)\nfor _ in range(3):\n    y += x\n    y *= x\nreturn np.sum(y)",
    "sum in an item": "d = {'y': np.zeros_like(x)}\nd['y'] += x\nd['y'] -= x * x\nreturn np.sum(d['y'])",
}


@pytest.mark.parametrize("name", FILLED)
def test_arrays_that_numpy_makes_like_traced_ones_change_as_in_numpy(name: str) -> None:
    scope: dict[str, Any] = {"np": np}
    exec("def f(x):\n    " + FILLED[name].replace("\n", "\n    "), scope)
    f = scope["f"]
    assert np.isclose(value_and_grad(f)(X)[0], f(X))
    assert np.isclose(vmap(f)(X[None])[0], f(X))


def test_sums_of_traced_values_in_known_arrays_have_their_dtype_and_are_refused_if_others_see_them() -> None:
    def summed(w: Any, data: Any, shared: bool = False) -> Any:
        y = np.zeros_like(data)
        held = [y] if shared else []
        y += w * data.astype("float64")
        return np.sum(y) + len(held), y.dtype == data.dtype

    data = np.float32([0.5, 1.5])
    slope, same = grad(summed, has_aux=True)(2.0, data.view(fxgrad.Array))
    assert slope == 2.0
    assert same
    with pytest.raises(MutationError):
        grad(lambda w, x: summed(w, x, True)[0])(2.0, data.view(fxgrad.Array))
    with pytest.raises(MutationError):
        grad(lambda w, x: np.sum(operator.iadd(x, w)))(2.0, np.ones(2))
