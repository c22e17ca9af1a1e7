"""Results own their memory: none shares it with an argument, a constant, a residual, or another result.

Whatever a caller writes into an array that was returned changes that array alone: on the first call, which is
interpreted, and on later ones, which run generated code.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.core.avals import array_aval, is_frozen
from fxgrad.engine.core.primitive import MissingRule, Primitive
from fxgrad.engine.dtypes import is_inexact
from fxgrad.engine.ops.snippets import snippet_of
from fxgrad.engine.tracing.apply import apply_program
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.tracing.trace import UNSHARED, trace_at
from fxgrad.errors import FxgradError, UnsupportedError
from tests.comparison.cases import CASES
from tests.comparison.libraries import LIBRARIES
from tests.samples import Sample, all_samples

CALLS = 3
FEW = 1
"""Samples of a primitive that the quick tier looks at."""


def arrays(*results: Any) -> list[np.ndarray]:
    """The arrays in containers that have memory."""
    return [leaf for leaf in jax.tree.leaves(results) if isinstance(leaf, np.ndarray) and leaf.size and leaf.shape]


def assert_apart(results: Any, given: Any = ()) -> None:
    """Raises unless no result shares memory with what was given, or with another one to which somebody can write.

    All can be written to but those that `fxgrad.numpy` made of arrays.
    """
    made, others = arrays(results), arrays(given)
    for left, right in itertools.combinations(made, 2):
        assert not np.shares_memory(left, right) or is_frozen(left), "two results share memory"
    for result in made:
        assert type(result) is fxgrad.Array or result.flags.writeable, "a result cannot be written to"
        assert not any(np.shares_memory(result, each) for each in others), "a result shares memory with what was given"


def assert_always_apart(call: Callable[..., Any], *args: Any) -> None:
    """The same over three calls; results of the earlier ones count as given."""
    before: list[Any] = []
    for _ in range(CALLS):
        with np.errstate(all="ignore"):
            results = call(*args)
        assert_apart(results, [args, before])
        before.append(results)


# --- every primitive ------------------------------------------------------------------------------------------------


def cases(slow: bool) -> list[Any]:
    found = []
    for primitive, samples in all_samples().items():
        fit = [sample for sample in samples if not sample.slow and "numpy" not in sample.without
               and not primitive.effectful and any(np.size(arg) and np.shape(arg) for arg in sample.args())]
        chosen = fit[FEW:] if slow else fit[:FEW]
        compiles = "on_cpu" in getattr(primitive.numpy, "__qualname__", "")
        if chosen:
            found.append(pytest.param(primitive, chosen, id=primitive.name,
                                      marks=[pytest.mark.slow] if slow or compiles else []))
    return found


def entwined(primitive: Primitive, sample: Sample) -> Callable[..., list[Any]]:
    """The operation among operations that return their operand: what goes in and comes out, twice."""
    def function(*args: Any) -> list[Any]:
        outputs = bind(primitive, *args, **sample.params)
        return [*outputs, *map(fxgrad.stop_gradient, outputs), *args, *map(fxgrad.lax.optimization_barrier, args)]
    return function


def check_primitive(primitive: Primitive, sample: Sample) -> None:
    args = [arg if np.shape(arg) else np.asarray(arg)[()] for arg in sample.args()]
    program, _ = trace_at(entwined(primitive, sample), [array_aval(arg) for arg in args], mode=UNSHARED)
    assert_always_apart(lambda *given: apply_program(program, given), *args)
    places = [place for place, arg in enumerate(args) if is_inexact(np.asarray(arg).dtype)]
    refused = any(isinstance(rule, MissingRule) and rule.kind == "TODO"
                  for rule in (primitive.jvp, primitive.transpose))
    if not places or refused or "jvp" in sample.without or "transpose" in sample.without:
        return

    def moved(*values: Any) -> Any:
        given = [*args]
        for place, value in zip(places, values, strict=True):
            given[place] = value
        return bind(primitive, *given, **sample.params)

    def pulled(*values: Any) -> Any:
        outputs, pullback = fxgrad.vjp(moved, *values)
        residuals = [each for each in pullback._residuals if not any(each is arg for arg in args)]
        cotangents = [np.ones_like(output) if is_inexact(output.dtype) else np.zeros(output.shape, jax.dtypes.float0)
                      for output in outputs]
        results = pullback(cotangents)
        assert_apart(results, [cotangents, residuals])
        assert not any(np.shares_memory(*pair) for pair in itertools.product(arrays(outputs), arrays(residuals)))
        return outputs, results

    with contextlib.suppress(UnsupportedError):  # derivatives that nobody has
        assert_always_apart(pulled, *(args[place] for place in places))


@pytest.mark.parametrize(("primitive", "samples"), cases(slow=False))
def test_results_of_every_primitive(primitive: Primitive, samples: list[Sample]) -> None:
    for sample in samples:
        check_primitive(primitive, sample)


@pytest.mark.parametrize(("primitive", "samples"), cases(slow=True))
def test_results_of_every_sample(primitive: Primitive, samples: list[Sample]) -> None:
    for sample in samples:
        check_primitive(primitive, sample)


def test_what_expressions_say_they_own() -> None:
    looked_at = 0
    for primitive, samples in all_samples().items():
        for sample in samples:
            args = sample.args()
            snippet = snippet_of(primitive, [array_aval(arg) for arg in args], sample.params)  # type: ignore[misc]
            if snippet is None or not snippet.owned or sample.slow or not arrays(args):
                continue
            names = [f"x{place}" for place in range(len(args))]
            scope = {**snippet.objects, **dict(zip(names, args, strict=True))}
            with np.errstate(all="ignore"):
                result = eval(snippet.text.format(*names, out="", named_out=""), scope)
            assert not any(np.shares_memory(made, each) for made in arrays(result) for each in arrays(args)), primitive
            looked_at += 1
    assert looked_at > 300


# --- every transformation -------------------------------------------------------------------------------------------

X, A = np.array([[0.5, 2.0, 1.5], [3.0, 1.0, 0.25]]), np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
FROZEN = A.copy()
FROZEN.flags.writeable = False

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: x,
    "twice": lambda x: (x, x),
    "exp twice": lambda x: _thrice(np.exp(x)),
    "stop_gradient": fxgrad.stop_gradient,
    "barrier": fxgrad.lax.optimization_barrier,
    "named": lambda x: fxgrad.checkpoint_name(x, "x"),
    "views": lambda x: (x.reshape(3, 2), x.T, x[:1], x[::-1], np.squeeze(x[:1]), x.ravel(), np.flip(x), x[None]),
    "views of exp": lambda x: _with_views(np.exp(x)),
    "broadcast": lambda x: (np.broadcast_to(x, (2, 2, 3)), np.broadcast_to(2.0, (2, 3)) * 1.0),
    "converted": lambda x: (x.astype(np.float64), np.real(x), fnp.asarray(x), +x, np.conj(x)),
    "idle": lambda x: (np.roll(x, 3, 1), np.concatenate([x]), np.sum(x, ()), x.at[5:].set(1.0), x * 1.0, x + 0.0),
    "closed over": lambda x: (x * A, fnp.asarray(A) + 0 * x, fxgrad.stop_gradient(A) * x, A),
    "frozen": lambda x: (x, FROZEN, fxgrad.lax.optimization_barrier(FROZEN)),
    "checkpoint": fxgrad.checkpoint(lambda x: (x, np.exp(x), fxgrad.stop_gradient(x))),
    "cond": lambda x: fxgrad.lax.cond(np.sum(x) > 0, lambda y: (y, y.T), lambda y: (y * 2, y.T), x),
    "scan": lambda x: fxgrad.lax.scan(lambda c, row: (c, row), x[0], x),
    "fori_loop": lambda x: fxgrad.lax.fori_loop(0, 3, lambda i, c: c[::-1], (x, 2 * x)),
    "while_loop": lambda x: fxgrad.lax.while_loop(lambda c: c[0] < 0, lambda c: (c[0] + 1, c[1]), (0, x)),
    "custom_jvp": lambda x: _custom_jvp(x),
    "custom_vjp": lambda x: _custom_vjp(x),
    "softmax": lambda x: (fxgrad.nn.softmax(x), fxgrad.nn.identity(x)),
    "callback": lambda x: fxgrad.pure_callback(lambda y: y, fxgrad.ShapeDtypeStruct((2, 3), np.float64), x,
                                               vmap_method="sequential"),
}


def _thrice(y: Any) -> Any:
    return y, y, fxgrad.stop_gradient(y)


def _with_views(y: Any) -> Any:
    return y, y.T, y[:1], y.reshape(3, 2)


@fxgrad.custom_jvp
def _custom_jvp(x: Any) -> Any:
    return x, np.exp(x)


@_custom_jvp.defjvp
def _custom_jvp_rule(primals: Any, tangents: Any) -> Any:
    return _custom_jvp(*primals), (tangents[0], tangents[0])


@fxgrad.custom_vjp
def _custom_vjp(x: Any) -> Any:
    return x, x.T


_custom_vjp.defvjp(lambda x: ((x, x.T), x), lambda x, cotangents: (cotangents[0],))
UNDIFFERENTIATED = {"callback"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_programs_and_their_text(name: str) -> None:
    program = fxgrad.make_program(FUNCTIONS[name])(X)
    assert_always_apart(program, X)
    assert_apart(program(X), program.constants)
    if name not in ("custom_jvp", "custom_vjp", "callback"):  # they hold functions, which have no text
        assert_always_apart(fxgrad.parse(str(program)), X)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap(name: str) -> None:
    many = np.stack([X, 2 * X, X + 1])
    assert_always_apart(fxgrad.vmap(FUNCTIONS[name]), many)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in UNDIFFERENTIATED])
def test_derivatives(name: str) -> None:
    function = FUNCTIONS[name]

    def total(x: Any) -> Any:
        outputs = [leaf for leaf in jax.tree.leaves(function(x)) if fnp.ndim(leaf) and leaf.dtype == np.float64]
        return sum((np.sum(output * output) for output in outputs), start=np.sum(x)), outputs

    assert_always_apart(fxgrad.grad(lambda x: total(x)[0]), X)
    assert_always_apart(fxgrad.value_and_grad(lambda x: (total(x)[0], [x, fxgrad.stop_gradient(x), x.T, np.exp(x)]),
                                              has_aux=True), X)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in UNDIFFERENTIATED])
def test_linear_functions_keep_what_they_need_to_themselves(name: str) -> None:
    def floating(x: Any) -> Any:
        return [leaf for leaf in jax.tree.leaves(FUNCTIONS[name](x)) if leaf.dtype == np.float64]

    def linearized(x: Any) -> Any:
        output, linear = fxgrad.linearize(floating, x)
        tangent = np.ones_like(x)
        results = [linear(tangent) for _ in range(CALLS)]
        assert_apart(results, [tangent, output, linear._residuals])
        assert_apart(output, linear._residuals)
        return output, results

    def pulled(x: Any) -> Any:
        output, pullback = fxgrad.vjp(floating, x)
        cotangent = [np.ones_like(each) for each in output]
        results = [pullback(cotangent) for _ in range(CALLS)]
        assert_apart(results, [cotangent, output, pullback._residuals])
        assert_apart(output, pullback._residuals)
        return output, results

    if name not in ("closed over", "frozen"):
        assert_always_apart(linearized, X)
        assert_always_apart(pulled, X)
        assert_always_apart(lambda x, t: fxgrad.jvp(floating, (x,), (t,)), X, np.ones_like(X))


def test_writing_into_results_changes_nothing_else() -> None:
    output, pullback = fxgrad.vjp(np.exp, np.array([0.0, 1.0]))
    output -= 5.0
    np.testing.assert_allclose(pullback(np.ones(2))[0], np.exp([0.0, 1.0]), rtol=1e-12)
    slope = fxgrad.value_and_grad(lambda x: (np.sum(np.exp(x)), np.exp(x)), has_aux=True)
    (_, aux), gradient = slope(np.zeros(2))
    gradient *= -0.1
    np.testing.assert_array_equal(aux, [1.0, 1.0])
    x = np.arange(3.0)
    descend = fxgrad.grad(lambda x: np.sum(fxgrad.stop_gradient(x) * x))
    for _ in range(CALLS):
        direction = descend(x)
        direction *= -0.1
    np.testing.assert_array_equal(x, [0.0, 1.0, 2.0])


def test_values_looked_at_are_copies() -> None:
    def function(x: Any) -> Any:
        seen = fxgrad.debug.value(x)
        seen /= 10.0
        inner = fxgrad.debug.value(x * 2.0)
        inner[:] = 0.0
        return np.sum((x * 2.0) ** 2)

    x = np.ones(2)
    for _ in range(CALLS):
        np.testing.assert_array_equal(fxgrad.grad(function)(x), [8.0, 8.0])
    np.testing.assert_array_equal(x, [1.0, 1.0])


def test_what_a_callback_keeps_is_not_written_over() -> None:
    kept: list[Any] = []

    def function(x: Any) -> Any:
        y = np.sin(x)
        fxgrad.debug.callback(kept.append, y)
        return np.sum(np.exp(y) * 2.0)

    for _ in range(CALLS):
        fxgrad.value_and_grad(function)(X)
    for each in kept:
        np.testing.assert_array_equal(each, np.sin(X))


# --- library functions on NumPy's arrays ----------------------------------------------------------------------------

V, M, N, E = np.arange(1.0, 4.0), np.arange(6.0).reshape(2, 3), np.arange(3), np.zeros(0)
U, B, S = np.arange(3, dtype=np.uint8), np.array([True, False, True]), np.arange(9.0).reshape(3, 3)
IDLE: dict[str, list[tuple[Any, ...]]] = {
    "roll": [(V, 3), (V, 0), (M, 0, 0), (M, 3, 1), (M, 6)], "concatenate": [([V],), ([V, E],)], "hstack": [([V],)],
    "vstack": [([M],)], "dstack": [([S[:, :, None]],)], "column_stack": [([M],)], "append": [(V, E)],
    "stack": [([V],)], "block": [([V],)], "tile": [(V, 1), (M, (1, 1))], "repeat": [(V, 1), (M, 1, 0)],
    "pad": [(V, 0)], "clip": [(V, None, None), (N, None, None)], "delete": [(V, [])], "insert": [(V, [], E)],
    "resize": [(V, (3,))], "choose": [(N * 0, [V])], "where": [(B, V, V)], "take": [(V, N)], "diff": [(V, 0)],
    "meshgrid": [(V,), (V, V), (V, N)], "convolve": [(V, np.ones(1))], "power": [(V, 1), (N, 1)], "copy": [(V,)],
    "array": [(V,)], "maximum": [(V, V)], "angle": [(V,)], "unwrap": [(V,)], "sort": [(E,), (V,)], "cumsum": [(V,)],
    "triu": [(M, -5)], "tril": [(M, 5)], "kron": [(V, np.ones(1))], "vander": [(V, 1)], "nan_to_num": [(N,), (V,)],
    "trapezoid": [(M,)], "median": [(M, 0)], "quantile": [(V, np.array([0.5]))], "real": [(V,)], "imag": [(V,)],
    **{name: [(V,), (N,)] for name in ("round", "floor", "ceil", "trunc", "rint", "fix", "positive", "conj", "square")},
    **{name: [(U,), (B,), (V,)] for name in ("abs", "absolute")},
    **{name: [(V, ())] for name in ("sum", "prod", "max", "min", "mean", "var", "nansum", "nanmax")},
    **{name: [(B, ())] for name in ("any", "all")},
}
"""Calls that leave the elements as they are."""


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated:DeprecationWarning")  # by NumPy 2.5; it is a function still
@pytest.mark.parametrize("name", IDLE)
def test_functions_make_new_arrays_where_numpy_does(name: str) -> None:
    for args in IDLE[name]:
        theirs = arrays(getattr(np, name)(*args))
        if not any(np.shares_memory(each, arg) for each in theirs for arg in arrays(args)):
            assert_apart(getattr(fnp, name)(*args), args)


@pytest.mark.parametrize("how", ["set", "add", "multiply", "divide", "power", "min", "max"])
def test_updates_of_nothing_are_copies(how: str) -> None:
    for index in (slice(3, None), slice(3, None, 2), E.astype(int), np.zeros(3, bool)):
        assert_apart(getattr(fnp.at(V)[index], how)(1.0), V)


VIEWS_IN_NUMPY = {"broadcast_arrays", "broadcast_to", "unstack", "permute_dims", "matrix_transpose"}


@pytest.mark.parametrize("library", ["numpy", "numpy.linalg", "numpy.fft"])
def test_functions_return_views_only_where_numpy_does(library: str) -> None:
    ours = LIBRARIES[library][0]
    numpy_module = {"numpy": np, "numpy.linalg": np.linalg, "numpy.fft": np.fft}[library]
    for name, examples in CASES[library].items():
        if not hasattr(ours, name) or name in VIEWS_IN_NUMPY:
            continue
        for case in examples:
            dtype = next((each for each in ("float64", "int32") if each in case.dtypes), case.dtypes[0])
            args = case.arrays(dtype)
            try:
                results = arrays(case.function(ours, name, dtype)(*args))
            except FxgradError:
                continue
            sharing = [each for each in results if any(np.shares_memory(each, arg) for arg in arrays(args))]
            if sharing:
                theirs = arrays(case.function(numpy_module, name, dtype)(*args))
                assert any(np.shares_memory(each, arg) for each in theirs for arg in arrays(args)), name
