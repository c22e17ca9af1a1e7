"""The tables of docs/onnx.md: what becomes of programs and of primitives."""
