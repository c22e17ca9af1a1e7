"""Library functions give results of the same dtype, weakness and shape un-jitted as in a traced function."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import image, lax, nn, scipy
from fxgrad.errors import ConcretizationError, DTypeError, MutationError, UnsupportedError
from tests.support.ids import name_of

_MASK = np.array([True, False, True])
_MATRIX = np.eye(3) * 3 + 0.5
_NUMBERS: dict[str, Any] = {"0.25": 0.25, "2": 2, "True": True, "1j": 1j, "np.float64": np.float64(0.25)}
_STRONG_NUMBERS: dict[str, Any] = {"np.float32": np.float32(0.25), "np.int64": np.int64(2), "np.int32": np.int32(2)}
_WEAK: dict[str, Any] = {
    "weak floats": fnp.where(_MASK, 0.25, 0.75), "weak matrix": fnp.where(np.eye(3) > 0, 3.25, 0.5),
    "weak integers": fnp.where(_MASK, 2, 1)}
_ARRAYS: dict[str, Any] = {
    "float32": np.array([0.2, 0.5, 0.9], np.float32), "float64": np.array([0.2, 0.5, 0.9]),
    "bfloat16": np.array([0.2, 0.5, 0.9], ml_dtypes.bfloat16), "int8": np.array([2, 0, 1], np.int8),
    "int32": np.array([2, 0, 1], np.int32), "uint8": np.array([2, 0, 1], np.uint8), "bool": _MASK,
    "complex64": np.array([1j, 2, 3], np.complex64), "scalar": np.asarray(0.25),
    "float32 matrix": _MATRIX.astype(np.float32), "float64 matrix": _MATRIX,
    "complex matrix": _MATRIX.astype(np.complex64)}
KINDS: dict[str, Any] = {**_NUMBERS, **_STRONG_NUMBERS, **_WEAK, **_ARRAYS}

_DISTRIBUTIONS = {f"scipy.stats.{name}": getattr(scipy.stats, name) for name in dir(scipy.stats)
                  if any(hasattr(getattr(scipy.stats, name), each) for each in ("logpdf", "logpmf"))}
MODULES: dict[str, Any] = {
    "numpy": fnp, "numpy.linalg": fnp.linalg, "numpy.fft": fnp.fft, "lax": lax, "lax.linalg": lax.linalg, "nn": nn,
    "scipy.special": scipy.special, "scipy.linalg": scipy.linalg, "scipy.signal": scipy.signal,
    "scipy.fft": scipy.fft, "scipy.ndimage": scipy.ndimage, "scipy.integrate": scipy.integrate,
    "scipy.interpolate": scipy.interpolate, "scipy.stats": scipy.stats, "image": image, **_DISTRIBUTIONS}

MAKERS = frozenset({"append", "array", "asarray", "block", "broadcast_arrays", "copy", "full", "meshgrid"})
"""Functions that make arrays of the default width of Python's numbers, and keep all digits of traced ones."""
SPACED = frozenset({"linspace", "logspace", "geomspace"})
"""Functions that take NumPy's float64 scalars as doubles; traced ones are Python's numbers."""
POWERS = frozenset({"power", "pow"})
"""Functions for which a known integer exponent is a setting, whatever its dtype, as in jax."""
NO_ARRAYS = ("save", "load", "from", "set_print", "print", "array_repr", "array_str", "array2string")
SAME_OPERAND = frozenset({"csd"})
"""Functions that compute something else of one object given twice."""


def differs_as_documented(name: str, kinds: Sequence[str]) -> bool:
    """Return whether a call is one for which the page on dtypes states two results."""
    if name in MAKERS:
        return not _NUMBERS.keys().isdisjoint(kinds)
    if name == "ppf" and "1j" in kinds:
        return True  # a complex probability
    if name in POWERS:
        return not {"np.int64", "np.int32"}.isdisjoint(kinds[1:])
    return (name in SPACED and "np.float64" in kinds) or (name in SAME_OPERAND and len({*kinds}) < len(kinds))


def types_of(results: Any) -> list[str]:
    """Return the types of the arrays and numbers in a container."""
    return [str(fxgrad.typeof(leaf)) for leaf in fxgrad.tree.leaves(results)
            if hasattr(leaf, "dtype") or isinstance(leaf, int | float | complex)]


