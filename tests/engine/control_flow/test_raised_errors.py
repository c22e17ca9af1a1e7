"""An `if` of which one side only raises is a check where its condition is traced."""

# ruff: noqa: RET503, RET506, UP031, UP032  (the functions are written as users write them)

from __future__ import annotations

import inspect
import math
import pickle
import re
from typing import Any

import jax
import numpy as np
import pytest

from fxgrad import debug, grad, jacfwd, jit, lax, python_control_flow, vmap
from fxgrad import numpy as fnp
from fxgrad.errors import CheckError, ControlFlowError, FxgradError
from tests.engine.control_flow.assertions import (
    checks_in_a_loop_that_changes_nothing,
    checks_in_a_side_that_changes_nothing,
    ends_by_a_check_in_a_side,
    raises_after_checks,
    raises_on_both_sides,
)


def checked_chain(x):
    if x < 0:
        y = -x
    elif x < 1:
        y = x * x
    else:
        raise ValueError(f"{x} is too large")
    return 2 * y


def newton_by_for(a, tolerance):
    x = a
    for _ in range(50):
        following = 0.5 * (x + a / x)
        if abs(following - x) < tolerance:
            return following
        x = following
    raise RuntimeError("no convergence")


def newton_by_while(a, tolerance):
    x, turns = a, 0
    while True:
        following = 0.5 * (x + a / x)
        if abs(following - x) < tolerance:
            break
        turns += 1
        if turns > 20:
            message = "no convergence after {} turns".format(20)
            raise RuntimeError(message)
        x = following
    return following


def place_of(values, wanted):
    for place in range(len(values)):
        if values[place] == wanted:
            break
    else:
        raise LookupError("not found", wanted)
    return place


def sums_by_steps(rows, step):
    total = 0.0
    for i in range(rows.shape[0]):
        if rows[i, 0] < 0:
            raise ValueError("row %d is negative" % i)
        position = 0.0
        while position < rows[i, 0]:
            if not step > 0:
                raise ArithmeticError
            position = position + step
        total = total + position * rows[i, 1]
    return total


ROWS = np.array([[1.1, 0.1], [2.7, 0.2]])


@pytest.mark.parametrize(("function", "args", "wrong", "error", "text"), [
    (checked_chain, (0.5,), (1.5,), ValueError, "1.5 is too large"),
    (newton_by_for, (2.0, 1e-10), (2.0, -1.0), RuntimeError, "no convergence"),
    (newton_by_while, (2.0, 1e-10), (2.0, -1.0), RuntimeError, "no convergence after 20 turns"),
    (place_of, (ROWS[:, 0], 2.7), (ROWS[:, 0], 2.0), LookupError, None),
    (sums_by_steps, (ROWS, 0.5), (-ROWS, 0.5), ValueError, "row 0 is negative"),
    (sums_by_steps, (ROWS, 0.5), (ROWS, -0.5), ArithmeticError, ""),
], ids=["elif", "for", "while", "for else", "inner", "without text"])
def test_a_side_that_only_raises_is_a_check(function, args, wrong, error, text):
    compiled = jit(python_control_flow(function))
    np.testing.assert_allclose(compiled(*args), function(*args), rtol=1e-12)
    np.testing.assert_array_equal(python_control_flow(function)(*args), function(*args))
    if function is not place_of:
        direction = np.cos(np.arange(np.size(args[0]))).reshape(np.shape(args[0]))
        ahead, behind = (function(args[0] + step * direction, *args[1:]) for step in (1e-6, -1e-6))
        for gradient in (grad(python_control_flow(function)), jit(grad(python_control_flow(function))), grad(compiled)):
            np.testing.assert_allclose(np.sum(gradient(*args) * direction), (ahead - behind) / 2e-6, rtol=1e-6)
    for call in (python_control_flow(function), compiled):
        with pytest.raises(error) as raised:
            call(*wrong)
        assert text is None or str(raised.value) == text
    assert jit(vmap(python_control_flow(function), in_axes=(0, *[None] * (len(args) - 1))))(
        np.stack([args[0], args[0]]), *args[1:]).shape == (2,)


