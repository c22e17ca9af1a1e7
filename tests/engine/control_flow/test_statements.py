"""Each statement of Python's control flow, on traced values: as the function itself, under jit, vmap and nestings."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import grad, jit, make_program, python_control_flow, vmap
from fxgrad.errors import ConcretizationError, ControlFlowError

ROOT = Path(__file__).parents[3]
LIMIT = 3.0


def chained(x):
    return 1.0 if 0 < x < 2 <= LIMIT else x


def nested_ifs(x):
    if x > 0:
        if x > 2:
            y = x * x
        else:
            y = x
        y = y + 1
    elif x > -1:
        y = 0.0
    else:
        y = -x
    return y


def while_else(x):
    n = 0
    while x > 1:
        x = x / 2
        n += 1
        if n > 3:
            break
    else:
        x = -x
    return x


def for_else(x):
    for limit in (1.0, 2.0, 4.0):
        if x < limit:
            break
    else:
        return x * 10
    return x + limit


def walrus(x):
    n = 0
    while (y := x / 2) > 1:
        x = y
        n += 1
    return x + y + n


def walrus_in_if(x):
    if (y := x * x) > 4:
        return y
    return -y


def continues(x):
    total = 0.0
    for i in range(6):
        if i % 2 == 0:
            continue
        if x * i > LIMIT:
            continue
        total = total + x * i
    return total


def nested_loops(x):
    total, i = 0.0, 0
    while i < x:
        j = 0
        while True:
            if j > i:
                break
            total = total + j * x
            j += 1
        if total > 50:
            return total
        i += 1
    return total + 1


def breaks_inner_only(x):
    count = 0
    for i in range(4):
        for j in range(4):
            if i * j > x:
                break
            count += 1
    return count


def helper(x, *, scale=2.0):
    if x > 1:
        return x * scale
    return x


def calls_helper(x):
    return helper(x) + helper(x, scale=3.0) + helper(-x)


def closes_over(x):
    k = 2.0

    def inner(v):
        nonlocal k
        k = k + 1
        if v > 0:
            return v * k
        return v

    return inner(x) + inner(-x) + k


def swaps(x):
    a, b = x, 1.0
    if a > b:
        a, b = b, a
    return a - 2 * b


def boolean_values(x):
    return (x or 5.0) + (x and 3.0) + (not x)


def any_and_all(x):
    return any([x > 1, x > 2]) + 2 * all([x > 1, x > 2]) + max(x, 1.0) + min(x, 2.0, -x)


def integers(x):
    n = int(x * 2.5)
    return n * x


def table(x):
    values = [1.0, 10.0, 100.0]
    k = 0
    while k < 2 and x > k:
        k += 1
    return values[k] + SQUARES[k]


SQUARES = np.array([0.0, 1.0, 4.0])


def with_block(x):
    with np.errstate(divide="ignore"):
        if x > 0:
            return 1.0 / x
    return x


def try_without_traced(x):
    try:
        y = {"a": x}["a"]
    except KeyError:
        y = 0.0
    finally:
        z = 1.0
    return y + z


def augmented(x):
    total = 0.0
    total += x
    if total > 1:
        total -= 1
        total *= 3
    return total


def deletes(x):
    y = 2 * x
    if x > 0:
        z = y
        del z
        return y
    del y
    return x


def structured(x):
    point = {"a": x, "b": (x, 1)}
    if x > 0:
        point = {"a": -x, "b": (2 * x, 3)}
    return point["a"] + point["b"][0] * point["b"][1]


def switches(x):
    match x:
        case 0:
            y = 7.0
        case 1 | -1:
            y = 8.0
        case v if v > 2:
            y = v
        case _:
            y = 0.5 * x
    return y


def accumulates_array(x):
    values = fnp.zeros(5)
    i = 0
    while i < 5 and x > 0.1:
        values = values.at[i].set(x)
        x = x / 2
        i += 1
    return fnp.sum(values)


FUNCTIONS = [chained, nested_ifs, while_else, for_else, walrus, walrus_in_if, continues, nested_loops,
             breaks_inner_only, calls_helper, closes_over, swaps, boolean_values, any_and_all, integers, table,
             with_block, try_without_traced, augmented, deletes, structured, switches, accumulates_array]
POINTS = np.array([-2.5, -1.0, 0.0, 0.5, 1.0, 1.5, 2.5, 4.0, 9.0])
INTEGRAL = {breaks_inner_only}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_statements_give_what_python_gives(function):
    expected = [float(function(x)) for x in POINTS]
    compiled = jit(python_control_flow(function))
    np.testing.assert_array_equal([float(python_control_flow(function)(x)) for x in POINTS], expected)
    np.testing.assert_allclose([float(compiled(x)) for x in POINTS], expected, rtol=1e-14)
    for batched in (vmap(python_control_flow(function)), jit(vmap(python_control_flow(function)))):
        np.testing.assert_allclose(batched(POINTS), expected, rtol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("function", [function for function in FUNCTIONS if function not in INTEGRAL])
def test_gradients_are_those_of_the_path_that_python_takes(function):
    points = POINTS + 0.01
    expected = [float(grad(lambda x: 1.0 * function(x))(x)) for x in points]
    converted = python_control_flow(function)

    def scaled(x):
        return 1.0 * converted(x)
    compiled = jit(grad(scaled))
    np.testing.assert_allclose([float(compiled(x)) for x in points], expected, rtol=1e-12)
    np.testing.assert_allclose(vmap(grad(scaled))(points), expected, rtol=1e-12)
    np.testing.assert_allclose(jit(vmap(grad(jit(scaled))))(points), expected, rtol=1e-12)
    np.testing.assert_allclose(jit(vmap(lambda x: fxgrad.jvp(scaled, (x,), (1.0,))[1]))(points), expected, rtol=1e-12)


class Model:
    """A model with methods that branch."""

    __factor = 3.0

    def __init__(self, weight):
        self.weight = weight

    def inner(self, x):
        return x * self.weight if x > 0 else self.__scaled(x)

    def __scaled(self, x):
        return x * self.__factor

    @python_control_flow
    def outer(self, x):
        if x > 1:
            return self.inner(x)
        return self.inner(-x)


class Child(Model):
    """A model whose method calls that of its base."""

    @python_control_flow
    def outer(self, x):
        return super().outer(x) if x > -1 else x


@pytest.mark.slow
def test_methods_private_names_and_super():
    for model in (Model(2.0), Child(2.0)):
        expected = [float(Model.outer.__wrapped__(model, x)) if type(model) is Model or x > -1 else x for x in POINTS]
        np.testing.assert_allclose([float(jit(model.outer)(x)) for x in POINTS], expected)
        np.testing.assert_allclose(vmap(model.outer)(POINTS), expected)
        np.testing.assert_allclose([float(jit(python_control_flow(functools.partial(model.inner)))(x)) for x in POINTS],
                                   [float(model.inner(x)) for x in POINTS])


class Position:
    """A number with a property and operators, which are not converted unless they are decorated."""

    def __init__(self, x):
        self.x = x

    @property
    def above(self):
        return self.x if self.x > 0 else 0.0  # here

    @property
    @python_control_flow
    def below(self):
        return self.x if self.x < 0 else 0.0

    @python_control_flow
    def __add__(self, other):
        if self.x > other:
            return Position(self.x + other)
        return Position(self.x)

    @python_control_flow
    def __getitem__(self, place):
        return self.x if self.x > place else 1.0 * place


def test_properties_and_operators_are_converted_if_they_are_decorated():
    def moved(x):
        position = Position(x) + 0.5
        position += 0.25
        return position.x, position.below, position[1]

    for x in POINTS:
        np.testing.assert_array_equal(jit(python_control_flow(moved))(x), moved(x))
    np.testing.assert_array_equal(vmap(python_control_flow(moved))(POINTS), np.transpose([moved(x) for x in POINTS]))
    with pytest.raises(ConcretizationError) as refused:
        jit(python_control_flow(lambda x: Position(x).above))(1.0)
    lines, first = inspect.getsourcelines(Position)
    line = first + next(number for number, each in enumerate(lines) if each.endswith("# here\n"))
    assert str(refused.value).partition("(static_argnums). ")[2] == (
        "Or decorate above with fxgrad.python_control_flow: it is not converted by itself, since a property, an "
        f"operator or a library calls it\n  at test_statements.py:{line} (in above)")


def test_range_with_traced_bounds_and_its_kin():
    def bounds(x, start, stop, step):
        for i in range(start, stop, step):
            x = x + i
        return x

    def kin(xs, n):
        total = 0.0
        for k, (i, x) in enumerate(zip(reversed(range(n)), xs)):  # noqa: B905
            total = total + k * i * x
        return total

    compiled = jit(python_control_flow(bounds))
    for args in ((0, 7, 2), (7, 0, -3), (3, 3, 1), (5, 2, 1), (-4, 5, 3)):
        assert float(compiled(0.5, *args)) == bounds(0.5, *args)
    xs = np.array([1.0, 2.0, 3.0, 4.0])
    assert [float(jit(python_control_flow(kin))(xs, n)) for n in (0, 2, 9)] == [kin(xs, n) for n in (0, 2, 9)]
    with pytest.raises(ValueError, match="range\\(\\) arg 3 must not be zero"):
        jit(python_control_flow(lambda x, n: bounds(x, 0, n, 0)))(1.0, 2)


@pytest.mark.slow
def test_gradients_with_respect_to_closures_and_second_order():
    def f(w, x):
        def step(v):
            while v < 10.0:
                v = v * w
                if v > 8:
                    break
            return v
        return step(x) + step(2 * x)

    converted = python_control_flow(f)
    expected = grad(grad(f))(1.5, 1.0)
    np.testing.assert_allclose(jit(grad(grad(converted)))(1.5, 1.0), expected, rtol=1e-12)
    np.testing.assert_allclose(jit(fxgrad.hessian(converted))(1.5, 1.0), expected, rtol=1e-12)
    np.testing.assert_allclose(jit(grad(lambda w: jit(converted)(w, w)))(1.5), grad(lambda w: f(w, w))(1.5), rtol=1e-12)


def test_dtypes_join_as_an_addition_joins_them():
    def f(x, y):
        return x if y > 0 else y

    for one in (np.float32(1.0), np.int32(2), np.float64(3.0), 4, 5.0, True):
        for other in (np.float32(1.0), np.int32(-2), -1.5, -3):
            expected = make_program(lambda a, b: fnp.where(b > 0, a, b))(one, other).outputs[0].aval
            assert make_program(python_control_flow(f))(one, other).outputs[0].aval == expected


def test_the_page_of_control_flow_for_jax_runs_as_plain_python():
    """What the tutorials of jax write with `cond`, `while_loop`, `fori_loop` and `scan`, in plain Python."""
    def polynomial(x):  # a branch
        if x < 3:
            return 3.0 * x ** 2
        return -4.0 * x

    def largest_power(x, limit):  # a while loop
        power = x
        while power * x <= limit:
            power = power * x
        return power

    def sum_to(n):  # a fori_loop
        total = 0
        for i in range(n):
            total += i
        return total

    def running(xs):  # a scan
        total, seen = 0.0, []
        for x in xs:
            total = total + x
            seen.append(total)
        return np.stack(seen)

    def chosen(index, x):  # a switch
        match index:
            case 0:
                return x + 1
            case 1:
                return x - 1
            case _:
                return x * 0.5

    def flagged(flag):
        return 1 if flag else 0

    for function, calls in ((polynomial, [(2.0,), (4.0,)]), (largest_power, [(2.0, 100.0)]), (sum_to, [(10,), (0,)]),
                            (running, [(np.arange(4.0),)]), (chosen, [(0, 3.0), (1, 3.0), (5, 3.0)]),
                            (flagged, [(True,), (False,)])):
        for args in calls:
            np.testing.assert_array_equal(jit(python_control_flow(function))(*args), function(*args))
    assert [float(jit(grad(python_control_flow(polynomial)))(x)) for x in (2.0, 4.0)] == [12.0, -4.0]


@pytest.mark.slow
def test_the_command_line_shows_a_converted_program(tmp_path):
    (tmp_path / "shown.py").write_text(
        "import fxgrad\n\n\n@fxgrad.python_control_flow\ndef clip(x):\n    if x > 1.0:\n        y = 2.0 * x - 1.0\n"
        "    else:\n        y = x * x\n    return y\n")
    environment = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "PATH": "", "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "fxgrad", "show", "shown.py:clip", "--args", "2.0"]
    found = subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
    assert found.stdout == """\
