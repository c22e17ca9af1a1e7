"""The memory that NumPy's kernels need beside operands and results: what is said, and what NumPy takes."""

from __future__ import annotations

import tracemalloc

import numpy as np

import fxgrad
from fxgrad import lax
from fxgrad.engine.analyses.work_space import work_space

NOISE = 200_000
"""Bytes: less than the smallest copy of the table, more than the buffers of a ufunc."""

PRODUCTS = {
    "matrices": (((1,), (0,)), ((), ()), (128, 512), (512, 64)),
    "a matrix by its transpose": (((0,), (0,)), ((), ()), (512, 128), (512, 64)),
    "outer": (((), ()), ((), ()), (512, 64), (4,)),
    "of all elements": (((0, 1), (0, 1)), ((), ()), (512, 128), (512, 128)),
    "of all elements, transposed": (((0, 1), (1, 0)), ((), ()), (512, 128), (128, 512)),
    "of all elements, in another order": (((1, 0), (0, 1)), ((), ()), (512, 128), (128, 512)),
    "two axes between": (((1, 0), (1, 2)), ((), ()), (32, 16, 64), (128, 16, 32)),
    "batches": (((2,), (1,)), ((0,), (0,)), (8, 64, 128), (8, 128, 64)),
    "batches of vectors": (((), ()), ((0,), (0,)), (512, 128), (512, 2)),
    "batches between": (((0,), (0,)), ((1,), (1,)), (64, 8, 128), (64, 8, 64)),
    "batches between free axes": (((), ()), ((1,), (0,)), (64, 8, 128), (8, 2)),
}
"""The axes that are contracted, those of batches, and two shapes."""


def test_the_copies_of_products_are_those_of_numpy() -> None:
    wrong = {}
    for name, (contracted, batches, *shapes) in PRODUCTS.items():
        x, y = (np.ones(shape) for shape in shapes)
        program = fxgrad.make_program(lambda x, y, axes=(contracted, batches): lax.dot_general(x, y, axes))(x, y)
        equation, = program.equations
        said = work_space.of(equation.primitive)
        assert said is not None
        kernel = equation.primitive.numpy
        kernel(x, y, **equation.params)
        tracemalloc.start()
        result = kernel(x, y, **equation.params)
        taken = tracemalloc.get_traced_memory()[1] - np.asarray(result).nbytes
        tracemalloc.stop()
        if abs(said(equation) - taken) > NOISE:
            wrong[name] = said(equation), taken
    assert not wrong


def test_what_a_branch_returns_is_counted_once() -> None:
    """It is the result of the `cond`; beside it there are the bool of 1 byte, and what branches need on the way."""
    x = fxgrad.ShapeDtypeStruct((100,), np.float32)
    for branch, temporary in ((np.sin, 1), (lambda x: np.sin(np.cos(x)), 1),
                              (lambda x: np.sin(x) * np.cos(x), 1 + 400)):
        found = fxgrad.memory_analysis(lambda x, f=branch: lax.cond(x[0] > 0, f, lambda x: x * 2.0, x))(x).unfused
        assert (found.results, found.temporary) == (400, temporary)