def test_a_check_made_of_raise_names_the_entry_and_the_line():
    def root(x):
        if x < 0:
            raise ValueError("negative")
        return np.sqrt(x)

    for batched in (vmap(python_control_flow(root)), jit(vmap(python_control_flow(root)))):
        np.testing.assert_array_equal(batched(np.array([1.0, 4.0])), [1.0, 2.0])
        with pytest.raises(CheckError) as raised:
            batched(np.array([1.0, -4.0]))
        first = root.__code__.co_firstlineno
        assert str(raised.value) == (
            f"ValueError: negative\n  at test_raised_errors.py:{first + 2} (in root)\n  in entry 1 of the batch")


class OutsideError(ValueError):
    def __init__(self, value, bound):
        self.value = value
        super().__init__(bound)

    def __str__(self):
        return f"{self.value} is outside"


def raises_by_call(x):
    if x < 0:
        raise OutsideError(x, 0.0)
    return np.sqrt(x)


def raises_a_class(x):
    if x < 0:
        raise NotImplementedError
    return x * x


def raises_a_name(x):
    if x < 0:
        error = KeyError("negative")
        raise error
    return x * x


def raises_in_a_loop(x):
    y = x * x
    while y > 1:
        y = y - 1
        if y < x:
            raise np.linalg.LinAlgError("below")
    return y * x


def raises_in_one_side(x):
    if x < 0:
        text = "negative"
        text += "!"
        raise StopIteration(text)
    else:
        y = x * x
    return y


@pytest.mark.slow
@pytest.mark.parametrize(("function", "kind"), [
    (raises_by_call, OutsideError), (raises_a_class, NotImplementedError), (raises_a_name, KeyError),
    (raises_in_a_loop, np.linalg.LinAlgError), (raises_in_one_side, StopIteration)])
def test_failed_checks_are_of_the_class_of_the_exception(function, kind):
    converted = python_control_flow(function)

    def scanned(xs):
        return lax.scan(lambda total, x: (total + converted(x), converted(x)), 0.0, xs)[1]

    def looped(xs):
        return lax.fori_loop(0, len(xs), lambda i, total: total + converted(fnp.asarray(xs)[i]), 0.0)

    good, bad = np.array([1.0, 0.5, 0.9]), np.array([1.0, 0.5, -1.5 if function is not raises_in_a_loop else 1.5])
    calls = {"vmap": vmap(converted), "vmap of jit": vmap(jit(converted)), "vmap of grad": vmap(grad(converted)),
             "scan": scanned, "loop": looped, "grad of scan": grad(lambda xs: np.sum(scanned(xs))),
             "jacfwd of vmap": jacfwd(lambda xs: vmap(converted)(xs))}
    for name, call in [*calls.items(), *((f"jit of {name}", jit(call)) for name, call in calls.items())]:
        assert np.all(np.isfinite(call(good))), name
        with pytest.raises(kind) as raised:
            call(bad)
        assert isinstance(raised.value, CheckError), name
        assert "test_raised_errors.py:" in str(raised.value), name
        assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def step_down(x):
    if x < 0:
        raise ValueError("negative")
    return x - 1


def ends_by_a_helper(x):
    while True:
        x = step_down(x)
        if x > 100:
            break
    return x


def ends_by_a_helper_in_a_side(x):
    k = 0
    while x > 1:
        k += 1
        if k > 3:
            x = fail("slow")
        x = x / 2
    return x


def ends_by_a_long_side(x):
    k = 0
    while True:
        x = x / 2
        k += 1
        if x < 1:
            break
        if k > 20:
            text = "no"
            text += " convergence"
            raise RuntimeError(text)
    return x


