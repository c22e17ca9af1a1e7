"""Programs in files: they come back as they were, without their functions, and hostile files are refused."""

from __future__ import annotations

import ast
import io
import json
import math
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp

RNG = np.random.default_rng(0)
W, X = RNG.normal(size=(3, 4)), RNG.normal(size=(5, 3))
KEY = fxgrad.random.key(0)


class Layer(NamedTuple):
    """A named tuple of the user's."""

    w: Any
    b: Any


FIXTURES = Path(__file__).parents[1] / "support"


def again(function: Any, *specs: Any, classes: Any = (), **named: Any) -> fxgrad.Program:
    file = io.BytesIO()
    fxgrad.save(file, function, *specs, **named)
    return fxgrad.load(file, classes=classes)


def mlp(p: Any, x: Any) -> Any:
    return fnp.sum(fnp.tanh(x @ p["w"] + p["b"]) ** 2)


def step(state: Any, x: Any) -> Any:
    p, count = state
    value, gradient = fxgrad.value_and_grad(mlp)(p, x)
    return (fxgrad.tree.map(lambda a, g: a - 0.1 * g, p, gradient), count + 1), value


P = {"w": W, "b": np.zeros(4)}
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "forward": (mlp, (P, X)), "gradient": (fxgrad.grad(mlp), (P, X)), "step": (step, ((P, 0), X)),
    "jitted": (fxgrad.jit(fxgrad.vmap(lambda x: fnp.sin(x) @ W)), (X,)),
    "constants": (lambda x: x @ W + fnp.asarray([1.0, 2.0, 3.0, 4.0]), (X,)),
    "scan": (lambda x: fxgrad.scan(lambda c, x: (c + fnp.sin(x), c), fnp.zeros(3, "float64"), x), (X,)),
    "gradient of a scan": (fxgrad.grad(lambda x: fnp.sum(fxgrad.scan(
        lambda c, x: (fnp.sin(c) * x, None), x[0], x)[0])), (X,)),
    "while": (lambda x: fxgrad.while_loop(lambda c: fnp.sum(c) < 100, lambda c: c * 2 + 1, fnp.abs(x)), (X,)),
    "cond": (lambda x: fxgrad.cond(fnp.sum(x) > 0, fnp.sin, fnp.cos, x), (X,)),
    "checkpoint": (fxgrad.grad(fxgrad.checkpoint(lambda x: fnp.sum(fnp.sin(fnp.sin(x))))), (X,)),
    "within a budget": (fxgrad.grad(lambda w, x: fnp.sum(fnp.tanh(fnp.tanh(x @ w) @ w.T)), memory_budget="1 MB"),
                        (W, X)),
    "hessian": (fxgrad.hessian(lambda x: fnp.sum(fnp.exp(x))), (X[0],)),
    "sort and index": (lambda x: (fnp.sort(x, axis=0)[::2, 1:], fnp.argmax(x)), (X,)),
    "linear algebra": (lambda x: fnp.linalg.cholesky(x.T @ x), (X,)),
    "complex": (lambda x: fnp.fft.fft(x), (X,)), "softmax": (lambda x: fxgrad.nn.softmax(x), (X,)),
    "bfloat16": (lambda x: fnp.sum(x.astype("bfloat16")), (X,)),
    "key": (lambda x: x + fxgrad.random.normal(KEY, x.shape), (X,)),
    "no arguments": (lambda: fnp.arange(3) * 2, ()), "scalars": (lambda x, n: x ** 2 + n, (2.0, 3)),
    "empty": (lambda x: fnp.sum(x), (np.zeros((0, 3)),)),
    "containers": (lambda a: [a["x"], (a["y"][0], None), {"z": a["y"][1]}], ({"x": X, "y": [1.0, W]},)),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_loaded_computes_the_same_bits(name: str) -> None:
    function, args = CASES[name]
    expected, found = fxgrad.make_program(function)(*args), again(function, *args)
    for one, other in zip(jax.tree.leaves(found(*args)), jax.tree.leaves(expected(*args)), strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    assert jax.tree.structure(found(*args)) == jax.tree.structure(expected(*args))
    assert len(expected.diff(found)) == 0
    assert found.signature.input_names == expected.signature.input_names


def test_named_tuples_and_keywords() -> None:
    def f(layer: Layer, *, x: Any) -> Layer:
        return Layer(layer.w * x, layer.b)

    found = again(f, Layer(W, 1.0), classes=[Layer], x=2.0)
    result = found(Layer(W, 1.0), x=3.0)
    assert type(result) is Layer
    np.testing.assert_array_equal(result.w, 3 * W)
    with pytest.raises(fxgrad.errors.ProgramSyntaxError) as raised:
        again(f, Layer(W, 1.0), x=2.0)
    assert str(raised.value) == ("signature.takes: there is no class 'Layer'; named tuples of your own are passed as "
                                 "load(file, classes=[...])")


def test_named_tuples_of_the_library_are_known() -> None:
    optimizer = fxgrad.optim.adam(0.1)
    state = optimizer.init(W)
    step = again(optimizer.update, W, state, W)
    assert type(step(W, state, W)[1]) is type(state)
    assert type(again(fnp.linalg.slogdet, np.eye(2))(np.eye(2))) is type(fnp.linalg.slogdet(np.eye(2)))
    normal = fxgrad.distributions.Normal(0.5, 2.0)
    assert again(lambda d, x: d.scale * x, normal, X)(normal, X).shape == X.shape


def test_equal_programs_make_equal_files_and_paths_are_replaced(tmp_path: Path) -> None:
    first, second = tmp_path / "first", str(tmp_path / "second")
    fxgrad.save(first, mlp, P, X)
    fxgrad.save(second, lambda p, x: None or mlp(p, x), P, X)
    program = fxgrad.save(second, mlp, P, X)
    assert first.read_bytes() == Path(second).read_bytes()
    fxgrad.save(second, program)
    assert first.read_bytes() == Path(second).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second"]


def test_what_is_loaded_is_a_program_like_any_other() -> None:
    found = again(mlp, P, X)
    gradient = fxgrad.grad(found)(P, X)
    np.testing.assert_allclose(gradient["w"], fxgrad.grad(mlp)(P, X)["w"], rtol=1e-12)
    batch = np.stack([X, -2 * X])
    np.testing.assert_allclose(fxgrad.jit(fxgrad.vmap(found, (None, 0)))(P, batch), [mlp(P, x) for x in batch],
                               rtol=1e-12)


@pytest.mark.slow
def test_another_process_needs_no_function(tmp_path: Path) -> None:
    fxgrad.save(tmp_path / "f", fxgrad.grad(mlp), P, X)
    np.savez(tmp_path / "x.npz", X)
    code = (f"import fxgrad, numpy as np; x = np.load({str(tmp_path / 'x.npz')!r})['arr_0']; "
            f"g = fxgrad.load({str(tmp_path / 'f')!r})({{'w': np.ones((3, 4)), 'b': np.zeros(4)}}, x); "
            "print(g['w'].tobytes().hex())")
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    expected = fxgrad.make_program(fxgrad.grad(mlp))(P, X)({"w": np.ones((3, 4)), "b": np.zeros(4)}, X)
    assert shown.strip() == expected["w"].tobytes().hex()


def test_files_that_were_written_before_are_read() -> None:
    """Each was written when its version of the format was the newest; none is ever written again."""
    found = sorted(FIXTURES.glob("*.fxgrad"))
    assert [path.name for path in found] == ["step-1.fxgrad"]
    (state, count), value = fxgrad.load(found[0])(({"w": np.eye(3), "b": np.zeros(3)}, 4), np.arange(6.0).reshape(2, 3))
    assert int(count) == 5
    assert math.isclose(float(value), sum(math.tanh(number) ** 2 for number in range(6)), rel_tol=1e-14)
    assert state["w"].shape == (3, 3)


def changed(change: Callable[[dict[str, Any]], Any] = lambda contents: None, *, constant: bytes | None = None,
            compression: int = zipfile.ZIP_STORED, without: str = "",
            text: Callable[[str], str] = lambda text: text) -> io.BytesIO:
    """A file whose JSON, or whose constant, was changed."""
    original, result = io.BytesIO(), io.BytesIO()
    fxgrad.save(original, lambda x: x @ W, X)
    with zipfile.ZipFile(original) as archive, zipfile.ZipFile(result, "w", compression) as copy:
        for name in archive.namelist():
            data = archive.read(name)
            if name == "program.json":
                contents = json.loads(data)
                contents = change(contents) or contents
                data = text(json.dumps(contents)).encode()
            elif constant is not None:
                data = constant
            if name != without:
                copy.writestr(name, data)
    return result


def with_bytes(after: bytes, place: int, data: bytes) -> io.BytesIO:
    """A file with other bytes, `place` bytes behind the first occurrence of a mark."""
    found = changed().getvalue()
    begin = found.index(after) + place
    return io.BytesIO(found[:begin] + data + found[begin + len(data):])


def array_of(dtype: str, shape: tuple[int, ...], data: bytes = b"") -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    header = header.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data


def constant_of(contents: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = contents["program"]["programs"][-1]["constants"][0]
    return found


HOSTILE: dict[str, tuple[Callable[[], io.BytesIO], str]] = {
    "no archive": (lambda: io.BytesIO(b"hello"), "this is no file of fxgrad.save: File is not a zip file"),
    "nothing": (lambda: io.BytesIO(), "this is no file of fxgrad.save: File is not a zip file"),
    "no JSON": (lambda: changed(without="program.json"),
                "this is no file of fxgrad.save: it has no program.json, and has constants/0.npy"),
    "other JSON": (lambda: changed(lambda contents: [1]),
                   'this is no file of fxgrad.save: program.json is to have "format": "fxgrad file"'),
    "newer": (lambda: changed(lambda contents: contents | {"version": 2}),
              "the file is of version 2; this fxgrad reads versions up to 1: a newer one may read it"),
    "compressed": (lambda: changed(compression=zipfile.ZIP_DEFLATED),
                   "program.json: it is compressed, which fxgrad.save does not do"),
    "no constant": (lambda: changed(without="constants/0.npy"), "constants/0.npy: it is missing"),
    "a huge array": (lambda: changed(constant=array_of("|u1", (10**15,))),
                     "constants/0.npy: bytes are expected, as many as it says"),
    "objects": (lambda: changed(constant=array_of("|O", (1,), b"cos\nsystem\n")),
                "constants/0.npy: bytes are expected, as many as it says"),
    "no array": (lambda: changed(constant=b"abc"), (
        "constants/0.npy: it is no array: EOF: reading magic string, expected 8 bytes got 3")),
    "a short array": (lambda: changed(constant=array_of("|u1", (8,), bytes(8))),
                      "programs[0].constants[0]: 8 bytes do not make an array of shape (3, 4) and dtype float64"),
    "a wrong shape": (lambda: changed(lambda contents: constant_of(contents).update(shape=[-1, 2])),
                      "programs[0].constants[0].shape: an array of integers is expected"),
    "another file": (lambda: changed(lambda contents: constant_of(contents).update(file="../../etc/passwd")),
                     "programs[0].constants[0]: the number of an array is expected"),
    "wrong leaves": (lambda: changed(lambda contents: contents["signature"].update(gives=None) or contents[
        "signature"].update(takes={"tuple": [0, 1]})), "signature.takes: 2 leaves, where the program has 1"),
    "a wrong tree": (lambda: changed(lambda contents: contents["signature"].update(takes={"set": []})),
                     ("signature.takes: a number, null, or an object with dict, list, tuple, class or float0 is "
                      "expected")),
    "no arguments by name": (lambda: changed(lambda contents: contents["signature"].update(takes={"tuple": [0]})),
                             "signature.takes: a tuple of the arguments and a dict of those by name are expected"),
    "a zip file of the future": (lambda: with_bytes(b"PK\x01\x02", 6, b"\xbf\0"),
                                 "this is no file of fxgrad.save: zip file version 19.1"),
    "two names": (lambda: with_bytes(b"PK\x03\x04", 26, b"\xff\0"),
                  "program.json: it cannot be read: its two names in the archive differ"),
    "a deep tree": (lambda: changed(text=lambda text: text.replace('"gives": 0', '"gives": ' + "[" * 10**5)),
                    "the JSON is nested too deeply to be a program"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name: str) -> None:
    make, message = HOSTILE[name]
    with pytest.raises(fxgrad.errors.ProgramSyntaxError) as raised:
        fxgrad.load(make())
    assert str(raised.value) == message


@pytest.mark.slow
def test_files_with_any_byte_changed_are_read_or_refused() -> None:
    file = io.BytesIO()
    fxgrad.save(file, lambda x: x @ W, X)
    data, expected, refused = bytearray(file.getvalue()), X @ W, 0
    for place in RNG.integers(0, len(data), 300):
        broken = data.copy()
        broken[place] ^= int(RNG.integers(1, 256))
        try:
            np.testing.assert_array_equal(fxgrad.load(io.BytesIO(bytes(broken)))(X), expected)
        except fxgrad.errors.FxgradError:
            refused += 1
    assert refused > 250  # others are times and the like, which nobody reads


def test_what_cannot_be_saved() -> None:
    with pytest.raises(fxgrad.errors.UnsupportedError, match="pure_callback"):
        again(lambda x: fxgrad.pure_callback(np.sin, jax.ShapeDtypeStruct(X.shape, X.dtype), x), X)
    with pytest.raises(fxgrad.errors.UnsupportedError) as raised:
        again(lambda x: jax.tree_util.Partial(fnp.sin, x), X)
    assert str(raised.value).split("\n")[0] == (
        "save: an argument or a result is a Partial, which a file does not hold; dicts with strings or integers as "
        "keys, lists, tuples and named tuples have a form. Save a function of these")
    with pytest.raises(fxgrad.errors.ArgumentError) as wrong:
        fxgrad.save(io.BytesIO(), fxgrad.make_program(mlp)(P, X), P)
    assert str(wrong.value).split("\n")[0] == (
        "save: a program has its types, and takes no further arguments; pass the function for others")


# --- checks -----------------------------------------------------------------------------------------------------------


def positive(x: Any, scale: Any) -> Any:
    fxgrad.check(fnp.all(x > 0), "{x} of {name} at {p[a][0]:.1f} and {0}", scale, x=x, name="x", p={"a": [scale, 2]})
    return fnp.log(x) * scale


def growing(x: Any, scale: Any) -> Any:
    def body(total: Any, turn: Any) -> Any:
        fxgrad.check(total < 50.0, "{} in turn {}", total, turn)
        return total * scale, None
    return fxgrad.scan(body, fnp.sum(x), fnp.arange(4))[0]


CHECKED: dict[str, Callable[..., Any]] = {
    "check": positive, "in a loop": growing, "jitted": fxgrad.jit(positive),
    "gradient": fxgrad.grad(lambda x, scale: fnp.sum(positive(x, scale))),
    "mapped": lambda x, scale: fxgrad.vmap(positive, in_axes=(0, None))(fnp.stack([fnp.abs(x), x]), scale),
    "checked": fxgrad.checked(positive, errors="all"), "checked loop": fxgrad.checked(growing),
    "automatic": fxgrad.checked(lambda x, scale: fnp.sqrt(x) / scale, errors=["sqrt", "div"]),
    "checked gradient": fxgrad.checked(fxgrad.grad(lambda x, scale: fnp.sum(positive(x, scale))), errors="nan"),
    "mapped branches": fxgrad.vmap(
        lambda x, scale: fxgrad.cond(x > -100, positive, lambda x, _: x, x, scale), in_axes=(0, None)),
}


@pytest.mark.parametrize("name", CHECKED)
def test_checks_are_saved(name: str) -> None:
    function, good, bad = CHECKED[name], (np.array([1.0, 2.0]), 1.5), (np.array([9.0, -1.0]), 3.0)
    found = again(function, *good)
    np.testing.assert_array_equal(found(*good), function(*good))
    with pytest.raises(fxgrad.errors.CheckError) as expected:
        function(*bad)
    assert "test_files.py:" in str(expected.value)
    for loaded in (found, fxgrad.jit(found), again(found)):
        with pytest.raises(fxgrad.errors.CheckError) as raised:
            loaded(*bad)
        assert str(raised.value) == str(expected.value)
    assert len(fxgrad.make_program(function)(*good).diff(found)) == 0


def with_report(change: Callable[[dict[str, Any]], Any]) -> io.BytesIO:
    """A file with a check whose report was changed."""
    original, result = io.BytesIO(), io.BytesIO()
    fxgrad.save(original, positive, X, 1.0)
    with zipfile.ZipFile(original) as archive, zipfile.ZipFile(result, "w") as copy:
        contents = json.loads(archive.read("program.json"))
        change(next(equation["params"]["report"] for equation in contents["program"]["programs"][-1]["equations"]
                    if equation["primitive"] == "check"))
        copy.writestr("program.json", json.dumps(contents))
    return result


def field_of(name: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda report: report["fields"].update({name: value})


FINDING = {"kind": "nan", "operation": "log", "line": "", "sizes": {"tuple": []}, "form": ""}
WRONG_REPORTS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a number for a text": (field_of("text", 3), "Message"), "no line": (field_of("line", None), "Message"),
    "another tree": (field_of("structure", {"tree": 0}), "Message"),
    "no exception": (lambda report: report.update({"class": "Raised", "fields": {**report["fields"], "name": "print"}}),
                     "Raised"),
    "another kind": (lambda report: report.update({"class": "Finding", "fields": {**FINDING, "kind": "fire"}}),
                     "Finding"),
    "sizes of text": (lambda report: report.update({"class": "Finding", "fields": {
        **FINDING, "sizes": {"tuple": ["3"]}}}), "Finding"),
    "a number for a program": (lambda report: report.update({"class": "Diagnosis", "fields": {"program": 1}}),
                               "Diagnosis"),
}


@pytest.mark.parametrize("name", WRONG_REPORTS)
def test_wrong_reports_of_checks_are_refused(name: str) -> None:
    change, kind = WRONG_REPORTS[name]
    with pytest.raises(fxgrad.errors.ProgramError) as raised:
        fxgrad.load(with_report(change))
    assert f"check: the fields of the report {kind} do not fit the operation" in str(raised.value)


MALFORMED_REPORTS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no tree": (field_of("structure", {"tree": {"set": []}}), (
        ".structure: a number, null, or an object with dict, list, tuple, class or float0 is expected")),
    "a missing field": (lambda report: report["fields"].pop("line"), (
        ": the fields of Message are text, line, structure, constants")),
    "another class": (lambda report: report.update({"class": "Layer"}), (
        ": there is no class 'Layer' for parameters; those of your own are passed as from_json(text, classes=[...])")),
}


