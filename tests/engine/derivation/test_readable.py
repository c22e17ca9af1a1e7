"""Programs as they are read: repeated, dead and trivial equations are left out, to the same bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax
from fxgrad.engine.core.avals import Literal
from fxgrad.engine.core.program import Program
from fxgrad.engine.executors import numpy as numpy_executor
from tests.support.show_programs import equations_text

NUMBERS = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.1, -3.3, 1e30, 700.0, -700.0, 5e-324])


def both(function: Callable[..., Any], *args: Any) -> tuple[Program, Program]:
    """The program as it was recorded and as it is read, which give the same bits, of the same types."""
    recorded = fxgrad.make_program(function, as_recorded=True)(*args)
    read = fxgrad.make_program(function)(*args)
    assert read.in_avals == recorded.in_avals
    assert read.out_avals == recorded.out_avals
    flat = fxgrad.tree.leaves(args)
    with np.errstate(all="ignore"):
        results = [numpy_executor.run_reference(program, [*program.constants, *flat]) for program in (recorded, read)]
    for before, after in zip(*results, strict=True):
        np.testing.assert_array_equal(after, before)
        if np.asarray(before).dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(after), np.signbit(before))
    return recorded, read


def operations(program: Program) -> Counter[str]:
    return Counter(equation.primitive.name for equation in program.equations)


def rosenbrock(v: Any) -> Any:
    return np.sum(100.0 * (v[1:] - v[:-1] ** 2) ** 2 + (1.0 - v[:-1]) ** 2)


def test_a_numbers_product_with_one_is_a_number_in_float64_too() -> None:
    def scaled(v: Any) -> Any:
        return np.sum(0.01 * v * v)

    for dtype in ("float64", "float32"):
        recorded, read = both(fxgrad.grad(scaled), np.arange(3.0).astype(dtype))
        assert not any(all(type(atom) is Literal for atom in equation.inputs) for equation in read.equations)
        assert operations(read)["mul"] <= operations(recorded)["mul"]
    recorded, read = both(lambda v: fxgrad.hvp(rosenbrock, (v,), (v,)), np.arange(5.0))
    assert "mul(100.0, 1.0:f64)" in equations_text(recorded)
    assert "mul(100.0, 1.0:f64)" not in equations_text(read)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_gradient_of_logaddexp_with_zero_is_one_sigmoid(dtype: str) -> None:
    numbers = NUMBERS.astype(dtype)
    recorded, read = both(fxgrad.grad(lambda v: np.sum(np.logaddexp(v, 0.0))), numbers)
    assert operations(recorded) == {"sub": 1, "ne": 1, "eq": 1, "and": 1, "select_n": 1, "logistic": 1}
    assert operations(read) == {"logistic": 1}
    _, read = both(fxgrad.grad(lambda v: np.sum(fxgrad.nn.softplus(v))), numbers)
    assert operations(read) == {"logistic": 1}


def test_what_nothing_depends_on_is_left_out() -> None:
    recorded, read = both(lambda v: fxgrad.hvp(lambda v: np.sum(np.sin(v) * v), (v,), (v,)), np.arange(3.0))
    assert len(recorded.equations) - len(read.equations) == 2
    assert len(fxgrad.make_program(lambda x: (np.sin(x), x)[1])(1.0).equations) == 0


def test_repeated_equations_of_plain_programs_stand_once() -> None:
    recorded, read = both(rosenbrock, np.arange(5.0))
    assert operations(recorded)["slice"] == 3
    assert operations(read)["slice"] == 2

    def score(x: Any, w: Any) -> Any:
        return np.tanh(x @ w) * (x @ w)

    x, w = np.ones((4, 3)), np.ones((3, 2))
    recorded, read = both(lambda *args: fxgrad.jvp(score, args, args), x, w)
    assert operations(recorded)["dot_general"] == 3
    assert operations(read)["dot_general"] == 1


def test_what_the_user_wrote_is_not_rewritten() -> None:
    recorded, read = both(lambda x: np.negative(-x) * 1.0 - 0.0, np.arange(3.0))
    assert operations(read) == operations(recorded) == {"neg": 2, "mul": 1, "sub": 1}


def test_a_product_with_repeated_ones_is_none() -> None:
    ones = np.ones(3)
    recorded, read = both(lambda x: fxgrad.vjp(lambda x, y: x * y, x, x)[1](fnp.broadcast_to(1.0, (3,)))[0], ones)
    assert operations(recorded)["mul"] == 3
    assert operations(read)["mul"] == 0
    assert operations(read)["broadcast_to"] == 0


def test_bodies_of_loops_and_branches() -> None:
    def step(carry: Any, x: Any) -> Any:
        dead = np.exp(carry)
        del dead
        return np.sin(carry) * np.sin(carry) + x, carry

    recorded, read = both(lambda x: lax.scan(step, 1.0, x), np.arange(3.0))
    bodies = [program.equations[-1].regions[0].program for program in (recorded, read)]
    assert [operations(body) for body in bodies] == [
        {"exp": 1, "sin": 2, "mul": 1, "add": 1}, {"sin": 1, "mul": 1, "add": 1}]


def cond_of(program: Program) -> Any:
    equation, = [each for each in program.equations if each.primitive.name == "cond"]
    return equation


def test_numbers_stand_in_branches_and_what_no_branch_uses_is_left_out() -> None:
    def chosen(p: Any, v: Any) -> Any:
        return lax.cond(p, lambda v, k, unused: v * k, lambda v, k, unused: v + k, v, 2.0, np.float32(3.0))

    for p in (True, False):
        recorded, read = both(chosen, p, np.arange(3.0))
        assert len(cond_of(recorded).inputs) == 4
        assert len(cond_of(read).inputs) == 2
    assert [region.program.in_avals for region in cond_of(read).regions] == [[read.in_avals[1]]] * 2
    # Weak numbers stay weak, and others are not made so.
    dtypes = [fxgrad.make_program(lambda p, v, k=k: lax.cond(p, lambda v, k: v * k, lambda v, k: v + k, v, k))(
        True, np.ones(3, "f")).out_avals for k in (2.0, np.asarray(2.0, "f"))]
    assert str(dtypes) == "[[f32[3]], [f32[3]]]"


def test_operands_of_branches_in_derivatives_and_batches() -> None:
    def f(v: Any, k: Any) -> Any:
        return np.sum(lax.cond(v[0] > 0.0, lambda v, k, _: v * k * k, lambda v, k, _: v + k, v, k, v * 2.0))

    for v in (np.array([1.0, -2.0]), np.array([-1.0, 2.0])):
        recorded, read = both(fxgrad.grad(lambda v: f(v, 2.0)), v)
        np.testing.assert_array_equal(read(v), fxgrad.grad(f)(v, 2.0))
        np.testing.assert_array_equal(fxgrad.vmap(fxgrad.grad(lambda v: f(v, 2.0)))(np.stack([v, -v]))[0], read(v))
        assert len(cond_of(read).inputs) < len(cond_of(recorded).inputs)


def loop_of(program: Program, name: str) -> Any:
    equation, = [each for each in program.equations if each.primitive.name == name]
    return equation


def test_what_a_scan_does_not_use_or_gets_twice_is_left_out() -> None:
    def scanned(x: Any, w: Any) -> Any:
        unused = w * 2.0

        def step(carry: Any, entries: Any) -> Any:
            state, total, count = carry
            one, other, _ = entries
            new = np.tanh(w * state + one * other)
            return (new, total + unused, count + 1), (new, total, new)

        (final, _, _), (seen, _, again) = lax.scan(step, (x[0], w, 0), (x, x, x * 3.0))
        return final, seen, again

    recorded, read = both(scanned, np.arange(3.0), 0.5)
    scan, before = loop_of(read, "scan"), loop_of(recorded, "scan")
    assert (len(before.inputs), len(before.outputs)) == (8, 6)
    assert scan.params["num_consts"] == 1
    assert scan.params["num_carry"] == 1
    assert (len(scan.inputs), len(scan.outputs)) == (3, 2)
    assert operations(read) == {"slice": 1, "reshape": 1, "scan": 1}
    assert read.outputs[1] is read.outputs[2]
    recorded, read = both(fxgrad.grad(lambda x, w: np.sum(scanned(x, w)[1])), np.arange(3.0), 0.5)
    assert sum(len(equation.inputs) for equation in read.equations) < sum(
        len(equation.inputs) for equation in recorded.equations)


def test_numbers_stand_in_loops() -> None:
    def counted(x: Any, k: Any) -> Any:
        return lax.while_loop(lambda state: state[1] < 5, lambda state: (
            state[0] * k + state[2], state[1] + 1, state[2] + 1.0), (x, 0, 0.0))[0]

    recorded, read = both(fxgrad.grad(lambda x: counted(x, 0.5)), 2.0)
    for name in ("while", "sweep"):
        assert len(loop_of(read, name).inputs) < len(loop_of(recorded, name).inputs), name

    def steps(n: Any, x: Any) -> Any:
        return lax.fori_loop(0, n, lambda i, state: (state[0] * 0.5, state[1] + i), (x, x))[0]

    for number in (0, 3):
        both(fxgrad.grad(steps, argnums=1), number, 2.0)
        assert fxgrad.make_program(steps)(number, 2.0)(number, 2.0) == 2.0 * 0.5 ** number


def test_a_value_carried_for_the_condition_alone_stays() -> None:
    def bounded(x: Any) -> Any:
        return lax.while_loop(lambda state: state[1] < 5, lambda state: (state[0] * 2.0, state[1] + 1, state[2] - x),
                              (x, 0, x))[0]

    recorded, read = both(bounded, 1.5)
    assert len(loop_of(recorded, "while").outputs) == 3
    assert len(loop_of(read, "while").outputs) == 2
    assert loop_of(read, "while").params["num_body_consts"] == 0


def test_effects_in_loops_keep_what_they_need(capsys: Any) -> None:
    def loud(x: Any) -> Any:
        def step(carry: Any, entry: Any) -> Any:
            value, count = carry
            fxgrad.debug.print("{}", count)
            return (value + entry, count + 1), None

        return lax.scan(step, (0.0, 0), x)[0][0]

    read = fxgrad.make_program(loud)(np.ones(2))
    assert len(loop_of(read, "scan").outputs) == 2
    read(np.ones(2))
    assert capsys.readouterr().out == "0\n1\n"


def test_numbers_stand_in_solvers() -> None:
    def root(a: Any) -> Any:
        return lax.custom_root(lambda x: x * x - a, 1.0, lambda f, x: x - f(x) / (2.0 * x), lambda g, y: y / g(1.0))

    recorded, read = both(fxgrad.grad(root), 2.0)
    for name in ("custom_root", "custom_linear_solve"):
        assert len(loop_of(read, name).inputs) < len(loop_of(recorded, name).inputs), name
    both(fxgrad.grad(fxgrad.grad(root)), 2.0)
    both(fxgrad.vmap(fxgrad.grad(root)), np.array([2.0, 3.0]))


def test_effects_stay_and_keep_their_order() -> None:
    def loud(x: Any) -> Any:
        fxgrad.debug.print("first {}", x)
        unused = np.sin(x)
        del unused
        fxgrad.debug.print("first {}", x)
        return x

    read = fxgrad.make_program(loud)(1.0)
    recorded = fxgrad.make_program(loud, as_recorded=True)(1.0)
    loudest = [name for name in operations(recorded) if name != "sin"]
    assert operations(read) == Counter({name: operations(recorded)[name] for name in loudest})
    assert sum(operations(read).values()) == 2


def test_keys_that_are_used_twice_are_seen_twice() -> None:
    read = fxgrad.make_program(lambda key: fxgrad.random.bits(key) + fxgrad.random.bits(key))(fxgrad.random.key(0))
    with pytest.raises(fxgrad.errors.KeyReuseError):
        fxgrad.debug.check_key_reuse(read)(fxgrad.random.key(0))