@pytest.mark.slow
@pytest.mark.parametrize(("function", "good", "bad", "error"), [
    (ends_by_a_helper, 103.0, 5.0, "ValueError: negative"),
    (ends_by_a_helper_in_a_side, 3.7, 100.0, "RuntimeError: failed: slow"),
    (ends_by_a_long_side, 3.7, np.inf, "RuntimeError: no convergence")])
def test_a_failed_check_ends_the_while_around_it(function, good, bad, error):
    converted = python_control_flow(function)
    calls = {"plain": converted, "jit": jit(converted), "grad of jit": grad(jit(converted)),
             "jit of grad": jit(grad(converted)), "jit of jacfwd": jit(jacfwd(converted)),
             "vmap": lambda x: vmap(converted)(np.array([good, x])),
             "jit of vmap of grad": lambda x: jit(vmap(grad(converted)))(np.array([good, x]))}
    slope = (function(good + 1e-6) - function(good - 1e-6)) / 2e-6
    np.testing.assert_allclose(jit(converted)(good), function(good), rtol=1e-12)
    np.testing.assert_allclose([jit(grad(converted))(good), grad(jit(converted))(good)], slope, rtol=1e-6)
    for name, call in calls.items():
        with pytest.raises((ValueError, RuntimeError)) as raised:
            call(bad)
        kind = "" if not isinstance(raised.value, CheckError) else error.partition(": ")[0] + ": "
        assert str(raised.value).partition("\n")[0] == kind + error.partition(": ")[2], name


def shifted_to_nothing(n):
    turns = 0
    while n:  # of a negative number there is always something left
        n >>= 1
        turns += 1
    return turns


def shifts(x, n):
    if n < 0:
        raise ValueError("negative")
    while n:
        n >>= 1
        x = x * x
    return x


def shifts_in_a_side(x, n):
    if x > 0:
        if n < 0:
            raise ValueError("negative")
        x = x * shifted_to_nothing(n)
    return x


def shifts_after_a_side(x, n):
    if x > 0:
        if n < 0:
            raise ValueError("negative")
        x = 2 * x
    return x * shifted_to_nothing(n)


def not_negative(n):
    if n < 0:
        raise ValueError("negative")
    return n


def shifts_after_a_helper(x, n):
    return x * shifted_to_nothing(not_negative(n))


def shifts_in_turns(x, n):
    for k in range(6):
        if x * k < 5:
            if n - k < 0:
                raise ValueError("negative")
        else:
            break
        x = x + shifted_to_nothing(n - k)
    return x


def shifts_in_a_scan(x, n):
    def turn(carry, k):
        if carry - k < 0:
            raise ValueError("negative")
        return carry - 1, shifted_to_nothing(carry - k)

    return x * np.sum(lax.scan(turn, n, np.arange(3))[1])


def shifts_in_counted_turns(x, n):
    for k in range(3 * abs(n) + 1 if x > 0 else 4):
        if n < 0:
            raise ValueError("negative")
        x = x + shifted_to_nothing(n) * k
    return x


def counts(x, n):
    if n < 0:
        raise ValueError("negative")
    for _ in range(n * n * n * n):
        x = x + 0.5
    return x


@pytest.mark.slow
@pytest.mark.parametrize(("function", "bad"), [
    (shifts, -7), (shifts_in_a_side, -7), (shifts_after_a_side, -7), (shifts_after_a_helper, -7),
    (shifts_in_turns, 1), (shifts_in_a_scan, 1), (shifts_in_counted_turns, -7), (counts, -50000)])