@pytest.mark.parametrize("name", MALFORMED_REPORTS)
def test_malformed_reports_of_checks_are_refused(name: str) -> None:
    change, message = MALFORMED_REPORTS[name]
    with pytest.raises(fxgrad.errors.ProgramSyntaxError) as raised:
        fxgrad.load(with_report(change))
    assert re.sub(r"^programs\[\d+\]\.equations\[\d+\]", "", str(raised.value)) == ".params.report" + message


def test_arguments_of_checks_that_have_no_form() -> None:
    def f(x: Any) -> Any:
        fxgrad.check(x > 0, "{0}", jax.tree_util.Partial(fnp.sin, x))
        return x
    with pytest.raises(fxgrad.errors.UnsupportedError) as raised:
        again(f, 1.0)
    assert re.sub(r":\d+ \(", ":LINE (", str(raised.value)) == (
        "save: the parameter report of check is a Python object (Partial), which a file does not hold; numbers, "
        "strings, dtypes, types, programs, and tuples of them have a form. Leave the operation out of the function, or "
        "write pickle.dumps(program), which holds every object that pickle takes\n  at test_files.py:LINE (in f)")


def test_gradients_of_integers_are_saved() -> None:
    """They are arrays of dtype float0, which no program holds."""
    def gradient(x: Any, n: Any) -> Any:
        return fxgrad.grad(lambda x, n: fnp.sum(x * n["k"]), argnums=(0, 1), allow_int=True)(x, n), n["k"]

    counts = {"k": np.array([1, 2, 3])}
    loaded = again(gradient, X[0], counts)
    for run in loaded, fxgrad.jit(loaded), again(loaded):
        (slope, none), found = run(X[0], counts)
        np.testing.assert_array_equal(slope, [1.0, 2.0, 3.0])
        np.testing.assert_array_equal(found, counts["k"])
        assert none["k"].dtype == fxgrad.float0
        assert none["k"].shape == (3,)
    (_, none), _ = fxgrad.vmap(loaded, (0, None))(X, counts)
    assert (none["k"].dtype, none["k"].shape) == (fxgrad.float0, (5, 3))


