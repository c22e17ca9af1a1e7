"""Programs of scalars: what they compute, how many equations they have, how they are called, what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fxgrad
from fxgrad import errors, lax
from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.primitive import Primitive, infer_types
from fxgrad.engine.core.program import Equation, Program, Variable
from fxgrad.engine.rooms import registry
from fxgrad.engine.tracing.tape import aval_of
from fxgrad.tools.granularity.rules import scalar_rules
from tests.samples import Sample, all_samples

RNG = np.random.default_rng(0)


def lists(value: Any) -> Any:
    return fxgrad.tree.map(lambda leaf: np.asarray(leaf).tolist(), value)


def scalars_of(function: Any, *args: Any) -> tuple[Program, Program]:
    program = fxgrad.make_program(function)(*args)
    scalars = fxgrad.scalarize(program).check()
    assert all(not atom.aval.shape for equation in scalars.equations for atom in (*equation.inputs, *equation.outputs))
    return program, scalars


# --- every primitive ------------------------------------------------------------------------------------------------

REFUSED = {
    "all_gather", "all_to_all", "argmax", "argmin", "axis_index", "bitcast_convert_type", "cholesky", "cofactor",
    "check",
    "cond", "custom_linear_solve", "custom_root", "custom_vjp_tangent", "debug_callback", "det", "eig", "eigh", "expm",
    "expm_frechet", "fft", "for", "hessenberg", "io_callback", "jax_call", "jax_effect", "linear_recurrence", "lu",
    "lu_pivots_to_permutation", "lu_solve", "move", "nearest_unitary", "pinv", "pmax", "pmin", "ppermute", "psum",
    "psum_invariant", "psum_scatter", "pure_callback", "pvary", "qr", "random_binomial", "random_bits", "random_clone",
    "random_fold_in", "random_gamma", "random_poisson", "random_seed", "random_split", "random_unwrap", "random_wrap",
    "scan", "schur", "select_and_gather_add", "select_and_scatter_add", "slogdet", "solve_sylvester", "sort", "sqrtm",
    "strong_dot_general",
    "svd", "sweep", "take_equal", "threefry2x32", "top_k", "triangular_solve", "tridiagonal", "tridiagonal_solve",
    "while"}
MOVES = {"broadcast_in_dim", "broadcast_to", "concatenate", "copy", "dynamic_slice", "dynamic_update_slice", "gather",
         "optimization_barrier", "pad", "reshape", "rev", "scatter", "select_n", "slice", "split", "stack", "tile",
         "transpose", "unstack"}


def in_scalars(primitive: Primitive, sample: Sample) -> tuple[list[Any], list[Any]]:
    """What the kernel makes of a sample, and its program of scalars; indices are numbers of the program."""
    args = sample.args()
    kernel = primitive.numpy(*args, **sample.params)
    indexed = "scatter" in primitive.name or "gather" in primitive.name or "dynamic" in primitive.name
    avals = [aval_of(arg).strong() for arg in args]
    static = [indexed and place > 0 and aval.dtype.kind in "iu" and not (place == 2 and "scatter" in primitive.name)
              and not (place == 1 and "update" in primitive.name) for place, aval in enumerate(avals)]
    inputs = [*map(Variable, avals)]
    outputs = [*map(Variable, infer_types(primitive, avals, sample.params))]
    order = [*np.flatnonzero(static), *np.flatnonzero(np.logical_not(static))]
    program = Program([inputs[place] for place in order], [Equation(primitive, inputs, sample.params, outputs)],
                      outputs, sum(static), [args[place] for place in np.flatnonzero(static)]).check()
    scalars = fxgrad.scalarize(program, limit=400).check()
    flat = [element for place in np.flatnonzero(np.logical_not(static)) for element in np.asarray(args[place]).flat]
    made = scalars(*flat) if len(scalars.outputs) != 1 else [scalars(*flat)]
    parts = np.split(np.asarray(made, object), np.cumsum([var.aval.size for var in outputs])[:-1])
    return kernel, [np.array([*part], var.aval.dtype).reshape(var.aval.shape)
                    for part, var in zip(parts, outputs, strict=True)]


def is_same(one: Any, other: Any, to_the_bit: bool) -> bool:
    """NumPy's kernels may round differently for many numbers than for one, and group the terms of sums."""
    if to_the_bit or one.dtype.kind not in "fcV" or one.dtype.names:
        return bool(one.tobytes() == other.tobytes() or np.array_equal(one, other, equal_nan=True))
    wide = np.complex128 if one.dtype.kind == "c" else np.float64
    tolerance = 8 * float(ml_dtypes.finfo(one.dtype).eps)
    return np.allclose(other.astype(wide), one.astype(wide), tolerance, tolerance, equal_nan=True)


