"""Generated NumPy code: equal to the interpreter to the bit for every primitive, and careful with memory."""

from __future__ import annotations

import itertools
import re
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.core.avals import Aval, array_aval
from fxgrad.engine.core.program import Program
from fxgrad.engine.executors import numpy as numpy_executor
from fxgrad.engine.executors.straightline import generate
from fxgrad.engine.ops.arithmetic import neg_p
from fxgrad.engine.ops.pointwise import add_p
from fxgrad.engine.ops.snippets import snippet_of
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.tracing.trace import UNSHARED, trace_at
from tests.samples import all_samples

SAMPLES = {primitive: [sample for sample in samples if not sample.slow and "numpy" not in sample.without]
           for primitive, samples in all_samples().items()}
# Operations on whole programs and on the world outside are calls of their kernels; their kernels run other programs.
WITH_SNIPPETS = sorted((primitive for primitive, samples in SAMPLES.items() if any(
    snippet_of(primitive, [array_aval(arg) for arg in sample.args()], sample.params) for sample in samples)),
    key=lambda primitive: primitive.name)


def both_ways(program: Program, inputs: list[Any]) -> tuple[list[Any], list[Any]]:
    source, namespace = generate(program)
    exec(source, namespace)
    with np.errstate(all="ignore"):
        return numpy_executor.run_reference(program, inputs), namespace["run"](*inputs)


def assert_same_bits(got: list[Any], expected: list[Any]) -> None:
    for left, right in zip(got, expected, strict=True):
        assert np.shape(left) == np.shape(right)
        assert left.dtype == right.dtype
        assert np.ascontiguousarray(left).tobytes() == np.ascontiguousarray(right).tobytes()


def layouts(args: list[Any]) -> list[list[Any]]:
    """The arguments in row-major order, in column-major order, and with gaps between their elements."""
    apart = []
    for arg in args:
        if np.shape(arg):
            view = np.zeros([2 * extent for extent in arg.shape], arg.dtype)[(slice(None, None, 2),) * arg.ndim]
            view[...] = arg
            apart.append(view)
        else:
            apart.append(arg)
    return [args, [np.asfortranarray(arg) if np.ndim(arg) else arg for arg in args], apart]


@pytest.mark.parametrize("primitive", WITH_SNIPPETS, ids=lambda primitive: primitive.name)
def test_every_expression_equals_its_kernel(primitive) -> None:
    """On new arrays that end with the operation, on some that are used again, and on the caller's own."""
    for sample in SAMPLES[primitive]:
        given = sample.args()

        def on_copies(*tracers, sample=sample):
            made = [bind(neg_p, bind(neg_p, tracer)[0])[0] if tracer.dtype.kind in "fc" else tracer
                    for tracer in tracers]
            return bind(primitive, *made, **sample.params)

        def used_again(*tracers, sample=sample):
            made = [bind(neg_p, tracer)[0] if tracer.dtype.kind in "fc" else tracer for tracer in tracers]
            outputs = bind(primitive, *made, **sample.params)
            again = bind(primitive, *made, **sample.params)
            sums = [bind(add_p, output, other)[0] if output.dtype.kind in "fc" else output
                    for output, other in zip(outputs, again, strict=True)]
            return [*outputs, *sums, *made]

        def plain(*tracers, sample=sample):
            return bind(primitive, *tracers, **sample.params)

        avals = [array_aval(arg) for arg in given]
        for function in (plain, on_copies, used_again):
            program, _ = trace_at(function, avals, mode=UNSHARED)
            for args in layouts(given):
                before = [np.array(arg) for arg in args]
                expected, got = both_ways(program, args)
                assert_same_bits(got, expected)
                assert_same_bits(args, before)


SCALAR = Aval((), np.dtype(np.float64))
# One NaN: which of two comes out of a sum depends on the order in which a compiler takes them, in NumPy too.
SPECIAL = [0.0, -0.0, 1.0, -1.5, 0.3, -7.0, np.inf, -np.inf, np.nan, 5e-324, -1e-310, 1.7e308, -1.7e308]