# --- mistakes ---------------------------------------------------------------------------------------------------------


def test_files_that_are_none(tmp_path: Path) -> None:
    """Errors have the classes that Python's own functions raise for paths, and name the path that was given."""
    path, folder = tmp_path / "model.fxgrad", tmp_path / "folder"
    folder.mkdir()
    path.write_bytes(b"abc")
    missing = folder / "none" / "model.fxgrad"
    cases: list[tuple[Any, type[OSError], str]] = [
        (lambda: fxgrad.load(missing), FileNotFoundError, f"[Errno 2] load: there is no such file: '{missing}'"),
        (lambda: fxgrad.load(folder), IsADirectoryError,
         f"[Errno 21] load: this is a directory, where a file of save is needed: '{folder}'"),
        (lambda: fxgrad.save(missing, np.sin, 1.0), FileNotFoundError,
         f"[Errno 2] save: there is no such folder. Make it first: '{missing.parent}'"),
        (lambda: fxgrad.save(str(folder), np.sin, 1.0), IsADirectoryError,
         f"[Errno 21] save: this is a directory, where the path of a file is needed: '{folder}'")]
    for call, kind, message in cases:
        with pytest.raises(OSError, match=re.escape(message)) as raised:
            call()
        assert (type(raised.value), str(raised.value)) == (kind, message)
    text_mode = "the file is open for text, and a program is bytes. Open it with open(path, '{}b'), or pass the path"
    closed = "the file is not open to {}. Open it with open(path, '{}b'), or pass the path"
    takes = "takes a path or an open binary file first, got a"
    write = "Write save(path, f, *specs)"
    with path.open() as text, path.open("rb") as readable, path.open("ab") as writable:
        mistakes: list[tuple[Any, str]] = [
            (lambda: fxgrad.load(text), f"load: {text_mode.format('r')}"),
            (lambda: fxgrad.load(writable), f"load: {closed.format('read', 'r')}"),
            (lambda: fxgrad.save(text, np.sin, 1.0), f"save: {text_mode.format('w')}"),
            (lambda: fxgrad.save(readable, np.sin, 1.0), f"save: {closed.format('write', 'w')}"),
            (lambda: fxgrad.load(b"abc"),
             f"load {takes} bytes. Write load(path), or load(io.BytesIO(data)) for the bytes of a file"),
            (lambda: fxgrad.load(np.sin), f"load {takes} ufunc. Write load(path)"),
            (lambda: fxgrad.save(np.sin, path, 1.0), f"save {takes} ufunc. {write}"),
            (lambda: fxgrad.save(path, np.sin(1.0)),
             f"save takes a function or a program, got a float64. {write}, with the function f itself"),
            (lambda: fxgrad.onnx.save(np.sin, path, 1.0),
             f"onnx.save {takes} ufunc. Write onnx.save(path, f, *specs)")]
        for call, message in mistakes:
            with pytest.raises(fxgrad.errors.ArgumentError) as refused:
                call()
            assert str(refused.value).split("\n  at ")[0] == message
    assert path.read_bytes() == b"abc"
    assert [each.name for each in sorted(tmp_path.iterdir())] == ["folder", "model.fxgrad"]