@pytest.mark.slow
def test_every_primitive_is_the_same_in_scalars() -> None:
    differing, refused = [], set()
    for primitive, samples in all_samples().items():
        for sample in samples[:4]:
            try:
                with np.errstate(all="ignore"):
                    kernel, made = in_scalars(primitive, sample)
            except errors.UnsupportedError:
                refused.add(primitive.name)
                continue
            except errors.ArgumentError:  # too large for a test
                continue
            for one, other in zip(kernel, made, strict=True):
                if not is_same(np.asarray(one), other, primitive.name in MOVES or primitive.exactly_rounded):
                    differing.append((primitive.name, sample, one, other))
    assert not differing, sorted({name for name, *_ in differing})
    assert refused == REFUSED


# --- whole programs -------------------------------------------------------------------------------------------------


def mlp(params: Any, x: Any) -> Any:
    hidden = np.tanh(x @ params["W"] + params["b"])
    return -np.mean(fxgrad.nn.log_softmax(hidden @ params["V"])[:, 1])


PARAMS = {"W": RNG.normal(size=(3, 4)), "b": RNG.normal(size=4), "V": RNG.normal(size=(4, 2))}
BATCH = RNG.normal(size=(2, 3))


def test_values_and_gradients_of_a_network() -> None:
    program, scalars = scalars_of(mlp, PARAMS, BATCH)
    np.testing.assert_allclose(scalars(lists(PARAMS), lists(BATCH)), program(PARAMS, BATCH), rtol=1e-14)
    expected, found = fxgrad.grad(program)(PARAMS, BATCH), fxgrad.grad(scalars)(lists(PARAMS), lists(BATCH))
    for name, gradient in expected.items():
        np.testing.assert_allclose(np.array(found[name]), gradient, rtol=1e-13, atol=1e-15)


def test_the_gradient_program_in_scalars() -> None:
    gradient, scalars = scalars_of(fxgrad.grad(mlp), PARAMS, BATCH)
    found = scalars(lists(PARAMS), lists(BATCH))
    for name, expected in gradient(PARAMS, BATCH).items():
        np.testing.assert_allclose(np.array(found[name]), expected, rtol=1e-13, atol=1e-15)


def test_names_lines_and_scopes() -> None:
    def named(x: Any, W: Any) -> Any:
        with fxgrad.named_scope("layer"):
            hidden = np.tanh(W @ x)
        return np.sum(hidden)

    _, scalars = scalars_of(named, np.ones(2), np.ones((2, 2)))
    text = fxgrad.text.program_text(scalars, source=False)
    assert "a = W[0][0] * x[0] + W[0][1] * x[1]" in text
    assert "hidden[0]: f64 = tanh(a)" in text
    assert [equation.scope for equation in scalars.equations] == ["layer"] * 8 + [""]
    assert {equation.source.line for equation in scalars.equations if equation.source} == {
        named.__code__.co_firstlineno + 2, named.__code__.co_firstlineno + 3}
    assert fxgrad.text.equal(fxgrad.parse(str(scalars)), scalars)


def test_what_only_moves_or_is_known_is_no_equation() -> None:
    table = np.arange(12.0).reshape(3, 4)

    def moves(x: Any) -> Any:
        masked = np.where(np.tri(3, 4) > 0, x, 0.0)  # what the mask leaves is known
        return np.concatenate([masked.T[::-1], x.reshape(4, 3)], axis=1)[1:, ::2] + np.sin(table)[:, :3]

    program, scalars = scalars_of(moves, table)
    assert {equation.primitive.name for equation in scalars.equations} == {"add"}
    assert np.array_equal(np.array(scalars(table.tolist())), program(table))


