"""Programs as models of ONNX: `to_onnx` makes one, `save` writes it to a file, `feeds` names the arguments for it."""

from fxgrad.shipping.onnx import (  # noqa: F401  (they enter rules)
    definitions,
    elementwise,
    indexing,
    linalg,
    loops,
    moves,
    pooling,
    products,
    random,
    reductions,
    refusals,
    trigonometric,
)
from fxgrad.shipping.onnx.exporting import feeds, save, to_onnx

__all__ = ["feeds", "save", "to_onnx"]