def test_a_failed_check_ends_the_loops_after_it(function, bad):
    converted = python_control_flow(function)
    plain = function if function is not shifts_in_a_scan else lambda x, _: 6.0 * x
    slope = (plain(1.1 + 1e-6, 5) - plain(1.1 - 1e-6, 5)) / 2e-6
    both = np.array([1.1, 1.1]), np.array([5, bad])
    np.testing.assert_allclose(jit(converted)(1.1, 5), plain(1.1, 5), rtol=1e-12)
    np.testing.assert_allclose(jit(grad(converted))(1.1, 5), slope, rtol=1e-6)
    np.testing.assert_allclose(jit(vmap(converted))(both[0], np.array([5, 5])), [plain(1.1, 5)] * 2, rtol=1e-12)
    for call in (lambda: converted(1.1, bad), lambda: jit(converted)(1.1, bad), lambda: grad(jit(converted))(1.1, bad),
                 lambda: jit(grad(converted))(1.1, bad), lambda: jit(jacfwd(converted))(1.1, bad),
                 lambda: vmap(converted)(*both), lambda: jit(vmap(converted))(*both)):
        with pytest.raises(ValueError, match=r"^(ValueError: )?negative"):
            call()


@pytest.mark.parametrize("function", [
    checks_in_a_side_that_changes_nothing, checks_in_a_loop_that_changes_nothing, ends_by_a_check_in_a_side])
@pytest.mark.parametrize(("x", "error"), [(-1.5, None), (0.8, None), (1.0, AssertionError), (2.5, ValueError)])
def test_checks_of_a_side_that_changes_no_variable_are_kept(function, x, error):
    converted = python_control_flow(function)
    both = np.array([-1.0, x])
    calls = [lambda: jit(converted)(x), lambda: jit(grad(converted))(x), lambda: vmap(converted)(both),
             lambda: jit(vmap(converted))(both), lambda: vmap(grad(converted))(both)]
    for number, call in enumerate(calls):
        if error is None:
            assert np.ravel(call())[-1] == (x * x if number in (0, 2, 3) else 2 * x)
            continue
        with pytest.raises(error) as raised:
            call()
        assert number < 2 or isinstance(raised.value, CheckError), number


@pytest.mark.parametrize("function", [raises_after_checks, raises_on_both_sides])
@pytest.mark.parametrize("x", [-1.5, 0.5, 1.5, 2.5])
def test_the_check_that_fails_first_gives_the_class(function, x):
    both = np.array([-1.0, x])
    for call in (vmap(python_control_flow(function)), jit(vmap(python_control_flow(function)))):
        if x < 0:
            np.testing.assert_array_equal(call(both), both * both)
            continue
        with pytest.raises((ValueError, LookupError, AssertionError)) as expected:
            function(x)
        with pytest.raises(expected.type) as raised:
            call(both)
        kind = "" if expected.type is AssertionError else f"{expected.type.__name__}: "
        assert str(raised.value).partition("\n")[0] in (f"{kind}{expected.value}", kind + expected.value.args[0])


def doubled_below(x, limit):
    if x > limit:
        raise ValueError("too large")
    return 2.0 * x


def without_an_end(x):
    while True:
        x = doubled_below(x, 100.0)


def ended_by_python(x):
    rest = iter([1.0, 2.0, 3.0])
    try:
        while True:
            x = x + next(rest)
    except StopIteration:
        return x


def test_a_loop_that_only_a_function_it_calls_ends_is_one_loop():
    loop = python_control_flow(without_an_end)
    with pytest.raises(ValueError, match="too large"):
        loop(1.0)
    with pytest.raises(ValueError, match="too large"):
        jit(loop)(1.0)
    with pytest.raises(ValueError, match=r"too large[\s\S]*in entry 1 of the batch"):
        jit(vmap(loop))(np.array([3.0, 99.0]))
    for mode in (jit, grad, lambda f: jit(grad(f))):
        assert mode(python_control_flow(ended_by_python))(1.0) == (7.0 if mode is jit else 1.0)


