"""Programs as C files: compiled by the system's compiler without a warning, and equal to NumPy's executor."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax
from fxgrad.engine.tracing.tape import bind
from fxgrad.errors import UnsupportedError
from fxgrad.shipping.c.elements import elements
from fxgrad.shipping.c.statements import statements
from fxgrad.shipping.c.values import TYPES
from fxgrad.shipping.c.views import views
from tests.samples import all_samples
from tests.support.with_c import COMPILER, compiled, needs_compiler


def assert_close(found: Sequence[Any], wanted: Sequence[Any], what: str = "", factor: float = 1.0) -> None:
    """Equal integers and bools; floats to 64 roundings, or 1e-12 and 1e-5 of the largest; NaNs and infinities alike."""
    assert len(found) == len(wanted)
    for one, other in zip(found, map(np.asarray, wanted), strict=True):
        assert one.shape == other.shape, what
        assert one.dtype == other.dtype, what
        if other.dtype.kind != "f":
            np.testing.assert_array_equal(one, other, what)
            continue
        tolerance = (1e-5 if other.dtype.itemsize == 4 else 1e-12) * factor
        finite = np.abs(other[np.isfinite(other)])
        np.testing.assert_allclose(one, other, tolerance, tolerance * max(1.0, finite.max(initial=0.0)), err_msg=what)


SUPPORTED = {**elements.entered(), **views.entered(), **statements.entered()}


def samples_in_c() -> list[tuple[Any, list[Any]]]:
    """The samples of what has a form in C, whose dtypes have one too, by primitive."""
    found = []
    for primitive, samples in all_samples().items():
        if primitive not in SUPPORTED and primitive.regions is None:
            continue
        kept = []
        for sample in samples:
            args = sample.args()
            if all(np.asarray(arg).dtype.name in TYPES for arg in args):
                try:
                    outs = primitive.abstract(*(fxgrad.engine.core.avals.Aval(np.shape(arg), np.asarray(arg).dtype)
                                                for arg in args), **sample.params)
                except fxgrad.errors.FxgradError:
                    continue
                if all(out.dtype.name in TYPES for out in outs):
                    kept.append((sample, args))
        found.append((primitive, kept))
    return found


def applied(primitive: Any, params: Sequence[Any]) -> Callable[..., list[Any]]:
    """A function that applies a primitive to each of its arguments, with the parameters of each."""
    def every(*args: Any) -> list[Any]:
        return [bind(primitive, *xs, **each) for each, xs in zip(params, args, strict=True)]
    return every


def is_refused(primitive: Any, samples: Sequence[Any]) -> bool:
    try:
        fxgrad.make_program(applied(primitive, [sample.params for sample, _ in samples]))(
            *(args for _, args in samples)).to_c()
    except UnsupportedError:
        return True
    return False


@needs_compiler
@pytest.mark.slow
def test_every_sample_of_what_is_supported(tmp_path: Path) -> None:
    """One file for each primitive, with all its samples in one function, and one call of the compiler."""
    programs, given, refused = [], [], set()
    for primitive, samples in samples_in_c():
        kept = samples
        if is_refused(primitive, samples):
            kept = [each for each in samples if not is_refused(primitive, [each])]
        if len(kept) < len(samples):
            refused.add(primitive.name)
        if kept:
            arguments = [args for _, args in kept]
            programs.append(fxgrad.make_program(applied(primitive, [sample.params for sample, _ in kept]))(*arguments))
            given.append((primitive, [sample for sample, _ in kept], arguments))
    # Solvers; products in another dtype than their operands', and bits
    # as those of a dtype of another size; arrays that are sorted together.
    assert refused == {"custom_root", "custom_linear_solve", "dot_general", "bitcast_convert_type", "sort"}
    count = 0
    for function, program, (primitive, samples, arguments) in zip(
            compiled(programs, tmp_path), programs, given, strict=True):
        found = iter(function(*arguments))
        for sample, wanted in zip(samples, program(*arguments), strict=True):
            count += 1
            assert_close([next(found) for _ in wanted], wanted, f"{primitive}: {sample}", sample.tolerance)
    assert count > 1500


RNG = np.random.default_rng(0)
# Shapes of both operands, and the product of them: rows and columns, vectors, batches, transposed, of sizes 1 and 0.
PRODUCTS: list[tuple[tuple[int, ...], tuple[int, ...], Any]] = [
    ((4, 3), (3, 5), lambda x, y: x @ y), ((4, 3), (5, 3), lambda x, y: x @ y.T),
    ((3, 4), (3, 5), lambda x, y: x.T @ y),
    ((3, 4), (5, 3), lambda x, y: x.T @ y.T), ((4, 3), (3,), lambda x, y: x @ y), ((3,), (3, 5), lambda x, y: x @ y),
    ((3,), (3,), lambda x, y: x @ y), ((2, 4, 3), (2, 3, 5), lambda x, y: x @ y),
    ((2, 4, 3), (3, 5), lambda x, y: x @ y),
    ((4, 3), (2, 3, 5), lambda x, y: x @ y), ((4, 1), (1, 5), lambda x, y: x @ y), ((4, 3), (3, 1), lambda x, y: x @ y),
    ((1, 3), (3, 5), lambda x, y: x @ y), ((4, 0), (0, 5), lambda x, y: x @ y), ((1, 1), (1, 2), lambda x, y: x @ y),
    ((4, 3, 2), (3, 2, 5), lambda x, y: np.tensordot(x, y, 2)), ((4, 3), (3, 5, 2), lambda x, y: np.tensordot(x, y, 1)),
    ((4, 3), (3, 5), lambda x, y: np.maximum(x, x) @ np.minimum(y, y)),
    ((4, 3), (15,), lambda x, y: x @ y.reshape(3, 5))]


def in_order(product: Any, x: Any, y: Any) -> Any:
    """A product whose sums are taken one after the other, each of them rounded, as Python's objects are added."""
    with np.errstate(all="ignore"):
        scalars = [np.array([*value.ravel(), None], object)[:-1].reshape(value.shape) for value in (x, y)]
        return np.asarray(product(*scalars)).astype(x.dtype)  # of bools whether any pair is True


