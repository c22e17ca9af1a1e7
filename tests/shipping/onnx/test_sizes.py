"""Models whose sizes have names: one model for every size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
from fxgrad import symbolic_spec
from fxgrad.errors import FxgradError, UnsupportedError
from tests.support.sized_functions import FUNCTIONS, drawn, spec_of
from tests.support.with_onnx import check, close, readable, run, to_onnx

REFUSED = {"cumsum", "prod", "solve", "chol", "det", "inv", "eigh", "svd", "batchsolve", "fft", "fftn",
           "irfft", "convolution by transforms"}
"""What takes as many nodes as a size says (some in the gradient alone), factorizations, and complex numbers."""
SINGLE = {"attn", "attnc", "random"}
"""These compute in float32 on the way."""


def holds_at(program: fxgrad.Program, name: str, shapes: Any, counts: tuple[int, ...]) -> None:
    """Holds one model of `program` to it at several sizes."""
    model = to_onnx(program)()
    check(model)
    for count in counts:
        args = [drawn(shape, count, name) for shape in shapes]
        outputs = run(readable(model), fxgrad.onnx.feeds(model, *args))
        for found, wanted in zip(outputs, jax.tree.leaves(program(*args)), strict=True):
            close(found, wanted, 2e6 if name in SINGLE else 10.0, name)  # times 1e-11


def slope(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of the sum of squares of the float results."""
    return fxgrad.grad(lambda *args: sum(np.sum(leaf * leaf) for leaf in jax.tree.leaves(function(*args))
                                         if np.dtype(leaf.dtype).kind == "f"))


def dimensions(value: Any) -> list[Any]:
    return [each.dim_param or each.dim_value for each in value.type.tensor_type.shape.dim]


def test_names_of_sizes() -> None:
    def function(x, y):
        return np.concatenate([x, y]) / x.shape[0], x[1:]

    program = fxgrad.make_program(function)(symbolic_spec("n", 3), symbolic_spec("m", 3))
    model = to_onnx(program)()
    assert [*map(dimensions, model.graph.input)] == [["n", 3], ["m", 3]]
    assert [*map(dimensions, model.graph.output)] == [["n+m", 3], ["n-1", 3]]
    holds_at(program, "names", (("n", 3), ("m", 3)), (3, 5))


def test_a_size_that_is_nowhere() -> None:
    def function(x):
        return fxgrad.numpy.arange(x.shape[0] // 2)

    holds_at(fxgrad.make_program(function)(symbolic_spec("2*n")), "half", (("2*n",),), (3, 5))
    with pytest.raises(UnsupportedError) as raised:
        to_onnx(lambda x: fxgrad.numpy.sum(x) / (x.shape[0] + 1))(symbolic_spec("n*m"))
    assert str(raised.value).partition("\n")[0] == (
        "to_onnx: size needs the size m, which is that of no axis of an argument by itself. Pass an array that has an "
        "axis of this size")


def test_sizes_that_say_how_many_nodes_there_are() -> None:
    with pytest.raises(UnsupportedError) as raised:
        to_onnx(lambda x: np.cumprod(x))(symbolic_spec("n"))
    assert str(raised.value).partition("\n")[0] == (
        "to_onnx: cumprod runs along an axis of the size n, and how many nodes it takes depends on that. Trace the "
        "function for a number")
    with pytest.raises(UnsupportedError) as raised:
        to_onnx(lambda x: np.linalg.cholesky(x))(symbolic_spec("n", "n"))
    assert str(raised.value).partition("\n")[0] == (
        "to_onnx: cholesky needs a number in the place of n, since the nodes that it becomes depend on it. Trace the "
        "function for a number")


@pytest.mark.slow
def test_every_function() -> None:
    """Each, and its gradient, at three sizes; those that are refused say so."""
    problems, equal = [], 0
    for name, (function, shapes) in FUNCTIONS.items():
        for traced in [function] + [slope(function)] * (spec_of(shapes[0]).dtype.kind == "f"):
            try:
                program = fxgrad.make_program(traced)(*map(spec_of, shapes))
            except FxgradError:  # a gradient that has no meaning, or an algorithm that needs a number
                continue
            try:
                holds_at(program, name, shapes, (3, 4, 1))
                equal += 1
            except UnsupportedError as refusal:
                if name not in REFUSED:
                    problems.append(f"{name}: {refusal}")
            except AssertionError as error:
                problems.append(f"{name}: {error}")
    assert not problems, "\n".join(problems)
    assert equal > 220


def test_sums_of_integers_wrap() -> None:
    model = to_onnx(lambda x: (np.sum(x), np.sum(x, axis=0)))(symbolic_spec(("n", 3), "i64"))
    for count in (0, 1, 5):
        x = np.full((count, 3), 2 ** 62 + 1)
        total, rows = run(model, {"x": x})
        assert total == np.sum(x)
        np.testing.assert_array_equal(rows, np.sum(x, axis=0))
