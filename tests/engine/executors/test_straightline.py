"""Generated NumPy code: equal to the interpreter to the bit for every primitive, and careful with memory."""

from __future__ import annotations

import itertools
import re
import threading
import tracemalloc
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.core.avals import Aval, array_aval
from fxgrad.engine.core.program import Program
from fxgrad.engine.executors import numpy as numpy_executor
from fxgrad.engine.executors.straightline import generate
from fxgrad.engine.ops.arithmetic import neg_p
from fxgrad.engine.ops.comparison import not_p
from fxgrad.engine.ops.pointwise import add_p
from fxgrad.engine.ops.snippets import snippet_of
from fxgrad.engine.ops.structural import reshape_p
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


FLOAT, BOOL = Aval((), np.dtype(np.float64)), Aval((), np.dtype(np.bool_))
# One NaN: which of two comes out of a sum depends on the order in which a compiler takes them, in NumPy too.
SPECIAL = {FLOAT: [0.0, -0.0, 1.0, -1.5, 0.3, -7.0, np.inf, -np.inf, np.nan, 5e-324, -1e-310, 1.7e308, -1.7e308],
           BOOL: [False, True]}


def results_of(primitive, avals, params) -> list[Aval]:
    try:
        return [aval.strong() for aval in primitive.abstract(*avals, **params)]
    except (fxgrad.errors.DTypeError, AttributeError):  # it is of integers, or of complex numbers
        return []


def of_numbers(primitive) -> list[Program]:
    """What the samples of a primitive do with scalars of float64 and bool, for which Python's numbers may be taken."""
    programs = []
    for sample in SAMPLES[primitive]:
        if any(map(np.shape, sample.args())):
            continue
        for avals in itertools.product([FLOAT, BOOL], repeat=len(sample.args())):
            call = snippet_of(primitive, avals, sample.params)
            if call is None or not call.of_numbers or results_of(primitive, avals, sample.params) not in (
                    [FLOAT], [BOOL]):
                continue

            def chained(*tracers, sample=sample):
                for _ in range(5):  # enough of them for a program of numbers
                    tracers = [bind(neg_p if tracer.dtype == np.float64 else not_p, tracer)[0] for tracer in tracers]
                out = bind(primitive, *tracers, **sample.params)[0]
                return bind(neg_p if out.dtype == np.float64 else not_p, out)

            programs.append(trace_at(chained, avals, mode=UNSHARED)[0])
    return programs


OF_NUMBERS = {primitive.name: programs for primitive in WITH_SNIPPETS if (programs := of_numbers(primitive))}


@pytest.mark.parametrize("dtype", [*np.typecodes["AllInteger"], *"?efdFD", ml_dtypes.bfloat16, ml_dtypes.int4,
                                   ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn])
def test_reshaped_scalars_keep_their_dtype(dtype) -> None:
    for shape in ((1,), (1, 1, 1)):
        for x in (np.array(1, dtype), np.array(1, dtype)[()]):
            call = snippet_of(reshape_p, [array_aval(x)], {"shape": shape})
            found = eval(call.text.format("x"), {**call.objects, "x": x})
            assert (found.dtype, found.shape) == (np.dtype(dtype), shape)
            assert found.tobytes() == np.asarray(x).tobytes()
            assert found.flags.c_contiguous
            assert not np.shares_memory(found, x)


def test_arithmetic_functions_and_comparisons_have_expressions_of_numbers() -> None:
    assert {"add", "sub", "mul", "div", "neg", "abs", "sin", "exp", "max", "atan2", "integer_pow", "lt", "ne", "and",
            "not", "select_n", "convert_element_type", "is_finite"} <= OF_NUMBERS.keys()


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_python_numbers_equal_the_kernel(name) -> None:
    """At zeros of both signs, infinities, NaNs, and where results leave the range of float64."""
    for program in OF_NUMBERS[name]:
        source, namespace = generate(program)
        assert re.search(r"nx0 = (float|bool)\(x0\)", source)
        exec(source, namespace)
        for values in itertools.product(*(SPECIAL[var.aval] for var in program.inputs)):
            typed = [var.aval.dtype.type(value) for var, value in zip(program.inputs, values, strict=True)]
            for given in (values, typed, [*map(np.array, values)]):
                with np.errstate(all="ignore"):
                    expected, got = numpy_executor.run_reference(program, given), namespace["run"](*given)
                assert type(got[0]) in (np.float64, np.bool_)
                assert_same_bits(got, expected)


