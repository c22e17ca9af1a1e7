"""Programs as models of ONNX: checked, run by onnxruntime, and equal to fxgrad's own results."""

from __future__ import annotations

import numpy as np
import pytest

import fxgrad
from tests.support.onnx_programs import CASES, Case
from tests.support.with_onnx import compared, run, to_onnx

QUICK = {"mlp", "softmax", "newton", "out_of_bounds", "whole_quotients", "nans", "casts"}


def check(case: Case, optimized: bool) -> None:
    """Holds a program, and its gradient, to what fxgrad computes."""
    functions = [case.function]
    if case.wrt:
        functions.append(fxgrad.value_and_grad(case.function, argnums=case.wrt))
    for function in functions:
        compared(fxgrad.make_program(function)(*case.args), case.args, case.tolerance, optimized)


@pytest.mark.parametrize("case", [case for case in CASES if case.name in QUICK], ids=lambda case: case.name)
def test_some_programs(case: Case) -> None:
    check(case, optimized=True)


@pytest.mark.slow
@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_program(case: Case, optimized: bool) -> None:
    check(case, optimized)


def test_there_are_enough() -> None:
    assert len(CASES) >= 50
    assert sum(bool(case.wrt) for case in CASES) >= 30


def test_training_goes_on_as_in_fxgrad() -> None:
    """The outputs of a step are the inputs of the next, and the loss falls as it does in fxgrad."""
    case = next(case for case in CASES if case.name == "sgd_step")
    model = to_onnx(case.function)(*case.args)
    (params, x, labels), losses, wanted = case.args, [], []
    theirs = params
    for _ in range(5):
        *leaves, loss = run(model, fxgrad.onnx.feeds(model, theirs, x, labels))
        theirs = fxgrad.tree.unflatten(fxgrad.tree.structure(params), leaves)
        losses.append(float(loss))
        params, loss = case.function(params, x, labels)
        wanted.append(float(loss))
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    assert losses[-1] < losses[0]
