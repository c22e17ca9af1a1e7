"""Exported programs: XLA's, with sizes that vary, read again without the function."""

from __future__ import annotations

import copy
import io
import pickle
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import export, lax, symbolic_spec
from fxgrad.errors import FxgradError, ProgramSyntaxError
from tests.support.sized_functions import FUNCTIONS, agree, drawn, refusal, spec_of


def loss(params: Any, x: Any, y: Any) -> Any:
    return np.mean((np.tanh(x @ params["w"]) @ params["v"] - y) ** 2)


def step(params: Any, x: Any, y: Any) -> Any:
    value, slopes = fxgrad.value_and_grad(loss)(params, x, y)
    return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, slopes)


PARAMS = {"v": np.ones(4), "w": np.linspace(-1.0, 1.0, 12).reshape(3, 4)}


def data(count: int) -> tuple[Any, Any]:
    random = np.random.default_rng(count)
    return random.normal(size=(count, 3)), random.normal(size=count)


def exported_step(**options: Any) -> Any:
    return export(step, **options)({"v": symbolic_spec(4), "w": symbolic_spec(3, 4)}, symbolic_spec("n", 3),
                                   symbolic_spec("n"))


def test_a_training_step_is_read_again_and_runs_at_every_size() -> None:
    exported = exported_step()
    assert repr(exported) == ("Exported(step: (f64[4], f64[3,4], f64[n,3], f64[n]) -> (f64[], f64[4], f64[3,4]), "
                              "platforms=('cpu',))")
    assert exported.input_names == ("params.v", "params.w", "x", "y")
    assert "tensor<?x3xf64>" in exported.stablehlo
    assert "f64[n,3]" in str(exported)
    again = export.deserialize(exported.serialize())
    assert (again.in_avals, again.out_avals, again.in_tree, again.out_tree, again.platforms, again.input_names) == (
        exported.in_avals, exported.out_avals, exported.in_tree, exported.out_tree, ("cpu",), exported.input_names)
    for count in (2, 5):
        found = again.call(PARAMS, *data(count))
        agree(found, step(PARAMS, *data(count)))
        assert type(found[0]) is not jax.Array


@pytest.mark.slow
def test_types_of_results() -> None:
    exported = export(lambda x, y: (np.concatenate([x, y]), x[1:]))(symbolic_spec("n"), symbolic_spec("m"))
    assert [*map(str, exported.out_avals)] == ["f64[n+m]", "f64[n-1]"]
    assert [*map(str, exported.out_types(n=3, m=4))] == ["f64[7]", "f64[2]"]


@pytest.mark.slow
def test_a_fresh_process_reads_it(tmp_path: Any) -> None:
    path = tmp_path / "step.bin"
    path.write_bytes(exported_step().serialize())
    code = (
        "import sys, numpy as np, fxgrad\n"
        f"exported = fxgrad.export.deserialize(open({str(path)!r}, 'rb').read())\n"
        "params = {'v': np.ones(4), 'w': np.linspace(-1.0, 1.0, 12).reshape(3, 4)}\n"
        "for count in (2, 5):\n"
        "    random = np.random.default_rng(count)\n"
        "    value, _ = exported.call(params, random.normal(size=(count, 3)), random.normal(size=count))\n"
        "    print(float(value).hex())\n")
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    exported = exported_step()
    assert printed == [float(exported.call(PARAMS, *data(count))[0]).hex() for count in (2, 5)]


@pytest.mark.slow
def test_platforms_that_are_not_here() -> None:
    exported = export(lambda x: np.mean(x, axis=0), platforms=("cpu", "cuda", "tpu"))(symbolic_spec("n", 3))
    assert exported.platforms == ("cpu", "cuda", "tpu")
    agree(exported.call(np.ones((2, 3))), np.ones(3))
    assert refusal(lambda: export(np.sin, platforms=("cpu", "gpu"))) == (
        "export: platforms=('cpu', 'gpu'); some of 'cpu', 'cuda', 'rocm', 'tpu' are needed")
    away = export(np.sin, platforms="tpu")(symbolic_spec(3))
    assert refusal(lambda: away.call(np.ones(3))).startswith(
        "the exported program sin was made for tpu, and this process runs on cpu. Export it with platforms=('tpu', "
        "'cpu')")


