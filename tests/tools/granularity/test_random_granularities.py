"""Random programs and their gradients, made finer, coarser and changed: they compute the same as before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import fxgrad
import fxgrad.numpy as fnp
from tests.support.random_programs import BINARY, UNARY, build, recipes, shapes
from tests.support.tiers import examples

pytestmark = pytest.mark.slow
SORTS = {place for place, operation in enumerate(UNARY)
         if {"sort", "argsort", "argmax"}.intersection(operation.__code__.co_names)}
"""The operations that have no form in scalars."""


def in_scopes(steps: Any) -> Any:
    """The function of a recipe, of which every second operation is in a scope."""
    def function(x: Any, y: Any) -> Any:
        values = [x, y]
        for number, step in enumerate(steps):
            with fxgrad.named_scope(f"part{number // 3}" if number % 4 else ""):
                values.append(one_step(step, values))
        return fnp.sum(fnp.sin(values[-1]))

    def one_step(step: Any, values: Any) -> Any:
        kind, operation, first, second = step
        a, b = values[first], values[second]
        if kind == "unary":
            return UNARY[operation](fnp, a)
        return BINARY[operation](fnp, a, b if a.shape == b.shape else fnp.transpose(b))
    return function


def assert_same(first: Any, second: Any) -> None:
    for one, other in zip(fxgrad.tree.leaves(first), fxgrad.tree.leaves(second), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=5e-12, atol=5e-14)


@given(recipes(), shapes)
@examples(30)
def test_in_scalars(steps: Any, shape: tuple[int, int]) -> None:
    steps = [("unary", 0, *step[2:]) if step[0] == "unary" and step[1] in SORTS else step for step in steps]
    random = np.random.default_rng(0)
    x, y = random.normal(size=shape), random.normal(size=shape)
    program = fxgrad.make_program(build(steps, fnp))(x, y)
    scalars = fxgrad.scalarize(program).check()
    lists = x.tolist(), y.tolist()
    assert_same(scalars(*lists), program(x, y))
    for one, other in zip(fxgrad.grad(scalars, argnums=(0, 1))(*lists),
                          fxgrad.grad(program, argnums=(0, 1))(x, y), strict=True):
        assert_same(np.array(one), other)


@given(recipes(), shapes)
@examples(30)
def test_folded_unfolded_and_edited(steps: Any, shape: tuple[int, int]) -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=shape), random.normal(size=shape)
    for function in (in_scopes(steps), fxgrad.grad(in_scopes(steps))):
        program = fxgrad.make_program(function)(x, y)
        folded = fxgrad.outline(program, "part*", depth=1)
        assert_same(fxgrad.outline(program)(x, y), program(x, y))
        assert_same(folded(x, y), program(x, y))
        assert fxgrad.text.equal(fxgrad.inline(folded, calls="part*"), program)
        assert_same(fxgrad.inline(program, calls="*", loops=True).check()(x, y), program(x, y))
        assert fxgrad.text.equal(program.edit().program(), program)
        rewritten = fxgrad.replace_pattern(program, lambda a: np.sin(a), lambda a: np.cos(a - np.pi / 2), types=[x])
        assert_same(rewritten(x, y), program(x, y))
        backwards = fxgrad.replace_pattern(program, lambda a, b: a * b, lambda a, b: b * a, types=[x, x], shared=True)
        assert_same(backwards(x, y), program(x, y))
        assert fxgrad.tabulate(program)(x, y).cost == fxgrad.cost_analysis(program)
