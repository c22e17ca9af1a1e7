"""First-order operations: a module per family, each primitive with all its rules in one record.

`families` builds records, `structural` holds the operations that transformations themselves need. The modules import
those two, and each other where a derivative needs it, and nothing above. `xla` rules receive `lax`; only `xla_kernels`
imports jax.

Importing this package imports every module, so that all primitives are registered.
"""

from fxgrad.engine.ops import (
    arithmetic,
    barrier,
    below_byte,
    comparison,
    conversion,
    convolution,
    cpu_kernels,
    creation,
    cumulative,
    determinant,
    dynamic,
    eigen,
    exponential,
    factorizations,
    fft,
    gamma,
    hypergeometric,
    indexing,
    integrals,
    joining,
    matrices,
    matrix_functions,
    moving,
    ordering,
    parts,
    pointwise,
    pool,
    products,
    pseudoinverse,
    ragged,
    random,
    reduced_forms,
    reductions,
    samplers,
    select,
    shaping,
    singular,
    special,
    strong,
    strong_solves,
    structural,
    tails,
    topk,
    triangular,
    trigonometric,
    varying,
    windows,
    xla_kernels,
)

__all__ = ["arithmetic", "barrier", "below_byte", "select", "comparison", "conversion", "convolution", "cpu_kernels",
           "creation", "cumulative", "determinant", "dynamic", "eigen", "exponential", "factorizations", "fft", "gamma",
           "hypergeometric", "indexing", "integrals", "joining", "matrices", "matrix_functions", "moving", "ordering",
           "parts", "pointwise", "pool", "products", "pseudoinverse", "ragged", "random", "reduced_forms",
           "reductions", "samplers", "shaping", "singular", "structural", "special", "strong", "strong_solves",
           "tails", "topk", "triangular", "trigonometric", "varying", "windows", "xla_kernels"]