@pytest.mark.slow
@pytest.mark.parametrize("wide", [False, True])
def test_dtypes_are_kept(wide: bool) -> None:
    with jax.enable_x64(wide):
        exported = export(lambda x, i, h: (x * 2, i + 1, h * 2.0, x.shape[0] * 0.5))(
            symbolic_spec("n"), symbolic_spec(("n",), "i64"), symbolic_spec(("n",), "bf16"))
        again = export.deserialize(exported.serialize())
        first, second, third, half = again.call(
            np.ones(3), np.arange(3) + 2**40, np.ones(3, fxgrad.dtypes.canonical("bfloat16")))
    assert (first.dtype, second.dtype, third.dtype.name) == (np.float64, np.int64, "bfloat16")
    assert second[0] == 2**40 + 1
    assert float(half) == 1.5


class Pair(NamedTuple):
    first: Any
    second: Any


@pytest.mark.slow
def test_containers_keys_and_numbers() -> None:
    def draws(key: Any, pair: Pair, scale: Any) -> dict[str, Any]:
        return {"x": scale * fxgrad.random.normal(key, pair.first.shape) + pair.second, "none": None}

    exported = export(draws)(fxgrad.random.key(0), Pair(symbolic_spec("n"), 1.0), scale=1.0)
    again = export.deserialize(exported.serialize(), [Pair])
    for count in (3, 4):
        pair = Pair(np.ones(count), 2.0)
        agree(again.call(fxgrad.random.key(7), pair, scale=3.0), draws(fxgrad.random.key(7), pair, 3.0), 1e-5)
    with pytest.raises(ProgramSyntaxError, match="there is no class 'Pair'"):
        export.deserialize(exported.serialize())


@pytest.mark.slow
def test_arrays_of_jax_give_arrays_of_jax() -> None:
    exported = export(lambda x: x * 2.0)(symbolic_spec(("n",), "f32"))
    found = exported.call(jnp.ones(3))
    assert isinstance(found, jax.Array)
    assert found.dtype == np.float32


@pytest.mark.slow
def test_programs_and_closures() -> None:
    table = np.arange(6.0).reshape(3, 2)
    program = fxgrad.make_program(lambda i: fnp.asarray(table)[i])(symbolic_spec(("n",), "i32"))
    exported = export.deserialize(export(program)().serialize())
    agree(exported.call(np.array([2, 0], np.int32)), table[[2, 0]])
    agree(export(fxgrad.parse(str(fxgrad.make_program(np.sin)(1.0))))().call(1.0), np.sin(1.0))
    assert refusal(lambda: export(program)(np.ones(3))) == (
        "export: a program has its types, and takes no further arguments; pass the function for others")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*FUNCTIONS} - {"fftn", "irfft", "convolution by transforms"}))
def test_every_function_is_exported(name: str) -> None:
    function, shapes = FUNCTIONS[name]
    program = fxgrad.make_program(function)(*map(spec_of, shapes))
    args = [drawn(shape, 3, name) for shape in shapes]
    everywhere = name not in ("eigh", "svd")  # which jax lowers for a varying matrix on the CPU alone
    exported = export(program, platforms=("cpu", "cuda", "tpu") if everywhere else None)()
    agree(exported.call(*args), program(*args), 1e-6)


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_arguments_that_do_not_fit() -> None:
    exported = export(lambda x, y: x + y[:, None])(symbolic_spec("n", 3), symbolic_spec("n"))
    name = "the exported program function"
    assert refusal(lambda: exported.call(np.ones((2, 3)), np.ones(5))) == (
        f"{name} takes f64[n] as y, got f64[5], where n = 5; but n = 2 by x, which is f64[2,3] where the program takes "
        "f64[n,3]. A name stands for one size: give arrays that agree, or trace with two names")
    assert refusal(lambda: exported.call(np.ones((2, 3), "f"), np.ones(2))) == (
        f"{name} takes f64[n,3] as x, got f32[2,3]. Trace it again for other types, or convert with x.astype(...)")
    assert refusal(lambda: exported.call(np.ones((2, 3)))) == (
        f"{name} was called with other arguments than it was exported for:\n    y: f64[n] is missing")
    assert refusal(lambda: fxgrad.jit(lambda x: exported.call(x, np.ones(2)))(np.ones((2, 4)))) == (
        f"{name} takes f64[n,3] as x, got f64[2,4]: that axis has the size 3 whatever the named sizes are. Trace it "
        "again for other types")


