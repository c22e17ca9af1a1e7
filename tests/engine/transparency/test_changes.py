"""A replay is never stale: whatever changes between two calls, the gradient is that of running the function."""

from __future__ import annotations

import functools
import importlib
import linecache
import math
import sys
import threading
import warnings
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import fxgrad
import fxgrad.numpy as fnp
import fxgrad.scipy.special as fsp
from fxgrad.engine import config
from fxgrad.engine.transparency import replays
from tests.support import held

W = np.array([0.3, -0.7, 1.1])


@pytest.fixture(autouse=True)
def _unchecked(monkeypatch) -> None:
    """Calls are replayed at check level 0 alone."""
    monkeypatch.setattr(config, "check_level", 0)


def outcome(function, *args, **options) -> Any:
    """The gradient, or the class of the error."""
    try:
        return function(*args, **options)
    except Exception as error:  # noqa: BLE001
        return type(error)


def replayed(function, *args, **options) -> bool:
    """Whether a call was replayed."""
    before = replays.counts.replayed
    outcome(function, *args, **options)
    return replays.counts.replayed > before


def assert_equal(got: Any, expected: Any) -> None:
    """To the bit, and of one class."""
    if isinstance(expected, type) or isinstance(got, type):
        assert got is expected
        return
    assert type(got) is type(expected)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))
    np.testing.assert_array_equal(np.signbit(np.asarray(got)), np.signbit(np.asarray(expected)))


def plain(function) -> Any:
    """The gradient without replays."""
    return fxgrad.grad(lambda *args, **options: function(*args, **options))


def declared(function) -> Any:
    """The gradient of a function that is declared."""
    fxgrad.transparent(getattr(function, "__func__", function))
    return fxgrad.grad(function)


ARRAY = np.array([0.1, 0.2, -0.3])
CHANGED = {
    "in place": lambda: ARRAY, "another array": lambda: np.array([5.0, 6.0, 7.0]),
    "float32": lambda: ARRAY.astype("f4"), "integers": lambda: np.array([1, 2, 3]),
    "a scalar array": lambda: np.array(2.0), "a column": lambda: ARRAY[:, None], "one element": lambda: ARRAY[:1],
    "a list": lambda: [1.0, 2.0, 3.0], "a tuple": lambda: (1.0, 2.0, 3.0), "a float": lambda: 2.5, "an int": lambda: 2,
    "a bool": lambda: True, "None": lambda: None, "an Array": lambda: fnp.asarray(ARRAY),
    "jax": lambda: jnp.asarray(ARRAY.astype("f4")), "complex": lambda: ARRAY * 1j, "NaN": lambda: np.full(3, np.nan),
    "zeros": lambda: -np.zeros(3), "reversed": lambda: ARRAY[::-1], "a matrix": lambda: np.eye(3),
    "masked": lambda: np.ma.masked_array(ARRAY, [0, 1, 0]), "float16": lambda: ARRAY.astype("f2"),
    "a text": lambda: "text", "bools": lambda: ARRAY > 0.0, "byte order": lambda: ARRAY.astype(">f8"),
    "a subclass": lambda: ARRAY.view(Subclass), "read-only": lambda: frozen(ARRAY)}


class Subclass(np.ndarray):
    """A class of arrays of a user's."""


def frozen(array) -> Any:
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("holder", held.HOLDERS, ids=lambda holder: holder.__name__)
def test_arrays_that_change(holder) -> None:
    """Of every kind, in every place; then changed back, and changed in place."""
    kept = ARRAY.copy()
    case = holder(kept)
    args, options = case.put(kept) if case.by_call else ((), {})
    slope, expected = declared(case.function), plain(case.function)
    for _ in range(2):
        slope(W, *args, **options)
    assert replayed(slope, W, *args, **options)
    for make in CHANGED.values():
        new = make()
        if new is ARRAY:
            kept[1] += 0.25
            new = kept
        args, options = case.put(new) or ((), {})
        for _ in range(3):
            assert_equal(outcome(slope, W, *args, **options), outcome(expected, W, *args, **options))
        args, options = case.put(kept) or ((), {})
        assert_equal(slope(W, *args, **options), expected(W, *args, **options))
    assert replayed(slope, W, *args, **options)