program clip(x: f64*):         # shown.py
  y: f64* = cond(x > 1.0, x):  # 6 clip
    False:
      y: f64* = x * x          # 9
      return y
    True:
      y: f64* = 2.0 * x - 1.0  # 7
      return y
  return y
""", found.stderr


def tens(*bounds):
    total = 0
    for i in range(*bounds):
        total = 10 * total + i
    return total


def test_ranges_with_traced_bounds_are_those_of_python():
    converted = python_control_flow(tens)
    compiled = jit(converted)
    for bounds in [(3,), (0,), (-2,), (2, 5), (5, 2), (1, 6, 2), (1, 7, 2), (6, 1, -2), (6, 0, -1), (1, 6, -1)]:
        assert int(compiled(*map(np.int32, bounds))) == tens(*bounds)
        if len(bounds) == 3:  # the step is known
            assert int(jit(converted, static_argnums=2)(*map(np.int32, bounds[:2]), bounds[2])) == tens(*bounds)


def test_bounds_of_few_bits_do_not_overflow():
    def count(first, last):
        turns = 0
        for _ in range(first, last):
            turns = turns + 1
        return turns
    assert int(jit(python_control_flow(count))(np.int8(-100), np.int8(100))) == 200
    assert int(jit(python_control_flow(count))(np.uint8(200), np.uint8(100))) == 0


class _Scaled:
    """An object that is called as a function."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        if x > 0:
            return x * self.factor
        return -x