def test_what_a_function_makes_to_raise_has_no_class_before_it_runs():
    def root(x):
        if x < 0:
            raise made("negative")
        return np.sqrt(x)

    def made(text):
        return ValueError(text)

    with pytest.raises(CheckError, match=r"^made: negative\n") as raised:
        vmap(python_control_flow(root))(np.array([1.0, -4.0]))
    assert not isinstance(raised.value, ValueError)


def test_programs_of_two_exceptions_differ():
    def checked_by(kind):
        def root(x):
            if x < 0:
                raise kind("negative")
            return np.sqrt(x)
        return jit(vmap(python_control_flow(root)))

    for kind in (ValueError, OverflowError, OutsideError):
        with pytest.raises(kind):
            checked_by(kind)(np.array([1.0, -4.0]))
    assert not issubclass(OverflowError, ValueError)


def test_a_text_that_needs_the_digits_of_a_traced_value_is_given_as_it_is_written():
    def root(x):
        if x < 0:
            raise ValueError("%(x)e is negative" % {"x": x})
        return np.sqrt(x)

    with pytest.raises(ValueError, match=r"^-4\.000000e\+00 is negative$"):
        jit(python_control_flow(root))(-4.0)
    with pytest.raises(CheckError) as raised:
        vmap(python_control_flow(root))(np.array([1.0, -4.0]))
    assert str(raised.value).partition("\n")[0] == "ValueError('%(x)e is negative' % {'x': x})"


def fail(why):
    raise RuntimeError(f"failed: {why}")


def raises_in_a_side(x, mode):
    if x > 1.5:
        y = x
    elif mode == "strict":
        text = "x must be"
        text += " above 1.5"
        raise ValueError(text)
    else:
        y = -x
    return 2 * y


def raises_in_callees(x, mode):
    if x > 10:
        fail("too large")
    for i in range(3):
        if x > i:
            if mode == "strict":
                fail(mode)
            x = x + 0.1
    return x


def raises_at_the_end(x, mode):
    if x > 0:
        return 2 * x
    fail(mode)


def caught_in_the_side(x, mode):
    if x > 0:
        try:
            raise KeyError(mode)
        except KeyError:
            y = 3 * x
    else:
        y = x
    return y


@pytest.mark.parametrize(("function", "x", "mode", "error"), [
    (raises_in_a_side, 2.0, "strict", ""), (raises_in_a_side, -2.0, "strict", "ValueError: x must be above 1.5"),
    (raises_in_a_side, -2.0, "lax", ""),
    (raises_in_callees, 0.5, "lax", ""), (raises_in_callees, 11.0, "lax", "RuntimeError: failed: too large"),
    (raises_in_callees, 0.5, "strict", "RuntimeError: failed: strict"), (raises_in_callees, -0.5, "strict", ""),
    (raises_at_the_end, 0.3, "x", ""), (raises_at_the_end, -0.3, "end", "RuntimeError: failed: end"),
    (caught_in_the_side, 0.3, "x", ""), (caught_in_the_side, -0.3, "x", ""),
])
def test_a_side_that_always_raises_is_a_check(function, x, mode, error):
    compiled = jit(python_control_flow(function), static_argnums=1)
    batched = vmap(python_control_flow(function), in_axes=(0, None))
    if error:
        for call in (function, compiled):
            with pytest.raises((ValueError, RuntimeError)) as raised:
                call(x, mode)
            assert f"{type(raised.value).__name__}: {raised.value}" == error
        with pytest.raises(CheckError) as failed:
            batched(np.array([x]), mode)
        assert str(failed.value).partition("\n")[0] == error
    else:
        np.testing.assert_allclose(compiled(x, mode), function(x, mode), rtol=1e-12)
        np.testing.assert_allclose(batched(np.array([x, x]), mode), [function(x, mode)] * 2, rtol=1e-12)
        slope = (function(x + 1e-6, mode) - function(x - 1e-6, mode)) / 2e-6
        gradient = jit(grad(python_control_flow(function)), static_argnums=1)
        np.testing.assert_allclose(gradient(x, mode), slope, rtol=1e-8)