def test_loaded_programs_called_with_other_containers() -> None:
    loaded = again(lambda p, x: p["w"] * x, {"w": X}, 2.0)
    np.testing.assert_array_equal(loaded(X, 3.0), 3.0 * X)  # leaves by position
    for given in [{"w": X}, [3.0]], [{"v": X}, 3.0], [X, {"w": 3.0}]:
        with pytest.raises(fxgrad.errors.TreeError, match="was called with other arguments than it was traced for"):
            loaded(*given)


# --- rules of the library's own ---------------------------------------------------------------------------------------


def through(x: Any) -> Any:
    return fxgrad.straight_through(fnp.round, through=fnp.sinh)(x * 1.5) * x


def solved(x: Any, adjoint: Any) -> Any:
    return fxgrad.odeint(lambda y, t, rate: -rate * y, np.ones(2), np.array([0.0, 0.5, 1.0]), x, adjoint=adjoint)


RULES: dict[str, Callable[[Any], Any]] = {
    "straight_through": through, "odeint, discrete": lambda x: solved(x, "discrete"),
    "odeint, continuous": lambda x: solved(x, "continuous"),
    "gradient of odeint": fxgrad.grad(lambda x: fnp.sum(solved(x, "continuous")[-1] ** 2))}
TRANSFORMED: dict[str, Callable[[Any], Any]] = {
    "itself": lambda f: f, "gradient": lambda f: fxgrad.grad(lambda x: fnp.sum(f(x) ** 2)),
    "jitted": fxgrad.jit, "mapped": lambda f: lambda x: fxgrad.vmap(f)(fnp.stack([x, 2 * x])),
    "gradient, mapped": lambda f: lambda x: fxgrad.vmap(fxgrad.grad(lambda x: fnp.sum(f(x) ** 2)))(fnp.stack([x, x])),
    "Jacobian": fxgrad.jacfwd, "in a loop": lambda f: lambda x: fxgrad.scan(
        lambda c, _: (c + f(c).sum() * 0.1, None), x, None, length=2)[0]}


