"""Programs as Python files: the same bits as the NumPy executor, in files that import NumPy and nothing of fxgrad."""

from __future__ import annotations

import ast
import collections
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import given

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.core.primitive import NO_TANGENT, NOT_LINEAR, TODO, Cost, Primitive
from fxgrad.engine.core.program import Program
from fxgrad.engine.executors import numpy as numpy_executor
from fxgrad.engine.tracing.tape import bind
from fxgrad.errors import UnsupportedError
from fxgrad.shipping.python.layout import wrap_code
from fxgrad.text import parse
from tests.samples import Sample, all_samples
from tests.support.numpy_files import function_of
from tests.support.random_programs import build, recipes
from tests.support.tiers import examples

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "grammar.md"
X = np.array([0.5, -1.0, 2.0])
MATRIX = np.linspace(-1.0, 2.0, 12).reshape(4, 3)


def assert_same_bits(got: Any, expected: Any) -> None:
    left, left_tree = jax.tree.flatten(got)
    right, right_tree = jax.tree.flatten(expected)
    assert str(left_tree) == str(right_tree)  # named tuples are the file's own
    for one, other in zip(left, right, strict=True):
        assert type(one) is type(other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()


def assert_runs_alike(program: Program, *args: Any, **kwargs: Any) -> str:
    """The text of a program, which runs as the program does at its first call and later."""
    text = program.to_python()
    function = function_of(text)
    leaves = jax.tree.leaves((args, kwargs))
    expected = jax.tree.leaves(function(*args, **kwargs))
    for _ in range(2):
        assert_same_bits(expected, numpy_executor.execute(program, [*program.constants, *leaves]))
    assert_same_bits(function(*args, **kwargs), program(*args, **kwargs)) if not kwargs else None
    return text


# --- every operation ----------------------------------------------------------------------------------------


SAMPLES = {primitive: samples for primitive, samples in all_samples().items() if any(
    "numpy" not in sample.without for sample in samples)}


def outcome(primitive: Primitive, sample: Sample) -> str:
    """Why a sample has no file, "" if it has one, which is then held to the kernels."""
    args = sample.args()
    try:
        program = fxgrad.make_program(lambda *given: bind(primitive, *given, **sample.params))(*args)
        text = program.to_python()
    except UnsupportedError as error:
        return str(error).partition(", so that")[0].split(" ", 2)[2]
    with np.errstate(all="ignore"):
        expected = numpy_executor.run_reference(program, [*program.constants, *args])
    got = function_of(text)(*args)
    found, wanted = got if isinstance(got, list) else [got], [value[()] for value in expected]
    if primitive.name == "square" and wanted[0].dtype.kind == "c":
        # NumPy rounds the square of one complex number by where in memory operand and result happen to lie.
        np.testing.assert_array_max_ulp(found[0].real, wanted[0].real, 2)
        np.testing.assert_array_max_ulp(found[0].imag, wanted[0].imag, 2)
    else:
        assert_same_bits(found, wanted)
    assert "fxgrad." not in "".join(line for line in text.splitlines() if "import" in line)
    return ""


def outcomes(every: int = 0) -> dict[str, set[str]]:
    """By operation; of one of its samples each, or of one of so many samples."""
    found: dict[str, set[str]] = collections.defaultdict(set)
    for primitive, samples in SAMPLES.items():
        fit = [sample for sample in samples if "numpy" not in sample.without]
        quick = [sample for sample in fit if not sample.slow] or fit
        for sample in fit[::every] if every else quick[len(quick) // 2:][:1]:
            found[primitive.name].add(outcome(primitive, sample))
    return found


def documented() -> dict[str, set[str]]:
    """The operations that the page says have no file, with the reason."""
    section = DOCS.read_text(encoding="utf-8").split("### What has no file")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)[1:]
    return {name: {reason} for reason, names in rows for name in re.findall(r"`(\w+)`", names)}


def assert_as_documented(found: dict[str, set[str]]) -> None:
    refused = {name: reasons for name, reasons in found.items() if reasons != {""}}
    assert refused == {name: reasons for name, reasons in documented().items() if name in found}


@pytest.mark.slow
def test_operations_compute_the_same_bits_or_are_refused_as_documented() -> None:
    found = outcomes()
    assert sum(reasons == {""} for reasons in found.values()) > 150
    assert_as_documented(found)


@pytest.mark.slow
def test_more_samples_compute_the_same_bits_or_are_refused_as_documented() -> None:
    found = outcomes(every=8)
    assert_as_documented(found)
    assert {*documented()} <= found.keys()


@pytest.mark.long
def test_every_sample_computes_the_same_bits_or_is_refused_as_documented() -> None:
    assert_as_documented(outcomes(every=1))


# --- programs -----------------------------------------------------------------------------------------------


class Layer(NamedTuple):
    weights: Any
    bias: Any


@fxgrad.custom_jvp
def clipped(x: Any) -> Any:
    return np.clip(x, -1.0, 1.0)


clipped.defjvp(lambda primals, tangents: (clipped(*primals), tangents[0]))


@fxgrad.custom_vjp
def scaled(x: Any, by: Any) -> Any:
    return x * by


scaled.defvjp(lambda x, by: (x * by, by), lambda by, cotangent: (cotangent * by * 2.0, None))


def network(layers: list[Layer], inputs: Any) -> Any:
    r"""The outputs of a network.

    `layers` are from the inputs on: a \\ is a backslash, and here are '''quotes'''.
    """
    hidden = inputs
    for weights, bias in layers:
        hidden = np.tanh(hidden @ weights + bias)
    return hidden


LAYERS = [Layer(MATRIX, np.ones(3)), Layer(MATRIX[:3], np.zeros(3))]
INPUTS = np.linspace(0.0, 1.0, 20).reshape(5, 4)


def own_words(at: Any, states: Any) -> Any:
    """With the names that files have for loops."""
    def np_(at: Any, value: Any) -> Any:
        return at + value, at

    last, seen = fxgrad.lax.scan(np_, at, states)
    for step in range(2):
        at = fxgrad.lax.fori_loop(0, 2, lambda i, states: states * last, at + step)
    return at, seen


def recurrence(state: Any, inputs: Any) -> Any:
    def step(carry: Any, value: Any) -> Any:
        grown = np.tanh(carry * 0.9 + value)
        return grown, grown * 2.0

    return fxgrad.lax.scan(step, state, inputs, reverse=True)


def loops(x: Any, count: Any) -> Any:
    doubled = fxgrad.lax.while_loop(lambda v: np.sum(v) < 10.0, lambda v: v * 2.0 + 1.0, x * x)
    counted = fxgrad.lax.fori_loop(0, count, lambda i, v: np.sin(v) + i, doubled)
    return {"doubled": doubled, "counted": counted, "none": None}


def choices(index: Any, x: Any) -> Any:
    one = fxgrad.lax.cond(index > 1, lambda v: v * 2.0, np.sin, x)
    return fxgrad.lax.switch(index, [lambda v: v, lambda v: -v, lambda v: v * v * 3.0], one), one


def draws(key: Any) -> Any:
    first, second = fxgrad.random.split(key)
    return fxgrad.random.normal(first, (3,)), fxgrad.random.permutation(second, 5), fxgrad.random.bits(first, (2,))


def linear_algebra(x: Any) -> Any:
    square = x.T @ x + 3.0 * np.eye(3)
    lower = np.linalg.cholesky(square)
    return np.linalg.solve(square, x[0]), np.linalg.slogdet(square)[1], lower, np.linalg.eigh(square)[0]


def total(function: Any) -> Any:
    return lambda *args: sum(np.sum(leaf * leaf) for leaf in jax.tree.leaves(function(*args))
                             if leaf.dtype.kind == "f")


def programs() -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Names, functions, arguments."""
    yield "network", network, (LAYERS, INPUTS)
    yield "gradient of network", fxgrad.value_and_grad(total(network)), (LAYERS, INPUTS)
    yield "float32", fxgrad.grad(total(network)), jax.tree.map(lambda leaf: leaf.astype(np.float32), (LAYERS, INPUTS))
    yield "bfloat16", lambda x: fxgrad.nn.softmax(x * 2.0 + 1), (X.astype(fxgrad.dtypes.bfloat16),)
    yield "complex", lambda z: np.exp(z * (1.0 - 2.0j)) / np.conj(z) + z.real, (X + 1j,)
    yield "integers", lambda i: (i // 3 + i % 5 - i ** 2, i > 2, i & 6), (np.arange(5, dtype=np.int8),)
    yield "recurrence", recurrence, (X, INPUTS[:, :3])
    yield "own words", own_words, (2.0, X)
    yield "gradient of own words", fxgrad.grad(total(own_words)), (2.0, X)
    yield "gradient of recurrence", fxgrad.grad(total(recurrence), argnums=(0, 1)), (X, INPUTS[:, :3])
    yield "no steps", recurrence, (X, INPUTS[:0, :3])
    yield "loops", loops, (X, 3)
    yield "no rounds", loops, (X * 100.0, 0)
    yield "gradient of while", fxgrad.grad(total(lambda x: loops(x, 3)["doubled"])), (X,)
    yield "gradient of no rounds", fxgrad.grad(total(lambda x: loops(x, 3)["doubled"])), (X * 100.0,)
    for index in range(-1, 4):
        yield f"choice {index}", choices, (index, X)
        yield f"gradient of choice {index}", fxgrad.grad(total(choices), argnums=1), (index, X)
    yield "custom", lambda x: clipped(x) * scaled(x, 3.0), (X,)
    yield "gradient of custom", fxgrad.grad(lambda x: np.sum(clipped(x) * scaled(x, 3.0))), (X,)
    yield "checkpoint", fxgrad.grad(lambda x: np.sum(fxgrad.checkpoint(lambda v: np.sin(np.cos(v)))(x))), (X,)
    yield "hessian", fxgrad.hessian(lambda x: np.sum(np.sin(x) * x) + np.prod(x)), (X,)
    yield "mapped", fxgrad.vmap(fxgrad.grad(lambda row: np.sum(np.exp(row)) * row[0])), (MATRIX,)
    yield "keys", draws, (fxgrad.random.key(3),)
    yield "linear algebra", linear_algebra, (MATRIX,)
    yield "gradient of linear algebra", fxgrad.grad(total(linear_algebra)), (MATRIX,)
    yield "indexing", lambda x, i: (x[i, :2], x[1:, None, ::2], fnp.asarray(x).at[i].add(2.0)), (
        MATRIX, np.array([0, 2, 2]))
    yield "gradient of indexing", fxgrad.grad(lambda x, i: np.sum(x[i] * x[i, ::-1])), (MATRIX, np.array([0, 2, 2]))
    yield "special", lambda x: (fxgrad.scipy.special.erf(x), fxgrad.nn.gelu(x), fxgrad.scipy.special.gammaln(x)), (X,)
    yield "aliases", lambda x: (x, x, np.reshape(x, (3, 1)), 2.0, np.sum(x), X), (X,)
    yield "convolution", lambda x: fxgrad.numpy.convolve(x, np.array([1.0, 2.0]), mode="full"), (X,)
    yield "fft", lambda x: fxgrad.numpy.fft.rfft(x), (X,)
    yield "constants", lambda x: (x * np.array([np.nan, -0.0, np.inf]) * -np.inf, x + np.float32(0.1), x - 1e-320), (X,)
    yield "large constant", lambda x: np.sum(LARGE * x), (2.0,)
    yield "layout", lambda x: np.sum(COLUMNS, axis=1) * x, (2.0,)
    yield "unusual names", lambda **kwargs: {"if": kwargs["lambda_"], 3: kwargs["np"]}, ()


LARGE = np.random.default_rng(0).normal(size=(40, 30))
COLUMNS = np.asfortranarray(np.random.default_rng(0).normal(size=(300, 9)).astype(np.float32))
PROGRAMS = {name: (function, args) for name, function, args in programs() if args}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run_alike(name: str) -> None:
    function, args = PROGRAMS[name]
    text = assert_runs_alike(fxgrad.make_program(function)(*args), *args)
    assert ("ml_dtypes" in text) == (name == "bfloat16")
    assert ("scipy" in text) == ("linear algebra" in name)  # for LAPACK
    assert max(map(len, text.split("# --- ")[0].splitlines())) <= 130


def test_keyword_arguments() -> None:
    program = fxgrad.make_program(lambda x, *, np, scale: x * np["a"] + scale)(1.0, np={"a": X}, scale=2.0)
    got = function_of(program.to_python())(3.0, np={"a": X}, scale=2.0)
    assert_same_bits(got, 3.0 * X + 2.0)


def test_the_usual_nan_of_a_narrow_dtype_is_a_number() -> None:
    for dtype in (np.float16, np.float32):
        x = np.array([-1.0, 2.0], dtype)
        text = fxgrad.make_program(lambda x, dtype=dtype: fnp.where(x > 0, x, dtype(np.nan)))(x).to_python()
        assert_same_bits(function_of(text)(x), np.array([np.nan, 2.0], dtype))


def test_results_share_no_memory() -> None:
    given = X.copy()
    function = function_of(fxgrad.make_program(lambda x: (x, x, X))(X).to_python())
    one, other, constant = function(given)
    one[0], constant[0] = 7.0, 7.0
    assert (given[0], other[0], function(given)[2][0]) == (0.5, 0.5, 0.5)


def test_the_users_words_are_there() -> None:
    """The name, the docstring, the variables and the lines of the function; and no statement in place."""
    text = fxgrad.make_program(network)(LAYERS, INPUTS).to_python()
    module = ast.parse(text)
    function = next(node for node in module.body if isinstance(node, ast.FunctionDef))
    assert function.name == "network"
    assert [arg.arg for arg in function.args.args] == ["layers", "inputs"]
    assert ast.get_docstring(function) == ast.get_docstring(ast.parse(_source_of(network)).body[0])
    assert re.search(r"^    hidden = np.tanh\(\w+\)  # test_to_python.py:\d+$", text, re.MULTILINE)
    assert "layers[0].weights" in text
    assert not re.search(r"out=|\bdel\b", text.split("# --- what")[0])
    assert text.startswith('"""`network`, as fxgrad traced it: a file that needs NumPy 2, and nothing else."""\n')


def test_values_inside_give_way_to_the_name_of_the_function() -> None:
    def h(x: Any) -> Any:
        for _ in range(4):
            x = np.sin(x) * np.cos(x)
        return x

    def x(x: Any) -> Any:
        return np.sin(x)

    text = fxgrad.make_program(h)(X).to_python(source=False)
    assert "def h(x):" in text
    assert "    h_1 = " in text
    np.testing.assert_array_equal(function_of(text)(X), fxgrad.make_program(h)(X)(X))
    assert "def x_1(x):" in fxgrad.make_program(x)(X).to_python()


def test_bodies_have_the_names_of_the_users_functions() -> None:
    text = fxgrad.make_program(recurrence)(X, INPUTS[:, :3]).to_python()
    assert re.search(r"^def step\(", text, re.MULTILINE)


def test_derivatives_say_what_they_are() -> None:
    text = fxgrad.make_program(fxgrad.grad(documented_loss, argnums=(0, 1)))(X, 2.0).to_python()
    assert text.startswith('"""`grad(documented_loss, [x, scale])`, as fxgrad traced it: a file that needs NumPy 2')
    function = next(node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
    assert function.name == "grad_documented_loss"
    assert ast.get_docstring(function) == (
        "This is grad(documented_loss, [x, scale]). Of documented_loss itself:\n\nThe sum of squares, scaled.")
    assert_same_bits(function_of(text)(X, 2.0), fxgrad.grad(documented_loss, argnums=(0, 1))(X, 2.0))


def documented_loss(x: Any, scale: Any) -> Any:
    """The sum of squares, scaled."""
    return np.sum(x * x) * scale


def _source_of(function: Any) -> str:
    import inspect

    return inspect.getsource(function)


def test_inputs_are_checked() -> None:
    function = function_of(fxgrad.make_program(lambda x: np.mean(x))(X).to_python())
    with pytest.raises(TypeError, match=r"^x is float64\[5\], where float64\[3\] is needed$"):
        function(np.ones(5))
    with pytest.raises(TypeError, match=r"^x is float32\[3\], where float64\[3\] is needed$"):
        function(np.ones(3, np.float32))


def test_programs_that_were_read_take_their_inputs_one_by_one() -> None:
    program = parse('program "f g"(x: f32[3], `a b`: f32[]) { y: f32[3] = mul(x, `a b`) return y, x }')
    got = function_of(program.to_python())(X.astype(np.float32), 2.0)
    assert_same_bits(got, program(X.astype(np.float32), np.float32(2.0)))


@examples(15)
@given(recipes())
def test_random_programs_and_their_gradients(steps: Any) -> None:
    function = build(steps, np)
    x, y = MATRIX[:3], MATRIX[1:]
    assert_runs_alike(fxgrad.make_program(function)(x, y), x, y)
    assert_runs_alike(fxgrad.make_program(fxgrad.grad(lambda *args: np.sum(function(*args))))(x, y), x, y)


def triple(x: Any) -> list[Any]:
    return [FACTOR * x]


FACTOR = 3
own_p = Primitive(name="own triple", abstract=lambda x: [x], numpy=triple, xla=lambda lax, x: [lax.mul(x, 3.0)],
                  jvp=NO_TANGENT, transpose=NOT_LINEAR, batch=TODO("no test needs it"), cost=lambda x: Cost(0, 0))


def test_kernels_of_users_are_carried() -> None:
    program = fxgrad.make_program(lambda x: bind(own_p, x)[0] + 1.0)(X)
    text = assert_runs_alike(program, X)
    assert "return [3 * x]" in text


@pytest.mark.slow
def test_files_run_where_fxgrad_is_not(tmp_path: Path) -> None:
    sent = {}
    for number, (name, (function, args)) in enumerate(PROGRAMS.items()):
        if name != "bfloat16" and "linear algebra" not in name and args[0] is not LAYERS and name != "float32":
            program = fxgrad.make_program(function)(*args)
            (tmp_path / f"file_{number}.py").write_text(program.to_python())
            sent[number] = args, program
    (tmp_path / "args").write_bytes(pickle.dumps({number: args for number, (args, _) in sent.items()}))
    subprocess.run([sys.executable, "-c", ALONE], cwd=tmp_path, check=True, timeout=120)
    results = pickle.loads((tmp_path / "results").read_bytes())
    for number, (args, program) in sent.items():
        assert results[number] == [leaf.tobytes() for leaf in jax.tree.leaves(program(*args))]


ALONE = """
import sys

class Blocked:
    def find_spec(self, name, *_):
        if name.split('.')[0] in ('fxgrad', 'jax', 'jaxlib', 'scipy', 'ml_dtypes'):
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
sys.path.insert(0, '.')
import importlib, inspect, pickle

def leaves(value):
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in leaves(item)]
    return [] if value is None else [value]

results = {}
for number, args in pickle.load(open('args', 'rb')).items():
    module = importlib.import_module(f'file_{number}')
    function = next(value for value in vars(module).values() if hasattr(value, '__wrapped__'))
    results[number] = [leaf.tobytes() for leaf in leaves(function(*args))]
pickle.dump(results, open('results', 'wb'))
"""


# --- refusals -----------------------------------------------------------------------------------------------


def refusal(function: Any, *args: Any) -> str:
    with pytest.raises(UnsupportedError) as raised:
        fxgrad.make_program(function)(*args).to_python()
    return str(raised.value)


def test_kernels_that_run_xla_are_refused() -> None:
    message = refusal(lambda x: fxgrad.scipy.special.betaln(x, x), X)
    line = test_kernels_that_run_xla_are_refused.__code__.co_firstlineno + 1
    assert message == (
        "to_python: betaln is computed by XLA, so that no file of NumPy alone can compute it. Leave it out of the "
        "function, or keep the program itself: pickle.dumps(program), or program_text(program)\n"
        f"  at test_to_python.py:{line} (in <lambda>)")


def test_callbacks_are_refused() -> None:
    def noisy(x: Any) -> Any:
        fxgrad.debug.print("{}", x)
        return x

    assert refusal(noisy, X).startswith("to_python: debug_callback calls a function of Python's back, so that no file")


class Point:
    def __init__(self, x: Any) -> None:
        self.x = x


fxgrad.tree.register_pytree_node(Point, lambda point: ((point.x,), None), lambda _, children: Point(*children))


def test_containers_of_other_classes_are_refused() -> None:
    assert refusal(lambda x: Point(x), X) == (
        "to_python: the program returns a container that is none of Python's own (Point). Let the function take and "
        "return dictionaries, tuples, lists and named tuples")
    assert refusal(lambda point: point.x, Point(X)) == (
        "to_python: the program takes a container that is none of Python's own ([<flat index 0>]). Let the function "
        "take and return dictionaries, tuples, lists and named tuples")


def test_traced_constants_are_refused() -> None:
    def outer(x: Any) -> Any:
        with pytest.raises(UnsupportedError) as raised:
            fxgrad.make_program(lambda y: y * x)(1.0).to_python()
        assert str(raised.value) == (
            "to_python: a constant of the program is a traced array, which has no elements yet. Write the program "
            "outside of the transformation that traces it")
        return x

    fxgrad.grad(outer)(1.0)


# --- layout -------------------------------------------------------------------------------------------------


def test_long_lines_are_broken_and_mean_the_same() -> None:
    code = ("def f(x):\n    y = add(first(x, 'a, (b'), [second, third, {'k': fourth, 'l': \"it's\"}], "
            "fifth(x, y, z), sixth)\n    return y")
    for width in (20, 40, 60, 200):
        assert ast.dump(ast.parse(wrap_code(code, width))) == ast.dump(ast.parse(code))
    assert max(map(len, wrap_code(code, 60).splitlines())) <= 60
    assert isinstance(network, FunctionType)
