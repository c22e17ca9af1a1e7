"""Folding by scope: the calls that come of it, and that unfolding gives the same program again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad
from fxgrad import errors, lax
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.tracing.provenance import CALL_NAMES

X, W = np.array([0.5, -1.0]), np.array([[0.5, 1.0], [-0.3, 0.2]])


def block(x: Any, W: Any) -> Any:
    with fxgrad.named_scope("mix"):
        mixed = fxgrad.nn.softmax(x @ W)
    with fxgrad.named_scope("act"):
        return np.tanh(mixed) * x


def network(x: Any, W: Any) -> Any:
    for number in range(2):
        with fxgrad.named_scope(f"block{number}"):
            x = block(x, W)
    return np.sum(x * x)


def loop(x: Any, W: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        with fxgrad.named_scope("cell"):
            return np.tanh(carry @ W), None
    return lax.scan(step, x, None, 3)[0]


def is_folded(equation: Equation) -> bool:
    """Whether a call is no library function."""
    found = CALL_NAMES.of(equation.programs[0])
    return found is not None and not found.is_library


def called(program: Program) -> list[str]:
    return [equation.params.get("name", equation.primitive.name) for equation in program.equations]


def test_scopes_become_calls() -> None:
    program = fxgrad.make_program(network)(X, W)
    folded = fxgrad.outline(program)
    assert called(folded) == ["block0", "block1", "mul", "reduce_sum"]
    assert called(folded.equations[0].programs[0]) == ["mix", "act"]
    assert called(fxgrad.outline(program, depth=1).equations[0].programs[0]) == ["dot_general", "softmax", "tanh",
                                                                                 "mul"]
    assert called(fxgrad.outline(program, "*1"))[-3:] == ["block1", "mul", "reduce_sum"]
    assert called(fxgrad.outline(program, ["nothing"])) == called(program)
    assert fxgrad.outline(program, "nothing") is program
    assert fxgrad.outline(program, depth=0) is program


@pytest.mark.parametrize("function", [
    network, loop, fxgrad.grad(network), fxgrad.grad(network, argnums=(0, 1)), fxgrad.vmap(network, in_axes=(0, None)),
    lambda x, W: fxgrad.jvp(lambda x: network(x, W), (x,), (x,))])
def test_the_same_program_again(function: Any) -> None:
    args = (np.stack([X, X]), W) if getattr(function, "transformed", ("",))[0] == "vmap" else (X, W)
    program = fxgrad.make_program(function)(*args)
    for depth in (None, 1, 2):
        folded = fxgrad.outline(program, depth=depth)
        assert folded is not program
        assert fxgrad.text.equal(fxgrad.parse(str(folded)), folded)
        for one, other in zip(fxgrad.tree.leaves(folded(*args)), fxgrad.tree.leaves(program(*args)), strict=True):
            np.testing.assert_array_equal(one, other)
        again = fxgrad.inline(folded, calls=is_folded)
        assert fxgrad.text.equal(again, program)
        assert [equation.scope for equation in again.equations] == [equation.scope for equation in program.equations]


def test_of_folded_programs() -> None:
    program = fxgrad.make_program(network)(X, W)
    folded = fxgrad.outline(program)
    np.testing.assert_allclose(fxgrad.grad(folded)(X, W), fxgrad.grad(network)(X, W), rtol=1e-15)
    assert [row.name for row in fxgrad.tabulate(folded)(X, W)] == [row.name for row in fxgrad.tabulate(network)(X, W)]
    with pytest.raises(errors.ArgumentError, match=r"^outline takes a program, got a function\. "):
        fxgrad.outline(network)  # type: ignore[arg-type]