def test_a_known_condition_raises_while_the_program_is_recorded():
    def scaled(x, kind):
        if kind == "one":
            return x
        elif kind == "two":
            return 2 * x
        raise NotImplementedError(kind)

    compiled = jit(python_control_flow(scaled), static_argnames="kind")
    assert (compiled(3.0, kind="one"), compiled(3.0, kind="two")) == (3.0, 6.0)
    with pytest.raises(NotImplementedError, match=r"^three$"):
        compiled(3.0, kind="three")


def condition_in_try(x):
    try:
        y = 1.0 if x > 1 else x  # here
    except (TypeError, ZeroDivisionError):
        y = 3.0
    return y


def condition_of_a_callee(x):
    try:
        y = doubled_if_positive(x)
    except (ValueError, TypeError) as error:
        y = len(str(error)) * x
    return y


def doubled_if_positive(x):
    if x > 0:  # here
        x = 2.0 * x
    return x


@pytest.mark.parametrize(("function", "at", "what"), [
    (condition_in_try, condition_in_try, "if"), (condition_of_a_callee, doubled_if_positive, "if")])
def test_refusals_are_not_caught_by_the_handlers_of_the_function(function, at, what):
    lines, first = inspect.getsourcelines(at)
    line = next(first + number for number, each in enumerate(lines) if each.rstrip().endswith("# here"))
    with pytest.raises(ControlFlowError) as refused:
        jit(python_control_flow(function))(0.5)
    assert str(refused.value) == (
        f"the condition of this `{what}` is traced and stands inside of `try`: both sides are traced once, so no "
        "exception can depend on traced values. Move the traced code out of the `try`\n"
        f"  at test_raised_errors.py:{line} (in {at.__name__})")


def checked_by_type(x):
    try:
        if (np.asarray(x) < 0).any():
            raise ValueError("negative")
        y = x
        while y > 3:
            y = y / 2 if y > 5 else y - 1
    except (NameError, AttributeError):
        y = 0.0
    return y


def test_a_try_that_catches_nothing_of_values_may_hold_traced_conditions():
    compiled = jit(python_control_flow(checked_by_type))
    assert [compiled(x) for x in (1.0, 4.0, 13.0)] == [checked_by_type(x) for x in (1.0, 4.0, 13.0)]
    with pytest.raises(ValueError, match="negative"):
        compiled(-1.0)


def raises_what_it_catches(x):
    try:
        if x > 3:
            raise TypeError("large")  # here
    except TypeError:
        x = 3.0
    return x


def raises_on_a_side(x):
    try:
        if x > 3:  # here
            x = x + "a"
    except TypeError:
        x = 3.0
    return x


def raises_in_a_turn(x):
    try:
        while x > 3:  # here
            x = x + "a"
    except TypeError:
        x = 3.0
    return x


def has_no_root(x):
    try:
        return math.sqrt(x)
    except ValueError:
        return 0.0


def has_no_inverse(x):
    try:
        return 1.0 / (x - 1.0)
    except ArithmeticError:
        return 0.0


def has_no_quotient(x):
    with np.errstate(divide="raise"):
        try:
            return np.sum(np.ones(2) / np.asarray(x))
        except FloatingPointError:
            return 0.0


def is_too_large(x):
    try:
        return math.exp(x)
    except (ValueError, OverflowError):
        return 1e300


@pytest.mark.parametrize(("function", "message"), [
    (raises_what_it_catches, "the condition of this `raise` is traced and stands inside of `try`"),
    (raises_on_a_side, "the condition of this `if` is traced and stands inside of `try`"),
    (raises_in_a_turn, "the condition of this `while` is traced and stands inside of `try`")])
