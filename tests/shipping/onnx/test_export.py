"""What a model says beside its numbers: names, types, lines, constants; what is refused, and how."""

from __future__ import annotations

import ast
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax, nn
from fxgrad.engine.core.primitive import NO_TANGENT, NOT_LINEAR, Cost, Primitive
from fxgrad.errors import ArgumentError, UnsupportedError
from fxgrad.scipy.special import erf
from tests.support.with_onnx import compared, run, to_onnx

X = np.array([0.5, -1.25, 2.0])


def wave(x: Any) -> Any:
    """One operation on one line."""
    return np.sin(x)


def names(values: Any) -> list[str]:
    return [value.name for value in values]


def test_names() -> None:
    def model(params, x):
        with fxgrad.named_scope("encoder"):
            hidden = np.tanh(x @ params["w"])
        return {"shares": nn.softmax(hidden), "hidden": hidden}

    made = to_onnx(model)({"w": np.ones((3, 2))}, X)
    assert made.graph.name == "model"
    assert names(made.graph.input) == ["params.w", "x"]
    assert names(made.graph.output) == ["result.hidden", "result.shares"]
    assert [node.op_type for node in made.graph.node[:2]] == ["MatMul", "Tanh"]
    assert [node.name for node in made.graph.node[:2]] == ["encoder/a", "encoder/result.hidden"]
    assert all(node.name.startswith("softmax/") for node in made.graph.node[2:])
    assert {node.doc_string.partition(":")[0] for node in made.graph.node[:2]} == {"test_export.py"}
    every = [name for node in made.graph.node for name in node.output]
    assert len(every) == len({*every, *names(made.graph.input)}) - 2


def test_closed_over_arrays_are_initializers() -> None:
    table = np.arange(6.0).reshape(2, 3)
    made = compared(fxgrad.make_program(lambda x: table @ x)(X), [X])
    array, = (onnx.numpy_helper.to_array(each) for each in made.graph.initializer)
    np.testing.assert_array_equal(array, table)


def test_outputs_that_no_node_makes() -> None:
    """Inputs, numbers and one value twice are handed on by nodes of their own."""
    made = compared(fxgrad.make_program(lambda x, y: (x, 2.0, np.sin(y), np.sin(y), x))(X, X), [X, X])
    assert [node.op_type for node in made.graph.node] == ["Sin", "Identity", "Identity", "Identity", "Identity"]
    assert names(made.graph.output) == [f"result[{number}]" for number in range(5)]


def test_a_value_of_a_body_with_the_name_of_an_output() -> None:
    """The name is the output's; that of the value inside, and of its node, is another one."""
    def power(x: Any, n: Any) -> Any:
        result = 1.0
        while n > 0:
            if n % 2 == 1:
                result = result * x
            x = x * x
            n = n // 2
        return result
    program = fxgrad.make_program(fxgrad.python_control_flow(power))(1.3, 5)
    model = compared(program, (1.3, 5))
    assert [value.name for value in model.graph.output] == ["result"]


def test_programs_have_their_types() -> None:
    program = fxgrad.make_program(wave)(X)
    again = to_onnx(wave)(fxgrad.ShapeDtypeStruct((3,), "float64"))
    assert to_onnx(program)().SerializeToString() == again.SerializeToString()
    with pytest.raises(ArgumentError) as raised:
        to_onnx(program)(X)
    assert str(raised.value).startswith("to_onnx: a program has its types, and takes no further arguments; pass the "
                                        "function for others")


def test_files(tmp_path: Path) -> None:
    file = io.BytesIO()
    model = fxgrad.onnx.save(file, wave, X)
    fxgrad.onnx.save(tmp_path / "cos.onnx", wave, X)
    assert (tmp_path / "cos.onnx").read_bytes() == file.getvalue() == model.SerializeToString()
    assert onnx.load(tmp_path / "cos.onnx").SerializeToString() == model.SerializeToString()


def test_feeds_are_as_many_as_inputs() -> None:
    model = to_onnx(lambda x, y: x + y)(X, 1.0)
    with pytest.raises(ArgumentError) as raised:
        fxgrad.onnx.feeds(model, X)
    assert str(raised.value).startswith("onnx.feeds: 1 arrays, and the model takes 2: x, y. Pass what the function was "
                                        "traced with")


def test_keys_are_words() -> None:
    model = to_onnx(fxgrad.random.split)(fxgrad.random.key(5))
    kind = model.graph.input[0].type.tensor_type
    assert kind.elem_type == onnx.TensorProto.UINT32
    assert [each.dim_value for each in kind.shape.dim] == [2]
    found, = run(model, fxgrad.onnx.feeds(model, fxgrad.random.key(5)))
    np.testing.assert_array_equal(found, fxgrad.random.key_data(fxgrad.random.split(fxgrad.random.key(5))))


def test_versions() -> None:
    """A model is of the oldest version that has its operators."""
    plain = to_onnx(np.sin)(X)
    of_bits = to_onnx(lambda x: lax.bitcast_convert_type(x, np.int64))(X)
    assert [(model.opset_import[0].version, model.ir_version) for model in (plain, of_bits)] == [(21, 10), (26, 13)]


def test_a_primitive_of_the_users() -> None:
    """It has no rule, and is written as what its rule for XLA is made of."""
    softsign = Primitive(
        name="softsign", abstract=lambda x: [x], numpy=lambda x: [x / (1 + np.abs(x))],
        xla=lambda lax, x: [lax.div(x, lax.add(lax.abs(x), lax.full_like(x, 1)))], jvp=NO_TANGENT,
        transpose=NOT_LINEAR, batch=lambda size, values, axes: (fxgrad.bind(softsign, *values), axes),
        cost=lambda x: Cost(x.size, 2 * x.nbytes))
    model = compared(fxgrad.make_program(lambda x: fxgrad.bind(softsign, x)[0])(X), [X])
    assert {"Abs", "Add", "Div"} <= {node.op_type for node in model.graph.node}