def gives_scalars(primitive, avals, params) -> bool:
    try:
        return [*primitive.abstract(*avals, **params)] == [SCALAR]
    except fxgrad.errors.DTypeError:  # it is of integers, or of complex numbers
        return False


def of_floats(primitive) -> list[Program]:
    """What the samples of a primitive do with scalars of float64 alone, where Python's floats may be taken for them."""
    programs = []
    for sample in SAMPLES[primitive]:
        if any(map(np.shape, sample.args())):
            continue
        avals = [SCALAR] * len(sample.args())
        call = snippet_of(primitive, avals, sample.params)
        if call is None or not call.of_floats or not gives_scalars(primitive, avals, sample.params):
            continue

        def chained(*tracers, sample=sample):
            for _ in range(4):  # enough of them for a program of floats
                tracers = [bind(neg_p, tracer)[0] for tracer in tracers]
            return bind(neg_p, bind(primitive, *tracers, **sample.params)[0])

        programs.append(trace_at(chained, avals, mode=UNSHARED)[0])
    return programs


OF_FLOATS = {primitive.name: programs for primitive in WITH_SNIPPETS if (programs := of_floats(primitive))}


def test_arithmetic_and_functions_have_expressions_of_floats() -> None:
    assert {"add", "sub", "mul", "div", "neg", "sin", "exp", "max", "atan2", "integer_pow"} <= OF_FLOATS.keys()


@pytest.mark.parametrize("name", OF_FLOATS)
def test_python_floats_equal_the_kernel(name) -> None:
    """At zeros of both signs, infinities, NaNs, and where results leave the range of float64."""
    for program in OF_FLOATS[name]:
        source, namespace = generate(program)
        assert "x0 = float(x0)" in source
        exec(source, namespace)
        for values in itertools.product(SPECIAL, repeat=len(program.inputs)):
            for given in (values, [*map(np.float64, values)], [*map(np.array, values)]):
                with np.errstate(all="ignore"):
                    expected, got = numpy_executor.run_reference(program, given), namespace["run"](*given)
                assert type(got[0]) is np.float64
                assert_same_bits(got, expected)


