"""Idioms of Python in converted functions: they give what Python gives, or are refused by line with what to write."""

from __future__ import annotations

import cmath
import enum
import inspect
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, python_control_flow, vmap
from fxgrad.errors import ControlFlowError
from fxgrad.extend import inner_first
from fxgrad.testing import check_grads
from tests.engine.control_flow.idioms import CASES, Ball, Light
from tests.support.converted import assert_as_numpy

SMOOTH = [case for case in CASES if case[0].__name__ != "sorts_equal_keys_in_order"]
IDS = [function.__name__ for function, _ in CASES]


def leaves(value: Any) -> list[Any]:
    return [np.asarray(leaf) for leaf in fxgrad.tree_util.tree_leaves(value)]


def assert_equal(found: Any, wanted: Any) -> None:
    for one, other in zip(leaves(found), leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


def total(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: sum(((place + 2) * np.sum(leaf) * 1.0 for place, leaf in enumerate(
        fxgrad.tree_util.tree_leaves(function(*args)))), 0.0)


@pytest.mark.parametrize(("function", "args"), CASES, ids=IDS)
def test_idioms_run_as_before(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    assert repr(python_control_flow(function)(*args)) == repr(function(*args))


@pytest.mark.slow
@pytest.mark.parametrize(("function", "args"), CASES, ids=IDS)
def test_idioms_give_what_python_gives(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    converted = python_control_flow(function)
    assert_equal(jit(converted)(*args), function(*args))
    batch = np.stack([np.asarray(args[0]) + step for step in (0.0, 0.5, 1.0)])
    found = vmap(converted, in_axes=(0, *(None,) * (len(args) - 1)))(batch, *args[1:])
    wanted = [leaves(function(x, *args[1:])) for x in batch]
    assert_equal(leaves(found), [np.stack(column) for column in zip(*wanted, strict=True)])


def slope(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Return the gradient by central differences."""
    x = np.asarray(args[0])
    steps = np.zeros((x.size, *x.shape))
    steps.reshape(x.size, x.size)[...] = np.eye(x.size) * 1e-6
    differences = [total(function)(x + step, *args[1:]) - total(function)(x - step, *args[1:]) for step in steps]
    return np.reshape(np.array(differences) / 2e-6, x.shape)


@pytest.mark.slow
@pytest.mark.parametrize(("function", "args"), SMOOTH, ids=[function.__name__ for function, _ in SMOOTH])
def test_gradients_of_idioms_are_those_of_differences(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    found = grad(total(python_control_flow(function)))(*args)
    np.testing.assert_allclose(jit(grad(total(python_control_flow(function))))(*args), found, rtol=1e-12)
    np.testing.assert_allclose(found, slope(function, args), rtol=1e-5, atol=1e-5)


# --- refused --------------------------------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def none_or_a_pair(xs):  # here
    for i in range(3):
        if xs[i] < 0:
            return i, xs[i]
    return None


def none_before_a_loop(xs):
    last = {}.get("last")
    while xs[0] > 1:  # here
        last = xs[0]
        xs = xs / 2
    return last


def text_chosen(xs):
    if xs[0] > 1:  # here
        name = "big"
    else:
        name = "small"
    return name


def text_with_a_traced_value(xs):
    return len(f"{xs[0]:.2f}")  # here


def lambda_chosen(xs):
    if xs[0] > 1:  # here
        function = lambda t: t * 2
    else:
        function = lambda t: t / 2
    return function(xs[0])


class Shape(enum.Flag):
    ROUND = 1
    FLAT = 2


def member_of_two_enumerations(xs):
    return Color.RED if xs[0] > 1 else Animal.CAT  # here


def flag_chosen(xs):
    return (Shape.ROUND if xs[0] > 1 else Shape.FLAT) in Shape.ROUND | Shape.FLAT  # here


class Animal(enum.Enum):
    CAT = 1


def text_of_a_member(xs):
    color = Color.RED if xs[0] > 1 else Color.BLUE
    return 1.0 if color.name == "RED" else 2.0  # here


def member_returned(xs):  # here
    return Color.RED if xs[0] > 1 else Color.BLUE


def item_of_a_dict_of_some_members(xs):
    color = Color.RED if xs[0] > 1 else Color.BLUE
    return {Color.RED: 1.0, Color.BLUE: "no"}[color] * xs  # here


def keys_in_two_orders(xs):
    found = {}
    if xs[0] > 1:  # here
        found["b"] = xs[0]
        found["a"] = 1.0
    else:
        found["a"] = xs[0]
        found["b"] = 2.0
    return [*found.values()]


def adds_in_each_turn(xs):
    out = []
    while xs[0] > 1:  # here
        out += [xs[0]]
        xs = xs / 2
    return out


def two_lengths(xs):
    if xs[0] > 1:  # here
        found = (xs[0],)
    else:
        found = (xs[0], xs[1])
    return found


def counts_in_a_defaultdict(xs):
    counts = defaultdict(float)
    for x in xs:
        if x > 0:
            counts["a"] += x  # here
    return counts["a"]


def adds_to_a_set(xs):
    seen = set()
    for i in range(3):
        if xs[i] > 0:
            seen.add(i)  # here
    return len(seen)


def filters(xs):
    return len({x for x in xs if x > 0})  # here


def attribute_of_one_side(xs):
    ball = Ball(xs[0], 0.0)
    if xs[0] > 1:  # here
        ball.color = 1.0
    return ball.height


def object_of_the_caller(xs, ball=Ball(0.0, 0.0)):  # noqa: B008
    if xs[0] > 1:
        ball.height = xs[0]  # here
    return ball.height


def object_that_is_one_of_two(xs):
    above, below = Ball(xs[0], 0.0), Ball(xs[1], 0.0)
    ball = above if xs[0] > 1 else below
    ball.height = 7.0  # here
    return above.height


def objects_of_two_classes(xs):
    if xs[0] > 1:  # here
        found = Ball(xs[0], 0.0)
    else:
        found = Color.RED
    return found


def looked_up_in_a_dict(xs):
    return 1.0 if xs[0] in {1.0: 2} else 0.0  # here


def array_of_a_tuple_changed_in_a_branch(xs):
    pair = np.zeros(3), np.ones(3)
    if xs[0] > 1:
        pair[0][1] = 1.0  # here
    return pair[0] * xs


SIDES = "if the condition of this `if` is true, and"
NO_NUMBER = ("a traced condition chose this member of Color, and {} is no number, or array of one shape, for each "
             "member. Compare the member, `x is Color.RED`; or return a number, and look the rest up outside of the "
             "compiled function")
REFUSED = [
    (none_or_a_pair, ("none_or_a_pair returns None on one path and a value on another, and a traced condition "
      "chooses: what is compiled or batched returns arrays and numbers. In the place of None, return np.nan or another "
      "default; or return a flag beside the value: `return x, True` and `return 0.0, False`")),
    (none_before_a_loop, ("`last` is None before a turn of this `while` and f64[] after it; the number of turns is "
      "traced, so the type must stay. In the place of None, begin with a value of the same type, and beside it a flag: "
      "found = False")),
    (text_chosen, (f"`name` is 'big' {SIDES} 'small' otherwise. Only arrays and numbers can be chosen by a traced "
      "condition. Choose a number, and look the text up outside of the compiled function")),
    (text_with_a_traced_value, ("an f-string has a traced value, whose digits are not known while the program is "
      "recorded. In print() and assert it may stand; otherwise make the text outside of the compiled function")),
    (lambda_chosen, (f"`function` is a lambda {SIDES} a lambda otherwise. Only arrays and numbers can be chosen by a "
      "traced condition. Call them in the branches")),
    (member_of_two_enumerations, (f"a value is <Color.RED: 1> {SIDES} <Animal.CAT: 1> otherwise. Only arrays and "
      "numbers can be chosen by a traced condition, and members of one enumeration")),
    (flag_chosen, (f"a value is <Shape.ROUND: 1> {SIDES} <Shape.FLAT: 2> otherwise. Only arrays and numbers can be "
      "chosen by a traced condition. Make Shape an enum.IntFlag, whose members are numbers")),
    (text_of_a_member, (NO_NUMBER.format("`.name`"))),
    (member_returned, ("member_returned returns a member of Color that a traced condition chose: what is compiled or "
      "batched returns arrays and numbers. Return x.value, if that is a number, or make the enumeration an "
      "enum.IntEnum")),
    (item_of_a_dict_of_some_members, (NO_NUMBER.format("the item of the dict"))),
    (keys_in_two_orders, (f"`found` is {{'b': f64[], 'a': f64*[]}} {SIDES} {{'a': f64[], 'b': f64*[]}} otherwise. "
      "Write the keys in one order")),
    (adds_in_each_turn, ("`out`, which changes at test_idioms.py:{next} (in adds_in_each_turn), is 0 items long before "
      "a turn of this `while` and 1 item long after it; the number of turns is traced, so the length must stay. Begin "
      "with an array of the greatest length, and write into it with x[i] = v")),
    (two_lengths, (f"`found` is (f64[],) {SIDES} (f64[], f64[]) otherwise. Both sides must give values of one "
      "structure and type")),
    (counts_in_a_defaultdict, ("a defaultdict is changed inside the traced `if` at test_idioms.py:{before} (in "
      "counts_in_a_defaultdict), which is traced once and may run never or often. Assign the new value to a name, and "
      "change the object after the block")),
    (adds_to_a_set, (".add() changes a set from outside inside the traced `if` at test_idioms.py:{before} (in "
      "adds_to_a_set), which is traced once. Choose the value in the branch, and change the set after it")),
    (filters, ("the filter of a comprehension is traced, and so would be the length of what it makes. Only lists of "
      "numbers, of arrays of one shape, or of tuples of these may have one: [v for v in x if v > 0]")),
    (attribute_of_one_side, (f"`ball` is {{'height': f64[], 'speed': f64*[], 'color': f64*[]}} {SIDES} "
      "{'height': f64[], 'speed': f64*[]} otherwise. Both sides must give values of one structure and type")),
    (object_of_the_caller, ("a Ball is changed inside the traced `if` at test_idioms.py:{before} (in "
      "object_of_the_caller), which is traced once and may run never or often. Assign the new value to a name, and "
      "change the object after the block")),
    (object_that_is_one_of_two, ("a Ball changes that is one of two, chosen by the traced condition at "
      "test_idioms.py:{before} (in object_that_is_one_of_two): whether the other one changes with it depends on the "
      "condition. Choose between copies, copy.copy(x), or change the Ball in the block")),
    (objects_of_two_classes, (f"`found` is Ball(height=f64[], speed=f64*[]) {SIDES} <Color.RED: 1> otherwise. Both "
      "sides must give values of one structure and type")),
    (looked_up_in_a_dict, ("a traced value is looked up in a dict, which needs its hash. Keep the values in a list or "
      "an array")),
    (array_of_a_tuple_changed_in_a_branch, (
        "an array is changed inside the traced `if` at test_idioms.py:{before} (in "
        "array_of_a_tuple_changed_in_a_branch), which is traced once and may run never or often. Change a copy that "
        "has a name of its own: x = x.copy(), then x[i] = v")),
]


@pytest.mark.parametrize(("function", "message"), REFUSED, ids=[function.__name__ for function, _ in REFUSED])
def test_other_idioms_are_refused_with_what_to_write(function: Callable[..., Any], message: str) -> None:
    lines, first = inspect.getsourcelines(function)
    here = next(first + number for number, line in enumerate(lines) if line.rstrip().endswith("# here"))
    with pytest.raises(ControlFlowError) as refused:
        jit(python_control_flow(function))(np.array([3.0, -1.0, 2.0]))
    text = message.replace("{next}", str(here + 1)).replace("{before}", str(here - 1))
    place = f"test_idioms.py:{here} (in "
    found = str(refused.value)
    assert found.startswith(f"{text}\n  at {place}"), found


def scaled_by_numbers(x: Any, s: Any) -> Any:
    values = [s, s * 2, s]
    count, place = values.count(s), values.index(s * 2)
    if s > 0:
        count = count + int(s)
    return x * count + place + math.floor(s) + x * float(s) * math.sqrt(s) - math.log(s, 3) * math.hypot(s, 0.1)


def special_functions_of_math(x: float, y: float) -> float:
    return math.erf(x) + math.erfc(y) * math.gamma(x * x + 0.5) + math.lgamma(y * y + 1.5) + math.cbrt(x) + math.exp2(
        y) * math.hypot(x, y, 2.0) - math.hypot(x)


def remainder_by_math(x: float, y: float) -> float:
    return math.remainder(x, y)


def test_loops_over_the_places_of_true_elements_are_not_unrolled() -> None:
    def pairs(x: Any) -> Any:
        total = 0.0
        for i in np.nonzero(x > 0)[0]:
            for j, k in np.argwhere(x.reshape(2, -1) < x[i]):
                total += x[i] * j - k
        return total
    small, large = (fxgrad.make_program(jit(python_control_flow(pairs)))(np.ones(size)) for size in (4, 400))
    assert [len(each.equations) for each in inner_first(small)] == [len(each.equations) for each in inner_first(large)]


def test_special_functions_and_remainders_of_math() -> None:
    """The remainder is that of IEEE 754, of the sign of neither operand; np.remainder has that of the divisor."""
    for x, y in ((0.7, 1.3), (-2.25, 0.4)):
        converted = fxgrad.jit(fxgrad.python_control_flow(special_functions_of_math))
        np.testing.assert_allclose(converted(x, y), special_functions_of_math(x, y), rtol=1e-13)
        check_grads(fxgrad.python_control_flow(special_functions_of_math), (x, y), order=1)
    converted = fxgrad.jit(fxgrad.python_control_flow(remainder_by_math))
    for x in (0.0, -0.0, 0.3, 1.0, 3.0, 5.0, -5.0, 2.7, -170.1, 359.0, 540.0, 1e18, math.inf, math.nan):
        for y in (2.0, -2.0, 360.0, 0.1, math.inf):
            try:
                expected = remainder_by_math(x, y)
            except ValueError:
                expected = math.nan
            found = converted(x, y)
            np.testing.assert_array_equal(found, expected)
            assert math.isnan(expected) or np.signbit(found) == np.signbit(expected)
    check_grads(fxgrad.python_control_flow(remainder_by_math), (5.25, 2.0), order=1)


def complex_functions(x: Any, n: Any) -> Any:
    z = complex(x, 1.0)
    for _ in range(n):
        z = z * z + complex(-0.3, 0.2)
        if abs(z) > 2:
            break
    w = cmath.exp(1j * x) if z.real > 0 else cmath.sqrt(complex(z))
    return (w, cmath.phase(z), cmath.log(z) * cmath.sin(x) + cmath.atan(w), cmath.isfinite(z), math.gcd(n, 6, 9),
            math.lcm(n, 4), math.gcd(n), pow(n, 3), (x > 0) - (x < 0), (not x > 1) - (n > 2) * x)


def test_functions_of_cmath_and_of_whole_numbers() -> None:
    converted = fxgrad.jit(fxgrad.python_control_flow(complex_functions))
    for args in ((1.3, 4), (-0.7, 3), (0.2, 12)):
        for found, expected in zip(converted(*args), complex_functions(*args), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-13)
            assert found.dtype == np.asarray(expected).dtype


def test_numbers_are_close_as_in_math() -> None:
    def close(a: Any, b: Any, tolerance: Any) -> Any:
        return (math.isclose(a, b), math.isclose(a, b, rel_tol=tolerance), math.isclose(a, 0.2, abs_tol=tolerance),
                math.isclose(0.2, 0.3, rel_tol=tolerance))

    converted = fxgrad.jit(fxgrad.python_control_flow(close))
    numbers = (0.2, 0.2 + 1e-10, -0.2, 0.0, 1e-12, 1e300, math.inf, -math.inf, math.nan)
    for a in numbers:
        for b in numbers:
            for tolerance in (0.0, 1e-9, 0.5):
                assert [*map(bool, converted(a, b, tolerance))] == [*close(a, b, tolerance)], (a, b, tolerance)


def test_elements_are_numbered_by_their_places() -> None:
    def signs(m: Any) -> Any:
        out, total = np.zeros_like(m), 0.0
        for (i, j), value in np.ndenumerate(m):
            if value > 0:
                out[i, j] = value * i
            else:
                total += value * j
        return out, total

    for m in (np.array([[0.5, -1.0], [-2.0, 3.0]]), -np.ones((3, 2))):
        for found, expected in zip(fxgrad.jit(fxgrad.python_control_flow(signs))(m), signs(m), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-15)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_numbers_of_python_give_way_to_arrays(dtype: str) -> None:
    """As `int` and `float` do, and functions of `math`, with all digits of Python's floats."""
    x, s = np.ones(3, dtype), np.float32(1.7)
    want, got = scaled_by_numbers(x, s), fxgrad.jit(fxgrad.python_control_flow(scaled_by_numbers))(x, s)
    assert want.dtype == got.dtype == dtype
    np.testing.assert_allclose(got, want, rtol=4 * np.finfo(dtype).eps)


def test_types_of_numpys_and_full_take_traced_numbers() -> None:
    def converted_numbers(x: Any, n: Any) -> Any:
        a, b = np.full(4, x), np.full((2, 2), n, dtype=np.float32)
        a[1] = n
        for i in range(n):
            b[0, 1] += i
        return (a, b, np.full(3, 2.0), np.uint32(n) + np.uint8(3), np.float32(x) * 2, np.int64(x * 3), np.bool_(n - 1),
                np.complex64(x), np.float64(n) / 3)
    for args in ((1.5, 2), (-0.5, 1)):
        assert_as_numpy(converted_numbers, args)


JOINED: dict[str, Callable[..., Any]] = {
    "matrix and column": lambda m, v, s: np.c_[m, v],
    "columns": lambda m, v, s: np.c_[v, v * 2, [v[0], 0.1, s]],
    "blocks": lambda m, v, s: np.r_[np.c_[m, np.zeros((3, 3))], np.c_[np.eye(3), m]],
    "numbers": lambda m, v, s: np.r_[v, s, 1.0, 2],
    "list": lambda m, v, s: np.r_[[s, 0.1], v],
    "slices": lambda m, v, s: (np.r_[0:1:0.25, v], np.r_[0:1:5j, s]),
    "axes": lambda m, v, s: (np.r_["0,2", v, v], np.r_["-1", m, m]),
    "conditions": lambda m, v, s: (np.r_[v > 0.15, True], np.r_[[1, 2], s > 0]),
    "nested": lambda m, v, s: np.c_[[[s, 1.0], [2.0, s]], [[s], [0.1]]],
}
ARRAYS: dict[str, Callable[..., Any]] = {
    "asarray": lambda m, v, s: (np.asarray(s), np.asarray(s, np.float32), np.asarray(v, int),
                                np.asarray([v, v * s], float)),
    "other names": lambda m, v, s: (np.asanyarray(v), np.ascontiguousarray(m.T), np.ascontiguousarray(s)),
    "axes": lambda m, v, s: (np.array(v, ndmin=2), np.array([s, 0.1], ndmin=3), np.array(m, order="C")),
    "copies": lambda m, v, s: (np.array(v, copy=True), np.array(v, dtype=v.dtype, copy=False), np.array(v, copy=None)),
    "mixed": lambda m, v, s: (np.array([v[0], 0.1]), np.asarray([s > 0, 1.5]), np.asarray((v, (s, s, 0.1)))),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", [*JOINED.values(), *ARRAYS.values()],
                         ids=[*JOINED, *(f"{each} of arrays" for each in ARRAYS)])
def test_arrays_of_traced_values_are_made_in_the_dtype_of_numpys(function: Callable[..., Any], dtype: str) -> None:
    m, v = np.arange(9.0).reshape(3, 3) + 0.1, np.array([0.1, 0.2, 0.3])
    assert_as_numpy(function, (m.astype(dtype), v.astype(dtype), 0.7))
    assert_as_numpy(function, (m.astype(dtype), v.astype(dtype), np.float32(0.7)))


def test_what_asarray_returns_is_the_callers_array() -> None:
    """Unless the dtype is another one: NumPy would change the array of the caller."""
    def changes(x: Any, dtype: Any) -> Any:
        y = np.asarray(x, dtype)
        y[0] = 5.0
        return y.sum()

    def caller(x: Any, dtype: Any) -> Any:
        x = x * 2
        return changes(x, dtype) + x[0]
    call = jit(python_control_flow(caller), static_argnums=1)
    assert call(np.array([0.1, 2.0]), np.float32) == caller(np.array([0.1, 2.0]), np.float32)
    with pytest.raises(ControlFlowError, match=(
            r"^y\[\.\.\.\] = v changes the array of `y`, which another name, a container or a view has too and would "
            r"see change in NumPy\. Write y = y\.copy\(\) before\n")):
        call(np.array([0.1, 2.0]), np.float64)


def test_members_of_an_enumeration_are_items_of_arrays_and_no_other_numbers() -> None:
    def lights(x: Any, n: Any) -> Any:
        row = np.zeros(4, int)
        row[n] = Light.GREEN
        row[np.arange(4) * x > 2.0] = Light.YELLOW
        row[:n] += Light.GREEN
        return row, row == Light.GREEN, x is Light.GREEN, row[n] is Light.GREEN
    for args in ((1.0, 1), (2.5, 2)):
        assert_equal(jit(python_control_flow(lights))(*args), lights(*args))

    def asked(x: Any, n: Any) -> Any:
        light = Light.GREEN if x > 0 else Light.RED
        return isinstance(light, (float, Light))
    with pytest.raises(ControlFlowError, match=(
            r"^isinstance\(\) asks for a member of an enumeration, and of a traced one only the number is known. "
            r"Compare it with the members\n")):
        jit(python_control_flow(asked))(1.0, 1)


def test_numbers_of_enumerate_begin_at_a_traced_one():
    def f(x, n):
        total = 0.0
        for a, (k, v) in zip([1.0, 2.0], enumerate([x, 1.0], start=n), strict=True):
            total += k * v * a
        for k, (p, q) in enumerate([(x, 1.0), (2.0, x)], n):
            total += k * p * q
        return total + sum(k * v for k, v in enumerate([x, 1.0], start=n))

    xs, ns = np.array([0.7, 2.0]), np.array([2, 1])
    np.testing.assert_allclose(vmap(python_control_flow(f))(xs, ns), [f(x, n) for x, n in zip(xs, ns, strict=True)])