def test_exceptions_that_depend_on_traced_values_are_not_caught(function, message):
    lines, first = inspect.getsourcelines(function)
    line = next(first + number for number, each in enumerate(lines) if each.rstrip().endswith("# here"))
    with pytest.raises(ControlFlowError, match=rf"{message}[\s\S]*\n  at test_raised_errors.py:{line} \("):
        jit(python_control_flow(function))(0.5)
    assert np.isfinite(grad(python_control_flow(function))(0.5))  # where values are known, Python runs it


@pytest.mark.parametrize(("function", "fine", "bad", "message"), [
    (has_no_root, 4.0, -1.0, "ValueError in math.sqrt()"),
    (has_no_inverse, 4.0, 1.0, "ZeroDivisionError in a division"),
    (has_no_quotient, 4.0, 0.0, "FloatingPointError in a division"),
    (is_too_large, 2.0, 1e3, "OverflowError in math.exp()")])
def test_a_number_for_which_python_goes_to_the_handler_fails_a_check(function, fine, bad, message):
    compiled = jit(python_control_flow(function))
    assert compiled(fine) == pytest.approx(function(fine), rel=1e-15)
    with pytest.raises(CheckError, match=re.escape(f"Python raises {message} for this number, which a `try` catches")):
        compiled(bad)


def test_a_change_that_others_would_see_is_not_caught() -> None:
    def changed(x):
        a = b = np.ones(3) * x
        try:
            b[0] = x
        except TypeError:
            a = a * 0
        return a

    with pytest.raises(ControlFlowError, match=r"changes the array of `b`, which another name"):
        jit(python_control_flow(changed))(0.5)


def test_what_a_function_prints_before_it_raises_is_printed_once(capfd: Any) -> None:
    seen: list[float] = []

    def function(x: Any) -> Any:
        print("x is", x)  # noqa: T201
        debug.callback(lambda x: seen.append(float(x)), x)
        if x > 0:
            raise ValueError("positive")
        return x

    with pytest.raises(ValueError, match="positive"):
        jit(python_control_flow(function))(1.5)
    jax.effects_barrier()
    assert capfd.readouterr().out == "x is 1.5\n"
    assert seen == [1.5]
    assert jit(python_control_flow(function))(-2.0) == -2.0
    jax.effects_barrier()
    assert (capfd.readouterr().out, seen) == ("x is -2.0\n", [1.5, -2.0])


def never_returns(x):
    if x > 0:
        raise ValueError("above")
    elif x > -1:
        raise KeyError("near")
    else:
        raise IndexError("below")


def refused_on_one_side(x):
    if x > 0:
        raise ValueError("above")
    else:
        x = np.zeros(int(x) + 5).sum()
    return x


def test_what_is_refused_on_the_other_side_stays_refused():
    converted = jit(python_control_flow(refused_on_one_side))
    for x in (-1.0, -2.0):
        assert refused_on_one_side(x) == 0.0
        with pytest.raises(FxgradError, match=r"needs the value of a traced array"):
            converted(x)


def test_a_function_that_only_raises_gives_the_error_of_the_side_that_it_takes():
    converted = python_control_flow(never_returns)
    outer = jit(lambda x: converted(x) * 2)
    for call in (jit(converted), outer, jit(grad(converted)), jit(lambda x: jit(converted)(x))):
        for x, error in ((1.0, ValueError), (-0.5, KeyError), (-2.0, IndexError), (1.0, ValueError)):
            with pytest.raises(error):
                call(x)


def test_a_mapped_function_that_only_raises_gives_the_error_of_the_first_entry():
    converted = python_control_flow(never_returns)
    for call in (vmap(converted), jit(vmap(converted)), vmap(grad(converted)), vmap(converted, chunk_size=1),
                 lambda x: vmap(vmap(converted))(x[None]), lambda x: vmap(vmap(converted, in_axes=1))(x[None, None])):
        for x, error in (([1.0, -2.0], ValueError), ([-0.5, 1.0], KeyError), ([-2.0, 1.0], IndexError)):
            with pytest.raises(error):
                call(np.array(x))