@pytest.mark.parametrize(("make", "values"), [
    (held.within_a_row, [0.5, 0.25, -0.0, np.float64(3.0), np.float32(0.1), 2, True, math.nan, 1j, "a", ARRAY]),
    (held.within_a_block, [ARRAY, ARRAY + 0.25, W, 2.0 * W, ARRAY.astype("f4"), np.arange(3), 1j * W, 0.5, None])],
    ids=lambda value: getattr(value, "__name__", ""))
def test_containers_within_containers_that_the_library_takes(make, values) -> None:
    case = make(values[0])
    slope, expected = declared(case.function), plain(case.function)
    slope(W)
    assert replayed(slope, W)
    for value in [*values, *reversed(values)]:
        case.put(value)
        for _ in range(3):
            assert_equal(outcome(slope, W), outcome(expected, W))


NUMBERS = [0.5, 2.0, -0.0, 0.0, math.nan, math.inf, 1, 0, True, np.float64(0.5), np.float32(0.5), np.int64(2), 1j, "a",
           None, np.bool_(True), 10**30, np.float16(0.5), 5e-324, [2.0], np.array(3.0), np.array([1.0, 2.0, 3.0])]


@pytest.mark.parametrize("holder", held.HOLDERS, ids=lambda holder: holder.__name__)
def test_numbers_that_change(holder) -> None:
    """A float is data, an int is known; classes, signs of zero and NaNs are told apart."""
    case = holder(0.25)
    args, options = case.put(0.25) if case.by_call else ((), {})
    slope, expected = declared(case.function), plain(case.function)
    for number in (0.25, 0.5, 0.75):
        args, options = case.put(number) or ((), {})
        slope(W, *args, **options)
    args, options = case.put(0.125) or ((), {})
    assert replayed(slope, W, *args, **options)
    for number in NUMBERS:
        for given in (number, 0.25, number):
            args, options = case.put(given) or ((), {})
            assert_equal(outcome(slope, W, *args, **options), outcome(expected, W, *args, **options))


def remainder(x, n):
    return np.sum((x % n) * x)


def remainder_by_computed(x, n):
    return np.sum(np.remainder(x, 1.5 - n) * x)