def sine(x: Any) -> Any:
    return np.sum(np.sin(x) * 2)


X = np.arange(3.0)


@fxgrad.custom_vjp
def seven_sines(x: Any) -> Any:
    return fnp.sin(x)


seven_sines.defvjp(lambda x: (seven_sines(x), x), lambda x, cotangent: (7.0 * cotangent * fnp.cos(x),))


@fxgrad.custom_jvp
def five_squares(x: Any) -> Any:
    return x * x


five_squares.defjvp(lambda primals, tangents: (five_squares(*primals), 5.0 * primals[0] * tangents[0]))


# Derivatives that are none of the operations that compute the values, and whether they have a form for varying sizes.
WITH_OWN_DERIVATIVES: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "custom_vjp": (seven_sines, False), "closed over": (lambda x: seven_sines(x * np.array([1.0, 0.1, 3.0])), False),
    "custom_jvp": (five_squares, False),
    "stop_gradient": (lambda x: lax.stop_gradient(x) * x, True),
    "straight_through": (lambda x: fxgrad.straight_through(fnp.round)(3 * x) * x, True),
    "nan_safe": (fxgrad.nan_safe(lambda x: fnp.where(x > 0, fnp.sqrt(x), 0.0)), True),
    "while_loop": (lambda x: lax.while_loop(lambda c: fnp.sum(c * c) < 100, lambda c: c * 2 + fnp.sin(c), x), False),
    "odeint": (lambda x: fxgrad.odeint(lambda y, t: -y * y, x, np.array([0.0, 0.5]))[1], False)}


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_OWN_DERIVATIVES)
def test_exports_have_the_derivatives_of_the_function(name: str) -> None:
    function, varies = WITH_OWN_DERIVATIVES[name]
    x = np.array([0.3, -0.7, 1.1])

    def slope(f: Any) -> Any:
        return fxgrad.grad(lambda x: fnp.sum(fnp.sin(f(x))))(x)

    expected = slope(function)
    for spec in (x, symbolic_spec("n")) if varies else (x,):
        exported = export(function)(spec)
        for each in exported, export.deserialize(exported.serialize(vjp_order=1)):
            np.testing.assert_allclose(slope(each.call), expected, rtol=1e-7 if name == "odeint" else 1e-13)
    if not varies and name != "closed over":
        exported = export(function)(symbolic_spec("n"))
        np.testing.assert_allclose(exported.call(x), function(x), rtol=1e-12)
        assert refusal(lambda: exported.serialize(vjp_order=1)).startswith("Exported.serialize: the derivative of ")


@pytest.mark.slow
def test_derivatives_without_a_form_for_symbolic_sizes() -> None:
    x = np.array([0.3, -0.7, 1.1])

    def error_of(function: Any) -> str:
        exported = export(function)(symbolic_spec("n"))
        return refusal(lambda: fxgrad.grad(lambda x: fnp.sum(exported.call(x)))(x)).split("\n")[0]

    advice = "Export the gradient, grad(f), or for sizes that are numbers"
    for function in seven_sines, five_squares, lambda x: lax.cond(fnp.sum(x) > 0, seven_sines, five_squares, x):
        assert error_of(function) == f"export: the derivative of the function has no form for sizes that vary. {advice}"
    for function in fnp.prod, fnp.cumprod:
        assert re.fullmatch(r"f_flat is computed by jax, which has no rule for what is asked of it \(pull back\): "
                            rf".*\. {re.escape(advice)}", error_of(function))


