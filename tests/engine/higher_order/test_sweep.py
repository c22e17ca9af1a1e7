"""Loops whose number of steps is known at run time, walked back: by a table of states, and by segments of steps."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import fxgrad
from fxgrad.engine.higher_order import sweep
from fxgrad.engine.higher_order.sweep import steps_within

pytestmark = pytest.mark.slow


def test_places_for_states_reach_as_far_as_binomials_say() -> None:
    """The steps that s places and r repetitions walk back are those of one place less, and of one repetition less."""
    table = steps_within(6).astype(int)
    assert (table[0] == 1).all()
    assert (table[:, 0] == 1).all()
    np.testing.assert_array_equal(table[1:, 1:], table[:-1, 1:] + table[1:, :-1])
    assert steps_within(128).max() == 2 ** 31 - 1


SEGMENTED = 5  # steps in a segment
COUNTS = (0, 1, SEGMENTED - 1, SEGMENTED, SEGMENTED + 1, 2 * SEGMENTED, 7 * SEGMENTED + 3)


def many_steps(x: Any, steps: Any, scale: Any) -> Any:
    """A vector and an integer, of which the vector is multiplied by something else at each step."""
    return fxgrad.lax.while_loop(lambda c: c[0] < steps, lambda c: (c[0] + 1, np.sin(c[1]) * scale + c[0] * 0.1),
                                 (0, x))[1]


def by_hand(x: Any, steps: int, scale: Any) -> Any:
    for step in range(steps):
        x = np.sin(x) * scale + step * 0.1
    return x


@pytest.fixture
def _short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of few steps, and a table of few of them."""
    bounds = {"LONGEST_SEGMENT": SEGMENTED, "SHORTEST_SEGMENT": 1, "MOST_STATES": 3, "FEWEST_STATES": 2}
    for name, value in bounds.items():
        monkeypatch.setattr(sweep, name, value)


@pytest.mark.usefixtures("_short_segments")
@pytest.mark.parametrize("transform", [
    lambda f: fxgrad.grad(f, (0, 2)), lambda f: fxgrad.jacfwd(fxgrad.grad(f)), lambda f: fxgrad.jacrev(fxgrad.grad(f)),
    lambda f: fxgrad.vmap(fxgrad.grad(f, (0, 2)), in_axes=(0, None, None))],
    ids=["gradient", "forward over reverse", "reverse over reverse", "batch"])
def test_gradients_of_while_loops_at_the_ends_of_segments(transform: Any) -> None:
    """Compiled, where states are visited by segments, for numbers of steps around theirs."""
    def total(loop: Any) -> Any:
        return lambda x, steps, scale: np.sum(loop(x, steps, scale) ** 2)
    x, scale = np.array([0.3, 1.1]), np.float64(0.9)
    given = np.stack([x, 2.0 * x]) if "vmap" in transform.__code__.co_names else x
    compiled = fxgrad.jit(transform(total(many_steps)))
    for count in COUNTS:
        expected = transform(total(lambda x, _, scale, count=count: by_hand(x, count, scale)))(given, count, scale)
        found = compiled(given, np.int32(count), scale)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14, err_msg=str(count))


@pytest.mark.usefixtures("_short_segments")
def test_lanes_of_several_numbers_of_steps_are_visited_each_as_often() -> None:
    x, counts = np.linspace(0.1, 0.9, len(COUNTS)), np.array(COUNTS)
    gradient = fxgrad.jit(fxgrad.vmap(fxgrad.grad(lambda x, steps: many_steps(x, steps, 0.9))))(x, counts)
    expected = [fxgrad.grad(lambda x, count=count: by_hand(x, count, 0.9))(each)
                for each, count in zip(x, COUNTS, strict=True)]
    np.testing.assert_allclose(gradient, expected, rtol=1e-12)


def test_each_state_is_computed_few_times() -> None:
    """Once to count the steps, and at most three times on the way back."""
    taken = [0]

    def counted(x: Any) -> Any:
        taken[0] += 1
        return np.asarray(x)

    def loss(x: Any, steps: Any) -> Any:
        def body(c: Any) -> Any:
            return c[0] + 1, np.sin(c[1]) + fxgrad.pure_callback(
                counted, jax.ShapeDtypeStruct((), np.float64), fxgrad.stop_gradient(c[1])) * 1e-3
        return fxgrad.lax.while_loop(lambda c: c[0] < steps, body, (0, x))[1]
    fxgrad.jit(fxgrad.grad(loss))(np.float64(0.3), np.int32(5_000))
    assert 5_000 <= taken[0] <= 4 * 5_000