def disagreements(function: Callable[..., Any], name: str, calls: Sequence[Sequence[str]]) -> list[str]:
    """Return the calls, by the kinds of their arguments, whose results have other types un-jitted than traced."""
    found = []
    for kinds in calls:
        if differs_as_documented(name, kinds):
            continue
        args = [KINDS[kind] for kind in kinds]
        seen: list[Any] = []
        plain: Any
        try:
            plain = types_of(function(*args))
        except DTypeError:
            plain = DTypeError
        except Exception:  # noqa: BLE001  (arguments that this function does not take)
            continue

        def traced(*args: Any, seen: list[Any] = seen) -> int:
            seen.append(types_of(function(*args)))
            return 0

        try:
            fxgrad.make_program(traced)(*args)
        except DTypeError:
            seen.append(DTypeError)
        except (ConcretizationError, Exception):  # noqa: BLE001  (an argument of which it needs the value)
            continue
        if plain != seen[-1]:
            found.append(f"{name}({', '.join(kinds)}): un-jitted {plain}, traced {seen[-1]}")
    return found


def functions_of(module: Any) -> dict[str, Callable[..., Any]]:
    """Return the public functions of a module, or of a distribution, by name."""
    names = getattr(module, "__all__", None) or getattr(module, "functions", None) or dir(module)
    return {name: getattr(module, name) for name in names
            if callable(getattr(module, name)) and not isinstance(getattr(module, name), type)
            and not name.startswith(("_", *NO_ARRAYS)) and name.islower()}


ONE = [(kind,) for kind in KINDS]
TWO = [*itertools.product(KINDS, KINDS)]
THREE = [kinds for kinds in itertools.product(
    ["0.25", "2", "np.float64", "np.float32", "weak floats", "weak integers", "float32", "int32", "bool", "bfloat16"],
    repeat=3) if not {*kinds} <= {*_NUMBERS, *_STRONG_NUMBERS}]
FEW: list[tuple[str, ...]] = [
    ("np.int64",), ("weak integers",), ("weak matrix",), ("float64",), ("complex64",), ("0.25", "np.int64"),
    ("True", "weak integers"), ("2", "float64"), ("np.float64", "weak floats"), ("np.int64", "float32")]


@pytest.mark.parametrize("module", ["numpy", "nn"])
def test_types_agree(module: str) -> None:
    assert all_disagreements(module, FEW) == []


def all_disagreements(module: str, calls: Sequence[Sequence[str]]) -> list[str]:
    """Return the disagreements of all functions of a module."""
    return [each for name, function in sorted(functions_of(MODULES[module]).items())
            for each in disagreements(function, name, calls)]


@pytest.mark.slow
@pytest.mark.usefixtures("frames_unread")
@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_types_agree_for_most_kinds(module: str) -> None:
    assert all_disagreements(module, [*ONE, *TWO[::7], *THREE[::60]]) == []


@pytest.mark.long
@pytest.mark.usefixtures("frames_unread")
@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_types_agree_for_all_kinds(module: str) -> None:
    assert all_disagreements(module, [*ONE, *TWO, *THREE[::5]]) == []


_METHODS: dict[str, Sequence[tuple[Any, ...]]] = {
    **dict.fromkeys(("all", "any", "max", "min", "mean", "prod", "sum", "std", "var", "ptp", "argmax", "argmin",
                     "cumsum", "cumprod"), ((), (0,))),
    **dict.fromkeys(("round", "nonzero", "conj", "ravel", "flatten", "squeeze", "transpose", "copy", "diagonal",
                     "trace", "argsort", "byteswap"), ((),)),
    "clip": [(0, 1), (0.1, 0.7), (None, 0.5), (np.float64(0.1), np.float64(0.6)), (np.int32(0), np.int32(1)),
             (np.float32([0.1, 0.1, 0.1]), 1)],
    "take": [(0,), ([0],)], "repeat": [(2,)], "searchsorted": [(0.3,), ([0.3],)], "argpartition": [(1,)],
    "dot": [(2.0,), (2,), (np.float32([1, 2, 3]),), ([1.0, 2, 3],)], "compress": [([True, False, True], 0)],
    "choose": [([1.0, 2, 3],), ([_ARRAYS["float32"]] * 3,)],
    "astype": [("float32",), ("int8",), (float,), (int,), (bool,)],
    **{f"__{name}__": [()] for name in ("abs", "neg", "pos", "invert")}}
"""Methods of arrays with their arguments."""
_DTYPES = ["float32", "float64", "int32", float, int]


