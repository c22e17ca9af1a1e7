"""The table of kernels: onnxruntime makes a session of each operator in each dtype that the table has for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from fxgrad.shipping.onnx import protos
from fxgrad.shipping.onnx.kernels import KERNELS, NoKernel, kernel_dtype

IMAGES = {"Conv": ((1, 1, 4, 4), (1, 1, 2, 2)), "MaxPool": ((1, 1, 4, 4),), "Range": ((), (), ())}
OPERANDS = dict.fromkeys(("Add Sub Mul Div Mod Less LessOrEqual Greater GreaterOrEqual And Or Xor BitwiseAnd BitwiseOr "
                          "BitwiseXor BitShift Pow Max Min Equal MatMul Einsum").split(), 2) | {"Conv": 2, "Range": 3}
OPTIONS: dict[str, dict[str, Any]] = {
    "BitShift": {"direction": "LEFT"}, "MaxPool": {"kernel_shape": [2, 2]}, "Einsum": {"equation": "ij,jk->ik"}}
PLACES = {"ReduceSum": [0], "ReduceProd": [0], "ReduceMax": [0], "ReduceMin": [0], "TopK": [1], "Expand": [2, 2],
          "Tile": [1, 1], "Pad": [0, 0, 1, 1]}


def session(operator: str, name: str) -> None:
    """A session of a model of one node."""
    dtype = np.dtype(name)
    count = OPERANDS.get(operator, 1)
    shapes = IMAGES.get(operator, ((2, 2),) * count)
    inputs = [protos.value_info(f"x{number}", shape, dtype) for number, shape in enumerate(shapes)]
    names, constants = [each.name for each in inputs], []
    if operator == "Where":
        inputs = [protos.value_info("c", (2, 2), np.dtype(bool)), inputs[0]]
        names = ["c", "x0", "x0"]
    if operator == "CumSum":
        constants = [protos.make_tensor("places", np.array(0))]
    elif operator in PLACES:
        constants = [protos.make_tensor("places", np.array(PLACES[operator]))]
    outputs = ["y0", "y1"] if operator == "TopK" else ["y0"]
    options = OPTIONS.get(operator, {"fmod": 1} if operator == "Mod" and dtype.kind == "f" else {})
    node = protos.make_node(operator, [*names, *(each.name for each in constants)], outputs, options)
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    model = protos.make_model(protos.make_graph("one", [node], inputs, results, constants, []), 21)
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.slow
def test_there_are_kernels() -> None:
    missing = []
    for operator, names in KERNELS.items():
        for name in sorted(names - {"bfloat16"}):
            try:
                session(operator, name)
            except Exception as error:  # noqa: BLE001  (classes of onnxruntime's own)
                missing.append(f"{operator} of {name}: {error}")
    assert not missing, "\n".join(missing)


def test_ways() -> None:
    assert kernel_dtype("Add", np.dtype("int32")) is None
    assert kernel_dtype("Add", np.dtype("int8")) == (np.dtype("int32"), False)
    assert kernel_dtype("BitShift", np.dtype("uint16")) == (np.dtype("uint32"), False)
    assert kernel_dtype("Max", np.dtype("int16")) == (np.dtype("int32"), False)
    assert kernel_dtype("TopK", np.dtype("uint64")) == (np.dtype("int64"), True)
    assert kernel_dtype("Where", np.dtype("uint64")) == (np.dtype("int64"), False)
    with pytest.raises(NoKernel, match="Erf of float64"):
        kernel_dtype("Erf", np.dtype("float64"))
