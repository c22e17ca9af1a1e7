"""Worked examples of courses that claim something of all programs: broadcasting, fan-outs, ways to run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import grad, graph, make_program
from fxgrad.engine.transforms import joint, transpose

LOGITS = np.array([1.0, 2.0, 0.5])


def by_hand(logits, choice):
    exponentials = np.exp(logits)
    total = np.sum(exponentials)
    return -np.sum(choice * logits) + np.log(total)


def test_row_w8_cross_entropy_step_by_step() -> None:
    choice = np.array([0.0, 1.0, 0.0])
    kinds = {operation.op for operation in graph(by_hand)(LOGITS, choice).operations}
    assert kinds == {"exp", "reduce_sum", "log", "mul", "neg", "add"}  # the product with the choice selects
    softmax = np.exp(LOGITS) / np.sum(np.exp(LOGITS))
    np.testing.assert_allclose(grad(by_hand)(LOGITS, choice), softmax - choice, rtol=1e-14)
    np.testing.assert_allclose(graph(by_hand)(LOGITS, choice)["logits"].grad, softmax - choice, rtol=1e-14)


def _shapes() -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Pairs of shapes of at most four axes that broadcast to (2, 1, 3, 2)[:n]."""
    whole = (2, 1, 3, 2)
    for one, other in itertools.combinations_with_replacement(range(5), 2):
        for kept in itertools.product([False, True], repeat=one):
            small = tuple(size if keep else 1 for size, keep in zip(whole[4 - one:], kept, strict=True))
            yield small, whole[4 - other:]


@pytest.mark.slow
@pytest.mark.parametrize("operation", [np.add, np.multiply, np.subtract, np.divide], ids=lambda each: each.__name__)
def test_row_w15_gradients_of_broadcast_operands_have_their_shapes(operation: Any) -> None:
    generator = np.random.default_rng(0)
    for small, large in _shapes():
        x, y = generator.uniform(1, 2, size=small), generator.uniform(1, 2, size=large)
        weights = generator.normal(size=np.broadcast_shapes(small, large))
        slopes = grad(lambda x, y, weights=weights: np.sum(weights * operation(x, y)), argnums=(0, 1))(x, y)
        assert [np.shape(slope) for slope in slopes] == [small, large]
        for place, (value, slope) in enumerate(zip((x, y), slopes, strict=True)):
            direction = generator.normal(size=value.shape)

            values = [[x, y], [x, y]]
            values[0][place], values[1][place] = value + 1e-6 * direction, value - 1e-6 * direction
            above, below = (np.sum(weights * operation(*operands)) for operands in values)
            numeric = (above - below) / 2e-6
            np.testing.assert_allclose(np.sum(slope * direction), numeric, rtol=2e-7, atol=2e-7)


def test_row_w15_the_backward_program_sums_over_the_rows() -> None:
    program = make_program(grad(lambda b, x: np.sum(np.tanh(x + b))))(np.ones(3), np.ones((5, 3)))
    sums = [equation for equation in program.equations if equation.primitive.name == "reduce_sum"]
    assert [equation.params["axes"] for equation in sums] == [(0,)]


def fan_out(x):
    return x * x + np.sin(x) * x


@pytest.mark.parametrize("module", [joint, transpose], ids=["grad", "vjp"])
def test_row_w16_a_build_that_overwrites_at_fan_outs_is_wrong(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def slope() -> float:
        fxgrad.clear_caches()
        if module is joint:
            return [float(grad(fan_out)(3.0)) for _ in range(2)][-1]  # the second call makes the gradient program
        return float(fxgrad.vjp(fan_out, 3.0)[1](1.0)[0])

    right = 6.0 + np.sin(3.0) + 3.0 * np.cos(3.0)
    assert np.isclose(slope(), right)
    monkeypatch.setattr(module, "add", lambda before, after: after)
    monkeypatch.setattr(fxgrad.config, "check_level", 0)  # checks find it at the first call
    try:
        assert not np.isclose(slope(), right)
    finally:
        monkeypatch.undo()
        fxgrad.clear_caches()
    assert np.isclose(slope(), right)


def total(x):
    return fnp.sum(fnp.sin(x) * x)


FOUR_WAYS: dict[str, Any] = {
    "eager": lambda x: grad(total)(x),
    "program on NumPy": lambda x: make_program(grad(total))(x)(x),
    "compiled by XLA": lambda x: fxgrad.jit(grad(total))(x),
    "stored and loaded": lambda x: fxgrad.text.from_json(fxgrad.text.to_json(make_program(grad(total))(x)))(x),
    "printed and parsed": lambda x: fxgrad.parse(str(make_program(grad(total))(x)))(x),
}


@pytest.mark.parametrize("way", FOUR_WAYS)
@pytest.mark.parametrize("x", [np.float64(2.0), np.linspace(0.0, 2.0, 5), np.ones((0, 3)), np.ones(3, np.float32)],
                         ids=["scalar", "vector", "empty", "float32"])
def test_row_c1_one_function_run_in_several_ways(way: str, x: Any) -> None:
    found = np.asarray(FOUR_WAYS[way](x))
    np.testing.assert_allclose(found, np.cos(x) * x + np.sin(x), rtol=1e-14 if x.dtype == np.float64 else 1e-6)
    assert found.dtype == x.dtype
