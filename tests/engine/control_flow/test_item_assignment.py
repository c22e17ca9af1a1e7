"""Item assignment on arrays in converted functions: as NumPy's, or refused where another name would see it."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import grad, jit, python_control_flow, vmap
from fxgrad.errors import ControlFlowError, DTypeError, MutationError
from tests.engine.control_flow.item_assignment import EXAMPLES, Example, heat_equation

IDS = [example.function.__name__ for example in EXAMPLES]
SMOOTH = [example for example in EXAMPLES if example.smooth]


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
def test_recorded_functions_equal_the_function_to_the_bit(example: Example) -> None:
    expected = example.function(*example.args)
    found = fxgrad.make_program(python_control_flow(example.function))(*example.args)(*example.args)
    assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()
    assert np.asarray(found).dtype == np.asarray(expected).dtype
    assert repr(python_control_flow(example.function)(*example.args)) == repr(expected)


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
def test_compiled_functions_equal_the_function_to_rounding(example: Example) -> None:
    found = jit(python_control_flow(example.function))(*example.args)
    np.testing.assert_allclose(found, example.function(*example.args), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("example", SMOOTH, ids=[example.function.__name__ for example in SMOOTH])
def test_gradients_in_both_modes_equal_differences(example: Example) -> None:
    x, *rest = example.args
    step = 1e-6
    expected = (example.function(x + step, *rest) - example.function(x - step, *rest)) / (2 * step)
    converted = python_control_flow(example.function)
    found = jit(grad(converted))(x, *rest)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(grad(converted)(x, *rest), found, rtol=1e-10)
    np.testing.assert_allclose(jit(fxgrad.jacfwd(converted))(x, *rest), found, rtol=1e-10)


def test_batches_and_scans_around_it() -> None:
    x = np.array([0.1, 0.2, 0.25])
    converted = python_control_flow(heat_equation)
    np.testing.assert_allclose(vmap(converted, in_axes=(0, None))(x, 3), [heat_equation(each, 3) for each in x])
    np.testing.assert_allclose(vmap(converted)(x, np.array([1, 0, 4])), [
        heat_equation(each, steps) for each, steps in zip(x, (1, 0, 4), strict=True)])
    found, _ = jit(lambda x: fxgrad.lax.scan(lambda c, each: (c + converted(each, 2), None), 0.0, x))(x)
    np.testing.assert_allclose(found, sum(heat_equation(each, 2) for each in x))


# --- what NumPy does --------------------------------------------------------------------------------------------------


def casts(x, n):
    a = np.zeros(4, int)
    z = np.zeros(3, complex)
    b = np.zeros(3, np.float32)
    for i in range(n):
        a[i] = 2.9 * x
        z[i] = x * 1j
        b[i] = x / 3
        a[-1] += 0.5
    return a, z, b


def broadcasts(x, n):
    a = np.zeros((3, 4))
    for i in range(n):
        a[i] = x
        a[:, i] = np.arange(3.0)
        a[1:, 2:] = np.array([x, 2.0])
        a[[0, 2]] += np.ones((1, 4))
        a[..., -1] = 7.0
        a[i, ::2] -= x
    return a


def masks(x, n):
    a = x * np.arange(-3.0, 3.0)
    for _ in range(n):
        a[a > 1.0] = 1.0
        a[a < 0] /= 2.0
        a[(a > 0.1) & (a < 0.6)] += x
    return a


def negative_and_traced(x, n):
    a = np.zeros(5)
    for i in range(n):
        a[-1 - i] = x * i
        a[i - 2] += 1.0
    return a


def of_one_side(x):
    a = np.zeros(3)
    if x > 0:
        a[0] = x
    elif x > -1:
        a[1] = -x
    a[2] = 1.0
    return a


def with_early_exit(x, n):
    a = np.zeros(6)
    for i in range(n):
        if i * x > 2.0:
            break
        a[i] = i * x
        if i == 4:
            return a
    a[-1] = -1.0
    return a


def guessed_turn(x):
    a = np.zeros(2)
    error = 1.0
    while error > 0.3:
        a[0] += 1.0
        a += 1.0
        error = error * x
    return a


def list_of_names(x, n):
    a, b = np.zeros(3), np.ones(3)
    for i in range(n):
        a, b = b, a
        a[i] = x
        b[i] += 1.0
    c = a.copy()
    c[0] = 5.0
    return a, b, c


def rows_by_rows(x, n):
    a = np.zeros((3, 3))
    for i in range(n):
        a[i] = a[i - 1] + x
        a[i][1] = i
        a[0, 1:] += a[i, :-1]
        a[2] = a[1]
    return a


def in_a_callee(x, n):
    return filled(x, n) + filled(2 * x, n)


def filled(x, n):
    a = np.zeros(4)
    for i in range(n):
        a[i] = x
    return a


def traced_slices(x, n):
    a, b, k = np.arange(12.0), np.zeros((4, 5)), n + 1
    sieve = np.ones(30, bool)
    if x > 0:
        a[:n] = x
        a[-n:] += 10.0
        a[k::2] *= -1.0
        a[n + 20:] = 5.0
    for i in range(2, n + 3):
        if sieve[i]:
            sieve[i * i::i] = False
        b[i - 2, i - 2:] += x
        b[:i, -1] = i
        b[..., ::-i] -= 1.0
    return a, b, sieve


def by_methods(x, n):
    a, counts = np.arange(4.0), np.zeros(5, int)
    b, c = np.zeros(3), np.ones((3, 3))
    for i in range(n):
        a[0] += 2.5 * x
        a.sort()
        b.fill(x * i)
        np.add.at(counts, [i, i, 4], 1)
        np.fill_diagonal(c, x)
        np.copyto(b, c[i])
        np.maximum(a, 1.5, out=a)
        np.multiply(b, c[0], out=b)
    return a, b, c, counts


def by_methods_of_what_is_known(x, n):
    a, b = np.array([3.0, 1.0, 2.0]), np.zeros(3)
    a.sort()
    b.fill(2.0)
    np.add.at(b, [0, 0], 1.0)
    np.maximum(a, 1.5, out=a)
    rows = [3, 1, 2]
    rows.sort()
    return a * x, b[n], rows[0]


def known_items(x, n):
    a = np.zeros(4)
    for i in range(4):
        a[i] = i
    b = a
    b[0] = 9.0
    return a[int(a[1])] * x + b[n]


ITEMS = [
    (casts, (1.5, 3)), (broadcasts, (1.5, 3)), (masks, (1.5, 2)), (negative_and_traced, (1.5, 4)),
    (of_one_side, (2.0,)), (of_one_side, (-0.5,)), (of_one_side, (-2.0,)), (with_early_exit, (0.3, 6)),
    (with_early_exit, (1.2, 6)), (with_early_exit, (0.1, 3)), (guessed_turn, (0.7,)), (list_of_names, (1.5, 3)),
    (rows_by_rows, (1.5, 3)), (in_a_callee, (1.5, 3)), (known_items, (1.5, 2)),
    (traced_slices, (1.5, 3)), (traced_slices, (0.5, 0)),
    (by_methods, (1.5, 3)), (by_methods_of_what_is_known, (1.5, 2))]
IDS_OF_ITEMS = [f"{function.__name__}-{args[0]}" for function, args in ITEMS]


@pytest.mark.parametrize(("function", "args"), ITEMS, ids=IDS_OF_ITEMS)
def test_items_are_stored_as_numpy_does(function: Any, args: tuple[Any, ...]) -> None:
    expected = function(*args)
    found = fxgrad.make_program(python_control_flow(function))(*args)(*args)
    for one, other in zip(fxgrad.tree.leaves(found), fxgrad.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-15)
        assert np.asarray(one).dtype == np.asarray(other).dtype


def test_slices_with_traced_bounds_are_those_of_python() -> None:
    def put(start: Any, stop: Any, step: Any) -> Any:
        a, b, c = np.arange(5.0), np.arange(5.0), np.arange(5.0)
        a[start:stop:step] = 9.0
        b[start::step] = 9.0
        c[:stop:step] += 9.0
        return a, b, c
    bounds = np.array(list(itertools.product(range(-7, 8), range(-7, 8), (-6, -2, -1, 1, 2, 6)))).T
    found = jit(vmap(python_control_flow(put)))(*bounds)
    for one, other in zip(found, zip(*[put(*each) for each in bounds.T], strict=True), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_mask_leaves_no_nan_in_the_gradient() -> None:
    def roots(x: Any) -> Any:
        a = x * np.array([1.0, -1.0, 4.0])
        a[a > 0] **= 0.5
        return np.sum(a)
    np.testing.assert_allclose(jit(grad(python_control_flow(roots)))(4.0), 0.25 - 1.0 + 0.5)


def test_a_return_that_python_knows_not_to_run_may_stand_in_a_traced_loop() -> None:
    def total(x: Any, n: Any, verbose: bool) -> Any:
        a = np.zeros(4)
        for i in range(n):
            a[i] = x
            if verbose:
                return a, i
        return a, n
    for verbose in (False, True):
        found = jit(python_control_flow(total), static_argnums=2)(1.5, 3, verbose)
        np.testing.assert_allclose(found[0], total(1.5, 3, verbose)[0])
        assert found[1] == total(1.5, 3, verbose)[1]


def test_what_the_refusal_of_a_growing_list_says_works() -> None:
    def halves(x: Any) -> Any:
        path = [x]
        while path[-1] > 1.0:
            path.append(path[-1] / 2)
        return np.array(path)

    def halves_of_bounded_number(x: Any) -> Any:
        path, last = np.zeros(20), 0
        path[0] = x
        while path[last] > 1.0:
            path[last + 1] = path[last] / 2
            last += 1
        return path, last + 1
    with pytest.raises(ControlFlowError) as refused:
        jit(python_control_flow(halves))(9.0)
    assert "Begin with an array of the greatest length, and write into it with x[i] = v\n" in str(refused.value)
    path, length = jit(python_control_flow(halves_of_bounded_number))(9.0)
    np.testing.assert_array_equal(path[:length], halves(9.0))
    assert jit(grad(lambda x: python_control_flow(halves_of_bounded_number)(x)[0].sum()))(9.0) == 1.9375


def test_arrays_of_fxgrad_are_assigned_without_jit_too() -> None:
    def steps(x: Any, n: Any) -> Any:
        a = fxgrad.numpy.zeros(4)
        for i in range(n):
            a[i] = x * i
            a[1:] += 1.0
        return a
    for call in (python_control_flow(steps), jit(python_control_flow(steps))):
        np.testing.assert_allclose(call(1.5, 3), [0.0, 3.5, 4.0, 3.0])
        assert call(1.5, 3).dtype == np.float32

    def aliased(x: Any) -> Any:
        a = fxgrad.numpy.zeros(4)
        b = a
        a[0] = x
        return a, b
    with pytest.raises(MutationError):
        python_control_flow(aliased)(1.5)


def test_derivatives_store_traced_values_without_a_condition() -> None:
    def cube(x: Any) -> Any:
        a = np.zeros(2)
        a[0] = x
        a[1] = a[0] * x
        return a[1] * x
    assert grad(grad(python_control_flow(cube)))(2.0) == 12.0

def back_substitution(a: Any, b: Any) -> Any:
    b = b * a[0, 0]
    x = np.zeros_like(b)
    for i in range(len(b) - 1, -1, -1):
        x[i] = (b[i] - a[i, i + 1:] @ x[i + 1:]) / a[i, i]
    return x


def pivoting(a: Any, b: Any) -> Any:
    factors, order = np.eye(3), np.arange(3)
    for k in range(2):
        p = k + np.argmax(np.abs(a[k:, k]))
        if p != k:
            factors[[k, p], :k] = factors[[p, k], :k]
            order[[k, p]] = order[[p, k]]
        factors[k + 1:, k] = a[k + 1:, k] / a[p, k]
    return factors @ b[order]


@pytest.mark.slow
@pytest.mark.parametrize("function", [back_substitution, pivoting])
@pytest.mark.parametrize("wrap", [lambda f: f, jit, lambda f: lambda *args: vmap(f)(*(each[None] for each in args))[0]],
                         ids=["un-jitted", "jit", "vmap"])
def test_arrays_of_which_a_recording_captured_a_view_change_as_numpys(function: Any, wrap: Any) -> None:
    a, b = np.array([[1.0, 2.0, 0.5], [4.0, 1.5, -1.0], [3.0, 7.0, 2.5]]), np.array([0.3, -1.2, 2.0])
    converted = python_control_flow(function)
    np.testing.assert_allclose(wrap(converted)(a, b), function(a, b), rtol=1e-12)
    step = 1e-6
    expected = [(np.sum(function(a + step * each, b)) - np.sum(function(a - step * each, b))) / (2 * step)
                for each in np.eye(9).reshape(9, 3, 3)]
    found = wrap(grad(lambda a, b: np.sum(converted(a, b))))(a, b)
    np.testing.assert_allclose(np.ravel(found), expected, rtol=1e-6, atol=1e-8)


# --- what is refused --------------------------------------------------------------------------------------------------


def other_name(x, n):
    a = np.zeros(3)
    b = a
    for i in range(n):
        a[i] = x  # here
    return a, b


def view(x, n):
    a = np.zeros((3, 3))
    row = a[0]
    for i in range(n):
        row[i] = x  # here
    return a


def seen_by_a_view(x, n):
    a = np.zeros((3, 3)) + x
    row = a[0]
    a[0, n] = 5.0  # here
    return row


def of_the_caller(x, n):
    x[n] = 1.0  # here
    return x


def in_a_list(x, n):
    a = np.zeros(3)
    rows = [a, np.ones(3)]
    a[n] = x  # here
    return rows


def joined_in_a_branch(x, n):
    a, b = np.zeros(3), np.ones(3)
    if x > 0:
        b = a
    b[n] = x  # here
    return a, b


def joined_in_a_turn(x, n):
    a, b = np.zeros(3), np.ones(3)
    for i in range(n):
        b[i] = x  # here
        a = b
    return a, b


def known_after_a_branch(x, n):
    a, b = np.zeros(3), np.ones(3)
    if x > 0:
        b = a
    a[0] = 1.0  # here
    return a, b


def swapped_rows(x, n):
    a = x * np.ones((3, 3))
    a[0], a[n] = a[n], a[0]  # here
    return a


_OTHERS = "which another name, a container or a view has too and would see change in NumPy. Write"


@pytest.mark.parametrize(("function", "message"), [
    (other_name, f"a[...] = v changes the array of `a`, {_OTHERS} a = a.copy() before"),
    (view, f"row[...] = v changes the array of `row`, {_OTHERS} row = row.copy() before"),
    (seen_by_a_view, f"a[...] = v changes the array of `a`, {_OTHERS} a = a.copy() before"),
    (in_a_list, f"a[...] = v changes the array of `a`, {_OTHERS} a = a.copy() before"),
    (joined_in_a_branch, f"b[...] = v changes the array of `b`, {_OTHERS} b = b.copy() before"),
    (joined_in_a_turn, f"b[...] = v changes the array of `b`, {_OTHERS} b = b.copy() before"),
    (known_after_a_branch, (
        "`a` changes in place, and a traced array may be the same or a view of it: one that a traced condition chose, "
        "or a row at a traced index. Write a = a.copy() before")),
    (swapped_rows, f"a[...] = v changes the array of `a`, {_OTHERS} a = a.copy() before"),
])
def test_changes_that_others_would_see_are_refused_by_line(function: Any, message: str) -> None:
    lines, first = inspect.getsourcelines(function)
    line = next(first + number for number, line in enumerate(lines) if line.rstrip().endswith("# here"))
    with pytest.raises(ControlFlowError) as refused:
        jit(python_control_flow(function))(1.5, 2)
    assert str(refused.value) == f"{message}\n  at test_item_assignment.py:{line} (in {function.__name__})"


def test_arguments_are_the_callers() -> None:
    with pytest.raises(ControlFlowError) as refused:
        jit(python_control_flow(of_the_caller))(np.zeros(3), 1)
    assert str(refused.value).startswith(
        "x[...] = v changes the array of `x`, which the caller, another name or a view has too and would see change in "
        "NumPy. Write x = x.copy() before, and return x\n  at test_item_assignment.py:")


def test_values_that_do_not_fit_are_refused() -> None:
    def imaginary(x: Any) -> Any:
        a = np.zeros(3)
        a[0] = x * 1j
        return a

    def halves(x: Any, n: Any) -> Any:
        a = np.zeros(3, int)
        for _ in range(n):
            a[1:] += x
        return a

    def imaginary_part_of_a_row(x: Any, n: Any) -> Any:
        m = np.zeros((2, 3))
        m[0][:n] = x * 1j * np.ones(3)[:n]
        return m

    def outside(x: Any) -> Any:
        a = np.zeros(3)
        a[5] = x
        return a
    with pytest.raises(DTypeError) as refused:
        jit(python_control_flow(imaginary))(1.0)
    assert str(refused.value).startswith(
        "x[...] = v: v is of dtype complex128 and x of dtype float64, which has no room for an imaginary part. Write "
        "x[...] = v.real, or make x a complex array\n")
    with pytest.raises(DTypeError) as refused:
        jit(python_control_flow(imaginary_part_of_a_row))(1.0, 2)
    assert str(refused.value).startswith(
        "x[...] = v: v is of dtype complex128 and x of dtype float64, which has no room for an imaginary part. Write "
        "x[...] = v.real, or make x a complex array\n")
    with pytest.raises(DTypeError) as refused:
        jit(python_control_flow(halves))(1.5, 2)
    assert str(refused.value).startswith(
        "x[...] is changed by an operator such as +=, whose result is of dtype float64 and does not fit into x of "
        "dtype int64. Write x[...] = (x[...] + v).astype(x.dtype)\n")
    with pytest.raises(IndexError):
        jit(python_control_flow(outside))(1.0)


def test_ufuncs_without_an_update_are_refused() -> None:
    def hypotenuses(x: Any, n: Any) -> Any:
        a = np.zeros(3)
        for i in range(n):
            np.hypot.at(a, i, x)
        return a
    with pytest.raises(ControlFlowError) as refused:
        jit(python_control_flow(hypotenuses))(1.0, 2)
    assert str(refused.value).startswith(
        "np.hypot.at changes elements one after the other. Write a loop, a[i] = np.hypot(a[i], ...)\n")


def test_a_changed_copy_of_an_index_array_is_refused() -> None:
    def copied(x: Any, n: Any) -> Any:
        a = np.zeros((3, 3))
        for i in range(n):
            a[[0, 1]][i] = x
        return a
    with pytest.raises(ControlFlowError) as refused:
        jit(python_control_flow(copied))(1.0, 2)
    assert str(refused.value).startswith(
        "x[index][...] = v with an array of indices changes a copy, and not x. Write one index, x[index, ...] = v\n")


def test_an_array_that_a_branch_may_share_is_not_changed_by_an_operator() -> None:
    def added(x: Any) -> Any:
        a = x * np.ones(3)
        b = np.zeros(3)
        if x > 0:
            b = a
        b += 1.0
        return a, b
    with pytest.raises(MutationError) as refused:
        jit(python_control_flow(added))(1.0)
    assert str(refused.value).startswith(
        "b += 1.0 would change a traced array (f64[3]) in place: another name, a container or a view has it too, and "
        "in NumPy would see the change. Write b = b + 1.0\n")


def steps_of_a_line_search(b):
    x = np.zeros(3)
    for _ in range(3):
        t = 1.0
        while np.sum((x - t * b) ** 2) > 1.0:
            t *= 0.5
        x -= t * b
    return np.sum(x * x)


def test_gradients_are_recorded_of_arrays_that_change_after_a_loop_that_read_them() -> None:
    b = np.array([0.5, -1.5, 2.0])
    gradient = grad(python_control_flow(steps_of_a_line_search))
    program = fxgrad.make_program(gradient)(b)
    differences = [(steps_of_a_line_search(b + step) - steps_of_a_line_search(b - step)) / 2e-6
                   for step in np.eye(3) * 1e-6]
    np.testing.assert_allclose(program(b), differences, rtol=1e-6)
    np.testing.assert_allclose(gradient(b), differences, rtol=1e-6)


def added_until_long(b: Any) -> Any:
    x = np.zeros_like(b)
    for _ in range(40):
        x += 0.1 * b
        if np.sqrt(x @ x) > 0.5:
            break
    return x


def in_a_dict_and_a_list(b: Any) -> Any:
    x, parts, rows = np.zeros_like(b), {"x": np.ones_like(b)}, [np.zeros_like(b)]
    for k in range(5):
        parts["x"] += b
        parts["x"][0] = 1.0
        rows[0] -= b
        if parts["x"][1] > 4.1:
            break
        x[k % 3] += parts["x"][1]
    return x + parts["x"] * b + rows[0]


@pytest.mark.slow
@pytest.mark.parametrize("function", [added_until_long, in_a_dict_and_a_list])
def test_arrays_like_a_differentiated_one_change_in_loops_of_compiled_derivatives(function: Any) -> None:
    b, direction = np.array([1.0, 1.2, 0.8]), np.array([0.3, 0.2, 0.7])
    weights = np.array([0.5, -0.3, 1.1])
    slope = weights @ (function(b + 1e-6 * direction) - function(b - 1e-6 * direction)) / 2e-6

    def total(b: Any) -> Any:
        return weights @ python_control_flow(function)(b)

    for gradient in (grad(total), jit(grad(total)), jit(fxgrad.jacfwd(total))):
        np.testing.assert_allclose(gradient(b) @ direction, slope, rtol=1e-6)
    np.testing.assert_allclose(jit(vmap(grad(total)))(np.stack([b, 2 * b]))[0] @ direction, slope, rtol=1e-6)


def outputs_by_position(x, n):
    a, b, m = np.arange(1.0, 4.0) * x, np.zeros(3), np.ones((2, 3))
    np.negative(a, a)
    np.add(a, x, b)
    for i in range(n):
        np.multiply(b, a, m[i % 2])
        np.clip(m[0], -1.0, x, out=m[0])
    np.exp(a[1:], a[1:])
    c = np.zeros((2, 2))
    if x > 1:
        np.dot(m, m.T, c)
        np.subtract(m[0], b, m[0])
        b += c[0, 0]
    return a, b, m


def views_that_nothing_else_has(x, n):
    a = np.array([[1.0, 2.0], [3.0, x]], copy=True).T
    a /= a[1, 1]
    b = (np.arange(4.0) * x).reshape(2, 2)
    c = np.real(np.array([[x, 1.0], [2.0, 4.0]])[:, 0]).squeeze()
    c /= c[1]
    if x > 1:
        b += n
        a[0] *= 2
    return a, b, c


@pytest.mark.parametrize("function", [outputs_by_position, views_that_nothing_else_has])
@pytest.mark.parametrize("args", [(1.5, 3), (0.5, 2)])
def test_outputs_by_position_and_views_of_nothing_else(function: Any, args: Any) -> None:
    for one, other in zip(jit(python_control_flow(function))(*args), function(*args), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def view_of_an_argument(x):
    x = x.T
    x += 1
    return x


def view_of_an_array_that_a_name_has(x):
    y = x + 1
    z = y.T
    z += 1
    return y


@pytest.mark.parametrize("function", [view_of_an_argument, view_of_an_array_that_a_name_has])
def test_views_that_something_else_has_are_not_changed(function: Any) -> None:
    for transform in (jit, lambda f: grad(lambda x: np.sum(f(x)))):
        with pytest.raises(MutationError, match="it is a view"):
            transform(python_control_flow(function))(np.ones((2, 2)))


# --- arrays without axes ----------------------------------------------------------------------------------------------


def clipped_below(x):
    y = np.array(x)
    y[y < 2] = 0.0
    y[y > 4] += 1.0
    y[...] = 2 * y
    return y


def by_halves(x):
    y = np.asarray(x) + 0.0
    result = np.empty_like(y)
    below = y < 3
    result[below] = 2 * y[below]
    result[~below] = np.log(y[~below])
    return result + np.sum(y[y > 4])


def for_numbers_too(x):
    y = np.sqrt(np.asarray(x))
    try:
        y[y < 2] = 0.0
    except TypeError:
        y = 0.0 if y < 2 else y
    return y


@pytest.mark.parametrize("function", [clipped_below, by_halves, for_numbers_too])
def test_a_condition_selects_the_element_of_an_array_without_axes(function):
    xs = np.array([1.0, 3.5, 16.0])
    want = [function(x) for x in xs]
    np.testing.assert_allclose([jit(python_control_flow(function))(float(x)) for x in xs], want, rtol=1e-15)
    np.testing.assert_allclose(jit(vmap(python_control_flow(function)))(xs), want, rtol=1e-15)


def test_a_scalar_that_another_name_has_or_that_a_block_changes_has_no_items():
    def named_twice(x):
        y = z = np.array(x)
        y[y < 2] = 0.0
        return y + z

    def in_a_block(x):
        y = np.array(x)
        if x > 3:
            y[y < 5] = 1.0
        return y

    for function in (named_twice, in_a_block):
        with pytest.raises(TypeError, match=r"does not support item assignment. Of an array without axes, write"):
            jit(python_control_flow(function))(4.0)