# --- refusals -------------------------------------------------------------------------------------------------------


def message(function: Any, *args: Any) -> str:
    """What the refusal says, with the line left out."""
    with pytest.raises(UnsupportedError) as raised:
        to_onnx(function)(*args)
    text, _, place = str(raised.value).partition("\n  at ")
    assert not place or place.startswith("test_export.py:")
    return text


def test_refusals() -> None:
    def values(a):
        return np.linalg.eigvalsh(a @ a.T)

    assert message(values, np.eye(2)) == (
        "to_onnx: eigh is a decomposition for which ONNX has no operator. Compute it before the export and pass what "
        "it gives as arguments, or export what comes before and behind it as two models")
    assert message(lambda z: z * 2, np.ones(2, complex)) == (
        "to_onnx: z is an array of dtype complex128, for which ONNX has no operators; real arrays have a form: pass "
        "real and imaginary parts as two arrays, or keep the program in fxgrad")
    assert message(lambda x: np.abs(np.fft.fft(x)), X) == (
        "to_onnx: convert_element_type has a value of dtype complex128, for which ONNX has no operators; real arrays "
        "have a form: pass real and imaginary parts as two arrays, or keep the program in fxgrad")
    assert message(lambda x: fxgrad.pure_callback(np.sin, fxgrad.ShapeDtypeStruct((3,), "float64"), x), X) == (
        "to_onnx: pure_callback calls Python, which a model cannot. Leave it out of the function that is exported")
    assert message(lambda x: fxgrad.scipy.special.gammainc(x, x), X) == (
        "to_onnx: igamma is a series whose length depends on the values, for which ONNX has no operator. Compute it "
        "before the export and pass its values as an argument")


def test_a_model_has_outputs() -> None:
    assert message(lambda x: None, X) == (
        "to_onnx: the function returns no array, and a model has at least one output. Return what is to be computed")


def test_refusals_name_the_line() -> None:
    def values(a):
        return np.linalg.eigvalsh(a)

    with pytest.raises(UnsupportedError) as raised:
        to_onnx(values)(np.eye(2))
    line = values.__code__.co_firstlineno + 1
    assert str(raised.value).endswith(f"\n  at test_export.py:{line} (in values)")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert message(np.sin, X) == ("fxgrad.onnx writes models with the package onnx, which is not installed: "
                                  "pip install 'fxgrad[onnx]'")


# --- special points -------------------------------------------------------------------------------------------------

ODD = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1e-30, 700.0])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_special_points(dtype: str) -> None:
    """Infinities, NaNs and zeros, in all that is written by a formula."""
    x = ODD.astype(dtype)

    def function(x):
        return (np.sinh(x), np.cosh(x), np.tanh(x), np.arcsinh(x), np.arctan(x), np.expm1(x), np.log1p(x), np.cbrt(x),
                erf(x), fxgrad.scipy.special.erfc(x), nn.sigmoid(x), np.sign(x), np.exp2(x),
                np.arccosh(x), np.arctanh(x), np.arcsin(x), np.arccos(x), np.logaddexp(x, 1.0), np.sqrt(x), x ** -2,
                fnp.round(x), lax.nextafter(x, np.ones_like(x)), np.arctan2(x, 1.0), np.arctan2(x, -x))

    compared(fxgrad.make_program(function)(x), [x])


def test_signs_of_zeros() -> None:
    def function(x):
        odd = np.arctan(x), np.tanh(x), np.round(x), np.sinh(x), np.arcsinh(x), np.cbrt(x), erf(x), np.expm1(x)
        odd = (*odd, np.log1p(x), fnp.array(x).at[np.array([0, 1])].get(mode="fill"), lax.round(x))
        return [1 / each for each in (*odd, np.arctan2(x, 1.0))]

    x = np.array([-0.0, 0.0])
    compared(fxgrad.make_program(function)(x), [x])


def test_models_that_were_written_before_run() -> None:
    """Each was written when operators of its version were the newest; none is ever written again."""
    found = sorted((Path(__file__).parents[2] / "support").glob("*.onnx"))
    assert [path.name for path in found] == ["step-1.onnx"]
    model, x = onnx.load(found[0]), np.arange(6.0).reshape(2, 3)
    slope, _, count, value = run(model, fxgrad.onnx.feeds(model, ({"w": np.eye(3), "b": np.zeros(3)}, 4), x))
    assert int(count) == 5
    np.testing.assert_allclose(value, np.sum(np.tanh(x) ** 2), rtol=1e-14)
    np.testing.assert_allclose(slope, -0.2 * np.sum(np.tanh(x) / np.cosh(x) ** 2, 0), rtol=1e-12)


@pytest.mark.slow
def test_every_model_of_the_suite_is_loaded_and_run() -> None:
    """Tests make models by helpers that give them to onnxruntime; by hand only where the making is refused."""
    tests = Path(__file__).resolve().parents[2]
    helpers = {tests / "support" / "with_onnx.py", tests / "support" / "targets.py"}  # both run what they make
    found = []
    for path in {*tests.rglob("*.py")} - helpers:
        module = ast.parse(path.read_text(encoding="utf-8"))
        refused = {id(inner) for node in ast.walk(module) if isinstance(node, ast.FunctionDef) and "refuse" in node.name
                   for inner in ast.walk(node)}
        found += [f"{path.name}:{node.lineno}" for node in ast.walk(module) if isinstance(node, ast.Attribute)
                  and node.attr == "to_onnx" and id(node) not in refused]
    assert not found
