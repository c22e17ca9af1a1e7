"""The samples of primitives as models: which of them onnxruntime computes as fxgrad does, and which are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

import fxgrad
from fxgrad import dtypes
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.tracing.tape import bind
from fxgrad.errors import UnsupportedError
from fxgrad.shipping.onnx.rules import onnx_rules
from tests.samples import Sample
from tests.support.with_onnx import compared

MANY = 30
"""So many samples of a primitive are run, of those that have a rule; of others, which take long, few."""
FEW = 3


class Row(NamedTuple):
    """The results for the samples of one primitive: the number of equal ones, the operators used, and refusals."""

    primitive: Primitive
    equal: int
    operators: Counter[str]
    refusals: Counter[str]


def run_samples(primitive: Primitive, samples: Sequence[Sample]) -> Row:
    """Exports the samples of a primitive one by one, checks the models, runs them, and compares."""
    entered = primitive in onnx_rules.entered()
    row = Row(primitive, 0, Counter(), Counter())
    for sample in [*_chosen(samples)][:MANY if entered else FEW]:
        args = sample.args()
        program = fxgrad.make_program(lambda *given, params=sample.params: bind(primitive, *given, **params),
                                      as_recorded=True)(*args)
        try:
            model = compared(program, args)
        except UnsupportedError as refusal:
            row.refusals[str(refusal).partition(f"to_onnx: {primitive} ")[2].partition("\n")[0]] += 1
            continue
        row.operators.update(node.op_type for node in every_node(model.graph))
        row = row._replace(equal=row.equal + 1)
    return row


def _chosen(samples: Iterable[Sample]) -> Iterable[Sample]:
    """Yield all but complex numbers, which are refused, and top_k's NaNs with a sign, ordered by their bits alone."""
    for sample in samples:
        arrays = [np.asarray(arg) for arg in sample.args()]
        made = [value.kind for value in sample.params.values() if isinstance(value, np.dtype)]
        if "c" not in made and not any(array.dtype.kind == "c" or _has_negative_nan(array) for array in arrays):
            yield sample


def _has_negative_nan(array: Any) -> bool:
    return dtypes.is_floating(array.dtype) and bool(np.any(np.isnan(array) & np.signbit(array)))


def every_node(graph: Any) -> Iterable[Any]:
    """Yield the nodes of a graph and of its inner graphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from every_node(attribute.g)