@needs_compiler
@pytest.mark.slow
def test_products_are_sums_in_order_to_the_bit(tmp_path: Path) -> None:
    """Whatever the loops are, and whatever arguments are called, also as variables of the loops would be."""
    def named(function: Any) -> Any:
        return lambda total, factor: function(total, factor)

    cases = [(function, (RNG.normal(size=first) * 3).astype(dtype), (RNG.normal(size=second) * 3).astype(dtype))
             for dtype in ("float64", "float32", "int32", "int64", "int8", "uint8", "bool")
             for first, second, function in PRODUCTS]
    programs = [fxgrad.make_program(named(function))(x, y) for function, x, y in cases]
    assert len(programs) == 133
    for run, (function, x, y) in zip(compiled(programs, tmp_path), cases, strict=True):
        np.testing.assert_array_equal(run(x, y)[0], in_order(function, x, y), strict=True)



@needs_compiler
def test_arguments_may_be_called_as_variables_of_loops_are(tmp_path: Path) -> None:
    def sums(total: Any, best: Any, step: Any, at_i: Any) -> Any:
        return (np.sum(total, axis=0), np.argmax(best, axis=1), np.cumsum(step, axis=0),
                lax.dynamic_update_slice(at_i, total[:1], (1, 1)))

    args = tuple(RNG.normal(size=(4, 4, 3)[:2] if place < 3 else (5, 6)) for place in range(4))
    program = fxgrad.make_program(sums)(*args)
    run, = compiled([program], tmp_path)
    for found, wanted in zip(run(*args), program(*args), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-14)


