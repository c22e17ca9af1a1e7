"""`implicit`: derivatives of solvers of every kind are those of closed forms and of differences."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import implicit, lax
from fxgrad.errors import ArgumentError, CheckError, ConcretizationError, DTypeError, ShapeError, TreeError


def square(x, a):
    return x ** 2 - a


def by_steps(a):
    x = a
    for _ in range(30):
        x = (x + a / x) / 2
    return x


def by_loop(a):
    return lax.while_loop(lambda x: fnp.abs(x * x - a) > 1e-13 * a, lambda x: (x + a / x) / 2, a)


def by_scipy(a):
    return scipy.optimize.brentq(lambda x: x * x - a, 0, 10, xtol=1e-14)


SOLVERS = {"steps": implicit(by_steps, root=square), "loop": implicit(by_loop, root=square),
           "scipy": implicit(by_scipy, root=square, like=lambda a: a),
           "python_control_flow": implicit(fxgrad.python_control_flow(by_steps), root=square),
           "fixed point": implicit(by_steps, fixed_point=lambda x, a: (x + a / x) / 2 + 0.1 * (x * x - a))}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("fixed point", "steps")))
                                  for name in SOLVERS])
def test_roots_have_derivatives_of_every_order_and_mode(name):
    root, a = SOLVERS[name], 4.0
    expected = [2.0, 0.25, -1 / 32, 3 / 256]
    close = lambda found, wanted: np.testing.assert_allclose(found, wanted, rtol=1e-11)
    close(root(a), expected[0])
    close(fxgrad.grad(root)(a), expected[1])
    close(fxgrad.grad(fxgrad.grad(root))(a), expected[2])
    close(fxgrad.jvp(root, (a,), (1.0,)), expected[:2])
    close(fxgrad.derivatives(root, 3)(a), expected)
    close(fxgrad.jit(fxgrad.value_and_grad(root))(a), expected[:2])
    close(fxgrad.jit(fxgrad.hessian(root))(a), expected[2])
    close(fxgrad.vmap(root)(np.array([4.0, 9.0])), [2.0, 3.0])
    close(fxgrad.jit(fxgrad.vmap(fxgrad.grad(root)))(np.array([4.0, 9.0])), [1 / 4, 1 / 6])
    close(fxgrad.grad(lambda a: fxgrad.grad(lambda b: root(a * b))(1.0))(a), 1 / 8)  # closes over an outer tracer


def test_scipy_is_called_with_known_values_without_more():
    root = implicit(by_scipy, root=square)
    np.testing.assert_allclose(fxgrad.grad(fxgrad.grad(root))(4.0), -1 / 32, rtol=1e-11)


def test_derivatives_do_not_keep_the_steps():
    def residuals(steps):
        solver = implicit(lambda a: lax.fori_loop(0, steps, lambda _, x: (x + a / x) / 2, a), root=square)
        return [kept[0] for kept in fxgrad.saved_residuals(fxgrad.jit(solver), 4.0)]
    assert residuals(10) == residuals(1000)


def least(p):
    return scipy.optimize.minimize(lambda x: np.sum((x - p["c"]) ** 4) + np.sum(x ** 2) * p["k"], np.zeros(2),
                                   tol=1e-12).x


def test_minima_of_containers():
    minimum = implicit(least, argmin=lambda x, p: fnp.sum((x - p["c"]) ** 4) + fnp.sum(x ** 2) * p["k"],
                       like=lambda p: p["c"])
    p = {"c": np.array([1.0, 2.0]), "k": 0.5}
    found = fxgrad.jacobian(minimum)(p)
    x = minimum(p)
    curvature = 12 * (x - p["c"]) ** 2 + 2 * p["k"]
    np.testing.assert_allclose(found["k"], -2 * x / curvature, rtol=1e-4)  # as far as SciPy went
    np.testing.assert_allclose(found["c"], np.diag(12 * (x - p["c"]) ** 2 / curvature), rtol=1e-4, atol=1e-12)
    np.testing.assert_allclose(fxgrad.jit(fxgrad.jacobian(minimum))(p)["k"], found["k"], rtol=1e-12)


def nearest(a):
    bounds = [{"type": "eq", "fun": lambda x: x[0] + x[1] - 1}, {"type": "ineq", "fun": lambda x: x[0] - 0.2 * a[1]}]
    return scipy.optimize.minimize(lambda x: np.sum((x - a) ** 2), np.zeros(2), constraints=bounds, tol=1e-13).x


CONSTRAINED = implicit(nearest, argmin=lambda x, a: fnp.sum((x - a) ** 2), equal=lambda x, a: x[0] + x[1] - 1.0,
                       at_most=lambda x, a: 0.2 * a[1] - x[0], like=lambda a: a)


@pytest.mark.parametrize(("a", "expected"), [
    ([1.0, 0.5], [[0.5, -0.5], [-0.5, 0.5]]),  # the bound is not active
    ([-1.0, 0.5], [[0.0, 0.2], [0.0, -0.2]])])
def test_constrained_minima_follow_their_active_constraints(a, expected):
    np.testing.assert_allclose(fxgrad.jacobian(CONSTRAINED)(np.array(a)), expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(fxgrad.jit(fxgrad.jacobian(CONSTRAINED))(np.array(a)), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("compiled", [False, True])
def test_constraints_that_the_minimum_comes_close_to_do_not_hold_it(compiled):
    clipped = implicit(lambda a: fnp.clip(a, 0.0, 1.0), argmin=lambda x, a: fnp.sum((x - a) ** 2),
                       at_most=lambda x, a: fnp.concatenate([-x, x - 1.0]))
    a = np.array([5e-4, 1.0 - 5e-4, 0.5, 1.0 + 1e-5, -1e-5])
    find = fxgrad.jit(fxgrad.jacobian(clipped)) if compiled else fxgrad.jacobian(clipped)
    np.testing.assert_allclose(find(a), np.diag([1.0, 1.0, 1.0, 0.0, 0.0]), atol=1e-12)


@pytest.mark.slow
def test_constraints_that_do_not_move_have_derivatives_of_every_mode():
    """The point of a sphere that is farthest along c; its equation does not depend on c."""
    farthest = implicit(lambda c: c / fnp.sqrt(fnp.sum(c * c)), argmin=lambda x, c: -fnp.sum(x * c),
                        equal=lambda x, c: fnp.sum(x * x) - 1.0)
    c = np.array([1.0, 2.0, -1.0])
    cubes = lambda x: fnp.sum(x ** 3)
    expected = fxgrad.hessian(lambda c: cubes(c / fnp.sqrt(fnp.sum(c * c))))(c)
    found = lambda c: cubes(farthest(c))
    np.testing.assert_allclose(fxgrad.grad(found)(c), fxgrad.jacfwd(found)(c), rtol=1e-12)
    for outer in (fxgrad.jacfwd, fxgrad.jacrev):
        for inner in (fxgrad.jacfwd, fxgrad.jacrev):
            np.testing.assert_allclose(outer(inner(found))(c), expected, atol=1e-10)
    np.testing.assert_allclose(fxgrad.jit(fxgrad.vmap(fxgrad.hessian(found)))(c[None])[0], expected, atol=1e-10)


def test_reverse_mode_through_constraints_of_scipy():
    """The point of the simplex closest to c, with one bound active."""
    def solver(c):
        conditions = [{"type": "eq", "fun": lambda x: np.sum(x) - 1}, {"type": "ineq", "fun": lambda x: x}]
        return scipy.optimize.minimize(lambda x: np.sum((x - c) ** 2), np.full(3, 1 / 3), constraints=conditions,
                                       tol=1e-12).x

    closest = implicit(solver, argmin=lambda x, c: fnp.sum((x - c) ** 2), equal=lambda x, c: fnp.sum(x) - 1.0,
                       at_most=lambda x, c: -x)
    expected = [[0.5, -0.5, 0.0], [-0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]
    for mode in (fxgrad.jacfwd, fxgrad.jacrev):
        np.testing.assert_allclose(mode(closest)(np.array([0.9, 0.6, -0.8])), expected, atol=1e-7)


def test_conditions_of_badly_scaled_rows_and_columns_are_not_singular():
    scales = np.array([1e-150, 1.0, 1e150])
    matrix = scales[:, None] * np.array([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 2.0]]) * scales[::-1]
    inverse = np.linalg.inv(matrix)
    solved = implicit(lambda a: inverse @ a, root=lambda x, a: matrix @ x - a)
    np.testing.assert_allclose(fxgrad.jacobian(solved)(scales), inverse, rtol=1e-12)


def test_conditions_may_depend_on_what_they_close_over_alone():
    def inner(a, x0):
        return implicit(lambda x0: fnp.sqrt(a), root=lambda x, x0: x ** 2 - a)(x0)
    for function in (fxgrad.grad, lambda f, argnums: fxgrad.jit(fxgrad.grad(f, argnums=argnums))):
        np.testing.assert_allclose(function(inner, argnums=(0, 1))(4.0, 1.0), (0.25, 0.0), rtol=1e-12)
    np.testing.assert_allclose(fxgrad.jit(fxgrad.grad(inner, argnums=1))(4.0, 1.0), 0.0)


def two(a):
    return 2.0 + 0.0 * a


CONSTANT = implicit(two, root=lambda x, a: x ** 2 - 4.0)


@pytest.mark.parametrize("call", [
    lambda: fxgrad.grad(CONSTANT)(3.0), lambda: fxgrad.jvp(CONSTANT, (3.0,), (1.0,)),
    lambda: fxgrad.jit(fxgrad.grad(CONSTANT))(3.0), lambda: fxgrad.grad(fxgrad.jit(CONSTANT))(3.0),
    lambda: fxgrad.vmap(fxgrad.grad(CONSTANT))(np.ones(2))],
    ids=["grad", "jvp", "jit of grad", "grad of jit", "vmap"])
def test_derivatives_by_a_condition_that_depends_on_no_argument_are_refused(call):
    with pytest.raises(ArgumentError) as caught:
        call()
    assert str(caught.value).split("\n")[0] == (
        "implicit: root of two depends on none of the solver's arguments, so the derivative of what it returned "
        "would be 0. Use the arguments in the condition, as in root=lambda x, a: x ** 2 - a, or pass "
        "fxgrad.lax.stop_gradient(a) to the solver if it is 0")


def test_values_by_a_condition_that_depends_on_no_argument_are_those_of_the_solver():
    assert CONSTANT(3.0) == fxgrad.jit(CONSTANT)(3.0) == fxgrad.vmap(CONSTANT)(np.ones(1))[0] == 2.0
    assert fxgrad.grad(lambda a: a * CONSTANT(lax.stop_gradient(a)))(3.0) == 2.0


@pytest.mark.parametrize("compiled", [False, True])
def test_a_cotangent_that_is_not_a_number_gives_none(compiled):
    root = implicit(lambda a: fnp.sqrt(a), root=square)
    back = lambda cotangent: fxgrad.vjp(root, np.array([4.0, 9.0]))[1](cotangent)[0]
    found = (fxgrad.jit(back) if compiled else back)(np.array([np.nan, 1.0]))
    assert np.isnan(found[0])


def test_solvers_call_other_solvers_with_known_values():
    """The weight decay by which ridge regression comes closest to t, found by SciPy."""
    ridge = implicit(lambda w, decay: w / (1.0 + decay), argmin=lambda x, w, decay: fnp.sum((x - w) ** 2) + (
        decay * fnp.sum(x ** 2)))

    def error(decay, t):
        return fnp.sum((ridge(np.array([1.0, 2.0]), decay) - t) ** 2) + 0.1 * decay ** 2

    def closest(t):
        slope = lambda decay: float(fxgrad.grad(error)(decay, t))
        return scipy.optimize.brentq(slope, 0.0, 10.0, xtol=1e-14)
    expected = (closest(0.5 + 1e-5) - closest(0.5 - 1e-5)) / 2e-5
    np.testing.assert_allclose(fxgrad.grad(implicit(closest, argmin=error))(0.5), expected, rtol=1e-7)
    compiled = fxgrad.jit(fxgrad.grad(implicit(closest, argmin=error, like=0.5)))
    np.testing.assert_allclose(compiled(0.5), expected, rtol=1e-7)


def test_arguments_by_keyword_reach_all_functions():
    root = implicit(lambda a, *, b=2.0: fnp.sqrt(a * b), root=lambda x, a, b=2.0: x ** 2 - a * b,
                    like=lambda a, b=2.0: a)
    assert root(4.0, b=9.0) == 6.0
    np.testing.assert_allclose(fxgrad.grad(root)(4.0, b=9.0), 0.75)
    np.testing.assert_allclose(fxgrad.grad(root, argnames="b")(4.0, b=9.0), 1 / 3)
    np.testing.assert_allclose(fxgrad.jit(fxgrad.grad(lambda b: root(4.0, b=b)))(9.0), 1 / 3)
    bounded = implicit(lambda a, top: fnp.minimum(a, top), argmin=lambda x, a, top: (x - a) ** 2,
                       at_most=lambda x, a, top: x - top)
    np.testing.assert_allclose(fxgrad.grad(bounded, argnames=("a", "top"))(a=3.0, top=2.0), (0.0, 1.0))


def test_arguments_may_be_functions_and_words_compiled_too():
    root = implicit(lambda a, kind, function: function(a), root=lambda x, a, kind, function: x ** 2 - a)
    for call in (fxgrad.grad(lambda a: root(a, "square", fnp.sqrt)), fxgrad.jit(fxgrad.grad(
            lambda a: root(a, "square", fnp.sqrt)))):
        np.testing.assert_allclose(call(4.0), 0.25)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats(dtype):
    a = fxgrad.numpy.asarray(4.0, dtype)
    found = fxgrad.grad(implicit(lambda a: fnp.sqrt(a), root=square))(a)
    assert found.dtype == a.dtype
    assert float(found) == 0.25


def test_complex_roots():
    """Also of conditions that are not holomorphic: x + conj(x)/2 = a."""
    root = implicit(lambda a: fnp.sqrt(a), root=square)
    a = 2.0 + 1.0j
    np.testing.assert_allclose(fxgrad.jvp(root, (a,), (1j,))[1], 0.5j / np.sqrt(a), rtol=1e-12)
    for part in (fnp.real, fnp.imag):
        np.testing.assert_allclose(fxgrad.grad(lambda a, part=part: part(root(a)))(a), fxgrad.grad(
            lambda a, part=part: part(fnp.sqrt(a)))(a), rtol=1e-12)
    parts = implicit(lambda a: {"root": fnp.sqrt(a), "size": fnp.real(a) ** 2}, root=lambda x, a: {
        "root": square(x["root"], a), "size": x["size"] - fnp.real(a) ** 2})
    np.testing.assert_allclose(fxgrad.jvp(lambda a: [*parts(a).values()], (a,), (1j + 1.0,))[1],
                               [(0.5j + 0.5) / np.sqrt(a), 4.0], rtol=1e-12)
    np.testing.assert_allclose(fxgrad.grad(lambda a: parts(a)["size"] + fnp.real(parts(a)["root"]))(a), fxgrad.grad(
        lambda a: fnp.real(a) ** 2 + fnp.real(fnp.sqrt(a)))(a), rtol=1e-12)
    mixed = lambda a: fnp.real(a) / 1.5 + 2j * fnp.imag(a)
    found = implicit(mixed, root=lambda x, a: x + fnp.conj(x) / 2 - a)
    np.testing.assert_allclose(fxgrad.jvp(found, (a,), (1.0 + 1j,))[1], 1 / 1.5 + 2j, rtol=1e-12)
    for part in (fnp.real, fnp.imag):
        np.testing.assert_allclose(fxgrad.grad(lambda a, part=part: part(found(a)))(a), fxgrad.grad(
            lambda a, part=part: part(mixed(a)))(a), rtol=1e-12, atol=1e-15)


def test_large_systems_take_a_solver_of_products():
    calls = []

    def solve(matvec, right):
        calls.append(right)
        return fxgrad.scipy.sparse.linalg.cg(matvec, right, tol=1e-12)[0]
    with_products = implicit(lambda a: fnp.sqrt(a), root=square, solve=solve)
    a = np.linspace(1.0, 4.0, 20)
    np.testing.assert_allclose(fxgrad.grad(lambda a: fnp.sum(with_products(a)))(a), 0.5 / np.sqrt(a), rtol=1e-9)
    assert calls


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtypes_are_those_of_the_solver(dtype):
    a = np.asarray([4.0, 0.1], dtype)
    root = implicit(lambda a: fnp.sqrt(a), root=square)
    assert fxgrad.grad(lambda a: fnp.sum(root(a)))(a).dtype == dtype
    np.testing.assert_allclose(fxgrad.grad(lambda a: fnp.sum(root(a)))(a), 0.5 / np.sqrt(a), rtol=1e-5)
    assert root(np.zeros(0, dtype)).shape == (0,)
    number = implicit(lambda a: float(np.sqrt(a[0])), root=lambda x, a: x ** 2 - a[0])
    found = fxgrad.grad(number)(a)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, [0.25, 0.0], rtol=1e-6)


def wrong(a):
    return a


def pair(x, a):
    return x, a


def with_status(matvec, b):
    return b / matvec(1.0), 0


def wide(matvec, b):
    return fnp.stack([b, b])


def nothing(a):
    return None


def divided(a):
    return 1.0 / fnp.asarray(a)


def pair_sum(x, a):
    return x - a


@pytest.mark.parametrize(("kind", "text", "call"), [
    (CheckError, ("implicit: root of wrong does not hold at what it returned: a residual of 12.0, where at most 0.004 "
     "is allowed"), lambda: implicit(wrong, root=square)(4.0)),
    (CheckError, ("implicit: root of wrong does not hold at what it returned: a residual of 12.0, where at most 0.004 "
     "is allowed"), lambda: fxgrad.jit(fxgrad.grad(implicit(wrong, root=square)))(4.0)),
    (ArgumentError, ("implicit takes one condition, root, argmin or fixed_point, got none. Write "
     "@fxgrad.implicit(root=lambda x, a: ...)"), lambda: implicit(wrong)),
    (ArgumentError, ("implicit takes one condition, root, argmin or fixed_point, got root and argmin. Write "
     "@fxgrad.implicit(root=lambda x, a: ...)"), lambda: implicit(root=square, argmin=square)),
    (ArgumentError, ("implicit: equal and at_most are constraints of argmin, and root was given. Put the equations "
     "into it"), lambda: implicit(root=square, equal=square)),
    (ArgumentError, "implicit takes functions as conditions, got a int as root. Write root=lambda x, a: ...",
     lambda: implicit(wrong, root=3)),
    (ArgumentError, "implicit takes functions as conditions, got a str as solve. Write solve=lambda matvec, b: ...",
     lambda: implicit(wrong, root=square, solve="cg")),
    (ArgumentError, ("implicit: the objective argmin of wrong returns f64[3], where a number is needed. Sum it, or "
     "pass equations as root="), lambda: implicit(wrong, argmin=lambda x, a: (x - a) ** 2)(np.ones(3))),
    (ArgumentError, ("implicit: the objective argmin of wrong returns tuple, where a number is needed. Sum it, or pass "
     "equations as root="), lambda: implicit(wrong, argmin=pair)(1.0)),
    (TreeError, ("implicit: the condition fixed_point of wrong returns PyTreeDef({'y': *}), where a container like x "
     "is needed, PyTreeDef(*)"), lambda: implicit(wrong, fixed_point=lambda x, a: {"y": a})(1.0)),
    (ShapeError, ("implicit: the condition fixed_point of wrong returns f64[3,1] for x, which is f64[3]: as many "
     "equations as unknowns are needed, in the same shape"),
     lambda: implicit(wrong, fixed_point=lambda x, a: a[:, None])(np.ones(3))),
    (TreeError, ("implicit: the condition root of wrong returns PyTreeDef((*, *)), where a container like x is needed, "
     "PyTreeDef(*)"), lambda: implicit(wrong, root=pair)(1.0)),
    (ShapeError, ("implicit: the condition root of wrong returns f64[2] for x, which is f64[3]: as many equations as "
     "unknowns are needed, in the same shape"), lambda: implicit(wrong, root=lambda x, a: x[1:] - a[1:])(np.ones(3))),
    (DTypeError, ("implicit: wrong returned i64[] for x, where floating-point numbers are needed. Convert them, and "
     "pass on integers apart"), lambda: implicit(wrong, root=square)(1)),
    (DTypeError, ("implicit: the condition root of wrong returns c128[] for x, which is f64[]: twice as many equations "
     "as unknowns. Return complex numbers from wrong, or a real condition"),
     lambda: implicit(wrong, root=lambda x, a: x - a * (1.0 + 1j))(1.0)),
    (CheckError, ("implicit: argmin of wrong with its constraints does not hold at what it returned: a residual of "
     "3.0, where at most 0.0015 is allowed"), lambda: implicit(
         wrong, argmin=lambda x, a: x ** 2, at_most=lambda x, a: x - 1.5)(1.5)),
    (TreeError, ("implicit: solve=with_status returns PyTreeDef((*, *)), where a container like x is needed, "
     "PyTreeDef(*). Of solvers that return more, such as gmres, take the first: lambda matvec, b: "
     "gmres(matvec, b)[0]"), lambda: fxgrad.grad(implicit(by_steps, root=square, solve=with_status))(4.0)),
    (ShapeError, "implicit: solve=wide returns f64[2] for x, where f64[] is needed",
     lambda: fxgrad.grad(implicit(by_steps, root=square, solve=wide))(4.0)),
    (ArgumentError, ("implicit: nothing returned None, which has no numbers. Return x, an array or a container of "
     "arrays"), lambda: implicit(nothing, root=square)(1.0)),
    (CheckError, ("implicit: divided returned numbers that are not finite, the largest of which is inf. Look at its "
     "steps and at where it starts"), lambda: implicit(divided, root=pair_sum)(0.0)),
    (CheckError, ("implicit: divided returned numbers that are not finite, the largest of which is nan. Look at its "
     "steps and at where it starts"), lambda: fxgrad.jit(implicit(divided, root=pair_sum))(np.nan)),
])
def test_what_is_wrong_is_refused(kind, text, call):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value).split("\n")[0] == text


def test_a_solver_that_cannot_be_traced_needs_shapes_under_jit():
    with pytest.raises(ConcretizationError) as caught:
        fxgrad.jit(implicit(by_scipy, root=square))(4.0)
    assert str(caught.value).split("\n")[-1] == (
        "(implicit: by_scipy cannot be traced. Under jit and vmap, pass like=, an array or a container of the shapes "
        "and dtypes of its result)")


def test_the_check_may_be_left_out():
    assert implicit(wrong, root=square, tolerance=None)(4.0) == 4.0


def zeros(a):
    return fnp.zeros_like(a)


SINGULAR = {
    "a triple root": (fxgrad.grad(implicit(zeros, root=lambda x, a: x ** 3 - a)), 0.0, "root of zeros", 1),
    "forward": (lambda a: fxgrad.jvp(implicit(zeros, root=lambda x, a: x ** 3 - a), (a,), (1.0,)), 0.0,
                "root of zeros", 1),
    "equations that depend on each other": (
        fxgrad.jacobian(implicit(zeros, root=lambda x, a: np.array([[1.0, 2.0], [2.0, 4.0]]) @ x - a)), np.zeros(2),
        "root of zeros", 2),
    "equations that depend on each other but for rounding": (
        fxgrad.jacobian(implicit(zeros, root=lambda x, a: np.arange(9.0).reshape(3, 3) / 10 @ x - a)), np.zeros(3),
        "root of zeros", 3),
    "those in float32": (
        fxgrad.jacobian(implicit(zeros, root=lambda x, a: np.float32([[0.1, 0.3], [0.2, 0.6]]) @ x - a)),
        np.zeros(2, "float32"), "root of zeros", 2),
    "a linear objective": (fxgrad.jacobian(implicit(zeros, argmin=lambda x, a: fnp.sum(a * x))), np.zeros(2),
                           "argmin of zeros", 2),
    "a constraint twice": (
        fxgrad.grad(implicit(wrong, argmin=lambda x, a: (x - a) ** 2, equal=lambda x, a: fnp.stack([x, 2.0 * x]))), 0.0,
        "argmin of wrong with its constraints", 3),
    "a batch": (fxgrad.vmap(fxgrad.grad(implicit(zeros, root=lambda x, a: x ** 3 - a))), np.zeros(3), "root of zeros",
                1),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", SINGULAR)
def test_a_condition_that_does_not_determine_x_is_named(name, compiled):
    function, a, what, size = SINGULAR[name]
    with pytest.raises(CheckError) as caught:
        (fxgrad.jit(function) if compiled else function)(a)
    assert str(caught.value).split("\n")[0] == (
        f"implicit: the derivative of {what} in x, a matrix of shape ({size}, {size}), is singular up to rounding "
        "at what it returned: the condition does not determine x there, which has no derivative. Give as many "
        "independent equations as unknowns, or solve=, which chooses one of the solutions")


def test_compiled_derivatives_call_nothing_to_check_the_matrix():
    function = fxgrad.jit(fxgrad.grad(implicit(lambda a: fnp.sqrt(a), root=square)))
    assert "callback" not in function.lower(4.0).compile().as_text()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_autocast_leaves_solver_and_condition_in_full_precision(seed):
    random = np.random.default_rng(seed)
    matrix = (random.normal(size=(8, 8)) * 0.1).astype(np.float32)
    shift = 3.0 * random.normal(size=8).astype(np.float32)

    @fxgrad.implicit(fixed_point=lambda x, matrix, shift: fnp.sin(matrix @ x) + shift)
    def equilibrium(matrix, shift):
        return fxgrad.lax.fori_loop(0, 40, lambda _, x: fnp.sin(matrix @ x) + shift, fnp.zeros_like(shift))

    cast = fxgrad.autocast(equilibrium)
    expected = equilibrium(matrix, shift)
    for found in cast(matrix, shift), fxgrad.jit(cast)(matrix, shift), fxgrad.vmap(cast)(matrix[None], shift[None])[0]:
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(*(fxgrad.jit(fxgrad.grad(lambda matrix, f=f: fnp.sum(f(matrix, shift))))(matrix)
                                 for f in (cast, equilibrium)), rtol=1e-4, atol=1e-6)
    halved = fxgrad.autocast(equilibrium, fxgrad.autocast_policies.bfloat16.with_(half=["@implicit"]))
    texts = [fxgrad.text.program_text(fxgrad.make_program(fxgrad.jit(f))(matrix, shift)) for f in (cast, halved)]
    assert ["bf16" in text for text in texts] == [False, True]
