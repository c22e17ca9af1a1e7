"""`fxgrad.nan_safe`: derivatives in which 0 times an infinite slope is 0, under every nesting of transformations."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.core.primitive import Primitive, library
from fxgrad.engine.ops.pointwise import acts_on_each
from fxgrad.engine.ops.singular import SingularPoint, singular_points
from fxgrad.engine.ops.strong import strong_dot_general, strong_mul
from fxgrad.engine.tracing.tape import bind
from tests.support.nan_corpus import CASES, MIXED, ROOTS, Case

POINTS = [(primitive, point) for primitive, points in singular_points.entered().items() for point in points]
CURVATURE = np.diag([0.0, -0.25, -1 / 32])
X = np.array([0.0, 1.0, 4.0])


def length(x: Any) -> Any:
    return fnp.sum(fnp.where(x > 0, fnp.sqrt(x), 0.0))


def equal(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12, atol=1e-14)


# --- the heart ------------------------------------------------------------------------------------------------------


def test_what_is_not_chosen_gives_nothing_back() -> None:
    assert np.isnan(fxgrad.grad(length)(X)[0])
    safe = fxgrad.nan_safe(length)
    equal(safe(X), 3.0)
    equal(fxgrad.grad(safe)(X), ROOTS)
    equal(fxgrad.jacfwd(safe)(X), ROOTS)
    equal(fxgrad.hessian(safe)(X), CURVATURE)
    equal(fxgrad.nan_safe(fxgrad.grad(length))(X), ROOTS)
    value, slope = fxgrad.value_and_grad(safe)(X)
    equal(value, 3.0)
    equal(slope, ROOTS)


def test_what_is_infinite_stays_so() -> None:
    assert fxgrad.grad(fxgrad.nan_safe(fnp.sqrt))(0.0) == np.inf
    assert fxgrad.grad(fxgrad.nan_safe(lambda x: fnp.log(x)))(0.0) == np.inf
    assert np.isnan(fxgrad.nan_safe(lambda x: fnp.sum(x * fnp.log(x)))(X))
    missing = fxgrad.value_and_grad(fxgrad.nan_safe(lambda x: fnp.sum(x * np.array([1.0, np.nan, 2.0]))))(X)
    assert np.isnan(missing[0])
    np.testing.assert_array_equal(missing[1], [1.0, np.nan, 2.0])


def test_outside_of_it_nothing_changes() -> None:
    mixed = fxgrad.grad(lambda x: fxgrad.nan_safe(length)(x) + length(x))(X)
    np.testing.assert_allclose(mixed, [np.nan, 1.0, 0.5], rtol=1e-12)
    np.testing.assert_array_equal(fxgrad.grad(length)(X), jax.grad(lambda x: jax.numpy.sum(
        jax.numpy.where(x > 0, jax.numpy.sqrt(x), 0.0)))(X))


def test_of_a_wrapper_it_is_the_wrapper_that_is_differentiated() -> None:
    safe = fxgrad.nan_safe(lambda x: x ** 3)

    @functools.wraps(safe)
    def twice(x: Any) -> Any:
        return 2.0 * safe(x)
    assert fxgrad.grad(twice)(1.0) == 6.0
    assert fxgrad.grad(fxgrad.grad(safe))(1.0) == 6.0


def test_programs() -> None:
    program = fxgrad.make_program(length)(X)
    safe = fxgrad.nan_safe(program)
    assert fxgrad.nan_safe(safe) is safe
    equal(safe(X), 3.0)
    equal(fxgrad.grad(safe)(X), ROOTS)
    text = str(fxgrad.make_program(fxgrad.grad(fxgrad.nan_safe(length)))(X))
    assert "safe_call(" in text
    assert "strong_div(" in text
    equal(fxgrad.parse(text)(X), ROOTS)


def test_the_finite_is_the_same_to_the_bit() -> None:
    def model(w: Any, x: Any) -> Any:
        return fnp.mean(fxgrad.nn.log_softmax(fnp.tanh(x @ w) @ w.T)[:, 0] ** 2)
    random = np.random.default_rng(0)
    w, x = random.normal(size=(3, 4)), random.normal(size=(5, 3))
    plain, safe = fxgrad.grad(model), fxgrad.grad(fxgrad.nan_safe(model))
    for _ in range(3):  # interpreted, then by code
        np.testing.assert_array_equal(safe(w, x), plain(w, x))
        w = w * 0.9


def test_results_are_finite_again_and_again() -> None:
    gradient = fxgrad.grad(fxgrad.nan_safe(length))
    for values, slopes in ((X + 1, None), (X, ROOTS), (X + 1, None), (X, ROOTS)):
        found = gradient(values)
        equal(found, 0.5 / np.sqrt(values) if slopes is None else slopes)


def test_branches_of_python_and_calls_of_it() -> None:
    def branching(x: Any) -> Any:
        return length(x) if x[1] > 0 else fnp.sum(x)
    equal(fxgrad.grad(fxgrad.nan_safe(branching))(X), ROOTS)
    equal(fxgrad.grad(fxgrad.nan_safe(branching))(-X), np.ones(3))
    with pytest.raises(fxgrad.errors.ArgumentError) as caught:
        fxgrad.make_program(lambda x: fxgrad.nan_safe(lambda x, y: x)(x, "y"))(X)
    assert str(caught.value).startswith(
        "nan_safe: y is a str, where an array or a number is needed. Pass it by closure (functools.partial), or leave "
        "it out of the arguments that are transformed\n  at test_safe_derivatives.py:")


def test_strong_products() -> None:
    products = strong_mul(np.array([0.0, 0.0, 2.0, np.nan]), np.array([np.inf, np.nan, np.inf, 2.0]))
    np.testing.assert_array_equal(products, [0.0, 0.0, np.inf, np.nan])
    rows = np.array([[1.0, np.inf], [2.0, np.nan]])
    np.testing.assert_array_equal(
        strong_dot_general(rows, np.array([3.0, 0.0]), (((1,), (0,)), ((), ()))), [3.0, 6.0])


@pytest.mark.parametrize("jitted", [False, True])
def test_debug_nans_names_the_line_and_passes_what_is_safe(jitted: bool) -> None:
    def bent(x: Any) -> Any:
        return fnp.sum(x * fnp.log(x))
    wrap = fxgrad.jit if jitted else lambda f: f
    with fxgrad.debug_nans():
        equal(wrap(fxgrad.grad(fxgrad.nan_safe(length)))(X), ROOTS)
        with pytest.raises(FloatingPointError) as caught:
            wrap(fxgrad.nan_safe(fxgrad.grad(bent)))(X - 2.0)
    line = bent.__code__.co_firstlineno + 1
    said = f"NaN in the result of log{', in a compiled program' if jitted else '; its operands have none'}"
    assert str(caught.value).startswith(f"{said}\n  at test_safe_derivatives.py:{line} (in bent)")


def test_disable_jit_runs_pythons_own() -> None:
    seen: list[bool] = []

    def looked(x: Any) -> Any:
        seen.append(True)
        return length(x)
    gradient = fxgrad.jit(fxgrad.nan_safe(fxgrad.grad(looked)))
    with fxgrad.disable_jit():
        for _ in range(3):
            equal(gradient(X), ROOTS)
        assert len(seen) == 3
        with fxgrad.debug_nans(), pytest.raises(FloatingPointError) as caught:
            fxgrad.jit(fxgrad.grad(length))(X)
    assert "test_safe_derivatives.py:" in str(caught.value)


# --- singular points ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("primitive", "point"), POINTS)
def test_derivatives_at_singular_points(primitive: Primitive, point: SingularPoint) -> None:
    def function(*operands: Any) -> Any:
        return bind(primitive, *operands)[0]
    first = fxgrad.grad(fxgrad.nan_safe(function), point.place)
    np.testing.assert_array_equal(first(*point.operands), point.first)
    np.testing.assert_array_equal(fxgrad.grad(first, point.place)(*point.operands), point.second)
    jitted = fxgrad.jit(fxgrad.grad(first, point.place))
    np.testing.assert_array_equal(jitted(*point.operands), point.second)

    def masked(*operands: Any) -> Any:
        return fnp.where(operands[0] == operands[0], 1.0, function(*operands))
    slope = fxgrad.grad(fxgrad.nan_safe(masked), point.place)
    assert slope(*point.operands) == 0
    assert fxgrad.grad(slope, point.place)(*point.operands) == 0


@pytest.mark.slow
def test_every_infinite_slope_at_a_finite_value_is_a_singular_point() -> None:
    """Of all operations on one number, at whole ones; the second derivative of spence at 0 is a NaN still."""
    missing, looked = [], 0
    for primitive in library:
        for at in (-1.0, 0.0, 1.0) if acts_on_each.of(primitive) else ():
            def function(x: Any, primitive: Primitive = primitive) -> Any:
                return bind(primitive, x)[0]
            try:
                with np.errstate(all="ignore"):
                    value, slope = fxgrad.value_and_grad(fxgrad.nan_safe(function))(at)
            except (TypeError, KeyError, fxgrad.errors.FxgradError):
                break  # it takes other operands
            looked += 1
            if np.isfinite(value) and np.isinf(slope) and (at,) not in [
                    point.operands for point in singular_points.of(primitive)]:
                missing.append((primitive.name, at))
    assert missing == [("spence", 0.0)]
    assert looked > 90


# --- the corpus -----------------------------------------------------------------------------------------------------


def of(name: str) -> tuple[Case, Any]:
    case = CASES[name]
    return case, functools.partial(case.function, fxgrad)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_gradients_of_the_corpus(name: str) -> None:
    case, function = of(name)
    assert np.isnan(fxgrad.grad(function)(case.x)).any()
    gradient = fxgrad.grad(fxgrad.nan_safe(function))
    found = [gradient(case.x), gradient(case.x), fxgrad.jit(gradient)(case.x)]
    for each in found:
        right = np.allclose(each, case.gradient, rtol=1e-12, atol=1e-12)
        assert right != bool(case.why), each
    if case.hessian is not None:
        for second in (fxgrad.hessian, lambda f: fxgrad.jacrev(fxgrad.jacrev(f))):
            equal(second(fxgrad.nan_safe(function))(case.x), case.hessian)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.why and "loop" not in name])
def test_corpus_forward_and_mapped(name: str) -> None:
    case, function = of(name)
    safe = fxgrad.nan_safe(function)
    x = np.asarray(case.x)
    if name != "with a backward rule":  # whose forward mode is derived from the backward one, as it is
        equal(fxgrad.jacfwd(safe)(x), case.gradient)
    both = fxgrad.vmap(fxgrad.grad(safe))(np.stack([x, x]))
    equal(both, np.stack([case.gradient, case.gradient]))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_explanations_of_the_corpus(name: str) -> None:
    case, function = of(name)
    origin = fxgrad.debug.find_nan(fxgrad.grad(function))(case.x)
    assert origin
    assert origin.write
    assert origin.lines
    if origin.cause is None:
        assert origin.arguments
        assert origin.write.startswith("it came in: look where it comes from")
    else:
        assert origin.cause.line.startswith("nan_corpus.py:")
        assert not origin.write.startswith("look at the line above")


def test_the_corpus_is_large_enough() -> None:
    assert len(CASES) >= 40
    assert sum(not case.why for case in CASES.values()) >= 38


# --- nestings -------------------------------------------------------------------------------------------------------

AROUND = {
    "nothing": lambda f: f,
    "jit": fxgrad.jit,
    "checkpoint": fxgrad.checkpoint,
    "named_call": lambda f: fxgrad.named_call(f, name="inner"),
    "vmap": lambda f: lambda x: fnp.sum(fxgrad.vmap(f)(x[None])),
    "scan": lambda f: lambda x: fxgrad.lax.scan(lambda c, _: (c + f(x), None), 0.0, None, length=1)[0],
    "cond": lambda f: lambda x: fxgrad.lax.cond(x[1] > 0, f, lambda x: fnp.sum(x), x),
    "while": lambda f: lambda x: fxgrad.lax.fori_loop(0, 1, lambda i, c: c + f(x), 0.0),
    "safe": fxgrad.nan_safe,
    "stabilize": lambda f: fxgrad.stabilize(f),
}


@pytest.mark.slow
@pytest.mark.parametrize(("outer", "inner"), [
    *itertools.product(AROUND, ["nothing"]), *itertools.product(["nothing"], AROUND), ("vmap", "scan"),
    ("scan", "checkpoint"), ("jit", "cond"), ("checkpoint", "while"), ("stabilize", "vmap")])
def test_nestings(outer: str, inner: str) -> None:
    function = AROUND[outer](fxgrad.nan_safe(AROUND[inner](length)))
    equal(fxgrad.grad(function)(X), ROOTS)
    equal(fxgrad.jit(fxgrad.grad(function))(X), ROOTS)
    equal(fxgrad.jacfwd(fxgrad.jacrev(function))(X), CURVATURE)
    primal, tangent = fxgrad.jvp(function, (X,), (np.ones(3),))
    equal([primal, tangent], [3.0, ROOTS.sum()])
    _, pull = fxgrad.vjp(function, X)
    equal(pull(2.0)[0], 2 * ROOTS)
    _, linear = fxgrad.linearize(function, X)
    equal(linear(np.ones(3)), ROOTS.sum())


@pytest.mark.slow
def test_on_a_mesh() -> None:
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("i")

    def on_mesh(x: Any) -> Any:
        return fnp.sum(fxgrad.shard_map(lambda x: fnp.where(x > 0, fnp.sqrt(x), 0.0), mesh=mesh, in_specs=spec,
                                        out_specs=spec)(x))
    equal(fxgrad.jit(fxgrad.grad(fxgrad.nan_safe(on_mesh)))(MIXED), ROOTS)
    inside = fxgrad.shard_map(fxgrad.vmap(fxgrad.grad(fxgrad.nan_safe(
        lambda x: fnp.where(x > 0, fnp.sqrt(x), 0.0)))), mesh=mesh, in_specs=spec, out_specs=spec)
    equal(fxgrad.jit(inside)(MIXED), ROOTS)


def test_auxiliary_results_of_every_kind() -> None:
    def with_rest(x: Any, key: Any) -> Any:
        return length(x), (fxgrad.random.fold_in(key, 1), x > 0, x.astype("bfloat16"), fnp.argmax(x))
    key = fxgrad.random.key(0)
    for _ in range(2):
        slope, rest = fxgrad.grad(fxgrad.nan_safe(with_rest), has_aux=True)(X + 1.0, key)
        equal(slope, 0.5 / np.sqrt(X + 1.0))
        assert [np.shape(each) for each in rest] == [(), (3,), (3,), ()]


def test_compiled_functions_are_safe_within_it_alone() -> None:
    jitted, at_x = fxgrad.jit(fxgrad.grad(length)), X
    for _ in range(2):
        equal(fxgrad.nan_safe(jitted)(X), ROOTS)
        assert np.isnan(jitted(X)[0])
        inside = fxgrad.grad(fxgrad.nan_safe(lambda y: y * fnp.sum(jitted(at_x))))
        equal(inside(2.0), ROOTS.sum())
    fresh = fxgrad.jit(fxgrad.grad(length))
    equal(fxgrad.grad(fxgrad.nan_safe(lambda y: y * fnp.sum(fresh(at_x))))(2.0), ROOTS.sum())
    assert np.isnan(fresh(X)[0])


@pytest.mark.slow
def test_jax_differentiates_and_batches_safe_products() -> None:
    x, weights = np.linspace(-1.0, 2.0, 6).reshape(2, 3), np.linspace(-0.5, 0.7, 12).reshape(3, 4)

    def loss(weights: Any, x: Any) -> Any:
        return fnp.sum(fnp.tanh(x @ x.T @ fnp.where(x > 0, fnp.sqrt(x), 0.0) @ weights) ** 2)
    gradient = fxgrad.to_jax(fxgrad.grad(fxgrad.nan_safe(loss), argnums=(0, 1)))
    with jax.enable_x64(True):
        second = jax.jit(jax.grad(lambda weights: (gradient(weights, x)[0] ** 2).sum()))(weights)
        many = jax.vmap(gradient, (None, 0))(weights, np.stack([x, x + 1.5]))
    assert np.isfinite(second).all()
    assert np.isfinite(many[1]).all()
    expected = fxgrad.grad(lambda weights: fnp.sum(fxgrad.grad(fxgrad.nan_safe(loss))(weights, x) ** 2))(weights)
    np.testing.assert_allclose(second, expected, rtol=1e-12)
    np.testing.assert_allclose(many[1][1], fxgrad.grad(loss, argnums=1)(weights, x + 1.5), rtol=1e-12)