# --- programs ---------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 3))
PARAMS = {"w": RNG.normal(size=(3, 4)), "b": RNG.normal(size=4), "v": RNG.normal(size=(4, 2))}
LABELS = np.array([0, 1, 1, 0, 1], np.int32)
KERNEL = np.array([0.5, -1.0, np.nan, np.inf, -0.0, 1 / 3])


def network(params: Any, x: Any) -> Any:
    hidden = np.tanh(x @ params["w"] + params["b"])
    return fxgrad.nn.log_softmax(hidden @ params["v"])


def cross_entropy(params: Any, x: Any, labels: Any) -> Any:
    return -np.mean(np.take_along_axis(network(params, x), labels[:, None], axis=1))


def train_step(state: Any, x: Any, labels: Any) -> Any:
    """A step of Adam."""
    params, first, second, count = state
    loss, slopes = fxgrad.value_and_grad(cross_entropy)(params, x, labels)
    first = fxgrad.tree.map(lambda m, d: 0.9 * m + 0.1 * d, first, slopes)
    second = fxgrad.tree.map(lambda v, d: 0.99 * v + 0.01 * d * d, second, slopes)
    scale = np.sqrt(1 - 0.99 ** (count + 1)) / (1 - 0.9 ** (count + 1))
    params = fxgrad.tree.map(lambda p, m, v: p - 0.1 * scale * m / (np.sqrt(v) + 1e-8), params, first, second)
    return loss, (params, first, second, count + 1)


def attention(weights: Any, x: Any) -> Any:
    q, k, v = np.split(x @ weights, 3, axis=-1)
    scores = np.where(np.tri(5, dtype=bool), q @ k.T / np.sqrt(2.0), -np.inf)
    return fxgrad.nn.softmax(scores) @ v