def test_a_program_of_scalars_runs_on_python_floats() -> None:
    def f(k, c):
        x, v = 1.0, 0.0
        for _ in range(3):
            v = v - 0.01 * (k * x + c * v) / c
            x = x + 0.01 * np.sin(v)
        return x

    source = source_of(f, 2.0, 0.3)
    assert "    nx0 = float(x0)\n" in source
    assert "    nx1 = float(x1)\n" in source
    assert re.search(r"(v\d+) / nx1 if nx1 else float\(divide\(\1, nx1\)\)", source)
    assert "0.01 * ((nx0 * 1.0) + (nx1 * 0.0))" in source  # what is used once is written where it is used
    assert re.search(r"(\w+) = t\d+\(v\d+\)\n    return \[\1\]", source)
    gradient = fxgrad.grad(f, argnums=(0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            np.testing.assert_equal(gradient(2.0, 0.0), (np.nan, np.nan))
            assert {type(slope) for slope in gradient(2.0, 0.3)} == {np.float64}


@pytest.mark.parametrize("other", [lambda x: x > 0.0, lambda x: np.floor(x).astype(int), lambda x: x * np.ones(2)],
                         ids=["bool", "integer", "array"])
def test_numbers_meet_other_values(other) -> None:
    """As many conversions as are needed, and each once."""
    def f(x):
        for _ in range(9):
            x = x * x + 1.0
        return x, other(x), other(x) + other(x)

    program = fxgrad.make_program(f)(2.0)
    source = generate(program)[0]
    assert source.count("float(x") == 1
    converted = re.findall(r"^    [an]\w+ = .*", source, re.MULTILINE)
    assert len(converted) == len({*converted}) >= 2
    expected, got = both_ways(program, [*program.constants, 0.5])
    assert_same_bits(got, expected)


def test_few_operations_on_scalars_do_not_repay_conversions() -> None:
    source = source_of(lambda x, y: (x * y, x + y), 2.0, 3.0)
    assert "float(" not in source


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


# --- groups of equations ----------------------------------------------------------------------------------


ELEMENTS = np.array([0.3, -1.5, -0.0, 0.0, np.nan, np.inf, 1e-310, 2.0])


def of_elements(x, y):
    """Elements of a vector and a matrix among scalars and arrays, some of them twice, some in a condition."""
    a, b, c = x[0], x[1], y[1, 0]
    for _ in range(3):
        a = np.where(a > b, a * b - c, b / c)
        b = np.abs(a) * 0.1 + y[0, 1]
    return a * x + b, np.stack([a, b, c]), np.sum(y * c, axis=1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", [
    of_elements, lambda x, y: x[0] * x[5] + x[0] * x[1] + y[0, 0], lambda x, y: sum(x[i] * x[i + 1] for i in range(7)),
    lambda x, y: sum(a * b for a, b in zip(x, x[::-1], strict=True)), lambda x, y: np.sum(x[2] * y) * y[1, 1],
    lambda x, y: x[-1] ** 2, lambda x, y: -x[2] + 0.0 * y[1, 0], lambda x, y: -x[2:3].reshape(()) * 1.0,
    lambda x, y: np.stack([x[2], -x[3], x[2] * x[3], x[0]]) @ y[0], lambda x, y: x[3] * np.tanh(y).sum() + x[3]],
    ids=["mixed", "three", "neighbours", "unpacked", "of an array", "one", "zeros", "reshaped", "stacked", "twice"])
def test_elements_and_their_gradients_equal_the_interpreter(function, dtype) -> None:
    y = np.array([[1.0, -0.0, 3.0, 0.1], [0.2, 2.0, -1.0, 0.5]]).astype(dtype)
    x = ELEMENTS.astype(dtype)

    def total(x, y):
        return fxgrad.numpy.sum(sum(map(fnp.sum, fxgrad.tree_util.tree_leaves(function(x, y)))))

    for of in (function, fxgrad.grad(total, argnums=(0, 1)), fxgrad.hessian(total)):
        program = fxgrad.make_program(of)(x, y)
        for given in (x, x[::-1], np.zeros(16, dtype)[::2] + x):
            for other in (y, np.asfortranarray(y)):
                results = both_ways(program, [*program.constants, given, other])
                # Which of two NaNs comes out of a sum is open.
                assert_same_bits(*([np.where(np.isnan(value), np.nan, value).astype(value.dtype)
                                    for value in values] for values in results))


def test_elements_are_read_as_numbers_and_put_into_one_array() -> None:
    def energy(x):
        return sum((x[i + 1] - x[i]) ** 2 * 0.5 for i in range(4))

    source = source_of(fxgrad.grad(energy), np.arange(5.0))
    assert "x0.tolist()" in source
    assert source.count("array([") == 1
    assert "pad" not in source
    sparse = source_of(fxgrad.grad(lambda x: np.sin(x[3]) * x[70]), np.arange(100.0))
    assert "put_70_3_in_float64_100(" in sparse
    np.testing.assert_array_equal(fxgrad.grad(energy)(np.arange(5.0) ** 2), [-1.0, -2.0, -2.0, -2.0, 7.0])


def test_an_element_keeps_its_dtype() -> None:
    """Python's floats are of float64 alone, integers and complex numbers stay NumPy's."""
    for dtype in ("float16", "bfloat16", "float32", "int8", "int32", "uint64", "complex64", "bool"):
        x = np.arange(4).astype(fxgrad.numpy.dtype(dtype))
        program = fxgrad.make_program(lambda x: (x[1], x[2], x[3], fnp.stack([x[0], x[3]]), x[1:2].reshape(())))(x)
        expected, got = both_ways(program, [x])
        assert_same_bits(got, expected)


def test_reductions_keep_their_axes_in_one_call() -> None:
    def normalized(x):
        return (x - x.max(axis=1, keepdims=True)) / x.sum(axis=1, keepdims=True)

    x = np.random.default_rng(0).normal(size=(5, 7))
    source = source_of(normalized, x)
    assert "maximum_reduce(x0, 1, None, None, True)" in source
    assert "reshape" not in source
    for given in (x, np.asfortranarray(x), x[:, ::-1]):
        for dtype in (np.float32, np.float64):
            program = fxgrad.make_program(normalized)(given.astype(dtype))
            expected, got = both_ways(program, [given.astype(dtype)])
            assert_same_bits(got, expected)


def test_a_scalar_among_arrays_is_an_array() -> None:
    """A ufunc takes it in half the time; of one dtype, so the result has that of the interpreter."""
    for scalar in (0.1, np.float32(0.1), np.array(0.1), np.int32(3)):
        x = np.linspace(0.0, 1.0, 5).astype(np.result_type(type(scalar)) if np.ndim(scalar) else np.float32)
        program = fxgrad.make_program(lambda s, x: (s * x + s, s))(scalar, x)
        expected, got = both_ways(program, [scalar, x])
        assert_same_bits(got, expected)
    assert "ax0 = array(x0)" in source_of(lambda s, x: s * x + s, 0.1, np.ones(3))


def test_programs_with_large_arrays_run_as_generated_code_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fxgrad.engine.config.check_level", 0)  # else results are checked one by one
    x, size = np.linspace(0.0, 1.0, 10 ** 6), 8 * 10 ** 6

    def chain(x):
        for _ in range(12):
            x = np.sin(x) * 2.0
        return x

    program = fxgrad.make_program(chain)(x)
    tracemalloc.start()
    try:
        found, = numpy_executor.execute(program, [x])
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.array_equal(found, chain(x))
    assert most < 4 * size  # the interpreter would keep all 24