def test_objects_that_are_called():
    model = _Scaled(3.0)
    converted = fxgrad.python_control_flow(model)
    function = fxgrad.jit(fxgrad.value_and_grad(lambda x: converted(x)))
    assert [tuple(map(float, function(x))) for x in (2.0, -1.0)] == [(6.0, 3.0), (1.0, -1.0)]


@functools.partial(jax.tree_util.register_dataclass, data_fields=["position", "speed"], meta_fields=["steps"])
@dataclasses.dataclass
class Particle:
    position: Any
    speed: Any
    steps: int = 2


@jax.tree_util.register_pytree_node_class
class Pair:
    def __init__(self, first, second):
        self.first = first
        self.second = second

    def tree_flatten(self):
        return (self.first, self.second), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


def moved(x):
    particle, pair = Particle(x, x + 1.0, 3), Pair(x, x * 2.0)
    while particle.position < 10:
        particle = Particle(particle.position + particle.speed, particle.speed * 1.5, particle.steps)
    if pair.first > 1:
        pair = Pair(pair.second, pair.first)
    return particle.position * particle.steps + pair.first


@pytest.mark.parametrize("x", [0.5, 2.0])
def test_objects_of_registered_classes_are_made(x):
    """Their classes flatten attributes that a new object has yet to be given."""
    for wrapped in (python_control_flow(moved), jit(python_control_flow(moved)),
                    lambda x: vmap(python_control_flow(moved))(np.array([x, 0.1]))[0]):
        np.testing.assert_allclose(wrapped(x), moved(x), rtol=1e-14)
    np.testing.assert_allclose(jit(grad(python_control_flow(moved)))(x), grad(moved)(x), rtol=1e-14)