def recurrent(w: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = np.tanh(w @ h + x)
        return h, np.sum(h)
    last, sums = lax.scan(step, np.zeros(3), xs)
    return np.sum(last) + np.sum(sums ** 2)


def newton(x: Any) -> Any:
    return lax.while_loop(lambda s: np.abs(s * s - x) > 1e-12, lambda s: 0.5 * (s + x / s), x)


def until_small(x: Any, n: Any) -> Any:
    total = 0.0
    for k in range(n):
        x = np.cos(x) * 0.99
        if np.sum(x) > 100.0:
            break
        total = total + np.sum(x * x) / (k + 1)
    for _ in range(n // 2):
        x = np.sin(x)
    return total + np.sum(x)


def chosen(number: Any, x: Any) -> Any:
    return lax.switch(number, [np.sin, np.cos, lambda y: y * y], x), lax.cond(number > 0, np.exp, np.tanh, x)


def twice_and_all(x: Any) -> Any:
    y = np.sin(x)
    return {"argument": x, "once": y, "again": y, "number": 2.5, "sorted": [x[::-1, 1:], np.max(y, axis=1)]}


def hard_names(double: Any, sin: Any, i: Any, total: Any, workspace: Any) -> Any:
    short = np.sin(double) * sin
    return np.sum(short + i) * total - workspace


def strlen(M_PI: Any, FP_ZERO: Any, asm: Any, STRLEN_1_WORKSPACE: Any) -> Any:
    @fxgrad.jit
    def memset(UINT8_MAX: Any) -> Any:
        return UINT8_MAX * M_PI + FP_ZERO

    HUGE_VAL = memset(asm)
    return np.sum(HUGE_VAL) * HUGE_VAL - STRLEN_1_WORKSPACE


def chunked(x: Any, at: Any) -> Any:
    part = lax.dynamic_slice(x, (at, 0), (2, 3))
    return lax.dynamic_update_slice(x, part * 2.0, (0, 0)), x.at[np.array([0, 0, 3])].add(part[0])


STATE = PARAMS, *(fxgrad.tree.map(np.zeros_like, PARAMS) for _ in range(2)), 0.0
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "network": (network, (PARAMS, X)),
    "network of float32": (network, fxgrad.tree.map(np.float32, (PARAMS, X))),
    "gradient": (fxgrad.grad(cross_entropy), (PARAMS, X, LABELS)),
    "gradient of float32": (fxgrad.grad(cross_entropy), (*fxgrad.tree.map(np.float32, (PARAMS, X)), LABELS)),
    "step of training": (train_step, (STATE, X, LABELS)),
    "gradients of examples": (fxgrad.vmap(fxgrad.grad(cross_entropy), (None, 0, 0)), (
        PARAMS, X[:, None], LABELS[:, None])),
    "hessian": (fxgrad.hessian(lambda w: np.sum(np.log1p(np.exp(X @ w)))), (RNG.normal(size=3),)),
    "attention": (attention, (RNG.normal(size=(3, 6)), X)),
    "gradient of attention": (fxgrad.grad(lambda w, x: attention(w, x).sum()), (RNG.normal(size=(3, 6)), X)),
    "recurrent": (recurrent, (RNG.normal(size=(3, 3)), X)),
    "gradient of a loop": (fxgrad.grad(recurrent, argnums=(0, 1)), (RNG.normal(size=(3, 3)), X)),
    "while": (newton, (2.0,)),
    "loops of traced length": (fxgrad.python_control_flow(until_small), (X[0], 9)),
    "gradient of loops of traced length": (fxgrad.grad(fxgrad.python_control_flow(until_small)), (X[0], 300)),
    "gradient of loops without a turn": (fxgrad.grad(fxgrad.python_control_flow(until_small)), (X[0], np.int32(-1))),
    "hessian of loops of traced length": (fxgrad.hessian(fxgrad.python_control_flow(until_small)), (X[0], 9)),
    "conditions": (lambda x, y: [~(x > 1) & (y > 0), ~((x > 1) | (y > x)), (x > y) ^ ~(y > 1)], (X, X + 0.1)),
    "switch": (chosen, (1, X)),
    "results": (twice_and_all, (X,)),
    "names": (hard_names, (X, X, 1.0, 2.0, 3.0)),
    "names of the library": (strlen, (X, X, X + 1.0, 3.0)),
    "indexing": (chunked, (X, 2)),
    "gradient of indexing": (fxgrad.grad(lambda x: sum(np.sum(np.sin(y)) for y in chunked(x, 1))), (X,)),
    "constants": (lambda x: np.where(np.isnan(KERNEL), x, KERNEL * x), (np.ones(6),)),
    "integers": (lambda x, y: [fnp.floor_divide(x, y), fnp.remainder(x, y), x << 3, fnp.cumsum(x), x > y], (
        np.array([7, -7, 2 ** 31 - 1, -2 ** 31], np.int32), np.array([2, 2, -3, 5], np.int32))),
    "jit": (fxgrad.jit(lambda x: fxgrad.nn.softmax(fxgrad.nn.softmax(x))), (X,)),
    "empty": (lambda x: [np.sum(x, axis=0), x + 1.0, np.concatenate([x, X])], (np.zeros((0, 3)),)),
    "nothing times a constant": (lambda x: x @ KERNEL.reshape(3, -1), (np.zeros((0, 3)),)),
    "layer norm": (fxgrad.grad(lambda x: (fxgrad.nn.layer_norm(x) ** 3).sum()), (X,)),
}


def test_a_table_that_several_sweeps_use_stands_in_a_file_once() -> None:
    text = fxgrad.make_program(fxgrad.grad(fxgrad.python_control_flow(until_small)))(X[0], 9).to_c()
    assert text.count("static const int32_t table") == 1
    assert text.count("(int32_t)") >= 2


@needs_compiler
@pytest.mark.slow
def test_programs_gradients_and_steps_of_training(tmp_path: Path) -> None:
    programs = [fxgrad.make_program(function)(*args) for function, args in PROGRAMS.values()]
    for function, program, (name, (_, args)) in zip(compiled(programs, tmp_path), programs, PROGRAMS.items(),
                                                    strict=True):
        wanted = fxgrad.tree.leaves(program(*args))
        assert_close(function(*args), wanted, name)
        for one, other in zip(function(*args), function(*args), strict=True):
            np.testing.assert_array_equal(one, other)  # nothing is left over in the work space


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, 1.5, 2.5, -0.5, 5e-324, 1.7e308, -3.7])