def test_arguments_and_results_in_containers() -> None:
    def both(pair: Any, scale: Any) -> Any:
        return {"sum": pair[0] + pair[1] * scale, "none": None, "empty": pair[0][:0]}

    program, scalars = scalars_of(both, (np.ones(2), np.arange(2.0)), 3.0)
    assert scalars(([1.0, 1.0], [0.0, 1.0]), 3.0) == {"sum": [1.0, 4.0], "none": None, "empty": []}
    assert scalars.signature is not None
    assert scalars.signature.input_names == ("pair[0][0]", "pair[0][1]", "pair[1][0]", "pair[1][1]", "scale")
    assert program.signature is not None


def test_calls_are_taken_apart_and_loops_on_request() -> None:
    @fxgrad.custom_jvp
    def cube(x: Any) -> Any:
        return x * x * x

    cube.defjvp(lambda primals, tangents: (cube(*primals), 3.0 * primals[0] ** 2 * tangents[0]))

    def calls(x: Any) -> Any:
        def step(carry: Any, entry: Any) -> Any:
            carry = fxgrad.jit(np.tanh)(carry * entry)
            return carry, cube(carry)
        return lax.scan(step, x[0], fxgrad.checkpoint(fxgrad.nn.softmax)(x))

    program = fxgrad.make_program(calls)(np.ones(3))
    with pytest.raises(errors.UnsupportedError, match=r"scan\(f64\[\], f64\[3\]\) at test_scalarize.py:\d+ is a loop"):
        fxgrad.scalarize(program)
    x = np.array([0.3, -0.2, 0.5])
    found = fxgrad.scalarize(fxgrad.inline(program, loops=True)).check()(x.tolist())
    for one, other in zip(found, program(x), strict=True):
        np.testing.assert_allclose(np.array(one), other, rtol=1e-15)