def method_disagreements(kinds: Sequence[str]) -> list[str]:
    """Return the methods of arrays that give other types un-jitted than traced."""
    calls = {f"x.{name}{args}": lambda x, name=name, args=args: getattr(fnp.asarray(x), name)(*args)
             for name, all_args in _METHODS.items() for args in all_args}
    calls |= {f"x.{name}(dtype={dtype})": lambda x, name=name, dtype=dtype: getattr(fnp.asarray(x), name)(dtype=dtype)
              for name in ("mean", "prod", "sum", "std", "var", "cumsum") for dtype in _DTYPES}
    calls |= {f"x.{name}": lambda x, name=name: getattr(fnp.asarray(x), name) for name in ("T", "mT", "real", "imag")}
    calls |= {"x.astype(float, copy=False)": lambda x: fnp.asarray(x).astype(float, copy=False)}
    return [each for name, call in calls.items() for each in disagreements(call, name, [(kind,) for kind in kinds])]


def test_types_of_methods_agree() -> None:
    assert method_disagreements(["int8", "weak integers", "weak matrix", "bool"]) == []


@pytest.mark.slow
def test_types_of_methods_agree_for_all_kinds() -> None:
    assert method_disagreements([*_WEAK, *_ARRAYS]) == []


def test_digits_of_methods_of_half_precision() -> None:
    """NumPy's methods add up in bfloat16 itself: the sum of 3000 numbers was 512."""
    x, half = fnp.full(3000, 1.01, "bfloat16"), fnp.full(70000, 1.01, "float16")
    for call in (lambda x: x.sum(), lambda x: x.mean(), lambda x: x.std(), lambda x: x.cumsum(), np.sum, np.mean):
        np.testing.assert_array_equal(call(x), fxgrad.jit(call)(x))
    assert float(x.sum()) == 3024
    assert half.std() == 0


def test_results_of_methods_can_be_written_to() -> None:
    """NumPy's `nanmean` writes to a sum."""
    x = fnp.asarray([1.0, np.nan, 3.0])
    assert np.nanmean(x) == 2
    running = x.cumsum()
    running[1] = 0.0
    assert running[1] == 0
    assert x.round() is not x


def test_elements_in_order_by_flat() -> None:
    """Traced arrays had no `flat`."""
    np.testing.assert_array_equal(fxgrad.grad(lambda x: sum(v * v for v in x.flat) + x.flat[2])(_MATRIX)[0],
                                  [7, 1, 2])

    def write(x: Any) -> Any:
        x.flat[0] = 1.0
        return x.sum()

    with pytest.raises(MutationError, match=re.escape(
            "x.flat[0] = 1.0 on a traced array (f64[9]): traced arrays cannot change. Write x = "
            "x.ravel().at[0].set(1.0).reshape(x.shape)")):
        fxgrad.grad(write)(_MATRIX)


def test_disagreements_are_found() -> None:
    def of_values(x: Any) -> Any:
        return x if type(x) is fxgrad.extend.Tracer else np.float32(x)

    def only_traced(x: Any) -> Any:
        return lax.add(x, fnp.ones(3, "int8")) if type(x) is fxgrad.extend.Tracer else x

    assert disagreements(of_values, "f", [("0.25",)]) == ["f(0.25): un-jitted ['float32[]'], traced ['~float64[]']"]
    assert disagreements(only_traced, "g", [("float32",)]) == [
        f"g(float32): un-jitted ['float32[3]'], traced {DTypeError}"]


def test_a_bool_beside_traced_numbers_keeps_them() -> None:
    """They became bools: `[True, True]`."""
    for call in (lambda k: fnp.stack([True, k]), lambda k: fnp.array([True, k]), lambda k: fnp.append(True, k),
                 lambda k: fnp.concatenate([[True], fnp.stack([k])])):
        for wrapped in (call, fxgrad.jit(call)):
            assert fnp.asarray(wrapped(2)).tolist() == [1, 2]
            assert fnp.asarray(wrapped(2.5)).tolist() == [1, 2.5]
    assert fnp.append(True, KINDS["weak integers"]).tolist() == [1, 2, 1, 2]


def test_strong_scalars_of_64_bits_widen() -> None:
    """NumPy's scalars of float64 give way to float32, so functions of int64 scalars return arrays."""
    narrow = np.ones(2, np.float32)
    for call in (lambda n, x: fnp.multiply(x, fnp.sqrt(n)), lambda n, x: fnp.add(x, fnp.divide(n, 3))):
        assert call(np.int64(2), narrow).dtype == fxgrad.jit(call)(np.int64(2), narrow).dtype == np.float64
    assert not fxgrad.typeof(lax.convert_element_type(0.25, "float64")).weak_type