@needs_compiler
@pytest.mark.slow
def test_arrays_are_sorted_as_by_numpy(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(4, 5, 3))
    x[0, ::2], x[1, 1], x[2, 3] = np.nan, np.inf, -0.0

    def f(x: Any, n: Any, flags: Any) -> Any:
        return (np.sort(x, axis=0), np.sort(x, axis=1), np.sort(x.astype("float32")), np.median(n), np.sort(n)[::-1],
                np.sort(flags), np.percentile(x[3], 30.0, axis=0), np.sort(x[:, :0], axis=1))

    args = x, np.array([5, -2, 7, 7, 0]), np.array([True, False, True])
    program = fxgrad.make_program(f)(*args)
    found = compiled([program], tmp_path)[0](*args)
    assert_close(found, program(*args))
    np.testing.assert_array_equal(found[0], np.sort(x, axis=0))
    np.testing.assert_array_equal(found[1], np.sort(x, axis=1))


@needs_compiler
@pytest.mark.slow
def test_special_numbers(tmp_path: Path) -> None:
    """NaNs, infinities, signs of zeros, ties, integers that overflow: to the bit."""
    whole = np.array([0, 1, -1, 7, -8, 31, 32, 2 ** 31 - 1, -2 ** 31], np.int32)

    small = np.array([0, 1, -1, 7, -8, 31, 127, -127, -128], np.int8)

    def floats(x: Any, y: Any) -> Any:
        return [np.maximum(x, y), np.minimum(x, y), np.max(x[:2]), np.min(y), np.sign(x), np.abs(x), -x, np.rint(x),
                np.floor(x), np.argmax(x), np.argmin(y[1:]), np.argmax(x[5:8] * 0.0), x + y, x * y, x / y,
                np.fmod(x, y), np.sqrt(x), np.isfinite(x), x == y, x <= y, np.where(x > y, x, y), np.clip(x, -1.0, 1.0),
                x.astype(np.int32), x.astype(np.int64), x.astype(bool), x.astype(np.float32), x ** 3,
                np.copysign(1.0, x)]

    def integers(x: Any, y: Any) -> Any:
        return [x + y, x - y, x * y, -x, abs(x), lax.div(x, y), lax.rem(x, y), x << y, x >> y,
                lax.shift_right_logical(x, y), x & y, x | y, x ^ y, ~x, np.maximum(x, y),
                *([] if x.dtype == np.uint8 else [np.prod(x), np.cumsum(x)]),  # which are of uint64
                x.astype(np.float32), np.sign(x), np.max(x), np.argmax(y)]

    def naturals(x: Any, y: Any) -> Any:
        return [*integers(x, y), x.astype(np.float32).astype(np.uint8), lax.bitcast_convert_type(x, np.int8)]

    natural = np.array([0, 1, 2, 7, 8, 31, 127, 128, 254, 255], np.uint8)
    pairs = [value.ravel() for value in np.meshgrid(SPECIAL, SPECIAL)]
    numbers = [value.ravel() for value in np.meshgrid(whole, whole)]
    with np.errstate(all="ignore"):
        given = [(floats, pairs), (floats, [value.astype(np.float32) for value in pairs]), (integers, numbers),
                 (integers, [value.astype(np.int64) for value in numbers]),
                 (integers, [value.ravel() for value in np.meshgrid(small, small)]),
                 (naturals, [value.ravel() for value in np.meshgrid(natural, natural)])]
        programs = [fxgrad.make_program(function)(*args) for function, args in given]
        for function, program, (_, args) in zip(compiled(programs, tmp_path), programs, given, strict=True):
            for place, (found, wanted) in enumerate(zip(function(*args), program(*args), strict=True)):
                np.testing.assert_array_equal(found, wanted, f"result {place}")
                if found.dtype.kind == "f" and place not in (0, 1, 20):  # which zero a maximum takes is not said
                    zero = wanted == 0
                    np.testing.assert_array_equal(np.signbit(found)[zero], np.signbit(wanted)[zero], f"result {place}")


