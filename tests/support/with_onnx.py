"""Models run by onnxruntime and held to NumPy's results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import fxgrad.onnx
import numpy as np
import onnx
import onnxruntime

import fxgrad
from fxgrad import dtypes, tree
from fxgrad.engine.core.program import Program
from fxgrad.shipping.onnx.exporting import feeds

onnxruntime.set_default_logger_severity(3)
TOLERANCES = {"float64": 1e-11, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""Relative to the greatest element of a result, and to each element; integers and bools are equal."""


def run(model: Any, given: dict[str, Any], optimized: bool = False) -> list[Any]:
    """Return the outputs of a model, by onnxruntime on one thread."""
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    values = {name: _ort_value(array) for name, array in given.items()}
    return [_array(value) for value in session.run_with_ort_values(None, values)]


def _ort_value(array: Any) -> Any:
    array = np.asarray(array)
    if array.dtype == dtypes.bfloat16:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            np.ascontiguousarray(array).view(np.uint16).reshape(array.shape), onnx.TensorProto.BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array).reshape(array.shape))


def _array(value: Any) -> Any:
    if value.element_type() == onnx.TensorProto.BFLOAT16:
        raise AssertionError("results of bfloat16 are cast to float32 by `readable`")
    return value.numpy()


def readable(model: Any) -> Any:
    """Return the model with outputs of bfloat16, which onnxruntime has no arrays for, as float32."""
    for output in model.graph.output:
        if output.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16:
            old = output.name
            model.graph.node.append(onnx.helper.make_node("Cast", [old], [f"{old}.wide"], to=onnx.TensorProto.FLOAT))
            output.name, output.type.tensor_type.elem_type = f"{old}.wide", onnx.TensorProto.FLOAT
    return model


def to_onnx(function: Any, **options: Any) -> Callable[..., Any]:
    """Export like `fxgrad.onnx.to_onnx`, for tests of the model's text: each is checked, loaded and run."""
    def made(*args: Any) -> Any:
        model = fxgrad.onnx.to_onnx(function, **options)(*args)
        check(model)
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        run(readable(copy), {value.name: _ones(value.type.tensor_type) for value in model.graph.input})
        return model
    return made


def _ones(kind: Any) -> Any:
    """Return an array of a type; symbolic sizes are 3."""
    shape = [each.dim_value if each.HasField("dim_value") else 3 for each in kind.shape.dim]
    return np.ones(shape, onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))


def check(model: Any) -> None:
    """Run ONNX's checker with type inference, which must agree with fxgrad's types; and check names of nodes.

    onnxruntime refuses two nodes of one name, which the checker does not report.
    """
    onnx.checker.check_model(model, full_check=True)
    names = [node.name for node in _nodes(model.graph)]
    assert len({*names}) == len(names), sorted(name for name in {*names} if names.count(name) > 1)
    used = {name for node in model.graph.node for name in node.input}
    bodies = b"".join(node.SerializeToString() for node in model.graph.node if any(
        attribute.HasField("g") for attribute in node.attribute))
    assert all(each.name in used or each.name.encode() in bodies for each in model.graph.initializer)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)


def _nodes(graph: Any) -> Iterator[Any]:
    """Yield the nodes of a graph, and those of its inner graphs."""
    for node in graph.node:
        if node.name:
            yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def compared(program: Program, args: Sequence[Any], tolerance: float = 1.0, optimized: bool = False) -> Any:
    """The model of `program`, checked, run on `args` and held to the program's own results; returns the model."""
    model = fxgrad.onnx.to_onnx(program)()
    check(model)
    expected = tree.leaves(program(*args))
    outputs = run(readable(model), feeds(model, *args), optimized)
    for name, found, wanted in zip(model.graph.output, outputs, expected, strict=True):
        close(found, wanted, tolerance, name.name)
    return model


def close(found: Any, wanted: Any, tolerance: float, name: str) -> None:
    """Holds one array to another of its shape and dtype."""
    wanted = np.asarray(wanted)
    if dtypes.is_key(wanted.dtype):
        wanted = wanted["threefry2x32"]
    assert found.shape == wanted.shape, (name, found.shape, wanted.shape)
    if wanted.dtype.name not in TOLERANCES:
        np.testing.assert_array_equal(found, wanted, name)
        return
    allowed = TOLERANCES[wanted.dtype.name] * tolerance
    if wanted.dtype != dtypes.bfloat16:
        assert found.dtype == wanted.dtype, (name, found.dtype, wanted.dtype)
    with np.errstate(all="ignore"):
        finite = np.abs(wanted.astype(np.float64))
        scale = np.max(finite, initial=0.0, where=np.isfinite(finite))
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=allowed,
                               atol=allowed * float(scale), err_msg=name)
