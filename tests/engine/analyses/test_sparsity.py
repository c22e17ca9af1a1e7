"""Sparsity: every operation has a rule, and patterns hold all places that are other than zero, over all samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine import dtypes
from fxgrad.engine.analyses.index_sets import Dependence, identity
from fxgrad.engine.analyses.sparsity import dependences, function_dependences, known_values, sparsity_rules
from fxgrad.engine.analyses.sparsity_values import conservative
from fxgrad.engine.core.primitive import Cost, MissingRule, Primitive, registry
from fxgrad.engine.ops.pointwise import acts_on_each
from fxgrad.engine.tracing.apply import apply_program
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.transforms.linearize import linearize_program
from fxgrad.errors import ArgumentError, ShapeError, UnsupportedError
from fxgrad.extend.analyses import reads_elements
from tests.samples import Sample, all_samples

SAMPLES = all_samples()
QUICK = ("reshape", "slice", "pad", "gather", "scatter", "scatter_add", "dynamic_slice", "dynamic_update_slice",
         "concatenate", "stack", "split", "dot_general", "reduce_sum", "cumsum", "select_n", "mul", "scan", "for",
         "cond")
WIDTH = 200
DRAWS = 12  # of arguments, as long as some place was zero in all before; more of small ones


def test_every_linear_operation_has_a_rule_of_its_own() -> None:
    conservatives = []
    for name, primitive in sorted(registry.items()):
        is_linear = not isinstance(primitive.transpose, MissingRule)
        if is_linear and primitive.regions is None and sparsity_rules.of(primitive) is conservative:
            conservatives.append(name)
    assert conservatives == ["jax_call", "jax_effect"]  # which run code of jax's or users'


def test_what_acts_on_each_element_needs_no_entry() -> None:
    assert all(sparsity_rules.of(primitive) is not conservative for primitive in registry.values()
               if acts_on_each.of(primitive) and not isinstance(primitive.transpose, MissingRule))


def drawn(sample: Sample, number: int) -> list[Any]:
    """The arguments of a sample, drawn anew for each number but 0."""
    if number == 0:
        return sample.args()
    random = np.random.default_rng(number)
    return [spec(random) if callable(spec) else spec for spec in sample.specs]


def compare(primitive: Primitive, sample: Sample, is_known: bool) -> bool | None:
    """Assert that the pattern of a sample holds all nonzeros; return whether it is exact, None without derivative.

    If `is_known`, integers are known, and arguments are drawn until each place was other than zero; else integers are
    further arguments, and the sample's own arguments are the only ones.
    """
    first = sample.args()
    chosen = [place for place, arg in enumerate(first) if not is_known or (
        dtypes.is_inexact(np.asarray(arg).dtype) and place not in sample.fixed)]
    moving = [place for place in chosen if dtypes.is_inexact(np.asarray(first[place]).dtype)
              and place not in sample.fixed]
    if not moving:
        return None
    seen: list[Any] = []
    patterns: list[Any] = []
    known: list[Any] = []
    small = sum(np.size(arg) for arg in first) < 40
    for number in range(DRAWS * (3 if small else 1) if is_known else 1):
        args = drawn(sample, number)
        now_known = [arg for place, arg in enumerate(args) if place not in chosen]
        if number == 0 or not all(map(np.array_equal, known, now_known)):
            known = now_known
            derived, captured = _linearized(primitive, sample.params, args, chosen, moving)
            half, count = derived.extra, derived.extra.linear.captured
            found, matrices = _pattern(derived, half, [*captured, *[None] * len(chosen)], count)
            if found is None:
                return None
            patterns = [one & other for one, other in zip(patterns, matrices, strict=True)] if number else matrices
        results = derived([*captured, *(args[place] for place in chosen)])
        nonzeros = _nonzeros(half.linear, results[len(results) - count:] if count else [])
        for place, (pattern, places) in enumerate(zip(matrices, nonzeros, strict=True)):
            assert not (places & ~pattern).any(), f"{primitive} {sample!r}: output {place}"
        seen = [one | other for one, other in zip(seen, nonzeros, strict=True)] if number else nonzeros
        if all((one == other).all() for one, other in zip(seen, patterns, strict=True)):
            return True
    return False


def _linearized(primitive: Primitive, params: dict[str, Any], args: Sequence[Any], chosen: Sequence[int],
                moving: Sequence[int]) -> tuple[Any, list[Any]]:
    """The operation on `args`, of which those at `chosen` are arguments and others constants, along `moving`."""
    program, constants = _program_of(primitive, params, args, chosen)
    return linearize_program(program, (*[False] * program.captured, *(place in moving for place in chosen))), constants


def _program_of(primitive: Primitive, params: dict[str, Any], args: Sequence[Any],
                chosen: Sequence[int]) -> tuple[Any, list[Any]]:
    def function(*values: Any) -> Any:
        given = dict(zip(chosen, values, strict=True))
        return bind(primitive, *(given.get(place, arg) for place, arg in enumerate(args)), **params)

    program = fxgrad.make_program(function)(*(args[place] for place in chosen))
    return program.replace(constants=[]), program.constants


def _pattern(derived: Any, half: Any, inputs: Sequence[Any], count: int) -> tuple[Any, list[Any]]:
    values = [None if each is None else np.asarray(each) for each in (*derived.captured, *inputs)]
    known = known_values(derived.program, values, len(derived.program.outputs) - count)
    avals = half.linear.in_avals[count:]
    width = sum(aval.size for aval in avals)
    if width > WIDTH or not any(half.nonzero_outputs):
        return None, []
    starts = np.cumsum([0, *(aval.size for aval in avals)])
    found, _ = dependences(half.linear, [*known, *(
        identity(aval.shape, int(start), width) for aval, start in zip(avals, starts, strict=False))], width)
    matrices = []
    for each, atom in zip(found, half.linear.outputs, strict=True):
        assert not isinstance(each, Dependence) or each.shape == atom.aval.shape
        matrices.append(each.matrix().toarray() if isinstance(each, Dependence) else np.zeros(
            (atom.aval.size, width), bool))
    return found, matrices


def _nonzeros(linear: Any, residuals: Sequence[Any]) -> list[Any]:
    """The places of the matrix of a linear program that are other than zero, and finite."""
    avals = linear.in_avals[len(residuals):]
    width = sum(aval.size for aval in avals)
    found = [np.zeros((atom.aval.size, width), bool) for atom in linear.outputs]
    for unit in (1, 1j) if any(dtypes.is_complex(aval.dtype) for aval in avals) else (1,):
        for column in range(width):
            tangents, start = [], 0
            for aval in avals:
                tangent = np.zeros(aval.size, aval.dtype)
                if start <= column < start + aval.size and (unit == 1 or dtypes.is_complex(aval.dtype)):
                    tangent[column - start] = unit
                tangents.append(tangent.reshape(aval.shape))
                start += aval.size
            for matrix, result in zip(found, apply_program(linear, [*residuals, *tangents]), strict=True):
                value = np.asarray(result).reshape(-1).astype(np.complex128)
                matrix[:, column] |= (value != 0) & np.isfinite(value)
    return found


@pytest.mark.parametrize("name", QUICK)
def test_patterns_hold_all_nonzeros(name: str) -> None:
    for sample in SAMPLES[registry[name]][:6]:
        compare(registry[name], sample, is_known=True)


@pytest.mark.slow
def test_patterns_hold_all_nonzeros_of_all_samples_and_most_are_exact() -> None:
    exact, wide = 0, []
    for primitive, samples in SAMPLES.items():
        for sample in samples:
            try:
                found = compare(primitive, sample, is_known=True)
                compare(primitive, sample, is_known=False)
            except UnsupportedError:  # it has no derivative
                continue
            if found:
                exact += 1
            elif found is False:
                wide.append(primitive.name)
    # The others are not finite, or lose to zeros of values that are not known, or hold for other values than the
    # samples (other orders of rows in lu and qr, other elements in top_k and sort).
    assert exact / (exact + len(wide)) >= 0.95, f"{exact} are exact; more than that: " + " ".join(
        f"{name}:{wide.count(name)}" for name in sorted(set(wide)))


@pytest.mark.slow
def test_operations_that_show_their_pattern_show_that_of_the_derivative() -> None:
    """Of all samples with zeros among their numbers, along all floats or one, where others are known or not."""
    shown = set()
    for primitive, samples in SAMPLES.items():
        for sample in samples:
            args = [np.where(np.arange(arg.size).reshape(arg.shape) % 3 == 1, 0, arg).astype(arg.dtype)
                    if arg.ndim and dtypes.is_inexact(arg.dtype) and not sample.fixed else arg
                    for arg in map(np.asarray, sample.args())]
            floats = [place for place, arg in enumerate(args)
                      if dtypes.is_inexact(arg.dtype) and place not in sample.fixed]
            for chosen, moving in ((floats, floats), (range(len(args)), floats), (floats[:1], floats[:1])):
                program, constants = _program_of(primitive, sample.params, args, chosen)
                width = sum(args[place].size for place in moving)
                starts = iter(np.cumsum([0, *(args[place].size for place in moving)]))
                found = None if not 0 < width <= WIDTH else function_dependences(program, [
                    *map(np.asarray, constants), *(identity(args[place].shape, int(next(starts)), width)
                                                   if place in moving else None for place in chosen)], width)
                if found is not None:
                    derived = linearize_program(program, (
                        *[False] * len(constants), *(place in moving for place in chosen)))
                    half = derived.extra
                    _, matrices = _pattern(derived, half, [*constants, *[None] * len(chosen)], half.linear.captured)
                    of_derivative = iter(matrices)
                    for value, atom, is_nonzero in zip(found[0], program.outputs, half.nonzero_outputs, strict=True):
                        expected = next(of_derivative) if is_nonzero and matrices else np.zeros(
                            (atom.aval.size, width), bool)
                        given = value.matrix().toarray() if isinstance(value, Dependence) else np.zeros_like(expected)
                        np.testing.assert_array_equal(given, expected, f"{primitive} {sample!r} in {moving}")
                    shown.add(primitive)
    assert len(shown) >= 50


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
@pytest.mark.parametrize("name", ["lu", "q", "r"])
def test_patterns_of_factors_are_exact(name: str, shape: tuple[int, int]) -> None:
    """A column of Q, a row of R or U, and a column of L depend on few columns of the matrix."""
    function = {"lu": lambda a: fxgrad.lax.linalg.lu(a)[0], "q": lambda a: fnp.linalg.qr(a)[0],
                "r": lambda a: fnp.linalg.qr(a)[1]}[name]
    rng = np.random.default_rng(0)
    found = fxgrad.sparsity(function)(rng.normal(size=shape)).jacobian.to_scipy().toarray()
    jacobians = fxgrad.vmap(fxgrad.jacobian(function))(rng.normal(size=(40, *shape)))  # with any order of rows
    np.testing.assert_array_equal(found, np.any(np.abs(jacobians) > 1e-9, axis=0).reshape(found.shape))


# --- jitted functions -------------------------------------------------------------------------------------------------

BAND = np.diag(np.arange(1.0, 7.0)) + np.eye(6, k=1)
KNOWING: dict[str, Any] = {
    "rows set": lambda x: fnp.at(fnp.zeros(6))[np.array([0, 3])].set(x[np.array([2, 4])] ** 2),
    "rows of a range": lambda x: x[fnp.arange(0, 6, 2)] * 2 + np.sin(x[fnp.arange(5, 0, -2)]),
    "a matrix of bands": lambda x: np.exp(BAND @ x) * np.array([0.0, 1.0, 0.0, 1.0, 1.0, 0.0]),
    "a kernel with zeros": lambda x: fnp.convolve(x ** 2, np.array([1.0, 0.0, 2.0])),
    "a known choice": lambda x: fnp.where(fnp.arange(6) < 3, x ** 2, 0.0),
    "rows by step": lambda x: fxgrad.lax.scan(lambda c, k: (c, x[k] ** 2 * c), 1.0, np.array([1, 2, 4]))[1],
    "a branch": lambda x: fxgrad.lax.cond(x[0] > 5, lambda: x[np.array([0, 1])] ** 2, lambda: x[np.array([1, 1])]),
    "an order": lambda x: x[fnp.argsort(np.array([3.0, 1.0, 2.0, 0.0, 5.0, 4.0]))][:3] ** 2,
}


@pytest.mark.parametrize("name", KNOWING)
def test_what_is_known_inside_of_calls_is_known(name: str) -> None:
    """Patterns of jitted functions, and of those that others call or batch, are those of the functions."""
    f, x = KNOWING[name], np.linspace(-0.5, 1.0, 6)
    jacobian = fxgrad.sparsity(f)(x).jacobian.to_scipy().toarray()
    hessian = fxgrad.sparsity(lambda x: np.sum(f(x)))(x).hessian.to_scipy().toarray()
    assert not jacobian.all()
    jitted = fxgrad.jit(f)
    for same in (jitted, fxgrad.jit(jitted), lambda x: jitted(x) * 2, fxgrad.checkpoint(f),
                 lambda x: fxgrad.jit(fxgrad.vmap(f))(x[None])[0], lambda x: fxgrad.lax.map(jitted, x[None])[0]):
        np.testing.assert_array_equal(fxgrad.sparsity(same)(x).jacobian.to_scipy().toarray(), jacobian)
        found = fxgrad.sparsity(lambda x, same=same: np.sum(same(x)))(x).hessian.to_scipy().toarray()
        np.testing.assert_array_equal(found, hessian)


# --- rules of users ---------------------------------------------------------------------------------------------------


def mixing(name: str, elements: Any) -> Any:
    """Return a new linear operation (x, y) -> (x of one place before + y, the sum of x), with this rule."""
    def numpy_rule(x: Any, y: Any) -> list[Any]:
        return [np.roll(x, 1, -1) + y, np.sum(x, -1)]

    def both(x: Any, y: Any) -> list[Any]:
        return bind(primitive, x, y)

    primitive = Primitive(
        name=name, abstract=lambda x, y: [x, x.update(shape=x.shape[:-1])], numpy=numpy_rule,
        xla=lambda lax, x, y: [jnp.roll(x, 1, -1) + y, jnp.sum(x, -1)],
        jvp=lambda primals, tangents: (both(*primals), both(*map(fxgrad.instantiate_zeros, tangents))),
        transpose=lambda cotangents, inputs: [
            fnp.roll(fxgrad.instantiate_zeros(cotangents[0]), -1, -1) + fnp.expand_dims(
                fxgrad.instantiate_zeros(cotangents[1]), -1), cotangents[0]],
        batch=lambda size, values, axes: (
            both(*(fnp.broadcast_to(v, (size, *v.shape)) if a is None else fnp.moveaxis(v, a, 0)
                   for v, a in zip(values, axes, strict=True))), [0, 0]), cost=lambda x, y: Cost(x.size, x.nbytes))
    if elements is not None:
        sparsity_rules.enter(reads_elements(elements), primitive)
    return both


def neighbors(x: Any, y: Any) -> list[list[Any]]:
    own = np.arange(x.size)
    return [[np.roll(own, 1)[:, None], own[:, None]], [own, None]]


def test_rules_of_users_give_patterns() -> None:
    x, y = np.array([1.0, 2.0, 4.0, 8.0]), np.ones(4)
    dense, declared = mixing("without_a_rule", None), mixing("with_a_rule", neighbors)
    for index, expected in ((0, np.roll(np.eye(4), 1, 0) + np.eye(4)), (1, np.ones((1, 4)))):
        pattern = fxgrad.sparsity(lambda x, y, index=index: declared(x * x, y * x)[index])(x, y).jacobian
        np.testing.assert_array_equal(pattern.to_scipy().toarray(), expected != 0)
        whole = fxgrad.sparsity(lambda x, y, index=index: dense(x * x, y * x)[index])(x, y).jacobian
        assert whole.nnz == whole.shape[0] * 4
    second = fxgrad.sparsity(lambda x, y: declared(x, y)[0], argnums=1)(x, y).jacobian
    np.testing.assert_array_equal(second.to_scipy().toarray(), np.eye(4) != 0)
    function = lambda x: declared(fnp.sin(x), y * x)[0] ** 2
    for mode in ("forward", "reverse"):
        matrix = fxgrad.jacobian(function, sparse=True, mode=mode)(x)
        assert matrix.nnz == 8
        np.testing.assert_allclose(matrix.toarray(), fxgrad.jacobian(function)(x), rtol=1e-14)


@pytest.mark.parametrize(("elements", "kind", "text"), [
    (lambda x, y: [[np.arange(4), None], [None, None]], ShapeError, (
        "the sparsity of wrong: an array of integers of shape (4, k) is needed for a result of shape (4,), got int64 "
        "of shape (4,)")),
    (lambda x, y: [[np.ones((4, 1)), None], [None, None]], ShapeError, (
        "the sparsity of wrong: an array of integers of shape (4, k) is needed for a result of shape (4,), got float64 "
        "of shape (4, 1)")),
    (lambda x, y: [[np.full((4, 1), 4), None], [None, None]], ArgumentError, (
        "the sparsity of wrong: elements from 4 to 4 of an operand with 4 elements; they count from 0, and -1 is "
        "none")),
], ids=["a shape", "floats", "elements"])
def test_wrong_rules_of_users_are_refused(elements: Any, kind: Any, text: str) -> None:
    wrong = mixing("wrong", elements)
    with pytest.raises(kind) as caught:
        fxgrad.sparsity(lambda x: wrong(x, np.ones(4))[0])(np.ones(4)).jacobian  # noqa: B018
    assert str(caught.value).split("\n")[0] == text


def test_a_loop_that_swaps_arrays_of_which_one_depends_on_nothing() -> None:
    def swapped(x: Any, n: Any) -> Any:
        u, v = np.zeros(6), np.zeros(6)
        u[2] = x
        for _ in range(n):
            for i in range(1, 5):
                v[i] = 0.5 * (u[i - 1] + u[i + 1])
            u, v = v, u
        return np.sum(u)
    pattern = fxgrad.sparsity(fxgrad.python_control_flow(swapped))(1.3, 2)
    assert pattern.jacobian.nnz == 1