@pytest.mark.parametrize("read", [lambda exported: exported,
                                  lambda exported: export.deserialize(exported.serialize(vjp_order=2))])
def test_exported_programs_in_traced_functions(read: Any) -> None:
    call = read(export(sine)(X)).call

    def looped(f: Any) -> Any:
        return lambda x: lax.fori_loop(0, 3, lambda _, c: c + x * f(c), x)

    for transformed in (fxgrad.jit, fxgrad.grad, lambda f: fxgrad.jit(fxgrad.grad(lambda x: f(x) ** 2)), looped,
                        lambda f: fxgrad.grad(lambda x: np.sum(fxgrad.grad(f)(x) * x)),
                        lambda f: lambda x: lax.map(lambda k: f(x * k), X),
                        lambda f: fxgrad.jit(lambda x: fxgrad.cond(x[1] > 0, f, lambda _: 0.0, x))):
        found, expected = transformed(call)(X), transformed(sine)(X)
        np.testing.assert_allclose(found, expected, rtol=1e-14)
        assert found.dtype == expected.dtype


def test_exported_programs_in_traced_functions_with_symbolic_sizes_keys_and_numbers() -> None:
    scaled = export(lambda x, d: {"a": x * d["k"], "k": d["k"]})(symbolic_spec("n", 3, dtype="float32"), {"k": 1.0})
    for count in (2, 5):
        x = np.ones((count, 3), "float32")
        result = fxgrad.jit(lambda x, k: scaled.call(x, {"k": k}))(x, 3.0)
        assert result["a"].dtype == np.float32
        agree(result, {"a": 3.0 * x, "k": np.float64(3.0)})
        agree(fxgrad.grad(lambda k, x: np.sum(scaled.call(x, {"k": k})["a"]))(3.0, x), np.float64(3.0 * count))
    noise = export(lambda key, i: fxgrad.random.normal(key, (4,))[i])(fxgrad.random.key(0), 1)
    key = fxgrad.random.key(1)
    assert fxgrad.jit(noise.call)(key, 2) == noise.call(key, 2) == fxgrad.random.normal(key, (4,))[2]


class Point(NamedTuple):
    x: Any
    y: Any


def test_exported_programs_are_pickled_and_copied() -> None:
    exported = export(lambda point: {"sum": Point(point.x + point.y, None)})(Point(X, symbolic_spec(3)))
    for read in (pickle.loads(pickle.dumps(exported)), copy.deepcopy(exported), copy.copy(exported)):
        result = read.call(Point(X, X))["sum"]
        assert type(result) is Point
        np.testing.assert_array_equal(result.x, 2 * X)


ADVICE = ("Exported programs have reverse mode alone: every order where they were exported, where they are read the "
          "vjp_order of serialize. Export grad(f), hessian(f) or vmap(f), or call them on each row with fxgrad.lax.map")


def test_derivatives_and_batches_that_exported_programs_lack() -> None:
    here = export(sine)(X)
    read = export.deserialize(here.serialize())
    assert refusal(lambda: fxgrad.vmap(here.call)(np.ones((2, 3)))) == (
        "call_exported is computed by jax, which has no rule for what is asked of it (batch): Batching rule for "
        f"'call_exported' not implemented. {ADVICE}")
    assert refusal(lambda: fxgrad.grad(read.call)(X)) == (
        "f_flat is computed by jax, which has no rule for what is asked of it (pull back): No VJP is available. "
        f"{ADVICE}")
    assert ADVICE in refusal(lambda: fxgrad.jvp(here.call, (X,), (X,)))
    for order in ("1", 1):
        assert refusal(lambda: read.serialize(vjp_order=order)) == (  # noqa: B023
            f"Exported.serialize: vjp_order={order!r}; the number of gradients is needed that bytes keep, which a "
            "program that was read from bytes has up to the vjp_order of those")