@pytest.mark.parametrize("name", ["straight_through", *(pytest.param(each, marks=pytest.mark.slow) for each in RULES
                                                        if each != "straight_through")])
def test_rules_of_the_library_are_saved_by_name(name: str) -> None:
    """Values, derivatives of what is loaded, and the bits of what is saved again, for every transformation of them."""
    x = np.array([0.3, 1.2])
    for how in TRANSFORMED if "odeint" not in name else ["itself"]:  # many operations: each takes seconds
        transform = TRANSFORMED[how]
        function = fxgrad.make_program(transform(RULES[name]))(x)
        loaded = again(function)
        np.testing.assert_array_equal(loaded(x), transform(RULES[name])(x), err_msg=f"{how} of {name}")
        if name != "gradient of odeint":
            np.testing.assert_array_equal(slope_of(loaded)(x), slope_of(function)(x), err_msg=f"{how} of {name}")
        first, second = io.BytesIO(), io.BytesIO()
        fxgrad.save(first, loaded)
        fxgrad.save(second, again(loaded))
        assert first.getvalue() == second.getvalue(), how


def slope_of(function: Any) -> Any:
    return fxgrad.grad(lambda x: fnp.sum(fnp.sin(function(x))))


@pytest.mark.slow
def test_which_rules_of_the_library_files_do_not_hold() -> None:
    """Only these files of the library make rules that are Python code; docs/reference/limits.md says what is saved."""
    makers = {"custom_jvp", "custom_vjp", "custom_vmap", "custom_gradient"}
    found = set()
    for path in sorted(Path(fxgrad.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            decorated = node.decorator_list if isinstance(node, ast.FunctionDef) else []
            if any(isinstance(each, ast.Name) and each.id in makers for each in (called, *decorated)):
                found.add(path.relative_to(Path(fxgrad.__file__).parent).as_posix())
    # The first two for rules of users; `odeint` makes one about the user's function, and `wrt=` one about inner values,
    # both kept as programs; that of a breakpoint calls Python; that of curvature is used up before it returns; that of
    # `implicit` refuses.
    assert found == {"engine/api/closures.py", "interop/jax_modules/custom_batching.py", "training/ode.py",
                     "tools/inside/capturing.py", "tools/inside/stopping.py", "training/curvature/passes.py",
                     "training/implicit.py"}


def test_files_hold_no_constants_that_nothing_reads() -> None:
    table = np.ones((100, 100))
    for function in (fxgrad.grad(lambda x: fnp.sum(x * x) + fnp.sum(fnp.asarray(table))), lambda x: (table @ x, x)[1],
                     fxgrad.grad(lambda x: fnp.sum(fnp.sin(x) + table))):
        file = io.BytesIO()
        program = fxgrad.save(file, function, np.ones(100))
        assert program.captured == len(program.constants) == 0
        assert len(file.getvalue()) < 10_000
        np.testing.assert_array_equal(fxgrad.load(file)(np.ones(100)), function(np.ones(100)))
    assert fxgrad.make_program(lambda x: (table @ x, x)[1], as_recorded=True)(np.ones(100)).captured == 1
