"""Intervals: every rule contains what the operation computes, on samples; loops, branches and calls do too."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax
from fxgrad.engine.analyses.interval_rules import interval_rules
from fxgrad.engine.ops.arithmetic import nonzero_divisor
from tests.support.tiers import examples

Function = Callable[..., Any]



def _small(x: Any) -> Any:
    return fnp.clip(x, -9, 9).astype(int)


UNARY: dict[str, Function] = {
    "neg": lambda x: -x, "exp": fnp.exp, "expm1": fnp.expm1, "log": fnp.log, "log1p": fnp.log1p, "sqrt": fnp.sqrt,
    "tanh": fnp.tanh, "atan": fnp.arctan, "logistic": fxgrad.nn.sigmoid, "sin": fnp.sin, "cos": fnp.cos,
    "square": fnp.square, "abs": fnp.abs, "sign": fnp.sign, "floor": fnp.floor, "ceil": fnp.ceil,
    "mul": lambda x: x * x,
    "reduce_sum": fnp.sum, "reduce_max": fnp.max, "reduce_min": fnp.min, "argmax": fnp.argmax, "argmin": fnp.argmin,
    "reshape": lambda x: x.reshape(2, -1), "transpose": lambda x: x.reshape(2, -1).T, "rev": lambda x: x[::-1],
    "broadcast_to": lambda x: fnp.broadcast_to(x, (2, x.shape[0])), "slice": lambda x: x[1:3],
    "convert_element_type": lambda x: x.astype(np.float32), "stop_gradient": lax.stop_gradient,
    "name": lambda x: fxgrad.checkpoint_name(x, "x"), "split": lambda x: fnp.split(x, 2),
    "integer_pow": lambda x: (x ** 4, x ** 3), "sort": fnp.sort, "not": lambda x: ~(x > 1.0),
    "gather": lambda x: x[fnp.clip(x, -2, 2).astype(int)], "clamp": lambda x: lax.clamp(-0.5, x, 2.0),
    "cbrt": fnp.cbrt, "asin": fnp.arcsin, "acos": fnp.arccos,
    "nonzero_divisor": lambda x: nonzero_divisor(fnp.clip(x, -9, 9).astype(int)),
    "unstack": lambda x: fnp.unstack(x), "iota": lambda x: fnp.arange(5) + x[0].astype(int),
    "exp2": fnp.exp2, "sinh": fnp.sinh, "cosh": fnp.cosh, "tan": fnp.tan, "asinh": fnp.arcsinh, "acosh": fnp.arccosh,
    "atanh": fnp.arctanh, "erf": lax.erf, "erfc": lax.erfc, "rsqrt": lax.rsqrt, "round": fnp.round,
    "is_finite": fnp.isfinite, "cumsum": fnp.cumsum, "cummax": lax.cummax, "cummin": lax.cummin,
    "broadcast_in_dim": lambda x: lax.broadcast_in_dim(x, (6, 2), (0,)), "tile": lambda x: fnp.tile(x, 2),
    "copy": lambda x: fnp.copy(x), "optimization_barrier": lambda x: lax.optimization_barrier(x),
    "top_k": lambda x: lax.top_k(x, 2)}
BINARY: dict[str, Function] = {
    "add": fnp.add, "sub": fnp.subtract, "mul": fnp.multiply, "div": fnp.divide, "max": fnp.maximum,
    "min": fnp.minimum, "dot_general": fnp.dot, "concatenate": lambda x, y: fnp.concatenate([x, y]),
    "stack": lambda x, y: fnp.stack([x, y]), "select_n": lambda x, y: fnp.where(x > 0, x, y), "eq": fnp.equal,
    "ne": fnp.not_equal, "lt": fnp.less, "le": fnp.less_equal, "gt": fnp.greater, "ge": fnp.greater_equal,
    "rem": fnp.fmod, "pow": fnp.power, "atan2": fnp.arctan2,
    "and": lambda x, y: ((x > 0) & (y > 0), _small(x) & _small(y)),
    "or": lambda x, y: ((x > 0) | (y > 1), _small(x) | _small(y)),
    "scatter": lambda x, y: fnp.asarray(x).at[2].set(y[0]),
    "hypot": fnp.hypot, "pad": lambda x, y: lax.pad(x, y[0], [(1, 1, 0)]),
    "dynamic_slice": lambda x, y: lax.dynamic_slice(x, (1,), (2,)) + y[:2],
    "dynamic_update_slice": lambda x, y: lax.dynamic_update_slice(x, y[:2], (1,))}
ENDS = st.one_of(st.sampled_from([0.0, 1.0, -1.0, np.inf, -np.inf, 1e-310, 1e308, -1e308, 0.5]),
                 st.floats(allow_nan=False))
RANGES = st.tuples(ENDS, ENDS).map(sorted)


def samples(low: float, high: float, seed: int) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        inside = np.clip(np.nan_to_num(low + (high - low) * random.random(4), nan=0.0), low, high)
        small = np.clip(random.normal(size=4), low, high)
    return random.permutation(np.concatenate([inside, small, [low, high]]))[:6]


def assert_contained(function: Function, ranges: list[tuple[float, float]], seeds: range = range(5), *,
                     run: Function | None = None) -> None:
    """Compare the bounds of the results with results on samples."""
    found = fxgrad.bounds(function)(*[(np.full(6, low), np.full(6, high)) for low, high in ranges])
    intervals = fxgrad.tree.leaves(found.results, is_leaf=lambda x: hasattr(x, "nan"))
    for seed in seeds:
        args = [samples(low, high, seed + place) for place, (low, high) in enumerate(ranges)]
        with np.errstate(all="ignore"):
            results = [*fxgrad.tree.leaves((run or function)(*args))]
        for interval, result in zip(intervals, results, strict=True):
            values = np.asarray(result, np.float64)
            assert interval.nan or not np.isnan(values).any(), (interval, args, result)
            numbers = values[~np.isnan(values)]
            assert ((numbers >= interval.low) & (numbers <= interval.high)).all(), (interval, args, result)


@pytest.mark.parametrize("name", [*UNARY])
@given(ends=RANGES)
@examples(60)
def test_rules_of_one_operand_are_sound(name: str, ends: Any) -> None:
    assert_contained(UNARY[name], [tuple(ends)])


@pytest.mark.parametrize("name", [*BINARY])
@given(first=RANGES, second=RANGES)
@examples(60)
def test_rules_of_two_operands_are_sound(name: str, first: Any, second: Any) -> None:
    assert_contained(BINARY[name], [tuple(first), tuple(second)])


def test_every_rule_is_tested() -> None:
    assert {primitive.name for primitive in interval_rules.entered()} <= {*UNARY, *BINARY}


@given(st.integers(-2 ** 31, 2 ** 31 - 1), st.integers(-2 ** 31, 2 ** 31 - 1), st.integers(0, 2 ** 31))
@examples(60)
def test_integers_that_may_wrap_are_unbounded(low: int, other: int, seed: int) -> None:
    low, high = sorted((low, other))
    x, y = np.random.default_rng(seed).integers(low, high, 2, endpoint=True, dtype=np.int32)
    for function in (lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x - y, lambda x, y: -x,
                     lambda x, y: fnp.sum(fnp.stack([x, y])), lambda x, y: abs(x)):
        ends = np.int32(low), np.int32(high)
        interval = fxgrad.bounds(function)(ends, ends).results
        with np.errstate(all="ignore"):
            assert interval.low <= int(function(x, y)) <= interval.high


INTEGERS = (0, 1, -1, 2 ** 53 + 1, 2 ** 53 + 3, -2 ** 53 - 3, 2 ** 62 + 1, 2 ** 63 - 1, -2 ** 63)


@pytest.mark.parametrize("first", INTEGERS)
@pytest.mark.parametrize("second", INTEGERS)
def test_ends_of_integers_are_exact(first: int, second: int) -> None:
    def function(x: Any, y: Any) -> Any:
        n, zero = fnp.clip(y, 1, None), 0 * x
        return (x + y, x - y, x * y, y + zero, -y, abs(x) + y, x * x + y, x ** 2 + y, (x & y) + y, x // n + y,
                x % n + y, fnp.sum(fnp.stack([zero, y])), fnp.cumsum(fnp.stack([zero, y])), fnp.sign(x) + y,
                fnp.maximum(x, y), fnp.where(x > y, x, y) - y, fnp.where(zero == 0, 0, x) + y,
                fnp.zeros((0,), np.int64) + y)
    found = fxgrad.bounds(function)(*[(np.int64(each), np.int64(each)) for each in (first, second)])
    intervals = fxgrad.tree.leaves(found.results, is_leaf=lambda x: hasattr(x, "nan"))
    with np.errstate(all="ignore"):
        results = function(np.int64(first), np.int64(second))
    for interval, result in zip(intervals, results, strict=True):
        assert {type(interval.low), type(interval.high)} == {int}, (interval, result)
        assert all(interval.low <= value <= interval.high for value in np.ravel(result).tolist()), (interval, result)
    assert intervals[3][:2] == (second, second)


def iterate(x):
    return lax.scan(lambda c, _: (fnp.tanh(c) * 2.0, c), x, None, length=9)


def loop(x):
    return lax.while_loop(lambda c: fnp.sum(c) < 4.0, lambda c: fnp.abs(c) + 1.0, x)


def branch(x):
    return lax.cond(fnp.sum(x) > 0, fnp.exp, lambda x: -x, x)


def network(x):
    return fxgrad.nn.softmax(fxgrad.nn.relu(x)) + fxgrad.nn.gelu(x)


@pytest.mark.parametrize("function", [iterate, loop, branch, network, fxgrad.jit(branch), fxgrad.vmap(fnp.sin),
                                      fxgrad.grad(lambda x: fnp.sum(fnp.tanh(x) ** 2)),
                                      fxgrad.checkpoint(lambda x: fnp.cos(x) * 3.0)])
@pytest.mark.parametrize("ends", [(-2.0, 3.0), (0.5, 0.75), (-1e3, 1e3)])
def test_programs_inside_are_sound(function: Function, ends: tuple[float, float]) -> None:
    assert_contained(function, [ends])


def test_bounds_are_tight_where_rules_are() -> None:
    found = fxgrad.bounds(iterate)((np.full(3, -5.0), np.full(3, 5.0)))
    final, steps = found.results
    assert -5.1 < final.low < final.high < 5.1  # the carry begins with the argument
    assert not final.nan
    assert not steps.nan


def choice(x):
    return (fnp.where(x > 0, x, 1.0), fnp.where(x < 0, -x, x), fnp.where(x == 0, 2.0, x), fnp.where(~(x >= 1), x, 0.0),
            fnp.where((x > -1) & (x < 1), x, 0.5), fnp.where(fnp.less(1.0, x), x, -x))


def of_nonzero(x):
    safe = fnp.where(x == 0, 2.0, x)
    positive, at_least = fnp.where(x > 0, x, 1.0), fnp.where(x >= 0, x, 0.0)
    return (safe * safe, safe ** 2, safe ** 4, abs(safe), 1.0 / safe, safe / abs(safe), fnp.square(safe),
            1.0 / safe ** 2, fnp.log(positive), fnp.sign(safe), 1.0 / positive, fnp.sqrt(at_least), safe * x,
            fnp.fmod(x, safe), fnp.sum(fnp.where(x > 0, fnp.log(x), 0.0)))


def guarded(x):
    """Choices of values that are computed from what the condition compares."""
    near = fnp.where(abs(x) < 3.0, 0.5 * x * x, 0.0)
    return (near, fnp.where(x > 0.5, 1.0 / (x - 0.25), 0.0), fnp.where(x > -1, fnp.log1p(x), 0.0), fnp.where(
        x > 0, x ** 0.3, 0.0), fnp.where(-x > 1.0, fnp.sqrt(-x), x), fnp.where(~(abs(x) <= 1.0), 1.0 / x, 0.0),
        fnp.where(abs(-x) > 0, fnp.log(abs(x)), 0.0), fnp.where(x < 1.0, fnp.log(1.0 - x), 0.0), fnp.where(
        abs(x) < 0.5, fnp.arctanh(x), 0.0), fnp.where((x > 1) & (x < 2), 1.0 / (x - 3.0), 0.0))


def sums_of_one_array(x):
    rows = x.reshape(2, 3)
    parts = fnp.exp(rows - fnp.max(rows, axis=1, keepdims=True))
    shifted = fnp.exp(x - fnp.max(x))
    return (x @ x, fnp.einsum("ij,ij->i", rows, rows), rows @ rows.T, fnp.sum(parts, axis=1), 1.0 / fnp.sum(shifted),
            fnp.log(fnp.sum(shifted)), fnp.sum(fnp.exp(rows - fnp.max(rows, axis=0)), axis=1))


def of_whole_rows(x):
    square = fnp.concatenate([x, -x, x[:4]]).reshape(4, 4)
    return (fnp.where(fnp.all(square > 0, axis=1), square, 1.0), fnp.where(fnp.any(square > 0, axis=0), 0.0, square),
            fnp.where(fnp.all(x > 0), x, 1.0))


def choice_of_two(x, y):
    return fnp.where(x < y, x, y), fnp.where(x <= y, y, x), fnp.where(x != y, x, 0.0), fnp.where(x == y, x, 0.0)


def branches(x):
    first = x[0]
    return (lax.cond(first > 0.5, lambda v: v, lambda v: -v, first),
            lax.cond(first < 0, lambda v: fnp.sqrt(-v), fnp.sqrt, first),
            lax.cond(fnp.logical_not(first < 1), lambda v: v * 2, lambda v: v, first))


def reaching_back(x):
    """Choices whose condition compares what is computed from the values that are chosen."""
    return (fnp.where(x * x < 4.0, x, 0.0), fnp.where(2.0 * x + 1.0 < 3.0, x, 0.0),
            fnp.where(fnp.exp(x) < 5.0, x, 0.0),
            fnp.where(fnp.log(x) > 1.0, x, 3.0), fnp.where(fnp.sqrt(x) <= 2.0, x, 1.0),
            fnp.where(1.0 - x > 0.5, x, 0.0),
            fnp.where(x / 3.0 < 1.0, x, 0.0), fnp.where(abs(x - 1.0) < 2.0, x, 0.0), fnp.where(x ** 4 < 2.0, x, 0.0),
            fnp.where(x ** 3 < np.inf, x, 0.0), fnp.where(fnp.isfinite(x), x, 0.0), fnp.where(
                fnp.isfinite(x * 2.0), x, 0.0), fnp.where(fnp.isfinite(fnp.sin(x)), x, 0.0), fnp.where(
                fnp.maximum(x, 1.0) < 3.0, x, 0.0), fnp.where(fnp.minimum(x, 1.0) > 0.5, x, 1.0), fnp.where(
                fnp.sum(x * x) < 4.0, x, 0.0), fnp.where(fnp.max(x) < 2.0, x, 0.0), fnp.where(
                fnp.min(x) > -2.0, x, 0.0), fnp.where(x * 1e200 * 1e-200 < 1.0, x * 1e200, 0.0),
            fnp.where(abs(x * x) > 1e-15 * abs(x - 1.0), x, 0.0), fnp.where(fnp.square(x) > 2.0, x, 0.0))


def with_distances(x):
    """Differences of numbers that a condition has compared."""
    y = x[::-1]
    return (fnp.where(x < y, y - x, 0.0), fnp.where(x < y, x - y, 0.0), fnp.where(x > y, x - y, 0.0), fnp.where(
        (x < y) & (y < 2.0), fnp.sqrt(y - x), 0.0), lax.cond(x[0] < x[1], lambda a, b: b - a, lambda a, b: 0.0 * a,
                                                             x[0], x[1]),
            lax.while_loop(lambda s: s[0] < s[1], lambda s: (s[0] + 1.0 + fnp.sqrt(s[1] - s[0]), s[1], s[1] - s[0]),
                           (x[0] * 0.0, fnp.clip(x[1], 0.0, 9.0), 0.0))[2])


def of_one_value(x):
    """Operations of two operands that are made of one value."""
    y = x[::-1]
    half = 0.5 * x
    return (fnp.where(x > 0, x * fnp.log(x), 0.0), x - (x * x - 2.0) / (2.0 * x), fnp.sin(x) / x, x * fnp.exp(-x),
            2.0 * fnp.log(x) - x, x / (1.0 + abs(x)), x - x ** 3, (x * x - y) / (2.0 * x), x + (x * y) / x,
            half * (half - y), fnp.exp(x) * x - y, x * fnp.tanh(y * x), x - fnp.log(1.0 + fnp.exp(x)),
            fnp.square(x) / (x * x), (x - y) * (x + y), fnp.where(abs(x) > 0.25, 1.0 / x - x, 0.0), -x - abs(x),
            fnp.sqrt(x) - 1.0 / x, x / fnp.sqrt(x * x))


def beside_extremes(x):
    rows = x.reshape(2, 3)
    return (x - fnp.max(x), fnp.max(x) - x, x - fnp.min(x), fnp.min(x) - x, rows - fnp.max(rows, axis=1, keepdims=True),
            fnp.exp(rows - fnp.max(rows, axis=0)), rows - fnp.max(rows), rows.T - fnp.max(rows, axis=1),
            fxgrad.nn.softmax(rows), fxgrad.nn.log_softmax(x), fxgrad.nn.logsumexp(rows, axis=1))


@pytest.mark.parametrize("function", [choice, branches, of_nonzero, guarded, sums_of_one_array, of_whole_rows,
                                      reaching_back, with_distances, of_one_value, beside_extremes])
@given(ends=RANGES)
@examples(60)
def test_conditions_narrow_what_they_compare(function: Function, ends: Any) -> None:
    assert_contained(function, [tuple(ends)])


@given(first=RANGES, second=RANGES)
@examples(60)
def test_conditions_narrow_both_operands(first: Any, second: Any) -> None:
    assert_contained(choice_of_two, [tuple(first), tuple(second)])


def of_tiny(x):
    """XLA takes the least numbers for 0."""
    return (x * 1e200, 1e200 * (x * 2.0), x / 1e-200, (x * x) * 1e200, fnp.square(x) * 1e200, (x ** 3) * 1e300,
            x + 1e-310)


COMPILED: dict[str, Function] = {
    "choice": choice, "branches": branches, "of_nonzero": of_nonzero, "guarded": guarded,
    "sums_of_one_array": sums_of_one_array, "reaching_back": reaching_back, "of_tiny": of_tiny,
    "of_one_value": of_one_value, "beside_extremes": beside_extremes, "with_distances": with_distances,
    **{name: UNARY[name] for name in (
        "integer_pow", "log", "sqrt", "sign", "abs", "square", "cbrt", "log1p", "exp", "reduce_sum", "mul", "tanh",
        "exp2", "sin", "cos", "sinh", "cosh", "asinh", "acosh", "atanh", "erf", "erfc", "rsqrt", "cumsum")}}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_code_stays_in_bounds_too(name: str) -> None:
    run = fxgrad.jit(COMPILED[name])
    ends = sorted([0.0, 1.0, -1.0, np.inf, -np.inf, 1e-310, -1e-310, 1e308, 0.5, -3.0])
    for low, high in itertools.combinations_with_replacement(ends, 2):
        assert_contained(COMPILED[name], [(low, high)], range(2), run=run)


WHOLE = st.integers(-40, 40)


def count_up(n, k):
    return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 3, s[1] - 1), (np.int32(0), k))


def count_down(n, k):
    return lax.while_loop(lambda s: (s[0] > k) & (s[1] < 50), lambda s: (s[0] - 2, s[1] + 1), (n, np.int32(0)))


def for_steps(n, k):
    return lax.fori_loop(0, fnp.clip(n, 0, 30), lambda i, c: (i, c[1] + 2, c[2] - i), (np.int32(0), k, np.int32(0)))


def scan_steps(n, k):
    return lax.scan(lambda c, x: ((c[0] + 5, c[1] - x), c[0] * 2), (n, k), np.arange(7, dtype=np.int32))


def halves(n, k):
    return lax.while_loop(lambda s: s[0] < s[1], lambda s: lax.cond(
        (s[0] + s[1]) // 2 < k, lambda low, high: ((low + high) // 2 + 1, high), lambda low, high: (
            low, (low + high) // 2), *s), (np.int32(0), fnp.clip(n, 0, 40)))


def quotients(n, k):
    return (n // fnp.clip(k, 1, 9), n % 7, fnp.fmod(n, fnp.clip(k, 2, 5)), lax.div(n, fnp.clip(k, 1, 3)),
            n % fnp.where(k == 0, 1, k), n // fnp.where(k == 0, 3, k))


@pytest.mark.parametrize("function", [count_up, count_down, for_steps, scan_steps, halves, quotients])
@given(ends=st.tuples(st.tuples(WHOLE, WHOLE), st.tuples(WHOLE, WHOLE)))
@examples(40)
def test_loops_and_quotients_of_integers_are_sound(function: Function, ends: Any) -> None:
    (low, high), (least, most) = (sorted(pair) for pair in ends)
    found = fxgrad.bounds(function)((np.int32(low), np.int32(high)), (np.int32(least), np.int32(most)))
    intervals = fxgrad.tree.leaves(found.results, is_leaf=lambda x: hasattr(x, "nan"))
    for n in {low, high, (low + high) // 2}:
        for k in {least, most, (least + most) // 2}:
            results = fxgrad.tree.leaves(function(np.int32(n), np.int32(k)))
            for interval, result in zip(intervals, results, strict=True):
                for value in np.ravel(result).tolist():
                    assert value in interval, (interval, n, k, result)


def bounds(function: Function, *ranges: Any) -> list[tuple[float, float]]:
    found = fxgrad.bounds(function)(*ranges).results
    return [(each.low, each.high) for each in fxgrad.tree.leaves(found, is_leaf=lambda x: hasattr(x, "nan"))]


def test_choices_are_computed_again_where_the_condition_holds() -> None:
    every = np.full(6, -np.inf), np.full(6, np.inf)
    near, inverse, *_ = bounds(guarded, every)
    assert -4.6 < near[0] < near[1] < 4.6
    assert inverse[0] == 0.0
    assert inverse[1] < 4.1
    assert bounds(lambda x: x @ x, every) == [(0.0, np.inf)]
    (least, most), = bounds(lambda x: fnp.sum(fnp.exp(x - fnp.max(x))), every)
    assert least == 0.9
    assert 6.0 <= most < 6.1
    assert bounds(of_whole_rows, every)[0] == (-np.inf, np.inf)  # a condition on rows stands beside columns


def test_loops_are_bounded_by_their_conditions() -> None:
    most = int(np.iinfo(np.int32).max)

    def counter(n: Any) -> Any:
        return lax.while_loop(lambda i: i < n, lambda i: i + 1, np.int32(0))
    assert bounds(counter, (np.int32(0), np.int32(9))) == [(0, 9)]
    assert bounds(counter, (np.int32(-most), np.int32(most))) == [(0, most)]
    assert bounds(halves, (np.int32(0), np.int32(40)), (np.int32(-9), np.int32(99))) == [(0, 40), (0, 40)]
    assert bounds(lambda x: lax.scan(lambda c, _: (c + 2, c), np.int32(1), None, length=4)[0], (0.0, 1.0)) == [(1, 9)]
    assert bounds(lambda n: lax.fori_loop(0, n, lambda i, c: i, np.int32(0)), (np.int32(0), np.int32(5))) == [(0, 4)]
    assert bounds(lambda x: fnp.sqrt(fnp.sum(x * x)), (np.full(3, -np.inf), np.full(3, np.inf))) == [(0.0, np.inf)]


def test_conditions_reach_back_to_what_they_are_computed_from() -> None:
    every = np.full(6, -np.inf), np.full(6, np.inf)
    found = bounds(reaching_back, every)
    near = [(-2.0, 2.0), (-np.inf, 1.0), (-np.inf, 1.75), (2.4, np.inf), (-1e-300, 4.0), (-np.inf, 0.5), (-np.inf, 3.0),
            (-1.0, 3.0), (-1.19, 1.19)]
    for (low, high), (least, most) in zip(found, near, strict=False):
        assert low == least or abs(low - least) < 0.1
        assert high == most or abs(high - most) < 0.1
    finite = float(np.finfo(np.float64).max)
    assert found[9][1] == np.inf  # a cube of -inf is less than inf, and so is no other
    assert found[10] == found[11] == found[12] == (-finite, finite)
    assert found[18][1] == np.inf  # compilers join the two factors
    assert found[19] == (-finite, finite)
    assert bounds(with_distances, every)[:4] == [(0.0, np.inf), (-np.inf, 0.0), (0.0, np.inf), (0.0, np.inf)]


def test_operands_of_one_value_are_bounded_together() -> None:
    every = np.full(6, -np.inf), np.full(6, np.inf)
    found = bounds(of_one_value, every)
    assert found[0][0] > -760.0  # x * log(x) has a least value
    (least, most), = bounds(lambda x: fnp.where(x != 0, fnp.sin(x) / x, 1.0), every)
    assert -1.1 < least < most == np.inf
    assert found[3][1] < np.inf  # neither is x * exp(-x)
    report = fxgrad.bounds(lambda x: x - (x * x - 2.0) / (2.0 * x))((-np.inf, np.inf)).results
    assert report.nan  # of an infinity, but not by the difference: see test_checks_left_out

    assert bounds(beside_extremes, every)[:4] == [(-np.inf, 0.0), (0.0, np.inf), (0.0, np.inf), (-np.inf, 0.0)]
    assert bounds(beside_extremes, every)[5][1] < 1.01


def test_a_loop_returns_values_for_which_its_condition_is_false() -> None:
    def reduce(x: Any) -> Any:
        return lax.while_loop(lambda x: x > 3.0, lambda x: x - 2.0, x)

    found = fxgrad.bounds(reduce)((-np.inf, np.inf)).results
    assert (found.low, found.high) == (-np.inf, 3.0)
    assert [float(reduce(x)) for x in (9.5, 3.0, -1.0)] == [1.5, 3.0, -1.0]
    found = fxgrad.bounds(lambda n: lax.while_loop(lambda k: k < n, lambda k: k + 2, np.int32(0)))(
        (np.int32(3), np.int32(5))).results
    assert (found.low, found.high) == (3, 6)


def test_loops_of_few_turns_are_followed() -> None:
    def series(x: Any) -> Any:
        def turn(state: Any) -> Any:
            k, term, total = state
            return k + 1, -term * x / k, total + term
        return lax.while_loop(lambda state: state[0] < 9, turn, (np.int64(1), 1.0, 0.0))[1:]

    term, total = fxgrad.bounds(series)((-2.0, 2.0)).results
    assert 1.0 <= term.high < 3.0 > -term.low
    assert total.high < 8.0
    products = fxgrad.bounds(lambda n: lax.fori_loop(0, 5, lambda i, p: p * 3, n))((np.int64(-1), np.int64(2))).results
    assert (products.low, products.high) == (-3 ** 5, 2 * 3 ** 5)
    longer = fxgrad.bounds(lambda n: lax.fori_loop(0, 65, lambda i, p: p * 3, n))((np.int64(0), np.int64(2))).results
    assert longer.high == 2 ** 63 - 1


def test_indices_out_of_range_give_the_fill_value() -> None:
    def look_up(x: Any, k: Any) -> Any:
        return fnp.asarray(x).at[k].get(mode="fill", fill_value=-1.0), fnp.asarray(x).at[k].get(mode="fill")

    of_number, of_nan = fxgrad.bounds(look_up)((np.zeros(3), np.ones(3)), (np.int64(0), np.int64(9))).results
    assert of_number == fxgrad.bounds(lambda x: x)((-1.0, 1.0)).results
    assert of_nan[:3] == (0.0, 1.0, True)


def test_a_sum_with_a_small_number_does_not_overflow() -> None:
    finite = float(np.finfo(np.float64).max)
    found = fxgrad.bounds(lambda x: x + 0.1 * fnp.sin(x))((-finite, finite)).results
    assert (found.low, found.high, found.nan) == (-finite, finite, False)
    assert fxgrad.bounds(lambda x: x + 1e292)((-finite, finite)).results.high == np.inf
    single = np.finfo(np.float32).max
    found = fxgrad.bounds(lambda x: x + x)((-single, single)).results
    assert (found.low, found.high) == (-np.inf, np.inf)


def test_integers_that_change_by_little_in_each_turn_are_bounded() -> None:
    """By the number of turns, or by the most that any loop can take."""
    def grows(x: Any, n: Any) -> Any:
        def turn(state: Any) -> Any:
            x, up, down, either, both = state
            up = lax.cond(x > 1.0, lambda k: k + 1, lambda k: k, up)
            down = down - fnp.where(x > 2.0, 1, 3)
            either = fnp.where(x > 3.0, either + 2, either)
            return x * 0.5, up, down, either, both + up
        return lax.while_loop(lambda state: state[0] > 1e-3, turn, (x, n, n, n, n))[1:]

    up, down, either, both = bounds(grows, (0.0, np.inf), (np.int64(0), np.int64(5)))
    most = 2 ** 56
    assert up == (0, 5 + most)
    assert down == (-3 * most, 5)
    assert either == (0, 5 + 2 * most)
    assert both == (-2 ** 63, 2 ** 63 - 1)  # its term grows, too

    def narrow(x: Any, n: Any) -> Any:
        return lax.while_loop(lambda state: state[0] > 1e-3, lambda state: (state[0] * 0.5, state[1] + 1), (x, n))[1]

    assert bounds(narrow, (0.0, np.inf), (np.int32(0), np.int32(5))) == [(-2 ** 31, 2 ** 31 - 1)]  # it may wrap

    def turns(n: Any) -> Any:
        return lax.fori_loop(0, 10, lambda i, k: fnp.where(i % 2 == 0, k + 3, k - 1), n)

    assert bounds(turns, (np.int64(0), np.int64(0))) == [(-10, 30)]
    assert [int(turns(np.int64(k))) for k in (-5, 5)] == [5, 15]


def test_intervals_know_that_a_value_is_never_zero() -> None:
    def divisor(y):
        return nonzero_divisor(y)
    for ends, expected in (((0, 9), (1, 9)), ((-3, 0), (-3, 1)), ((-3, 3), (-3, 3)), ((2, 3), (2, 3)),
                           ((0, 0), (1, 1))):
        found = fxgrad.bounds(divisor)((np.int32(ends[0]), np.int32(ends[1]))).results
        assert (found.low, found.high) == expected
        assert 0 not in found


@pytest.mark.parametrize(("call", "expected"), [
    (lambda: fxgrad.bounds(fnp.sin)(1.0), (
        "bounds: the range of argument 0 is a float, where a pair is needed. Write (lowest, highest), each of them "
        "like the argument")),
    (lambda: fxgrad.bounds(fnp.sin)((1.0, np.ones(2))), (
        "bounds: the two ends of the range of argument 0 are containers or arrays of different shapes")),
    (lambda: fxgrad.bounds(fnp.sin)((1.0, 0.0)), (
        "bounds: the range of argument 0 has a lowest value above the highest, or a NaN")),
], ids=["no pair", "shapes", "order"])
def test_mistakes(call: Function, expected: str) -> None:
    with pytest.raises(fxgrad.errors.ArgumentError) as caught:
        call()
    assert str(caught.value).partition("\n")[0] == expected


def test_ends_that_are_numbers_of_the_type_stay() -> None:
    """Rounding keeps the order of numbers: what is at most 2 + 2 is rounded to at most 4."""
    found = fxgrad.bounds(lambda x, y: (0.5 * (x + y), x - y, x * y, 0.1 * (x + 1.0)))((0.0, 2.0), (-1.0, 2.0)).results
    assert [(each.low, each.high) for each in found[:3]] == [(-0.5, 2.0), (-2.0, 3.0), (-2.0, 4.0)]
    assert found[3].high > 0.1 * 3.0  # the product is no number of the type
    narrow = fxgrad.bounds(lambda x: x + np.float32(1.0))((np.float32(0.0), np.float32(2.0**-24))).results
    assert narrow.high > 1 + 2.0**-24  # a number in float64 only
    tiny = fxgrad.bounds(lambda x: x * 0.5)((2.0**-1022, 1.0)).results
    assert tiny.low == 0.0  # compiled code may take half of the least number for 0


def test_bisection_stays_between_its_ends() -> None:
    @fxgrad.python_control_flow
    def bisection(c: Any) -> Any:
        low, high = 0.0, 2.0
        while high - low > 1e-9:
            middle = 0.5 * (low + high)
            if middle * middle > c:
                high = middle
            else:
                low = middle
        return low, high

    for result in fxgrad.bounds(bisection)((0.0, 4.0)).results:
        assert 0.0 <= result.low <= result.high <= 2.0
        assert not result.nan


def test_quotients_by_numbers_of_one_sign_have_theirs() -> None:
    def reciprocals(x: Any) -> Any:
        return fnp.where(x > 0, 1.0 / x, 0.0), fnp.where(x < 0, 1.0 / x, 0.0)

    found = fxgrad.bounds(reciprocals)((-1.0, 1.0)).results
    assert [(each.low, each.high) for each in found] == [(0.0, np.inf), (-np.inf, 0.0)]
    assert not any(each.nan for each in found)


def test_conditions_within_conditions_are_looked_at_where_they_stand() -> None:
    """The operands of an inner choice are variables of the branch that it stands in."""
    table = np.array([1.0, 2.0, 0.5, 3.0])

    def f(x: Any, n: Any) -> Any:
        while n < 4 and table[n] <= x <= table[n] + table[3 - n]:
            n = n + 1
            x = x + 0.5
        return x, n
    found = fxgrad.bounds(fxgrad.python_control_flow(f))((0.5, 2.0), (0, 3)).results
    for x in (0.5, 1.1, 1.6, 2.0):
        for n in range(4):
            for value, (low, high, *_) in zip(f(x, n), found, strict=True):
                assert low <= value <= high



def test_remainders_are_nearer_to_zero_than_their_divisors() -> None:
    def ends(function: Function, *ranges: Any) -> tuple[float, float]:
        found = fxgrad.bounds(function)(*ranges).results
        return found.low, found.high
    assert ends(lambda n: n % 3, (-100, 100)) == (0, 2)
    assert ends(lambda n: n % -3, (-100, 100)) == (-2, 0)
    assert ends(lambda n, k: n % k, (-100, 100), (1, 10)) == (0, 9)
    assert ends(lambda n, k: n % k, (-100, 100), (-5, 10)) == (-4, 9)
    assert ends(lambda n, k: lax.rem(n, k) + fnp.where(n > 0, k, 0), (-100, 100), (1, 10)) == (-9, 19)  # another sum

    def by_hand(n: Any, k: Any) -> Any:  # the remainder of a division by 0 is the dividend
        left = lax.rem(n, k)
        return left + fnp.where((left != 0) & ((left < 0) != (k < 0)), k, 0)
    low, high = ends(by_hand, (-100, 100), (0, 10))
    assert low <= by_hand(np.int64(100), np.int64(0)) <= high
    for n, k in itertools.product(range(-12, 13), [-3, -1, 1, 2, 7]):
        low, high = ends(lambda n, k: n % k, (n, n), (k, k))
        assert low <= n % k <= high
