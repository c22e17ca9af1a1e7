"""`check` and `checked`: silent bugs named with their line, under every transformation; results keep every bit."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import check, checked, errors, grad, jit, lax, vmap
from fxgrad.engine.executors import callbacks
from fxgrad.engine.higher_order.automatic_checks import add_checks
from fxgrad.errors import CheckError

Function = Callable[..., Any]
HERE = Path(__file__).name


def message(function: Function, *args: Any) -> str:
    """The message of the `CheckError` of a call, whose line must be one marked `# here`, with the place left out."""
    with pytest.raises(errors.CheckError) as caught:
        jax.block_until_ready(function(*args))
    text = str(caught.value)
    (line, _), = re.findall(rf"\n  at {HERE}:(\d+) \(in ([\w<>]+)\)(?:, backward pass)?(?=\n|$)", text)
    assert linecache.getline(__file__, int(line)).rstrip().endswith("# here"), text
    return re.sub(rf"\n  at {HERE}:\d+ \(in [\w<>]+\)(, backward pass)?", "", text)


# --- 25 silent bugs -------------------------------------------------------------------------------------------------

FIVE = np.arange(5.0)
MATRIX = np.arange(12.0).reshape(3, 4)


def past_the_end(x, i):
    return x[i]  # here


def last_by_length(x, n):
    return x[n] * 2.0  # here


def before_the_start(x, i):
    return x[i]  # here


def row_and_column(x, i, j):
    return x[i, j]  # here


def some_rows(x, rows):
    return fnp.sum(x[rows])  # here


def window(x, start):
    return lax.dynamic_slice(x, (start,), (3,))  # here


def update_window(x, start):
    return lax.dynamic_update_slice(x, fnp.zeros(2, x.dtype), (start,))  # here


def write(x, i):
    return fnp.asarray(x).at[i].set(1.0)  # here


def count(x, labels):
    return x.at[labels].add(1.0)  # here


def log_of_negative(x):
    return fnp.log(x)  # here


def log_of_zero_probability(p):
    return fnp.sum(p * fnp.log(p))  # here


def root_of_variance(x):
    return fnp.sqrt(fnp.mean(x * x) - fnp.mean(x) ** 2 - 1e-3)  # here


def masked_quotient(x, y):
    return fnp.where(y == 0, 0.0, x / y)  # here


def ratio(x, y):
    return x / y  # here


def whole_ratio(x, y):
    return lax.div(x, y)  # here


def remainder(x, y):
    return lax.rem(x, y)  # here


def floored(x, y):
    return x // y  # here


def modulus(x, y):
    return x % y  # here


def quotient_and_remainder(x, y):
    return fnp.divmod(x, y)  # here


def mean_of_selected(x):
    chosen = x > 10
    return fnp.sum(fnp.where(chosen, x, 0.0)) / fnp.sum(chosen)  # here


def distance(x):
    return fnp.sqrt(fnp.sum(x * x))  # here


def square_int32(x):
    return x * x  # here


def sum_int8(x):
    return fnp.sum(x, dtype=np.int8)  # here


def unsigned_difference(x, y):
    return x - y  # here


def narrow(x):
    return x.astype(np.int8)  # here


def float_to_int(x):
    return x.astype(np.int32)  # here


def infinities(x):
    return x - x  # here


def softmax(x):
    e = fnp.exp(x)
    return e / fnp.sum(e)  # here


def arcsine(x):
    return fnp.arcsin(x)  # here


def fraction_power(x):
    return x ** 0.5  # here


INT = np.int32
BUGS: list[tuple[Function, str, tuple[Any, ...], str]] = [
    (past_the_end, "index", (FIVE, INT(5)), "index out of range: 5 in an axis of size 5"),
    (last_by_length, "index", (FIVE, INT(7)), "index out of range: 7 in an axis of size 5"),
    (before_the_start, "index", (FIVE, INT(-6)), "index out of range: -6 in an axis of size 5"),
    (row_and_column, "index", (MATRIX, INT(2), INT(4)), "index out of range: 4 in an axis of size 4"),
    (some_rows, "index", (MATRIX, np.array([0, 3])), "index out of range: 3 in an axis of size 3 at [1]"),
    (window, "index", (FIVE, INT(3)), "index out of range: 3 in an axis of size 5"),
    (update_window, "index", (FIVE, INT(4)), "index out of range: 4 in an axis of size 5"),
    (write, "index", (FIVE, INT(9)), "index out of range: 9 in an axis of size 5"),
    (count, "index", (fnp.zeros(3), np.array([0, 1, 3])), "index out of range: 3 in an axis of size 3 at [2]"),
    (log_of_negative, "sqrt", (np.array([1.0, -2.0]),), "root or logarithm of a negative number: log(-2.0) at [1]"),
    (log_of_zero_probability, "nan", (np.array([1.0, 0.0]),), "NaN made: mul(0.0, -inf) at [1]"),
    (root_of_variance, "sqrt", (np.ones(3),), "root or logarithm of a negative number: sqrt(-0.001)"),
    (masked_quotient, "nan", (np.zeros(2), np.array([1.0, 0.0])), "NaN made: div(0.0, 0.0) at [1]"),
    (ratio, "div", (1.0, 0.0), "division by 0: div(1.0, 0.0)"),
    (whole_ratio, "div", (INT(7), INT(0)), "division by 0: div(7, 0)"),
    (remainder, "div", (INT(7), INT(0)), "division by 0: rem(7, 0)"),
    (floored, "div", (INT(7), INT(0)), "division by 0: the divisor is 0"),
    (floored, "div", (np.array([7, 8]), np.array([[2, 1], [1, 0]])), "division by 0: the divisor is 0 at [1, 1]"),
    (floored, "div", (7.0, 0.0), "division by 0: rem(7.0, 0.0)"),
    (modulus, "div", (INT(7), np.array([3, 0], INT)), "division by 0: the divisor is 0 at [1]"),
    (modulus, "div", (np.uint8(7), np.uint8(0)), "division by 0: the divisor is 0"),
    (quotient_and_remainder, "div", (INT(7), INT(0)), "division by 0: the divisor is 0"),
    (mean_of_selected, "div", (np.ones(3),), "division by 0: div(0.0, 0.0)"),
    (grad(distance), "div", (np.zeros(2),), "division by 0: div(1.0, 0.0)"),
    (square_int32, "overflow", (INT(70000),), "integer overflow: mul(70000, 70000)"),
    (sum_int8, "overflow", (np.full(3, 100, np.int8),), "integer overflow: reduce_sum of int8[3]"),
    (unsigned_difference, "overflow", (np.uint32(1), np.uint32(2)), "integer overflow: sub(1, 2)"),
    (narrow, "overflow", (INT(200),), "integer overflow: convert_element_type(200)"),
    (float_to_int, "overflow", (np.array([1.0, 3e9]),), "integer overflow: convert_element_type(3000000000.0) at [1]"),
    (infinities, "nan", (np.array([1.0, np.inf]),), "NaN made: sub(inf, inf) at [1]"),
    (softmax, "nan", (np.array([1.0, 1000.0]),), "NaN made: div(inf, inf) at [1]"),
    (arcsine, "nan", (np.array([0.5, 1.5]),), "NaN made: asin(1.5) at [1]"),
    (fraction_power, "nan", (np.array([4.0, -4.0]),), "NaN made: pow(-4.0, 0.5) at [1]"),
]


@pytest.mark.parametrize(("function", "kind", "args", "expected"), BUGS, ids=[f"{bug[1]}-{place}" for place, bug
                                                                           in enumerate(BUGS)])
def test_a_silent_bug_is_named_with_its_line(function: Function, kind: str, args: tuple[Any, ...], expected: str,
                                             ) -> None:
    for wrapped in (jit(checked(function, kind)), checked(jit(function), kind), checked(function, kind)):
        assert message(wrapped, *args) == expected


# --- transformations ------------------------------------------------------------------------------------------------


def log_steps(x):
    return lax.scan(lambda c, _: (fnp.log(c), c), x, None, length=5)[0]  # here


def log_while(x):
    return lax.while_loop(lambda state: state[1] < 5,
                          lambda state: (fnp.log(state[0]), state[1] + 1), (x, 0))[0]  # here


def log_branch(x):
    return lax.cond(x > 10, lambda x: x, fnp.log, x)  # here


def nested(x):
    def outer(c, _):
        return lax.scan(lambda c, _: (fnp.log(c), None), c, None, length=2)[0], None  # here
    return lax.scan(outer, x, None, length=3)[0]


ROOT = "root or logarithm of a negative number: log(-0.36651292058166435)"
TURN = f"{ROOT}\n  in turn 2 of 5 of a scan"


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["plain", "jit"])
def test_loops_name_the_turn_and_batches_the_entry(wrap: Function) -> None:
    assert message(wrap(checked(log_steps, "sqrt")), 2.0) == TURN
    assert message(wrap(vmap(checked(log_steps, "sqrt"))), np.array([1e9, 2.0])) == f"{TURN}\n  in entry 1 of the batch"
    rows = np.array([[1e9, 1e9], [1e9, 2.0]])
    assert message(wrap(vmap(vmap(checked(log_steps, "sqrt")))), rows) == f"{TURN}\n  in entry [1, 1] of the batch"
    assert message(wrap(checked(log_while, "sqrt")), 2.0) == f"{ROOT}\n  in turn 2 of a while loop"
    assert message(wrap(vmap(checked(log_while, "sqrt"))), np.array([1e9, 2.0])) == (
        f"{ROOT}\n  in turn 2 of a while loop\n  in entry 1 of the batch")
    assert message(wrap(checked(nested, "sqrt")), 2.0) == (
        f"{ROOT}\n  in turn 0 of 2 of a scan\n  in turn 1 of 3 of a scan")
    assert message(wrap(grad(checked(log_steps, "sqrt"))), 2.0) == TURN
    assert message(wrap(checked(grad(log_steps), "sqrt")), 2.0).startswith(ROOT)


def below_until(x, length, reverse=False):
    def step(c, y):
        check(y != 2 * length // 3, "{y} is too much", y=y)  # here
        return c * y, None
    return lax.scan(step, x, np.arange(float(length)), reverse=reverse, until=lambda c: c > 1e99)[0]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [3, 23, 30])
@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["plain", "jit"])
def test_loops_that_end_early_count_as_one(wrap: Function, length: int, reverse: bool) -> None:
    text = f"{2 * length // 3:.1f} is too much"
    turn = f"\n  in turn {2 * length // 3} of {length} of a scan"

    def run(x):
        return below_until(x, length, reverse)
    assert message(wrap(run), 1.0) == message(wrap(grad(run)), 1.0) == text + turn
    assert message(wrap(vmap(run)), np.ones(2)) == f"{text}\n  in entry 0 of the batch{turn}"
    outer = f"{text}{turn}\n  in turn 0 of 2 of a scan"
    assert message(wrap(lambda x: lax.scan(lambda c, _: (run(c), None), x, None, length=2)[0]), 1.0) == outer


def test_a_condition_that_fails_names_the_turn_before_which_it_is_tested() -> None:
    def stops(c):
        check(c < 13, "{c} is too much", c=c)  # here
        return c > 99
    def count(x):
        return lax.scan(lambda c, _: (c + 1.0, None), x, length=23, until=stops)[0]
    expected = "13.0 is too much\n  in turn {} of 23 of a scan"
    for wrap in (lambda f: f, jit):
        assert message(wrap(count), 0.0) == expected.format(13)  # within a block
        assert message(wrap(count), 1.0) == expected.format(12)  # at the beginning of one


def slope_at_zero(c, x):
    return c + fnp.sqrt(x * c), None  # here


def at_thirteen(i, c):
    return c + fnp.sqrt(fnp.where(i == 13, 0.0, 1.0) * c)  # here


ROOTS = np.where(np.arange(23) == 13, 0.0, 1.0)


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["plain", "jit"])
@pytest.mark.parametrize(("function", "kind"), [
    (lambda x: lax.scan(slope_at_zero, x, ROOTS)[0], "scan"),
    (lambda x: lax.scan(slope_at_zero, x, ROOTS, unroll=5)[0], "scan"),
    (lambda x: lax.scan(slope_at_zero, x, ROOTS, until=lambda c: c > 1e9)[0], "scan"),
    (fxgrad.checkpoint(lambda x: lax.scan(slope_at_zero, x, ROOTS)[0]), "scan"),
    (lambda x: lax.fori_loop(0, np.int32(23), at_thirteen, x), "scan"),
    (lambda x: lax.while_loop(lambda s: s[0] < 23, lambda s: (s[0] + 1, at_thirteen(*s)), (0, x))[1], "loop"),
], ids=["scan", "unroll", "until", "checkpoint", "fori", "while"])
def test_backward_passes_name_the_turn(wrap: Function, function: Function, kind: str,
                                       capfd: pytest.CaptureFixture[str]) -> None:
    found = message(wrap(checked(grad(function), "div")), 1.0)
    assert re.sub(r"div\(.*\)", "div", found) == f"division by 0: div\n  in turn 13 of 23 of a {kind}"
    assert capfd.readouterr().err == ""  # no code that calls Python ran


@pytest.mark.slow
def test_backward_passes_of_loops_carry_the_flag(capfd: pytest.CaptureFixture[str]) -> None:
    def powers(x, turns):
        return lax.fori_loop(0, turns, lambda i, c: c + fnp.sqrt(c), x)
    derivative = jit(checked(grad(powers), "all"))
    assert derivative(2.0, np.int32(7)) == pytest.approx(grad(powers)(2.0, 7), rel=1e-14)
    assert derivative(2.0, np.int32(0)) == 1.0
    assert message(jit(checked(lambda x, n: grad(
        lambda x: lax.fori_loop(0, n, lambda i, c: c + fnp.sqrt(c), x))(x), "div")), 0.0, np.int32(3)).endswith(  # here
            "in turn 2 of 3 of a loop")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["plain", "jit"])
def test_whole_divisions_name_the_entry_and_the_turn(wrap: Function) -> None:
    def countdown(x):
        return lax.scan(lambda c, _: (c - 1, 10 // c), x, None, length=5)[1]  # here
    expected = "division by 0: the divisor is 0"
    assert message(wrap(vmap(checked(floored, "div"))), np.array([5, 6]), np.array([1, 0])) == (
        f"{expected}\n  in entry 1 of the batch")
    assert message(wrap(checked(countdown, "div")), INT(3)) == f"{expected}\n  in turn 3 of 5 of a scan"
    assert message(wrap(grad(checked(lambda x, y: x * (7 // y), "div"))), 1.0, INT(0)) == expected  # here
    np.testing.assert_array_equal(wrap(checked(countdown, "div"))(INT(9)), [1, 1, 1, 1, 2])


def test_a_divisor_that_the_user_guards_is_not_reported() -> None:
    def guarded(x, y):
        return fnp.where(y == 0, -1, x // fnp.where(y == 0, 1, y))
    for function in (checked(guarded, "div"), jit(checked(guarded, "div"))):
        np.testing.assert_array_equal(function(7, np.array([0, 2])), [-1, 3])


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["plain", "jit"])
def test_a_branch_is_checked_only_where_it_is_taken(wrap: Function) -> None:
    assert wrap(checked(log_branch, "all"))(11.0) == 11.0
    assert message(wrap(checked(log_branch, "sqrt")), -1.0) == "root or logarithm of a negative number: log(-1.0)"
    np.testing.assert_array_equal(wrap(vmap(checked(lambda x: lax.cond(x > 0, fnp.sqrt, fnp.negative, x), "all")))(
        np.array([-1.0, -4.0])), [1.0, 4.0])
    assert message(wrap(vmap(checked(log_branch, "sqrt"))), np.array([11.0, -1.0])) == (
        "root or logarithm of a negative number: log(-1.0)\n  in entry 1 of the batch")


def invert(x):
    check(x != 0, "{x} has no inverse", x=x)  # here
    return 1 / x


@pytest.mark.parametrize("wrap", [lambda f: f, jit, checked, lambda f: jit(checked(f)), lambda f: checked(jit(f)), grad,
                                  lambda f: jit(grad(f)), lambda f: grad(jit(f))])
def test_a_check_of_the_user_survives_every_transformation(wrap: Function) -> None:
    assert message(wrap(invert), 0.0) == "0.0 has no inverse"
    assert np.isfinite(wrap(invert)(2.0))
    assert message(vmap(wrap(invert)), np.array([1.0, 0.0])) == "0.0 has no inverse\n  in entry 1 of the batch"


def test_a_check_of_an_array_names_the_place() -> None:
    def positive(x):
        check(x > 0, "not positive")  # here
        return x

    assert message(positive, np.array([[1.0, 2.0], [3.0, -4.0]])) == "not positive\n  at [1, 1] of the condition"
    assert message(jit(positive), np.array([1.0, 0.0])) == "not positive\n  at [1] of the condition"
    np.testing.assert_array_equal(positive(np.empty(0)), [])


def test_forward_mode_keeps_the_checks() -> None:
    assert message(lambda x: fxgrad.jvp(invert, (x,), (1.0,)), 0.0) == "0.0 has no inverse"


# --- results ----------------------------------------------------------------------------------------------------------

RIGHT: list[tuple[Function, tuple[Any, ...]]] = [
    (softmax, (np.array([1.0, 2.0]),)), (log_steps, (1e9,)), (log_while, (1e9,)),
    (log_branch, (3.0,)), (some_rows, (MATRIX, np.array([0, 2]))), (some_rows, (MATRIX, np.array([-1, 0]))),
    (write, (FIVE, INT(2))), (window, (FIVE, INT(2))), (square_int32, (INT(46340),)),
    (lambda x: {"a": x, "b": (x.astype(np.float32), 2)}, (FIVE,)), (lambda x: x, (np.empty((0, 3)),)),
    (lambda x: fnp.sum(x), (np.array([1.0, np.nan]),)), (lambda x: x * (1 + 2j), (np.array([1j]),)),
    (grad(lambda x: fnp.sum(fnp.tanh(x @ x.T))), (np.ones((3, 4)),)),
    (lambda x: fxgrad.nn.relu(x) + fxgrad.nn.softmax(x), (np.array([-1.0, 2.0]),)),
    (lambda x: x.astype(np.int64), (np.array([2.0 ** 62]),)), (lambda x: -x, (np.array([-128, 5], np.int16),)),
    (lambda key: fxgrad.random.normal(key, (3,)), (fxgrad.random.key(0),)),
]


@pytest.mark.parametrize("place", range(len(RIGHT)))
def test_results_are_those_of_the_function_to_the_bit(place: int) -> None:
    function, args = RIGHT[place]
    for wrap in (lambda f: f, jit):
        expected, found = wrap(function)(*args), wrap(checked(function, "all"))(*args)
        assert fxgrad.tree.structure(expected) == fxgrad.tree.structure(found)
        for one, other in zip(fxgrad.tree.leaves(expected), fxgrad.tree.leaves(found), strict=True):
            one, other = np.asarray(one), np.asarray(other)  # noqa: PLW2901
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def test_a_nan_that_comes_in_is_passed_on() -> None:
    x = np.array([1.0, np.nan])
    for function in (checked(fnp.sin, "nan"), jit(checked(fnp.sin, "nan"))):
        np.testing.assert_array_equal(np.isnan(function(x)), [False, True])


def test_a_function_without_checks_keeps_its_program() -> None:
    def plain(x):
        return fnp.reshape(x, (5,))
    assert str(fxgrad.make_program(checked(plain, "all"))(FIVE)).replace("checked(plain)", "plain") == str(
        fxgrad.make_program(plain)(FIVE))


def test_a_check_that_passed_spares_those_of_the_same_value() -> None:
    def twice(x, i, y):
        return x[i] + x[i] * 2 + fnp.log(y) + fnp.sqrt(y) + 1.0 / y / y

    def kinds(program):
        return [equation.primitive.name for equation in program.equations].count("check")
    program = fxgrad.make_program(twice)(FIVE, INT(1), 2.0)
    complete = add_checks(program, frozenset(["index", "sqrt", "div"]), quick=False)
    assert kinds(complete) == 3
    for kind, args in (("index", (FIVE, INT(5), 1.0)), ("sqrt", (FIVE, INT(1), -1.0)), ("div", (FIVE, INT(1), 0.0))):
        with pytest.raises(CheckError):
            jit(checked(twice, kind))(*args)


def test_a_nan_is_tested_where_nothing_hands_it_on() -> None:
    def mlp(w, x):
        for layer in w:
            x = fnp.tanh(x @ layer)
        return fnp.sum(x)
    program = fxgrad.make_program(checked(mlp, "nan"))([np.ones((4, 4))] * 4, np.ones((2, 4)))
    names = [equation.primitive.name for equation in program.equations]
    assert names.count("eq") == 1  # of the result alone
    assert names[-1] == "check"


# --- mistakes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("call", "expected"), [
    (lambda: checked(fnp.sin, "nans"), (
        "checked: errors has 'nans', where the kinds are 'user', 'nan', 'div', 'sqrt', 'index', 'overflow'; 'all' "
        "means all of them")),
    (lambda: check(1.0, "no"), (
        "check: the condition is f64*[], where bool is needed. Write a comparison, such as "
        "fxgrad.check(x > 0, ...)")),
    (lambda: check(False, 3), (
        "check: the second argument is a int, where a format string is needed. Write check(x > 0, '{}', x)")),
    (lambda: check(False, "{y}", x=1), (
        "check: the format string has the field {y}, and there is no such argument; given are {x}")),
    (lambda: check(False, "", x=1), (
        "check: the format string has no field for {x}, which would not be printed; write such a field, or leave the "
        "argument out")),
], ids=["kind", "condition", "format", "field", "argument"])
def test_mistakes(call: Function, expected: str) -> None:
    with pytest.raises(errors.ArgumentError) as caught:
        call()
    assert str(caught.value).partition("\n")[0] == expected


def check_by_lane(function: Function, args: Any, expected: Any, failing: Any, message: str) -> None:
    """Check a batch whose entries differ in what they run: its values, its gradient, and the error of an entry."""
    for batched in (vmap(function), jit(vmap(function)), vmap(jit(function))):
        np.testing.assert_allclose(batched(*args), expected)
        with pytest.raises(CheckError) as caught:
            batched(*failing)
        assert str(caught.value) == message
    by_entry = [grad(function)(*each) for each in zip(*args, strict=True)]
    np.testing.assert_allclose(jit(vmap(grad(function)))(*args), by_entry)
    np.testing.assert_allclose(jit(grad(lambda *given: vmap(function)(*given).sum()))(*args), by_entry)
    with pytest.raises(CheckError) as caught:
        jit(grad(lambda *given: vmap(function)(*given).sum()))(*failing)
    assert str(caught.value) == message


def test_a_check_in_a_branch_that_entries_differ_in_is_one_of_the_entries_that_run_it() -> None:
    def inverted(x):
        check(x != 2.0, "{x} is two", x=x)
        return 1 / x

    def branch(x):
        return lax.cond(x > 0, inverted, lambda x: x, x)
    message = f"2.0 is two\n  at {line_of(inverted, 1)}\n  in entry 2 of the batch"
    check_by_lane(branch, (np.array([1.0, -2.0, 4.0]),), [1.0, -2.0, 0.25], (np.array([1.0, -2.0, 2.0]),), message)
    np.testing.assert_array_equal(vmap(branch)(np.array([-2.0, -2.0])), [-2.0, -2.0])
    with pytest.raises(CheckError, match=r"in entry \[1, 1\] of the batch"):
        jit(vmap(vmap(branch)))(np.array([[1.0, -2.0], [-1.0, 2.0]]))


@pytest.mark.slow
def test_a_check_in_a_loop_that_entries_leave_at_different_turns() -> None:
    def total(x, n):
        def turn(i, t):
            check(t < 5.0, "{t} is too much", t=t)
            return t + x
        return lax.fori_loop(0, n, turn, 0.0)
    message = "9.0 is too much\n  at {} (in turn)\n  in turn 1 of 2 of a for loop\n  in entry 1 of the batch"
    place = f"test_value_checks.py:{total.__code__.co_firstlineno + 2}"
    check_by_lane(total, (np.array([1.0, 9.0]), np.array([3, 1])), [3.0, 9.0], (np.array([1.0, 9.0]), np.array([3, 2])),
                  message.format(place))

    def halved(x):
        def turn(state):
            x, k = state
            check(k < 6, "{k} is the sixth", k=k)
            return x / 2, k + 1
        return lax.while_loop(lambda state: state[0] > 1, turn, (x, 0))[0]
    place = f"test_value_checks.py:{halved.__code__.co_firstlineno + 3}"
    check_by_lane(halved, (np.array([3.0, 20.0, 0.5]),), [0.75, 0.625, 0.5], (np.array([3.0, 200.0, 0.5]),), (
        f"6 is the sixth\n  at {place} (in turn)\n  in turn 6 of a while loop\n  in entry 1 of the batch"))


@pytest.mark.slow
def test_a_check_in_a_loop_of_a_function_with_derivatives_of_its_own() -> None:
    @fxgrad.custom_jvp
    def square(x):
        check(x < 10.0, "{x} is too much", x=x)
        return x * x

    square.defjvp(lambda primals, tangents: (square(*primals), 2.0 * primals[0] * tangents[0]))
    root = fxgrad.implicit(root=lambda y, x: y * y - x)(lambda x: fnp.where(x < 10.0, fnp.sqrt(x), 0.0))
    n, numbers = np.array([1, 0, 2]), np.array([2.0, 20.0, 2.0])

    def squares(x, n):
        return lax.fori_loop(0, n, lambda i, x: square(x), x)

    def roots(x, n):
        return lax.while_loop(lambda state: state[0] < n, lambda state: (state[0] + 1, root(state[1])), (0, x))[1]
    message = (f"25.0 is too much\n  at {line_of(square.__wrapped__, 2)}\n  in turn 1 of 2 of a for loop\n"
               "  in entry 2 of the batch")
    for batched in (vmap(squares), jit(vmap(squares)), vmap(jit(squares))):
        np.testing.assert_allclose(batched(numbers, n), [4.0, 20.0, 16.0])
        assert raised(batched, np.array([2.0, 20.0, 5.0]), n) == message
    slopes = jit(vmap(grad(squares))), jit(grad(lambda *given: vmap(squares)(*given).sum()))
    for slope in slopes:
        np.testing.assert_allclose(slope(numbers, n), [4.0, 1.0, 32.0])
        assert raised(slope, np.array([2.0, 20.0, 5.0]), n).startswith("25.0 is too much")
    for batched in (vmap(roots), jit(vmap(roots))):
        np.testing.assert_allclose(batched(numbers, n), [2 ** 0.5, 20.0, 2 ** 0.25])
        assert raised(batched, numbers, np.array([1, 1, 1])).endswith(
            "in turn 0 of a while loop\n  in entry 1 of the batch")
    np.testing.assert_allclose(jit(vmap(grad(roots)))(np.array([4.0, 20.0, 9.0]), n), [0.25, 1.0, 0.25 * 9.0 ** -0.75])


def limited_jvp() -> Function:
    @fxgrad.custom_jvp
    def f(x):
        return fnp.sin(x)

    @f.defjvp
    def rule(primals, tangents):
        check(primals[0] < 2.0, "too much")  # here
        return f(*primals), fnp.cos(primals[0]) * tangents[0]
    return f


def limited_vjp() -> Function:
    @fxgrad.custom_vjp
    def f(x):
        return fnp.sin(x)

    def backward(x, cotangent):
        check(x < 2.0, "too much")  # here
        return (fnp.cos(x) * cotangent,)
    f.defvjp(lambda x: (f(x), x), backward)
    return f


def nested_whiles(f: Function, x: Any) -> Any:
    def inner(x):
        return lax.while_loop(lambda s: s[1] < x - 1, lambda s: (s[0] + 0.01 * f(s[0]), s[1] + 1), (x, 0))[0]
    return lax.while_loop(lambda s: s[1] < x - 1, lambda s: (inner(s[0]), s[1] + 1), (x, 0))[0]


def root_of(f: Function, x: Any) -> Any:
    return lax.custom_root(lambda y: y - f(x), 0.0 * x, lambda g, y: y - g(y), lambda g, y: y / g(1.0))


def if_large(function: Function) -> Function:
    return lambda x: lax.cond(x > 1.5, function, lambda x: 1.0 * x, x)


LANE_STRUCTURES: dict[str, Callable[[Function], Function]] = {
    "fori": lambda f: lambda x: lax.fori_loop(0, fnp.floor(x).astype(int), lambda i, c: c + 0.01 * f(c), x),
    "while": lambda f: lambda x: lax.while_loop(
        lambda s: s[1] < x - 1, lambda s: (s[0] + 0.01 * f(s[0]), s[1] + 1), (x, 0))[0],
    "cond": if_large,
    "switch": lambda f: lambda x: lax.switch(
        fnp.floor(x).astype(int), [lambda x: 1.0 * x, f, lambda x: 2.0 * f(x)], x),
    "while in while": lambda f: lambda x: nested_whiles(f, x),
    "scan in cond": lambda f: if_large(
        lambda x: lax.scan(lambda c, _: (c + 0.01 * f(c), c), x, None, length=3)[0]),
    "scan until": lambda f: lambda x: lax.scan(
        lambda c, _: (c + 0.01 * f(c), c), x, None, length=3, until=lambda c: c < 1.5)[0],
    "checkpoint in cond": lambda f: if_large(fxgrad.checkpoint(f)),
    "root in cond": lambda f: if_large(lambda x: root_of(f, x)),
}


def summed(function: Function) -> Function:
    return lambda x: fnp.sum(vmap(function)(x))


LANE_DERIVATIVES: dict[str, tuple[int, Callable[[Function], Function]]] = {
    "grad of vmap": (1, lambda h: grad(summed(h))),
    "jvp of vmap": (1, lambda h: lambda x: fxgrad.jvp(vmap(h), (x,), (fnp.ones_like(x),))[1]),
    "vmap of grad": (1, lambda h: vmap(grad(h))),
    "vmap of jvp": (1, lambda h: vmap(lambda x: fxgrad.jvp(h, (x,), (1.0,))[1])),
    "vmap of grad of grad": (2, lambda h: vmap(grad(grad(h)))),
    "jvp of grad of vmap": (2, lambda h: lambda x: fxgrad.jvp(grad(summed(h)), (x,), (fnp.ones_like(x),))[1]),
    "checked": (1, lambda h: checked(grad(summed(h)), "user")),
}


@pytest.mark.slow
@pytest.mark.parametrize("limited", [limited_jvp, limited_vjp])
@pytest.mark.parametrize("structure", LANE_STRUCTURES)
def test_a_check_in_a_rule_names_the_entry_whose_loop_or_branch_runs(structure: str, limited: Function) -> None:
    h = LANE_STRUCTURES[structure](limited())
    good = np.array([0.3, 1.7, 0.5, 1.9])
    alone = {1: [*map(grad(h), good)], 2: [*map(grad(grad(h)), good)]}
    for name, (order, derivative) in LANE_DERIVATIVES.items():
        for wrap in (derivative(h), jit(derivative(h))):
            np.testing.assert_allclose(wrap(good), alone[order], rtol=1e-12, atol=1e-15, err_msg=name)
            for entry, x in ((3, [0.3, 0.4, 0.5, 2.4]), (1, [0.3, 2.4, 1.8, 0.5]), (0, [2.4, 0.3, 0.4, 0.5])):
                lines = message(wrap, np.array(x)).split("\n")
                assert [line for line in lines if "in turn" not in line] == [
                    "too much", f"  in entry {entry} of the batch"], name


@pytest.mark.slow
def test_a_check_in_a_rule_names_the_entry_of_each_of_nested_batches() -> None:
    x = np.array([[0.3, 0.4, 0.5], [0.3, 1.7, 2.4]])
    for limited in (limited_jvp, limited_vjp):
        h = if_large(limited())
        batched = grad(lambda x, h=h: fnp.sum(vmap(vmap(h))(x)))
        for wrap in (batched, jit(batched)):
            assert message(wrap, x) == "too much\n  in entry [1, 2] of the batch"
            np.testing.assert_allclose(wrap(x[:, :2]), [[1.0, 1.0], [1.0, np.cos(1.7)]])


def test_a_check_in_a_rule_of_a_value_that_entries_share_names_the_first_that_takes_the_branch() -> None:
    @fxgrad.custom_jvp
    def scaled(x, w):
        return x * w

    @scaled.defjvp
    def rule(primals, tangents):
        x, w = primals
        check(w < 2.0, "too much for {x}", x=x)  # here
        return x * w, w * tangents[0] + x * tangents[1]

    @grad
    def slopes(x, w):
        return fnp.sum(vmap(lambda x: lax.cond(x > 1.5, lambda x: scaled(x, w), lambda x: x, x))(x))
    for wrap in (slopes, jit(slopes)):
        assert message(wrap, np.array([0.3, 0.4, 1.7]), 3.0) == "too much for 1.7\n  in entry 2 of the batch"
        np.testing.assert_array_equal(wrap(np.array([0.3, 0.4, 0.7]), 3.0), [1.0, 1.0, 1.0])


# --- compiled, by one flag -------------------------------------------------------------------------------------------


def halve(x: Any, mode: str = "log", scale: Any = 2.0) -> Any:
    fxgrad.check(fnp.all(x > 0), "{x} is not positive", x=x)
    return {"half": x / scale, "other": fnp.log(x) if mode == "log" else x}


def line_of(function: Function, offset: int) -> str:
    return f"test_value_checks.py:{function.__code__.co_firstlineno + offset} (in {function.__name__})"


def raised(call: Function, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(CheckError) as found:
        call(*args, **kwargs)
    return str(found.value)


def test_every_kind_of_call_of_a_jitted_function_has_the_flag(capfd: pytest.CaptureFixture[str]) -> None:
    jitted = jit(halve, static_argnames="mode")
    ways: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((np.array([1.0, 2.0]),), {}), ((np.array([1.0, 2.0]),), {"mode": "same", "scale": 3.0}),
        ((jnp.array([1.0, 2.0], "float32"),), {}), ((1.5,), {}), ((np.array([1, 2]),), {}), ((np.ones((0,)),), {})]
    for _ in range(2):
        for args, kwargs in ways:
            found, expected = jitted(*args, **kwargs), halve(*args, **kwargs)
            assert set(found) == {"half", "other"}
            for name, value in found.items():
                np.testing.assert_allclose(value, expected[name], rtol=1e-6)
            if np.size(args[0]):
                assert raised(jitted, -args[0], **kwargs) == (
                    f"{-args[0]} is not positive\n  at {line_of(halve, 1)}")
    assert capfd.readouterr().err == ""  # no code that calls Python ran
    jitted.clear_cache()
    assert raised(jitted, -1.0) == f"-1.0 is not positive\n  at {line_of(halve, 1)}"


def test_compiled_loops_name_the_turn_of_a_plain_check() -> None:
    def countdown(x: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            fxgrad.check(carry > 0, "at {c}", c=carry)
            return carry - 1.0, carry
        return fxgrad.lax.scan(step, x, None, length=5)[0]
    jitted = jit(countdown)
    assert jitted(9.0) == 4.0
    line = countdown.__code__.co_firstlineno + 2
    assert raised(jitted, 2.5) == (
        f"at -0.5\n  at test_value_checks.py:{line} (in step)\n  in turn 3 of 5 of a scan")


def test_loops_of_traced_length_carry_the_flag_and_name_the_turn(capfd: pytest.CaptureFixture[str]) -> None:
    def countdown(x: Any, turns: Any) -> Any:
        def body(i: Any, carry: Any) -> Any:
            fxgrad.check(carry > 0, "at {c}", c=carry)
            return carry - 1.0
        return lax.fori_loop(0, turns, body, x)
    line = countdown.__code__.co_firstlineno + 2
    for function in (countdown, grad(countdown)):
        jitted = jit(function)
        assert jitted(9.0, np.int32(5)) == function(9.0, 5)
        assert jitted(9.0, np.int32(0)) == function(9.0, 0)
        assert raised(jitted, 2.5, np.int32(5)) == (
            f"at -0.5\n  at test_value_checks.py:{line} (in body)\n  in turn 3 of 5 of a scan")
    assert raised(jit(checked(lambda x, n: lax.fori_loop(0, n, lambda i, c: fnp.log(c), x), "sqrt")),
                  2.0, np.int32(5)).endswith("\n  in turn 2 of 5 of a for loop")
    assert capfd.readouterr().err == ""  # no code that calls Python ran


@pytest.mark.parametrize("options", [{"donate_argnums": 0}, {"donate_argnames": "x"}, {"keep_unused": True},
                                     {"in_shardings": "halves"}, {"out_shardings": "halves"},
                                     {"in_shardings": "halves", "out_shardings": "halves"}], ids=str)
def test_options_of_jit_take_the_flag(options: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> None:
    def positive(x: Any) -> Any:
        fxgrad.check(fnp.all(x > 0), "{x} is not positive", x=x)
        return {"twice": x * 2.0}
    halves = NamedSharding(jax.make_mesh((2,), ("x",)), PartitionSpec("x"))
    jitted = jit(positive, **{name: halves if value == "halves" else value for name, value in options.items()})
    for _ in range(2):
        given = jnp.array([1.0, 2.0])
        found = jitted(given)["twice"]
        np.testing.assert_array_equal(found, [2.0, 4.0])
        assert not given.is_deleted()
        assert "out_shardings" not in options or found.sharding == halves
        assert raised(jitted, jnp.array([-1.0, 2.0])) == f"[-1.  2.] is not positive\n  at {line_of(positive, 1)}"
    assert capfd.readouterr().err == ""  # no code that calls Python ran


def test_out_shardings_of_a_checked_function_are_compared_with_its_own_results() -> None:
    halves = NamedSharding(jax.make_mesh((2,), ("x",)), PartitionSpec("x"))
    with pytest.raises(errors.ArgumentError) as plain:
        jit(lambda x: x * 2.0, out_shardings=(halves, halves))(jnp.ones(2))
    with pytest.raises(errors.ArgumentError) as with_checks:
        jit(lambda x: (check(fnp.all(x > 0), "no"), x * 2.0)[1], out_shardings=(halves, halves))(jnp.ones(2))
    assert str(plain.value).partition("\n")[0] == str(with_checks.value).partition("\n")[0]


def test_code_compiled_ahead_of_time_has_the_flag(capfd: pytest.CaptureFixture[str]) -> None:
    given = np.array([1.0, 2.0])
    jitted = jit(halve, static_argnames="mode")
    lowered = jitted.lower(given, mode="same")
    for compiled in (lowered.compile(), jitted.trace(given, mode="same").lower().compile()):
        found = compiled(given)
        np.testing.assert_array_equal(found["half"], [0.5, 1.0])
        assert jax.tree.structure(found) == compiled.out_tree == jax.tree.structure(lowered.out_info)
        assert raised(compiled, -given) == f"{-given} is not positive\n  at {line_of(halve, 1)}"
    assert "callback" not in lowered.as_text()
    assert capfd.readouterr().err == ""  # no code that calls Python ran


def positive_sum(x: Any) -> Any:
    fxgrad.check(fnp.all(x > 0), "{x} is not positive", x=x)
    return fnp.sum(fnp.log(x) * x)


def with_rule(decorate: Function) -> Function:
    function = decorate(lambda x: positive_sum(x))
    if decorate is fxgrad.custom_vjp:
        function.defvjp(lambda x: (positive_sum(x), x), lambda x, cotangent: (cotangent * x,))
    else:
        function.defjvp(lambda primals, tangents: (positive_sum(*primals), fnp.sum(tangents[0])))
    return function


MESH = PartitionSpec("i")


def on_devices(function: Function, **options: Any) -> Function:
    return lambda x: fxgrad.shard_map(function, mesh=jax.make_mesh((2,), ("i",)), in_specs=MESH, out_specs=MESH,
                                      **options)(x)


def piece(x: Any) -> Any:
    positive_sum(x)
    return x * 2.0


def steps_of_piece(x: Any) -> Any:
    return lax.scan(lambda c, _: (piece(c + 0.0) / 2.0 - 1.0, None), x + 2.5, None, length=3)[0]


INSIDE: dict[str, tuple[Function, str]] = {
    "grad of jit": (grad(jit(positive_sum)), "[ 1. -2.]"),
    "jvp of jit": (lambda x: fxgrad.jvp(jit(positive_sum), (x,), (x,)), "[ 1. -2.]"),
    "hessian of jit": (fxgrad.hessian(jit(positive_sum)), "[ 1. -2.]"),
    "vmap of jit": (vmap(lambda x: jit(positive_sum)(x[None])), "[-2.]\n  in entry 1 of the batch"),
    "scan of jit": (lambda x: lax.scan(lambda c, _: (c - 1.5, jit(positive_sum)(c)), x + 1, None, length=2),
                    "[ 2. -1.]\n  in turn 0 of 2 of a scan"),
    "grad of checkpoint of jit": (grad(fxgrad.checkpoint(jit(positive_sum))), "[ 1. -2.]"),
    "jit of checkpoint": (jit(grad(fxgrad.checkpoint(positive_sum))), "[ 1. -2.]"),
    "jit of custom_vjp": (jit(with_rule(fxgrad.custom_vjp)), "[ 1. -2.]"),
    "jit of grad of custom_vjp": (jit(grad(with_rule(fxgrad.custom_vjp))), "[ 1. -2.]"),
    "jit of custom_jvp": (jit(with_rule(fxgrad.custom_jvp)), "[ 1. -2.]"),
    "jit of grad of custom_jvp": (jit(grad(with_rule(fxgrad.custom_jvp))), "[ 1. -2.]"),
    "jit of shard_map": (jit(on_devices(piece)), "[-2.]\n  on the device at i=1 of the mesh"),
    "shard_map of jit": (on_devices(jit(piece)), "[-2.]\n  on the device at i=1 of the mesh"),
    "jit of shard_map without check_vma": (jit(on_devices(piece, check_vma=False)),
                                           "[-2.]\n  on the device at i=1 of the mesh"),
    "jit of grad of shard_map": (jit(grad(lambda x: fnp.sum(on_devices(piece)(x)))),
                                 "[-2.]\n  on the device at i=1 of the mesh"),
    "jit of shard_map of scan": (jit(on_devices(steps_of_piece)),
                                 "[-0.5]\n  on the device at i=1 of the mesh\n  in turn 1 of 3 of a scan"),
}


@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray], ids=["NumPy", "jax"])
@pytest.mark.parametrize("name", INSIDE)
def test_the_flag_inside_transformations(name: str, convert: Function, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("compiled code calls Python")
    monkeypatch.setattr(callbacks, "emit_debug_callback", refuse)
    function, expected = INSIDE[name]
    jax.block_until_ready(function(convert(np.array([1.0, 2.0]))))
    text, _, context = expected.partition("\n")
    assert raised(function, convert(np.array([1.0, -2.0]))) == (
        f"{text} is not positive\n  at {line_of(positive_sum, 1)}" + (f"\n{context}" if context else ""))


def test_checks_of_plain_calls_on_arrays_of_jax() -> None:
    assert raised(positive_sum, jnp.array([1.0, -2.0])) == (
        f"[ 1. -2.] is not positive\n  at {line_of(positive_sum, 1)}")
    assert raised(lambda x: fxgrad.to_jax(positive_sum)(x), jnp.array([-2.0])) == (
        f"[-2.] is not positive\n  at {line_of(positive_sum, 1)}")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_a_nan_is_found_wherever_it_stands(dtype: str) -> None:
    function = jit(checked(lambda x: (x - x) * 1.0, "nan"))
    for size in (1, 7, 33, 64):
        x = np.ones(size, dtype)
        assert not np.asarray(function(x)).any()
        for place in {0, size // 2, size - 1}:
            x = np.ones(size, dtype)
            x[place] = np.inf
            assert raised(function, x).startswith("NaN made: sub(")
    assert function(np.ones((0, 3), dtype)).shape == (0, 3)


def test_a_check_that_only_xla_fails_is_raised_with_its_values() -> None:
    # XLA takes the least numbers for 0, and NumPy does not.
    def reciprocal(x: Any) -> Any:
        fxgrad.check(x * 1.0 > 0, "too small")
        return 1.0 / x
    least = np.float32(1e-40)
    assert reciprocal(np.float32(1e-30)) == 1 / np.float32(1e-30)
    assert raised(jit(reciprocal), least) == f"too small\n  at {line_of(reciprocal, 1)}"


def test_calls_in_several_threads() -> None:
    jitted = jit(halve)

    def fails(x: float) -> bool:
        try:
            jitted(np.array([1.0, x]))
        except CheckError as error:
            return f"{x:.0f}." in str(error)
        return False
    values = [-3.0, 2.0, -1.0, 4.0] * 8
    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(fails, values)] == [x < 0 for x in values]


def test_operands_that_have_passed_a_check_of_nans_are_known() -> None:
    """A sine without a NaN has a finite operand, and so the cosine beside it makes none; nor is one lost."""
    def waves(x: Any) -> Any:
        return fnp.sin(x) + fnp.cos(x) + 0.0 * x  # here

    def lost(x: Any) -> Any:
        return fnp.where(fnp.sin(x) > 0, 1.0, fnp.where(fnp.cos(x) > 0, 2.0, 3.0))

    program = fxgrad.make_program(waves)(1.0)
    for quick, expected in ((False, 1), (True, 0)):
        checks = [each for each in add_checks(program, frozenset({"nan"}), quick).equations
                  if str(each.primitive) == "check"]
        assert len(checks) == max(expected, 1)
    for function in (waves, lost):
        for each in (checked(function, errors="nan"), jit(checked(function, errors="nan"))):
            assert not np.isnan(each(0.5))
            assert np.isnan(each(np.nan)) == (function is waves)
            with pytest.raises(CheckError, match=r"NaN made: sin\(-?inf\)"), np.errstate(invalid="ignore"):
                each(np.inf)


@pytest.mark.parametrize("mode", [lambda f: f, fxgrad.jit], ids=["un-jitted", "jitted"])
@pytest.mark.parametrize("function", [lambda n, k: n % k, lambda n, k: n // k, lambda n, k: n % 7, lambda n, k: n // 7])
def test_remainders_and_quotients_of_large_integers_do_not_overflow(function: Any, mode: Any) -> None:
    least, most = -2 ** 63, 2 ** 63 - 1
    checked = mode(fxgrad.checked(function, errors="overflow"))
    for n, k in ((2 ** 62 + 5, most), (-2 ** 62 - 5, least), (most, most), (least, most), (most, least), (least, 7)):
        assert checked(np.int64(n), np.int64(k)) == function(n, k)
