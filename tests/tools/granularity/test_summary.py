"""Summaries: their figures against closed forms, their totals against what else counts, and how layers are found."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import errors, lax

RNG = np.random.default_rng(0)
SIZES = [4, 8, 6, 3]
BATCH = 5
PARAMS = [{"W": RNG.normal(size=(a, b)), "b": RNG.normal(size=b)} for a, b in pairwise(SIZES)]
X = RNG.normal(size=(BATCH, 4))


def dense(layer: Any, x: Any) -> Any:
    return x @ layer["W"] + layer["b"]


def mlp(params: Any, x: Any) -> Any:
    for layer in params[:-1]:
        x = np.tanh(dense(layer, x))
    return dense(params[-1], x)


def scoped(params: Any, x: Any) -> Any:
    for number, layer in enumerate(params):
        with fxgrad.named_scope(f"layer{number}"):
            x = np.tanh(dense(layer, x))
    return x


def test_v5_an_mlp_in_closed_form() -> None:
    found = fxgrad.tabulate(scoped)(PARAMS, X)
    assert [row.name for row in found] == ["layer0", "layer1", "layer2"]
    for row, inputs, outputs in zip(found, SIZES, SIZES[1:], strict=False):
        assert row.operations == ("dot_general", "add", "tanh")
        assert [aval.shape for aval in row.outputs] == [(BATCH, outputs)]
        assert row.parameters == inputs * outputs + outputs
        assert row.parameter_bytes == 8 * row.parameters
        assert row.flops == 2 * BATCH * inputs * outputs + 2 * BATCH * outputs
    assert found.parameters == sum(row.parameters for row in found)
    assert found.parameter_bytes == 8 * found.parameters


def convolutions(params: Any, x: Any) -> Any:
    with fxgrad.named_scope("first"):
        x = fxgrad.nn.relu(lax.conv_general_dilated(x, params["first"], (1, 1), "SAME") + params["bias"][:, None, None])
    with fxgrad.named_scope("second"):
        x = lax.conv_general_dilated(x, params["second"], (2, 2), "VALID")
    with fxgrad.named_scope("head"):
        return x.reshape(len(x), -1) @ params["head"]


CONVOLUTIONS = {"first": RNG.normal(size=(8, 3, 3, 3)), "bias": RNG.normal(size=8),
                "second": RNG.normal(size=(4, 8, 3, 3)), "head": RNG.normal(size=(4 * 2 * 2, 10))}
IMAGES = RNG.normal(size=(2, 3, 6, 6))


def test_v5_a_convolutional_network_in_closed_form() -> None:
    found = fxgrad.tabulate(convolutions)(CONVOLUTIONS, IMAGES)
    assert [(row.name, [aval.shape for aval in row.outputs]) for row in found] == [
        ("first", [(2, 8, 6, 6)]), ("second", [(2, 4, 2, 2)]), ("head", [(2, 10)])]
    assert [row.parameters for row in found] == [8 * 3 * 3 * 3 + 8, 4 * 8 * 3 * 3, 16 * 10]
    assert found["second"].flops == 2 * (2 * 4 * 2 * 2) * (8 * 3 * 3)
    assert found["head"].flops == 2 * 2 * 16 * 10
    # One for the bias, and relu compares and chooses.
    assert found["first"].flops == 2 * (2 * 8 * 6 * 6) * (3 * 3 * 3) + 2 * (2 * 8 * 6 * 6)


@fxgrad.custom_vjp
def squared(x: Any) -> Any:
    return np.sum(x * x)


squared.defvjp(lambda x: (np.sum(x * x), x), lambda x, cotangent: (2.0 * x * cotangent,))


def recurrent(params: Any, x: Any) -> Any:
    def step(carry: Any, entry: Any) -> Any:
        with fxgrad.named_scope("cell"):
            carry = np.tanh(params[0]["W"].T @ entry + carry)
        return carry, None
    with fxgrad.named_scope("loop"):
        carry, _ = lax.scan(step, params[0]["b"], x)
    return squared(carry) + np.sum(fxgrad.checkpoint(lambda carry: np.sin(carry * 2.0))(carry))


@pytest.mark.parametrize(("function", "args"), [
    (mlp, (PARAMS, X)), (scoped, (PARAMS, X)), (convolutions, (CONVOLUTIONS, IMAGES)), (recurrent, (PARAMS, X)),
    (lambda params, x: fxgrad.nn.log_softmax(fxgrad.named_call(mlp)(params, x)), (PARAMS, X)),
    (lambda params, x: mlp(params, x * np.arange(4.0)) * np.ones(3), (PARAMS, X)),  # closes over arrays
    (fxgrad.grad(lambda params, x: np.sum(mlp(params, x))), (PARAMS, X))])
def test_totals_are_those_of_the_program(function: Any, args: Any) -> None:
    found = fxgrad.tabulate(function)(*args)
    program = fxgrad.make_program(function)(*args)
    assert found.cost == fxgrad.cost_analysis(program)
    assert sum(row.flops for row in found) == found.cost.flops
    assert found.saved_bytes == sum(residual.nbytes for residual in fxgrad.saved_residuals(program, *args))
    leaves = fxgrad.tree.leaves(args[0])
    assert found.parameters == sum(leaf.size for leaf in leaves)
    assert found.parameter_bytes == sum(leaf.nbytes for leaf in leaves)


def test_layers_that_are_functions() -> None:
    found = fxgrad.tabulate(mlp)(PARAMS, X)
    assert [row.name for row in found] == ["dense", "mlp", "dense (2)", "mlp (2)", "dense (3)"]
    assert found["dense (2)"].parameters == 8 * 6 + 6
    assert found["mlp"].parameters == 0


def test_layers_within_layers_and_jitted_functions() -> None:
    def block(layer: Any, x: Any) -> Any:
        with fxgrad.named_scope("mix"):
            return np.tanh(x @ layer["W"][:4, :4])

    def network(params: Any, x: Any) -> Any:
        for number, layer in enumerate(params[:2]):
            x = fxgrad.named_call(block, name=f"block{number}")({"W": layer["W"]}, x[:, :4])
        return x

    square = [{"W": np.ones((4, 4))}] * 2
    deep, flat = fxgrad.tabulate(network)(square, X), fxgrad.tabulate(fxgrad.jit(network), depth=1)(square, X)
    assert [row.name for row in deep] == ["block0/mix", "block1/mix"]
    assert [row.name for row in flat] == ["block0", "block1"]
    assert deep.cost == flat.cost


def test_a_loop_counts_all_its_steps() -> None:
    found = fxgrad.tabulate(recurrent)(PARAMS, X)
    assert [row.name for row in found] == ["loop", "squared", "function", "recurrent"]
    assert found["loop"].flops == BATCH * (2 * 4 * 8 + 8 + 8)
    assert found["loop"].parameters == 4 * 8 + 8
    assert found.parameters == sum(array.size for layer in PARAMS for array in layer.values())  # used or not


def test_parameters_that_are_marked() -> None:
    def loss(x: Any, weights: fxgrad.Param, bias: fxgrad.Param) -> Any:
        return x @ weights + bias

    args = X, np.ones((4, 2)), np.ones(2)
    assert fxgrad.tabulate(loss)(*args).parameters == 10
    assert fxgrad.tabulate(loss, argnums=1)(*args).parameters == 8
    assert fxgrad.tabulate(loss, argnums=(0, -1))(*args).parameters == 22
    with pytest.raises(errors.ArgumentError) as caught:
        fxgrad.tabulate(loss, argnums=3)(*args)
    assert str(caught.value).splitlines()[0] == (
        "tabulate: argnums=3 of a function that was called with 3 arguments")


def test_without_a_derivative_and_without_operations() -> None:
    found = fxgrad.tabulate(lambda i: i * 2 + 1)(np.arange(3))
    assert found.saved_bytes is None
    assert [row.saved_bytes for row in found] == [None]
    assert "-" in str(found)
    assert fxgrad.tabulate(lambda x: x)(X).rows == ()


def test_objects_programs_and_keywords() -> None:
    class Model:
        def __call__(self, params: Any, x: Any) -> Any:
            return np.tanh(x @ params)

    W = np.ones((4, 2))
    found = fxgrad.tabulate(Model())(W, X)
    assert (found.title, [row.name for row in found]) == ("Model", ["Model"])
    assert fxgrad.tabulate(Model())(W, x=X).rows == found.rows
    of_program = fxgrad.tabulate(fxgrad.make_program(Model())(W, X))(W, X)
    assert (of_program.title, of_program.rows) == ("Model", found.rows)
    with pytest.raises(errors.ArgumentError, match=r"^tabulate takes a function, got a int\. "):
        fxgrad.tabulate(3)  # type: ignore[arg-type]


def test_types_alone_are_enough() -> None:
    shapes = fxgrad.tree.map(lambda leaf: fxgrad.ShapeDtypeStruct(leaf.shape, leaf.dtype), (PARAMS, X))
    assert fxgrad.tabulate(scoped)(*shapes).rows == fxgrad.tabulate(scoped)(PARAMS, X).rows


def test_how_it_is_shown() -> None:
    found = fxgrad.tabulate(scoped)(PARAMS, X)
    lines = [[cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")] for line in
             str(found).splitlines() if "│" in line or "┃" in line]
    assert lines[0] == ["layer", "operations", "output", "parameters", "flops", "saved bytes"]
    assert lines[1][:5] == ["layer0", "dot_general, add, tanh", "f64[5,8]", "40", "400"]
    assert lines[-1][0] == "total"
    assert lines[-1][3] == "115 (920 bytes)"
    assert "layer0" in found._repr_html_()
    assert repr(found) == "<summary of scoped: 3 layers, 115 parameters>"


def test_g16_layers_and_operations_are_counted() -> None:
    """A diagram of the architecture has one box for a layer; the equations of the layer are inside."""
    program = fxgrad.make_program(scoped)(PARAMS, X)
    assert [equation.scope for equation in program.equations] == ["layer0"] * 3 + ["layer1"] * 3 + ["layer2"] * 3
    found = fxgrad.tabulate(scoped)(PARAMS, X)
    assert (len(found.rows), len(program.equations)) == (3, 9)


def test_programs_whose_derivative_captures_and_callbacks() -> None:
    slope = fxgrad.grad(lambda x: fxgrad.while_loop(lambda c: c < 10, lambda c: c * 1.5, x))
    assert fxgrad.tabulate(slope)(1.0).cost == fxgrad.cost_analysis(fxgrad.make_program(slope)(1.0))
    called = fxgrad.tabulate(lambda x: fxgrad.pure_callback(np.sin, fxgrad.ShapeDtypeStruct((2,), np.float64), x))
    assert called(np.ones(2)).saved_bytes is None
