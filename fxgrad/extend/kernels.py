"""NumPy code of operations: the kernel of each, and its expression in generated code.

`snippet_of(primitive, avals, params)` is the expression, or None if the kernel is called. `kernel_for(equation)` is the
kernel that the executor calls; for dtypes below a byte, which NumPy cannot compute with, it widens (`WIDER`).
"""

from fxgrad.engine.core.primitive import ArrayKernel
from fxgrad.engine.executors import evaluate
from fxgrad.engine.executors.numpy import evaluate as evaluate_with_numpy
from fxgrad.engine.ops.below_byte import WIDER, kernel_for
from fxgrad.engine.ops.snippets import Snippet, snippet_of

__all__ = ["ArrayKernel", "Snippet", "WIDER", "evaluate", "evaluate_with_numpy", "kernel_for", "snippet_of"]
