"""Every public function that jax has too, its derivatives and batches, as models of ONNX."""

from __future__ import annotations

import numpy as np
import pytest

import fxgrad
from fxgrad.errors import UnsupportedError
from tests.comparison.cases import CASES
from tests.comparison.checks import Item, derived_items, value_items
from tests.comparison.libraries import LIBRARIES, functions
from tests.support.with_onnx import compared

DTYPES = ("float32", "float64", "int32", "bool")
APART = {"scipy.special.betaln in bool": "near its zero float32 has no digit left"}


def items(library: str) -> list[Item]:
    """The calls of all functions of a library, their derivatives and batches."""
    return [item for name in functions(library) for case in CASES[library].get(name, []) if not case.static
            for item in (*value_items(library, name, case, DTYPES), *derived_items(library, name, case))]


def problem(item: Item, factor: float) -> str | None:
    """What is wrong with the model of a call; "" if nothing is, None if there is none to compare."""
    try:
        program = fxgrad.make_program(item.ours)(*item.args)
    except Exception:  # noqa: BLE001  (what cannot be traced in this dtype says so by errors of many classes)
        return None
    try:
        compared(program, item.args, factor * item.tolerance, optimized=True)
    except UnsupportedError:
        return None
    except AssertionError as error:
        return f"{item.label} [{item.aspect}]: {error}"
    return ""


@pytest.mark.long
@pytest.mark.parametrize("library", LIBRARIES)
def test_functions(library: str) -> None:
    factor = 2e6 if library == "random" else 20.0  # random numbers are drawn in float32 on the way
    found = [problem(item, factor) for item in items(library) if item.label not in APART]
    problems = [each for each in found if each]
    assert not problems, "\n".join(problems)
    assert found.count("") > len(found) / 10


SLOPES = {
    "gelu": fxgrad.nn.gelu, "silu": fxgrad.nn.silu, "softmax": lambda x: fxgrad.nn.softmax(x) ** 2,
    "var": np.var, "softplus": fxgrad.nn.softplus, "logsumexp": fxgrad.nn.logsumexp, "std": np.std,
    "log_softmax": lambda x: fxgrad.nn.log_softmax(x) ** 2, "norm": np.linalg.norm,
}


def test_functions_beside_their_gradients_have_nodes_of_names_of_their_own() -> None:
    x = np.linspace(-1.0, 1.0, 4, dtype=np.float32)
    for function in SLOPES.values():
        program = fxgrad.make_program(lambda x, f=function: np.sum(f(x)) * fxgrad.grad(lambda x: np.sum(f(x)))(x))(x)
        compared(program, [x])
