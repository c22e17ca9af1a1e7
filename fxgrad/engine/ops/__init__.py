"""First-order operations: a room per family, each primitive with all its rules in one record.

`families` builds records, `structural` holds what transformations themselves need; the rooms import those two and
each other where a derivative calls for it, and nothing above. `xla` rules are handed `lax`; only
`xla_kernels` imports jax.

Importing this package imports every room, so that all primitives are registered.
"""

from fxgrad.engine.ops import (
    arithmetic,
    barrier,
    below_byte,
    comparison,
    conversion,
    convolution,
    creation,
    cumulative,
    determinant,
    dynamic,
    eigen,
    exponential,
    factorizations,
    fft,
    gamma,
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
    topk,
    triangular,
    trigonometric,
    varying,
    windows,
    xla_kernels,
)

__all__ = ["arithmetic", "barrier", "below_byte", "select", "comparison", "conversion", "convolution", "creation",
           "cumulative", "determinant", "dynamic", "eigen", "exponential", "factorizations", "fft", "gamma",
           "indexing", "integrals", "joining", "matrices", "matrix_functions", "moving", "ordering",
           "parts", "pointwise", "pool", "products", "pseudoinverse", "ragged", "random", "reduced_forms",
           "reductions", "samplers", "shaping", "singular", "structural", "special", "strong", "strong_solves",
           "topk", "triangular", "trigonometric", "varying", "windows", "xla_kernels"]
