"""The algebra of layout operations: fewer operations, the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.derivation.simplify import simplify

X = np.random.default_rng(0).normal(size=(2, 3, 4))

CASES: list[tuple[Callable[[Any], Any], list[str]]] = [
    (lambda x: x[1:][:, 1:][:, :, ::2], ["slice"]), (lambda x: x[:, ::2][:, 1:], ["slice"]),
    (lambda x: x[:, 5:][:, :0], ["slice"]), (lambda x: x[::-1][::-1], []), (lambda x: x[::-1][::-1, ::-1], ["rev"]),
    (lambda x: x[:1, ::-1], ["slice", "rev"]), (lambda x: x.reshape(6, 4).reshape(-1), ["reshape"]),
    (lambda x: x.T.T, []), (lambda x: fnp.pad(x, 0), []), (lambda x: fnp.tile(x, 1), []),
    (lambda x: fnp.stack([x]), ["reshape"]), (lambda x: fnp.split(x, 1), []),
    (lambda x: x.transpose(0, 2, 1) @ x, ["dot_general"]), (lambda x: x @ x.swapaxes(1, 2), ["dot_general"]),
    (lambda x: fnp.tensordot(x.transpose(2, 0, 1), x, ((1, 2), (0, 1))), ["dot_general"]),
    # Sums over two axes in another order would round otherwise.
    (lambda x: fnp.tensordot(x.transpose(1, 0, 2), x, ((0, 1), (1, 0))), ["transpose", "dot_general"]),
    # The free axes of the first operand change places, which the numbers of a product cannot say.
    (lambda x: fnp.tensordot(x.transpose(1, 0, 2), x, 0), ["transpose", "dot_general"]),
]


@pytest.mark.parametrize(("function", "expected"), CASES)
def test_rewrites(function: Callable[[Any], Any], expected: list[str]) -> None:
    program = fxgrad.make_program(function)(X)
    simple = simplify(program)
    assert [equation.primitive.name for equation in simple.equations] == expected
    before, after = program(X), simple(X)
    for left, right in zip(*(each if isinstance(each, list) else [each] for each in (before, after)), strict=True):
        np.testing.assert_array_equal(left, right)