@pytest.mark.slow
def test_what_jax_cannot_export_names_the_line() -> None:
    def transformed(x: Any) -> Any:
        return np.abs(np.fft.fft(x))

    with pytest.raises(FxgradError) as caught:
        export(transformed)(symbolic_spec("n"))
    message = str(caught.value)
    assert message.startswith("export: jax cannot export an operation of transformed as it is: NotImplementedError: ")
    assert message.endswith(
        "Where a size is needed as a number, export for one (fxgrad.symbolic_spec(4, 3)); functions of jax's that call "
        "back into Python have no export\n  at test_exports.py:"
        f"{transformed.__code__.co_firstlineno + 1} (in transformed)")

    def looked(x: Any) -> Any:
        return fxgrad.pure_callback(lambda x: x, x, x)

    def checking(x: Any) -> Any:
        fxgrad.check(x > 0, "no")
        return x

    for function, name in ((looked, "pure_callback"), (checking, "check"), (fxgrad.checked(checking), "check"),
                           (lambda x: lax.fori_loop(0, 2, lambda _, x: looked(x), x), "pure_callback")):
        start = f"export: {name} calls a function of Python's back, which exported programs cannot. Leave checks, "
        with pytest.raises(FxgradError) as caught:
            export(function)(symbolic_spec(3))
        assert str(caught.value).startswith(start + (
            "callbacks and debug.print out of the function: export f in place of checked(f)\n  at test_exports.py:"))


def rewritten(change: Callable[[dict[str, bytes]], None]) -> bytes:
    entries: dict[str, bytes] = {}
    with zipfile.ZipFile(io.BytesIO(export(lambda x: x * 2.0)(symbolic_spec("n")).serialize())) as archive:
        for name in archive.namelist():
            entries[name] = archive.read(name)
    change(entries)
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return written.getvalue()


WRONG = "these are no bytes of an exported program: "


@pytest.mark.slow
@pytest.mark.parametrize(("change", "message"), [
    (lambda entries: entries.pop("exported.bin"), WRONG + "export.json and exported.bin are expected in it"),
    (lambda entries: entries.update({"export.json": b"{}"}), WRONG + 'export.json is to have "format"'),
    (lambda entries: entries.update({"export.json": b'{"format": "fxgrad export", "version": 9}'}),
     "the export is of version 9; this fxgrad reads versions up to 2: a newer one may read it"),
    (lambda entries: entries.update({"export.json": b'{"format": "fxgrad export", "version": 1}'}),
     WRONG + "takes and gives are lists of types"),
    (lambda entries: entries.update({"export.json": entries["export.json"].replace(b"f64[n]", b"f64[n^99]")}),
     "line 1, column 1: "),
    (lambda entries: entries.update({"export.json": entries["export.json"].replace(
        b'"arrays": []', b'"arrays": [[1]]')}),
     WRONG + "export.json and exported.bin are expected in it"),
    (lambda entries: entries.update({"array0.bin": b"", "export.json": entries["export.json"].replace(
        b'"arrays": []', b'"arrays": [[1, 2]]')}), WRONG + "arrays are lists of lengths of the parts of exported.bin"),
    (lambda entries: entries.update({"exported.bin": b"no"}), WRONG + "jax cannot read exported.bin: "),
])
def test_bytes_that_are_none(change: Any, message: str) -> None:
    with pytest.raises(ProgramSyntaxError) as caught:
        export.deserialize(rewritten(change))
    assert str(caught.value).startswith(message)


