"""Sizes with names: specs, programs that run at every size, and what cannot be told without a number."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import symbolic_spec
from fxgrad.engine.core.sizes import SymbolicDim, max_size, min_size, named_size, parse_size, parse_sizes, slice_indices
from fxgrad.engine.derivation.sizes import at_sizes
from fxgrad.engine.tracing.tape import bind
from fxgrad.errors import FxgradError, ProgramSyntaxError
from fxgrad.text.json_writer import from_json, to_json
from tests.comparison.cases import CASES
from tests.comparison.checks import both_functions
from tests.comparison.libraries import functions
from tests.samples import all_samples
from tests.support.sized_functions import FUNCTIONS, agree, drawn, refusal, spec_of

N, M = named_size("n"), named_size("m")


def total(function: Callable[..., Any]) -> Callable[..., Any]:
    """A scalar of all results that have derivatives."""
    def summed(*args: Any) -> Any:
        return sum(np.sum(np.cos(leaf)) for leaf in jax.tree.leaves(function(*args)) if leaf.dtype.kind == "f")
    return summed


# --- sizes ----------------------------------------------------------------------------------------------------------


def test_arithmetic_of_sizes() -> None:
    assert repr(2 * N + 1 - M) == "2*n-m+1"
    assert ((N + M) * N // N, N - N, N + 1 - N, -(-N // 1)) == (N + M, 0, 1, N)
    assert hash(named_size("n")) == hash(N)
    assert {N: 1, 3: 2}[named_size("n")] == 1
    assert (np.int64(2) * N, N * np.int64(2), True * N) == (2 * N, 2 * N, N)
    assert type(np.int32(2) + N) is SymbolicDim
    assert (N >= 1, N > 0, N + 1 > N, N < 1, N != 0, bool(N)) == (True, True, True, False, True, True)
    assert (divmod(3 * N, N), 7 * N % 7, N ** 2 == N * N, +N) == ((3, 0), 0, True, N)
    expression = (N * M + 2 * N) // 3 + N % 2 - N**2 * 3 - 4 + max_size(N - 2, 0)
    assert expression.names == ["m", "n"]
    for n in range(1, 5):
        for m in range(1, 4):
            assert expression.at({"n": n, "m": m}) == (n * m + 2 * n) // 3 + n % 2 - n**2 * 3 - 4 + max(n - 2, 0)
    assert expression.at({"n": M, "m": M}) == (M * M + 2 * M) // 3 + M % 2 - M**2 * 3 - 4 + max_size(M - 2, 0)
    assert [(1 - 2 * N).at({"n": 4}), (-N).at({"n": 4}), (M - 3 * N).at({"n": 1, "m": 2})] == [-7, -4, -1]
    assert parse_size(repr(expression)) == expression
    assert parse_sizes("2, max(mod(n, 2), m), 3*n") == (2, max_size(N % 2, M), 3 * N)
    assert f"{N} {2 * N:5d}" == "n 2*n"
    assert (min_size(1, N), max_size(N, 1), min_size(3, 2)) == (1, N, 2)


@pytest.mark.parametrize("text", ["(n", "n, (", "n)", "mod(n", "n +"])
def test_texts_that_are_no_sizes_are_value_errors(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (the words are jax's)
        parse_sizes(text)


@pytest.mark.parametrize("index", [slice(*bounds) for bounds in [
    (None,), (1, None), (None, -1), (2, None), (-2, None), (1, -1), (None, None, 2), (1, None, 2), (None, None, -1),
    (0, 3), (5, None, 3), (None, 100)]], ids=str)
def test_slices_are_pythons(index: slice) -> None:
    begin, count, step = slice_indices(index, N)
    for n in range(1, 8):
        first, number = (size.at({"n": n}) if isinstance(size, SymbolicDim) else size for size in (begin, count))
        taken = range(n)[index]
        assert number == len(taken)
        assert not taken or [*range(first, first + step * number, step)] == [*taken]


def test_specs() -> None:
    assert symbolic_spec("n", 3).shape == (N, 3)
    assert symbolic_spec("n", 3).dtype == np.float64
    assert symbolic_spec().shape == ()
    assert symbolic_spec(("n", "2*n"), "f32") == symbolic_spec("n", "2*n", dtype=np.float32)
    assert symbolic_spec((None, 784), np.float32).dtype == np.float32
    first, second = symbolic_spec((None, 2)).shape[0], symbolic_spec((None, 2)).shape[0]
    assert isinstance(first, SymbolicDim)
    assert repr(first) != repr(second)
    assert symbolic_spec("n", weak_type=True).weak_type
    assert symbolic_spec((2,), "key<fry>").dtype == fxgrad.random.key(0).dtype
    assert fxgrad.eval_shape(lambda x, y: x @ y, symbolic_spec("n", 3), symbolic_spec(3, "m")).shape == (N, M)
    dimension, = jax.export.symbolic_shape("n")
    assert fxgrad.make_program(lambda x: x)(jax.ShapeDtypeStruct((dimension, 2), "float32")).in_avals[0].shape == (N, 2)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: symbolic_spec("2n"),
     ("symbolic_spec: '2n' is no size: names, whole numbers, +, -, *, ^ and floordiv, mod, max, min of them "
                         'are read, as in "2*n + 1" or "floordiv(n, 2)".')),
    (lambda: symbolic_spec(-1),
     ('symbolic_spec: a size is a whole number from 0 on, a name such as "n", arithmetic of names such as '
                       '"2*n", or None for a size of its own; got -1')),
    (lambda: symbolic_spec("n-n-1"),
     ("symbolic_spec: 'n-n-1' is no size: names, whole numbers, +, -, *, ^ and floordiv, mod, max, min "
                            'of them are read, as in "2*n + 1" or "floordiv(n, 2)".')),
    (lambda: symbolic_spec(2.0),
     ('symbolic_spec: a size is a whole number from 0 on, a name such as "n", arithmetic of names such as '
                        '"2*n", or None for a size of its own; got 2.0')),
    (lambda: symbolic_spec("n", "float32 "), "symbolic_spec: 'float32 ' is no size"),
    (lambda: symbolic_spec("n" * 500), "symbolic_spec: 'nnn"),
    (lambda: symbolic_spec(("n", 3), "f32", 4), (
        "symbolic_spec: only the dtype may follow a tuple of sizes, got ('f32', 4). "
        'Write fxgrad.symbolic_spec(("n", 3), "f32") or fxgrad.symbolic_spec("n", 3, dtype="f32")')),
    (lambda: symbolic_spec("n", "f32"),
     ("symbolic_spec: 'f32' is no size: names, whole numbers, +, -, *, ^ and floordiv, mod, max, min "
                               'of them are read, as in "2*n + 1" or "floordiv(n, 2)". The dtype is given as dtype=, '
                               "or after a tuple of sizes")),
])
def test_what_is_no_spec(call: Any, message: str) -> None:
    with pytest.raises(FxgradError) as caught:
        call()
    assert str(caught.value).startswith(message)


# --- programs at every size ------------------------------------------------------------------------------------------


def test_a_program_is_traced_once_and_runs_at_every_size() -> None:
    traces = []

    def function(x: Any, y: Any) -> Any:
        traces.append(1)
        return {"mean": np.mean(x, axis=0), "rest": np.concatenate([x, y])[1:] / x.shape[0], "count": x.shape[0] * 1.0}

    program = fxgrad.make_program(function)(symbolic_spec("n", 3), symbolic_spec("m", 3))
    assert [*map(str, program.in_avals)] == ["f64[n,3]", "f64[m,3]"]
    assert [*map(str, program.out_avals)] == ["f64*[]", "f64[3]", "f64[n+m-1,3]"]
    for n, m in [(1, 1), (2, 5), (7, 3), (2, 5)]:
        x, y = np.random.default_rng(n).normal(size=(n, 3)), np.ones((m, 3))
        agree(program(x, y), {"mean": x.mean(0), "rest": np.concatenate([x, y])[1:] / n, "count": np.float64(n)})
    assert len(traces) == 1
    assert at_sizes(program, {"n": 2, "m": 5}) is at_sizes(program, {"m": 5, "n": 2})


@pytest.mark.slow
def test_programs_of_programs() -> None:
    def loss(w: Any, x: Any) -> Any:
        return np.mean(np.tanh(x @ w) ** 2)

    program = fxgrad.make_program(loss)(symbolic_spec(3), symbolic_spec("n", 3))
    w, x = np.arange(3.0), np.random.default_rng(0).normal(size=(4, 3))
    agree(fxgrad.grad(program)(w, x), fxgrad.grad(loss)(w, x))
    agree(fxgrad.jit(program)(w, x), loss(w, x))
    agree(fxgrad.vmap(program, in_axes=(None, 0))(w, np.stack([x, x])), np.stack([loss(w, x)] * 2))
    step = fxgrad.make_program(lambda w, x: w - 0.1 * fxgrad.grad(program)(w, x))(symbolic_spec(3),
                                                                                  symbolic_spec("2*k", 3))
    agree(step(w, x), w - 0.1 * fxgrad.grad(loss)(w, x))
    hessian = fxgrad.make_program(fxgrad.hessian(loss))(symbolic_spec("d"), symbolic_spec("n", "d"))
    agree(hessian(w, x), fxgrad.hessian(loss)(w, x))


def test_texts_and_files() -> None:
    program = fxgrad.make_program(lambda x: np.mean(x.reshape(-1)[1:]) + fnp.arange(x.shape[0])[0])(symbolic_spec("n",
                                                                                                                  3))
    x = np.random.default_rng(0).normal(size=(4, 3))
    assert "f64[3*n-1]" in str(program)
    agree(fxgrad.parse(str(program))(x), program(x))
    again = from_json(to_json(program))
    assert again.in_avals == program.in_avals
    agree(again(x), program(x))
    file = io.BytesIO()
    fxgrad.save(file, lambda x: {"m": np.mean(x, axis=0)}, symbolic_spec("n", 3))
    loaded = fxgrad.load(file)
    for n in (2, 5):
        agree(loaded(np.ones((n, 3)) * n), {"m": np.full(3, float(n))})
    for text in ("program f(x: f64[n^99]) -> f64[n^99]:\n  return x", "program f(x: f64[n,,2]) -> f64[n]:\n  return x",
                 "program f(x: f64[-n]) -> f64[-n-]:\n  return x"):
        with pytest.raises(ProgramSyntaxError):
            fxgrad.parse(text)


QUICK = ["mean", "size2", "all but the first row"]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
                                  for name in FUNCTIONS])
def test_values_at_every_size(name: str) -> None:
    function, shapes = FUNCTIONS[name]
    program = fxgrad.make_program(function)(*map(spec_of, shapes))
    for count in (1, 2, 6, 7):
        args = [drawn(shape, count, name) for shape in shapes]
        try:
            wanted = fxgrad.make_program(function)(*args)(*args)
        except FxgradError as error:  # two rows asked of one
            with pytest.raises(type(error)):
                program(*args)
        else:
            agree(program(*args), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, (function, shapes) in FUNCTIONS.items()
                                  if not (shapes[0] and isinstance(shapes[0][0], tuple))])
def test_gradients_at_every_size(name: str) -> None:
    function, shapes = FUNCTIONS[name]
    outputs = fxgrad.eval_shape(function, *map(spec_of, shapes))
    if not any(leaf.dtype.kind == "f" for leaf in jax.tree.leaves(outputs)):
        return  # counts and places alone
    gradient = fxgrad.grad(total(function))
    program = fxgrad.make_program(gradient)(*map(spec_of, shapes))
    for count in (1, 6, 7):
        args = [drawn(shape, count, name) for shape in shapes]
        try:
            wanted = gradient(*args)
        except FxgradError as error:
            with pytest.raises(type(error)):
                program(*args)
        else:
            agree(program(*args), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equal_to_jax(dtype: str) -> None:
    def model(np: Any, x: Any, w: Any) -> Any:
        hidden = np.tanh(x @ w)
        hidden = (hidden - np.mean(hidden, axis=0)) / np.sqrt(np.var(hidden, axis=0) + 1e-3)
        weights = np.exp(hidden)
        ordered = np.sort(weights, axis=0) / np.sum(weights)
        return np.sum(np.cumsum(ordered, axis=0) * np.arange(x.shape[0])[:, None]) / x.shape[0]

    program = fxgrad.make_program(fxgrad.value_and_grad(lambda x, w: model(fnp, x, w)))(
        symbolic_spec(("n", 3), dtype), symbolic_spec((3, 2), dtype))
    with jax.enable_x64(dtype == "float64"):
        theirs = jax.jit(jax.value_and_grad(lambda x, w: model(jnp, x, w)))
        for n in (2, 5):
            x, w = (np.random.default_rng(n).normal(size=shape).astype(dtype) for shape in ((n, 3), (3, 2)))
            agree(program(x, w), jax.tree.map(np.asarray, theirs(x, w)), 1e-5 if dtype == "float32" else 1e-12)


# --- what fits ------------------------------------------------------------------------------------------------------


def test_arguments_that_do_not_fit() -> None:
    program = fxgrad.make_program(lambda x, y: x * y[:, None])(symbolic_spec("n", 3), symbolic_spec("n"))
    assert refusal(lambda: program(np.ones((2, 3)), np.ones(5))) == (
        "the program takes f64[n] as y, got f64[5], where n = 5; but n = 2 by x, which is f64[2,3] where the program "
        "takes f64[n,3]. A name stands for one size: give arrays that agree, or trace with two names")
    assert refusal(lambda: program(np.ones((2, 4)), np.ones(2))) == (
        "the program takes f64[n,3] as x, got f64[2,4]: that axis has the size 3 whatever the named sizes are. Trace "
        "it again for other types")
    assert refusal(lambda: program(np.ones((0, 3)), np.ones(0))) == (
        "the program takes f64[n,3] as x, got f64[0,3]: symbolic sizes are at least 1, since a program may do "
        "something else on size 0. Trace it for the size 0")
    assert refusal(lambda: program(np.ones((2, 3)), np.ones((2, 1)))) == (
        "the program takes f64[n] as y, got f64[2,1]. Trace it again for other types, or convert with x.astype(...)")
    assert refusal(lambda: program(np.ones((2, 3), "f"), np.ones(2))) == (
        "the program takes f64[n,3] as x, got f32[2,3]. Trace it again for other types, or convert with x.astype(...)")


def test_sizes_that_follow_from_others() -> None:
    program = fxgrad.make_program(lambda x, y: (x, y))(symbolic_spec("2*n"), symbolic_spec("n + m"))
    agree(program(np.ones(4), np.ones(5)), (np.ones(4), np.ones(5)))  # n = 2, m = 3
    assert refusal(lambda: program(np.ones(5), np.ones(5))) == (
        "the program takes f64[2*n] as x, got f64[5]: no size n from 1 on makes 2*n equal to 5")
    assert refusal(lambda: program(np.ones(6), np.ones(3))) == (
        "the program takes f64[n+m] as y, got f64[3]: no size m from 1 on makes n+m equal to 3")
    unknown = fxgrad.make_program(lambda x: x)(symbolic_spec("n*m"))
    assert refusal(lambda: unknown(np.ones(6))) == (
        "the program has sizes that its arguments do not determine: m, n. Give one argument an axis of each such size "
        'alone, as in fxgrad.symbolic_spec("n", 3)')


def test_an_operation_that_does_not_fit_one_size_names_its_line() -> None:
    program = fxgrad.make_program(lambda x: x[2])(symbolic_spec("n", 3))
    agree(program(np.arange(9.0).reshape(3, 3)), np.array([6.0, 7.0, 8.0]))
    assert refusal(lambda: program(np.ones((2, 3)))).startswith(
        "slice: 2:3:1 of an axis of size 2 in shape (2, 3); 0 <= start <= limit <= size and a positive stride are "
        "needed: so it is for n = 2, which is at test_specs.py:")


@pytest.mark.slow
def test_known_indices_of_a_size_that_varies() -> None:
    program = fxgrad.make_program(lambda x: x[np.array([0, 5])] + x[np.array([-1, -2])])(symbolic_spec("n"))
    agree(program(np.arange(7.0)), np.array([6.0, 10.0]))
    assert refusal(lambda: program(np.arange(3.0))) == (
        "index 5 is out of range for axis 0 of size 3; in range are -3 to 2")
    agree(fxgrad.jit(program)(np.arange(3.0)), np.array([2.0, np.nan]))  # as jax fills what is out of range
    for index, refused in (([0, 5], 5), ([-4, 0], -4), (5, 5)):
        assert refusal(lambda index=index: fxgrad.make_program(lambda x: x[:, :3][:, index])(symbolic_spec(2,
                                                                                                           "n"))) == (
            f"x[...]: index {refused} is out of range for axis 1 of size min(3,n) at every size")

    def energy(x: Any, v: Any) -> Any:
        return np.sum(fnp.at(x)[np.array([0, -5])].set(v) ** 2)

    gradient = fxgrad.make_program(fxgrad.grad(energy, argnums=(0, 1)))(symbolic_spec("n"), symbolic_spec(2))
    for count in (5, 6):  # at 5 both are the first
        args = np.arange(1.0, count + 1), np.array([1.0, 2.0])
        agree(gradient(*args), fxgrad.grad(energy, argnums=(0, 1))(*args))


def test_of_hermitian_matrices_one_triangle_counts_at_every_size() -> None:
    whole = np.arange(9.0).reshape(3, 3) + 1j * np.arange(9.0, 0.0, -1.0).reshape(3, 3)
    for triangle in ("L", "U"):
        program = fxgrad.make_program(lambda a, triangle=triangle: np.linalg.eigvalsh(a, triangle))(
            symbolic_spec("n", "n", dtype=complex))
        for count in (1, 2, 3):
            agree(program(whole[:count, :count]), np.linalg.eigvalsh(whole[:count, :count], triangle))


# --- where a number is needed ---------------------------------------------------------------------------------------

UNTOLD = ("{question}: that cannot be told, since n stands for any size from 1 on: the program is traced once for all "
          "of them. Trace it for one size where code chooses by it (fxgrad.symbolic_spec(4, 3), or an array), or let "
          "values "
          "choose: fxgrad.numpy.where, fxgrad.lax.cond; sizes that are equal get the same name in fxgrad.symbolic_spec")
IN_A_SET = "whether n is in a set or dict"
STANDS = "and n stands for any size from 1 on: the program is traced once for all of them. "
NEEDED = ("a number is needed of the size n, for {use}, " + STANDS + "Write fxgrad.numpy.arange(size) for its numbers, "
          "fxgrad.numpy.zeros(shape) for an array, fxgrad.lax.scan over an array or fxgrad.lax.fori_loop(0, size, ...) "
          "for a loop, and the size itself in arithmetic; or trace it for one size (fxgrad.symbolic_spec(4, 3), or an "
          "array)")
WRITE = ("{call} needs a number for the size n, " + STANDS + "Write fxgrad.numpy.{instead}, or trace it for one size "
         "(fxgrad.symbolic_spec(4, 3), or an array)")


@pytest.mark.parametrize(("function", "message"), [
    (lambda x: x if x.shape[0] > 3 else -x, UNTOLD.format(question="n > 3")),
    (lambda x: x if x.shape[0] <= 2 else -x, UNTOLD.format(question="n <= 2")),
    (lambda x: x if x.shape[0] == 3 else -x, UNTOLD.format(question="n == 3")),
    (lambda x: x if x.shape[0] != 3 else -x, UNTOLD.format(question="n != 3")),
    (lambda x: x if x.shape == (3, 3) else -x, UNTOLD.format(question="n == 3")),
    (lambda x: x if x.shape[0] - 1 else -x, UNTOLD.format(question="whether n-1 is 0")),
    (lambda x: x if x.shape[0] in (3, 4) else -x, UNTOLD.format(question="n == 3")),
    (lambda x: x if x.shape[0] in {3, 4} else -x, UNTOLD.format(question=IN_A_SET)),
    (lambda x: x if x.shape[0] not in {3: 1} else -x, UNTOLD.format(question=IN_A_SET)),
    (lambda x: x if x.shape in {(3, 3)} else -x, UNTOLD.format(question=IN_A_SET)),
    (lambda x: [x[i] for i in range(x.shape[0])], NEEDED.format(use="range(x.shape[0])")),
    (lambda x: x * int(x.shape[0]), NEEDED.format(use="int(x.shape[0])")),
    (lambda x: x * float(x.shape[0]), NEEDED.format(use="float(x.shape[0])")),
    (lambda x: len(x) * x, ("len(x) is a number in Python, and n stands for any size from 1 on: the program is traced "
                            "once for all of them. Write x.shape[0], the size itself")),
    (lambda x: np.pad(x, 1, mode="edge"), NEEDED.format(use="np.pad(x, 1, mode='edge')")),
    (lambda x: x.shape[0] * [1.0],
     NEEDED.format(use="a loop over range(size), int(size), an index or a size of NumPy's")),
    (lambda x: x + np.zeros(x.shape), WRITE.format(call="np.zeros(x.shape)", instead="zeros(x.shape)")),
    (lambda x: x + np.ones(x.shape[0]), WRITE.format(call="np.ones(x.shape[0])", instead="ones(x.shape[0])")),
    (lambda x: np.arange(x.shape[0]) @ x, WRITE.format(call="np.arange(x.shape[0])", instead="arange(x.shape[0])")),
    (lambda x: x * math.sqrt(x.shape[0]), WRITE.format(call="math.sqrt(x.shape[0])", instead="sqrt(x.shape[0])")),
    (lambda x: np.squeeze(x), UNTOLD.format(question="squeeze: which axes of the shape (n, 3) go (write axis=)")),
    (lambda x: x.reshape(5, 3),
     ("reshape: an array of shape (n, 3) has 3*n elements, and shape (5, 3) has 15; the numbers must be equal (one "
     "size may be given as -1)")),
    (lambda x: x + fnp.ones(4), ("add: shapes (n, 3) and (4,) do not broadcast: axis -1 has sizes 3 and 4, where equal "
                                "sizes or 1 are needed. Insert an axis with x[:, None] or x.reshape(...), or "
                                "transpose one of them")),
    (lambda x: x if np.sqrt(x.shape[0]) > 2 else -x,
     ("bool() needs the value of a traced array (bool[]) in function, which is traced without values. It depends on: "
     "the size n. Write fxgrad.numpy.where(condition, a, b) to choose between values, fxgrad.lax.cond, while_loop or "
     "fori_loop to choose or repeat pieces of code, or make the argument static (static_argnums). "
     "fxgrad.python_control_flow(f) compiles the `if`, `for` and `while` of f")),
    (lambda x: fxgrad.lax.associative_scan(fnp.add, x), UNTOLD.format(question="n < 2")),
    (lambda x: np.array_equal(x, np.ones((3, 3))),
     UNTOLD.format(question="array_equal: whether the shapes (n, 3) and (3, 3) are equal")),
])
def test_where_a_number_is_needed(function: Any, message: str) -> None:
    with pytest.raises(FxgradError) as caught:
        fxgrad.make_program(function)(symbolic_spec("n", 3))
    text, place = str(caught.value).split("\n  at ")
    assert text == message
    assert place.startswith("test_specs.py:")


NUMBERS = ("{what}: x is f64[n,3], and every size must be a number there. Give an array, or a type such as "
           "fxgrad.symbolic_spec(4, 3); of a program, make_program(program)(fxgrad.symbolic_spec(4, 3)) is that for "
           "numbers. fxgrad.export takes sizes with names")


@pytest.mark.slow
def test_equality_of_arrays_of_sizes_with_names() -> None:
    specs = symbolic_spec("n", 3), symbolic_spec("n+1", 3)
    for function in (fnp.array_equal, fnp.array_equiv):
        program = fxgrad.make_program(function)(specs[0], specs[0])
        assert [bool(program(np.ones((2, 3)), np.full((2, 3), value))) for value in (1.0, 2.0)] == [True, False]
    for others in (specs[1], symbolic_spec("m", 4), symbolic_spec("n")):
        assert not fxgrad.make_program(fnp.array_equal)(specs[0], others)(
            np.ones((2, 3)), np.ones(tuple(size if isinstance(size, int) else size.at({"n": 2, "m": 2})
                                           for size in others.shape)))


@pytest.mark.parametrize(("call", "what"), [
    (lambda f, x: fxgrad.jit(f).lower(x), "jit(function).lower"),
    (lambda f, x: fxgrad.stablehlo(f)(x), "jit(function).lower"),
    (lambda f, x: fxgrad.memory_analysis(f)(x), "memory_analysis"),
    (lambda f, x: fxgrad.cost_analysis(f)(x), "cost_analysis"),
    (lambda f, x: fxgrad.tabulate(f)(x), "tabulate"),
    (lambda f, x: fxgrad.compare_granularities(f)(x), "compare_granularities"),
    (lambda f, x: fxgrad.make_program(f)(x).to_python(), "to_python"),
])
def test_what_counts_by_sizes_asks_for_numbers(call: Any, what: str) -> None:
    assert refusal(lambda: call(lambda x: np.mean(x, axis=0), symbolic_spec("n", 3))) == NUMBERS.format(what=what)


def test_costs_have_names() -> None:
    cost = fxgrad.cost_analysis(fxgrad.make_program(lambda x, w: np.tanh(x @ w))(symbolic_spec("n", "d"),
                                                                                 symbolic_spec("d", 4)))
    assert str(cost) == "Cost(flops=8*d*n+4*n, bytes=8*d*n+96*n+32*d)"


@pytest.mark.slow
def test_texts_of_sizes() -> None:
    def function(x: Any) -> Any:
        return x[1:], x[:-1], x[0], x[-1], x[:, 1], x.reshape(-1), np.mean(x)

    text = str(fxgrad.make_program(function)(symbolic_spec("n", 3)))
    assert "return x[1:], x[:-1], x[0], x[-1], x[:, 1], reshape(x, ('3*n',)), mean(x)" in text
    assert text.endswith("where mean(x: f64[n,3]) -> f64:\n  return sum(x) / f64(size('3*n'))")


# --- a law over the public functions ----------------------------------------------------------------------------------


def sized_cases(library: str, names: Sequence[str]) -> Any:
    """Every call among the cases of the comparison that takes arrays, with a name for each size above 1."""
    for name in names:
        for place, case in enumerate(CASES[library].get(name, [])):
            if not case.static and any(extent > 1 for each in case.specs() for extent in each.shape):
                dtype = "float64" if "float64" in case.dtypes else case.dtypes[0]
                yield f"{library}.{name} {place}", case, both_functions(library, name, case, dtype, None)[1], dtype


def resized(case: Any, dtype: str, sizes: Any) -> Any:
    """The arguments of a case with other sizes."""
    before = [(each, each.shape) for each in case.specs()]
    try:
        for each, shape in before:
            each.shape = tuple(map(sizes, shape)) if each.dtype != "uint32" else shape
        return case.arrays(dtype)
    finally:
        for each, shape in before:
            each.shape = shape


@pytest.mark.long
@pytest.mark.parametrize("library", CASES)
def test_no_size_is_taken_for_a_number_by_derivatives(library: str) -> None:
    wrong = []
    for label, case, function, dtype in sized_cases(library, functions(library)):
        arrays = case.arrays(dtype)
        places = tuple(place for place, array in enumerate(arrays)
                       if array.dtype.kind == "f" and place not in case.fixed)
        if not places or "derivatives" in case.without:
            continue
        gradient = fxgrad.grad(total(function), argnums=places)
        try:
            program = fxgrad.make_program(gradient)(*named_specs(arrays))
        except Exception:  # noqa: BLE001  (what has no derivative, and what needs a number)
            continue
        for args, wanted in calls_at_sizes(gradient, case, dtype):
            if all(np.isfinite(each).all() for each in wanted):
                try:
                    agree(program(*args), wanted, 1e-7)
                except (AssertionError, FxgradError) as error:
                    wrong.append(f"{label} at {[arg.shape for arg in args]}: {error}")
    assert not wrong


def named_specs(arrays: Sequence[Any]) -> list[Any]:
    """Types with a name for each size above 1; keys, which are two words, stay as they are."""
    return [symbolic_spec(tuple(f"n{extent}" if extent > 1 else extent for extent in array.shape), array.dtype)
            if array.dtype != np.uint32 else array for array in arrays]


def calls_at_sizes(function: Callable[..., Any], case: Any, dtype: Any) -> Iterator[tuple[Sequence[Any], Any]]:
    """Arguments of several sizes that the function takes, and what it gives for them."""
    for sizes in SIZES:
        try:
            args = resized(case, dtype, sizes)
            wanted = function(*args)
        except Exception:  # noqa: BLE001  (whatever functions say of sizes that do not fit)
            continue
        yield args, wanted


SIZES = (lambda size: size, lambda size: size + (size > 1), lambda size: min(size, 1))
"""The sizes of a case, larger ones, and 1."""
MOST_REFUSED = {"numpy": 63, "numpy.linalg": 14, "numpy.fft": 19, "lax": 31, "lax.linalg": 4, "nn": 1, "random": 4,
                "scipy.special": 0, "scipy.linalg": 13}
"""How many calls may be refused, each because it needs a number: so that what was supported stays so."""


@pytest.mark.slow
@pytest.mark.parametrize("library", CASES)
def test_no_size_is_taken_for_a_number(library: str) -> None:
    wrong, refused, right = [], [], 0
    for label, case, function, dtype in sized_cases(library, functions(library)):
        arrays = case.arrays(dtype)
        try:
            program = fxgrad.make_program(function)(*named_specs(arrays))
        except FxgradError:
            try:
                fxgrad.make_program(function)(*arrays)
            except FxgradError:
                continue  # it needs values, too
            refused.append(label)
            continue
        for args, wanted in calls_at_sizes(function, case, dtype):
            try:
                agree_but_keys(program(*args), wanted)
                right += 1
            except (AssertionError, FxgradError) as error:
                wrong.append(f"{label} at {[arg.shape for arg in args]}: {error}")
    assert not wrong
    assert len(refused) <= MOST_REFUSED[library], refused


def agree_but_keys(found: Any, wanted: Any) -> None:
    found, wanted = jax.tree.leaves(found), jax.tree.leaves(wanted)
    pairs = [(np.asarray(one), np.asarray(other)) for one, other in zip(found, wanted, strict=True)]
    numbers = [pair for pair in pairs if not pair[0].dtype.names]
    agree([one for one, _ in numbers], [other for _, other in numbers])


# --- and over every primitive -----------------------------------------------------------------------------------------

OF_FIXED_TYPES = {
    "broadcast_in_dim", "broadcast_to", "checkpoint", "cond", "custom_jvp", "custom_linear_solve", "custom_root",
    "custom_vjp", "custom_vjp_tangent", "custom_vmap", "fft", "for", "jax_call", "jax_effect", "jit_call", "named_call",
    "random_binomial", "random_gamma", "random_poisson", "random_wrap", "recompute", "reshape", "safe_call", "split",
    "sweep", "while", "within_budget"}
"""Primitives whose samples have shapes, programs for shapes, or keys beside, so that other sizes do not fit."""
NUMBERS_NEEDED = {"lu_pivots_to_permutation": "which of two sizes is the larger", "unstack": "so many results",
                  "device_put": "whether the devices divide the axis", "shard_map": "the same"}
"""Primitives that need a number, and what for."""


@pytest.mark.slow
def test_every_primitive_takes_sizes_with_names_or_refuses_them() -> None:
    taken, refused, wrong = set(), set(), []
    for primitive, samples in all_samples().items():
        for sample in samples:
            args = [*map(np.asarray, sample.args())]
            if sample.slow or not any(extent > 1 for arg in args for extent in arg.shape):
                continue
            specs = [symbolic_spec(tuple(f"n{extent}" if extent > 1 else extent for extent in arg.shape), arg.dtype)
                     if not arg.dtype.names else arg for arg in args]

            def applied(*values: Any, primitive: Any = primitive, params: Any = sample.params) -> Any:
                return tuple(bind(primitive, *values, **params))

            try:
                program = fxgrad.make_program(applied)(*specs)
            except FxgradError:
                refused.add(primitive.name)
                continue
            taken.add(primitive.name)
            for found, wanted in zip(map(np.asarray, program(*args)), map(np.asarray, applied(*args)), strict=True):
                if (found.dtype, found.shape, found.tobytes()) != (wanted.dtype, wanted.shape, wanted.tobytes()):
                    wrong.append(f"{primitive} {sample!r}")
    assert not wrong
    assert refused - taken <= OF_FIXED_TYPES | NUMBERS_NEEDED.keys()
    assert len(taken) > 190