@needs_compiler
@pytest.mark.slow
def test_the_file_leaves_memory_alone_that_is_not_its_own(tmp_path: Path) -> None:
    """Under the sanitizers of the compiler, where it has them, nothing is found."""
    names = ["gradient", "recurrent", "indexing", "integers", "step of training"]
    main = []
    for name in names:
        function, args = PROGRAMS[name]
        program = fxgrad.make_program(function)(*args)
        main.append((program.to_c(), program, args))
    for number, (text, program, args) in enumerate(main):
        head = re.search(r"^void (\w+)\(", text, re.MULTILINE)
        assert head is not None
        call = []
        for leaf in fxgrad.tree.leaves(args):
            array = np.asarray(leaf)
            call.append(repr(array[()].item()) if not array.shape else
                        f"({TYPES[array.dtype.name]}[]){{{', '.join(map(repr, array.ravel().tolist()))}}}")
        call += [f"malloc({max(atom.aval.nbytes, 1)})" for atom in program.outputs]
        path = tmp_path / f"main_{number}.c"
        path.write_text(f"#include <stdlib.h>\n{text}\nint main(void)\n{{\n    {head[1]}({', '.join(call)}, "
                        f"malloc({head[1].upper()}_WORKSPACE + 1));\n    return 0;\n}}\n", encoding="ascii")
        assert COMPILER is not None
        made = subprocess.run([COMPILER, "-g", "-std=c99", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
                               str(path), "-o", str(tmp_path / "main"), "-lm"], capture_output=True, text=True,
                              check=False)
        if made.returncode and "sanitize" in made.stderr:
            pytest.skip("the compiler has no sanitizers")
        assert made.returncode == 0, made.stderr
        ran = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=False,
                             env={"ASAN_OPTIONS": "detect_leaks=0"})
        assert ran.returncode == 0, ran.stderr[:3000]


# --- the text ---------------------------------------------------------------------------------------------------


def test_what_a_file_looks_like() -> None:
    def loss(w: Any, x: Any) -> Any:
        h = np.tanh(x @ w)
        return np.sum(h * h)

    text = fxgrad.make_program(fxgrad.grad(loss))(np.ones(2), np.ones((3, 2))).to_c()
    text = re.sub(r"test_to_c.py:\d+", "FILE", text)
    assert "void grad_loss(const double *w, const double *x, double *d_w, char *workspace)" in text
    assert "/* FILE  h = np.tanh(x @ w) */" in text
    assert " *   d_w  fills double[2]  result" in text


def test_places_are_computed_and_checked_where_they_must_be() -> None:
    def body(function: Any, x: Any) -> str:
        return fxgrad.make_program(function)(x).to_c(source=False).rpartition("{\n")[2]

    def padded(high: int) -> str:
        return body(lambda x: lax.pad(x, 0.0, [(1, high, 1)]), np.ones(3))

    assert "a[i] = i - 1 >= 0 && (i - 1) % 2 == 0 ? x[(i - 1) / 2] : 0.0;" in padded(0)
    assert "a[i] = i - 1 >= 0 && i - 1 < 5 && (i - 1) % 2 == 0 ? x[(i - 1) / 2] : 0.0;" in padded(2)
    for shape, row, result in (((4, 3), "m_1 + step * 3", "c + step * 3"), ((4, 1), "m_1 + step", "c + step")):
        text = body(lambda m: lax.scan(lambda c, r: (c + np.sum(r), r * c), 0.0, m), np.ones(shape))
        assert f"body(*b, {row}, &b_next, {result}, workspace + 0);" in text


