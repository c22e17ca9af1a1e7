"""`memory`: closed forms, laws that hold of any program, what is saved, growth, and XLA's own plan."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import re
import subprocess
import sys
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from rich.console import Console

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import P, lax, nn
from fxgrad.engine.analyses import flow
from fxgrad.engine.tracing.tape import bind
from fxgrad.errors import ArgumentError, UnsupportedError
from fxgrad.tools.profiling.report import Memory
from tests.samples import all_samples

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tools")]
from xrays.programs import PROGRAMS, block, block_params, f32, layers, mlp_loss  # noqa: E402  (the path is set first)


def loss(w: Any, v: Any, x: Any) -> Any:
    h = np.tanh(x @ w)
    return np.mean((h @ v) ** 2)


TYPES = (f32(64, 256), f32(256, 8), f32(1000, 64))
SOME = ("elementwise chain, gradient", "MLP, gradient", "softmax cross-entropy, gradient", "convolutions, gradient",
        "transformer block, gradient", "RNN in a scan, gradient", "a branch, gradient", "Gaussian process, value")


def test_a_gradient_in_closed_form() -> None:
    found = fxgrad.memory_analysis(fxgrad.grad(loss, argnums=(0, 1)))(*TYPES)
    h = 4 * 1000 * 256
    assert found.arguments == 4 * (64 * 256 + 256 * 8 + 1000 * 64)
    assert found.unfused.results == found.fused.results == 4 * (64 * 256 + 256 * 8)
    kept = [each for each in found.saved if not each.is_argument]
    assert [(each.name, each.nbytes) for each in kept] == [("h", h), ("a", h), ("b", 4 * 1000 * 8)]
    assert kept[0].made_at.startswith("tanh test_memory.py:")
    assert kept[0].used_by[0].startswith("dot_general test_memory.py:")
    assert found.saved_bytes == 2 * h + 32000
    assert found.peak.point.part == "backward"
    assert found.peak.point.nbytes == 2 * h + 32000 + 4 * 256 * 8  # the gradient of v, at the peak
    assert set(found.unfused.parts) == {"forward", "backward"}


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
def test_holders_are_the_peak_and_the_timeline_ends_with_the_results(name: str) -> None:
    case = PROGRAMS[name]
    found = fxgrad.memory_analysis(case.function)(*case.args)
    for view in (found.unfused, found.fused):
        assert sum(each.nbytes for each in view.holders) == view.peak.nbytes
        assert max(point.nbytes for point in view.timeline) == view.peak.point.nbytes
        assert view.peak.nbytes == view.peak.point.nbytes + found.arguments + found.constants
        assert view.timeline[view.peak.point.number] == view.peak.point
        assert view.temporary >= 0
        assert view.timeline[-1].nbytes >= view.results
        assert {each.role for each in view.holders} <= {"argument", "constant", "result", "saved", "temporary",
                                                         "work space"}
    out = fxgrad.eval_shape(case.function, *case.args)
    assert found.unfused.results == sum(leaf.size * leaf.dtype.itemsize for leaf in fxgrad.tree.leaves(out))


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 120])
def test_it_prints_as_tables(width: int) -> None:
    found = fxgrad.memory_analysis(fxgrad.grad(mlp_loss))(layers(*[64] * 20, 10), f32(32, 64), f32(32, 10))
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(found)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for part in ("unfused", "fused", "peak", "held at the peak", "saved for the backward pass", " more"):
        assert part in text
    assert set(found.bars(30)) <= set("▁▂▃▄▅▆▇█")
    assert len(found.bars(30)) == 30
    assert "memory of grad(mlp_loss)" in str(found)


def test_json_has_everything() -> None:
    found = fxgrad.memory_analysis(fxgrad.grad(loss))(*TYPES)
    read = json.loads(found.to_json())
    assert read["arguments"] == found.arguments
    for name, view in (("unfused", found.unfused), ("fused", found.fused)):
        assert read[name]["temporary"] == view.temporary
        assert [point["nbytes"] for point in read[name]["timeline"]] == [point.nbytes for point in view.timeline]
        assert [each["name"] for each in read[name]["peak"]["holders"]] == [each.name for each in view.holders]
    assert read["saved"][0]["aval"] == "f32[1000,256]"


@pytest.mark.slow
def test_it_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = fxgrad.memory_analysis(fxgrad.grad(loss))(*TYPES)
    assert found.draw(tmp_path / "memory.svg").read_text().count("<svg") == 1
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UnsupportedError, match=re.escape(
            "memory.draw needs matplotlib, which is not installed. Write pip install matplotlib, or print the object, "
            "which shows the same as bars")):
        found.draw(tmp_path / "memory.png")


# --- what is saved --------------------------------------------------------------------------------------------


def test_row_m1_what_is_saved_are_the_residuals() -> None:
    """Of a function those that reverse mode keeps; a gradient reads the same bytes."""
    x, w = np.ones((50, 20)), np.ones((20, 30))

    def residual(w: Any, x: Any) -> Any:
        h = np.sin(x @ w)
        return np.sum(h * np.exp(h))
    for function, args in ((residual, (w, x)), (loss, TYPES), (mlp_loss, (layers(8, 16, 4), f32(5, 8), f32(5, 4)))):
        found = fxgrad.memory_analysis(function)(*args).saved
        arrays = fxgrad.tree.map(lambda struct: np.ones(struct.shape, struct.dtype), args)
        expected = fxgrad.saved_residuals(function, *arrays)
        assert Counter((each.aval, each.nbytes) for each in found) == Counter(
            (each.aval, each.nbytes) for each in expected)
        kept = sum(each.nbytes for each in found if not each.is_argument)
        everywhere = tuple(range(len(args)))
        joint = fxgrad.memory_analysis(fxgrad.grad(function, argnums=everywhere))(*args)
        assert joint.saved_bytes == kept


def test_checkpoint_saves_less_unfused_and_fused() -> None:
    def deep(x: Any, step: Any) -> Any:
        for _ in range(6):
            x = step(x)
        return fnp.sum(x)

    def step(x: Any) -> Any:
        return fnp.sin(fnp.exp(fnp.sin(x)))
    plain, kept = (fxgrad.memory_analysis(fxgrad.grad(lambda x, f=function: deep(x, f)))(f32(100, 100))
                   for function in (step, fxgrad.checkpoint(step)))
    assert kept.temporary < 0.6 * plain.temporary
    products = fxgrad.checkpoint(lambda x: fnp.tanh(fnp.tanh(x @ x) @ x))
    plain, kept = (fxgrad.memory_analysis(fxgrad.grad(lambda x, f=function: deep(x, f)))(f32(100, 100))
                   for function in (products.__wrapped__, products))
    assert kept.fused.temporary < 0.75 * plain.fused.temporary


def test_a_function_without_a_derivative_saves_nothing() -> None:
    assert fxgrad.memory_analysis(lambda x: x > 0)(f32(3)).saved == ()
    assert fxgrad.memory_analysis(lambda n: n + 1)(fxgrad.ShapeDtypeStruct((3,), np.int32)).saved == ()


def test_results_that_are_live_at_the_peak_are_not_temporary() -> None:
    found = fxgrad.memory_analysis(lambda x: (x * 2.0, fnp.sum(fnp.exp(x) * fnp.sin(x))))(np.ones(128))
    assert [(each.role, each.nbytes) for each in found.unfused.holders] == [
        ("argument", 1024), ("result", 1024), ("temporary", 1024), ("temporary", 1024)]
    assert (found.unfused.peak.nbytes, found.unfused.temporary, found.unfused.results) == (4096, 2048, 1032)
    held, = re.findall(r"held at the peak, unfused.*?└", str(found), re.DOTALL)
    assert re.findall(r"\d+%", held) == ["25%"] * 4
    assert fxgrad.memory_analysis(lambda x: x * 2.0)(np.ones(128)).unfused.temporary == 0


def doubled(x: Any) -> Any:
    return fnp.multiply(x, 2.0)


def raised(x: Any) -> Any:
    return fnp.add(x, 2.0)


def test_functions_that_are_alike_have_lines_of_their_own() -> None:
    found = fxgrad.memory_analysis(lambda x: raised(doubled(x)))(np.ones(128))
    assert [point.line for point in found.unfused.timeline] == [
        f"test_memory.py:{function.__code__.co_firstlineno + 1}" for function in (doubled, raised)]


# --- programs within programs ---------------------------------------------------------------------------------


def test_calls_are_opened_and_named_by_their_own_variables() -> None:
    inner = fxgrad.jit(lambda x: np.tanh(np.exp(x) * 2.0))
    found = fxgrad.memory_analysis(fxgrad.jit(lambda x: np.sum(inner(x))))(f32(8192))
    assert [point.operation for point in found.timeline] == ["exp", "mul", "tanh", "reduce_sum"]
    assert found.peak.point.nbytes == 4 * 8192 + 4
    assert found.fused.temporary == 0


def test_a_loop_needs_what_it_carries_and_the_most_of_a_step() -> None:
    def looped(x: Any) -> Any:
        return lax.fori_loop(0, 10, lambda _, c: fnp.exp(c) @ fnp.sin(c), x)
    found = fxgrad.memory_analysis(looped)(f32(50, 50))
    assert found.peak.point.nbytes == 10_000 + 3 * 10_000  # what comes out; both operands and the product
    assert [each.role for each in found.holders].count("work space") == 1


def test_of_branches_the_one_counts_that_needs_most() -> None:
    def chosen(flag: Any, x: Any) -> Any:
        return lax.cond(flag, lambda x: fnp.sum(x @ x), lambda x: fnp.sum(x), x)
    found = fxgrad.memory_analysis(chosen)(fxgrad.ShapeDtypeStruct((), np.bool_), f32(100, 100))
    assert 40_000 <= found.peak.point.nbytes <= 40_016


def test_custom_rules_and_batches_are_opened() -> None:
    @fxgrad.custom_jvp
    def twice(x: Any) -> Any:
        return fnp.exp(x) * 2.0
    twice.defjvp(lambda primals, tangents: (twice(*primals), tangents[0]))
    assert fxgrad.memory_analysis(twice)(f32(10)).peak.point.nbytes == 40
    assert fxgrad.memory_analysis(fxgrad.vmap(twice))(f32(10, 2)).unfused.results == 80


def test_bytes_of_shard_map_are_those_of_one_device() -> None:
    mesh = AbstractMesh((4,), ("data",))
    mapped = fxgrad.shard_map(lambda x: fnp.exp(x) * 2.0, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
    found = fxgrad.memory_analysis(mapped)(f32(400, 10))
    assert (found.arguments, found.unfused.results) == (4000, 4000)
    assert found.fused.peak.point.nbytes == 4000


@pytest.mark.slow
def test_many_calls_within_calls_are_steps_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "LIMIT", 1000)

    def nested(depth: int) -> Any:
        if not depth:
            return fxgrad.jit(fnp.sin)
        inner = nested(depth - 1)
        return fxgrad.jit(lambda x: inner(inner(x)))
    found = fxgrad.memory_analysis(nested(40))(f32(100))
    assert found.unfused.results == 400
    assert found.peak.point.nbytes <= 400 * 41  # one at each depth


# --- any arguments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("argument", "size"), [
    (1.0, 8), (np.ones(()), 8), (np.ones((0, 3)), 0), (np.ones(3, np.complex64), 24), (np.ones(5, bool), 5),
    (fxgrad.ShapeDtypeStruct((4,), jax.numpy.bfloat16), 8), ({"a": [np.ones(2)], "b": {"c": np.ones(3)}}, 40),
    (fxgrad.random.key(0), 8)])
def test_arguments_of_every_kind(argument: Any, size: int) -> None:
    found = fxgrad.memory_analysis(lambda x: x)(argument)
    assert (found.arguments, found.unfused.results, found.temporary) == (size, size, 0)
    assert isinstance(str(found), str)
    json.loads(found.to_json())


def test_programs_keywords_constants_and_static_arguments() -> None:
    data = np.ones(100)

    def scaled(x: Any, mode: str, *, by: Any) -> Any:
        return x * by + data if mode == "plus" else x
    found = fxgrad.memory_analysis(scaled, static_argnums=1)(np.ones(100), "plus", by=2.0)
    assert (found.arguments, found.constants, found.unfused.results) == (808, 800, 800)
    assert "constant" in [each.role for each in found.holders]
    assert [each.nbytes for each in found.saved] == [800, 8]  # the factors of the product
    program = fxgrad.make_program(loss)(*TYPES)
    assert isinstance(fxgrad.memory_analysis(program)(), Memory)
    assert fxgrad.memory_analysis(program)().peak.nbytes == fxgrad.memory_analysis(loss)(*TYPES).peak.nbytes


@pytest.mark.slow
def test_every_primitive_and_its_derivative_can_be_looked_at() -> None:
    """The laws of holders and peaks, on the first sample of each."""
    broken = []
    for primitive, samples in all_samples().items():
        sample = next(iter(samples))

        def call(*args: Any, primitive: Any = primitive, params: Any = sample.params) -> Any:
            return bind(primitive, *args, **params)
        for function in (call, lambda *args, call=call: fxgrad.vjp(call, *args)[0]):
            try:
                program = fxgrad.make_program(function)(*sample.args())
            except Exception:  # noqa: BLE001  (the sample is for inside of another, or has no derivative)
                continue
            found = fxgrad.memory_analysis(program)()
            broken += [(primitive.name, view.way) for view in (found.unfused, found.fused) if view.temporary < 0
                       or sum(each.nbytes for each in view.holders) != view.peak.nbytes]
            assert all(each.made_at for each in found.saved)
    assert broken == []


def test_messages() -> None:
    with pytest.raises(ArgumentError,
                       match=r"memory_analysis takes a function, got a int\. Write memory_analysis\(f\)\(x\), not "):
        fxgrad.memory_analysis(3)  # type: ignore[arg-type]
    message = ("memory_analysis: w is a str, where an array or a number is needed. Pass it by closure "
               "(functools.partial), or leave it out of the arguments that are transformed\n  at test_memory.py:")
    with pytest.raises(ArgumentError, match=re.escape(message)):
        fxgrad.memory_analysis(loss)("a", *TYPES[1:])
    with pytest.raises(ArgumentError, match=re.escape("fusions takes a function, got a int. Write fusions(f)(x)")):
        fxgrad.tools.profiling.fusions(3)  # type: ignore[arg-type]


# --- as NumPy runs, and as XLA plans --------------------------------------------------------------------------


OLD_PRODUCTS = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.3.0", reason="NumPy copies operands of products before version 2.3")


@pytest.mark.parametrize("name", [
    "elementwise chain", "elementwise chain, gradient", pytest.param("MLP, gradient", marks=OLD_PRODUCTS),
    pytest.param("MLP, value and gradient, relu", marks=OLD_PRODUCTS), "pairwise distances"])
def test_unfused_is_what_numpy_takes(name: str) -> None:
    case = PROGRAMS[name]
    program = fxgrad.make_program(case.function)(*case.args)
    args = fxgrad.tree.map(lambda struct: np.ones(struct.shape, struct.dtype), case.args)
    for _ in range(3):
        program(*args)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    program(*args)
    traced = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert fxgrad.memory_analysis(program)().peak.point.nbytes == pytest.approx(traced, rel=0.02)


@pytest.mark.slow
def test_fused_is_within_15_percent_of_xlas_plan() -> None:
    """The gate itself, compiled as for users, on the programs that compile fast; all are on the page."""
    words = ["chain", "distances", "MLP", "cross-entropy", "logistic", "attention", "RNN", "examples", "branch",
             "power", "products", "soft", "matrix"]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    run = subprocess.run([sys.executable, str(ROOT / "tools" / "xray"), *words], capture_output=True, text=True,
                         env={**environment, "JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "FXGRAD_CHECK": "0"}, check=True)
    found = re.search(r"(\d+) of (\d+) programs within 15 %", run.stdout)
    assert found is not None
    assert int(found[1]) >= 20
    assert int(found[2]) - int(found[1]) <= 1  # the Jacobian


@pytest.mark.slow
def test_row_m3_memory_is_linear_in_depth_and_batch() -> None:
    """The line through the sizes fits to 2 %; its slope is what one layer, or one row, has to keep."""
    def grown(cases: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        found = [fxgrad.memory_analysis(fxgrad.grad(mlp_loss))(*args) for args in cases]
        return (np.array([each.saved_bytes for each in found], float),
                np.array([each.fused.temporary for each in found], float))
    depths, batches = np.array([6, 12, 18, 24]), np.array([512, 1024, 2048, 4096])
    by_depth = grown([(layers(*[32] * depth, 10), f32(128, 32), f32(128, 10)) for depth in depths])
    by_batch = grown([(layers(*[32] * 6, 10), f32(batch, 32), f32(batch, 10)) for batch in batches])
    for sizes, series, one in ((depths, by_depth, 4 * 128 * 32), (batches, by_batch, 4 * 32 * 5)):
        for values, least, most in zip(series, (2.0, 0.9), (2.3, 1.3), strict=True):
            slope, start = np.polyfit(sizes, values, 1)
            assert np.abs(values - (slope * sizes + start)).max() <= 0.02 * values.max()
            assert least * one * 0.95 <= slope <= most * one


def test_a_block_with_library_functions_has_its_lines() -> None:
    found = fxgrad.memory_analysis(block)(block_params(16), f32(8, 16))
    assert all(point.line.startswith("programs.py:") for point in found.timeline)


def test_flash_like_attention_needs_less_than_the_plain_one() -> None:
    """What a compiler cannot fuse away is seen: the scores of all pairs."""
    def plain(q: Any) -> Any:
        return nn.softmax(q @ q.T) @ q
    found = [fxgrad.memory_analysis(plain)(f32(length, 16)).fused.temporary for length in (128, 256)]
    assert found[1] == pytest.approx(4 * found[0], rel=0.05)


def test_a_call_takes_its_temporaries_and_its_results() -> None:
    unfused = fxgrad.memory_analysis(lambda x: np.sin(np.cos(x)) * x)(np.ones(100)).unfused
    assert (unfused.temporary, unfused.results, unfused.total) == (800, 800, 1600)


def test_reports_are_pickled_and_copied() -> None:
    found = fxgrad.memory_analysis(fxgrad.grad(loss))(f32(3, 4), f32(4, 2), f32(5, 3))
    for made in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found), copy.copy(found)):
        assert made.to_json() == found.to_json()
        assert str(made) == str(found)
        assert made.saved == found.saved