def returns_a_number_early(x, r):
    for k in range(5):
        if r > k + 3:
            return 2.5, k
    return x, k


def ends_in_else(x, r):
    k = 0
    while k < 3:
        if r > k + 3:
            v = 2.5
            break
        k += 1
    else:
        v = 1.5
    return v * x, k


def is_none_first(x, r):
    v = None
    for k in range(3):
        if r > k + 3:
            v = 2.5
            break
    return x if v is None else v * x, k


@pytest.mark.parametrize("function", [returns_a_number_early, ends_in_else, is_none_first])
def test_numbers_that_a_loop_gives_on_one_path_give_way_to_the_dtype_of_arrays(function):
    compiled = jit(python_control_flow(function))
    for r in (2.0, 4.5):
        value, place = compiled(np.float32(1.5), np.float32(r))
        assert value.dtype == np.float32
        assert (value, place) == function(np.float32(1.5), r)


def ends_after_its_second_turn(x, n):
    before, turns = None, 0
    for turns in range(500):  # noqa: B007
        x = 0.5 * (x + 2 / x)
        if before is not None and abs(x - before) < 1e-12:
            break
        before = x
    return x, turns * n


def returns_after_some_turns(x, n):
    for k, v in enumerate(np.arange(200.0)):
        x = x + v
        if k > 3 and x > 100 * n:
            return x, k
    return -x, -1


def counts_until_a_late_end(x, n):
    for k in itertools.count(1):
        x *= 0.9
        if k > n and x < 1:
            break
    return x, k


