"""Shipping: programs that leave the process, as files, exported modules, ONNX models, C and Python source.

`files` (save and load), `exports` (compiled StableHLO), `onnx`, `c` (`program.to_c`), `python` (`program.to_python`).
It imports `fxgrad.extend`, the public API, the text of programs, and the bridge to jax.
"""