@pytest.mark.slow
def test_a_convolutional_network() -> None:
    def network(kernel: Any, images: Any) -> Any:
        x = lax.conv_general_dilated(images, kernel, (1, 1), "SAME")
        x = fxgrad.nn.relu(x)
        highest = lax.reduce_window(x, -np.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        return np.sum(highest ** 2) + np.sum(lax.reduce_window(x, 0.0, lax.add, (1, 1, 3, 3), (1, 1, 1, 1), "SAME")[0])

    kernel, images = RNG.normal(size=(2, 1, 3, 3)), RNG.normal(size=(1, 1, 4, 4))
    program, scalars = scalars_of(network, kernel, images)
    np.testing.assert_allclose(scalars(kernel.tolist(), images.tolist()), program(kernel, images), rtol=1e-13)
    np.testing.assert_allclose(np.array(fxgrad.grad(scalars)(kernel.tolist(), images.tolist())),
                               fxgrad.grad(program)(kernel, images), rtol=1e-12)


def test_random_programs() -> None:
    """Programs of several operations, each against its own run as arrays."""
    functions = [
        lambda x, y: np.cumsum(x * y[:, None], axis=1).max(axis=0),
        lambda x, y: np.einsum("ij,ik->jk", x, x) + np.outer(x[0], x[1]),
        lambda x, y: np.linalg.norm(x, axis=1) * y[::-1],
        lambda x, y: fxgrad.numpy.at(x)[1:, 0].add(y[:2]).prod(axis=1),
        lambda x, y: np.where(x > 0.0, x, np.exp(x)).mean() / y.var(),
        lambda x, y: np.stack([x[0], x[1]]).T @ np.array([1.0, 2.0]),
    ]
    x, y = RNG.normal(size=(3, 4)), RNG.normal(size=3)
    for function in functions:
        program, scalars = scalars_of(function, x, y)
        np.testing.assert_allclose(np.array(scalars(x.tolist(), y.tolist())), program(x, y), rtol=1e-13)


# --- bad input ------------------------------------------------------------------------------------------------------


def message(error: type[Exception], function: Any, *args: Any, **options: Any) -> str:
    program = fxgrad.make_program(function)(*args)
    with pytest.raises(error) as caught:
        fxgrad.scalarize(program, **options)
    return str(caught.value).splitlines()[0].replace(f":{function.__code__.co_firstlineno}", ":LINE")


def test_what_has_no_form_in_scalars_is_refused() -> None:
    x = np.ones(3)
    assert message(errors.UnsupportedError, lambda x: np.sort(x), x) == (
        "scalarize: sort(f64[3]) at test_scalarize.py:LINE has no form in scalars. Differentiate and compute it as an "
        "array operation, or enter a rule: fxgrad.tools.granularity.rules.scalar_rules.enter(rule, primitive)")
    assert message(errors.UnsupportedError, lambda x, i: x[i], x, 1) == (
        "scalarize: gather(f64[3], i64*[1]) at test_scalarize.py:LINE takes its place from a traced value, and in "
        "scalars there is no place to look up. Index with numbers, or choose with where")
    assert message(errors.UnsupportedError, lambda x: lax.cond(x[0] > 0, lambda: x, lambda: -x), x) == (
        "scalarize: cond(bool[], f64[3]) at test_scalarize.py:LINE is a loop or a branch. Unroll loops that run a "
        "known number of times first: scalarize(inline(program, loops=True)); others have no form in scalars")


def test_too_many_equations_are_refused_before_they_are_made() -> None:
    assert message(errors.ArgumentError, lambda x: x @ x, np.ones((60, 60))) == (
        "scalarize: the program would have more than 100000 equations; up to dot_general(f64[60,60], f64[60,60]) at "
        "test_scalarize.py:LINE there are 0, and 428400 more are needed. Make the arrays smaller, or allow more: "
        "scalarize(program, limit=...)")
    assert message(errors.ArgumentError, lambda x: x + 1.0, fxgrad.ShapeDtypeStruct((1000, 1000), "f")) == (
        "scalarize: the arrays that the program takes have 1000000 elements, each of which would be an input or a "
        "number; at most 100000 are made. Make them smaller, or allow more: scalarize(program, limit=...)")
    assert message(errors.ArgumentError, lambda x: (x + x) * 2.0, np.ones(3), limit=5).startswith(
        "scalarize: the program would have more than 5 equations; up to mul(f64[3], f64*[])")


@pytest.mark.parametrize("function", [
    fxgrad.scalarize, fxgrad.inline, fxgrad.infer_roles, lambda f: fxgrad.replace_pattern(f, np.sin, np.cos)])
def test_functions_that_are_no_programs(function: Any) -> None:
    with pytest.raises(errors.ArgumentError, match=r" takes a program, got a function\. Write \w+\(fxgrad\.make_pro"):
        function(lambda x: x)
    with pytest.raises(errors.ArgumentError, match=r" takes a program, got a int\n"):
        function(3)


def test_containers_and_programs_without_names() -> None:
    program = fxgrad.parse("program (x: f64[2], y: f64[]) { z: f64[2] = mul(x, y) return z }")
    assert fxgrad.scalarize(program)(1.0, 2.0, 3.0) == [3.0, 6.0]
    assert fxgrad.scalarize(fxgrad.make_program(lambda x: (x, 2.0, x[:0]))(np.ones(2)))([4.0, 5.0]) == (
        [4.0, 5.0], 2.0, [])
    space: dict[str, Any] = {"__name__": "scalars"}
    _, scalars = scalars_of(lambda x: {"s": np.sum(np.sin(x) * x)}, np.ones(3))
    exec(scalars.to_python(), space)
    assert space["function"]([1.0, 2.0, 3.0]) == scalars([1.0, 2.0, 3.0])


def test_a_rule_of_a_users_own() -> None:
    twice_p = Primitive(
        name="twice", abstract=lambda x: [x], numpy=lambda x: [x + x], xla=lambda lax, x: [lax.add(x, x)],
        jvp=fxgrad.extend.TODO("not needed"), transpose=fxgrad.NOT_LINEAR, batch=fxgrad.extend.TODO("not needed"),
        cost=lambda x: fxgrad.Cost(x.size, 2 * x.nbytes))
    program = fxgrad.make_program(lambda x: fxgrad.bind(twice_p, x)[0])(np.ones(2))
    with pytest.raises(errors.UnsupportedError, match="has no form in scalars"):
        fxgrad.scalarize(program)
    assert type(scalar_rules) is Analysis
    scalar_rules.enter(scalar_rules.of(registry["sin"]), twice_p)
    assert fxgrad.scalarize(program)([1.0, 2.0]) == [2.0, 4.0]
