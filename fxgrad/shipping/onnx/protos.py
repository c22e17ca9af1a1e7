"""The protocol buffers of a model: the only module that imports the package onnx."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from fxgrad import dtypes
from fxgrad.errors import UnsupportedError
from fxgrad.extend import DType
from fxgrad.shipping.onnx.kernels import NARROW

IR_VERSIONS = {21: 10, 26: 13}
"""The version of the file format that introduced each version of the operators."""


def require_onnx() -> ModuleType:
    """Return the package onnx; raise `UnsupportedError`, which says how to install it, if there is none."""
    try:
        import onnx
        import onnx.helper
        import onnx.numpy_helper
    except ImportError:
        raise UnsupportedError("fxgrad.onnx writes models with the package onnx, which is not installed: "
                               "pip install 'fxgrad[onnx]'") from None
    return onnx


def element_type(dtype: DType) -> int:
    """Return ONNX's number of a dtype."""
    if dtype.name in dtypes.NARROW_FLOATS + dtypes.NARROW_INTEGERS and dtype.name not in NARROW:
        raise UnsupportedError(f"to_onnx: onnxruntime does not compute with {dtype.name}; of the narrow dtypes it has "
                               f"{', '.join(NARROW)}. Convert first, for example x.astype('float32')")
    number: int = require_onnx().helper.np_dtype_to_tensor_dtype(dtype)
    return number


def value_info(name: str, shape: Sequence[Any], dtype: DType) -> Any:
    """Return the name of a value with its type; symbolic sizes are written by name."""
    sizes = [size if isinstance(size, int) else str(size) for size in shape]
    return require_onnx().helper.make_tensor_value_info(name, element_type(dtype), sizes)


def make_tensor(name: str, array: Any) -> Any:
    """Return an array to be stored in the model."""
    return require_onnx().numpy_helper.from_array(np.ascontiguousarray(array).reshape(np.shape(array)), name)


def make_node(operator: str, inputs: Sequence[str], outputs: Sequence[str], attributes: dict[str, Any]) -> Any:
    """Return one node."""
    return require_onnx().helper.make_node(operator, inputs, outputs, **attributes)


def make_graph(name: str, nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], constants: Sequence[Any],
               known: Sequence[Any]) -> Any:
    """Return a graph: of a model, or of the body of a loop or a branch; `known` are types of inner values."""
    return require_onnx().helper.make_graph(nodes, name, inputs, outputs, constants, value_info=known)


def make_model(graph_proto: Any, opset: int) -> Any:
    """Return the model of a graph that uses operators of version `opset`."""
    helper = require_onnx().helper
    return helper.make_model(graph_proto, opset_imports=[helper.make_opsetid("", opset)],
                             ir_version=IR_VERSIONS[opset], producer_name="fxgrad")