def quotient(x, n):
    return np.sum((x // n) * x)


def quotient_by_elements(x, n):
    return np.sum((x // np.array([n, n, 2.0])) * x)


def greater_but_nan(x, n):
    return np.sum(np.fmax(x, n) * x)


def of_gamma(x, n):
    return np.sum(fsp.beta(n, x))


def edges(x, n):
    return np.sum(np.digitize(x, np.array([n, n + 1.0])) * x)


CLASSES = [0.5, -0.5, -1.5, 2.5, -2.5, 3.0, -3.0, -1.0, 0.0, -0.0, math.nan, math.inf, -math.inf, 1e300, -1e-300, 0.7]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("function", "slope_at"), [
    (remainder, lambda x, n: x % n + x), (remainder_by_computed, lambda x, n: x % (1.5 - n) + x),
    (quotient, lambda x, n: x // n), (quotient_by_elements, lambda x, n: x // np.array([n, n, 2.0])),
    (greater_but_nan, lambda x, n: np.where(n > x, n, 2 * x)), (edges, lambda x, n: np.digitize(x, [n, n + 1.0]) * 1.0),
    (of_gamma, lambda x, n: special.beta(n, x) * (special.psi(x) - special.psi(n + x)))],
    ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_numbers_that_the_library_compares(function, slope_at, sign) -> None:
    """What it records for a number that it knows depends on the sign, 0 and NaN; values from closed forms."""
    slope = declared(function)
    x = np.array([1.3, -2.7, 7.1])
    for n in [sign * number for number in CLASSES]:
        if function is of_gamma and not (abs(n) > 1e-3 and abs(n) % 1 and abs(n) < 9):
            continue  # poles
        for _ in range(2):
            np.testing.assert_allclose(slope(x, n), slope_at(x, n), rtol=1e-11, err_msg=str(n))


@pytest.mark.parametrize(("make", "values"), [
    (held.powers, [2, 3, 2.0, 0.5, -1, True, 0, np.int64(2), np.float32(2), np.array(2)]),
    (held.steps, [2, 3, True, np.int64(2), 0, -1, 2.0]),
    (held.flags, [True, False, 1, 0, 2, "", "a", None, [], [0], 0.0]),
    (held.texts, ["sin", "cos", "SIN", None, b"sin"]), (held.places, [0, 1, -1, True, slice(1, None), [0, 1], None]),
    (held.keys, [{"a": 1}, {"a": 1, "b": 2}, {}, {"b": 1}, {"a": 0, 2: 1}, {2: 0}, {"a": None}, "ab", ["a"], ["a", 2]]),
    (held.between, [0.3, 0.5, 0.25, 0.7, 0, 1, True, math.nan, np.float32(0.3), None]),
    (held.any_and_all, [[0.1, 0.2], [0.1, 0.6], [0.0, 0.6], [0.0], [], (0.1, 0.7), [None], [True, 1], 3]),
    (held.of_math, [0.5, 2.0, 0.0, -0.0, -1.0, 4, True, np.float32(0.1), math.nan, math.inf, 1j, "a", ARRAY[:1]]),
    (held.items, [{"a": 1.0, "c": 2.0}, {"c": 2.0, "a": 1.0}, {"a": 1.0}, {"a": 3.0, "c": 2.0}, {}, {1: 2.0},
                  {"bb": ARRAY}, {"a": 1, "c": 2}]),
    (held.updates, [0, 1, -1, [0, 2], slice(1, None), np.array([0, 2]), np.array([1, 1]), True, None, 7]),
    (held.listed_places, [0, 1, -1, 1, True, 0.5, None, [0]]),
    (held.axes, [0, 1, -1, True, None]), (held.thresholds, [0.6, 0.4, 0.6, 1, 0, math.nan, np.float64(0.6), True]),
    (held.nothing, [None, 2.0, None, 1, np.array(2.0)]),
    (held.lengths, [[1.0], [1.0, 2.0], (1.0,), "ab", ARRAY, {1: 2}]),
    (held.branches, [1.0, 1, True, "a", None, np.float64(2.0), ARRAY])],
    ids=lambda value: getattr(value, "__name__", ""))
def test_values_that_decide_what_is_recorded(make, values) -> None:
    case = make(values[0])
    slope, expected = fxgrad.grad(case.function), plain(case.function)
    config.update("transparent", True)
    try:
        for _ in range(config.transparent_after + 2):
            slope(W)
        for value in [*values, *reversed(values)]:
            for given in (value, values[0], value):
                case.put(given)
                assert_equal(outcome(slope, W), outcome(expected, W))
    finally:
        config.update("transparent", False)


def test_a_known_value_is_replayed() -> None:
    for make, value in ((held.powers, 3), (held.steps, 3), (held.flags, True), (held.texts, "sin"), (held.places, 1),
                        (held.axes, 0), (held.thresholds, 0.6), (held.nothing, 2.0), (held.lengths, [1.0])):
        case = make(value)
        slope = declared(case.function)
        slope(W)
        assert replayed(slope, W), make.__name__


# --- functions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [held.second, np.sin, fnp.cos, held.scaled(2.0), held.scaled(3.0), lambda x: x,
                                   functools.partial(np.multiply, 2.0), np.tanh, 3.0, None, held.Model, abs],
                         ids=["function", "ufunc", "fxgrad", "closure", "other closure", "lambda", "partial", "tanh",
                              "number", "None", "class", "builtin"])
@pytest.mark.parametrize("place", ["global", "default", "attribute"])
def test_functions_that_change(place, other, monkeypatch) -> None:
    function = {"global": held.calls_global, "default": held.calls_default, "attribute": held.calls_attribute}[place]
    monkeypatch.setattr(held.OTHER, "value", held.first)
    monkeypatch.setattr(held.calls_default, "__defaults__", (held.first,))
    slope, expected = declared(function), plain(function)
    for _ in range(3):
        slope(W)
    assert replayed(slope, W)
    if place == "global":
        monkeypatch.setattr(held, "HELPER", other)
    elif place == "attribute":
        monkeypatch.setattr(held.OTHER, "value", other)
    else:
        monkeypatch.setattr(held.calls_default, "__defaults__", (other,))
    for _ in range(3):
        assert_equal(outcome(slope, W), outcome(expected, W))


def test_closures_of_one_code_differ_by_what_they_hold(monkeypatch) -> None:
    monkeypatch.setattr(held, "HELPER", held.scaled(2.0))
    slope, expected = declared(held.calls_global), plain(held.calls_global)
    for by in (2.0, 3.0, 3, True, np.ones(3), 2.0):
        monkeypatch.setattr(held, "HELPER", held.scaled(by))
        for _ in range(2):
            assert_equal(slope(W), expected(W))


def test_code_defaults_and_closures_that_are_exchanged(monkeypatch) -> None:
    slope, expected = declared(held.calls_global), plain(held.calls_global)
    slope(W)
    assert replayed(slope, W)
    monkeypatch.setattr(held.first, "__code__", held.second.__code__)
    assert_equal(slope(W), expected(W))
    monkeypatch.undo()
    assert_equal(slope(W), expected(W))
    monkeypatch.setattr(held.calls_global, "__code__", held.calls_numpy.__code__)
    assert_equal(slope(W), expected(W))


@pytest.mark.parametrize("name", ["exp", "sum"])
def test_numpy_that_is_patched(name, monkeypatch) -> None:
    slope, expected = declared(held.calls_numpy), plain(held.calls_numpy)
    slope(W)
    assert replayed(slope, W)
    before = slope(W)
    monkeypatch.setattr(np, name, lambda x: fnp.sum(fnp.sin(x)))
    assert_equal(slope(W), expected(W))
    assert not np.array_equal(slope(W), before)


def test_names_that_hide_builtins(monkeypatch) -> None:
    function = held.lengths([1.0, 2.0]).function
    slope, expected = declared(function), plain(function)
    slope(W)
    assert replayed(slope, W)
    monkeypatch.setattr(held, "len", lambda value: 7, raising=False)
    assert_equal(slope(W), expected(W))
    np.testing.assert_array_equal(slope(W), np.full(3, 7.0))
    monkeypatch.undo()
    monkeypatch.setattr("builtins.len", lambda value, length=len: 9 if value == [1.0, 2.0] else length(value))
    np.testing.assert_array_equal(slope(W), np.full(3, 9.0))


def test_methods_and_attributes_of_classes(monkeypatch) -> None:
    model = held.Model(2.0)
    slope, expected = declared(model.loss), plain(model.loss)
    slope(W)
    assert replayed(slope, W)
    for name, new in (("loss", lambda self, w: np.sum(w)), ("value", property(lambda self: 5.0)),
                      ("__getattribute__", lambda self, name: 3.0 if name == "value" else object.__getattribute__(
                          self, name))):
        monkeypatch.setattr(held.Model, name, new, raising=False)
        assert_equal(outcome(slope, W), outcome(expected, W))
        monkeypatch.undo()
    model.__class__ = type("Other", (held.Model,), {"value": 4.0})
    assert_equal(slope(W), expected(W))


def test_calls_of_objects_and_functions_of_classes(monkeypatch) -> None:
    case = held.of_called_object(3.0)
    slope, expected = declared(case.function), plain(case.function)
    slope(W)
    assert replayed(slope, W)
    assert_equal(slope(W), expected(W))
    for name, new in (("__call__", lambda self, w: np.sin(w) * self.value), ("rate", 0.25),
                      ("halved", staticmethod(lambda w: w * 7.0)),
                      ("halved", classmethod(lambda cls, w: w * cls.rate))):
        before = slope(W)
        monkeypatch.setattr(held.Layer, name, new)
        for _ in range(3):
            assert_equal(slope(W), expected(W))
        assert not np.array_equal(slope(W), before)


# --- arguments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [W.astype("f4"), W[:2], W[:, None], 0.5, np.float64(0.5), fnp.asarray(W), [0.1, 0.2],
                                   jnp.asarray(W.astype("f4")), W[::-1], W.view(Subclass), frozen(W), 1, "a", None,
                                   W + 0j, W.astype(">f8"), np.ma.masked_array(W)], ids=str)
def test_differentiated_arguments_that_change(other) -> None:
    slope, expected = declared(held.calls_numpy), plain(held.calls_numpy)
    for _ in range(2):
        slope(W)
    for given in (other, W, other, other):
        assert_equal(outcome(slope, given), outcome(expected, given))


TREE = {"layers": [(np.eye(3), np.zeros(3)), (np.ones((3, 2)), np.ones(2))], "scale": 2.0}


@pytest.mark.parametrize("change", [
    lambda p: {**p, "scale": 3.0}, lambda p: {**p, "scale": np.float32(3.0)}, lambda p: {**p, "more": 1.0},
    lambda p: {**p, "layers": p["layers"][:1]}, lambda p: {**p, "layers": tuple(p["layers"])},
    lambda p: {**p, "layers": [[w, b] for w, b in p["layers"]]}, lambda p: dict(reversed(p.items())),
    lambda p: {**p, "layers": [(w.astype("f4"), b) for w, b in p["layers"]]}, lambda p: {**p, "scale": None},
    lambda p: {"scale": 2.0}], ids=range(10))
def test_containers_that_change(change) -> None:
    def listed(result) -> Any:
        return result if isinstance(result, type) else fxgrad.tree_util.tree_flatten(result)

    function = held.trees
    slope, expected = declared(function), plain(function)
    x = np.linspace(0.0, 1.0, 3)
    for _ in range(2):
        slope(TREE, x)
    assert replayed(slope, TREE, x)
    for given in (change(TREE), TREE, change(TREE)):
        got, wanted = listed(outcome(slope, given, x)), listed(outcome(expected, given, x))
        if isinstance(wanted, type):
            assert got is wanted
            continue
        assert got[1] == wanted[1]
        for one, other in zip(got[0], wanted[0], strict=True):
            assert_equal(one, other)


def test_numbers_of_arguments_and_keywords() -> None:
    case = held.of_default(2.0)
    slope, expected = declared(case.function), plain(case.function)
    slope(W)
    slope(W, 3.0)
    slope(W, held=3.0)
    for args, options in (((W,), {}), ((W, 4.0), {}), ((W,), {"held": 4.0}), ((W, 4.0, 5.0), {}), ((), {}),
                          ((W,), {"other": 1.0}), ((), {"w": W})):
        assert_equal(outcome(slope, *args, **options), outcome(expected, *args, **options))


# --- settings, threads, other transformations ----------------------------------------------------------


def test_settings_that_change() -> None:
    slope, expected = declared(held.defaults), plain(held.defaults)
    small = W.astype("f4")
    for _ in range(2):
        slope(small)
    assert replayed(slope, small)
    with fxgrad.default_dtype("float64"):
        assert_equal(slope(small), expected(small))
    fxgrad.set_default_dtype("float64")
    try:
        assert_equal(slope(small), expected(small))
    finally:
        fxgrad.set_default_dtype("float32")
    other = declared(held.calls_numpy)
    for _ in range(2):
        other(np.full(3, np.nan))
    with fxgrad.debug_nans(True), pytest.raises(FloatingPointError):
        other(np.full(3, np.nan))
    with fxgrad.disable_jit():
        assert_equal(slope(small), expected(small))
    fxgrad.clear_caches()
    assert_equal(slope(small), expected(small))


def test_within_other_transformations() -> None:
    """Derivatives of derivatives are replayed, and nothing that is staged or displayed."""
    case = held.powers(3)
    slope, expected = declared(case.function), plain(case.function)
    for _ in range(2):
        slope(W)
    assert replayed(slope, W)
    total = lambda of: lambda w: np.sum(of(w))
    assert replayed(fxgrad.grad(total(slope)), W)
    for power in (3, 4, 3):
        case.put(power)
        for of in (lambda f: fxgrad.grad(total(f)), fxgrad.jit, lambda f: lambda w: fxgrad.vmap(f)(w[None])[0]):
            np.testing.assert_array_equal(of(slope)(W), of(expected)(W))
    assert not replayed(fxgrad.jit(slope), W + 1.0)
    assert "w ** 2" in str(fxgrad.make_program(slope)(W))


def test_a_tracer_of_an_outer_function_is_no_data() -> None:
    case = held.of_cell(2.0)
    slope = declared(case.function)
    for _ in range(2):
        slope(W)

    def outer(scale: Any) -> Any:
        case.put(scale)
        return np.sum(slope(W))

    expected = np.sum(1.0 - np.tanh(W) ** 2)
    np.testing.assert_allclose(fxgrad.grad(outer)(3.0), expected, rtol=1e-12)


def test_first_calls_within_a_derivative() -> None:
    """Calls with an argument, a closure or an attribute that a function around traces run, and others are replayed."""
    holder = SimpleNamespace(scale=2.0)

    @fxgrad.transparent
    def loss(w: Any, data: Any) -> Any:
        return np.sum(w * w * data["x"] * holder.scale)

    def by_argument(scale: Any) -> Any:
        return np.sum(fxgrad.grad(loss)(W, {"x": scale * W}))

    def by_attribute(scale: Any) -> Any:
        holder.scale = scale
        return np.sum(fxgrad.grad(loss)(W, {"x": W}))

    def by_closure(scale: Any) -> Any:
        return np.sum(fxgrad.grad(fxgrad.transparent(lambda w: np.sum(w * w * scale * W)))(W))

    for outer, factor in ((by_argument, 4.0), (by_attribute, 2.0), (by_closure, 2.0)):
        for _ in range(replays.MAX_REFUSALS + 1):
            np.testing.assert_allclose(fxgrad.grad(outer)(3.0), factor * np.sum(W * W), rtol=1e-12)
    holder.scale = 2.0
    slope = fxgrad.grad(loss)
    for _ in range(2):
        np.testing.assert_allclose(slope(W, {"x": W}), 4.0 * W * W, rtol=1e-12)
    assert replayed(slope, W, {"x": W})


def test_debuggers_see_the_function_run() -> None:
    seen = []

    def trace(frame, event, arg) -> Any:
        seen.append(frame.f_code.co_name)
        return trace

    slope = declared(held.calls_numpy)
    for _ in range(2):
        slope(W)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        slope(W)
    finally:
        sys.settrace(before)
    assert "calls_numpy" in seen


def test_one_array_in_two_places() -> None:
    """If one of them is rebound, the other keeps its array."""
    pair = [W.copy()] * 2
    function = held.pair_of(pair)
    slope, expected = declared(function), plain(function)
    for _ in range(2):
        slope(W)
    assert replayed(slope, W)
    for new in ([W, 2.0 * W], [2.0 * W, W], [W, W]):
        pair[:] = new
        assert_equal(slope(W), expected(W))


def test_threads_that_rebind() -> None:
    """Each result is that of one of the values."""
    case = held.of_list(2.0)
    slope = declared(case.function)
    one, two = slope(W), (case.put(3.0), slope(W))[1]
    stopped = threading.Event()

    def rebind() -> None:
        while not stopped.is_set():
            for value in (2.0, 3.0, np.full(3, 2.0), np.full(3, 3.0)):
                case.put(value)

    thread = threading.Thread(target=rebind)
    thread.start()
    try:
        for _ in range(3000):
            result = slope(W)
            assert np.array_equal(result, one) or np.array_equal(result, two)
    finally:
        stopped.set()
        thread.join()


def test_results_are_the_callers_own() -> None:
    case = held.of_global(ARRAY.copy())
    slope = declared(case.function)
    for _ in range(2):
        slope(W)
    first = slope(W)
    first[...] = 7.0
    assert not np.array_equal(slope(W), first)
    identity = declared(held.returns_data)
    for _ in range(3):
        result = identity(W)
        result[...] = 0.0
    np.testing.assert_array_equal(held.DATA, [2.0, 1.0, 0.5, 3.0])


# --- source -----------------------------------------------------------------------------------------------


def test_source_that_is_edited_or_reloaded(tmp_path, monkeypatch) -> None:
    """An edited file is not trusted for the old function; the reloaded function is another one."""
    file = tmp_path / "edited_module.py"
    file.write_text("import numpy as np\n\ndef loss(w):\n    return np.sum(w * 2.0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("edited_module")
    old = module.loss
    file.write_text("import numpy as np\n\ndef loss(w):\n    return np.sum(w * 3.0)\n\n\n")
    linecache.checkcache()
    with pytest.raises(fxgrad.errors.UnsupportedError, match="is not what runs"):
        declared(old)(W)
    importlib.invalidate_caches()
    importlib.reload(module)
    slope = declared(module.loss)
    for _ in range(3):
        np.testing.assert_array_equal(slope(W), np.full(3, 3.0))
    np.testing.assert_array_equal(plain(old)(W), np.full(3, 2.0))


def test_code_without_source_is_refused() -> None:
    namespace: dict[str, Any] = {"np": np}
    exec(compile("def f(w):\n    return np.sum(w)", "<nowhere>", "exec"), namespace)
    with pytest.raises(fxgrad.errors.UnsupportedError, match="its source is not found in <nowhere>"):
        declared(namespace["f"])(W)


@pytest.mark.parametrize("function", held.OPAQUE, ids=lambda function: function.__name__)
def test_what_is_not_transparent_runs_at_every_call(function) -> None:
    """With the setting it runs as without; declared, it is refused."""
    slope, expected = fxgrad.grad(function), plain(function)
    config.update("transparent", True)
    try:
        for value in (2.0, 3.0, 0.5, 2.0) * 4:
            held.DATA[0] = value
            if function is held.draws:
                np.random.seed(0)  # noqa: NPY002  (what the function draws from)
            got = outcome(slope, W)
            if function is held.draws:
                np.random.seed(0)  # noqa: NPY002  (what the function draws from)
            assert_equal(got, outcome(expected, W))
        assert not replayed(slope, W)
    finally:
        config.update("transparent", False)
        held.DATA[0] = 2.0
    with pytest.raises(fxgrad.errors.UnsupportedError, match=f"{function.__name__} is not transparent: "):
        declared(function)(W)


@pytest.mark.parametrize("function", held.BY_VALUE, ids=lambda function: function.__name__)
def test_values_of_arrays_that_decide(function, monkeypatch) -> None:
    slope, expected = declared(function), plain(function)
    slope(W)
    assert replayed(slope, W)
    for values in ([3.0, 2.0], [0.5, 2.5], [2.0, 1.0], [1.0, 0.0], [-1.0, -0.0], [np.nan, 3.0], [2.0, 1.0]) * 2:
        monkeypatch.setattr(held, "DATA", np.array([*values, 0.5, 3.0]))
        assert_equal(outcome(slope, W), outcome(expected, W))
    for place, value in ((0, 3.0), (1, 2.0), (0, 2.0)):
        held.DATA[place] = value
        assert_equal(outcome(slope, W), outcome(expected, W))


def test_contents_that_differ_in_every_call(monkeypatch) -> None:
    """They are compared in a few replays; then the function runs, and those replays stay."""
    def picked(w: Any, places: Any) -> Any:
        return np.sum(w[places] ** 2)
    slope, expected = declared(picked), plain(picked)
    made = []
    make_replay = replays.make_replay
    monkeypatch.setattr(replays, "make_replay", lambda *args: made.append(args) or make_replay(*args))
    for number in range(3 * replays.MAX_RENEWALS):
        places = np.array([number % 3, number // 3 % 3, number // 9])[:2 + number % 2] % 3
        assert_equal(slope(W, places), expected(W, places))
    assert len(made) == replays.MAX_RENEWALS
    for number in range(30):
        places = np.array([number % 2, 2])
        assert_equal(slope(W, places), expected(W, places))


POSITIVE, TWO_ROWS = np.array([2.0, 3.0, 4.0]), np.array([[2.0, 1.0], [1.0, 3.0]])


@pytest.mark.parametrize("function", [
    lambda x: np.sum(np.log(POSITIVE) * x), lambda x: np.sum(np.arccos(POSITIVE / 9) * x),
    lambda x: np.linalg.det(TWO_ROWS) * np.sum(x), lambda x: np.mean(POSITIVE[POSITIVE > 0]) * np.sum(x),
    lambda x: np.sum(np.cross(POSITIVE, POSITIVE[::-1]) * x), lambda x: np.nanvar(POSITIVE) * np.sum(x)],
    ids=["log", "arccos", "det", "mean", "cross", "nanvar"])
@pytest.mark.parametrize("action", ["always", "error"])
def test_trials_with_other_data_do_not_warn(function, action) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        gradient = declared(function)
        for _ in range(3):
            assert_equal(gradient(W), plain(function)(W))
    assert not caught
    assert replayed(gradient, W)


def test_effects_happen_at_every_call() -> None:
    slope = fxgrad.grad(held.counting())
    config.update("transparent", True)
    try:
        before = held.COUNTER[0]
        for _ in range(20):
            slope(W)
    finally:
        config.update("transparent", False)
    assert held.COUNTER[0] == before + 20


# --- all transformations ----------------------------------------------------------------------------------


TRANSFORMED = {
    "grad": fxgrad.grad, "value_and_grad": fxgrad.value_and_grad, "jacfwd": fxgrad.jacfwd, "jacrev": fxgrad.jacrev,
    "jacobian": fxgrad.jacobian, "hessian": fxgrad.hessian,
    "vjp": lambda f: lambda *args: fxgrad.vjp(f, *args, argnums=0)[1](1.0),
    "jvp": lambda f: lambda w, *args: fxgrad.jvp(lambda w: f(w, *args), (w,), (w,)),
    "jvp of it": lambda f: lambda w, *args: fxgrad.jvp(f, (w, *args), (w, *args)) if not args else (w, w),
    "linearize": lambda f: lambda w, *args: fxgrad.linearize(f, w, *args, argnums=0)[1](w),
    "vmap": lambda f: lambda w, *args: fxgrad.vmap(f, in_axes=(0, *[None] * len(args)))(np.stack([w, w + 1.0]), *args),
    "batched gradients": lambda f: lambda w, *args: fxgrad.vmap(fxgrad.grad(f), in_axes=(0, *[None] * len(args)))(
        np.stack([w, w + 1.0]), *args),
    "third derivative": lambda f: lambda w, *args: fxgrad.jacfwd(fxgrad.hessian(f))(w, *args)}


@pytest.mark.parametrize("transform", TRANSFORMED.values(), ids=TRANSFORMED.keys())
@pytest.mark.parametrize("holder", [held.of_cell, held.of_method, held.of_argument, held.of_computation, held.powers],
                         ids=lambda holder: holder.__name__)
def test_every_transformation(transform, holder) -> None:
    values = (3, 2, 3) if holder is held.powers else (2.0, 3.0, ARRAY, np.float32(2.0), -ARRAY, 2, 2.0)
    case = holder(values[0])
    fxgrad.transparent(getattr(case.function, "__func__", case.function))
    run, expected = transform(case.function), transform(lambda *args: case.function(*args))
    for value in (*values, *values):
        for given in (value, value, values[0]):
            args, _ = case.put(given) or ((), {})
            got, wanted = outcome(run, W, *args), outcome(expected, W, *args)
            if isinstance(wanted, type):
                assert got is wanted
                continue
            for one, other in zip(*map(fxgrad.tree_util.tree_leaves, (got, wanted)), strict=True):
                assert_equal(one, other)


@pytest.mark.parametrize("name", ["grad", "value_and_grad", "jacfwd", "jacrev", "jacobian", "hessian", "vjp",
                                  "linearize", "vmap", "batched gradients", "third derivative"])
def test_every_transformation_is_replayed(name) -> None:
    case = held.of_cell(2.0)
    fxgrad.transparent(case.function)
    run = TRANSFORMED[name](case.function)
    for _ in range(3):
        run(W)
    assert replayed(run, W)


def test_containers_of_results() -> None:
    function = held.pairs
    run, expected = fxgrad.jacrev(fxgrad.transparent(function)), fxgrad.jacrev(lambda *args: function(*args))
    for x in (W, 2.0 * W, W):
        for _ in range(2):
            got, wanted = run(W, x), expected(W, x)
            assert fxgrad.tree_util.tree_structure(got) == fxgrad.tree_util.tree_structure(wanted)
            for one, other in zip(*map(fxgrad.tree_util.tree_leaves, (got, wanted)), strict=True):
                assert_equal(one, other)
    assert replayed(run, W, W)


def test_two_transformations_of_one_function() -> None:
    """Each has a program of its own."""
    case = held.of_cell(2.0)
    fxgrad.transparent(case.function)
    runs = {of: (of(case.function), of(lambda w: case.function(w))) for of in (
        fxgrad.grad, fxgrad.value_and_grad, fxgrad.hessian)}
    for value in (2.0, 3.0, 4.0, 5.0):
        case.put(value)
        for run, expected in runs.values():
            for one, other in zip(*map(fxgrad.tree_util.tree_leaves, (run(W), expected(W))), strict=True):
                assert_equal(one, other)


def test_partial_functions() -> None:
    data = ARRAY.copy()
    fxgrad.transparent(held.weighted)
    bound = functools.partial(held.weighted, x=data, power=2)
    slope, expected = fxgrad.grad(bound), fxgrad.grad(lambda w: bound(w))
    for _ in range(3):
        assert_equal(slope(W), expected(W))
    assert replayed(slope, W)
    data[1] = 7.0
    assert_equal(slope(W), expected(W))
    bound.keywords["power"] = 3
    assert_equal(slope(W), expected(W))
    bound.keywords["more"] = 3
    assert outcome(slope, W) is outcome(expected, W) is TypeError