@pytest.mark.slow
def test_arrays_are_stored_once_for_all_orders_of_derivatives() -> None:
    generator = np.random.default_rng(0)
    first, second = generator.standard_normal((60, 50)), jnp.asarray(generator.standard_normal((50, 40)), jnp.float32)
    x = np.linspace(-1.0, 1.0, 60)

    def network(x: Any) -> Any:
        return np.sum(np.tanh(x @ first) @ second)

    exported = export(network)(x)
    held = first.nbytes + second.nbytes
    twice = exported.serialize(vjp_order=1)
    assert held < len(exported.serialize()) < len(twice) < 1.3 * held
    read = export.deserialize(twice)
    assert len(read.serialize(vjp_order=1)) == len(twice)
    for again in (read, export.deserialize(read.serialize(vjp_order=1))):
        np.testing.assert_allclose(again.call(x), network(x), rtol=1e-6)
        np.testing.assert_allclose(fxgrad.grad(again.call)(x), fxgrad.grad(network)(x), rtol=1e-5)


@pytest.mark.slow
def test_bytes_of_version_1() -> None:
    """They have no arrays of their own."""
    data = rewritten(lambda entries: entries.update({"export.json": entries["export.json"].replace(
        b'"version": 2', b'"version": 1').replace(b', "arrays": []', b"")}))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.read("export.json").startswith(b'{"format": "fxgrad export", "version": 1, "wide"')
        assert b"arrays" not in archive.read("export.json")
    np.testing.assert_array_equal(export.deserialize(data).call(np.ones(3)), np.full(3, 2.0))


def test_bytes_of_nothing() -> None:
    for data_ in (b"", b"PK", b"\x00" * 100):
        with pytest.raises(ProgramSyntaxError, match="these are no bytes of an exported program"):
            export.deserialize(data_)


@pytest.mark.slow
def test_loops_over_a_varying_length() -> None:
    def running(x: Any) -> Any:
        return lax.scan(lambda c, row: (0.5 * c + row, c), fnp.zeros(3, float), x)

    def counted(x: Any) -> Any:
        return np.sum(lax.fori_loop(0, x.shape[0], lambda i, c: np.sin(c) + x[i], np.zeros(3)))

    gradient = export(fxgrad.grad(counted))(symbolic_spec("n", 3))
    agree(gradient.call(np.ones((4, 3))), fxgrad.grad(counted)(np.ones((4, 3))))
    exported = export(fxgrad.grad(lambda x: np.sum(running(x)[1] ** 2)))(symbolic_spec("n", 3))
    for count in (1, 4):
        x = np.random.default_rng(count).normal(size=(count, 3))
        agree(exported.call(x), fxgrad.grad(lambda x: np.sum(running(x)[1] ** 2))(x))


def test_exports_that_were_written_before_are_read() -> None:
    """Each was written when its version of the format, and jax 0.10.2, were in use; none is ever written again."""
    found = sorted((Path(__file__).parents[1] / "support").glob("*.exported"))
    assert [path.name for path in found] == ["step-1.exported"]
    step = export.deserialize(found[0].read_bytes())
    for rows in (2, 5):
        x = np.arange(3.0 * rows).reshape(rows, 3)
        (state, count), value = step.call(({"w": np.eye(3), "b": np.zeros(3)}, 4), x)
        assert int(count) == 5
        np.testing.assert_allclose(value, np.sum(np.tanh(x) ** 2), rtol=1e-14)
        np.testing.assert_allclose(state["b"], -0.2 * np.sum(np.tanh(x) / np.cosh(x) ** 2, 0), rtol=1e-12)


def test_without_flatbuffers_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    exported = fxgrad.export(np.sin)(1.0)
    data = exported.serialize()
    monkeypatch.setattr("fxgrad.shipping.exports.find_spec",
                        lambda name: None if name == "flatbuffers" else find_spec(name))
    for call, what in ((exported.serialize, "Exported.serialize"),
                       (lambda: fxgrad.export.deserialize(data), "export.deserialize")):
        with pytest.raises(fxgrad.errors.UnsupportedError) as raised:
            call()
        assert str(raised.value).split("\n")[0] == (
            f"{what}: jax writes and reads programs with flatbuffers, which is not installed. Write pip install "
            "'fxgrad[export]'; fxgrad.save writes a file without it")
