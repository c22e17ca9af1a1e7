"""The programs of the tests: the nodes that they and their gradients become, each run by onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fxgrad
from tests.support.onnx_programs import CASES, Case
from tests.support.onnx_samples import every_node
from tests.support.with_onnx import compared

PROGRAMS_HEAD = ("program", "nodes", "with gradient")


def program_rows() -> list[tuple[str, str, str]]:
    """A row for each program."""
    return [(each.name.replace("_", " "), _nodes(each, each.function),
             _nodes(each, gradient(each)) if each.wrt else "-") for each in CASES]


def gradient(each: Case) -> Callable[..., Any]:
    """The function that gives the value of a case and its gradient."""
    return fxgrad.value_and_grad(each.function, argnums=each.wrt)


def _nodes(each: Case, function: Callable[..., Any]) -> str:
    model = compared(fxgrad.make_program(function)(*each.args), each.args, each.tolerance, optimized=True)
    return str(sum(1 for _ in every_node(model.graph)))
