"""Python's protocols on arrays, weak arrays, computed ints and traced arrays: NumPy's results, or a refusal."""

from __future__ import annotations

import copy
import enum
import math
import numbers
import operator
import pickle
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import jit
from fxgrad.engine.core.arrays import WeakArray
from fxgrad.errors import ArgumentError


class Two(enum.IntEnum):
    TWO = 2


class Whole(int):
    """A class derived from Python's ints."""


class Real(float):
    """A class derived from Python's floats."""


NUMBERS: dict[Any, Any] = {Two.TWO: 2, Whole(2): 2, Real(1.5): 1.5}
"""Numbers of derived classes, each with the plain one."""

VALUES = [np.array(2.5, np.float32), np.array(2.5), np.array(3, np.int32), np.array(3), np.array(True),
          np.array(1 + 2j), np.array([1.0, 2.0, 3.0]), np.array([1, 2, 3]), np.array([True, False]),
          np.array([[2.5, 1.5]], np.float32)]

OPERATORS = [getattr(operator, name) for name in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift", "eq",
    "ne", "lt", "le", "gt", "ge")] + [divmod]


def taken(function: Callable[..., Any], *args: Any) -> Any:
    """Dtypes, shapes and elements of the result, or the class of the error."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            result = function(*args)
        except (TypeError, ValueError) as error:
            return type(error).__name__
    results = result if isinstance(result, tuple) else (result,)
    return [(type(each), np.asarray(each).dtype, np.shape(each), np.asarray(each).tolist()) for each in results]


@pytest.mark.parametrize("values", [VALUES[4:9:2], pytest.param(VALUES, marks=pytest.mark.slow)], ids=["some", "all"])
def test_numbers_of_derived_classes_are_the_numbers_that_they_are(values: list[Any]) -> None:
    """Un-jitted and traced, on either side of every operator."""
    count, wrong = 0, []
    for x in values:
        for number, plain in NUMBERS.items():
            for of in OPERATORS:
                for name, call in {"x, n": lambda x, n, of=of: of(x, n), "n, x": lambda x, n, of=of: of(n, x)}.items():
                    for where, run in {
                        "un-jitted": lambda n, call=call, x=x: call(fnp.asarray(x), n),
                        "traced": lambda n, call=call, x=x: fxgrad.make_program(lambda x: call(x, n))(x)(x),
                    }.items():
                        count += 1
                        found, expected = taken(run, number), taken(run, plain)
                        if str(found) != str(expected):
                            wrong.append(f"{where} {of.__name__}({name}), {x!r}, {number!r}: {found}, not {expected}")
    assert not wrong, "\n".join(wrong)
    assert count == len(values) * len(NUMBERS) * len(OPERATORS) * 4


def test_arrays_of_objects_are_not_made() -> None:
    for x in (fnp.asarray(2.5), fnp.zeros(0), fnp.arange(1, 4), fnp.where(np.array([True, False]), 0.1, 1.0)):
        for other in (Fraction(1, 2), None, object()):
            for of in OPERATORS[:7]:
                if isinstance(other, Fraction) and of is operator.pow:
                    continue  # a Fraction makes a float of itself there
                for call in (lambda x, y, of=of: of(x, y), lambda x, y, of=of: of(y, x)):
                    with pytest.raises(TypeError):
                        call(x, other)
                    with pytest.raises((TypeError, ArgumentError)):
                        jit(lambda x, call=call, other=other: call(x, other))(x)


def unchanged() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """What makes arrays of arrays and changes no dtype, so that what gave way gives way still."""
    yield from {
        "copy": copy.copy, "deepcopy": copy.deepcopy, "deepcopy of a list": lambda x: copy.deepcopy([x])[0],
        "x.copy": lambda x: x.copy(), "+": operator.pos, "-": operator.neg, "abs": abs, "[:]": lambda x: x[:],
        "[...]": lambda x: x[...], "[::-1]": lambda x: x[::-1], "T": lambda x: x.T, "round": lambda x: round(x, 1),
        "x.round": lambda x: x.round(1), "reshape": lambda x: x.reshape(2, 1), "divmod": lambda x: divmod(x, 2)[0],
    }.items()


def test_weakness_outlives_copies_and_roundings() -> None:
    weak, narrow = fnp.where(np.array([True, False]), 0.1, 1.0), np.float32([1.0])
    assert type(weak) is WeakArray
    for name, function in unchanged():
        for found in (function(weak), jit(function)(weak)):
            assert (type(found), (narrow * found).dtype) == (WeakArray, np.float32), name
            np.testing.assert_array_equal(found, function(fnp.asarray(np.array([0.1, 1.0]))))
    assert type(pickle.loads(pickle.dumps(weak))) is WeakArray
    changed = copy.copy(weak)
    changed[0] = 5.0
    assert weak.tolist() == [0.1, 1.0]


def test_rounding_of_scalars_gives_ints() -> None:
    for x in (2.5, -0.5, np.float32(3.5), np.float64(1e6 + 0.7), np.int32(7), np.array(-2.5)):
        traced, at_once = jit(round)(x), round(fnp.asarray(x))
        assert traced == at_once == round(float(x))
        assert isinstance(traced, int)
        assert (fnp.ones(1, np.int32) * traced).dtype == (fnp.ones(1, np.int32) * at_once).dtype == np.int32
        assert jit(lambda x: round(x, 0))(np.asarray(x)).dtype == round(fnp.asarray(np.asarray(x)), 0).dtype
    assert fxgrad.grad(lambda x: x * round(x))(2.7) == 3.0


def test_computed_ints_are_ints() -> None:
    count = jit(lambda n: n + 1)(2)
    assert [copy.copy(count), copy.deepcopy(count), pickle.loads(pickle.dumps(count)), round(count), count.real,
            math.floor(count), operator.index(count), *range(3, count + 1)] == [3] * 8
    assert isinstance(count, numbers.Integral)
    assert (f"{count:03d}", divmod(count, 2), round(count, -1), "abcd"[count], hash(count)) == (
        "003", (1, 1), 0, "d", hash(3))


A, B = np.array([[1.5, 0.1, 3.0], [2.0, 0.7, -1.0]]), np.array([0.0, 2.0, 0.3])
FILLED: dict[str, Callable[[Any, Any], Any]] = {
    "divide": lambda a, b: np.divide(a, b, out=np.zeros_like(a), where=b != 0),
    "number": lambda a, b: np.divide(1.0, b, out=np.full(3, 0.1), where=b != 0),
    "known mask": lambda a, b: np.power(a, 0.5, out=np.zeros((2, 3)), where=np.abs(A) == A),
    "arccosh": lambda a, b: np.arccosh(a, out=a.copy(), where=a > 1),
    "arcsin": lambda a, b: np.arcsin(b, out=b.copy(), where=b < 1),
    "wider": lambda a, b: np.multiply(b, 2.0, out=np.ones((2, 3)), where=a > 0),
    "without a mask": lambda a, b: np.add(a, b, out=np.empty((2, 3))),
    "in a dtype": lambda a, b: np.reciprocal(b, out=np.zeros(3), where=b > 0, dtype=np.float64),
    "integers": lambda a, b: np.floor_divide(np.array([7, 8, 9]), (b > 0).astype(int), out=np.array([1, 2, 3]),
                                             where=b > 0),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", FILLED)
def test_a_ufunc_fills_an_array_that_the_call_makes(name: str, dtype: str) -> None:
    function = FILLED[name]
    a, b = A.astype(fxgrad.dtypes.canonical(dtype)), B.astype(fxgrad.dtypes.canonical(dtype))
    expected = function(a, b)
    for found in (jit(function)(a, b), fxgrad.vmap(function, in_axes=(0, None))(np.stack([a, a]), b)[1]):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float),
                                   rtol=4 * float(fxgrad.dtypes.finfo(dtype).eps))
    if dtype == "float64" and name != "integers":
        direction = np.cos(np.arange(6.0)).reshape(2, 3), np.array([0.0, 0.3, 0.4])
        ahead, behind = (function(*(x + step * d for x, d in zip((a, b), direction, strict=True))) for step in (
            1e-6, -1e-6))
        for slope in (fxgrad.jvp(function, (a, b), direction)[1], jit(lambda *given: fxgrad.jvp(
                function, given, direction)[1])(a, b)):
            np.testing.assert_allclose(slope, (ahead - behind) / 2e-6, rtol=1e-6, atol=1e-8)
        by_a, by_b = fxgrad.grad(lambda *given: np.sum(function(*given)), argnums=(0, 1))(a, b)
        np.testing.assert_allclose(np.sum(by_a * direction[0]) + np.sum(by_b * direction[1]),
                                   np.sum(ahead - behind) / 2e-6, rtol=1e-6)
        assert np.all(np.isfinite(by_b))


def test_an_array_that_the_call_makes_must_hold_the_results() -> None:
    with pytest.raises(fxgrad.errors.DTypeError, match=(
            r"^np\.divide: the result is of dtype float64, and out of dtype int64, which cannot hold it\. Make out of "
            r"dtype float64\n")):
        fxgrad.grad(lambda a: np.sum(np.divide(a, 2.0, out=np.zeros((2, 3), np.int64))))(A)


def test_converted_functions_fill_arrays_that_have_names() -> None:
    def quotients(a: Any, b: Any) -> Any:
        out = np.zeros_like(a)
        np.divide(a, b, out=out, where=b != 0)
        np.sqrt(out, out=out, where=out > 0.1)
        out[0] += 3.0
        return out
    converted = fxgrad.python_control_flow(quotients)
    np.testing.assert_allclose(jit(converted)(A, B), quotients(A, B), rtol=1e-12)
    slope = jit(fxgrad.grad(lambda a: np.sum(converted(a, B))))(A)
    expected = (np.sum(quotients(A + 1e-6, B)) - np.sum(quotients(A - 1e-6, B))) / 2e-6
    np.testing.assert_allclose(np.sum(slope), expected, rtol=1e-6)
    assert np.all(slope[:, 0] == 0)


@pytest.mark.parametrize("function", [
    lambda x: np.nanstd(x, correction=1), lambda x: np.nanvar(x, axis=0, correction=0.5),
    lambda x: np.nanvar(x, ddof=1),
    lambda x: np.isin(x, [1.0, 2.0], kind="sort"), lambda x: np.clip(a=x, a_min=0.5, a_max=2),
    lambda x: np.clip(x, 1, a_max=2), lambda x: np.clip(x, min=1.5)])
def test_options_that_numpy_alone_has(function: Any) -> None:
    x = np.array([[3.0, 1.0], [2.0, np.nan], [0.5, 4.0]])
    np.testing.assert_allclose(fxgrad.jit(function)(x), function(x), rtol=1e-15)
    np.testing.assert_allclose(fxgrad.vmap(function)(x[None])[0], function(x), rtol=1e-15)


def test_two_names_of_one_option_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^nanvar: ddof and correction are one option; give one of them\n"):
        fxgrad.jit(lambda x: np.nanvar(x, ddof=1, correction=1))(np.ones(3))


WHOLE = np.array([[3, 1], [2, 5]])
TYPED: dict[str, Callable[[Any], Any]] = {
    "compared": lambda x: np.less(x, 2.1, dtype=bool), "asked": lambda x: np.isfinite(x, dtype=bool),
    "logical": lambda x: np.logical_and(x, 0.25, dtype=bool),
    "magnitude": lambda x: np.absolute(x * 1j, dtype=float), "single": lambda x: np.hypot(x, x.T, dtype=np.float32),
    "quotient": lambda x: np.divide(WHOLE, x.astype(int) + 1, dtype="f4"),
    "unsafe": lambda x: np.add(x, 0.7, dtype=int, casting="unsafe"),
    "outer": lambda x: np.subtract.outer(x, x[0], dtype=np.complex64),
    "reciprocal": lambda x: np.reciprocal(x, dtype=np.float32, order="C"),
    "modf": lambda x: np.modf(x, dtype=np.float32, casting="same_kind", subok=True),
    "matmul": lambda x: np.matmul(x, x, dtype=np.complex128, order="F"),
    "vecdot": lambda x: np.vecdot(x, x, axis=0, dtype=np.float32),
    "einsum": lambda x: np.einsum("ij,kj->ik", x, WHOLE, dtype=np.float32, casting="same_kind", order="C"),
    "einsum of lists": lambda x: np.einsum(x, [0, 1], x, [1, 2], [0, 2], dtype=np.complex128),
    "concatenate": lambda x: np.concatenate([x, WHOLE], dtype=int, casting="unsafe"),
    "stack": lambda x: np.stack([x, x], dtype=np.float32, casting="same_kind"),
    "no array": lambda x: (np.fft.fft(x, out=None), np.cumulative_sum(x, axis=1, out=None),
                           np.linalg.multi_dot([x, x, x], out=None)),
}


@pytest.mark.parametrize("name", TYPED)
def test_dtypes_that_a_call_chooses(name: str) -> None:
    """They are those of results: comparisons and magnitudes of wider operands do not lose them first."""
    function = TYPED[name]
    leaves = fxgrad.tree_util.tree_leaves
    for found, expected in zip(leaves(jit(function)(A[:, :2])), leaves(function(A[:, :2])), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=4 * float(np.finfo(np.float32).eps))


@pytest.mark.parametrize(("function", "text"), [
    (lambda x: np.add(x, 1.5, dtype=int), ("add: no results of dtype int64 are made of float64 and float64 with "
     "casting='same_kind'. Convert first, for example x.astype('int64')")),
    (lambda x: fnp.multiply(x * 1j, x, dtype=float), ("multiply: no results of dtype float64 are made of complex128 "
     "and float64 with casting='same_kind'. Convert first, for example x.astype('float64')")),
    (lambda x: np.add.outer(x, x, dtype=np.float32, casting="safe"), ("add: no results of dtype float32 are made of "
     "float64 and float64 with casting='safe'. Convert first, for example x.astype('float32')")),
    (lambda x: np.matmul(x, x, axes=[(1, 0), (0, 1), (0, 1)]),
     "np.matmul has no option axes; move the axes by np.moveaxis"),
    (lambda x: np.modf(x, signature="d->dd"), "np.modf has no option signature; it has dtype="),
    (lambda x: np.modf(x, where=x > 1), ("modf: where= is not supported, since other elements would stay undefined. "
     "Write where(condition, modf(...), other)")),
    (lambda x: np.einsum("ij->j", x, dtype=np.float32), ("np.einsum: casting='safe' allows no conversion of float64 to "
     "dtype=float32. Write x.astype('float32') for it, or casting='unsafe'")),
    (lambda x: np.hstack([WHOLE, x], dtype=int), ("np.hstack: casting='same_kind' allows no conversion of float64 to "
     "dtype=int64. Write x.astype('int64') for it, or casting='unsafe'"))])
def test_casts_that_numpy_forbids_are_refused(function: Any, text: str) -> None:
    with pytest.raises(fxgrad.errors.FxgradError) as error:
        jit(function)(A[:, :2])
    assert str(error.value).split("\n")[0] == text