@pytest.mark.parametrize("function", [ends_after_its_second_turn, returns_after_some_turns, counts_until_a_late_end])
def test_a_for_that_a_traced_condition_ends_after_the_first_turns_is_a_loop(function):
    converted = python_control_flow(functools.partial(function, n=3))
    program = make_program(converted)(5.0)
    assert len(str(program).splitlines()) < 50
    found, wanted = jit(converted)(5.0), function(5.0, 3)
    np.testing.assert_allclose(fxgrad.tree.leaves(found), fxgrad.tree.leaves(wanted), rtol=1e-12)
    slope = (function(5.0 + 1e-6, 3)[0] - function(5.0 - 1e-6, 3)[0]) / 2e-6
    np.testing.assert_allclose(grad(lambda x: converted(x)[0])(5.0), slope, rtol=1e-6, atol=1e-9)


def names_that_turn_by_turn(x, n):
    weights = ["a", "bb", "ccc", "dddd"]
    total = 0.0
    for k, _ in enumerate(weights):
        total += x * len(weights[k])
        if k > 1 and total > n:
            return total
    return -total


def test_few_turns_that_are_no_loop_are_recorded_one_by_one():
    compiled = jit(python_control_flow(names_that_turn_by_turn))
    assert [float(compiled(x, 2)) for x in (0.7, 0.1)] == [names_that_turn_by_turn(x, 2) for x in (0.7, 0.1)]


def sets_a_name_where_python_does_not_go(x, bracketed=False):
    for _ in range(50):
        y = 0.5 * (x + 2 / x)
        if bracketed and low is not None:  # noqa: F821
            y = low  # noqa: F821
        x = y
        if abs(x * x - 2) < 1e-9:
            return x
        if bracketed:
            low = x  # noqa: F841
    return x


def reads_a_name_of_the_last_turn(x, n):
    total = 0.0
    for k in range(n):
        if k > 0:
            total += x - last  # noqa: F821
        last = x * k  # noqa: F841
    return total


def test_a_name_without_a_value_may_be_read_where_python_does_not_go():
    assert float(jit(python_control_flow(sets_a_name_where_python_does_not_go))(1.0)) == pytest.approx(2**0.5)
    with pytest.raises(ControlFlowError, match=r"^`last` has no value before this `for`, whose number of turns"):
        jit(python_control_flow(reads_a_name_of_the_last_turn))(1.0, 3)


def returns_before_it_sets_a_name(x):
    for _ in range(50):
        if x == 0:
            return 0.0
        y = 0.5 * (x + 2 / x)
        square = y * y
        if abs(y - x) < 1e-9:
            break
        x = y
    return square


def reads_a_name_that_the_first_turn_has_not(x):
    for k in range(50):
        if k > 0:
            x += before  # noqa: F821
        before = x  # noqa: F841
        x = 0.5 * (x + 2 / x)
        if x < 1.5:
            break
    return x


def test_a_loop_may_return_before_it_sets_a_name():
    compiled = jit(python_control_flow(returns_before_it_sets_a_name))
    assert [float(compiled(x)) for x in (1.0, 0.0)] == pytest.approx([2.0, 0.0])
    batched = vmap(python_control_flow(returns_before_it_sets_a_name))
    assert [*batched(np.array([1.0, 0.0]))] == pytest.approx([2.0, 0.0])
    with pytest.raises(ControlFlowError, match=r"^`before` has no value before this `for`"):
        jit(python_control_flow(reads_a_name_that_the_first_turn_has_not))(1.0)


def operands_that_are_no_numbers(x, scale=None, names=(), text="a", table={}):  # noqa: B006
    if x > 0 and scale:
        return x * scale
    if (x < -2 and names) or not (x and text):
        return x + 9
    while x < 8 and text and dict(table, a=x):
        x = x * x + 1
    return x if x > 0 and table else -x


def reads_what_is_none(x, state=None):
    if x and state and x > 1:
        return state.scale * x
    return -x


def test_an_operand_that_is_none_decides_beside_a_traced_number():
    assert jit(python_control_flow(reads_what_is_none))(2.0) == reads_what_is_none(2.0) == -2.0


@pytest.mark.parametrize("keywords", [{}, {"scale": 2.0}, {"text": ""}, {"names": ("a",), "table": {"a": 1}}])
def test_operands_of_a_condition_may_be_none_texts_and_containers(keywords):
    xs = np.array([-3.0, -1.0, 0.0, 1.5])
    function = functools.partial(operands_that_are_no_numbers, **keywords)
    want = [function(x) for x in xs.tolist()]
    np.testing.assert_array_equal([jit(python_control_flow(function))(x) for x in xs.tolist()], want)
