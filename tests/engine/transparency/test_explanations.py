"""What `explain_transparency` says, and the errors of declared functions, in full."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad.engine import config
from fxgrad.engine.transparency import interpret
from tests.support import held

W = np.array([0.3, -0.7, 1.1])


def line(function, offset: int) -> str:
    """A line of the file of functions, as messages name it."""
    return f"held.py:{function.__code__.co_firstlineno + offset}"


NOT_TRANSPARENT = [
    (held.counts_calls, 1, "an assignment in place to an item or attribute is not interpreted"),
    (held.prints, 1, "print is no function of the library"), (held.tries, 1, "try is not interpreted"),
    (held.stores, 1, "something is stored in an object or a container"),
    (held.draws, 1, "rand is no function of the library"),
    (held.changes_global, 1, "global or nonlocal is declared"), (held.uses_with, 1, "with is not interpreted"),
    (held.formats, 1, "a value that is no integer and no text is formatted"),
    (held.imports, 1, "import is not interpreted"),
    (held.reads_property, 1, "the attribute value of an object of class Computed is computed"),
    (held.reads_everything, 1, "the attribute value of an object of class Everything is computed"),
    (held.reads_slot, 1, "the attribute value of an object of class Slots is computed"),
    (held.yields, 1, "a generator is defined"), (held.changes_in_place, 2, "total is changed in place"),
    (held.changes_a_list, 1, "the method append of a container that outlives the call is read"),
    (held.looks_at_many, 1, "the library computes something from data before it records it")]


@pytest.mark.parametrize(("function", "offset", "reason"), NOT_TRANSPARENT, ids=lambda value: getattr(
    value, "__name__", ""))
def test_reasons(function, offset, reason) -> None:
    found = fxgrad.explain_transparency(function)(W)
    where = line(function, offset)
    assert str(found) == f"{function.__name__} is not transparent: {reason} ({where})"
    assert (found.transparent, found.reason, found.line) == (False, reason, int(where.split(":")[1]))
    fxgrad.transparent(function)
    with pytest.raises(fxgrad.errors.UnsupportedError) as error:
        fxgrad.grad(function)(W)
    assert str(error.value).split("\n")[0] == (
        f"{function.__name__} is not transparent: {reason} ({where}). Change the line, or leave out fxgrad.transparent")


def test_items_that_are_added_are_steps(monkeypatch) -> None:
    assert fxgrad.explain_transparency(held.adds_a_range)(W).transparent
    monkeypatch.setattr(interpret, "MAX_STEPS", 1000)
    assert str(fxgrad.explain_transparency(held.adds_a_range)(W)) == (
        f"adds_a_range is not transparent: it takes too many steps ({line(held.adds_a_range, 1)})")


def test_control_flow_by_traced_values() -> None:
    assert str(fxgrad.explain_transparency(held.asks)(W)) == (
        "asks is not transparent: Python's control flow needs values of traced arrays")


def test_what_is_tested(monkeypatch) -> None:
    monkeypatch.setattr(held, "STATE", held.State())
    monkeypatch.setattr(held, "HELD", 2.0)
    assert str(fxgrad.explain_transparency(held.of_everything)(W, 1.0)) == """\
of_everything is transparent; tested at every call:
  x                           f64*[]: its content is read at every call
  default 0 of of_everything  f64*[]: its content is read at every call
  np                          the same module
  np.sum                      the same function
  STATE                       an object of class State
  STATE.helper                the same function
  np.tanh                     the same function
  STATE.number                f64*[]: its content is read at every call
  STATE.items                 a list of 2
  STATE.items[0]              f64*[]: its content is read at every call
  STATE.table                 a dict
  STATE.table['a']            f64*[]: its content is read at every call
  STATE.items[1]              f64[3]: its content is read at every call
  STATE.flag                  equal to True
  STATE.power                 equal to 2
  STATE.table['b']            f64[3]: its content is read at every call
  STATE.names                 a tuple of 2
  STATE.names[0]              equal to 'sin'
  np.sin                      the same function
  STATE.names[1]              equal to 'cos'
  np.mean                     the same function
  np.cos                      the same function
  STATE.array                 f64[3]: its content is read at every call
  HELD                        f64*[]: its content is read at every call"""


def test_a_declaration_is_of_one_function() -> None:
    """Another function of the same code, or one that calls it, is not refused."""
    def make() -> tuple[Any, list[int]]:
        calls: list[int] = []

        def counts(w: Any) -> Any:
            calls.append(1)
            return np.sum(w * w)
        return counts, calls

    (refused, _), (other, calls) = make(), make()
    fxgrad.transparent(refused)
    with pytest.raises(fxgrad.errors.UnsupportedError, match="counts is not transparent"):
        fxgrad.grad(refused)(W)
    for number in range(1, 4):
        np.testing.assert_array_equal(fxgrad.grad(other)(W), 2.0 * W)
        np.testing.assert_array_equal(fxgrad.grad(lambda w: refused(w))(W), 2.0 * W)
        assert len(calls) == number


def test_what_is_no_function() -> None:
    for value, name in ((np.sin, "ufunc"), (3.0, "float"), (held.Model(1.0), "Model")):
        with pytest.raises(fxgrad.errors.ArgumentError) as error:
            fxgrad.transparent(value)  # type: ignore[arg-type]
        assert str(error.value).split("\n")[0] == (
            f"transparent takes a function written in Python, got a {name}. Declare the function itself, before other "
            "decorators")


def test_series_in_a_loop() -> None:
    """`+=` of what the library computed makes a new array."""
    fxgrad.transparent(held.smoothed)
    slope, expected = fxgrad.grad(held.smoothed), fxgrad.grad(lambda *args: held.smoothed(*args))
    for series in (np.sin(np.arange(6.0)), np.cos(np.arange(6.0)), np.ones(4)):
        for _ in range(3):
            assert slope(0.4, series) == expected(0.4, series)
    assert fxgrad.explain_transparency(held.smoothed)(0.4, np.ones(4)).transparent


def test_a_replay_that_is_wrong_is_found(monkeypatch) -> None:
    """At check level 1 the function runs all the same, and what it records is compared."""
    case = held.of_list(2.0)
    fxgrad.transparent(case.function)
    slope = fxgrad.grad(case.function)
    monkeypatch.setattr(config, "check_level", 1)
    for _ in range(3):
        slope(W)
    replay, = case.function.__dict__["_fxgrad_replays"]._replays
    monkeypatch.setattr(replay, "load", lambda args, kwargs: [np.float64(7.0)])
    with pytest.raises(fxgrad.errors.UnsupportedError) as error:
        slope(W)
    assert str(error.value) == (
        "function was taken to be transparent, and recorded another program, or other captured values, than its "
        "replay:\n" + "\n".join(replay.plan.all_lines))


def test_transformations_of_the_library_within_are_named() -> None:
    def mapped(x):
        return np.sum(fxgrad.vmap(np.sin)(x))

    assert str(fxgrad.explain_transparency(mapped)(W)) == (
        f"mapped is not transparent: vmap is not interpreted (test_explanations.py:"
        f"{mapped.__code__.co_firstlineno + 1})")