def test_numpys_scalars_on_the_left_of_weak_arrays() -> None:
    weak, number, narrow = KINDS["weak floats"], np.float64(2), np.ones(3, np.float32)
    for result in (number * weak, number - weak, number / weak, number ** weak, number + weak, number % weak):
        assert fxgrad.typeof(result).weak_type
        assert (narrow * result).dtype == np.float32
    assert fxgrad.typeof(number < weak).dtype == np.bool_
    assert not fxgrad.typeof(np.sin(weak)).weak_type


def test_several_shifts_without_an_axis_add_up() -> None:
    """Traced, each element took its own shift."""
    x = np.arange(5.0)
    for shift in ([1, 2], np.array([1, 2]), np.array([3]), np.asarray(3), np.array([1, 1, 1, 2, 3])):
        moves = fxgrad.jit(fnp.roll)(x, shift), fxgrad.jit(lambda x, shift=shift: fnp.roll(x, shift))(x)
        for moved in (fnp.roll(x, shift), *moves):
            np.testing.assert_array_equal(moved, np.roll(x, np.sum(shift)))


def test_widths_and_weights_that_numpy_takes() -> None:
    np.testing.assert_array_equal(fnp.pad(np.ones(2), np.asarray(1)), [0, 1, 1, 0])
    for call in (fnp.bincount, fxgrad.jit(lambda x, w: fnp.bincount(x, w, length=3))):
        found = call(np.array([1, 1, 2]), np.array([True, True, False]))
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, [0, 2, 0])


def test_numpys_scalars_on_the_left_of_arrays_promote_as_traced_ones() -> None:
    """`divmod` had returned both results twice."""
    for number in (np.float64(7), np.float32(7), np.int64(7), np.int32(7)):
        for kind in ("weak floats", "weak integers", "float32", "int8", "int32", "float64"):
            array = fnp.asarray(KINDS[kind])
            for call in (lambda a, b: a + b, lambda a, b: a / (b + 1), lambda a, b: divmod(a, b + 1)):
                traced = fxgrad.tree.leaves(fxgrad.eval_shape(call, number, array))
                assert types_of(call(number, array)) == [
                    str(fxgrad.typeof(leaf)) for leaf in traced]
            quotient, rest = divmod(number, array + 1)
            np.testing.assert_allclose(quotient * (array + 1) + rest, np.full(3, 7.0), rtol=1e-6)


@pytest.mark.filterwarnings("error")
def test_numpys_scalars_on_the_left_of_small_floats_are_refused_like_those_on_the_right() -> None:
    """NumPy swallowed the refusal, warned of a deprecation and returned float32."""
    small = fnp.asarray(np.ones(3, ml_dtypes.float8_e4m3fn))
    message = re.escape("float32 and float8_e4m3fn do not promote: floats of 8 bits and less promote with integers "
                        "and Python's floats alone")
    for call in (lambda a: np.float32(2) * a, lambda a: np.maximum(np.float32(2), a)):
        with pytest.raises(UnsupportedError, match=message):
            call(small)
        with pytest.raises(DTypeError, match=message):
            fxgrad.jit(call)(small)


def test_comparisons_with_float64_scalars_on_the_left_are_of_64_bits() -> None:
    """NumPy passes its scalar on as an array of shape ()."""
    x = fnp.asarray(np.float32([0.1]))
    for wrap in (lambda f: f, fxgrad.jit):
        assert wrap(lambda x: np.float64(0.1) < x)(x)
        assert not wrap(lambda x: x > np.float64(0.1))(x)


def test_numbers_taken_from_arrays_are_strong() -> None:
    matrix = fnp.asarray(_MATRIX)
    for number in (matrix.trace(), matrix.take(0), matrix.sum(), matrix[0, 0]):
        assert not fxgrad.typeof(number).weak_type
    for weak in (KINDS["weak matrix"].trace(), KINDS["weak matrix"].imag, KINDS["weak matrix"].real):
        assert fxgrad.typeof(weak).weak_type


def test_additions_to_bools_are_refused() -> None:
    message = re.escape("scatter_add: not defined for bool; it takes numeric dtypes. Write 1 * x for the numbers 0 and "
                        "1, or ^ and ~ for logic")
    for call in (lambda x: fnp.at(x)[0].add(True), fxgrad.jit(lambda x: fnp.at(x)[0].add(True))):
        with pytest.raises(DTypeError, match=message):
            call(_MASK)