def test_a_program_of_scalars_runs_on_python_floats() -> None:
    def f(k, c):
        x, v = 1.0, 0.0
        for _ in range(3):
            v = v - 0.01 * (k * x + c * v) / c
            x = x + 0.01 * np.sin(v)
        return x

    source = source_of(f, 2.0, 0.3)
    assert "    x0 = float(x0)\n    x1 = float(x1)\n" in source
    assert re.search(r"v\d+ = (v\d+) / x1 if x1 else float\(divide\(\1, x1\)\)", source)
    assert re.search(r"return \[t\d+\(v\d+\)\]", source)
    gradient = fxgrad.grad(f, argnums=(0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            np.testing.assert_equal(gradient(2.0, 0.0), (np.nan, np.nan))
            assert {type(slope) for slope in gradient(2.0, 0.3)} == {np.float64}


@pytest.mark.parametrize("other", [lambda x: x > 0.0, lambda x: np.floor(x).astype(int), lambda x: x * np.ones(2)],
                         ids=["bool", "integer", "array"])
def test_a_program_with_other_values_runs_on_scalars_of_numpy(other) -> None:
    def f(x):
        for _ in range(5):
            x = x * x + 1.0
        return x, other(x)

    program = fxgrad.make_program(f)(2.0)
    assert "float(" not in generate(program)[0]
    expected, got = both_ways(program, [*program.constants, 2.0])
    assert_same_bits(got, expected)


def source_of(function, *args) -> str:
    return generate(fxgrad.make_program(function)(*args))[0]


def test_an_operand_that_ends_is_written_over() -> None:
    source = source_of(lambda x: fnp.exp(fnp.sin(x) * x), np.ones(3))
    assert "v1 = exp(v1, v1)" in source


def test_arguments_and_what_is_returned_are_not_written_over() -> None:
    def f(x, y):
        a = fnp.sin(x)
        b = a * y
        return a, b + 1.0, fnp.cos(b)

    x, y = np.linspace(0.0, 1.0, 4), np.ones(4)
    a, b, c = (fxgrad.make_program(f)(x, y))(x, y)
    program = fxgrad.make_program(f)(x, y)
    for _ in range(3):
        results = program(x, y)
        assert_same_bits(list(results), [a, b, c])
    np.testing.assert_array_equal(x, np.linspace(0.0, 1.0, 4))
    np.testing.assert_array_equal(y, np.ones(4))


def test_an_array_with_a_view_that_is_needed_is_not_written_over() -> None:
    def f(x):
        a = fnp.sin(x)
        view = a.T
        return fnp.cos(a) @ view  # `a` ends at the cosine, and its memory does not

    x = np.random.default_rng(0).normal(size=(3, 3))
    expected, got = both_ways(fxgrad.make_program(f)(x), [x])
    assert_same_bits(got, expected)
    np.testing.assert_allclose(got[0], np.cos(np.sin(x)) @ np.sin(x).T, rtol=1e-12)


def test_products_do_not_write_over_their_operands() -> None:
    def f(x):
        a = fnp.sin(x)
        return fnp.cos(x @ a) @ fnp.exp(a)

    x = np.random.default_rng(0).normal(size=(4, 4))
    expected, got = both_ways(fxgrad.make_program(f)(x), [x])
    assert_same_bits(got, expected)


def test_columns_stay_columns() -> None:
    """A sum over an axis adds up in the order of memory, so arrays keep the layout that the interpreter gives them."""
    def f(x, y):
        a = fnp.sin(x.T)
        b = fnp.cos(y)
        c = a * b
        return fnp.sum(fnp.exp(c) * a, axis=0), fnp.sum(b, axis=1)

    x, y = np.random.default_rng(0).normal(size=(2, 37, 37)).astype(np.float32)
    for first, second in ((x, y), (x.T, y), (x, y.T), (np.asfortranarray(x), np.asfortranarray(y))):
        expected, got = both_ways(fxgrad.make_program(f)(first, second), [first, second])
        assert_same_bits(got, expected)


def test_generated_code_runs_in_many_threads_at_once() -> None:
    def f(x):
        for _ in range(20):
            x = fnp.sin(x) * 1.01 + x
        return fnp.sum(x)

    gradient = fxgrad.grad(f)
    inputs = [np.linspace(0.0, 1.0, 5000) * k for k in range(4)]
    expected = [gradient(x) for x in inputs]
    results: dict[tuple[int, int], Any] = {}

    def work(k: int) -> None:
        for repeat in range(20):
            results[k, repeat] = gradient(inputs[k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(results) == 80
    for (k, _), result in results.items():
        np.testing.assert_array_equal(result, expected[k])


def test_what_depends_on_no_input_is_computed_once_and_stays_as_it_is() -> None:
    def f(x):
        mask = fnp.tril(fnp.ones((3, 3)))
        return x * mask, mask, mask.T

    x = np.arange(9.0).reshape(3, 3)
    program = fxgrad.make_program(f)(x)
    assert "select" not in generate(program)[0]
    for _ in range(3):
        results = program(x)
        np.testing.assert_array_equal(results[0], np.tril(x))
        np.testing.assert_array_equal(results[1], np.tril(np.ones((3, 3))))
        for result in results:
            result[...] = -1.0  # the caller's own


def test_a_sum_of_columns_is_no_place_for_a_product() -> None:
    """The sum of an array in column-major order is in that order, and `dot` writes to row-major arrays alone."""
    def f(x, y):
        return (fnp.sum(x, axis=0) @ y) @ y  # the sum is laid out as the caller's array, and ends at the first product

    x, y = np.random.default_rng(0).normal(size=(2, 3, 5, 5))
    for first in (x, np.asfortranarray(x), x.transpose(0, 2, 1)):
        expected, got = both_ways(fxgrad.make_program(f)(first, y[0]), [first, y[0]])
        assert_same_bits(got, expected)