def test_constants_stand_in_lines_of_one_margin() -> None:
    table = np.linspace(0.1, 0.9, 30)
    text = fxgrad.make_program(lambda x: x * table)(np.ones(30)).to_c()
    lines = re.search(r"static const double table\[30\] = \{\n(.*?)\n\};", text, re.DOTALL)
    assert lines is not None
    assert len(lines[1].split("\n")) == 8
    assert all(re.match(r" {4}0x", line) and len(line) <= 100 for line in lines[1].split("\n"))
    assert [float.fromhex(number) for number in lines[1].split(", ")[:1]] == [0.1]


def test_constants_and_helpers_that_only_comments_name_are_left_out() -> None:
    """Compilers warn of them. The constant that is not read has the letter of a name in the user's line."""
    inputs, targets = np.ones((5, 3)), np.zeros((5, 3))

    def curvature(sign_f64: Any) -> Any:
        return fxgrad.jvp(fxgrad.grad(lambda b: np.sum((inputs * b - targets) ** 2)), (sign_f64,), (sign_f64,))[1]

    text = fxgrad.make_program(lambda x: curvature(x))(np.ones(3)).to_c()
    assert "lambda b: np.sum(" in text
    assert re.findall(r"static (\w+ \w+ \w+)", text) == ["const double a"]


def test_arrays_that_are_not_alive_together_share_their_place() -> None:
    def chain(x: Any) -> Any:
        for _ in range(20):
            x = np.cumsum(np.sin(x))
        return x

    text = fxgrad.make_program(chain)(np.ones(100)).to_c()
    assert "#define CHAIN_WORKSPACE 1600" in text  # two arrays of 100 numbers


def test_numbers_are_exact() -> None:
    table = np.array([1 / 3, 5e-324, -0.0])
    text = fxgrad.make_program(lambda x: x * table + 0.1)(np.ones(3)).to_c()
    assert "{\n    0x1.5555555555555p-2, 0x0.0000000000001p-1022, -0x0.0p+0\n}" in text
    assert " + 0.1;" in text
    text = fxgrad.make_program(lambda x: x + 16777217.0 - 0.1)(np.float32(1)).to_c(source=False)
    assert f"x + {np.float32(16777216)!s}f) - 0.1f;" in text  # 1.6777216e+07, or as older versions of NumPy print it


ADVICE = "Leave it out of the function, or write the program as a NumPy file, program.to_python()\n  at FILE (in "
REFUSED: list[tuple[Any, Any, str]] = [
    (lambda x: np.argsort(x), (X,), (
        f"to_c: sort is an operation which is written in C for one array at a time. {ADVICE}<lambda>)")),
    (lambda x: x * 2, (np.ones(3, np.uint16),), (
        "to_c: an argument is of dtype uint16, where a C file has float64, float32, int64, int32, int8, uint8, bool. "
        "Convert it first")),
    (lambda x: x.astype(np.float16), (X,), (
        "to_c: convert_element_type is an operation of dtype float16, where a C file has float64, float32, int64, "
        f"int32, int8, uint8, bool. {ADVICE}<lambda>)"))]


@pytest.mark.parametrize(("function", "args", "message"), REFUSED)
def test_what_is_not_written_in_c_is_said(function: Any, args: Any, message: str) -> None:
    program = fxgrad.make_program(function)(*args)
    with pytest.raises(UnsupportedError) as caught:
        program.to_c()
    text = re.sub(r"\w+.py:\d+", "FILE", str(caught.value))
    assert text.partition("\n  at FILE (in test")[0] == message


def test_the_page_has_the_table_of_primitives() -> None:
    from tools import c_files, pages

    assert pages.has(c_files.PAGE, "primitives", c_files.table()), "write it again: python tools/c_files.py"


def test_a_file_is_of_sizes_that_are_numbers() -> None:
    program = fxgrad.make_program(lambda x: np.sum(np.sin(x)))(fxgrad.symbolic_spec(("n", 3), np.float64))
    with pytest.raises(fxgrad.errors.ArgumentError, match=re.escape(
            "to_c: x is f64[n,3], and every size must be a number there. Give an array, or a type such as ")):
        program.to_c()
