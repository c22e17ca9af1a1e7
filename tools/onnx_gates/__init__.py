"""The tables of docs/appendix/onnx.md: what becomes of programs and of primitives."""
